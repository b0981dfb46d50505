"""TFRecords: records read whole, by length only, or only the heads of large ones, resuming after damage; and indexes.

If `accept` is given, the kernel checks the records of the usual form, and only the others reach Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.source import RangeStream
from tar2tf_cli.errors import DamagedShardError, Lost
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import MASK, crc32c, extend, masked
from tar2tf_cli.formats.example import FRAMING, known_lengths, read_varint, record_length, varint
from tar2tf_cli.formats.streams import Cursor, OnDamage, iter_resuming
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGE_RECORD: Final = 32 << 10
"""Records of this size or more are not buffered together with others."""

HEADS_FROM: Final = 32 << 20
"""Records of this size or more are shortened where their heads are enough."""

HEAD: Final = 1 << 20
"""How much of each value is kept then."""

_CHUNK_OF_LENGTHS: Final = 1 << 16
_MOST_PAUSE: Final = 256

Want: TypeAlias = Literal["records", "heads", "lengths"]


class Accept(Protocol):
    """Kernel function that processes records, so that they need not become Python objects."""

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Process framed records until one is not simple enough; return the end and the number of those processed.

        Args:
            native: the kernel.
            data: bytes in which a record begins at `start`; they change after the call.
            start: position of the first record.
            end: position at which the bytes end, perhaps in the middle of a record.
        """


