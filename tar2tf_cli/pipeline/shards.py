"""Shards of a `Pipeline`: its stages are handed to the conductor, as a conversion or as the source of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tar2tf_cli.conversion.run import Summary, convert
from tar2tf_cli.errors import OutputExistsError, UsageError
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.features.transformations import unknown_in
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.stages import StagesSource, Tar, TarsSource
from tar2tf_cli.ops import Op
from tar2tf_cli.ops.func import label, source_digest, told
from tar2tf_cli.pipeline.stages import FromTars, Own, OwnTars, PipelineSummary, Recipe, Run, ToExamples, Transform
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.stores import Source

__all__ = ["write_shards"]


def write_shards(recipe: Recipe, output: Output, *, overwrite: bool) -> PipelineSummary:
    """Run a pipeline through the flow that every conversion goes through.

    Raises:
        OutputExistsError: also when shards are there and nothing tells whether the stages are those that made them.
        Tar2tfError: as `convert` does.
    """
    unknown = next(_unknown(recipe), None)
    tars = list(recipe.begin.tars()) if isinstance(recipe.begin, FromTars) else []
    conversion = Conversion(
        recipe.begin.how if isinstance(recipe.begin, FromTars) else Input("-"),
        output,
        seed=recipe.context.seed,
        max_pixels=recipe.context.max_pixels,
        on_error=recipe.on_error,
        max_errors=recipe.max_errors,
    )
    source: Source
    if _by_tar(recipe):
        source, workers = TarsSource(tars, repeatable=unknown is None), recipe.workers
        conversion = _with_stages(conversion, recipe)
    else:
        if "input" in output.template.fields:
            raise UsageError("<input> is the name of a tar, and this pipeline takes all of them as one stream")
        source, workers = StagesSource(tars, _opener(recipe, tars), _described(recipe), repeatable=unknown is None), 1
    conversion = replace(conversion, input=replace(conversion.input, bucket=source.bucket))
    try:
        done = convert(conversion, source=source, workers=workers, overwrite=overwrite)
    except OutputExistsError as error:
        if error.hint and "--overwrite" in error.hint:
            why = f" (nothing tells whether {unknown} is what it was in an earlier run)" if unknown else ""
            error.hint = f"choose another path or overwrite=True{why}"
        raise
    return _summary(done)


def _by_tar(recipe: Recipe) -> bool:
    """Whether each tar can be converted by itself, whoever does the others."""
    by_path = isinstance(recipe.begin, FromTars) and recipe.begin.by_path
    return by_path and not any(isinstance(stage, Own) for stage in recipe.middle)


def _with_stages(conversion: Conversion, recipe: Recipe) -> Conversion:
    """A conversion that does what the stages do, none of which is the user's own."""
    features = recipe.convert
    assert isinstance(features, ToExamples)
    return replace(
        conversion,
        ops=_ops(recipe.samples),
        types=features.types,
        select=features.select,
        preset=features.preset,
        example_ops=_ops(recipe.examples),
    )


def _ops(stages: Sequence[Transform | Own]) -> tuple[Op, ...]:
    return tuple(op for stage in stages if isinstance(stage, Transform) for op in stage.ops)


def _opener(recipe: Recipe, tars: Sequence[Tar]) -> Callable[[str, InputReport], Any]:
    """What sets the stages to work, the findings of which go to a report."""

    @contextmanager
    def opened(name: str, report: InputReport) -> Iterator[Iterator[TFExample]]:
        summary = PipelineSummary(skipped=report.skipped, errors=report.errors)
        run = Run(recipe.on_error, recipe.max_errors, summary, name)
        with recipe.open(run, tars=tars) as examples:
            yield _checked(examples, run)

    return opened


def _checked(examples: Iterator[TFExample], run: Run) -> Iterator[TFExample]:
    yield from examples
    run.check()


def _functions(recipe: Recipe) -> Iterator[Callable[..., Any]]:
    """Stages of the user's."""
    for stage in (recipe.begin, *recipe.middle):
        if isinstance(stage, (Own, OwnTars)):
            yield stage.function


def _unknown(recipe: Recipe) -> Iterator[str]:
    """What of the user's may be another thing than in an earlier run, as far as can be known."""
    yield from (label(function) for function in _functions(recipe) if not told(function))
    yield from unknown_in(_ops((*recipe.samples, *recipe.examples)))


def _described(recipe: Recipe) -> list[dict[str, Any]]:
    """The stages as the manifest has them."""
    described: list[dict[str, Any]] = []
    for stage in (recipe.begin, *recipe.middle):
        if isinstance(stage, Transform):
            described.append({"ops": [op.canonical() for op in stage.ops]})
        elif isinstance(stage, (Own, OwnTars)):
            described.append({stage.kind: [label(stage.function), source_digest(stage.function)]})
        elif isinstance(stage, ToExamples):
            select = {name: item.canonical() for name, item in (stage.select or {}).items()}
            described.append({"types": dict(stage.types), "select": select, "preset": stage.preset})
    return described


def _summary(done: Summary) -> PipelineSummary:
    folder = os.path.dirname(done.manifest or "")
    return PipelineSummary(
        done.records,
        done.bytes,
        [os.path.join(folder, shard.path) for shard in done.shards],
        done.manifest,
        done.up_to_date,
        done.features,
        done.skipped,
        done.errors,
    )
