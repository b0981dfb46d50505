"""`Pipeline`: a chain of stages, each a function from an iterator to an iterator, run by the flow of conversions.

`tar2tf_cli.pipeline` has the documentation for users. All stages but custom ones are options of a conversion: a
pipeline without custom stages is that conversion, and the stages between two custom ones are one flow.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS
from tar2tf_cli.api.source import OnFault, SampleFault, Samples, Source
from tar2tf_cli.api.values import KEY, FeatureDescription, KeySplit, Sample, SourceReport
from tar2tf_cli.compat.file_objects import Readable, check_inputs, check_output, name_of, sources_of
from tar2tf_cli.compat.transformations import as_transformation, typed
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.conversion.targets import FilesTarget, StreamTarget
from tar2tf_cli.errors import RAISED, Location, OutputExistsError, SampleError, StageError, UsageError, did_you_mean
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import check_names
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.tf_example import TFExample, invalid_value
from tar2tf_cli.flow.faults import FaultPolicy
from tar2tf_cli.flow.sample_flow import ReadOptions, ReadPlan, context_of, feature_map_of, flow
from tar2tf_cli.flow.transform import Transform
from tar2tf_cli.formats.files import MAX_ENTRY_SIZE, whole_sample, write_whole
from tar2tf_cli.inputs.base import LocatedShard, MergedSource, StagesSource
from tar2tf_cli.inputs.reader import InputReader
from tar2tf_cli.inputs.report import InputReport, Notes
from tar2tf_cli.ops import DropEmpty, Op
from tar2tf_cli.ops.user_code import is_identified, label, source_digest
from tar2tf_cli.samples.keys import is_utf8
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.fields import fields_of
from tar2tf_cli.spec.templates import STDOUT
from tar2tf_cli.spec.urls import is_remote


class PipelineRun:
    """The state of one run of a pipeline: the report on skipped samples, and the first error.

    Args:
        report: receives the skipped members and samples.
        on_fault: the policy for faulty samples.

    Attributes:
        shard: the tar being read.
        failure: the first error, which a later stage may have swallowed.
    """

    def __init__(self, report: SourceReport, on_fault: OnFault) -> None:
        self.report = report
        self.shard: str | None = None
        self._on_fault = on_fault
        self.failure: BaseException | None = None

    @contextmanager
    def recording_errors(self) -> Iterator[None]:
        """Record the first error raised in a `with` block, in case a later stage swallows it."""
        try:
            yield
        except RAISED as error:
            self.failure = self.failure or error
            raise

    def check(self) -> None:
        """Raise the recorded error, in case a stage has swallowed it."""
        if self.failure is not None:
            raise self.failure

    def fault(self, error: SampleFault) -> None:
        """Skip a faulty sample or raise its error, depending on the policy."""
        with self.recording_errors():
            self._on_fault(error)


@dataclass(frozen=True)
class TarsStage:
    """The first stage of a pipeline that reads tars, one after another.

    Attributes:
        inputs: paths, and open files.
        conversion: contains the rules by which members become samples.
    """

    inputs: list[Readable]
    conversion: Conversion
    bound: Sequence[Any] = ()

    @property
    def by_tar(self) -> bool:
        """Whether each tar can be read on its own, in any process: none of the inputs is an open file."""
        return all(isinstance(item, (str, os.PathLike)) for item in self.inputs)

    @property
    def input(self) -> Input:
        """The rules by which members become samples."""
        return self.conversion.input

    def tars(self) -> list[LocatedShard]:
        """Return the tars to read.

        Raises:
            SourceError: when a tar does not exist.
        """
        return [LocatedShard(source, item) for source in sources_of(self.inputs) for item in source.list(())]

    def described(self) -> dict[str, object]:
        """Return nothing, as the manifest lists the tars."""
        return {}

    def run(self, items: Iterable[LocatedShard], run: PipelineRun) -> Iterator[Sample]:
        """Yield the samples of the tars."""
        notes = Notes(self.input, Events().note)
        with run.recording_errors():
            for source, item in items:
                rules = ReadOptions(ahead=True).rules(ReadPlan.of(self.conversion, source).rules)
                with InputReader(source, item, rules, InputReport(), run.fault) as reader:
                    run.shard = reader.name
                    yield from _in_memory(reader, run.fault)
                run.report.skipped += reader.report.skipped
                notes.add(reader.name, reader.report)


def _in_memory(reader: InputReader, on_fault: OnFault) -> Iterator[Sample]:
    """Iterate over samples with all entries in memory; a sample with a larger entry is faulty."""
    for sample in reader.samples():
        try:
            yield whole_sample(sample)
        except SampleError as error:
            on_fault(error.at(key=sample[KEY]).at(**reader.where()))


@dataclass(frozen=True)
class Stage:
    """A built-in stage, which is equivalent to some options of a conversion.

    Attributes:
        options: the equivalent options.
    """

    options: Mapping[str, Any]

    @property
    def bound(self) -> Sequence[object]:
        """The user's functions and objects that the stage depends on."""
        return [value for kind in _OPS for op in self.options.get(kind, ()) for value in op.bound]

    def described(self) -> dict[str, object]:
        """Return the stage as described in the manifest."""
        spec = Conversion("-", STDOUT, **self.options).canonical()
        return {name: value for name, value in spec.items() if name not in ("input", "output")}


