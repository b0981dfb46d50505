"""The output of an earlier conversion as `--update` sees it: which of its shards can be kept, by its manifest alone.

A shard of the earlier conversion is kept if all its records come from inputs that have not changed, are the next ones
in the new order, too, begin a shard with the same number, and are followed by nothing that would still fit into the
shard. Any other record is converted again, and so is read each input with such a record. As shards fill up in order and
do not depend on what comes later, except for the first unit after them, that gives what a new conversion would.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tar2tf_cli.conversion.lineage import Lineage
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.sharding import Origin
from tar2tf_cli.conversion.writing import ShardReport
from tar2tf_cli.inputs.report import InputReport

__all__ = ["Former", "FormerShard", "Segment", "Segments"]


@dataclass(slots=True, eq=False, repr=False)
class FormerShard:
    """A shard of the earlier conversion.

    Attributes:
        path: its path in the sink.
        origins: with the numbers that the inputs have now.
        keepable: whether it is there, all its inputs are unchanged and their order is that of before; None while it is
            not known what comes after it.
    """

    lane: str
    number: int
    report: ShardReport
    origins: list[Origin]
    path: str = ""
    keepable: bool | None = None


class Segment(NamedTuple):
    """The records of one input in one shard.

    Attributes:
        first: size of the first unit in bytes.
        position: byte offset of the first unit in the shard, if that is not compressed as a whole.
        begins: whether the shard begins with them.
    """

    shard: FormerShard
    records: int
    first: int
    position: int
    begins: bool


Segments = dict[str, list[Segment]]
"""The segments of an input in order, by lane."""


@dataclass(slots=True, eq=False, repr=False)
class Former:
    """What an earlier conversion with the same spec made of the inputs that have not changed since.

    Attributes:
        lineage: what reading the inputs reported then.
        before: the numbers that these inputs had then, by the numbers that they have now.
        segments: their segments.
        touched: segments that other inputs would have if only their version has changed, such as the modification time.
        shards: all shards.
        broken: numbers of those inputs that share a shard with one that changed or is gone, and must be read.
    """

    lineage: Lineage = field(default_factory=Lineage)
    before: dict[int, int] = field(default_factory=dict)
    segments: dict[int, Segments] = field(default_factory=dict)
    touched: dict[int, Segments] = field(default_factory=dict)
    shards: dict[tuple[str, int], FormerShard] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        inputs: Sequence[dict[str, Any]],
        lane_of: Callable[[str | None, str], str],
        is_there: Callable[[str, int], bool],
        path_of: Callable[[str], str] | None = None,
    ) -> Former:
        """Compare a manifest with the inputs of a new conversion.

        Args:
            manifest: the manifest, with its lineage.
            inputs: the inputs as the new manifest describes them.
            lane_of: the lane of a shard, by its split and the name of its first input.
            is_there: whether the sink has a shard of this path and size.
            path_of: where a shard can be read, by its path in the manifest; None if inputs that may only have been
                touched are not to be compared with the shards.
        """
        former, now = cls(manifest.lineage or Lineage()), _renumbered(manifest.inputs, inputs)
        for before, source in now.items():
            former.before[source] = before
            former.segments[source] = {}
        touched = _touched(manifest.inputs, inputs, now) if path_of else {}
        former.touched = {source: {} for source in touched.values()}
        now |= touched
        totals: dict[str, int] = defaultdict(int)
        for entry in manifest.shards:
            lane = lane_of(entry.split, manifest.inputs[entry.origins[0].source]["name"])
            report = ShardReport(entry.bytes, entry.records, int(entry.digest.rpartition(":")[2], 16))
            origins = [origin._replace(source=now.get(origin.source, -1)) for origin in entry.origins]
            shard = FormerShard(lane, totals[lane], report, origins, path_of(entry.path) if path_of else "")
            totals[lane] += 1
            former._add(shard, is_there(entry.path, entry.bytes))
        return former

    def report(self, source: int) -> InputReport:
        """What reading an unchanged input reported."""
        return self.lineage.report(self.before[source])

    def _add(self, shard: FormerShard, is_there: bool) -> None:
        sources = [origin.source for origin in shard.origins]
        if not is_there or -1 in sources:
            shard.keepable = False
            self.broken.update(source for source in sources if source >= 0)
        self.shards[shard.lane, shard.number] = shard
        position = 0
        for source, records, size, first in shard.origins:
            if source >= 0:
                segments = self.segments[source] if source in self.segments else self.touched[source]
                segments.setdefault(shard.lane, []).append(Segment(shard, records, first, position, position == 0))
            position += size


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


def _touched(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]], same: dict[int, int]) -> dict[int, int]:
    """The numbers that inputs of the same name and size have now, if only their version has changed."""
    known = set(same.values())
    rest = {(item["name"], item["size"]): number for number, item in enumerate(now) if number not in known}
    found = {
        number: rest.pop((item["name"], item["size"]), None) for number, item in enumerate(before) if number not in same
    }
    return {number: source for number, source in found.items() if source is not None}
