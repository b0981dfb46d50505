"""The command in a process of its own without the 0.2 s that an interpreter takes to start: forked from one that waits.

`run` behaves as `subprocess.run` of `python -m tar2tf_cli` does. The processes are forked from a server, this file run
as a script, which has imported what the command imports, and not TensorFlow. What a test wants to know of the start
itself (imports, closed streams, terminals) needs a real process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

HEAVY = {"tensorflow", "aistore", "obstore", "boto3"}
"""What importing the package does not import."""

LATER = ("difflib", "humanfriendly", "importlib.metadata", "isal.isal_zlib", "simplejpeg", "ruamel.yaml", "braceexpand")
"""What many commands import while they run."""


# --- The side of the tests ---


class _Server:
    """The process to fork from; started when first needed, ended with this one."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="forked-")
        self.path = str(Path(self.folder.name) / "s")
        self.owner = os.getpid()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, self.path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        atexit.register(self.end)

    def connect(self) -> socket.socket:
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self.path)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.02)
                    raise RuntimeError("the server of processes ended") from None
            else:
                return connection

    def end(self) -> None:
        if os.getpid() == self.owner:
            self.process.communicate(timeout=10)  # it ends when its standard input does
            self.folder.cleanup()


def script() -> str:
    """A shell script that is `tar2tf`, whose processes are forked."""
    run([], env={**os.environ}, code="")  # so that the server is there
    server = _server()
    return f'#!/bin/sh\nexec {sys.executable} -ISs {Path(__file__).with_name("forked_client.py")} {server.path} "$@"\n'


_servers: dict[tuple[int, str], _Server] = {}
_lock = threading.Lock()


def _server() -> _Server:
    """The server of this process and its network, which `private_network` changes."""
    try:
        network = os.readlink("/proc/thread-self/ns/net")
    except FileNotFoundError:  # no Linux
        network = ""
    with _lock:
        if (os.getpid(), network) not in _servers:
            _servers[os.getpid(), network] = _Server()
        return _servers[os.getpid(), network]


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
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with these arguments, and capture what it writes.

    Args:
        code: Python to run instead, as `python -c` does.
        file_size: the most bytes that the process may have in a file.

    Raises:
        subprocess.TimeoutExpired: when it takes longer; it is killed.
    """
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        writer = None
        if input is not None:
            reader, writer = os.pipe()
        else:
            reader = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        streams = (reader, os.dup(out.fileno()), os.dup(err.fileno()))
        with _ask(arguments, streams, env=env, cwd=cwd, code=code, file_size=file_size) as connection:
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


def _ask(
    arguments: list[str],
    streams: tuple[int, ...],
    *,
    env: dict[str, str],
    cwd: str | os.PathLike[str] | None = None,
    code: str | None = None,
    file_size: int | None = None,
) -> socket.socket:
    """Have a process started with these streams, which are closed here; the answers are its pid, and how it ended."""
    connection = _server().connect()
    socket.send_fds(connection, [b"."], list(streams))
    for stream in streams:
        os.close(stream)
    asked = {"arguments": arguments, "env": env, "cwd": os.fspath(cwd or os.getcwd()), "code": code}
    connection.sendall(json.dumps({**asked, "file_size": file_size}).encode() + b"\n")
    return connection


class Process:
    """A command that was started here: what `subprocess.Popen` has of it, and the leader of a process group of its own.

    Each stream is a pipe, or the null device.
    """

    def __init__(self, arguments: list[str], *, stdin: int | None, stdout: int | None, stderr: int | None) -> None:
        self.args = arguments
        self.returncode: int | None = None
        theirs, ours = zip(*(_ends(asked, number) for number, asked in enumerate((stdin, stdout, stderr))), strict=True)
        self.stdin, self.stdout, self.stderr = (
            None if end is None else open(end, "rb" if number else "wb")  # noqa: SIM115
            for number, end in enumerate(ours)
        )
        self._connection = _ask(arguments, theirs, env={**os.environ})
        self._answers = self._connection.makefile("r")
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


def _whole(file: Any) -> bytes:
    file.seek(0)
    return file.read()


# --- The side of the server ---


def serve(path: str) -> None:
    """Fork a process for each connection, until standard input ends."""
    for module in pkgutil.walk_packages(importlib.import_module("tar2tf_cli").__path__, "tar2tf_cli."):
        if not module.name.endswith(("__main__", "remote.server")):  # the latter needs an extra, which is heavy
            importlib.import_module(module.name)
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not HEAVY & sys.modules.keys(), HEAVY & sys.modules.keys()
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


def _fork_for(connection: socket.socket) -> int:
    """Start the process that a connection asks for, as the leader of a group, and tell its pid."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as lines:
        asked = json.loads(lines.readline())
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
    """Be `python -m tar2tf_cli` with these arguments, from its first line to its end."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[0] = os.getcwd()
    sys.argv = ["-c", *asked["arguments"]]
    if asked["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_size"],) * 2)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    code = 1
    try:
        if asked["code"] is not None:
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(asked["code"], vars(sys.modules["__main__"]))
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


if __name__ == "__main__":
    serve(sys.argv[1])