class RecordReader:
    """Iterates over the records of an uncompressed TFRecord stream as `(offset, data)`.

    Args:
        stream: the stream at its beginning.
        name: name of the stream in errors.
        want: the content of `data`: complete `records`; `heads`, which are records, too, but a `ShortenedExample` for
            32 MiB or more; or `lengths`, which yields b"", since only lengths and their CRCs are read.
        check_data: whether to check the CRC of the data; the CRC of the length is always checked, before memory is
            allocated for the record.
        accept: decides which records the kernel processes; they are counted, but not returned.
        keep: receives the bytes of these records, including framing.
        seeks: whether to seek from length to length.
        size: size of the stream in bytes, if it is known.

    Attributes:
        offset: bytes consumed so far, always at a record boundary.
        count: records read so far.
        header: the first bytes, at most 12, of the record of the last error.

    Raises:
        DamagedShardError: at the record whose length, length CRC or data CRC is wrong, or that is cut short.
            Its `kind` attribute is one of "length_crc", "data_crc", "truncated", "too_large".
            `resume` continues after it.
    """

    def __init__(
        self,
        stream: Readable,
        name: str,
        *,
        want: Want = "records",
        check_data: bool = True,
        accept: Accept | None = None,
        keep: Callable[[bytes], None] | None = None,
        seeks: bool = False,
        size: int | None = None,
    ) -> None:
        self._cursor = Cursor(stream, _CHUNK_OF_LENGTHS if want == "lengths" else None, seeks=seeks, size=size)
        self._name = name
        self._want = want
        self._check_data = check_data
        self._accept = accept
        self._keep = keep
        self._search_from: int | None = None  # after an error: distance from the cursor to the next possible record
        self._end: int | None = None  # after damage to data: distance from the cursor to the end of the record
        self.header = b""
        self.offset = 0
        self.count = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._want == "lengths":
            return self._lengths()
        native = kernel.native() if self._accept else None
        if self._accept and native and native.hardware:  # without hardware CRCs, Python's library is faster
            return self._rejected_by_kernel(self._accept, native)
        return self._records()

    def size_of(self, data: bytes) -> int:
        """Return the length in the file of a record's data, which may be shortened."""
        return data.length if isinstance(data, ShortenedExample) else len(data)

    def _records(self) -> Iterator[tuple[int, bytes]]:
        cursor, known, crc_of, number = self._cursor, known_lengths, extend, int.from_bytes
        check_data = self._check_data
        while True:
            buffer, position = cursor.buffer, cursor.position
            header = buffer[position : position + 12]
            length = known.get(header)
            if length is None:
                if len(header) < 12:
                    if not self._fill(12):
                        break
                    continue
                length = self._checked_length(header)
            end = position + 12 + length
            if len(buffer) >= end + 4:
                data = buffer[position + 12 : end]
                if check_data:
                    crc = crc_of(0, data)
                    if ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF != number(buffer[end : end + 4], "little"):
                        raise self._wrong(length + FRAMING, header)
                cursor.position = end + 4
            elif length < LARGE_RECORD:
                self._fill(length + FRAMING)
                continue
            else:
                data = self._large(header, length)
            yield self.offset, data
            self.offset += length + FRAMING
            self.count += 1

    def _large(self, header: bytes, length: int) -> bytes:
        """Return the data of a record that is not fully buffered."""
        cursor = self._cursor
        cursor.position += 12
        if self._want == "heads" and length >= HEADS_FROM:
            return self._head(header, length)
        data, stored = cursor.take(length), cursor.take(4)
        missing = length + 4 - len(data) - len(stored)
        if missing or (self._check_data and masked(extend(0, data)) != int.from_bytes(stored, "little")):
            cursor.put_back(b"".join((header, data, stored)))
            raise self._cut(missing, header) if missing else self._wrong(length + FRAMING, header)
        return data

    def _head(self, header: bytes, length: int) -> bytes:
        """Return the data of a large record with its values cut; discard it if its CRC turns out to be wrong."""
        record = _RecordData(self._cursor, length)
        data = record.shortened()
        stored = self._cursor.take(4)
        missing = record.left + 4 - len(stored)
        if missing:
            raise self._cut(missing, header, search_from=0)
        if self._check_data and masked(record.crc) != int.from_bytes(stored, "little"):
            raise self._wrong(0, header)
        return data

    def _lengths(self) -> Iterator[tuple[int, bytes]]:
        cursor, known = self._cursor, known_lengths
        while len(cursor.buffer) - cursor.position >= 12 or self._fill(12):
            header = cursor.buffer[cursor.position : cursor.position + 12]
            size = (known.get(header) or self._checked_length(header)) + FRAMING
            end = cursor.position + size
            if end <= len(cursor.buffer):
                cursor.position = end
            elif missing := cursor.skip(size):
                raise self._cut(missing, header, search_from=0)
            yield self.offset, b""
            self.offset += size
            self.count += 1

    def blocks(self, accept: Accept) -> Iterator[bytes | tuple[int, bytes]]:
        """Yield the records in order: framed in blocks if the kernel accepts them, otherwise `(offset, data)`."""
        native = kernel.native()
        if native and native.hardware:  # without hardware CRCs, Python's library is faster
            return self._blocks(accept, native, kept=True)
        return self._records()

    def _rejected_by_kernel(self, accept: Accept, native: ModuleType) -> Iterator[tuple[int, bytes]]:
        """Yield the records that the kernel does not accept."""
        for item in self._blocks(accept, native, kept=self._keep is not None):
            if isinstance(item, tuple):
                yield item
            elif self._keep:
                self._keep(item)

    def _blocks(self, accept: Accept, native: ModuleType, *, kept: bool) -> Iterator[bytes | tuple[int, bytes]]:
        """Yield all records, but those that the kernel accepts only if `kept`.

        The more records the kernel rejects, the less often it is tried.
        """
        pause = left = 1
        window = bytearray(self._cursor.chunk)

        def run(data: bytes | bytearray, start: int, end: int) -> int:
            stop, count = accept.take(native, data, start, end)
            self.count += count
            self.offset += stop - start
            return stop

        for record in self._records():
            yield record
            left -= 1
            if not left:
                begin = self.offset
                for block in self._accepted(run, window):
                    if kept and len(block):
                        yield bytes(block)
                left = pause = 1 if self.offset > begin else min(2 * pause, _MOST_PAUSE)

    def _accepted(self, run: Callable[[bytes | bytearray, int, int], int], window: bytearray) -> Iterator[memoryview]:
        """Yield the records that the kernel accepts: from the buffer, then from memory that is reused.

        Allocating memory takes as long as reading, so reusing it halves the time of a check.
        """
        cursor = self._cursor
        begin = cursor.position
        cursor.position = run(cursor.buffer, begin, len(cursor.buffer))
        yield memoryview(cursor.buffer)[begin : cursor.position]
        if _is_whole(cursor.buffer, cursor.position, len(cursor.buffer), len(window)):
            return
        rest = cursor.buffer[cursor.position :]
        cursor.position, start, end = len(cursor.buffer), 0, len(rest)
        window[:end] = rest
        try:
            with memoryview(window) as view:
                while not _is_whole(window, start, end, len(window)):
                    view[: end - start] = view[start:end]
                    start, end = 0, end - start
                    if not (read := cursor.read_into(view[end:])):
                        break
                    end += read
                    start = run(window, 0, end)
                    yield view[:start]
        finally:
            cursor.put_back(bytes(window[start:end]))

    def index_lines(self) -> Iterator[bytes]:
        """Yield the lines of an index: offset of each record and its size, framing included."""
        for offset, _ in self:
            yield b"%d %d\n" % (offset, self._cursor.offset - offset)

    # --- Damage ---

    def undamaged(self, damaged: OnDamage = lambda error, more: None) -> Iterator[tuple[int, bytes]]:
        """Iterate over the readable records, resuming after damage."""
        return iter_resuming(self.__iter__, self.resume, damaged)

    def resume(self, error: DamagedShardError) -> bool:
        """After an error, go to the next record, and add the lost range to the error; return whether there may be one.

        The next record is the one right after damaged data; if no record begins there, the first one whose length has a
        valid CRC. `offset` is then its offset, or the end of the stream, and `count` is incremented.

        Raises:
            SourceError: when the stream cannot be read.
        """
        start, end, begin, more = self._search_from, self._end, self.offset, False
        self._search_from = self._end = None
        error.lost = Lost(begin, None, 0)
        if start is None:  # the stream itself is damaged
            return False
        self.count += 1
        try:
            if end is not None:
                start = self._search_start(end)
            more = start is None or self._search(start)
        finally:
            self.offset = self._cursor.offset
            breaks_off = not more and error.kind == "truncated"
            error.lost = Lost(begin, None if breaks_off else self.offset, self.offset - begin)
        return more

    def _search_start(self, end: int) -> int | None:
        """Return the offset in a damaged record to search from, or None after moving to the end of the record."""
        cursor = self._cursor
        cursor.fill(end + 12)
        behind = cursor.buffer[end : end + 12]
        inside = find_length(cursor.buffer[: end + 11], 1) if behind and find_length(behind) is None else None
        if inside is None:
            cursor.position = end
        return inside

    def _search(self, start: int) -> bool:
        """Search for the next valid length and go there; return whether there is one."""
        cursor = self._cursor
        cursor.position += start
        while (next_length := find_length(cursor.buffer, cursor.position)) is None:
            cursor.position = max(len(cursor.buffer) - 11, cursor.position)
            left = len(cursor.buffer) - cursor.position
            if cursor.fill(left + 1) == left:
                cursor.position = left
                return False
        cursor.position = next_length
        return True

    def _fill(self, size: int) -> bool:
        """Buffer at least `size` bytes; return False at a clean end of the stream."""
        cursor = self._cursor
        have = cursor.fill(size)
        if 0 < have < size:
            raise self._cut(size - have, cursor.buffer[:12])
        return have > 0

    def _checked_length(self, header: bytes) -> int:
        """Return the length in the header of a record after verifying the CRC of the length."""
        try:
            return record_length(header)
        except DamagedShardError as error:
            raise self._damage(error.kind, error.message, header) from None

    def _cut(self, missing: int, header: bytes, search_from: int = 1) -> DamagedShardError:
        message = f"the file ends {missing:,} bytes short of a record's end"
        return self._damage("truncated", message, header, search_from)

    def _wrong(self, end: int, header: bytes) -> DamagedShardError:
        self._end = end
        return self._damage("data_crc", "the CRC of the record's data does not match", header)

    def _damage(self, kind: str, message: str, header: bytes, search_from: int = 1) -> DamagedShardError:
        self.header, self._search_from = header, search_from
        member = f"record {self.count}"
        return DamagedShardError(message, kind=kind, shard=self._name, member=member, offset=self.offset)


