"""Shards in a bucket of any kind: tars and TFRecords, recognised by content."""

from __future__ import annotations

from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import Source, endpoint_for, open_source


def open_input(conversion: Conversion, endpoint: str | None) -> Source:
    """Return the source of the conversion's shards."""
    spec = conversion.input
    return open_source(
        spec.bucket,
        endpoint=endpoint_for(spec.bucket, conversion.output.path, endpoint),
        retry_for=conversion.retry_for,
        no_sign_request=spec.no_sign_request,
    )
