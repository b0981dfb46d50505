"""Digests of records in files, and which of two sets of them lacks what, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.formats.checksums import blake2b

_SIZE: Final = 8
_AT_ONCE: Final = 1 << 17
"""How many digests are compared at once; each takes about 60 bytes of memory then."""

_Numbers: TypeAlias = NDArray[Any]

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


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return the digest of a record given in parts, 64 bits."""
    state = blake2b(digest_size=_SIZE)
    for part in parts:
        state.update(part)
    return state.digest()


def compare(first: Sequence[str], second: Sequence[str], limit: int | None = None) -> Differences:
    """Compare the digests in two sets of files, regardless of their order.

    The digests are divided by their last bits into as many groups as are needed to hold one of them in memory.

    Args:
        first: files of the first set, in order.
        second: files of the second set, in order.
        limit: how many records of the first set count, from the beginning; None for all.
    """
    sides = _load(first, limit), _load(second)
    groups = 1 << (sum(len(digests) for side in sides for digests in side) // _AT_ONCE).bit_length()
    found = Differences()
    for group in range(groups):
        (wanted, wanted_at), (there, there_at) = (_group(side, group, groups) for side in sides)
        extra = _beyond(there, wanted)
        doubled = np.isin(there[extra], wanted)
        found.missing += _places(wanted_at[_beyond(wanted, there)])
        found.unexpected += _places(there_at[extra[~doubled]])
        found.doubled += _places(there_at[extra[doubled]])
    for places in (found.missing, found.unexpected, found.doubled):
        places.sort()
    return found


def _load(paths: Sequence[str], limit: int | None = None) -> list[_Numbers]:
    """Map files of digests, up to the first `limit` of all."""
    files: list[_Numbers] = []
    for path in paths:
        digests = np.memmap(path, np.uint64, "r") if os.path.getsize(path) else np.empty(0, np.uint64)
        files.append(digests[:limit])
        limit = None if limit is None else limit - len(files[-1])
    return files


def _group(files: Sequence[_Numbers], group: int, groups: int) -> tuple[_Numbers, _Numbers]:
    """The digests of one group, and the place of each."""
    digests, places = [np.empty(0, np.uint64)], [np.empty((0, 2), np.int64)]
    for file, every in enumerate(files):
        numbers = np.flatnonzero(every & np.uint64(groups - 1) == group)
        digests.append(every[numbers])
        places.append(np.column_stack([np.full_like(numbers, file), numbers]))
    return np.concatenate(digests), np.concatenate(places)


def _beyond(these: _Numbers, others: _Numbers) -> _Numbers:
    """The positions of surplus numbers: those beyond as many equal ones as there are among the others."""
    order = np.argsort(these, kind="stable")
    these, others = these[order], np.sort(others)
    before = np.arange(len(these)) - np.searchsorted(these, these)
    there = np.searchsorted(others, these, "right") - np.searchsorted(others, these)
    return order[before >= there]


def _places(rows: _Numbers) -> list[Place]:
    return [(file, number) for file, number in rows.tolist()]
