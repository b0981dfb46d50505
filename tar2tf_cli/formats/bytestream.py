"""Bytes as they are stored, front to back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ByteStream", "Readable"]


class Readable(Protocol):
    """What a tar or TFRecord is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end."""


class ByteStream(Readable, Protocol):
    """An open input: raw bytes as stored, front to back."""

    def close(self) -> None:
        """Let go of the file or connection."""
