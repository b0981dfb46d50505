"""Shards as test data, and a helper that reads them."""

from __future__ import annotations

import io
import tarfile

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source


def tar_of(count: int, size: int = 2000, first: int = 0) -> bytes:
    """Return a tar of `count` samples, each with an entry `jpg` of a given size and an entry `cls` of one digit."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for number in range(first, first + count):
            for entry, data in (("jpg", bytes([number % 251]) * size), ("cls", b"%d" % (number % 10))):
                info = tarfile.TarInfo(f"{number:06d}.{entry}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return whole.getvalue()


def read_all(source: Source, item: ObjectInfo, size: int = 1 << 16) -> bytes:
    """Read an input to its end, at most `size` bytes at a time."""
    stream = source.open(item)
    try:
        return b"".join(iter(lambda: stream.read(size), b""))
    finally:
        stream.close()
