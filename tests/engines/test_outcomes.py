"""What becomes of a task that raises, and when a run of tasks has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tar2tf_cli.api.backend import Outcome
from tar2tf_cli.engines.base import InlineEngine, Schedule, attempt, run_tasks
from tar2tf_cli.engines.local import may_fork
from tar2tf_cli.errors import MachineError, SourceError, Tar2tfError, UsageError, WorkerError


class Job(NamedTuple):
    """A task that calls a function."""

    call: Callable[[], Any]

    def run(self, context: Any) -> Any:
        return self.call()


class Context:
    on_bytes = None


def raising(error: BaseException) -> Job:
    def call() -> None:
        raise error

    return Job(call)


BUG = "this is a bug in tar2tf: please report it"


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (SourceError("cannot be read", shard="a.tar"), SourceError, "a.tar: cannot be read"),
        (UsageError("wrong", hint="right"), UsageError, "wrong; right"),
        (OSError("odd"), WorkerError, "OSError: odd"),
        (ZeroDivisionError("division by zero"), WorkerError, f"ZeroDivisionError: division by zero; {BUG}"),
        (KeyError("a"), WorkerError, f"KeyError: 'a'; {BUG}"),
    ],
)
def test_an_exception_of_a_task_is_an_outcome(error: Exception, kind: type[Tar2tfError], says: str) -> None:
    task = raising(error)
    outcome = attempt(task, Context())  # type: ignore[arg-type]
    assert (outcome.task, outcome.result, type(outcome.error), str(outcome.error)) == (task, None, kind, says)
    details = vars(outcome.error).get("details", "")
    assert details.startswith("Traceback ") == (BUG in says)
    assert f"{type(error).__name__}: " in details or not details


def test_a_lack_of_memory_is_of_the_machine() -> None:
    outcome = attempt(raising(MemoryError()), Context())  # type: ignore[arg-type]
    assert isinstance(outcome.error, MachineError)


def test_a_task_whose_parent_is_gone_ends() -> None:
    with pytest.raises(BrokenPipeError):
        attempt(raising(BrokenPipeError()), Context())  # type: ignore[arg-type]


class Jobs(Schedule):
    """Tasks of which each leaves other work behind, one of which is done whenever somebody waits."""

    def __init__(self, *tasks: Job) -> None:
        self.tasks = [*tasks]
        self.left, self.waited, self.taken = 0, list[float](), list[Outcome]()

    @property
    def pending(self) -> int:
        return self.left

    def next(self) -> Job | None:
        return self.tasks.pop(0) if self.tasks else None

    def take(self, outcome: Outcome) -> None:
        self.taken.append(outcome)
        self.left += 3

    def settle(self, timeout: float) -> None:
        self.waited.append(timeout)
        self.left -= bool(self.left and timeout)

    def name(self, task: Any) -> str:
        return "b.tar"

    def progress(self, size: int) -> None:
        pass


def test_a_run_waits_for_other_work_only_where_much_is_left_and_at_its_end() -> None:
    jobs = Jobs(*(Job(lambda number=number: number) for number in range(4)))  # type: ignore[misc]
    run_tasks(jobs, InlineEngine(1), Context())  # type: ignore[arg-type]
    assert [outcome.result for outcome in jobs.taken] == [0, 1, 2, 3]
    assert [wait > 0 for wait in jobs.waited] == [False, False, True, True] + [True] * 10
    assert jobs.left == 0


@pytest.mark.parametrize(
    ("error", "where"),
    [(ValueError("x"), "b.tar"), (MemoryError(), "b.tar"), (SourceError("x", shard="a.tar"), "a.tar")],
)
def test_a_failure_of_a_process_or_machine_has_the_file_of_its_task(error: Exception, where: str) -> None:
    jobs = Jobs(raising(error))
    run_tasks(jobs, InlineEngine(1), Context())  # type: ignore[arg-type]
    (outcome,) = jobs.taken
    assert outcome.error
    assert outcome.error.shard == where


def test_a_process_with_threads_is_not_copied() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not may_fork()
    finally:
        end.set()
        thread.join()
