"""Divides records among shards for `--update`, and keeps the shards of the earlier conversion that are the same.

Where an unchanged input begins at the same record and byte of the same shard as before, all its records are in the same
shards as before, as that depends on nothing else: it need not be read to know how they fill up. A shard that turns out
to have the records that it had before is kept. Any other is written, for which its inputs are read after all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tar2tf_cli.conversion.earlier import Content, EarlierOutput, Segment
from tar2tf_cli.conversion.sharding import Shard, ShardPlanner
from tar2tf_cli.conversion.spool_index import Part, SpoolIndex
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion

__all__ = ["UpdatePlanner"]


class UpdatePlanner(ShardPlanner):
    """Divides units among shards as `ShardPlanner` does, and says which shards of an earlier conversion are the same.

    Args:
        conversion: the conversion, in which each shard depends only on the inputs up to it.
        stems: the inputs' stems.
        earlier: the earlier conversion.
    """

    def __init__(self, conversion: Conversion, stems: list[str], earlier: EarlierOutput) -> None:
        super().__init__(conversion, stems, tracked=True)
        self._earlier = earlier
        self._contents: dict[str, Content] = defaultdict(Content)  # of the last shard of each lane
        self._parts: dict[int, Part] = {}  # of inputs that were read, perhaps with records in open or waiting shards
        self._waiting: list[tuple[Shard, Content]] = []  # shards with records of inputs that must be read
        self._closed_any = False  # since units were last forgotten

    @property
    def reads(self) -> Sequence[int]:
        """Numbers of the inputs that certainly have to be read: new and changed ones, and those beside them."""
        earlier = self._earlier
        return [number for number in super().reads if number not in earlier.segments or number in earlier.broken]

    @property
    def missing(self) -> Sequence[int]:
        """Numbers of inputs added before that have to be read before another is added, in ascending order."""
        return sorted({origin.source for shard, _ in self._waiting for origin in shard.origins} - self._parts.keys())

    @property
    def open_groups(self) -> set[int]:
        """Numbers of the groups with units in incomplete shards."""
        return {part.group for part in self._parts.values()}

    def known(self, source: int) -> InputReport | None:
        """The report of an unchanged input that begins where it did in each lane; None if it must be read."""
        segments = self._earlier.segments.get(source)
        if segments is None or source in self._earlier.broken:
            return None
        in_place = all(self._is_in_place(lane, first) for lane, (first, *_) in segments.items())
        return self._earlier.report(source) if in_place else None

    def _is_in_place(self, lane: str, segment: Segment) -> bool:
        shard, number = self._open.get(lane), self.totals.get(lane, 0)
        if shard and segment.begins and not self._room(shard, SpoolIndex([segment.origin.first]), 0):
            shard, number = None, number + 1
        before = (shard.records, shard.size) if shard else (0, 0)
        return (number, *before) == (segment.number, segment.records, segment.size)

    def add(self, source: int, part: Part | None) -> Iterator[Shard]:
        """Divide an input's units among shards, or take those of an input that is missing.

        Yields:
            Shards that are the same as before, and others as soon as all their inputs have been read.
        """
        if part:
            self._parts[source] = part
        if not self._waiting:
            yield from self._unless_waiting(super().add(source, part) if part else self._put_in_place(source))
        yield from self._released()

    def finish(self) -> Iterator[Shard]:
        """Yield the remaining shards once there are no more inputs."""
        yield from self._unless_waiting(super().finish())
        yield from self._released()

    def _put_in_place(self, source: int) -> Iterator[Shard]:
        """Add the records of an input to shards as before, without knowing their units."""
        for lane, segments in self._earlier.segments[source].items():
            for segment in segments:
                if segment.begins and lane in self._open:
                    yield self._closed(lane)
                shard = self._opened(lane)
                shard.records += segment.origin.records
                shard.size += segment.origin.size
                shard.came_from(segment.origin)
        if self._by_input:
            yield from self._close()

    def _unless_waiting(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Compare each shard with the earlier one; one that is not the same waits until all its units are known."""
        for shard in shards:
            content = self._contents[shard.lane] = self._contents[shard.lane].followed_by(shard.origins)
            earlier = self._earlier.shards.get(shard.place)
            if earlier and earlier.there and earlier.content == content:
                shard.pieces, shard.kept = [], earlier.report
                yield shard
            elif sum(piece.size for piece in shard.pieces) == shard.size:
                yield shard
            else:
                self._waiting.append((shard, content))
            self._closed_any = True

    def _released(self) -> Iterator[Shard]:
        """Yield the waiting shards if nothing is missing, and forget the units that no shard to come needs."""
        if self.missing:
            return
        yield from (self._filled_in(*waiting) for waiting in self._waiting)
        if self._waiting or self._closed_any:
            self._waiting, self._closed_any = [], False
            needed = {origin.source for shard in self._open.values() for origin in shard.origins}
            self._parts = {source: part for source, part in self._parts.items() if source in needed}

    def _filled_in(self, shard: Shard, content: Content) -> Shard:
        """Find the units of a shard's records, now that its inputs have been read."""
        shard.pieces, shard.size, shard.records = [], 0, 0
        skipped = content.skipped
        for source, records, *_ in content.origins:
            part = self._parts[source]
            runs = (run for run in self._runs(source, part) if run.lane == shard.lane)
            for unit in (unit for run in runs for unit in range(run.first, run.first + run.length)):
                if skipped <= 0 < skipped + records:
                    shard.add(part, unit, unit + 1)
                skipped -= part.spool.count(unit, unit + 1)
            skipped = 0
        return shard
