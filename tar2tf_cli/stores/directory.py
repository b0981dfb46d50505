"""Shards in a local directory, a single tar file, or one tar on standard input."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import FileIO
from time import monotonic
from typing import Final

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import READ_ONCE, Capabilities, Ranges, Source
from tar2tf_cli.errors import SourceError, UsageError, changed, read_failed, remedy
from tar2tf_cli.spec.templates import resolve
from tar2tf_cli.stores.base import templates_of

OF_FILES: Final = Capabilities(seekable=True)
"""The capabilities of files on this machine."""


class DirectorySource(Source):
    """A local directory of shards, or a single file as the only shard.

    Raises:
        SourceError: when the path does not exist.
    """

    capabilities = OF_FILES

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        if not os.path.lexists(bucket):
            cluster = os.environ.get("AIS_ENDPOINT") and bucket and "/" not in bucket
            hint = f"for the bucket of the cluster at AIS_ENDPOINT, write ais://{bucket}" if cluster else None
            raise SourceError("no such directory or file", shard=bucket, hint=hint)
        self._only = None if os.path.isdir(bucket) else os.path.basename(bucket)
        self._root = bucket if self._only is None else os.path.dirname(bucket)
        self._prefix = os.path.join(self._root, "")

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the files that match the templates; their modification times are their versions."""
        return [self._input(name) for name in self._names(templates)]

    def list_with_unreadable(self, templates: Sequence[str]) -> Sequence[ObjectInfo]:
        """List as `list` does, plus dangling links and unreadable files, but no pipes or sockets."""
        listed = []
        for name in self._names(templates):
            try:
                listed.append(self._input(name))
            except SourceError:
                path = self.locate(name)
                if not os.path.exists(path):
                    listed.append(ObjectInfo(name, None, None))
                elif os.path.isdir(path) or self._only is not None or name in templates:
                    raise
        return listed

    def open(self, item: ObjectInfo) -> FileIO:
        """Open a file, unbuffered; closing it raises if the file was replaced or changed after the listing."""
        path = self.locate(item.name)
        try:
            return UnchangedFile(path, None if item.version is None else (item.size, item.version))
        except OSError as error:
            raise _unreadable(path, error, "opened") from None

    def ranges(self) -> FileRanges:
        """Return a reader of ranges of the files."""
        return FileRanges(self)

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return those of the names that are regular files."""
        return {name: self._input(name) for name in names if os.path.isfile(self.locate(name))}

    def locate(self, name: str) -> str:
        """Return the file's path."""
        return name if name.startswith("/") else self._prefix + name

    def _names(self, templates: Sequence[str]) -> Sequence[str]:
        templates = templates_of(self, templates)
        if self._only is not None:
            if templates:
                raise SourceError("is a single file, so it takes no template", shard=self.bucket)
            return [self._only]
        try:
            return resolve(templates, partial(self._listing, templates), self._exists)
        except SourceError as error:
            raise error.at(shard=self.bucket) from None

    def _input(self, name: str) -> ObjectInfo:
        path = self.locate(name)
        try:
            status = os.stat(path)
        except OSError as error:
            raise _unreadable(path, error, "read") from None
        if stat.S_ISDIR(status.st_mode):
            raise SourceError("is a directory where a shard should be", shard=path)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("is not a regular file", shard=path, hint="pipe it to standard input, with - as BUCKET")
        return ObjectInfo(name, status.st_size, version_of(status))

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self.locate(name))

    def _listing(self, templates: Sequence[str], prefix: str) -> Iterator[str]:
        """List files below the deepest folder that the prefix names, except hidden ones.

        As in bash, links to folders are followed except by `**/`. Without templates, subfolders are only used for
        hints.
        """
        top = os.path.join(self._root, prefix.rpartition("/")[0])
        if not os.access(top, os.R_OK | os.X_OK):
            raise SourceError("permission to read the directory was denied", shard=top)
        levels = max((template.count("/") for template in templates), default=0)
        anywhere = not templates or any("**/" in template for template in templates)
        for path, folders, files in os.walk(top, onerror=_refuse if templates else None, followlinks=not anywhere):
            relative = os.path.relpath(path, self._root or ".")
            inside = "" if relative == "." else f"{relative}/"
            deeper = anywhere or inside.count("/") < levels
            folders[:] = sorted(name for name in folders if deeper and not name.startswith("."))
            for name in files:
                if not name.startswith("."):
                    yield inside + name


def _refuse(error: OSError) -> None:
    """Raise an error for a folder that cannot be listed, so that it does not look empty."""
    raise read_failed(os.fsdecode(error.filename), error) from None


def _unreadable(path: str, error: OSError, what: str) -> SourceError:
    """Return our error for a file that cannot be read, which names the file and the target of a link."""
    link = f": it is a link to {os.readlink(path)}" if os.path.islink(path) else ""
    return SourceError(f"cannot be {what}: {error.strerror}{link}", shard=path, hint=remedy(error))


