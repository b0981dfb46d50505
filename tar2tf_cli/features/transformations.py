"""Selections and transformations of a `Pipeline`, for samples and examples alike.

A selection names entries of a sample or features of an example; `select` keeps those that one of its selections
names. What they do is what they do in go-tfdata (NVIDIA/go-tfdata, tfdata/transform), save that `select` keeps
`__key__`, too, and that `rename` takes the first source that is there, not the last, and moves it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.example import Feature
from tar2tf_cli.formats.example_parser import values_of
from tar2tf_cli.ops import Func, Op
from tar2tf_cli.ops.base import Kind, OpContext, apply_ops
from tar2tf_cli.ops.fields import NameRule, keep, move_first, names_with
from tar2tf_cli.ops.func import is_identified, label, source_digest
from tar2tf_cli.samples.grouping import Sample

__all__ = [
    "as_transformation",
    "by_example_f",
    "by_key",
    "by_key_value",
    "by_prefix",
    "by_sample_f",
    "by_substring",
    "by_suffix",
    "example_f",
    "id",
    "rename",
    "sample_f",
    "select",
    "transform",
    "unknown_in",
]


def by_key(key: str) -> NameRule:
    """The entry of a name."""
    return NameRule(lambda entries: [key], f"by_key({key!r})")


def by_key_value(key: str, value: Any) -> NameRule:
    """The entry of a name, if it has this value.

    Bytes equal bytes; text and numbers equal bytes that say the same as text, blanks around it aside, so that 7
    equals b"7\\n". Features of numbers equal a number or a list of numbers, floats as float32.
    """
    return NameRule(
        lambda entries: [key] if key in entries and _equal(entries[key], value) else [],
        f"by_key_value({key!r}, ...)",
        bound=value,
    )


def by_prefix(prefix: str) -> NameRule:
    """Entries whose names begin so."""
    return NameRule(partial(names_with, "prefix", prefix), f"by_prefix({prefix!r})")


def by_suffix(suffix: str) -> NameRule:
    """Entries whose names end so."""
    return NameRule(partial(names_with, "suffix", suffix), f"by_suffix({suffix!r})")


def by_substring(substring: str) -> NameRule:
    """Entries whose names have this in them."""
    return NameRule(partial(names_with, "contains", substring), f"by_substring({substring!r})")


def by_sample_f(function: Callable[[Sample], Iterable[str]]) -> NameRule:
    """The entries that your function of the sample names."""
    return NameRule(function, f"by_sample_f({label(function)})", "sample", function)


def by_example_f(function: Callable[[TFExample], Iterable[str]]) -> NameRule:
    """The features that your function of the example names."""
    return NameRule(function, f"by_example_f({label(function)})", "example", function)


def _equal(entry: Any, value: Any) -> bool:
    if isinstance(entry, Feature):
        kind, values = values_of(entry)
        if kind == "float":
            wanted = value if isinstance(value, (list, tuple)) else [value]
            return values == [_as_float32(item) for item in wanted]
        entry = values[0] if len(values) == 1 and not isinstance(value, (list, tuple)) else values
        value = list(value) if isinstance(value, tuple) else value
    if isinstance(entry, bytes) and isinstance(value, (str, int, float)):
        return entry.decode("utf-8", "replace").strip() == str(value)
    if hasattr(entry, "tolist"):  # an array that an op has made
        return bool(entry.tolist() == (value.tolist() if hasattr(value, "tolist") else value))
    return bool(entry == value)


def _as_float32(value: Any) -> Any:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except (struct.error, OverflowError):
        return None


@dataclass(frozen=True)
class _Rename(Op):
    name: ClassVar[str] = "rename"
    only: ClassVar[Kind | None] = None
    bound: ClassVar[Sequence[Any]] = ()
    dest: str
    sources: tuple[str, ...]

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        move_first(sample, self.dest, self.sources)
        return sample


@dataclass(frozen=True)
class _Select(Op):
    name: ClassVar[str] = "select"
    rules: tuple[NameRule, ...]

    @property
    def only(self) -> Kind | None:  # type: ignore[override]  # as its rules are
        return next((rule.only for rule in self.rules if rule.only), None)

    @property
    def bound(self) -> Sequence[Any]:
        return [rule.bound for rule in self.rules]

    def canonical(self) -> dict[str, Any]:
        return {self.name: [_written(rule.label, rule.bound) for rule in self.rules]}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return keep(sample, self.rules)


@dataclass(frozen=True)
class _Id(Op):
    name: ClassVar[str] = "id"
    only: ClassVar[Kind | None] = None
    bound: ClassVar[Sequence[Any]] = ()

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return sample


@dataclass(frozen=True)
class _ExampleF(Op):
    name: ClassVar[str] = "example_f"
    only: ClassVar[Kind | None] = "example"
    function: Callable[[TFExample], Any]

    @property
    def bound(self) -> Sequence[Any]:
        return [self.function]

    def canonical(self) -> dict[str, Any]:
        return {self.name: _written(label(self.function), self.function)}

    def apply(self, example: Mapping[str, Any], context: OpContext) -> Any:
        try:
            return self.function(example)  # type: ignore[arg-type]
        except SampleError:
            raise
        except Exception as error:
            raise SampleError(f"the function {label(self.function)} raised {type(error).__name__}: {error}") from error


def rename(dest: str, sources: str | Iterable[str]) -> Op:
    """The first of the sources that is there becomes `dest`; where none is, nothing changes. `__key__` stays, too."""
    names = (sources,) if isinstance(sources, str) else tuple(sources)
    if not names or not all(isinstance(name, str) and name for name in (dest, *names)):
        raise UsageError("rename takes a name and its sources", hint='such as rename("image", ["jpg", "jpeg"])')
    return _Rename(dest, names)


def select(*rules: NameRule) -> Op:
    """Keep `__key__` and what at least one of the rules names."""
    for rule in rules:
        if not isinstance(rule, NameRule):
            raise UsageError(f"{rule!r} is not a rule for names", hint=f"such as by_key({str(rule)!r})")
    if len({rule.only for rule in rules if rule.only}) > 1 or not rules:
        raise UsageError("select takes one or more rules, all for samples or all for examples")
    return _Select(rules)


def sample_f(function: Callable[[Sample], Any]) -> Op:
    """Your function of a sample: it gives the sample, None to drop it, or an iterable of samples."""
    return Func(function)


def example_f(function: Callable[[TFExample], Any]) -> Op:
    """Your function of an example: it gives the example, None to drop it, or an iterable of examples."""
    return _ExampleF(function)


def id() -> Op:
    """Nothing changes."""
    return _Id()


def as_transformation(item: Any, kind: Kind) -> Op:
    """What a transformation of samples or of examples is; a function of your own stands for itself.

    Raises:
        UsageError: when it is none, or one for the other kind.
    """
    stage = {"sample": "transform_samples", "example": "transform_tf_examples"}
    other: Kind = "example" if kind == "sample" else "sample"
    if item is id or (isinstance(item, type) and issubclass(item, Op)):
        item = item()
    if not isinstance(item, Op):
        if not callable(item):
            raise UsageError(f"{stage[kind]}: {item!r} is not a transformation", hint="give an op or a function")
        return sample_f(item) if kind == "sample" else example_f(item)
    if item.only == other:
        raise UsageError(f"{stage[kind]}: {item.name} is for {other}s", hint=f"give it to {stage[other]}")
    return item


def transform(example: TFExample, ops: Sequence[Op], context: OpContext) -> Iterator[TFExample]:
    """What becomes of an example that goes through transformations in order: nothing, itself, or several examples.

    Raises:
        SampleError: when one of them cannot treat it, or makes something else of it.
    """
    for result in apply_ops(example, ops, context):
        if type(result) is not TFExample:
            raise SampleError(f"{type(result).__name__} was made where a TFExample is needed")
        yield result


def unknown_in(ops: Iterable[Op]) -> Iterator[str]:
    """Functions and ops of the user's that may be others than in an earlier run."""
    yield from (label(value) for op in ops for value in op.bound if not is_identified(value))


def _written(name: str, bound: Any) -> Any:
    """A selection or function as the manifest has it."""
    digest = source_digest(bound) if callable(bound) else None if bound is None else repr(bound)
    return [name, digest] if digest else name
