"""Verifies a bucket: every file whose content is a shard, and gaps in the numbering."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.inputs.named import list_files, nothing_found
from tar2tf_cli.spec.templates import TAR_SUFFIXES, is_glob, is_numbered
from tar2tf_cli.stores import Source

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


_TFRECORD_NAME: Final = re.compile(r"\.(tf)?records?(-\d+-of-\d+)?(\.(gz|zlib|zst|bz2|xz))?$")


def verify_bucket(run: CheckRun, source: Source, templates: Sequence[str], *, by_folder: bool = False) -> Report:
    """Check the shards that match the templates or, without any, every file whose content is a shard.

    With `by_folder`, the shards of each folder are a separate series, and are missing only if not on disk.
    """
    inputs = list_files(source, templates)
    report = Report(run.check(source, [(item, None) for item in inputs]))
    names = _skip_others(source, templates, [item.name for item in inputs], report)
    if not report.files:
        raise nothing_found(source.bucket)
    if not templates or any(is_glob(name) or is_numbered(name) for name in templates):
        add_gaps(source, names, report, by_folder=by_folder)
    return report


def _skip_others(source: Source, templates: Sequence[str], names: list[str], report: Report) -> list[str]:
    """Skip files that are not shards and were not named by the user; returns the names of the others.

    A file with the name of a shard, or a name like those of the other shards, is kept even if its content is not that
    of a shard: it is reported as a fault.
    """
    shapes = {_shape(name) for name, found in zip(names, report.files, strict=True) if _is_shard(found)}
    kept = []
    for name, found in zip(names, report.files, strict=True):
        asked_for = source.asked_for(name, templates) and (name in templates or not _is_marker(name))
        if found.format == "manifest" and not asked_for:
            report.manifest = report.manifest or found.path
        elif asked_for or _is_shard(found) or _shape(name) in shapes or _has_name_of_shard(name):
            kept.append((name, found))
        else:
            report.skipped.append(name)
    report.files = [found for _, found in kept]
    return [name for name, _ in kept]


def _is_shard(found: FileReport) -> bool:
    return found.format in ("tar", "tfrecord")


def _is_marker(name: str) -> bool:
    """Whether a file is one that Hadoop and Spark write beside shards, such as _SUCCESS."""
    return os.path.basename(name).startswith("_")


def _has_name_of_shard(name: str) -> bool:
    return name.lower().endswith(TAR_SUFFIXES) or bool(_TFRECORD_NAME.search(name.lower()))


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def add_gaps(source: Source, names: list[str], report: Report, *, by_folder: bool = False) -> None:
    """Insert a fault for every gap in the numbering, in the place of the missing shards; an empty one is there."""
    known = [(name, _shape(name), found.format) for name, found in zip(names, report.files, strict=False)]
    shapes = {shape for _, shape, format in known if format == "tfrecord"}
    records = [name for name, shape, format in known if shape in shapes and format in ("tfrecord", None)]
    for gap in _gaps_by_folder(records) if by_folder else find_gaps(records):
        place = names.index(gap.before) if gap.before else len(names)
        names.insert(place, gap.first)
        report.files.insert(place, _gap_fault(source, gap))


def _gaps_by_folder(paths: list[str]) -> Iterator[Gap]:
    """The gaps in each folder whose first shard does not exist on disk."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    return (gap for alike in folders.values() for gap in find_gaps(alike) if not os.path.exists(gap.first))


def _gap_fault(source: Source, gap: Gap) -> FileReport:
    message = "this shard is missing from the numbering"
    if gap.missing > 1:
        message = f"{gap.missing:,} shards, up to {gap.last}, are missing from the numbering"
    return FileReport(source.locate(gap.first), "tfrecord", faults=[Fault("gap", message)], missing=True)
