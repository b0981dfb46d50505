"""Where tasks run: in this process, in worker processes on this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tar2tf_cli.engines.base import Engine, Place
from tar2tf_cli.errors import UsageError

__all__ = ["Place", "cpu_count", "make_engine", "place_of"]

_ENGINES: Final = ("local", "ray")


def cpu_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_engine(workers: int) -> Engine:
    """Make an engine that runs this many tasks at once."""
    if workers == 1:
        from tar2tf_cli.engines.inline import InlineEngine

        return InlineEngine(1)
    from tar2tf_cli.engines.local import LocalEngine

    return LocalEngine(workers)


class _Here(Place):
    """This machine."""

    @property
    def cpus(self) -> int:
        return cpu_count()

    def engine(self, workers: int, *, carries: bool, inputs: Sequence[str]) -> Engine:
        return make_engine(workers)


def place_of(engine: str, address: str | None = None) -> Place:
    """Return where an engine runs its tasks.

    Args:
        engine: `local` or `ray`.
        address: address of the Ray cluster.

    Raises:
        UsageError: when there is no such engine, it is not installed, or it cannot be reached by such an address.
    """
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}", hint=f"engines: {', '.join(_ENGINES)}")
    if engine == "ray":
        from tar2tf_cli.engines.ray_engine import RayPlace

        return RayPlace(address)
    if address:
        raise UsageError("--address is that of a Ray cluster", hint="use it with --engine ray")
    return _Here()
