"""Tasks that do not depend on each other: all are run, the results come in the tasks' order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from tar2tf_cli.engines import make_engine
from tar2tf_cli.engines.base import Context, Outcome, Task
from tar2tf_cli.errors import Tar2tfError, WorkerError

__all__ = ["cpu_count", "gather"]

_TICK_SECONDS: Final = 0.2


def cpu_count() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gather(
    tasks: Sequence[Task],
    context: Context,
    *,
    costs: Sequence[int],
    workers: int | None = None,
    progress: Callable[[int], None] = lambda size: None,
) -> list[Any]:
    """Run tasks; the results do not depend on the number of workers.

    Args:
        tasks: what to do; as text, each names the file it is about.
        context: what every task is given.
        costs: about how long each task takes, in any unit: the longest begin first, so that all workers end together.
        workers: how many processes work at once; as many as there are CPUs when None.
        progress: called with the number of stored bytes read since the beginning.

    Raises:
        Tar2tfError: the error of the first task, in their order, that failed; later ones may not have been run.
    """
    if not tasks:
        return []
    run = _Run(tasks, sorted(range(len(tasks)), key=lambda number: -costs[number]))
    engine = make_engine(min(workers or cpu_count(), len(tasks)))
    engine.on_progress = lambda: progress(engine.bytes_read)
    try:
        engine.start(context)
        while True:
            while engine.free and (task := run.next()):
                engine.submit(task)
            if not engine.busy:
                return run.finish()
            for outcome in engine.wait(_TICK_SECONDS):
                run.take(outcome)
            progress(engine.bytes_read)
    finally:
        engine.close()


class _Run:
    def __init__(self, tasks: Sequence[Task], order: list[int]) -> None:
        self._tasks = tasks
        self._left = order[::-1]
        self._numbers = {id(task): number for number, task in enumerate(tasks)}
        self._results: list[Any] = [None] * len(tasks)
        self._failed = len(tasks)  # the first task that failed
        self._error: Tar2tfError | None = None

    def next(self) -> Task | None:
        """The next task; none behind one that failed."""
        while self._left:
            number = self._left.pop()
            if number < self._failed:
                return self._tasks[number]
        return None

    def take(self, outcome: Outcome) -> None:
        """Take in how a task ended."""
        number = self._numbers[id(outcome.task)]
        self._results[number] = outcome.result
        if isinstance(outcome.error, WorkerError):
            outcome.error.at(shard=str(outcome.task))
        if outcome.error and number < self._failed:
            self._failed, self._error = number, outcome.error

    def finish(self) -> list[Any]:
        if self._error:
            raise self._error
        return self._results
