"""Shards in a bucket of any kind: tars and TFRecords, detected by content."""

from __future__ import annotations

from tar2tf_cli.api.source import Source
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import connection_options, open_source


def open_input(conversion: Conversion, endpoint: str | None) -> Source:
    """Return the source of the conversion's shards."""
    bucket = conversion.input.bucket
    return open_source(bucket, **connection_options(bucket, conversion, endpoint))
