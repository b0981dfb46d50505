"""The loop that keeps an engine busy: a schedule supplies the next task and receives each outcome."""

from __future__ import annotations

from contextlib import closing
from typing import Final, Protocol

from tar2tf_cli.engines.base import Engine, Outcome, Task, TaskContext
from tar2tf_cli.errors import WorkerError

__all__ = ["Schedule", "run_tasks"]

_TICK_SECONDS: Final = 0.2
_MOST_PENDING: Final = 4  # beyond them, one must finish before more tasks begin, or they could fill memory or disk


class Schedule(Protocol):
    """Supplies tasks in order, and receives their outcomes.

    Attributes:
        pending: amount of other work in progress that has to finish.
    """

    @property
    def pending(self) -> int:
        return 0

    def begin(self) -> None:
        """Called when the engine has started; threads may be started from then on."""
        return

    def next(self) -> Task | None:
        """Return the next task; None when there is none, or none until another one ends."""

    def take(self, outcome: Outcome) -> None:
        """Receive the outcome of a task.

        Raises:
            Tar2tfError: to stop the run.
        """

    def settle(self, timeout: float) -> None:
        """Handle other work that has finished; wait up to `timeout` seconds for some."""
        return

    def name(self, task: Task) -> str | None:
        """Return a task's file, for errors."""

    def progress(self, size: int) -> None:
        """Called with the number of stored bytes read since the beginning."""


def run_tasks(schedule: Schedule, engine: Engine, context: TaskContext) -> None:
    """Run the tasks of a schedule until there are no more, close the engine, and wait for other work to finish.

    Args:
        schedule: the tasks.
        engine: where they run.
        context: passed to every task.

    Raises:
        Tar2tfError: raised by the schedule for an outcome.
    """
    engine.on_progress = lambda: schedule.progress(engine.bytes_read)
    with closing(engine):
        engine.start(context)
        schedule.begin()
        while True:
            while engine.free and (task := schedule.next()):
                engine.submit(task)
            if not engine.running:
                break
            outcomes = engine.wait(_TICK_SECONDS)
            schedule.settle(_TICK_SECONDS if schedule.pending > _MOST_PENDING else 0)  # before an error ends the run
            for outcome in outcomes:
                if isinstance(outcome.error, WorkerError):
                    outcome.error.at(shard=schedule.name(outcome.task))
                schedule.take(outcome)
            schedule.progress(engine.bytes_read)
    while schedule.pending:
        schedule.settle(_TICK_SECONDS)
