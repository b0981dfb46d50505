"""The conversion spec: everything that decides the bytes of the output, in one frozen value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.types import TYPES, TypeName
from tar2tf_cli.ops.base import MAX_PIXELS, Op
from tar2tf_cli.ops.func import Func, label
from tar2tf_cli.ops.select import Selection
from tar2tf_cli.samples.grouping import KeySplit, Sample
from tar2tf_cli.spec.output_path import DEFAULT_SHARD_SIZE, STDOUT, PathTemplate
from tar2tf_cli.spec.urls import check_url, is_remote, without_secrets

__all__ = [
    "Conversion",
    "Input",
    "Output",
    "parse_arguments",
    "parse_size",
    "parse_split",
    "parse_types",
]


@dataclass(frozen=True, slots=True)
class Input:
    """Which shards are read, and how their members become samples.

    Attributes:
        kind: what the bucket holds; `from` on the command line, in spec files and in manifests.
        labels: path of the label map of an image folder.
        example_class: the subclass of `recorder.Example` that makes examples of rows, or where it is.
        example_args: what its methods are called with.
        rows: the first row of a file of examples, from 0 in the order of its shuffling, and the one behind the last.
    """

    bucket: str
    template: tuple[str, ...] = ()
    key_split: KeySplit = "first"
    regroup: bool = False
    ignore_missing_end: bool = False
    kind: Literal["tar", "imagefolder", "examples"] = "tar"
    labels: str | None = None
    example_class: str | type | None = None
    example_args: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse what goes with another kind of input.

        Raises:
            UsageError: naming the options and what to do.
        """
        check_url(self.bucket)
        if self.kind != "tar" and is_remote(self.bucket):
            raise UsageError(f"--from {self.kind} reads local files, and {without_secrets(self.bucket)} is a URL")
        if self.kind != "tar" and (self.regroup or self.ignore_missing_end or self.key_split != "first"):
            raise UsageError("--key-split, --regroup and --ignore-missing-end are for tars alone")
        if self.labels is not None and self.kind != "imagefolder":
            raise UsageError("--labels names the classes of an image folder", hint="add --from imagefolder")
        if (self.example_class or self.example_args or self.rows) and self.kind != "examples":
            raise UsageError("--example-class and --example-arg are for examples", hint="add --from examples")
        if self.rows and (len(self.rows) != 2 or not 0 <= self.rows[0] <= self.rows[1]):
            raise UsageError(f"rows are a first row and the one behind the last, not {list(self.rows)}")
        if self.kind == "examples" and not self.example_class:
            raise UsageError(
                "--from examples needs the class that makes them", hint="add --example-class FILE.py:CLASS"
            )


@dataclass(frozen=True, slots=True)
class Output:
    """Where records go, and when a shard is full. Sizes are bytes on disk, framing included."""

    path: str
    max_shard_size: int | None = None
    num_shards: int | None = None
    records_per_shard: int | None = None
    compression: Literal["none", "gzip"] = "none"
    index: bool = False

    def __post_init__(self) -> None:
        """Refuse credentials in the path.

        Raises:
            UsageError: which does not repeat them.
        """
        check_url(self.path)

    @property
    def template(self) -> PathTemplate:
        """The path, numbered where a limit makes more than one shard possible."""
        return PathTemplate.parse(self.path, numbered=self.is_limited)

    @property
    def is_limited(self) -> bool:
        """Whether anything was given that divides the output into shards."""
        return (self.max_shard_size, self.num_shards, self.records_per_shard) != (None, None, None)

    @property
    def limit(self) -> int | None:
        """Most bytes a shard may have: as given, or the default when the path is numbered and nothing else limits."""
        if self.max_shard_size or self.num_shards or self.records_per_shard or self.template.start is None:
            return self.max_shard_size
        return DEFAULT_SHARD_SIZE


