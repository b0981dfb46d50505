"""The order in which inputs are read: how many by one task, how far ahead, and what is asked for at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Capabilities
from tar2tf_cli.conversion import schedule
from tar2tf_cli.conversion.schedule import InputQueue

LARGE, SMALL = 100_000_000, 1000


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, ...]]:
    """The groups that an interrupted run left, by the number of their first input."""
    groups: dict[int, tuple[int, ...]] = {}
    monkeypatch.setattr(schedule, "groups_in", lambda folder: groups.keys())
    monkeypatch.setattr(schedule, "load_group", lambda path: SimpleNamespace(numbers=groups[int(Path(path).stem)]))
    return groups


def queue(sizes: Sequence[int | None], due: Sequence[int] | None = None, **options: Any) -> InputQueue:
    inputs = [ObjectInfo(f"{number}.tar", size, None) for number, size in enumerate(sizes)]
    capabilities = Capabilities(remote=options.get("remote", False))
    source = SimpleNamespace(capabilities=lambda: capabilities)
    plan: Any = SimpleNamespace(inputs=inputs, source=source)
    worker: Any = SimpleNamespace(folder="", path=lambda number, kind: f"{number}.{kind}")
    reads = range(len(inputs)) if due is None else due
    return InputQueue(plan, worker, 2, reads, all_at_once=options.get("all_at_once", False))


def taken(queue: InputQueue, most: int = 1000) -> list[tuple[int, ...]]:
    """What the queue gives until it gives nothing."""
    found = [()] * 0
    while len(found) < most and (numbers := queue.next()):
        found.append(numbers)
    return found


@pytest.mark.usefixtures("left")
def test_large_inputs_are_read_one_by_one_and_not_too_far_ahead() -> None:
    inputs = queue([LARGE] * 40)
    assert taken(inputs) == [(number,) for number in range(8)]
    inputs.used()
    assert taken(inputs) == [(8,)]
    assert taken(queue([LARGE] * 40, all_at_once=True)) == [(number,) for number in range(40)]


@pytest.mark.usefixtures("left")
def test_what_all_else_waits_for_is_read_however_far_ahead_it_is() -> None:
    inputs = queue([LARGE] * 40)
    taken(inputs)
    inputs.prioritize(8)
    assert taken(inputs) == [(8,)]


@pytest.mark.usefixtures("left")
def test_small_inputs_are_read_together_so_that_each_worker_has_some_at_the_end() -> None:
    groups = taken(queue([SMALL] * 1000, all_at_once=True))
    assert [number for numbers in groups for number in numbers] == list(range(1000))
    assert [len(numbers) for numbers in groups[:12]] == [64] * 12
    assert max(len(numbers) for numbers in groups[-4:]) <= 2
    assert taken(queue([SMALL, LARGE, LARGE], all_at_once=True)) == [(0,), (1,), (2,)]


@pytest.mark.usefixtures("left")
def test_inputs_of_a_bucket_are_read_together_up_to_a_number_of_bytes() -> None:
    assert taken(queue([5_000_000] * 40, remote=True), 3) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert taken(queue([None] * 40, remote=True), 3) == [(0,), (1,), (2,)]
    assert taken(queue([LARGE, SMALL] * 20, remote=True), 3) == [(0,), (1,), (2,)]


def test_groups_of_an_interrupted_run_are_taken_as_they_are(left: dict[int, tuple[int, ...]]) -> None:
    left[4] = (4, 5, 6)
    assert taken(queue([SMALL] * 100), 3) == [(0, 1, 2, 3), (4, 5, 6), tuple(range(7, 31))]


def test_a_group_of_which_not_all_has_to_be_read_is_none(left: dict[int, tuple[int, ...]]) -> None:
    left[4] = (4, 5, 6)
    assert taken(queue([LARGE] * 9, [2, 4, 6, 8])) == [(2,), (4,), (6,), (8,)]


@pytest.mark.usefixtures("left")
def test_what_is_asked_for_is_read_in_its_turn() -> None:
    inputs = queue([LARGE] * 40, [30])
    for number in (5, 3, 35):
        inputs.ask_for(number)
    assert taken(inputs) == [(3,), (5,), (30,), (35,)]
