"""Tar bytes to members: ustar, GNU and pax headers, read from a stream, every cut and every oddity found out.

A member's offset counts bytes of the tar itself (after decompression). Formats: POSIX.1-1988 ustar, POSIX.1-2001
pax, and GNU tar's extensions (tar(5)); what no training shard needs (sparse files) is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias
from zlib import adler32

from tar2tf_cli.errors import AGAIN, DamagedShardError
from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.cursor import Cursor
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.stored import LargeEntries, StoredBytes
from tar2tf_cli.formats.tfrecord import MAX_RECORD

BLOCK: Final = 512
ZEROS: Final = bytes(BLOCK)
_SMALL: Final = 1 << 16  # of the members of a large sample, those that stay in memory

_sums: Final[dict[bytes, int]] = {}


def size_in(header: bytes) -> int:
    """Check a header's checksum and return its size; with a fast path for the usual format.

    The checksum is the sum of the header's bytes with its own field read as eight blanks. The low half of
    Adler-32 is one plus that sum modulo 65521, and far quicker than adding up in Python.

    Raises:
        ValueError: when a field is not a number, or the checksum is wrong.
    """
    try:
        field = header[148:156]
        expected = _sums.get(field)
        if expected is None:
            expected = _sums[field] = (int(field[:6], 8) + sum(field) - 255) % 65521
        if adler32(header) & 0xFFFF == expected and header[135] in b"\0 ":
            size = int(header[124:135], 8)
            if size >= 0:
                return size
    except ValueError:
        pass
    return _any_size(header)


def text(name: bytes) -> str:
    """Decode a name as UTF-8, with surrogates for invalid bytes."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8", "surrogateescape")


def _any_size(header: bytes) -> int:
    """Check a header's checksum and return its size, in any writer's format.

    Raises:
        ValueError: when a field is not a number, or the checksum is wrong for both unsigned and signed bytes.
    """
    stored, size = _number(header[148:156]), _number(header[124:136])
    blanked = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(blanked)
    signed = unsigned - 256 * sum(byte > 127 for byte in blanked)
    if not stored or stored not in (unsigned, signed) or size < 0:
        raise ValueError("wrong checksum")
    return size


