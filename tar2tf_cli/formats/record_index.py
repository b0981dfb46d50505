"""Where the records of a TFRecord begin: found from their lengths alone, or read from an index.

An index is an int64 array of the offsets at which records begin and, last, the offset at which the file ends. Record
`i` takes the bytes from `index[i]` to `index[i + 1]`, framing included.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Index: TypeAlias = "NDArray[np.int64]"

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
    import numpy as np

    stream = _Ranges(read)
    reader = RecordReader(stream, name, want="lengths", seeks=True, size=size)
    offsets = array("q", [offset for offset, _ in reader])
    if reader.offset != size:
        raise DamagedShardError("is shorter than it was when it was listed", kind="truncated", shard=name)
    offsets.append(size)
    return np.frombuffer(offsets, np.int64)


class _Ranges:
    """A stream over a function that reads ranges."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._position = 0

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


def pack(index: Index, shard: str, version: str) -> list[bytes]:
    """Return the content of an index file for a version of a shard: a line of JSON, and the offsets."""
    body = index.astype("<i8").tobytes()
    return [_about(body, shard, version), body]


def unpack(data: bytes, shard: str, version: str, size: int) -> Index | None:
    """Read the content of an index file; None unless it is whole, and for this version and size of the shard."""
    import numpy as np

    about, end, body = data.partition(b"\n")
    if about + end != _about(body, shard, version) or len(body) % 8:
        return None
    index = np.frombuffer(body, "<i8").astype(np.int64, copy=False)
    return index if len(index) and index[-1] == size else None


def _about(body: bytes, shard: str, version: str) -> bytes:
    about = {"format": "tar2tf index 2", "shard": shard, "version": version, "crc32c": crc32c(body)}
    return json.dumps(about).encode() + b"\n"
