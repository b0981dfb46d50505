"""The conductor: plans a conversion, runs its tasks on an engine, commits shards in order, reports."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Final

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry, input_entry
from tar2tf_cli.conversion.publish import Publisher
from tar2tf_cli.conversion.sharding import Shard, ShardPlanner
from tar2tf_cli.conversion.spool_index import load_index
from tar2tf_cli.conversion.takeover import Claim
from tar2tf_cli.conversion.targets import StreamTarget, Target
from tar2tf_cli.conversion.tasks import ReadInputs, ShardReport, Worker, WriteShard
from tar2tf_cli.engines import Engine, make_engine
from tar2tf_cli.engines.base import Task
from tar2tf_cli.engines.gather import cpu_count
from tar2tf_cli.errors import SampleError, SinkError, Tar2tfError, UsageError, WorkerError
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.samples.grouping import split_name
from tar2tf_cli.sinks import Flusher, Sink, open_sink
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.output_path import STDOUT, PathTemplate
from tar2tf_cli.stores import ObjectInfo, Source, endpoint_for, open_source

__all__ = ["Plan", "Summary", "convert", "make_plan"]

_AHEAD: Final = 4  # inputs per worker read ahead of the first unfinished one; bounds the space that spools take
_SMALL_INPUTS: Final = 8  # that one task fetches at once
_SMALL_BYTES: Final = 4 << 20  # of them together
_MOST_THREADS: Final = 8  # of one process; what they do with the interpreter locked is a tenth or so
_TICK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """A conversion with its inputs found.

    Attributes:
        size: stored bytes of all inputs together; None when one is not known.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]

    @property
    def size(self) -> int | None:
        sizes = [item.size for item in self.inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def work(self) -> Conversion:
        """The conversion as it is left when the inputs are listed: a list was shuffled and cut short by its source."""
        return replace(self.conversion, shuffle=False, limit=None) if self.source.ordered else self.conversion

    @property
    def records(self) -> int | None:
        """How many records there will be, where that is certain before anything is read."""
        spec = self.conversion
        return None if spec.ops or spec.split or spec.on_error == "skip" else self.source.count

    def threads(self, cpus: int) -> int:
        """How many threads are to work on each input, so that a few large ones keep all CPUs busy."""
        if not self.source.divisible or not self.work.gains_by_threads:
            return 1
        return max(1, min(cpus // max(len(self.inputs), 1), _MOST_THREADS))

    def manifest(self) -> Manifest:
        """The manifest as far as it is known before anything is read."""
        spec = self.conversion.canonical()
        spec["input"].update(self.source.identity)
        return Manifest(spec, [input_entry(item) for item in self.inputs])

    def documents(self, described: str = "") -> dict[str, bytes]:
        """Paths and content of what stands beside the manifest.

        Args:
            described: what the reports of all inputs together describe.
        """
        template, text = self.conversion.output.template, described.encode("utf-8", "surrogateescape")
        return {template.beside(name): text if data is None else data for name, data in self.source.documents.items()}


@dataclass(slots=True)
class Summary:
    """What a conversion came to.

    Attributes:
        shards: the shards, with paths as seen from the manifest's folder.
        manifest: the manifest's path; None when records went to standard output.
        features: the manifest's description of each feature.
        errors: faulty samples that were passed over: shard, key, member, offset, message.
        skipped: members passed over, by reason.
        skipped_samples: how many faulty samples were passed over; `errors` is empty when up to date.
        up_to_date: whether nothing had to be done.
        oversized: shards of one record that is larger than the limit.
    """

    manifest: str | None = None
    inputs: int = 0
    shards: list[ShardEntry] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    errors: list[dict[str, object]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_samples: int = 0
    features: dict[str, dict[str, object]] = field(default_factory=dict)
    up_to_date: bool = False
    oversized: int = 0
    shuffled: bool = False
    seed: int = 0


def make_plan(conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None) -> Plan:
    """Find a conversion's inputs.

    Args:
        conversion: what to convert.
        endpoint: where the store of the bucket answers.
        source: where they are; goes by the conversion's bucket when None.

    Raises:
        SourceError: when the bucket or an input is not there.
        UsageError: when the output path names no file, or would give two inputs one name.
    """
    if os.path.basename(conversion.output.path) in ("", ".", ".."):
        raise UsageError(
            f"the output path {conversion.output.path!r} names a directory", hint="such as 'out/train-<>.record'"
        )
    source = source or _source(conversion, endpoint)
    inputs = source.list(conversion.input.template)
    if "input" in conversion.output.template.fields:
        stems = Counter(item.stem for item in inputs)
        stem, count = stems.most_common(1)[0]
        if count > 1:
            raise UsageError(f"{count} inputs would give {stem!r} for <input> in the output path")
    return Plan(conversion, source, inputs)


def _source(conversion: Conversion, endpoint: str | None) -> Source:
    """Where a conversion's inputs are, by their kind."""
    spec, seed = conversion.input, conversion.seed if conversion.shuffle else None
    if spec.kind == "imagefolder":
        from tar2tf_cli.inputs.image_folder import ImageFolderSource

        return ImageFolderSource(
            spec.bucket, labels=spec.labels, seed=seed, limit=conversion.limit, shards=conversion.output.num_shards
        )
    if spec.kind == "examples":
        from tar2tf_cli.inputs.csv_examples import ExamplesSource

        return ExamplesSource(
            spec.bucket,
            spec.example_class or "",
            spec.example_args,
            seed=seed,
            rows=spec.rows,
            limit=conversion.limit,
        )
    return open_source(spec.bucket, endpoint=endpoint_for(spec.bucket, conversion.output.path, endpoint))


def convert(
    conversion: Conversion,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    endpoint: str | None = None,
    events: Events | None = None,
    source: Source | None = None,
    target: Target | None = None,
) -> Summary:
    """Convert shards to TFRecord; the output does not depend on the number of workers.

    Args:
        conversion: what to convert, and how.
        workers: how many processes work at once; as many as there are CPUs when None.
        overwrite: replace files that this conversion did not write.
        endpoint: where the store of the bucket answers; of the output, too, when both are of one kind.
        events: hears of progress.
        source: where the inputs are; goes by the conversion's bucket when None.
        target: where shards go, without a manifest; goes by the output path when None.

    Returns:
        What was written; the manifest beside the shards says the same.

    Raises:
        Tar2tfError: whatever went wrong; the same call continues where this one stopped.
    """
    events = events or Events()
    plan = make_plan(conversion, endpoint=endpoint, source=source)
    path = conversion.output.path
    sink = open_sink(path, endpoint=endpoint_for(path, conversion.input.bucket, endpoint))
    readers = min(workers or cpu_count(), max(len(plan.inputs), 2))
    beside = int(readers > 1 and plan.source.remote)  # writes shards, so that no reader has to stop for it
    engine = make_engine(readers + beside)
    manifest = plan.manifest()
    template = PathTemplate.parse(sink.inside(conversion.output.template.text))
    listed = target is None and path != STDOUT
    if listed:
        claim = Claim(
            template,
            sink,
            manifest.identity(),
            inputs=plan.source.paths(plan.inputs),
            documents=[sink.inside(name) for name in plan.documents()],
            overwrite=overwrite,
            resumable=plan.source.repeatable,
        )
        target = Publisher(claim, events, lanes=list(conversion.split) or [item.stem for item in plan.inputs])
    target = target or StreamTarget()
    with target:
        if target.up_to_date:
            return _up_to_date(sink, template.manifest())
        threads = plan.threads(workers or cpu_count())
        worker = Worker(
            plan.work,
            plan.source,
            plan.inputs,
            target.folder,
            threads,
            direct=not (target.reads_shards or conversion.output.index),
        )
        run = _Run(plan, worker, engine, readers, events, target)
        run.run()
        manifest.features.update(run.features())
        manifest.skipped.update(run.skipped())
        summary = run.summary
        documents = plan.documents("".join(run.described))
        summary.shards = target.finish(manifest, {sink.inside(name): data for name, data in documents.items()})
    summary.features = manifest.features
    summary.manifest = sink.locate(template.manifest()) if listed else None
    return summary


def _up_to_date(sink: Sink, path: str) -> Summary:
    data = sink.read(path)
    if data is None:
        raise SinkError("vanished", shard=sink.locate(path))
    manifest = Manifest.from_bytes(data, sink.locate(path))
    return Summary(
        sink.locate(path),
        len(manifest.inputs),
        manifest.shards,
        manifest.records,
        sum(shard.bytes for shard in manifest.shards),
        skipped=Counter(manifest.skipped["members"]),
        skipped_samples=manifest.skipped["samples"],
        features=manifest.features,
        up_to_date=True,
    )


class _Run:
    """One run of a plan: which input is read next, which shards are ready, what has come back."""

    def __init__(
        self,
        plan: Plan,
        worker: Worker,
        engine: Engine,
        readers: int,
        events: Events,
        target: Target,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._engine = engine
        self._readers = readers  # how many tasks may read inputs at once
        self._reading = 0
        self._events = events
        self._target = target
        self._layout = ShardPlanner(plan.work, [item.stem for item in plan.inputs], plan.records)
        self._holds_all = self._layout.holds_all
        self._next = 0  # the next input to be read
        self._frontier = 0  # the first input that is not laid out
        self._reports: dict[int, InputReport] = {}
        self._errors: dict[int, Tar2tfError] = {}
        self._ready: deque[Shard] = deque()
        self._rereading: set[int] = set()  # inputs whose spool went with an interrupted run
        self._spooled: set[int] = set()  # inputs whose spool is there
        self._users: Counter[int] = Counter()  # unfinished shards that need an input's spool
        self._flusher: Flusher[tuple[Shard, ShardReport]] = Flusher()
        self._finished = False
        self._told_split = self._plan.conversion.input.key_split == "last"
        self.summary = Summary(shuffled=plan.conversion.shuffle, seed=plan.conversion.seed)
        self.summary.skipped.update(plan.source.skipped)
        self.schema = Schema()
        self.described: list[str] = []

    def run(self) -> None:
        """Do all the work.

        Raises:
            Tar2tfError: the first error in input order.
        """
        engine = self._engine
        engine.on_progress = self._tell_progress
        try:
            engine.start(self._worker)
            self._events.planned(len(self._plan.inputs), self._plan.size)
            self._advance()
            while True:
                while engine.free and (task := self._next_task()):
                    self._reading += isinstance(task, ReadInputs)
                    engine.submit(task)
                if not engine.busy and not self._flusher.pending:
                    break
                for outcome in engine.wait(_TICK_SECONDS) if engine.busy else []:
                    self._take(outcome.task, outcome.result, outcome.error)
                for shard, report in self._flusher.done(0 if engine.busy else _TICK_SECONDS):
                    self._seal(shard, report)
                self._tell_progress()
        finally:
            engine.close()
            self._flusher.close()

    def features(self) -> dict[str, dict[str, object]]:
        """The manifest's `features`.

        With `--limit` more samples may have been read than written, so that the count of a feature which only some
        of them have is not known; it is left out.
        """
        features = self.schema.describe()
        read = sum(self._reports[number].samples for number in range(self._frontier))
        if read != self.summary.records:
            for feature in features.values():
                if feature.pop("count") == read:
                    feature["count"] = self.summary.records
        return features

    def skipped(self) -> dict[str, object]:
        """The manifest's `skipped`."""
        return {"samples": len(self.summary.errors), "members": dict(sorted(self.summary.skipped.items()))}

    def _next_task(self) -> Task | None:
        """What to do next: a shard whose spools are there, else an input, not too far ahead of the others."""
        if self._ready:
            shard = self._ready[0]
            missing = [piece.source for piece in shard.pieces if self._lacks_spool(piece.source)]
            if not missing:
                self._ready.popleft()
                return self._write(shard)
            again = next((number for number in missing if number not in self._rereading), None)
            if again is not None:
                self._rereading.add(again)
                return ReadInputs((again,), need_spool=True)
        if self._errors or self._finished or self._reading == self._readers:
            return None
        first, self._next = self._next, self._next_behind()
        return ReadInputs(tuple(range(first, self._next))) if self._next > first else None

    def _next_behind(self) -> int:
        """Behind the inputs to be read next by one task: one, or where each costs a round trip several small ones."""
        inputs = self._plan.inputs
        most = _SMALL_INPUTS if self._plan.source.remote else 1
        ahead = len(inputs) if self._holds_all else self._frontier + _AHEAD * most * self._readers
        fair = -(-(len(inputs) - self._next) // (2 * self._readers))  # so that all workers have some to the end
        stop, size = self._next, 0
        while stop < min(len(inputs), ahead) and stop - self._next < max(1, min(most, fair)):
            size += _SMALL_BYTES if inputs[stop].size is None else inputs[stop].size or 0
            if stop > self._next and size > _SMALL_BYTES:
                break
            stop += 1
        return stop

    def _write(self, shard: Shard) -> WriteShard:
        return WriteShard(shard)

    def _lacks_spool(self, number: int) -> bool:
        """Whether an input's spool is needed and went with an interrupted run."""
        if self._reports[number].spool_crc is None or number in self._spooled:
            return False
        if os.path.exists(self._worker.path(number, "spool")) and number not in self._rereading:
            self._spooled.add(number)
            return False
        return True

    def _take(self, task: Task, result: object, error: Tar2tfError | None) -> None:
        """Take in how a task ended."""
        if isinstance(error, WorkerError):
            error.at(shard=self._name(task))
        if isinstance(task, ReadInputs):
            self._reading -= 1
            for number, outcome in zip(task.numbers, result if isinstance(result, list) else [error], strict=False):
                self._take_input(number, outcome, reread=task.need_spool)
            self._advance()
        elif error:
            raise error
        elif isinstance(task, WriteShard) and isinstance(result, ShardReport):
            self._flusher.submit(self._target.unsynced(task.shard), (task.shard, result))

    def _take_input(self, number: int, outcome: InputReport | Tar2tfError, *, reread: bool) -> None:
        if isinstance(outcome, InputReport):
            self._reports[number] = outcome
            if reread:
                self._spooled.add(number)
        elif reread:
            raise outcome
        else:
            self._errors[number] = outcome

    def _tell_progress(self) -> None:
        size = self._plan.size
        self._events.progress(self._engine.bytes_read if size is None else min(self._engine.bytes_read, size))

    def _name(self, task: Task) -> str | None:
        """The shard that a task reads or writes."""
        if isinstance(task, ReadInputs):
            return self._plan.source.locate(self._plan.inputs[task.numbers[0]].name)
        if isinstance(task, WriteShard) and self._plan.conversion.output.path != STDOUT:
            lane = task.shard.lane
            return self._plan.conversion.output.template.path(task.shard.number, split=lane, stem=lane)
        return None

    def _advance(self) -> None:
        """Lay out every input whose predecessors are all laid out; what comes in behind a limit is left aside."""
        if self._finished:
            return
        while self._frontier < len(self._plan.inputs) and not self._layout.full:
            if self._frontier in self._errors:
                raise self._errors[self._frontier]
            if self._frontier not in self._reports:
                return
            self._lay_out(self._frontier)
            self._frontier += 1
        self._finished = True
        last = list(self._layout.finish())
        for shard in last:  # all of them first, or a spool could go that a later one needs
            self._users.update({piece.source for piece in shard.pieces})
        for shard in last:
            self._enqueue(shard)

    def _lay_out(self, number: int) -> None:
        loaded = load_index(self._worker.path(number, "index"))
        if loaded is None:
            raise SinkError("an index in the working folder is damaged", shard=self._worker.path(number, "index"))
        report = self._reports[number]
        try:
            self.schema.update(report.schema)
        except SampleError as error:
            raise error.at(shard=self._plan.source.locate(self._plan.inputs[number].name)) from None
        self.summary.inputs += 1
        self.summary.skipped.update(report.skipped)
        self.described.append(report.described)
        report.described = ""
        self.summary.errors += report.errors
        self.summary.skipped_samples += len(report.errors)
        for fault in report.errors:
            self._events.fault(fault)
        if report.archives > 1:
            name = self._plan.source.locate(self._plan.inputs[number].name)
            self._events.note(f"note: {name} holds {report.archives} archives end to end; all were read")
        if report.split_differs and not self._told_split:
            self._told_split = True
            self._events.note(_split_note(report.split_differs))
        most = self._plan.conversion.max_errors
        if most is not None and len(self.summary.errors) > most:
            raise Tar2tfError(
                f"{len(self.summary.errors)} samples failed, more than --max-errors {most} allows",
                hint=f"the first: {self.summary.errors[0]['message']}",
            )
        for shard in self._layout.add(number, loaded[0]):
            self._users.update({piece.source for piece in shard.pieces})
            self._enqueue(shard)

    def _enqueue(self, shard: Shard) -> None:
        limit = self._plan.conversion.output.max_shard_size
        if limit and shard.size > limit and shard.records == 1:
            self.summary.oversized += 1
        self.summary.records += shard.records
        known = self._target.sealed.get((shard.lane, shard.number))
        if known and known.records == shard.records:
            self._seal(shard, known)
        else:
            self._ready.append(shard)

    def _seal(self, shard: Shard, report: ShardReport) -> None:
        self._target.seal(shard, report)
        self.summary.bytes += report.size
        sources = {piece.source for piece in shard.pieces}
        self._users.subtract(sources)
        still_open = self._layout.open_sources
        for source in sources:
            if not self._users[source] and source < self._frontier and source not in still_open:
                self._spooled.discard(source)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(source, "spool"))


def _split_note(name: str) -> str:
    key, entry = split_name(name, "first")
    other_key, other_entry = split_name(name, "last")
    return (
        f"note: {name} is taken as key {key!r}, entry {entry!r}; with --key-split last it would be key {other_key!r}, "
        f"entry {other_entry!r}"
    )
