"""A file that records are appended to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from tar2tf_cli.errors import SinkError
from tar2tf_cli.formats.tfrecord import crc32c

__all__ = ["RecordFile", "write_failed"]


class RecordFile:
    """A new file under a temporary name; collects small pieces, checks every write, keeps the CRC of it all.

    Args:
        path: the file's path; an older file there is replaced. The folder must exist.

    Attributes:
        size: bytes taken so far.
        crc: CRC-32C of the bytes written so far; of all bytes once closed.

    Raises:
        SinkError: when the file cannot be made or written, naming it and the reason.
    """

    BUFFER = 1 << 20
    MOST_PARTS: Final = 1000  # IOV_MAX is 1,024

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self.crc = 0
        self._parts: list[bytes] = []
        self._pending = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise write_failed(path, error) from None

    def write(self, parts: Sequence[bytes], size: int) -> None:
        """Append parts of together `size` bytes."""
        self._parts += parts
        self._pending += size
        if self._pending >= self.BUFFER or len(self._parts) >= self.MOST_PARTS:
            self.flush()

    def flush(self) -> None:
        """Hand everything collected to the operating system."""
        scattered = len(self._parts) <= self.MOST_PARTS and self._pending > 512 * len(self._parts)
        parts = self._parts if scattered else [b"".join(self._parts)]
        for part in parts:
            self.crc = crc32c(part, self.crc)
        self.size += self._pending
        try:
            self._hand_over(parts, self._pending)
        except OSError as error:
            raise write_failed(self.path, error) from None
        self._parts.clear()
        self._pending = 0

    def _hand_over(self, parts: Sequence[bytes], size: int) -> None:
        written = os.writev(self._fd, parts)
        if written < size:
            rest = memoryview(b"".join(parts))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk."""
        self.flush()
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise write_failed(self.path, error) from None

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without what is not yet written."""
        os.close(self._fd)

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def write_failed(path: str, error: OSError) -> SinkError:
    """The error for a write that the operating system refused."""
    return SinkError(
        f"writing failed: {error.strerror or error}",
        shard=path,
        hint="make room or choose another place, then run the same command",
    )
