"""A clock that tests set, for modules that ask `time` for the time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Takes the place of the module `time` in a module under test.

    Args:
        now: returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.monotonic = now

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds)
