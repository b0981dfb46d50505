"""Rules that validate single values of ops and specs: called with a value and its name, they return what is stored."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

from tar2tf_cli.errors import meant

__all__ = ["one_of", "refusal", "text", "whole"]


def text(value: Any, label: str) -> str:
    """Accept text that is not empty, or a path."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise ValueError(f"{label} must be text or a path, not {value!r}")
    return given


def whole(least: int | None = None, most: int | None = None) -> Callable[[Any, str], int]:
    """Accept a whole number within limits."""

    def rule(value: Any, label: str) -> int:
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool):
            raise ValueError(f"{label} must be a whole number, not {value!r}")
        if least is not None and number < least:
            raise ValueError(f"{label} must be {least} or more, not {number}")
        if most is not None and number > most:
            raise ValueError(f"{label} must be {most:,} or less, not {number}")
        return number

    return rule


def one_of(*choices: str) -> Callable[[Any, str], Any]:
    """Accept one of several words."""

    def rule(value: Any, label: str) -> str:
        if value not in choices:
            raise ValueError(refusal(label, value, choices))
        return str(value)

    return rule


def refusal(label: str, value: Any, choices: Sequence[Any]) -> str:
    """Return the error message for a value that is not one of the choices."""
    words = ", ".join(map(repr, choices[:-1]))
    return f"{label} must be {words} or {choices[-1]!r}, not {value!r}{meant(value, choices)}"
