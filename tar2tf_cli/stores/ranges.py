"""Random access to the objects of any store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from math import inf
from typing import Final, TypeAlias

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import Ranges
from tar2tf_cli.api.store import Body, NoSuchObject, Store, Transient
from tar2tf_cli.errors import SourceError, changed
from tar2tf_cli.stores.objects import look_up, note_round_trip, open_object, retry
from tar2tf_cli.stores.retries import call_within_limit
from tar2tf_cli.stores.transfer import fetch_threads

Block: TypeAlias = "Future[bytes]"

BlockMap: TypeAlias = "dict[int, Block]"
"""BlockMap of one object by their numbers."""


class ObjectStream:
    """A stream of an object that is read from front to back by one request, and whose blocks are cached for ranges.

    Cached blocks are not requested again. After a seek over more bytes than arrive in the time of another request, only
    the blocks that are read are requested, until several MiB were read in order.

    Args:
        ranges: caches the blocks.
        store: the store of the object.
        item: the object.
    """

    LONG: Final = 1 << 22
    """The bytes that are read in order after a long seek before the rest of the object is requested at once."""

    def __init__(self, ranges: ObjectRanges, store: Store, item: ObjectInfo) -> None:
        self._ranges = ranges
        self._store = store
        self._item = item
        self._size = item.size or 0
        self._position = 0
        self._last = 0  # offset after the last byte that was read
        self._in_order = self.LONG  # the bytes that were read since the last long seek
        self._stream: ByteStream | None = None
        self._next = 0  # offset of the stream's next byte
        ranges.streams += 1

    def seek(self, offset: int, /) -> None:
        """Go to an offset."""
        self._position = offset

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end.

        Raises:
            SourceError: when the object cannot be read, or is not the one that was listed.
        """
        position, leap = self._position, self._ranges.leap
        if position >= self._size:
            return self._end()
        self._in_order = self._in_order if 0 <= position - self._last <= leap else 0
        data = self._ranges.cached(self._item, position) or self._fetched(position, size, leap)
        data = data if len(data) <= size else data[:size]
        self._position = self._last = position + len(data)
        self._in_order += len(data)
        return data

    def close(self) -> None:
        """Stop reading."""
        self._ranges.streams -= 1
        self._stop()

    def _fetched(self, position: int, size: int, leap: int) -> bytes:
        """Return bytes that are not cached: the rest of a block of the stream, or a range."""
        begin = position - position % self._ranges.BLOCK
        if not (self._stream and 0 <= begin - self._next <= leap):
            self._stop()
            if self._in_order < self.LONG:
                return self._ranges.read(self._item, position, min(size, begin + self._ranges.BLOCK - position))
            self._next = 0 if self._item.version is None else begin  # nothing but a version shows that it is the same
            self._stream = open_object(self._store, self._item, self._next)
        while self._next < begin:
            self._block()
        return self._block()[position - begin :]

    def _block(self) -> bytes:
        """Return the next block of the stream, and cache it."""
        assert self._stream
        start, data = self._next, b""
        size = min(self._ranges.BLOCK, self._size - start)
        while len(data) < size and (more := self._stream.read(size - len(data))):
            data = data + more if data else more
        self._ranges.keep(self._item, start, data)
        self._next += size
        return data

    def _end(self) -> bytes:
        """Return b"", after checking that the stream ends, too, with its checksum."""
        if self._stream and self._next == self._size:
            self._stream.read(1)
        return b""

    def _stop(self) -> None:
        if self._stream:
            self._stream.close()
            self._stream = None


