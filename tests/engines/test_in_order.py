"""Tasks that do not depend on each other, whose results are passed on in the order of the tasks."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tar2tf_cli.api.backend import Outcome
from tar2tf_cli.engines.base import InlineEngine, OrderedTasks, run_tasks
from tar2tf_cli.errors import SourceError


class Twice(NamedTuple):
    """Doubles a number; the context has those that fail."""

    number: int

    def run(self, context: Any) -> int:
        if self.number in context.failing:
            raise SourceError("cannot be read", shard=str(self.number))
        return 2 * self.number


class Context:
    on_bytes = None

    def __init__(self, *failing: int) -> None:
        self.failing = failing


def in_order(taken: list[tuple[int, int]]) -> OrderedTasks:
    tasks = [Twice(number) for number in range(5)]
    return OrderedTasks(
        tasks, [f"{number}.tar" for number in range(5)], lambda *each: taken.append(each), lambda size: None
    )


def test_results_come_in_the_order_of_the_tasks_whichever_ends_first() -> None:
    schedule = in_order(taken := [])
    tasks = [schedule.next() for _ in range(5)]
    assert schedule.next() is None
    for number in (3, 1, 0, 4, 2):
        task = tasks[number]
        assert task
        assert schedule.name(task) == f"{number}.tar"
        schedule.take(Outcome(task, number))
    assert taken == [(number, number) for number in range(5)]


def test_the_first_error_in_that_order_ends_the_run_and_no_more_tasks_begin() -> None:
    schedule = in_order(taken := [])
    first, second, third = (Twice(number) for number in range(3))
    assert [schedule.next() for _ in range(3)] == [first, second, third]
    schedule.take(Outcome(third, error=SourceError("third")))
    assert schedule.next() is None
    schedule.take(Outcome(first, 7))
    with pytest.raises(SourceError, match="second"):
        schedule.take(Outcome(second, error=SourceError("second")))
    assert taken == [(0, 7)]


def test_an_engine_runs_them() -> None:
    run_tasks(in_order(taken := []), InlineEngine(1), Context())
    assert taken == [(number, 2 * number) for number in range(5)]
    with pytest.raises(SourceError, match="3: cannot be read"):
        run_tasks(in_order(taken := []), InlineEngine(1), Context(3, 4))
    assert taken == [(0, 0), (1, 2), (2, 4)]
