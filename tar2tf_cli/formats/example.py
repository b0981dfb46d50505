"""Encode features as records (a tf.train.Example and its framing), and parse Examples of any writer into features.

Protobuf is not needed. SequenceExamples can only be read, not written.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from tar2tf_cli.api.values import Feature, Features, Kind, MessagePart
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import MASK, extend, masked
from tar2tf_cli.formats.files import pieces_of
from tar2tf_cli.structs import dataclass

TAGS: Final[dict[Kind, bytes]] = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
"""The tag of each kind of list in a Feature."""


MAX_RECORD: Final = 2**31 - 1
"""Longest record: protobuf parses no message beyond 2 GiB."""


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


def bytes_list(values: Sequence[bytes], shape: tuple[int, ...] | None = None) -> Feature:
    """Make a feature of byte strings; it is a list unless a shape is given, which is () for a single value."""
    content = b"".join(b"\x0a" + varint(len(item)) + item for item in values)
    message = TAGS["bytes"] + varint(len(content)) + content
    return Feature("bytes", "bytes", (len(values),) if shape is None else shape, message)


def raw(data: bytes | memoryview, shape: tuple[int, ...], dtype: str = "uint8") -> Feature:
    """Make a feature of one bytes value with an array's bytes in C order, little-endian."""
    return Feature("raw", dtype, shape, _one_value("bytes", data))


def float_list(values: Iterable[float], shape: tuple[int, ...] | None = None) -> Feature:
    """Make a feature of packed float32 values; it is a list unless a shape is given, which is () for a single value.

    Raises:
        OverflowError: when a value does not fit in a float32.
    """
    numbers = tuple(values)
    try:
        data = struct.pack(f"<{len(numbers)}f", *numbers)  # array.array would convert 1e300 to infinity
    except struct.error:  # an integer above 1e308
        raise OverflowError("a value does not fit in a float32") from None
    return packed_floats(data, shape)


