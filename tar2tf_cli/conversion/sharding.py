"""Decides which record goes into which shard: takes the sizes of records and returns lists of pieces, without any I/O.

A **unit** is a record or, when the limit applies to gzip blocks, a block of records. A **piece** is a run of
consecutive units of one input. A **lane** is a numbered series of shards: one per split, one per input with `<input>`,
otherwise a single one. A shard is closed before the unit that would exceed its limit; a unit larger than the limit gets
a shard of its own.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from tar2tf_cli.conversion.spool import Part, SpoolIndex

if TYPE_CHECKING:
    from tar2tf_cli.spec.conversion import Conversion


class Piece(NamedTuple):
    """Consecutive units of one group of inputs.

    Attributes:
        group: number of the group; without a spool, that of the input; of shuffled records, that of the table.
        first: number of the first unit.
        units: number of units.
        start: byte offset of the first unit in the spool or, if there is none, in the tar.
        size: size of the units on disk in bytes.
        spooled: whether there is a spool.
    """

    group: int
    first: int
    units: int
    start: int
    size: int
    spooled: bool


class Origin(NamedTuple):
    """Consecutive records of one input that a shard holds: number of the input, of the first record, and how many."""

    source: int
    first: int
    records: int


@dataclass(slots=True)
class Shard:
    """A shard to be written: its lane, its number in the lane (from 0), and its pieces in order.

    Attributes:
        origins: what it holds, by input; empty if this is not tracked.
        kept: the report of the earlier conversion's shard if that is kept, which has no pieces here; otherwise None.
    """

    lane: str
    number: int
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0
    records: int = 0
    origins: list[Origin] = field(default_factory=list)
    kept: ShardReport | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Lane and number, which identify the shard."""
        return self.lane, self.number

    def part(self, folder: str) -> str:
        """Path of the shard in a working folder before it is published; an `--index` is written beside it."""
        return os.path.join(folder, f"shard-{self.lane}-{self.number:05d}.part")

    @property
    def groups(self) -> set[int]:
        """Numbers of the groups that its pieces come from."""
        return {piece.group for piece in self.pieces}

    def add(self, part: Part, unit: int, stop: int) -> int:
        """Append units, merged with the last piece if they are adjacent; returns the number of records.

        Args:
            part: the units of an input.
            unit: the first one to append.
            stop: the exclusive end of those to append.
        """
        index, count = part.spool, stop - unit
        records, size = index.count(unit, stop), index.size(unit, stop)
        last = self.pieces[-1] if self.pieces else None
        if last and last.group == part.group and last.first + last.units == unit:
            self.pieces[-1] = last._replace(units=last.units + count, size=last.size + size)
        else:
            self.pieces.append(Piece(part.group, unit, count, index.start(unit), size, not index.offsets))
        self.size += size
        self.records += records
        return records

    def fill(self, parts: Mapping[int, Part]) -> None:
        """Find the units of the records that it holds, in inputs that have been read."""
        self.pieces, self.size, self.records = [], 0, 0
        for origin in self.origins:
            part = parts[origin.source]
            self.add(part, *part.spool.units(part.first, origin.first, origin.records))

    def came_from(self, origin: Origin) -> None:
        """Add records to the origins."""
        last = self.origins[-1] if self.origins else None
        if last and (last.source, last.first + last.records) == (origin.source, origin.first):
            self.origins[-1] = last._replace(records=last.records + origin.records)
        else:
            self.origins.append(origin)


class ShardReport(NamedTuple):
    """A shard as written: bytes on disk, records, CRC-32C of the file."""

    size: int
    records: int
    crc: int


class Units(NamedTuple):
    """Consecutive units of an input that go into one lane: number of the first, and how many."""

    lane: str
    source: int
    part: Part
    first: int
    length: int


