"""Room on the local disk for output that only passes through it, on its way to a bucket or a stream."""

from __future__ import annotations

import os
from collections.abc import Hashable


class DiskSpace:
    """Decides whether a task that writes to the working folder may begin now, or has to wait for uploads.

    While the disk has room, nothing waits. A disk that has room for one input's records and one shard for each worker
    is enough: then reading waits until shards were uploaded, and the spools that only they need are gone.

    Args:
        folder: the working folder.
        shard: bytes that are kept free for a shard, which may need records of all inputs that were read.
    """

    def __init__(self, folder: str, shard: int) -> None:
        self._folder = folder
        self._shard = shard
        self._running: dict[Hashable, int] = {}
        self._stored = self._spooled = 0

    @property
    def is_idle(self) -> bool:
        """Whether no task runs that may free space."""
        return not self._running

    def may_read(self, stored: int) -> bool:
        """Whether there is room for the records of inputs of so many bytes, next to a shard."""
        return self._has_room(self._estimate(stored) + self._shard)

    def may_write(self, size: int) -> bool:
        """Whether there is room for a shard."""
        return self._has_room(size)

    def begin_reading(self, task: Hashable, stored: int) -> None:
        """Count a task, by any name, that reads inputs of so many bytes."""
        self._running[task] = self._estimate(stored)

    def begin_writing(self, task: Hashable, size: int) -> None:
        """Count a task, by any name, that writes a shard of this size."""
        self._running[task] = size

    def end(self, task: Hashable, stored: int = 0, spooled: int = 0) -> None:
        """Note that a task has ended; one that read says how much it read, and how much of that it spooled."""
        self._running.pop(task, None)
        self._stored += stored
        self._spooled += spooled

    def _estimate(self, stored: int) -> int:
        """About the size of the spool of inputs of so many bytes, by those that were read before."""
        return stored * self._spooled // self._stored if self._stored else stored

    def _has_room(self, size: int) -> bool:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize - sum(self._running.values()) >= size
