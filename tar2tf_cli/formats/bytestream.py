"""Bytes as they are stored, front to back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ByteStream"]


class ByteStream(Protocol):
    """An open input: raw bytes as stored, front to back."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end."""

    def close(self) -> None:
        """Let go of the file or connection."""
