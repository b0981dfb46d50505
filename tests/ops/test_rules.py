"""Rules for single values: what they take at their limits, and what they refuse beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tar2tf_cli.api.op import OpContext, Sample
from tar2tf_cli.ops.base import DeclaredOp
from tar2tf_cli.ops.rules import Rule, text, whole_number


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
