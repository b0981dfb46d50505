"""What lies around the records of a shard: compression, and the end of a tar.

| shards | compressed before records are divided among them, as a limit counts bytes | compressed as a whole |
|---|---|---|
| TFRecord, gzip | each unit is a gzip member | a gzip member for each MiB |
| tar, gzip | each unit is a part of one member, as many readers of tars stop behind the first | one gzip member |
| tar, zstd | each unit is a zstd frame | a frame for each MiB |

Members and frames are decompressed one by one, so that `open_records` reads such shards in any order. Units can be put
together in any order. A tar has its end blocks behind them, which count as part of its size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

from tar2tf_cli.formats.tar import END
from tar2tf_cli.spec.conversion import Conversion, Output

Chunk: TypeAlias = "tuple[Iterable[bytes], int]"
"""Bytes in parts, and their total size."""

_BLOCK: Final = 1 << 20
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_GZIP_HEAD: Final = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # RFC 1952: without a name and a time, of an unknown system


def block_size(conversion: Conversion) -> int | None:
    """Uncompressed size in bytes of a unit that is compressed by itself; None if units are plain records.

    Records are compressed before they are divided among shards only if there is a limit on the size on disk. A block
    is small compared with the limit, so that shards fill up well; if records are counted, shuffled or compared, it
    is one record.
    """
    output = conversion.output
    if output.compression == "none" or output.limit is None:
        return None
    one_by_one = conversion.shuffle or conversion.limit is not None or conversion.drop_duplicates is not None
    if one_by_one or output.records_per_shard:
        return 1
    return min(_BLOCK, max(output.limit // 16, 1))


def compressed(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress chunks into one gzip member or zstd frame, always the same."""
    return _through(_compressor(output.compression), chunks)


def unit(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress the records of a unit so that the results of several can follow each other in a shard."""
    if _has_parts(output):
        return _through(_Part(), chunks)
    return compressed(chunks, output)


def around(output: Output) -> int:
    """How many bytes a shard has besides its units."""
    if not output.is_tar or output.is_stream:
        return 0
    return sum(size for _, size in shard((), output))


def shard(units: Iterable[Chunk], output: Output) -> Iterable[Chunk]:
    """The bytes of a shard, made of its units."""
    if not output.is_tar or output.is_stream:
        return _in_streams(units, output) if output.compresses_shards else units
    ended = chain(units, [([END], len(END))])
    if output.compresses_shards:
        return compressed(ended, output) if output.compression == "gzip" else _in_streams(ended, output)
    if output.compression == "none":
        return ended
    if _has_parts(output):
        return _one_member(units)
    return chain(units, compressed([([END], len(END))], output))


class _Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _compressor(method: str) -> _Compressor:
    if method == "zstd":
        from zstandard import ZstdCompressor

        made: _Compressor = ZstdCompressor(_ZSTD_LEVEL, write_checksum=True).compressobj()
        return made
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # without a name and a timestamp


class _Part:
    """Compresses to a part of a raw deflate stream that needs nothing before it, and ends at a byte."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self.compress: Callable[[bytes | memoryview], bytes] = self._deflate.compress

    def flush(self) -> bytes:
        return self._deflate.flush(zlib.Z_FULL_FLUSH)


def _through(compressor: _Compressor, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    for parts, _ in chunks:
        for part in parts:
            if data := compressor.compress(part):
                yield [data], len(data)
    data = compressor.flush()
    yield [data], len(data)


def _in_streams(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress chunks into a gzip member or zstd frame for each block of bytes; one if there are none."""
    compressor, left, is_empty = _compressor(output.compression), _BLOCK, True
    for part in chain.from_iterable(parts for parts, _ in chunks):
        data = memoryview(part)
        while len(data) >= left:
            whole = compressor.compress(data[:left]) + compressor.flush()
            yield [whole], len(whole)
            data, compressor, left, is_empty = data[left:], _compressor(output.compression), _BLOCK, False
        left -= len(data)
        if some := compressor.compress(data):
            yield [some], len(some)
    if is_empty or left < _BLOCK:
        last = compressor.flush()
        yield [last], len(last)


def _has_parts(output: Output) -> bool:
    """Whether units are parts of one gzip member."""
    return output.is_tar and output.compression == "gzip" and output.limit is not None


def _one_member(units: Iterable[Chunk]) -> Iterator[Chunk]:
    """A gzip member of parts, which are decompressed again for the checksum behind them."""
    from isal import isal_zlib

    yield [_GZIP_HEAD], len(_GZIP_HEAD)
    inflate: Any = isal_zlib.decompressobj(-zlib.MAX_WBITS)
    crc = size = 0
    for parts, length in units:
        held = [*parts]
        yield held, length
        left, data = b"".join(held), b""
        while left or len(data) == _BLOCK:
            data = inflate.decompress(left, _BLOCK)
            crc, size = zlib.crc32(data, crc), size + len(data)
            left = inflate.unconsumed_tail
    deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    crc, size = zlib.crc32(END, crc), size + len(END)
    last = deflate.compress(END) + deflate.flush()
    last += crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    yield [last], len(last)