_OPS: Final = ("ops", "example_ops")


def _merge_options(stages: Iterable[Stage]) -> dict[str, Any]:
    """Merge the options of several stages to those of one conversion."""
    options: dict[str, Any] = dict.fromkeys(_OPS, ())
    for stage in stages:
        options |= {name: options[name] + value if name in _OPS else value for name, value in stage.options.items()}
    return options


@dataclass(frozen=True)
class CustomStage:
    """A custom stage, whose items and exceptions are checked, so that errors name the stage.

    Attributes:
        kind: the name of the stage's kind, such as "SamplesStage".
        function: a function from an iterator to an iterator; for a TarStage, it takes no arguments.
    """

    kind: str
    function: Callable[..., Any]
    by_tar = False
    input = Input("-")

    @property
    def bound(self) -> Sequence[object]:
        """Return the function."""
        return [self.function]

    def tars(self) -> list[LocatedShard]:
        """Return no tars, as those of a custom first stage are unknown."""
        return []

    def described(self) -> dict[str, object]:
        """Return the stage as described in the manifest."""
        return {self.kind: [label(self.function), source_digest(self.function)]}

    def run(self, items: Iterable[object], run: PipelineRun) -> Iterator[object]:
        """Yield the items of the stage; a TFRecordStage need not return an iterator."""
        where = f"the {self.kind} {label(self.function)}"
        made: Any = None
        with run.recording_errors():
            try:
                made = self.function() if self.kind == "TarStage" else self.function(items)
                yield from self._checked(made, where)
            except RAISED as error:
                if error is run.failure or isinstance(error, StageError):  # an earlier stage may have raised the error
                    raise
                asks = isinstance(error, AttributeError) and error.obj is items and error.name in ("Read", "read")
                hint = (
                    "iterate over what the stage is given: `for item in items`, and yield each result" if asks else None
                )
                raise StageError(f"{where} raised {type(error).__name__}: {error}", hint=hint) from error
            finally:
                _close(made)

    def _checked(self, made: object, where: str) -> Iterator[object]:
        """Yield and check the items that a stage has returned."""
        check = _CHECKS.get(self.kind)
        if not isinstance(made, Iterable):
            if check is None:
                return
            reads = callable(getattr(made, "read", getattr(made, "Read", None)))
            hint = "write a generator, which yields each item instead of returning it from Read()" if reads else None
            raise StageError(f"{where} returned {type(made).__name__} instead of an iterator", hint=hint)
        for item in made:
            if check and (what := check(item)):
                raise StageError(f"{where} yielded {what}")
            yield item


def _check_sample(item: object) -> str | None:
    """Return the fault of an item that is not a valid sample; otherwise None."""
    if not isinstance(item, dict):
        return f"{type(item).__name__} instead of a sample (a dict)"
    if not isinstance(item.get(KEY), str):
        return f"a sample whose {KEY!r} is not a string"
    return None if is_utf8(item) else "a sample whose key, or the name of an entry, is not UTF-8"


