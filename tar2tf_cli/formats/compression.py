"""From bytes as stored to bytes of a tar or TFRecord: gzip, zstd, bzip2, xz and zlib are found by the first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tar2tf_cli.errors import AGAIN, DamagedShardError, SourceError
from tar2tf_cli.formats.bytestream import ByteStream, read_into
from tar2tf_cli.formats.magic import ZLIB_MAGIC
from tar2tf_cli.formats.tfrecord import begins_record

T = TypeVar("T")

HEAD: Final = 4096
_SHORTER: Final = "compress it again with --long=27 at most"


class PlainStream:
    """An open input as it is stored, with its first bytes to be looked at before they are read.

    Attributes:
        head: bytes from the beginning, up to as many as are read first, and at least 512 unless there are fewer.
        consumed: bytes taken from the input so far.
    """

    method = ""

    def __init__(
        self, raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None, first: int = HEAD
    ) -> None:
        self._raw = raw
        self._name = name
        self._on_read = on_read
        self.consumed = 0
        self.head = b""
        try:
            while len(self.head) < 512 and (more := self._read(first)):
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
        if self._pending:
            data = self.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        return self._counted(partial(read_into, self._raw), buffer, int)

    def seek(self, offset: int) -> None:
        """Go to an offset; for inputs whose raw stream can seek."""
        self._pending = b""
        self._raw.seek(offset)  # type: ignore[attr-defined]

    def fileno(self) -> int:
        """The file descriptor of a local input."""
        return self._raw.fileno()  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        """Close the input."""
        self._raw.close()

    def _read(self, size: int) -> bytes:
        return self._counted(self._raw.read, size, len)

    def _counted(self, read: Callable[[Any], T], what: int | bytearray | memoryview, size_of: Callable[[T], int]) -> T:
        try:
            found = read(what)
        except OSError as error:
            raise SourceError(
                f"reading failed: {error.strerror or error}", shard=self._name, offset=self.consumed
            ) from None
        size = size_of(found)
        self.consumed += size
        if self._on_read:
            self._on_read(size)
        return found


class CompressedStream:
    """The decompressed bytes of an input: one or more streams, with zeros as padding.

    Args:
        stored: the input.
        name: what to call it in errors.
        method: `gzip`, `zstd`, `bzip2`, `xz` or `zlib`.

    Attributes:
        size: bytes that were decompressed so far.
        wrong: why what was decompressed may be wrong from the first byte on: checksums come at the end. None for one
            that is only cut short.
        unusual: what was found so far at which TensorFlow stops, although the bytes are whole; empty for nothing.
    """

    def __init__(self, stored: PlainStream, name: str, method: str) -> None:
        self._stored = stored
        self._name = name
        self.method = method
        self._begin, self._errors, self._limit, self._piece = _METHODS[method]()
        self._decoder: Any = None  # between two streams
        self._compressed = self._first = b""
        self._given = 0  # bytes of this stream
        self.size = 0
        self.wrong: DamagedShardError | None = None
        self.unusual = ""
        self._pending: bytes | memoryview = b""

    @property
    def consumed(self) -> int:
        """Compressed bytes taken from the input so far."""
        return self._stored.consumed

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end, after the checksums that the method has were compared.

        Raises:
            DamagedShardError: when the stream is cut short, or is not of its method all through.
        """
        while not self._pending:
            if self._decoder is None:
                if not self._next_stream():
                    return b""
                self._decoder = self._begin()
            self._pending = self._decoded()
        data = self._pending
        self._pending = memoryview(data)[size:] if len(data) > size else b""
        return data if type(data) is bytes and len(data) <= size else bytes(data[:size])

    def close(self) -> None:
        """Close the input."""
        self._stored.close()

    def _next_stream(self) -> bool:
        """Whether there is another stream; zeros before it are skipped."""
        while not self._compressed:
            data = self._stored.read(self._piece)
            if not data:
                return False
            self._compressed = self._without_padding(data)
        first, self._first = self._first, self._first or self._compressed[:1]
        if self._compressed[:1] != self._first and self.method != "zstd":  # whose frames begin in several ways
            message = f"the bytes after the end of the {self.method} stream are not another {self.method} stream"
            raise self._damage(message, "trailing_garbage")
        if self._compressed[3:4] > b"\x1f" and self.method == "gzip":  # RFC 1952, section 2.3.1.2
            raise self._damage("the header of the gzip stream has flags that do not exist", "gzip")
        if first and self.method == "zlib":
            self.unusual = "another zlib stream follows, which TensorFlow does not read"
        elif first and not self._given:
            self.unusual = f"an empty {self.method} stream precedes others, which TensorFlow does not read"
        self._given = 0
        return True

    def _decoded(self) -> bytes:
        decoder, data = self._decoder, b""
        if getattr(decoder, "needs_input", True):
            data = self._compressed or self._stored.read(self._piece)
            self._compressed = b""
            if not data:
                raise self._damage(f"the {self.method} stream ends too early: it is cut short", "truncated")
        try:
            decoded: bytes = decoder.decompress(data, *self._limit)
        except self._errors as error:
            raise self._refused(error) from None
        self._given += len(decoded)
        self.size += len(decoded)
        if decoder.eof:
            self._compressed, self._decoder = self._without_padding(decoder.unused_data), None
        return decoded

    def _without_padding(self, data: bytes) -> bytes:
        if self.method == "gzip" and data[:1] == b"\0":
            self.unusual = "zeros follow a gzip stream, at which TensorFlow fails"
        return data.lstrip(b"\0")

    def _refused(self, error: Exception) -> DamagedShardError:
        if "too much memory" in str(error):  # as zstd says
            return self._damage("the zstd stream needs more than 128 MiB to be decompressed", self.method, _SHORTER)
        self.wrong = self._damage(f"the {self.method} stream is damaged: {error}", self.method)
        return self.wrong

    def _damage(self, message: str, kind: str, hint: str = AGAIN) -> DamagedShardError:
        return DamagedShardError(message, kind=kind, shard=self._name, offset=self.consumed, hint=hint)


