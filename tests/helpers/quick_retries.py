"""Retries whose pauses take no time, so that how often they try does not depend on the machine's load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from clock import Clock
from tar2tf_cli.stores import retries

PATIENT = """
import sys, quick_retries
from tar2tf_cli.cli import main
quick_retries.skip_pauses(setattr)
main(sys.argv[1:])
"""
"""Code of a process that runs the command with such retries."""


class _Pauses(threading.local):
    """The time in a thread, which passes only while its retries pause."""

    now = 1000.0

    def pass_(self, seconds: float) -> None:
        self.now += seconds + 1e-6  # or what is left could be too little to be added


def skip_pauses(set_attribute: Callable[[Any, str, Any], object]) -> None:
    """Give all retries a clock that only their own pauses move, using `set_attribute` to install it."""
    clock, begin = _Pauses(), retries.RetryPolicy.__init__

    def pausing(patience: retries.RetryPolicy, seconds: float, pause: object = None) -> None:
        begin(patience, seconds, clock.pass_)

    set_attribute(retries.RetryPolicy, "__init__", pausing)
    set_attribute(retries, "time", Clock(lambda: clock.now))
