"""The conversion spec: a frozen `Conversion` that holds every setting on which the output depends."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS, Op
from tar2tf_cli.api.shard_format import FormatTraits, ShardFormat
from tar2tf_cli.api.values import KeySplit, Sample
from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.feature_map import AUTO, TypeName, check_names
from tar2tf_cli.formats.files import MAX_ENTRY_SIZE, is_stream
from tar2tf_cli.ops import rules
from tar2tf_cli.ops.base import Declared, runs_own_code
from tar2tf_cli.plugins import DEFAULT_FORMAT, find_format, format_names, formats, input_kinds
from tar2tf_cli.spec import fields as check
from tar2tf_cli.spec.fields import Checked, Exact, fields_of
from tar2tf_cli.spec.templates import (
    DEFAULT_SHARD_SIZE,
    STDOUT,
    FileSpec,
    PathTemplate,
    named_compression,
    output_format,
)
from tar2tf_cli.spec.urls import as_recorded, check_url, is_remote, without_secrets
from tar2tf_cli.structs import dataclass

if TYPE_CHECKING:
    from tar2tf_cli.features.labels import LabelMap
    from tar2tf_cli.features.presets import Preset
    from tar2tf_cli.ops.annotations import Boxes, Geometry, Mask, Points
    from tar2tf_cli.ops.select import Select, Selection
    from tar2tf_cli.spec.sample_keys import JoinOn, KeyTemplate

PathText: TypeAlias = "str | os.PathLike[str]"
Texts: TypeAlias = "str | Sequence[str]"
Compression: TypeAlias = 'Literal["none", "gzip", "zstd"]'
OnError: TypeAlias = 'Literal["fail", "skip"]'
JoinMissing: TypeAlias = 'Literal["error", "skip", "keep"]'
JoinMany: TypeAlias = 'Literal["error", "list", "repeat"]'
KeysMissing: TypeAlias = 'Literal["error", "skip"]'
SHARDS: Final = ("tar", "tfrecord")
"""The kinds of input that are shards; the content decides between tar and TFRecord."""

InvalidBoxes: TypeAlias = 'Literal["error", "drop", "keep"]'
Declarations: TypeAlias = "str | Declared | Mapping[str, Any] | Sequence[str | Declared | Mapping[str, Any]]"
Ops: TypeAlias = "Sequence[Op | str | Mapping[str, Any]]"


@dataclass(frozen=True)
class Input:
    """Input of a conversion: the shards to read, and how their members become samples.

    Attributes:
        bucket: a directory, a file or a URL, as text or a path.
        template: names of shards in the bucket, one text or several, with braces or a glob.
        key_split: whether a member's base name is split into key and extension at its first or last dot.
        regroup: whether to regroup samples whose members are not adjacent from the start, or to make them an error; by
            default, a shard is read again to regroup them when a key appears again.
        ignore_missing_end: accept tars without end-of-archive blocks.
        ignore_gaps: accept missing shards whose existence other names imply, as `-of-00004` does, or that an unfinished
            conversion has not written yet.
        kind: the kind of input in the bucket; `from` on the command line, in spec files and in manifests.
        key: a template for the keys of samples, such as `<input>/<key>`, `{json:id}` or `<n:09>`; by default, samples
            keep their keys.
        keys: path of a list of keys, one per line; only samples with these keys are converted.
        keys_missing: whether a listed key that is in no input is an error, or is skipped and recorded.
        join: tars, TFRecords, or a CSV or JSON Lines file, whose entries are added to the samples with the same key.
        join_key: the column of a joined table that has the keys; by default `__key__` or `key`.
        join_on: `COLUMN=SELECTION`: the column or entry of the joined dataset that has the key, and the value in a
            sample that must equal it; or only this selection.
        join_many: whether several rows with one key are an error, become lists of values, or become one sample each.
        join_missing: whether a sample without a match is faulty, is skipped and counted, or is kept unchanged.
        labels: path of the label map of an image folder, or `imagenet`.
        example_class: the subclass of `recorder.Example` that makes examples from rows, or `FILE.py:CLASS`.
        example_args: keyword arguments for its methods.
        columns: the columns of a table by entry, as `COLUMN`, `COLUMN:TYPE` or, for paths of files, `COLUMN:SUFFIX`; by
            default, every column becomes an entry of its name.
        rows: which rows of a file of examples to convert, counted after shuffling: the first, from 0, and the
            exclusive end.
        key_feature: the feature of TFRecords that holds the key of each sample, such as `key` for img2dataset's.
        no_sign_request: read a public cloud bucket without credentials.

    Raises:
        UsageError: for an invalid value, or a field that belongs to another kind of input.

    >>> Input("s3://bucket/shards", "train-{0000..0146}.tar").template
    ('train-{0000..0146}.tar',)
    """

    bucket: Checked[PathText, str] = Checked(rules.text)
    template: Checked[Texts, tuple[str, ...]] = Checked(check.texts, ())
    key_split: Exact[KeySplit] = Checked(rules.one_of("first", "last"), "first")
    regroup: Exact[bool | None] = Checked(rules.yes_or_no, None)
    ignore_missing_end: Exact[bool] = Checked(rules.yes_or_no, False)
    ignore_gaps: Exact[bool] = Checked(rules.yes_or_no, False)
    kind: Exact[str] = Checked(rules.one_of(*input_kinds(), plugins="inputs"), "tar")
    key: Exact[str | None] = Checked(check.key_template, None)
    keys: Checked[PathText | None, str | None] = Checked(rules.text, None)
    keys_missing: Exact[KeysMissing] = Checked(rules.one_of("error", "skip"), "error", recorded=False)
    join: Checked[PathText | Texts, tuple[str, ...]] = Checked(check.paths_or_urls, ())
    join_key: Exact[str | None] = Checked(rules.text, None)
    join_on: Exact[str | None] = Checked(check.join_on, None)
    join_many: Exact[JoinMany] = Checked(rules.one_of("error", "list", "repeat"), "error")
    join_missing: Exact[JoinMissing] = Checked(rules.one_of("error", "skip", "keep"), "error")
    labels: Checked[PathText | None, str | None] = Checked(rules.text, None)
    example_class: Exact[str | type | None] = Checked(check.loadable, None)
    example_args: Checked[Mapping[str, Any] | Texts, Mapping[str, Any]] = Checked(check.arguments, ())
    columns: Checked[Mapping[str, str] | Texts, Mapping[str, str]] = Checked(check.columns, ())
    rows: Checked[Sequence[int] | None, tuple[int, int] | None] = Checked(check.rows, None)
    key_feature: Exact[str | None] = Checked(rules.text, None)
    no_sign_request: Exact[bool] = Checked(rules.yes_or_no, False, recorded=False)

    def __post_init__(self) -> None:
        """Raise an error for fields that belong to another kind of input."""
        check_url(self.bucket)
        is_list = self.kind not in SHARDS
        may_be_remote = self.kind in (*SHARDS, "table")
        if is_list and (self.bucket == "-" or (is_remote(self.bucket) and not may_be_remote)):
            what = "standard input" if self.bucket == "-" else f"the URL {without_secrets(self.bucket)}"
            raise UsageError(f"--from {self.kind} reads local files, not {what}")
        if is_list and (self.regroup is not None or self.ignore_missing_end or self.key_split != "first"):
            raise UsageError("--key-split, --regroup and --ignore-missing-end are only for tars")
        if self.labels is not None and self.kind != "imagefolder":
            hint = "add --from imagefolder, or name the feature that has them: --labels NAME=FILE"
            raise UsageError("--labels FILE is for the classes of an image folder", hint=hint)
        if self.columns and self.kind != "table":
            raise UsageError("--columns is only for tables", hint="add --from table")
        if self.keys_missing != "error" and self.keys is None:
            raise UsageError("--keys-missing needs --keys", hint="add --keys FILE")
        self._check_join()
        if self.key and self.kind not in SHARDS and self.key_template.fields & {"input", "n"}:
            raise UsageError(f"<input> and <n> in --key are of shards, but --from {self.kind} reads no shards")
        if self.key and self.kind == "examples":
            raise UsageError("--key names samples, but --from examples produces complete examples")
        if (self.example_class or self.example_args or self.rows) and self.kind != "examples":
            raise UsageError("--example-class and --example-arg need --from examples", hint="add --from examples")
        if self.kind == "examples" and not self.example_class:
            raise UsageError("--from examples needs --example-class", hint="add --example-class FILE.py:CLASS")

    def _check_join(self) -> None:
        for place in self.join:
            check_url(place)
        others = self.join_key or self.join_on or (self.join_missing, self.join_many) != ("error", "error")
        if others and not self.join:
            names = "--join-key, --join-on, --join-many and --join-missing"
            raise UsageError(f"{names} need --join", hint="add --join BUCKET")
        if self.join_key and self.joined_by and self.joined_by.column:
            raise UsageError(f"--join-on {self.join_on} names the column with the keys: leave out --join-key")
        if self.join and self.kind == "examples":
            raise UsageError("--join adds entries to samples, but --from examples produces complete examples")

    @property
    def key_template(self) -> KeyTemplate:
        """The template of new keys; None if samples keep their keys."""
        from tar2tf_cli.spec.sample_keys import KeyTemplate

        return KeyTemplate(self.key or "<key>")

    @property
    def joined_by(self) -> JoinOn | None:
        """The fields by which datasets are joined; None to join by the samples' keys."""
        if not self.join_on:
            return None
        from tar2tf_cli.spec.sample_keys import JoinOn

        return JoinOn.parse(self.join_on)


