"""Worker processes: what ends them, and what becomes of their tasks."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tar2tf_cli.engines import local
from tar2tf_cli.engines.base import pickled
from tar2tf_cli.engines.local import LocalEngine
from tar2tf_cli.errors import MachineError, UsageError, WorkerError


class Context:
    """A context without values."""

    on_bytes: Callable[[int], None] | None = None


class Ending(NamedTuple):
    """A task that ends its process."""

    how: str
    number: int

    def run(self, context: Any) -> int:
        if self.how == "exit":
            os._exit(self.number)
        if self.how == "kill":
            os.kill(os.getpid(), self.number)
        return os.getpid()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(local, "may_fork", lambda: True)
    engine = LocalEngine(1)
    engine.start(Context())  # type: ignore[arg-type]
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("task", "message", "hint"),
    [
        (Ending("exit", 7), "a worker process exited with 7", None),
        (
            Ending("exit", os.EX_TEMPFAIL),
            "a worker process exited with 75",
            "the machine may be out of memory or threads: use fewer workers (-j)",
        ),
        (
            Ending("kill", signal.SIGKILL),
            "a worker process was killed by SIGKILL",
            "the machine may be out of memory: use fewer workers (-j)",
        ),
        (Ending("kill", signal.SIGTERM), "a worker process was killed by SIGTERM", None),
    ],
)
def test_the_end_of_a_process_is_the_error_of_its_task(
    task: Ending, message: str, hint: str | None, engine: LocalEngine
) -> None:
    engine.submit(task)  # type: ignore[arg-type]
    (outcome,) = engine.wait(60)
    assert (outcome.task, outcome.result, type(outcome.error)) == (task, None, WorkerError)
    assert outcome.error
    assert (outcome.error.message, outcome.error.hint) == (message, hint)
    assert (engine.workers, engine.running) == (0, {})


def test_a_process_that_ends_without_a_task_is_an_error(engine: LocalEngine) -> None:
    task = Ending("return", 0)
    engine.submit(task)  # type: ignore[arg-type]
    (outcome,) = engine.wait(60)
    assert (outcome.task, outcome.error) == (task, None)
    assert outcome.result not in (None, os.getpid())
    os.kill(outcome.result, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"^a worker process was killed by SIGKILL"):
        engine.wait(60)
    assert engine.workers == 0


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(errno.EAGAIN, "no threads"), MachineError), (OSError(errno.EPERM, "no"), OSError)]
)
def test_a_process_that_cannot_be_started_is_an_error(
    error: OSError, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise error

    monkeypatch.setattr(local, "may_fork", lambda: True)
    monkeypatch.setattr(os, "fork", fork)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    engine = LocalEngine(2)
    with pytest.raises(kind):
        engine.start(Context())  # type: ignore[arg-type]
    engine.close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_what_cannot_be_sent_to_a_process_is_told_with_the_next_step() -> None:
    context: Any = Context()
    context.lock = threading.Lock()
    with pytest.raises(UsageError) as caught:
        pickled(context)
    reason = "cannot pickle '_thread.lock' object"
    assert caught.value.message == f"the conversion cannot be sent to a worker process: {reason}"
    assert caught.value.hint == "use one worker, or define the function in a module"


def test_an_error_of_our_own_while_a_context_is_sent_stays_what_it_is() -> None:
    class Refusing:
        def __reduce__(self) -> Any:
            raise UsageError("cannot be sent")

    with pytest.raises(UsageError, match=r"^cannot be sent$"):
        pickled(Refusing())  # type: ignore[arg-type]