def _check_example(item: object) -> str | None:
    """Return the fault of an item that is not a valid example; otherwise None."""
    if not isinstance(item, TFExample):
        return f"{type(item).__name__} instead of a TFExample"
    return f"a TFExample with {what}" if (what := invalid_value(item)) else None


_CHECKS: Final = {
    "TarStage": _check_sample,
    "SamplesStage": _check_sample,
    "Sample2TFExampleStage": _check_example,
    "TFExamplesStage": _check_example,
}


class Recipe:
    """All stages of a pipeline except the last, and its settings.

    Args:
        begin: the first stage.
        middle: the stages between the first and the last, each a `Stage` or `CustomStage`.
        settings: a conversion with the settings that all stages share, but with other inputs, output and features.
        workers: number of threads for stages that process each item on its own.
    """

    def __init__(
        self, begin: TarsStage | CustomStage, middle: Sequence[Any], settings: Conversion, workers: int
    ) -> None:
        self.begin = begin
        self.middle = middle
        self.settings = settings
        self.workers = workers

    @cached_property
    def tars(self) -> list[LocatedShard]:
        """Return the tars to read; none for a custom TarStage."""
        return self.begin.tars()

    @property
    def by_tar(self) -> bool:
        """Whether each tar can be processed separately: without custom stages and open files."""
        return self.begin.by_tar and not any(isinstance(stage, CustomStage) for stage in self.middle)

    @property
    def unknown(self) -> str | None:
        """The name of a function that a later run could not recognize; None if there is none."""
        bound = (value for stage in (self.begin, *self.middle) for value in stage.bound)
        return next((label(value) for value in bound if not is_identified(value)), None)

    def run(self, report: InputReport) -> PipelineRun:
        """Begin a run outside a conversion, with the report to fill."""
        skip = self.settings.on_error == "skip"
        option = "on_error='skip'"
        return PipelineRun(
            report, FaultPolicy(skip=skip, most=self.settings.max_errors, noted=report.errors, option=option)
        )

    def items(self, run: PipelineRun) -> Generator[Any, None, None]:
        """Yield the output of the stages.

        Raises:
            Tar2tfError: the first error, even if a later stage swallowed it.
        """
        opened = [self.begin.run(self.tars, run)]  # each stage reads from the previous one
        try:
            for kind, stages in groupby(self.middle, type):
                if kind is CustomStage:
                    for stage in stages:
                        opened.append(stage.run(opened[-1], run))
                    continue
                straight = len(opened) == 1  # nothing reads ahead, so each item comes from the shard being read
                where = (lambda: Location(shard=run.shard)) if straight else Location
                opened.append(flow(opened[-1], self._steps(stages), run.fault, where=where, threads=self.workers))
            yield from opened[-1]
            run.check()
        finally:
            for iterator in reversed(opened):
                _close(iterator)

    def source(self, *, repeatable: bool) -> StagesSource:
        """Return the output of the stages as the only input of a conversion."""

        def examples(report: SourceReport, on_fault: OnFault) -> Samples:
            with closing(self.items(PipelineRun(report, on_fault))) as made:
                for example in made:
                    yield {}, example

        described = [text for stage in (self.begin, *self.middle) if (text := stage.described())]
        return StagesSource(self.tars, examples, described, repeatable=repeatable)

    def _steps(self, stages: Iterable[Stage]) -> Transform:
        """Return the transform of some stages, which copies samples that a custom stage may keep."""
        options = _merge_options(stages)
        conversion = replace(self.settings, **options)
        features = feature_map_of(conversion).features
        return Transform(
            context_of(conversion),
            conversion.sample_ops,
            (lambda sample: TFExample(whole_sample(dict(features(dict(sample)))))) if "types" in options else None,
            conversion.example_ops,
        )


def _close(iterator: object) -> None:
    """Close a generator; one still running in a stage's thread closes by itself."""
    if isinstance(iterator, Generator):
        try:
            iterator.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise


