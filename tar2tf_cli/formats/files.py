"""Files for writing: records appended in large blocks, and files that appear at their path only when complete."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import RawIOBase
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tar2tf_cli.api.values import Sample, StoredValue
from tar2tf_cli.errors import ReaderGoneError, SampleError, SinkError, SourceError, changed, write_errors, write_failed
from tar2tf_cli.events import note_once
from tar2tf_cli.formats.checksums import extend

if TYPE_CHECKING:
    import mmap

    from typing_extensions import Self


LARGE_VALUE: Final = 6 << 20
"""Values of this size or more are not held in memory, unless something needs them whole."""

IN_PLACE: Final = 2 << 20
"""Size above which a value stays in a tar that is a file; most values there are copied to records."""

MAX_ENTRY_SIZE: Final = 512 << 20
"""The default size in bytes of the largest entry that is held in memory as a whole."""

PIECE: Final = 1 << 20
_MOST_HELD: Final = 16 << 20  # bytes of one sample in memory


class _Descriptor:
    """A file descriptor that is closed when the object is garbage-collected."""

    __slots__ = ("descriptor", "end")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.end = 0

    def __del__(self) -> None:
        os.close(self.descriptor)


class StoredBytes:
    """A value that is a range of bytes in a file, and not in memory.

    Args:
        file: the file; None for a value that was not stored.
        offset: offset of the value in the file.
        size: length in bytes.
        shard: the shard that contains the value, for errors.
        member: the name of its tar member.
        most: the size above which the value may not be held in memory as a whole.
    """

    __slots__ = ("_member", "_most", "_offset", "_shard", "_size", "file")

    def __init__(self, file: _Descriptor | None, offset: int, size: int, shard: str, member: str, most: int) -> None:
        self.file = file
        self._offset = offset
        self._size = size
        self._shard = shard
        self._member = member
        self._most = most

    def __len__(self) -> int:
        return self._size

    def check_stored(self) -> None:
        """Raise an error if the value was too large to be stored.

        Raises:
            SampleError: for such a value.
        """
        if self.file is None:
            message = f"is {self._size:,} bytes long; such large entries are read only from uncompressed local tars"
            raise SampleError(message, member=self._member, hint="save the tar to a file, or leave the entry out")

    def pieces(self) -> Iterator[bytes]:
        """Iterate over the bytes of the value, at most a mebibyte at a time.

        Raises:
            SourceError: when the file cannot be read, or has become shorter.
            SampleError: when the value was not stored.
        """
        self.check_stored()
        assert self.file
        position, end = self._offset, self._offset + self._size
        while position < end:
            try:
                data = os.pread(self.file.descriptor, min(PIECE, end - position), position)
            except OSError as error:
                raise SourceError(f"reading failed: {error.strerror or error}", shard=self._shard) from None
            if not data:
                raise changed(self._shard, position)
            yield data
            position += len(data)

    def head(self) -> bytes:
        """Return the first bytes of the value, at most a mebibyte."""
        return next(self.pieces(), b"")

    def whole(self) -> bytes:
        """Return all bytes of the value, in memory.

        Raises:
            SampleError: when the value is too large.
        """
        if self._size > self._most:
            raise SampleError(
                f"is {self._size:,} bytes long, but must fit in memory, where the limit is {self._most:,}",
                member=self._member,
                hint="raise --max-entry-size (max_entry_size in YAML and Python), or leave the entry out",
            )
        return b"".join(self.pieces())


class LargeEntries:
    """Makes the values of large members of a tar: ranges of the tar itself, or of temporary files.

    Args:
        shard: name of the tar in errors.
        descriptor: returns a descriptor of the tar, if members are at their offsets there; None to copy members.
        most: the size above which an entry may not be held in memory as a whole.
        heads_only: whether only the first mebibyte of a copied member will be used.
        least: the size from which members are ranges of the tar itself.
        on_bytes: called with the number of bytes of the tar that are skipped because later stages read them.
        begin: returns the offset in the tar of the current sample; the more of it has been read, the smaller members
            are stored.

    Attributes:
        least: the size from which members are stored.
        in_place: whether members are ranges of the tar itself.
        keeps_any: whether members of any size are stored, because only their first bytes are copied.
    """

    def __init__(
        self,
        shard: str,
        descriptor: Callable[[], int] | None,
        most: int = MAX_ENTRY_SIZE,
        *,
        heads_only: bool = False,
        least: int = LARGE_VALUE,
        on_bytes: Callable[[int], None] | None = None,
        begin: Callable[[], int] = int,
    ) -> None:
        self._shard = shard
        self._descriptor = descriptor
        self._most = most
        self._heads_only = heads_only
        self._file: _Descriptor | None = None
        self._owner = -1  # the sample whose members the temporary file holds
        self.least = min(LARGE_VALUE, least if descriptor else LARGE_VALUE, most + 1)
        self.on_bytes = on_bytes
        self._begin = begin
        self.in_place = descriptor is not None
        self.keeps_any = self.in_place or heads_only

    def is_full(self, end: int) -> bool:
        """Whether the current sample has so much data up to an offset that more should not be held in memory."""
        return end - self._begin() > _MOST_HELD

    def at(self, offset: int, size: int, member: str) -> StoredBytes:
        """Return the value of a member whose data is at an offset of the tar."""
        if self._file is None and self._descriptor:
            self._file = _Descriptor(os.dup(self._descriptor()))
        assert self._file
        return StoredBytes(self._file, offset, size, self._shard, member, self._most)

    def unread(self, size: int, member: str) -> StoredBytes:
        """Return the value of a member that is too large to be copied; using its bytes raises an error."""
        return StoredBytes(None, 0, size, self._shard, member, self._most)

    def copied(self, pieces: Iterable[bytes], size: int, member: str) -> StoredBytes:
        """Copy the data of a member to a temporary file, and return its value.

        Raises:
            SinkError: when the disk is full.
        """
        if self._file is None or self._owner != self._begin():
            self._file, self._owner = _temporary(), self._begin()
        file, start = self._file, self._file.end
        import tempfile

        with write_errors(tempfile.gettempdir()):
            for piece in pieces:
                if not self._heads_only or file.end - start < PIECE:
                    write_all(lambda data: os.write(file.descriptor, data), memoryview(piece))
                    file.end += len(piece)
        return StoredBytes(file, start, size, self._shard, member, self._most)


def _temporary() -> _Descriptor:
    """Open a temporary file without a name."""
    import tempfile

    with write_errors(tempfile.gettempdir()):
        descriptor, path = tempfile.mkstemp(prefix="tar2tf-")
        os.unlink(path)
    return _Descriptor(descriptor)


def whole(value: Any) -> Any:
    """Return a value in memory: the value itself, or the bytes of a stored value.

    Raises:
        SampleError: when the value is too large to be held in memory.
    """
    return value.whole() if type(value) is StoredBytes else value


def pieces_of(value: bytes | StoredValue) -> Iterable[bytes]:
    """Return the bytes of a value in pieces; pieces of a stored value have at most a mebibyte."""
    return (value,) if isinstance(value, bytes) else value.pieces()


def whole_sample(sample: Sample) -> Sample:
    """Return the sample with all values in memory.

    Raises:
        SampleError: when one of them is too large.
    """
    for name, value in sample.items():
        if type(value) is StoredBytes:
            sample[name] = value.whole()
    return sample


UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Errors of calls that a file system does not have."""

