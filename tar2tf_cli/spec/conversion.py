"""The conversion spec: everything that determines the bytes of the output, in one frozen value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.feature_map import TypeName, check_types
from tar2tf_cli.features.presets import Preset, find_preset
from tar2tf_cli.formats.files import is_stream
from tar2tf_cli.formats.stored import DEFAULT_MAX_PIXELS, MAX_ENTRY_SIZE
from tar2tf_cli.ops import rules
from tar2tf_cli.ops.base import Op, label
from tar2tf_cli.ops.select import Selection
from tar2tf_cli.registry import input_kinds
from tar2tf_cli.samples.names import KeySplit, Sample
from tar2tf_cli.spec import fields as check
from tar2tf_cli.spec.fields import Checked, Exact, fields_of
from tar2tf_cli.spec.output_path import DEFAULT_SHARD_SIZE, STDOUT, PathTemplate
from tar2tf_cli.spec.urls import as_recorded, check_url, is_remote, without_secrets

PathText: TypeAlias = "str | os.PathLike[str]"
Texts: TypeAlias = "str | Sequence[str]"
Compression: TypeAlias = Literal["none", "gzip"]
OnError: TypeAlias = Literal["fail", "skip"]
Ops: TypeAlias = "Sequence[Op | str | Mapping[str, Any]]"


@dataclass(frozen=True)
class Input:
    """Which shards are read, and how their members become samples.

    Attributes:
        bucket: a directory, a file or a URL, as text or a path.
        template: names of shards in it, one text or several, with braces or a glob.
        key_split: whether a member's key ends at the first or the last dot of its base name.
        regroup: whether samples whose members are not adjacent are put together from the start, or are an error; by
            default a shard is read again to put them together when a key appears again.
        ignore_missing_end: accept tars without the blocks that end an archive.
        kind: what the bucket holds; `from` on the command line, in spec files and in manifests.
        labels: path of the label map of an image folder, or `imagenet`.
        example_class: the subclass of `recorder.Example` that makes examples from rows, or `FILE.py:CLASS`.
        example_args: keyword arguments for its methods.
        rows: first row of a file of examples, from 0 and counted after shuffling, and exclusive end.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.

    Raises:
        UsageError: for an invalid value, or a field that belongs to another kind of input.
    """

    bucket: Checked[PathText, str] = Checked(rules.text)
    template: Checked[Texts, tuple[str, ...]] = Checked(check.texts, ())
    key_split: Exact[KeySplit] = Checked(rules.one_of("first", "last"), "first")
    regroup: Exact[bool | None] = Checked(check.flag, None)
    ignore_missing_end: Exact[bool] = Checked(check.flag, False)
    kind: Exact[str] = Checked(rules.one_of(*input_kinds()), "tar")
    labels: Checked[PathText | None, str | None] = Checked(rules.text, None)
    example_class: Exact[str | type | None] = Checked(check.loadable, None)
    example_args: Checked[Mapping[str, Any] | Texts, Mapping[str, Any]] = Checked(check.arguments, ())
    rows: Checked[Sequence[int] | None, tuple[int, int] | None] = Checked(check.rows, None)
    no_sign_request: Exact[bool] = Checked(check.flag, False, recorded=False)

    def __post_init__(self) -> None:
        """Refuse fields that belong to another kind of input."""
        check_url(self.bucket)
        if self.kind != "tar" and is_remote(self.bucket):
            raise UsageError(f"--from {self.kind} reads local files, but {without_secrets(self.bucket)} is a URL")
        if self.kind != "tar" and (self.regroup is not None or self.ignore_missing_end or self.key_split != "first"):
            raise UsageError("--key-split, --regroup and --ignore-missing-end are only for tars")
        if self.labels is not None and self.kind != "imagefolder":
            raise UsageError("--labels names the classes of an image folder", hint="add --from imagefolder")
        if (self.example_class or self.example_args or self.rows) and self.kind != "examples":
            raise UsageError("--example-class and --example-arg are for examples", hint="add --from examples")
        if self.kind == "examples" and not self.example_class:
            raise UsageError(
                "--from examples needs the class that makes them", hint="add --example-class FILE.py:CLASS"
            )


@dataclass(frozen=True)
class Output:
    """Where records are written, and when a shard is full.

    Attributes:
        path: the shards' path, with `<>` or `<00000>` where their numbers go; `-` is standard output, and an existing
            device or pipe is written to in the same way.
        max_shard_size: the largest size of a shard on disk in bytes, framing included; or text such as 100MB.
        num_shards: how many shards to write, of equal count; not with the other limits.
        records_per_shard: the most records of a shard.
        compression: compresses each shard.
        index: write `SHARD.idx` beside each shard, with the offset and size of each record.

    Raises:
        UsageError: for an invalid value, or credentials in the path, which the message does not repeat.
    """

    path: Checked[PathText, str] = Checked(rules.text)
    max_shard_size: Checked[float | str | None, int | None] = Checked(check.size, None)
    num_shards: Exact[int | None] = Checked(rules.whole_number(1, 1_000_000), None)
    records_per_shard: Exact[int | None] = Checked(rules.whole_number(1), None)
    compression: Exact[Compression] = Checked(rules.one_of("none", "gzip"), "none")
    index: Exact[bool] = Checked(check.flag, False)

    def __post_init__(self) -> None:
        """Refuse credentials in the path, and numbers that are written as elsewhere."""
        check_url(self.path)
        PathTemplate.check(self.path)

    @property
    def is_stream(self) -> bool:
        """Whether all records go to standard output, a device or a pipe, and no other file is written."""
        return self.path == STDOUT or is_stream(self.path)

    @property
    def template(self) -> PathTemplate:
        """The path, with a number field if a limit allows more than one shard."""
        return PathTemplate.parse(self.path, numbered=self.is_limited)

    @property
    def compresses_shards(self) -> bool:
        """Whether each shard is compressed as a whole, as no limit depends on how small its records become."""
        return self.compression == "gzip" and self.limit is None

    @property
    def is_limited(self) -> bool:
        """Whether any option divides the output into shards."""
        return (self.max_shard_size, self.num_shards, self.records_per_shard) != (None, None, None)

    @property
    def gives_default_limit(self) -> bool:
        """Whether the limit is given and is the one that holds without it."""
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
    """A whole conversion; equal conversions of equal inputs write equal bytes.

    Attributes:
        input: an `Input`, or its bucket.
        output: an `Output`, or its path.
        ops: a list of ops, applied in order: each an op, text as for `--op`, or a mapping as in a spec file.
        select: a mapping of features to selections, or text as for `--select`; None for every entry.
        preset: a known set of features.
        image_size: height and width in pixels for the preset imagenet-tensor, which then crops and scales.
        max_pixels: an image with more pixels (height x width) is a faulty sample when it is decoded.
        max_entry_size: a larger entry is a faulty sample when an op, a preset or a type needs it in memory.
        types: types of features, by name; the others follow from their values.
        record_to_example: a function from a sample to its example, in Python only.
        shuffle: shuffle all records, across all shards.
        seed: the random seed for shuffling and random ops.
        limit: convert at most this many samples: the first ones, or with shuffle random ones.
        split: the fraction of the samples in each split, by name.
        on_error: what to do with a faulty sample.
        max_errors: fail after more faulty samples than this.
        max_lost: fail after more bytes of inputs than this could not be read.
        retry_for: for how many seconds failed requests to stores are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        remote_exec: whether the AIStore cluster that holds the inputs makes the records; by default it does if it has a
            transformer of this very spec.
        etl: the name of the transformer that makes them.
        example_ops: what a `Pipeline` does to examples, after select, preset and types.

    Raises:
        UsageError: for an invalid value, or options that contradict each other.
    """

    input: Checked[Input | PathText, Input] = Checked(_input)
    output: Checked[Output | PathText, Output] = Checked(_output)
    ops: Checked[Ops, tuple[Op, ...]] = Checked(check.ops, ())
    select: Checked[Mapping[str, Any] | Sequence[Any] | str | None, Mapping[str, Selection] | None] = Checked(
        check.select, None
    )
    preset: Exact[str | None] = Checked(check.preset, None)
    image_size: Exact[int | None] = Checked(rules.whole_number(1), None)
    max_pixels: Exact[int] = Checked(rules.whole_number(1), DEFAULT_MAX_PIXELS)
    max_entry_size: Checked[int | str, int] = Checked(check.size, MAX_ENTRY_SIZE)
    types: Checked[Mapping[str, TypeName] | Texts, Mapping[str, TypeName]] = Checked(check.types, ())
    record_to_example: Exact[Callable[[Sample], Any] | None] = Checked(check.function, None)
    shuffle: Exact[bool] = Checked(check.flag, False)
    seed: Exact[int] = Checked(rules.whole_number(), 0)
    limit: Exact[int | None] = Checked(check.limit, None)
    split: Checked[Mapping[str, float] | str, Mapping[str, float]] = Checked(check.split, ())
    on_error: Exact[OnError] = Checked(rules.one_of("fail", "skip"), "fail")
    max_errors: Exact[int | None] = Checked(rules.whole_number(0), None)
    max_lost: Checked[int | str | None, int | None] = Checked(check.size, None)
    retry_for: Exact[float | None] = Checked(rules.seconds, None, recorded=False)
    remote_exec: Exact[bool | None] = Checked(check.flag, None, recorded=False)
    etl: Exact[str | None] = Checked(rules.text, None, recorded=False)
    example_ops: Checked[Ops, tuple[Op, ...]] = Checked(check.ops, ())

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        named = self.output.template.fields
        self._check_output(named)
        self._check_features(self._preset.uses if self._preset else ())
        if self.etl and self.remote_exec is False:
            raise UsageError("--etl names a transformer, and --no-remote-exec uses none: leave out one of them")
        if "input" in named:
            self._check_input_field()

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
        if "split" in named and not self.split:
            raise UsageError(
                "the output path has <split>, but no --split is given",
                hint="add one, such as --split train=0.9,val=0.1",
            )
        if "total" in named and "number" not in named:
            raise UsageError(
                "the output path has <total> without a number", hint="add one, such as 'train-<00000>-of-<total>'"
            )
        if self.output.index and self.output.compression == "gzip":
            raise UsageError("--index gives offsets to seek to, but a gzip shard is not seekable: use one or the other")
        if self.output.is_stream and (self.split or self.output.index or self.output.is_limited):
            name = "standard output" if self.output.path == STDOUT else self.output.path
            raise UsageError(f"{name} is a single stream without shards: remove the options that divide it")

    def _check_features(self, uses: Sequence[str]) -> None:
        if self.record_to_example and self.preset:
            raise UsageError("record_to_example and preset both make the features: use one of them")
        if not self.record_to_example:
            check_types(self.types, self.select, self._preset)
        if self.image_size and "image_size" not in uses:
            raise UsageError(
                "--image-size is only for the preset imagenet-tensor",
                hint="add --preset imagenet-tensor, or scale with --op resize:jpg,224x224",
            )
        if self.max_pixels != DEFAULT_MAX_PIXELS and self.preset and not self.ops and "max_pixels" not in uses:
            raise UsageError(
                f"--max-pixels does nothing with the preset {self.preset}, which decodes no images", hint="leave it out"
            )

    def _check_input_field(self) -> None:
        if self.input.kind != "tar":
            raise UsageError(f"<input> is the name of a tar, but there are none with --from {self.input.kind}")
        if self.split:
            raise UsageError("<input> and --split each divide the output: use one or the other")
        if self.shuffle or self.limit is not None:
            raise UsageError("<input> gives each input its own shards, so --shuffle and --limit cannot be used with it")

    @property
    def _preset(self) -> Preset | None:
        return find_preset(self.preset) if self.preset else None

    @property
    def keeps_entries(self) -> bool:
        """Whether the features are the samples' entries, byte for byte."""
        changed = self.ops or self.types or self.preset or self.record_to_example or self.example_ops
        return not changed and self.select is None

    @property
    def is_light(self) -> bool:
        """Whether entries are only selected and parsed, so that reading them twice costs less than copying them."""
        worked_on = self.ops or self.example_ops or self.record_to_example
        return not worked_on and (self._preset is None or self._preset.light)

    @property
    def runs_own_code(self) -> bool:
        """Whether a function of the user is called for each sample."""
        return bool(self.example_ops or self.record_to_example or any(op.own_code for op in self.ops))

    @property
    def gains_by_threads(self) -> bool:
        """Whether several threads may work on one input, to finish it sooner.

        A user's function may not be thread-safe, and reading stops at a limit.
        """
        unlocked = any(op.unlocked for op in self.ops) or bool(self._preset and self._preset.decodes)
        return unlocked and not self.runs_own_code and (self.limit is None or self.shuffle)

    def canonical(self) -> dict[str, Any]:
        """Return the spec as in the manifest: without defaults, with the output path relative to the manifest.

        A spec file may contain the same.
        """
        folder = self.output.template.manifest().rpartition("/")[0]
        path = self.output.path.removeprefix(folder + "/")
        inputs = {**_changed(self.input), "bucket": as_recorded(self.input.bucket)}
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


def _changed(spec: Input | Output | Conversion) -> dict[str, Any]:
    """Return the fields of a spec that differ from their defaults, without nested specs, ops and selections."""
    nested = ("input", "output", "ops", "example_ops", "select")
    fields = fields_of(type(spec)).items()
    defaults = {name: field.default for name, field in fields if field.recorded and name not in nested}
    values = {name: getattr(spec, name) for name in defaults}
    return {name: _plain(value) for name, value in values.items() if value not in (defaults[name], {})}


def _plain(value: Any) -> Any:
    """Convert a value to plain JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, type):
        return label(value)
    if not callable(value):
        return str(value)
    from tar2tf_cli.ops.func import Func

    return Func(value).canonical()
