"""The loop that keeps an engine busy: a schedule says which task is next and takes what became of each."""

from __future__ import annotations

from contextlib import closing
from typing import Final, Protocol

from tar2tf_cli.engines.base import Engine, Outcome, Task, TaskContext
from tar2tf_cli.errors import WorkerError

__all__ = ["Schedule", "run_tasks"]

_TICK_SECONDS: Final = 0.2


class Schedule(Protocol):
    """Which tasks are run, in which order, and what becomes of their outcomes.

    Attributes:
        pending: how much else goes on that has to end before all is done.
    """

    @property
    def pending(self) -> int:
        return 0

    def begin(self) -> None:
        """Called when the engine has started; threads may begin now."""
        return

    def next(self) -> Task | None:
        """The next task; None when there is none, or none before another one ends."""

    def take(self, outcome: Outcome) -> None:
        """Take in how a task ended.

        Raises:
            Tar2tfError: when nothing more is to be run.
        """

    def settle(self, timeout: float) -> None:
        """Take in what else has ended by now; where nothing has, wait for it up to `timeout` seconds."""
        return

    def name(self, task: Task) -> str | None:
        """The file that a task is about."""
        return str(task)

    def progress(self, size: int) -> None:
        """So many stored bytes have been read since the beginning."""


def run_tasks(schedule: Schedule, engine: Engine, context: TaskContext) -> None:
    """Run the tasks of a schedule until it has no more; the engine is closed then.

    Args:
        schedule: the tasks.
        engine: where they run.
        context: what every task is given.

    Raises:
        Tar2tfError: what the schedule makes of an outcome.
    """
    engine.on_progress = lambda: schedule.progress(engine.bytes_read)
    with closing(engine):
        engine.start(context)
        schedule.begin()
        while True:
            while engine.free and (task := schedule.next()):
                engine.submit(task)
            if not engine.busy and not schedule.pending:
                return
            for outcome in engine.wait(_TICK_SECONDS) if engine.busy else []:
                if isinstance(outcome.error, WorkerError):
                    outcome.error.at(shard=schedule.name(outcome.task))
                schedule.take(outcome)
            schedule.settle(0 if engine.busy else _TICK_SECONDS)
            schedule.progress(engine.bytes_read)
