"""Rules for field values: each validates a value of a flag, spec file or Python argument, and has a JSON Schema."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tar2tf_cli.errors import UsageError, did_you_mean
from tar2tf_cli.plugins import PluginGroup, plugin_names
from tar2tf_cli.structs import Generic

if TYPE_CHECKING:
    from tar2tf_cli.api.op import JsonSchema, JsonValue

Kept = TypeVar("Kept", covariant=True)


class Rule(Generic[Kept]):
    """A rule for the value of a field and, as a JSON Schema of draft 7, the values that it accepts in a spec file.

    Args:
        check: called with a value and its name in errors; returns the value to store, or raises ValueError.
        schema: describes the recommended forms of values; the check may accept others. It may be a function, which is
            called when the schema is used.
    """

    def __init__(self, check: Callable[[object, str], Kept], schema: JsonSchema | Callable[[], JsonSchema]) -> None:
        self._check = check
        self._schema = schema
        self.__doc__ = check.__doc__

    def __call__(self, value: object, label: str) -> Kept:
        try:
            return self._check(value, label)
        except OverflowError:
            raise ValueError(f"{label} is too large") from None

    @property
    def schema(self) -> JsonSchema:
        """The JSON Schema of the values."""
        return self._schema() if callable(self._schema) else self._schema


def rule(**schema: JsonValue) -> Callable[[Callable[[object, str], Kept]], Rule[Kept]]:
    """Turn the decorated function into a rule, with a JSON Schema of the accepted values."""
    return lambda check: Rule(check, schema)


@rule(type="string", minLength=1)
def text(value: object, label: str) -> str:
    """Accept text that is not empty, or a path."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise ValueError(f"{label} must be text or a path, not {value!r}")
    try:
        os.fsencode(given)
    except UnicodeEncodeError as error:
        raise ValueError(f"{label} has the character {given[error.start]!r}, which no text can have") from None
    return given


def integer(value: object) -> int | None:
    """Parse a whole number, given as a number or text; None for any other value."""
    try:
        return None if isinstance(value, bool) else int(value) if isinstance(value, str) else value.__index__()  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, TypeError, ValueError):
        return None


def whole_number(least: int | None = None, most: int | None = None) -> Rule[int]:
    """Accept a whole number within limits."""
    limits = {"minimum": least, "maximum": most}

    @rule(type="integer", **{name: limit for name, limit in limits.items() if limit is not None})
    def check(value: object, label: str) -> int:
        number = integer(value)
        if number is None:
            raise ValueError(f"{label} must be a whole number, not {value!r}")
        if least is not None and number < least:
            raise ValueError(f"{label} must be {least} or more, not {number}")
        if most is not None and number > most:
            raise ValueError(f"{label} must be {most:,} or less, not {number}")
        return number

    return check


def real(value: object) -> float:
    """Parse a number, given as a number or text; NaN for any other value."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def seconds(value: object, label: str, unit: str = "seconds") -> float:
    """Accept a number of seconds or of another unit, at least 0."""
    try:
        number = real(value)
    except OverflowError:
        number = -1
    if isinstance(value, bool) or not number >= 0:
        raise ValueError(f"{label} must be a number of {unit}, 0 or more, not {value!r}")
    return number


def number_of(unit: str, most: float) -> Rule[float]:
    """Accept a number of a unit, which may be negative."""

    @rule(type="number")
    def check(value: object, label: str) -> float:
        number = real(value or 0)
        if not -most < number < most:
            raise ValueError(f"{label} must be a number{unit}, not {value!r}")
        return number

    return check


@rule(type="number", minimum=0, maximum=1)
def probability(value: object, label: str) -> float:
    """Accept a probability or fraction from 0 to 1."""
    number = real(value)
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError(f"{label} must be a number from 0 to 1, not {value!r}")
    return number


def one_of(*choices: str, plugins: PluginGroup | None = None) -> Rule[Any]:
    """Accept one of several words or, with `plugins`, the name of such a plugin of another package."""

    @rule(enum=list(choices))
    def check(value: object, label: str) -> str:
        if value not in choices:
            added = plugin_names(plugins) if plugins else []
            if value not in added:
                raise ValueError(refusal(label, value, [*choices, *added]))
        return str(value)

    return check


def optional(rule: Rule[Kept]) -> Rule[Kept | None]:
    """Make a rule that also accepts None."""
    return Rule(lambda value, label: None if value is None else rule(value, label), rule.schema)


@rule(type="boolean")
def yes_or_no(value: object, label: str) -> bool:
    """Accept true or false, as values, as text, or as 1 or 0."""
    known = {"true": True, "false": False, 1: True, 0: False}
    given = value.lower() if isinstance(value, str) else value
    if isinstance(given, (str, int)) and given in known:
        return known[given]
    raise ValueError(f"{label} must be true or false, not {value!r}")


def split_at_commas(written: str) -> list[str]:
    """Split text at its commas, except inside JSON lists and quotes; empty parts are dropped."""
    if "[" not in written and '"' not in written:
        return [part for part in written.split(",") if part]
    parts, depth = [""], 0
    for token in re.findall(_TOKEN, written):
        depth += (token in "[{") - (token in "]}")
        if token == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part for part in parts if part]


_TOKEN: Final = r'(?s)"(?:[^"\\]|\\.)*"|.'


def accepted(rule: Callable[[object, str], Kept], value: object, label: str) -> Kept:
    """Apply a rule to a value, and return the value to store.

    Raises:
        UsageError: when the rule does not accept it.
    """
    try:
        return rule(value, label)
    except ValueError as error:
        raise UsageError(str(error)) from None


def workers(given: int | None) -> int | None:
    """Validate a number of workers; None means one for each CPU.

    Raises:
        UsageError: when the number is less than 1.
    """
    return None if given is None else accepted(whole_number(1), given, "workers")


def refusal(label: str, value: object, choices: Sequence[object]) -> str:
    """Return the error message for a value that is not one of the choices."""
    *words, last = map(repr, choices)
    named = f"{', '.join(words)} or {last}" if words else last
    return f"{label} must be {named}, not {value!r}{did_you_mean(value, choices)}"
