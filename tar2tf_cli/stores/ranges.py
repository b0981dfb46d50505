"""Ranges of bytes of inputs, in any order and by several threads at once: from files, or from objects by request."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from tar2tf_cli.errors import SourceError, changed, read_failed
from tar2tf_cli.stores.retries import Transient
from tar2tf_cli.stores.transfer import ObjectInfo

if TYPE_CHECKING:
    from tar2tf_cli.stores.store import Store


Block: TypeAlias = "Future[bytes]"


class Ranges(Protocol):
    """Reads ranges of a bucket's inputs, for one process and all its threads.

    Attributes:
        gap: how many bytes between two ranges cost less to read than another call.
        parallel: how many calls at once are worth it.
    """

    gap: int
    parallel: int

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Return `size` bytes of an input from an offset on; fewer only at its end.

        Raises:
            SourceError: when they cannot be read, or the input is not the version that was listed.
        """


class FileRanges(Ranges):
    """Ranges of files, a bounded number of which stay open.

    Args:
        open_file: opens a file.
        locate: returns a file's path.
    """

    MOST_OPEN: Final = 128

    gap = 1 << 12
    parallel = 1

    def __init__(self, open_file: Callable[[ObjectInfo], Any], locate: Callable[[str], str]) -> None:
        self._open = open_file
        self._locate = locate
        self._files: dict[str, _File] = {}
        self._opening = threading.Lock()

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Read with `pread`, so that threads and forked processes do not disturb each other."""
        file = self._files.get(item.name) or self._opened(item)
        try:
            data = os.pread(file.descriptor, size, start)
            while len(data) < size and (more := os.pread(file.descriptor, size - len(data), start + len(data))):
                data += more
        except OSError as error:
            raise read_failed(self._locate(item.name), error) from None
        return data

    def _opened(self, item: ObjectInfo) -> _File:
        with self._opening:
            if item.name not in self._files:
                if len(self._files) >= self.MOST_OPEN:
                    del self._files[next(iter(self._files))]
                self._files[item.name] = _File(self._open(item))
            return self._files[item.name]


class _File:
    """An open file, which is closed when nobody reads it any more."""

    def __init__(self, stream: Any) -> None:
        with closing(stream):
            self.descriptor = os.dup(stream.fileno())

    def __del__(self) -> None:
        os.close(self.descriptor)


class ObjectRanges(Ranges):
    """Ranges of objects, requested in blocks, the latest of which are kept.

    A request for the block after one that is kept is larger than the one before, so that reading in order takes few
    requests. A block that is on its way to one thread is not requested by another.
    """

    BLOCK: Final = 1 << 16
    MOST_AHEAD: Final = 64
    MOST_KEPT: Final = 1 << 10

    gap = BLOCK
    parallel = 16

    def __init__(self, store: Store) -> None:
        self._store = store
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._ahead: dict[str, int] = {}
        self._lock = threading.Lock()

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
                mine = {number: Future() for number in range(missing[0], self._end(item, missing[0], missing[-1]))}
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

    def _fetch(self, item: ObjectInfo, mine: dict[int, Block]) -> None:
        """Request consecutive blocks, and give each its bytes or the error."""
        start = min(mine) * self.BLOCK
        size = min(len(mine) * self.BLOCK, (item.size or 0) - start)
        where = self._store.locate(item.name)
        try:
            data = self._store.persist(lambda: self._request(item, start, size), shard=where, offset=start)
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
        with closing(self._store.fetch(item, start, size)) as body:
            if not body.is_of(item.size, item.version):
                raise changed(where, start)
            if body.start != start:
                hint = "copy the shards to a disk, or read them in order with load_dataset"
                raise SourceError("the server does not send ranges of files", shard=where, hint=hint)
            parts, have = [], 0
            while have < size and (part := body.read(size - have)):
                parts.append(part)
                have += len(part)
        if have < size:
            raise Transient(f"the transfer ended after {have:,} of {size:,} bytes")
        return b"".join(parts)[:size]