def _number(field: bytes) -> int:
    """Parse a header's number: octal digits between blanks or NULs, or base-256 after a byte of 0x80.

    Raises:
        ValueError: when it is neither.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.lstrip(b" \0").partition(b"\0")[0] or b"0", 8)


def name_in(header: bytes) -> str:
    """Return the name in a header, joined with its ustar prefix."""
    name = header[:100].partition(b"\0")[0]
    if header[345] and header[257:263] == b"ustar\0":
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return text(name)


def pax_records(data: bytes) -> dict[str, str]:
    """Parse the records `LENGTH KEY=VALUE\\n` of a pax header.

    Raises:
        ValueError: when they are malformed.
    """
    records = {}
    position = 0
    while position < len(data) and data[position]:  # some writers pad with NULs
        digits, blank, _ = data[position : position + 20].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        record = data[position : position + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not length or len(record) < length or not equals or record[-1:] != b"\n":
            raise ValueError("malformed")
        records[text(key)] = text(value)
        position += length
    return records


def is_header(block: bytes) -> bool:
    """Whether 512 bytes can begin a tar: a header with the right checksum, or the zeros of an empty archive."""
    try:
        return block == ZEROS or (len(block) == BLOCK and size_in(block) >= 0)
    except ValueError:
        return False


Member: TypeAlias = "tuple[str, bytes | StoredBytes, int, int]"
"""Name, data (b"" when only headers are read), size in bytes, offset of its first header."""


class Links(Protocol):
    """How the links of a tar are resolved."""

    def wants(self, name: str) -> bool:
        """Whether a link of this name is to be followed; others are skipped."""

    def follow(self, name: str, target: str | None, offset: int) -> tuple[bytes | StoredBytes, int] | None:
        """Data and size of what a link stands for; None where it cannot be followed, which is reported then.

        Args:
            name: the link's own name.
            target: name of the member that a hard link stands for; None for a symbolic link.
            offset: where the link's first header lies.
        """


_REGULAR: Final = ord("0")
_EXTENSIONS: Final = (b"x", b"X", b"g", b"L", b"K")
_EXTENSION_LIMIT: Final = 1 << 20
_SIZE_DIGITS: Final = 20
_DATALESS: Final = {b"1": "link", b"2": "link", b"3": "device", b"4": "device", b"5": "directory", b"6": "fifo"}
_GNU_NAMES: Final = {b"L": "path", b"K": "linkpath"}
_MOST_ZEROS: Final = 1 << 20  # GNU tar fills up records, of 10 KiB unless told otherwise
_NOT_ANOTHER: Final = "the bytes after the end of the archive are not another archive"
_NOT_SPARSE: Final = "make the shard again without --sparse; bsdtar, the tar of macOS, needs --no-read-sparse"
_ASK_FOR_END: Final = "fetch the shard again; if its writer ends archives in this way, pass --ignore-missing-end"


class TarReader:
    """Iterates over the regular files of a tar stream; whatever else it holds is counted in `skipped`.

    Args:
        stream: the tar's bytes, already decompressed. With `headers_only`, a stream with `seek` is skipped
            through instead of read.
        name: what to call the shard in errors.
        headers_only: do not return the members' data.
        every_byte: read it all the same instead of seeking.
        large: stores large members; None to hold all of them in memory.
        need_end: whether the two zero blocks that end an archive must be there, with no more than 1 MiB of zeros.

    Attributes:
        cursor: where in the tar the reader is.
        skipped: how many members were skipped, by reason.
        archives: how many archives the stream holds end to end.
        ended: whether the stream ended with end-of-archive blocks.
        links: what becomes of links; all of them are skipped when None.

    Raises:
        DamagedShardError: when the stream is not a whole tar; names shard, member and offset.
    """

    def __init__(
        self,
        stream: Readable,
        name: str,
        *,
        headers_only: bool = False,
        every_byte: bool = False,
        need_end: bool = True,
        large: LargeEntries | None = None,
    ) -> None:
        can_seek = hasattr(stream, "seek")
        leaps = can_seek and headers_only and not every_byte
        self._most = 4096 if leaps else Cursor.CHUNK
        if large and large.least < self._most:
            self._most = max(large.least, BLOCK)  # so that no member of that size is buffered whole
        in_place = large is not None and large.in_place
        self.cursor = Cursor(stream, self._most, seeks=leaps or (can_seek and in_place))
        self.cursor.on_leap = large.on_bytes if large else None
        self._name = name
        self._large = large
        self._headers_only = headers_only
        self._need_end = need_end
        self._pax: dict[str, str] = {}
        self._extended = False  # whether an extended header describes the next member
        self.skipped: Counter[str] = Counter()
        self.archives = 0
        self.ended = False
        self.links: Links | None = None

    def __iter__(self) -> Iterator[Member]:
        cursor, headers_only = self.cursor, self._headers_only
        start = 0
        while True:
            position = cursor.position
            header = cursor.buffer[position : position + BLOCK]
            if len(header) < BLOCK:
                if not self._fill_header():
                    break
                position = cursor.position
                header = cursor.buffer[position : position + BLOCK]
            offset = cursor.start + position
            if not self._pax:
                start = offset
            if not header[0] and header == ZEROS:
                self._end_of_archive()
                continue
            try:
                size = size_in(header)
            except ValueError:
                raise self._not_a_header(offset) from None
            self.ended = False
            cursor.position = position = position + BLOCK
            end = header.find(0)
            if header[156] == _REGULAR and end < 100 and not header[345] and not self._extended:
                name = text(header[:end])
            else:
                found = self._unusual(header, size, offset, start)
                if not found:
                    continue
                name, size, linked = found
                if linked is not None:
                    yield name, linked, size, start
                    continue
                position = cursor.position
            padded = size + (-size & 511)
            buffered = len(cursor.buffer) - position >= padded
            if headers_only:
                if buffered:
                    cursor.position = position + padded
                else:
                    self._skip(padded, name)
                yield name, b"", size, start
            elif buffered:
                cursor.position = position + padded
                yield name, cursor.buffer[position : position + size], size, start
            else:
                yield name, self._data(size, name, offset), size, start
        if not self.ended:
            self._missing_end()

    def resume(self) -> bool:
        """After damage, go to the next block that is a header; False when there is none up to the end."""
        self._pax, self._extended, cursor = {}, False, self.cursor
        while len(block := self._block()) == BLOCK:
            if block != ZEROS and is_header(block):
                return True
            cursor.position += BLOCK
        return False

    def start_at(self, offset: int, end: int | None = None) -> None:
        """Go to the header at an offset, in a stream that can seek; what follows `end` is hardly read ahead."""
        self.cursor.seek(offset)
        if end is not None:
            self.cursor.chunk = min(end - offset, self._most)

    @property
    def offset(self) -> int:
        """Bytes of the tar consumed so far."""
        return self.cursor.offset

    def _block(self) -> bytes:
        """The next block, which is shorter only at the end."""
        cursor = self.cursor
        if len(cursor.buffer) - cursor.position < BLOCK:
            cursor.fill(BLOCK)
        return cursor.buffer[cursor.position : cursor.position + BLOCK]

    def _not_a_header(self, offset: int) -> DamagedShardError:
        message = "this block is not a tar header: the shard is damaged here or earlier"
        if self.ended:
            message = _NOT_ANOTHER
        if offset:
            return self._damage(message, "bad_header", offset)
        what, hint = foreign(self.cursor.buffer[:BLOCK]) or (None, AGAIN)
        first = f"the file is {what}, not a tar" if what else "the first block is not a tar header"
        return self._damage(first, "bad_header", 0, hint=hint)

    def _unusual(
        self, header: bytes, size: int, offset: int, start: int
    ) -> tuple[str, int, bytes | StoredBytes | None] | None:
        """Name and size of a member whose header is not a plain one, and the data of a link that was followed.

        None for anything that is neither a regular file nor such a link.
        """
        kind = header[156:157]
        if kind in _EXTENSIONS:
            self._read_extension(kind, size, offset)
            return None
        pax, self._pax, self._extended = self._pax, {}, False
        name = pax.get("path") or name_in(header)
        if kind == b"S" or any(key.startswith("GNU.sparse.") for key in pax):
            message = "is a sparse file, which tar2tf does not read"
            raise self._damage(message, "sparse", offset, member=name, hint=_NOT_SPARSE)
        if "size" in pax:
            if not pax["size"].isdecimal() or len(pax["size"].lstrip("0")) > _SIZE_DIGITS:
                raise self._damage(
                    f"the pax size is not a number: {pax['size'][:40]!r}", "bad_header", offset, member=name
                )
            size = int(pax["size"])
        if kind in (b"1", b"2") and self.links and self.links.wants(name):
            target = pax.get("linkpath") or text(header[157:257].partition(b"\0")[0])
            if followed := self.links.follow(name, target if kind == b"1" else None, start):
                return name, followed[1], followed[0]
        elif kind in _DATALESS:
            self.skipped[_DATALESS[kind]] += 1
        elif kind not in (b"0", b"\0", b"7"):
            self.skipped[f"member of unknown type {kind.decode('latin-1')!r}"] += 1
            self._skip(size + (-size & 511), name)
        elif name.endswith("/"):
            self.skipped["directory"] += 1
        else:
            return name, size, None
        return None

    def _read_extension(self, kind: bytes, size: int, offset: int) -> None:
        """Read an extended header, which describes the member after it (g: all members after it).

        What a global header could give each member besides its times and owner, one name or size for all, makes no
        sense, and readers differ on it.
        """
        if size > _EXTENSION_LIMIT:
            raise self._damage(f"an extended header claims {size:,} bytes", "bad_header", offset)
        data = self._take(size, "(extended header)", offset)
        try:
            records = {_GNU_NAMES[kind]: text(data.partition(b"\0")[0])} if kind in _GNU_NAMES else pax_records(data)
        except ValueError:
            raise self._damage("a pax header is malformed", "bad_header", offset) from None
        if kind != b"g":
            self._extended = True
            self._pax.update(records)
        elif meddling := records.keys() & {"path", "size"}:
            raise self._damage(f"a global pax header sets one {min(meddling)} for all members", "bad_header", offset)

    def _end_of_archive(self) -> None:
        """At a zero block: it must be followed by another, and zeros up to the end or a further archive."""
        cursor, start, blocks, block = self.cursor, self.offset, 0, ZEROS
        self._check_nothing_pends()
        while block and block == ZEROS[: len(block)]:
            cursor.position += len(block)
            blocks += len(block) // BLOCK  # a shorter rest at the very end is padding
            if blocks * BLOCK > _MOST_ZEROS and self._need_end:
                message = "more than 1 MiB of zeros follow: the shard is cut short here, or not completely written"
                raise self._damage(message, "truncated", start, hint=_ASK_FOR_END)
            block = self._block()
        at_end = not block
        if blocks == 1 and (not at_end or self._need_end):
            message = (
                "the archive ends with one zero block instead of two: it is cut short here"
                if at_end
                else "a single zero block in the middle of the archive: what was here is lost"
            )
            raise self._damage(message, "truncated" if at_end else "zeroed", start)
        self.archives += 1
        self.ended = True

    def _missing_end(self) -> None:
        if self.offset == 0:
            raise self._damage("the file is empty, so it is not a tar", "truncated", 0)
        self._check_nothing_pends()
        if self._need_end:
            message = "the archive has no end-of-archive blocks: it may be cut short here"
            raise self._damage(message, "truncated", self.offset, hint=_ASK_FOR_END)
        self.archives += 1

    def _check_nothing_pends(self) -> None:
        if self._extended:
            raise self._damage("the member that an extended header describes is missing", "truncated", self.offset)

    def _fill_header(self) -> bool:
        have = self.cursor.fill(BLOCK)
        if 0 < have < BLOCK:
            if self.offset == 0:
                raise self._not_a_header(0)
            message = f"{_NOT_ANOTHER}, or one that is cut short" if self.ended else "the shard ends inside a header"
            raise self._damage(message, "truncated", self.offset)
        return have > 0

    def _data(self, size: int, name: str, offset: int) -> bytes | StoredBytes:
        """The data of a member that is not all buffered; stored in a file if it is large, or the sample is."""
        if size > MAX_RECORD:
            raise self._damage(
                f"is {size:,} bytes long; a tf.train.Example holds at most 2 GiB", "too_large", offset, member=name
            )
        if self._large:
            full = self._large.is_full(self.offset + size)
            self.cursor.chunk = _SMALL if full else self._most
            if size >= self._large.least or (full and size >= _SMALL):
                return self._stored(self._large, size, name, offset)
        return self._take(size, name, offset)

    def _stored(self, large: LargeEntries, size: int, name: str, offset: int) -> StoredBytes:
        if large.in_place:
            value = large.at(self.offset, size, name)
            self._skip(size + (-size & 511), name)
            return value
        end = self.offset + size + (-size & 511)
        value = large.copied(self.cursor.pieces(size), size, name)
        self._end_at(end, name, offset)
        return value

    def _take(self, size: int, name: str, offset: int) -> bytes:
        end = self.offset + size + (-size & 511)
        data = self.cursor.take(size)
        self._end_at(end, name, offset)
        return data

    def _end_at(self, end: int, name: str, offset: int) -> None:
        """Go to the end of a member whose data was read, if it was not cut short."""
        if self.cursor.skip(end - self.offset):
            raise self._cut(name, offset)

    def _skip(self, padded: int, name: str) -> None:
        """Skip a member's data; seeks where the stream can."""
        offset = self.offset
        if self.cursor.skip(padded):
            raise self._cut(name, offset - BLOCK)

    def _cut(self, name: str, offset: int) -> DamagedShardError:
        return self._damage("the shard ends inside this member: it is cut short", "truncated", offset, member=name)

    def _damage(
        self, message: str, kind: str, offset: int, *, member: str | None = None, hint: str | None = AGAIN
    ) -> DamagedShardError:
        return DamagedShardError(message, kind=kind, shard=self._name, member=member, offset=offset, hint=hint)
