"""The working folder of a conversion: unfinished files, a lock held by one process, a journal of finished shards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from typing import Any, BinaryIO, Final

from tar2tf_cli.errors import OutputExistsError, SinkError, write_errors
from tar2tf_cli.events import note_once
from tar2tf_cli.formats.checksums import extend
from tar2tf_cli.formats.files import UNSUPPORTED, make_folders, write_all, write_whole

LOCK_SECONDS: Final = 5.0
_LOCK: Final = "lock"
_JOURNAL: Final = "journal"
_RUN_FILES: Final = (
    r"(?s)lock|journal|labels|input-\d+\.(index|spool|table)|shard-.*\.part(\.idx)?|made-.*\.end|(sizes|document)\.part"
    r"|previous\.sizes|\..*\.part|\.attempt-.*|tmp\w+"
)
"""A pattern of the names of all files that runs make in a working folder."""


class WorkingFolder:
    """A folder with the files of an unfinished run; removed once the output is complete.

    Args:
        path: the local folder.
        output: path or URL of the output, as shown to users.

    Attributes:
        unsynced: paths that must be flushed to disk before any shard is published.
    """

    def __init__(self, path: str, output: str) -> None:
        self.path = path
        self.unsynced: list[str] = []
        self._output = output
        self._lock = self._journal = -1
        self._entries = b""
        self._unused = False

    def check(self) -> None:
        """Check that nothing but the files of an unfinished run would be removed.

        Raises:
            OutputExistsError: when the folder is a link, or contains a file that no run makes.
        """
        hint = "move it away: tar2tf keeps unfinished work under this name, and removes it when it is done"
        if os.path.islink(self.path) or (os.path.lexists(self.path) and not os.path.isdir(self.path)):
            raise OutputExistsError("is not a folder of unfinished work", shard=self.path, hint=hint)
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.path)):
                if name != _LOCK and not re.fullmatch(_RUN_FILES, name):
                    message = f"has {name!r}, which is not a file of unfinished work"
                    raise OutputExistsError(message, shard=self.path, hint=hint)

    def lock(self) -> None:
        """Create the folder and take its lock, waiting a few seconds for a run that is about to end.

        Raises:
            OutputExistsError: when the folder is not a working folder.
            SinkError: when another run still holds the lock after that time; the message names the run.
        """
        self.check()
        deadline = time.monotonic() + LOCK_SECONDS
        self._unused = not os.path.lexists(self.path)
        while not self._is_locked():
            if time.monotonic() > deadline:
                message = f"another tar2tf{self._holder()} is writing this output"
                raise SinkError(message, shard=self._output, hint="wait until it is done")
            time.sleep(0.05)

    def _holder(self) -> str:
        """Return the run that holds the lock, as described in the lock file; empty if unknown."""
        with contextlib.suppress(OSError), open(self._file(_LOCK), encoding="utf-8", errors="replace") as file:
            if text := file.read(300).strip():
                return f" ({text})"
        return ""

    def _is_locked(self) -> bool:
        """Try to take the lock; return True if this run has it and other runs will open the same lock file."""
        path = self._file(_LOCK)
        make_folders(self.path)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # a run that ends may have removed the folder
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._take_lock()
            if os.path.samestat(os.fstat(self._lock), os.stat(path)):
                return True
        self.release()
        return False

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            note_once(
                f"note: {self.path}: its file system has no locks; let only one command write this output at a time"
            )

    def read_journal(self) -> tuple[Any, list[Any]]:
        """Read the journal's head and its entries up to a damaged one; the head is None if missing."""
        with contextlib.suppress(FileNotFoundError, ValueError), open(self._file(_JOURNAL), "rb") as file:
            head = parse_entry(file.readline())
            if isinstance(head, dict) and "identity" in head:
                self._entries, entries = _parsed(file.read())
                return head, entries
        return None, []

    def open(self, name: str) -> BinaryIO | None:
        """Open a file of an interrupted run; None if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return open(self._file(name), "rb")
        return None

    def begin_journal(self, head: object, *, keep: bool) -> None:
        """Start a new journal, and write the name of this run to the lock file.

        A first journal is not flushed to the disk immediately: the files in `unsynced` must be flushed before any shard
        is published, or a crash could leave stray files.

        Args:
            head: the first entry.
            keep: whether to keep the entries read so far.
        """
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        path = self._file(_JOURNAL)
        self.unsynced = [] if os.path.exists(path) else [path, self.path]
        write_whole(path, [format_entry(head), self._entries if keep else b""], lasting=not self.unsynced)
        self._entries = b""
        self._journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def note(self, entry: object) -> None:
        """Append an entry to the journal."""
        self._unused = False
        with write_errors(self._file(_JOURNAL)):
            write_all(lambda rest: os.write(self._journal, rest), format_entry(entry))

    def clear(self, *, strays: bool = False, journal: bool = False) -> None:
        """Remove the files of an interrupted run.

        Args:
            strays: remove only half-written temporary files, which no later run uses.
            journal: also remove the journal.
        """
        kept = (_LOCK,) if journal else (_LOCK, _JOURNAL)
        for name in os.listdir(self.path):
            if name not in kept and (name.startswith(".") or not strays):
                _remove(self._file(name))

    def remove(self) -> None:
        """Remove the folder, with the lock last: the next run to take the lock must find the folder empty."""
        self.clear(journal=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(_LOCK))
        with contextlib.suppress(OSError):  # another run has begun
            os.rmdir(self.path)

    def abandon(self) -> None:
        """Release the folder, and remove it if this run created it and wrote nothing that a later run could use."""
        with contextlib.suppress(OSError):
            if self._lock >= 0 and {*os.listdir(self.path)} <= ({_LOCK, _JOURNAL} if self._unused else {_LOCK}):
                self.remove()
        self.release()

    def release(self) -> None:
        """Release the lock and close the journal."""
        for descriptor in (self._journal, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._journal = self._lock = -1

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


def _remove(path: str) -> None:
    """Remove a file or a folder, which a lost process on another node may be removing concurrently."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # Linux, macOS
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def _parsed(lines: bytes) -> tuple[bytes, list[object]]:
    """Return the lines up to a damaged one, and their entries."""
    entries, end = list[bytes](), 0
    for line in lines.splitlines(keepends=True):
        data, _, crc = line.rpartition(b" ")
        if crc != b"%08x\n" % extend(0, data):
            break
        entries.append(data)
        end += len(line)
    return lines[:end], json.loads(b"[" + b",".join(entries) + b"]")  # all at once, as there may be millions


def format_entry(entry: object) -> bytes:
    """Return the journal line of an entry: JSON and its CRC-32C."""
    data = json.dumps(entry).encode()
    return b"%s %08x\n" % (data, extend(0, data))


def parse_entry(line: bytes) -> Any:
    """Parse a line of the journal.

    Raises:
        ValueError: when the line is damaged or truncated.
    """
    (entry,) = _parsed(line)[1]
    return entry
