"""Remote buckets: the interface of a store, and the one source for all stores."""

from __future__ import annotations

import copy
import io
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.errors import NothingFoundError, SourceError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.spec.templates import expand, is_glob, is_numbered, resolve
from tar2tf_cli.stores.base import ObjectInfo, Source
from tar2tf_cli.stores.parallel import ParallelStream
from tar2tf_cli.stores.ranges import ObjectRanges
from tar2tf_cli.stores.retries import NoSuchObject, persist
from tar2tf_cli.stores.transfer import Body, FetchThreads, ResumingStream

if TYPE_CHECKING:
    from typing_extensions import Self

    from tar2tf_cli.stores.ais_etl import Transformers

__all__ = ["SMALL", "ObjectSource", "Store", "read_object"]

_LIST_FROM: Final = 16
"""Number of names from which one listing is cheaper than a request for each."""

_PARALLEL: Final = 32

_IN_FLIGHT: Final = 32
"""Number of small objects that one process fetches at once, which hides the latency of most networks."""

_READ: Final = 1 << 20
_connecting: Final = threading.RLock()

SMALL: Final = 1 << 18
"""Bytes of the largest object that is held in memory while others are on their way."""

Bodies: TypeAlias = "Generator[Body | None, None, None] | None"
Inputs: TypeAlias = list[ObjectInfo]
T = TypeVar("T")


