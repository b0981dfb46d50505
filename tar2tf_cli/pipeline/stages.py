"""What a `Pipeline` is made of while it runs: stages from iterator to iterator, and one run's findings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypeAlias

from tar2tf_cli.errors import SampleError, StageError, Tar2tfError
from tar2tf_cli.features.feature_map import FeatureMap, Schema
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.tf_example import TFExample, key_of, unfit
from tar2tf_cli.features.transformations import transform
from tar2tf_cli.features.types import TypeName
from tar2tf_cli.flow.sample_flow import Reading
from tar2tf_cli.flow.threads import in_threads
from tar2tf_cli.formats.example import Encoder
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.inputs.file_object import Readable, sources_of
from tar2tf_cli.inputs.stages import Tar
from tar2tf_cli.ops import Op
from tar2tf_cli.ops.base import OpContext, apply_ops
from tar2tf_cli.ops.func import label
from tar2tf_cli.ops.select import Selection
from tar2tf_cli.samples.grouping import KEY, Sample
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.spec.conversion import Input as InputSpec
from tar2tf_cli.spec.output_path import STDOUT

__all__ = [
    "Fault",
    "Framed",
    "FromTars",
    "Own",
    "OwnTars",
    "PipelineSummary",
    "Recipe",
    "Run",
    "Stage",
    "ToExamples",
    "Transform",
    "check_example",
    "check_sample",
    "framed",
    "noted",
    "own",
]

Fault: TypeAlias = Callable[[SampleError], None]
"""Called with each faulty sample; when it returns, the sample is passed over."""

Framed: TypeAlias = tuple[TFExample, list[bytes], int]
"""An example, its framed record in parts, and their size together."""


@dataclass(slots=True)
class PipelineSummary:
    """What a pipeline did.

    Attributes:
        records: how many examples were written.
        bytes: how many bytes, framing included; 0 where the TFRecordStage is your own.
        shards: paths of the shards, where these were asked for.
        manifest: path of the manifest beside them.
        up_to_date: whether they were there already, so that nothing was done.
        features: dtype, shape, encoding and count of each feature, as a manifest has them.
        skipped: members of tars that were passed over, by reason.
        errors: faulty samples that were passed over: shard, key, member, offset, message; none when up to date.
    """

    records: int = 0
    bytes: int = 0
    shards: list[str] = field(default_factory=list)
    manifest: str | None = None
    up_to_date: bool = False
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)


class Run:
    """One run of a pipeline: what it has found so far, and what went wrong first.

    Attributes:
        shard: the tar being read.
        whole: where faulty samples are that may be of any tar.
        failure: the first error, which a later stage may have swallowed.
    """

    def __init__(
        self,
        on_error: Literal["fail", "skip"],
        max_errors: int | None,
        summary: PipelineSummary | None = None,
        whole: str | None = None,
    ) -> None:
        self.summary = summary or PipelineSummary()
        self.schema = Schema()
        self.shard: str | None = None
        self.whole = whole
        self.on_error = on_error
        self._max_errors = max_errors
        self.failure: Exception | None = None

    def fail(self, error: Exception) -> Exception:
        """Take note of an error that is about to be raised."""
        self.failure = self.failure or error
        return error

    def check(self) -> None:
        """Raise the first error, should a stage have swallowed it."""
        if self.failure is not None:
            raise self.failure

    def finished(self) -> PipelineSummary:
        """The summary, with the features."""
        self.summary.features = self.schema.describe()
        return self.summary

    def fault(self, error: SampleError) -> None:
        """Pass over a faulty sample, or raise the error, as the policy is."""
        error.at(shard=self.whole)
        if self.on_error == "fail":
            raise self.fail(error)
        places = {name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")}
        self.note([places])

    def note(self, errors: list[dict[str, Any]]) -> None:
        """Take note of samples that were passed over."""
        known = self.summary.errors
        known += errors
        if self._max_errors is not None and len(known) > self._max_errors:
            raise self.fail(
                Tar2tfError(
                    f"{len(known)} samples failed, more than max_errors={self._max_errors} allows",
                    hint=f"the first: {known[0]['message']}",
                )
            )


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it is run.

    Attributes:
        run: from the items of the stage before, and what to call with faulty ones, to the stage's own items.
        elementwise: whether any part of the stream may be given to it by itself, and in another thread.
    """

    run: Callable[[Iterator[Any], Fault], Iterator[Any]]
    elementwise: bool


# --- Stages as a pipeline is given them; each run makes its own of them ---


