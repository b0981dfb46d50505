"""Digests of records in files, and which of two sets of them lacks what, in bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.formats.record_file import WholeFile

__all__ = ["Differences", "Place", "compare", "digest_of", "write_digests"]

_SIZE: Final = 16
_AT_ONCE: Final = 1 << 19
"""How many digests are compared at once; each takes about 150 bytes of memory then."""

_Digests: TypeAlias = NDArray[np.uint64]  # a row for each

Place: TypeAlias = tuple[int, int]
"""A record: the number of its file, and its number in the file."""


@dataclass(slots=True)
class Differences:
    """Where two sets of records differ.

    Attributes:
        missing: records of the first set that the second lacks.
        unexpected: records of the second set that the first lacks.
        doubled: records of the second set that are there more often than in the first.
    """

    missing: list[Place] = field(default_factory=list)
    unexpected: list[Place] = field(default_factory=list)
    doubled: list[Place] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.doubled)


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return the digest of a record given in parts."""
    state = blake2b(digest_size=_SIZE)
    for part in parts:
        state.update(part)
    return state.digest()


def write_digests(path: str, digests: Iterable[bytes]) -> int:
    """Write digests in order; return their number.

    Raises:
        SinkError: when the file cannot be written.
    """
    count = 0
    with WholeFile(path, lasting=False) as file:
        for digest in digests:
            file.write([digest], _SIZE)
            count += 1
    return count


def compare(first: Sequence[str], second: Sequence[str], limit: int | None = None) -> Differences:
    """Compare the digests in two sets of files, regardless of their order.

    The digests are divided by their first bits into as many groups as are needed to hold one of them in memory.

    Args:
        first: files of the first set, in order.
        second: files of the second set, in order.
        limit: how many records of the first set count, from the beginning; None for all.
    """
    sides = _load(first, limit), _load(second)
    total = sum(len(digests) for side in sides for digests in side)
    groups = 1 << max(0, (total // _AT_ONCE).bit_length())
    found = Differences()
    for group in range(groups):
        parts = (_group(side, group, groups) for side in sides)
        wanted, there = (Counter(chain.from_iterable(digests for _, digests, _ in part)) for part in parts)
        differing = {digest for digest, _ in wanted.items() ^ there.items()}
        found.missing += [place for _, place in _beyond(there, differing, _group(sides[0], group, groups))]
        for digest, place in _beyond(wanted, differing, _group(sides[1], group, groups)):
            (found.doubled if digest in wanted else found.unexpected).append(place)
    for places in (found.missing, found.unexpected, found.doubled):
        places.sort()
    return found


def _load(paths: Sequence[str], limit: int | None = None) -> list[_Digests]:
    """Map files of digests, up to the first `limit` of all."""
    files: list[_Digests] = []
    for path in paths:
        digests = np.memmap(path, np.uint64, "r") if os.path.getsize(path) else np.empty(0, np.uint64)
        files.append(digests.reshape(-1, 2)[:limit])
        limit = None if limit is None else limit - len(files[-1])
    return files


def _group(files: Sequence[_Digests], group: int, groups: int) -> Iterator[tuple[int, list[bytes], list[int]]]:
    """The digests of one group in each file, by its number, and the numbers of their records there."""
    for file, digests in enumerate(files):
        chosen = np.flatnonzero(digests[:, 0] & np.uint64(groups - 1) == group)
        yield file, digests[chosen].view(f"V{_SIZE}")[:, 0].tolist(), chosen.tolist()


def _beyond(
    counts: Counter[bytes], differing: Container[bytes], files: Iterable[tuple[int, list[bytes], list[int]]]
) -> Iterator[tuple[bytes, Place]]:
    """Of records with the same digest, those beyond so many; the other digests are known to be as many."""
    seen: Counter[bytes] = Counter()
    for file, digests, numbers in files if differing else ():
        for digest, number in zip(digests, numbers, strict=True):
            if digest in differing:
                seen[digest] += 1
                if seen[digest] > counts[digest]:
                    yield digest, (file, number)
