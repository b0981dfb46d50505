"""Rules for single values: what they take at their limits, and what they refuse beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tar2tf_cli.api.op import OpContext, Sample
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops.base import DeclaredOp
from tar2tf_cli.ops.rules import (
    Rule,
    number_of,
    one_of,
    optional,
    probability,
    seconds,
    split_at_commas,
    text,
    whole_number,
    workers,
    yes_or_no,
)


@pytest.mark.parametrize("value", [2, 5, "2", "5"])
def test_a_whole_number_may_be_either_limit(value: int | str) -> None:
    assert whole_number(2, 5)(value, "n") == int(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1, "n must be 2 or more, not 1"),
        (6, "n must be 5 or less, not 6"),
        (True, "n must be a whole number, not True"),
        (2.0, "n must be a whole number, not 2.0"),
        (None, "n must be a whole number, not None"),
    ],
)
def test_what_lies_beyond_a_limit_or_is_not_whole_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        whole_number(2, 5)(value, "n")


@pytest.mark.parametrize("value", ["", 7, None, b"x"])
def test_text_is_not_empty(value: object) -> None:
    with pytest.raises(ValueError, match=r"^n must be text or a path, not "):
        text(value, "n")


DEGREES, EITHER = number_of(" of degrees", 360), one_of("ab", "ac")


@pytest.mark.parametrize(
    ("rule", "value", "kept"),
    [
        *((seconds, value, kept) for value, kept in [(0, 0), (0.5, 0.5), ("2", 2), (float("inf"), float("inf"))]),
        *(
            (DEGREES, value, kept)
            for value, kept in [(359.9, 359.9), ("-359.9", -359.9), (None, 0), ("", 0), (True, 1)]
        ),
        *((probability, value, kept) for value, kept in [(0, 0), (1, 1), ("0.5", 0.5)]),
        *((yes_or_no, value, True) for value in (True, "TRUE", "true", 1)),
        *((yes_or_no, value, False) for value in (False, "False", 0)),
        *((EITHER, value, value) for value in ("ab", "ac")),
        *((optional(probability), value, value) for value in (None, 0.5)),
        *((whole_number(None, 2000), value, value) for value in (-5, 2000)),
        (text, Path("x"), "x"),
    ],
)
def test_a_rule_keeps_what_it_accepts(rule: Any, value: object, kept: object) -> None:
    found = rule(value, "n")
    assert (found, type(found)) == (kept, float if type(found) is float else type(kept))


@pytest.mark.parametrize(
    ("rule", "values", "says"),
    [
        (seconds, [-0.1, True, None, "x", float("nan"), 10**400], "n must be a number of seconds, 0 or more, not {!r}"),
        (DEGREES, [360, -360, "x", float("nan")], "n must be a number of degrees, not {!r}"),
        (DEGREES, [10**400], "n is too large"),
        (probability, [1.001, -0.001, True, None, "x"], "n must be a number from 0 to 1, not {!r}"),
        (optional(probability), [2], "n must be a number from 0 to 1, not {!r}"),
        (yes_or_no, ["1", 2, None, "yes", 1.0], "n must be true or false, not {!r}"),
        (EITHER, [1, None, "zzz"], "n must be 'ab' or 'ac', not {!r}"),
        (EITHER, ["abc"], "n must be 'ab' or 'ac', not {!r}; did you mean 'ac'?"),
        (one_of("ab", "cd", "ef"), [1], "n must be 'ab', 'cd' or 'ef', not 1"),
        (whole_number(None, 2000), [2001], "n must be 2,000 or less, not 2001"),
        (text, ["a\ud800b"], "n has the character '\\ud800', which no text can have"),
    ],
)
def test_a_rule_names_what_it_refuses(rule: Any, values: list[object], says: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r".") as caught:
            rule(value, "n")
        assert str(caught.value) == says.format(value)


def test_schemas_state_the_limits_of_their_rules() -> None:
    assert {
        name: rule.schema
        for name, rule in {
            "text": text,
            "any number": whole_number(),
            "from 2": whole_number(2),
            "up to 5": whole_number(None, 5),
            "degrees": DEGREES,
            "probability": probability,
            "either": EITHER,
            "optional": optional(EITHER),
            "yes or no": yes_or_no,
        }.items()
    } == {
        "text": {"type": "string", "minLength": 1},
        "any number": {"type": "integer"},
        "from 2": {"type": "integer", "minimum": 2},
        "up to 5": {"type": "integer", "maximum": 5},
        "degrees": {"type": "number"},
        "probability": {"type": "number", "minimum": 0, "maximum": 1},
        "either": {"enum": ["ab", "ac"]},
        "optional": {"enum": ["ab", "ac"]},
        "yes or no": {"type": "boolean"},
    }


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("a,b", ["a", "b"]),
        (",a,,b,", ["a", "b"]),
        ("[1,2],b", ["[1,2]", "b"]),
        ('a="x,y",,b', ['a="x,y"', "b"]),
        ('a=[{"k":[1,2]},3],b', ['a=[{"k":[1,2]},3]', "b"]),
        (r'"a\",b",c', [r'"a\",b"', "c"]),
        ("a],b,[c", ["a]", "b", "[c"]),
        ("[a,b", ["[a,b"]),
    ],
)
def test_commas_in_lists_and_quotes_divide_nothing(written: str, parts: list[str]) -> None:
    assert split_at_commas(written) == parts


def test_at_least_one_worker_works() -> None:
    assert (workers(None), workers(1), workers(70)) == (None, 1, 70)
    with pytest.raises(UsageError, match=r"^workers must be 1 or more, not 0$"):
        workers(0)


@dataclass(frozen=True)
class _OfEntry(DeclaredOp):
    name = "of_entry"
    usage = "of_entry:EXT"
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text}

    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return sample


@dataclass(frozen=True)
class _Often(_OfEntry):
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"times": whole_number(1)}

    times: int = 1


def test_every_op_keeps_its_own_rules_and_those_it_inherits() -> None:
    assert _Often("txt", "3").times == 3  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^times must be 1 or more, not 0$"):
        _Often("txt", 0)
    with pytest.raises(ValueError, match=r"^ext must be text or a path, not ''$"):
        _Often("")