def _is_whole(data: bytes | bytearray, start: int, end: int, most: int) -> bool:
    """Whether the next record ends before `end`, or is too large for a window of `most` bytes."""
    length = int.from_bytes(data[start : start + 8], "little")
    return end - start >= 12 and (end - start >= length + FRAMING or length + FRAMING > most)


# --- Search for lengths after damage ---


def find_length(data: bytes, start: int = 0) -> int | None:
    """Return the first position from `start` of a length below 2 GiB that its CRC follows; None without any.

    CRCs are linear: the CRC of a length is the CRC of zeros XOR a term for each of its four lower bytes. So the CRCs at
    all positions whose four upper bytes are zero are computed at once, except within runs of zeros, as the CRC of zeros
    is not 0.
    """
    count = len(data) - start - 11
    if count <= 0:
        return None
    import numpy as np

    window = np.frombuffer(data, np.uint8, offset=start)
    zero = window == 0
    four = zero[:-3] & zero[1:-2] & zero[2:-1] & zero[3:]
    places = np.flatnonzero(four[4:-4] & ~(four[:count] & four[8:]))
    base, tables = _tables()
    crcs = np.full(len(places), base, np.uint32)
    stored = np.zeros(len(places), np.uint32)
    for byte in range(4):
        crcs ^= tables[byte][window[places + byte]]
        stored |= window[places + 8 + byte].astype(np.uint32) << np.uint32(8 * byte)
    crcs = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(masked(0))
    valid = places[(crcs == stored) & (window[places + 3] < 0x80)]
    return start + int(valid[0]) if len(valid) else None


