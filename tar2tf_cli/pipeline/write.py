"""Writes what a `Pipeline` makes: passes its stages to `convert`, as a conversion or as the source of one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tar2tf_cli.conversion.run import Summary, convert
from tar2tf_cli.conversion.targets import FilesTarget, StreamTarget
from tar2tf_cli.errors import OutputExistsError, UsageError
from tar2tf_cli.flow.sample_flow import Faults, OnFault
from tar2tf_cli.formats.record_file import write_whole
from tar2tf_cli.inputs.file_object import name_of
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.stages import StagesSource, Tar, TarsSource
from tar2tf_cli.pipeline.stages import Own, Recipe, Run
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.spec.output_path import STDOUT
from tar2tf_cli.stores import Source
from tar2tf_cli.stores.base import Placed

__all__ = ["PipelineSummary", "items", "run_own", "write_file", "write_shards", "write_stream"]


@dataclass(slots=True)
class PipelineSummary:
    """What a pipeline did.

    Attributes:
        records: number of examples written.
        bytes: size of the output in bytes, framing included; 0 with a custom TFRecordStage.
        shards: paths of the shards; empty if the output is a single file.
        manifest: path of the manifest beside the shards.
        up_to_date: whether the shards existed already, so that nothing was done.
        features: dtype, shape, encoding and count of each feature, as in a manifest.
        skipped: number of skipped tar members, by reason.
        errors: shard, key, member, offset and message of each skipped sample; empty if up to date.
    """

    records: int = 0
    bytes: int = 0
    shards: list[str] = field(default_factory=list)
    manifest: str | None = None
    up_to_date: bool = False
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)


def write_stream(recipe: Recipe, out: Any) -> PipelineSummary:
    """Write records to an open file, which is flushed and left open.

    Raises:
        Tar2tfError: as `convert` does.
    """
    return _convert(recipe, Output(STDOUT), target=StreamTarget(out, name_of(out, "<stream>")))


def write_file(recipe: Recipe, path: str, *, overwrite: bool) -> PipelineSummary:
    """Write a single file, without a manifest.

    Raises:
        Tar2tfError: as `convert` does.
    """
    done = _convert(recipe, Output(path), target=FilesTarget(iter([path]), overwrite=overwrite))
    if not done.shards:
        write_whole(path, [])
    return replace(done, shards=[])


def write_shards(recipe: Recipe, output: Output, *, overwrite: bool) -> PipelineSummary:
    """Write shards with a manifest; without custom stages, each tar is an input of its own.

    Raises:
        OutputExistsError: also when shards exist that may have been made by other stages.
        Tar2tfError: as `convert` does.
    """
    unknown = next((name for stage in recipe.stages for name in stage.unknown), None)
    if not recipe.by_tar and "input" in output.template.fields:
        raise UsageError("<input> is the name of a tar, but this pipeline reads all tars as one stream")
    try:
        return _convert(recipe, output, workers=recipe.workers, known=unknown is None, overwrite=overwrite)
    except OutputExistsError as error:
        if error.replaceable:
            why = f" (tar2tf cannot tell whether {unknown} is the same as in an earlier run)" if unknown else ""
            error.hint = f"choose another path or overwrite=True{why}"
        raise


def items(recipe: Recipe) -> Generator[Any, None, None]:
    """Yield what the stages make.

    Raises:
        Tar2tfError: the first error, even if a stage swallowed it.
    """
    with closing(recipe.examples(_run(recipe), recipe.begin.tars())) as made:
        yield from made


def _run(recipe: Recipe) -> Run:
    report = InputReport()
    skip = recipe.settings.on_error == "skip"
    on_fault = Faults(skip=skip, most=recipe.settings.max_errors, noted=report.errors, option="on_error='skip'")
    return Run(report, on_fault, recipe.settings.max_entry_size)


def run_own(recipe: Recipe, last: Own) -> PipelineSummary:
    """Pass the examples to a custom TFRecordStage.

    Raises:
        Tar2tfError: the first error, even if the stage swallowed it.
    """
    run = _run(recipe)
    report = run.report
    with closing(recipe.examples(run, recipe.begin.tars())) as examples:
        for _ in last.run(map(partial(_noted, report), examples), run):
            pass
        run.check()
    return PipelineSummary(
        report.samples, features=report.schema.describe(), skipped=report.skipped, errors=report.errors
    )


def _noted(report: InputReport, example: Any) -> Any:
    report.schema.add(example)
    report.samples += 1
    return example


def _convert(
    recipe: Recipe, output: Output, *, workers: int = 1, known: bool = False, **options: Any
) -> PipelineSummary:
    """Run the conversion that is equivalent to the stages; without custom stages, each tar is an input of its own.

    Args:
        workers: number of processes; with one, the recipe's workers are threads.
        known: whether the stages are identified, so that a later run can know that they are the same.
    """
    tars, stages = recipe.begin.tars(), {}
    source: Source
    if recipe.by_tar:
        stages = recipe.options
        source = TarsSource(tars, resumable=known, threads=recipe.workers if workers == 1 else None)
    else:
        source, workers = _stages_source(recipe, tars, repeatable=known), 1
    inputs = replace(recipe.begin.input, bucket=source.bucket)
    conversion = replace(recipe.settings, input=inputs, output=output, **stages)
    return _summary(convert(conversion, source=source, workers=workers, **options))


def _stages_source(recipe: Recipe, tars: Sequence[Tar], *, repeatable: bool) -> StagesSource:
    """The output of the stages as the only input of a conversion."""

    def examples(report: InputReport, on_fault: OnFault) -> Placed:
        with closing(recipe.examples(Run(report, on_fault, recipe.settings.max_entry_size), tars)) as made:
            for example in made:
                yield {}, example

    described = [text for stage in recipe.stages if (text := stage.described())]
    return StagesSource(tars, examples, described, repeatable=repeatable)


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
