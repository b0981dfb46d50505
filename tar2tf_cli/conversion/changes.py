"""What differs between an earlier conversion and this one: inputs added, removed or changed, and keys of the spec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tar2tf_cli.errors import few
from tar2tf_cli.stores import ObjectInfo

__all__ = ["InputChanges", "differing"]


class InputChanges(NamedTuple):
    """Names of the inputs that were added, removed or changed, in their order; all empty if only the order differs."""

    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[str]

    @classmethod
    def between(cls, before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> InputChanges:
        """Compare the inputs of two conversions; one file can be given twice."""
        old, new = Counter(item[:3] for item in before), Counter(item[:3] for item in now)
        gone, come = (Counter(name for name, *_ in only.elements()) for only in (old - new, new - old))
        return cls(*([*names.elements()] for names in (come - gone, gone - come, come & gone)))

    def __str__(self) -> str:
        """Such as `2 added (c.tar, d.tar), 1 removed (a.tar)`; three names of each kind at most."""
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        listed = [f"{len(names):,} {kind} ({few(names)})" for kind, names in kinds.items() if names]
        return ", ".join(listed) or "their order changed"


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
