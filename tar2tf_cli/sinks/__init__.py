"""Sinks: publish finished files in a folder or a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tar2tf_cli.errors import UsageError, alternatives
from tar2tf_cli.sinks.directory import DirectorySink, Flusher, Sink
from tar2tf_cli.spec.urls import ConnectionOptions, check_url, is_remote
from tar2tf_cli.stores import open_store

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["DirectorySink", "Flusher", "Sink", "open_sink"]


def open_sink(path: str, **connection: Unpack[ConnectionOptions]) -> Sink:
    """Return the sink of an output path: a folder, or the bucket of a URL.

    Args:
        path: the output path.
        connection: `ConnectionOptions` of the bucket's server.

    Raises:
        UsageError: for a URL that cannot be written to, or that contains credentials.
    """
    if not is_remote(path):
        return DirectorySink()
    from tar2tf_cli.stores.schemes import is_writable, schemes, store_class

    check_url(path)
    if not is_writable(store_class(path)):
        hint = f"write to {alternatives(['a folder', *schemes(writable=True)])}"
        raise UsageError(f"{path.partition('://')[0]}:// buckets cannot be written to", hint=hint)
    url = bucket_url(path)
    if url == path:
        raise UsageError(
            f"the output path {path!r} has no file name", hint=f"add one, such as '{path}/train-<>.record'"
        )
    if "<" in url or "{" in url:
        raise UsageError(f"the output path {path!r} has a field in its bucket name", hint="put fields after the bucket")
    from tar2tf_cli.sinks.objects import ObjectSink

    return ObjectSink(open_store(url, **connection), url)


def bucket_url(path: str) -> str:
    """Return the part of a URL that names the bucket: `ais://@uuid#ns/bucket`, `hf://buckets/user/bucket`, `s3://bucket`."""
    scheme, _, rest = path.partition("://")
    parts = rest.split("/")
    count = 3 if scheme == "hf" else 2 if parts[0].startswith(("@", "#")) else 1
    return f"{scheme}://{'/'.join(parts[:count])}"
