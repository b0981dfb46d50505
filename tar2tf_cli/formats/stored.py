"""Large values that stay in a file until they are used, a piece at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tar2tf_cli.errors import SampleError, SourceError, changed, write_errors

LARGE: Final = 6 << 20
"""Values of this size or more are not held in memory, unless something needs them whole."""

IN_PLACE: Final = 2 << 20
"""The same where the file is the tar itself, and values are mostly copied to records."""

MAX_ENTRY_SIZE: Final = 512 << 20
"""The default size in bytes of the largest entry that is held in memory as a whole."""

DEFAULT_MAX_PIXELS: Final = 2**27
"""Height x width above which an image is not decoded: 402 MB of RGB bytes."""

PIECE: Final = 1 << 20
_MOST_HELD: Final = 16 << 20  # of one sample in memory


class _File:
    """A file descriptor of its own, closed when nothing refers to it any more."""

    __slots__ = ("descriptor", "end")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.end = 0

    def __del__(self) -> None:
        os.close(self.descriptor)


class StoredBytes:
    """A value as a range of bytes in a file.

    Args:
        file: the file.
        offset: where the value begins.
        size: length in bytes.
        shard: the shard that it is from, for errors.
        member: its name there.
        most: the size above which it may not be held in memory as a whole.
    """

    __slots__ = ("_file", "_member", "_most", "_offset", "_shard", "_size")

    def __init__(self, file: _File, offset: int, size: int, shard: str, member: str, most: int) -> None:
        self._file = file
        self._offset = offset
        self._size = size
        self._shard = shard
        self._member = member
        self._most = most

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        """The bytes, at most a mebibyte at a time.

        Raises:
            SourceError: when the file cannot be read, or has become shorter.
        """
        position, end = self._offset, self._offset + self._size
        while position < end:
            try:
                data = os.pread(self._file.descriptor, min(PIECE, end - position), position)
            except OSError as error:
                raise SourceError(f"reading failed: {error.strerror or error}", shard=self._shard) from None
            if not data:
                raise changed(self._shard, position)
            yield data
            position += len(data)

    def head(self) -> bytes:
        """The first bytes, up to a mebibyte."""
        return next(self.pieces(), b"")

    def whole(self) -> bytes:
        """All bytes, in memory.

        Raises:
            SampleError: when they are too many.
        """
        if self._size > self._most:
            raise SampleError(
                f"is {self._size:,} bytes long, and has to be in memory as a whole, where the limit is {self._most:,}",
                member=self._member,
                hint="raise --max-entry-size (max_entry_size in YAML and Python), or leave the entry out",
            )
        return b"".join(self.pieces())


class LargeEntries:
    """Makes values of large members of a tar: ranges of the tar itself, or of temporary files.

    Args:
        shard: what to call the tar in errors.
        descriptor: returns a descriptor of the tar, if members are at their offsets there; None to copy members.
        most: the size above which an entry may not be held in memory as a whole.
        heads_only: whether only the first mebibyte of a copied member will be used.
        least: the size from which members are ranges of the tar itself.
        on_bytes: called with the number of bytes of the tar that need not be read, as others read them.

    Attributes:
        least: the size from which members are stored.
        begin: offset in the tar of the current sample; the more of it has been read, the smaller members are stored.
    """

    def __init__(
        self,
        shard: str,
        descriptor: Callable[[], int] | None,
        most: int = MAX_ENTRY_SIZE,
        *,
        heads_only: bool = False,
        least: int = LARGE,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._shard = shard
        self._descriptor = descriptor
        self._most = most
        self._heads_only = heads_only
        self._file: _File | None = None
        self._owner = -1  # the sample whose members the temporary file holds
        self.least = min(LARGE, least if descriptor else LARGE, most + 1)
        self.on_bytes = on_bytes
        self.begin: Callable[[], int] = int
        self.in_place = descriptor is not None

    def is_full(self, end: int) -> bool:
        """Whether the current sample has so much data up to an offset that further members should be stored."""
        return end - self.begin() > _MOST_HELD

    def at(self, offset: int, size: int, member: str) -> StoredBytes:
        """The value of a member whose data is at an offset of the tar."""
        if self._file is None and self._descriptor:
            self._file = _File(os.dup(self._descriptor()))
        assert self._file
        return StoredBytes(self._file, offset, size, self._shard, member, self._most)

    def copied(self, pieces: Iterable[bytes], size: int, member: str) -> StoredBytes:
        """The value of a member whose data is copied to a temporary file.

        Raises:
            SinkError: when there is no room for it.
        """
        if self._file is None or self._owner != self.begin():
            self._file, self._owner = _temporary(), self.begin()
        file, start = self._file, self._file.end
        import tempfile

        from tar2tf_cli.formats.files import write_all

        with write_errors(tempfile.gettempdir()):
            for piece in pieces:
                if not self._heads_only or file.end - start < PIECE:
                    write_all(lambda data: os.write(file.descriptor, data), memoryview(piece))
                    file.end += len(piece)
        return StoredBytes(file, start, size, self._shard, member, self._most)


def _temporary() -> _File:
    """A temporary file without a name."""
    import tempfile

    with write_errors(tempfile.gettempdir()):
        descriptor, path = tempfile.mkstemp(prefix="tar2tf-")
        os.unlink(path)
    return _File(descriptor)


def whole(value: Any) -> Any:
    """The value itself, or the bytes of a stored one.

    Raises:
        SampleError: when they are too many to be held in memory.
    """
    return value.whole() if type(value) is StoredBytes else value


def whole_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """The same sample, with all values in memory.

    Raises:
        SampleError: when one of them is too large.
    """
    for name, value in sample.items():
        if type(value) is StoredBytes:
            sample[name] = value.whole()
    return sample
