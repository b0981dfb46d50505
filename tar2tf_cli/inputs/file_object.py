"""File objects as a source: files, pipes or sockets that a program has already opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from io import FileIO, TextIOBase
from typing import Any, Protocol, TypeAlias

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.stores import ObjectInfo, open_source
from tar2tf_cli.stores.base import READ_ONCE, Abilities, Source
from tar2tf_cli.stores.directory import version_of


class FileObject(Protocol):
    """An open binary file: `read(size)` returns at most that many bytes, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...


Readable: TypeAlias = "str | os.PathLike[str] | FileObject"
"""A path or bucket, as `open_source` takes it, or an open binary file."""


class FileObjectSource(Source):
    """An open file as a bucket of one shard, read from its current position; the caller closes it.

    One that can seek is read again where that is needed. A file of the disk, at its beginning, is known by its size and
    time, as its path is, so that a later run can know that it is the same.

    Args:
        file: the open file.
        number: used to name it when it has no name of its own.
    """

    def __init__(self, file: FileObject, number: int = 1) -> None:
        self._file = file
        self.bucket = name_of(file, f"<stream {number}>")
        self._start = _position(file)
        self._status = _status(file) if self._start == 0 else None

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List one input; its size and version are known for a file of the disk."""
        if self._status is None:
            return [ObjectInfo(self.bucket, None, None)]
        return [ObjectInfo(self.bucket, self._status.st_size, version_of(self._status))]

    def abilities(self) -> Abilities:
        """Return those of a stream, which may be one that can be read again."""
        return READ_ONCE._replace(repeatable=self._start is not None, resumable=self._status is not None)

    def open(self, item: ObjectInfo) -> ByteStream:
        """Return the file itself, at the position that it had."""
        return _Borrowed(self._file, self.bucket, self._start)

    def locate(self, name: str) -> str:
        """Return the file's name."""
        return name


def _position(file: Any) -> int | None:
    """Where an open file is; None if it cannot seek."""
    try:
        return file.tell() if file.seekable() else None
    except (AttributeError, OSError, ValueError):
        return None


def _status(file: Any) -> os.stat_result | None:
    """The status of a regular file that is read as it is; None for any other."""
    if not isinstance(getattr(file, "raw", file), FileIO):
        return None
    found = os.fstat(file.fileno())
    return found if stat.S_ISREG(found.st_mode) else None


class _Borrowed:
    """An open file that the caller closes; if it can seek, several may read it, each at a position of its own."""

    def __init__(self, file: FileObject, name: str, position: int | None) -> None:
        self._file: Any = file
        self._name = name
        self._position = position

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end."""
        try:
            if self._position is not None:
                self._file.seek(self._position)
            data = self._file.read(size)
        except OSError:
            raise
        except Exception as error:  # it is closed, or its connection broke off
            raise SourceError(f"reading failed: {type(error).__name__}: {error}", shard=self._name) from error
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise SourceError(
                f"read() returned {type(data).__name__} instead of bytes",
                shard=self._name,
                hint="open it in binary mode, without O_NONBLOCK",
            )
        if self._position is not None:
            self._position += len(data)
        return bytes(data)

    def close(self) -> None:
        """Leave the file open."""


def sources_of(inputs: Iterable[Readable]) -> Iterable[Source]:
    """Yield a source for each input in order, opened when it is needed.

    Raises:
        SourceError: when a path does not exist.
    """
    for number, item in enumerate(inputs, 1):
        if isinstance(item, (str, os.PathLike)):
            yield open_source(os.fspath(item))
        else:
            yield FileObjectSource(item, number)


def check_inputs(inputs: Iterable[Any]) -> list[Readable]:
    """Return the inputs as a flat list; lists and other iterables are expanded.

    Raises:
        UsageError: for anything that is not a path or an open binary file, or when there are no inputs.
    """
    flat: list[Readable] = []
    for item in inputs:
        if isinstance(item, TextIOBase):
            raise UsageError(f"{name_of(item, 'an input')} is open as text", hint="open it with mode 'rb'")
        if isinstance(item, (str, os.PathLike)) or callable(getattr(item, "read", None)):
            flat.append(item)
        elif isinstance(item, Iterable) and not isinstance(item, (bytes, bytearray)):
            flat += check_inputs(item)
        else:
            raise UsageError(f"{type(item).__name__} is not an input; give a path, or a file open for reading bytes")
    if not flat:
        raise UsageError("there are no inputs", hint="give a path, or a file open for reading bytes")
    return flat


def name_of(file: object, otherwise: str) -> str:
    """Return the name of an open file; a file descriptor is not a name."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and name else otherwise
