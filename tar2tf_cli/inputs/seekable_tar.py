"""Tars by offset: a plain local tar is read where it is, any other from a temporary copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import IO, Final

from tar2tf_cli.errors import DamagedShardError, SourceError, write_errors
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.compression import PlainStream
from tar2tf_cli.formats.record_file import write_all

__all__ = ["FileView", "SeekableTar"]

_PIECE: Final = 1 << 20


class FileView:
    """An open file as a stream that has its own position, so that several can be read in turn.

    Args:
        descriptor: of the file, which someone else closes.
        name: what to call it in errors.
        on_read: called with the number of bytes after each read.
    """

    def __init__(self, descriptor: int, name: str, on_read: Callable[[int], None] | None = None) -> None:
        self._descriptor = descriptor
        self._name = name
        self._on_read = on_read
        self._position = 0

    def seek(self, offset: int) -> None:
        """Go to an offset."""
        self._position = offset

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end.

        Raises:
            SourceError: when reading fails.
        """
        try:
            data = os.pread(self._descriptor, size, self._position)
        except OSError as error:
            message = f"reading failed: {error.strerror or error}"
            raise SourceError(message, shard=self._name, offset=self._position) from None
        self._position += len(data)
        if self._on_read:
            self._on_read(len(data))
        return data


class SeekableTar:
    """The decompressed bytes of a tar by offset; nothing is opened or copied before the first view.

    Args:
        open_tar: returns the tar at its first byte.
        name: what to call it in errors.
        seekable: whether it can be read by offset if it is not compressed.

    Attributes:
        damage: why the copy is not whole.
    """

    def __init__(self, open_tar: Callable[[], ByteStream], name: str, *, seekable: bool) -> None:
        self._open = open_tar
        self._name = name
        self._seekable = seekable
        self._file: PlainStream | IO[bytes] | None = None
        self.damage: DamagedShardError | None = None

    def view(self, on_read: Callable[[int], None] | None = None) -> FileView:
        """The tar as a stream that can seek; each view has its own position.

        Raises:
            SourceError: when the tar cannot be read.
            SinkError: when there is no room for a copy.
        """
        if self._file is None:
            stream = self._open()
            if self._seekable and isinstance(stream, PlainStream):
                self._file = stream
            else:
                with closing(stream):
                    self._file = self._copied(stream)
        return FileView(self._file.fileno(), self._name, on_read)

    def descriptor(self) -> int:
        """The file descriptor of the tar, or of its copy."""
        self.view()
        assert self._file
        return self._file.fileno()

    def close(self) -> None:
        """Close the tar, and remove the copy."""
        if self._file:
            self._file.close()
            self._file = None

    def _copied(self, stream: ByteStream) -> IO[bytes]:
        import tempfile

        with write_errors(tempfile.gettempdir()):
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed by `close`
            try:
                while data := stream.read(_PIECE):
                    write_all(file.write, data)
            except DamagedShardError as error:
                self.damage = error
            except BaseException:
                file.close()
                raise
        return file
