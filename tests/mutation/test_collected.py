"""Functions of an imported module that get the code of a mutated source."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from tests.mutation.collected import in_functions, replace_functions

SOURCE = textwrap.dedent(
    """
    LIMIT = 3

    class Reader:
        size = 1

        def read(self, count=2):
            return [self.size + each for each in range(count)]

    def adder(first):
        def add(second):
            return first + second
        return add
    """
)


def namespace() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "changed"}
    exec(compile(SOURCE, "changed.py", "exec"), names)
    return names


def mutated(before: str, after: str, values: Callable[[dict[str, Any]], Any]) -> Any:
    """Return values of a module whose functions are replaced after it was imported."""
    names, source = namespace(), SOURCE.replace(before, after)
    assert in_functions(SOURCE, source)
    replace_functions("changed.py", SOURCE, source)
    return values(names)


def test_functions_methods_and_comprehensions_are_replaced() -> None:
    assert mutated("size + each", "size - each", lambda names: names["Reader"]().read()) == [1, 0]
    assert mutated("range(count)", "range(count + 1)", lambda names: names["Reader"]().read()) == [1, 2, 3]
    assert mutated("first + second", "first - second", lambda names: names["adder"](5)(2)) == 3


def test_a_closure_that_exists_is_replaced() -> None:
    names = namespace()
    add = names["adder"](5)
    replace_functions("changed.py", SOURCE, SOURCE.replace("first + second", "first * second"))
    assert add(2) == 10


def test_what_runs_at_import_is_outside_of_functions() -> None:
    for before, after in (("LIMIT = 3", "LIMIT = 4"), ("size = 1", "size = 2"), ("count=2", "count=3")):
        assert not in_functions(SOURCE, SOURCE.replace(before, after))


def test_a_function_that_uses_other_outer_names_cannot_be_replaced() -> None:
    assert not in_functions(SOURCE, SOURCE.replace("first + second", "second"))
    assert not in_functions(SOURCE, SOURCE.replace("[self.size + each for each in range(count)]", "count"))
