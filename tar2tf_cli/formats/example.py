"""The wire format of tf.train.Example: features to bytes and back, without protobuf.

Features are written in the order of their names, so equal features give equal bytes. The messages
(tensorflow/core/example/example.proto and feature.proto) nest like this, every level length-delimited:

    Example { 1: Features { 1: map entry { 1: name, 2: Feature { 1: BytesList | 2: FloatList | 3: Int64List } } } }

and each list holds its values in field 1: bytes one by one, floats and varints packed.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.tfrecord import MAX_RECORD

__all__ = [
    "Encoder",
    "Feature",
    "Features",
    "Kind",
    "bytes_list",
    "decode",
    "float_list",
    "int64_list",
    "kind_of",
    "packed_floats",
    "parse_features",
    "raw",
    "scalar",
    "spans",
    "values_of",
    "varint",
]

Kind: TypeAlias = Literal["bytes", "float", "int64"]
Encoding: TypeAlias = Literal["bytes", "float", "int64", "raw"]

_KINDS: Final[dict[int, Kind]] = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}
_TAGS: Final[dict[Kind, bytes]] = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature ready for the wire, and what a reader must know of it.

    Attributes:
        encoding: which of the three lists holds the values, or "raw": one bytes value with an array's bytes.
        dtype: what the values are: bytes, or a NumPy dtype.
        shape: () for one value, else the list's length, or an array's shape.
        message: the serialised tf.train.Feature.
    """

    encoding: Encoding
    dtype: str
    shape: tuple[int, ...]
    message: bytes


Features: TypeAlias = Mapping[str, "bytes | Feature"]
"""Features of one example by name; plain bytes stand for a list of one bytes value."""


def varint(number: int) -> bytes:
    """Base-128 varint of an unsigned number below 2**64."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_list(values: Sequence[bytes]) -> Feature:
    """A feature of any number of byte strings."""
    content = b"".join(b"\x0a" + varint(len(item)) + item for item in values)
    return Feature("bytes", "bytes", (len(values),), _message("bytes", content))


def raw(data: bytes, shape: tuple[int, ...], dtype: str = "uint8") -> Feature:
    """A feature of one bytes value that holds an array's bytes in C order, little-endian."""
    return Feature("raw", dtype, shape, _message("bytes", b"\x0a" + varint(len(data)) + data))


def float_list(values: Iterable[float]) -> Feature:
    """A feature of float32 values, packed.

    Raises:
        OverflowError: when a value does not fit in a float32.
    """
    numbers = tuple(values)
    return packed_floats(struct.pack(f"<{len(numbers)}f", *numbers))  # an array would make infinity of 1e300


