"""Random access to the objects of any store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from math import inf
from typing import Final, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Ranges
from tar2tf_cli.api.store import Store, Transient
from tar2tf_cli.errors import SourceError, changed
from tar2tf_cli.stores.objects import note_round_trip, retry
from tar2tf_cli.stores.retries import in_time

Block: TypeAlias = "Future[bytes]"


class ObjectRanges(Ranges):
    """Ranges of objects, requested in blocks. The latest blocks are kept.

    A request for the block after one that is kept is larger than the one before, so that reading in order takes few
    requests. Any other request has the blocks around it, too, as many as the network carries while requests wait for
    their answers: one block where these come in 20 ms, and a MiB where they take 0.3 s. A block that is on its way to
    one thread is not requested by another.
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
        self._lock = threading.Lock()

    @property
    def gap(self) -> int:
        """Bytes between two ranges that cost less to read than another request."""
        return self.BLOCK * max(1, self._window)

    @property
    def _window(self) -> int:
        """Number of blocks that a network carries for each request while it waits for an answer."""
        waiting = self._store.round_trip if self._store.round_trip < inf else 0.0
        return min(int(waiting * self.RATE / self.parallel / self.BLOCK), self.MOST_AROUND)

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Request the blocks that are not kept, with retries."""
        end = min(start + size, item.size or 0)
        if end <= start:
            return b""
        first = start // self.BLOCK
        blocks, mine = self._plan(item, first, (end - 1) // self.BLOCK)
        if mine:
            self._fetch(item, mine)
        data = b"".join([block.result() for block in blocks])
        return data[start - first * self.BLOCK : end - first * self.BLOCK]

    def _plan(self, item: ObjectInfo, first: int, last: int) -> tuple[list[Block], dict[int, Block]]:
        """Return the blocks of a range; and those that this thread has to fetch, by number, without gaps."""
        name, kept = item.name, self._blocks
        with self._lock:
            missing = [number for number in range(first, last + 1) if (name, number) not in kept]
            mine: dict[int, Block] = {}
            if missing:
                begin, end = self._around(item, missing[0], self._end(item, missing[0], missing[-1]))
                mine = {number: Future() for number in range(begin, end)}
                kept.update(((name, number), block) for number, block in mine.items())
            blocks = [kept[name, number] for number in range(first, last + 1)]
            for number in range(first, last + 1):
                kept.move_to_end((name, number))
            while len(kept) > self.MOST_KEPT:
                kept.popitem(last=False)
        return blocks, mine

    def _end(self, item: ObjectInfo, first: int, last: int) -> int:
        """Return the number after the last block to request, when these are missing."""
        in_order = first == 0 or (item.name, first - 1) in self._blocks
        ahead = min(2 * self._ahead.get(item.name, 0) + last + 1 - first, self.MOST_AHEAD) if in_order else 0
        self._ahead[item.name] = ahead
        return min(last + 1 + ahead, -(-(item.size or 0) // self.BLOCK))

    def _around(self, item: ObjectInfo, first: int, end: int) -> tuple[int, int]:
        """Return the first block to request, and the number after the last, so that no other is requested again."""
        window = max(1, self._window)
        least = first - first % window
        most = min(end + -end % window, -(-(item.size or 0) // self.BLOCK))
        while first > least and (item.name, first - 1) not in self._blocks:
            first -= 1
        while end < most and (item.name, end) not in self._blocks:
            end += 1
        return first, end

    def _fetch(self, item: ObjectInfo, mine: dict[int, Block]) -> None:
        """Request consecutive blocks, and give each its bytes or the error."""
        start = min(mine) * self.BLOCK
        size = min(len(mine) * self.BLOCK, (item.size or 0) - start)
        where = self._store.locate(item.name)
        try:
            request = partial(self._request, item, start, size)
            if self._store.may_stall:
                request = partial(in_time, request, size, self._store.bucket)
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
        where, began = self._store.locate(item.name), time.monotonic()
        with closing(self._store.fetch(item, start, size)) as body:
            note_round_trip(self._store, began)
            if not body.is_of(item.size, item.version):
                raise changed(where, start)
            if body.start != start:
                hint = "copy the shards to a disk, or read them in order with load_dataset"
                raise SourceError("the server does not support requests for parts of a file", shard=where, hint=hint)
            parts, have = [], 0
            while have < size and (part := body.read(size - have)):
                parts.append(part)
                have += len(part)
        if have < size:
            raise Transient(f"the transfer ended after {have:,} of {size:,} bytes")
        return b"".join(parts)[:size]
