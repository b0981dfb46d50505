"""Names of entries and features: renaming, and rules that select by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops.base import Kind
from tar2tf_cli.samples.names import KEY, Sample

__all__ = ["PARTS", "NameRule", "keep", "move_first", "names_with"]


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
