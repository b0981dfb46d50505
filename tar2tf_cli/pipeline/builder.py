"""`Pipeline`: builds a chain of stages; `tar2tf_cli.pipeline` describes the stages."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.feature_map import check_types
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.tf_example import TFExample, unfit
from tar2tf_cli.features.types import TypeName
from tar2tf_cli.formats.stored import DEFAULT_MAX_PIXELS, MAX_ENTRY_SIZE
from tar2tf_cli.inputs.file_object import Readable, check_inputs
from tar2tf_cli.ops import DropEmpty, Op
from tar2tf_cli.pipeline.stages import FromTars, Own, Recipe, Stage, ToExamples, Transform
from tar2tf_cli.pipeline.tfrecord_io import check_output
from tar2tf_cli.pipeline.transformations import as_transformation
from tar2tf_cli.pipeline.write import PipelineSummary, items, run_own, write_file, write_shards, write_stream
from tar2tf_cli.samples.names import KEY, KeySplit, Sample
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.fields import fields_of
from tar2tf_cli.spec.output_path import STDOUT
from tar2tf_cli.spec.urls import is_remote

__all__ = [
    "Pipeline",
    "Sample2TFExampleStage",
    "SamplesStage",
    "TFExamplesStage",
    "TFRecordStage",
    "TarStage",
]

TarStage: TypeAlias = Callable[[], Iterable[Sample]]
SamplesStage: TypeAlias = Callable[[Iterator[Sample]], Iterable[Sample]]
Sample2TFExampleStage: TypeAlias = Callable[[Iterator[Sample]], Iterable[TFExample]]
TFExamplesStage: TypeAlias = Callable[[Iterator[TFExample]], Iterable[TFExample]]
TFRecordStage: TypeAlias = Callable[[Iterator[TFExample]], Any]

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
        max_entry_size: the size above which an entry is a faulty sample when a stage needs it in memory, in bytes or as
            text such as "1GiB".
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
        self._stages: dict[str, list[Stage]] = {"sample": [], "example": []}
        self._workers = 1

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
            regroup: put together samples whose members are not adjacent, from the start (True) or when a key appears
                again (None), or make it an error (False); an open file can only be read again with True.
            ignore_missing_end: accept tars without end-of-archive blocks.

        Raises:
            UsageError: for anything that is not an input.
        """
        how = Input("-", (), key_split, regroup, ignore_missing_end)
        return self._set("TarStage", "from_tar", FromTars(check_inputs(inputs), how))

    from_tar_gz = from_tar
    """The same under go-tfdata's second name, as compression is detected."""

    def with_tar_stage(self, stage: TarStage) -> Pipeline:
        """Take samples from your own function: it takes no arguments and yields dicts with a string `__key__`."""
        return self._set("TarStage", "with_tar_stage", _own("with_tar_stage", "TarStage", stage, _check_sample))

    # --- SamplesStage ---

    def transform_samples(self, *transformations: Op | Callable[[Sample], Any]) -> Pipeline:
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
        self._stages["sample"].append(_own("with_samples_stage", "SamplesStage", stage, _check_sample))
        return self

    def samples(self) -> Generator[Sample, None, None]:
        """Yield the samples so far instead of writing anything; what a later stage would do to them is not done.

        Raises:
            Tar2tfError: as `do` does.
        """
        if "TarStage" not in self._once:
            raise UsageError("the pipeline has no TarStage", hint=_REMEDIES["TarStage"])
        return items(self._recipe(self._once["TarStage"][1], self._stages["sample"]))

    # --- Sample2TFExampleStage ---

    def sample_to_tf_example(
        self,
        types: Mapping[str, TypeName] | None = None,
        *,
        select: Mapping[str, Any] | Iterable[str] | str | None = None,
        preset: str | None = None,
    ) -> Pipeline:
        """Make an example of each sample: one feature per entry, and `__key__`.

        Args:
            types: types of entries: int64, int64_list, float, float_list, bytes or bytes_list. For numeric types, text
                is parsed. Other entries are stored as bytes or, if an op changed them, by the type of their value;
                arrays are stored with a `NAME/shape`.
            select: the features, as in `--select` or a spec file; defaults to every entry and `__key__`.
            preset: image-label, imagenet, imagenet-tensor or webdataset.

        Raises:
            UsageError: for a type, selection or preset that does not exist, or the type of a feature that does not.
        """
        fields = fields_of(Conversion)
        stage = ToExamples(
            fields["types"].check(types or {}), fields["select"].check(select), fields["preset"].check(preset)
        )
        check_types(stage.types, stage.select, find_preset(preset) if preset else None)
        return self._set("Sample2TFExampleStage", "sample_to_tf_example", stage)

    def with_sample2tfexample_stage(self, stage: Sample2TFExampleStage) -> Pipeline:
        """Add a stage of your own, from an iterator of samples to an iterator of examples."""
        kind, method = "Sample2TFExampleStage", "with_sample2tfexample_stage"
        return self._set(kind, method, _own(method, kind, stage, _check_example))

    # --- TFExamplesStage ---

    def transform_tf_examples(self, *transformations: Op | Callable[[TFExample], Any]) -> Pipeline:
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
        self._stages["example"].append(_own("with_tfexamples_stage", "TFExamplesStage", stage, _check_example))
        return self

    # --- TFRecordStage ---

    def to_tf_record(
        self,
        out: Any,
        *,
        max_shard_size: str | int | None = None,
        num_shards: int | None = None,
        records_per_shard: int | None = None,
        compression: Literal["none", "gzip"] = "none",
        index: bool = False,
        num_workers: int = 1,
        overwrite: bool = False,
    ) -> Pipeline:
        """Write the examples as TFRecord: one file, or shards with a manifest beside them.

        Shards are written if the path has a field, such as `train-<>.record`, or if one of the next five arguments is
        given. They are the same as those of `tar2tf convert`, and an interrupted or repeated run is handled in the
        same way: see the module's documentation.

        Args:
            out: a path, at which the file appears once it is whole and flushed to disk; a path template or a URL, as
                for `tar2tf convert`; or a file open for writing bytes, which is flushed at the end and left open.
            max_shard_size: maximum size of a shard on disk, framing included, such as "100MB"; defaults to 256MiB
                for a path with a number and no other limit.
            num_shards: number of shards; their record counts differ by at most one.
            records_per_shard: maximum number of records in a shard.
            compression: "gzip" for compressed shards.
            index: whether to write a `.idx` with the offset and size of each record beside each shard.
            num_workers: how many samples or tars are processed at once; the records and their order do not depend
                on it. For a single file, this is the number of threads that transform, convert and encode samples.
                Image ops benefit most, as they release the interpreter lock; your own functions are called from
                several threads but gain little, and your own stages still run in one. For shards, it is the number
                of processes, each with a tar of its own, in which your functions are called; with custom stages or
                open files, it is a number of threads.
            overwrite: whether files that another conversion wrote are replaced.

        Raises:
            UsageError: for anything that is not an output, or for arguments that contradict each other.
        """
        check_output(out)
        if not isinstance(num_workers, int) or num_workers < 1:
            raise UsageError(f"num_workers must be a number of workers, 1 or more, not {num_workers!r}")
        path = out if isinstance(out, (str, os.PathLike)) else STDOUT
        output = Output(path, max_shard_size, num_shards, records_per_shard, compression, index)
        self._set("TFRecordStage", "to_tf_record", _writer(out, output, overwrite=overwrite))
        self._workers = num_workers
        return self

    def with_tfrecord_stage(self, stage: TFRecordStage) -> Pipeline:
        """End with your own function, which takes the iterator of examples; if it returns an iterator, that is read."""
        kind, method = "TFRecordStage", "with_tfrecord_stage"
        return self._set(kind, method, partial(run_own, last=_own(method, kind, stage)))

    # --- All of it ---

    def do(self) -> PipelineSummary:
        """Run the pipeline.

        Returns:
            What was written and what was skipped.

        Raises:
            UsageError: when a stage is missing.
            StageError: when a custom stage raised; names the stage, with its exception as the cause.
            Tar2tfError: when anything else failed. A file appears at the path only if it is whole.
        """
        for kind, remedy in _REMEDIES.items():
            if kind not in self._once:
                raise UsageError(f"the pipeline has no {kind}", hint=remedy)
        begin, convert, write = (self._once[kind][1] for kind in _REMEDIES)
        middle = (*self._stages["sample"], convert, *self._stages["example"])
        done: PipelineSummary = write(self._recipe(begin, middle))
        return done

    def _recipe(self, begin: Stage, middle: Iterable[Stage]) -> Recipe:
        return Recipe(begin, tuple(middle), self._settings, self._workers)

    def _set(self, kind: str, method: str, stage: Any) -> Pipeline:
        if kind in self._once:
            first = self._once[kind][0]
            both = f"{first} twice" if first == method else f"both {first} and {method}"
            raise UsageError(f"the pipeline has its {kind} twice: {both}", hint="keep one of them")
        self._once[kind] = (method, stage)
        return self

    def _transform(self, kind: Literal["sample", "example"], *items: Any) -> Pipeline:
        ops = tuple(as_transformation(item, kind) for item in items)
        self._stages[kind].append(Transform("ops" if kind == "sample" else "example_ops", ops))
        return self


