"""Plans shards: divides records among them by their sizes, and returns lists of pieces, without any I/O.

A **unit** is a record or, when the limit applies to gzip blocks, a block of records. A **piece** is a run of
consecutive units of one input. A **lane** is a numbered series of shards: one per split, one per input with `<input>`,
otherwise a single one. A shard is closed before the unit that would exceed its limit; a unit larger than the limit gets
a shard of its own.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain, count, groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from tar2tf_cli.conversion.repeats import DuplicateIndex, KeyIndex
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, StoredIndex, overhead_size
from tar2tf_cli.errors import write_errors
from tar2tf_cli.formats.checksums import ordered
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.structs import NamedTuple, dataclass, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tar2tf_cli.spec.conversion import Conversion, Output


SORTED_AT_ONCE: Final = 1 << 16
"""Number of records that are sorted at once, in 5 MB of memory, or 6 with the hashes of their keys."""

MOST_FILES: Final = 128
_CELL: Final = 8  # bytes


def sorted_tables(
    parts: Iterable[InputUnits], most: int | None, path: Callable[[int], str], first: int, *, keyed: bool = False
) -> Iterator[tuple[int, InputUnits]]:
    """Sort records into tables; yield lane number and rows of each. Records with equal order numbers keep their order.

    Args:
        parts: all records; each is a unit of its own.
        most: number of records to keep from the beginning of the new order; None for all.
        path: returns the path of a table by its number; tables are numbered like groups of inputs.
        first: the number of the first table.
        keyed: whether to keep the hashes of keys, as for tars.
    """
    import numpy as np

    numbers, columns = count(first), [1, 2, 3, 5] if keyed else [1, 2, 3]
    for rows in _sorted(list(parts), os.path.dirname(path(first)), keyed=keyed):
        rows = rows[:most]
        most = None if most is None else most - len(rows)
        for lane in np.unique(rows[:, 4]):
            number, table = next(numbers), rows[np.ix_(rows[:, 4] == lane, columns)]
            write_whole(path(number), [np.ascontiguousarray(table.T).tobytes()], lasting=False)
            yield (
                int(lane),
                InputUnits(number, StoredIndex(partial(_table_index, path(number), len(columns))), 0, len(table)),
            )


def _table_index(path: str, width: int) -> SpoolIndex:
    """Return an index of consecutive records whose offsets and sizes are in a table with `width` columns."""
    _, _, sizes, *keys = rows_of(path, 0, os.path.getsize(path) // (width * _CELL), width)
    index = SpoolIndex(sizes)
    for column in keys:
        index.keys = column
    return index


def rows_of(path: str, first: int, count: int, width: int = 3) -> list[array[int]]:
    """Read rows of a table: group, offset in its spool and size of each record; for tars also the hash of the key."""
    columns = [array("Q") for _ in range(width)]
    with open(path, "rb") as file:
        height = os.fstat(file.fileno()).st_size // len(columns)
        for place, column in enumerate(columns):
            file.seek(place * height + first * _CELL)
            column.frombytes(file.read(count * _CELL))
    return columns


def _sorted(parts: list[InputUnits], folder: str, *, keyed: bool) -> Iterator[NDArray[np.generic]]:
    """Yield all records in order: order number, group, offset in the spool, size, lane number, and hash of the key."""
    from tempfile import TemporaryFile

    import numpy as np

    buckets = min(1 + sum(part.stop - part.first for part in parts) // SORTED_AT_ONCE, MOST_FILES)
    bounds = np.array([(2**64 * place) // buckets for place in range(1, buckets)], np.uint64)
    with ExitStack() as stack:
        with write_errors(folder):
            files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(buckets)]
            for rows in (rows for part in parts for rows in _rows(part, keyed=keyed)):
                bucket = np.searchsorted(bounds, rows[:, 0], side="right").astype(np.uint8)
                rows = rows[np.argsort(bucket, kind="stable")]
                ends = np.cumsum(np.bincount(bucket, minlength=buckets))
                for file, some in zip(files, np.split(rows, ends), strict=False):
                    file.write(some.tobytes())
        for file in files:
            file.seek(0)
            rows = np.frombuffer(file.read(), np.uint64).reshape(-1, 6 if keyed else 5)
            yield rows[np.argsort(rows[:, 0], kind="stable")]


def _rows(part: InputUnits, *, keyed: bool) -> Iterator[NDArray[np.generic]]:
    import numpy as np

    index = part.spool.loaded()
    stored = (index.order, index.sizes, index.lanes, index.keys)
    order, sizes, lanes, keys = (np.frombuffer(column, np.uint64) for column in stored)
    end = int(sizes[: part.first].sum())
    for first in range(part.first, part.stop, SORTED_AT_ONCE):
        here = slice(first, min(first + SORTED_AT_ONCE, part.stop))
        ends = end + np.cumsum(sizes[here], dtype=np.uint64)
        end = int(ends[-1])
        group, lane = np.full_like(ends, part.group), lanes[here] if lanes.size else np.zeros_like(ends)
        columns = [order[here], group, ends - sizes[here], sizes[here], lane]
        yield np.column_stack([*columns, keys[here]] if keyed else columns)


class Piece(NamedTuple):
    """Consecutive units of one group of inputs.

    Attributes:
        group: number of the group; without a spool, number of the input; for shuffled records, number of the table.
        first: number of the first unit.
        units: number of units.
        start: byte offset of the first unit in the spool or, if there is none, in the tar.
        size: size of the units on disk in bytes.
        spooled: whether there is a spool.
        copied: whether the bytes are copied unchanged from the input, without a spool.
    """

    group: int
    first: int
    units: int
    start: int
    size: int
    spooled: bool
    copied: bool = False


class InputRange(NamedTuple):
    """Consecutive records of one input in a shard: number of the input, of the first record, and of records."""

    source: int
    first: int
    records: int


@dataclass
class PlannedShard:
    """A shard to be written: its lane, its number in the lane (from 0), and its pieces in order.

    Attributes:
        size: size on disk in bytes.
        overhead: bytes of the size that belong to no unit.
        keys: for a tar, the number of each input with samples in it, and the hashes of their keys.
        origins: its records by input; empty if origins are not tracked.
        kept: the report of an earlier conversion's shard that is kept, in which case `pieces` is empty; otherwise None.
    """

    lane: str
    number: int
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0
    records: int = 0
    overhead: int = 0
    keys: list[tuple[int, array[int]]] = field(default_factory=list)
    origins: list[InputRange] = field(default_factory=list)
    kept: ShardReport | None = None

    @property
    def lane_and_number(self) -> tuple[str, int]:
        """Lane and number of the shard, which identify it."""
        return self.lane, self.number

    def part(self, folder: str) -> str:
        """Return the path of the unpublished shard in a working folder; an `--index` is written next to it."""
        return os.path.join(folder, f"shard-{self.lane}-{self.number:05d}.part")

    @property
    def groups(self) -> set[int]:
        """Return the numbers of the groups from which the shard's pieces come."""
        return {piece.group for piece in self.pieces}

    def add(self, part: InputUnits, unit: int, stop: int) -> int:
        """Append units, merging them with the last piece if adjacent; return their number of records.

        Args:
            part: the units of an input.
            unit: number of the first unit to append.
            stop: exclusive end of the units to append.
        """
        index, count = part.spool, stop - unit
        records, size = index.count(unit, stop), index.size(unit, stop)
        last = self.pieces[-1] if self.pieces else None
        if last and last.group == part.group and last.first + last.units == unit:
            units = last.units + count  # without `_replace`, which takes four times as long for each input
            self.pieces[-1] = Piece(last.group, last.first, units, last.start, last.size + size, *last[5:])
        else:
            self.pieces.append(Piece(part.group, unit, count, index.start(unit), size, not index.offsets, index.copied))
        self.size += size
        self.records += records
        return records

    def fill(self, parts: Mapping[int, InputUnits]) -> None:
        """Add the units of the shard's records, given inputs that have been read."""
        self.pieces, self.size, self.records = [], self.overhead, 0
        for origin in self.origins:
            part = parts[origin.source]
            self.add(part, *part.spool.units(part.first, origin.first, origin.records))

    def find_same_key(self) -> tuple[int, int] | None:
        """Return the numbers of two inputs, possibly equal, with samples of the same key; None if keys are unique.

        The hashes of keys are discarded.
        """
        runs, self.keys = self.keys, []
        if not _has_duplicates(array("Q", chain.from_iterable(keys for _, keys in runs))):
            return None
        owners: dict[int, int] = {}
        for source, key in ((source, key) for source, keys in runs for key in keys):
            if key in owners:
                return owners[key], source
            owners[key] = source
        return None

    def add_origin(self, origin: InputRange) -> None:
        """Add records to the origins."""
        last = self.origins[-1] if self.origins else None
        if last and (last.source, last.first + last.records) == (origin.source, origin.first):
            self.origins[-1] = last._replace(records=last.records + origin.records)
        else:
            self.origins.append(origin)


