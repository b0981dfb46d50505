"""Streams of open inputs: detection of their format, decompression, and a cursor with an offset.

gzip, zstd, bzip2, xz and zlib are recognised by their first bytes.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from io import BytesIO
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.objects import ByteStream, Readable
from tar2tf_cli.errors import RECREATE_HINT, DamagedShardError, SourceError, Tar2tfError, UsageError, few
from tar2tf_cli.formats.example import begins_record
from tar2tf_cli.structs import NamedTuple, Protocol

T = TypeVar("T")
S = TypeVar("S")


# --- Open inputs ---


def read_into(stream: Readable, buffer: bytearray | memoryview) -> int:
    """Read at most as many bytes as a buffer holds; return their number, which is 0 only at the end."""
    if into := getattr(stream, "readinto", None):
        return int(into(buffer))
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)


_AT_ONCE: Final = 1 << 20


def read_to_end(stream: ByteStream) -> bytes:
    """Read a short stream to its end, and close it."""
    with closing(stream):
        return b"".join(iter(partial(stream.read, _AT_ONCE), b""))


class Peekable(ByteStream, Protocol):
    """A stream whose next bytes can be peeked at."""

    def peek(self, size: int, /) -> bytes:
        """Return the next bytes without consuming them; fewer only at the end, or before damage."""


# --- File formats by their first bytes ---

GZIP_MAGIC: Final = b"\x1f\x8b"
ZLIB_MAGIC: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_MAGICS: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"BM", "image/bmp"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (b"\x76\x2f\x31\x01", "image/exr"),
    (b"8BPS\0", "image/psd"),
    (b"\x93NUMPY", "npy"),
    (GZIP_MAGIC, "gzip"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b".snd", "audio/basic"),
    (b"\x80\x04\x95", "pickle"),
    (b"%PDF-", "application/pdf"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"LZIP\1", "lzip"),
    (b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"\x1f\x9d", "compress"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
)
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""How a file begins that Git LFS left in place of another."""

LFS_PULL: Final = "fetch what it points to: git lfs pull"

_FETCH: Final = "if it is an error page, fetch the shard itself"
_IMAGES: Final = "for images, name their folder with convert --from imagefolder"
_ADVICE: Final = {
    "zip": ("a zip archive", "unzip it and make a tar of its contents, such as tar cf x.tar --sort=name -C FOLDER ."),
    "7z": ("a 7z archive", "unpack it and make a tar of its contents"),
    "rar": ("a RAR archive", "unpack it and make a tar of its contents"),
    "lz4": ("compressed with lz4", "decompress it first: lz4 -d FILE x.tar"),
    "lzip": ("compressed with lzip", "decompress it first: lzip -d FILE"),
    "lzop": ("compressed with lzop", "decompress it first: lzop -d FILE"),
    "lzma": ("compressed with lzma", "decompress it first: xz -d -c --format=lzma FILE > x.tar"),
    "compress": ("compressed with compress (.Z)", "decompress it first: gzip -d FILE"),
    "zlib": (
        "compressed with ZLIB, as TFRecord may be",
        "decompress it first, with Python's zlib.decompress, or write it with GZIP or no compression",
    ),
    "tfrecord": ("a TFRecord", "convert, inspect and verify read TFRecord"),
    "parquet": ("a Parquet file", "export its rows as samples of a tar"),
    "arrow": ("an Arrow file", "export its rows as samples of a tar"),
    "hdf5": ("an HDF5 file", "export its rows as samples of a tar"),
    "gzip": ("compressed twice", "decompress it once, for example with gzip -d FILE"),
    "npy": ("an npy array", "put the arrays into a tar, one entry per sample"),
    "npz": ("an npz file", "put the arrays into a tar, one entry per sample"),
    "pickle": ("a pickle", "export its contents as samples of a tar"),
}
"""Kinds of files that are not tars, each with its name and a hint."""

IMAGE_SUFFIXES: Final = frozenset(
    ["bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"]
)
"""Suffixes of image files, in lower case; the content decides whether a file is an image."""

_LZMA: Final = rb"(?s)\x5d\0\0.{2}\xff{8}"  # usual settings, unknown size
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {
    b"M4A ": "audio/mp4",
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heic",
}


