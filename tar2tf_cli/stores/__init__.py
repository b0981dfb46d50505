"""Where bytes live: `open_source` for reading shards, `open_store` for the objects of a bucket.

In: a bucket as the user writes it, a path or a URL. Out: a `Source`, which lists and opens inputs, or a `Store`, which
sends one request per call.

| bucket | files |
|---|---|
| a directory, a tar file, `-` | `directory` |
| `http(s)://` | `web`, over `curl` (requests under way) |
| `ais://` | `ais`, over the same; `control`: calls that are not about bytes |
| `s3://`, `gs://`, `az://` | `cloud`, over obstore |
| all URLs | `store`: what a `Store` is, and their `Source`; `retries`: failures; `transfer`: downloads |
| all of them | `base`: what a `Source` is |

What is fetched before it is read: the next blocks of a stream (`transfer.ResumingStream`; parts at once where a
connection is slow), inputs that will be opened soon (`Source.prefetch`), and blocks behind a range that was read
(`store.ObjectRanges`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.errors import UsageError
from tar2tf_cli.registry import files_in
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import check_url, is_remote

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.urls import ConnectionOptions
    from tar2tf_cli.stores.store import ObjectStore

__all__ = [
    "ObjectInfo",
    "Source",
    "open_source",
    "open_store",
    "reach_of",
    "read_with_folder",
]


def open_source(bucket: str, **reach: Unpack[ConnectionOptions]) -> Source:
    """The source for a bucket: a directory, a tar file, `-` for one tar on standard input, or a URL.

    Args:
        bucket: `ais://`, `ais+s3://`, `ais+gs://`, `s3://`, `gs://`, `az://`, `http://`, `https://`, a path, or `-`;
            it may end with a template, as in `shards/train-{0..9}.tar`.
        reach: how its server is reached.

    Raises:
        SourceError: when a local bucket does not exist; other buckets are checked when they are listed.
        UsageError: for a URL of an unknown kind, or one that is not valid.
    """
    folder, template = split_template(bucket)
    source: Source
    if is_remote(folder):
        from tar2tf_cli.stores.store import ObjectSource

        source = ObjectSource(open_store(folder, **reach))
    elif folder == "-":
        from tar2tf_cli.stores.directory import StdinSource

        source = StdinSource()
    else:
        from tar2tf_cli.stores.directory import DirectorySource

        source = DirectorySource(folder)
    if template:
        source.templates = (template,)
    return source


def read_with_folder(url: str, **reach: Unpack[ConnectionOptions]) -> tuple[bytes, Source] | None:
    """Read a small object at a URL, such as a manifest: its bytes and its folder; None if it does not exist.

    Raises:
        SourceError: when it cannot be read.
        UsageError: for a URL of an unknown kind.
    """
    from tar2tf_cli.stores.store import ObjectSource

    parent = open_store(url, **reach).parent()
    if parent is None:
        return None
    folder, name = parent
    data = folder.read(name)
    folder.bucket = folder.locate("").rstrip("/")
    return None if data is None else (data, ObjectSource(folder))


def reach_of(url: str, conversion: Conversion, endpoint: str | None) -> ConnectionOptions:
    """Return how the server of one end of a conversion is reached, by the URL or path of that end.

    The endpoint is that of AIStore when one end is AIStore, else that of every cloud bucket; a path has none.
    """
    bucket, kind = conversion.input.bucket, _kind(url)
    is_for_ais = "ais" in (_kind(bucket), _kind(conversion.output.path))
    is_meant = kind in (("ais",) if is_for_ais else ("s3", "gs", "az"))
    return {
        "endpoint": endpoint if is_meant else None,
        "retry_for": conversion.retry_for,
        "no_sign_request": conversion.input.no_sign_request and url == bucket,
    }


def _kind(url: str) -> str:
    return url.partition("://")[0].partition("+")[0] if is_remote(url) else ""


def open_store(bucket: str, **reach: Unpack[ConnectionOptions]) -> ObjectStore:
    """Open the object store of a URL.

    Raises:
        UsageError: for an unknown scheme, and for a URL with credentials where they do not belong.
    """
    from tar2tf_cli.stores.retries import wanted_retry_for

    check_url(bucket)
    store = _store(bucket, reach.get("endpoint"))
    store.retry_for = wanted_retry_for(reach.get("retry_for"))
    store.unsigned = reach.get("no_sign_request", store.unsigned)
    return store


_SHARED: Final = {"http": "web", "https": "web", "s3": "cloud", "gs": "cloud", "az": "cloud"}
"""The files that serve several schemes; the file of any other is named after it."""


def _store(bucket: str, endpoint: str | None) -> ObjectStore:
    scheme = bucket.partition("://")[0]
    name = scheme.partition("+")[0]
    file = _SHARED.get(name, name)
    schemes = import_module(f"{__name__}.{file}").__dict__.get("SCHEMES", {}) if file in files_in(__name__) else {}
    if name not in schemes:
        raise UsageError(
            f"{scheme}:// buckets are not supported",
            hint="BUCKET is a directory, a tar file, - or starts with "
            "ais://, ais+s3://, s3://, gs://, az:// or http(s)://",
        )
    return schemes[name](bucket, endpoint)  # type: ignore[no-any-return]