class Store(ABC):
    """An object store as seen from one folder of one bucket; names are relative to it.

    A store sends one request for each call and never repeats it: it raises `Transient` for failures that a retry may
    fix and SourceError for the rest, and its callers retry (`stores.retries`). Several threads may call methods at
    once. A store is pickled without its client: each process makes its own, also after a fork.

    To add a store: implement the abstract methods, and `put`, `copy` and `remove` if it can be written to; add its
    scheme to `open_store`; subclass the suites of sources and sinks in the tests.

    Args:
        bucket: the bucket as the user gave it, without secrets.
        root: the folder that names are relative to: "" or ending with a slash.

    Attributes:
        can_list: whether the store can list its objects.
        dialect: converts a template in the store's own syntax to ours.
        numbers: whether templates may contain `%d` and `%06d`.
        lists_versions: whether a listing has the same sizes and versions as `head`.
        retry_for: how many seconds failed requests are repeated without progress.
        unsigned: whether requests carry no credentials, as for public buckets.
    """

    can_list = True
    lists_versions = True
    dialect: Callable[[str], str] = staticmethod(str)
    numbers = False
    retry_for: float
    unsigned = False

    def __init__(self, bucket: str, root: str) -> None:
        self.bucket = bucket
        self.root = root
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

    @abstractmethod
    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """Yield the objects whose names begin with a prefix, in any order, including those in subfolders.

        Raises:
            SourceError: when the bucket does not exist or may not be listed.
        """

    @abstractmethod
    def head(self, name: str) -> ObjectInfo | None:
        """Return one object; None when it does not exist.

        Raises:
            SourceError: when the bucket does not exist, or the object may not be read.
        """

    @abstractmethod
    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Request an object's bytes from an offset on, as stored: never decompressed on the way.

        With `size`, no more than that many bytes are sent, if the server can send a part.

        The body has the version of the object being sent, so that a replacement is detected.

        Raises:
            NoSuchObject: when the object does not exist.
            SourceError: when it is no longer the version of the item, or may not be read.
        """

    @abstractmethod
    def locate(self, name: str) -> str:
        """Return the URL of an object, without secrets."""

    def head_each(self, names: Sequence[str]) -> Sequence[ObjectInfo | None]:
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

    def put(self, name: str, path: str) -> None:
        """Upload a local file in constant memory; the object appears whole or not at all, and replaces any other."""
        raise NotImplementedError

    def copy(self, name: str, target: str) -> None:
        """Copy an object within the bucket, on the server if the store supports that."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Delete an object if it exists."""
        raise NotImplementedError

    def transformers(self) -> Transformers | None:
        """Return the transformers that can make records beside the objects; None for a store without any."""
        return None

    def persist(self, action: Callable[[], T], **where: Any) -> T:
        """Return the result of an action that sends a request, with retries."""
        return persist(action, self.retry_for, **where)

    def open(self, item: ObjectInfo) -> ResumingStream:
        """Return a stream of an object's bytes, which resumes after failures."""
        return ParallelStream(partial(self._fetch, item), item, self.locate(item.name), self.retry_for)

    def _fetch(self, item: ObjectInfo, start: int, size: int | None) -> Body:
        try:
            return self.fetch(item, start, size)
        except NoSuchObject as error:
            if item.version is None:
                raise
            hint = "the same command continues when it is back"
            raise SourceError("was deleted after it had been listed", shard=error.shard, hint=hint) from None

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

    remote = True

    def __init__(self, store: Store) -> None:
        self.bucket = store.bucket
        self._store = store
        self._small: deque[ObjectInfo] = deque()  # those whose bodies come next
        self._bodies: Bodies = None
        self._expected: dict[ObjectInfo, ResumingStream] = {}
        self._coming: Iterator[ResumingStream] = iter(())

    def list(self, templates: Sequence[str]) -> Inputs:
        """List the inputs that match the templates, with sizes and versions, in as few requests as possible."""
        templates = self.chosen(templates)
        if not templates and (only := self._only()):
            return [only]
        templates = [self._store.dialect(template) for template in templates]
        found = self.find([name for template in templates for name in expand(template) if self._may_be_literal(name)])

        def listing(prefix: str) -> Iterator[str]:
            for item in self._listing(prefix):
                found[item.name] = item
                yield item.name

        try:
            chosen = resolve(templates, listing, found.__contains__, numbers=self._store.numbers)
        except NothingFoundError as error:
            if not (templates or found):
                error.message = "there is no such object or folder" if self._store.root else "is empty"
                error.hint = "check the URL"
            raise error.at(shard=self.bucket) from None
        if not self._store.lists_versions:
            found |= self.find([name for name in chosen if found[name].version is None])
        return [found[name] for name in chosen]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open a stream that resumes after failures; the first read raises any error."""
        if self._small and self._small[0] == item and self._bodies:
            self._small.popleft()
            body = next(self._bodies)
            if body and (data := body.whole(item)) is not None:
                return io.BytesIO(data)
        self._begin_next()
        return self._expected.pop(item, None) or self._stream(item)

    def _stream(self, item: ObjectInfo) -> ResumingStream:
        return self._store.open(item)

    def _fetch_each(self, items: Sequence[ObjectInfo]) -> Bodies:
        return self._store.fetch_each(items)

    def _begin_next(self) -> None:
        if stream := next(self._coming, None):
            stream.begin(self._store.of_process(FetchThreads))

    @contextmanager
    def expecting(self, items: Sequence[ObjectInfo]) -> Iterator[None]:
        """Fetch the inputs that will be opened inside the `with` block, in this order and many at once."""
        small = [item for item in items if item.size is not None and item.size <= SMALL]
        self._bodies = self._fetch_each(small)
        self._small.extend(small if self._bodies else ())
        others = set(items) - set(self._small)
        self._expected = {item: self._stream(item) for item in items if item in others}
        self._coming = iter([*self._expected.values()])
        for _ in range(_IN_FLIGHT):
            self._begin_next()
        try:
            yield
        finally:
            for stream in self._expected.values():
                stream.close()
            self._expected.clear()
            if self._bodies:
                self._bodies.close()
            self._small.clear()

    def transformers(self) -> Transformers | None:
        """Return those of the store."""
        return self._store.transformers()

    def ranges(self) -> ObjectRanges:
        """Return a reader of ranges of the objects."""
        return ObjectRanges(self._store)

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return those of the names that exist, in as few requests as possible."""
        if self._store.can_list and self._store.lists_versions and len(names) > _LIST_FROM:
            wanted = set(names)
            prefix = os.path.commonprefix(names)  # noqa: RUF071 - of names, not of paths
            return {item.name: item for item in self._listing(prefix) if item.name in wanted}
        if not names:
            return {}
        first = self._store.look_up(names[0])  # alone: it has AIStore tell its nodes of a bucket behind it
        return {item.name: item for item in (first, *self._store.head_each(names[1:])) if item}

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

    def _listing(self, prefix: str) -> Inputs:
        return self._store.persist(lambda: [*self._store.listing(prefix)], shard=self.bucket)


def read_object(store: Store, name: str) -> bytes | None:
    """Read a small object; None when it does not exist.

    Raises:
        SourceError: when it cannot be read.
    """
    item = store.look_up(name)
    if item is None:
        return None
    with closing(store.open(item)) as stream:
        return b"".join(iter(lambda: stream.read(_READ), b""))
