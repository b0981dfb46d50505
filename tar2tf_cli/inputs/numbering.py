"""Information in the names of shards: numbers, totals and splits."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, TypeAlias

from tar2tf_cli.structs import NamedTuple

_DIGITS: Final = r"(\d+)"
_OF_TOTAL: Final = r"(\d+)(-of-(\d+))(?!.*-of-\d)"


class Gap(NamedTuple):
    """Consecutive shards that are missing from a numbered series.

    Attributes:
        first: the name of the first missing shard.
        last: the name of the last missing shard; equal to `first` if only one is missing.
        missing: number of missing shards.
        before: the name of the shard that follows the gap; None if the gap is at the end of the series.
        stated: whether the names state how many shards there are.
    """

    first: str
    last: str
    missing: int
    before: str | None = None
    stated: bool = False

    def located(self, locate: Callable[[str], str]) -> Gap:
        """Return the gap with paths or URLs instead of names."""
        return Gap(
            locate(self.first), locate(self.last), self.missing, self.before and locate(self.before), self.stated
        )


class _Numbered(NamedTuple):
    """A name split before and after its number."""

    head: str
    number: int
    digits: str
    tail: str

    @property
    def name(self) -> str:
        return f"{self.head}{self.digits}{self.tail}"


_Series: TypeAlias = list[_Numbered]


def find_gaps(names: Iterable[str], *, ends: bool = True) -> list[Gap]:
    """Find the missing numbers in names that differ in one number.

    `train-00003-of-00010` belongs to a series of ten. Without a total, numbers form a series if they start at 0 or 1,
    are padded with zeros, or most of them exist: nothing is missing between `cifar10` and `cifar100`.

    Args:
        names: the names of shards.
        ends: whether shards before the first name or after the last, implied by a total, count as missing.
    """
    of_totals: dict[int, list[_Numbered]] = defaultdict(list)
    shapes: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    split = re.compile(_DIGITS).split
    for name in names:
        if "-of-" in name and (match := re.search(_OF_TOTAL, name)):
            start, end = match.span(1)
            of_totals[int(match[3])].append(_Numbered(name[:start], int(match[1]), match[1], name[end:]))
        else:
            parts = split(name)
            shapes[tuple(parts[::2])].append(parts)
    gaps = []
    for total, numbered in of_totals.items():
        for series in _series(numbered):
            gaps += _gaps(series, total, ends=ends)
    for alike in shapes.values():
        for series in _series(_at_last_number(alike)):
            if _is_numbering(series):
                gaps += _gaps(series)
    return gaps


def _series(names: Iterable[_Numbered]) -> Iterable[_Series]:
    """Divide names into series, which differ in nothing but their number."""
    series: dict[tuple[str, str], _Series] = defaultdict(list)
    for name in names:
        head, _, _, tail = name
        series[head, tail].append(name)
    return series.values()


def _at_last_number(names: list[list[str]]) -> Iterator[_Numbered]:
    """Join the parts of names of one shape around the last number in which they differ; yield nothing without one.

    Args:
        names: each name as texts and numbers in turn, beginning with a text.
    """
    differing = [at for at, column in enumerate(zip(*names, strict=True)) if len(set(column)) > 1]
    for parts in names if differing else ():
        at = differing[-1]
        yield _Numbered("".join(parts[:at]), int(parts[at]), parts[at], "".join(parts[at + 1 :]))


def _is_numbering(series: _Series) -> bool:
    numbers = {name.number for name in series}
    absent = max(numbers) - min(numbers) + 1 - len(numbers)
    padded = any(name.digits != str(name.number) for name in series)
    return min(numbers) <= 1 or padded or absent <= len(numbers)


def _gaps(series: _Series, total: int = 0, *, ends: bool = True) -> list[Gap]:
    """Return the gaps between the numbers of a series and, if its total is known, before and after them."""
    by_number = {name.number: name for name in series}
    numbers = sorted(by_number)
    if total and ends:
        first = 1 if numbers[-1] == total and numbers[0] else 0
        numbers = [first - 1, *numbers, max(first + total, numbers[-1] + 1)]
    return [
        _gap(series, by_number.get(after), before + 1, after - 1, total=bool(total))
        for before, after in pairwise(numbers)
        if after - before > 1
    ]


def _gap(series: _Series, behind: _Numbered | None, first: int, last: int, *, total: bool) -> Gap:
    width = min(len(name.digits) for name in series) if any(name.digits[0] == "0" for name in series) else 0

    def name(number: int) -> str:
        return f"{series[0].head}{str(number).zfill(width)}{series[0].tail}"

    return Gap(name(first), name(last), last - first + 1, behind and behind.name, total)


def shape(name: str) -> str:
    """Return a name with its numbers masked, which the shards of one series have in common."""
    return re.sub(_DIGITS, "0", name)


def conflicting_totals(names: Iterable[str]) -> tuple[str, ...]:
    """Return two names of one series that state different totals; nothing if all agree."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for name in names:
        if "-of-" in name and (match := re.search(_OF_TOTAL, name)):
            start, end = match.span()
            other, total = first.setdefault((name[:start], name[end:]), (name, match[3]))
            if int(total) != int(match[3]):
                return other, name
    return ()


_SPLIT: Final = r"(?i)(?<![a-z])(train|val|test|dev|eval)(?:ing|idation|id)?(?![a-z])"


def split_of(name: str) -> str | None:
    """Return the split that a shard's name states, such as `train`; `validation` becomes `val`."""
    match = re.search(_SPLIT, name)
    return match[1].lower() if match else None


def splits_of(names: Sequence[str]) -> dict[str, str]:
    """Return the split of each name as spelled there; nothing unless the names state several splits.

    The common prefix of all names is ignored: `test-bed-train-0` and `test-bed-val-0` belong to `train` and `val`.
    """
    if len(names) < 2:
        return {}
    start = len(os.path.commonprefix(names))  # noqa: RUF071 - of names, not of paths
    while start and names[0][start - 1].isalpha():
        start -= 1
    search = cache(re.compile(_SPLIT).search)  # most names differ in numbers only
    found = {name: match[0] for name in names if (match := search(shape(name[start:])))}
    return found if len(set(found.values())) > 1 else {}
