"""The output of an earlier conversion as `--update` sees it: which of its shards can be kept, by its manifest alone.

A shard of the earlier conversion is kept if all its records come from inputs that have not changed, are the next ones
in the new order, too, begin a shard with the same number, and are followed by nothing that would still fit into the
shard. Any other record is converted again, and so is read each input with such a record. As shards fill up in order and
do not depend on what comes later, except for the first unit after them, that gives what a new conversion would.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.sharding import Origin, Shard, ShardPlanner, Units
from tar2tf_cli.conversion.spool_index import SpoolIndex
from tar2tf_cli.conversion.tasks import ShardReport
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion

__all__ = ["Former", "UpdatePlanner"]


@dataclass(eq=False, slots=True)
class FormerShard:
    """A shard of the earlier conversion.

    Attributes:
        origins: with the numbers that the inputs have now.
        keepable: whether it is there, all its inputs are unchanged and their order is that of before; None while it is
            not known what comes after it.
    """

    lane: str
    number: int
    report: ShardReport
    origins: list[Origin]
    keepable: bool | None = None


class Segment(NamedTuple):
    """The records of one input in one shard.

    Attributes:
        first: size of the first unit in bytes.
        begins: whether the shard begins with them.
    """

    shard: FormerShard
    records: int
    first: int
    begins: bool


Segments = dict[str, list[Segment]]
"""The segments of an input in order, by lane."""


@dataclass(slots=True)
class Former:
    """What an earlier conversion with the same spec made of the inputs that have not changed since.

    Attributes:
        reports: the reports of these inputs, by the numbers that they have now.
        segments: their segments.
        shards: all shards.
        broken: numbers of those inputs that share a shard with one that changed or is gone, and must be read.
    """

    reports: dict[int, InputReport] = field(default_factory=dict)
    segments: dict[int, Segments] = field(default_factory=dict)
    shards: dict[tuple[str, int], FormerShard] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        inputs: Sequence[dict[str, Any]],
        lane_of: Callable[[str | None, str], str],
        is_there: Callable[[str, int], bool],
    ) -> Former:
        """Compare a manifest with the inputs of a new conversion.

        Args:
            manifest: the manifest, with its lineage.
            inputs: the inputs as the new manifest describes them.
            lane_of: the lane of a shard, by its split and the name of its first input.
            is_there: whether the sink has a shard of this path and size.
        """
        former, now = cls(), _renumbered(manifest.inputs, inputs)
        for before, source in now.items():
            former.reports[source] = manifest.reports[before]
            former.segments[source] = {}
        totals: dict[str, int] = defaultdict(int)
        for entry in manifest.shards:
            lane = lane_of(entry.split, manifest.inputs[entry.origins[0].source]["name"])
            report = ShardReport(entry.bytes, entry.records, int(entry.digest.rpartition(":")[2], 16))
            origins = [origin._replace(source=now.get(origin.source, -1)) for origin in entry.origins]
            shard = FormerShard(lane, totals[lane], report, origins)
            totals[lane] += 1
            former._add(shard, is_there(entry.path, entry.bytes))
        return former

    def _add(self, shard: FormerShard, is_there: bool) -> None:
        sources = [origin.source for origin in shard.origins]
        if not is_there or -1 in sources:
            shard.keepable = False
            self.broken.update(source for source in sources if source >= 0)
        self.shards[shard.lane, shard.number] = shard
        for place, (source, records, _, first) in enumerate(shard.origins):
            if source >= 0:
                found = self.segments[source].setdefault(shard.lane, [])
                found.append(Segment(shard, records, first, place == 0))


def _renumbered(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The numbers that unchanged inputs have now, by their numbers before."""
    numbers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for number, entry in enumerate(now):
        if entry["version"] is not None:
            numbers[tuple(entry.values())].append(number)
    found: dict[int, int] = {}
    for number, entry in enumerate(before):
        if same := numbers.get(tuple(entry[name] for name in ("name", "size", "version"))):
            found[number] = same.popleft()
    return found


_END: Final = -1