@cache
def _tables() -> tuple[np.uint32, list[NDArray[np.uint32]]]:
    """Return the CRC of eight zeros, and the changes of it by each value of each of the four lower bytes."""
    import numpy as np

    base = crc32c(bytes(8))
    lengths = [[(value << 8 * byte).to_bytes(8, "little") for value in range(256)] for byte in range(4)]
    return np.uint32(base), [np.array([base ^ crc32c(data) for data in column], np.uint32) for column in lengths]


# --- Heads of large records ---

_PATH_TO_BYTES: Final = (0x0A, 0x0A, 0x12, 0x0A)  # Example.features, an entry, its Feature, a BytesList
_VALUE: Final = 0x0A


class ShortenedExample(bytes):
    """A tf.train.Example whose large bytes values are cut to a mebibyte, so that checking it takes little memory.

    Attributes:
        length: length of the whole record in bytes.
        lengths: the lengths of the values that are cut, by their positions here.
        fault: the reason why the record is not a message; None if it may be one.
    """

    length: int
    lengths: dict[int, int]
    fault: str | None


class _RecordData:
    """The data of one record, read piece by piece.

    Attributes:
        left: number of bytes not yet read.
        crc: CRC-32C of the bytes read so far.
    """

    def __init__(self, cursor: Cursor, length: int) -> None:
        self._cursor = cursor
        self._length = length
        self._cuts: list[tuple[int, int]] = []
        self.left = length
        self.crc = 0

    def shortened(self) -> ShortenedExample:
        """Read the record to its end, or to the end of the stream, and return it with large values cut."""
        try:
            data, fault = ShortenedExample(self._message(self.left, 0, self._cuts)), None
        except ValueError as error:
            data, fault = ShortenedExample(b"\xff"), str(error)
        except EOFError:
            data, fault = ShortenedExample(), None
        self._skip(self.left)
        data.length, data.lengths, data.fault = self._length, dict(self._cuts), fault
        return data

    def _message(self, size: int, depth: int, cuts: list[tuple[int, int]]) -> bytes:
        """Read a message of `size` bytes; add the positions in it and the lengths of cut values to `cuts`.

        Raises:
            ValueError: when a field does not fit in it.
            EOFError: when the record is cut short.
        """
        parts: list[bytes] = []
        written, end = 0, self.left - size
        while self.left > end:
            tag, head = self._varint()
            body, inner = b"", list[tuple[int, int]]()
            if tag & 7 == 2:
                length, _ = self._varint()
                if length > self.left - end:
                    raise ValueError("a field runs past the end of its message")
                body = self._field(tag, length, depth, inner)
                head += varint(len(body))
            elif tag & 7 == 0:
                body = self._varint()[1]
            else:  # fixed-size numbers and groups, which are rare
                body = self._take(self.left - end)
            cuts += ((start + written + len(head), length) for start, length in inner)
            parts += (head, body)
            written += len(head) + len(body)
        return b"".join(parts)

    def _field(self, tag: int, length: int, depth: int, cuts: list[tuple[int, int]]) -> bytes:
        """Return the content of a length-delimited field."""
        if length <= HEAD or tag != (*_PATH_TO_BYTES, _VALUE, None)[depth]:
            return self._take(length)
        if depth < len(_PATH_TO_BYTES):
            return self._message(length, depth + 1, cuts)
        cuts.append((0, length))
        body = self._take(HEAD)
        self._skip(length - HEAD)
        return body

    def _varint(self) -> tuple[int, bytes]:
        """Return a varint's value, and its bytes."""
        cursor, most = self._cursor, min(self.left, 10)
        have = cursor.fill(most) if len(cursor.buffer) - cursor.position < most else most
        try:
            number, end = read_varint(cursor.buffer, cursor.position, cursor.position + min(have, most), 10)
        except ValueError:
            if have < most:
                raise EOFError from None
            raise
        return number, self._take(end - cursor.position)

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError("a number runs past the end of the record")
        data = b"".join(self._pieces(size))
        if len(data) < size:
            raise EOFError
        return data

    def _skip(self, size: int) -> None:
        for _ in self._pieces(size):
            pass

    def _pieces(self, size: int) -> Iterator[bytes]:
        for piece in self._cursor.pieces(size):
            self.left -= len(piece)
            self.crc = crc32c(piece, self.crc)
            yield piece