class UnchangedFile(FileIO):
    """A file that must not be changed or replaced while it is read.

    Args:
        path: the file's path.
        listed: the size and version that it must have; None for any.

    Raises:
        SourceError: on opening, when it changed after it was listed; on closing, when it changed after it was opened.
    """

    def __init__(self, path: str, listed: tuple[int | None, str] | None) -> None:
        super().__init__(path)
        self._path = path
        status = os.fstat(self.fileno())
        self._opened = _state(status)
        if listed not in (None, (status.st_size, version_of(status))):
            super().close()
            raise changed(path)

    def close(self) -> None:
        """Close the file, and raise an error if it was changed while it was read."""
        if self.closed:
            return
        try:
            now = os.stat(self._path)
        except FileNotFoundError:  # the bytes read from a deleted file are complete
            now = os.fstat(self.fileno())
        finally:
            super().close()
        if _state(now) != self._opened:
            raise changed(self._path)


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return values that change when a file is replaced or written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def version_of(status: os.stat_result) -> str:
    """Return the version of a file: its modification time."""
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    return f"{seconds}.{nanoseconds:09d}"


class FileRanges(Ranges):
    """Ranges of files. The number of open files is bounded, so that several such readers fit into a process.

    Args:
        source: the files.
    """

    MOST_OPEN: Final = 128
    SHARE: Final = 8  # 1/8 of the files that a process may have open

    gap = 1 << 12
    parallel = 1

    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._files: dict[str, _OpenFile] = {}
        self._opening = threading.Lock()

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Read with `pread`, so that threads and forked processes do not disturb each other."""
        file = self._files.get(item.name) or self._opened(item)
        try:
            data = os.pread(file.descriptor, size, start)
            while len(data) < size and (more := os.pread(file.descriptor, size - len(data), start + len(data))):
                data += more
            self._check(file, item)
        except OSError as error:
            raise read_failed(self._source.locate(item.name), error) from None
        return data

    def open_files(self, items: Sequence[ObjectInfo]) -> list[_OpenFile] | None:
        """Return the files, unless they are more than this reader keeps open."""
        if len(items) > self._most_open:
            return None
        files = [self._files.get(item.name) or self._opened(item) for item in items]
        for file, item in zip(files, items, strict=True):
            self._check(file, item)
        return files

    def _check(self, file: _OpenFile, item: ObjectInfo) -> None:
        """Raise SourceError if a file has been written to since it was opened, checking only from time to time."""
        if monotonic() > file.unchanged_until and not file.is_unchanged():
            raise changed(self._source.locate(item.name))

    @property
    def _most_open(self) -> int:
        return min(self.MOST_OPEN, os.sysconf("SC_OPEN_MAX") // self.SHARE)

    def _opened(self, item: ObjectInfo) -> _OpenFile:
        with self._opening:
            if item.name not in self._files:
                if len(self._files) >= self._most_open:
                    del self._files[next(iter(self._files))]
                try:
                    self._files[item.name] = _OpenFile(self._source.open(item))
                except OSError as error:
                    raise _unreadable(self._source.locate(item.name), error, "opened") from None
            return self._files[item.name]


class _OpenFile:
    """An open file, which is closed when no thread reads it any more.

    Attributes:
        descriptor: the file descriptor.
        unchanged_until: the time until which it counts as unchanged, as checking takes longer than reading a record.
    """

    _SECONDS: Final = 0.01
    descriptor = -1

    def __init__(self, stream: FileIO) -> None:
        with closing(stream):
            self.descriptor = os.dup(stream.fileno())
        self._opened = _state(os.fstat(self.descriptor))
        self.unchanged_until = monotonic() + self._SECONDS

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self.descriptor

    def is_unchanged(self) -> bool:
        """Whether the file has not been written to since it was opened."""
        if _state(os.fstat(self.descriptor)) != self._opened:
            return False
        self.unchanged_until = monotonic() + self._SECONDS
        return True

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # os may be gone at interpreter shutdown
        if self.descriptor >= 0:
            close(self.descriptor)


class StdinSource(Source):
    """Standard input as a bucket of one shard, which can be read once."""

    bucket = "-"
    capabilities = READ_ONCE

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List one input named `-`, of unknown size and version."""
        if templates:
            raise UsageError("standard input is a single tar, so it takes no template")
        if os.isatty(0):
            raise UsageError(
                "standard input is a terminal, not a shard", hint="pipe or redirect one to it: ... - < x.tar"
            )
        return [ObjectInfo("-", None, None)]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open the process's standard input, unbuffered."""
        return FileIO(os.dup(0))

    def locate(self, name: str) -> str:
        """Return `<stdin>`."""
        return "<stdin>"