@dataclass(frozen=True, slots=True)
class FromTars:
    """Read tars, one after the other.

    Attributes:
        how: how members become samples.
        gzip: whether the tars must be gzip.
    """

    inputs: list[Readable]
    how: InputSpec
    gzip: bool

    def __call__(self, run: Run) -> Iterator[Sample]:
        return self.read(self.tars(), run)

    def tars(self) -> Iterator[Tar]:
        """The tars, each looked for when its turn comes.

        Raises:
            SourceError: when one is not there.
        """
        for source in sources_of(self.inputs, gzip=self.gzip):
            for item in source.list(()):
                yield source, item

    def read(self, tars: Iterable[Tar], run: Run) -> Iterator[Sample]:
        """The samples of these tars."""
        return _read(Conversion(self.how, Output(STDOUT), on_error=run.on_error), tars, run)

    @property
    def by_path(self) -> bool:
        """Whether none of the inputs is an open file."""
        return all(isinstance(item, (str, os.PathLike)) for item in self.inputs)


@dataclass(frozen=True, slots=True)
class Transform:
    """Send each sample or example through ops."""

    ops: tuple[Op, ...]
    context: OpContext

    def __call__(self, run: Run) -> Stage:
        return Stage(lambda items, fault: _apply(items, self.ops, self.context, fault), elementwise=True)


@dataclass(frozen=True, slots=True)
class ToExamples:
    """Make an example of each sample, as `FeatureMap` does."""

    types: Mapping[str, TypeName]
    select: Mapping[str, Selection] | None
    preset: str | None
    context: OpContext

    def __call__(self, run: Run) -> Stage:
        preset = find_preset(self.preset) if self.preset else None
        features = FeatureMap(self.types, self.select, preset, self.context)
        return Stage(lambda items, fault: _to_examples(items, features, fault), elementwise=True)

    @property
    def plain(self) -> bool:
        """Whether the features are the entries themselves."""
        return not self.types and self.select is None and self.preset is None


@dataclass(frozen=True, slots=True)
class Own:
    """A stage of the user's in the middle of a pipeline.

    Attributes:
        check: says what is wrong with an item.
    """

    kind: str
    function: Callable[[Any], Any]
    check: Callable[[Any], str | None]

    def __call__(self, run: Run) -> Stage:
        return Stage(own(self.kind, label(self.function), self.function, self.check, run), elementwise=False)


# --- What stages do ---


