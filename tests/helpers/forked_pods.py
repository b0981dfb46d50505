"""Pods of a test's cluster, forked from a process that has already spent the 0.8 s of imports.

`python` in the pods is a small script. It passes its arguments, environment and output to the process, which is this
file run as a script in the cluster's network, and ends as the forked one does. Anything but tar2tf is run by Python.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
socket.send_fds(server, [json.dumps([sys.argv[1:], dict(os.environ)]).encode()], [1, 2])
answers = server.makefile("rb")
pid = int(answers.readline())
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
signal.signal(signal.SIGUSR1, lambda *_: os.kill(pid, signal.SIGSTOP))
sys.exit(int(answers.readline() or b"1"))
"""


def install(folder: Path) -> Path:
    """Write the script that the pods find as `python`."""
    folder.mkdir(parents=True)
    script = folder / "python"
    script.write_text(_CLIENT.format(python=sys.executable, path=str(folder / "s")))
    script.chmod(0o755)
    return script


@contextmanager
def forking(folder: Path, enter: list[str]) -> Iterator[None]:
    """Start the process to fork from.

    Args:
        folder: that of the script.
        enter: the command that runs another one in the cluster's network.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [*enter, sys.executable, __file__, str(folder / "s")], env=environment, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def serve(path: str) -> NoReturn:
    """Fork a process for each connection; one whose connection is closed is killed."""
    import tar2tf_cli.cli.etl
    import tar2tf_cli.remote.server  # noqa: F401 - imported here once

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    gc.freeze()
    print("ready", flush=True)
    running: dict[int, socket.socket] = {}
    signal.signal(signal.SIGTERM, lambda *_: _end(running))
    while True:
        for ready in select.select([listener, *running.values()], [], [], 0.1)[0]:
            if ready is listener:
                connection, pid = _fork(listener)
                running[pid] = connection
            else:
                os.kill(next(pid for pid, each in running.items() if each is ready), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                with running.pop(found[0]) as connection, contextlib.suppress(OSError):
                    connection.sendall(b"%d\n" % (os.waitstatus_to_exitcode(found[1]) % 256))


def _fork(listener: socket.socket) -> tuple[socket.socket, int]:
    connection, _ = listener.accept()
    data, outputs, _, _ = socket.recv_fds(connection, 1 << 20, 2)
    words, environment = json.loads(data)
    pid = os.fork()
    if not pid:
        listener.close()
        connection.close()
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        _run(words, environment)
    for output in outputs:
        os.close(output)
    connection.sendall(b"%d\n" % pid)
    return connection, pid


def _run(words: list[str], environment: dict[str, str]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    if words[:2] != ["-m", "tar2tf_cli"]:
        os.execv(sys.executable, [sys.executable, *words])
    from tar2tf_cli.cli import main

    code: object = 1
    try:
        main(words[2:])
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _end(running: dict[int, socket.socket]) -> NoReturn:
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
