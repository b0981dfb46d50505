"""The output of an earlier conversion as `--update` sees it, by its manifest alone."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tar2tf_cli.conversion.lineage import Lineage
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.sharding import Origin, ShardReport
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.stores import ObjectInfo

__all__ = ["Content", "EarlierOutput", "EarlierShard", "Segment"]


class Content(NamedTuple):
    """Which records a shard holds: so many of each input, those of the first input after the ones in earlier shards.

    Attributes:
        skipped: how many records of the first origin's input are in the shards before it.
        origins: what it holds of each input.
    """

    skipped: int = 0
    origins: Sequence[Origin] = ()

    def followed_by(self, origins: list[Origin]) -> Content:
        """The content of the next shard of the lane."""
        if not self.origins or self.origins[-1].source != origins[0].source:
            return Content(0, origins)
        return Content(self.origins[-1].records + (self.skipped if len(self.origins) == 1 else 0), origins)


class EarlierShard(NamedTuple):
    """A shard of the earlier conversion.

    Attributes:
        content: with the numbers that the inputs have now; -1 for one that changed or is gone.
        there: whether the sink still has it.
    """

    content: Content
    report: ShardReport
    there: bool


class Segment(NamedTuple):
    """The records of one input in one shard.

    Attributes:
        number: the number of the shard in its lane.
        records: how many records of other inputs the shard has before them.
        size: the size of those in bytes.
        origin: what the shard holds of this input.
    """

    number: int
    records: int
    size: int
    origin: Origin

    @property
    def begins(self) -> bool:
        """Whether the shard begins with them."""
        return not self.records


@dataclass(slots=True, eq=False, repr=False)
class EarlierOutput:
    """What an earlier conversion with the same spec made.

    Attributes:
        lineage: what reading its inputs reported.
        numbers: the numbers that unchanged inputs had then, by the numbers that they have now.
        segments: the segments of each unchanged input, in order and by lane.
        shards: all shards, by lane and number.
        broken: unchanged inputs with records in a shard that is gone, or that others of its inputs changed.
    """

    lineage: Lineage
    numbers: dict[int, int]
    segments: dict[int, dict[str, list[Segment]]]
    shards: dict[tuple[str, int], EarlierShard] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        inputs: Sequence[ObjectInfo],
        lane_of: Callable[[str | None, str], str],
        is_there: Callable[[str, int], bool],
    ) -> EarlierOutput:
        """Compare a manifest with the inputs of a new conversion.

        Args:
            manifest: the manifest, with its lineage.
            inputs: the inputs of the new conversion.
            lane_of: the lane of a shard, by its split and the name of its first input.
            is_there: whether the sink has a shard of this path and size.
        """
        now = _renumbered(manifest.inputs, inputs)
        before = {new: old for old, new in now.items()}
        earlier = cls(manifest.lineage or Lineage(), before, {number: {} for number in before})
        totals: Counter[str] = Counter()
        contents: dict[str, Content] = defaultdict(Content)
        for entry in manifest.shards:
            lane = lane_of(entry.split, manifest.inputs[entry.origins[0].source].name)
            origins = [origin._replace(source=now.get(origin.source, -1)) for origin in entry.origins]
            content = contents[lane] = contents[lane].followed_by(origins)
            report = ShardReport(entry.bytes, entry.records, int(entry.digest.rpartition(":")[2], 16))
            earlier._add(lane, totals[lane], EarlierShard(content, report, is_there(entry.path, entry.bytes)))
            totals[lane] += 1
        return earlier

    def report(self, source: int) -> InputReport:
        """What reading an unchanged input reported."""
        return self.lineage.report(self.numbers[source])

    def _add(self, lane: str, number: int, shard: EarlierShard) -> None:
        self.shards[lane, number] = shard
        unchanged = {origin.source for origin in shard.content.origins} - {-1}
        if not shard.there or len(unchanged) < len(shard.content.origins):
            self.broken |= unchanged
        records = size = 0
        for origin in shard.content.origins:
            if origin.source >= 0:
                self.segments[origin.source].setdefault(lane, []).append(Segment(number, records, size, origin))
            records += origin.records
            size += origin.size


def _renumbered(before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> dict[int, int]:
    """The numbers that unchanged inputs have now, by their numbers before."""
    numbers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for number, item in enumerate(now):
        if item.version is not None:
            numbers[item[:3]].append(number)
    found: dict[int, int] = {}
    for number, item in enumerate(before):
        if same := numbers.get(item[:3]):
            found[number] = same.popleft()
    return found
