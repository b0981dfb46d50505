"""What differs between an earlier conversion and this one: inputs added, removed or changed, and keys of the spec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tar2tf_cli.stores import ObjectInfo

__all__ = ["InputChanges", "differing"]

_MOST_NAMED: Final = 3


class InputChanges(NamedTuple):
    """Names of the inputs that were added, removed or changed, in their order; all empty if only the order differs."""

    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[str]

    @classmethod
    def between(cls, before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> InputChanges:
        """Compare the inputs of two manifests."""
        old, new = _by_name(before), _by_name(now)
        changed = [name for name in new if name in old and _differ(old[name], new[name])]
        return cls(_more(new, old), _more(old, new), changed)

    def __str__(self) -> str:
        """Such as `2 added (c.tar, d.tar), 1 removed (a.tar)`; three names of each kind at most."""
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        return ", ".join(_listed(names, kind) for kind, names in kinds.items() if names) or "their order changed"


def _by_name(inputs: Sequence[ObjectInfo]) -> dict[str, list[Any]]:
    """The versions of the inputs of each name; one file can be given twice."""
    found: dict[str, list[Any]] = {}
    for name, size, version, _ in inputs:
        found.setdefault(name, []).append((size, version))
    return found


def _more(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> list[str]:
    """Names that one has more often than the other."""
    return [name for name, items in one.items() for _ in items[len(other.get(name, ())) :]]


def _differ(before: list[Any], now: list[Any]) -> bool:
    both = min(len(before), len(now))
    return Counter(before[:both]) != Counter(now[:both])


def _listed(names: Sequence[str], kind: str) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{len(names):,} {kind} ({', '.join(names[:_MOST_NAMED])}{more})"


def differing(before: Any, now: Any, name: str = "") -> list[str]:
    """Names of the keys that differ in two documents, with a dot between levels."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [name]
    dot = f"{name}." if name else ""
    return [
        found
        for key in sorted(before.keys() | now.keys())
        for found in differing(before.get(key), now.get(key), f"{dot}{key}")
    ]