def sniff(data: bytes) -> str | None:
    """Return the format of a file from its first bytes: `image/jpeg`, `npy`, `gzip`, …; None when it is unknown."""
    for magic, kind in _MAGICS:
        if data.startswith(magic):
            return "video/x-matroska" if kind == "video/webm" and b"matroska" in data[:64] else kind
    if data[:1] == b"\xff" and is_mp3_frame(data):
        return "audio/mpeg"
    if data.startswith(b"PK\x03\x04"):
        return "npz" if data[30 : 30 + int.from_bytes(data[26:28], "little")].endswith(b".npy") else "zip"
    if data.startswith((b"RIFF", b"RF64")):
        return _RIFF.get(data[8:12])
    if data.startswith(b"FORM") and data[8:12] in (b"AIFF", b"AIFC"):
        return "audio/aiff"
    return _BRANDS.get(data[8:12], "video/mp4") if data[4:8] == b"ftyp" else None


def is_mp3_frame(data: bytes) -> bool:
    """Whether data begins with the header of an MPEG audio frame of layer III (ISO 11172-3, 2.4.1.3)."""
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return False
    version, bitrate, rate = data[1] >> 3 & 3, data[2] >> 4, data[2] >> 2 & 3
    return version != 1 and 0 < bitrate < 15 and rate != 3


