"""Keeps what C libraries print to descriptor 2 from standard error, and nothing else."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from typing import Final

__all__ = ["quiet"]

_NOISE: Final = (b"libpng ", b"[ WARN:", b"[ERROR:")
"""What lines of libpng and OpenCV begin with."""

_KEPT: Final = 1 << 20


class _Quiet:
    """A context in which descriptor 2 is a file; what comes of others there goes on to standard error.

    It may be entered by several threads at once. Where there is no standard error or no room for a file, nothing is
    kept from anyone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._stderr = -1
        self._file = -1
        self._owner = 0
        self._taken = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                with suppress(OSError):
                    self._redirect()
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._stderr < 0:
                return
            if not self._inside:
                os.dup2(self._stderr, 2)
            with suppress(OSError):
                self._pass_on()
            if not self._inside:
                os.close(self._stderr)
                self._stderr = -1

    def _redirect(self) -> None:
        if self._owner != os.getpid():  # the file of a process that forked this one is not shared
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
            self._owner, self._taken = os.getpid(), 0
        if self._taken > _KEPT:
            os.ftruncate(self._file, 0)
            self._taken = os.lseek(self._file, 0, os.SEEK_SET)
        self._stderr = os.dup(2)
        os.dup2(self._file, 2)

    def _pass_on(self) -> None:
        """Write to standard error what others wrote meanwhile."""
        while data := os.pread(self._file, 1 << 16, self._taken):
            self._taken += len(data)
            if others := b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(_NOISE)):
                os.write(self._stderr, others)


quiet: Final = _Quiet()
