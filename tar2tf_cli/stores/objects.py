"""Remote buckets: the one source for all stores, and random access to their objects."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import Final, TypeAlias

from tar2tf_cli.errors import NothingFoundError, SourceError, changed
from tar2tf_cli.formats.cursor import ByteStream
from tar2tf_cli.spec.templates import expand, is_glob, is_numbered, resolve
from tar2tf_cli.stores.base import IN_FLIGHT, Abilities, Ahead, ObjectInfo, Ranges, Source, templates_of
from tar2tf_cli.stores.retries import Transient, in_time
from tar2tf_cli.stores.store import SMALL, Bodies, Store
from tar2tf_cli.stores.transfer import FetchThreads, ResumingStream

_LIST_FROM: Final = 16
"""Number of names from which one listing is cheaper than a request for each."""

_ABILITIES: Final = Abilities(remote=True)

Inputs: TypeAlias = list[ObjectInfo]


class ObjectSource(Source):
    """The shards of a store; a bucket that names an object is that one shard."""

    def __init__(self, store: Store) -> None:
        self.bucket = store.bucket
        self._store = store
        self._small: deque[ObjectInfo] = deque()  # those whose bodies come next
        self._bodies: Bodies = None
        self._ahead: Ahead[ResumingStream] | None = None

    def list(self, templates: Sequence[str]) -> Inputs:
        """List the inputs that match the templates, with sizes and versions, in as few requests as possible."""
        templates = templates_of(self, templates)
        if not templates and (only := self._only()):
            return [only]
        templates = [self._store.dialect(template) for template in templates]
        objects = self.find([name for template in templates for name in expand(template) if self._may_be_literal(name)])

        def listing(prefix: str) -> Iterator[str]:
            for item in self.listing(prefix):
                objects[item.name] = item
                yield item.name

        try:
            chosen = resolve(templates, listing, objects.__contains__, numbers=self._store.numbers)
        except NothingFoundError as error:
            if templates or objects:
                raise error.at(shard=self.bucket) from None
            what = "there is no such object or folder" if self._store.root else "is empty"
            raise NothingFoundError(what, shard=self.bucket, hint="check the URL") from None
        if not self._store.lists_versions:
            objects |= self.find([name for name in chosen if objects[name].version is None])
        return [objects[name] for name in chosen]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open a stream that resumes after failures; the first read raises any error."""
        if self._small and self._small[0] == item and self._bodies:
            self._small.popleft()
            body = next(self._bodies)
            if body and (data := body.whole(item)) is not None:
                return io.BytesIO(data)
        return (self._ahead and self._ahead.take(item)) or self._stream(item)

    def _stream(self, item: ObjectInfo) -> ResumingStream:
        return self._store.open(item)

    def _fetch_each(self, items: Sequence[ObjectInfo]) -> Bodies:
        return self._store.fetch_each(items)

    def _begun(self, item: ObjectInfo) -> ResumingStream:
        stream = self._stream(item)
        stream.begin(self._store.of_process(FetchThreads))
        return stream

    @contextmanager
    def expecting(self, items: Sequence[ObjectInfo], most: int = IN_FLIGHT) -> Iterator[None]:
        """Fetch the inputs that will be opened inside the `with` block, in this order and several at once."""
        small = [item for item in items if item.size is not None and item.size <= SMALL]
        self._bodies = self._fetch_each(small)
        self._small = deque(small if self._bodies else ())
        others = set(items) - set(self._small)
        self._ahead = Ahead((item for item in items if item in others), self._begun, most)
        try:
            yield
        finally:
            for stream in self._ahead.rest():
                stream.close()
            if self._bodies:
                self._bodies.close()
            self._small = deque()

    def ranges(self) -> ObjectRanges:
        """Return a reader of ranges of the objects."""
        return ObjectRanges(self._store)

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return those of the names that exist, in as few requests as possible."""
        if self._store.can_list and self._store.lists_versions and len(names) > _LIST_FROM:
            wanted = set(names)
            prefix = os.path.commonprefix(names)  # noqa: RUF071 - of names, not of paths
            return {item.name: item for item in self.listing(prefix) if item.name in wanted}
        return {item.name: item for item in self._store.head_each(names) if item}

    def abilities(self) -> Abilities:
        """Return those of any store."""
        return _ABILITIES

    def store(self) -> Store:
        """Return the store."""
        return self._store

    def locate(self, name: str) -> str:
        """Return the object's URL."""
        return self._store.locate(name)

    def _may_be_literal(self, name: str) -> bool:
        """Whether to look a name up literally; with wildcards other than brackets, the listing finds such an object."""
        wild = is_glob(name) or (self._store.numbers and is_numbered(name))
        return not wild or not self._store.can_list or "[" in name

    def _only(self) -> ObjectInfo | None:
        """Return the object at the bucket's URL."""
        above = self._store.parent()
        if above is None:
            return None
        folder, name = above
        if item := folder.look_up(name):
            self._store = folder
        elif not folder.can_list:
            hint = "check the URL, or name the shards in a folder with braces, such as 'train-{0000..0146}.tar'"
            raise SourceError("there is no such file", shard=folder.locate(name), hint=hint)
        return item

    def listing(self, prefix: str) -> Inputs:
        return self._store.persist(lambda: [*self._store.listing(prefix)], shard=self.bucket)


Block: TypeAlias = "Future[bytes]"


class ObjectRanges(Ranges):
    """Ranges of objects, requested in blocks. The latest blocks are kept.

    A request for the block after one that is kept is larger than the one before, so that reading in order takes few
    requests. A block that is on its way to one thread is not requested by another.
    """

    BLOCK: Final = 1 << 16
    MOST_AHEAD: Final = 64
    MOST_KEPT: Final = 1 << 10

    gap = BLOCK
    parallel = 32

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
            request = partial(self._request, item, start, size)
            if self._store.reads_blindly:
                request = partial(in_time, request, size, self._store.bucket)
            data = self._store.persist(request, shard=where, offset=start)
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
                raise SourceError("the server does not support requests for parts of a file", shard=where, hint=hint)
            parts, have = [], 0
            while have < size and (part := body.read(size - have)):
                parts.append(part)
                have += len(part)
        if have < size:
            raise Transient(f"the transfer ended after {have:,} of {size:,} bytes")
        return b"".join(parts)[:size]
