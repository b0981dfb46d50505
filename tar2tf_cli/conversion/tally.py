"""The totals of a conversion: samples, skipped members, faults and features, added up in input order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.sharding import Shard
from tar2tf_cli.errors import SampleError, Tar2tfError
from tar2tf_cli.events import Events
from tar2tf_cli.features.schema import Schema
from tar2tf_cli.flow.sample_flow import check_most
from tar2tf_cli.inputs.report import InputReport, Notes

_TIMES: Final = 4
_MUCH: Final = 1_000_000


@dataclass(slots=True)
class Summary:
    """What a conversion wrote and skipped.

    Attributes:
        shards: the shards, with paths relative to the manifest's folder.
        manifest: the manifest's path; None if records went to standard output.
        features: the manifest's description of each feature.
        errors: shard, key, member, offset and message of each skipped sample; empty if up to date.
        skipped: number of skipped members, by reason.
        skipped_samples: number of faulty samples that were skipped, also if up to date.
        lost: the parts of inputs that could not be read, each with the `input`, `from` and `to` which offset, and how
            many `bytes` are there, also if up to date.
        up_to_date: whether nothing had to be done.
        kept: number of shards that an update kept.
        oversized: number of shards that hold one record larger than the limit.
        classes: names of the classes of an image folder, sorted.
    """

    manifest: str | None = None
    inputs: int = 0
    shards: list[ShardEntry] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    errors: list[dict[str, object]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_samples: int = 0
    lost: list[dict[str, Any]] = field(default_factory=list)
    features: dict[str, dict[str, object]] = field(default_factory=dict)
    up_to_date: bool = False
    kept: int = 0
    oversized: int = 0
    shuffled: bool = False
    seed: int = 0
    classes: Sequence[str] = ()

    def left_out(self) -> dict[str, Any]:
        """What the shards lack of the inputs, as plain JSON."""
        lost = {"lost": self.lost} if self.lost else {}
        return {"samples": self.skipped_samples, "members": dict(sorted(self.skipped.items())), **lost}


class Tally:
    """Adds up the totals of inputs and shards, reports notes, and raises if there are too many faulty samples.

    Attributes:
        summary: the totals so far.
    """

    def __init__(self, plan: Plan, events: Events) -> None:
        self._plan = plan
        self._events = events
        self._schema = Schema()
        self._last = Schema()  # that of the last input
        self._times = 0  # how many inputs with it, one after the other, are not yet counted in `_schema`
        self._samples = 0  # in all inputs so far; with `--limit`, not all are written
        self._notes = Notes(plan.conversion.input, events.note)
        self.summary = Summary(shuffled=plan.conversion.shuffle, seed=plan.conversion.seed)
        known = plan.source.known()
        self.summary.classes = known.classes
        self.summary.skipped.update(known.skipped)
        self._read = 0  # stored bytes of the inputs so far, if their sizes are known
        self._written = 0
        self._size = plan.size
        self._described: list[str] = []

    def add_input(self, number: int, report: InputReport) -> None:
        """Add the report of the next input, in input order.

        Raises:
            SampleError: when a feature has a different kind than in earlier inputs.
            Tar2tfError: when more samples failed than `--max-errors` allows.
        """
        item = self._plan.inputs[number]
        if report.schema is not self._last:
            self._add_last()
            self._last = report.schema
            try:
                self._schema.update(report.schema, 0)
            except SampleError as error:
                raise error.at(shard=self._plan.source.locate(item.name)) from None
        self._times += 1
        self.summary.inputs += 1
        self._read += item.size or 0
        if report.skipped:
            self.summary.skipped.update(report.skipped)
        if report.described:
            self._described.append(report.described)
        self._samples += report.samples
        self.summary.errors += report.errors
        self.summary.skipped_samples += report.faulty
        for fault in report.errors:
            self._events.fault(fault)
        self._notes.add(self._plan.source.locate(item.name), report)
        self.summary.lost += ({"input": item.name, **lost.to_json()} for lost in report.lost)
        if (most := self._plan.conversion.max_errors) is not None:
            check_most(self.summary.skipped_samples, most, self.summary.errors)
        if (most := self._plan.conversion.max_lost) is not None:
            check_lost(self.summary.lost, most)

    def _add_last(self) -> None:
        """Count the examples of the inputs with the same schema as the last one."""
        self._schema.update(self._last, self._times)
        self._times = 0

    @property
    def described(self) -> str:
        """The descriptions in the reports of all inputs, joined."""
        return "".join(self._described)

    def add_shard(self, shard: Shard) -> None:
        """Add a shard that will be written."""
        limit = self._plan.conversion.output.max_shard_size
        self.summary.oversized += bool(limit and shard.size > limit and shard.records == 1)
        self.summary.records += shard.records
        self.summary.kept += shard.kept is not None
        self._written += shard.size

    def foresee(self, incomplete: Iterable[Shard]) -> None:
        """Warn once if the inputs so far show that the output will be much larger than the input."""
        if "growth" in self._notes.given or not (self._read and self._size):
            return
        written, records = self._written, self.summary.records
        for shard in incomplete:
            written, records = written + shard.size, records + shard.records
        whole, limit = written * self._size // self._read, self._plan.conversion.limit
        if limit and records:
            whole = min(whole, written * limit // records)
        self._notes.once("growth", growth(self._plan, whole, self._size))

    def fill_in(self, manifest: Manifest) -> None:
        """Fill in the manifest's features and the counts of skipped members and samples.

        With `--limit`, more samples may have been read than written. The count of a feature that only some of them
        have is then unknown, and omitted.
        """
        self._add_last()
        features = self._schema.describe()
        if self._samples != self.summary.records:
            for feature in features.values():
                if feature.pop("count") == self._samples:
                    feature["count"] = self.summary.records
        self.summary.features = features
        manifest.features.update(features)
        manifest.skipped.update(self.summary.left_out())


def check_lost(lost: Sequence[Mapping[str, Any]], most: int) -> None:
    """Check that no more than `most` bytes of inputs could not be read.

    Raises:
        Tar2tfError: when there are more, or nobody knows how many, as an input breaks off.
    """
    if broken := next((part["input"] for part in lost if part["to"] is None), None):
        raise Tar2tfError(f"{broken} breaks off, so that more than --max-lost {most:,} bytes may be missing")
    if (total := sum(part["bytes"] for part in lost)) > most:
        raise Tar2tfError(f"{total:,} bytes of the inputs could not be read, more than --max-lost {most:,} allows")


def growth(plan: Plan, size: int, read: int | None) -> str | None:
    """A warning if ops or a preset make an output of `size` bytes that is much larger than its input."""
    chosen = plan.conversion.ops or plan.conversion.preset
    if not (chosen and read) or size < max(_TIMES * read, _MUCH):
        return None
    from humanfriendly import format_size

    times = f"{size / read:.0f} times the {format_size(read)} of the input"
    return f"warning: about {format_size(size)} will be written, {times}; {_advice(plan)}"


def _advice(plan: Plan) -> str:
    names: list[Any] = [next(iter(op.canonical())) for op in plan.conversion.ops]
    decodes = "decode" in names or plan.conversion.preset == "imagenet-tensor"
    if decodes and "encode" not in names:
        return "images that stay encoded (without decode, or with encode as the last op) take a fraction"
    return "check the ops with --dry-run"
