"""Ops on the entries of a sample: which there are and what they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tar2tf_cli.errors import SampleError, meant
from tar2tf_cli.ops.base import Op, OpContext, register, text_option
from tar2tf_cli.samples.grouping import KEY, Sample

__all__ = ["DropEmpty", "Keep", "Rename"]


@register
class Rename(Op):
    """Give entries other names: of several sources, the first that is present becomes the entry.

    Rename({"image": ["jpg", "jpeg"]}), Rename(image=["jpg", "jpeg"]) and Rename(image="jpg;jpeg") mean the same.
    """

    name: ClassVar[str] = "rename"
    usage: ClassVar[str] = "rename:NAME=SOURCE[,SOURCE...]"

    def __init__(self, renames: Mapping[str, Any] | None = None, **more: Any) -> None:
        pairs = {**(renames or {}), **more}
        if not pairs:
            raise ValueError(f"needs a name and its sources: {self.usage}")
        self.renames = {
            text_option(name, "name"): tuple(text_option(source, "a source") for source in _sources(value))
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

    def canonical(self) -> dict[str, Any]:
        return {self.name: {name: list(sources) for name, sources in self.renames.items()}}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name, sources in self.renames.items():
            found = next((source for source in sources if source in sample), None)
            if found is None:
                if name in sample:
                    continue
                raise SampleError(f"rename: has none of {', '.join(sources)} to become {name!r}")
            sample[name] = sample.pop(found)
        return sample

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rename) and other.renames == self.renames

    def __hash__(self) -> int:
        return hash(tuple(self.renames.items()))


def _sources(value: Any) -> list[Any]:
    if not isinstance(value, (str, list, tuple)) or not value:
        raise ValueError(f"needs a source or a list of them, not {value!r}")
    return value.split(";") if isinstance(value, str) else list(value)


_KINDS: Final = ("prefix", "suffix", "contains")


@register
class Keep(Op):
    """Keep entries that one of the rules names: a key, `prefix:`, `suffix:`, `contains:`, or KEY=VALUE."""

    name: ClassVar[str] = "keep"
    usage: ClassVar[str] = "keep:KEY[,prefix:P][,suffix:S][,contains:C][,KEY=VALUE]"

    def __init__(self, *rules: str) -> None:
        self.rules = tuple(_checked(rule) for rule in rules)
        if not rules:
            raise ValueError(f"needs a rule: {self.usage}")

    @classmethod
    def parse(cls, text: str) -> Op:
        return cls(*(part for part in text.split(",") if part))

    @classmethod
    def from_value(cls, value: Any) -> Op:
        return cls.parse(value) if isinstance(value, str) else cls(*(value if isinstance(value, list) else [value]))

    def canonical(self) -> dict[str, Any]:
        return {self.name: list(self.rules)}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        kept = {name for rule in self.rules for name in _matching(rule, sample)}
        return {name: value for name, value in sample.items() if name == KEY or name in kept}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keep) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash(self.rules)


def _checked(rule: Any) -> str:
    kind, colon, _ = text_option(rule, "a rule").partition(":")
    if colon and kind not in _KINDS and "=" not in kind:
        raise ValueError(f"has no rule {kind!r}{meant(kind, _KINDS)}; write {Keep.usage}")
    return str(rule)


def _matching(rule: str, sample: Sample) -> Iterator[str]:
    """Names of the entries that a rule keeps."""
    kind, colon, text = rule.partition(":")
    key, equals, wanted = rule.partition("=")
    for name, value in sample.items():
        if colon and kind == "prefix":
            keep = name.startswith(text)
        elif colon and kind == "suffix":
            keep = name.endswith(text)
        elif colon and kind == "contains":
            keep = text in name
        elif equals:
            keep = name == key and _as_text(value) == wanted
        else:
            keep = name == rule
        if keep:
            yield name


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value)


@register
@dataclass(frozen=True)
class DropEmpty(Op):
    """Drop samples that have no entries left."""

    name: ClassVar[str] = "drop_empty"
    usage: ClassVar[str] = "drop_empty"

    def apply(self, sample: Sample, context: OpContext) -> Sample | None:
        return sample if any(name != KEY for name in sample) else None
