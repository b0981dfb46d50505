"""What every place that finished files are published in has in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

__all__ = ["Sink"]


class Sink(Protocol):
    """A place for finished files.

    Paths are those of the output's template: local paths, or names in a bucket. A part is a whole file in the local
    working folder; as a file of the sink it appears whole or not at all. Used by one thread.

    Attributes:
        renames: whether publishing is a rename, so that a finished file is not read again.

    Raises:
        SinkError: from every method, when the place cannot be read or written.
    """

    renames: bool

    def inside(self, path: str) -> str:
        """An output path as its user wrote it, as a path of this sink."""

    def locate(self, path: str) -> str:
        """What users call a path: itself, or its URL."""

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Take note of which output is to be made; the local folder in which that is done.

        Args:
            manifest: the manifest's path.
            begins: what the paths of all that belongs to the output begin with.
        """

    def walk(self, root: str, *, nested: bool) -> Iterator[tuple[str, bool]]:
        """Paths below a folder, from that folder, each with whether it is a folder itself; hidden folders skipped.

        Args:
            root: the folder.
            nested: whether folders in it are of interest, too.
        """

    def exists(self, path: str, *, now: bool = False) -> bool:
        """Whether there is anything at a path: at this moment, or as of when the sink last looked."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when there is none."""

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None when there is none."""

    def publish(self, part: str, path: str) -> None:
        """Give a part its final path; the part goes. It may take until `flush`."""

    def stage(self, part: str) -> None:
        """Make room for a part that has no final path yet; it may take until `flush`, and the part can be published."""

    def part_size(self, part: str) -> int | None:
        """Bytes of a part that is not yet published, staged or not; None when there is none."""

    def drop_staged(self) -> None:
        """Remove whatever an earlier run staged and never published."""

    def remove(self, path: str) -> None:
        """Remove a file if there is one."""

    def flush(self, folders: Iterable[str]) -> None:
        """Wait until all that was published in folders is there to stay."""

    def close(self) -> None:
        """Let go; what is not yet published stays in the working folder."""
