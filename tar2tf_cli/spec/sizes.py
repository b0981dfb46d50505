"""Sizes in bytes as people write them: `100MB` is 10^8, `100MiB` is binary, and a number alone is bytes."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["format_size", "parse_size"]

_PREFIXES: Final = (
    ("k", "kilo", "kibi"),
    ("m", "mega", "mebi"),
    ("g", "giga", "gibi"),
    ("t", "tera", "tebi"),
    ("p", "peta", "pebi"),
    ("e", "exa", "exbi"),
    ("z", "zetta", "zebi"),
    ("y", "yotta", "yobi"),
)


def parse_size(text: str) -> int:
    """The size that a text gives, such as `1.5 GB`, `100 mebibytes` or `64k`; 0 if it gives none."""
    found = re.fullmatch(r"\s*(\d+(\.\d+)?)\s*(?:([a-z]+?)s?)?\s*", text.lower())
    unit = _units().get(found[3] or "b") if found else None
    if not (found and unit):
        return 0
    try:
        return int((float if found[2] else int)(found[1]) * unit)
    except (OverflowError, ValueError):  # of a float, or of more digits than Python reads
        return 0


def _units() -> dict[str, int]:
    """The bytes in each unit, by its symbols and its name."""
    units = {"b": 1, "byte": 1}
    for power, (letter, decimal, binary) in enumerate(_PREFIXES, 1):
        units |= dict.fromkeys((letter, f"{letter}b", f"{decimal}byte"), 1000**power)
        units |= dict.fromkeys((f"{letter}ib", f"{binary}byte"), 1024**power)
    return units


def format_size(number: int) -> str:
    """A size for people, such as 1.5 GB."""
    power = min((len(str(number)) - 1) // 3, len(_PREFIXES))
    if power < 1:
        return f"{number} byte{'' if number == 1 else 's'}"
    digits = f"{number / 1000**power:.2f}".rstrip("0").rstrip(".")
    return f"{digits} {_PREFIXES[power - 1][0].upper()}B"
