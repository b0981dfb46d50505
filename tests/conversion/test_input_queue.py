"""The order in which inputs are read: how many by one task, how far ahead, and what is asked for at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.input_queue import InputQueue, InputsInOrder, SpoolFiles
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex
from tar2tf_cli.conversion.worker import InputGroup, TaskInputs, Worker, save_group
from tar2tf_cli.errors import SourceError
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.stores.directory import DirectorySource

LARGE, SMALL = 100_000_000, 1000


class Queues:
    """Makes queues of inputs that were never read, or by an interrupted run."""

    def __init__(self, folder: Path) -> None:
        inputs = TaskInputs(Conversion("in", Output("out.record")), DirectorySource(str(folder)), ())
        self._worker = Worker(inputs, str(folder))

    def save(self, *numbers: int) -> None:
        """Leave a group in the working folder, as an interrupted run does."""
        reports = [InputReport() for _ in numbers]
        save_group(
            self._worker.path(numbers[0], "index"), InputGroup(numbers, counts=[0] * len(numbers), reports=reports)
        )

    def __call__(self, sizes: Sequence[int | None], due: Sequence[int] | None = None, **options: bool) -> InputQueue:
        inputs = [ObjectInfo(f"{number}.tar", size, None) for number, size in enumerate(sizes)]
        return InputQueue(inputs, SpoolFiles(self._worker), 2, range(len(inputs)) if due is None else due, **options)


@pytest.fixture
def queue(tmp_path: Path) -> Queues:
    return Queues(tmp_path)


def taken(queue: InputQueue, most: int = 1000) -> list[tuple[int, ...]]:
    """Take inputs until there are none, or so many times."""
    found = [()] * 0
    while len(found) < most and (numbers := queue.next()):
        found.append(numbers)
    return found


def test_large_inputs_are_read_one_by_one_and_not_too_far_ahead(queue: Queues) -> None:
    inputs = queue([LARGE] * 40)
    assert taken(inputs) == [(number,) for number in range(8)]
    inputs.mark_divided()
    assert taken(inputs) == [(8,)]
    assert taken(queue([LARGE] * 40, all_at_once=True)) == [(number,) for number in range(40)]


def test_what_all_else_waits_for_is_read_however_far_ahead_it_is(queue: Queues) -> None:
    inputs = queue([LARGE] * 40)
    taken(inputs)
    inputs.prioritize(8)
    assert taken(inputs) == [(8,)]


def test_small_inputs_are_read_together_so_that_each_worker_has_some_at_the_end(queue: Queues) -> None:
    groups = taken(queue([SMALL] * 1000, all_at_once=True))
    assert [number for numbers in groups for number in numbers] == list(range(1000))
    assert [len(numbers) for numbers in groups[:12]] == [64] * 12
    assert max(len(numbers) for numbers in groups[-4:]) <= 2
    assert taken(queue([SMALL, LARGE, LARGE], all_at_once=True)) == [(0,), (1,), (2,)]


def test_inputs_of_a_bucket_are_read_together_up_to_a_number_of_bytes(queue: Queues) -> None:
    assert taken(queue([5_000_000] * 40, remote=True), 3) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert taken(queue([None] * 40, remote=True), 3) == [(0,), (1,), (2,)]
    assert taken(queue([LARGE, SMALL] * 20, remote=True), 3) == [(0,), (1,), (2,)]


def test_groups_of_an_interrupted_run_are_taken_as_they_are(queue: Queues) -> None:
    queue.save(4, 5, 6)
    assert taken(queue([SMALL] * 100), 3) == [(0, 1, 2, 3), (4, 5, 6), tuple(range(7, 31))]


def test_a_group_of_which_not_all_has_to_be_read_is_none(queue: Queues) -> None:
    queue.save(4, 5, 6)
    assert taken(queue([LARGE] * 9, [2, 4, 6, 8])) == [(2,), (4,), (6,), (8,)]


def test_what_is_asked_for_is_read_in_its_turn(queue: Queues) -> None:
    inputs = queue([LARGE] * 40, [30])
    for number in (5, 3, 35):
        inputs.request(number)
    assert taken(inputs) == [(3,), (5,), (30,), (35,)]


def test_an_error_waits_for_the_results_of_earlier_inputs(queue: Queues) -> None:
    inputs = InputsInOrder(queue([LARGE] * 5), 3)
    assert (inputs.may_begin, inputs.frontier, inputs.finished) == (True, 0, False)
    assert [inputs.begin() for _ in range(3)] == [(0,), (1,), (2,)]
    assert not inputs.may_begin  # as three tasks read
    failed = SourceError("is gone")
    inputs.end(InputGroup((1,), error=failed))
    assert (inputs.may_begin, inputs.next()) == (False, None)
    inputs.check(waits=False)
    inputs.check(waits=True)
    inputs.end(InputGroup((0,), counts=[0], reports=[InputReport(7)]))
    read = InputReport(7), InputUnits(0, SpoolIndex(), 0, 0)
    inputs.add(0, *read)
    assert inputs.next() == read
    assert inputs.next() is None
    inputs.check(waits=False)  # a task is still reading
    inputs.end(InputGroup((2,), counts=[0], reports=[InputReport()]))
    assert not inputs.may_begin
    for waits in (False, True):
        with pytest.raises(SourceError, match=r"^is gone$"):
            inputs.check(waits=waits)
    inputs.finished = True  # so that the error is about records that nobody wants
    inputs.check(waits=False)
    with pytest.raises(SourceError, match=r"^is gone$"):
        inputs.check(waits=True)
    inputs.frontier = 1
    with pytest.raises(SourceError, match=r"^is gone$"):
        inputs.next()


def test_the_error_of_a_group_belongs_to_the_input_after_those_that_were_read(queue: Queues) -> None:
    inputs = InputsInOrder(queue([SMALL] * 5, all_at_once=True), 1)
    numbers = inputs.begin()
    assert numbers[0] == 0
    inputs.end(InputGroup((0, 1, 2), counts=[0, 0], reports=[InputReport()] * 2, error=SourceError("is gone")))
    for inputs.frontier in (0, 1):
        assert inputs.next() is None
    inputs.frontier = 2
    with pytest.raises(SourceError, match=r"^is gone$"):
        inputs.next()


def test_a_spool_is_removed_with_its_last_user(tmp_path: Path) -> None:
    def left() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("*.spool"))

    worker = Worker(TaskInputs(Conversion("in", Output("o.record")), DirectorySource(str(tmp_path)), ()), str(tmp_path))
    for number in range(3):
        Path(worker.path(number, "spool")).write_bytes(b"x")
    zero, one, two = left()
    files = SpoolFiles(worker)
    files.need([0, 1, 0])
    files.release({0}, still_open=set())
    assert left() == [zero, one, two]
    files.release({1, 0}, still_open={1})
    assert left() == [one, two]
    files.need([1])
    files.hand_over([1])
    assert left() == [one, two]
    files.need([1])
    files.release({1}, still_open=set())
    assert left() == [two]
    files.need([1])
    files.release({1}, still_open=set())  # which is gone already
    assert left() == [two]


def test_an_index_is_read_from_its_file_and_said_to_be_damaged(tmp_path: Path) -> None:
    worker = Worker(TaskInputs(Conversion("in", Output("o.record")), DirectorySource(str(tmp_path)), ()), str(tmp_path))
    group = InputGroup((3, 4), SpoolIndex([5, 6, 7], [1, 1, 1]), [2, 1], [InputReport(2), InputReport(1)], 9)
    save_group(worker.path(3, "index"), group)
    files = SpoolFiles(worker)
    assert (files.saved_group(3) is not None, files.saved_group(4), len([*files.saved_groups()])) == (True, None, 1)
    files.unload(group)
    (first, second) = group.parts()
    assert [(number, units.group, units.first, units.stop) for number, _, units in (first, second)] == [
        (3, 3, 0, 2), (4, 3, 2, 3),
    ]  # fmt: skip
    assert [*first[2].spool.loaded().sizes] == [5, 6, 7]
    Path(worker.path(3, "index")).write_bytes(b"damaged")
    other = InputGroup((3,))
    fresh = SpoolFiles(worker)
    assert (fresh.saved_group(3), [*fresh.saved_groups()]) == (None, [])
    fresh.unload(other)
    assert other.stored is not None
    with pytest.raises(SourceError) as caught:
        other.stored.loaded()
    assert caught.value.sentence == "an index in the working folder was damaged; run the same command again"
