"""Selections and transformations of a `Pipeline`, for samples and examples alike.

A selection names entries of a sample or features of an example; `select` keeps those that one of its selections
names. What they do is what they do in go-tfdata (NVIDIA/go-tfdata, tfdata/transform), save that `select` keeps
`__key__`, too, and that `rename` takes the first source that is there, not the last, and moves it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.example import Feature
from tar2tf_cli.formats.example_parser import values_of
from tar2tf_cli.ops import OPS, Func, Op
from tar2tf_cli.ops.base import OpContext, apply_ops
from tar2tf_cli.ops.func import label, source_digest, told
from tar2tf_cli.samples.grouping import KEY, Sample

__all__ = [
    "Selection",
    "Transformation",
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

Kind: TypeAlias = Literal["sample", "example"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Names some of a sample's entries or an example's features.

    Attributes:
        names: gives the names; such as are not there count for nothing.
        label: how the selection was written.
        only: what it works on; None for both.
        bound: the function or value that it goes by, where the label does not say all.
    """

    names: Callable[[Any], Iterable[str]]
    label: str
    only: Kind | None = None
    bound: Any = None


def by_key(key: str) -> Selection:
    """The entry of a name."""
    return Selection(lambda entries: [key], f"by_key({key!r})")


def by_key_value(key: str, value: Any) -> Selection:
    """The entry of a name, if it has this value.

    Bytes equal bytes; text and numbers equal bytes that say the same as text, blanks around it aside, so that 7
    equals b"7\\n". Features of numbers equal a number or a list of numbers, floats as float32.
    """
    return Selection(
        lambda entries: [key] if key in entries and _equal(entries[key], value) else [],
        f"by_key_value({key!r}, ...)",
        bound=value,
    )


def by_prefix(prefix: str) -> Selection:
    """Entries whose names begin so."""
    return _by_name(lambda name: name.startswith(prefix), f"by_prefix({prefix!r})")


def by_suffix(suffix: str) -> Selection:
    """Entries whose names end so."""
    return _by_name(lambda name: name.endswith(suffix), f"by_suffix({suffix!r})")


def by_substring(substring: str) -> Selection:
    """Entries whose names have this in them."""
    return _by_name(lambda name: substring in name, f"by_substring({substring!r})")


def by_sample_f(function: Callable[[Sample], Iterable[str]]) -> Selection:
    """The entries that your function of the sample names."""
    return Selection(function, f"by_sample_f({label(function)})", "sample", function)


def by_example_f(function: Callable[[TFExample], Iterable[str]]) -> Selection:
    """The features that your function of the example names."""
    return Selection(function, f"by_example_f({label(function)})", "example", function)


def _by_name(holds: Callable[[str], bool], text: str) -> Selection:
    return Selection(lambda entries: [name for name in entries if holds(name)], text)


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


class Transformation(Op):
    """An op that is made in Python only, and may be for examples, too.

    Attributes:
        only: what it works on; None for both.
        bound: functions and values that it goes by.
    """

    only: Kind | None = None
    bound: Sequence[Any] = ()


@dataclass(frozen=True)
class _Rename(Transformation):
    name: ClassVar[str] = "rename"
    dest: str
    sources: tuple[str, ...]

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for source in self.sources:
            if source in sample:
                sample[self.dest] = sample[KEY] if source == KEY else sample.pop(source)
                break
        return sample


@dataclass(frozen=True)
class _Select(Transformation):
    name: ClassVar[str] = "select"
    selections: tuple[Selection, ...]

    @property
    def only(self) -> Kind | None:  # type: ignore[override]
        return next((selection.only for selection in self.selections if selection.only), None)

    @property
    def bound(self) -> Sequence[Any]:  # type: ignore[override]
        return [selection.bound for selection in self.selections]

    def canonical(self) -> dict[str, Any]:
        return {self.name: [_written(selection.label, selection.bound) for selection in self.selections]}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        kept = {KEY}
        for selection in self.selections:
            names = selection.names(sample)
            if isinstance(names, str):
                raise SampleError(f"{selection.label} gave the text {names!r} where a list of names is needed")
            kept.update(names)
        return type(sample)((name, value) for name, value in sample.items() if name in kept)


@dataclass(frozen=True)
class _Id(Transformation):
    name: ClassVar[str] = "id"

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return sample


@dataclass(frozen=True)
class _ExampleF(Transformation):
    name: ClassVar[str] = "example_f"
    only = "example"
    function: Callable[[TFExample], Any]

    @property
    def bound(self) -> Sequence[Any]:  # type: ignore[override]
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


def rename(dest: str, sources: str | Iterable[str]) -> Transformation:
    """The first of the sources that is there becomes `dest`; where none is, nothing changes. `__key__` stays, too."""
    names = (sources,) if isinstance(sources, str) else tuple(sources)
    if not names or not all(isinstance(name, str) and name for name in (dest, *names)):
        raise UsageError("rename takes a name and its sources", hint='such as rename("image", ["jpg", "jpeg"])')
    return _Rename(dest, names)


def select(*selections: Selection) -> Transformation:
    """Keep `__key__` and whatever one of the selections names, or several do."""
    for selection in selections:
        if not isinstance(selection, Selection):
            raise UsageError(f"{selection!r} is no selection", hint=f"such as by_key({str(selection)!r})")
    kinds = {selection.only for selection in selections if selection.only}
    if len(kinds) > 1 or not selections:
        raise UsageError("select takes selections for samples or for examples, one or more and not of both")
    return _Select(selections)


def sample_f(function: Callable[[Sample], Any]) -> Op:
    """Your function of a sample: it gives the sample, None to drop it, or an iterable of samples."""
    return Func(function)


def example_f(function: Callable[[TFExample], Any]) -> Transformation:
    """Your function of an example: it gives the example, None to drop it, or an iterable of examples."""
    return _ExampleF(function)


def id() -> Transformation:
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
            raise UsageError(f"{stage[kind]}: {item!r} is no transformation", hint="give an op or a function")
        return sample_f(item) if kind == "sample" else example_f(item)
    fits = getattr(item, "only", None) != other and (kind == "sample" or isinstance(item, Transformation))
    if not fits:
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
    """Functions and ops of the user's of which nothing tells whether they are the ones of an earlier run."""
    for op in ops:
        if isinstance(op, Func):
            bound: Sequence[Any] = [op.func]
        elif isinstance(op, Transformation):
            bound = op.bound
        else:
            bound = [] if type(op) in OPS.values() else [op]
        yield from (label(value) for value in bound if not told(value))


def _written(name: str, bound: Any) -> Any:
    """A selection or function as the manifest has it."""
    digest = source_digest(bound) if callable(bound) else None if bound is None else repr(bound)
    return [name, digest] if digest else name