def riff_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, data offset and data size of each chunk of a RIFF file such as WAV or WebP."""
    position = 12
    while position + 8 <= len(data):
        name, size = data[position : position + 4], int.from_bytes(data[position + 4 : position + 8], "little")
        yield name, position + 8, size
        position += 8 + size + size % 2


def foreign(head: bytes) -> tuple[str, str] | None:
    """Return the kind of a file that is not a tar, from its first bytes, and a hint; None if it is unknown."""
    kind = sniff(head) or ("zlib" if head.startswith(ZLIB_MAGIC) else "lzma" if re.match(_LZMA, head) else "")
    if begins_record(head):
        kind = "tfrecord"
    if kind.startswith("image/"):
        return f"an image ({kind})", _IMAGES
    return _ADVICE.get(kind) or _text(head)


def _text(head: bytes) -> tuple[str, str] | None:
    """Return the beginning of a text file, and a hint about its origin; None when the bytes are not text."""
    text = head.decode(errors="ignore")  # the last character may be cut
    words = text.split()
    if not words or len(text.encode()) < len(head) - 3 or not "".join(words).isprintable():
        return None
    if head.startswith(LFS_POINTER):
        return "a Git LFS pointer", LFS_PULL
    columns = _columns(text.lstrip())
    return f"text that begins with {' '.join(words)[:40]!r}", _FETCH if columns is None else _rows(columns)


def _columns(text: str) -> list[str] | None:
    """Return the columns of a CSV or JSON Lines file, guessed from its beginning: header cells or keys; or None."""
    first = text.partition("\n")[0]
    if first.startswith("{"):
        import json

        with suppress(ValueError, RecursionError):
            return [*json.loads(first)]
        return []  # truncated, or spread over several lines
    import csv

    for mark in "" if first.startswith("<") else ",;\t":
        with suppress(csv.Error):
            rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=mark) if row]
            whole = rows if text.endswith("\n") else rows[:-1]
            if len(whole) > 1 and {len(row) for row in whole} == {len(rows[0])} != {1}:
                return rows[0]
    return None


def _rows(columns: Sequence[str]) -> str:
    """Return a hint on how to convert the rows of a table."""
    named = f" (columns: {few(columns, 8)})" if columns else ""
    return f"for a CSV or JSON Lines file, add --from table --columns image=path:jpg,label=label:int64{named}"


# --- Decompression ---

HEAD: Final = 4096
_SHORTER: Final = "compress it again with --long=27 at most"


class _Prefetched:
    """A stream with a buffer of bytes that were read before the caller asked for them.

    Attributes:
        method: how it is compressed; empty if it is not.
        damage: the reason why the stream cannot be read further; None as long as it can.
        wrong: the reason why all decompressed bytes may be wrong, as checksums come at the end; None if the stream is
            only cut short.
        unusual: a description of valid bytes at which TensorFlow would stop reading; empty if there are none so far.
    """

    method = ""
    damage: DamagedShardError | None = None
    wrong: DamagedShardError | None = None
    unusual = ""
    _pending: bytes | memoryview = b""

    def read(self, size: int, /) -> bytes:
        raise NotImplementedError

    def peek(self, size: int, /) -> bytes:
        """Return the next bytes without consuming them; fewer only at the end, or before damage."""
        pieces: list[bytes] = []
        with suppress(DamagedShardError):
            while size > 0 and (data := self.read(min(size, _AT_ONCE))):
                pieces.append(data)
                size -= len(data)
        head = b"".join(pieces)
        self._pending = b"".join((head, self._pending))
        return head

    def _take(self, size: int) -> bytes:
        """Remove and return at most `size` prefetched bytes."""
        data = self._pending
        self._pending = memoryview(data)[size:] if len(data) > size else b""
        return data if type(data) is bytes and len(data) <= size else bytes(data[:size])


class PlainStream(_Prefetched):
    """The stored bytes of an open input, not decompressed; the first bytes can be peeked at.

    Attributes:
        name: its name in errors.
        head: its first bytes: the first block read, of at least 512 bytes unless the input is shorter.
        consumed: bytes taken from the input so far.
    """

    def __init__(
        self, raw: ByteStream, name: str, on_read: Callable[[int], None] | None = None, first: int = HEAD
    ) -> None:
        self._raw = raw
        self.name = name
        self._on_read = on_read
        self.consumed = 0
        self.head = b""
        try:
            while len(self.head) < 512 and (more := self._read(first)):
                self.head += more
        except BaseException:
            raw.close()  # no caller has it yet
            raise
        self._pending = self.head

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end.

        Raises:
            SourceError: when reading fails.
        """
        return self._take(size) if self._pending else self._read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Read into a buffer; return the number of bytes, which is 0 only at the end."""
        if self._pending:
            data = self.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        return self._counted(partial(read_into, self._raw), buffer, int)

    def seek(self, offset: int) -> None:
        """Go to an offset; only for inputs whose raw stream can seek."""
        self._pending = b""
        self._raw.seek(offset)  # type: ignore[attr-defined]

    @property
    def has_descriptor(self) -> bool:
        """Whether `fileno` and `seek` work: the input is a local file, and nothing observes each byte read from it."""
        return hasattr(self._raw, "fileno")

    def fileno(self) -> int:
        """Return the file descriptor of a local input."""
        return self._raw.fileno()  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        """Close the input."""
        self._raw.close()

    def _read(self, size: int) -> bytes:
        return self._counted(self._raw.read, size, len)

    def _counted(self, read: Callable[[S], T], what: S, size_of: Callable[[T], int]) -> T:
        try:
            data = read(what)
        except OSError as error:
            raise SourceError(
                f"reading failed: {error.strerror or error}", shard=self.name, offset=self.consumed
            ) from None
        size = size_of(data)
        self.consumed += size
        if self._on_read:
            self._on_read(size)
        return data


class StreamLog:
    """Log of the offsets at which the streams of a compressed input begin, filled while it is decompressed.

    Attributes:
        most: the limit of the decompressed size of one stream.
        stored: the offset of each stream in the input.
        plain: the offset of each stream in the decompressed bytes.
        size: decompressed bytes so far.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.stored = array("q")
        self.plain = array("q")
        self.size = 0

    def begins(self, offset: int) -> None:
        """Note a stream that begins at this offset of the input."""
        self.stored.append(offset)
        self.plain.append(self.size)

    def gives(self, size: int) -> bool:
        """Count decompressed bytes of the last stream; return whether their total is within the limit."""
        self.size += size
        return self.size - self.plain[-1] <= self.most


