"""Divides records among shards for `--update`, and keeps the shards of the earlier conversion where it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from tar2tf_cli.conversion.former import Former, FormerShard, Segment, Segments
from tar2tf_cli.conversion.sharding import Shard, ShardPlanner, Units
from tar2tf_cli.conversion.spool_index import Part, SpoolIndex
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion

__all__ = ["UpdatePlanner"]

_END: Final = -1


class UpdatePlanner(ShardPlanner):
    """Divides units among shards as `ShardPlanner` does, and keeps the shards of an earlier conversion where it can.

    Args:
        conversion: the conversion, in which each shard depends only on the inputs up to it.
        stems: the inputs' stems.
        former: the earlier conversion.
        load: returns the units of an input; None if it has not been read yet.
        is_same: whether a part of a group's spool and of a former shard have the same bytes; called with the number of
            the group, the offset in the spool, the path of the shard, the offset in it, and the size of both.
    """

    def __init__(
        self,
        conversion: Conversion,
        stems: list[str],
        former: Former,
        load: Callable[[int], Part | None],
        is_same: Callable[[int, int, str, int, int], bool] = lambda *part: False,
    ) -> None:
        super().__init__(conversion, stems, tracked=True)
        self._former = former
        self._load = load
        self._is_same = is_same
        self._firsts: dict[int, dict[str, int]] = {}
        self._unread = 0  # the last input that turned out to be unread
        self._current: dict[str, FormerShard] = {}  # the last shard that was kept, by lane

    @property
    def reads(self) -> Sequence[int]:
        """Numbers of the inputs that certainly have to be read: new and changed ones, and those beside them."""
        former = self._former
        return [number for number in super().reads if number not in former.segments or number in former.broken]

    def awaits(self, source: int) -> int | None:
        """The number of the input after a shard that begins with this one, as long as it is not read."""
        if self._is_unchanged(source) is None:
            return self._unread
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
        return self._former.report(source)

    def add(self, source: int, part: Part | None) -> Iterator[Shard]:
        """Divide an input's units among shards; without them, all are in shards that are kept."""
        segments = self._former.segments.get(source)
        if segments is None:
            yield from super().add(source, part)
            return
        if part is None:
            for lane, found in segments.items():
                for segment in found:
                    yield from self._keep(lane, segment)
        else:
            left = {lane: deque((segment, segment.records) for segment in found) for lane, found in segments.items()}
            for units in self._runs(source, part):
                yield from self._fill_around(units, left.get(units.lane, deque()))
        if self._by_input:
            yield from self._close()

    def _fill_around(self, units: Units, left: deque[tuple[Segment, int]]) -> Iterator[Shard]:
        """Add units to shards, except those in shards that are kept; `left` has the segments and records to come."""
        lane, source, part, unit, count = units
        end = unit + count
        while unit < end:
            if not left:  # more than before, although the input says that it has not changed
                yield from self._fill(Units(lane, source, part, unit, end - unit))
                return
            segment, records = left.popleft()
            if records == segment.records:
                yield from self._keep(lane, segment)
            stop, records = _taken(part.spool, unit, end, records)
            if segment.shard is not self._current.get(lane):
                yield from self._fill(Units(lane, source, part, unit, stop - unit))
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
        for origin in shard.origins:
            if (unchanged := self._is_unchanged(origin.source)) is not True:
                return unchanged
        for origin, following in pairwise(shard.origins):
            behind = self._behind(origin.source, shard.lane)
            if behind is None or behind[0] != following.source:
                return None if behind is None else False
        size = sum(origin.size for origin in shard.origins)
        last = shard.origins[-1].source
        goes_on = self._former.segments[last][shard.lane][-1].shard is not shard  # with a record of the same input
        if goes_on or not self._fits(size, shard.report.records, 0):
            return True
        behind = self._behind(last, shard.lane)
        if behind is None:
            return None
        return behind[0] == _END or not self._fits(size, shard.report.records, behind[1])

    def _is_unchanged(self, source: int) -> bool | None:
        """Whether an input gave the same records before; None if it must be read to know that, and has not been."""
        segments = self._former.touched.get(source)
        if segments is not None:
            if (part := self._load(source)) is None:
                self._unread = source
                return None
            del self._former.touched[source]
            if self._has_same_records(source, part, dict(segments)):
                self._former.segments[source] = segments
        return source in self._former.segments

    def _has_same_records(self, source: int, part: Part, segments: Segments) -> bool:
        """Compare the records of an input with those in former shards."""
        index = part.spool
        for lane, _, _, unit, count in self._runs(source, part):
            end = unit + count
            for segment in segments.pop(lane, ()):
                stop, missing = _taken(index, unit, end, segment.records)
                start, size = index.start(unit), index.size(unit, stop)
                if missing or not self._is_same(part.group, start, segment.shard.path, segment.position, size):
                    return False
                unit = stop
            if unit < end:
                return False
        return not segments

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
            elif (part := self._load(source)) is None:
                self._unread = source
                return None
            else:
                runs = [*self._runs(source, part)][::-1]
                found = {units.lane: part.spool.sizes[units.first] for units in runs if units.length}
            self._firsts[source] = found
        return self._firsts[source]


def _taken(index: SpoolIndex, unit: int, end: int, records: int) -> tuple[int, int]:
    """The exclusive end of the units that hold some records from a unit on, and how many records are missing then."""
    if not index.records:
        taken = min(records, end - unit)
        return unit + taken, records - taken
    while unit < end and records > 0:
        records -= index.records[unit]
        unit += 1
    return unit, records
