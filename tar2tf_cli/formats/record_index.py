"""Where the records of a TFRecord begin, found from their lengths alone or read from an index; and indexes of shards.

An index is an int64 array of the offsets at which records begin and, last, the offset at which the file ends. Record
`i` takes the bytes from `index[i]` to `index[i + 1]`, framing included.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Index: TypeAlias = "NDArray[np.int64]"
Keys: TypeAlias = "NDArray[np.uint64]"
"""The digest of the key of each record or sample."""


class Streams(NamedTuple):
    """Where the streams of a compressed shard are, each of which is decompressed as a whole.

    Attributes:
        method: how they are compressed.
        stored: where each begins in the shard and, last, where the shard ends.
        plain: the same in the decompressed bytes.
    """

    method: str
    stored: Index
    plain: Index


class ShardIndex(NamedTuple):
    """Where the records or samples of a shard are; this is what an index file holds.

    Attributes:
        of: the kind of shard.
        offsets: its index; in the decompressed bytes if it is compressed.
        keys: the digests of keys; None as long as they are not known.
        streams: where the streams of a compressed shard are; None for another.
    """

    of: str
    offsets: Index
    keys: Keys | None = None
    streams: Streams | None = None


_NUMBERS: Final = b"0123456789 \n"
_LONGEST_LINE: Final = 40


def scan(read: Callable[[int, int], bytes], size: int, name: str) -> Index:
    """Find the records of an uncompressed TFRecord by hopping from length to length; the CRC of each is checked.

    Args:
        read: returns the bytes from an offset on, this many, fewer only at the end of the file.
        size: size of the file in bytes.
        name: name of the file in errors.

    Raises:
        DamagedShardError: at the first record whose length is damaged, or that is cut short.
    """
    reader = RecordReader(RangeStream(read), name, want="lengths", seeks=True, size=size)
    index = offsets_in(reader)
    if index[-1] != size:
        raise DamagedShardError("is shorter than it was when it was listed", kind="truncated", shard=name)
    return index


def offsets_in(reader: RecordReader) -> Index:
    """Return the offsets of the records that a reader gives and, last, its offset at the end."""
    import numpy as np

    offsets = array("q", [offset for offset, _ in reader])
    offsets.append(reader.offset)
    return np.frombuffer(offsets, np.int64)


class RangeStream:
    """A stream over a function that reads ranges, from a position on."""

    def __init__(self, read: Callable[[int, int], bytes], position: int = 0) -> None:
        self._read = read
        self._position = position

    def read(self, size: int, /) -> bytes:
        data = self._read(self._position, size)
        self._position += len(data)
        return data

    def seek(self, offset: int) -> None:
        self._position = offset


def from_lines(data: bytes, size: int) -> Index | None:
    """Read an index of lines `OFFSET SIZE`, as `--index` and other tools write it.

    Args:
        data: the content of the index.
        size: size in bytes of the shard.

    Returns:
        The index; None unless its records follow each other from the first byte of the shard to the last.
    """
    lines = data.count(b"\n")
    if data.translate(None, _NUMBERS) or len(data) > _LONGEST_LINE * lines:
        return None
    import numpy as np

    try:
        numbers = np.array(data.split(), np.int64)
    except (ValueError, OverflowError):
        return None
    if len(numbers) != 2 * lines:
        return None
    sizes = numbers[1::2]
    if len(sizes) and (sizes.min() < FRAMING or sizes.max() > size):
        return None
    index = np.zeros(lines + 1, np.int64)
    np.cumsum(sizes, out=index[1:])
    return index if index[-1] == size and np.array_equal(index[:-1], numbers[::2]) else None


def pack(index: ShardIndex, shard: str, version: str) -> list[bytes]:
    """Return the content of an index file for a version of a shard: a line of JSON, and numbers of 64 bits.

    Args:
        index: what it holds.
        shard: the path or URL of the shard.
        version: its version.
    """
    streams = index.streams
    body = index.offsets.astype("<i8").tobytes() + (b"" if index.keys is None else index.keys.astype("<u8").tobytes())
    if streams:
        body += streams.stored.astype("<i8").tobytes() + streams.plain.astype("<i8").tobytes()
    about = {
        "of": index.of,
        "keys": index.keys is not None,
        "method": streams.method if streams else "",
        "streams": len(streams.stored) if streams else 0,
    }
    return [_about(about, body, shard, version), body]


def unpack(data: bytes, shard: str, version: str, size: int) -> ShardIndex | None:
    """Read the content of an index file; None unless it is whole, and for this version and size of the shard."""
    import numpy as np

    line, end, body = data.partition(b"\n")
    try:
        said = json.loads(line)
        about = {name: said[name] for name in ("of", "keys", "method", "streams")}
    except (ValueError, TypeError, KeyError):  # or it is of an older version
        return None
    if line + end != _about(about, body, shard, version) or len(body) % 8:
        return None
    streams = about["streams"]
    left = len(body) // 8 - 2 * streams
    count = (left + 1) // 2 if about["keys"] else left
    offsets = np.frombuffer(body, "<i8", count).astype(np.int64, copy=False)
    keys = np.frombuffer(body, "<u8", left - count, 8 * count).astype(np.uint64, copy=False) if about["keys"] else None
    places = np.frombuffer(body, "<i8", 2 * streams, 8 * left).astype(np.int64, copy=False)
    stored, plain = places[:streams], places[streams:]
    if not count or size != (stored if streams else offsets)[-1]:
        return None
    return ShardIndex(about["of"], offsets, keys, Streams(about["method"], stored, plain) if streams else None)


def _about(about: Mapping[str, Any], body: bytes, shard: str, version: str) -> bytes:
    said = {"format": "tar2tf index 4", **about, "shard": shard, "version": version}
    return json.dumps({**said, "crc32c": crc32c(body, crc32c(json.dumps(said).encode()))}).encode() + b"\n"
