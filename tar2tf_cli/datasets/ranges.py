"""Byte ranges of compressed shards, and of tars whose samples have scattered members."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Ranges
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.streams import decompressed
from tar2tf_cli.formats.tfrecord import StreamPositions


class RegroupedRanges(Ranges):
    """Reads ranges of a tar as if the members of each sample were adjacent.

    Args:
        stored: reads the stored bytes of the tar.
        members: the position of each run of members in the tar and in the regrouped bytes.
    """

    gap = 0

    def __init__(self, stored: Ranges, members: StreamPositions) -> None:
        self.parallel = stored.parallel
        self._stored = stored
        self._members = members

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Read the members that a byte range covers.

        Raises:
            SourceError: when they cannot be read, or the shard is not the version that was listed.
        """
        _, stored, plain = self._members
        end = min(start + size, int(plain[-1]))
        first, last = int(np.searchsorted(plain, start, "right")) - 1, int(np.searchsorted(plain, end, "left"))
        begins, ends = np.maximum(plain[first:last], start), np.minimum(plain[first + 1 : last + 1], end)
        offsets = stored[first:last] + begins - plain[first:last]
        spans = list(zip(offsets.tolist(), (ends - begins).tolist(), strict=True))
        return b"".join(self._stored.read_each(item, spans))


class StreamCache:
    """Cache of the most recently used decompressed streams, for all threads of a process.

    No stream is decompressed by two threads at once.
    """

    MOST: Final = 64 << 20
    """How many bytes are kept, besides those of the last stream."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, int], Future[bytes]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, shard: str, number: int, decompress: Callable[[], bytes]) -> bytes:
        """Return the bytes of a shard's stream, calling `decompress` if they are not cached."""
        key = shard, number
        with self._lock:
            kept = self._streams.get(key)
            if kept:
                self._streams.move_to_end(key)
            else:
                mine = self._streams[key] = Future()
        if kept:
            return kept.result()
        try:
            data = decompress()
        except BaseException as error:
            with self._lock:
                del self._streams[key]
            mine.set_exception(error)
            raise
        mine.set_result(data)
        self._make_room(len(data))
        return data

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._size += size
            while self._size - size > self.MOST:
                oldest = next(key for key, stream in self._streams.items() if stream.done())
                self._size -= len(self._streams.pop(oldest).result())


class DecompressedRanges(Ranges):
    """Reads ranges of a shard's decompressed bytes.

    Args:
        stored: reads the stored bytes of the shard.
        streams: the positions of its streams.
        name: its path or URL.
        recent: caches decompressed streams.
    """

    gap = 0

    def __init__(self, stored: Ranges, streams: StreamPositions, name: str, recent: StreamCache) -> None:
        self.parallel = stored.parallel
        self._stored = stored
        self._streams = streams
        self._name = name
        self._recent = recent

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Decompress the streams that a byte range covers.

        Raises:
            DamagedShardError: when a stream is damaged, or differs from the index.
            SourceError: when they cannot be read, or the shard is not the version that was listed.
        """
        plain = self._streams.plain
        end = min(start + size, int(plain[-1]))
        first = int(np.searchsorted(plain, start, "right")) - 1
        last = int(np.searchsorted(plain, end, "left"))
        parts = [self._part(item, number, start, end) for number in range(first, last)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, item: ObjectInfo, number: int, start: int, end: int) -> bytes:
        """Return the part of a range of decompressed bytes that is in one stream."""
        data = self._recent.get(self._name, number, lambda: self._decompressed(item, number))
        begin = int(self._streams.plain[number])
        return data[max(start - begin, 0) : end - begin]

    def _decompressed(self, item: ObjectInfo, number: int) -> bytes:
        method, stored, plain = self._streams
        begin, end = stored[number : number + 2].tolist()
        try:
            data = decompressed(self._stored.read(item, begin, end - begin), self._name, method)
        except DamagedShardError as error:
            error.offset = begin
            raise
        before = int(plain[number + 1] - plain[number])
        if len(data) != before:
            message = f"the {method} stream has {len(data):,} bytes now, but had {before:,} before"
            raise DamagedShardError(message, kind=method, shard=self._name, offset=begin)
        return data
