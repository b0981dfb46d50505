"""The ops rename and keep, which work on entries, and drop_empty and filter, which skip samples."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from tar2tf_cli.api.op import JsonSchema, OpContext, Subject
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import LackingError, SampleError, did_you_mean
from tar2tf_cli.formats.files import whole
from tar2tf_cli.ops.base import ANY, DeclaredOp, register
from tar2tf_cli.ops.rules import Rule, text
from tar2tf_cli.ops.select import MissingValueError, Select, to_selection
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.structs import dataclass


def move_first(sample: Sample, name: str, sources: Sequence[str]) -> bool:
    """Rename the first source that is present, and return whether there was one; `__key__` is copied, not moved."""
    present = next((source for source in sources if source in sample), None)
    if present is None:
        return False
    value = sample[KEY] if present == KEY else sample.pop(present)
    if name == KEY:
        key = key_of({KEY: whole(value)})
        if key is None:
            raise SampleError(f"rename: entry {present!r} is not one text or whole number, so it cannot be the key")
        value = key.strip()
    sample[name] = value
    return True


class NameRule(NamedTuple):
    """A rule that selects entries of a sample or features of an example by name.

    Attributes:
        names: returns the selected names, which need not be present.
        label: the rule as the user wrote it.
        only: the kind of mapping that the rule accepts; None for both.
        bound: the function or value that the rule depends on, if the label does not identify it.
    """

    names: Callable[[Any], Iterable[str]]
    label: str
    only: Subject | None = None
    bound: Any = None


PARTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
    "substring": str.__contains__,
}
"""Functions that compare a name with a text, by the word of a rule; `substring` is go-tfdata's word for `contains`."""


def names_with(part: str, text: str, entries: Iterable[str]) -> list[str]:
    """Return the names that have a text as prefix, as suffix, or anywhere."""
    return [name for name in entries if PARTS[part](name, text)]


def keep(sample: Sample, rules: Iterable[NameRule]) -> Sample:
    """Return a sample or example with only `__key__` and the names that match a rule."""
    kept = {KEY}
    for rule in rules:
        names = rule.names(sample)
        if isinstance(names, str):
            raise SampleError(f"{rule.label} returned the text {names!r} instead of a list of names")
        kept.update(names)
    return type(sample)((name, value) for name, value in sample.items() if name in kept)


ONE_OR_SEVERAL: Final[JsonSchema] = {
    "anyOf": [text.schema, {"type": "array", "items": text.schema, "minItems": 1}],
}


class _NamesOp(DeclaredOp):
    """Base class of ops on any number of names; ops with equal canonical forms are equal."""

    by_name = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.canonical() == self.canonical()

    def __hash__(self) -> int:
        return hash(self.name)


@register
class Rename(_NamesOp):
    """Rename the first source that is present.

    The entry is then called NAME. A sample without any of the sources is faulty.

    In Python, Rename({"image": ["jpg", "jpeg"]}), Rename(image=["jpg", "jpeg"]) and Rename(image="jpg;jpeg") mean
    the same.

    >>> parse_op("rename:label=class,cls") == Rename(label=["class", "cls"])
    True
    """

    name = "rename"
    usage = "rename:NAME=SOURCE[,SOURCE...]"
    examples = ("rename:image=jpg,jpeg", "rename:image=png,label=cls")
    gives_names = True
    moves_names = True

    def __init__(self, renames: Mapping[str, object] | None = None, **more: object) -> None:
        pairs = {**(renames or {}), **more}
        if not pairs:
            raise ValueError("needs a name and its sources")
        self.renames: dict[str, tuple[str, ...]] = {
            text(name, "name"): tuple(text(source, "a source") for source in _sources(value))
            for name, value in pairs.items()
        }

    @classmethod
    def from_value(cls, value: object) -> Rename:
        if isinstance(value, dict):
            return cls(value)
        if not isinstance(value, str):
            raise ValueError("takes a mapping of names to sources")
        renames: dict[str, list[str]] = {}
        last = ""
        for part in value.split(","):
            name, equals, source = part.partition("=")
            if equals:
                last, part = name, source
            if not last or not part:
                raise ValueError("needs a name before the first source")
            renames.setdefault(last, []).append(part)
        return cls(renames)

    @classmethod
    def schema(cls) -> JsonSchema:
        return {"anyOf": [text.schema, {"type": "object", "minProperties": 1, "additionalProperties": ONE_OR_SEVERAL}]}

    def canonical(self) -> dict[str, Any]:
        return {self.name: {name: list(sources) for name, sources in self.renames.items()}}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name, sources in self.renames.items():
            if not move_first(sample, name, sources) and name not in sample:
                raise LackingError(f"rename: has none of {', '.join(sources)} to become {name!r}")
        return sample