class CompressedStream(_Prefetched):
    """The decompressed bytes of an input: one or more compressed streams, with zeros as padding between them.

    Args:
        stored: the input.
        method: `gzip`, `zstd`, `bzip2`, `xz` or `zlib`.
        streams: records the offsets of the streams; if given, a stream that is too large raises a UsageError.
    """

    def __init__(self, stored: PlainStream, method: str, streams: StreamLog | None = None) -> None:
        self._stored = stored
        self._streams = streams
        self.method = method
        self._library = _METHODS[method]()
        self._decoder: Any = None  # None between two streams
        self._compressed = self._first = b""
        self._given = 0  # decompressed bytes of the current stream

    @property
    def consumed(self) -> int:
        """Compressed bytes taken from the input so far."""
        return self._stored.consumed

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end, after the streams' checksums were verified.

        Raises:
            DamagedShardError: when the stream is cut short or damaged, or its compression changes; each later call
                raises it again.
        """
        while not self._pending:
            if self.damage:
                raise self.damage
            if self._decoder is None:
                if not self._next_stream():
                    return b""
                self._decoder = self._library.begin()
            self._pending = self._decoded()
        return self._take(size)

    def close(self) -> None:
        """Close the input."""
        self._stored.close()

    def _next_stream(self) -> bool:
        """Skip zeros and begin the next compressed stream; return whether there is one."""
        while not self._compressed:
            data = self._stored.read(self._library.piece)
            if not data:
                return False
            self._compressed = self._without_padding(data)
        first, self._first = self._first, self._first or self._compressed[:1]
        if self._compressed[:1] != self._first and self.method != "zstd":  # zstd frames have several magic numbers
            message = f"the bytes after the end of the {self.method} stream are not another {self.method} stream"
            raise self._damage(message, "trailing_garbage")
        if self._compressed[3:4] > b"\x1f" and self.method == "gzip":  # RFC 1952, section 2.3.1.2
            raise self._damage("the header of the gzip stream has flags that do not exist", "gzip")
        if first and self.method == "zlib":
            self.unusual = "another zlib stream follows, which TensorFlow does not read"
        elif first and not self._given and self.method == "gzip":
            self.unusual = f"an empty {self.method} stream precedes others, which TensorFlow does not read"
        self._given = 0
        if self._streams:
            self._streams.begins(self.consumed - len(self._compressed))
        return True

    def _decoded(self) -> bytes:
        decoder, data = self._decoder, b""
        if getattr(decoder, "needs_input", True):
            data = self._compressed or self._stored.read(self._library.piece)
            self._compressed = b""
            if not data:
                raise self._damage(f"the {self.method} stream ends too early: it is cut short", "truncated")
        try:
            decoded: bytes = decoder.decompress(data, *self._library.limit)
        except self._library.errors as error:
            raise self._refused(error) from None
        self._given += len(decoded)
        if self._streams and not self._streams.gives(len(decoded)):
            raise self._too_large(self._streams.most)
        if decoder.eof:
            self._compressed, self._decoder = self._without_padding(decoder.unused_data), None
        return decoded

    def _without_padding(self, data: bytes) -> bytes:
        if self.method == "gzip" and data[:1] == b"\0":
            self.unusual = "zeros follow a gzip stream, which TensorFlow cannot read"
        return data.lstrip(b"\0")

    def _refused(self, error: Exception) -> DamagedShardError:
        if "too much memory" in str(error):  # zstd's message
            return self._damage("the zstd stream needs more than 128 MiB to be decompressed", self.method, _SHORTER)
        self.wrong = self._damage(f"the {self.method} stream is damaged: {error}", self.method)
        return self.wrong

    def _too_large(self, most: int) -> UsageError:
        message = f"has a {self.method} stream of more than {most >> 20} MiB, which can only be read from its beginning"
        return UsageError(message, shard=self._stored.name)

    def _damage(self, message: str, kind: str, hint: str = RECREATE_HINT) -> DamagedShardError:
        self.damage = DamagedShardError(message, kind=kind, shard=self._stored.name, offset=self.consumed, hint=hint)
        return self.damage


class _Library(NamedTuple):
    """A library that decompresses streams of one method.

    Attributes:
        begin: returns a decompressor.
        errors: the exceptions that it raises.
        limit: the most bytes that it returns at once, if it takes a limit; of these, the bytes before damage are lost.
        piece: how many compressed bytes it receives at once; without a limit, it decompresses all of them, at most
            128 MB.
    """

    begin: Callable[[], Any]
    errors: Any
    limit: tuple[int, ...] = ()
    piece: int = 4096


def _gzip() -> _Library:
    from isal import igzip_lib

    begin = partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_GZIP)  # checks CRC and length
    return _Library(begin, igzip_lib.IsalError, (1 << 15,), 1 << 16)


def _zstd() -> _Library:
    from zstandard import ZstdDecompressor, ZstdError

    return _Library(lambda: ZstdDecompressor().decompressobj(), ZstdError)


def _bzip2() -> _Library:
    from bz2 import BZ2Decompressor

    return _Library(BZ2Decompressor, (OSError, ValueError), (1 << 20,))


def _xz() -> _Library:
    from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

    return _Library(partial(LZMADecompressor, FORMAT_XZ), LZMAError, (1 << 20,))


def _zlib() -> _Library:
    return _Library(zlib.decompressobj, zlib.error)


_METHODS: Final = {"gzip": _gzip, "zstd": _zstd, "bzip2": _bzip2, "xz": _xz, "zlib": _zlib}

_OF_BLOCK: Final = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_OF_STREAM: Final = {
    "gzip": (GZIP_MAGIC,),
    "zstd": (b"\x28\xb5\x2f\xfd", *(b"%c\x2a\x4d\x18" % number for number in range(0x50, 0x60))),
    "bzip2": tuple(b"BZh%d%b" % (level, block) for level in range(1, 10) for block in _OF_BLOCK),
    "xz": (b"\xfd7zXZ\0",),
}
_OF_ANY: Final = (*chain.from_iterable(_OF_STREAM.values()),)

ShardStream: TypeAlias = "PlainStream | CompressedStream"


def open_stream(
    raw: ByteStream,
    name: str,
    on_read: Callable[[int], None] | None = None,
    *,
    first: int = HEAD,
    streams: StreamLog | None = None,
) -> ShardStream:
    """Open the bytes of a tar or TFRecord, decompressed as the first bytes of the input require.

    Args:
        raw: the input as stored.
        name: its name in errors.
        on_read: called with the number of stored bytes after each read.
        first: the size of the first read, from which the format is detected.
        streams: records the offsets of compressed streams.
    """
    stored = PlainStream(raw, name, on_read, first)
    method = compression_of(stored.head)
    return CompressedStream(stored, method, streams) if method else stored


def decompressed(data: bytes, name: str, method: str) -> bytes:
    """Decompress complete streams, end to end, in memory.

    Raises:
        DamagedShardError: when one is damaged; with its offset in `data`.
    """
    stream = CompressedStream(PlainStream(BytesIO(data), name, first=len(data)), method)
    return b"".join(iter(partial(stream.read, len(data) + HEAD), b""))


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file from its first bytes, which may also be a TFRecord's first length."""
    if head.startswith(_OF_ANY):
        method = next(method for method, beginnings in _OF_STREAM.items() if head.startswith(beginnings))
        return None if begins_record(head) else method
    return "zlib" if _is_zlib_header(head) and _is_zlib_tfrecord(head) else None