@dataclass(frozen=True, slots=True)
class OwnTars:
    """A first stage of the user's."""

    function: Callable[[], Any]

    @property
    def kind(self) -> str:
        """What stage it is."""
        return "TarStage"

    def __call__(self, run: Run) -> Iterator[Sample]:
        stage = own(self.kind, label(self.function), lambda _: self.function(), check_sample, run)
        return stage(iter(()), run.fault)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The stages of a pipeline but the last, and what holds for all of them.

    Attributes:
        workers: threads for stages that treat each item by itself.
    """

    begin: FromTars | OwnTars
    samples: tuple[Transform | Own, ...]
    convert: ToExamples | Own
    examples: tuple[Transform | Own, ...]
    context: OpContext
    on_error: Literal["fail", "skip"]
    max_errors: int | None
    workers: int

    @property
    def middle(self) -> list[Transform | Own | ToExamples]:
        """All stages but the first."""
        return [*self.samples, self.convert, *self.examples]

    @property
    def keeps_entries(self) -> bool:
        """Whether every feature is an entry of a tar, byte for byte."""
        plain = isinstance(self.convert, ToExamples) and self.convert.plain
        return isinstance(self.begin, FromTars) and plain and not self.samples and not self.examples

    @contextmanager
    def open(self, run: Run, *last: Stage, tars: Iterable[Tar] | None = None) -> Iterator[Iterator[Any]]:
        """Set the stages to work; gives what the last of them gives.

        Args:
            last: further stages.
            tars: what to read, when it has been looked for already.
        """
        begin = self.begin
        opened = [begin(run) if tars is None or isinstance(begin, OwnTars) else begin.read(tars, run)]
        try:
            self._connect(opened, [*(make(run) for make in self.middle), *last], run)
            yield opened[-1]
        finally:
            for iterator in reversed(opened):
                close(iterator)

    def _connect(self, opened: list[Iterator[Any]], stages: list[Stage], run: Run) -> None:
        """Let each stage take what the one before gives; neighbours that may go to threads go there together."""
        straight = True  # no stage between here and the tar may have read ahead, so a sample is of the shard being read
        for together, group in groupby(stages, lambda stage: stage.elementwise):
            if together and self.workers > 1:
                where = (lambda: run.shard) if straight else (lambda: None)
                opened.append(in_threads(opened[-1], Chain(tuple(group)), self.workers, where, run.fault))
            else:
                for stage in group:
                    opened.append(stage.run(opened[-1], at_shard(run) if straight and together else run.fault))
            straight = False


@dataclass(frozen=True, slots=True)
class Chain:
    """Several elementwise stages as one."""

    stages: tuple[Stage, ...]

    def __call__(self, items: Iterator[Any], fault: Fault) -> Iterator[Any]:
        for stage in self.stages:
            items = stage.run(items, fault)
        return items


def _read(conversion: Conversion, tars: Iterable[Tar], run: Run) -> Iterator[Sample]:
    """The samples of tars, one tar after the other."""
    try:
        for source, item in tars:
            with Reading(conversion, source, item) as reading:
                run.shard = reading.name
                yield from reading.samples()
            run.summary.skipped += reading.report.skipped
            run.note(reading.report.errors)
    except Tar2tfError as error:
        raise run.fail(error)  # noqa: B904  # it is the same one


def _apply(items: Iterator[Any], ops: Sequence[Op], context: OpContext, fault: Fault) -> Iterator[Any]:
    """Samples or examples that have been through ops; those that become none are dropped."""
    for item in items:
        key = key_of(item)
        try:
            yield from transform(item, ops, context) if type(item) is TFExample else apply_ops(item, ops, context)
        except SampleError as error:
            fault(error.at(key=key))


def _to_examples(samples: Iterator[Sample], features: FeatureMap, fault: Fault) -> Iterator[TFExample]:
    """Samples as examples."""
    features_of = features.features
    for sample in samples:
        try:
            made: Any = features_of(dict(sample))  # a copy, as whoever keeps the sample may look at it later
        except SampleError as error:
            fault(error.at(key=sample[KEY]))
        else:
            yield TFExample(made)


def framed(examples: Iterator[TFExample], fault: Fault) -> Iterator[Framed]:
    """Examples with their records."""
    encode = Encoder().encode
    for example in examples:
        try:
            try:
                parts, size = encode(example)
            except (AttributeError, TypeError):  # it was put into the dict beside `add_...`
                raise SampleError(f"the example has {unfit(example)}") from None
        except SampleError as error:
            fault(error.at(key=key_of(example)))
        else:
            yield example, frame(parts, size), size + FRAMING


def noted(examples: Iterator[TFExample], run: Run) -> Iterator[TFExample]:
    """Examples on their way to a TFRecordStage of the user's, counted and described."""
    for example in examples:
        run.schema.add(example)
        run.summary.records += 1
        yield example


def own(
    kind: str, name: str, stage: Callable[[Any], Any], check: Callable[[Any], str | None] | None, run: Run
) -> Callable[[Iterator[Any], Fault], Iterator[Any]]:
    """A stage of the user's: what it raises and gives is looked at, so that errors name it.

    Args:
        check: says what is wrong with an item; None for a stage that need not give any.
    """
    where = f"the {kind} {name}"

    def checked(items: Iterator[Any], fault: Fault) -> Iterator[Any]:
        made: Any = None
        try:
            made = stage(items)
            if not isinstance(made, Iterable):
                if check is None:
                    return
                raise StageError(f"{where} gave {type(made).__name__} where an iterator is needed")
            for item in made:
                if check and (what := check(item)):
                    raise StageError(f"{where} gave {what}")
                yield item
        except Exception as error:
            if error is run.failure:  # a stage before this one has raised it
                raise
            if not isinstance(error, StageError):
                raise run.fail(StageError(f"{where} raised {type(error).__name__}: {error}")) from error
            raise run.fail(error)  # noqa: B904  # it is the same one
        finally:
            close(made)

    return checked


def at_shard(run: Run) -> Fault:
    """What to call with faulty samples of the shard that is being read."""
    return lambda error: run.fault(error.at(shard=run.shard))


def check_sample(item: Any) -> str | None:
    """What is wrong with a sample, if anything."""
    if not isinstance(item, dict):
        return f"{type(item).__name__} where a sample (a dict) is needed"
    return None if isinstance(item.get(KEY), str) else f"a sample without a text as its {KEY!r}"


def check_example(item: Any) -> str | None:
    """What is wrong with an example, if anything."""
    if not isinstance(item, TFExample):
        return f"{type(item).__name__} where a TFExample is needed"
    return f"a TFExample with {found}" if (found := unfit(item)) else None


def close(iterator: Any) -> None:
    """Let a generator clean up; one that a thread of a stage's is still in does so by itself."""
    if isinstance(iterator, Generator):
        try:
            iterator.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
