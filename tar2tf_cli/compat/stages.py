"""The stages of a `Pipeline`: each turns an iterator into another, using the flow that all conversions share."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tar2tf_cli.compat.transformations import typed, unknown_in
from tar2tf_cli.errors import StageError, Tar2tfError
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import FeatureMap, TypeName
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.flow.sample_flow import Reading, Steps, context_of, flow
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.inputs.file_object import Readable, sources_of
from tar2tf_cli.inputs.report import InputReport, Notes
from tar2tf_cli.inputs.stages import Tar
from tar2tf_cli.ops import Op
from tar2tf_cli.ops.base import RAISED, is_identified, label, source_digest
from tar2tf_cli.ops.select import Selection
from tar2tf_cli.samples.names import Sample
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.output_path import STDOUT
from tar2tf_cli.stores.base import OnFault


class Run:
    """The state of one run of a pipeline's stages: what was skipped, and the first error.

    Args:
        report: what was skipped is added to it.
        on_fault: the policy for faulty samples.
        most: the size above which entries may not be held in memory as a whole.

    Attributes:
        shard: the tar being read.
        failure: the first error, which a later stage may have swallowed.
    """

    def __init__(self, report: InputReport, on_fault: OnFault, most: int) -> None:
        self.report = report
        self.most = most
        self.shard: str | None = None
        self._on_fault = on_fault
        self.failure: Exception | None = None

    def fail(self, error: Exception) -> Exception:
        """Remember an error that is about to be raised, in case a later stage swallows it."""
        self.failure = self.failure or error
        return error

    def check(self) -> None:
        """Raise the first error, in case a stage has swallowed it."""
        if self.failure is not None:
            raise self.failure

    def fault(self, error: Tar2tfError) -> None:
        """Skip a faulty sample or raise its error, depending on the policy."""
        try:
            self._on_fault(error)
        except Tar2tfError as raised:
            raise self.fail(raised)  # noqa: B904  # it is the same one


class Stage:
    """A stage of a pipeline; the methods here are the defaults.

    Attributes:
        by_tar: whether each tar can be processed on its own, in any process.
    """

    by_tar = True

    def joined(self, steps: Steps) -> Steps | None:
        """The steps before this stage, and its own; None if the stage sees the whole stream."""
        return None

    def run(self, items: Any, run: Run) -> Iterator[Any]:
        """The stage's output for all items; only for stages that see the whole stream."""
        raise NotImplementedError

    def tars(self) -> list[Tar]:
        """The tars that the stage reads, if they are known.

        Raises:
            SourceError: when one does not exist.
        """
        return []

    @property
    def input(self) -> Input:
        """How members of tars become samples."""
        return Input("-")

    @property
    def options(self) -> dict[str, Any]:
        """The options of a conversion that do the same as this stage."""
        return {}

    @property
    def unknown(self) -> Iterator[str]:
        """Names of functions that cannot be identified as those of an earlier run."""
        return iter(())

    def described(self) -> dict[str, Any]:
        """The stage as the manifest describes it; empty if the manifest lists the tars instead."""
        spec = Conversion("-", STDOUT, **self.options).canonical()
        return {name: value for name, value in spec.items() if name not in ("input", "output")}


@dataclass(frozen=True)
class FromTars(Stage):
    """Reads tars, one after another.

    Attributes:
        how: how members become samples.
    """

    inputs: list[Readable]
    how: Input

    def tars(self) -> list[Tar]:
        return [(source, item) for source in sources_of(self.inputs) for item in source.list(())]

    def run(self, items: Iterable[Tar], run: Run) -> Iterator[Sample]:
        """The samples of the tars."""
        conversion = Conversion(self.how, Output(STDOUT), max_entry_size=run.most)
        notes = Notes(self.how, Events().note)
        try:
            for source, item in items:
                with Reading(conversion, source, item, on_fault=run.fault, ahead=True) as reading:
                    run.shard = reading.name
                    yield from reading.whole_samples()
                run.report.skipped += reading.report.skipped
                notes.add(reading.name, reading.report)
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
    """Applies ops to each sample or example.

    Attributes:
        kind: the attribute of `Steps` that holds the ops.
    """

    kind: Literal["ops", "example_ops"]
    ops: tuple[Op, ...]

    def joined(self, steps: Steps) -> Steps:
        return replace(steps, **{self.kind: getattr(steps, self.kind) + self.ops})

    @property
    def options(self) -> dict[str, Any]:
        return {self.kind: self.ops}

    @property
    def unknown(self) -> Iterator[str]:
        return unknown_in(self.ops)