# --- Indexes ---

# An index is an int64 array of the offsets at which records begin and, last, the offset at which the file ends. Record
# `i` takes the bytes from `index[i]` to `index[i + 1]`, framing included.

Index: TypeAlias = "NDArray[np.int64]"
KeyHashes: TypeAlias = "NDArray[np.uint64]"
"""The digest of the key of each record or sample."""


MEMBERS: Final = "members"
"""The method of streams that are runs of members of a tar, as the members of its samples are not adjacent."""


class StreamPositions(NamedTuple):
    """Positions of the compressed streams of a shard, each of which is decompressed as a whole.

    Attributes:
        method: their compression; or `MEMBERS`.
        stored: the offset of each stream in the shard and, last, the offset of the shard's end.
        plain: the offset of each stream in the decompressed or regrouped bytes and, last, the offset of their end.
    """

    method: str
    stored: Index
    plain: Index


class ShardIndex(NamedTuple):
    """Locations of the records or samples of a shard, as an index file holds them.

    Attributes:
        of: the kind of shard.
        offsets: the offsets of its records or samples, in the decompressed bytes if it is compressed.
        keys: the digests of keys; None as long as they are unknown.
        streams: positions of the streams of a compressed shard; None for an uncompressed one.
        digests: digests of the samples as an index file of other tools lists them, to be compared with each sample
            that is read; None if nothing has to be compared. They are not kept.
    """

    of: str
    offsets: Index
    keys: KeyHashes | None = None
    streams: StreamPositions | None = None
    digests: KeyHashes | None = None

    def stored_offset(self, offset: int) -> int:
        """Return the offset in a regrouped tar of a sample, given its offset in the index."""
        if self.streams is None or self.streams.method != MEMBERS:
            return offset
        number = int(self.streams.plain.searchsorted(offset, "right")) - 1
        return int(self.streams.stored[number] + offset - self.streams.plain[number])


_NUMBERS: Final = b"0123456789 \n"
_LONGEST_LINE: Final = 40