def packed_floats(data: bytes | memoryview, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Feature:
    """Make a feature of float32 values from their little-endian bytes, such as `ndarray.tobytes()`."""
    return Feature("float", dtype, (len(data) // 4,) if shape is None else shape, _one_value("float", data))


def int64_list(values: Iterable[int], shape: tuple[int, ...] | None = None, dtype: str = "int64") -> Feature:
    """Make a feature of packed int64 values; it is a list unless a shape is given, which is () for a single value.

    A negative number takes ten bytes, as two's complement.

    Raises:
        OverflowError: when a value does not fit in 64 bits.
    """
    numbers = array("q", values)
    data = b"".join([varint(number & 0xFFFFFFFFFFFFFFFF) for number in numbers])
    return packed_int64s(data, (len(numbers),) if shape is None else shape, dtype)


def packed_int64s(data: bytes, shape: tuple[int, ...], dtype: str = "int64") -> Feature:
    """Make a feature of int64 values from concatenated varints."""
    return Feature("int64", dtype, shape, _one_value("int64", data))


def _one_value(kind: Kind, data: bytes | memoryview) -> bytes:
    """Encode a list of one bytes value, or of packed numbers (perhaps none); `data` is copied only once."""
    head = b"\x0a" + varint(len(data)) if data or kind == "bytes" else b""
    return b"".join((TAGS[kind], varint(len(head) + len(data)), head, data))


class _EntryHeads(dict[int, bytes]):
    """Cache of the bytes that precede the bytes value of a map entry with a given name, by the value's length."""

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
    """Return a feature's name as a length-delimited field of the message.

    Raises:
        SampleError: when it is not UTF-8.
    """
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise SampleError(f"the name of the entry {name!r} is not UTF-8, as a feature's name must be") from None
    return b"\x0a" + varint(len(encoded)) + encoded


class Encoder:
    """Serialises features to tf.train.Example messages, and caches the parts that repeat."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, ...], list[tuple[str, _EntryHeads]]] = {}
        self._heads: dict[str, _EntryHeads] = {}

    def encode(self, features: Features) -> tuple[list[MessagePart], int]:
        """Return the message as a list of parts, without copying or reading large values, and its length in bytes.

        Raises:
            SampleError: when the message would exceed protobuf's limit of 2 GiB.
        """
        names = tuple(features)
        parts: list[MessagePart] = [b""]
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

    def _order(self, names: tuple[str, ...]) -> list[tuple[str, _EntryHeads]]:
        heads = self._heads
        order = [(name, heads.get(name) or heads.setdefault(name, _EntryHeads(name))) for name in sorted(names)]
        self._orders[names] = order
        return order

    def _finish(self, parts: list[MessagePart], total: int) -> tuple[list[MessagePart], int]:
        parts[0] = head = b"\x0a" + varint(total)
        size = len(head) + total
        if size > MAX_RECORD:
            raise SampleError(
                f"the example would take {size:,} bytes; a tf.train.Example has at most {MAX_RECORD:,}",
                hint="select fewer entries with --select, or make the largest smaller with an op",
            )
        return parts, size


# --- Framing: the length of a record and its CRC, the data, and their CRC ---

FRAMING: Final = 16
"""Bytes that framing adds to each record."""

_CRC: Final = struct.Struct("<I")
_JOIN_BELOW: Final = 16 * 1024
_CACHE_SIZE: Final = 8192
_headers: Final[dict[int, bytes]] = {}

known_lengths: Final[dict[bytes, int]] = {}
"""The lengths in headers that were read and are valid."""


def crc_field(data: bytes) -> bytes:
    """Return the CRC field that follows the length or the data of a record."""
    crc = extend(0, data)
    return _CRC.pack(((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)


def begins_record(head: bytes) -> bool:
    """Whether bytes begin with a length and its CRC, as a record does."""
    return head[8:12] == crc_field(head[:8])


def frame(parts: Sequence[MessagePart], size: int) -> Iterable[bytes]:
    """Frame one record, given as `parts` of `size` bytes in total, without copying large parts.

    Returns:
        The record in parts: a list, or a generator that reads stored parts piece by piece.
    """
    header = _headers.get(size) or header_of(size)
    crc = 0
    try:
        if size < _JOIN_BELOW:
            data = b"".join(parts)  # type: ignore[arg-type]
            return [header, data, crc_field(data)]
        for part in parts:
            crc = extend(crc, part)  # type: ignore[arg-type]
    except TypeError:  # a part is a stored value
        return _framed(header, parts)
    return [header, *parts, _CRC.pack(masked(crc))]  # type: ignore[list-item]


def _framed(header: bytes, parts: Sequence[MessagePart]) -> Iterator[bytes]:
    yield header
    crc = 0
    for part in parts:
        for piece in pieces_of(part):
            crc = extend(crc, piece)
            yield piece
    yield _CRC.pack(masked(crc))


def header_of(size: int) -> bytes:
    """Return the first 12 bytes of a record with data of a size."""
    if len(_headers) >= _CACHE_SIZE:
        _headers.clear()
    length = size.to_bytes(8, "little")
    header = length + crc_field(length)
    _headers[size] = header
    return header


def record_length(header: bytes) -> int:
    """Return the length of a record's data, given the record's first 12 bytes.

    Raises:
        DamagedShardError: when it does not match its CRC, or no record can be that long; has no offset.
    """
    known = known_lengths.get(header)
    if known is not None:
        return known
    length = int.from_bytes(header[:8], "little")
    if crc_field(header[:8]) != header[8:]:
        raise DamagedShardError("the CRC of the record's length does not match", kind="length_crc")
    if length > MAX_RECORD:
        message = f"the record claims {length:,} bytes; an example has at most 2 GiB"
        raise DamagedShardError(message, kind="too_large")
    if len(known_lengths) >= _CACHE_SIZE:
        known_lengths.clear()
    known_lengths[header] = length
    return length


def unframed(framed: bytes) -> bytes:
    """Return the data of one framed record after checking its CRCs.

    Raises:
        DamagedShardError: when it is damaged, or is not exactly one record; has no offset.
    """
    length = known_lengths.get(framed[:12])
    if length is None:
        length = record_length(framed[:12])
    if length + FRAMING != len(framed):
        message = f"the record is {length + FRAMING:,} bytes long, but should be {len(framed):,}"
        raise DamagedShardError(message, kind="truncated")
    data = framed[12:-4]
    crc = extend(0, data)
    if ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF != int.from_bytes(framed[-4:], "little"):
        raise DamagedShardError("the CRC of the record's data does not match", kind="data_crc")
    return data


# --- Back to features ---

_native: Final = kernel.native()

_DELIMITED: Final = 0x0A  # field 1, given as bytes with their length
_VALUE: Final = 0x12
_FEATURE_LISTS: Final = 0x12
_KINDS: Final[dict[int, Kind]] = {tag[0]: kind for kind, tag in TAGS.items()}
_VALUES: Final[dict[Kind, tuple[int, ...]]] = {  # a packed list or one value; one number that is not packed
    "bytes": (0x0A,),
    "float": (0x0A, 0x0D),
    "int64": (0x0A, 0x08),
}
_MOST_DEPTH: Final = 100  # nesting of messages and groups, as in protobuf


_ONE_FLOAT: Final = struct.Struct("<f")


@dataclass(repr=False)
class ParsedFeature:
    """One feature of a serialised example, as positions of its values, which are not copied.

    Attributes:
        message: the example.
        kind: the kind of its list; None for an unset feature.
        count: number of values.
        runs: start and end in the message of each bytes value, or of each run of numbers.
    """

    message: bytes
    name: str
    kind: Kind | None
    count: int
    runs: list[tuple[int, int]]

    @property
    def size(self) -> int:
        """Size in bytes of all values as serialised, without tags and lengths."""
        full: Mapping[int, int] = getattr(self.message, "lengths", {})  # of values that a ShortenedExample has cut
        return sum(full.get(start, end - start) for start, end in self.runs)

    @property
    def is_packed(self) -> bool:
        """Whether the first numbers of the feature are packed, which means that one tag and length precede them."""
        start, end = self.runs[0]
        head = b"\x0a" + varint(end - start)
        return self.message[start - len(head) : start] == head

    def parts(self) -> list[bytes]:
        """Return the bytes of each run of values."""
        return [self.message[start:end] for start, end in self.runs]

    def value(self) -> object:
        """Return the only value of a feature that has one: bytes, float or int."""
        if len(self.runs) != 1:
            return self.values()[0]
        ((start, end),) = self.runs
        data = self.message[start:end]
        if self.kind == "bytes":
            return data
        if self.kind == "float":
            return _ONE_FLOAT.unpack(data)[0]
        return data[0] if end - start == 1 else _ints(data)[0]

    def values(self) -> list[Any]:
        """Return all values of the feature: bytes, float or int."""
        if self.kind == "bytes":
            return self.parts()
        data = b"".join(self.parts())
        if self.kind == "float":
            return list(struct.unpack(f"<{self.count}f", data))
        return _ints(data)


def parse(message: bytes, *, sequence: bool = False) -> dict[str, ParsedFeature]:
    """Return the features of a serialised tf.train.Example by name, in order of first appearance.

    With `sequence`, also accept a tf.train.SequenceExample, and return the features of its context. The kernel parses
    examples in the form that most writers give them; `parse_any`, its reference implementation, parses all others.

    Raises:
        ValueError: when the bytes are not an Example; names the fault and its byte.
    """
    return _parse_usual(message) or parse_any(message, sequence=sequence)


def _parse_usual(message: bytes) -> dict[str, ParsedFeature] | None:
    return _native.features(message, ParsedFeature) if _native else None


def parse_any(message: bytes, *, sequence: bool = False) -> dict[str, ParsedFeature]:
    """Return the same features as `parse`, without using the kernel."""
    features: dict[str, ParsedFeature] = {}
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag == _FEATURE_LISTS and not sequence:
            raise ValueError("has feature_lists, as a tf.train.SequenceExample")
        if tag == _DELIMITED:
            for inner_tag, entry_start, entry_end in fields(message, start, end, 1):
                feature = _map_entry(message, entry_start, entry_end) if inner_tag == _DELIMITED else None
                if feature:
                    features[feature.name] = feature
    return features


def decode(message: bytes) -> dict[str, tuple[Kind | None, list[object]]]:
    """Return the features of a serialised tf.train.Example as `{name: (kind, values)}`; kind is None if unset.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    return {name: (feature.kind, feature.values()) for name, feature in parse(message).items()}


def parse_features(message: bytes) -> dict[str, bytes | Feature]:
    """Return the features of a serialised tf.train.Example for encoding; lists of one value become scalars.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    return {name: _for_encoder(feature) for name, feature in parse(message).items() if feature.kind}


def _for_encoder(feature: ParsedFeature) -> Feature:
    shape = () if feature.count == 1 else (feature.count,)
    if feature.kind == "bytes":
        return bytes_list(feature.parts(), shape)
    packed = packed_floats if feature.kind == "float" else packed_int64s
    return packed(b"".join(feature.parts()), shape)


def values_of(feature: bytes | Feature) -> tuple[Kind | None, list[Any]]:
    """Return kind and values of one feature; the kind is None if unset.

    Raises:
        ValueError: when its bytes are not a Feature.
    """
    if isinstance(feature, bytes):
        return "bytes", [feature]
    feature_kind = feature_in(feature.message, 0, len(feature.message))
    return feature_kind.kind, feature_kind.values()


# --- Messages ---


def feature_in(message: bytes, start: int, end: int) -> ParsedFeature:
    """Parse the Feature message between two positions; the result has no name.

    Raises:
        ValueError: when the bytes are not a Feature.
    """
    return _feature(message, "", [(start, end)])


def _map_entry(message: bytes, start: int, end: int) -> ParsedFeature | None:
    """Return the feature of a map entry; None if it has unknown fields, which protobuf reserves for newer versions."""
    name, values, known = "", [], True
    for tag, first, last in fields(message, start, end, 2):
        if tag == _DELIMITED:
            name = _name(message, first, last)
        elif tag == _VALUE:
            values.append((first, last))
        else:
            known = False
    feature = _feature(message, name, values)
    return feature if known else None


def _name(message: bytes, start: int, end: int) -> str:
    try:
        return message[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the name of the feature at byte {start} is not UTF-8") from None


def _feature(message: bytes, name: str, spans: Iterable[tuple[int, int]]) -> ParsedFeature:
    """Merge the Feature messages at several positions into one."""
    kind: Kind | None = None
    runs: list[tuple[int, int]] = []
    count = 0
    for start, end in spans:
        for tag, first, last in fields(message, start, end, 3):
            if tag in _KINDS:
                if kind != _KINDS[tag]:
                    kind, runs, count = _KINDS[tag], [], 0
                count += _add_list(kind, message, first, last, runs)
    return ParsedFeature(message, name, kind, count, runs)


def _add_list(kind: Kind, message: bytes, start: int, end: int, runs: list[tuple[int, int]]) -> int:
    """Append the positions of a list's values to `runs`, and return the number of values."""
    tags, count = _VALUES[kind], 0
    for tag, first, last in fields(message, start, end, 4):
        if tag in tags:
            runs.append((first, last))
            if kind == "bytes":
                count += 1
            elif kind == "int64":
                count += count_varints(message[first:last])
            elif (last - first) % 4:
                raise ValueError(f"the floats at byte {first} are not a multiple of 4 bytes")
            else:
                count += (last - first) // 4
    return count


# --- Numbers ---

_CONTINUED: Final = bytes(range(0x80, 0x100))
_BAD_VARINTS: Final = rb"[\x80-\xff]{10}|[\x80-\xff]\Z"


def count_varints(packed: bytes) -> int:
    """Count concatenated varints: each ends at a byte without the continuation bit.

    Raises:
        ValueError: when one of them does not end.
    """
    if packed.isascii():
        return len(packed)
    if re.search(_BAD_VARINTS, packed):
        raise ValueError("a number in a packed list does not end")
    return len(packed.translate(None, _CONTINUED))


def _ints(packed: bytes) -> list[int]:
    """Decode concatenated varints as int64s."""
    if packed.isascii():
        return list(packed)
    numbers, position = [], 0
    while position < len(packed):
        number, position = read_varint(packed, position, len(packed), 10)
        number &= 0xFFFFFFFFFFFFFFFF
        numbers.append(number - (1 << 64) if number >> 63 else number)
    return numbers


# --- The wire ---


def fields(data: bytes, position: int, end: int, depth: int, closing: int = -1) -> Iterator[tuple[int, int, int]]:
    """Yield tag, start and end of the content of each field of a message that is nested at a depth.

    With `closing`, yield the fields of a group that ends with this tag.
    """
    while position < end:
        tag, start = data[position], position + 1
        if tag > 0x7F:
            tag, start = read_varint(data, position, end, 5)
        wire = tag & 7
        if wire == 2 and start < end and data[start] < 0x80:
            position = start + 1 + data[start]
            start += 1
        elif wire == 2:
            length, start = read_varint(data, start, end, 5)
            position = start + length
        elif tag == closing:
            yield tag, start, start
            return
        else:
            position = _scalar_end(data, tag, start, end, depth)
        if position > end:
            raise ValueError(f"a field at byte {start} runs past the end of its message")
        if tag > 0xFFFFFFFF or (tag < 8 and closing < 0):
            raise ValueError(f"unexpected field tag {tag:#04x} before byte {start}")
        yield tag, start, position


def _scalar_end(data: bytes, tag: int, start: int, end: int, depth: int) -> int:
    """Return the end of a field that has no length prefix."""
    wire = tag & 7
    if wire == 0:
        return read_varint(data, start, end, 10)[1]
    if wire in (1, 5):
        return start + (8 if wire == 1 else 4)
    if wire != 3:
        raise ValueError(f"unexpected field tag {tag:#04x} before byte {start}")
    if depth >= _MOST_DEPTH:
        raise ValueError(f"groups are nested more than {_MOST_DEPTH} deep at byte {start}")
    last = deque(fields(data, start, end, depth + 1, tag + 1), maxlen=1)
    if not last or last[0][0] != tag + 1:
        raise ValueError(f"a group at byte {start} does not end")
    return last[0][2]


def read_varint(data: bytes, position: int, end: int, most: int) -> tuple[int, int]:
    """Read a varint of at most `most` bytes, and return its value and the position after it."""
    number = 0
    for index, byte in enumerate(data[position : min(position + most, end)]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError(f"a number at byte {position} does not end")


def parse_lists(message: bytes) -> dict[str, list[ParsedFeature]]:
    """Return the feature lists of a serialised tf.train.SequenceExample by name.

    Raises:
        ValueError: when the bytes are not a SequenceExample.
    """
    lists: dict[str, list[ParsedFeature]] = {}
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag == _FEATURE_LISTS:
            for inner, first, last in fields(message, start, end, 1):
                if inner == _DELIMITED:
                    name, features = _entry(message, first, last)
                    lists[name] = features
    return lists


def is_sequence(message: bytes) -> bool:
    """Whether a message is a tf.train.SequenceExample that has feature lists."""
    try:
        return bool(parse_lists(message))
    except ValueError:
        return False


def _entry(message: bytes, start: int, end: int) -> tuple[str, list[ParsedFeature]]:
    name, features = "", []
    for tag, first, last in fields(message, start, end, 2):
        if tag == _DELIMITED:
            name = message[first:last].decode("utf-8")
        elif tag == _VALUE:
            places = (place for inner, *place in fields(message, first, last, 3) if inner == _DELIMITED)
            features += [feature_in(message, *place) for place in places]
    return name, features


_LISTS: Final = {tag[0] for tag in TAGS.values()}
_ONE_BY_ONE: Final[dict[Kind, int]] = {"bytes": 0x0A, "float": 0x0D, "int64": 0x08}
_BY: Final = "tf.io.parse_single_example cannot read it"
_NOT_SEEN: Final = "tf.io.parse_single_example does not see them"


def strict_parse(message: bytes) -> dict[str, ParsedFeature]:
    """Return the features of a tf.train.Example; raise unless both protobuf and `tf.io.parse_single_example` accept it.

    `parse_single_example` is assumed to request every feature as a VarLenFeature of the kind that protobuf finds. Like
    both of them, this function reads a tf.train.SequenceExample as an example of its context.

    Raises:
        ValueError: when one of them rejects it; names the fault and its byte.
    """
    return _parse_usual(message) or strict_parse_any(message)


def strict_parse_any(message: bytes) -> dict[str, ParsedFeature]:
    """Return the same features as `strict_parse`, without using the kernel."""
    features = parse_any(message, sequence=True)
    values: dict[str, tuple[int, int]] = {}
    position = long_tag = 0
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag & 7 == 3:
            raise ValueError(f"a group ends at byte {end}: {_BY}")
        if tag == _DELIMITED and message[position] != _DELIMITED:
            long_tag = position
        if message[position] == _DELIMITED:
            for name, first, last in _entries(message, start, end):
                if first < last and features[name].kind:
                    values[name] = first, last
                    _check_kind(message, first)
        position = end
    if any(feature.kind and feature.count and name not in values for name, feature in features.items()):
        raise ValueError(f"the tag of the features at byte {long_tag} takes several bytes: {_NOT_SEEN}")
    for name, (start, end) in values.items():
        _check_value(message, start, end, features[name])
    return features


def _entries(message: bytes, position: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield the name, and the start and end of the value, of each entry of a Features message."""
    for tag, start, stop in fields(message, position, end, 1):
        if message[position] != _DELIMITED:
            raise ValueError(f"unexpected field tag {tag:#04x} at byte {position} among the features: {_BY}")
        parts = list(fields(message, start, stop, 2))
        if len(parts) != 2 or any(tag not in (_DELIMITED, _VALUE) for tag, *_ in parts):
            raise ValueError(f"the entry at byte {position} is not a name and a feature: {_BY}")
        by_tag = {tag: (first, last) for tag, first, last in parts}
        name = message[slice(*by_tag.get(_DELIMITED, (0, 0)))].decode("utf-8")
        yield name, *by_tag.get(_VALUE, (stop, stop))
        position = stop


def _check_kind(message: bytes, start: int) -> None:
    """Check that a Feature message begins with a list of values."""
    if message[start] not in _LISTS:
        raise ValueError(f"the feature at byte {start} does not begin with a list: {_BY}")


def _check_value(message: bytes, start: int, end: int, feature: ParsedFeature) -> None:
    """Check the list of values in a Feature message that protobuf accepts."""
    kind = feature.kind or "bytes"
    if message[start] != TAGS[kind][0]:
        raise ValueError(f"the feature at byte {start} has lists of two kinds: {_BY}")
    _, first, last = next(fields(message, start, end, 3))
    if first == last or (kind != "bytes" and message[first] == _DELIMITED):
        return
    ends = [stop for _, stop in feature.runs if first < stop <= last]
    if not ends or ends[-1] != last:  # unknown fields, or values of a list that a later list replaced
        ends = [stop for *_, stop in fields(message, first, last, 4)]
    tag = _ONE_BY_ONE[kind]
    if any(message[place] != tag for place in chain((first,), ends[:-1])):
        raise ValueError(f"the list at byte {start} has values in two forms: {_BY}")