class ShardPlanner:
    """Takes the indexes of inputs in input order and yields shards as they fill up.

    Args:
        conversion: gives the limits, split, shuffle and number of shards.
        stems: the inputs' stems, for a path with `<input>`.
        records: total number of records in all inputs, if that is certain; otherwise `--num-shards` needs all
            indexes before the first shard can be planned.
        tracked: whether each shard's origins are noted.
        tables: sorts records into tables, if they are shuffled: `sorted_tables`.

    Attributes:
        full: whether `--limit` is reached, so that further inputs add nothing.
        totals: number of shards per lane so far.
    """

    def __init__(
        self,
        conversion: Conversion,
        stems: list[str],
        records: int | None = None,
        *,
        tracked: bool = False,
        tables: Callable[[Iterable[Part], int | None], Iterator[tuple[int, Part]]] | None = None,
    ) -> None:
        assert tables or not conversion.shuffle
        output = conversion.output
        self._max_bytes = output.limit
        self._max_records = output.records_per_shard
        self._num_shards = output.num_shards
        self._tables = tables if conversion.shuffle else None
        self._remaining = conversion.limit
        self._lanes = list(conversion.split) or [""]
        self._split = bool(conversion.split)
        self._stems = stems
        self._by_stem = "input" in output.template.fields
        self._by_input = self._by_stem or output.is_stream
        self._held: list[tuple[int, Part]] = []
        self._quotas: dict[str, list[int]] = {}
        if records is not None and self._num_shards and not (conversion.shuffle or self._by_stem):
            self._quotas = {"": _shares(records, self._num_shards)}
        self._tracked = tracked
        self._open: dict[str, Shard] = {}
        self.totals: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """Whether the limit on samples is reached; if they are shuffled, never before the end."""
        return self._remaining == 0

    @property
    def holds_all(self) -> bool:
        """Whether every index is needed before the first shard can be planned."""
        return self._tables is not None or (self._num_shards is not None and not self._quotas)

    @property
    def open_shards(self) -> Iterable[Shard]:
        """The shards that are incomplete."""
        return self._open.values()

    @property
    def open_groups(self) -> set[int]:
        """Numbers of the groups with units in incomplete shards."""
        return {piece.group for shard in self.open_shards for piece in shard.pieces}

    def add(self, source: int, part: Part) -> Iterator[Shard]:
        """Divide the units of an input, given by its number, among shards; yields each shard that is completed."""
        if self.holds_all:
            self._held.append((source, part))
            return
        for units in _limited(self._runs(source, part), self._remaining):
            if self._remaining is not None:
                self._remaining -= units.length
            yield from self._fill(units)
        if self._by_input:
            yield from self._close()

    def finish(self) -> Iterator[Shard]:
        """Yield the remaining shards once there are no more inputs."""
        tables = [*self._shuffled()] if self._tables else None
        if self._num_shards and not self._quotas:
            self._quotas = _equal_shares(tables or self._all_held(), self._num_shards)
        for units in self._all_held() if tables is None else tables:
            yield from self._fill(units)
        yield from self._close()

    def _all_held(self) -> Iterator[Units]:
        """All units that wait, in input order and up to the limit."""
        return _limited((units for held in self._held for units in self._runs(*held)), self._remaining)

    def _shuffled(self) -> Iterator[Units]:
        assert self._tables
        for lane, part in self._tables((part for _, part in self._held), self._remaining):
            yield Units(self._lanes[lane], 0, part, 0, part.stop)

    def _runs(self, source: int, part: Part) -> Iterator[Units]:
        """An input's units, as runs of consecutive units that go into the same lane."""
        first, stop = part.first, part.stop
        if not self._split:
            yield Units(self._stems[source] if self._by_stem else "", source, part, first, stop - first)
            return
        for number, units in groupby(part.spool.loaded().lanes[first:stop]):
            count = sum(1 for _ in units)
            yield Units(self._lanes[number], source, part, first, count)
            first += count

    def _fill(self, units: Units) -> Iterator[Shard]:
        """Add units to the shards of their lane; yields each shard that is full."""
        lane, source, part, unit, count = units
        part, end = part._replace(spool=part.spool.loaded()), unit + count
        while unit < end:
            shard = self._opened(lane)
            stop = min(self._room(shard, part.spool, unit), end)
            if stop == unit and shard.records:
                yield self._closed(lane)
                continue
            stop = max(stop, unit + 1)
            records = shard.add(part, unit, stop)
            if self._tracked:
                shard.came_from(Origin(source, part.spool.count(part.first, unit), records))
            unit = stop

    def _opened(self, lane: str) -> Shard:
        """The incomplete shard of a lane, perhaps a new one."""
        if lane not in self._open:
            self._open[lane] = Shard(lane, self.totals.get(lane, 0))
        return self._open[lane]

    def _room(self, shard: Shard, index: SpoolIndex, unit: int) -> int:
        """The exclusive end of the units from `unit` on that fit into a shard."""
        stop = len(index.sizes)
        if self._max_bytes:
            stop = bisect_right(index.ends, index.ends[unit] + self._max_bytes - shard.size) - 1
        quotas = self._quotas.get(shard.lane)
        most = quotas[shard.number] if quotas else self._max_records
        if most:
            stop = min(stop, unit + most - shard.records)
        return max(stop, unit)

    def _closed(self, lane: str) -> Shard:
        self.totals[lane] = self.totals.get(lane, 0) + 1
        return self._open.pop(lane)

    def _close(self) -> Iterator[Shard]:
        for lane in list(self._open):
            yield self._closed(lane)


def _limited(runs: Iterable[Units], most: int | None) -> Iterator[Units]:
    """The first units, at most so many of them; all if there is no limit."""
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


def _equal_shares(runs: Iterable[Units], shards: int) -> dict[str, list[int]]:
    """The number of records for each shard of each lane."""
    totals: Counter[str] = Counter()
    for units in runs:
        totals[units.lane] += units.length
    return {lane: _shares(total, shards) for lane, total in totals.items()}
