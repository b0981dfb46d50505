"""What every engine has in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tar2tf_cli.errors import Tar2tfError, WorkerError

__all__ = ["Engine", "Outcome", "Task", "TaskContext", "attempt"]


class TaskContext(Protocol):
    """What all tasks of a run are given; forked or pickled, so each process has its own.

    Attributes:
        on_bytes: set by the engine; to be called with the number of stored bytes after each read of an input.
    """

    on_bytes: Callable[[int], None] | None


class Task(Protocol):
    """A unit of work; pickles, and so does what it returns."""

    def run(self, context: Any, /) -> Any:
        """Do the work."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task that ended: its result, or the error that ended it."""

    task: Task
    result: Any = None
    error: Tar2tfError | None = None


def attempt(task: Task, context: TaskContext) -> Outcome:
    """Run a task; whatever it raises is the outcome's error, unforeseen exceptions with their traceback in `details`.

    Raises:
        BrokenPipeError: when the process that waits for the outcome is gone.
    """
    try:
        return Outcome(task, task.run(context))
    except Tar2tfError as error:
        return Outcome(task, error=error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return Outcome(task, error=WorkerError(f"{type(error).__name__}: {error}"))
    except Exception as error:
        import traceback

        failure = WorkerError(f"{type(error).__name__}: {error}", hint="this is a fault of tar2tf: please report it")
        failure.__dict__["details"] = traceback.format_exc()
        return Outcome(task, error=failure)


class Engine(Protocol):
    """Runs tasks; used by one thread.

    Attributes:
        free: how many more tasks it takes now.
        busy: how many it has.
        bytes_read: stored bytes of input that its tasks have read so far.
        on_progress: called now and then by an engine whose `wait` does not come back while a task runs.
    """

    bytes_read: int
    on_progress: Callable[[], None] | None

    @property
    def free(self) -> int: ...

    @property
    def busy(self) -> int: ...

    def start(self, context: TaskContext) -> None:
        """Get ready; every task will be given this context or a copy of it."""

    def submit(self, task: Task) -> None:
        """Take a task; only while `free`."""

    def wait(self, timeout: float) -> list[Outcome]:
        """The tasks that ended since the last call; returns at the first, or after `timeout` seconds with none."""

    def close(self) -> None:
        """End at once; tasks that still run are given up."""
