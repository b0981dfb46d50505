"""Finds where records begin in damaged bytes of a TFRecord, by the CRC that each length has."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tar2tf_cli.formats.crc32c import crc32c, masked

__all__ = ["find_length"]


def find_length(data: bytes, start: int = 0) -> int | None:
    """Return the first position from `start` of a length below 2 GiB that is followed by its CRC; None without any.

    A CRC is linear: that of a length is the CRC of zeros XOR what each of its four lower bytes adds to it. So the CRCs
    of all places whose four upper bytes are zero are computed at once, except amid zeros, as the CRC of zeros is not 0.
    """
    count = len(data) - start - 11
    if count <= 0:
        return None
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
    base = crc32c(bytes(8))
    lengths = [[(value << 8 * byte).to_bytes(8, "little") for value in range(256)] for byte in range(4)]
    return np.uint32(base), [np.array([base ^ crc32c(data) for data in column], np.uint32) for column in lengths]
