"""The command in processes of its own: run, started, waited for and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server

Process = fork_server.Process | subprocess.Popen[bytes]
"""A command that was started."""


COMMAND = [sys.executable, "-m", "tar2tf_cli"]


SECONDS = 120
"""Longest that any process of the tests may take, and that anything is waited for: no more than a guard."""


def tar2tf(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, output captured; a traceback on either stream fails the test.

    The process is forked from a warm one, unless options ask for what only a real start can give it: those are
    options of `subprocess.run`, and variables of the interpreter.
    """
    changed = options.pop("env", {})
    words, environment = [*map(str, args)], {**os.environ, **changed}
    if options.keys() <= {"cwd", "input", "stdin", "timeout", "code", "file_size"} and not any(
        name.startswith("PYTHON") for name in changed
    ):
        if "input" in options:
            options["input"] = os.fsencode(options["input"])
        if "stdin" in options:
            options["stdin"] = options["stdin"] if isinstance(options["stdin"], int) else options["stdin"].fileno()
        raw = fork_server.run(words, env=environment, **{"timeout": SECONDS, **options})
        done = subprocess.CompletedProcess(words, raw.returncode, _text(raw.stdout), _text(raw.stderr))
    else:
        if "input" in options:
            options["input"] = os.fsdecode(options["input"])
        options = {"capture_output": True, "text": True, "errors": "surrogateescape", "timeout": SECONDS, **options}
        done = subprocess.run([*COMMAND, *words], env=environment, check=False, **options)
    assert "Traceback" not in (done.stderr or ""), done.stderr
    return done


def _text(data: bytes) -> str:
    return os.fsdecode(data).replace("\r\n", "\n")


def convert(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`tar2tf convert` that has to succeed."""
    done = tar2tf("convert", *args, **options)
    assert done.returncode == 0, done.stderr
    return done


def python(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python` with these arguments in a process of its own; options are those of `forked.run`."""
    environment = {**os.environ, **options.pop("env", {})}
    done = fork_server.run([*map(str, args)], python=True, env=environment, **{"timeout": SECONDS, **options})
    return subprocess.CompletedProcess(done.args, done.returncode, _text(done.stdout), _text(done.stderr))


def start(*args: str | Path, **options: Any) -> Process:
    """Start the command as the leader of a process group, forked from a warm one if only streams are asked for.

    `code` is Python to run instead, as in `forked.run`.
    """
    asked = {name: options.get(name) for name in ("stdin", "stdout", "stderr")}
    if options.keys() <= {*asked, "code"} and set(asked.values()) <= {None, subprocess.PIPE, subprocess.DEVNULL}:
        return fork_server.Process([*map(str, args)], **asked, code=options.get("code"))
    return start_anew(*args, **options)


def start_anew(*args: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command in an interpreter of its own, as the leader of a process group."""
    return subprocess.Popen([*COMMAND, *map(str, args)], start_new_session=True, **options)


def end(process: Process) -> str:
    """Kill a process and its group, whatever is left of them; what it wrote to standard error, if that is a pipe."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return _text(process.communicate(timeout=SECONDS)[1] or b"")


def children(pid: int) -> list[int]:
    """Processes whose parent is this one; Linux only."""
    return [each for each, (_, parent, _) in _processes().items() if parent == str(pid)]


def members(group: int) -> list[int]:
    """Processes of a group that run, so no zombies; Linux only."""
    return [each for each, (state, _, leader) in _processes().items() if leader == str(group) and state != "Z"]


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody has asked after."""
    return _processes().get(pid, "Z")[0] != "Z"


def _processes() -> dict[int, list[str]]:
    """State, parent and group of each process, as proc(5) has them after its name."""
    found = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(entry)] = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:3]
    return found


def wait_until(
    condition: Callable[[], Any], what: str, seconds: float = SECONDS, process: Process | None = None
) -> Any:
    """The condition's value once it is true.

    Raises:
        AssertionError: when it is not in time, or the process that makes it true has ended before; with its errors.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(f"ended with {process.returncode} before {what}: {end(process)}")
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}: {end(process) if process else ''}")
        time.sleep(0.002 + 2 * (time.monotonic() - began))  # a third of the time is enough for looking
