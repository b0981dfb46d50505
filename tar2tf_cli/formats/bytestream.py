"""Streams of bytes as stored, front to back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ByteStream", "Readable", "read_into"]


class Readable(Protocol):
    """A readable binary stream, such as that of a tar or TFRecord."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""


class ByteStream(Readable, Protocol):
    """An open input: raw bytes as stored, front to back."""

    def close(self) -> None:
        """Close the file or connection."""


def read_into(stream: Readable, buffer: bytearray | memoryview) -> int:
    """Read at most as much as a buffer holds; returns how much, and 0 only at the end."""
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)
