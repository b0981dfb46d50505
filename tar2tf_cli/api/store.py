"""The interface of a store: objects in a bucket, reached by one request for each call.

A store never repeats a request: it raises `Transient` for a failure that a retry may fix, and SourceError for any
other. Callers implement retries, resumed and parallel transfers, read-ahead, checksums, and random access in the same
way for every store. A subclass implements `list`, `head`, `fetch` and `locate`, and `put`, `copy` and `remove` if its
buckets can be written to.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from math import inf
from typing import TypeVar

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.structs import dataclass


class Transient(Exception):
    """A failure that a retry may fix.

    Args:
        message: the failure.
        server: URL or name of the server or node that failed.
        after: seconds that the server asks to wait before the next request (Retry-After).
        hint: the next step when no retry fixes it, if there is a better one than waiting longer.
    """

    def __init__(self, message: str, server: str = "", after: float = 0, hint: str = "") -> None:
        super().__init__(message)
        self.server = server
        self.after = after
        self.hint = hint


class NoSuchObject(SourceError):
    """The bucket exists, but has no object of that name."""


class ObjectExists(SourceError):
    """An object of that name exists already."""


@dataclass
class Body:
    """The response to a request for an object, from an offset on.

    Attributes:
        read: returns at most a given number of bytes, b"" at the end; raises `Transient` when the transfer breaks off.
        close: releases the connection.
        start: offset of the first byte, which is 0 if the server ignores ranges.
        size: size in bytes of the whole object; None when the server does not say.
        version: version of the object being sent, as in `ObjectInfo`.
        checksum: kind of the whole object's checksum, and its value in hexadecimal.
        ask: requests the checksum from the store if `checksum` may be missing or outdated; None if the store has none.
    """

    read: Callable[[int], bytes]
    close: Callable[[], None]
    start: int
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None
    ask: Callable[[], str | None] | None = None

    def is_of(self, size: int | None, version: str | None) -> bool:
        """Whether the body may belong to an object of this size and version; None matches any."""
        same_size = size is None or self.size in (size, None)
        return same_size and (version is None or self.version in (version, None))


class Store(ABC):
    """A bucket of objects, accessed through one of its folders; names are relative to that folder.

    Several threads may call methods at once. A worker is forked with the store, or gets it pickled, without its
    connections: other state must be pickled with it.

    A subclass sets the attributes for which its buckets differ from most; `open_store` and callers set the last three.

    A subclass that is opened by URLs has a constructor of two arguments, the URL and the server's address or None.

    Args:
        bucket: the bucket as the user gave it, without secrets.
        root: the folder to which names are relative: "" or ending with a slash.

    Attributes:
        can_list: whether the store can list its objects.
        lists_versions: whether a listing contains the sizes and versions that `head` returns.
        version_is: kind of checksum that a version probably is, such as `md5`: equal values prove equal bytes,
            different ones prove nothing; "" for versions that are not checksums.
        exclusive: whether only one of two uploads of an `absent` object, by any two programs, can succeed.
        may_stall: whether a body's `read` may block forever, as long as a byte arrives now and then.
        aistore_templates: whether templates may also have the syntax of AIStore's tools, such as `%06d` and `@00100`.
        cluster: the address of the AIStore cluster that has the bucket; None for other buckets.
        revision: the commit or snapshot at which the whole bucket is read, known after the first request; None for a
            bucket that has none.
        unsigned: whether requests carry no credentials, as for public buckets.
        retry_for: seconds for which callers repeat failed requests without progress.
        round_trip: seconds of its callers' fastest request so far.
    """

    can_list = True
    lists_versions = True
    version_is = ""
    exclusive = False
    may_stall = False
    aistore_templates = False
    cluster: str | None = None
    revision: str | None = None
    unsigned = False
    retry_for = 60.0
    round_trip = inf

    def __init__(self, bucket: str, root: str) -> None:
        self.bucket = bucket
        self.root = root

    @abstractmethod
    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """Yield the objects whose names begin with a prefix, including those in subfolders.

        Callers may rely on a complete listing or an error. The order and the size of pages are up to the store.

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

        Callers may rely on an error for an object that was replaced, or on the body's version, which they compare with
        the item's. With `size`, at most that many bytes are sent, if the server can send a part.

        Raises:
            NoSuchObject: when the object does not exist.
            SourceError: when the object is no longer the item's version, or may not be read.
        """

    @abstractmethod
    def locate(self, name: str) -> str:
        """Return the URL of an object, without secrets."""

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        """Upload a local file in constant memory; the object appears complete or not at all, and replaces any other.

        Args:
            name: the object's name.
            path: the file's path.
            absent: whether to fail instead of replacing an object.

        Raises:
            ObjectExists: with `absent`, when the object exists.
            UsageError: when the store cannot be written to, as by default.
        """
        raise _not_writable(self)

    def copy(self, name: str, target: str) -> None:
        """Copy an object within the bucket, on the server if it can.

        Raises:
            UsageError: when the store cannot be written to, as by default.
        """
        raise _not_writable(self)

    def remove(self, name: str) -> None:
        """Delete an object if it exists.

        Raises:
            UsageError: when the store cannot be written to, as by default.
        """
        raise _not_writable(self)

    def parent(self: StoreT) -> tuple[StoreT, str] | None:
        """Return the store at the parent folder, and the root's name in it; None at the top of the bucket."""
        folder, slash, name = self.root.rstrip("/").rpartition("/")
        return (at_folder(self, folder + slash), name) if name else None


StoreT = TypeVar("StoreT", bound=Store)


def at_folder(store: StoreT, root: str) -> StoreT:
    """Return a store at another folder of its bucket."""
    other = copy.copy(store)
    other.root = root
    return other


def _not_writable(store: Store) -> UsageError:
    scheme = store.bucket.partition("://")[0]
    hint = "write to a folder, and copy its files there"
    return UsageError(f"{scheme}:// buckets cannot be written to", shard=store.bucket, hint=hint)


class BulkStore(Store):
    """A store that can have many requests under way in one thread, which takes less CPU time than a thread for each."""

    @abstractmethod
    def head_each(self, names: Sequence[str]) -> Mapping[str, ObjectInfo | None]:
        """Look up objects with few requests and return the metadata of each; None for an object that does not exist.

        Callers look up the objects that the result lacks one by one.
        """

    @abstractmethod
    def fetch_each(self, items: Sequence[ObjectInfo]) -> Generator[Body | None, None, None]:
        """Yield the whole body of each small object, and None for one to `fetch` separately.

        Callers take the bodies in order, and may close the generator early. The store decides how many it fetches at
        once.
        """
