"""What a `Pipeline` is made of while it runs: stages from iterator to iterator, and one run's findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tar2tf_cli.errors import SampleError, StageError, Tar2tfError
from tar2tf_cli.example import Encoder
from tar2tf_cli.features import FeatureMap, Schema
from tar2tf_cli.ops import Op
from tar2tf_cli.ops.base import OpContext, apply_ops
from tar2tf_cli.ops.func import label
from tar2tf_cli.reading import Reading
from tar2tf_cli.samples import KEY, Sample
from tar2tf_cli.sources.fileobject import Readable, sources_of
from tar2tf_cli.spec import Conversion
from tar2tf_cli.tf_example import TFExample, unfit
from tar2tf_cli.tfrecord import FRAMING, frame

__all__ = [
    "Chain",
    "Fault",
    "Framed",
    "PipelineSummary",
    "Run",
    "Stage",
    "apply",
    "at_shard",
    "check_example",
    "check_sample",
    "close",
    "elementwise",
    "framed",
    "key_of",
    "noted",
    "own",
    "own_stage",
    "read_tars",
    "to_examples",
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
        features: dtype, shape, encoding and count of each feature, as a manifest has them.
        skipped: members of tars that were passed over, by reason.
        errors: faulty samples that were passed over: shard, key, member, offset, message.
    """

    records: int = 0
    bytes: int = 0
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)


class Run:
    """One run of a pipeline: what it has found so far, and what went wrong first.

    Attributes:
        shard: the tar being read.
        failure: the first error, which a later stage may have swallowed.
    """

    def __init__(self, on_error: Literal["fail", "skip"], max_errors: int | None) -> None:
        self.summary = PipelineSummary()
        self.schema = Schema()
        self.shard: str | None = None
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

    def fault(self, error: SampleError) -> None:
        """Pass over a faulty sample, or raise the error, as the policy is."""
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


@dataclass(frozen=True, slots=True)
class Chain:
    """Several elementwise stages as one."""

    stages: tuple[Stage, ...]

    def __call__(self, items: Iterator[Any], fault: Fault) -> Iterator[Any]:
        for stage in self.stages:
            items = stage.run(items, fault)
        return items


# --- What stages do ---


def read_tars(conversion: Conversion, inputs: Iterable[Readable], run: Run, *, gzip: bool) -> Iterator[Sample]:
    """The samples of tars, one tar after the other."""
    try:
        for source in sources_of(inputs, gzip=gzip):
            for item in source.list(()):
                with Reading(conversion, source, item) as reading:
                    run.shard = reading.name
                    yield from reading.samples()
                run.summary.skipped += reading.report.skipped
                run.note(reading.report.errors)
    except Tar2tfError as error:
        raise run.fail(error)  # noqa: B904  # it is the same one


def apply(items: Iterator[Any], ops: Sequence[Op], context: OpContext, fault: Fault) -> Iterator[Any]:
    """Samples or examples that have been through ops; those that become none are dropped."""
    for item in items:
        kind, key = type(item), item.get(KEY)
        try:
            for result in apply_ops(item, ops, context):
                if kind is TFExample and type(result) is not TFExample:
                    raise SampleError(f"{type(result).__name__} was made where a TFExample is needed")
                yield result
        except SampleError as error:
            fault(error.at(key=_as_text(key)))


def to_examples(samples: Iterator[Sample], features: FeatureMap, fault: Fault) -> Iterator[TFExample]:
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


def own_stage(kind: str, stage: Callable[[Any], Any], check: Callable[[Any], str | None]) -> Callable[[Run], Stage]:
    """A stage of the user's in the middle of a pipeline."""
    return lambda run: Stage(own(kind, label(stage), stage, check, run), elementwise=False)


def elementwise(run: Callable[[Iterator[Any], Fault], Iterator[Any]]) -> Callable[[Run], Stage]:
    """A stage that treats each item by itself."""
    return lambda _: Stage(run, elementwise=True)


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


def key_of(example: TFExample) -> str | None:
    """The key of the sample that an example was made of, if it still has it."""
    return _as_text(example.get(KEY))


def _as_text(key: Any) -> str | None:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key if isinstance(key, str) else None


def close(iterator: Any) -> None:
    """Let a generator clean up; one that a thread of a stage's is still in does so by itself."""
    if isinstance(iterator, Generator):
        try:
            iterator.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
