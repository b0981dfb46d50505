"""Local folders as a place for finished files: a rename publishes, fsync makes it last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from tar2tf_cli.errors import SinkError, write_errors
from tar2tf_cli.formats.record_file import sync
from tar2tf_cli.spec.output_path import check_replaceable

__all__ = ["DirectorySink"]


class DirectorySink:
    """The local file system; the working folder lies beside the output, so that a rename is enough."""

    renames = True

    def inside(self, path: str) -> str:
        """The path itself."""
        return path

    def locate(self, path: str) -> str:
        """The path itself."""
        return path

    def prepare(self, manifest: str, begins: str = "") -> str:
        """A hidden folder beside the manifest."""
        folder, name = os.path.split(manifest)
        return os.path.join(folder or ".", f".{name.removesuffix('.json')}.tar2tf")

    def walk(self, root: str, *, nested: bool) -> Iterator[tuple[str, bool]]:
        """Files and folders as `os.walk` finds them."""
        for folder, folders, files in os.walk(root):
            for name in folders:
                yield os.path.relpath(os.path.join(folder, name), root), True
            for name in files:
                yield os.path.relpath(os.path.join(folder, name), root), False
            folders[:] = [name for name in folders if nested and not name.startswith(".")]

    def exists(self, path: str, *, now: bool = False) -> bool:
        """Whether there is anything at a path, a dangling link included."""
        return os.path.lexists(path)

    def size(self, path: str) -> int | None:
        """From the file's status."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes | None:
        """The whole file; a device or pipe is nothing that was written here."""
        check_replaceable(path)
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkError(f"cannot be read: {error.strerror}", shard=path) from None

    def publish(self, part: str, path: str) -> None:
        """Rename; the part is on the disk already."""
        with write_errors(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.replace(part, path)

    def stage(self, part: str) -> None:
        """The part is where it takes no more room than as a file."""

    def part_size(self, part: str) -> int | None:
        """From the part's status."""
        return self.size(part)

    def drop_staged(self) -> None:
        """There is nothing but the working folder."""

    def remove(self, path: str) -> None:
        """Unlink."""
        with write_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def flush(self, folders: Iterable[str]) -> None:
        """Have the folders' entries on the disk."""
        for folder in folders:
            sync(folder)

    def close(self) -> None:
        """There is nothing to let go of."""
