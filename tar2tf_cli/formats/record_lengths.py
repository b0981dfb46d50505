"""Reads only the lengths of a TFRecord's records, and leaps over their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.tfrecord import FRAMING, RecordReader

__all__ = ["LengthReader"]


class LengthReader(RecordReader):
    """Iterates over the records as `(offset, b"")`: every length and its CRC is checked, no data is.

    Args:
        stream: a binary stream at its beginning.
        name: name of the stream in errors.
        seek: goes to an offset of the stream; None if data can only be read through.
        size: size of the stream in bytes; needed with `seek`.
    """

    CHUNK = 1 << 16

    def __init__(
        self, stream: Readable, name: str, *, seek: Callable[[int], None] | None = None, size: int | None = None
    ) -> None:
        super().__init__(stream, name, check_data=False)
        self._seek = seek if size is not None else None
        self._size = size or 0
        self._beyond = 0  # how much of a record was leapt over before the end of the stream

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while len(self._buffer) - self._position >= 12 or self._fill(12):
            header = self._buffer[self._position : self._position + 12]
            length = self._length(header)
            self._leap(header, length + FRAMING)
            yield self.offset, b""
            self.offset += length + FRAMING
            self.count += 1

    def _leap(self, header: bytes, size: int) -> None:
        """Skip the record that begins in the buffer."""
        left = self._position + size - len(self._buffer)
        if left <= 0:
            self._position += size
            return
        self._buffer, self._position = b"", 0
        end = self.offset + size
        if self._seek and left > self.CHUNK:
            left = max(end - self._size, 0)
            self._seek(min(end, self._size))
        else:
            while left and (data := self._stream.read(min(left, self.CHUNK))):
                left -= len(data)
        if left:
            error = self._cut(left)
            self.header, self._beyond = header, size - left
            raise error

    def _scan(self, start: int) -> bool:
        """Go to the next valid length; after the last data there is none."""
        self.offset += self._beyond
        return super()._scan(start)
