"""What a `Pipeline` is made of while it runs: stages from iterator to iterator, over the flow of all conversions."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tar2tf_cli.errors import StageError, Tar2tfError
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.features.transformations import unknown_in
from tar2tf_cli.features.types import TypeName
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.flow.sample_flow import OnFault, Steps, flow
from tar2tf_cli.inputs.file_object import Readable, sources_of
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.stages import Tar
from tar2tf_cli.ops import Op
from tar2tf_cli.ops.base import OpContext
from tar2tf_cli.ops.func import is_identified, label, source_digest
from tar2tf_cli.ops.select import Selection
from tar2tf_cli.samples.grouping import Sample
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.output_path import STDOUT

__all__ = [
    "FromTars",
    "Own",
    "Recipe",
    "Run",
    "Stage",
    "ToExamples",
    "Transform",
]


class Run:
    """One run of a pipeline's stages: what it has found so far, and what went wrong first.

    Args:
        report: gets what was skipped.
        on_fault: the policy for faulty samples.

    Attributes:
        shard: the tar being read.
        failure: the first error, which a later stage may have swallowed.
    """

    def __init__(self, report: InputReport, on_fault: OnFault) -> None:
        self.report = report
        self.shard: str | None = None
        self._on_fault = on_fault
        self.failure: Exception | None = None

    def fail(self, error: Exception) -> Exception:
        """Take note of an error that is about to be raised, should a later stage swallow it."""
        self.failure = self.failure or error
        return error

    def check(self) -> None:
        """Raise the first error, should a stage have swallowed it."""
        if self.failure is not None:
            raise self.failure

    def fault(self, error: Tar2tfError) -> None:
        """Skip a faulty sample, or raise the error, as the policy is."""
        try:
            self._on_fault(error)
        except Tar2tfError as raised:
            raise self.fail(raised)  # noqa: B904  # it is the same one


class Stage:
    """A stage as a pipeline is given it; what one does not say about itself is as for most.

    Attributes:
        by_tar: whether each tar can be treated by itself, in any process.
    """

    by_tar = True

    def join(self, line: Line) -> None:
        """Work behind the stages that a line has."""
        raise NotImplementedError

    def run(self, items: Any, run: Run) -> Iterator[Any]:
        """What a stage that works on all items makes of them."""
        raise NotImplementedError

    def tars(self) -> list[Tar]:
        """The tars that the stage reads, as far as they are known.

        Raises:
            SourceError: when one is not there.
        """
        return []

    @property
    def input(self) -> Input:
        """How members of tars become samples."""
        return Input("-")

    @property
    def options(self) -> dict[str, Any]:
        """What of a conversion does the same."""
        return {}

    @property
    def unknown(self) -> Iterator[str]:
        """Functions that may be others than in an earlier run."""
        return iter(())

    def described(self) -> dict[str, Any] | None:
        """The stage as the manifest has it; None where it has the tars themselves."""
        return None


@dataclass(frozen=True)
class FromTars(Stage):
    """Read tars, one after the other.

    Attributes:
        how: how members become samples.
        gzip: whether the tars must be gzip.
    """

    inputs: list[Readable]
    how: Input
    gzip: bool

    def tars(self) -> list[Tar]:
        return [(source, item) for source in sources_of(self.inputs, gzip=self.gzip) for item in source.list(())]

    def run(self, items: Iterable[Tar], run: Run) -> Iterator[Sample]:
        """The samples of tars."""
        conversion = Conversion(self.how, Output(STDOUT))
        try:
            for source, item in items:
                with Reading(conversion, source, item, on_fault=run.fault) as reading:
                    run.shard = reading.name
                    yield from reading.samples()
                run.report.skipped += reading.report.skipped
        except Tar2tfError as error:
            raise run.fail(error)  # noqa: B904  # it is the same one

    @property
    def input(self) -> Input:
        return self.how

    @property
    def by_tar(self) -> bool:  # type: ignore[override]
        """Whether none of the inputs is an open file."""
        return all(isinstance(item, (str, os.PathLike)) for item in self.inputs)


@dataclass(frozen=True)
class Transform(Stage):
    """Send each sample or example through ops.

    Attributes:
        kind: which of the `Steps` they are.
    """

    kind: Literal["ops", "example_ops"]
    ops: tuple[Op, ...]

    def join(self, line: Line) -> None:
        line.steps = replace(line.steps, **{self.kind: getattr(line.steps, self.kind) + self.ops})

    @property
    def options(self) -> dict[str, Any]:
        return {self.kind: self.ops}

    @property
    def unknown(self) -> Iterator[str]:
        return unknown_in(self.ops)

    def described(self) -> dict[str, Any]:
        return {"ops": [op.canonical() for op in self.ops]}


@dataclass(frozen=True)
class ToExamples(Stage):
    """Make an example of each sample, as `FeatureMap` does."""

    types: Mapping[str, TypeName]
    select: Mapping[str, Selection] | None
    preset: str | None

    def join(self, line: Line) -> None:
        """Work on copies, as a stage of the user's may keep its samples."""
        preset = find_preset(self.preset) if self.preset else None
        features = FeatureMap(self.types, self.select, preset, line.steps.context).features
        line.steps = replace(line.steps, features=lambda sample: TFExample(features(dict(sample))))

    @property
    def options(self) -> dict[str, Any]:
        return {"types": self.types, "select": self.select, "preset": self.preset}

    def described(self) -> dict[str, Any]:
        select = {name: item.canonical() for name, item in (self.select or {}).items()}
        return {"types": dict(self.types), "select": select, "preset": self.preset}


