"""Names of members: the key of a sample, and the extension that names its entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

KEY: Final = "__key__"

Sample: TypeAlias = dict[str, Any]
"""`__key__` (str: the member path without extension) and one entry per extension; bytes as they come."""

KeySplit: TypeAlias = Literal["first", "last"]


def key_of(item: Mapping[str, Any]) -> str | None:
    """Return the key of a sample, or of the sample that an example was made from, if it still has it."""
    key = item.get(KEY)
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key if isinstance(key, str) else None


def split_name(name: str, rule: KeySplit) -> tuple[str, str]:
    """Split a name into key and extension; both are empty if there is no dot, or nothing before or after it.

    `first` splits at the first dot of the base name, as WebDataset does, and lower-cases the extension as it does;
    `last` splits at the last dot, as the AIS tar2tf client and go-tfdata do, and keeps the case.
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base) if rule == "first" else name.rfind(".", base)
    if dot <= base or dot == len(name) - 1:
        return "", ""
    extension = name[dot + 1 :]
    return name[:dot], extension.lower() if rule == "first" else extension


def unwanted(name: str) -> str | None:
    """Why a member is not part of a sample: AppleDouble files, WebDataset's metadata."""
    base = name[name.rfind("/") + 1 :]
    if base.startswith("._"):
        return "AppleDouble (._*)"
    if "__meta__" in name.split("/") or base.startswith("__meta__"):
        return "__meta__"
    return None
