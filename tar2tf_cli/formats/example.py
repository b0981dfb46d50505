"""Features to the bytes of a tf.train.Example, without protobuf; example_parser.py reads them.

Features are written in the order of their names, so equal features give equal bytes. The messages
(tensorflow/core/example/example.proto and feature.proto) nest like this, every level length-delimited:

    Example { 1: Features { 1: map entry { 1: name, 2: Feature { 1: BytesList | 2: FloatList | 3: Int64List } } } }

and each list holds its values in field 1: bytes one by one, floats and varints packed.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.formats.tfrecord import MAX_RECORD

Kind: TypeAlias = Literal["bytes", "float", "int64"]
Encoding: TypeAlias = Literal["bytes", "float", "int64", "raw"]

TAGS: Final[dict[Kind, bytes]] = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
"""The tag of each kind of list in a Feature."""


class Feature(NamedTuple):
    """A serialised feature, and what a reader needs to know about it.

    Attributes:
        encoding: which of the three lists has the values, or "raw" for one bytes value with an array's bytes.
        dtype: type of the values: bytes, or a NumPy dtype.
        shape: () for one value, else the list's length, or an array's shape.
        message: the serialised tf.train.Feature.
    """

    encoding: Encoding
    dtype: str
    shape: tuple[int, ...]
    message: bytes


Features: TypeAlias = Mapping[str, "bytes | StoredBytes | Feature"]
"""Features of one example by name; plain bytes are a list of one bytes value."""

Part: TypeAlias = "bytes | StoredBytes"
"""A part of a serialised example."""


def varint(number: int) -> bytes:
    """Encode an unsigned number below 2**64 as a base-128 varint."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_list(values: Sequence[bytes]) -> Feature:
    """Make a feature of any number of byte strings."""
    content = b"".join(b"\x0a" + varint(len(item)) + item for item in values)
    return Feature("bytes", "bytes", (len(values),), TAGS["bytes"] + varint(len(content)) + content)


def raw(data: bytes | memoryview, shape: tuple[int, ...], dtype: str = "uint8") -> Feature:
    """Make a feature of one bytes value with an array's bytes in C order, little-endian."""
    return Feature("raw", dtype, shape, _one("bytes", data))


def float_list(values: Iterable[float]) -> Feature:
    """Make a feature of float32 values, packed.

    Raises:
        OverflowError: when a value does not fit in a float32.
    """
    numbers = tuple(values)
    return packed_floats(struct.pack(f"<{len(numbers)}f", *numbers))  # an array would convert 1e300 to infinity


def packed_floats(data: bytes | memoryview, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Feature:
    """Make a feature of float32 values from their little-endian bytes, such as `ndarray.tobytes()`."""
    return Feature("float", dtype, (len(data) // 4,) if shape is None else shape, _one("float", data))


def int64_list(values: Iterable[int], shape: tuple[int, ...] | None = None, dtype: str = "int64") -> Feature:
    """Make a feature of int64 values, packed; a negative number takes ten bytes, as two's complement.

    Raises:
        OverflowError: when a value does not fit in 64 bits.
    """
    numbers = array("q", values)
    data = b"".join([varint(number & 0xFFFFFFFFFFFFFFFF) for number in numbers])
    return packed_int64s(data, (len(numbers),) if shape is None else shape, dtype)


def packed_int64s(data: bytes, shape: tuple[int, ...], dtype: str = "int64") -> Feature:
    """Make a feature of int64 values from concatenated varints."""
    return Feature("int64", dtype, shape, _one("int64", data))


def scalar(feature: Feature) -> Feature:
    """Return the same feature of one value, described as a scalar instead of a list."""
    return Feature(feature.encoding, feature.dtype, (), feature.message)


def _one(kind: Kind, data: bytes | memoryview) -> bytes:
    """A list of one bytes value, or of packed numbers, of which there may be none; `data` is copied only once."""
    head = b"\x0a" + varint(len(data)) if data or kind == "bytes" else b""
    return b"".join((TAGS[kind], varint(len(head) + len(data)), head, data))


class _Heads(dict[int, bytes]):
    """Return the bytes of a map entry before its one bytes value, by that value's length."""

    LIMIT: Final = 8192

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = delimited_name(name)

    def __missing__(self, length: int) -> bytes:
        head = b"\x0a" + varint(length)
        head = b"\x0a" + varint(len(head) + length) + head
        head = self.name + b"\x12" + varint(len(head) + length) + head
        head = b"\x0a" + varint(len(head) + length) + head
        if len(self) >= self.LIMIT:
            self.clear()
        self[length] = head
        return head


def delimited_name(name: str) -> bytes:
    """The name of a feature as a message has it.

    Raises:
        SampleError: when it is not UTF-8.
    """
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise SampleError(f"the name of the entry {name!r} is not UTF-8, as a feature's name must be") from None
    return b"\x0a" + varint(len(encoded)) + encoded


class Encoder:
    """Serialises features to tf.train.Example messages; caches the parts that repeat."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, ...], list[tuple[str, _Heads]]] = {}
        self._heads: dict[str, _Heads] = {}

    def encode(self, features: Features) -> tuple[list[Part], int]:
        """Return the message as a list of parts, without copying or reading large values, and its length in bytes.

        Raises:
            SampleError: when the message would exceed protobuf's limit of 2 GiB.
        """
        names = tuple(features)
        parts: list[Part] = [b""]
        total = 0
        for name, heads in self._orders.get(names) or self._order(names):
            value = features[name]
            if isinstance(value, Feature):
                value = value.message
                length = len(value)
                head = heads.name + b"\x12" + varint(length)
                head = b"\x0a" + varint(len(head) + length) + head
            else:
                length = len(value)
                head = heads[length]
            parts += (head, value)
            total += len(head) + length
        return self._finish(parts, total)

    def size(self, lengths: Mapping[str, int]) -> int:
        """Return the length in bytes of a message with one bytes value of the given length per name."""
        names = tuple(lengths)
        total = 0
        for name, heads in self._orders.get(names) or self._order(names):
            length = lengths[name]
            total += len(heads[length]) + length
        return self._finish([b""], total)[1]

    def _order(self, names: tuple[str, ...]) -> list[tuple[str, _Heads]]:
        heads = self._heads
        order = [(name, heads.get(name) or heads.setdefault(name, _Heads(name))) for name in sorted(names)]
        self._orders[names] = order
        return order

    def _finish(self, parts: list[Part], total: int) -> tuple[list[Part], int]:
        parts[0] = head = b"\x0a" + varint(total)
        size = len(head) + total
        if size > MAX_RECORD:
            raise SampleError(
                f"the example would take {size:,} bytes; a tf.train.Example has at most {MAX_RECORD:,}",
                hint="select fewer entries with --select, or make the largest smaller with an op",
            )
        return parts, size
