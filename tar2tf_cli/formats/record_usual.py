"""Reads a TFRecord with the kernel, which checks the records of the usual form; only the others come to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.record_shortened import ShorteningReader
from tar2tf_cli.formats.tfrecord import FRAMING

_MOST_PAUSE: Final = 256


class ReadableInto(Readable, Protocol):
    """A binary stream that reads into a buffer, too."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Read at most as much as the buffer holds; return how much, and 0 only at the end."""


class Usual(Protocol):
    """Knows which records are of the usual form."""

    def known(self) -> tuple[bytes, bytes]:
        """The names and kinds that the kernel's `examples` takes."""

    def add(self, counts: bytes) -> int:
        """Count records that the kernel checked, by their kinds; return how many there are."""


def reader_of_the_rest(stream: ReadableInto, name: str, usual: Usual) -> ShorteningReader:
    """Return a reader of the records that the kernel does not find in order; without a kernel, of all.

    Args:
        stream: the stream at its beginning.
        name: its name in errors.
        usual: knows which records are of the usual form.
    """
    native = kernel.native()
    if native and native.hardware:
        return _RestReader(_Window(stream), name, usual, native.examples)
    return ShorteningReader(stream, name)


class _Window:
    """The next bytes of a stream, in a buffer that is used again: new memory takes as long as reading.

    Attributes:
        data: the buffer.
        start: where the bytes that are next begin in it.
        end: where they end.
    """

    SIZE: Final = 1 << 18

    def __init__(self, stream: ReadableInto) -> None:
        self._stream = stream
        self.data = bytearray(self.SIZE)
        self._view = memoryview(self.data)
        self.start = self.end = 0
        self._error: SourceError | None = None

    def read(self, size: int, /) -> bytes:
        if self.start == self.end:
            self.start = self.end = 0
            if size >= self.SIZE and not self._error:
                return self._stream.read(size)
            if not self.more() and self._error:
                raise self._error
        data = bytes(self._view[self.start : min(self.start + size, self.end)])
        self.start += len(data)
        return data

    def more(self) -> bool:
        """Read more behind the bytes that are next, which move to the front; return whether there was room and more.

        An error is raised by `read` once the bytes before it were read.
        """
        rest, read = self.end - self.start, 0
        self._view[:rest] = self._view[self.start : self.end]
        self.start, self.end = 0, rest
        try:
            read = self._stream.readinto(self._view[rest:]) if rest < self.SIZE and not self._error else 0
        except SourceError as error:
            self._error = error
        self.end += read
        return read > 0


class _RestReader(ShorteningReader):
    """Reads the records that are left after the kernel; the others are counted, but not returned.

    While records are of other forms, the kernel is tried again, but less and less often.
    """

    CHUNK = 1 << 16

    def __init__(self, window: _Window, name: str, usual: Usual, examples: Callable[..., Any]) -> None:
        super().__init__(window, name)
        self._window = window
        self._usual = usual
        self._examples = examples

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        pause = left = 1
        for record in super().__iter__():
            yield record
            left -= 1
            if not left:
                left = pause = 1 if self._skip() else min(2 * pause, _MOST_PAUSE)

    def _skip(self) -> bool:
        """Skip the usual records that follow; return whether there were any."""
        window, unread = self._window, len(self._buffer) - self._position
        if unread > window.start:  # it was read before what is in the window now
            return False
        window.start -= unread
        self._buffer, self._position, begin = b"", 0, self.offset
        while True:
            start = window.start
            window.start, counts = self._examples(window.data, start, window.end, *self._usual.known())
            self.offset += window.start - start
            self.count += self._usual.add(counts)
            if self._is_whole() or not window.more():
                return self.offset > begin

    def _is_whole(self) -> bool:
        """Whether the window has all of the next record, or will never have it."""
        window = self._window
        size = window.end - window.start
        length = int.from_bytes(window.data[window.start : window.start + 8], "little")
        return size >= 12 and (size >= length + FRAMING or length > window.SIZE - FRAMING)
