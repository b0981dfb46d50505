"""Tasks on the nodes of a Ray cluster, each a plain Ray task; only results that the driver received count."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tar2tf_cli.api.backend import Backend, Engine, Outcome, Task
from tar2tf_cli.engines.base import Clock, attempt, pickled
from tar2tf_cli.errors import SinkError, Tar2tfError, UsageError, WorkerError, write_errors, write_failed
from tar2tf_cli.spec import __version__

_PROGRESS_SECONDS: Final = 1.0


class Setup(NamedTuple):
    """The values shared by all task attempts of a run.

    Attributes:
        run: a name that no other run has.
        context: reference to the pickled environment and context, in a list, since Ray would pass a copy otherwise.
        folder: the working folder of the driver.
        working_directory: the current directory of the driver, for relative paths.
    """

    run: str
    context: list[Any]
    folder: str
    working_directory: str


class AttemptResult(NamedTuple):
    """The result of a task attempt.

    Attributes:
        result: the task's result.
        error: the error of a task that failed.
        size: bytes of input read.
        scratch: the folder of its temporary files.
        files: the bytes of these files by name, if the driver cannot see that folder; otherwise None.
    """

    result: Any
    error: Tar2tfError | None
    size: int
    scratch: str
    files: dict[str, Any] | None = None


def run_attempt(setup: Setup, task: Task, carried: bool) -> AttemptResult:
    """Run one attempt of a task, which writes to a folder of its own.

    The result counts only when the driver has received it, so an attempt that ends after Ray gave it up changes
    nothing. Creating the folder first also refreshes an NFS client's cache of the parent folder.

    Args:
        setup: the values shared by all attempts.
        task: the task.
        carried: whether this node does not share the working folder with the driver.
    """
    context = _context(setup)
    context.on_bytes = meter = Meter(setup.run)
    try:
        context.scratch = tempfile.mkdtemp(prefix=".attempt-", dir=None if carried else setup.folder)
    except OSError as error:
        return AttemptResult(None, write_failed(setup.folder, error), 0, "")
    context.folder = context.scratch if carried else setup.folder
    outcome = Outcome(task)
    try:
        outcome = attempt(task, context)
        files = _mapped_files(context.scratch) if carried and not outcome.error else None
        return AttemptResult(outcome.result, outcome.error, meter.size, context.scratch, files)
    finally:
        if carried or outcome.error:
            shutil.rmtree(context.scratch, ignore_errors=True)


_known: dict[str, Any] = {}


def _context(setup: Setup) -> Any:
    """Return the context of a run, unpickled by the first attempt in this process."""
    if setup.run not in _known:
        import ray

        environment, pickled = ray.get(setup.context[0])
        os.environ.update(environment)
        _change_directory(setup.working_directory)
        _known.clear()
        _known[setup.run] = pickle.loads(pickled)
    return _known[setup.run]


def _change_directory(path: str) -> None:
    """Change to the driver's working directory, if this node has it, so that relative paths work."""
    with contextlib.suppress(OSError):
        os.chdir(path)


def _mapped_files(folder: str) -> dict[str, object]:
    """Return the bytes of the files in a folder, memory-mapped, since Ray copies them anyway."""
    taken: dict[str, Any] = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
        taken[name] = np.frombuffer(mapped, np.uint8)
    return taken


class Meter:
    """Counts the bytes that an attempt reads, and reports the sum to an actor in long runs."""

    def __init__(self, run: str) -> None:
        self.size = 0
        self._run = run
        self._clock = Clock(_PROGRESS_SECONDS)
        self._actor: Any = None

    def __call__(self, size: int) -> None:
        self.size += size
        if self._clock.is_due():
            import ray

            with contextlib.suppress(ValueError, ray.exceptions.RayError):  # the actor does not exist, or not yet
                self._actor = self._actor or ray.get_actor(self._run)
                self._actor.note.remote(ray.get_runtime_context().get_task_id(), self.size)


class NodeProbe(NamedTuple):
    """The answer of a node to a probe.

    Attributes:
        version: its version of tar2tf.
        shares: whether it sees the driver's file in the folder, in which case it writes one itself.
        missing: inputs that it does not see.
    """

    version: str
    shares: bool
    missing: list[str]


def token_file(folder: str, token: str, node: str) -> str:
    """Return the path of a file with which the driver or a node proves that it can write to a folder."""
    return os.path.join(folder, f".{token}-{node}")


