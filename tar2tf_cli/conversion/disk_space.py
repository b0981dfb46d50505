"""Limits the use of the local disk by temporary output that is uploaded to a bucket or copied to a stream."""

from __future__ import annotations

import os
from collections.abc import Hashable


class DiskSpace:
    """Decides whether a task that writes to the working folder may begin now or must wait for uploads.

    While the disk has free space, no task waits. Space for one input's records and one shard for each worker suffices:
    reading then waits until shards are uploaded and the spools that only they need are removed.

    Args:
        folder: the working folder.
        shard: number of bytes to keep free for a shard, which may need records of all inputs read so far.
    """

    def __init__(self, folder: str, shard: int) -> None:
        self._folder = folder
        self._shard = shard
        self._running: dict[Hashable, int] = {}
        self._stored = self._spooled = 0

    @property
    def is_idle(self) -> bool:
        """Whether no running task may free space."""
        return not self._running

    def may_read(self, stored: int) -> bool:
        """Whether the disk has space for a shard and the records of inputs of `stored` bytes."""
        return self._has_room(self._estimate(stored) + self._shard)

    def may_write(self, size: int) -> bool:
        """Whether the disk has space for a shard of a given size."""
        return self._has_room(size)

    def begin_reading(self, task: Hashable, stored: int) -> None:
        """Reserve space for a task that reads inputs of `stored` bytes."""
        self._running[task] = self._estimate(stored)

    def begin_writing(self, task: Hashable, size: int) -> None:
        """Reserve space for a task that writes a shard."""
        self._running[task] = size

    def end(self, task: Hashable, stored: int = 0, spooled: int = 0) -> None:
        """Release the space reserved for a task; a reading task gives the bytes that it read and spooled."""
        self._running.pop(task, None)
        self._stored += stored
        self._spooled += spooled

    def _estimate(self, stored: int) -> int:
        """Estimate the size of the spool of inputs of `stored` bytes from the inputs read so far."""
        return stored * self._spooled // self._stored if self._stored else stored

    def _has_room(self, size: int) -> bool:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize - sum(self._running.values()) >= size
