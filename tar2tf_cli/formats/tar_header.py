"""Header blocks of a tar: checksum, size and name in every writer's variant, and pax records."""

from __future__ import annotations

from typing import Final
from zlib import adler32

__all__ = ["BLOCK", "ZEROS", "is_header", "name_in", "pax_records", "size_in", "text"]

BLOCK: Final = 512
ZEROS: Final = bytes(BLOCK)

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
