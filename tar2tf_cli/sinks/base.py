"""The interface of places where finished files are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tar2tf_cli.stores.store import Store


class Sink(Protocol):
    """A place for finished files.

    Paths are those of the output template: local paths, or names in a bucket. A part is a finished file in the local
    working folder; it appears in the sink whole or not at all. A sink is used by one thread.

    Attributes:
        renames: whether publishing is a rename, so that a finished file is not read again.
        store: the bucket; None for folders.

    Raises:
        SinkError: from every method, when the place cannot be read or written.
    """

    renames: bool
    store: Store | None = None

    def inside(self, path: str) -> str:
        """Convert an output path, as the user wrote it, to a path of this sink."""

    def locate(self, path: str) -> str:
        """Return a path as users know it: itself, or its URL."""

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Prepare for an output; return the local working folder for it.

        Args:
            manifest: the manifest's path.
            begins: common prefix of the paths of all files of the output.
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

    def reserve(self, run: str, conversion: str, *, replaces: bool) -> None:
        """Let no other conversion write this output meanwhile; a folder's lock does so already.

        Args:
            run: the run's own name.
            conversion: what is converted, and how; equal runs may write the same output at the same time.
            replaces: whether to take the output from another conversion.

        Raises:
            OutputExistsError: when another conversion is writing it.
        """
        return

    def check_reserved(self) -> None:
        """Check that no other conversion took the output.

        Raises:
            OutputExistsError: when one did.
        """
        return

    def release(self) -> None:
        """Let others write the output."""
        return

    def publish(self, part: str, path: str, *, replaces: bool = True) -> None:
        """Move a part to its final path, perhaps not before `flush`.

        Args:
            part: the part.
            path: the path.
            replaces: whether a file of that path may be there, which is not one that another run has just written.

        Raises:
            OutputExistsError: when there is another file, and there may be none; perhaps not before `flush`.
        """

    def stage(self, part: str) -> None:
        """Free the local space of a part that has no final path yet, perhaps not before `flush`; nothing by default."""
        return

    def part_size(self, part: str) -> int | None:
        """Return an unpublished part's size in bytes, staged or not; None when it does not exist."""

    def drop_staged(self) -> None:
        """Remove parts that an earlier run staged and never published."""
        return

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    def flush(self, folders: Iterable[str]) -> None:
        """Wait until everything published in these folders is durable."""

    def close(self) -> None:
        """Release resources; unpublished parts stay in the working folder."""
        return
