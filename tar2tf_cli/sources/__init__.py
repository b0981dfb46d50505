"""Where shards come from: one small class per kind of bucket, chosen by how the bucket is written."""

from __future__ import annotations

from tar2tf_cli.sources.base import ByteStream, Input, Source

__all__ = ["ByteStream", "Input", "Source", "open_source"]


def open_source(bucket: str) -> Source:
    """The source for a bucket: a directory, a tar file, or `-` for one tar on standard input.

    Raises:
        SourceError: when there is no such bucket.
        UsageError: when no kind of source reads such a bucket.
    """
    if bucket == "-":
        from tar2tf_cli.sources.stdin import StdinSource

        return StdinSource()
    if "://" in bucket:
        from tar2tf_cli.errors import UsageError

        scheme = bucket.partition("://")[0]
        raise UsageError(f"{scheme}:// buckets cannot be read yet", hint="give a directory, a tar file or -")
    from tar2tf_cli.sources.directory import DirectorySource

    return DirectorySource(bucket)
