"""As much of Ray as tar2tf uses, in this process: tasks run when they are waited for."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class RayError(Exception):
    """The base class of Ray's errors."""


class RayTaskError(RayError):
    """A task raised an exception."""


class RuntimeEnvSetupError(RayError):
    """A node cannot make the environment of a task."""


class NodeDiedError(RayError):
    """The node of a task has died."""


class Strategy:
    """The node on which a task must run."""

    def __init__(self, node: str, soft: bool) -> None:
        self.node = node
        assert soft is False


class Ref:
    """A task, or an object that was put into the store."""

    count = itertools.count()

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._number = next(self.count)
        self._done: list[Any] = []

    def task_id(self) -> SimpleNamespace:
        return SimpleNamespace(hex=lambda: f"{self._number:x}")

    def value(self) -> Any:
        if not self._done:
            try:
                self._done.append(self._call())
            except RayError as error:
                self._done.append(error)
        if isinstance(self._done[0], RayError):
            raise self._done[0]
        return self._done[0]


class Remote:
    """A function that runs on some node."""

    def __init__(self, ray: Ray, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._ray, self._function, self._options = ray, function, options

    def options(self, **options: Any) -> Remote:
        return Remote(self._ray, self._function, {**self._options, **options})

    def remote(self, *arguments: Any) -> Ref:
        strategy = self._options.get("scheduling_strategy")
        node = strategy.node if strategy else self._ray.names[-1]
        self._ray.submitted.append(
            (self._function.__name__, node, *map(self._options.get, ("num_cpus", "max_retries")))
        )
        return Ref(lambda: self._ray.run(node, self._function, arguments))


class Ray(ModuleType):
    """A cluster of one or more nodes, of which each is this process.

    Attributes:
        names: the names of the nodes, of which this is the first.
        apart: nodes that do not share the driver's folders.
        submitted: function, node, CPUs and retries of each task.
        failing: for each call of a function by name, its error, in place of a result.
        calls: other calls that change something.
        cpus: the CPUs of each node.
    """

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RuntimeEnvSetupError=RuntimeEnvSetupError
    )

    def __init__(self, *names: str, connected: bool = False) -> None:
        super().__init__("ray")
        self.names = list(names or ["one"])
        self.apart: set[str] = set()
        self.gone: set[str] = set()
        self.submitted: list[tuple[Any, ...]] = []
        self.failing: dict[str, list[Exception | None]] = {}
        self.calls: list[str] = []
        self.cpus = 2.0
        self._connected = connected

    def run(self, node: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        if error := next(iter(self.failing.get(function.__name__, [])), None):
            self.failing[function.__name__].pop(0)
            raise error
        if function.__name__ == "probe" and node in self.apart:
            arguments = ("/nowhere", *arguments[1:])
        return function(*arguments)

    def is_initialized(self) -> bool:
        return self._connected

    def init(self, **options: Any) -> None:
        assert (options.pop("logging_level"), options.pop("log_to_driver")) == ("ERROR", False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # as Ray does
        self.calls.append(f"init {options.pop('address')}")
        assert not options
        self._connected = True

    def shutdown(self) -> None:
        self.calls.append("shutdown")
        self._connected = False

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "Alive": name not in self.gone,
                "NodeID": name,
                "NodeName": f"host-{name}",
                "Resources": {"CPU": self.cpus},
            }
            for name in self.names
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus * len(self.names)} if self.cpus else {}

    def remote(self, function: Callable[..., Any]) -> Remote:
        return Remote(self, function, {})

    def put(self, value: Any) -> Ref:
        return Ref(lambda: value)

    def get(self, ref: Ref) -> Any:
        return ref.value()

    def wait(self, refs: list[Ref], num_returns: int = 1, timeout: float | None = None) -> tuple[list[Ref], list[Ref]]:
        return refs[:1], refs[1:]

    def cancel(self, ref: Ref) -> None:
        self.calls.append("cancel")
        raise RayError

    def get_actor(self, name: str) -> Any:
        raise ValueError(name)

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: self.names[0], get_task_id=lambda: "0")


def ray_in_process(monkeypatch: pytest.MonkeyPatch, *names: str, connected: bool = False) -> Ray:
    """Put a cluster in the place of the package ray."""
    ray = Ray(*names, connected=connected)
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = Strategy  # type: ignore[attr-defined]
    for name, module in (
        ("ray", ray),
        ("ray.util", ModuleType("ray.util")),
        ("ray.util.scheduling_strategies", strategies),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return ray
