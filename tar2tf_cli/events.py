"""Callbacks for the progress of conversions and checks; the library prints nothing itself.

Notes go to the logger `tar2tf_cli` as warnings, which Python prints on standard error unless logging is configured.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache

__all__ = ["Events", "note_once", "set_waiting", "waiting"]


def log_waiting(message: str) -> None:
    """Log a message about a server that does not answer: the default of `set_waiting`."""
    import logging

    logging.getLogger("tar2tf_cli").warning(message)


reporter: Callable[[str], None] = log_waiting


def waiting(message: str) -> None:
    """Report once per process that a server has not answered for two seconds."""
    reporter(message)


@cache
def note_once(message: str) -> None:
    """Report once per process that this machine lacks something optional."""
    reporter(message)


def set_waiting(report: Callable[[str], None]) -> None:
    """Set the function that reports servers that do not answer; by default, the logger `tar2tf_cli` does."""
    global reporter
    reporter = report


class Events:
    """Receives progress of a conversion or check; override its methods to show it. By default, `note` logs, and the
    others do nothing.

    >>> class Notes(Events):
    ...     def note(self, text):
    ...         print(text)
    """

    def planned(self, inputs: int, size: int | None, done: int = 0) -> None:
        """Work begins on this many inputs of `size` stored bytes in total; None when the size is unknown.

        An interrupted run read about `done` of these bytes, which are not read again.
        """

    def resumed(self, shards: int) -> None:
        """An interrupted run had finished this many shards, which are kept; emits a note by default."""
        self.note(f"continuing an interrupted run: {shards:,} shard{'' if shards == 1 else 's'} already done")

    def progress(self, size: int) -> None:
        """Stored bytes were read: their number since the beginning, including an interrupted run."""

    def shard(self, path: str, records: int, size: int) -> None:
        """A shard was published under its final name."""

    def fault(self, fault: Mapping[str, object]) -> None:
        """A faulty sample was skipped: its shard, key, member, offset and message; in input order."""

    def duplicates(self, keys: Sequence[str]) -> None:
        """Samples of an input equal earlier ones and were skipped: their keys, in input order."""

    def not_remote(self, error: Exception) -> None:
        """The cluster cannot make the records although it should; unless this method raises the error, this machine
        makes them.
        """
        frame, level = sys._getframe(), 1
        while frame.f_back and frame.f_globals.get("__name__", "").startswith(("tar2tf_cli", "contextlib")):
            frame, level = frame.f_back, level + 1
        warnings.warn(f"converting locally, not in the cluster: {error}", UserWarning, stacklevel=level)

    def note(self, message: str) -> None:
        """A note for the user, for example about members that are not adjacent; each note is given once."""
        log_waiting(message)