@dataclass(frozen=True, slots=True)
class Conversion:
    """A whole conversion; equal conversions of equal inputs give equal bytes.

    Attributes:
        example_ops: what a `Pipeline` does to examples, behind select, preset and types.
    """

    input: Input
    output: Output
    ops: tuple[Op, ...] = ()
    select: Mapping[str, Selection] | None = None
    preset: str | None = None
    image_size: int | None = None
    max_pixels: int = MAX_PIXELS
    types: Mapping[str, TypeName] = field(default_factory=dict)
    record_to_example: Callable[[Sample], Any] | None = None
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    split: Mapping[str, float] = field(default_factory=dict)
    on_error: Literal["fail", "skip"] = "fail"
    max_errors: int | None = None
    example_ops: tuple[Op, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: naming the options and what to do.
        """
        if self.preset is not None:
            find_preset(self.preset)
        for name in ("max_shard_size", "num_shards", "records_per_shard"):
            _positive(name, getattr(self.output, name))
        _positive("image_size", self.image_size)
        _positive("max_pixels", self.max_pixels)
        for name in ("limit", "max_errors"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.split:
            _check_split(self.split)
        named = self.output.template.fields
        if self.output.num_shards and (self.output.max_shard_size or self.output.records_per_shard):
            raise UsageError(
                "--num-shards decides the size of shards alone: drop --max-shard-size and --records-per-shard"
            )
        if self.split and "split" not in named:
            raise UsageError(
                f"--split needs <split> in the output path {self.output.path!r}", hint="such as 'out/<split>-<>.record'"
            )
        if "split" in named and not self.split:
            raise UsageError(
                "the output path has <split>, but no --split is given", hint="such as --split train=0.9,val=0.1"
            )
        if "total" in named and "number" not in named:
            raise UsageError("the output path has <total> without a number", hint="such as 'train-<00000>-of-<total>'")
        if self.output.index and self.output.compression == "gzip":
            raise UsageError("--index gives offsets to seek to, and a gzip shard cannot be sought in")
        if self.output.path == STDOUT and (self.split or self.output.index or self.output.is_limited):
            raise UsageError("standard output is a single stream, without shards: drop the options that divide it")
        if "input" in named and self.input.kind != "tar":
            raise UsageError(f"<input> is the name of a tar, and there are none with --from {self.input.kind}")
        if "input" in named and self.split:
            raise UsageError("<input> and --split each divide the output: use one of them")
        if "input" in named and (self.shuffle or self.limit is not None):
            raise UsageError("<input> keeps each input's samples apart, so --shuffle and --limit do not go with it")

    @property
    def keeps_entries(self) -> bool:
        """Whether the features are the samples' entries, byte for byte."""
        changed = self.ops or self.types or self.preset or self.record_to_example or self.example_ops
        return not changed and self.select is None

    @property
    def is_light(self) -> bool:
        """Whether entries are at most picked, parsed and looked into, which costs less again than a copy of them."""
        worked_on = self.ops or self.example_ops or self.record_to_example
        return not worked_on and self.preset in (None, "image-label")

    @property
    def gains_by_threads(self) -> bool:
        """Whether an input may be worked on by several threads, and is done sooner so.

        Functions of the user's may not count on being alone; a limit is not to be read beyond.
        """
        own = self.example_ops or self.record_to_example or any(isinstance(op, Func) for op in self.ops)
        unlocked = any(op.unlocked for op in self.ops) or self.preset in ("imagenet", "imagenet-tensor")
        return unlocked and not own and (self.limit is None or self.shuffle)

    def canonical(self) -> dict[str, Any]:
        """The spec as the manifest holds it: defaults left out, the output path as seen from the manifest.

        A spec file may hold the same.
        """
        folder = self.output.template.manifest().rpartition("/")[0]
        inputs = {**_changed(self.input), "bucket": without_secrets(self.input.bucket)}
        whole: dict[str, Any] = {
            "input": {"from" if name == "kind" else name: item for name, item in inputs.items()},
            "ops": [op.canonical() for op in self.ops],
            "select": None if self.select is None else {name: item.canonical() for name, item in self.select.items()},
            "example_ops": [op.canonical() for op in self.example_ops],
            **_changed(self),
            "output": {**_changed(self.output), "path": self.output.path.removeprefix(folder + "/")},
        }
        return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _changed(spec: Input | Output | Conversion) -> dict[str, Any]:
    """The fields of a spec that are not as they are by default, nested specs, ops and selections left out."""
    changed: dict[str, Any] = {}
    for item in fields(spec):
        value = getattr(spec, item.name)
        default = {} if item.default_factory is dict else item.default
        if item.name not in ("input", "output", "ops", "example_ops", "select") and value != default:
            changed[item.name] = _plain(value)
    return changed


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, type):
        return label(value)
    return Func(value).canonical() if callable(value) else str(value)


def parse_size(value: Any) -> int:
    """Bytes from `100MB` (10^8), `100MiB` (binary) or a number.

    Raises:
        UsageError: when it is no size, or not more than 0.
    """
    from humanfriendly import InvalidSize, parse_size

    try:
        size = value if isinstance(value, int) else int(parse_size(str(value)))
    except InvalidSize:
        raise UsageError(f"{value!r} is not a size; write 100MB, 1GiB or a number of bytes") from None
    if size <= 0:
        raise UsageError(f"{value!r} is not a size: it must be more than 0")
    return size


def parse_types(items: Sequence[str]) -> dict[str, TypeName]:
    """`NAME=TYPE` items, comma-separated or several, as a dict.

    Raises:
        UsageError: for an item without `=` or a type that does not exist.
    """
    types: dict[str, TypeName] = {}
    for item in (part for text in items for part in text.split(",") if part):
        name, equals, kind = item.partition("=")
        if not equals or not name or kind not in TYPES:
            raise UsageError(f"--type {item!r} is not NAME=TYPE", hint=f"TYPE is one of {', '.join(TYPES)}")
        types[name] = kind  # type: ignore[assignment]
    return types


def parse_split(text: str) -> dict[str, float]:
    """`train=0.9,val=0.1` as a dict of fractions.

    Raises:
        UsageError: when it is not written so.
    """
    split: dict[str, float] = {}
    for item in text.split(","):
        name, equals, number = item.partition("=")
        try:
            fraction = float(number)
        except ValueError:
            equals = ""
        if not equals or not name or name in split:
            raise UsageError(f"--split {text!r} is not NAME=FRACTION,...", hint="such as train=0.9,val=0.1")
        split[name] = fraction
    return split


def parse_arguments(items: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` items as a dict; a value that is JSON (`true`, `5`, `"5"`, `[1, 2]`) as that, another as text.

    Raises:
        UsageError: for an item without `=`.
    """
    arguments: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--example-arg {item!r} is not NAME=VALUE", hint="such as normalize=true")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def _check_split(split: Mapping[str, float]) -> None:
    text = ",".join(f"{name}={fraction:g}" for name, fraction in split.items())
    if any("/" in name or not name for name in split) or not all(0 < fraction <= 1 for fraction in split.values()):
        raise UsageError(f"the split {text} needs plain names and fractions between 0 and 1")
    if abs(sum(split.values()) - 1) > 1e-6:
        raise UsageError(f"the fractions of the split {text} sum to {sum(split.values()):g}, not to 1")


def _positive(name: str, value: int | None) -> None:
    if value is not None and value <= 0:
        raise UsageError(f"{name} must be more than 0, not {value}")