class UpdatePlanner(ShardPlanner):
    """Divides units among shards as `ShardPlanner` does, and keeps the shards of an earlier conversion where it can.

    Args:
        conversion: the conversion, in which each shard depends only on the inputs up to it.
        stems: the inputs' stems.
        former: the earlier conversion.
        load: returns the index of an input; None if it has not been read yet.
    """

    def __init__(
        self,
        conversion: Conversion,
        stems: list[str],
        former: Former,
        load: Callable[[int], SpoolIndex | None],
    ) -> None:
        super().__init__(conversion, stems, tracked=True)
        self._former = former
        self._load = load
        self._firsts: dict[int, dict[str, int]] = {}
        self._unread = 0  # the last input that turned out to be unread
        self._current: dict[str, FormerShard] = {}  # the last shard that was kept, by lane

    @property
    def reads(self) -> Iterable[int]:
        """Numbers of the inputs that certainly have to be read: new and changed ones, and those beside them."""
        former = self._former
        return [number for number in super().reads if number not in former.segments or number in former.broken]

    def awaits(self, source: int) -> int | None:
        """The number of the input after a shard that begins with this one, as long as it is not read."""
        lasts = [found[-1].shard for found in self._former.segments.get(source, {}).values()]
        return self._unread if any(self._keepable(shard) is None for shard in lasts) else None

    def known(self, source: int) -> InputReport | None:
        """The report of an input that need not be read; None if it must be."""
        if source not in self._former.segments:
            return None
        for lane, found in self._former.segments[source].items():
            total, shard, current = self.totals.get(lane, 0), self._open.get(lane), self._current.get(lane)
            for segment in found:
                if segment.shard is not current:
                    if not self._continues(segment, total, shard):
                        return None
                    total, shard, current = segment.shard.number + 1, None, segment.shard
        return self._former.reports[source]

    def add(self, source: int, index: SpoolIndex | None) -> Iterator[Shard]:
        """Divide an input's units among shards; without an index, all of them are in shards that are kept."""
        segments = self._former.segments.get(source)
        if segments is None:
            assert index is not None
            yield from super().add(source, index)
            return
        if index is None:
            for lane, found in segments.items():
                for segment in found:
                    yield from self._keep(lane, segment)
        else:
            left = {lane: deque((segment, segment.records) for segment in found) for lane, found in segments.items()}
            for units in self._runs(source, index):
                yield from self._fill_around(units, left.get(units.lane, deque()))
        if self._by_input:
            yield from self._close()

    def _fill_around(self, units: Units, left: deque[tuple[Segment, int]]) -> Iterator[Shard]:
        """Add units to shards, except those in shards that are kept; `left` has the segments and records to come."""
        lane, source, index, unit, count = units
        end = unit + count
        while unit < end:
            if not left:  # more than before, although the input says that it has not changed
                yield from self._fill(Units(lane, source, index, unit, end - unit))
                return
            segment, records = left.popleft()
            if records == segment.records:
                yield from self._keep(lane, segment)
            stop = unit
            while stop < end and records > 0:
                taken = index.records[stop] if index.records else min(records, end - stop)
                records -= taken
                stop += 1 if index.records else taken
            if segment.shard is not self._current.get(lane):
                yield from self._fill(Units(lane, source, index, unit, stop - unit))
            if records > 0:
                left.appendleft((segment, records))
            unit = stop

    def _keep(self, lane: str, segment: Segment) -> Iterator[Shard]:
        """Keep the shard that a segment begins, if that is possible; yields it, and an incomplete one before it."""
        former = segment.shard
        if former is self._current.get(lane):
            return
        if self._continues(segment, self.totals.get(lane, 0), self._open.get(lane)):
            if lane in self._open:
                yield self._closed(lane)
            self.totals[lane] = former.number + 1
            self._current[lane] = former
            size = sum(origin.size for origin in former.origins)
            yield Shard(lane, former.number, [], size, former.report.records, former.origins, kept=True)

    def _continues(self, segment: Segment, total: int, shard: Shard | None) -> bool:
        """Whether a segment's shard can be kept after `total` shards and an incomplete one."""
        if not segment.begins or segment.shard.number != total + (shard is not None):
            return False
        fits = shard is not None and self._fits(shard.size, shard.records, segment.first)
        return not fits and bool(self._keepable(segment.shard))

    def _fits(self, size: int, records: int, first: int) -> bool:
        """Whether a unit fits into a shard that has records already."""
        too_large = self._max_bytes is not None and size + first > self._max_bytes
        return not too_large and (self._max_records is None or records < self._max_records)

    def _keepable(self, shard: FormerShard) -> bool | None:
        """Whether a shard's records follow each other now, and nothing would be added to it; None if not known yet."""
        if shard.keepable is None:
            shard.keepable = self._compare(shard)
        return shard.keepable

    def _compare(self, shard: FormerShard) -> bool | None:
        for origin, following in pairwise(shard.origins):
            behind = self._behind(origin.source, shard.lane)
            if behind is None or behind[0] != following.source:
                return None if behind is None else False
        size = sum(origin.size for origin in shard.origins)
        if self._goes_on(shard) or not self._fits(size, shard.report.records, 0):
            return True
        behind = self._behind(shard.origins[-1].source, shard.lane)
        if behind is None:
            return None
        return behind[0] == _END or not self._fits(size, shard.report.records, behind[1])

    def _goes_on(self, shard: FormerShard) -> bool:
        """Whether the next record after a shard is one of the same input, as before."""
        last = self._former.segments[shard.origins[-1].source][shard.lane][-1]
        return last.shard is not shard

    def _behind(self, source: int, lane: str) -> tuple[int, int] | None:
        """The next input with units in a lane, and the size of the first; None if that is not known yet."""
        for number in range(source + 1, source + 1 if self._by_input else len(self._inputs)):
            firsts = self._firsts_of(number)
            if firsts is None:
                return None
            if lane in firsts:
                return number, firsts[lane]
        return _END, 0

    def _firsts_of(self, source: int) -> dict[str, int] | None:
        """Size of the first unit of an input in each lane; None if it has not been read yet."""
        if source not in self._firsts:
            if source in self._former.segments:
                found = {lane: found[0].first for lane, found in self._former.segments[source].items()}
            elif (index := self._load(source)) is None:
                self._unread = source
                return None
            else:
                runs = [*self._runs(source, index)][::-1]
                found = {units.lane: index.sizes[units.first] for units in runs if units.length}
            self._firsts[source] = found
        return self._firsts[source]