def _sources(value: object) -> list[str]:
    if not isinstance(value, (str, list, tuple)) or not value:
        raise ValueError(f"needs a source or a list of them, not {value!r}")
    return value.split(";") if isinstance(value, str) else list(value)


@register
class Keep(_NamesOp):
    """Keep the entries that match any of the rules.

    A rule is the name of an entry, part of a name after `prefix:`, `suffix:` or `contains:`, or KEY=VALUE for an entry
    KEY whose text is VALUE.

    >>> parse_op("keep:jpg,cls") == Keep("jpg", "cls")
    True
    """

    name = "keep"
    usage = "keep:KEY[,prefix:P][,suffix:S][,contains:C][,KEY=VALUE]"
    examples = ("keep:jpg,cls", "keep:prefix:seg,suffix:png,contains:mask,cls=3")

    def __init__(self, *rules: str) -> None:
        self.rules: tuple[str, ...] = tuple(text(rule, "a rule") for rule in rules)
        self._rules = [NameRule(_named_by(rule), rule) for rule in self.rules]
        if not rules:
            raise ValueError("needs a rule")

    @classmethod
    def from_value(cls, value: object) -> Keep:
        if isinstance(value, str):
            value = [part for part in value.split(",") if part]
        return cls(*(value if isinstance(value, list) else [value]))

    @classmethod
    def schema(cls) -> JsonSchema:
        return ONE_OR_SEVERAL

    def canonical(self) -> dict[str, Any]:
        return {self.name: list(self.rules)}

    @property
    def moves_names(self) -> bool:
        return not any(isinstance(rule.names, partial) and rule.names.func is _equal for rule in self._rules)

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return keep(sample, self._rules)


def _named_by(rule: str) -> Callable[[object], Iterable[str]]:
    """Return the function that selects names by a rule of the command line."""
    kind, colon, text = rule.partition(":")
    key, equals, value = rule.partition("=")
    if colon and kind in PARTS:
        return partial(names_with, kind, text)
    if colon and "=" not in kind:
        raise ValueError(f"does not have the rule {kind!r}{did_you_mean(kind, PARTS)}")
    return partial(_equal, key, value) if equals else partial(_itself, rule)


def _itself(key: str, entries: object) -> list[str]:
    return [key]


def _equal(key: str, wanted: str, entries: Sample) -> list[str]:
    if key not in entries:
        return []
    value = whole(entries[key])
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value)
    return [key] if text == wanted else []


@register
@dataclass(frozen=True)
class DropEmpty(DeclaredOp):
    """Skip samples that have no entries left.

    >>> parse_op("drop_empty") == DropEmpty()
    True
    """

    name = "drop_empty"
    usage = "drop_empty"
    examples = ("drop_empty",)
    only = None
    by_name = True

    def apply(self, sample: Sample, context: OpContext) -> Sample | None:
        return sample if any(name != KEY for name in sample) else None


_CONDITION: Final = re.compile(r"(!?)((?:[^\[<>=!]|\[[^\]]*\])+)(?:(<=|>=|!=|<|>|==?)(.*))?", re.DOTALL)
_WORDS: Final = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_WORDED: Final = re.compile(rf"([^,<>=!]+),({'|'.join(_WORDS)}),(.*)", re.DOTALL)
_VALUE: Final = re.compile(r'(\s*"(?:[^"\\]|\\.)*"\s*|[^,]*)(?:,|$)', re.DOTALL)

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@register
@dataclass(frozen=True)
class Filter(DeclaredOp):
    """Keep samples that meet a condition.

    ENTRY keeps samples that have the entry, and !ENTRY samples that lack it. ENTRY=A,B keeps samples in which its text
    or number is A or B, and ENTRY!=A,B the others that have the entry. ENTRY<N, <=, > and >= compare numbers.
    ENTRY:path stands for a value inside a JSON entry. If the entry or path is missing, only !ENTRY keeps the sample.
    Write a value that contains a comma in double quotes. ENTRY,ge,N is ENTRY>=N without characters that are special to
    shells; so are eq, ne, gt, lt and le.

    Args:
        condition: the condition, as after `filter:`.

    >>> parse_op("filter:cls=3,5") == Filter("cls=3,5")
    True
    """

    condition: str

    name = "filter"
    usage = "filter:ENTRY, filter:!ENTRY, filter:ENTRY=A,B or filter:ENTRY,ge,N"
    examples = ("filter:cls=3,5", "filter:json:score,ge,0.5", "filter:jpg", "filter:!txt")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"condition": text}
    by_name = True

    def __post_init__(self) -> None:
        """Parse the condition, so that an invalid one is an error before any input is read."""
        super().__post_init__()
        object.__setattr__(self, "_parsed", _parsed(self.condition))

    @property
    def filter_entry(self) -> str | None:
        return self._parsed[0].ext_name  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def from_value(cls, value: Any) -> Filter:
        return cls(value)

    @classmethod
    def schema(cls) -> JsonSchema:
        return text.schema

    def canonical(self) -> dict[str, Any]:
        return {self.name: self.condition}

    def apply(self, sample: Sample, context: OpContext) -> Sample | None:
        """Return the sample if the condition holds.

        Raises:
            SampleError: when the condition has a path but the entry is not JSON, or compares an entry that is not a
                number.
        """
        selection, if_absent, holds = self._parsed  # type: ignore[attr-defined]
        if selection.ext_name not in sample:  # tested first, as making an error takes longer than everything else
            return sample if if_absent else None
        try:
            kept = holds(selection.select(sample))
        except MissingValueError:
            kept = if_absent
        return sample if kept else None


