"""Ops on the entries of a sample: renaming and filtering them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from tar2tf_cli.errors import SampleError, meant
from tar2tf_cli.formats.stored import whole
from tar2tf_cli.ops.base import Kind, Op, OpContext, register
from tar2tf_cli.ops.rules import JsonSchema, text
from tar2tf_cli.samples.names import KEY, Sample


def move_first(sample: Sample, name: str, sources: Sequence[str]) -> bool:
    """Rename the first source that is present, and return whether there was one; `__key__` is copied, not moved."""
    found = next((source for source in sources if source in sample), None)
    if found is not None:
        sample[name] = sample[KEY] if found == KEY else sample.pop(found)
    return found is not None


class NameRule(NamedTuple):
    """A rule that selects entries of a sample or features of an example by name.

    Attributes:
        names: returns the selected names, which need not be present.
        label: the rule as the user wrote it.
        only: what it works on; None for both.
        bound: the function or value that the rule depends on, if the label does not identify it.
    """

    names: Callable[[Any], Iterable[str]]
    label: str
    only: Kind | None = None
    bound: Any = None


PARTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}
"""How a name is compared with text."""


def names_with(part: str, text: str, entries: Iterable[str]) -> list[str]:
    """Return the names with this prefix, with this suffix or that contain this text."""
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


@register
class Rename(Op):
    """Rename the first source that is present.

    It becomes the entry NAME; a sample that has none of the sources is faulty.

    In Python, Rename({"image": ["jpg", "jpeg"]}), Rename(image=["jpg", "jpeg"]) and Rename(image="jpg;jpeg") mean
    the same.
    """

    name = "rename"
    usage = "rename:NAME=SOURCE[,SOURCE...]"
    examples = ("rename:image=jpg,jpeg", "rename:image=png,label=cls")
    by_name = True
    gives_names = True

    def __init__(self, renames: Mapping[str, Any] | None = None, **more: Any) -> None:
        pairs = {**(renames or {}), **more}
        if not pairs:
            raise ValueError(f"needs a name and its sources: {self.usage}")
        self.renames = {
            text(name, "name"): tuple(text(source, "a source") for source in _sources(value))
            for name, value in pairs.items()
        }

    @classmethod
    def parse(cls, text: str) -> Op:
        renames: dict[str, list[str]] = {}
        last = ""
        for part in text.split(","):
            name, equals, source = part.partition("=")
            if equals:
                last, part = name, source
            if not last or not part:
                raise ValueError("needs a name before the first source")
            renames.setdefault(last, []).append(part)
        return cls(renames)

    @classmethod
    def from_value(cls, value: Any) -> Op:
        if isinstance(value, str):
            return cls.parse(value)
        if not isinstance(value, dict):
            raise ValueError("takes a mapping of names to sources")
        return cls(value)

    @classmethod
    def schema(cls) -> JsonSchema:
        return {"anyOf": [text.schema, {"type": "object", "minProperties": 1, "additionalProperties": ONE_OR_SEVERAL}]}

    def canonical(self) -> dict[str, Any]:
        return {self.name: {name: list(sources) for name, sources in self.renames.items()}}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name, sources in self.renames.items():
            if not move_first(sample, name, sources) and name not in sample:
                raise SampleError(f"rename: has none of {', '.join(sources)} to become {name!r}")
        return sample

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rename) and other.renames == self.renames

    def __hash__(self) -> int:
        return hash(tuple(self.renames.items()))


def _sources(value: Any) -> list[Any]:
    if not isinstance(value, (str, list, tuple)) or not value:
        raise ValueError(f"needs a source or a list of them, not {value!r}")
    return value.split(";") if isinstance(value, str) else list(value)


@register
class Keep(Op):
    """Keep the entries that match any of the rules.

    A rule is an entry's name, `prefix:`, `suffix:` or `contains:` with part of one, or KEY=VALUE, the entry with this
    text.
    """

    name = "keep"
    usage = "keep:KEY[,prefix:P][,suffix:S][,contains:C][,KEY=VALUE]"
    examples = ("keep:jpg,cls", "keep:prefix:seg,suffix:png,contains:mask,cls=3")
    by_name = True

    def __init__(self, *rules: str) -> None:
        self.rules = tuple(text(rule, "a rule") for rule in rules)
        self._rules = [NameRule(_named_by(rule), rule) for rule in self.rules]
        if not rules:
            raise ValueError(f"needs a rule: {self.usage}")

    @classmethod
    def parse(cls, text: str) -> Op:
        return cls(*(part for part in text.split(",") if part))

    @classmethod
    def from_value(cls, value: Any) -> Op:
        return cls.parse(value) if isinstance(value, str) else cls(*(value if isinstance(value, list) else [value]))

    @classmethod
    def schema(cls) -> JsonSchema:
        return ONE_OR_SEVERAL

    def canonical(self) -> dict[str, Any]:
        return {self.name: list(self.rules)}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return keep(sample, self._rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keep) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash(self.rules)


def _named_by(rule: str) -> Callable[[Any], Iterable[str]]:
    """Return the function for a rule of the command line."""
    kind, colon, text = rule.partition(":")
    key, equals, value = rule.partition("=")
    if colon and kind in PARTS:
        return partial(names_with, kind, text)
    if colon and "=" not in kind:
        raise ValueError(f"does not have the rule {kind!r}{meant(kind, PARTS)}; write {Keep.usage}")
    return partial(_equal, key, value) if equals else partial(_itself, rule)


def _itself(key: str, entries: Any) -> list[str]:
    return [key]


def _equal(key: str, wanted: str, entries: Any) -> list[str]:
    if key not in entries:
        return []
    value = whole(entries[key])
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value)
    return [key] if text == wanted else []


@register
@dataclass(frozen=True)
class DropEmpty(Op):
    """Skip samples that have no entries left."""

    name = "drop_empty"
    usage = "drop_empty"
    examples = ("drop_empty",)
    only = None
    by_name = True

    def apply(self, sample: Sample, context: OpContext) -> Sample | None:
        return sample if any(name != KEY for name in sample) else None
