"""An AIStore whose transformers run, for the tests: a proxy and two targets in a network of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import requests

from forked_pods import forking, install
from readme import ROOT
from servers import built_with, go_command, network_of, wait_for
from tar2tf_cli.remote.stream import ENVIRONMENT, NODES, Settings

ETL_MISSING = (
    "no AIStore with ETL: put an `aisnode` on PATH or in Go's bin folder that was built with `-tags etl` "
    "(tests/helpers/ais_etl_cluster.py says how)"
)
SERVE = ["python", "-m", "tar2tf_cli", "etl", "serve"]
"""The command of a pod."""


@dataclass(frozen=True)
class EtlCluster:
    """A cluster; clients reach it inside `network()` only.

    Attributes:
        folder: has the configuration, the objects and the output of the pods.
        endpoint: the proxy.
    """

    folder: Path
    endpoint: str

    def network(self) -> AbstractContextManager[None]:
        """The cluster's network for this thread and all it starts."""
        return network_of(int((self.folder / "pids").read_text().split()[0]))

    @cached_property
    def sdk(self) -> Any:
        """The official client."""
        from aistore.sdk import Client

        return Client(self.endpoint)

    def init(self, settings: Settings, comm: str = "hpush", name: str = "", **options: Any) -> str:
        """Start a transformer with the official client, and return its name."""
        name = name or settings.name
        options = {"init_timeout": "60s", "obj_timeout": "30s", "direct_put": True, **options}
        options = {ENVIRONMENT: settings.text, NODES: self.endpoint, **options}
        self.sdk.etl(name).init(image="none", command=SERVE, comm_type=comm, **options)
        return name

    def kill(self, word: str) -> None:
        """End, as the kernel does where memory runs out, the nodes and pods that have this word in their commands."""
        self._signal(word, signal.SIGKILL)

    def freeze(self, word: str) -> None:
        """Stop the pods that have this word in their commands, until they are killed."""
        self._signal(word, signal.SIGUSR1)

    def wait_until_ready(self) -> None:
        """Wait until all targets answer, as they do a while after one was killed."""
        targets = len([*self.folder.glob("t?")])
        wait_for(lambda: len(self._asked("daemon?what=smap")["tmap"]) == targets and [self._asked("etl")])

    def _asked(self, what: str) -> Any:
        answer = requests.get(f"{self.endpoint}/v1/{what}", timeout=60)
        answer.raise_for_status()
        return answer.json()

    def delete_transformers(self, *beginnings: str) -> None:
        """Delete those whose names begin so, as a test leaves them that fails."""
        for name in [each["id"] for each in self._asked("etl") or ()]:
            if name.startswith(beginnings):
                self.sdk.etl(name).delete()

    def _signal(self, word: str, number: signal.Signals) -> None:
        for line in (self.folder / "pids").read_text().splitlines():
            pid = int(line.split()[0])
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    os.kill(pid, number)

    def logs(self, name: str) -> str:
        """What the pods of a transformer wrote."""
        return "".join(log.logs for log in self.sdk.etl(name).logs())

    def bucket(self, name: str, objects: dict[str, bytes] | None = None) -> Any:
        """A bucket with these objects and no others."""
        from aistore.sdk.errors import APIRequestError

        bucket, deadline = self.sdk.bucket(name), time.monotonic() + 60
        while True:
            try:
                bucket.delete(missing_ok=True)
                bucket.create()
                break
            except APIRequestError:  # a cluster that moves objects, as after a target was killed, refuses (409)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        for key, data in (objects or {}).items():
            bucket.object(key).get_writer().put_content(data)
        return bucket


@contextmanager
def etl_cluster_in(folder: Path, *options: str) -> Iterator[EtlCluster]:
    """A cluster, with further options of ais_etl_cluster.py.

    Raises:
        FileNotFoundError: when there is no `aisnode` for it.
    """
    binary = go_command("aisnode")
    if binary is None or not ("--no-k8s" in options or built_with("etl")):
        raise FileNotFoundError(ETL_MISSING)
    tool = [sys.executable, str(Path(__file__).with_name("ais_etl_cluster.py"))]
    python = install(folder.with_name(f"{folder.name}-pods"))
    pods = ["--pod-env", f"PYTHONPATH={ROOT}", "--pod-env", "TAR2TF_NUM_WORKERS=1", "--python", str(python)]
    command = [*tool, "start", "--dir", str(folder), "--aisnode", binary, *pods, *options]
    started = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=250)
    try:
        with forking(python.parent, [*tool, "exec", "--dir", str(folder)]):
            yield (cluster := EtlCluster(folder, started.stdout.strip().partition("=")[2]))
            for role in ("proxy", "target"):
                cluster.kill(f"-role={role}")  # they would take seconds to end
    finally:
        subprocess.run([*tool, "stop", "--dir", str(folder)], check=True, timeout=60)