def packed_floats(data: bytes, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Feature:
    """A feature of float32 values given as their little-endian bytes, such as `ndarray.tobytes()`."""
    content = b"\x0a" + varint(len(data)) + data if data else b""
    return Feature("float", dtype, (len(data) // 4,) if shape is None else shape, _message("float", content))


def int64_list(values: Iterable[int], shape: tuple[int, ...] | None = None, dtype: str = "int64") -> Feature:
    """A feature of int64 values, packed; a negative number takes ten bytes, as two's complement.

    Raises:
        OverflowError: when a value does not fit in 64 bits.
    """
    numbers = array("q", values)
    data = b"".join([varint(number & 0xFFFFFFFFFFFFFFFF) for number in numbers])
    content = b"\x0a" + varint(len(data)) + data if data else b""
    return Feature("int64", dtype, (len(numbers),) if shape is None else shape, _message("int64", content))


def scalar(feature: Feature) -> Feature:
    """The same feature of one value, described as a scalar instead of a list."""
    return Feature(feature.encoding, feature.dtype, (), feature.message)


def _message(kind: Kind, content: bytes) -> bytes:
    return _TAGS[kind] + varint(len(content)) + content


class _Heads(dict[int, bytes]):
    """Everything of a map entry before the one bytes value it holds, by the value's length."""

    LIMIT: Final = 8192

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = _delimited_name(name)

    def __missing__(self, length: int) -> bytes:
        head = b"\x0a" + varint(length)
        head = b"\x0a" + varint(len(head) + length) + head
        head = self.name + b"\x12" + varint(len(head) + length) + head
        head = b"\x0a" + varint(len(head) + length) + head
        if len(self) >= self.LIMIT:
            self.clear()
        self[length] = head
        return head


def _delimited_name(name: str) -> bytes:
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise SampleError(f"the entry {name!r} is not named in UTF-8, as a feature must be") from None
    return b"\x0a" + varint(len(encoded)) + encoded


class Encoder:
    """Serialises features to tf.train.Example messages; keeps what is the same from one to the next."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, ...], list[tuple[str, _Heads]]] = {}
        self._heads: dict[str, _Heads] = {}

    def encode(self, features: Features) -> tuple[list[bytes], int]:
        """The message as a list of parts, large values uncopied, and its length in bytes.

        Raises:
            SampleError: when the message would pass protobuf's limit of 2 GiB.
        """
        names = tuple(features)
        parts = [b""]
        total = 0
        for name, heads in self._orders.get(names) or self._order(names):
            value = features[name]
            if isinstance(value, bytes):
                length = len(value)
                head = heads[length]
                parts += (head, value)
                total += len(head) + length
            else:
                entry = _entry(heads.name, value)
                parts += entry
                total += len(entry[0]) + len(entry[1])
        return self._finish(parts, total)

    def size(self, lengths: Mapping[str, int]) -> int:
        """Length in bytes of the message with one bytes value of the given length per name."""
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

    def _finish(self, parts: list[bytes], total: int) -> tuple[list[bytes], int]:
        parts[0] = b"\x0a" + varint(total)
        size = len(parts[0]) + total
        if size > MAX_RECORD:
            raise SampleError(
                f"the example would take {size:,} bytes; a tf.train.Example has at most {MAX_RECORD:,}",
                hint="leave the largest entry out with --select, or make it smaller with an op",
            )
        return parts, size


def _entry(name: bytes, feature: Feature) -> tuple[bytes, bytes]:
    head = name + b"\x12" + varint(len(feature.message))
    return b"\x0a" + varint(len(head) + len(feature.message)) + head, feature.message


def decode(message: bytes) -> dict[str, tuple[Kind | None, list[bytes] | list[float] | list[int]]]:
    """Features of a serialised tf.train.Example as `{name: (kind, values)}`, kind None for an unset feature.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    return {name: _values(message, start, end) for name, start, end in spans(message)}


def values_of(feature: bytes | Feature) -> tuple[Kind | None, list[bytes] | list[float] | list[int]]:
    """Kind and values of one feature; kind None when it is unset.

    Raises:
        ValueError: when its bytes are not a Feature.
    """
    if isinstance(feature, Feature):
        return _values(feature.message, 0, len(feature.message))
    return "bytes", [feature]


def parse_features(message: bytes) -> dict[str, bytes | Feature]:
    """Features of a serialised tf.train.Example as the encoder takes them; lists of one value count as that value.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    features: dict[str, bytes | Feature] = {}
    for name, start, end in spans(message):
        kind, values = _values(message, start, end)
        if kind is None:
            continue
        shape = () if len(values) == 1 else (len(values),)
        features[name] = Feature(kind, "float32" if kind == "float" else kind, shape, message[start:end])
    return features


def spans(message: bytes) -> list[tuple[str, int, int]]:
    """Where the Feature message of each name lies in a serialised Example: `(name, start, end)`.

    Of a name that comes twice, the last is the one that counts, as in protobuf.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    found: list[tuple[str, int, int]] = []
    position, end = 0, len(message)
    while position < end:
        position, stop = _field(message, position, end, 0x0A)
        while position < stop:
            position, entry_end = _field(message, position, stop, 0x0A)
            name, start, feature_end = "", entry_end, entry_end
            while position < entry_end:
                tag = message[position]
                start_, end_ = _field(message, position, entry_end, tag)
                if tag == 0x0A:
                    name = message[start_:end_].decode("utf-8")
                elif tag == 0x12 and start == entry_end:
                    start, feature_end = start_, end_
                else:
                    raise ValueError(f"unexpected field tag {tag:#04x} in a map entry")
                position = end_
            found.append((name, start, feature_end))
    return found


def _field(data: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Start and end of the length-delimited field at `position`, which must bear `tag` and fit before `end`."""
    if data[position] != tag or tag & 7 != 2:
        raise ValueError(f"unexpected field tag {data[position]:#04x} at byte {position}")
    position += 1
    length = data[position] if position < end else 0x80
    if length < 0x80:
        position += 1
    else:
        length, position = _read_varint(data, position, end, 35)  # protobuf reads no longer lengths
    if position + length > end:
        raise ValueError(f"a field at byte {position} runs past the end of its message")
    return position, position + length


def _read_varint(data: bytes, position: int, end: int, bits: int = 70) -> tuple[int, int]:
    number = shift = 0
    while position < end and shift < bits:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ValueError(f"a number at byte {position} does not end")


def kind_of(message: bytes, start: int, end: int) -> Kind | None:
    """Which list the Feature message in `message[start:end]` holds; None when it is unset."""
    if start == end:
        return None
    kind = _KINDS.get(message[start])
    if kind is None:
        raise ValueError(f"unexpected field tag {message[start]:#04x} in a feature")
    return kind


def _values(message: bytes, start: int, end: int) -> tuple[Kind | None, list[bytes] | list[float] | list[int]]:
    kind = kind_of(message, start, end)
    if kind is None:
        return None, []
    position, stop = _field(message, start, end, message[start])
    if stop != end:
        raise ValueError(f"unexpected bytes behind a feature's list at byte {stop}")
    if kind == "bytes":
        return kind, _bytes_values(message, position, stop)
    if kind == "float":
        return kind, _floats(message, position, stop)
    return kind, _ints(message, position, stop)


def _bytes_values(message: bytes, position: int, stop: int) -> list[bytes]:
    values = []
    while position < stop:
        start, position = _field(message, position, stop, 0x0A)
        values.append(message[start:position])
    return values


def _floats(message: bytes, position: int, stop: int) -> list[float]:
    values: list[float] = []
    while position < stop:
        if message[position] == 0x0D:  # a float that is not packed
            start, position = position + 1, position + 5
        else:
            start, position = _field(message, position, stop, 0x0A)
        if (position - start) % 4 or position > stop:
            raise ValueError(f"a float list at byte {start} is not whole")
        values += struct.unpack(f"<{(position - start) // 4}f", message[start:position])
    return values


def _ints(message: bytes, position: int, stop: int) -> list[int]:
    values: list[int] = []
    while position < stop:
        if message[position] == 0x08:  # a varint that is not packed
            number, position = _read_varint(message, position + 1, stop)
            values.append(_signed(number))
            continue
        position, packed_end = _field(message, position, stop, 0x0A)
        while position < packed_end:
            number, position = _read_varint(message, position, packed_end)
            values.append(_signed(number))
    return values


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
