"""Publishes shards atomically and in order: a shard gets its final name once it and all earlier shards are complete.

Shards are written to a working folder that the sink chooses; the manifest is written last, and then the working folder
is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.conversion.output_state import (
    CHANGED,
    Decision,
    Destination,
    EarlierConversion,
    SizesFile,
    decide,
    find_finished,
    not_listed,
)
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.repeats import EqualKeys, GroupCheck
from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.conversion.write_shard import write_index
from tar2tf_cli.errors import (
    OutputExistsError,
    SampleError,
    SinkError,
    SourceError,
    Tar2tfError,
    count,
    few,
    write_errors,
)
from tar2tf_cli.events import Events
from tar2tf_cli.features.described import notes_on_shapes
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.flow.faults import check_most
from tar2tf_cli.flow.select import keys_of
from tar2tf_cli.formats.files import RecordFile, crc32c_of_file, sync
from tar2tf_cli.inputs.manifest import Manifest, ShardEntry, digest, without_collection
from tar2tf_cli.inputs.report import InputReport, Notes
from tar2tf_cli.sinks import Sink
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.structs import dataclass, field

if TYPE_CHECKING:
    from tar2tf_cli.api.store import Store
    from tar2tf_cli.conversion.targets import MakeDocuments
    from tar2tf_cli.inputs.joined import Joined


_TIMES: Final = 4
_MUCH: Final = 1_000_000


@dataclass
class Summary:
    """Result of a conversion: the shards that it wrote, and the samples that it skipped.

    Attributes:
        shards: the shards, with paths relative to the manifest's folder.
        manifest: the manifest's path; None if records went to standard output.
        features: the manifest's description of each feature.
        errors: shard, key, member, offset and message of each skipped sample; empty if up to date.
        skipped: number of skipped members, by reason.
        skipped_samples: number of faulty samples that were skipped, also if up to date.
        filtered: number of samples that each option or op filtered out, also if up to date.
        boxes: numbers of boxes that were clipped at the edge of their image, dropped because they left it, or invalid.
        keys_missing: keys of `--keys` that are in no input, also if up to date.
        joined: for each joined dataset, its `bucket`, the numbers of `matched` and `unmatched` samples, and of `unused`
            rows; also if up to date.
        gaps: notes on missing shards that `--ignore-gaps` accepts, also if up to date.
        lost: the parts of inputs that could not be read, each with its `input`, the offsets `from` and `to`, and the
            number of `bytes`, also if up to date.
        up_to_date: whether nothing had to be done.
        kept: number of shards that an update kept.
        oversized: number of shards that hold one record larger than the limit.
        classes: names of the classes of an image folder, sorted.
        labels: the numbers that `--labels NAME=auto` gave to the texts of features, by name.
        shapes: notes on features of several shapes.

    >>> summary = convert(Conversion("shards", "sums/x-<>.record"), workers=1)
    >>> summary.records, summary.manifest
    (24, 'sums/_x-manifest.json')
    """

    manifest: str | None = None
    inputs: int = 0
    shards: list[ShardEntry] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    errors: list[dict[str, object]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_samples: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    boxes: Counter[str] = field(default_factory=Counter)
    keys_missing: Sequence[str] = ()
    gaps: Sequence[str] = ()
    joined: Sequence[dict[str, Any]] = ()
    lost: list[dict[str, Any]] = field(default_factory=list)
    features: dict[str, FeatureDescription] = field(default_factory=dict)
    up_to_date: bool = False
    kept: int = 0
    oversized: int = 0
    shuffled: bool = False
    seed: int = 0
    classes: Sequence[str] = ()
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shapes: Sequence[str] = ()

    def left_out(self) -> dict[str, object]:
        """Return the counts of samples and members left out of the shards, as plain JSON."""
        more = {
            "asked": dict(sorted(self.filtered.items())),
            "boxes": dict(sorted(self.boxes.items())),
            "keys_missing": [*self.keys_missing],
            "lost": self.lost,
            "gaps": [*self.gaps],
        }
        return {
            "samples": self.skipped_samples,
            "members": dict(sorted(self.skipped.items())),
            **{name: values for name, values in more.items() if values},
        }


def _grouped(errors: Sequence[Mapping[str, object]], most: int = 3) -> str:
    """Return the messages of the most frequent kinds of faults, each with its count and where the first one is."""
    kinds: dict[str, list[Mapping[str, object]]] = {}
    for error in errors:
        kinds.setdefault(str(error["message"]), []).append(error)
    some = [f"{len(alike):,} x {text}, first: {_where(alike[0])}" for text, alike in [*kinds.items()][:most]]
    return "; ".join(some)


def _where(error: Mapping[str, object]) -> object:
    """Return the key, member or shard of a fault, whichever is the first to be known."""
    return error["key"] or error["member"] or error["shard"]


def _most_first(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return names and counts, sorted by descending count and then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Tally:
    """Adds up the totals of inputs and shards, reports notes, and raises if there are too many faulty samples.

    Args:
        plan: the conversion.
        events: notified of notes.
        again: whether an earlier run made this output, and has already given the note on how names are split.

    Attributes:
        summary: the totals so far.
    """

    def __init__(self, plan: Plan, events: Events, *, again: bool = False) -> None:
        self._plan = plan
        self._events = events
        self._schema = Schema(allows_mixed=plan.conversion.keeps_entries)
        self._others = 0  # records that are not examples
        self._samples = 0  # in all inputs so far; with `--limit`, not all are written
        self._notes = Notes(plan.conversion.input, events.note)
        if again:
            self._notes.given.add("split")
        if not _may_grow(plan):
            self._notes.given.add("growth")
        self._note_ops()
        self.summary = Summary(shuffled=plan.conversion.shuffle, seed=plan.conversion.seed)
        known = plan.source.listing_info()
        self.summary.classes = known.classes
        self.summary.skipped.update(known.skipped)
        self._growth = _GrowthCheck(plan)
        self._described: list[str] = []
        self._wanted = _WantedKeys(plan.conversion.input.keys) if plan.conversion.input.keys else None
        self._groups = GroupCheck(plan)
        self._joins = [JoinCount(dataset) for dataset in plan.joins]

    def add_input(self, number: int, report: InputReport) -> None:
        """Add the report of the next input, in input order.

        Raises:
            SampleError: when a feature has a different kind than in earlier inputs.
            Tar2tfError: when more samples failed than `--max-errors` allows.
        """
        item = self._plan.inputs[number]
        if self._plan.conversion.group_by:
            self._groups.add(number, report)
        try:
            self._schema.update(report.schema)
        except SampleError as error:
            raise error.at(shard=self._plan.source.locate(item.name)) from None
        self.summary.inputs += 1
        self._growth.read += item.size or 0
        if report.skipped:
            self.summary.skipped.update(report.skipped)
        if report.filtered:
            self.summary.filtered.update(report.filtered)
        if report.boxes:
            self.summary.boxes.update(report.boxes)
        if self._wanted:
            self._wanted.add(report.keys)
        for number, join in enumerate(self._joins):
            join.add(report, number)
        if report.described:
            self._described.append(report.described)
        self._samples += report.samples
        self._others += report.other_records
        for fault in report.errors:
            self._events.fault(fault)
        self._notes.add(self._plan.source.locate(item.name), report)
        if report.palettes:
            self._note_ops(report.palettes)
        if report.faulty:
            self._add_faults(item.name, report)

    def _add_faults(self, name: str, report: InputReport) -> None:
        """Add the faulty samples and unreadable parts of an input."""
        self.summary.errors += report.errors
        self.summary.skipped_samples += report.faulty
        self.summary.lost += ({"input": name, **lost.to_json()} for lost in report.lost)
        if (most := self._plan.conversion.max_errors) is not None:
            check_most(self.summary.skipped_samples, most, self.summary.errors)
        if (most := self._plan.conversion.max_lost) is not None:
            check_lost(self.summary.lost, most)

    def add_duplicates(self, report: InputReport, repeated: Sequence[int]) -> None:
        """Count the samples of an input that equal earlier ones, given by their numbers, and report their keys."""
        self.summary.filtered["--drop-duplicates"] += len(repeated)
        if report.sample_keys:  # an update does not know the keys of inputs that it need not read
            self._events.duplicates([report.sample_keys[number] for number in repeated])

    def note_equal_keys(self, equal: EqualKeys | None) -> None:
        """Report samples with the key of a sample in an earlier input, for example if each input numbers its samples
        from 0.
        """
        if equal:
            have = "sample has" if equal.samples == 1 else "samples have"
            first, earlier = (self._plan.inputs[number].name for number in (equal.first, equal.earlier))
            what = (
                f"{equal.samples:,} {have} the same key as one in an earlier input, first in {first}, as in {earlier}"
            )
            self._events.note(f"note: {what}; --keys, --join and --split treat samples with equal keys as one")

    def _note_ops(self, palettes: Collection[str] = ()) -> None:
        for note in (note for op in self._plan.conversion.ops for note in op.notes(palettes)):
            self._notes.once(note, note)

    @property
    def described(self) -> str:
        """The descriptions from the reports of all inputs, joined."""
        return "".join(self._described)

    def add_shard(self, shard: PlannedShard) -> None:
        """Add a shard that will be written."""
        limit = self._plan.conversion.output.max_shard_size
        self.summary.oversized += bool(limit and shard.size > limit and shard.records == 1)
        self.summary.records += shard.records
        self.summary.kept += shard.kept is not None
        self._growth.written += shard.size

    def warn_of_growth(self, incomplete: Iterable[PlannedShard]) -> None:
        """Warn once if the inputs so far show that the output will be much larger than the input."""
        if "growth" not in self._notes.given:
            self._notes.once("growth", self._growth.warning(self.summary.records, incomplete))

    def _check_any_written(self) -> None:
        """Refuse to publish nothing but a manifest where samples are faulty; warn where options skipped all samples.

        Raises:
            SourceError: when no record was written, and a sample was faulty.
        """
        if not self.summary.records and (faulty := self.summary.skipped_samples):
            hint = _grouped(self.summary.errors) or "pass --overwrite to try again"
            message = f"no sample could be converted: {count(faulty, 'sample')} skipped as faulty"
            raise SourceError(message, shard=self._plan.source.bucket, hint=hint)
        if not self.summary.records and self.summary.filtered:
            reasons = ", ".join(f"{name} {number:,}" for name, number in _most_first(self.summary.filtered))
            self._events.note(f"warning: no records were written, because all samples were skipped: {reasons}")

    def fill_in(self, manifest: Manifest) -> None:
        """Fill in the manifest's features, joins, and the counts of skipped members and samples, before its shards.

        Raises:
            SourceError: when no input has one of the keys of `--keys`, unless `--keys-missing` says to skip it, or when
                every sample was faulty.
        """
        if self._wanted:
            self._check_keys(self._wanted)
        self._check_any_written()
        self._describe_features(manifest)
        self._note_unmoved()
        self.summary.gaps = self._plan.shards.lacking()
        self.summary.joined = manifest.joined = [join.to_json() for join in self._joins]
        for note in (note for join in self._joins for note in join.notes()):
            self._events.note(note)
        manifest.skipped.update(self.summary.left_out())

    def _describe_features(self, manifest: Manifest) -> None:
        """Fill in the description of the features, and the number of records that cannot be described.

        With `--limit`, more samples may have been read than written. The count of a feature that only some of them
        have is then unknown, and omitted, as is the count of records that are not examples.
        """
        features, more_read = self._schema.describe(), self._samples != self.summary.records
        if mixed := self._schema.mixed:
            them = "it" if len(mixed) == 1 else "them"
            self._events.note(f"note: records differ in the kind of {few(mixed)}; the manifest leaves {them} out")
            manifest.undescribed["features"] = mixed
        if others := self._others:
            written = self.summary.records if others == self._samples else None
            manifest.undescribed["records"] = written if more_read else others
        if more_read:
            for feature in features.values():
                if feature.pop("count") == self._samples:
                    feature["count"] = self.summary.records
        self.summary.features = features
        self.summary.shapes = notes_on_shapes(features, manifest.spec)
        manifest.features.update(features)

    def _note_unmoved(self) -> None:
        """Report outlines and points that did not move with their images although the boxes of their objects did."""
        counts = {what.partition(" ")[2]: number for what, number in self.summary.boxes.items() if " " in what}
        if counts:
            shown = " and ".join(f"{name!r} of {count(number, 'object')}" for name, number in sorted(counts.items()))
            hint = "declare points with --points, or leave such values out"
            self._events.note(f"note: images and boxes moved, but not the {shown}, which are not declared; {hint}")

    def _check_keys(self, wanted: _WantedKeys) -> None:
        spec = self._plan.conversion
        all_read = spec.limit is None or spec.shuffle or self.summary.records < spec.limit
        if all_read and (missing := wanted.keys.missing(wanted.found)):
            if spec.input.keys_missing == "error":
                raise wanted.keys.error(missing)
            self.summary.keys_missing = missing


class _WantedKeys:
    """The keys of `--keys`, each marked once an input has it.

    Args:
        path: the key list file.

    Attributes:
        keys: the keys.
        found: one byte for each key, which is 1 if an input has the key.
    """

    def __init__(self, path: str) -> None:
        self.keys = keys_of(path)
        self.found = bytearray(len(self.keys))

    def add(self, numbers: Iterable[int]) -> None:
        """Mark keys as found in an input, given their numbers."""
        for number in numbers:
            self.found[number] = 1


class _GrowthCheck:
    """Compares the size of the output so far with that of the input.

    Args:
        plan: the conversion.

    Attributes:
        read: stored bytes of the inputs so far; 0 if their sizes are unknown.
        written: bytes of the shards so far.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._size = plan.size
        self.read = self.written = 0

    def warning(self, records: int, incomplete: Iterable[PlannedShard]) -> str | None:
        """Return a warning if the output will probably be much larger than the input.

        Args:
            records: number of records in the shards so far.
            incomplete: shards that are not full yet.
        """
        if not (self.read and self._size):
            return None
        written = self.written
        for shard in incomplete:
            written, records = written + shard.size, records + shard.records
        whole, limit = written * self._size // self.read, self._plan.conversion.limit
        if limit and records:
            whole = min(whole, written * limit // records)
        return growth_warning(self._plan, whole, self._size)


class JoinCount:
    """Counts the samples that match a joined dataset.

    Args:
        dataset: the dataset.
    """

    def __init__(self, dataset: Joined) -> None:
        self._dataset = dataset
        self._used = bytearray(dataset.size())  # one byte for each row, which is 1 if a sample matches it
        self._matched = self._unmatched = 0
        self._key: str | None = None

    def add(self, report: InputReport, number: int) -> None:
        """Add the counts of an input, whose report has the dataset at index `number`."""
        if report.matched:
            for row in report.matched[number]:
                self._used[row] = 1
            self._matched += len(report.matched[number]) - report.more_rows[number]
            self._unmatched += report.unmatched[number]
            self._key = self._key or report.unmatched_keys[number]

    def to_json(self) -> dict[str, object]:
        """Return the counts as plain JSON."""
        bucket, unused = without_secrets(self._dataset.bucket), self._used.count(0)
        return {"bucket": bucket, "matched": self._matched, "unmatched": self._unmatched, "unused": unused}

    def notes(self) -> Iterator[str]:
        """Yield a note, with a key of either side, if no sample matches."""
        if self._unmatched and not self._matched:
            keys = f"the inputs have keys such as {self._key!r}, it has keys such as {self._dataset.some_key()!r}"
            yield f"note: no sample matches {without_secrets(self._dataset.bucket)}: {keys}"


def check_lost(lost: Sequence[Mapping[str, Any]], most: int) -> None:
    """Check that no more than `most` bytes of inputs could not be read.

    Raises:
        Tar2tfError: when more were lost, or an unknown number, as an input is truncated.
    """
    if broken := next((part["input"] for part in lost if part["to"] is None), None):
        raise Tar2tfError(f"{broken} is cut short, so more than --max-lost {most:,} bytes may be missing")
    if (total := sum(part["bytes"] for part in lost)) > most:
        raise Tar2tfError(f"{total:,} bytes of the inputs could not be read, more than --max-lost {most:,} allows")


def _may_grow(plan: Plan) -> bool:
    """Whether ops or a preset may make the output larger than the input."""
    return bool(plan.conversion.ops or plan.conversion.preset)


def growth_warning(plan: Plan, size: int, read: int | None) -> str | None:
    """Return a warning if ops or a preset make an output of `size` bytes much larger than its input."""
    if not (read and _may_grow(plan)) or size < max(_TIMES * read, _MUCH):
        return None
    from humanfriendly import format_size

    times = f"{size / read:.0f} times the {format_size(read)} of the input"
    return f"warning: about {format_size(size)} will be written, {times}; {_advice(plan)}"


def _advice(plan: Plan) -> str:
    names: list[Any] = [next(iter(op.canonical())) for op in plan.conversion.ops]
    decodes = "decode" in names or plan.conversion.preset == "imagenet-tensor"
    if decodes and "encode" not in names:
        return "encoded images take a fraction: leave out decode, or encode as the last op"
    return "check the ops with --dry-run"


_CACHE: Final = "set XDG_CACHE_HOME to a writable folder for unfinished work"


class Publisher:
    """Publishes the output of one conversion, from the first unfinished shard to the manifest; a context manager.

    Args:
        destination: the files to write, and their existing versions.
        events: notified as shards are published.

    Attributes:
        up_to_date: the manifest, if the conversion was finished by an earlier run and there is nothing to do.
        earlier: the earlier conversion that is brought up to date; None to convert everything.
        done: bytes of the complete shards of an interrupted run.

    Raises:
        OutputExistsError: on entering, when a file exists that this conversion may not replace.
        SinkError: when the folder cannot be created, another run holds its lock, or a file cannot be published.
    """

    def __init__(self, destination: Destination, events: Events) -> None:
        self._destination = destination
        self._events = events
        self._working_folder = destination.working_folder()
        self._entries: dict[str, dict[int, ShardReport]] = {}  # by lane and number
        self._published: dict[str, int] = {}
        self._sizes: SizesFile | None = None
        self.earlier: EarlierConversion | None = None
        self.up_to_date: Manifest | None = None
        self._uploading = False  # whether uploads may have begun since the last wait
        self._replaces = False  # whether an older manifest was removed, as it would be wrong
        self.done = 0

    @property
    def _sink(self) -> Sink:
        return self._destination.sink

    @property
    def manifest(self) -> str:
        """Path or URL of the manifest, as shown to users."""
        return self._destination.where

    @property
    def folder(self) -> str:
        """The working folder."""
        return self._working_folder.path

    @property
    def reads_shards(self) -> bool:
        """Whether finished shards are read again, to upload them."""
        return not self._sink.renames

    def __enter__(self) -> Publisher:
        where = (self._sink.locate(self._destination.root),) if self._sink.renames else (self.folder, _CACHE)
        try:
            with write_errors(*where):
                self._begin()
        except BaseException:
            self._working_folder.abandon()
            raise
        return self

    def _begin(self) -> None:
        """Keep a finished conversion unchanged; otherwise take over the files of an earlier run."""
        self.up_to_date = None if os.path.lexists(self.folder) else find_finished(self._destination)
        if self.up_to_date:
            return
        self._working_folder.lock()
        with without_collection():
            self._decision = decision = decide(self._destination, self._working_folder)
        if decision.error:
            raise decision.error
        self.up_to_date, self.earlier = decision.finished, decision.earlier
        if self.up_to_date:  # another run may have finished the conversion, perhaps without cleaning up
            self._working_folder.remove()
            return
        there = self._destination
        self._sink.reserve(decision.run, there.digest, there.relative_template, replaces=there.overwrite)
        self._take_over(decision)
        if decision.others:
            left = few(decision.others)
            self._events.note(f"note: files with other names in the existing manifest are kept: {left}")
        if decision.published:
            files = count(len(decision.published), "file")
            self._events.note(
                f"continuing a killed run: its working folder is gone, so {files} of its output are compared"
            )
        if decision.changes:
            self._events.note(f"updating: {decision.changes}")
        elif decision.everything:
            self._events.note(f"note: everything is converted again: {decision.everything}")
        self.done = sum(size for _, _, size, *_ in decision.sealed.values())
        if self.done:
            self._events.resumed(len(decision.sealed))

    def _take_over(self, decision: Decision) -> None:
        """Remove files of an interrupted run that this one does not continue, and start the journal."""
        folder = self._working_folder
        if decision.continues:
            folder.clear(strays=True)
        else:
            folder.clear()
            self._sink.drop_staged()
        root = self._destination.root
        head: dict[str, Any] = {
            "identity": self._destination.identity,
            "replaces": sorted(os.path.relpath(path, root) for path in decision.stale),
            "run": decision.run,
            "shards": self._destination.relative_template,
        }
        if decision.earlier and decision.previous:  # they do not exist while files are replaced
            head["previous"] = decision.previous.to_bytes().decode("ascii")
            decision.earlier.save(os.path.join(self.folder, "previous.sizes"))
        folder.begin_journal(head, keep=decision.interrupted)

    def add_input(self, report: InputReport, part: InputUnits) -> None:
        """Record the sizes of the next input's records, in input order."""
        plan = self._destination.plan
        if not self._sizes and plan.tracked:
            self._sizes = SizesFile(os.path.join(self.folder, "sizes.part"), plan.conversion)
        if self._sizes:
            self._sizes.add(report, part)

    def __exit__(self, *exception: object) -> None:
        try:
            if self._sizes:
                self._sizes.abandon()
            if self.earlier:
                self.earlier.close()
            self._sink.close()
        finally:
            self._working_folder.abandon()
        if not os.path.lexists(self.folder):  # otherwise the same command continues from the folder
            with contextlib.suppress(SinkError):
                self._sink.release()

    @property
    def store(self) -> Store | None:
        """The bucket in which a cluster may store shards; None for folders, and if an earlier output is replaced."""
        return None if self._waits else self._sink.store

    @property
    def _waits(self) -> bool:
        """Whether shards are published only when all are complete, so that an earlier output stays valid until then."""
        there, decision = self._destination, self._decision
        replaces = there.overwrite and bool(decision.replaceable or decision.stale)
        return there.by_total or self.earlier is not None or replaces

    def final_names(self, stems: Sequence[str]) -> tuple[list[str], frozenset[str]]:
        """Prepare for shards that a cluster stores, one for each stem; return their names, and those that may be
        replaced.
        """
        shards = [PlannedShard(stem, 0) for stem in stems]
        for path in self.journal:
            sync(path)
        self._working_folder.note({"paths": [*map(self._destination.listed_path, shards)]})
        self._begin_to_replace()
        return [*map(self._destination.path, shards)], frozenset(self._decision.replaceable | self._decision.published)

    @property
    def journal(self) -> Sequence[str]:
        """Local files that must be flushed to disk before anything is published."""
        return self._working_folder.unsynced

    def unsynced(self, shard: PlannedShard) -> list[str]:
        """Local files that must be flushed to disk before a shard may be sealed."""
        part = shard.part(self.folder)
        return [part, f"{part}.idx"] if self._destination.with_index else [part]

    def completed(self, shard: PlannedShard) -> ShardReport | None:
        """Return the report of a shard that an interrupted run completed, published or not; otherwise None."""
        if (entry := self._decision.sealed.get(shard.lane_and_number)) is None:
            return None
        report = ShardReport(*entry[2:5])
        part = shard.part(self.folder)
        there = self._sink.part_size(part)
        if os.path.exists(part):
            there = self._left(part, report.crc)
        elif there is None and not self._destination.by_total:
            there = self._sink.size(self._destination.path(shard))
        if there == report.size and report.records == shard.records:
            return report
        del self._decision.sealed[shard.lane_and_number]
        return None

    def _left(self, part: str, crc: int) -> int | None:
        """Return the size of an interrupted run's part on this disk; None if the part is missing or damaged.

        Its index is rewritten, as the journal has no checksum of it.
        """
        if crc32c_of_file(part) != crc:
            return None
        if self._destination.with_index:
            write_index(part, self._destination.plan.conversion)
            sync(f"{part}.idx")
        return os.stat(part).st_size

    def seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Record that a shard is complete, and publish it once all earlier shards have been published."""
        by_total = self._destination.by_total
        if self._decision.sealed.pop(shard.lane_and_number, None) is None:
            path = None if by_total else self._destination.listed_path(shard)  # by total: known only at the end
            self._working_folder.note([*shard.lane_and_number, *report, path])
        self._entries.setdefault(shard.lane, {})[shard.number] = report
        self._uploading = self.reads_shards
        if self._waits:
            for path in filter(os.path.exists, self.unsynced(shard)):
                if self.earlier and self.earlier.report(shard) == report:
                    os.unlink(path)  # the output replaces nothing
                else:
                    self._sink.stage(path)
        else:
            self._publish(shard.lane)

    def wait(self) -> bool:
        """Wait for the uploads that have begun; return whether there were any."""
        waited, self._uploading = self._uploading, False
        if waited:
            self._sink.flush(())
        return waited

    def finish(self, manifest: Manifest, documents: MakeDocuments) -> list[ShardEntry]:
        """Publish the remaining shards, the documents and the completed manifest; remove the working folder.

        Returns:
            The shards in the manifest's order, with paths relative to its folder.
        """
        destination = self._destination
        manifest.shards = self._shards()
        files = {self._sink.inside(path): data for path, data in documents(manifest.shards).items()}
        manifest.documents.extend(path.removeprefix(destination.prefix) for path in files)
        with write_errors(destination.where):
            if destination.by_total:
                self._working_folder.note({"paths": [entry.path for entry in manifest.shards]})
            if self._waits:
                self._sink.flush(())
            for lane in self._entries:
                self._publish(lane)
            shards = [destination.prefix + entry.path for entry in manifest.shards]
            written = {os.path.normpath(path) for path in (*files, *shards)}
            self._remove_stale(written)
            self._sink.flush({os.path.dirname(path) for path in shards})
            self._check_published()
            self._check_left(written)
            self._note_strays(written)
            for path, data in files.items():
                self._write(path, [data])
            self._sink.check_reserved()
            self._publish_sizes(manifest)
            self._write(destination.manifest, manifest.lines())
            self._working_folder.remove()
        return [*manifest.shards]

    def _check_published(self) -> None:
        """Check that no other program removed, truncated or replaced a published shard; the next run would remake it.

        Raises:
            SinkError: when a program did.
        """
        shards = {
            self._path(shard): (shard, report)
            for lane, reports in self._entries.items()
            for shard, report in ((PlannedShard(lane, number), report) for number, report in reports.items())
        }
        changed = [*self._sink.changed({path: (report.size, report.crc) for path, (_, report) in shards.items()})]
        for path, _ in changed:
            shard, report = shards[path]
            listed = path.removeprefix(self._destination.prefix)
            self._working_folder.note([*shard.lane_and_number, *report._replace(size=CHANGED), listed])
        for path, wrong in changed:
            hint = "another program changed it during the conversion; run the same command again"
            raise SinkError(wrong, shard=self._sink.locate(path), hint=hint)

    def _check_left(self, written: set[str]) -> None:
        """Check that this conversion made all files that existed when it found only its claim.

        Raises:
            OutputExistsError: when another file exists.
        """
        for path in sorted(self._decision.published):
            if path not in written and path.removesuffix(".idx") not in written:
                raise not_listed(self._sink.locate(path))

    def _note_strays(self, written: set[str]) -> None:
        """Report files that are named like shards but are not of this output; `--overwrite` replaces but never removes
        them.
        """
        strays = self._decision.replaceable - self._decision.stale - written
        if strays := {path for path in strays if path.removesuffix(".idx") not in written}:
            names = few(sorted(os.path.relpath(path, self._destination.root) for path in strays))
            self._events.note(f"warning: not part of this output, though named like its shards, and kept: {names}")

    def _publish_sizes(self, manifest: Manifest) -> None:
        """Publish the file of record sizes, or remove that of an earlier conversion."""
        if self._sizes:
            sizes, self._sizes = self._sizes, None
            with sizes:
                sizes.sync()
            manifest.sizes = digest(sizes.crc)
            self._sink.publish(os.path.join(self.folder, "sizes.part"), self._destination.sizes)
            self._sink.flush(())
        elif self._decision.replaceable or self._decision.stale:
            self._sink.remove(self._destination.sizes)

    def _shards(self) -> list[ShardEntry]:
        """Return the manifest entries of all shards, with paths relative to the manifest's folder."""
        shards = []
        for lane in filter(self._entries.__contains__, dict.fromkeys(self._destination.plan.lanes)):
            split = lane if "split" in self._destination.template.fields else None
            for number, report in sorted(self._entries[lane].items()):
                path = self._path(PlannedShard(lane, number)).removeprefix(self._destination.prefix)
                shards.append(ShardEntry(path, report.records, report.size, digest(report.crc), split))
        return shards

    def _path(self, shard: PlannedShard) -> str:
        return self._destination.path(shard, len(self._entries[shard.lane]))

    def _publish(self, lane: str) -> None:
        """Give a lane's next shards their final names, up to the first that is not complete."""
        entries, number = self._entries[lane], self._published.get(lane, 0)
        while number in entries:
            shard = PlannedShard(lane, number)
            report = entries[number]
            path = self._path(shard)
            self._move(shard.part(self.folder), path)
            self._events.shard(self._sink.locate(path), report.records, report.size)
            number += 1
        self._published[lane] = number

    def _move(self, part: str, path: str) -> None:
        """Publish a shard and its `--index`."""
        if self._sink.part_size(part) is None:
            return  # the interrupted run published it
        suffixes = (".idx", "") if self._destination.with_index else ("",)
        for final in (path + suffix for suffix in suffixes):
            name = os.path.normpath(final)
            is_known = name in self._decision.replaceable or name in self._decision.published
            if not is_known and self._sink.exists(final, now=True):
                where = self._sink.locate(final)
                raise OutputExistsError("another program wrote it during the conversion", shard=where, replaceable=True)
        self._begin_to_replace()
        for suffix in suffixes:
            if not suffix or self._sink.part_size(part + suffix) is not None:
                final = path + suffix
                self._sink.publish(part + suffix, final, replaces=os.path.normpath(final) in self._decision.replaceable)

    def _begin_to_replace(self) -> None:
        """Remove an older manifest, which would be wrong once a file is replaced."""
        if not self._replaces and self._sink.exists(self._destination.manifest, now=True):
            self._sink.remove(self._destination.manifest)
            self._sink.flush([self._destination.root])
        self._replaces = True

    def _remove_stale(self, written: set[str]) -> None:
        """Remove the files that an earlier conversion wrote and this one did not."""
        gone = self._decision.stale - written
        if gone:
            self._begin_to_replace()
        for path in gone if self._destination.with_index else self._decision.stale:
            self._sink.remove(f"{path}.idx")  # the index first: a run that continues after a kill looks for shards
        for path in gone:
            self._sink.remove(path)
        if gone:
            names = few(sorted(os.path.relpath(path, self._destination.root) for path in gone))
            self._events.note(f"note: removed {count(len(gone), 'file')} of the earlier output: {names}")

    def _write(self, path: str, parts: Iterable[bytes]) -> None:
        """Write a document, which appears under its name once it is complete and flushed to disk."""
        part = os.path.join(self.folder, "document.part")
        with RecordFile(part) as file:
            file.write(iter(parts), 0)
            file.sync()
        self._sink.publish(part, path)
        self._sink.flush([self._destination.root])
