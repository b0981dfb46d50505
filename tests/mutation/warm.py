"""Fork pytest from a process that has imported what tests import, except the package: it takes longer than most tests.

Each line of standard input is a request in JSON, each line of standard output its exit code, negative after a signal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import NamedTuple, NoReturn

PACKAGES = (
    *("pytest", "_pytest.pastebin", "pytest_timeout", "xdist.plugin", "hypothesis", "hypothesis.extra.numpy"),
    *("numpy", "cv2", "click", "requests", "pycurl", "certifi", "ruamel.yaml", "google_crc32c", "isal.isal_zlib"),
    *("obstore", "cloudpickle", "tqdm", "zstandard", "xxhash", "humanfriendly", "braceexpand", "simplejpeg"),
)


class Request(NamedTuple):
    """Arguments of pytest, variables to set, a file for what it prints, and how long it may take."""

    arguments: list[str]
    variables: dict[str, str]
    log: str
    seconds: float


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(2, 1)
    for name in PACKAGES:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    for line in requests:
        request = Request(*json.loads(line))
        if fork(answers, request.log, request.seconds):
            os.environ.update(request.variables)
            run_pytest(request.arguments)


def fork(answers: int, log: str, seconds: float) -> bool:
    """Fork a process that prints to a file, wait for it and write its exit code; true in that process."""
    pid = os.fork()
    if pid:
        os.write(answers, b"%d\n" % _wait(pid, seconds))
        return False
    os.close(answers)
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(stream, target)
    return True


def run_pytest(arguments: list[str], *plugins: object) -> NoReturn:
    """End this process with the exit code of pytest, 3 if it raises."""
    code = 3
    try:
        code = int(importlib.import_module("pytest").main(arguments, plugins=plugins))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, seconds: float) -> int:
    """Wait for a process, which is killed with all of its group when the time is over; returns its exit code."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(ProcessLookupError):  # servers that its tests have left
                os.killpg(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