@dataclass(frozen=True)
class ToExamples(Stage):
    """Turns each sample into an example, using `FeatureMap`.

    Where neither a selection nor a preset says which features there are, the types of those that a sample lacks are
    ignored: an op gives types, as a conversion requires every feature that has one.
    """

    types: Mapping[str, TypeName]
    select: Mapping[str, Selection] | None
    preset: str | None

    def joined(self, steps: Steps) -> Steps:
        """The steps before this stage, and this one, which works on copies, as a custom stage may keep its samples."""
        preset = find_preset(self.preset).make if self.preset else None
        given = self.options
        features = FeatureMap(given["types"], self.select, preset, steps.context).features
        return replace(
            steps,
            ops=steps.ops + given["ops"],
            features=lambda sample: TFExample(whole_sample(dict(features(dict(sample))))),
        )

    @property
    def options(self) -> dict[str, Any]:
        known = self.select is not None or self.preset or not self.types
        ops = () if known else (typed(self.types),)
        return {"types": self.types if known else {}, "ops": ops, "select": self.select, "preset": self.preset}


@dataclass(frozen=True)
class Own(Stage):
    """A custom stage: its items and exceptions are checked, so that errors name the stage.

    Attributes:
        kind: the name of the stage's kind, such as "SamplesStage".
        function: a function from an iterator to an iterator; for a TarStage, it takes no arguments.
        check: returns what is wrong with an item, if anything; None if the stage need not return an iterator.
    """

    kind: str
    function: Callable[..., Any]
    check: Callable[[Any], str | None] | None = None
    by_tar = False

    def run(self, items: Iterable[Any], run: Run) -> Iterator[Any]:
        """The items that the stage yields."""
        where = f"the {self.kind} {label(self.function)}"
        made: Any = None
        try:
            made = self.function() if self.kind == "TarStage" else self.function(items)
            if not isinstance(made, Iterable):
                if self.check is None:
                    return
                raise StageError(f"{where} returned {type(made).__name__} instead of an iterator")
            for item in made:
                if self.check and (what := self.check(item)):
                    raise StageError(f"{where} yielded {what}")
                yield item
        except RAISED as error:
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """All stages of a pipeline except the last, and its settings.

    Attributes:
        begin: the first stage.
        middle: the stages between the first and the last.
        settings: a conversion with the settings that all stages share, but with other inputs, output and features.
        workers: number of threads for stages that process each item on its own.
    """

    begin: Stage
    middle: tuple[Stage, ...]
    settings: Conversion
    workers: int

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages except the last."""
        return (self.begin, *self.middle)

    @property
    def by_tar(self) -> bool:
        """Whether each tar can be processed on its own: there are no custom stages and no open files."""
        return all(stage.by_tar for stage in self.stages)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a conversion that do the same as the stages, none of which is a custom one."""
        options = [stage.options for stage in self.middle]
        kinds = ("ops", "example_ops")
        ops = {kind: tuple(op for item in options for op in item.get(kind, ())) for kind in kinds}
        return {name: value for item in options for name, value in item.items()} | ops

    def examples(self, run: Run, tars: Sequence[Tar]) -> Generator[Any, None, None]:
        """The output of the stages for tars.

        Raises:
            Tar2tfError: the first error, even if a later stage swallowed it.
        """
        opened = [self.begin.run(tars, run)]  # each reads from the one before
        steps = none = Steps(context_of(self.settings))

        def done() -> Iterator[Any]:
            """What the stages so far yield; consecutive ones that process each item on its own share one flow."""
            if steps != none:
                straight = len(opened) == 1  # nothing reads ahead, so each item comes from the shard being read
                where = (lambda: {"shard": run.shard}) if straight else dict
                opened.append(flow(opened[-1], steps, run.fault, where=where, threads=self.workers))
            return opened[-1]

        try:
            for stage in self.middle:
                if joined := stage.joined(steps):
                    steps = joined
                    continue
                opened.append(stage.run(done(), run))
                steps = none
            yield from done()
            run.check()
        finally:
            for iterator in reversed(opened):
                close(iterator)


def close(iterator: Any) -> None:
    """Close a generator; one that a stage's thread is still running closes by itself."""
    if isinstance(iterator, Generator):
        try:
            iterator.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
