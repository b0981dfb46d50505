"""Tasks on the nodes of a Ray cluster, each as a plain Ray task; only what the driver received counts."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from tar2tf_cli.engines.base import Engine, Outcome, Place, Task, TaskContext, pickled
from tar2tf_cli.engines.ray_cluster import RayCluster, last_line
from tar2tf_cli.engines.ray_worker import Attempt, Setup, SharedContext, run_attempt
from tar2tf_cli.errors import SinkError, UsageError, WorkerError, write_errors

__all__ = ["Meters", "RayEngine", "RayPlace"]

_RETRIES: Final = 3  # of a task whose process or node was lost
_SHORT_RUN: Final = 3.0  # seconds; a run that is shorter shows no progress within tasks
_TRAVELS: Final = ("TAR2TF_", "AIS_", "AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class SharedTask(Task, Protocol):
    """A task that may need what is in the working folder."""

    def needs_folder(self, context: Any, /) -> bool:
        """Whether it reads files of other tasks."""


class RayEngine(Engine):
    """Runs tasks on a cluster, as many at once as asked for.

    An attempt at a task writes to a folder of its own; when the driver has received the result, it moves the files to
    the working folder. If the nodes do not share that, Ray carries the files to the driver, and tasks that need
    files of others run on the driver's node.

    Args:
        cluster: where they run.
        workers: how many run at once.
        carries: whether files may be carried to the driver.
        inputs: paths of some inputs, which every node must see.
    """

    def __init__(self, cluster: RayCluster, workers: int, *, carries: bool, inputs: Sequence[str]) -> None:
        super().__init__(workers)
        self._ray: Any = cluster.ray
        self._cluster = cluster
        self._may_carry = carries
        self._inputs = inputs
        self._carries = False
        self._run = f"tar2tf-{os.urandom(6).hex()}"
        self._meters = Meters(cluster.ray, self._run)

    def start(self, context: TaskContext) -> None:
        """Look at the nodes, and make the context known to them.

        Raises:
            UsageError: when the working folder is not shared but has to be, or the context cannot be pickled.
        """
        shared = cast("SharedContext", context)
        shared.folder = os.path.abspath(shared.folder)
        apart = self._cluster.shares(shared.folder, self._inputs)
        if apart and not self._may_carry:
            raise UsageError(
                f"the node {apart} does not share this folder",
                shard=os.path.dirname(shared.folder),
                hint="write to a folder that all nodes share, or to a bucket",
            )
        self._carries = bool(apart)
        self._context = shared
        payload = _environment(os.environ), pickled(context)
        self._setup = Setup(self._run, [self._ray.put(payload)], shared.folder, os.getcwd())
        home, run = self._ray.get_runtime_context().get_node_id(), self._ray.remote(run_attempt)
        self._anywhere = run.options(num_cpus=shared.threads, max_retries=_RETRIES)
        self._here = self._cluster.pinned(run, home, max_retries=_RETRIES)

    def submit(self, task: Task) -> None:
        """Have Ray run a task, which waits until a node has a CPU for it."""
        here = self._carries and cast("SharedTask", task).needs_folder(self._context)
        run = self._here if here else self._anywhere
        self.running[run.remote(self._setup, task, self._carries and not here)] = task

    def wait(self, timeout: float) -> list[Outcome]:
        """Return the outcomes of tasks that ended; a task that Ray gave up is an error."""
        done, _ = self._ray.wait([*self.running], num_returns=1, timeout=timeout)
        if done:
            done, _ = self._ray.wait([*self.running], num_returns=len(self.running), timeout=0)
        outcomes = [self._outcome(answer) for answer in done]
        self.bytes_read = max(self.bytes_read, self._meters.total(answer.task_id().hex() for answer in self.running))
        return outcomes

    def close(self) -> None:
        """Abandon running tasks; what they still write does not count."""
        if not self._cluster.connected_here:  # or they end with the connection; Ray may abort when both are asked of it
            for answer in self.running:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(answer)
        self.running.clear()
        self._meters.close()

    def _outcome(self, answer: Any) -> Outcome:
        task = self.running.pop(answer)
        try:
            done: Attempt = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            hint = "see ray logs; tasks need less memory if fewer of them run at once (-j)"
            message = f"Ray gave up on a task: {type(error).__name__}: {last_line(error)}"
            return Outcome(task, error=WorkerError(message, hint=hint))
        self._meters.finished += done.size
        if done.error:
            return Outcome(task, error=done.error)
        self._adopt(done)
        return Outcome(task, done.result)

    def _adopt(self, done: Attempt) -> None:
        """Move the files of an attempt to the working folder: spools before the indexes that describe them."""
        folder = self._context.folder
        if done.files is not None:
            done = done._replace(scratch=_stored(folder, done.files))
        try:
            names = sorted(os.listdir(done.scratch), reverse=True)
        except FileNotFoundError:
            hint = "all nodes must share it, also those that join later; run the same command again"
            raise SinkError("a node has another folder of this name", shard=folder, hint=hint) from None
        with write_errors(folder):
            for name in names:
                os.replace(os.path.join(done.scratch, name), os.path.join(folder, name))
            os.rmdir(done.scratch)


class RayPlace(RayCluster, Place):
    """A Ray cluster as the place where tasks run."""

    shared = True

    def engine(self, workers: int, *, carries: bool, inputs: Sequence[str]) -> RayEngine:
        return RayEngine(self, workers, carries=carries, inputs=inputs)


def _stored(folder: str, files: Mapping[str, Any]) -> str:
    """Write files that Ray carried here to a new folder."""
    with write_errors(folder):
        scratch = tempfile.mkdtemp(prefix=".attempt-", dir=folder)
        for name, data in files.items():
            with open(os.path.join(scratch, name), "wb") as file:
                file.write(data)
    return scratch


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that say how stores are reached, which a node's processes do not inherit.

    They go through the object store, since a runtime environment is shown to everybody who sees Ray's dashboard.
    """
    return {name: value for name, value in variables.items() if name.startswith(_TRAVELS) or name.upper() in _PROXIES}


class _Counts:
    """An actor: how many bytes each running task has read."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def note(self, task: str, size: int) -> None:
        self._sizes[task] = size

    def sizes(self) -> dict[str, int]:
        return self._sizes


class Meters:
    """The number of bytes read: by tasks that ended and, once a run has lasted a while, by those that are running."""

    def __init__(self, ray: Any, run: str) -> None:
        self.finished = 0
        self._ray = ray
        self._run = run
        self._began = time.monotonic()
        self._sizes: dict[str, int] = {}
        self._actor: Any = None
        self._asked: Any = None

    def total(self, running: Iterable[str]) -> int:
        if self._actor is None and time.monotonic() - self._began > _SHORT_RUN:
            self._actor = self._ray.remote(_Counts).options(name=self._run, num_cpus=0).remote()
            self._asked = self._actor.sizes.remote()
        with contextlib.suppress(self._ray.exceptions.RayError):  # without it, there is no progress within tasks
            if self._asked and self._ray.wait([self._asked], timeout=0)[0]:
                self._sizes = self._ray.get(self._asked)
                self._asked = self._actor.sizes.remote()
        return self.finished + sum(self._sizes.get(task, 0) for task in running)

    def close(self) -> None:
        if self._actor:
            self._ray.kill(self._actor)
            self._actor = None