@dataclass(frozen=True)
class Own(Stage):
    """A stage of the user's: what it raises and gives is looked at, so that errors name it.

    Attributes:
        kind: which stage it is.
        function: from an iterator to an iterator; a TarStage takes nothing.
        check: says what is wrong with an item; None for a stage that need not give any.
    """

    kind: str
    function: Callable[..., Any]
    check: Callable[[Any], str | None] | None = None
    by_tar = False

    def join(self, line: Line) -> None:
        line.add(self.run(line.end(), line.run))

    def run(self, items: Iterable[Any], run: Run) -> Iterator[Any]:
        """What the stage gives."""
        where = f"the {self.kind} {label(self.function)}"
        made: Any = None
        try:
            made = self.function() if self.kind == "TarStage" else self.function(items)
            if not isinstance(made, Iterable):
                if self.check is None:
                    return
                raise StageError(f"{where} gave {type(made).__name__} where an iterator is needed")
            for item in made:
                if self.check and (what := self.check(item)):
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

    @property
    def unknown(self) -> Iterator[str]:
        return iter([] if is_identified(self.function) else [label(self.function)])

    def described(self) -> dict[str, Any]:
        return {self.kind: [label(self.function), source_digest(self.function)]}


class Line:
    """Stages at work one behind the other; neighbours that treat each item by itself are one flow.

    Attributes:
        steps: what is still to be done to each item that the last iterator gives.
        run: the run they are at work for.
    """

    def __init__(self, first: Iterator[Any], run: Run, context: OpContext, threads: int) -> None:
        self.run = run
        self.steps = self._none = Steps(context)
        self._threads = threads
        self._opened = [first]

    def add(self, iterator: Iterator[Any]) -> None:
        """Let an iterator take what the one before gives."""
        self._opened.append(iterator)

    def end(self) -> Iterator[Any]:
        """What comes out of all stages so far."""
        if self.steps != self._none:
            straight = len(self._opened) == 1  # nothing has read ahead, so an item is of the shard being read
            where = (lambda: {"shard": self.run.shard}) if straight else dict
            self.add(flow(self._opened[-1], self.steps, self.run.fault, where=where, threads=self._threads))
            self.steps = self._none
        return self._opened[-1]

    def close(self) -> None:
        """Let all of them clean up, the last one first."""
        for iterator in reversed(self._opened):
            close(iterator)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The stages of a pipeline but the last, and the settings of all of them.

    Attributes:
        middle: all stages but the first.
        workers: threads for stages that treat each item by itself.
    """

    begin: Stage
    middle: tuple[Stage, ...]
    context: OpContext
    on_error: Literal["fail", "skip"]
    max_errors: int | None
    workers: int

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages but the last."""
        return (self.begin, *self.middle)

    @property
    def by_tar(self) -> bool:
        """Whether each tar can be read by itself: no stage is the user's own, and no input an open file."""
        return all(stage.by_tar for stage in self.stages)

    def examples(self, run: Run, tars: Sequence[Tar]) -> Generator[Any, None, None]:
        """What the stages make of tars.

        Raises:
            Tar2tfError: the first error, even if a later stage swallowed it.
        """
        line = Line(self.begin.run(tars, run), run, self.context, self.workers)
        try:
            for stage in self.middle:
                stage.join(line)
            yield from line.end()
            run.check()
        finally:
            line.close()


def close(iterator: Any) -> None:
    """Let a generator clean up; one that a thread of a stage's is still in does so by itself."""
    if isinstance(iterator, Generator):
        try:
            iterator.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
