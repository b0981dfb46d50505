"""Local folders as sinks: a rename publishes a file, fsync makes it durable."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from tar2tf_cli.errors import SinkError, write_errors
from tar2tf_cli.formats.record_file import sync
from tar2tf_cli.sinks.base import Sink
from tar2tf_cli.spec.output_path import check_replaceable

__all__ = ["DirectorySink"]


class DirectorySink(Sink):
    """The local file system; the working folder is beside the output, so that a rename publishes."""

    renames = True

    def inside(self, path: str) -> str:
        """Return the path itself."""
        return path

    def locate(self, path: str) -> str:
        """Return the path itself."""
        return path

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Return a hidden folder beside the manifest."""
        folder, name = os.path.split(manifest)
        return os.path.join(folder or ".", f".{name.removesuffix('.json')}.tar2tf")

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

    def publish(self, part: str, path: str) -> None:
        """Rename the part, which is already on the disk."""
        with write_errors(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.replace(part, path)

    def part_size(self, part: str) -> int | None:
        """Return the size in the part's status."""
        return self.size(part)

    def remove(self, path: str) -> None:
        """Unlink."""
        with write_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def flush(self, folders: Iterable[str]) -> None:
        """Flush the folders' entries to the disk."""
        for folder in folders:
            sync(folder)
