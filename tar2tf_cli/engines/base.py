"""What every engine has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.job import Task, Worker

__all__ = ["Engine", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task that ended: its result, or the error that ended it."""

    task: Task
    result: Any = None
    error: Tar2tfError | None = None


class Engine(Protocol):
    """Runs tasks; used by one thread.

    Attributes:
        free: how many more tasks it takes now.
        busy: how many it has.
        bytes_read: stored bytes of input that its tasks have read so far.
    """

    bytes_read: int

    @property
    def free(self) -> int: ...

    @property
    def busy(self) -> int: ...

    def start(self, worker: Worker) -> None:
        """Get ready; every task will be given this worker or a copy of it."""

    def submit(self, task: Task) -> None:
        """Take a task; only while `free`."""

    def wait(self, timeout: float) -> list[Outcome]:
        """The tasks that ended since the last call; returns at the first, or after `timeout` seconds with none."""

    def close(self) -> None:
        """End at once; tasks that still run are given up."""
