"""Streams of bytes as stored, front to back."""

from __future__ import annotations

from typing import Protocol

from tar2tf_cli.errors import DamagedShardError


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
    if into := getattr(stream, "readinto", None):
        return int(into(buffer))
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)


class Peeked:
    """A stream whose first bytes have been looked at, and can still be read.

    Args:
        stream: the stream at its beginning.
        size: how many bytes to look at.

    Attributes:
        head: these bytes, fewer if the stream ends before; empty once they have been read again.
        damage: why the stream could not be read further.
    """

    def __init__(self, stream: ByteStream, size: int) -> None:
        self._stream = stream
        self.damage: DamagedShardError | None = None
        pieces: list[bytes] = []
        try:
            while size > 0 and (data := stream.read(min(size, 1 << 20))):
                pieces.append(data)
                size -= len(data)
        except DamagedShardError as error:
            self.damage = error
        self.head = b"".join(pieces)
        self._position = 0
        self.close = stream.close

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end.

        Raises:
            DamagedShardError: when the bytes before the damage have been read.
        """
        if self._position < len(self.head):
            data = self.head[self._position : self._position + size]
            self._position += len(data)
            return data
        self.head, self._position = b"", 0
        if self.damage:
            raise self.damage
        return self._stream.read(size)