def probe(folder: str, token: str, node: str, inputs: Sequence[str], working_directory: str) -> NodeProbe:
    """Check on a node whether the driver's file is visible in a folder, write the node's own, and look for inputs."""
    _change_directory(working_directory)
    shares = False
    with contextlib.suppress(OSError):
        shares = os.path.exists(token_file(folder, token, "driver"))
        with open(token_file(folder, token, node), "x"):
            pass
    return NodeProbe(__version__, shares, [path for path in inputs if not os.path.exists(path)])


_CONNECT_SECONDS: Final = 5.0
_SUBMIT: Final = "run it in the cluster: ray job submit --address http://HEAD:8265 -- tar2tf convert ... --engine ray"


class RayBackend(Backend):
    """A Ray cluster, to which this process connects when its CPUs or nodes are first needed.

    Args:
        address: `HOST:PORT` or `auto`; by default RAY_ADDRESS, then the cluster of this machine, then a new one here.

    Attributes:
        ray: the module `ray`, which is imported only here.
        connected_here: whether this object opened the connection, rather than the caller's program.

    Raises:
        UsageError: when Ray is not installed, or the address is that of a Ray Client server.
    """

    shared = True

    def __init__(self, address: str | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self.connected_here = False
        if self._address and "://" in self._address:
            raise UsageError(f"{self._address} is an address for use from outside the cluster", hint=_SUBMIT)
        try:
            import ray
        except ImportError:
            raise UsageError("Ray is not installed", hint="pip install 'tar2tf-cli[ray]'") from None
        self.ray: Any = ray

    def engine(self, workers: int, *, carries: bool, inputs: Sequence[str]) -> RayEngine:
        """Create an engine that runs tasks on the nodes."""
        return RayEngine(self, workers, carries=carries, inputs=inputs)

    @property
    def cpus(self) -> int:
        """Return the total number of CPUs of all nodes.

        Raises:
            WorkerError: when there is no cluster at the address.
        """
        self._connect()
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def threads(self, wanted: int) -> int:
        """Return the maximum number of threads of a task, so that some node can run it."""
        return min(wanted, max(1, *(int(node["Resources"].get("CPU", 0)) for node in self._nodes())))

    def close(self) -> None:
        """Disconnect, if this object has connected the process."""
        if self.connected_here:
            self.ray.shutdown()
            self.connected_here = False

    def shares(self, folder: str, inputs: Sequence[str]) -> str | None:
        """Check that every node can run tasks, and return why some do not share a folder with this process; or None.

        Returns:
            A node that has another folder of that name, or none; None if all share it.

        Raises:
            UsageError: when a node cannot run tasks, or does not see an input.
        """
        token = os.urandom(8).hex()
        ours = token_file(folder, token, "driver")
        with write_errors(folder), open(ours, "x"):
            pass
        nodes = [*self._probed(folder, token, inputs)]
        shared = {node for _, node, probed in nodes if _remove(token_file(folder, token, node)) and probed.shares}
        os.unlink(ours)
        for name, _, probed in nodes:
            _check(name, probed)
        return next((name for name, node, _ in nodes if node not in shared), None)

    def _probed(self, folder: str, token: str, inputs: Sequence[str]) -> Iterator[tuple[str, str, NodeProbe]]:
        """Yield name, id and answer of each node."""
        asked = []
        for node in self._nodes():
            pinned = self.pinned(self.ray.remote(probe), node["NodeID"], max_retries=1)
            answer = pinned.remote(folder, token, node["NodeID"], inputs, os.getcwd())
            asked.append((f"{node['NodeName']} ({node['NodeID'][:8]})", node["NodeID"], answer))
        for name, node, answer in asked:
            try:
                yield name, node, self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                if node in {alive["NodeID"] for alive in self._nodes()}:  # else the node died, which Ray notices late
                    raise self._cannot_run(name, error) from None

    def _cannot_run(self, name: str, error: Exception) -> Tar2tfError:
        """Return the error for a node that could not be probed: a missing requirement, or the node itself."""
        message = f"the node {name} cannot run tar2tf: {last_line(error)}"
        lacks = self.ray.exceptions.RayTaskError, self.ray.exceptions.RuntimeEnvSetupError
        if isinstance(error, lacks):
            hint = "install the same tar2tf there, or submit the command with a --runtime-env-json that does"
            return UsageError(message, hint=hint)
        return WorkerError(message, hint="run the same command again; see ray status")

    def pinned(self, function: Any, node: str, **options: Any) -> Any:
        """Return a remote function that runs on one node, even if its CPUs are busy."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        return function.options(num_cpus=0, scheduling_strategy=strategy, **options)

    def _nodes(self) -> list[dict[str, Any]]:
        self._connect()
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        address = self._address or local_cluster_address() or "local"
        _check_reachable(address)
        before = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        except Exception as error:  # Ray raises a plain Exception when its processes start too slowly
            if address == "local":
                raise WorkerError(f"Ray did not start on this machine: {last_line(error)}", hint=_AGAIN) from None
            raise WorkerError(f"there is no Ray cluster at {address}: {last_line(error)}", hint=_START) from None
        finally:
            with contextlib.suppress(ValueError, TypeError):  # not the main thread, or a handler not set from Python
                signal.signal(signal.SIGTERM, before)
        self.connected_here = True


_START: Final = "see ray status, or leave out --address to start one on this machine"
_AGAIN: Final = "run the same command again, on a machine that is less busy, or see the logs in /tmp/ray"


def local_cluster_address() -> str | None:
    """Return the address of the cluster that `ray start` started on this machine; None if it has ended."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with contextlib.suppress(OSError, WorkerError), open(os.path.join(folder, "ray", "ray_current_cluster")) as file:
        address = file.read().strip()
        _check_reachable(address)
        return address
    return None


def _check_reachable(address: str) -> None:
    """Raise an error if nothing listens at an address, as Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise WorkerError(f"there is no Ray cluster at {address}: {error.strerror or error}", hint=_START) from None


def _remove(path: str) -> bool:
    """Remove a file, and return whether it existed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _check(name: str, probed: NodeProbe) -> None:
    if probed.version != __version__:
        hint = "install the same version on all nodes"
        raise UsageError(f"the node {name} has tar2tf {probed.version}, but this is {__version__}", hint=hint)
    if probed.missing:
        hint = "put the inputs in a folder that all nodes share, or in a bucket"
        raise UsageError(f"the node {name} does not see this input", shard=probed.missing[0], hint=hint)


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text, without Ray's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


_RETRIES: Final = 3  # for a task whose process or node was lost
SHORT_RUN: Final = 3.0  # seconds; a run that is shorter shows no progress within tasks
_TRAVELS: Final = ("TAR2TF_", "AIS_", "AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class RayEngine(Engine):
    """Engine that runs tasks on a Ray cluster, with limited concurrency.

    Each attempt at a task writes to its own folder; when the driver has received the result, it moves the files to the
    working folder. If the nodes do not share the working folder, Ray transfers the files to the driver, and tasks that
    need files of other tasks run on the driver's node.

    Contexts have more attributes than with other engines: `folder`, which contains the files of other tasks; `scratch`,
    the folder for the files of an attempt; and `threads`, the number of threads of a task. A task's
    `needs_folder(context)` returns whether it reads files of other tasks.

    Args:
        cluster: the cluster on which tasks run.
        workers: the number of tasks that run at once.
        carries: whether files may be transferred to the driver.
        inputs: paths of some inputs, which every node must see.
    """

    def __init__(self, cluster: RayBackend, workers: int, *, carries: bool, inputs: Sequence[str]) -> None:
        super().__init__(workers)
        self._ray: Any = cluster.ray
        self._cluster = cluster
        self._may_carry = carries
        self._inputs = inputs
        self._carries = False
        self._run = f"tar2tf-{os.urandom(6).hex()}"
        self._meters = Meters(cluster.ray, self._run)

    def start(self, context: Any) -> None:
        """Probe the nodes, and send them the context.

        Raises:
            UsageError: when the working folder must be shared but is not, or the context cannot be pickled.
        """
        context.folder = folder = os.path.abspath(context.folder)
        apart = self._cluster.shares(folder, self._inputs)
        if apart and not self._may_carry:
            raise UsageError(
                f"the node {apart} does not share this folder",
                shard=os.path.dirname(folder),
                hint="write to a folder that all nodes share, or to a bucket",
            )
        self._carries = bool(apart)
        self._context = context
        payload = _environment(os.environ), pickled(context)
        self._setup = Setup(self._run, [self._ray.put(payload)], folder, os.getcwd())
        home, run = self._ray.get_runtime_context().get_node_id(), self._ray.remote(run_attempt)
        self._anywhere = run.options(num_cpus=context.threads, max_retries=_RETRIES)
        self._here = self._cluster.pinned(run, home, max_retries=_RETRIES)

    def submit(self, task: Any) -> None:
        """Submit a task to Ray, which queues it until a node has a free CPU."""
        here = self._carries and task.needs_folder(self._context)
        run = self._here if here else self._anywhere
        self.running[run.remote(self._setup, task, self._carries and not here)] = task

    def wait(self, timeout: float) -> list[Outcome]:
        """Return the outcomes of ended tasks; a task that Ray gave up is an error."""
        done, _ = self._ray.wait([*self.running], num_returns=1, timeout=timeout)
        if done:
            done, _ = self._ray.wait([*self.running], num_returns=len(self.running), timeout=0)
        outcomes = [self._outcome(answer) for answer in done]
        self.bytes_read = max(self.bytes_read, self._meters.total(answer.task_id().hex() for answer in self.running))
        return outcomes

    def close(self) -> None:
        """Abandon running tasks, whose later output is ignored."""
        if not self._cluster.connected_here:  # otherwise tasks end with the connection; Ray may abort when doing both
            for answer in self.running:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(answer)
        self.running.clear()
        self._meters.close()

    def _outcome(self, answer: object) -> Outcome:
        task = self.running.pop(answer)
        try:
            done: AttemptResult = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            hint = "see ray logs; tasks need less memory if fewer of them run at once (-j)"
            message = f"Ray gave up on a task: {type(error).__name__}: {last_line(error)}"
            return Outcome(task, error=WorkerError(message, hint=hint))
        self._meters.finished += done.size
        if done.error:
            return Outcome(task, error=done.error)
        self._adopt(done)
        return Outcome(task, done.result)

    def _adopt(self, done: AttemptResult) -> None:
        """Move an attempt's files to the working folder: spools before the indexes that describe them."""
        folder = self._context.folder
        if done.files is not None:
            done = done._replace(scratch=_written(folder, done.files))
        try:
            names = sorted(os.listdir(done.scratch), reverse=True)
        except FileNotFoundError:
            hint = "all nodes must share it, also those that join later; run the same command again"
            raise SinkError("a node has another folder of this name", shard=folder, hint=hint) from None
        with write_errors(folder):
            for name in names:
                os.replace(os.path.join(done.scratch, name), os.path.join(folder, name))
            os.rmdir(done.scratch)


def _written(folder: str, files: Mapping[str, Any]) -> str:
    """Write files that Ray transferred to a new folder."""
    with write_errors(folder):
        scratch = tempfile.mkdtemp(prefix=".attempt-", dir=folder)
        for name, data in files.items():
            with open(os.path.join(scratch, name), "wb") as file:
                file.write(data)
    return scratch


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that configure stores, which processes on nodes do not inherit.

    They go through the object store, since Ray's dashboard shows a runtime environment to everybody.
    """
    return {name: value for name, value in variables.items() if name.startswith(_TRAVELS) or name.upper() in _PROXIES}


class _Counts:
    """Actor that holds the number of bytes read by each running task."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def note(self, task: str, size: int) -> None:
        self._sizes[task] = size

    def sizes(self) -> dict[str, int]:
        return self._sizes


class Meters:
    """The number of bytes read by ended tasks and, in long runs, by running ones."""

    def __init__(self, ray: Any, run: str) -> None:
        self.finished = 0
        self._ray = ray
        self._run = run
        self._began = time.monotonic()
        self._sizes: dict[str, int] = {}
        self._actor: Any = None
        self._asked: Any = None

    def total(self, running: Iterable[str]) -> int:
        if self._actor is None and time.monotonic() - self._began > SHORT_RUN:
            self._actor = self._ray.remote(_Counts).options(name=self._run, num_cpus=0).remote()
            self._asked = self._actor.sizes.remote()
        with contextlib.suppress(self._ray.exceptions.RayError):  # without the actor, there is no progress within tasks
            if self._asked and self._ray.wait([self._asked], timeout=0)[0]:
                self._sizes = self._ray.get(self._asked)
                self._asked = self._actor.sizes.remote()
        return self.finished + sum(self._sizes.get(task, 0) for task in running)

    def close(self) -> None:
        if self._actor:
            self._ray.kill(self._actor)
            self._actor = None
