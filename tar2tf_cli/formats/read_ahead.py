"""Compressed inputs that a second thread decompresses a few blocks ahead: one large input keeps two CPUs busy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from queue import Empty, Queue
from threading import Thread
from typing import Final

from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.compression import CompressedStream, PlainStream, open_stream

__all__ = ["ReadAhead", "open_ahead"]

_BLOCK: Final = 1 << 18
_BLOCKS: Final = 8
_SECONDS: Final = 0.05


def open_ahead(raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None) -> PlainStream | ReadAhead:
    """Like `open_stream`, but what is compressed is decompressed ahead."""
    stream = open_stream(raw, name, on_read)
    return stream if isinstance(stream, PlainStream) else ReadAhead(stream)


class ReadAhead:
    """The bytes of a compressed input, decompressed by a thread; counts what is read in the calling thread.

    Args:
        stream: the input, at its first byte.
    """

    def __init__(self, stream: CompressedStream) -> None:
        self._stream = stream
        self._told = stream.consumed
        self._on_read = stream.take_on_read()
        self._blocks: Queue[bytes | BaseException] = Queue(_BLOCKS)
        self._pending = b""
        self._last: bytes | BaseException | None = None
        self._closed = False
        self._thread = Thread(target=self._read_blocks, name="tar2tf-decompress", daemon=True)

    @property
    def consumed(self) -> int:
        """Compressed bytes taken from the input so far."""
        return self._stream.consumed

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end.

        Raises:
            DamagedShardError: when the stream is damaged, each time.
            SourceError: when reading fails.
        """
        data = self._pending or self._next_block()
        self._pending = data[size:]
        return data[:size]

    def close(self) -> None:
        """Stop the thread, and close the input."""
        self._closed = True
        while self._thread.is_alive():
            with contextlib.suppress(Empty):
                self._blocks.get(timeout=_SECONDS)
        self._stream.close()

    def _next_block(self) -> bytes:
        if self._last is None:
            if self._thread.ident is None:
                self._thread.start()
            block = self._blocks.get()
            if isinstance(block, BaseException) or not block:
                self._last = block
            self._tell()
        else:
            block = self._last
        if isinstance(block, BaseException):
            raise block
        return block

    def _tell(self) -> None:
        before, self._told = self._told, self._stream.consumed
        if self._on_read:
            self._on_read(self._told - before)

    def _read_blocks(self) -> None:
        last: bytes | BaseException | None = None
        while last is None and not self._closed:
            parts: list[bytes] = []
            size = 0
            try:
                while size < _BLOCK and (data := self._stream.read(_BLOCK)):
                    parts.append(data)
                    size += len(data)
                last = None if size >= _BLOCK else b""
            except BaseException as error:  # what precedes it comes first
                last = error
            if parts:
                self._blocks.put(b"".join(parts))
        self._blocks.put(b"" if last is None else last)
