"""Shards that bypass the page cache: files that are flushed anyway gain nothing from a copy in memory first.

Measured with the whole command, 1.3 GB of 50 kB samples into shards of 256 MiB on two cores under other load:
0.85 of the wall time with plain writes (median of 5 pairs, 0.36 to 0.93), 0.45 if the other load writes to the disk.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import queue
import threading
from collections.abc import Sequence
from typing import Final

from tar2tf_cli.errors import write_failed
from tar2tf_cli.formats.record_file import RecordFile, write_all

__all__ = ["DirectFile", "shard_file"]

_O_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_WORTH_IT: Final = 8 << 20


def shard_file(path: str, size: int) -> RecordFile:
    """Make a file for about `size` bytes that should reach the disk soon and need not stay in memory.

    Raises:
        SinkError: when it cannot be created.
    """
    return DirectFile(path) if _O_DIRECT and size >= _WORTH_IT else RecordFile(path)


class DirectFile(RecordFile):
    """A record file whose blocks go straight to the disk, one being written while the next is filled.

    With O_DIRECT (open(2)) memory, offset and length of a write must be aligned, to at most a page on the file systems
    of Linux; only the remainder at the end is written as usual. If a file system refuses it, everything is.
    """

    BUFFER = 1 << 18  # stays in the CPU cache between checksum and copy
    BLOCK: Final = 2 << 20

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._free: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[mmap.mmap | None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self._block = self._new_block()
        self._free.put(self._new_block())
        self._set_direct(True)
        self._thread = threading.Thread(target=self._write_blocks, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the remainder, and close."""
        try:
            self.flush()
            self._stop()
            if self._error:
                raise self._error
            size = self._block.tell()
            aligned = size - size % mmap.PAGESIZE
            block = memoryview(self._block)
            write_all(self._take, block[:aligned])
            self._set_direct(False)
            write_all(self._take, block[aligned:size])
        except OSError as error:
            raise write_failed(self.path, error) from None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing the remainder."""
        self._stop()
        super().abandon()

    def _hand_over(self, parts: Sequence[bytes], size: int) -> None:
        for part in parts:
            room = self.BLOCK - self._block.tell()
            if len(part) <= room:
                self._block.write(part)
                continue
            rest = memoryview(part)
            while rest:
                self._block.write(rest[:room])
                rest = rest[room:]
                room = self.BLOCK - self._block.tell() or self._next_block()

    def _next_block(self) -> int:
        """Hand over the full block to be written and begin another; return its size."""
        self._full.put(self._block)
        self._block = self._free.get()
        self._block.seek(0)
        if self._error:
            raise self._error
        return self.BLOCK

    def _write_blocks(self) -> None:
        while (block := self._full.get()) is not None:
            try:
                if not self._error:
                    write_all(self._take, memoryview(block))
            except OSError as error:
                self._error = error
            self._free.put(block)

    def _take(self, data: memoryview) -> int:
        """Write with one call; without O_DIRECT if the file system refuses it."""
        try:
            return os.write(self._fd, data)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._set_direct(False):
                raise
            return os.write(self._fd, data)

    def _set_direct(self, wanted: bool) -> bool:
        """Turn O_DIRECT on or off if possible; return whether that changed anything."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        new = flags | _O_DIRECT if wanted else flags & ~_O_DIRECT
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, new)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return new != flags

    def _stop(self) -> None:
        """Wait until the thread has written its blocks and ended."""
        self._full.put(None)
        self._thread.join()

    def _new_block(self) -> mmap.mmap:
        return mmap.mmap(-1, self.BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
