"""Runs commands and measures their time and memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parent.parent
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},  # as installed
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
SAMPLING_INTERVAL: Final = 0.02  # seconds

Command = Sequence[str | Path]
Document = dict[str, Any]


class Failed(Exception):
    """A command failed, or did not do the work that was to be measured."""


def run(commands: Sequence[Command]) -> tuple[float, list[Document]]:
    """Run commands in parallel; returns the seconds until the last one ended and the JSON objects they printed."""
    with ExitStack() as stack:
        logs = [[stack.enter_context(tempfile.TemporaryFile()) for _ in "oe"] for _ in commands]
        begin = time.perf_counter()
        processes = [start(command, *streams) for command, streams in zip(commands, logs, strict=True)]
        codes = [process.wait() for process in processes]
        seconds = time.perf_counter() - begin
        outs, errors = zip(*[map(text, streams) for streams in logs], strict=True)
    for code, out, error in zip(codes, outs, errors, strict=True):
        if code:
            raise Failed(last_line(error or out) or f"exit code {code}")
    return seconds, [json.loads(out) for out in outs if out.startswith("{")]


def peak_anonymous(command: Command) -> int:
    """Peak anonymous memory, in bytes, of the largest process among a command and its descendants."""
    with tempfile.TemporaryFile() as log:
        process = start(command, log, log)
        peak = 0
        while process.poll() is None:
            peak = max([peak, *(anonymous(pid) for pid in family(process.pid))])
            time.sleep(SAMPLING_INTERVAL)
        if process.returncode:
            raise Failed(last_line(text(log)))
        return peak


def cpu_seconds(command: Command) -> tuple[float, float]:
    """CPU seconds of a command with its descendants, and of the servers meanwhile: all else that this process began."""
    with tempfile.TemporaryFile() as log:
        servers = [pid for pid in family(os.getpid()) if pid != os.getpid()]
        before, own = sum(map(used, servers)), os.times()
        process = start(command, log, log)
        if process.wait():
            raise Failed(last_line(text(log)))
        now = os.times()
        client = now.children_user + now.children_system - own.children_user - own.children_system
        return client, sum(map(used, servers)) - before


def used(pid: int) -> float:
    """CPU seconds of a process so far; 0 if it is gone."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def start(command: Command, out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env=ENVIRONMENT)


def text(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def last_line(log: str) -> str:
    return (log.strip().splitlines() or [""])[-1]


def family(pid: int) -> Iterator[int]:
    """A process and all its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            yield from family(int(child))


def anonymous(pid: int) -> int:
    """RssAnon of a process in bytes; 0 if it is gone."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
