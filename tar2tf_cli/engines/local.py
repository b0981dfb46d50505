"""The engine of worker processes on this machine, each with a socket for its tasks; they end with their parent."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import selectors
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, Final

from tar2tf_cli.api.backend import Engine, Outcome, Task, TaskContext
from tar2tf_cli.engines.base import PROGRESS_SECONDS, Clock, attempt, keep_memory, pickled
from tar2tf_cli.errors import WorkerError, machine_error
from tar2tf_cli.events import set_waiting, waiting
from tar2tf_cli.structs import NamedTuple


class LocalEngine(Engine):
    """An engine of a fixed number of worker processes, each running one task at a time.

    Args:
        workers: number of processes.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._idle: list[_WorkerProcess] = []
        self._selector = selectors.DefaultSelector()

    def start(self, context: TaskContext) -> None:
        """Start the processes; when this process ends, their sockets close and they end too.

        Raises:
            UsageError: when the context has to be pickled but cannot be.
            MachineError: when the machine has no resources for another process.
        """
        flush_prints()
        forks = may_fork()
        with _no_interrupt():
            for _ in range(self.workers):
                try:
                    process = _fork(context, self._idle) if forks else _spawn(context)
                except OSError as error:
                    raise machine_error(error) or error from None
                self._idle.append(process)
                self._selector.register(process.socket, selectors.EVENT_READ, process)

    def submit(self, task: Task) -> None:
        """Send a task to an idle process."""
        process = self._idle.pop()
        self.running[process] = task
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next `wait` reports its death
            _send(process.socket, task)

    def wait(self, timeout: float) -> list[Outcome]:
        """Return outcomes of finished tasks; the death of a process is the error of its task."""
        outcomes = [self._outcome(key.data) for key, _ in self._selector.select(timeout)]
        return [outcome for outcome in outcomes if outcome]

    def close(self) -> None:
        """Kill every process and wait for its end."""
        processes = [*self._idle, *self.running]
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            self._selector.unregister(process.socket)
            process.socket.close()
            os.waitpid(process.pid, 0)
        self._idle.clear()
        self.running.clear()
        self._selector.close()

    def _outcome(self, process: _WorkerProcess) -> Outcome | None:
        """Return the outcome that a process sent, or an error if it died; None while its task runs."""
        try:
            size, outcome, text = _receive(process.socket)
        except (EOFError, ConnectionResetError):
            return self._died(process)
        self.bytes_read += size
        if text:
            waiting(text)
        if outcome is None:
            return None
        self._idle.append(process)
        return Outcome(self.running.pop(process), *outcome)

    def _died(self, process: _WorkerProcess) -> Outcome:
        self._selector.unregister(process.socket)
        process.socket.close()
        _, status = os.waitpid(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.workers -= 1
        if process in self._idle:
            self._idle.remove(process)
        task = self.running.pop(process, None)
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        lacks = {-signal.SIGKILL: "memory", _LACKING: "memory or threads"}.get(code)
        hint = f"the machine may be out of {lacks}: use fewer workers (-j)" if lacks else None
        error = WorkerError(f"a worker process {reason}", hint=hint)
        if task is None:
            raise error
        return Outcome(task, error=error)


class _WorkerProcess(NamedTuple):
    pid: int
    socket: socket.socket


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until all workers ignore it and the list of workers is complete."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fork(context: TaskContext, siblings: list[_WorkerProcess]) -> _WorkerProcess:
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():  # Python 3.12 warns of any thread
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        theirs.close()
        return _WorkerProcess(pid, ours)
    code = 1
    try:
        ours.close()
        for sibling in siblings:  # otherwise they would not notice their parent's end
            sibling.socket.close()
        _set_up()
        _serve(theirs, context)
        code = 0
    except Exception as error:
        code = _LACKING if machine_error(error) else 1
    finally:
        os._exit(code)


_LACKING: Final = os.EX_TEMPFAIL
"""Exit code of a worker process that cannot start, as the machine lacks threads or memory."""


def flush_prints() -> None:
    """Flush the output that functions of the user have printed so far."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # its reader has closed the pipe
            stream.flush()


_IDLE: Final = ("tokio-rt-worker", "jemalloc_bg_thd")
"""Names of threads that do not prevent a fork: those of obstore's runtime, which sleep between requests while a forked
process loads its own runtime, and the one of pyarrow's jemalloc, which holds no lock during a fork (pthread_atfork)."""


def may_fork() -> bool:
    """Whether this process has only one thread, counting those of libraries except idle ones."""
    if threading.active_count() > 1:
        return False
    for _ in range(5):
        names = list(_threads())
        if len(names) - sum(name in _IDLE for name in names) <= 1:
            return True
        time.sleep(0.002)  # a thread that was joined may still be ending
    return False


def _threads() -> Iterator[str]:
    """Yield the names of all threads of this process, including those of libraries; none except on Linux."""
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/self/task/{task}/comm") as file:
                    name = file.read().strip()
                yield name


_SPAWNED: Final = "import sys; from tar2tf_cli.engines.local import serve_spawned; serve_spawned(int(sys.argv[1]))"


def _spawn(context: TaskContext) -> _WorkerProcess:
    data = pickled(context)
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    arguments = [sys.executable, "-c", _SPAWNED, str(theirs.fileno())]
    pid = os.posix_spawn(sys.executable, arguments, environment, file_actions=_inherit_output())
    theirs.close()
    process = _WorkerProcess(pid, ours)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next `wait` reports its death
        _send(ours, data)
    return process


def _inherit_output() -> list[tuple[int, int, int]]:
    """Return the file actions by which a spawned process prints to this one's output, unless that is not a file."""
    with contextlib.suppress(AttributeError, OSError):
        return [(os.POSIX_SPAWN_DUP2, sys.stdout.fileno(), 1)]
    return []


def serve_spawned(descriptor: int) -> None:
    """Serve tasks in a new interpreter: receive the context, then tasks until the other end of the socket closes."""
    _set_up()
    channel = socket.socket(fileno=descriptor)
    with contextlib.suppress(EOFError, ConnectionResetError):
        _serve(channel, pickle.loads(_receive(channel)))


_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
"""Environment variables that limit the threads of numpy and OpenCV in each process, by default one for every CPU."""


def _set_up() -> None:
    """Prepare a worker process: ignore Ctrl-C, which the parent handles, and keep libraries from starting threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_memory()
    for name in _THREADS:
        os.environ.setdefault(name, "1")


def _serve(channel: socket.socket, context: TaskContext) -> None:
    """Run incoming tasks until the other end of the socket closes."""
    threading.Thread(target=_end_with_parent, args=(channel.fileno(),), daemon=True).start()
    progress = _Progress(channel)
    context.on_bytes = progress
    set_waiting(progress.say)
    while True:
        try:
            task = _receive(channel)
        except (EOFError, ConnectionResetError):
            return
        outcome = attempt(task, context)
        flush_prints()  # this process is killed once there are no more tasks
        progress.send((outcome.result, outcome.error))


def _end_with_parent(descriptor: int) -> None:
    """End this process as soon as the other end of its socket closes."""
    poll = select.poll()
    poll.register(descriptor, select.POLLHUP)
    poll.poll()
    os._exit(1)


class _Progress:
    """Counts bytes read and reports them a few times a second; raises an error when the parent has ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._bytes = 0
        self._clock = Clock(PROGRESS_SECONDS)

    def __call__(self, size: int) -> None:
        self._bytes += size
        if self._clock.is_due():
            self.send()

    def send(self, outcome: tuple[object, object] | None = None) -> None:
        """Send the bytes read so far, and the result and error of a task that has ended."""
        with self._sending:
            _send(self._channel, (self._bytes, outcome, ""))
        self._bytes = 0

    def say(self, text: str) -> None:
        """Send a message about waiting; callable from any thread."""
        with self._sending:
            _send(self._channel, (0, None, text))


def _send(channel: socket.socket, message: object) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    channel.sendall(len(data).to_bytes(8, "little") + data)


def _receive(channel: socket.socket) -> Any:
    length = int.from_bytes(_receive_exactly(channel, 8), "little")
    return pickle.loads(_receive_exactly(channel, length))


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = channel.recv(min(size, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
