"""Checksums and hashes: CRC-32C (Castagnoli), BLAKE2b without OpenSSL (whose loading takes 2 ms), hashes of keys."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, count
from operator import eq
from typing import Final
from zlib import crc32

from tar2tf_cli.formats import kernel

try:
    from _blake2 import blake2b as blake2b  # the same function as hashlib.blake2b
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


def hash64(data: bytes) -> int:
    """Hash bytes to a number below 2**64, the same on every machine, for decisions such as a sample's split."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def key_hash(key: bytes | str) -> int:
    """Return the 64-bit hash of a key: its CRC-32C and its CRC-32, which collide as rarely as one 64-bit CRC."""
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return crc32c(data) << 32 | crc32(data)


def key_hashes(keys: Sequence[str]) -> array[int]:
    """Return the hash of each of several keys by `key_hash`."""
    lines = "\n".join(keys).encode("utf-8", "surrogateescape")
    if (native := kernel.native()) and b"\r" not in lines:
        hashes = array("Q", native.hashes(lines))
        if len(hashes) == len(keys) == lines.count(b"\n") + 1:  # no key is empty, or has a line break
            return hashes
    return array("Q", map(key_hash, keys))


def masked(crc: int) -> int:
    """Mask a CRC as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF


def ordered(data: bytes, width: int = 1) -> bytes:
    """Sort rows of unsigned 64-bit integers, given and returned as bytes, and drop duplicate rows.

    Args:
        data: the integers of all rows.
        width: how many of them are a row: one or four.
    """
    if native := kernel.native():
        return bytes(native.ordered(data, width))
    import numpy as np

    numbers = np.frombuffer(data, np.uint64)
    return bytes(np.unique(numbers.reshape(-1, width) if width > 1 else numbers, axis=0).tobytes())


class HashTable:
    """A sorted table of rows of unsigned 64-bit integers without duplicates; the first integer of each row is a hash.

    Args:
        rows: the integers of all rows; empty afterwards, as there may be many.
        width: how many of them are a row: one or four.

    Attributes:
        hashes: the first integer of each row.
    """

    def __init__(self, rows: array[int], width: int = 1) -> None:
        self._width = width
        data = rows.tobytes()
        del rows[:]
        self._data = ordered(data, width)
        self._numbers = memoryview(self._data).cast("Q")
        self.hashes = self._numbers[::width]

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashed: int) -> int:
        """Return the index of the first row with a hash; -1 if there is none."""
        number = bisect_left(self.hashes, hashed)
        return number if number < len(self) and self.hashes[number] == hashed else -1

    def find_all(self, hashes: array[int]) -> Sequence[int]:
        """Return, for each of several hashes, the index of the first row with it; -1 if there is none."""
        if native := kernel.native():
            return array("q", native.find(self._data, self._width, hashes.tobytes()))
        return [self.find(hashed) for hashed in hashes]

    @property
    def data(self) -> bytes:
        """The sorted rows as bytes."""
        return self._data

    def row(self, number: int) -> list[int]:
        """Return the integers of a row, given its index."""
        return self._numbers[self._width * number : self._width * (number + 1)].tolist()

    def column(self, column: int, numbers: Sequence[int]) -> Iterator[int]:
        """Return one integer of each of several rows, given the indexes of the rows; negative ones are left out."""
        return map(self._numbers[column :: self._width].__getitem__, [number for number in numbers if number >= 0])

    def repeated(self) -> Iterator[int]:
        """Yield the index of each row whose hash is equal to the hash of the previous row."""
        return compress(count(1), map(eq, self.hashes, self.hashes[1:]))