@dataclass(frozen=True)
class Output:
    """Output of a conversion: the path of its shards, their format, and the limits of a shard.

    Attributes:
        path: the shards' path, with `<>` or `<00000>` in place of their numbers; `-` is standard output. An existing
            device or pipe is written like standard output. `train.tfrecord@64` means 64 shards, with numbers and total.
        max_shard_size: the maximum size of a shard on disk, in bytes with framing, or as text such as 100MB.
        num_shards: the number of shards, with equal numbers of records, or the number for each split, such as
            `train=100,val=4`; cannot be combined with the other limits.
        records_per_shard: the maximum number of records in a shard.
        compression: how to compress each shard; a path such as `train-<>.tar.zst` or `train-<>.record.gz` also sets it.
            zstd is for tars only.
        index: write `SHARD.idx` next to each shard, with the offset and size of each record; for a tar, DALI's index.
        to: whether shards are TFRecords or tars; the default is tar if the path ends in `.tar`, `.tar.gz`, `.tgz` or
            `.tar.zst`.

    Raises:
        UsageError: for an invalid value, or credentials in the path, which the message does not repeat.

    >>> Output("out/train-<>.record", max_shard_size="100MB").limit
    100000000
    """

    path: Checked[PathText, str] = Checked(rules.text)
    max_shard_size: Checked[float | str | None, int | None] = Checked(check.size, None)
    num_shards: Checked[int | str | Mapping[str, int] | None, int | Mapping[str, int] | None] = Checked(
        check.num_shards, None
    )
    records_per_shard: Exact[int | None] = Checked(rules.whole_number(1), None)
    compression: Exact[Compression] = Checked(rules.one_of("none", "gzip", "zstd"), "none")
    index: Exact[bool] = Checked(rules.yes_or_no, False)
    to: Exact[str | None] = Checked(rules.one_of(*format_names(), plugins="formats"), None)

    def __post_init__(self) -> None:
        """Check the path for credentials and foreign number fields, and derive compression and format from it."""
        check_url(self.path)
        PathTemplate.check(self.path)
        self._take_total()
        named = output_format(self.path)
        if named != DEFAULT_FORMAT:
            object.__setattr__(self, "to", self.to or named)
        elif self.to == DEFAULT_FORMAT:
            object.__setattr__(self, "to", None)
        self._check_compression()
        compression = named_compression(self.path)
        if compression and (compression in self.traits.compressions[1:] or self.to == named):
            self._check_suffix(compression)
            object.__setattr__(self, "compression", compression)
        if self.traits.end and self.is_stream and self.compression != "none":
            raise UsageError(
                f"a {self.format.name} that goes to {self.path} is not compressed",
                hint="leave out --compression, and pipe it to gzip",
            )

    def _take_total(self) -> None:
        """Take the number of shards from a path such as `train.tfrecord@64`."""
        if spec := FileSpec.parse(self.path):
            if self.num_shards not in (None, spec.total):
                raise UsageError(f"the output path {self.path!r} and --num-shards {self.num_shards} differ")
            object.__setattr__(self, "path", spec.output)
            object.__setattr__(self, "num_shards", spec.total)

    def _check_compression(self) -> None:
        if self.compression not in self.traits.compressions:
            others = [one.traits.plural for one in formats() if self.compression in one.traits.compressions]
            raise UsageError(
                f"--compression {self.compression} is only for {', '.join(others)}:"
                f" readers of {self.traits.plural} do not know it",
                hint=f"use {' or '.join(self.traits.compressions)}",
            )

    def _check_suffix(self, named: str) -> None:
        """Raise an error if the compression differs from the one of the path's suffix, by which readers decide."""
        if self.compression not in ("none", named):
            suffix = next(suffix for suffix, how in self.traits.suffixes.items() if how == self.compression)
            raise UsageError(
                f"the output path {self.path!r} has the name of a {self.format.name} that is not compressed with "
                f"{self.compression}",
                hint=f"use the suffix {suffix}, or leave out --compression",
            )

    @property
    def format(self) -> ShardFormat:
        """The format of the shards."""
        return find_format(self.to or DEFAULT_FORMAT)

    @property
    def traits(self) -> FormatTraits:
        """The traits of the shard format."""
        return self.format.traits

    @property
    def end(self) -> bytes:
        """The bytes after the last unit of each shard; in a stream, they are omitted between shards."""
        return b"" if self.is_stream else self.traits.end

    def shards_in(self, lane: str) -> int | None:
        """Return the number of shards of a lane, such as a split; None if another limit determines it."""
        return self.num_shards.get(lane) if isinstance(self.num_shards, Mapping) else self.num_shards

    @cached_property
    def is_stream(self) -> bool:
        """Whether all records are written to standard output, a device or a pipe, without any other file."""
        return self.path == STDOUT or is_stream(self.path)

    @property
    def shown(self) -> str:
        """The path as messages show it: `standard output` for `-`."""
        return "standard output" if self.path == STDOUT else self.path

    @property
    def template(self) -> PathTemplate:
        """The path, with a number field if a limit allows more than one shard."""
        return PathTemplate.parse(self.path, numbered=self.is_limited)

    @property
    def compresses_shards(self) -> bool:
        """Whether each shard is compressed as one stream, as no limit depends on the compressed size of records."""
        return self.compression != "none" and self.limit is None

    @property
    def is_limited(self) -> bool:
        """Whether any option divides the output into shards."""
        return (self.max_shard_size, self.num_shards, self.records_per_shard) != (None, None, None)

    @property
    def gives_default_limit(self) -> bool:
        """Whether the given limit equals the default limit."""
        others = self.num_shards or self.records_per_shard or PathTemplate.parse(self.path).start is None
        return self.max_shard_size == DEFAULT_SHARD_SIZE and not others

    @property
    def limit(self) -> int | None:
        """The largest size of a shard in bytes: as given, or the default for a numbered path without another limit."""
        if self.max_shard_size or self.num_shards or self.records_per_shard or self.template.start is None:
            return self.max_shard_size
        return DEFAULT_SHARD_SIZE