class ObjectRanges(Ranges):
    """Ranges of objects, requested in blocks, of which the most recently used are cached.

    Sequential reads request more and more blocks at once, so that reading in order takes few requests. Any other read
    also requests neighbouring blocks, as many as the network transfers during a round trip: one block if that takes 20
    ms, and a MiB if it takes 0.3 s. All missing blocks are requested concurrently, a MiB by each request. Threads do
    not request blocks that another thread has requested already.

    Attributes:
        streams: the number of streams that are open.
    """

    BLOCK: Final = 1 << 16
    MOST_AHEAD: Final = 64
    MOST_AROUND: Final = 16
    MOST_KEPT: Final = 1 << 10
    RATE: Final = 100e6
    """Bytes a second that a network carries, if enough requests are under way."""

    parallel = 32

    def __init__(self, store: Store) -> None:
        self._store = store
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._ahead: dict[str, int] = {}
        self._last: dict[str, int] = {}  # number of the last block read, by object name
        self._lock = threading.Lock()
        self.streams = 0

    @property
    def gap(self) -> int:
        """The number of bytes between two ranges that cost less to read than another request."""
        return self.BLOCK * max(1, self._window)

    @property
    def _window(self) -> int:
        """The number of blocks that one connection transfers during a round trip."""
        waiting = self._store.round_trip if self._store.round_trip < inf else 0.0
        return min(int(waiting * self.RATE / self.parallel / self.BLOCK), self.MOST_AROUND)

    @property
    def leap(self) -> int:
        """The number of bytes that one of the open streams receives in the time of another request, at least a MiB."""
        waiting = self._store.round_trip if self._store.round_trip < inf else 0.0
        return max(int(waiting * self.RATE / max(self.streams, 1)), self.MOST_AROUND * self.BLOCK)

    def open(self, item: ObjectInfo) -> ObjectStream:
        """Open an object as one stream of which the most recent blocks are cached, like those of ranges."""
        return ObjectStream(self, self._store, item)

    def cached(self, item: ObjectInfo, start: int) -> bytes:
        """Return the bytes from an offset to the end of its block; b"" unless the block is cached or requested."""
        number = start // self.BLOCK
        with self._lock:
            block = self._blocks.get((item.name, number))
            if block:
                self._blocks.move_to_end((item.name, number))
        return block.result()[start - number * self.BLOCK :] if block else b""

    def keep(self, item: ObjectInfo, start: int, data: bytes) -> None:
        """Cache a block of an object, in place of the least recently used one."""
        block: Block = Future()
        block.set_result(data)
        with self._lock:
            self._blocks[item.name, start // self.BLOCK] = block
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._blocks) > self.MOST_KEPT:
            self._blocks.popitem(last=False)

    def look_up(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Look up objects by concurrent requests for their first blocks."""
        with ThreadPoolExecutor(len(names) or 1) as pool:
            found = zip(names, pool.map(self._looked_up, names), strict=True)
            return {name: item for name, item in found if item}

    def _looked_up(self, name: str) -> ObjectInfo | None:
        try:
            item, data = retry(self._store, partial(self._begun, name), self._store.locate(name))
        except NoSuchObject:
            return None
        except SourceError:  # also for an empty object, which has no valid range
            return look_up(self._store, name)
        with self._lock:
            for number, start in enumerate(range(0, len(data), self.BLOCK)):
                block: Block = Future()
                block.set_result(data[start : start + self.BLOCK])
                self._blocks.setdefault((name, number), block)
        return item

    def _begun(self, name: str) -> tuple[ObjectInfo, bytes]:
        """Request the first block of an object of unknown size."""
        size = self.gap
        with closing(self._sent(ObjectInfo(name, None, None), 0, size)) as body:
            if body.size is None or body.start:
                raise SourceError("the server does not say how large it is", shard=self._store.locate(name))
            item = ObjectInfo(name, body.size, body.version, body.checksum)
            return item, self._received(body, min(size, body.size))

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Return a range, requesting blocks that are not cached, with retries."""
        return self.read_each(item, [(start, size)])[0]

    def read_each(self, item: ObjectInfo, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges, requesting all blocks that are not cached at once."""
        end = item.size or 0
        wanted = [(start, min(start + size, end)) for start, size in spans]
        blocks, missing = self._plan(item, [(start, stop) for start, stop in wanted if stop > start])
        self._fetch_each(item, missing)
        return [self._cut(blocks, start, stop) for start, stop in wanted]

    def _cut(self, blocks: Mapping[int, Block], start: int, end: int) -> bytes:
        """Join the bytes between two offsets from their blocks."""
        if end <= start:
            return b""
        first = start // self.BLOCK
        data = b"".join([blocks[number].result() for number in range(first, (end - 1) // self.BLOCK + 1)])
        return data[start - first * self.BLOCK : end - first * self.BLOCK]

    def _plan(self, item: ObjectInfo, spans: Sequence[tuple[int, int]]) -> tuple[dict[int, Block], list[BlockMap]]:
        """Return the blocks of ranges, and the requests for those that this thread has to fetch."""
        name, kept = item.name, self._blocks
        blocks: dict[int, Block] = {}
        mine: dict[int, Block] = {}
        with self._lock:
            for start, stop in spans:
                first, last = start // self.BLOCK, (stop - 1) // self.BLOCK
                missing = [number for number in range(first, last + 1) if (name, number) not in kept]
                if missing:
                    end = self._end(item, missing[0], missing[-1]) if len(spans) == 1 else missing[-1] + 1
                    begin, end = self._extended(item, missing[0], end)
                    asked: dict[int, Block] = {n: Future() for n in range(begin, end) if (name, n) not in kept}
                    kept.update(((name, number), block) for number, block in asked.items())
                    mine |= asked
                for number in range(first, last + 1):
                    blocks[number] = kept[name, number]
                    kept.move_to_end((name, number))
                self._last[name] = last
            self._drop_oldest()
        return blocks, self._requests(mine)

    def _requests(self, mine: dict[int, Block]) -> list[BlockMap]:
        """Group blocks into runs of consecutive blocks, a MiB at most."""
        requests: list[BlockMap] = []
        for number in sorted(mine):
            latest = requests[-1] if requests else {}
            if number - 1 not in latest or len(latest) == self.MOST_AROUND:
                requests.append(latest := {})
            latest[number] = mine[number]
        return requests

    def _end(self, item: ObjectInfo, first: int, last: int) -> int:
        """Return the end of the blocks to request, reading ahead if the last reads were sequential."""
        in_order = self._last.get(item.name, -1) in (first - 1, first)
        ahead = min(2 * self._ahead.get(item.name, 0) + last + 1 - first, self.MOST_AHEAD) if in_order else 0
        self._ahead[item.name] = ahead
        return min(last + 1 + ahead, -(-(item.size or 0) // self.BLOCK))

    def _extended(self, item: ObjectInfo, first: int, end: int) -> tuple[int, int]:
        """Extend a range of blocks to neighbours that are not cached, as far as a round trip makes them cheap."""
        window = max(1, self._window)
        least = first - first % window
        most = min(end + -end % window, -(-(item.size or 0) // self.BLOCK))
        while first > least and (item.name, first - 1) not in self._blocks:
            first -= 1
        while end < most and (item.name, end) not in self._blocks:
            end += 1
        return first, end

    def _fetch_each(self, item: ObjectInfo, requests: Sequence[BlockMap]) -> None:
        """Send requests concurrently, one of them in this thread."""
        rest = iter(requests)

        def send() -> None:
            for mine in rest:  # the threads share this iterator
                self._fetch(item, mine)

        for _ in range(min(len(requests), self.parallel) - 1):
            fetch_threads().run(send)
        send()

    def _fetch(self, item: ObjectInfo, mine: BlockMap) -> None:
        """Request consecutive blocks, and set the bytes or the error of each."""
        start = min(mine) * self.BLOCK
        size = min(len(mine) * self.BLOCK, (item.size or 0) - start)
        where = self._store.locate(item.name)
        try:
            request = partial(self._request, item, start, size)
            if self._store.may_stall:
                request = partial(call_within_limit, request, size, self._store.bucket)
            data = retry(self._store, request, where, start)
        except BaseException as error:
            with self._lock:
                for number, block in mine.items():
                    if self._blocks.get((item.name, number)) is block:
                        del self._blocks[item.name, number]
            for block in mine.values():
                block.set_exception(error)
            return
        for place, block in enumerate(mine.values()):
            block.set_result(data[place * self.BLOCK : (place + 1) * self.BLOCK])

    def _request(self, item: ObjectInfo, start: int, size: int) -> bytes:
        where = self._store.locate(item.name)
        with closing(self._sent(item, start, size)) as body:
            if not body.is_of(item.size, item.version):
                raise changed(where, start)
            if body.start != start:
                hint = (
                    "copy the shards to a disk, or read them with load_dataset from the beginning, without shuffle=True"
                )
                raise SourceError("the server does not support requests for parts of a file", shard=where, hint=hint)
            return self._received(body, size)

    def _sent(self, item: ObjectInfo, start: int, size: int) -> Body:
        began = time.monotonic()
        body = self._store.fetch(item, start, size)
        note_round_trip(self._store, began)
        return body

    def _received(self, body: Body, size: int) -> bytes:
        parts, have = list[bytes](), 0
        while have < size and (part := body.read(size - have)):
            parts.append(part)
            have += len(part)
        if have < size:
            raise Transient(f"the transfer ended after {have:,} of {size:,} bytes")
        return b"".join(parts)[:size]
