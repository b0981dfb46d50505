"""Tars: a reader of ustar, GNU and pax archives that detects every truncation and oddity, and headers to write.

A member's offset counts bytes of the tar itself (after decompression). Formats: POSIX.1-1988 ustar, POSIX.1-2001 pax,
and GNU tar's extensions (tar(5)). Members that no training shard needs, such as sparse files, are refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias
from zlib import adler32

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.errors import RECREATE_HINT, DamagedShardError, EntryError, Lost
from tar2tf_cli.formats.example import MAX_RECORD
from tar2tf_cli.formats.files import LargeEntries, StoredBytes
from tar2tf_cli.formats.streams import Cursor, foreign

BLOCK: Final = 512
ZEROS: Final = bytes(BLOCK)
_SMALL: Final = 1 << 16  # bytes of a member that stays in memory in a large sample

_sums: Final[dict[bytes, int]] = {}


def size_in(header: bytes) -> int:
    """Check a header's checksum and return the member's size, with a fast path for the usual format.

    The checksum is the sum of the header's bytes with its own field read as eight blanks. The low half of
    Adler-32 is one plus that sum modulo 65521, and far quicker than adding up in Python.

    Raises:
        ValueError: when a field is not a number, or the checksum is wrong.
    """
    try:
        field = header[148:156]
        expected = _sums.get(field)
        if expected is None:
            expected = _sums[field] = (_octal(field[:6]) + sum(field) - 255) % 65521
        digits = header[124:135]
        if adler32(header) & 0xFFFF == expected and header[135] in b"\0 " and digits.isdigit():
            return int(digits, 8)
    except ValueError:
        pass
    return _size_in_any_format(header)


def text(name: bytes) -> str:
    """Decode a name as UTF-8, with surrogates for invalid bytes."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8", "surrogateescape")


def _size_in_any_format(header: bytes) -> int:
    """Check a header's checksum and return the member's size, in any writer's format.

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
    """Parse a numeric field of a header: octal digits between blanks or NULs, or base-256 after a byte of 0x80.

    Raises:
        ValueError: when it is neither.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _octal(field.lstrip(b" \0").partition(b"\0")[0].rstrip(b" ") or b"0")


def _octal(digits: bytes) -> int:
    """Parse octal digits.

    Raises:
        ValueError: when there are others, or none; `int` alone accepts underscores and signs, too.
    """
    if not digits.isdigit():
        raise ValueError("not a number")
    return int(digits, 8)


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
    """Whether 512 bytes can begin a tar: a header with a correct checksum, or the zeros of an empty archive."""
    try:
        return block == ZEROS or (len(block) == BLOCK and size_in(block) >= 0)
    except ValueError:
        return False


Member: TypeAlias = "tuple[str, bytes | StoredBytes, int, int]"
"""Name, data (b"" when only headers are read), size in bytes, offset of its first header."""


class MemberPolicy:
    """Policy for links and unreadable members of a tar; this base class follows no link and ignores errors.

    Args:
        wants: whether a member with a name would be an entry; others are skipped.
    """

    def __init__(self, wants: Callable[[str], bool]) -> None:
        self.wants = wants

    def follow(self, name: str, target: str | None, offset: int) -> tuple[bytes | StoredBytes, int] | None:
        """Return data and size of a link's target; None if it cannot be followed, which the method then reports.

        Args:
            name: the link's own name.
            target: name of the member that a hard link stands for; None for a symbolic link.
            offset: offset of the link's first header.
        """
        return None

    def refuse(self, error: EntryError) -> None:
        """Handle the error for a member that would be an entry and cannot be read."""


_NONE: Final = MemberPolicy(lambda name: False)


