"""Ray clusters: how this process connects to one, and what is asked of its nodes before tasks run there."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.errors import UsageError, WorkerError, write_errors

if TYPE_CHECKING:
    from tar2tf_cli.engines.ray_worker import Probed

__all__ = ["RayCluster", "last_line"]

_CONNECT_SECONDS: Final = 5.0
_SUBMIT: Final = "run it in the cluster: ray job submit --address http://HEAD:8265 -- tar2tf convert ... --engine ray"


class RayCluster:
    """A Ray cluster; this process connects to it when `cpus` is first asked for, unless it is connected already.

    Args:
        address: `HOST:PORT` or `auto`; by default RAY_ADDRESS, then the cluster of this machine, then a new one here.

    Attributes:
        ray: the module of that name, which is imported only here.
        connected_here: whether this is what connected, and not the caller's program.

    Raises:
        UsageError: when Ray is not installed, or the address is one of a server through which Ray is used from outside.
    """

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

    @property
    def cpus(self) -> int:
        """The number of CPUs of all nodes.

        Raises:
            WorkerError: when there is no cluster at the address.
        """
        self._connect()
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def threads(self, wanted: int) -> int:
        """How many threads a task may have, so that there is a node for it."""
        return min(wanted, max(1, *(int(node["Resources"].get("CPU", 0)) for node in self._nodes())))

    def close(self) -> None:
        """Disconnect, if this is what connected."""
        if self.connected_here:
            self.ray.shutdown()
            self.connected_here = False

    def shares(self, folder: str, inputs: Sequence[str]) -> str | None:
        """Ask every node whether it can run tasks, and sees a folder as this process does.

        Returns:
            A node that has another folder of that name, or none; None if all share it.

        Raises:
            UsageError: when a node cannot run tasks, or does not see an input.
        """
        from tar2tf_cli.engines import ray_worker

        token = os.urandom(8).hex()
        ours = ray_worker.token_file(folder, token, "driver")
        with write_errors(folder), open(ours, "x"):
            pass
        found = [*self._probed(folder, token, inputs)]
        shared = {
            node for _, node, probed in found if _removed(ray_worker.token_file(folder, token, node)) and probed.shares
        }
        os.unlink(ours)
        for name, _, probed in found:
            _check(name, probed, ray_worker.version())
        return next((name for name, node, _ in found if node not in shared), None)

    def _probed(self, folder: str, token: str, inputs: Sequence[str]) -> Iterator[tuple[str, str, Probed]]:
        """The name and id of each node, and what it answered."""
        from tar2tf_cli.engines.ray_worker import probe

        asked = []
        for node in self._nodes():
            pinned = self.pinned(self.ray.remote(probe), node["NodeID"], max_retries=1)
            answer = pinned.remote(folder, token, node["NodeID"], inputs, os.getcwd())
            asked.append((f"{node['NodeName']} ({node['NodeID'][:8]})", node["NodeID"], answer))
        for name, node, answer in asked:
            try:
                yield name, node, self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                hint = "install the same tar2tf there, or submit the command with a --runtime-env-json that does"
                raise UsageError(f"the node {name} cannot run tar2tf: {last_line(error)}", hint=hint) from None

    def pinned(self, function: Any, node: str, **options: Any) -> Any:
        """A remote function that runs on one node, whether or not its CPUs are busy."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        return function.options(num_cpus=0, scheduling_strategy=strategy, **options)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        address = self._address or _of_this_machine() or "local"
        _check_reachable(address)
        before = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        except Exception as error:  # of no class in particular when its processes take too long to start
            if address == "local":
                raise WorkerError(f"Ray did not start on this machine: {last_line(error)}", hint=_AGAIN) from None
            raise WorkerError(f"there is no Ray cluster at {address}: {last_line(error)}", hint=_START) from None
        finally:
            with contextlib.suppress(ValueError, TypeError):  # not the main thread, or a handler that is not Python's
                signal.signal(signal.SIGTERM, before)
        self.connected_here = True


_START: Final = "see ray status, or leave out --address to start one on this machine"
_AGAIN: Final = "run the same command again, on a machine that is less busy, or see the logs in /tmp/ray"


def _of_this_machine() -> str | None:
    """The address of the cluster that `ray start` began here, as Ray has noted it; None if that has ended."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with contextlib.suppress(OSError, WorkerError), open(os.path.join(folder, "ray", "ray_current_cluster")) as file:
        address = file.read().strip()
        _check_reachable(address)
        return address
    return None


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at an address; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise WorkerError(f"there is no Ray cluster at {address}: {error.strerror or error}", hint=_START) from None


def _removed(path: str) -> bool:
    """Remove a file; whether there was one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _check(name: str, probed: Probed, version: str) -> None:
    if probed.version != version:
        hint = "install the same version on all nodes"
        raise UsageError(f"the node {name} has tar2tf {probed.version}, but this is {version}", hint=hint)
    if probed.missing:
        hint = "put the inputs in a folder that all nodes share, or in a bucket"
        raise UsageError(f"the node {name} does not see this input", shard=probed.missing[0], hint=hint)


def last_line(error: BaseException) -> str:
    """The last line of an error's text; above it, Ray shows a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
