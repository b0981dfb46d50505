"""The blocks of a tar: what is buffered of a stream, members' data taken from it or skipped."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final

from tar2tf_cli.errors import AGAIN, DamagedShardError, Tar2tfError
from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.stored import LARGE, PIECE, LargeEntries, StoredBytes
from tar2tf_cli.formats.tar_header import BLOCK
from tar2tf_cli.formats.tfrecord import MAX_RECORD

__all__ = ["Blocks"]

_SMALL: Final = 1 << 16


class Blocks:
    """Buffers the blocks of a tar, which its reader takes or skips.

    Args:
        stream: where bytes come from.
        name: what to call the shard in errors.
        seeks: whether much is skipped, so that a stream with `seek` is read in small pieces.
        large: stores large members; None to hold all of them in memory.
    """

    CHUNK: Final = 1 << 18  # stays in the CPU cache until it is used

    def __init__(self, stream: Readable, name: str, *, seeks: bool, large: LargeEntries | None = None) -> None:
        self._stream = stream
        self._name = name
        self._large = large
        in_place = large is not None and large.in_place
        self._seek = getattr(stream, "seek", None) if seeks or in_place else None
        self._chunk = self._most = 4096 if seeks and self._seek else self.CHUNK
        if large and large.least < self._most:
            self._chunk = self._most = max(large.least, BLOCK)  # so that no member of that size is buffered whole
        self._buffer = b""
        self._position = 0
        self._base = 0  # offset in the tar of the buffer's first byte

    @property
    def offset(self) -> int:
        """Bytes of the tar consumed so far."""
        return self._base + self._position

    def start_at(self, offset: int, end: int | None = None) -> None:
        """Go to the header at an offset, in a stream that can seek; what follows `end` is hardly read ahead."""
        self._stream.seek(offset)  # type: ignore[attr-defined]
        self._base, self._buffer, self._position = offset, b"", 0
        if end is not None:
            self._chunk = min(end - offset, self._most)

    @property
    def buffered(self) -> tuple[bytes, int]:
        """What is read of the tar, and the position in it of the next header."""
        return self._buffer, self._position

    def go_on(self, position: int) -> None:
        """Go to another header of what is buffered."""
        self._position = position

    def read_ahead(self) -> bool:
        """Buffer another chunk; False at the end. Errors are raised once the bytes behind them are needed."""
        chunks = [self._buffer[self._position :]]
        missing = self._chunk
        try:
            while missing > 0 and (chunk := self._stream.read(missing)):
                chunks.append(chunk)
                missing -= len(chunk)
        except Tar2tfError as error:
            self._stream = _Failing(self._stream, error)
        self._base += self._position
        self._buffer, self._position = b"".join(chunks), 0
        return len(chunks) > 1

    def _read_more(self, size: int) -> int:
        """Try to have `size` bytes buffered from the position on; returns how many there are."""
        chunks = [self._buffer[self._position :]]
        have = len(chunks[0])
        while have < size:
            chunk = self._stream.read(min(max(self._chunk, size - have), 4 * self.CHUNK))
            if not chunk:
                break
            chunks.append(chunk)
            have += len(chunk)
        self._base += self._position
        self._buffer, self._position = b"".join(chunks), 0
        return have

    def _data(self, size: int, name: str, offset: int) -> bytes | StoredBytes:
        """The data of a member that is not all buffered; stored in a file if it is large, or the sample is."""
        if size > MAX_RECORD:
            raise self._damage(
                f"is {size:,} bytes long; a tf.train.Example holds at most 2 GiB", "too_large", offset, member=name
            )
        if self._large:
            full = self._large.is_full(self.offset + size)
            self._chunk = _SMALL if full else self._most
            if size >= self._large.least or (full and size >= _SMALL):
                return self._stored(self._large, size, name, offset)
        return self._take(size, name, offset)

    def _stored(self, large: LargeEntries, size: int, name: str, offset: int) -> StoredBytes:
        if not large.in_place:
            return large.copied(self._pieces(size, name, offset), size, name)
        value = large.at(self.offset, size, name)
        self._skip(size + (-size & 511), name)
        return value

    def _take(self, size: int, name: str, offset: int) -> bytes:
        """That many bytes; what follows them in the last chunk stays buffered."""
        if not PIECE <= size < LARGE:
            return b"".join(self._pieces(size, name, offset))
        data = BytesIO()  # which needs no memory for a copy
        data.seek(size - 1)
        data.write(b"\0")  # gets all memory at once
        data.seek(0)
        data.writelines(self._pieces(size, name, offset))
        return data.getvalue()

    def _pieces(self, size: int, name: str, offset: int) -> Iterator[bytes]:
        left = size + (-size & 511)
        chunk = self._buffer[self._position : self._position + left]
        self._position += len(chunk)
        while True:
            yield chunk[:size]
            size -= min(size, len(chunk))
            left -= len(chunk)
            if not left:
                return
            data = self._stream.read(min(max(self._chunk, left), 4 * self.CHUNK))
            if not data:
                raise self._cut(name, offset)
            self._base += len(self._buffer)
            chunk = data[:left]
            self._buffer, self._position = data, len(chunk)

    def _skip(self, padded: int, name: str) -> None:
        """Skip a member's data; seeks where the stream can."""
        offset = self.offset
        end = offset + padded
        if self._seek and end - self._base - len(self._buffer) > self._chunk:
            try:
                self._seek(end - 1)  # one byte early, so that a cut at the member's end shows
            except (OSError, OverflowError):  # no file is that long
                raise self._cut(name, offset - BLOCK) from None
            if self._large and self._large.on_bytes:
                self._large.on_bytes(end - 1 - self._base - len(self._buffer))
            self._base, self._buffer, self._position = end - 1, b"", 0
        while end > self._base + len(self._buffer):
            self._position = len(self._buffer)
            if not self._read_more(1):
                raise self._cut(name, offset - BLOCK)
        self._position = end - self._base

    def _cut(self, name: str, offset: int) -> DamagedShardError:
        return self._damage("the shard ends inside this member: it is cut short", "truncated", offset, member=name)

    def _damage(
        self, message: str, kind: str, offset: int, *, member: str | None = None, hint: str | None = AGAIN
    ) -> DamagedShardError:
        return DamagedShardError(message, kind=kind, shard=self._name, member=member, offset=offset, hint=hint)


class _Failing:
    """A stream that has failed already: its next read raises the error."""

    def __init__(self, stream: Readable, error: Tar2tfError) -> None:
        self._stream = stream
        self._error: Tar2tfError | None = error

    def read(self, size: int, /) -> bytes:
        error, self._error = self._error, None
        if error:
            raise error
        return self._stream.read(size)
