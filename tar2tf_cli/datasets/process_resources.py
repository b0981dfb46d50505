"""Files, connections and threads shared by the readers of one process, and prefetched data of distant buckets."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import DistantSource, OnFile, Ranges, Source
from tar2tf_cli.datasets.batches import OpenFiles
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.streams import decompressed, read_to_end
from tar2tf_cli.formats.tfrecord import StreamPositions
from tar2tf_cli.inputs.energon_index import dali_path_for_energon, energon_offsets
from tar2tf_cli.inputs.shard_set import MANIFEST_SUFFIX, is_shard_name
from tar2tf_cli.stores.objects import read_object

if TYPE_CHECKING:
    from tar2tf_cli.inputs.manifest import Document, ShardEntry


T = TypeVar("T")

_THREADS: Final = 32
_MOST_BEFOREHAND: Final = 16
"""The most shards of a far bucket whose beginnings and indexes are requested before anybody reads them."""

_BEGINNING: Final = 1 << 16


class ProcessResources:
    """Open files, connections and threads shared by the readers of one process.

    Attributes:
        number: the number of the process.
        recent: the most recently decompressed streams of compressed shards.
        files: open files of local shards.
    """

    def __init__(self) -> None:
        self.number = os.getpid()
        self._indexing: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._index_files: dict[tuple[int, str], Future[bytes | None]] = {}
        self._listed: dict[int, tuple[Source, dict[str, ObjectInfo]]] = {}  # with the source, as in `_ranges`
        self._beforehand: dict[int, set[str]] = {}
        self._open()

    def _open(self) -> None:
        self.recent = StreamCache()
        self._ranges: dict[int, tuple[Source, Ranges]] = {}  # with the source, so that no other object gets its id
        self.files = OpenFiles()
        self._pool = ThreadPoolExecutor(_THREADS, "tar2tf-read")  # threads start with the first requests
        self._index_pool = ThreadPoolExecutor(_THREADS, "tar2tf-index")  # as the first pool waits for these files

    def close(self) -> None:
        """Close open files and connections after pending reads; later reads reopen them."""
        with self._lock:
            pools, files = (self._pool, self._index_pool), self.files
            self._open()
        files.close()
        for pool in pools:
            pool.shutdown()

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Call a function in a thread of the pool."""
        with self._lock:
            return self._pool.submit(function, *arguments)

    def ranges(self, source: Source) -> Ranges:
        """Return the reader of a source's byte ranges."""
        known = self._ranges.get(id(source))
        if known is None:
            with self._lock:
                known = self._ranges.setdefault(id(source), (source, source.ranges()))
        return known[1]

    def indexing(self, number: int) -> threading.Lock:
        """Return the lock held while a shard's index is found."""
        return self._indexing.setdefault(number, threading.Lock())

    def index_file(self, source: Source, name: str) -> Future[bytes | None]:
        """Return a future of the bytes of SHARD.idx, or of DALI's index if SHARD.idx is Energon's.

        The result is None if there is no such file, which is not requested if a listing has shown that.
        """
        with self._lock:
            if requested := self._index_files.pop((id(source), name), None):
                return requested
            if self._lacks_index(source, name):
                absent: Future[bytes | None] = Future()
                absent.set_result(None)
                return absent
            return self._index_pool.submit(_index_file, source, name)

    def on_listing(self, source: Source, *, whole: bool) -> OnFile | None:
        """Return a function that notes which files are in a bucket, given each of them while they are listed.

        From a distant bucket, it requests the manifests, first bytes and indexes of a few shards. The result is None if
        requests are fast.

        Args:
            source: the bucket.
            whole: whether all of its files are wanted, not only those that match a template.
        """
        if not isinstance(source, DistantSource):
            return None
        distant = source
        _, listed = self._listed.setdefault(id(source), (source, {}))

        def on_file(file: ObjectInfo) -> None:
            if file.name not in listed:
                listed[file.name] = file
                if whole and self._is_far(source):
                    self._request(distant, listed, file)

        return on_file

    def _request(self, source: DistantSource, listed: Mapping[str, ObjectInfo], file: ObjectInfo) -> None:
        """Request a file that will be read: a manifest, or the index or the first bytes of one of a few shards."""
        shard = listed.get(file.name.removesuffix(".idx"))
        if file.name.endswith(MANIFEST_SUFFIX):
            source.begin(file)
        elif shard and shard is not file and self._is_among_first(source, shard.name):
            self._request_indexes(source, [shard.name])
            self._request_beginning(source, shard)
        elif is_shard_name(file.name) and self._is_among_first(source, file.name):
            self._request_beginning(source, file)

    def _is_among_first(self, source: Source, name: str) -> bool:
        """Whether a shard is among those of a bucket whose first bytes are requested beforehand."""
        shards = self._beforehand.setdefault(id(source), set())
        if len(shards) < _MOST_BEFOREHAND:
            shards.add(name)
        return name in shards

    def _request_beginning(self, source: Source, shard: ObjectInfo) -> None:
        self.submit(self.ranges(source).read, shard, 0, 1)

    def begin(self, source: Source, shards: Sequence[ObjectInfo]) -> None:
        """Request the first bytes and the indexes of a few shards in a distant bucket."""
        if len(shards) <= _MOST_BEFOREHAND and self._is_far(source):
            self._request_indexes(source, [shard.name for shard in shards])
            for shard in shards:
                self._request_beginning(source, shard)

    def _lacks_index(self, source: Source, name: str) -> bool:
        """Whether a listing has shown that a shard has no index."""
        _, listed = self._listed.get(id(source), (source, {}))
        return name in listed and f"{name}.idx" not in listed

    def find_checked(self, document: Document, shards: Sequence[ShardEntry]) -> list[ObjectInfo]:
        """Return shards as `Document.find_checked` does; prefetch the first bytes of a few from a distant bucket."""
        if not self._is_far(document.folder) or len(shards) > _MOST_BEFOREHAND:
            return document.find_checked(shards)
        self._request_indexes(document.folder, [shard.path for shard in shards])
        return document.find_checked(shards, partial(self._look_up, document.folder))

    def _look_up(self, source: Source, names: Sequence[str]) -> dict[str, ObjectInfo]:
        found = self.ranges(source).look_up(names)
        return source.find(names) if found is None else found

    def _is_far(self, source: Source) -> bool:
        """Whether a useless request for the first bytes of a shard costs less than waiting for an answer."""
        return source.capabilities.remote and self.ranges(source).gap > _BEGINNING

    def _request_indexes(self, source: Source, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                if (id(source), name) not in self._index_files and not self._lacks_index(source, name):
                    self._index_files[id(source), name] = self._index_pool.submit(_index_file, source, name)

    def __reduce__(self) -> tuple[object, ...]:
        return ProcessResources, ()


def _index_file(source: Source, shard: str) -> bytes | None:
    """Return the bytes of SHARD.idx, or of DALI's index if SHARD.idx is Energon's; None if it does not exist."""
    for name in (f"{shard}.idx", dali_path_for_energon(shard)):
        if (data := _read_file(source, name)) is None:
            return None
        if not energon_offsets(data):
            return data
    return None


def _read_file(source: Source, name: str) -> bytes | None:
    """Return the bytes of a file next to shards; None if it does not exist."""
    if store := source.store:
        return read_object(store, name)
    item = source.find([name]).get(name)
    return None if item is None else read_to_end(source.open(item))


# --- Byte ranges of compressed shards, and of tars whose samples have scattered members ---


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
