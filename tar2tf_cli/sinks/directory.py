"""The interface of sinks, and the sink of local folders: a rename publishes a file, fsync makes it durable."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from tar2tf_cli.errors import SinkError, Tar2tfError, write_errors
from tar2tf_cli.formats.files import make_folders, sync
from tar2tf_cli.spec.templates import check_replaceable, hidden_name
from tar2tf_cli.structs import Generic, Protocol

if TYPE_CHECKING:
    from tar2tf_cli.api.store import Store


def size_change(now: int | None, written: int) -> str:
    """Describe the difference between the sizes of a published file and of the file that was written."""
    return "is gone" if now is None else f"has {now:,} bytes, not the {written:,} that were written"


class Sink(Protocol):
    """A destination of finished files.

    Paths have the form of the output template: local paths, or names in a bucket. A part is a finished file in the
    local working folder; it appears in the sink either complete or not at all. A sink is used by one thread.

    Attributes:
        renames: whether publishing is a rename, so that a finished file is not read again.
        store: the bucket; None for folders.

    Raises:
        SinkError: from every method, when the destination cannot be read or written.
    """

    renames: bool
    store: Store | None = None

    def inside(self, path: str) -> str:
        """Convert an output path, as the user wrote it, to a path of this sink."""

    def locate(self, path: str) -> str:
        """Return a path as shown to users: unchanged, or as a URL."""

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Prepare for an output; return the local working folder for it.

        Args:
            manifest: the manifest's path.
            begins: the common prefix of the paths of all output files.
        """

    def walk(self, root: str, *, nested: bool) -> Iterator[tuple[str, bool]]:
        """Yield relative paths below a folder, each with whether it is a folder; hidden folders are skipped.

        Args:
            root: the folder.
            nested: whether to descend into subfolders.
        """

    def exists(self, path: str, *, now: bool = False) -> bool:
        """Whether anything exists at a path, now or when the sink last looked."""

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes; None when it does not exist."""

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None when it does not exist."""

    def reserve(self, run: str, conversion: str, shards: str, *, replaces: bool) -> None:
        """Reserve the output for this conversion; a folder's lock does so already.

        Args:
            run: the run's identifier.
            conversion: digest of the conversion; equal conversions may write the same output at the same time.
            shards: template of the shards' paths in the manifest's folder.
            replaces: whether to take the output over from another conversion.

        Raises:
            OutputExistsError: when another conversion is writing it.
        """
        return

    def reserved_by(self) -> str:
        """Return the conversion that reserved this output, even if it was killed; empty if unknown."""
        return ""

    def check_reserved(self) -> None:
        """Check that no other conversion took the output.

        Raises:
            OutputExistsError: when another conversion did.
        """
        return

    def release(self) -> None:
        """Release the reservation of the output."""
        return

    def publish(self, part: str, path: str, *, replaces: bool = True) -> None:
        """Move a part to its final path, perhaps not before `flush`.

        Args:
            part: the part.
            path: the path.
            replaces: whether a file may exist at that path, other than one that another run has just written.

        Raises:
            OutputExistsError: when a file exists that must not be replaced; perhaps not before `flush`.
        """

    def stage(self, part: str) -> None:
        """Free the local space of a part that has no final path yet, perhaps not before `flush`; nothing by default."""
        return

    def part_size(self, part: str) -> int | None:
        """Return an unpublished part's size in bytes, staged or not; None when it does not exist."""

    def drop_staged(self) -> None:
        """Remove parts that an earlier run staged and never published."""
        return

    def changed(self, published: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, str]]:
        """Yield each file that another program changed after it was published, with a description of the change.

        Args:
            published: size in bytes and CRC-32C of each file, by path.
        """
        for path, (size, _) in published.items():
            if (now := self.size(path)) != size:
                yield path, size_change(now, size)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    def flush(self, folders: Iterable[str]) -> None:
        """Wait until everything published in these folders is durable."""

    def close(self) -> None:
        """Release resources; unpublished parts remain in the working folder."""
        return


T = TypeVar("T")


_MOST_FLUSHED: Final = 8  # concurrent flushes: 2,048 small files take 3 s, and 15 s one by one


