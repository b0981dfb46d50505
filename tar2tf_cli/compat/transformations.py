"""The selections and transformations of a `Pipeline`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tar2tf_cli.api.op import Op, OpContext, Subject
from tar2tf_cli.api.values import Feature, Sample
from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.feature_map import TypeName, give_types
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.example import values_of
from tar2tf_cli.ops import Func
from tar2tf_cli.ops.base import DeclaredOp
from tar2tf_cli.ops.fields import NameRule, keep, move_first, names_with
from tar2tf_cli.ops.user_code import called, label, source_digest


def by_key(key: str) -> NameRule:
    """Select the entry of this name.

    >>> select(by_key("cls")).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'cls': b'1'}
    """
    return NameRule(lambda entries: [key], f"by_key({key!r})")


def by_key_value(key: str, value: object) -> NameRule:
    """Select the entry of this name if it has this value.

    Bytes equal bytes; text and numbers equal bytes with the same text, ignoring surrounding whitespace, so that 7
    equals b"7\\n". Numeric features equal a number or a list of numbers, floats as float32.

    >>> select(by_key_value("cls", 1)).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'cls': b'1'}
    """
    return NameRule(
        lambda entries: [key] if key in entries and _equal(entries[key], value) else [],
        f"by_key_value({key!r}, ...)",
        bound=value,
    )


def by_prefix(prefix: str) -> NameRule:
    """Select entries whose names begin with this text.

    >>> select(by_prefix("j")).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'jpg': b''}
    """
    return NameRule(partial(names_with, "prefix", prefix), f"by_prefix({prefix!r})")


def by_suffix(suffix: str) -> NameRule:
    """Select entries whose names end with this text.

    >>> select(by_suffix("g")).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'jpg': b''}
    """
    return NameRule(partial(names_with, "suffix", suffix), f"by_suffix({suffix!r})")


def by_substring(substring: str) -> NameRule:
    """Select entries whose names contain this text.

    >>> select(by_substring("p")).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'jpg': b''}
    """
    return NameRule(partial(names_with, "contains", substring), f"by_substring({substring!r})")


def by_sample_f(function: Callable[[Sample], Iterable[str]]) -> NameRule:
    """Select the entries whose names your function returns for the sample.

    >>> short = by_sample_f(lambda sample: [name for name, value in sample.items() if len(value) < 2])
    >>> select(short).apply({"__key__": "a", "jpg": b"long", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'cls': b'1'}
    """
    return NameRule(function, f"by_sample_f({label(function)})", "sample", function)


def by_example_f(function: Callable[[TFExample], Iterable[str]]) -> NameRule:
    """Select the features whose names your function returns for the example.

    >>> labels = by_example_f(lambda example: ["cls"])
    >>> dict(select(labels).apply(TFExample({"jpg": b"", "cls": b"1"}), OpContext()))
    {'cls': b'1'}
    """
    return NameRule(function, f"by_example_f({label(function)})", "example", function)


def _equal(entry: object, value: object) -> bool:
    if isinstance(entry, Feature):
        kind, values = values_of(entry)
        if kind == "float":
            wanted = value if isinstance(value, (list, tuple)) else [value]
            return values == [_as_float32(item) for item in wanted]
        entry = values[0] if len(values) == 1 and not isinstance(value, (list, tuple)) else values
        value = list(value) if isinstance(value, tuple) else value
    if isinstance(entry, bytes) and isinstance(value, (str, int, float)):
        return entry.decode("utf-8", "replace").strip() == str(value)
    if hasattr(entry, "tolist"):  # an array made by an op
        return bool(entry.tolist() == (value.tolist() if hasattr(value, "tolist") else value))
    return bool(entry == value)


def _as_float32(value: object) -> object:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except (struct.error, OverflowError):
        return None


@dataclass(frozen=True)
class _Transformation(DeclaredOp):
    """An op made by a function of this module.

    Attributes:
        written: the arguments, as in the manifest.
        function: turns a sample or example into another, none or several.
    """

    name: str  # type: ignore[misc]  # not one for the whole class
    written: Any
    function: Callable[[Any], Any]
    bound: Sequence[Any] = ()  # type: ignore[assignment]
    only: Subject | None = None  # type: ignore[misc]
    by_name: bool = False  # type: ignore[misc]

    def canonical(self) -> dict[str, Any]:
        return {self.name: self.written}

    def apply(self, sample: Sample, context: OpContext) -> Any:
        return self.function(sample)


def rename(dest: str, sources: str | Iterable[str]) -> Op:
    """Rename the first source that is present to `dest`, if there is one; `__key__` is copied, not moved.

    >>> rename("label", ["class", "cls"]).apply({"__key__": "a", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'label': b'1'}
    """
    names = (sources,) if isinstance(sources, str) else tuple(sources)
    if not names or not all(isinstance(name, str) and name for name in (dest, *names)):
        raise UsageError("rename takes a name and its sources", hint='write rename("image", ["jpg", "jpeg"])')
    return _Transformation("rename", {"dest": dest, "sources": [*names]}, partial(_renamed, dest, names))


def _renamed(dest: str, sources: Sequence[str], sample: Sample) -> Sample:
    move_first(sample, dest, sources)
    return sample


def select(*rules: NameRule) -> Op:
    """Keep `__key__` and the names that match any of the rules.

    >>> select(by_key("cls"), by_key("txt")).apply({"__key__": "a", "jpg": b"", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'cls': b'1'}
    """
    for rule in rules:
        if not isinstance(rule, NameRule):
            raise UsageError(f"{rule!r} is not a rule for names", hint=f"write by_key({str(rule)!r})")
    kinds = [rule.only for rule in rules if rule.only]
    if len({*kinds}) > 1 or not rules:
        raise UsageError("select takes one or more rules, all for samples or all for examples")
    written = [_written(rule.label, rule.bound) for rule in rules]
    bound = [rule.bound for rule in rules]
    return _Transformation("select", written, partial(keep, rules=rules), bound, kinds[0] if kinds else None)


def sample_f(function: Callable[[Sample], object]) -> Op:
    """Apply your function to each sample: it returns the sample, None to skip it, or an iterable of samples.

    >>> known = sample_f(lambda sample: sample if "cls" in sample else None)
    >>> known.apply({"__key__": "a", "jpg": b""}, OpContext()) is None
    True
    """
    return Func(function)


def example_f(function: Callable[[TFExample], object]) -> Op:
    """Apply your function to each example: it returns the example, None to skip it, or an iterable of examples.

    >>> known = example_f(lambda example: example if "cls" in example else None)
    >>> known.apply(TFExample({"jpg": b""}), OpContext()) is None
    True
    """
    written = _written(label(function), function)
    return _Transformation("example_f", written, partial(called, function), [function], "example")


def typed(types: Mapping[str, TypeName]) -> Op:
    """Make features of those entries of a sample that have a type."""
    # by name, so that other entries, which may be large, are not read
    return _Transformation("types", dict(types), partial(_with_types, types), only="sample", by_name=True)


def _with_types(types: Mapping[str, TypeName], sample: Sample) -> Sample:
    give_types(sample, types)
    return sample


def id() -> Op:
    """Change nothing.

    >>> id().apply({"__key__": "a", "cls": b"1"}, OpContext())
    {'__key__': 'a', 'cls': b'1'}
    """
    return _Transformation("id", {}, lambda sample: sample)


def as_transformation(item: object, kind: Subject) -> Op:
    """Convert an op or a user's function to a transformation of samples or examples.

    Raises:
        UsageError: when the item is not a transformation, or is for the other kind.
    """
    stage = {"sample": "transform_samples", "example": "transform_tf_examples"}
    other: Subject = "example" if kind == "sample" else "sample"
    if item is id or (isinstance(item, type) and issubclass(item, Op)):
        item = item()
    if not isinstance(item, Op):
        if not callable(item):
            raise UsageError(f"{stage[kind]}: {item!r} is not a transformation", hint="give an op or a function")
        return sample_f(item) if kind == "sample" else example_f(item)
    if item.only == other:
        raise UsageError(f"{stage[kind]}: {item.name} is for {other}s", hint=f"give it to {stage[other]}")
    return item


def _written(name: str, bound: object) -> object:
    """Return a selection or function as written in the manifest."""
    digest = source_digest(bound) if callable(bound) else None if bound is None else repr(bound)
    return [name, digest] if digest else name
