"""Files for writing: records appended in large blocks, and files that appear under their name only when whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from tar2tf_cli.errors import write_errors
from tar2tf_cli.formats.crc32c import extend

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RecordFile", "WholeFile", "crc32c_of_file", "is_stream", "sync", "write_all", "write_whole"]

_DESCRIPTORS: Final = re.compile(r"/dev|/proc/\d+/fd")

B = TypeVar("B", bytes, memoryview)


def write_all(write: Callable[[B], int | None], data: B) -> None:
    """Write all bytes with a function that may write fewer and returns how many.

    Raises:
        OSError: when the function raises it, or writes nothing.
    """
    while data:
        taken = write(data)
        if taken is None:
            return  # many file-like objects write all and return None
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "it accepts no more bytes")
        data = data[taken:]


def sync(path: str) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk.

    Raises:
        SinkError: when the operating system reports an error.
    """
    with write_errors(path):
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_stream(path: str) -> bool:
    """Whether there is something that is written to and never replaced: a device, a pipe, `/dev/stdout`."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode):  # what the shell opened for us has a name in a folder of devices or descriptors
        return _holds_descriptors(os.path.dirname(path))
    return not stat.S_ISDIR(mode)


@lru_cache
def _holds_descriptors(folder: str) -> bool:
    return _DESCRIPTORS.fullmatch(os.path.realpath(folder)) is not None


def write_whole(path: str, parts: Iterable[bytes], *, lasting: bool = True) -> None:
    """Write a file, which appears at its path whole or not at all, and replaces a file; devices are written to.

    Args:
        path: the file's path; the folder must exist.
        parts: the content.
        lasting: whether to wait until it is on the disk.

    Raises:
        SinkError: when it cannot be written.
    """
    if is_stream(path):
        with write_errors(path), open(path, "ab") as stream:
            stream.writelines(parts)
        return
    with WholeFile(path, lasting=lasting) as file:
        file.write(iter(parts), 0)


def crc32c_of_file(path: str) -> int:
    """Compute the CRC-32C of a whole file.

    Raises:
        OSError: when it cannot be read.
    """
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(1 << 20):
            crc = extend(crc, data)
    return crc


class RecordFile:
    """A new file; buffers small pieces, checks every write, computes the file's CRC.

    Args:
        path: the file's path; an older file there is replaced. The folder must exist.
        part: path of the file while it is written, if different.

    Attributes:
        size: number of bytes appended so far.
        crc: CRC-32C of the bytes written so far; of all bytes once closed.

    Raises:
        SinkError: when the file cannot be created or written; names it and the reason.
    """

    BUFFER = 1 << 20
    MOST_PARTS: Final = 1000  # IOV_MAX is 1,024

    def __init__(self, path: str, part: str | None = None) -> None:
        self.path = path
        self.size = 0
        self.crc = 0
        self._parts: list[bytes] = []
        self._pending = 0
        self._where = part or path
        with write_errors(path):
            self._fd = os.open(self._where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def write(self, parts: Iterable[bytes], size: int) -> None:
        """Append parts of `size` bytes in total; those of a generator are written one by one."""
        if not isinstance(parts, list):
            for part in parts:
                self.write([part], len(part))
            return
        self._parts += parts
        self._pending += size
        if self._pending >= self.BUFFER or len(self._parts) >= self.MOST_PARTS:
            self.flush()

    def flush(self) -> None:
        """Write all buffered data to the operating system."""
        scattered = len(self._parts) <= self.MOST_PARTS and self._pending > 512 * len(self._parts)
        parts = self._parts if scattered else [b"".join(self._parts)]
        crc = self.crc
        for part in parts:
            crc = extend(crc, part)
        self.crc = crc
        self.size += self._pending
        with write_errors(self.path):
            self._hand_over(parts, self._pending)
        self._parts.clear()
        self._pending = 0

    def _hand_over(self, parts: Sequence[bytes], size: int) -> None:
        written = os.writev(self._fd, parts)
        if written < size:
            write_all(lambda data: os.write(self._fd, data), memoryview(b"".join(parts))[written:])

    @property
    def pending(self) -> int:
        """Bytes that are buffered."""
        return self._pending

    def cut(self, size: int) -> None:
        """Remove all bytes from an offset on."""
        self.flush()
        with write_errors(self.path):
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        self.size, self.crc = size, crc32c_of_file(self._where)

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk."""
        self.flush()
        with write_errors(self.path):
            os.fsync(self._fd)

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing buffered data."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class WholeFile(RecordFile):
    """A record file that appears at its path when it is closed, whole and on the disk; if abandoned, it is deleted.

    Until then it has a hidden name beside that path.

    Args:
        path: the file's path; an existing file is replaced at closing. The folder must exist.
        lasting: whether closing waits until file and name are on the disk.
    """

    def __init__(self, path: str, *, lasting: bool = True) -> None:
        folder, base = os.path.split(path)
        self._part = os.path.join(folder, f".{base}.{os.urandom(4).hex()}.part")
        super().__init__(path, self._part)
        self._lasting = lasting

    def close(self) -> None:
        """Flush, close and rename the file to its path."""
        try:
            if self._lasting:
                self.sync()
            else:
                self.flush()
            with write_errors(self.path):
                os.replace(self._part, self.path)
            self._part = ""
        finally:
            self.abandon()
        if self._lasting:
            sync(os.path.dirname(self.path))

    def abandon(self) -> None:
        """Close the file, and delete it unless it has been renamed."""
        super().abandon()
        if self._part:
            with contextlib.suppress(OSError):
                os.unlink(self._part)
