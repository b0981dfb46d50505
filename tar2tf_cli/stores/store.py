"""Object stores: what each must do, the one source for all of them, and random access to their objects."""

from __future__ import annotations

import copy
import io
import os
import threading
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import IN_FLIGHT, Capabilities, Ranges, Source
from tar2tf_cli.api.store import Body, NoSuchObject, ObjectExists, Store, Transient
from tar2tf_cli.errors import NothingFoundError, SourceError, changed
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.spec.templates import expand, is_glob, is_numbered, resolve
from tar2tf_cli.stores.base import Ahead, templates_of
from tar2tf_cli.stores.retries import in_time, persist
from tar2tf_cli.stores.transfer import FetchThreads, ParallelStream, ResumingStream, whole_body

if TYPE_CHECKING:
    from typing_extensions import Self


_PARALLEL: Final = 32
_connecting: Final = threading.RLock()

SMALL: Final = 1 << 18
"""Bytes of the largest object that is held in memory while others are on their way."""

Bodies: TypeAlias = "Generator[Body | None, None, None] | None"
T = TypeVar("T")

Inputs: TypeAlias = list[ObjectInfo]

_LIST_FROM: Final = 16
"""Number of names from which one listing is cheaper than a request for each."""


class ObjectStore(Store):
    """A store with a client in each process; its requests can be repeated, and its transfers resumed.

    Attributes:
        retry_for: seconds for which failed requests are repeated without progress.
    """

    retry_for: float

    def __init__(self, bucket: str, root: str) -> None:
        super().__init__(bucket, root)
        self._clients: dict[tuple[Any, ...], Any] = {}

    @property
    def client(self) -> Any:
        """The client of this process, shared by its threads."""
        return self.of_process(self.connect)

    def of_process(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return a function's result, computed once for this process and all its threads."""
        key = (os.getpid(), make.__name__, *arguments)
        with _connecting:
            if key not in self._clients:
                self._clients[key] = make(*arguments)
            return self._clients[key]

    @abstractmethod
    def connect(self) -> Any:
        """Make a client for the store's methods; it must not retry by itself."""

    def look_up_each(self, names: Sequence[str]) -> Sequence[ObjectInfo | None]:
        """Return each object as `head` does, many at once and with retries."""
        if not names:
            return []
        with ThreadPoolExecutor(min(_PARALLEL, len(names))) as pool:
            return [*pool.map(self.look_up, names)]

    def fetch_each(self, items: Sequence[ObjectInfo]) -> Bodies:
        """Yield the whole body of each small object, many at once; None for one that has to be fetched by itself.

        One thread does it all, which takes less CPU time than a thread for each. None for a store that has no such way.
        """
        return None

    def look_up(self, name: str) -> ObjectInfo | None:
        """Return one object as `head` does, with retries."""
        return self.persist(lambda: self.head(name), shard=self.locate(name))

    def refuse_existing(self, name: str) -> None:
        """Raise `ObjectExists` if there is an object, for stores whose uploads have no such condition."""
        if self.head(name):
            raise ObjectExists("already exists", shard=self.locate(name))

    def persist(self, action: Callable[[], T], **where: Any) -> T:
        """Return the result of an action that sends a request, with retries."""
        return persist(action, self.retry_for, **where)

    def open(self, item: ObjectInfo) -> ResumingStream:
        """Return a stream of an object's bytes, which resumes after failures."""
        return ParallelStream(
            partial(self._fetch, item), item, self.locate(item.name), self.retry_for, watched=self.may_stall
        )

    def _fetch(self, item: ObjectInfo, start: int, size: int | None) -> Body:
        try:
            return self.fetch(item, start, size)
        except NoSuchObject as error:
            if item.version is None:
                raise
            hint = "restore it and run the same command again"
            raise SourceError("was deleted after it had been listed", shard=error.shard, hint=hint) from None

    def read(self, name: str) -> bytes | None:
        """Return a small object's bytes, with retries; None when it does not exist."""
        item = self.look_up(name)
        return None if item is None else read_to_end(self.open(item))

    def parent(self) -> tuple[Self, str] | None:
        """Return the store at the parent folder, and the root's name in it; None at the top of the bucket."""
        folder, slash, name = self.root.rstrip("/").rpartition("/")
        if not name:
            return None
        above = copy.copy(self)
        above._clients = self._clients
        above.root = folder + slash
        return above, name

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}


class ObjectSource(Source):
    """The shards of a store; a bucket that names an object is that one shard."""

    def __init__(self, store: ObjectStore) -> None:
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
        templates = [self._store.translate(template) for template in templates]
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
            if body and (data := whole_body(body, item)) is not None:
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
    def prefetch(self, items: Sequence[ObjectInfo], most: int = IN_FLIGHT) -> Iterator[None]:
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
        return {item.name: item for item in self._store.look_up_each(names) if item}

    def capabilities(self) -> Capabilities:
        """Return those of any store."""
        return Capabilities(remote=True)

    def store(self) -> ObjectStore:
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
        return self._store.persist(lambda: [*self._store.list(prefix)], shard=self.bucket)


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

    def __init__(self, store: ObjectStore) -> None:
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
            if self._store.may_stall:
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