_REGULAR: Final = ord("0")
_FILES: Final = (b"0", b"\0", b"7")
_EXTENSIONS: Final = (b"x", b"X", b"g", b"L", b"K")
_EXTENSION_LIMIT: Final = 1 << 20
_SIZE_DIGITS: Final = 20
_DATALESS: Final = {b"1": "link", b"2": "link", b"3": "device", b"4": "device", b"5": "directory", b"6": "fifo"}
_GNU_NAMES: Final = {b"L": "path", b"K": "linkpath"}
_SPARSE: Final = "GNU.sparse.name"
_VOLUME: Final = "GNU.volume.filename"
_STATED: Final = ("path", "linkpath", "size", _SPARSE)
_RECORD: Final = 20 * BLOCK  # tar and most other writers pad archives to whole records
_MOST_ZEROS: Final = 1 << 20  # bytes at the end of the last archive, as records may be larger
_NOT_ANOTHER: Final = "the bytes after the end of the archive are not another archive"
_UNREAD: Final = "is a {}, which tar2tf does not read"
_PLAIN: Final = "recreate the shard with regular files only"
_ONE_VOLUME: Final = "the tar is one of several volumes: recreate the shard without --multi-volume"
_NOT_SPARSE: Final = "recreate the shard without --sparse; bsdtar, the tar of macOS, needs --no-read-sparse"
_ASK_FOR_END: Final = "download the shard again; if its writer ends archives in this way, pass --ignore-missing-end"


