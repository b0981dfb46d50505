"""Reading of the files of a check or an inspection by workers, with results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

from tar2tf_cli.api.backend import Outcome, Task
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import OnFault, Source
from tar2tf_cli.api.values import Batch, Sample
from tar2tf_cli.engines import cpu_count, make_engine
from tar2tf_cli.engines.base import Schedule, run_tasks
from tar2tf_cli.errors import DamagedShardError, SourceError, Tar2tfError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.example import ParsedFeature, parse
from tar2tf_cli.formats.kernel import native
from tar2tf_cli.formats.streams import OnDamage, iter_resuming
from tar2tf_cli.formats.tfrecord import Accept, RecordReader, Want
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.shard_set import ShardSet, lists_nothing, resolve
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.ops.rules import accepted, text
from tar2tf_cli.ops.rules import workers as number_of
from tar2tf_cli.spec.urls import ConnectionOptions
from tar2tf_cli.structs import NamedTuple, dataclass

if TYPE_CHECKING:
    from tar2tf_cli.spec.conversion import PathText


class CheckOptions(ConnectionOptions, total=False):
    """Keyword arguments common to all functions that read shards.

    Keys:
        rules: the rules for reading tars.
        workers: number of files to read at once; defaults to the number of CPUs.
        events: notified of progress.
    """

    rules: TarRules | None
    workers: int | None
    events: Events | None


def declared_types(shards: ShardSet) -> dict[str, str]:
    """Return the types of features in TensorFlow Datasets files; empty if they are missing or damaged."""
    try:
        found = shards.tfds
        if not found and len(shards.documents) == 1:
            folder = shards.documents[0].folder
            if len(folder.find(["dataset_info.json", "features.json"])) == 2:
                from tar2tf_cli.inputs.tfds_folder import TfdsFolder  # only here, as few shards are described so

                found = TfdsFolder.read(folder)
        return found.types() if found else {}
    except (SourceError, ValueError):  # read the shards without types
        return {}


class FileRun:
    """A run of tasks that each read one file.

    Args:
        options: the options given by the caller.

    Attributes:
        rules: the rules for reading tars.
        workers: number of files to read at once; None for the number of CPUs.
        events: notified of progress.
        connection: `ConnectionOptions` of remote buckets.
    """

    def __init__(
        self,
        *,
        rules: TarRules | None = None,
        workers: int | None = None,
        events: Events | None = None,
        endpoint: str | None = None,
        retry_for: float | None = None,
        no_sign_request: bool = False,
    ) -> None:
        self.rules = rules or TarRules()
        self.workers = number_of(workers)
        self.events = events or Events()
        self.connection = ConnectionOptions(endpoint=endpoint, retry_for=retry_for, no_sign_request=no_sign_request)

    def shards(
        self, bucket: PathText, templates: PathText | Sequence[PathText] = (), *, paths: bool = False
    ) -> ShardSet:
        """Resolve the named shards like `resolve`; an unreadable one becomes an input that fails to open.

        Raises:
            SourceError: when the only manifest does not exist or cannot be read, or there are no shards.
            UsageError: when the caller gave anything but paths.
        """
        shards = resolve(*as_texts(bucket, templates), paths=paths, tolerant=True, described=False, **self.connection)
        if shards.manifests and not shards.items:
            raise lists_nothing(shards.source.bucket)
        return shards

    def note_on(self, shards: ShardSet) -> None:
        """Emit the notes on a set of shards."""
        for note in shards.notes():
            self.events.note(note)

    def read(
        self, tasks: Sequence[FileTask], context: FileContext, use: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """Run one task per file and return the results in order, independent of the number of workers.

        Args:
            tasks: a task for each file.
            context: passed to every task.
            use: called with the number and the result of each task as soon as it ends; `read` then returns no results.

        Raises:
            Tar2tfError: the error of the first failed task, in order; later tasks may not have run.
        """
        schedule = _LargestFirst(tasks, self.events, use)
        run_tasks(schedule, make_engine(min(self.workers or cpu_count(), len(tasks) or 1)), context)
        if schedule.error:
            raise schedule.error
        return schedule.results


def as_texts(bucket: PathText, templates: PathText | Sequence[PathText]) -> tuple[str, Sequence[str]]:
    """Return a bucket or path, and one or several templates, as strings.

    Raises:
        UsageError: when the caller gave anything else.
    """
    several = [templates] if isinstance(templates, (str, os.PathLike)) else templates
    return accepted(text, bucket, "bucket"), [accepted(text, name, "each template") for name in several]


@dataclass(eq=False, repr=False)
class FileContext:
    """The context shared by the tasks of one run.

    Attributes:
        source: lists and opens the files.
        rules: the rules for reading tars.
        on_bytes: called with the number of stored bytes after each read of a file.
    """

    source: Source
    rules: TarRules
    on_bytes: Callable[[int], None] | None = None


class FileTask(NamedTuple):
    """Task that reads one file.

    Attributes:
        item: the file.
        read: called with the file and the context.
    """

    item: ObjectInfo
    read: Callable[[ObjectInfo, Any], Any]

    def run(self, context: FileContext) -> object:
        """Read the file, and return the result."""
        return self.read(self.item, context)


class _LargestFirst(Schedule):
    """Schedule that starts with the largest files, so that all workers end together; stops after a failure."""

    def __init__(self, tasks: Sequence[FileTask], events: Events, use: Callable[[int, object], None] | None) -> None:
        self._tasks = tasks
        self._events = events
        self._use = use
        self._left = sorted(range(len(tasks)), key=lambda number: (tasks[number].item.size or 0, -number))
        self._numbers = {id(task): number for number, task in enumerate(tasks)}
        self._failed = len(tasks)  # the first failed task
        self.results: list[Any] = [None] * len(tasks)
        self.error: Tar2tfError | None = None

    def begin(self) -> None:
        sizes = [task.item.size for task in self._tasks]
        self._events.planned(len(sizes), None if None in sizes else sum(size or 0 for size in sizes))

    def next(self) -> Task | None:
        while self._left:
            number = self._left.pop()
            if number < self._failed:
                return self._tasks[number]
        return None

    def take(self, outcome: Outcome) -> None:
        number = self._numbers[id(outcome.task)]
        if self._use and not outcome.error:
            self._use(number, outcome.result)
        else:
            self.results[number] = outcome.result
        if outcome.error and number < self._failed:
            self._failed, self.error = number, outcome.error

    def name(self, task: Task) -> str:
        return self._tasks[self._numbers[id(task)]].item.name

    def progress(self, size: int) -> None:
        self._events.progress(size)


# --- Contents of a file ---

AHEAD: Final = 1 << 20
"""Bytes of a compressed or remote tar that show whether members of samples are adjacent, for who reads it once."""


class BatchConsumer(Accept, Protocol):
    """Consumer of batches of samples, so that they need not come to Python one by one."""

    def take_batch(self, batch: Batch, native: ModuleType, /) -> bool:
        """Process a batch; return False, without processing any, if samples must come one by one."""


def unbatched_samples(
    tar: TarSamples, damaged: OnDamage, take: Callable[[Batch, ModuleType], bool] | None
) -> Iterator[Sample]:
    """Iterate over a tar's samples, after damage too, except those processed in batches."""
    kernel = native() if take else None
    for found in iter_resuming(lambda: tar.samples(kernel), tar.resume, damaged):
        if not isinstance(found, Batch):
            yield found
        elif not (take and kernel and take(found, kernel)):
            yield from tar.one_by_one(found)