class ShardReport(NamedTuple):
    """Report on a written shard: bytes on disk, records, CRC-32C of the file."""

    size: int
    records: int
    crc: int


class LaneUnits(NamedTuple):
    """Consecutive units of an input that go into one lane: the first unit, and the number of units."""

    lane: str
    source: int
    part: InputUnits
    first: int
    length: int


_Range: TypeAlias = tuple[int, int]
"""The first unit and the exclusive end of consecutive units."""


class ShardPlanner:
    """Divides the units of inputs, added in input order, among shards, and yields each shard when it is full.

    Args:
        conversion: contains the limits, split, shuffle and number of shards.
        stems: the lane of each input: its stem for a path with `<input>`, its split if inputs belong to splits, or an
            empty text.
        records: total number of records in all inputs, if that is certain; otherwise `--num-shards` needs all
            indexes before the first shard can be planned.
        tracked: whether the origins of each shard's records are recorded.
        tables: sorts records into tables, if they are shuffled: `sorted_tables`.

    Attributes:
        full: whether `--limit` has been reached, so that further inputs add nothing.
        totals: number of shards per lane so far.
        seen: the samples so far, if duplicates are skipped.
        keys: the known keys of the samples so far.
    """

    def __init__(
        self,
        conversion: Conversion,
        stems: list[str],
        records: int | None = None,
        *,
        tracked: bool = False,
        tables: Callable[[Iterable[InputUnits], int | None], Iterator[tuple[int, InputUnits]]] | None = None,
    ) -> None:
        assert tables or not conversion.shuffle
        output = conversion.output
        self._lanes = _Lanes(conversion, stems)
        known = None if conversion.shuffle or self._lanes.by_stem else records
        self._limits = _ShardLimits(output, known)
        self._tables = tables if conversion.shuffle else None
        self._remaining = conversion.limit
        # with the keys of all shards, which are one tar
        self._stream = PlannedShard("", 0) if output.is_stream else None
        self._held: list[tuple[int, InputUnits, list[_Range]]] = []
        self.keys = KeyIndex()
        self._unique_keys = output.traits.holds == "sample"
        self.seen = DuplicateIndex() if conversion.drop_duplicates is not None else None
        self._tracked = tracked
        self._open: dict[str, PlannedShard] = {}
        self.totals: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """Whether the limit on samples is reached; never before the end if samples are shuffled."""
        return self._remaining == 0

    @property
    def needs_all_inputs(self) -> bool:
        """Whether every index is needed before the first shard can be planned."""
        return self._tables is not None or self._limits.lacks_total

    @property
    def open_shards(self) -> Iterable[PlannedShard]:
        """The shards that are not full yet."""
        return self._open.values()

    @property
    def open_groups(self) -> set[int]:
        """Return the numbers of the groups with units in incomplete shards."""
        return {piece.group for shard in self.open_shards for piece in shard.pieces}

    @property
    def tars(self) -> Iterable[PlannedShard]:
        """Yield the single tar of which all shards are parts, if they go to one stream."""
        return (self._stream,) if self._stream else ()

    def add(self, source: int, part: InputUnits) -> Iterator[PlannedShard]:
        """Divide the units of an input among shards, and yield each shard that is full."""
        ranges = [(part.first, part.stop)] if self.seen is None else self.seen.ranges(part)
        if self.needs_all_inputs:
            self._held.append((source, part, ranges))
            spool = part.spool.loaded()
            for first, stop in ranges:
                self.keys.add(source, spool.keys_of(first, stop))
            return
        runs = self._lanes.runs(source, part, ranges)
        for units in runs if self._remaining is None else _limited(runs, self._remaining):
            if self._remaining is not None:
                self._remaining -= units.length
            self.keys.add(source, part.spool.keys_of(units.first, units.first + units.length))
            yield from self._fill(units)
        if self._limits.by_input:
            yield from self._close()

    def finish(self) -> Iterator[PlannedShard]:
        """Yield the remaining shards once there are no more inputs."""
        tables = [*self._shuffled()] if self._tables else None
        if self._limits.lacks_total:
            self._limits.divide(tables or self._all_held())
        for units in self._all_held() if tables is None else tables:
            yield from self._fill(units)
        yield from self._close()

    def _all_held(self) -> Iterator[LaneUnits]:
        """Return all held units in input order, up to the limit on samples."""
        return _limited((units for held in self._held for units in self._lanes.runs(*held)), self._remaining)

    def _shuffled(self) -> Iterator[LaneUnits]:
        assert self._tables
        parts = (part._replace(first=first, stop=stop) for _, part, ranges in self._held for first, stop in ranges)
        for lane, part in self._tables(parts, self._remaining):
            yield LaneUnits(self._lanes.splits[lane], 0, part, 0, part.stop)

    def _fill(self, units: LaneUnits) -> Iterator[PlannedShard]:
        """Add units to the shards of their lane, and yield each shard that is full."""
        lane, source, part, unit, count = units
        part, end = part.loaded(), unit + count
        while unit < end:
            shard = self._open.get(lane) or self._opened(lane)
            stop = min(self._limits.room(shard, part.spool, unit), end)
            if stop == unit and shard.records:
                yield self._closed(lane)
                continue
            stop = max(stop, unit + 1)
            records = shard.add(part, unit, stop)
            if self._unique_keys:
                (self._stream or shard).keys.append((source, part.spool.keys_of(unit, stop)))
            if self._tracked:
                shard.add_origin(InputRange(source, part.spool.count(part.first, unit), records))
            unit = stop

    def _opened(self, lane: str) -> PlannedShard:
        """Begin a shard of a lane without an incomplete one."""
        overhead = self._limits.overhead
        shard = PlannedShard(lane, self.totals.get(lane, 0), size=overhead, overhead=overhead)
        self._open[lane] = shard
        return shard

    def _closed(self, lane: str) -> PlannedShard:
        self.totals[lane] = self.totals.get(lane, 0) + 1
        return self._open.pop(lane)

    def _close(self) -> Iterator[PlannedShard]:
        for lane in list(self._open):
            yield self._closed(lane)


