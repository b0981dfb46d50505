"""One tar on standard input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO

from tar2tf_cli.errors import UsageError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.stores.base import Source
from tar2tf_cli.stores.object_info import ObjectInfo

__all__ = ["StdinSource"]


class StdinSource(Source):
    """Standard input as a bucket of one shard; it can be read once."""

    bucket = "-"
    repeatable = False

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List one input named `-`, of unknown size and version."""
        if templates:
            raise UsageError("standard input is a single tar, so it takes no template")
        if os.isatty(0):
            raise UsageError(
                "standard input is a terminal, not a shard", hint="pipe or redirect one to it: ... - < x.tar"
            )
        return [ObjectInfo("-", None, None)]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open the process's standard input, unbuffered."""
        return FileIO(os.dup(0))

    def locate(self, name: str) -> str:
        """`<stdin>`."""
        return "<stdin>"
