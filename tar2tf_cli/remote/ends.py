"""End records of answers that a cluster stores as shards, kept until the client asks for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.formats.record_file import write_whole
from tar2tf_cli.remote.stream import end_record
from tar2tf_cli.stores.transfer import hasher

__all__ = ["EndKept"]

_BLOCK: Final = 1 << 20


class EndKept:
    """The end record of one object's answer, in the folder for temporary files.

    Args:
        name: the object's name.
        settings: the digest of the transformer's settings.
    """

    def __init__(self, name: str, settings: str) -> None:
        key = "\0".join((os.environ.get("AIS_TARGET_URL", ""), name, settings))
        digest = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        self._path = os.path.join(tempfile.gettempdir(), f"tar2tf-end-{digest}")

    def keep(self, answer: str, end: Mapping[str, Any]) -> None:
        """Cut the end record off an answer and keep it, with the XXH64 of the rest, AIStore's usual checksum."""
        os.truncate(answer, end["bytes"])
        digest = hasher("xxhash2")
        with open(answer, "rb", buffering=0) as file:
            while digest and (data := file.read(_BLOCK)):
                digest.update(data)
        sum_of = {"xxh64": digest.hexdigest()} if digest else {}
        write_whole(self._path, [end_record({**end, **sum_of})], lasting=False)

    def give(self, answer: str) -> bool:
        """Write the end record to an answer, and keep it no longer; false if there is none."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        with open(answer, "wb") as out:
            out.write(data)
        return True