def find_records(read: Callable[[int, int], bytes], size: int, name: str) -> Index:
    """Find the records of an uncompressed TFRecord by reading their lengths only, and check the CRC of each length.

    Args:
        read: returns a number of bytes from an offset on; fewer only at the end of the file.
        size: size of the file in bytes.
        name: name of the file in errors.

    Raises:
        DamagedShardError: for the first record whose length is damaged, or that is cut short.
    """
    reader = RecordReader(RangeStream(read), name, want="lengths", seeks=True, size=size)
    index = offsets_in(reader)
    if index[-1] != size:
        raise DamagedShardError("is shorter than it was when it was listed", kind="truncated", shard=name)
    return index


def offsets_in(reader: RecordReader) -> Index:
    """Return the offset of each record that a reader yields and, last, the offset of the end."""
    import numpy as np

    offsets = array("q", [offset for offset, _ in reader])
    offsets.append(reader.offset)
    return np.frombuffer(offsets, np.int64)


def index_of_lines(data: bytes, size: int) -> Index | None:
    """Read an index of lines `OFFSET SIZE`, as `--index` and other tools write it.

    Args:
        data: the content of the index.
        size: size in bytes of the shard.

    Returns:
        The index; None unless its records are contiguous and cover the whole shard.
    """
    lines = data.count(b"\n")
    if data.translate(None, _NUMBERS) or len(data) > _LONGEST_LINE * lines:
        return None
    import numpy as np

    try:
        numbers = np.array(data.split(), np.int64)
    except (ValueError, OverflowError):
        return None
    if len(numbers) != 2 * lines:
        return None
    sizes = numbers[1::2]
    if len(sizes) and (sizes.min() < FRAMING or sizes.max() > size):
        return None
    index = np.zeros(lines + 1, np.int64)
    np.cumsum(sizes, out=index[1:])
    return index if index[-1] == size and np.array_equal(index[:-1], numbers[::2]) else None


def packed_index(index: ShardIndex, shard: str, version: str) -> list[bytes]:
    """Return the content of an index file for a version of a shard: a line of JSON, then 64-bit integers.

    Args:
        index: the content of the file.
        shard: the path or URL of the shard.
        version: the version of the shard.
    """
    streams = index.streams
    body = index.offsets.astype("<i8").tobytes() + (b"" if index.keys is None else index.keys.astype("<u8").tobytes())
    if streams:
        body += streams.stored.astype("<i8").tobytes() + streams.plain.astype("<i8").tobytes()
    about = {
        "of": index.of,
        "keys": index.keys is not None,
        "method": streams.method if streams else "",
        "streams": len(streams.stored) if streams else 0,
    }
    return [_about_index(about, body, shard, version), body]


def read_index(data: bytes, shard: str, version: str, size: int) -> ShardIndex | None:
    """Parse an index file; None unless it is complete and for the given version and size of the shard."""
    import json

    import numpy as np

    line, end, body = data.partition(b"\n")
    try:
        said = json.loads(line)
        about = {name: said[name] for name in ("of", "keys", "method", "streams")}
    except (ValueError, TypeError, KeyError):  # invalid, or from an older version
        return None
    if line + end != _about_index(about, body, shard, version) or len(body) % 8:
        return None
    streams = about["streams"]
    left = len(body) // 8 - 2 * streams
    count = (left + 1) // 2 if about["keys"] else left
    offsets = np.frombuffer(body, "<i8", count).astype(np.int64, copy=False)
    keys = np.frombuffer(body, "<u8", left - count, 8 * count).astype(np.uint64, copy=False) if about["keys"] else None
    places = np.frombuffer(body, "<i8", 2 * streams, 8 * left).astype(np.int64, copy=False)
    stored, plain = places[:streams], places[streams:]
    if not count or size != (stored if streams else offsets)[-1]:
        return None
    return ShardIndex(about["of"], offsets, keys, StreamPositions(about["method"], stored, plain) if streams else None)


def _about_index(about: Mapping[str, object], body: bytes, shard: str, version: str) -> bytes:
    import json  # imported here, as few commands need it

    said = {"format": "tar2tf index 4", **about, "shard": shard, "version": version}
    return json.dumps({**said, "crc32c": crc32c(body, crc32c(json.dumps(said).encode()))}).encode() + b"\n"