def _writer(out: Any, output: Output, *, overwrite: bool) -> Callable[[Recipe], PipelineSummary]:
    """What writes the examples: to an open file, to one file or, if the path or a limit asks for them, to shards.

    Raises:
        UsageError: when limits contradict each other, or are not possible for an open file.
    """
    plain = output == Output(output.path)
    if not isinstance(out, (str, os.PathLike)):
        if not plain:
            raise UsageError("an open file cannot have shards, compression or an index", hint="give a path")
        return partial(write_stream, out=out)
    if plain and not output.template.fields and not is_remote(output.path):
        return partial(write_file, path=output.path, overwrite=overwrite)
    Conversion(Input("-"), output)  # raises for limits that contradict each other
    return partial(write_shards, output=output, overwrite=overwrite)


def _own(method: str, kind: str, stage: Any, check: Callable[[Any], str | None] | None = None) -> Own:
    """A custom stage."""
    if not callable(stage):
        raise UsageError(f"{method}: {type(stage).__name__} is not a function")
    return Own(kind, stage, check)


def _check_sample(item: Any) -> str | None:
    """What is wrong with a sample, if anything."""
    if not isinstance(item, dict):
        return f"{type(item).__name__} instead of a sample (a dict)"
    return None if isinstance(item.get(KEY), str) else f"a sample whose {KEY!r} is not a string"


def _check_example(item: Any) -> str | None:
    """What is wrong with an example, if anything."""
    if not isinstance(item, TFExample):
        return f"{type(item).__name__} instead of a TFExample"
    return f"a TFExample with {found}" if (found := unfit(item)) else None
