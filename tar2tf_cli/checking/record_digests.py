"""Digests of records in files, and which of two sets of them lacks what, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.formats.record_file import WholeFile

__all__ = ["Differences", "Place", "compare", "digest_of", "write_digests"]

_SIZE: Final = 16
_AT_ONCE: Final = 1 << 21
"""How many digests are compared at once; each takes about 100 bytes of memory then."""

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
    sides = [_load(first), _load(second)]
    if limit is not None:
        sides[0] = _limited(sides[0], limit)
    total = sum(len(digests) for side in sides for digests in side)
    groups = 1 << max(0, (total // _AT_ONCE).bit_length())
    found = Differences()
    for group in range(groups):
        _compare_group([_group(side, group, groups) for side in sides], found)
    for places in (found.missing, found.unexpected, found.doubled):
        places.sort()
    return found


def _load(paths: Sequence[str]) -> list[NDArray[np.uint64]]:
    maps = (np.memmap(path, np.uint64, "r") if os.path.getsize(path) else np.empty(0, np.uint64) for path in paths)
    return [digests.reshape(-1, 2) for digests in maps]


def _limited(files: list[NDArray[np.uint64]], limit: int) -> list[NDArray[np.uint64]]:
    kept = []
    for digests in files:
        kept.append(digests[:limit])
        limit -= len(kept[-1])
    return kept


def _group(files: list[NDArray[np.uint64]], group: int, groups: int) -> tuple[Any, Any, Any]:
    """Digests of one group, with the number of their file and their number in it."""
    found: list[tuple[Any, Any, Any]] = []
    for number, digests in enumerate(files):
        chosen = np.flatnonzero(digests[:, 0] & np.uint64(groups - 1) == group)
        found.append((digests[chosen], np.full(len(chosen), number), chosen))
    empty = (np.empty((0, 2), np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    columns = zip(*(found or [empty]), strict=True)
    first, second, third = (np.concatenate(column) for column in columns)
    return first, second, third


def _compare_group(sides: list[tuple[Any, Any, Any]], found: Differences) -> None:
    digests, files, numbers = (np.concatenate(column) for column in zip(*sides, strict=True))
    if not len(digests):
        return
    side = np.repeat((0, 1), [len(sides[0][0]), len(sides[1][0])])
    order = np.lexsort((numbers, files, side, digests[:, 1], digests[:, 0]))
    digests, side = digests[order], side[order]
    starts = np.concatenate(([0], np.flatnonzero(np.any(digests[1:] != digests[:-1], axis=1)) + 1))
    actual = np.add.reduceat(side, starts)
    expected = np.diff(np.append(starts, len(digests))) - actual
    differing = expected != actual
    for start, wanted, there in zip(starts[differing], expected[differing], actual[differing], strict=True):
        places = [(int(files[at]), int(numbers[at])) for at in order[start : start + wanted + there]]
        if there < wanted:
            found.missing += places[there:wanted]
        elif wanted:
            found.doubled += places[2 * wanted :]
        else:
            found.unexpected += places