def raise_error(error: Tar2tfError, more: bool = False) -> None:
    """Raise an error that could also be counted."""
    raise error


def contents_of(
    shard: OpenShard,
    rules: TarRules,
    damaged: OnDamage = raise_error,
    end: Callable[[TarSamples], object] = id,
    fault: OnFault = lambda error: None,
    many: BatchConsumer | None = None,
) -> Iterator[tuple[int, Sample | bytes]]:
    """Iterate over an open tar's samples or an open TFRecord's records, with their numbers; empty for other files.

    Args:
        shard: the file; its format becomes None if only its name says that it is a TFRecord.
        rules: the rules for reading a tar; `heads_only` also applies to large records.
        damaged: called with each damage error, after which reading continues.
        end: called with a tar whose samples have been read.
        fault: called with the error of each faulty sample.
        many: processes samples and records in batches; only the others are yielded, and only they count for the numbers
            of a tar's samples.

    Raises:
        SourceError: when it cannot be read.
    """
    if shard.damage and not shard.format:
        damaged(shard.damage, False)
    elif shard.traits.holds == "sample":
        with closing(TarSamples(shard, rules, fault)) as tar:
            yield from enumerate(unbatched_samples(tar, damaged, many.take_batch if many else None))
            end(tar)
    elif shard.traits.carries_examples:
        want: Want = "heads" if rules.heads_only else "records"
        reader = RecordReader(shard.content, shard.name, want=want, accept=many)
        first, is_one = list[tuple[DamagedShardError, bool]](), not shard.by_name

        def note(error: DamagedShardError, more: bool) -> None:
            damaged(error, more) if is_one else first.append((error, more))

        for _, record in reader.undamaged(note):
            is_one = True
            while first:
                damaged(*first.pop(0))
            yield reader.count, record
        if not is_one:  # no valid record follows
            shard.format = None
    elif kind := shard.kind:
        units = kind.units(shard.content, shard.name)
        for number, (_, unit) in enumerate(iter_resuming(lambda: units, units.resume, damaged)):
            yield number, _as_bytes(kind.sample(unit, shard.name, rules.key_split))


def _as_bytes(sample: Sample) -> Sample:
    """Convert the values of a sample that are not bytes to text."""
    return {name: value if isinstance(value, bytes) else str(value).encode() for name, value in sample.items()}


def features_of(record: bytes, *, sequence: bool = False) -> dict[str, bytes | ParsedFeature]:
    """Return the features of a record that have values; a record that is no example is one value named `record`.

    With `sequence`, also return the features in the context of a tf.train.SequenceExample, which otherwise counts as
    another record.
    """
    try:
        features = parse(record, sequence=sequence)
    except ValueError:
        return {"record": record}
    return {name: feature for name, feature in features.items() if feature.kind}


def values_of(content: Sample | bytes) -> Sample:
    """Return the entries of a sample, or the features of a record, of which single bytes values become bytes."""
    if isinstance(content, dict):
        return content
    features = features_of(content, sequence=True)
    return {name: value.parts()[0] if _is_single(value) else value for name, value in features.items()}


def _is_single(value: bytes | ParsedFeature) -> TypeGuard[ParsedFeature]:
    return isinstance(value, ParsedFeature) and value.kind == "bytes" and value.count == 1
