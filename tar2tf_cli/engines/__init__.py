"""Where tasks run: in this process, or in worker processes on this machine."""

from __future__ import annotations

import os

from tar2tf_cli.engines.base import Engine, Outcome

__all__ = ["Engine", "Outcome", "cpu_count", "make_engine"]


def cpu_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_engine(workers: int) -> Engine:
    """Make an engine that runs this many tasks at once."""
    if workers == 1:
        from tar2tf_cli.engines.inline import InlineEngine

        return InlineEngine()
    from tar2tf_cli.engines.local import LocalEngine

    return LocalEngine(workers)