@dataclass(slots=True)
class PipelineSummary:
    """The result of a pipeline.

    Attributes:
        records: number of examples written.
        bytes: size of the output in bytes, framing included; 0 with a custom TFRecordStage.
        shards: paths of the shards; empty if the output is a single file.
        manifest: path of the manifest next to the shards.
        up_to_date: whether the shards existed already, so that nothing was done.
        features: dtype, shape, encoding and count of each feature, as in a manifest.
        skipped: number of skipped tar members, by reason.
        errors: shard, key, member, offset and message of each skipped sample; empty if up to date.

    >>> Pipeline().from_tar("shards/photos-1.tar").sample_to_tf_example().to_tf_record("y.record").do().records
    6
    """

    records: int = 0
    bytes: int = 0
    shards: list[str] = field(default_factory=list)
    manifest: str | None = None
    up_to_date: bool = False
    features: dict[str, FeatureDescription] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)


def _write_stream(recipe: Recipe, out: object) -> PipelineSummary:
    """Write records to an open file, which is flushed and stays open."""
    return _convert(recipe, Output(STDOUT), target=StreamTarget(out, name_of(out, "<stream>")))


def _write_file(recipe: Recipe, path: str, *, overwrite: bool) -> PipelineSummary:
    """Write a single file, without a manifest."""
    target = FilesTarget(iter([path]), overwrite=overwrite)
    done = _convert(recipe, Output(path, to="tfrecord"), target=target)
    if not done.shards:
        write_whole(path, [])
    return replace(done, shards=[])


def _write_shards(recipe: Recipe, output: Output, *, overwrite: bool) -> PipelineSummary:
    """Write shards with a manifest; without custom stages, each tar is an input of its own.

    Raises:
        OutputExistsError: also when shards exist that may have been made by other stages.
    """
    unknown = recipe.unknown
    if not recipe.by_tar and "input" in output.template.fields:
        raise UsageError("<input> is the name of a tar, but this pipeline reads all tars as one stream")
    try:
        return _convert(recipe, output, workers=recipe.workers, known=unknown is None, overwrite=overwrite)
    except OutputExistsError as error:
        if error.replaceable:
            why = f" (tar2tf cannot tell whether {unknown} is the same as in an earlier run)" if unknown else ""
            error.hint = f"choose another path or overwrite=True{why}"
        raise


def _write_by(last: CustomStage, recipe: Recipe) -> PipelineSummary:
    """Pass the examples to a custom TFRecordStage.

    Raises:
        Tar2tfError: the first error, even if the stage swallowed it.
    """
    report = InputReport()
    run = recipe.run(report)

    def noted(example: Any) -> Any:
        report.schema.add(example)
        report.samples += 1
        return example

    with closing(recipe.items(run)) as examples:
        for _ in last.run(map(noted, examples), run):
            pass
        run.check()
    return PipelineSummary(
        report.samples, features=report.schema.describe(), skipped=report.skipped, errors=report.errors
    )


def _convert(
    recipe: Recipe, output: Output, *, workers: int = 1, known: bool = False, **options: Any
) -> PipelineSummary:
    """Run the conversion that is equivalent to the stages; without custom stages, each tar is an input of its own.

    Args:
        workers: number of processes; with one, the recipe's workers are threads.
        known: whether the stages are identified, so that a later run can recognize them.
    """
    conversion = replace(recipe.settings, output=output)
    source: Source
    if recipe.by_tar:
        conversion = replace(conversion, **_merge_options(recipe.middle))
        source = MergedSource(recipe.tars, resumable=known, threads=recipe.workers if workers == 1 else None)
    else:
        source, workers = recipe.source(repeatable=known), 1
    conversion = replace(conversion, input=replace(recipe.begin.input, bucket=source.bucket))
    done = convert(conversion, source=source, workers=workers, **options)
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


TarStage: TypeAlias = Callable[[], Iterable[Sample]]
SamplesStage: TypeAlias = Callable[[Iterator[Sample]], Iterable[Sample]]
Sample2TFExampleStage: TypeAlias = Callable[[Iterator[Sample]], Iterable[TFExample]]
TFExamplesStage: TypeAlias = Callable[[Iterator[TFExample]], Iterable[TFExample]]
TFRecordStage: TypeAlias = Callable[[Iterator[TFExample]], Any]

GO_TYPES: Final = {
    "INT64": "int64",
    "FLOAT32": "float",
    "BYTES": "bytes",
    "INT64LIST": "int64_list",
    "FLOAT32LIST": "float_list",
    "BYTESLIST": "bytes_list",
}
"""Types of features by their names in go-tfdata."""