class Flusher(Generic[T]):
    """Flushes files to the disk in its own threads, and returns their items in the order of submission.

    The threads start with the first files, so that processes can be forked before that.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[int, Sequence[str], T] | None] = queue.SimpleQueue()
        self._flushed: queue.SimpleQueue[tuple[int, T] | Tar2tfError] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._numbers = count()
        self._put = threading.Lock()
        self._next = 0
        self._early: dict[int, T] = {}  # items that wait for earlier ones
        self.pending = 0

    def submit(self, paths: Sequence[str], item: T) -> None:
        """Start to flush files; `done` returns the item afterwards."""
        if paths:
            self.expect()
            self.put(paths, item)
            return
        self.pending += 1
        with self._put:
            self._flushed.put((next(self._numbers), item))

    def expect(self) -> None:
        """Announce an item, for which another thread will call `put` or `fail`."""
        if len(self._threads) <= min(self.pending, _MOST_FLUSHED - 1):
            thread = threading.Thread(target=self._run, daemon=True)
            self._threads.append(thread)
            thread.start()
        self.pending += 1

    def put(self, paths: Sequence[str], item: T) -> None:
        """Start to flush the files of an announced item; callable from any thread."""
        with self._put:
            self._waiting.put((next(self._numbers), paths, item))

    def fail(self, error: Tar2tfError) -> None:
        """Make `done` raise an error instead of returning an announced item."""
        self._flushed.put(error)

    def done(self, timeout: float = 0) -> list[T]:
        """Return the items whose files, like those of all earlier items, are on the disk; wait for the first.

        Args:
            timeout: maximum seconds to wait.

        Raises:
            Tar2tfError: when a file could not be flushed, or an item failed.
        """
        items: list[T] = []
        while self.pending:
            try:
                flushed = self._flushed.get(timeout > 0 and not items, timeout)
            except queue.Empty:
                break
            if isinstance(flushed, Tar2tfError):
                self.pending -= 1
                raise flushed
            self._early[flushed[0]] = flushed[1]
            while self._next in self._early:
                items.append(self._early.pop(self._next))
                self._next += 1
                self.pending -= 1
        return items

    def close(self) -> None:
        """End the threads after their current files."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            if thread.ident is not None:  # Ctrl-C may have come before the thread started
                thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while entry := self._waiting.get():
            number, paths, item = entry
            try:
                for path in paths:
                    sync(path)
                self._flushed.put((number, item))
            except SinkError as error:
                self.fail(error)


class DirectorySink(Sink):
    """The sink of the local file system, whose working folder is next to the output, so that a rename publishes."""

    renames = True

    def inside(self, path: str) -> str:
        """Return the path itself."""
        return path

    def locate(self, path: str) -> str:
        """Return the path itself."""
        return path

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Return a hidden folder next to the manifest."""
        folder, name = os.path.split(manifest)
        return os.path.join(folder or ".", hidden_name(name, ".tar2tf"))

    def walk(self, root: str, *, nested: bool) -> Iterator[tuple[str, bool]]:
        """Yield files and folders in the order of `os.walk`."""
        for folder, folders, files in os.walk(root):
            inside = os.path.join(os.path.relpath(folder, root), "").removeprefix("./")
            yield from ((inside + name, True) for name in folders)
            yield from ((inside + name, False) for name in files)
            folders[:] = [name for name in folders if nested and not name.startswith(".")]

    def exists(self, path: str, *, now: bool = False) -> bool:
        """Whether anything exists at a path, including a dangling link."""
        return os.path.lexists(path)

    def size(self, path: str) -> int | None:
        """Return the size in the file's status."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes | None:
        """Read the whole file; fail for a device or pipe, which cannot be earlier output."""
        check_replaceable(path)
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkError(f"cannot be read: {error.strerror}", shard=path) from None

    def publish(self, part: str, path: str, *, replaces: bool = True) -> None:
        """Rename the part, which is already on the disk."""
        with write_errors(path):
            make_folders(os.path.dirname(path))
            os.replace(part, path)

    def part_size(self, part: str) -> int | None:
        """Return the size in the part's status."""
        return self.size(part)

    def remove(self, path: str) -> None:
        """Unlink a file."""
        with write_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def flush(self, folders: Iterable[str]) -> None:
        """Flush the folders' entries to the disk."""
        for folder in folders:
            sync(folder)