class _Lanes:
    """The lanes of a conversion, and the lane of each unit.

    Args:
        conversion: determines the rule by which lanes are made.
        stems: the lane of each input, for `by_stem`.

    Attributes:
        splits: names of the splits; one empty text without any.
        by_stem: whether each input belongs to one lane.
    """

    def __init__(self, conversion: Conversion, stems: list[str]) -> None:
        self.splits = list(conversion.split) or [""]
        self.by_stem = "input" in conversion.output.template.fields or conversion.inputs_have_splits
        self._split = bool(conversion.split)
        self._stems = stems

    def runs(self, source: int, part: InputUnits, ranges: Iterable[_Range]) -> Iterator[LaneUnits]:
        """Divide ranges of an input's units into runs of consecutive units that go into one lane."""
        for first, stop in ranges:
            if not self._split:
                yield LaneUnits(self._stems[source] if self.by_stem else "", source, part, first, stop - first)
                continue
            for number, units in groupby(part.spool.loaded().lanes[first:stop]):
                count = sum(1 for _ in units)
                yield LaneUnits(self.splits[number], source, part, first, count)
                first += count


class _ShardLimits:
    """Limits the units of a shard by bytes, records, or number of shards.

    Args:
        output: contains the limits on bytes and records, and the number of shards.
        records: total number of records in the only lane, if that is certain.

    Attributes:
        overhead: bytes of a shard without any units.
        by_input: whether each shard ends with the input.
    """

    def __init__(self, output: Output, records: int | None) -> None:
        self.overhead = overhead_size(output)
        self.by_input = "input" in output.template.fields or output.is_stream
        self._output = output
        self._max_bytes, self._max_records = output.limit, output.records_per_shard
        self._quotas: dict[str, list[int]] = {}
        only = output.shards_in("")
        if records is not None and only:
            self._quotas = {"": _shares(records, only)}

    @property
    def lacks_total(self) -> bool:
        """Whether all records must be counted before the first shard can be planned, as `--num-shards` is given."""
        return self._output.num_shards is not None and not self._quotas

    def divide(self, runs: Iterable[LaneUnits]) -> None:
        """Divide all units equally among the given number of shards."""
        totals: Counter[str] = Counter()
        for units in runs:
            totals[units.lane] += units.length
        self._quotas = {lane: _shares(total, self._output.shards_in(lane) or 1) for lane, total in totals.items()}

    def room(self, shard: PlannedShard, index: SpoolIndex, unit: int) -> int:
        """Return the exclusive end of the units from `unit` on that fit into a shard."""
        stop = len(index.sizes)
        if self._max_bytes:
            stop = bisect_right(index.ends, index.ends[unit] + self._max_bytes - shard.size) - 1
        quotas = self._quotas.get(shard.lane)
        most = quotas[shard.number] if quotas else self._max_records
        if most:
            stop = min(stop, unit + most - shard.records)
        return max(stop, unit)


def _has_duplicates(keys: array[int]) -> bool:
    """Whether a number occurs twice."""
    data = keys.tobytes()
    return len(ordered(data)) < len(data)


def _limited(runs: Iterable[LaneUnits], most: int | None) -> Iterator[LaneUnits]:
    """Truncate runs of units to a total number; None for no limit."""
    for units in runs:
        if most == 0:
            return
        if most is not None:
            units = units._replace(length=min(units.length, most))
            most -= units.length
        yield units


def _shares(total: int, shards: int) -> list[int]:
    """Divide a number of records into shares that differ by at most one, the larger ones first."""
    least, larger = divmod(total, shards)
    return [least + (number < larger) for number in range(shards)]