class TarReader:
    """Iterates over the regular files of a tar stream; other members are counted in `skipped`.

    Args:
        stream: the tar's bytes, already decompressed. With `headers_only`, a stream with `seek` is skipped
            through instead of read.
        name: the shard's name in errors.
        size: size of the stream in bytes, if it is known.
        headers_only: do not return the members' data.
        every_byte: read the data nevertheless, instead of seeking.
        large: stores large members; None to hold all of them in memory.
        need_end: whether an archive must end with two zero blocks, and at most 1 MiB of zeros.
        entries: decides about members that are not plain files.
        on_zeros: called for zeros between two members, which may be overwritten members or the end of an archive.
        skipped: receives the number of members skipped, by reason.

    Attributes:
        cursor: the position in the tar.
        skipped: the argument, or a new counter.

    Raises:
        DamagedShardError: when the stream is not a complete tar; names shard, member and offset.
    """

    def __init__(
        self,
        stream: Readable,
        name: str,
        *,
        size: int | None = None,
        headers_only: bool = False,
        every_byte: bool = False,
        need_end: bool = True,
        large: LargeEntries | None = None,
        entries: MemberPolicy = _NONE,
        on_zeros: Callable[[], object] = int,
        skipped: Counter[str] | None = None,
    ) -> None:
        can_seek = hasattr(stream, "seek")
        leaps = can_seek and headers_only and not every_byte
        self._most = 4096 if leaps else Cursor.CHUNK
        if large and large.least < self._most:
            self._most = max(large.least, BLOCK)  # so that no member of that size is fully buffered
        in_place = large is not None and large.in_place
        self.cursor = Cursor(stream, self._most, seeks=leaps or (can_seek and in_place), size=size)
        self.cursor.on_leap = large.on_bytes if large else None
        self._name = name
        self._large = large
        self._headers_only = headers_only
        self._need_end = need_end
        self._extended = _ExtendedHeaders()
        self._ends = _ArchiveEnds()
        self._damaged = 0  # offset of the first header of the member that is damaged
        self.skipped: Counter[str] = Counter() if skipped is None else skipped
        self._entries = entries
        self._on_zeros = on_zeros

    def __iter__(self) -> Iterator[Member]:
        cursor, headers_only, extended, ends = self.cursor, self._headers_only, self._extended, self._ends
        start = 0
        try:
            while True:
                position = cursor.position
                header = cursor.buffer[position : position + BLOCK]
                offset = cursor.start + position
                if not extended.pending:
                    start = offset
                if len(header) < BLOCK:
                    if not self._fill_header():
                        break
                    position = cursor.position
                    header = cursor.buffer[position : position + BLOCK]
                if not header[0] and header == ZEROS:
                    if self._end_of_archive():
                        continue
                    break
                try:
                    size = size_in(header)
                except ValueError:
                    raise self._not_a_header(offset) from None
                ends.ended = False
                cursor.position = position = position + BLOCK
                end = header.find(0)
                if header[156] == _REGULAR and end < 100 and not header[345] and not extended.pending:
                    name = text(header[:end])
                else:
                    unusual = self._read_unusual(header, size, offset, start)
                    if not unusual:
                        continue
                    name, size, linked = unusual
                    if linked is not None:
                        yield name, linked, size, start
                        continue
                    position = cursor.position
                end = position + size + (-size & 511)  # `padded`, without a call for each member
                if len(cursor.buffer) >= end:
                    cursor.position = end
                    yield name, b"" if headers_only else cursor.buffer[position : position + size], size, start
                elif headers_only:
                    self._skip(size, name)
                    yield name, b"", size, start
                elif size > MAX_RECORD and not (self._large and self._large.keeps_any):
                    self._skip(size, name)  # an unread value raises an error only when it is used
                    yield name, (self._large or LargeEntries(self._name, None)).unread(size, name), size, start
                else:
                    yield name, self._data(size, name, offset), size, start
            if not ends.ended:
                self._missing_end()
        except DamagedShardError:
            self._damaged = start
            raise

    def resume(self, error: DamagedShardError) -> bool:
        """After damage, go to the next header, and add the lost range to the error; return False when there is none."""
        self._extended.forget()
        try:
            another = self._find_header()
            ends = error.kind in ("bad_header", "unknown_format", "zeroed")
        except DamagedShardError:
            another = ends = False
        offset = self.offset
        error.lost = Lost(self._damaged, offset if another or ends else None, max(offset - self._damaged, 0))
        return another

    def _find_header(self) -> bool:
        """Go to the next block that is a header."""
        if self._extended.misread:
            self._extended.misread = False
            self._skip_misnamed()
        while len(block := self._block()) == BLOCK:
            if block != ZEROS and is_header(block):
                return True
            self.cursor.position += BLOCK
        self.cursor.position += len(block)
        return False

    def _skip_misnamed(self) -> None:
        """Skip a member whose extended headers are incomplete, as it would get a wrong name or size."""
        while (block := self._block()) != ZEROS and is_header(block):
            size = size_in(block)
            self.cursor.skip(BLOCK + padded(size))
            if block[156:157] not in _EXTENSIONS:
                return

    def start_at(self, offset: int, end: int | None = None) -> None:
        """Go to the header at an offset, in a stream that can seek; little is read ahead after `end`."""
        self.cursor.seek(offset)
        self._ends.begin = self._ends.certain = None
        if end is not None:
            self.cursor.chunk = min(end - offset, self._most)

    @property
    def offset(self) -> int:
        """The number of bytes of the tar consumed so far."""
        return self.cursor.offset

    @property
    def archives(self) -> int:
        """The number of concatenated archives in the stream."""
        return self._ends.count

    @property
    def ended(self) -> bool:
        """Whether the stream ended with end-of-archive blocks."""
        return self._ends.ended

    @property
    def extends(self) -> bool:
        """Whether any member has extended headers, which may change its name."""
        return self._extended.found

    def _block(self) -> bytes:
        """Return the next block, which is shorter only at the end."""
        cursor = self.cursor
        if len(cursor.buffer) - cursor.position < BLOCK and not cursor.ended:
            cursor.fill(BLOCK)
        return cursor.buffer[cursor.position : cursor.position + BLOCK]

    def _not_a_header(self, offset: int) -> DamagedShardError:
        message = "this block is not a tar header: the shard is damaged here or earlier"
        if self._ends.ended:
            message = _NOT_ANOTHER
        if offset:
            return self._damage(message, "bad_header", offset)
        what, hint = foreign(self.cursor.buffer[:BLOCK]) or (None, RECREATE_HINT)
        first = f"the file is {what}, not a tar" if what else "the first block is not a tar header"
        return self._damage(first, "unknown_format" if what else "bad_header", 0, hint=hint)

    def _read_unusual(
        self, header: bytes, size: int, offset: int, start: int
    ) -> tuple[str, int, bytes | StoredBytes | None] | None:
        """Return name and size of a member without a plain header, and the data of a link that was followed.

        None for anything that is neither a regular file nor such a link.
        """
        kind = header[156:157]
        if kind in _EXTENSIONS:
            self._read_extension(kind, size, offset)
            return None
        said = self._extended.take()
        name = said.get("path") or name_in(header)
        if "size" in said:
            size = self._stated_size(said["size"], size, name, offset)
        if kind in _DATALESS or (kind in _FILES and name.endswith("/")):
            return self._without_data(header, said, size, name, start)
        if kind in _FILES and not (_VOLUME in said or _SPARSE in said):
            return name, size, None
        if kind == b"S":
            self._skip_sparse_map(header)
        self._skip(size, name)
        if kind == b"V":
            self.skipped["volume label"] += 1  # never an entry, even if its name looks like one
        elif _VOLUME in said or kind == b"M":
            what, name = "part of a file of another volume", said.get(_VOLUME) or name
            self._refuse(what, EntryError(_UNREAD.format(what), kind="volume", member=name, hint=_ONE_VOLUME), start)
        elif _SPARSE in said or kind == b"S":
            what, name = "sparse file", said.get(_SPARSE) or name
            self._refuse(what, EntryError(_UNREAD.format(what), kind="sparse", member=name, hint=_NOT_SPARSE), start)
        else:
            what = f"member of unknown type {kind.decode('latin-1')!r}"
            self._refuse(what, EntryError(_UNREAD.format(what), kind="unknown_type", member=name, hint=_PLAIN), start)
        return None

    def _without_data(
        self, header: bytes, said: dict[str, str], size: int, name: str, start: int
    ) -> tuple[str, int, bytes | StoredBytes] | None:
        """Return name, size and data of a link that was followed; None for another member that has no data."""
        kind = header[156:157]
        if size and (block := self._block()) and not is_header(block):  # writers disagree about such sizes
            self._skip(size, name)
        if kind not in (b"1", b"2") or not self._entries.wants(name):
            self.skipped[_DATALESS.get(kind, "directory")] += 1
            return None
        target = said.get("linkpath") or text(header[157:257].partition(b"\0")[0])
        followed = self._entries.follow(name, target if kind == b"1" else None, start)
        return (name, followed[1], followed[0]) if followed else None

    def _refuse(self, what: str, error: EntryError, offset: int) -> None:
        """Report a member that would be an entry, and count any other."""
        if self._entries.wants(error.member or ""):
            self._entries.refuse(error.at(offset=offset))
        else:
            self.skipped[what] += 1

    def _skip_sparse_map(self, header: bytes) -> None:
        """Skip the continuation blocks of an old GNU sparse file's map."""
        more = header[156:157] == b"S" and header[482]
        while more and len(block := self._block()) == BLOCK:
            more = block[504]
            self.cursor.position += BLOCK

    def _stated_size(self, digits: str, size: int, name: str, offset: int) -> int:
        """Return the size that a pax header states."""
        if digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _SIZE_DIGITS:
            return int(digits)
        self.cursor.skip(padded(size))  # skip the data, so that the search for the next header begins after it
        message = f"the pax header states no possible size: {digits[:40]!r}"
        raise self._damage(message, "bad_header", offset, member=name)

    def _read_extension(self, kind: bytes, size: int, offset: int) -> None:
        """Read an extended header, which applies to the next member (kind g: to all later members).

        A global header with anything but times and an owner, such as one name or size for all members, makes no sense,
        and readers treat it differently.
        """
        extended = self._extended
        extended.misread = kind != b"g"
        extended.pending = extended.pending or extended.misread
        extended.found = extended.found or extended.misread
        if size > _EXTENSION_LIMIT:
            self.cursor.skip(padded(size))
            raise self._damage(f"an extended header claims {size:,} bytes", "bad_header", offset)
        data = self._take_data(size, "(extended header)", offset)
        if kind in _GNU_NAMES:
            extended.gnu[_GNU_NAMES[kind]] = text(data.partition(b"\0")[0])
        else:
            self._read_pax(kind, data, offset)
        extended.misread = False

    def _read_pax(self, kind: bytes, data: bytes, offset: int) -> None:
        try:
            records = pax_records(data)
        except ValueError:
            raise self._damage("a pax header is malformed", "bad_header", offset) from None
        if kind != b"g":  # global headers may be numerous, so keep only what is needed
            self._extended.pax = {key: records[key].partition("\0")[0] for key in _STATED if key in records}
            if any(key.startswith("GNU.sparse.") for key in records):
                self._extended.pax.setdefault(_SPARSE, "")
        elif meddling := records.keys() & {"path", "size"}:
            raise self._damage(f"a global pax header sets one {min(meddling)} for all members", "bad_header", offset)
        elif _VOLUME in records:  # a volume header concerns only the next member
            self._extended.gnu[_VOLUME], self._extended.pending = records[_VOLUME], True

    def _end_of_archive(self) -> bool:
        """Read the end of an archive: a second zero block, then zeros up to the end or a further archive.

        Return whether there is a further archive.
        """
        cursor, start, blocks, block = self.cursor, self.cursor.offset, 0, ZEROS
        self._check_nothing_pends()
        while block and block == ZEROS[: len(block)]:
            size = self._zeros() or len(block)
            cursor.position += size
            blocks += size // BLOCK  # a shorter rest at the end of the file is padding
            if blocks * BLOCK > _MOST_ZEROS and self._need_end:
                message = "more than 1 MiB of zeros follow: the shard is cut short here, or not completely written"
                raise self._damage(message, "truncated", start, hint=_ASK_FOR_END)
            block = self._block()
        if block and blocks >= 2 and self._is_left_over(block):
            cursor.skip(_RECORD)
            block = b""
        if block and not self._ends.may_continue(self.offset, blocks):
            zeros = f"{blocks * BLOCK:,} zero bytes" if blocks > 1 else "a single zero block"
            message = f"{zeros} up to offset {self.offset} in the middle of the archive: the data here is lost"
            raise self._damage(message, "zeroed", start)
        if blocks == 1 and self._need_end:
            message = "the archive ends with one zero block instead of two: it is cut short here"
            raise self._damage(message, "truncated", start)
        self._ends.add(start, cursor.offset, blocks, more=bool(block))
        if block:
            self._on_zeros()
        return bool(block)

    def take_end(self) -> bool:
        """Go to the end of the stream if nothing but the usual end of an archive is left; return whether that is so."""
        cursor = self.cursor
        start, rest = cursor.offset, len(cursor.buffer) - cursor.position
        if not cursor.ended or rest % BLOCK or not 2 * BLOCK <= rest <= _RECORD or self._extended.pending:
            return False
        if cursor.buffer[cursor.position :] != bytes(rest):
            return False
        cursor.position += rest
        self._ends.add(start, cursor.offset, rest // BLOCK, more=False)
        return True

    def _zeros(self) -> int:
        """Return the size of the buffered blocks, or of one record of them, if they are all zeros; otherwise 0."""
        buffer, position = self.cursor.buffer, self.cursor.position
        size = min(len(buffer) - position, _RECORD) // BLOCK * BLOCK
        return size if buffer[position : position + size] == bytes(size) else 0

    def _is_left_over(self, block: bytes) -> bool:
        """Whether only the rest of the archive's last record follows, with stale bytes that its writer left there."""
        if is_header(block):
            return False
        begin = self._ends.begin
        room = _RECORD if begin is None else (begin - self.offset) % _RECORD
        rest = self.cursor.fill(room + 1)
        return rest <= room if begin is None else rest == room

    def check_ends(self) -> None:
        """After the last member, refuse a tar with zeros that look like the end of an archive but are not.

        Raises:
            DamagedShardError: for the first of them.
        """
        if not (none := self._ends.refuted):
            return
        start, end = none[0]
        self._ends.count -= len(none)
        more = f", and {len(none) - 1:,} times more" if len(none) > 1 else ""
        message = (
            f"{end - start:,} zero bytes up to offset {end} in the middle of the archive{more}: the data here is lost"
        )
        error = self._damage(message, "zeroed", start)
        error.lost = Lost(start, end, sum(end - start for start, end in none))
        raise error

    def _missing_end(self) -> None:
        if self.offset == 0:
            raise self._damage("the file is empty, so it is not a tar", "truncated", 0)
        self._check_nothing_pends()
        if self._need_end:
            message = "the archive has no end-of-archive blocks: it may be cut short here"
            raise self._damage(message, "truncated", self.offset, hint=_ASK_FOR_END)
        self._ends.count += 1

    def _check_nothing_pends(self) -> None:
        if self._extended.pending:
            raise self._damage("the member that an extended header describes is missing", "truncated", self.offset)

    def _fill_header(self) -> bool:
        have = self.cursor.fill(BLOCK)
        if 0 < have < BLOCK:
            if self.offset == 0:
                raise self._not_a_header(0)
            message = (
                f"{_NOT_ANOTHER}, or one that is cut short" if self._ends.ended else "the shard ends inside a header"
            )
            raise self._damage(message, "truncated", self.offset)
        return have > 0

    def _data(self, size: int, name: str, offset: int) -> bytes | StoredBytes:
        """Return the data of a member that is not fully buffered, in a file if it or the sample is large."""
        if self._large:
            full = self._large.is_full(self.offset + size)
            self.cursor.chunk = _SMALL if full else self._most
            if size >= self._large.least or (full and size >= _SMALL):
                return self._stored(self._large, size, name, offset)
        return self._take_data(size, name, offset)

    def _stored(self, large: LargeEntries, size: int, name: str, offset: int) -> StoredBytes:
        if large.in_place:
            value = large.at(self.offset, size, name)
            self._skip(size, name)
            return value
        end = self.offset + padded(size)
        value = large.copied(self.cursor.pieces(size), size, name)
        self._end_at(end, name, offset)
        return value

    def _take_data(self, size: int, name: str, offset: int) -> bytes:
        end = self.offset + padded(size)
        data = self.cursor.take(size)
        self._end_at(end, name, offset)
        return data

    def _end_at(self, end: int, name: str, offset: int) -> None:
        """Go to the end of a member whose data was read, checking that it is not cut short."""
        if self.cursor.skip(end - self.offset):
            raise self._cut(name, offset)

    def _skip(self, size: int, name: str) -> None:
        """Skip a member's data and padding, by seeking if the stream can seek."""
        cursor = self.cursor
        offset = cursor.start + cursor.position
        if cursor.skip(padded(size)):
            raise self._cut(name, offset - BLOCK)

    def _cut(self, name: str, offset: int) -> DamagedShardError:
        return self._damage("the shard ends inside this member: it is cut short", "truncated", offset, member=name)

    def _damage(
        self, message: str, kind: str, offset: int, *, member: str | None = None, hint: str | None = RECREATE_HINT
    ) -> DamagedShardError:
        return DamagedShardError(message, kind=kind, shard=self._name, member=member, offset=offset, hint=hint)


class _ExtendedHeaders:
    """Extended headers of a tar: the name, link target and size that they state for the next member.

    Attributes:
        pax: values of the last pax header.
        gnu: values of GNU's headers, and of a volume's global pax header.
        pending: whether any of them describes the next member.
        misread: whether one of them could not be read.
        found: whether the tar has had any.
    """

    __slots__ = ("found", "gnu", "misread", "pax", "pending")

    def __init__(self) -> None:
        self.found = self.misread = False
        self.forget()

    def forget(self) -> None:
        """Discard the values."""
        self.pax: dict[str, str] = {}
        self.gnu: dict[str, str] = {}
        self.pending = False

    def take(self) -> dict[str, str]:
        """Return the values for the next member, and discard them; as in GNU tar, pax headers override GNU headers."""
        said = {**self.gnu, **self.pax}
        self.forget()
        return said


class _ArchiveEnds:
    """Ends of the archives in a stream, which may hold several concatenated archives.

    Attributes:
        begin: offset at which the current archive begins; None if unknown.
        certain: offset of the last archive whose start is certain; None if unknown.
        doubtful: start and end of the zeros after each later archive, which may be overwritten members.
        refuted: zeros that turned out to be within an archive.
        count: number of archives that have ended.
        ended: whether no member has followed the last end.
    """

    __slots__ = ("begin", "certain", "count", "doubtful", "ended", "refuted")

    def __init__(self) -> None:
        self.begin: int | None = 0
        self.certain: int | None = 0
        self.doubtful: list[tuple[int, int]] = []
        self.refuted: list[tuple[int, int]] = []
        self.count = 0
        self.ended = False

    def may_continue(self, offset: int, blocks: int) -> bool:
        """Whether a further archive may begin at an offset after `blocks` blocks of zeros.

        An archive ends with two zero blocks, and is padded to a full record. Other zeros are an overwritten member.
        """
        filled = _is_filled(self.begin, offset) or _is_filled(self.certain, offset)
        return blocks == 2 or (filled and 2 < blocks <= _RECORD // BLOCK + 1)

    def add(self, start: int, end: int, blocks: int, *, more: bool) -> None:
        """Add the end of an archive, and find earlier ends that turn out to be zeroed members.

        Two blocks of zeros are the end of an archive whose writer does not pad, or a small member that was overwritten
        with zeros. They are within the archive if this end is padded as counted from a start before them, but not as
        counted from a start after them.

        Args:
            start: offset of the zeros that end it.
            end: offset after them.
            blocks: the number of blocks of zeros.
            more: whether a further archive follows.
        """
        if more and blocks == 2 and not (_is_filled(self.certain, end) or _is_filled(self.begin, end)):
            self.doubtful.append((start, end))
        else:
            if self.doubtful and blocks > 2 and _is_filled(self.certain, end) and not _is_filled(self.begin, end):
                self.refuted += self.doubtful
            self.certain = end
            self.doubtful.clear()
        self.begin = end
        self.count += 1
        self.ended = True


def _is_filled(start: int | None, end: int) -> bool:
    """Whether two offsets are a multiple of the record size apart; True for an unknown start."""
    return start is None or (end - start) % _RECORD == 0


# --- Headers that are written ---

END: Final = 2 * ZEROS
"""Bytes that end an archive."""

MTIME: Final = 315_532_800
"""The time of every member, 1 January 1980: tools warn of 1970, where time begins, and zip knows no earlier one."""

_NAME: Final = 100
_PREFIX: Final = 155
_OWNER: Final = b"0000644\0" + 2 * b"0000000\0"  # mode, user, group
_TIME: Final = b"%011o\0" % MTIME
_MAGIC: Final = bytes(100) + b"ustar\0" + b"00" + bytes(80)  # after the kind: no link, no names, no device
_GNU: Final = bytes(100) + b"ustar  \0" + bytes(80)  # the same fields in GNU's format
_NO_PREFIX: Final = bytes(BLOCK - 345)
_MOST_IN_DIGITS: Final = 8 << 30  # larger sizes are written in base 256, as GNU tar does


def header(name: bytes, size: int) -> bytes:
    """Return the header of a regular file: one block, or three and more if the name needs them.

    Args:
        name: the member's name, of any length, without a NUL.
        size: the length of its data in bytes.
    """
    if len(name) <= _NAME:
        return _block(name, size)
    cut = name.find(b"/", len(name) - _NAME - 1)
    if 0 < cut <= _PREFIX and cut + 1 < len(name):
        return _block(name[cut + 1 :], size, prefix=name[:cut])
    said = name + b"\0"  # in GNU's long-name format, since DALI refuses pax headers
    long = _block(b"././@LongLink", len(said), b"L", magic=_GNU)
    return long + said + padding(len(said)) + _block(name[:_NAME], size, magic=_GNU)


def header_size(name: bytes) -> int:
    """Return the length in bytes of the header of a regular file."""
    return BLOCK if len(name) <= _NAME else len(header(name, 0))


def padded(size: int) -> int:
    """Return the length of a member's data including the zeros that fill up its last block."""
    return size + (-size & BLOCK - 1)


def padding(size: int) -> bytes:
    """Return the zeros that fill up the last block of data of a given size."""
    return ZEROS[: -size % BLOCK]


def _block(name: bytes, size: int, kind: bytes = b"0", *, prefix: bytes = b"", magic: bytes = _MAGIC) -> bytes:
    digits = b"%011o\0" % size if size < _MOST_IN_DIGITS else b"\x80" + size.to_bytes(11, "big")
    checksum = (_WITHOUT if magic is _MAGIC else _WITHOUT_GNU) + _sum(name) + _sum(digits) + _sum(prefix) + kind[0]
    rest = prefix.ljust(BLOCK - 345, b"\0") if prefix else _NO_PREFIX
    return b"".join(
        (name.ljust(_NAME, b"\0"), _OWNER, digits, _TIME, b"%06o\0 " % checksum, kind, magic, rest),
    )


def _sum(data: bytes) -> int:
    """Return the sum of at most 255 bytes, by Adler-32, whose low half is one more, modulo 65521."""
    return (adler32(data) & 0xFFFF) - 1


_WITHOUT: Final = sum(_OWNER + _TIME + 8 * b" " + _MAGIC)
_WITHOUT_GNU: Final = sum(_OWNER + _TIME + 8 * b" " + _GNU)