class _Method(NamedTuple):
    """How streams are decompressed.

    Attributes:
        begin: returns a decompressor.
        errors: what it raises.
        limit: the most bytes that it returns at once, if it takes a limit; of these, what precedes damage is lost.
        piece: how many compressed bytes it is given at once; without a limit, it decompresses all of them: 128 MB at
            the very most.
    """

    begin: Callable[[], Any]
    errors: Any
    limit: tuple[int, ...] = ()
    piece: int = 4096


def _gzip() -> _Method:
    from isal import igzip_lib

    begin = partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_GZIP)  # checks CRC and length
    return _Method(begin, igzip_lib.IsalError, (1 << 15,), 1 << 16)


def _zstd() -> _Method:
    from zstandard import ZstdDecompressor, ZstdError

    return _Method(lambda: ZstdDecompressor().decompressobj(), ZstdError)


def _bzip2() -> _Method:
    from bz2 import BZ2Decompressor

    return _Method(BZ2Decompressor, (OSError, ValueError), (1 << 20,))


def _xz() -> _Method:
    from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

    return _Method(partial(LZMADecompressor, FORMAT_XZ), LZMAError, (1 << 20,))


def _zlib() -> _Method:
    from zlib import decompressobj, error

    return _Method(decompressobj, error)


_METHODS: Final = {"gzip": _gzip, "zstd": _zstd, "bzip2": _bzip2, "xz": _xz, "zlib": _zlib}

_MAGIC: Final = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bzip2>BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90))"
    rb"|(?P<xz>\xfd7zXZ\0)"
)

ShardStream: TypeAlias = "PlainStream | CompressedStream"


def open_stream(
    raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None, *, first: int = HEAD
) -> ShardStream:
    """Bytes of a tar or TFRecord from an open input, decompressed where its first bytes say how.

    Args:
        raw: the input as stored.
        name: what to call it in errors.
        on_read: called with the number of stored bytes after each read.
        first: how many bytes are read at first, to look at them.
    """
    stored = PlainStream(raw, name, on_read, first)
    method = compression_of(stored.head)
    return CompressedStream(stored, name, method) if method else stored


def compression_of(head: bytes) -> str | None:
    """How a file is compressed by its first bytes; a TFRecord may begin with the same ones, as part of a length."""
    match = _MAGIC.match(head)
    if match:
        return None if begins_record(head) else match.lastgroup
    return "zlib" if head.startswith(ZLIB_MAGIC) and _is_zlib_tfrecord(head) else None


def _is_zlib_tfrecord(head: bytes) -> bool:
    """Whether zlib decompresses these bytes to the beginning of a TFRecord; a tar is never stored like this."""
    from zlib import decompressobj, error

    try:
        first = decompressobj().decompress(head, 12)
    except error:
        return False
    return begins_record(first)
