"""TFRecord framing: serialised examples in, framed records out, and back again."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.checksums import MASK, crc32c, extend, masked

if TYPE_CHECKING:
    from tar2tf_cli.formats.stored import StoredBytes


def find_length(data: bytes, start: int = 0) -> int | None:
    """Return the first position from `start` of a length below 2 GiB that is followed by its CRC; None without any.

    A CRC is linear: that of a length is the CRC of zeros XOR what each of its four lower bytes adds to it. So the CRCs
    of all places whose four upper bytes are zero are computed at once, except amid zeros, as the CRC of zeros is not 0.
    """
    count = len(data) - start - 11
    if count <= 0:
        return None
    import numpy as np

    found = np.frombuffer(data, np.uint8, offset=start)
    zero = found == 0
    four = zero[:-3] & zero[1:-2] & zero[2:-1] & zero[3:]
    places = np.flatnonzero(four[4:-4] & ~(four[:count] & four[8:]))
    base, tables = _tables()
    crcs = np.full(len(places), base, np.uint32)
    stored = np.zeros(len(places), np.uint32)
    for byte in range(4):
        crcs ^= tables[byte][found[places + byte]]
        stored |= found[places + 8 + byte].astype(np.uint32) << np.uint32(8 * byte)
    crcs = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(masked(0))
    valid = places[(crcs == stored) & (found[places + 3] < 0x80)]
    return start + int(valid[0]) if len(valid) else None


@cache
def _tables() -> tuple[Any, list[Any]]:
    """The CRC of eight zeros, and by how much each value of each of the four lower bytes changes it."""
    import numpy as np

    base = crc32c(bytes(8))
    lengths = [[(value << 8 * byte).to_bytes(8, "little") for value in range(256)] for byte in range(4)]
    return np.uint32(base), [np.array([base ^ crc32c(data) for data in column], np.uint32) for column in lengths]


FRAMING: Final = 16
"""Bytes that framing adds to each record."""

MAX_RECORD: Final = 2**31 - 1
"""Longest record: protobuf parses no message beyond 2 GiB."""

_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_JOIN_BELOW: Final = 16 * 1024
_SMALL: Final = 1024
_LARGE: Final = 32 * 1024
_CACHE_SIZE: Final = 8192
_headers: Final[dict[int, bytes]] = {}
_lengths: Final[dict[bytes, int]] = {}  # of headers that were read and are valid


def stored_crc(data: bytes) -> bytes:
    """Return the CRC of a record's stored length or data as it is stored."""
    crc = extend(0, data)
    return _CRC.pack(((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)


def begins_record(head: bytes) -> bool:
    """Whether bytes begin with a length and its CRC, as a record does."""
    return head[8:12] == stored_crc(head[:8])


def frame(parts: Sequence[bytes | StoredBytes], size: int) -> Iterable[bytes]:
    """Frame one record, given as `parts` of `size` bytes in total; large parts are not copied.

    Returns:
        The record in parts: a list, or a generator that reads stored parts piece by piece.
    """
    header = _headers.get(size) or header_of(size)
    crc = 0
    try:
        if size < _JOIN_BELOW:
            data = b"".join(parts)  # type: ignore[arg-type]
            return [header, data, stored_crc(data)]
        joined = _joined(parts)
        for part in joined:
            crc = extend(crc, part)
    except TypeError:  # one of them is stored
        return _framed(header, parts)
    return [header, *joined, _CRC.pack(masked(crc))]


def _joined(parts: Sequence[bytes | StoredBytes]) -> list[bytes]:
    """The same bytes in fewer parts: neighbours that are small are one, as each part costs calls."""
    joined: list[Any] = []
    small: list[Any] = []
    for part in parts:
        if len(part) < _SMALL:
            small.append(part)
        else:
            joined += (b"".join(small), part)
            small.clear()
    return [*joined, b"".join(small)]


def _framed(header: bytes, parts: Sequence[bytes | StoredBytes]) -> Iterator[bytes]:
    yield header
    crc = 0
    for part in parts:
        for piece in (part,) if isinstance(part, bytes) else part.pieces():
            crc = extend(crc, piece)
            yield piece
    yield _CRC.pack(masked(crc))


def header_of(size: int) -> bytes:
    """Return the first 12 bytes of a record with data of this size."""
    if len(_headers) >= _CACHE_SIZE:
        _headers.clear()
    length = size.to_bytes(8, "little")
    header = length + stored_crc(length)
    _headers[size] = header
    return header


def record_length(header: bytes) -> int:
    """Return the length of a record's data by the record's first 12 bytes.

    Raises:
        DamagedShardError: when it does not match its CRC, or no record can be that long; does not say where.
    """
    known = _lengths.get(header)
    if known is not None:
        return known
    length = int.from_bytes(header[:8], "little")
    if stored_crc(header[:8]) != header[8:]:
        raise DamagedShardError("the CRC of the record's length does not match", kind="length_crc")
    if length > MAX_RECORD:
        message = f"the record claims {length:,} bytes; an example has at most 2 GiB"
        raise DamagedShardError(message, kind="too_large")
    if len(_lengths) >= _CACHE_SIZE:
        _lengths.clear()
    _lengths[header] = length
    return length


def unframed(framed: bytes) -> bytes:
    """Return the data of one framed record, whose CRCs are checked.

    Raises:
        DamagedShardError: when it is damaged, or is not exactly one record; does not say where.
    """
    length = _lengths.get(framed[:12])
    if length is None:
        length = record_length(framed[:12])
    if length + FRAMING != len(framed):
        message = f"the record is {length + FRAMING:,} bytes long, but should be {len(framed):,}"
        raise DamagedShardError(message, kind="truncated")
    data = framed[12:-4]
    crc = extend(0, data)
    if ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF != int.from_bytes(framed[-4:], "little"):
        raise DamagedShardError("the CRC of the record's data does not match", kind="data_crc")
    return data


class RecordReader:
    """Iterates over the records of an uncompressed TFRecord stream as `(offset, data)`.

    Args:
        stream: a binary stream; `read` may return less than requested, and b"" at the end.
        name: name of the stream in errors.
        check_data: whether to check the CRC of the data; that of the length is always checked, before memory
            is allocated for the record.

    Attributes:
        offset: bytes consumed so far, always at a record boundary.
        count: records read so far.
        header: the first bytes, up to 12, of the record that the last error is about.

    Raises:
        DamagedShardError: at the record whose length, length CRC or data CRC is wrong, or that is cut short.
            Its `kind` attribute is one of "length_crc", "data_crc", "truncated", "too_large".
            `resume` continues after it.
    """

    CHUNK = 1 << 18  # larger blocks would be returned to the system and faulted in again each time

    def __init__(self, stream: Readable, name: str, *, check_data: bool = True) -> None:
        self._stream = stream
        self._name = name
        self._check_data = check_data
        self._buffer = b""
        self._position = 0
        self._damaged: bytes | None = None  # what was read of the record of the last error; None if there was none
        self.header = b""
        self.offset = 0
        self.count = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        known, crc_of, number = _lengths, extend, int.from_bytes
        check_data = self._check_data
        while True:
            buffer, position = self._buffer, self._position
            length = known.get(buffer[position : position + 12])
            if length is None:
                if len(buffer) - position < 12:
                    if not self._fill(12):
                        break
                    continue
                length = self._check_header(buffer[position : position + 12])
            end = position + 12 + length
            if len(buffer) >= end + 4:
                self._position = end + 4
                data, stored = buffer[position + 12 : end], buffer[end : end + 4]
            elif length < _LARGE or len(buffer) > end:
                self._fill(length + FRAMING)
                continue
            else:
                data, stored = self._read_large(length)
            if check_data:
                crc = crc_of(0, data)
                if ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF != number(stored, "little"):
                    self._damaged = b"".join((buffer[position : position + 12], data, stored))
                    raise self._damage("data_crc", "the CRC of the record's data does not match")
            yield self.offset, data
            self.offset += length + FRAMING
            self.count += 1

    def size_of(self, data: bytes) -> int:
        """The length in the file of a record's data."""
        return len(data)

    def undamaged(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the records that can be read, and skip damage."""
        more = True
        while more:
            try:
                yield from self
                more = False
            except DamagedShardError:
                more = self.resume()

    def resume(self) -> bool:
        """After an error, go to the next record; return whether there may be one.

        That is the one right after damaged data, unless no record begins there; otherwise the first place after it with
        a length whose CRC is valid. `offset` is then there, or at the end, and `count` is one more.

        Raises:
            SourceError: when the stream cannot be read.
        """
        damaged, self._damaged = self._damaged, None
        if damaged is None:  # the stream itself is damaged
            return False

        self.count += 1
        start = 1
        if damaged:
            rest = self._peek()
            inside = None if not rest or find_length(rest[:12]) == 0 else find_length(damaged + rest[:11], 1)
            if inside is None:
                self.offset += len(damaged)
                return True
            self._buffer, self._position, start = damaged + rest, 0, inside
        return self._scan(start)

    def _peek(self) -> bytes:
        """Return the buffer, with at least 12 bytes unless the stream ends before."""
        data = self._buffer[self._position :]
        while len(data) < 12 and (more := self._stream.read(self.CHUNK)):
            data += more
        self._buffer, self._position = data, 0
        return data

    def _scan(self, start: int) -> bool:
        """Go to the next valid length; return whether there is one."""

        data = self._buffer[self._position :]
        while (found := find_length(data, start)) is None:
            more = self._stream.read(self.CHUNK)
            start = max(len(data) - 11, 0) if more else len(data)
            self.offset += start
            data, start = data[start:] + more, 0
            if not more:
                break
        self.offset += found or 0
        self._buffer, self._position = data[found or 0 :], 0
        return found is not None

    def _length(self, header: bytes) -> int:
        """Return the length in a header, which is checked if it was not seen before."""
        return _lengths.get(header) or self._check_header(header)

    def _check_header(self, header: bytes) -> int:
        """Check the length in a header not seen before, and return it."""
        try:
            return record_length(header)
        except DamagedShardError as error:
            raise self._damage(error.kind, error.message) from None

    def _fill(self, size: int) -> bool:
        """Fill the buffer to `size` bytes; return False at a clean end of the stream."""
        chunks = [self._buffer[self._position :]]
        have = len(chunks[0])
        while have < size:
            chunk = self._stream.read(max(self.CHUNK, size - have))
            if not chunk:
                break
            chunks.append(chunk)
            have += len(chunk)
        self._buffer, self._position = b"".join(chunks), 0
        if 0 < have < size:
            raise self._cut(size - have)
        return have > 0

    def _read_large(self, length: int) -> tuple[bytes, bytes]:
        """Read data and CRC of a record that begins in the buffer, together with only the next header.

        Saving one copy makes this a third faster.
        """
        data = self._exactly(length, self._buffer[self._position + 12 :])
        tail = self._exactly(FRAMING) if len(data) == length else b""
        if len(tail) < 4:
            self._buffer = b"".join((self._buffer[self._position : self._position + 12], data, tail))
            self._position = 0
            raise self._cut(length + 4 - len(data) - len(tail))
        self._buffer, self._position = tail[4:], 0
        return data, tail[:4]

    def _exactly(self, size: int, head: bytes = b"") -> bytes:
        """Read `size` bytes that begin with `head`; fewer at the end of the stream."""
        chunks = [head] if head else []
        have = len(head)
        while have < size and (chunk := self._stream.read(min(size - have, 16 * self.CHUNK))):
            chunks.append(chunk)
            have += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _cut(self, missing: int) -> DamagedShardError:
        return self._damage("truncated", f"the file ends {missing:,} bytes short of a record's end")

    def _damage(self, kind: str, message: str) -> DamagedShardError:
        self._damaged = self._damaged or b""
        self.header = (self._damaged or self._buffer[self._position : self._position + 12])[:12]
        where = {"shard": self._name, "member": f"record {self.count}", "offset": self.offset}
        return DamagedShardError(message, kind=kind, **where)


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
