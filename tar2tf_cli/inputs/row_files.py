"""Files named by table cells: paths relative to the table's folder, local or in a store, or URLs."""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import NoSuchObject, Store, at_folder
from tar2tf_cli.errors import SampleError, UsageError, read_failed
from tar2tf_cli.inputs.base import CHUNK
from tar2tf_cli.spec.urls import is_remote, is_web, split_query
from tar2tf_cli.stores import open_store

if TYPE_CHECKING:
    from tar2tf_cli.spec.urls import ConnectionOptions
    from tar2tf_cli.stores.source import ObjectSource

ConnectionFor: TypeAlias = "Callable[[str], ConnectionOptions]"
"""Returns the connection options of a URL."""

T = TypeVar("T")


class _FolderOfUrl(NamedTuple):
    """The folder part of a URL.

    Attributes:
        source: the bucket or server that contains it.
        prefix: its name in that bucket, empty or ending with a slash.
        quoted: whether names in its URLs are quoted.
    """

    source: ObjectSource
    prefix: str
    quoted: bool


class RowFiles:
    """The files that the cells of one table name.

    A row is faulty if a cell is not a path, or the file does not exist. Objects of stores are looked up in bulk, and
    fetched ahead, with the retries of their stores.

    Args:
        folder: path or URL of the table's folder.
        store: the store that contains the table, at this folder; None for a local table.
        connection_for: returns the connection options of URLs.
    """

    def __init__(self, folder: str, store: Store | None, connection_for: ConnectionFor) -> None:
        self._folder = folder
        self._store = store
        self._connection_for = connection_for
        self._forget()

    def _forget(self) -> None:
        self._tops: dict[str, ObjectSource] = {}
        self._folders: dict[str, _FolderOfUrl] = {}
        self._known: dict[tuple[int, str], ObjectInfo | None] = {}  # objects by the number of their source, and name

    def __getstate__(self) -> dict[str, object]:
        return {"_folder": self._folder, "_store": self._store, "_connection_for": self._connection_for}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._forget()

    def read(self, column: str, cell: object) -> tuple[bytes, str]:
        """Return the bytes and the path or URL of the file that a cell names.

        Raises:
            SampleError: when the cell is not a path, or the file does not exist.
            SourceError: when the file cannot be read.
        """
        place = self._object(cell)
        try:
            if place is None:
                return _read_local(path := self._path(cell)), path
            source, name = place
            path = source.locate(name)
            self._known[id(source), name], data = source.fetch_whole(name)
        except (NoSuchObject, FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
            raise SampleError(f"there is no file {path}, which the column {column!r} names") from None
        return data, path

    def version(self, cell: object) -> tuple[int, bytes]:
        """Return size and version of the file that a cell names; 0 and no version if it does not exist.

        Raises:
            SampleError: when the cell is no path.
        """
        place = self._object(cell)
        if place is None:
            size, modified = _status(self._path(cell))
            return size, b"%d\0%d\0" % (size, modified)
        source, name = place
        if (id(source), name) not in self._known:
            self.look_up([cell])
        item = self._known[id(source), name]
        return (item.size or 0, f"{item.size}\0{item.version}\0".encode()) if item else (0, b"0\0000\0")

    def look_up(self, cells: Iterable[object]) -> None:
        """Look up the objects that cells name in advance, so that `version` need not request each."""
        names: dict[int, dict[str, None]] = defaultdict(dict)
        sources: dict[int, ObjectSource] = {}
        for source, name in self._objects(cells):
            sources[id(source)] = source
            names[id(source)][name] = None
        for number, source in sources.items():
            found = source.find([*names[number]])
            self._known.update(((number, name), found.get(name)) for name in names[number])

    def forget_versions(self) -> None:
        """Discard the results of `look_up`."""
        self._known.clear()

    def is_unknown(self, cell: object) -> bool:
        """Whether a cell names an object that was neither looked up nor read."""
        return any((id(source), name) not in self._known for source, name in self._objects([cell]))

    def ahead(self, rows: Iterable[T], cells_of: Callable[[T], Iterable[object]]) -> Iterator[T]:
        """Yield rows, while fetching the objects that the next rows name.

        Args:
            rows: the rows.
            cells_of: returns the cells of a row that name files.
        """
        coming = iter(rows)
        while batch := list(islice(coming, CHUNK)):
            items: dict[ObjectSource, dict[ObjectInfo, None]] = defaultdict(dict)
            for source, name in self._objects(cell for row in batch for cell in cells_of(row)):
                items[source][ObjectInfo(name, None, None)] = None
            with ExitStack() as fetching:
                for source, wanted in items.items():
                    fetching.enter_context(source.prefetch([*wanted]))
                yield from batch

    def _objects(self, cells: Iterable[object]) -> Iterator[tuple[ObjectSource, str]]:
        """Yield the objects that cells name, ignoring local files and cells that are not paths."""
        for cell in cells:
            try:
                place = self._object(cell)
            except SampleError:
                continue
            if place:
                yield place

    def _object(self, cell: object) -> tuple[ObjectSource, str] | None:
        """Return source and name of the object that a cell names; None for a local path.

        Raises:
            SampleError: when the cell is not a path, or the path leaves the table's bucket.
        """
        if isinstance(cell, str) and is_remote(cell):
            return self._at(cell)
        if self._store is None:
            return None
        top = "/" if self._store.root.startswith("/") else ""
        name = posixpath.normpath(self._store.root[len(top) :] + self._path(cell))
        if name.startswith("../") or name == ".." or posixpath.isabs(str(cell)):
            raise SampleError(f"the path {cell!r} leaves the bucket of the table")
        return self._top(self._store), name

    def _path(self, cell: object) -> str:
        """Return the path in a cell, joined with the table's folder if that is local.

        Raises:
            SampleError: when the cell is not a path.
        """
        if not isinstance(cell, str) or not cell:
            raise SampleError(f"the path of a file is {cell!r}" if cell else "the path of a file is empty")
        return cell if self._store else os.path.join(self._folder, cell)

    def _at(self, url: str) -> tuple[ObjectSource, str]:
        address, mark, query = split_query(url)
        folder, _, last = address.rpartition("/")
        where = f"{folder}/{mark}{query}"
        if where not in self._folders:
            try:
                store = open_store(where, **self._connection_for(url))
            except UsageError as error:
                raise SampleError(error.message) from None
            prefix = store.root.lstrip("/")
            quoted = is_web(url)
            self._folders[where] = _FolderOfUrl(self._top(store, query), unquote(prefix) if quoted else prefix, quoted)
        found = self._folders[where]
        return found.source, found.prefix + (unquote(last) if found.quoted else last)

    def _top(self, store: Store, query: str = "") -> ObjectSource:
        """Return the source of a whole bucket or server, which all its objects share."""
        from tar2tf_cli.stores.source import ObjectSource

        top = at_folder(store, "/" if store.root.startswith("/") else "")
        return self._tops.setdefault(f"{top.locate('')}?{query}", ObjectSource(top))


def _read_local(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise
    except OSError as error:
        raise read_failed(path, error) from None


def _status(path: str) -> tuple[int, int]:
    """Return size and modification time of a file; zeros if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns
