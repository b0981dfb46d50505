"""Finds numbers that are missing in the names of shards."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Gap", "find_gaps"]

_DIGITS: Final = re.compile(r"\d+")
_OF_TOTAL: Final = re.compile(r"(\d+)(-of-(\d+))(?!.*-of-\d)")


class Gap(NamedTuple):
    """Consecutive shards that are missing in a series.

    Attributes:
        first: the name of the first missing shard.
        last: the name of the last missing shard; equal to `first` if only one is missing.
        missing: number of missing shards.
        before: the name of the shard that follows the gap; None if the gap is at the end of the series.
    """

    first: str
    last: str
    missing: int
    before: str | None = None


class _Place(NamedTuple):
    """A name split at its number."""

    head: str
    number: int
    digits: str
    tail: str

    @property
    def name(self) -> str:
        return f"{self.head}{self.digits}{self.tail}"


_Series: TypeAlias = list[_Place]


def find_gaps(names: Iterable[str]) -> list[Gap]:
    """Find the missing numbers in names that differ in one number.

    `train-00003-of-00010` belongs to a series of ten. Without a total, numbers form a series if they start at 0 or 1,
    are padded with zeros, or most of them exist: nothing is missing between `cifar10` and `cifar100`.
    """
    totals: dict[tuple[str, str], _Series] = defaultdict(list)
    shapes: dict[str, list[str]] = defaultdict(list)
    for name in names:
        match = _OF_TOTAL.search(name)
        if match:
            place = _Place(name[: match.start()], int(match[1]), match[1], name[match.end(1) :])
            totals[place.head, place.tail].append(place)
        else:
            shapes[_DIGITS.sub("0", name)].append(name)
    gaps = []
    for (_, tail), series in totals.items():
        total = _OF_TOTAL.match("0" + tail)
        gaps += _gaps(series, int(total[3]) if total else 0)
    for alike in shapes.values():
        for series in _series(alike):
            if _is_numbering(series):
                gaps += _gaps(series)
    return gaps


def _series(names: list[str]) -> Iterable[_Series]:
    """Names of one shape, divided into series by everything except the last number in which they differ."""
    numbers = [_DIGITS.findall(name) for name in names]
    differing = [index for index, column in enumerate(zip(*numbers, strict=True)) if len(set(column)) > 1]
    if not differing:
        return []
    found: dict[tuple[str, str], _Series] = defaultdict(list)
    for name in names:
        match = list(_DIGITS.finditer(name))[differing[-1]]
        place = _Place(name[: match.start()], int(match[0]), match[0], name[match.end() :])
        found[place.head, place.tail].append(place)
    return found.values()


def _is_numbering(series: _Series) -> bool:
    numbers = {place.number for place in series}
    absent = max(numbers) - min(numbers) + 1 - len(numbers)
    padded = any(place.digits != str(place.number) for place in series)
    return min(numbers) <= 1 or padded or absent <= len(numbers)


def _gaps(series: _Series, total: int = 0) -> list[Gap]:
    """The gaps between the numbers of a series and, if the total is known, before and after them."""
    by_number = {place.number: place for place in series}
    numbers = sorted(by_number)
    if total:
        first = 1 if numbers[-1] == total and numbers[0] else 0
        numbers = [first - 1, *numbers, max(first + total, numbers[-1] + 1)]
    return [
        _gap(series, by_number.get(after), before + 1, after - 1)
        for before, after in pairwise(numbers)
        if after - before > 1
    ]


def _gap(series: _Series, behind: _Place | None, first: int, last: int) -> Gap:
    width = min(len(place.digits) for place in series) if any(place.digits[0] == "0" for place in series) else 0

    def name(number: int) -> str:
        return f"{series[0].head}{str(number).zfill(width)}{series[0].tail}"

    return Gap(name(first), name(last), last - first + 1, behind and behind.name)
