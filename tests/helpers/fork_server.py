"""The command in a process of its own without the 0.2 s that an interpreter takes to start: forked from one that waits.

`run` behaves as `subprocess.run` of `python -m tar2tf_cli` does, or of `python` itself. The processes are forked from a
server, this file run as a script, which has imported what the command imports. It has imported TensorFlow only if that
is asked for, which saves 2.6 s of CPU each time, and hides it until the process imports it. What a test wants to know
of the start itself (imports, closed streams, terminals, memory) needs a real process. The processes of pytest-xdist are
forked in the same way, and share the servers of the one that starts them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib.util
import marshal
import os
import pkgutil
import resource
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

HEAVY = {"tensorflow", "aistore", "obstore", "boto3"}
"""What importing the package does not import."""

HEAVY_MODULES = ("remote.server", "datasets.parsing", "datasets.record_op")
"""Modules of the package that import one of these at once."""

LATER = ("difflib", "humanfriendly", "importlib.metadata", "isal.isal_zlib", "simplejpeg", "ruamel.yaml", "braceexpand")
"""What many commands import while they run."""

CLIENT = Path(__file__).with_name("fork_client.py")

START_SECONDS = 200


# --- The side of the tests ---


class _Server:
    """The process to fork from; started when first needed, ended with this one."""

    def __init__(self, tensorflow: bool) -> None:
        self.folder = short_folder("forked-")
        self.path = os.path.join(self.folder.name, "s")
        self.owner = os.getpid()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, self.path, *(["tensorflow"] if tensorflow else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        atexit.register(self.end)

    def end(self) -> None:
        if os.getpid() == self.owner:
            self.process.communicate(timeout=60)  # it ends when its standard input does
            self.folder.cleanup()


def short_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder for a socket, whose path may have 107 bytes only, whatever TMPDIR is."""
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    fits = len(os.fsencode(root)) < 64
    return tempfile.TemporaryDirectory(prefix=prefix, dir=root if fits else "/tmp", ignore_cleanup_errors=True)


def _connect(path: str) -> socket.socket:
    deadline = time.monotonic() + START_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline:
                raise RuntimeError("the server of processes did not start, or ended") from None
            time.sleep(0.02)
        else:
            return connection


def share() -> str:
    """Have all processes that begin with this one's environment use its servers; the command of a `python` of them."""
    for tensorflow in (True, False):
        os.environ[_shared(tensorflow)] = _server(tensorflow)
    return command(python=True)


def command(*, python: bool = False) -> str:
    """A command for shells that is `tar2tf`, or a `python` beside TensorFlow, whose processes are forked."""
    run(["-c", ""] if python else ["--version"], env={**os.environ}, python=python, tensorflow=python)  # it listens now
    return shlex.join([sys.executable, "-ISs", str(CLIENT), _server(tensorflow=python), str(int(python))])


def script(*, python: bool = False) -> str:
    """A shell script that is this command."""
    return f'#!/bin/sh\nexec {command(python=python)} "$@"\n'


_servers: dict[tuple[int, str], _Server] = {}
_lock = threading.Lock()


def _shared(tensorflow: bool) -> str:
    """The variable that names the shared server of this tree in this process's network, which tests change."""
    try:
        network = os.readlink("/proc/thread-self/ns/net")
    except FileNotFoundError:  # no Linux
        network = ""
    return f"FORKED_{'TENSORFLOW' if tensorflow else 'PLAIN'}_{network}_{__file__}"


def _server(tensorflow: bool) -> str:
    """Where the server listens that processes of this one in its network are forked from."""
    variable = _shared(tensorflow)
    if path := os.environ.get(variable):
        return path
    with _lock:
        key = os.getpid(), variable
        if key not in _servers:
            _servers[key] = _Server(tensorflow)
        return _servers[key].path