def _input(value: Any, label: str) -> Input:
    return value if isinstance(value, Input) else Input(value)


def _output(value: Any, label: str) -> Output:
    return value if isinstance(value, Output) else Output(value)


@dataclass(frozen=True)
class Conversion:
    """A complete conversion spec; equal conversions of equal inputs write equal bytes.

    Attributes:
        input: an `Input`, or its bucket.
        output: an `Output`, or its path.
        ops: a list of ops, applied in order: each an op, text as for `--op`, or a mapping as in a spec file.
        boxes: boxes on an image, which move with it: declarations such as `json:objects.*.bbox,format=xyxy`.
        points: points on an image, which move with it, such as `json:keypoints.*`.
        mask: masks of an image, which move with it, such as `seg.png`.
        invalid_boxes: whether a box without area, outside its image or with a number that is not finite makes its
            sample faulty, is dropped, or is kept unchanged.
        select: a mapping of features to selections, or text as for `--select`; None for every entry.
        preset: a standard set of features.
        image_size: height and width in pixels to which the preset imagenet-tensor crops and scales.
        max_pixels: the largest image to decode (height x width); a sample with a larger one is faulty.
        max_entry_size: the largest entry to load for an op, a preset or a type; a sample with a larger one is faulty.
        types: types of features, by name; types of other features follow from their values.
        labels: label maps of features, by name: a mapping of texts to numbers, a file with one, `imagenet`, or `auto`
            to number all texts of the inputs in sorted order.
        record_to_example: a function from a sample to its example, in Python only.
        shuffle: shuffle all records, across all shards.
        group_by: merge adjacent samples whose keys are equal up to the last `/` into one, after the ops: each entry
            NAME becomes GROUP_BY/NAME, with a value for each merged sample.
        group_once: names or globs of entries that are equal in all samples of a group, and are stored once.
        seed: the random seed for shuffling and random ops.
        drop_duplicates: skip samples that are equal to an earlier one in this entry or, with `*` or true, in all
            entries.
        sample: the fraction of the samples to convert, chosen by a hash of seed and key, so the choice does not change
            when data is added.
        limit: convert at most this many samples: the first ones, or with shuffle random ones.
        split: the fraction of the samples in each split, by name.
        split_by: the value in a sample, such as `json:patient`, whose hash assigns it to a split, so that samples with
            equal values are in one split; by default, the key.
        stratify: the value in a sample, such as `cls`, for each of which every split gets its fraction of the samples,
            to within one sample.
        on_error: what to do with a faulty sample.
        max_errors: fail after more than this many faulty samples.
        max_lost: fail after losing more than this many bytes of input.
        retry_for: how many seconds to retry failed requests to stores without progress; by default TAR2TF_RETRY_FOR,
            else 60.
        remote_exec: whether the AIStore cluster that stores the inputs makes the records; by default, it does if it
            runs a transformer for exactly this spec.
        etl: the name of the transformer to use.
        example_ops: functions that a `Pipeline` applies to examples, after select, preset and types.

    Raises:
        UsageError: for an invalid value, or options that contradict each other.

    >>> [op.name for op in Conversion("shards", "x-<>.record", ops=["decode:jpg,3", "resize:jpg,64x64"]).ops]
    ['decode', 'resize']
    """

    input: Checked[Input | PathText, Input] = Checked(_input)
    output: Checked[Output | PathText, Output] = Checked(_output)
    ops: Checked[Ops, tuple[Op, ...]] = Checked(check.ops, ())
    boxes: Checked[Declarations, tuple[Boxes, ...]] = Checked(check.boxes, ())
    points: Checked[Declarations, tuple[Points, ...]] = Checked(check.points, ())
    mask: Checked[Declarations, tuple[Mask, ...]] = Checked(check.masks, ())
    invalid_boxes: Exact[InvalidBoxes] = Checked(rules.one_of("error", "drop", "keep"), "error")
    select: Checked[Mapping[str, Any] | Sequence[Any] | str | None, Mapping[str, Selection] | None] = Checked(
        check.select, None
    )
    preset: Exact[str | None] = Checked(check.preset, None)
    image_size: Exact[int | None] = Checked(rules.whole_number(1), None)
    max_pixels: Exact[int] = Checked(rules.whole_number(1), DEFAULT_MAX_PIXELS)
    max_entry_size: Checked[int | str, int] = Checked(check.size, MAX_ENTRY_SIZE)
    types: Checked[Mapping[str, TypeName] | Texts, Mapping[str, TypeName]] = Checked(check.types, ())
    labels: Checked[Mapping[str, Any] | Texts, Mapping[str, LabelMap | str]] = Checked(check.labels, ())
    record_to_example: Exact[Callable[[Sample], Any] | None] = Checked(check.function, None)
    group_by: Exact[str | None] = Checked(rules.text, None)
    group_once: Checked[Texts, tuple[str, ...]] = Checked(check.texts, ())
    shuffle: Exact[bool] = Checked(rules.yes_or_no, False)
    seed: Exact[int] = Checked(rules.whole_number(), 0)
    sample: Exact[float | None] = Checked(check.fraction, None)
    drop_duplicates: Checked[str | bool | None, str | None] = Checked(check.entry_or_all, None)
    limit: Exact[int | None] = Checked(check.limit, None)
    split_by: Exact[str | None] = Checked(check.one_selection, None)
    stratify: Exact[str | None] = Checked(check.one_selection, None)
    split: Checked[Mapping[str, float] | str, Mapping[str, float]] = Checked(check.split, ())
    on_error: Exact[OnError] = Checked(rules.one_of("fail", "skip"), "fail")
    max_errors: Exact[int | None] = Checked(rules.whole_number(0), None)
    max_lost: Checked[int | str | None, int | None] = Checked(check.size, None)
    retry_for: Exact[float | None] = Checked(rules.seconds, None, recorded=False)
    remote_exec: Exact[bool | None] = Checked(rules.yes_or_no, None, recorded=False)
    etl: Exact[str | None] = Checked(rules.text, None, recorded=False)
    example_ops: Checked[Ops, tuple[Op, ...]] = Checked(check.ops, ())

    def __post_init__(self) -> None:
        """Raise an error for options that contradict each other."""
        named = self.output.template.fields
        self._check_output(named)
        self._check_features(self._preset.uses if self._preset else ())
        if self.etl and self.remote_exec is False:
            raise UsageError("--etl and --no-remote-exec cannot be combined: leave out one of them")
        if (self.stratify or AUTO in self.labels.values()) and (self.remote_exec or self.etl):
            what, hint = ("--stratify", None) if self.stratify else (f"--labels {AUTO}", "give --labels a file")
            raise UsageError(f"{what} cannot run in the cluster: it reads the samples locally first", hint=hint)
        self._check_groups()
        if "input" in named:
            self._check_input_field()

    def _check_groups(self) -> None:
        if self.group_once and not self.group_by:
            raise UsageError("--group-once needs --group-by", hint="add it, such as --group-by steps")
        if not self.group_by:
            return
        given = {"--drop-duplicates": self.drop_duplicates, "--split-by": self.split_by, "--stratify": self.stratify}
        if flag := next((flag for flag, value in given.items() if value), None):
            hint = f"convert with {flag} first, and group the samples of its output"
            raise UsageError(f"{flag} is about single samples, which --group-by makes one of: leave it out", hint=hint)
        if self.input.kind == "examples":
            raise UsageError("--group-by groups samples, but --from examples produces complete examples")

    def _check_output(self, named: frozenset[str]) -> None:
        if self.output.num_shards and (self.output.max_shard_size or self.output.records_per_shard):
            raise UsageError(
                "--num-shards already determines the size of shards: leave out --max-shard-size and --records-per-shard"
            )
        if self.split and "split" not in named:
            raise UsageError(
                f"--split needs <split> in the output path {self.output.path!r}",
                hint="add it, such as 'out/<split>-<>.record'",
            )
        self._check_split(named)
        may_have_splits = self.input.kind in (*SHARDS, "imagefolder") and self.input.bucket != "-"
        if "split" in named and not (self.split or may_have_splits):
            raise UsageError(
                "the output path has <split>, but no --split is given",
                hint="add one, such as --split train=0.9,val=0.1",
            )
        if self.input.join_many == "repeat" and self.output.traits.holds == "sample":
            what = f"--join-many repeat makes several samples of one key, which {self.output.traits.plural} cannot hold"
            raise UsageError(what, hint="use --join-many list, or write TFRecords")
        if not self.output.traits.carries_examples and (self.remote_exec or self.etl):
            flag = "--etl" if self.etl else "--remote-exec"
            raise UsageError(f"{flag} writes TFRecords, but the output is a {self.output.to}: leave it out")
        if not self.output.traits.carries_examples and self.example_ops:
            raise UsageError(
                f"examples cannot be written to {self.output.traits.plural}: name the output X.record",
            )
        if "total" in named and "number" not in named:
            raise UsageError(
                "the output path has <total> without a number", hint="add one, such as 'train-<00000>-of-<total>'"
            )
        if self.output.index and self.output.compression != "none":
            raise UsageError(
                "--index and --compression cannot be combined, as a compressed shard is not seekable: use one of them"
            )
        if self.output.is_stream and (self.split or self.output.index or self.output.is_limited):
            raise UsageError(
                f"{self.output.shown} is a single stream without shards: remove the options that divide it"
            )

    def _check_split(self, named: frozenset[str]) -> None:
        counts = self.output.num_shards
        if isinstance(counts, Mapping):
            if "split" not in named:
                raise UsageError("--num-shards has a number for each split, but the output path has no <split>")
            if self.split and set(counts) != set(self.split):
                names = f"--num-shards has {', '.join(counts)}, but --split has {', '.join(self.split)}"
                raise UsageError(names, hint="give a number for each split")
        for flag, value in (("--split-by", self.split_by), ("--stratify", self.stratify)):
            if value and not self.split:
                raise UsageError(f"{flag} needs --split", hint="add it, such as --split train=0.9,val=0.1")
            if value and self.input.kind == "examples":
                raise UsageError(f"{flag} takes a value of samples, but --from examples produces complete examples")
        if self.split_by and self.stratify:
            what = "samples of one group may have several values of --stratify"
            raise UsageError(f"--split-by and --stratify cannot be combined, as {what}: use one of them")

    def _check_features(self, uses: Sequence[str]) -> None:
        if self.record_to_example and self.preset:
            raise UsageError("record_to_example and preset both make the features: use one of them")
        if not self.record_to_example:
            check_names(self.types, self.select, self._preset)
        check_names(self.labels, self.select, option="--labels")
        if self._preset and (unused := self._preset.unused(self._selected)):
            known = ", ".join(self._preset.selects or ())
            raise UsageError(
                f"the preset {self.preset} would leave out the selected feature {unused[0]!r}",
                hint=f"it uses {known}; leave the others out, or select everything without a preset",
            )
        if self.image_size and "image_size" not in uses:
            raise UsageError(
                "--image-size is only for the preset imagenet-tensor",
                hint="add --preset imagenet-tensor, or scale with --op resize:jpg,224x224",
            )
        if self.invalid_boxes != "error" and not (self.geometry and self.geometry.boxes):
            raise UsageError("--invalid-boxes needs boxes", hint="add --boxes SEL or --preset detection")
        if (self.boxes or self.points or self.mask) and not self.ops:
            raise UsageError("--boxes, --points and --mask need ops, but there are none", hint="leave them out")
        if self.max_pixels != DEFAULT_MAX_PIXELS and self.preset and not self.ops and "max_pixels" not in uses:
            raise UsageError(
                f"--max-pixels has no effect with the preset {self.preset}, which decodes no images",
                hint="leave it out",
            )

    def _check_input_field(self) -> None:
        if self.input.kind not in SHARDS:
            raise UsageError(
                f"<input> stands for the name of an input shard, but --from {self.input.kind} reads no shards"
            )
        if self.split:
            raise UsageError("<input> and --split cannot be combined: use one of them")
        if self.shuffle or self.limit is not None:
            raise UsageError("<input> gives each input its own shards, so --shuffle and --limit cannot be used with it")

    @property
    def _preset(self) -> Preset | None:
        if not self.preset:
            return None
        from tar2tf_cli.features.presets import find_preset

        return find_preset(self.preset)

    @property
    def _selected(self) -> Mapping[str, Select]:
        from tar2tf_cli.ops.select import flatten

        return flatten(self.select or {})

    @property
    def first_label(self) -> int:
        """The label number of the first text that `--labels NAME=auto` finds."""
        return self._preset.first_label if self._preset else 0

    @property
    def geometry(self) -> Geometry | None:
        """The boxes, points and masks declared by options or the preset; None without any."""
        preset = self._preset
        has_own = preset is not None and preset.geometry is not None
        if not (has_own or self.boxes or self.points or self.mask):
            return None
        from tar2tf_cli.ops.annotations import OUTLINES, Geometry

        selected = {name: str(item.canonical()) for name, item in self._selected.items()}
        own = preset.geometry(selected) if preset and preset.geometry else Geometry()
        parts = {part for path in selected.values() for part in path.split(".")}
        written = OUTLINES if not (selected or preset) else tuple(name for name in OUTLINES if name in parts)
        return Geometry(self.boxes or own.boxes, self.points, self.mask or own.masks, self.invalid_boxes, written)

    @property
    def sample_ops(self) -> tuple[Op, ...]:
        """The ops, including those that move boxes, points and masks with their images.

        Raises:
            UsageError: when an op moves the pixels of a declared mask.
        """
        if not self.ops or not (geometry := self.geometry):
            return self.ops
        from tar2tf_cli.ops.geometry import follow_image  # imports the ops on images, too

        return follow_image(self.ops, geometry)

    @property
    def inputs_have_splits(self) -> bool:
        """Whether each input belongs to a split."""
        return "split" in self.output.template.fields and not self.split

    @property
    def keeps_entries(self) -> bool:
        """Whether the features are the samples' entries, unchanged byte for byte."""
        return self.only_filters_or_joins and not (self.ops or self.input.join or self.input.key)

    @property
    def only_filters_or_joins(self) -> bool:
        """Whether samples are only skipped or joined, so that their own entries become features unchanged."""
        changed = (
            self.types or self.labels or self.preset or self.record_to_example or self.example_ops or self.group_by
        )
        return not changed and self.select is None and all(op.filter_entry is not None for op in self.ops)

    @property
    def filters_by_key(self) -> bool:
        """Whether samples are skipped by their keys alone."""
        return self.input.keys is not None or self.sample is not None

    @property
    def limits_results(self) -> bool:
        """Whether the limit counts groups or samples that are not skipped, so that it does not limit the listing."""
        return self.filters_by_key or bool(self.drop_duplicates or self.group_by)

    @property
    def limit_of_each(self) -> int | None:
        """The limit that applies to each input alone; None if there is none, or if the choice depends on all inputs."""
        return None if self.shuffle or self.drop_duplicates else self.limit

    @property
    def is_light(self) -> bool:
        """Whether entries are only selected and parsed, so that reading them twice costs less than copying them."""
        worked_on = self.ops or self.example_ops or self.record_to_example or self.input.join or self.input.key
        return not (worked_on or self.group_by) and (self._preset is None or self._preset.light)

    @property
    def runs_own_code(self) -> bool:
        """Whether the conversion calls a user's function for each sample."""
        return bool(self.example_ops or self.record_to_example or any(map(runs_own_code, self.ops)))

    @property
    def gains_by_threads(self) -> bool:
        """Whether several threads may work on one input, to finish it sooner.

        A user's function may not be thread-safe, and reading stops at a limit.
        """
        releases_gil = any(op.releases_gil for op in self.ops) or bool(self._preset and self._preset.decodes)
        return releases_gil and not self.runs_own_code and (self.limit is None or self.shuffle)

    def canonical(self) -> dict[str, Any]:
        """Return the spec as the manifest records it: without defaults, and with an output path relative to the
        manifest.

        The result is also valid as a spec file.
        """
        folder = self.output.template.manifest().rpartition("/")[0]
        path = self.output.path.removeprefix(folder + "/")
        inputs = {**_changed(self.input), "bucket": as_recorded(self.input.bucket)}
        if self.input.join:
            inputs["join"] = [as_recorded(place) for place in self.input.join]
        whole: dict[str, Any] = {
            "input": {"from" if name == "kind" else name: item for name, item in inputs.items()},
            "ops": [op.canonical() for op in self.ops],
            "select": None if self.select is None else {name: item.canonical() for name, item in self.select.items()},
            "example_ops": [op.canonical() for op in self.example_ops],
            **_changed(self),
            "output": {**_changed(self.output), "path": path.replace("{}", "<>")},
        }
        if self.output.gives_default_limit:
            del whole["output"]["max_shard_size"]
        return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _changed(spec: Input | Output | Conversion) -> dict[str, object]:
    """Return the fields of a spec that differ from their defaults, without nested specs, ops and selections."""
    nested = ("input", "output", "ops", "example_ops", "select")
    fields = fields_of(type(spec)).items()
    defaults = {name: field.default for name, field in fields if field.recorded and name not in nested}
    values = {name: getattr(spec, name) for name in defaults}
    return {name: _plain(value) for name, value in values.items() if value not in (defaults[name], {})}


def _plain(value: object) -> object:
    """Convert a value to plain JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, type):
        from tar2tf_cli.ops.user_code import label

        return label(value)
    if isinstance(value, Declared):
        return _plain(value.changed_fields())
    if not callable(value):
        return str(value)
    from tar2tf_cli.ops.func import Func

    return Func(value).canonical()
