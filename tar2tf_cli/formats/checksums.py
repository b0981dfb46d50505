"""Checksums: CRC-32C (Castagnoli), plain and masked, and BLAKE2b without OpenSSL, which `hashlib` loads in 2 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tar2tf_cli.formats import kernel

try:
    from _blake2 import blake2b as blake2b  # what hashlib has, too
except ImportError:
    from hashlib import blake2b as blake2b


MASK: Final = 0xA282EAD8

extend: Callable[[int, bytes], int]
"""Return the CRC of bytes, going on from that of the bytes before them, which is 0 if there are none."""

_native = kernel.native()
if _native and _native.hardware:
    extend = _native.extend
else:
    import google_crc32c

    extend = google_crc32c.extend


def crc32c(data: bytes, crc: int = 0) -> int:
    """Compute the CRC-32C of `data`, continuing from `crc`."""
    return int(extend(crc, data))


def masked(crc: int) -> int:
    """Mask a CRC as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF
