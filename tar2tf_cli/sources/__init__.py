"""Where shards come from: one small class per kind of bucket, chosen by how the bucket is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tar2tf_cli.sources.base import ByteStream, Input, Source

if TYPE_CHECKING:
    from tar2tf_cli.sources.objects import Store

__all__ = ["ByteStream", "Input", "Source", "is_remote", "open_source", "open_store"]


def open_source(bucket: str, *, endpoint: str | None = None) -> Source:
    """The source for a bucket: a directory, a tar file, `-` for one tar on standard input, or a URL.

    Args:
        bucket: `ais://`, `ais+s3://`, `ais+gs://`, `s3://`, `gs://`, `http://`, `https://`, a path, or `-`.
        endpoint: where the store answers, for AIStore and for S3 and GCS at other places than Amazon's and Google's.

    Raises:
        SourceError: when there is no such bucket.
        UsageError: when no kind of source reads such a bucket.
    """
    if is_remote(bucket):
        from tar2tf_cli.sources.objects import ObjectSource

        return ObjectSource(open_store(bucket, endpoint=endpoint))
    if bucket == "-":
        from tar2tf_cli.sources.stdin import StdinSource

        return StdinSource()
    from tar2tf_cli.sources.directory import DirectorySource

    return DirectorySource(bucket)


def is_remote(bucket: str) -> bool:
    """Whether a bucket is written as a URL."""
    return "://" in bucket


def open_store(bucket: str, *, endpoint: str | None = None) -> Store:
    """The object store that a URL names.

    Raises:
        UsageError: for a scheme that is none of ours.
    """
    scheme = bucket.partition("://")[0]
    if scheme in ("http", "https"):
        from tar2tf_cli.sources.http import HttpStore

        return HttpStore(bucket)
    if scheme == "ais" or scheme.startswith("ais+"):
        from tar2tf_cli.sources.ais import AisStore

        return AisStore(bucket, endpoint)
    if scheme in ("s3", "gs"):
        from tar2tf_cli.sources.cloud import GcsStore, S3Store

        return (S3Store if scheme == "s3" else GcsStore)(bucket, endpoint)
    from tar2tf_cli.errors import UsageError

    raise UsageError(
        f"there are no {scheme}:// buckets",
        hint="BUCKET is a directory, a tar file, - or begins with ais://, ais+s3://, ais+gs://, s3://, gs://, http(s)://",
    )