def _is_zlib_header(head: bytes) -> bool:
    """Whether two bytes are a zlib header of any window size, without a dictionary (RFC 1950, section 2.2)."""
    number = int.from_bytes(head[:2], "big")
    return number % 31 == 0 and number >> 8 & 0x0F == 8 and number >> 12 < 8 and not number & 0x20


def _is_zlib_tfrecord(head: bytes) -> bool:
    """Whether bytes decompress with zlib to the beginning of a TFRecord; no tool compresses tars with zlib alone."""
    try:
        first = zlib.decompressobj().decompress(head, 12)
    except zlib.error:
        return False
    return begins_record(first)


# --- Cursor: the base of the readers of tars and TFRecords ---

OnDamage: TypeAlias = Callable[[DamagedShardError, bool], object]
"""Called with damage, and whether what is behind it is read; it may raise the damage instead."""


def iter_resuming(
    read: Callable[[], Iterable[T]], resume: Callable[[DamagedShardError], bool], damaged: OnDamage
) -> Iterator[T]:
    """Iterate over the readable samples or records of a shard, resuming after damage.

    Args:
        read: reads from the reader's position.
        resume: moves the reader past the damage, and adds the lost range to the error; returns whether more follows.
        damaged: receives each error.
    """
    more = True
    while more:
        more = False
        try:
            yield from read()
        except DamagedShardError as error:
            more = resume(error)
            damaged(error, more)