_DESCRIPTORS: Final = r"/dev|/proc/\d+/fd"

B = TypeVar("B", bytes, memoryview)


def write_all(write: Callable[[B], int | None], data: B) -> None:
    """Write all bytes with a function that may write only some of them and returns their number.

    Raises:
        OSError: when the function raises it, or writes nothing.
    """
    while data:
        taken = write(data)
        if taken is None:
            return  # many file-like objects write all and return None
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "it accepts no more bytes")
        data = data[taken:]


def sync(path: str) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk.

    Raises:
        SinkError: when the operating system reports an error.
    """
    with write_errors(path):
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in UNSUPPORTED or not os.path.isdir(path or "."):
                raise
            note_once(
                f"note: {path or '.'}: its file system cannot flush folders; after a power cut, files may be missing"
            )
        finally:
            os.close(descriptor)


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, so that they survive a power cut.

    Raises:
        OSError: when one cannot be made.
    """
    path = path or "."
    if os.path.isdir(path):
        return
    above = os.path.dirname(path.rstrip("/"))
    make_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    sync(above)


def is_stream(path: str) -> bool:
    """Whether a path names a device or pipe, such as `/dev/stdout`, which is written to and never replaced."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode):  # regular files that the shell opened also have a path in the folder of descriptors
        return _holds_descriptors(os.path.dirname(path))
    return not stat.S_ISDIR(mode)


@lru_cache
def _holds_descriptors(folder: str) -> bool:
    return re.fullmatch(_DESCRIPTORS, os.path.realpath(folder)) is not None


def write_whole(path: str, parts: Iterable[bytes], *, lasting: bool = True) -> None:
    """Write a file atomically, replacing any file at its path; devices and pipes are written to directly.

    Args:
        path: the file's path; the folder must exist.
        parts: the content.
        lasting: whether to wait until it is on the disk.

    Raises:
        SinkError: when it cannot be written.
    """
    if is_stream(path):
        with write_errors(path), open(path, "ab") as stream:
            stream.writelines(parts)
        return
    with WholeFile(path, lasting=lasting) as file:
        file.write(iter(parts), 0)


def crc32c_of_file(path: str) -> int:
    """Compute the CRC-32C of a whole file.

    Raises:
        OSError: when it cannot be read.
    """
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(1 << 20):
            crc = extend(crc, data)
    return crc


class _Buffered:
    """Buffer that collects small pieces and writes them together, since each write costs a system call."""

    BUFFER = 1 << 20
    MOST_PARTS: Final = 1000  # IOV_MAX is 1,024

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._pending = 0

    def write(self, parts: Iterable[bytes], size: int) -> None:
        """Append parts of `size` bytes in total; the parts of a generator are written one by one."""
        if not isinstance(parts, list):
            for part in parts:
                self.write([part], len(part))
            return
        self._parts += parts
        self._pending += size
        if self._pending >= self.BUFFER or len(self._parts) >= self.MOST_PARTS:
            self._write_out()

    def _write_out(self) -> None:
        raise NotImplementedError


class RecordFile(_Buffered):
    """A new file that buffers small pieces, checks every write, and computes the CRC of the file.

    Args:
        path: the file's path; an older file there is replaced. The folder must exist.
        part: path of the file while it is being written, if different.

    Attributes:
        size: number of bytes appended so far.
        crc: CRC-32C of the bytes written so far; of all bytes once closed.

    Raises:
        SinkError: when the file cannot be created or written; names it and the reason.
    """

    def __init__(self, path: str, part: str | None = None) -> None:
        super().__init__()
        self.path = path
        self.size = 0
        self.crc = 0
        self._where = part or path
        with write_errors(path):
            self._fd = os.open(self._where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def _write_out(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Write all buffered data to the operating system."""
        scattered = len(self._parts) <= self.MOST_PARTS and self._pending > 512 * len(self._parts)
        parts = self._parts if scattered else [b"".join(self._parts)]
        crc = self.crc
        for part in parts:
            crc = extend(crc, part)
        self.crc = crc
        self.size += self._pending
        with write_errors(self.path):
            self.hand_over(parts, self._pending)
        self._parts.clear()
        self._pending = 0

    def hand_over(self, parts: Sequence[bytes], size: int) -> None:
        written = os.writev(self._fd, parts)
        if written < size:
            write_all(lambda data: os.write(self._fd, data), memoryview(b"".join(parts))[written:])

    @property
    def pending(self) -> int:
        """The number of buffered bytes."""
        return self._pending

    def cut(self, size: int) -> None:
        """Remove all bytes after an offset."""
        self.flush()
        with write_errors(self.path):
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        self.size, self.crc = size, crc32c_of_file(self._where)

    def sync(self) -> None:
        """Flush the file, and wait until its bytes are on the disk."""
        self.flush()
        with write_errors(self.path):
            os.fsync(self._fd)

    def close(self) -> None:
        """Flush and close the file."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without writing buffered data."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class WholeFile(RecordFile):
    """A record file that appears at its path only when it is closed, complete and on the disk; `abandon` deletes it.

    Until then it has a hidden name in the same folder.

    Args:
        path: the file's path; an existing file is replaced at closing. The folder must exist.
        lasting: whether closing waits until file and name are on the disk.
    """

    def __init__(self, path: str, *, lasting: bool = True) -> None:
        folder, base = os.path.split(path)
        self._part = os.path.join(folder, f".{base}.{os.urandom(4).hex()}.part")
        super().__init__(path, self._part)
        self._lasting = lasting

    def close(self) -> None:
        """Flush, close and rename the file to its path."""
        try:
            if self._lasting:
                self.sync()
            else:
                self.flush()
            with write_errors(self.path):
                os.replace(self._part, self.path)
            self._part = ""
        finally:
            self.abandon()
        if self._lasting:
            sync(os.path.dirname(self.path))

    def abandon(self) -> None:
        """Close the file, and delete it unless it has been renamed to its path."""
        super().abandon()
        if self._part:
            with contextlib.suppress(OSError):
                os.unlink(self._part)


O_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_WORTH_IT: Final = 8 << 20


def shard_file(path: str, size: int) -> RecordFile:
    """Open a file for about `size` bytes that should reach the disk soon and need not stay in the page cache.

    Raises:
        SinkError: when it cannot be created.
    """
    return DirectFile(path) if O_DIRECT and size >= _WORTH_IT else RecordFile(path)


class DirectFile(RecordFile):
    """A record file that bypasses the page cache, and writes one block while the next one is filled.

    O_DIRECT (open(2)) requires aligned memory, offsets and lengths, to at most a page on Linux file systems, so the
    remainder at the end is written without it. If a file system refuses O_DIRECT, all writes are ordinary.
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
        """Write the remaining bytes, and close the file."""
        from mmap import PAGESIZE

        try:
            self.flush()
            self._stop()
            if self._error:
                raise self._error
            size = self._block.tell()
            aligned = size - size % PAGESIZE
            block = memoryview(self._block)
            write_all(self._take, block[:aligned])
            self._set_direct(False)
            write_all(self._take, block[aligned:size])
        except OSError as error:
            raise write_failed(self.path, error) from None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without writing the remaining bytes."""
        self._stop()
        super().abandon()

    def hand_over(self, parts: Sequence[bytes], size: int) -> None:
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
        """Queue the full block to be written and begin another; return the block's size."""
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
        """Write bytes with one call, turning O_DIRECT off if the file system refuses it."""
        try:
            return os.write(self._fd, data)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._set_direct(False):
                raise
            return os.write(self._fd, data)

    def _set_direct(self, wanted: bool) -> bool:
        """Turn O_DIRECT on or off if possible; return whether that changed anything."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        new = flags | O_DIRECT if wanted else flags & ~O_DIRECT
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
        import mmap  # imported here, as only large files need it

        return mmap.mmap(-1, self.BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class RecordStream(_Buffered):
    """Writer that buffers small pieces and writes them to an open binary file, which it flushes but does not close.

    Args:
        out: an object with `write(data)`, which may write only part of the data and then returns the number of bytes.
        name: its name in errors.

    Raises:
        SinkError: when the file cannot be written.
    """

    def __init__(self, out: Any, name: str) -> None:
        super().__init__()
        self._out = out
        self._name = name

    def flush(self) -> None:
        """Write buffered data, and flush the file if it has `flush`."""
        self._write_out()
        if callable(flush := getattr(self._out, "flush", None)):
            self._attempt(flush)

    def _write_out(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        self._attempt(write_all, self._write, data)

    def _write(self, data: bytes) -> int | None:
        """Write to the file; return the number of bytes, or None if the file's `write` returned nothing, as many do."""
        taken: int | None = self._out.write(data)
        return 0 if taken is None and isinstance(self._out, RawIOBase) else taken

    def _attempt(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments)
        except BrokenPipeError:
            raise ReaderGoneError(f"{self._name} was closed before everything was written") from None
        except OSError as error:
            raise write_failed(self._name, error) from None
        except (ValueError, TypeError) as error:  # the file is closed, or a text file
            raise SinkError(f"cannot be written: {error}", shard=self._name) from None