_REMEDIES: Final = {
    "TarStage": "begin with from_tar",
    "Sample2TFExampleStage": "put sample_to_tf_example() between samples and records",
    "TFRecordStage": "end with to_tf_record",
}


class Pipeline:
    """Stages from tar to TFRecord, chained by method calls and run by `do`.

    Args:
        on_error: whether a faulty sample ends the run ("fail") or is skipped and listed in the summary ("skip").
        max_errors: how many faulty samples may be skipped; None for no limit.
        seed: random seed of ops such as Rotate.
        max_pixels: images with more pixels are not decoded.
        max_entry_size: the size above which an entry makes its sample faulty if a stage needs the entry in memory, in
            bytes or as text such as "1GiB".

    >>> summary = Pipeline().from_tar("shards/photos-0.tar").sample_to_tf_example().to_tf_record("x.record").do()
    >>> summary.records
    6
    """

    def __init__(
        self,
        *,
        on_error: Literal["fail", "skip"] = "fail",
        max_errors: int | None = None,
        seed: int = 0,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_entry_size: int | str = MAX_ENTRY_SIZE,
    ) -> None:
        most: dict[str, Any] = {"max_errors": max_errors, "max_pixels": max_pixels, "max_entry_size": max_entry_size}
        self._settings = Conversion("-", STDOUT, on_error=on_error, seed=seed, **most)
        self._once: dict[str, tuple[str, Any]] = {}
        self._stages: dict[str, list[Stage | CustomStage]] = {"sample": [], "example": []}
        self._workers = 1

    if not TYPE_CHECKING:  # type checkers should know the names of this module only

        def __getattr__(self, name: str) -> object:
            """Return a method by its go-tfdata name, such as FromTar or WithTFExamplesStage, in any case."""
            plain = name.replace("_", "").lower()
            found = [one for one in vars(Pipeline) if not one.startswith("_") and one.replace("_", "") == plain]
            if not found:
                instead = "; iterate over samples()" if plain == "read" else did_you_mean(name, vars(Pipeline))
                raise AttributeError(f"Pipeline has no method {name!r}{instead}")
            return getattr(self, found[0])

    # --- TarStage ---

    def from_tar(
        self,
        *inputs: Readable | Iterable[Readable],
        key_split: KeySplit = "first",
        regroup: bool | None = None,
        ignore_missing_end: bool = False,
    ) -> Pipeline:
        """Read tars, one after another; compression is detected by content.

        Args:
            inputs: paths, URLs and folders as for `tar2tf convert`, or files open for reading bytes, such as pipes
                and sockets; these are read from their current position and left open.
            key_split: whether a member's name is split into key and extension at the first or the last dot.
            regroup: regroup samples whose members are not adjacent, from the start (True) or when a key appears again
                (None), or raise an error (False); an open file can only be read again with True.
            ignore_missing_end: accept tars without end-of-archive blocks.

        Raises:
            UsageError: for anything that is not an input.
        """
        how = Input("-", (), key_split, regroup, ignore_missing_end)
        conversion = Conversion(how, STDOUT, max_entry_size=self._settings.max_entry_size)
        return self._set("TarStage", "from_tar", TarsStage(check_inputs(inputs), conversion))

    from_tar_gz = from_tar
    """`from_tar` under go-tfdata's second name, as compression is detected."""

    def with_tar_stage(self, stage: TarStage) -> Pipeline:
        """Take samples from your own function: it takes no arguments and yields dicts with a string `__key__`."""
        return self._set("TarStage", "with_tar_stage", _custom_stage("TarStage", stage))

    # --- SamplesStage ---

    def transform_samples(self, *transformations: Op | Callable[[Sample], object]) -> Pipeline:
        """Apply transformations to each sample, in order: `rename`, `select`, `sample_f`, any op, or a function.

        Raises:
            UsageError: for anything that is not a transformation of samples.
        """
        return self._transform("sample", *transformations)

    def filter_empty_samples(self) -> Pipeline:
        """Skip samples that have only a `__key__`."""
        return self._transform("sample", DropEmpty())

    def with_samples_stage(self, stage: SamplesStage) -> Pipeline:
        """Add a stage of your own, from an iterator of samples to an iterator of samples."""
        self._stages["sample"].append(_custom_stage("SamplesStage", stage))
        return self

    def samples(self) -> Generator[Sample, None, None]:
        """Yield the samples after the stages so far, without writing; later stages are not applied.

        Raises:
            Tar2tfError: as `do` does.
        """
        if "TarStage" not in self._once:
            raise UsageError("the pipeline has no TarStage", hint=_REMEDIES["TarStage"])
        recipe = self._recipe(self._once["TarStage"][1], self._stages["sample"])
        return recipe.items(recipe.run(InputReport()))

    # --- Sample2TFExampleStage ---

    def sample_to_tf_example(
        self,
        types: Mapping[str, str] | None = None,
        *,
        select: Mapping[str, object] | Iterable[str] | str | None = None,
        preset: str | None = None,
    ) -> Pipeline:
        """Make an example of each sample: one feature per entry, and `__key__`.

        Args:
            types: types of entries: int64, int64_list, float, float_list, bytes or bytes_list, or go-tfdata's INT64,
                FLOAT32LIST and so on. For numeric types, text is parsed. The type of an entry that a sample lacks is
                ignored. Other entries are stored as bytes or, if an op changed them, by the type of their value;
                arrays are stored with a `NAME/shape`.
            select: the features, as in `--select` or a spec file; defaults to every entry and `__key__`.
            preset: image-label, imagenet, imagenet-tensor or webdataset.

        Raises:
            UsageError: for a type, selection or preset that does not exist, or for the type of a feature that does not
                exist.
        """
        fields = fields_of(Conversion)
        kinds = fields["types"].check({name: GO_TYPES.get(kind, kind) for name, kind in (types or {}).items()})
        options = {"select": fields["select"].check(select), "preset": fields["preset"].check(preset)}
        check_names(kinds, options["select"], find_preset(preset) if preset else None)
        if kinds and select is None and not preset:  # a conversion would require every feature that has a type
            options |= {"ops": (typed(kinds),), "types": {}}
        else:
            options["types"] = kinds
        return self._set("Sample2TFExampleStage", "sample_to_tf_example", Stage(options))

    def with_sample2tfexample_stage(self, stage: Sample2TFExampleStage) -> Pipeline:
        """Add a stage of your own, from an iterator of samples to an iterator of examples."""
        kind = "Sample2TFExampleStage"
        return self._set(kind, "with_sample2tfexample_stage", _custom_stage(kind, stage))

    # --- TFExamplesStage ---

    def transform_tf_examples(self, *transformations: Op | Callable[[TFExample], object]) -> Pipeline:
        """Apply transformations to each example, in order: `rename`, `select`, `example_f`, or a function.

        Raises:
            UsageError: for anything that is not a transformation of examples.
        """
        return self._transform("example", *transformations)

    def filter_empty_examples(self) -> Pipeline:
        """Skip examples that have only a `__key__`."""
        return self._transform("example", DropEmpty())

    def with_tfexamples_stage(self, stage: TFExamplesStage) -> Pipeline:
        """Add a stage of your own, from an iterator of examples to an iterator of examples."""
        self._stages["example"].append(_custom_stage("TFExamplesStage", stage))
        return self

    # --- TFRecordStage ---

    def to_tf_record(
        self,
        out: object,
        num_workers: int = 1,
        *,
        max_shard_size: str | int | None = None,
        num_shards: int | None = None,
        records_per_shard: int | None = None,
        compression: Literal["none", "gzip"] = "none",
        index: bool = False,
        overwrite: bool = False,
    ) -> Pipeline:
        """Write the examples as TFRecord: one file, or shards with a manifest next to them.

        Shards are written if the path has a field, such as `train-<>.record`, or if one of the next five arguments is
        given. They equal the shards of `tar2tf convert`, which also handles interrupted and repeated runs in the same
        way: see the module's documentation.

        Args:
            out: a path, at which the file appears once it is complete and flushed to disk; a path template or a URL, as
                for `tar2tf convert`; or a file open for writing bytes, which is flushed at the end and left open.
            max_shard_size: maximum size of a shard on disk, framing included, such as "100MB"; defaults to 256MiB
                for a path with a number and no other limit.
            num_shards: number of shards; their record counts differ by at most one.
            records_per_shard: maximum number of records in a shard.
            compression: "gzip" for compressed shards.
            index: whether to write a `.idx` with the offset and size of each record next to each shard.
            num_workers: the number of samples or tars to process at once; the records and their order do not depend on
                it. For a single file, this is the number of threads that transform, convert and encode samples. Image
                ops benefit most, as they release the interpreter lock; your own functions are called from several
                threads but gain little, and your own stages still run in one. For shards, it is the number of
                processes, each with a tar of its own, in which your functions are called; with custom stages or open
                files, it is a number of threads.
            overwrite: whether to replace files that another conversion wrote.

        Raises:
            UsageError: for anything that is not an output, or for arguments that contradict each other.
        """
        check_output(out)
        if not isinstance(num_workers, int) or num_workers < 1:
            raise UsageError(f"num_workers must be a number of workers, 1 or more, not {num_workers!r}")
        path = out if isinstance(out, (str, os.PathLike)) else STDOUT
        output = Output(path, max_shard_size, num_shards, records_per_shard, compression, index, to="tfrecord")
        self._set("TFRecordStage", "to_tf_record", _writer(out, output, overwrite=overwrite))
        self._workers = num_workers
        return self

    def with_tfrecord_stage(self, stage: TFRecordStage) -> Pipeline:
        """End with your own function, which takes the iterator of examples; if it returns an iterator, that is read."""
        return self._set(
            "TFRecordStage", "with_tfrecord_stage", partial(_write_by, _custom_stage("TFRecordStage", stage))
        )

    # --- All of it ---

    def do(self) -> PipelineSummary:
        """Run the pipeline.

        Returns:
            The numbers of written and skipped samples, and the output's paths.

        Raises:
            UsageError: when a stage is missing.
            StageError: when a custom stage raised; names the stage, with its exception as the cause.
            Tar2tfError: when anything else failed. A file appears at the path only if it is complete.
        """
        for kind, remedy in _REMEDIES.items():
            if kind not in self._once:
                raise UsageError(f"the pipeline has no {kind}", hint=remedy)
        begin, convert, write = (self._once[kind][1] for kind in _REMEDIES)
        done: PipelineSummary = write(self._recipe(begin, [*self._stages["sample"], convert, *self._stages["example"]]))
        return done

    def _recipe(self, begin: TarsStage | CustomStage, middle: Sequence[Stage | CustomStage]) -> Recipe:
        return Recipe(begin, middle, self._settings, self._workers)

    def _set(self, kind: str, method: str, stage: object) -> Pipeline:
        if kind in self._once:
            first = self._once[kind][0]
            both = f"{first} twice" if first == method else f"both {first} and {method}"
            raise UsageError(f"the pipeline has its {kind} twice: {both}", hint="keep one of them")
        self._once[kind] = (method, stage)
        return self

    def _transform(self, kind: Literal["sample", "example"], *items: object) -> Pipeline:
        ops = tuple(as_transformation(item, kind) for item in items)
        self._stages[kind].append(Stage({"ops" if kind == "sample" else "example_ops": ops}))
        return self


def _writer(out: object, output: Output, *, overwrite: bool) -> Callable[[Recipe], PipelineSummary]:
    """Return the function that writes the examples to an open file, to a file, or to shards if path or limit say so.

    Raises:
        UsageError: when limits contradict each other, or are not possible for an open file.
    """
    plain = output == Output(output.path, to="tfrecord") and output.compression == "none"
    if not isinstance(out, (str, os.PathLike)):
        if not plain:
            raise UsageError("an open file cannot have shards, compression or an index", hint="give a path")
        return partial(_write_stream, out=out)
    if plain and not output.template.fields and not is_remote(output.path):
        return partial(_write_file, path=output.path, overwrite=overwrite)
    Conversion(Input("-"), output)  # raises for limits that contradict each other
    return partial(_write_shards, output=output, overwrite=overwrite)


def _custom_stage(kind: str, stage: object) -> CustomStage:
    """Make a custom stage.

    Raises:
        UsageError: when the stage is not a function.
    """
    if not callable(stage):
        method = f"with_{kind.removesuffix('Stage').lower()}_stage"
        raise UsageError(f"{method}: {type(stage).__name__} is not a function")
    return CustomStage(kind, stage)
