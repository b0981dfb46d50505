"""What runs on the nodes of a Ray cluster: attempts at tasks, each in a folder of its own, and the probe of a node."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tar2tf_cli.engines.base import Outcome, Task, TaskContext, attempt
from tar2tf_cli.errors import Tar2tfError, write_failed

__all__ = ["Attempt", "Meter", "Probed", "Setup", "SharedContext", "probe", "run_attempt", "token_file", "version"]

_PROGRESS_SECONDS: Final = 1.0


class SharedContext(TaskContext, Protocol):
    """A context whose tasks leave their files in a folder.

    Attributes:
        folder: where tasks find the files of other tasks.
        scratch: where a task leaves its own; set for each attempt, and empty where tasks write to `folder`.
        threads: how many threads a task uses.
    """

    folder: str
    scratch: str
    threads: int


class Setup(NamedTuple):
    """What all attempts of a run share.

    Attributes:
        run: a name that no other run has.
        context: reference to the pickled environment and context, in a list, as Ray would pass on a copy otherwise.
        folder: the working folder of the driver.
        working_directory: that of the driver, for relative paths.
    """

    run: str
    context: list[Any]
    folder: str
    working_directory: str


class Attempt(NamedTuple):
    """What came of an attempt.

    Attributes:
        result: what the task returned.
        error: why it failed.
        size: bytes of input read.
        scratch: the folder of the files that it left.
        files: the bytes of these by name, if the driver cannot see that folder; otherwise None.
    """

    result: Any
    error: Tar2tfError | None
    size: int
    scratch: str
    files: dict[str, Any] | None = None


def run_attempt(setup: Setup, task: Task, carried: bool) -> Attempt:
    """Run a task once; whatever it writes is in a folder that no other attempt knows.

    The result counts only when the driver has received it, so an attempt that Ray gave up and that ends late changes
    nothing. To make the folder first also renews what an NFS client remembers of the folder around it.

    Args:
        setup: what all attempts share.
        task: the task.
        carried: whether this node does not share the working folder with the driver.
    """
    context = _context(setup)
    context.on_bytes = meter = Meter(setup.run)
    try:
        context.scratch = tempfile.mkdtemp(prefix=".attempt-", dir=None if carried else setup.folder)
    except OSError as error:
        return Attempt(None, write_failed(setup.folder, error), 0, "")
    context.folder = context.scratch if carried else setup.folder
    outcome = Outcome(task)
    try:
        outcome = attempt(task, context)
        files = _taken(context.scratch) if carried and not outcome.error else None
        return Attempt(outcome.result, outcome.error, meter.size, context.scratch, files)
    finally:
        if carried or outcome.error:
            shutil.rmtree(context.scratch, ignore_errors=True)


_known: dict[str, SharedContext] = {}


def _context(setup: Setup) -> SharedContext:
    """The context of a run, unpickled by its first attempt in this process."""
    if setup.run not in _known:
        import ray

        environment, pickled = ray.get(setup.context[0])
        os.environ.update(environment)
        _change_directory(setup.working_directory)
        _known.clear()
        _known[setup.run] = pickle.loads(pickled)
    return _known[setup.run]


def _change_directory(path: str) -> None:
    """Make relative paths mean what they mean to the driver, unless this node has no such folder."""
    with contextlib.suppress(OSError):
        os.chdir(path)


def _taken(folder: str) -> dict[str, Any]:
    """The bytes of the files in a folder, mapped rather than read, since Ray copies them from there."""
    taken: dict[str, Any] = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
        taken[name] = np.frombuffer(mapped, np.uint8)
    return taken


class Meter:
    """Adds up the bytes that an attempt reads; a run that lasts has an actor that is sent the sum."""

    def __init__(self, run: str) -> None:
        self.size = 0
        self._run = run
        self._sent = time.monotonic()
        self._actor: Any = None

    def __call__(self, size: int) -> None:
        self.size += size
        if time.monotonic() - self._sent > _PROGRESS_SECONDS:
            import ray

            self._sent = time.monotonic()
            with contextlib.suppress(ValueError, ray.exceptions.RayError):  # there is no actor, or not yet
                self._actor = self._actor or ray.get_actor(self._run)
                self._actor.note.remote(ray.get_runtime_context().get_task_id(), self.size)


class Probed(NamedTuple):
    """What a node can do.

    Attributes:
        version: its version of tar2tf.
        shares: whether it sees the driver's file in the folder; it then leaves one there itself.
        missing: inputs that it does not see.
    """

    version: str
    shares: bool
    missing: list[str]


def token_file(folder: str, token: str, node: str) -> str:
    """Path of the file in which the driver or a node proves that it can write to a folder."""
    return os.path.join(folder, f".{token}-{node}")


def version() -> str:
    """The version of tar2tf in this process."""
    return str(import_module(__name__.partition(".")[0]).__version__)


def probe(folder: str, token: str, node: str, inputs: Sequence[str], working_directory: str) -> Probed:
    """Look for the driver's file in a folder and leave one there; look for inputs."""
    _change_directory(working_directory)
    shares = False
    with contextlib.suppress(OSError):
        shares = os.path.exists(token_file(folder, token, "driver"))
        with open(token_file(folder, token, node), "x"):
            pass
    return Probed(version(), shares, [path for path in inputs if not os.path.exists(path)])
