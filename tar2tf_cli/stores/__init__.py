"""Buckets: `open_source` for reading their shards, `open_store` for their objects.

A bucket is given as the user writes it, as a path or a URL. A `Source` lists and opens inputs, and a `Store` sends one
request per call.

| bucket | files |
|---|---|
| a directory, a tar file, `-` | `directory` |
| URLs | the store that `schemes` names, over `curl` (requests under way) or obstore; `control`: AIStore's other calls |
| all URLs | `source`: their `Source`; `objects`: requests with retries; `ranges`: random access |
| | `retries`: failures; `transfer`: downloads; `client`: the connections of a process |
| all buckets | `base`: read-ahead and templates |

There are three kinds of read-ahead: of the next blocks of a stream (`transfer.ResumingStream`; several parts at once if
a connection is slow), of inputs that will be opened soon (`Source.prefetch`), and of blocks after a range that was read
(`ranges.ObjectRanges`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from tar2tf_cli.api.source import Source
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import check_url, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from tar2tf_cli.api.store import Store
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.urls import ConnectionOptions

    OpenStore: TypeAlias = Callable[[str, "str | None"], Store]

__all__ = ["connection_options", "open_source", "open_store", "read_with_folder"]


def open_source(bucket: str, **connection: Unpack[ConnectionOptions]) -> Source:
    """Open a bucket as a source of shards: a directory, a tar file, `-` for one tar on standard input, or a URL.

    Args:
        bucket: `ais://`, `ais+s3://`, `ais+gs://`, `s3://`, `gs://`, `az://`, `http://`, `https://`, a path, or `-`;
            it may end with a template, as in `shards/train-{0..9}.tar`.
        connection: `ConnectionOptions` of the bucket's server.

    Raises:
        SourceError: when a local bucket does not exist; other buckets are checked when they are listed.
        UsageError: for a URL of an unknown kind, or one that is not valid.
    """
    folder, template = split_template(bucket)
    source: Source
    if is_remote(folder):
        from tar2tf_cli.stores.source import ObjectSource

        source = ObjectSource(open_store(folder, **connection))
    elif folder == "-":
        from tar2tf_cli.stores.directory import StdinSource

        source = StdinSource()
    else:
        from tar2tf_cli.stores.directory import DirectorySource

        source = DirectorySource(folder)
    if template:
        source.templates = (template,)
    return source


def read_with_folder(url: str, **connection: Unpack[ConnectionOptions]) -> tuple[bytes, Source] | None:
    """Read a small object at a URL, such as a manifest: return its bytes and its folder; None if it does not exist.

    Raises:
        SourceError: when the object cannot be read.
        UsageError: for a URL of an unknown kind.
    """
    from tar2tf_cli.stores.objects import read_object
    from tar2tf_cli.stores.source import ObjectSource

    parent = open_store(url, **connection).parent()
    if parent is None:
        return None
    folder, name = parent
    data = read_object(folder, name)
    folder.bucket = folder.locate("").rstrip("/")
    return None if data is None else (data, ObjectSource(folder))


def connection_options(url: str, conversion: Conversion, endpoint: str | None) -> ConnectionOptions:
    """Return the connection options for the input or the output of a conversion, given its URL or path.

    The endpoint applies to AIStore if the input or the output is in AIStore, otherwise to every bucket; paths and web
    addresses have none.
    """
    bucket, kind = conversion.input.bucket, _kind(url)
    is_for_ais = "ais" in (_kind(bucket), _kind(conversion.output.path))
    is_meant = kind == "ais" if is_for_ais else kind not in ("", "http", "https")
    return {
        "endpoint": endpoint if is_meant else None,
        "retry_for": conversion.retry_for,
        "no_sign_request": conversion.input.no_sign_request and url == bucket,
    }


def _kind(url: str) -> str:
    return url.partition("://")[0].partition("+")[0] if is_remote(url) else ""


def open_store(bucket: str, **connection: Unpack[ConnectionOptions]) -> Store:
    """Open the object store of a URL.

    Raises:
        UsageError: for an unknown scheme, for a URL that must not contain credentials but does, for an endpoint that is
            not text, and for a `retry_for` that is not a number of seconds.
    """
    from tar2tf_cli.ops.rules import accepted, optional, text
    from tar2tf_cli.stores.retries import retry_seconds
    from tar2tf_cli.stores.schemes import store_class

    check_url(bucket)
    endpoint = accepted(optional(text), connection.get("endpoint") or None, "endpoint")
    store = cast("OpenStore", store_class(bucket))(bucket, endpoint)
    store.retry_for = retry_seconds(connection.get("retry_for"))
    store.unsigned = connection.get("no_sign_request", store.unsigned)
    return store
