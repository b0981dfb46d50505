"""Engines that run tasks on this machine: in this process, or in worker processes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tar2tf_cli.api.backend import Backend, Engine
from tar2tf_cli.engines.base import InlineEngine


def cpu_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_engine(workers: int) -> Engine:
    """Make an engine that runs this many tasks at once."""
    if workers == 1:
        return InlineEngine(1)
    from tar2tf_cli.engines.local import LocalEngine

    return LocalEngine(workers)


class LocalBackend(Backend):
    """The machine of this process."""

    @property
    def cpus(self) -> int:
        return cpu_count()

    def engine(self, workers: int, *, carries: bool, inputs: Sequence[str]) -> Engine:
        return make_engine(workers)