class Cursor:
    """A buffered position in a stream that moves forward.

    A loop over small records or members looks at `buffer` from `position` on, and moves `position` itself, as a method
    call would cost more than what it does. Everything else goes through the methods.

    Args:
        stream: the bytes; may return less than requested, and b"" only at the end.
        chunk: how many bytes are read at once; None for `CHUNK`.
        seeks: whether to seek over long distances; the stream must have `seek` then.
        size: size of the stream in bytes, if it is known.

    Attributes:
        buffer: the bytes that were read from the stream and may still be needed.
        position: index of the next byte in the buffer.
        start: offset in the stream of the buffer's first byte.
        chunk: how many bytes are read at once.
        ended: whether the stream is known to end after the buffer.
        on_leap: called with the number of bytes that a seek skipped.
    """

    CHUNK = 1 << 18  # stays in the CPU cache; malloc would return larger blocks to the system each time

    def __init__(
        self, stream: Readable, chunk: int | None = None, *, seeks: bool = False, size: int | None = None
    ) -> None:
        self._stream = stream
        self._seeks = seeks
        self._size = size
        self._error: Tar2tfError | None = None
        self.buffer = b""
        self.position = 0
        self.start = 0
        self.chunk = chunk or self.CHUNK
        self.ended = False
        self.on_leap: Callable[[int], None] | None = None

    @property
    def offset(self) -> int:
        """The offset of the next byte in the stream."""
        return self.start + self.position

    def fill(self, size: int) -> int:
        """Buffer at least `size` bytes; return the number of buffered bytes, which is less only at the end."""
        chunks = [self.buffer[self.position :]]
        have = len(chunks[0])
        try:
            while have < size and not self.ended:
                if chunk := self._read(size - have):
                    chunks.append(chunk)
                    have += len(chunk)
                self.ended = not chunk or self.start + self.position + have == self._size
        finally:  # keep the bytes before an error
            self.start += self.position
            self.buffer = b"".join(chunks if chunks[0] else chunks[1:])
            self.position = 0
        return have

    def read_into(self, window: memoryview) -> int:
        """Read the bytes after the buffer, which must be empty, into other memory; return their number, 0 at the end.

        An error is raised only after the bytes before it were returned.
        """
        size = 0
        try:
            self._raise_error()
            size = read_into(self._stream, window)
        except Tar2tfError as error:
            self._error = error
        self.start += size
        return size

    def read_ahead(self) -> bool:
        """Buffer another chunk; return False at the end. Errors are raised once the bytes before them are consumed."""
        before = len(self.buffer) - self.position
        try:
            self.fill(before + self.chunk)
        except Tar2tfError as error:
            self._error = error
        return len(self.buffer) > before

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end."""
        end = self.position + size
        if end <= len(self.buffer):
            data, self.position = self.buffer[self.position : end], end
            return data
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes in pieces of any length; fewer only at the end."""
        while size and (self.position < len(self.buffer) or self._next(size)):
            piece = self.buffer[self.position : self.position + size]
            self.position += len(piece)
            size -= len(piece)
            yield piece

    def skip(self, size: int) -> int:
        """Move forward by `size` bytes; return the number of bytes that are missing at the end."""
        end = self.start + self.position + size  # avoids the property `offset` in a hot path
        ahead = end - self.start - len(self.buffer)
        if ahead <= 0:
            self.position += size
            return 0
        if self._seeks and ahead > self.chunk:
            return self._leap(end)
        while ahead > 0 and self._next(ahead):
            ahead -= len(self.buffer)
        self.position = len(self.buffer) + min(ahead, 0)
        return max(ahead, 0)

    def seek(self, offset: int) -> None:
        """Go to an offset, in a stream that can seek."""
        self._stream.seek(offset)  # type: ignore[attr-defined]
        self._error, self.ended = None, False
        self.start, self.buffer, self.position = offset, b"", 0

    def put_back(self, data: bytes) -> None:
        """Move back by bytes that were just taken."""
        self.start = self.offset - len(data)
        self.buffer, self.position = data + self.buffer[self.position :], 0

    def _leap(self, end: int) -> int:
        behind = self.start + len(self.buffer)
        last = min(end, self._size or end) - 1  # read the last byte, to detect truncation
        try:
            self.seek(last)
            self.buffer = self._stream.read(self.chunk)  # avoids `fill` in a hot path
        except (OSError, OverflowError):  # OverflowError: no file is that long
            self.buffer = b""
        if self.buffer:
            self.position = 1
            if self.on_leap:
                self.on_leap(last - behind)
        else:
            self.seek(behind)
            while self._next(self.CHUNK):
                pass
        return end - self.start - self.position

    def _next(self, size: int) -> bool:
        """Replace the buffer with the bytes that follow it; return False at the end."""
        self.start += len(self.buffer)
        self.buffer, self.position = b"", 0
        self.buffer = self._read(size)
        return bool(self.buffer)

    def _read(self, wanted: int) -> bytes:
        if self._error:
            self._raise_error()
        return self._stream.read(min(max(self.chunk, wanted), 4 * self.CHUNK))

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error:
            raise error
