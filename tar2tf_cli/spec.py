"""The conversion spec: everything that decides the bytes of the output, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

from tar2tf_cli.errors import UsageError
from tar2tf_cli.paths import DEFAULT_SHARD_SIZE, STDOUT, PathTemplate
from tar2tf_cli.samples import KeySplit

__all__ = ["TYPES", "Conversion", "Input", "Output", "TypeName", "parse_split", "parse_types"]

TypeName = Literal["int64", "int64_list", "float", "float_list", "bytes", "bytes_list"]
TYPES: Final[tuple[str, ...]] = get_args(TypeName)


@dataclass(frozen=True, slots=True)
class Input:
    """Which shards are read, and how their members become samples."""

    bucket: str
    template: tuple[str, ...] = ()
    key_split: KeySplit = "first"
    regroup: bool = False
    ignore_missing_end: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """Where records go, and when a shard is full. Sizes are bytes on disk, framing included."""

    path: str
    max_shard_size: int | None = None
    num_shards: int | None = None
    records_per_shard: int | None = None
    compression: Literal["none", "gzip"] = "none"
    index: bool = False

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
    """A whole conversion; equal conversions of equal inputs give equal bytes."""

    input: Input
    output: Output
    types: Mapping[str, TypeName] = field(default_factory=dict)
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    split: Mapping[str, float] = field(default_factory=dict)
    on_error: Literal["fail", "skip"] = "fail"
    max_errors: int | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: naming the options and what to do.
        """
        fields = self.output.template.fields
        if self.output.num_shards and (self.output.max_shard_size or self.output.records_per_shard):
            raise UsageError(
                "--num-shards decides the size of shards alone: drop --max-shard-size and --records-per-shard"
            )
        if self.split and "split" not in fields:
            raise UsageError(
                f"--split needs <split> in the output path {self.output.path!r}", hint="such as 'out/<split>-<>.record'"
            )
        if "split" in fields and not self.split:
            raise UsageError(
                "the output path has <split>, but no --split is given", hint="such as --split train=0.9,val=0.1"
            )
        if "total" in fields and "number" not in fields:
            raise UsageError("the output path has <total> without a number", hint="such as 'train-<00000>-of-<total>'")
        if self.output.index and self.output.compression == "gzip":
            raise UsageError("--index gives offsets to seek to, and a gzip shard cannot be sought in")
        if self.output.path == STDOUT and (self.split or self.output.index or self.output.is_limited):
            raise UsageError("standard output is a single stream, without shards: drop the options that divide it")
        if "input" in fields and self.split:
            raise UsageError("<input> and --split each divide the output: use one of them")
        if "input" in fields and (self.shuffle or self.limit is not None):
            raise UsageError("<input> keeps each input's samples apart, so --shuffle and --limit do not go with it")

    def canonical(self) -> dict[str, Any]:
        """The spec as the manifest holds it: defaults left out, the output path as seen from the manifest."""
        whole = asdict(self)
        folder = self.output.template.manifest().rpartition("/")[0]
        whole["output"]["path"] = self.output.path.removeprefix(folder + "/")
        return _without_defaults(whole, asdict(Conversion(Input(""), Output(""))))


def _without_defaults(value: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict) and isinstance(default.get(name), dict) and default[name]:
            item = _without_defaults(item, default[name])
        if item != default.get(name):
            kept[name] = list(item) if isinstance(item, tuple) else item
    return kept


def parse_types(items: Sequence[str]) -> dict[str, TypeName]:
    """`NAME=TYPE` items, comma-separated or several, as a dict.

    Raises:
        UsageError: for an item without `=` or a type that does not exist.
    """
    types: dict[str, TypeName] = {}
    for item in (part for text in items for part in text.split(",") if part):
        name, equals, kind = item.partition("=")
        if not equals or kind not in TYPES:
            raise UsageError(f"--type {item!r} is not NAME=TYPE", hint=f"TYPE is one of {', '.join(TYPES)}")
        types[name] = kind  # type: ignore[assignment]
    return types


def parse_split(text: str) -> dict[str, float]:
    """`train=0.9,val=0.1` as a dict of fractions that sum to 1.

    Raises:
        UsageError: when a fraction is not a number between 0 and 1, or they do not sum to 1.
    """
    split: dict[str, float] = {}
    for item in text.split(","):
        name, equals, number = item.partition("=")
        try:
            fraction = float(number)
        except ValueError:
            fraction = -1.0
        if not equals or not name or "/" in name or not 0 < fraction <= 1 or name in split:
            raise UsageError(f"--split {text!r} is not NAME=FRACTION,…", hint="such as train=0.9,val=0.1")
        split[name] = fraction
    if abs(sum(split.values()) - 1) > 1e-6:
        raise UsageError(f"the fractions of --split {text!r} sum to {sum(split.values()):g}, not to 1")
    return split
