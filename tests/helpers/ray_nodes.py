"""A Ray cluster of nodes on this machine, of which one has a folder of its own where the others share one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

RAY = shutil.which("ray", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def may_hide() -> list[str] | None:
    """The command with which a process gets mounts of its own; None where that is not allowed."""
    command = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return None
    return command if allowed else None


@dataclass
class Node:
    """A process of `ray start --block`, which ends with the processes that it starts."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.log.append(re.sub(r"\x1b\[\d*m", "", line))
                if "Ray runtime started" in line:
                    self.ready.set()
        self.ready.set()

    def wait(self) -> None:
        assert self.ready.wait(120), "".join(self.log)
        assert any("Ray runtime started" in line for line in self.log), "".join(self.log)

    def said(self, pattern: str) -> str:
        """What it printed, as the group of a pattern; it may say so some time after it has started."""
        deadline = time.monotonic() + 120
        while not (found := re.search(pattern, "".join(self.log))):
            assert time.monotonic() < deadline, "".join(self.log)
            time.sleep(0.02)
        return found[1]

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)


_PATIENT = {"RAY_raylet_start_wait_time_s": "120"}


def start_node(*arguments: str, before: Sequence[str] = (), **variables: str) -> Node:
    command = [*before, str(RAY), "start", "--block", "--num-cpus=1", "--object-store-memory=100000000"]
    process = subprocess.Popen(
        [*command, "--disable-usage-stats", "--dashboard-agent-listen-port=0", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_PATIENT, **variables},
        start_new_session=True,
    )
    return Node(process)


@dataclass
class Cluster:
    """Three nodes.

    Attributes:
        address: of the head.
        jobs: URL to which jobs are submitted.
        apart: a folder that the second node has for itself; None where that is not allowed.
        doomed: the third node, in whose environment DOOMED is set, to be killed.
    """

    address: str
    jobs: str
    apart: Path | None
    doomed: Node


@contextlib.contextmanager
def ray_cluster(apart: Path) -> Iterator[Cluster]:
    """Start the nodes, and end them.

    Args:
        apart: an empty folder, which the second node is to have for itself.
    """
    hide = may_hide()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("RAY_AUTH_MODE", "disabled")  # whatever is in ~/.ray
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
        head = start_node("--head", "--port=0", f"--temp-dir={temporary}")
        stack.callback(head.end)
        head.wait()
        address = head.said(r"--address='([\d.:]+)'")
        join = f"--address={address}"
        hiding = (*hide, "sh", "-c", f'mount -t tmpfs none "{apart}" && exec "$@"', "-") if hide else ()
        for before, variables in ((hiding, {}), ((), {"DOOMED": "1"})):  # both at once take longer
            node = start_node(join, before=before, **variables)
            stack.callback(node.end)
            node.wait()
        yield Cluster(address, head.said(r"(http://127[\d.:]+)"), apart if hide else None, node)
