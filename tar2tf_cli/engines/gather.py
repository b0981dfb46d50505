"""Independent tasks: run them all, and return their results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tar2tf_cli.engines import cpu_count, make_engine
from tar2tf_cli.engines.base import Outcome, Task, TaskContext
from tar2tf_cli.engines.loop import Schedule, run_tasks
from tar2tf_cli.errors import Tar2tfError

__all__ = ["gather"]


def gather(
    tasks: Sequence[Task],
    context: TaskContext,
    *,
    costs: Sequence[int],
    workers: int | None = None,
    begin: Callable[[], None] = lambda: None,
    progress: Callable[[int], None] = lambda size: None,
) -> list[Any]:
    """Run tasks; the results do not depend on the number of workers.

    Args:
        tasks: the tasks; `str` of each is its file.
        context: passed to every task.
        costs: estimated duration of each task, in any unit: the longest start first, so that all workers end together.
        workers: number of processes; defaults to the number of CPUs.
        begin: called when the workers have started; threads may be started from then on.
        progress: called with the number of stored bytes read since the beginning.

    Raises:
        Tar2tfError: the error of the first failed task, in order; later tasks may not have run.
    """
    if not tasks:
        begin()
        return []
    schedule = _Longest(tasks, costs, begin, progress)
    run_tasks(schedule, make_engine(min(workers or cpu_count(), len(tasks))), context)
    if schedule.error:
        raise schedule.error
    return schedule.results


class _Longest(Schedule):
    """Run the longest tasks first; after a failure, no later task."""

    def __init__(
        self,
        tasks: Sequence[Task],
        costs: Sequence[int],
        begin: Callable[[], None],
        progress: Callable[[int], None],
    ) -> None:
        self._tasks = tasks
        self._left = sorted(range(len(tasks)), key=lambda number: (costs[number], -number))
        self._numbers = {id(task): number for number, task in enumerate(tasks)}
        self._failed = len(tasks)  # the first failed task
        self._begin = begin
        self._progress = progress
        self.results: list[Any] = [None] * len(tasks)
        self.error: Tar2tfError | None = None

    def begin(self) -> None:
        self._begin()

    def next(self) -> Task | None:
        while self._left:
            number = self._left.pop()
            if number < self._failed:
                return self._tasks[number]
        return None

    def take(self, outcome: Outcome) -> None:
        number = self._numbers[id(outcome.task)]
        self.results[number] = outcome.result
        if outcome.error and number < self._failed:
            self._failed, self.error = number, outcome.error

    def progress(self, size: int) -> None:
        self._progress(size)