def run(
    arguments: list[str],
    *,
    env: dict[str, str],
    cwd: str | os.PathLike[str] | None = None,
    input: bytes | None = None,
    stdin: int | None = None,
    timeout: float = 60,
    code: str | None = None,
    file_size: int | None = None,
    python: bool = False,
    tensorflow: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with these arguments, and capture what it writes.

    Args:
        code: Python to run instead, as `python -c` does.
        python: whether the command is `python`.
        tensorflow: whether to fork from the process that has imported it.
        file_size: the most bytes that the process may have in a file.

    Raises:
        subprocess.TimeoutExpired: when it takes longer; it is killed.
    """
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(open(_stream(), "r+b")) for _ in range(2))
        writer = None
        if input is not None:
            reader, writer = os.pipe()
        else:
            reader = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        streams = (reader, os.dup(out.fileno()), os.dup(err.fileno()))
        asked = {"arguments": arguments, "env": env, "cwd": os.fspath(cwd or os.getcwd()), "python": python}
        with _ask(streams, tensorflow=tensorflow, **asked, code=code, file_size=file_size) as connection:
            if writer is not None:
                threading.Thread(target=_feed, args=(writer, input), daemon=True).start()
            with connection.makefile("r") as answers:
                pid = int(answers.readline())
                connection.settimeout(timeout)
                try:
                    code = int(answers.readline())
                except TimeoutError:
                    os.killpg(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(arguments, timeout) from None
        return subprocess.CompletedProcess(arguments, code, *(_whole(file) for file in (out, err)))


def _ask(streams: tuple[int, ...], *, tensorflow: bool, **asked: Any) -> socket.socket:
    """Have a process started with these streams, which are closed here; the answers are its pid, and how it ended."""
    connection = _connect(_server(tensorflow))
    socket.send_fds(connection, [b"."], list(streams))
    for stream in streams:
        os.close(stream)
    connection.sendall(marshal.dumps(asked))
    return connection


class Process:
    """A command that was started here: what `subprocess.Popen` has of it, and the leader of a process group of its own.

    Each stream is a pipe, or the null device. `code` is Python to run instead, as in `run`.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        env: dict[str, str] | None = None,
        python: bool = False,
        tensorflow: bool = False,
        code: str | None = None,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        theirs, ours = zip(*(_ends(asked, number) for number, asked in enumerate((stdin, stdout, stderr))), strict=True)
        self.stdin, self.stdout, self.stderr = (
            None if end is None else open(end, "rb" if number else "wb")  # noqa: SIM115
            for number, end in enumerate(ours)
        )
        asked = {"arguments": arguments, "env": {**(os.environ if env is None else env)}, "cwd": os.getcwd()}
        self._connection = _ask(theirs, tensorflow=tensorflow, **asked, python=python, code=code)
        self._answers = self._connection.makefile("rb", buffering=0)  # the end may be there with the pid, unread
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """Close what it reads, read what it writes to the end, and wait for it."""
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        written = tuple(None if file is None or file.closed else file.read() for file in (self.stdout, self.stderr))
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait(timeout)
        return written


def _ends(asked: int | None, number: int) -> tuple[int, int | None]:
    """The end of a stream for a process, and the end for us if it is a pipe."""
    if asked == subprocess.PIPE:
        reader, writer = os.pipe()
        return (writer, reader) if number else (reader, writer)
    if asked == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    return os.dup(number), None


def _feed(writer: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(writer, "wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]


def _stream() -> int:
    """The descriptor of a file in memory that several processes may write to at once.

    Other files have one position for all that share a descriptor, and a lock for it; one in memory has no such lock, so
    that two processes could write at the same place. What is appended does not need it.
    """
    descriptor = os.memfd_create("stream")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor


def _whole(file: Any) -> bytes:
    file.seek(0)
    return file.read()


# --- The side of the server ---


def serve(path: str, tensorflow: bool) -> None:
    """Fork a process for each connection, until standard input ends."""
    for module in pkgutil.walk_packages(importlib.import_module("tar2tf_cli").__path__, "tar2tf_cli."):
        if not module.name.endswith(("__main__", *HEAVY_MODULES)):
            importlib.import_module(module.name)
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not HEAVY & sys.modules.keys(), HEAVY & sys.modules.keys()
    if tensorflow and importlib.util.find_spec("tensorflow"):
        _import_unseen("tensorflow")
    gc.freeze()
    running: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor that tells when the process has ended
    processes: dict[socket.socket, int] = {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path + "~")
        listening.listen(64)
        os.rename(path + "~", path)
        while True:
            ready, _, _ = select.select([0, *running, *processes, listening], [], [])
            for one in ready:
                if one == 0:
                    return
                if one is listening:
                    connection, _ = listening.accept()
                    pid = processes[connection] = _fork_for(connection)
                    running[os.pidfd_open(pid)] = pid, connection
                elif one in running:
                    pid, connection = running.pop(one)
                    os.close(one)
                    _say_how_it_ended(pid, connection)
                else:  # whoever asked for it knows that it ended, or was killed, as it is then
                    pid = processes.pop(one)
                    one.close()
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    for descriptor in [number for number, (its, _) in running.items() if its == pid]:
                        del running[descriptor]
                        os.close(descriptor)
                    os.waitpid(pid, 0)


class _Unseen:
    """Modules that are there, and are seen only once one of them is imported."""

    def __init__(self, modules: dict[str, types.ModuleType]) -> None:
        self._modules = modules

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        self._spec = self._modules[name].__spec__
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


def _import_unseen(name: str) -> None:
    before, stderr = set(sys.modules), os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)  # TensorFlow writes there what it found
    importlib.import_module(name)
    os.dup2(stderr, 2)
    os.close(stderr)
    sys.meta_path.insert(0, _Unseen({name: sys.modules.pop(name) for name in sys.modules.keys() - before}))


def _fork_for(connection: socket.socket) -> int:
    """Start the process that a connection asks for, as the leader of a group, and tell its pid."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as lines:
        asked = marshal.load(lines)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 1024)
        _become(asked)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it was quicker
        os.setpgid(pid, pid)
    for file in files:
        os.close(file)
    connection.sendall(b"%d\n" % pid)
    return pid


def _say_how_it_ended(pid: int, connection: socket.socket) -> None:
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % (ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))


def _become(asked: dict[str, Any]) -> NoReturn:
    """Be `python -m tar2tf_cli`, or `python`, with these arguments, from its first line to its end."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[0] = os.getcwd()
    sys.path[1:1] = filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["-c", *asked["arguments"]]
    if asked.get("file_size"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_size"],) * 2)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    code = 1
    try:
        if asked["python"]:
            _interpret(asked["arguments"])
            code = 0
        elif asked.get("code") is not None:
            _execute(asked["code"])
            code = 0
        else:
            runpy.run_module("tar2tf_cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        code = 120
    os._exit(code)


def _execute(code: str | types.CodeType) -> None:
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, vars(sys.modules["__main__"]))


def _interpret(arguments: list[str]) -> None:
    """Do what `python` does with these arguments: run code (-c), a module (-m), a script, or standard input."""
    kind, *rest = arguments[arguments[:1] == ["-u"] :] or ["-"]
    sys.argv = [kind, *rest]
    if kind == "-":
        _execute(compile(sys.stdin.read(), "<stdin>", "exec"))
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        _execute(rest[0])
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(kind).resolve().parent)
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        main.__file__ = str(Path(kind).absolute())
        exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(main))


if __name__ == "__main__":
    serve(sys.argv[1], tensorflow=len(sys.argv) > 2)
