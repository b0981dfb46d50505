"""One task at a time, in this very process."""

from __future__ import annotations

from tar2tf_cli.engines.base import Outcome
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.job import Task, Worker

__all__ = ["InlineEngine"]


class InlineEngine:
    """Runs each task when its outcome is waited for."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self._task: Task | None = None
        self._worker: Worker | None = None

    @property
    def free(self) -> int:
        """1 when there is no task."""
        return int(self._task is None)

    @property
    def busy(self) -> int:
        """1 when there is a task."""
        return int(self._task is not None)

    def start(self, worker: Worker) -> None:
        """Take the worker."""
        worker.on_bytes = self._count
        self._worker = worker

    def submit(self, task: Task) -> None:
        """Take a task."""
        self._task = task

    def wait(self, timeout: float) -> list[Outcome]:
        """Run the task to its end, whatever the timeout."""
        task, self._task = self._task, None
        if task is None or self._worker is None:
            return []
        try:
            return [Outcome(task, task.run(self._worker))]
        except Tar2tfError as error:
            return [Outcome(task, error=error)]

    def close(self) -> None:
        """Nothing is left to end."""

    def _count(self, size: int) -> None:
        self.bytes_read += size
