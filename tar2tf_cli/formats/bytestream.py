"""Streams of bytes as stored, front to back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ByteStream", "Readable"]


class Readable(Protocol):
    """A readable binary stream, such as that of a tar or TFRecord."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""


class ByteStream(Readable, Protocol):
    """An open input: raw bytes as stored, front to back."""

    def close(self) -> None:
        """Close the file or connection."""
