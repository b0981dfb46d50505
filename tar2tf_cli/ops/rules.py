"""Rules that validate single values of ops and specs: called with a value and its name, they return what is stored."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from tar2tf_cli.errors import UsageError, meant

Kept = TypeVar("Kept", covariant=True)
JsonSchema: TypeAlias = "Mapping[str, Any]"


class Rule(Generic[Kept]):
    """A rule and, as a JSON Schema of draft 7, the values that it accepts in a spec file.

    Args:
        check: called with a value and its name in errors; returns what is stored, or raises ValueError.
        schema: describes the values in the form in which they should be written; the check may accept others.
    """

    def __init__(self, check: Callable[[Any, str], Kept], schema: JsonSchema) -> None:
        self._check = check
        self.schema = schema
        self.__doc__ = check.__doc__

    def __call__(self, value: Any, label: str) -> Kept:
        try:
            return self._check(value, label)
        except OverflowError:
            raise ValueError(f"{label} is too large a number") from None


def rule(**schema: Any) -> Callable[[Callable[[Any, str], Kept]], Rule[Kept]]:
    """Make a rule of the function below, with a JSON Schema of what it accepts."""
    return lambda check: Rule(check, schema)


@rule(type="string", minLength=1)
def text(value: Any, label: str) -> str:
    """Accept text that is not empty, or a path."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise ValueError(f"{label} must be text or a path, not {value!r}")
    try:
        os.fsencode(given)
    except UnicodeEncodeError as error:
        raise ValueError(f"{label} has the character {given[error.start]!r}, which no text can have") from None
    return given


def whole_number(least: int | None = None, most: int | None = None) -> Rule[int]:
    """Accept a whole number within limits."""
    limits = {"minimum": least, "maximum": most}

    @rule(type="integer", **{name: limit for name, limit in limits.items() if limit is not None})
    def check(value: Any, label: str) -> int:
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

    return check


def seconds(value: Any, label: str, unit: str = "seconds") -> float:
    """Accept a number of seconds, or of another unit, 0 or more."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or not number >= 0:
        raise ValueError(f"{label} must be a number of {unit}, 0 or more, not {value!r}")
    return number


def one_of(*choices: str) -> Rule[Any]:
    """Accept one of several words."""

    @rule(enum=list(choices))
    def check(value: Any, label: str) -> str:
        if value not in choices:
            raise ValueError(refusal(label, value, choices))
        return str(value)

    return check


def optional(rule: Rule[Kept]) -> Rule[Kept | None]:
    """Also accept nothing."""
    return Rule(lambda value, label: None if value is None else rule(value, label), rule.schema)


@rule(type="boolean")
def yes_or_no(value: Any, label: str) -> bool:
    """Accept true or false, as values or as text."""
    words = {"true": True, "false": False}
    if isinstance(value, bool) or str(value).lower() in words:
        return words[str(value).lower()]
    raise ValueError(f"{label} must be true or false, not {value!r}")


def accepted(rule: Callable[[Any, str], Kept], value: Any, label: str) -> Kept:
    """Return what a rule stores for a value.

    Raises:
        UsageError: when the rule does not accept it.
    """
    try:
        return rule(value, label)
    except ValueError as error:
        raise UsageError(str(error)) from None


def workers(given: int | None) -> int | None:
    """Return a number of workers, or None for as many as there are CPUs.

    Raises:
        UsageError: when it is less than 1.
    """
    return None if given is None else accepted(whole_number(1), given, "workers")


def refusal(label: str, value: Any, choices: Sequence[Any]) -> str:
    """Return the error message for a value that is not one of the choices."""
    words = ", ".join(map(repr, choices[:-1]))
    return f"{label} must be {words} or {choices[-1]!r}, not {value!r}{meant(value, choices)}"
