"""From bytes as stored to bytes of a tar or TFRecord: gzip is found by its magic number and read to its trailer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.magic import GZIP_MAGIC
from tar2tf_cli.formats.tfrecord import length_crc

__all__ = ["GzipStream", "PlainStream", "ShardStream", "open_stream"]

_HEAD: Final = 4096


class PlainStream:
    """An open input as it is stored, with its first bytes to be looked at before they are read.

    Attributes:
        head: up to 4,096 bytes from the beginning.
        consumed: bytes taken from the input so far.
    """

    def __init__(self, raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None) -> None:
        self._raw = raw
        self._name = name
        self._on_read = on_read
        self.consumed = 0
        self.head = b""
        try:
            while len(self.head) < 512 and (more := self._read(_HEAD)):
                self.head += more
        except BaseException:
            raw.close()  # nobody else could
            raise
        self._pending = self.head

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end.

        Raises:
            SourceError: when reading fails.
        """
        if self._pending:
            data, self._pending = self._pending[:size], self._pending[size:]
            return data
        return self._read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Read into a buffer; returns how many bytes, 0 only at the end."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int) -> None:
        """Go to an offset; for inputs whose raw stream can seek."""
        self._pending = b""
        self._raw.seek(offset)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the input."""
        self._raw.close()

    def _read(self, size: int) -> bytes:
        try:
            data = self._raw.read(size)
        except OSError as error:
            raise SourceError(
                f"reading failed: {error.strerror or error}", shard=self._name, offset=self.consumed
            ) from None
        self.consumed += len(data)
        if self._on_read:
            self._on_read(len(data))
        return data


class GzipStream:
    """The decompressed bytes of a gzip input; members end to end are one stream, zeros behind them padding."""

    def __init__(self, stored: PlainStream, name: str) -> None:
        from isal import igzip

        self._stored = stored
        self._name = name
        self._file: Any = igzip.IGzipFile(fileobj=stored, mode="rb")  # type: ignore[no-untyped-call]

    @property
    def consumed(self) -> int:
        """Compressed bytes taken from the input so far."""
        return self._stored.consumed

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end, after the CRC and length in the trailer were compared.

        Raises:
            DamagedShardError: when the stream is cut short, or is not gzip all through.
        """
        from isal import isal_zlib

        try:
            data: bytes = self._file.read(size)
            return data
        except EOFError:
            raise self._damage("the gzip stream ends before its trailer: it is cut short", "truncated") from None
        except (isal_zlib.error, OSError) as error:  # type: ignore[misc]  # BadGzipFile is an OSError
            raise self._damage(f"the gzip stream is damaged: {error}", "gzip") from None

    def close(self) -> None:
        """Close the input."""
        self._stored.close()

    def _damage(self, message: str, kind: str) -> DamagedShardError:
        return DamagedShardError(message, kind=kind, shard=self._name, offset=self.consumed)


ShardStream: TypeAlias = "PlainStream | GzipStream"


def open_stream(raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None) -> ShardStream:
    """Bytes of a tar or TFRecord from an open input, decompressed where its first bytes say gzip.

    Args:
        raw: the input as stored.
        name: what to call it in errors.
        on_read: called with the number of stored bytes after each read.
    """
    stored = PlainStream(raw, name, on_read)
    return GzipStream(stored, name) if _is_gzip(stored.head) else stored


def _is_gzip(head: bytes) -> bool:
    """Whether a file is gzip by its first bytes; a TFRecord may begin with the same two, as part of a length."""
    return head.startswith(GZIP_MAGIC) and head[8:12] != length_crc(head[:8])
