"""The loop that runs a schedule's tasks on an engine, and the engine that needs no other process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from tar2tf_cli.api.backend import Engine, Outcome, Task, TaskContext
from tar2tf_cli.errors import MachineError, UsageError, WorkerError, to_tar2tf_error
from tar2tf_cli.structs import Protocol

if TYPE_CHECKING:
    from typing_extensions import Never

_KEPT: Final = 30 << 20
"""Size in bytes of the memory block freed once to raise glibc's threshold, whose own limit is 32 MiB."""

_MALLOPT: Final = (-3, -2)  # M_MMAP_THRESHOLD and M_TOP_PAD, as in malloc.h


@cache
def keep_memory(*, of_threads: bool = False) -> None:
    """Make glibc keep freed memory, by freeing one large block, instead of returning it to the system.

    Returning it to the system each time takes a tenth of the time of reading an object (mallopt(3), M_MMAP_THRESHOLD).
    Once per process is enough: a second block would come from the kept memory, and zeroing it would take 10 ms.

    Args:
        of_threads: also keep memory freed by threads with their own arenas, such as TensorFlow's. Requesting the memory
            of images from the system again takes as long as decoding and resizing them.
    """
    if not of_threads:
        bytes(_KEPT)
        return
    import ctypes  # imported here, so that workers start sooner

    with suppress(OSError, AttributeError):  # another C library
        for option in _MALLOPT:
            ctypes.CDLL(None).mallopt(option, _KEPT)


PROGRESS_SECONDS: Final = 0.2
"""Seconds between two reports of a task on the bytes that it has read."""


class Clock:
    """A timer that is due every few seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether the seconds have passed, which restarts the timer."""
        now = time.monotonic()
        due = now - self._last > self._seconds
        if due:
            self._last = now
        return due


def attempt(task: Task, context: TaskContext) -> Outcome:
    """Run a task and return its outcome; an unexpected exception becomes a WorkerError with the traceback in `details`.

    Raises:
        BrokenPipeError: when the parent process is gone.
    """
    try:
        return Outcome(task, task.run(cast("Never", context)))
    except BrokenPipeError:
        raise
    except Exception as error:
        if ours := to_tar2tf_error(error):
            return Outcome(task, error=ours)
        if isinstance(error, OSError):
            return Outcome(task, error=WorkerError(f"{type(error).__name__}: {error}"))
        import traceback

        failure = WorkerError(f"{type(error).__name__}: {error}", hint="this is a bug in tar2tf: please report it")
        failure.__dict__["details"] = traceback.format_exc()
        return Outcome(task, error=failure)


def pickled(context: TaskContext) -> bytes:
    """Pickle a context, including functions of the user.

    Raises:
        UsageError: when the context cannot be pickled.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(context))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"the conversion cannot be sent to a worker process: {error}",
            hint="use one worker, or define the function in a module",
        ) from None


_TICK_SECONDS: Final = 0.2
_MOST_PENDING: Final = 4  # more would fill memory or disk: wait for one to finish


class Schedule(Protocol):
    """A supplier of tasks that receives their outcomes.

    Attributes:
        pending: number of other jobs in progress that must finish before the end.
    """

    @property
    def pending(self) -> int:
        return 0

    def begin(self) -> None:
        """Begin the run; called when the engine has started, after which threads may be started."""
        return

    def next(self) -> Task | None:
        """Return the next task; None if there is none, or none until a running one ends."""

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
        """Report progress: the number of stored bytes read since the beginning."""


class OrderedTasks(Schedule):
    """A schedule of independent tasks that passes on their results in the order of the tasks.

    Args:
        tasks: the tasks.
        names: the file of each task, for errors.
        taken: called with the number of each task and its result.
        progress: called with the number of stored bytes read since the beginning.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        names: Sequence[str],
        taken: Callable[[int, Any], None],
        progress: Callable[[int], None],
    ) -> None:
        self._tasks = tasks
        self._names = names
        self._taken = taken
        self._progress = progress
        self._numbers = {task: number for number, task in enumerate(tasks)}
        self._begun = self._ended = 0  # number of tasks handed out, and of tasks whose results were passed on
        self._outcomes: dict[int, Outcome] = {}  # outcomes of tasks that ended before an earlier one
        self._failed = False

    def next(self) -> Task | None:
        """Return the next task; None after an error."""
        if self._failed or self._begun == len(self._tasks):
            return None
        self._begun += 1
        return self._tasks[self._begun - 1]

    def take(self, outcome: Outcome) -> None:
        """Pass on the results of tasks, up to the first that has not ended."""
        self._outcomes[self._numbers[outcome.task]] = outcome
        self._failed = self._failed or outcome.error is not None
        while ended := self._outcomes.pop(self._ended, None):
            if ended.error:
                raise ended.error
            self._taken(self._ended, ended.result)
            self._ended += 1

    def name(self, task: Task) -> str | None:
        """Return the file of a task."""
        return self._names[self._numbers[task]]

    def progress(self, size: int) -> None:
        """Pass on the number of bytes."""
        self._progress(size)


def run_tasks(schedule: Schedule, engine: Engine, context: TaskContext) -> None:
    """Run the tasks of a schedule until there are no more, close the engine, and wait for other work to finish.

    Args:
        schedule: the tasks.
        engine: runs the tasks.
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
                if isinstance(outcome.error, (WorkerError, MachineError)):
                    outcome.error.at(shard=schedule.name(outcome.task))
                schedule.take(outcome)
            schedule.progress(engine.bytes_read)
    while schedule.pending:
        schedule.settle(_TICK_SECONDS)


class InlineEngine(Engine):
    """An engine that runs each task in this process, inside `wait`."""

    def start(self, context: TaskContext) -> None:
        """Store the context."""
        keep_memory()
        self._clock = Clock(PROGRESS_SECONDS)
        context.on_bytes = self._count
        self._context = context

    def submit(self, task: Task) -> None:
        """Accept a task."""
        self.running[0] = task

    def wait(self, timeout: float) -> list[Outcome]:
        """Run the task to its end, whatever the timeout."""
        return [attempt(self.running.pop(0), self._context)]

    def close(self) -> None:
        """Do nothing: no task is running."""

    def _count(self, size: int) -> None:
        self.bytes_read += size
        if self.on_progress and self._clock.is_due():
            self.on_progress()
