"""Flushing finished files to the disk while other work goes on."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from tar2tf_cli.errors import SinkError, Tar2tfError
from tar2tf_cli.formats.record_file import sync

__all__ = ["Flusher"]

T = TypeVar("T")


class Flusher(Generic[T]):
    """Flushes files to the disk in its own thread, one after the other.

    The thread starts with the first file, so that processes can be forked before.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Sequence[str], T] | None] = queue.SimpleQueue()
        self._flushed: queue.SimpleQueue[tuple[list[T], Tar2tfError | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.pending = 0

    def submit(self, paths: Sequence[str], item: T) -> None:
        """Flush files; `done` returns the item afterwards."""
        if paths:
            self.expect()
            self.put(paths, item)
        else:
            self.pending += 1
            self._flushed.put(([item], None))

    def expect(self) -> None:
        """Count an item that another thread is going to put, or fail."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self.pending += 1

    def put(self, paths: Sequence[str], item: T) -> None:
        """Flush files of an item that is expected; can be called in any thread."""
        self._waiting.put((paths, item))

    def fail(self, error: Tar2tfError) -> None:
        """Have `done` raise an error in the place of an item that is expected."""
        self._flushed.put(([], error))

    def done(self, timeout: float = 0) -> list[T]:
        """Return the items whose files are on the disk; wait up to `timeout` seconds for the first.

        Raises:
            Tar2tfError: when a file could not be flushed, or an item failed.
        """
        items: list[T] = []
        while self.pending:
            try:
                found, error = self._flushed.get(timeout > 0 and not items, timeout)
            except queue.Empty:
                break
            self.pending -= 1
            if error:
                raise error
            items += found
        return items

    def close(self) -> None:
        """End the thread after the current file."""
        if self._thread:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            self._waiting.put(None)
            if self._thread.ident is not None:  # Ctrl-C may have come before it began
                self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while entry := self._waiting.get():
            paths, item = entry
            try:
                for path in paths:
                    sync(path)
                self._flushed.put(([item], None))
            except SinkError as error:
                self.fail(error)
