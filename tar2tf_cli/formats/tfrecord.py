"""TFRecord framing: serialised examples to framed records, and lengths found amid damage."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.checksums import MASK, crc32c, extend, masked

if TYPE_CHECKING:
    from tar2tf_cli.formats.files import StoredBytes


def find_length(data: bytes, start: int = 0) -> int | None:
    """Return the first position from `start` of a length below 2 GiB that is followed by its CRC; None without any.

    A CRC is linear: that of a length is the CRC of zeros XOR what each of its four lower bytes adds to it. So the CRCs
    of all places whose four upper bytes are zero are computed at once, except amid zeros, as the CRC of zeros is not 0.
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
_CACHE_SIZE: Final = 8192
_headers: Final[dict[int, bytes]] = {}

known_lengths: Final[dict[bytes, int]] = {}
"""The lengths in headers that were read and are valid."""


def crc_field(data: bytes) -> bytes:
    """Return the CRC of the bytes of a record's length or data as it stands behind them."""
    crc = extend(0, data)
    return _CRC.pack(((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)


def begins_record(head: bytes) -> bool:
    """Whether bytes begin with a length and its CRC, as a record does."""
    return head[8:12] == crc_field(head[:8])


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
            return [header, data, crc_field(data)]
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
    header = length + crc_field(length)
    _headers[size] = header
    return header


def record_length(header: bytes) -> int:
    """Return the length of a record's data by the record's first 12 bytes.

    Raises:
        DamagedShardError: when it does not match its CRC, or no record can be that long; does not say where.
    """
    known = known_lengths.get(header)
    if known is not None:
        return known
    length = int.from_bytes(header[:8], "little")
    if crc_field(header[:8]) != header[8:]:
        raise DamagedShardError("the CRC of the record's length does not match", kind="length_crc")
    if length > MAX_RECORD:
        message = f"the record claims {length:,} bytes; an example has at most 2 GiB"
        raise DamagedShardError(message, kind="too_large")
    if len(known_lengths) >= _CACHE_SIZE:
        known_lengths.clear()
    known_lengths[header] = length
    return length


def unframed(framed: bytes) -> bytes:
    """Return the data of one framed record, whose CRCs are checked.

    Raises:
        DamagedShardError: when it is damaged, or is not exactly one record; does not say where.
    """
    length = known_lengths.get(framed[:12])
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
