"""The interface of an object store."""

from __future__ import annotations

import copy
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.cursor import read_to_end
from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.retries import NoSuchObject, ObjectExists, persist
from tar2tf_cli.stores.transfer import Body, ParallelStream, ResumingStream

if TYPE_CHECKING:
    from typing_extensions import Self


_PARALLEL: Final = 32
_connecting: Final = threading.RLock()

SMALL: Final = 1 << 18
"""Bytes of the largest object that is held in memory while others are on their way."""

Bodies: TypeAlias = "Generator[Body | None, None, None] | None"
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
        exclusive: whether of two uploads of the same `absent` object only one can succeed.
        reads_blindly: whether a body's `read` may wait for ever, as long as a byte comes now and then.
        retry_for: how many seconds failed requests are repeated without progress.
        unsigned: whether requests carry no credentials, as for public buckets.
        cluster: the address of the AIStore cluster that has the bucket; None for other buckets.
    """

    can_list = True
    lists_versions = True
    exclusive = False
    reads_blindly = False
    dialect: Callable[[str], str] = staticmethod(str)
    numbers = False
    retry_for: float
    unsigned = False
    cluster: str | None = None

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

    def sum_of(self, item: ObjectInfo) -> tuple[str, str] | None:
        """Return kind and value of what is probably a checksum of an object; an equal one is a proof of equal bytes."""
        return item.checksum

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        """Upload a local file in constant memory; the object appears whole or not at all, and replaces any other.

        Args:
            name: the object's name.
            path: the file's path.
            absent: replace nothing.

        Raises:
            ObjectExists: when there is such an object, and there must not be.
        """
        raise NotImplementedError

    def refuse_existing(self, name: str) -> None:
        """Raise `ObjectExists` if there is an object, for stores whose uploads have no such condition."""
        if self.head(name):
            raise ObjectExists("already exists", shard=self.locate(name))

    def copy(self, name: str, target: str) -> None:
        """Copy an object within the bucket, on the server if the store supports that."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Delete an object if it exists."""
        raise NotImplementedError

    def persist(self, action: Callable[[], T], **where: Any) -> T:
        """Return the result of an action that sends a request, with retries."""
        return persist(action, self.retry_for, **where)

    def open(self, item: ObjectInfo) -> ResumingStream:
        """Return a stream of an object's bytes, which resumes after failures."""
        return ParallelStream(
            partial(self._fetch, item), item, self.locate(item.name), self.retry_for, watched=self.reads_blindly
        )

    def _fetch(self, item: ObjectInfo, start: int, size: int | None) -> Body:
        try:
            return self.fetch(item, start, size)
        except NoSuchObject as error:
            if item.version is None:
                raise
            hint = "restore it and run the same command again"
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


def read_object(store: Store, name: str) -> bytes | None:
    """Read a small object; None when it does not exist.

    Raises:
        SourceError: when it cannot be read.
    """
    item = store.look_up(name)
    return None if item is None else read_to_end(store.open(item))
