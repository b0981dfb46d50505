"""A position in a stream of bytes, and what was read ahead of it: all that readers of tars and TFRecords stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from io import BytesIO
from typing import Final, Protocol, TypeAlias, TypeVar

from tar2tf_cli.errors import DamagedShardError, Tar2tfError


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


_AT_ONCE: Final = 1 << 20


def read_to_end(stream: ByteStream) -> bytes:
    """Read a stream of few bytes to its end, and close it."""
    with closing(stream):
        return b"".join(iter(partial(stream.read, _AT_ONCE), b""))


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


_COPIED: Final = 1 << 20, 6 << 20  # sizes at which `take` gets its memory at once


T = TypeVar("T")

OnDamage: TypeAlias = Callable[[DamagedShardError, bool], object]
"""Called with damage, and whether what is behind it is read; it may raise the damage instead."""


def past_damage(
    read: Callable[[], Iterable[T]], resume: Callable[[DamagedShardError], bool], damaged: OnDamage
) -> Iterator[T]:
    """The samples or records of a shard that can be read, also those behind damage.

    Args:
        read: reads from where the reader is.
        resume: goes on behind damage, and notes in the error what was lost; returns whether there is more to read.
        damaged: gets each damage.
    """
    more = True
    while more:
        more = False
        try:
            yield from read()
        except DamagedShardError as error:
            more = resume(error)
            damaged(error, more)


class Cursor:
    """A position in a stream, which moves forward.

    A loop over small records or members looks at `buffer` from `position` on, and moves `position` itself, as a method
    call would cost more than what it does. Everything else goes through the methods.

    Args:
        stream: the bytes; may return less than requested, and b"" only at the end.
        chunk: how many bytes are read at once; None for `CHUNK`.
        seeks: whether a long way forward is a seek; the stream must have `seek` then.
        size: size of the stream in bytes, if it is known.

    Attributes:
        buffer: what was read of the stream and may still be needed.
        position: where in it the next bytes begin.
        start: offset in the stream of the buffer's first byte.
        chunk: how many bytes are read at once.
        on_leap: called with the number of bytes that a seek left out.
    """

    CHUNK = 1 << 18  # stays in the CPU cache until used; more would be returned to the system and faulted in each time

    def __init__(
        self, stream: Readable, chunk: int | None = None, *, seeks: bool = False, size: int | None = None
    ) -> None:
        self._stream = stream
        self._seeks = seeks
        self._size = size
        self._error: Tar2tfError | None = None
        self.buffer = b""
        self.position = 0
        self.start = 0
        self.chunk = chunk or self.CHUNK
        self.on_leap: Callable[[int], None] | None = None

    @property
    def offset(self) -> int:
        """Offset in the stream of the next byte."""
        return self.start + self.position

    def fill(self, size: int) -> int:
        """Have that many bytes buffered; return how many there are, which is less only at the end."""
        chunks = [self.buffer[self.position :]]
        have = len(chunks[0])
        try:
            while have < size and (chunk := self._read(size - have)):
                chunks.append(chunk)
                have += len(chunk)
        finally:  # what precedes an error is kept
            self._hold(chunks)
        return have

    def read_into(self, window: memoryview) -> int:
        """Read what follows the buffer, which must be used up, into other memory; return how much, and 0 at the end.

        An error is raised once the bytes before it were used.
        """
        size = 0
        try:
            self._raise_error()
            size = read_into(self._stream, window)
        except Tar2tfError as error:
            self._error = error
        self.start += size
        return size

    def read_ahead(self) -> bool:
        """Buffer another chunk; return False at the end. An error is raised once the bytes before it were used."""
        chunks, missing = [self.buffer[self.position :]], self.chunk
        try:
            while missing > 0 and (chunk := self._read(missing)):
                chunks.append(chunk)
                missing -= len(chunk)
        except Tar2tfError as error:
            self._error = error
        self._hold(chunks)
        return len(chunks) > 1

    def take(self, size: int) -> bytes:
        """Return the next bytes, which are fewer only at the end."""
        end = self.position + size
        if end <= len(self.buffer):
            data, self.position = self.buffer[self.position : end], end
            return data
        if not _COPIED[0] <= size < _COPIED[1]:
            return b"".join(self.pieces(size))
        whole = BytesIO()  # which needs no memory for a copy
        whole.seek(size - 1)
        whole.write(b"\0")  # gets all memory at once
        whole.seek(0)
        whole.writelines(self.pieces(size))
        whole.truncate()
        return whole.getvalue()

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next bytes, in pieces as they come; fewer only at the end."""
        while size and (self.position < len(self.buffer) or self._next(size)):
            piece = self.buffer[self.position : self.position + size]
            self.position += len(piece)
            size -= len(piece)
            yield piece

    def skip(self, size: int) -> int:
        """Move forward; return how many bytes are missing at the end."""
        end = self.offset + size
        ahead = end - self.start - len(self.buffer)
        if ahead <= 0:
            self.position += size
            return 0
        if self._seeks and ahead > self.chunk:
            return self._leap(end)
        while ahead > 0 and self._next(ahead):
            ahead -= len(self.buffer)
        self.position = len(self.buffer) + min(ahead, 0)
        return max(ahead, 0)

    def seek(self, offset: int) -> None:
        """Go to an offset, in a stream that can seek."""
        self._stream.seek(offset)  # type: ignore[attr-defined]
        self._error = None
        self.start, self.buffer, self.position = offset, b"", 0

    def put_back(self, data: bytes) -> None:
        """Move back by bytes that were taken."""
        self.start = self.offset - len(data)
        self.buffer, self.position = data + self.buffer[self.position :], 0

    def _leap(self, end: int) -> int:
        behind = self.start + len(self.buffer)
        last = min(end, self._size or end) - 1  # one byte early, so that a cut there shows
        is_there = False
        with suppress(OSError, OverflowError):  # no file is that long
            self.seek(last)
            is_there = self.fill(1) > 0
        if is_there:
            self.position = 1
            if self.on_leap:
                self.on_leap(last - behind)
        else:
            self.seek(behind)
            while self._next(self.CHUNK):
                pass
        return end - self.offset

    def _next(self, size: int) -> bool:
        """Read what comes behind the buffer instead of it; return False at the end."""
        self.start += len(self.buffer)
        self.buffer, self.position = b"", 0
        self.buffer = self._read(size)
        return bool(self.buffer)

    def _read(self, wanted: int) -> bytes:
        self._raise_error()
        return self._stream.read(min(max(self.chunk, wanted), 4 * self.CHUNK))

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error:
            raise error

    def _hold(self, chunks: list[bytes]) -> None:
        self.start += self.position
        self.buffer = b"".join(chunks if chunks[0] else chunks[1:])
        self.position = 0