def _parsed(condition: str) -> tuple[Select, bool, Callable[[object], bool]]:
    """Parse a condition: the selection, whether to keep samples without its value, and the test of a value.

    Raises:
        ValueError: when the text is not a condition.
    """
    if worded := _WORDED.fullmatch(condition):
        condition = f"{worded[1]}{_WORDS[worded[2]]}{worded[3]}"
    match = _CONDITION.fullmatch(condition)
    if not match or ANY in match[2]:
        raise ValueError(f"cannot read the condition {condition!r}: it takes an entry or a path, and perhaps values")
    absent, named, compared, written = match.groups()
    named = named.strip()
    selection = to_selection(named)
    assert isinstance(selection, Select)
    if absent and compared:
        raise ValueError(f"takes either !{named} or {named}!={written}, not {condition!r}")
    if not compared:
        return selection, bool(absent), partial(_any_value, not absent)
    values, name = _values(written), repr(selection.canonical())
    if compared not in _ORDERS:
        allowed = frozenset(values), frozenset(map(_number, values))
        return selection, False, partial(_is_one_of, name, *allowed, compared != "!=")
    limit = _number(values[0]) if len(values) == 1 else None
    if limit is None:
        raise ValueError(f"compares {named!r} with one number, not with {written!r}")
    return selection, False, partial(_is_in_order, name, _ORDERS[compared], limit)


def _values(written: str) -> list[str]:
    """Split the values of a condition at commas; a value in double quotes is a JSON string.

    Raises:
        ValueError: when there is no value, or an empty one.
    """
    values, position = list[str](), 0
    while position <= len(written):
        match = _VALUE.match(written, position)
        value = match[1].strip() if match else ""
        if match is None or not value:
            raise ValueError(f'needs values between commas, not {written!r}; empty text is ""')
        try:
            values.append(json.loads(value) if value.startswith('"') else value)
        except ValueError:
            raise ValueError(f"has the value {value!r}, which is not text in double quotes") from None
        position = match.end() + (not match[0].endswith(","))
    return values


def _any_value(kept: bool, value: object) -> bool:
    """Whether to keep a sample that has the selected value, whatever the value is."""
    return kept


def _is_one_of(
    name: str, texts: Collection[str], numbers: Collection[float | None], wanted: bool, value: object
) -> bool:
    """Whether a value is one of given texts or numbers; with `wanted` false, whether it is none of them."""
    single = _single(name, value)
    return (single in (texts if isinstance(single, str) else numbers)) == wanted


def _is_in_order(name: str, order: Callable[[object, object], bool], limit: float, value: object) -> bool:
    """Whether a value is a number that compares with a limit as required."""
    single = _single(name, value)
    number = _number(single) if isinstance(single, str) else single
    if number is None:
        raise SampleError(f"filter: {name} is not a number: {str(single)[:40]!r}")
    return order(number, limit)


def _single(name: str, value: Any) -> str | float:
    """Return a value as a number if possible, otherwise as text without surrounding white space.

    Raises:
        SampleError: when the value is a list, an object or an array of several values.
    """
    value = whole(value)
    if getattr(value, "size", 0) == 1:  # an array or a NumPy scalar
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool):  # true, false and null as in JSON
        return json.dumps(value)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float)):
        return value
    raise SampleError(f"filter: {name} is not a single value")


def _number(written: str) -> float | None:
    """Parse a number, as an int if it is whole; None if the text is not a number."""
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            pass
    return None
