"""Bytes of a tf.train.Example to its features; accepts and rejects the same messages as protobuf.

The reference is `tf.train.Example.FromString`: unknown fields are skipped, the last of several features of one name
counts, repeated lists of one kind are concatenated, and a list of another kind replaces those before it. The one
difference: a tf.train.SequenceExample is rejected by name, whereas protobuf would read its context as features.

The nesting of the messages is drawn in example.py; the wire format is that of protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tar2tf_cli.formats.example import TAGS, Feature, Kind, bytes_list, packed_floats, packed_int64s, scalar

__all__ = [
    "ParsedFeature",
    "count_varints",
    "decode",
    "feature_at",
    "feature_in",
    "fields",
    "parse",
    "parse_features",
    "values_of",
]

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


@dataclass(slots=True, repr=False)
class ParsedFeature:
    """One feature of a serialised example; its values are not copied.

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
        whole: Mapping[int, int] = getattr(self.message, "lengths", {})  # of values that a Shortened lacks most of
        return sum(whole.get(start, end - start) for start, end in self.runs)

    def parts(self) -> list[bytes]:
        """Return the bytes of each run."""
        return [self.message[start:end] for start, end in self.runs]

    def values(self) -> list[Any]:
        """Return the values: bytes, float or int."""
        if self.kind == "bytes":
            return self.parts()
        data = b"".join(self.parts())
        if self.kind == "float":
            return list(struct.unpack(f"<{self.count}f", data))
        return _ints(data)


def parse(message: bytes, *, sequence: bool = False) -> dict[str, ParsedFeature]:
    """Return the features of a serialised tf.train.Example by name, in order of first appearance.

    With `sequence`, return those in the context of a tf.train.SequenceExample, too.

    Raises:
        ValueError: when the bytes are not an Example; says what is wrong, and at which byte.
    """
    found: dict[str, ParsedFeature] = {}
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag == _FEATURE_LISTS and not sequence:
            raise ValueError("has feature_lists, as a tf.train.SequenceExample")
        if tag == _DELIMITED:
            for inner_tag, entry_start, entry_end in fields(message, start, end, 1):
                feature = _map_entry(message, entry_start, entry_end) if inner_tag == _DELIMITED else None
                if feature:
                    found[feature.name] = feature
    return found


def feature_at(message: bytes, position: int) -> tuple[ParsedFeature | None, int]:
    """Return the feature of the map entry at a position, and the entry's end; None for any other field.

    Raises:
        ValueError: when there is no field of Features.
    """
    tag, start, end = next(fields(message, position, len(message), 1))
    return _map_entry(message, start, end) if tag == _DELIMITED else None, end


def decode(message: bytes) -> dict[str, tuple[Kind | None, list[Any]]]:
    """Return the features of a serialised tf.train.Example as `{name: (kind, values)}`; kind is None if unset.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    return {name: (feature.kind, feature.values()) for name, feature in parse(message).items()}


def parse_features(message: bytes) -> dict[str, bytes | Feature]:
    """Return the features of a serialised tf.train.Example for the encoder; lists of one value become scalars.

    Raises:
        ValueError: when the bytes are not an Example.
    """
    return {name: _ready(feature) for name, feature in parse(message).items() if feature.kind}


def _ready(feature: ParsedFeature) -> Feature:
    if feature.kind == "bytes":
        ready = bytes_list(feature.parts())
    elif feature.kind == "float":
        ready = packed_floats(b"".join(feature.parts()))
    else:
        ready = packed_int64s(b"".join(feature.parts()), (feature.count,))
    return scalar(ready) if feature.count == 1 else ready


def values_of(feature: bytes | Feature) -> tuple[Kind | None, list[Any]]:
    """Return kind and values of one feature; kind is None if unset.

    Raises:
        ValueError: when its bytes are not a Feature.
    """
    if isinstance(feature, bytes):
        return "bytes", [feature]
    found = feature_in(feature.message, 0, len(feature.message))
    return found.kind, found.values()


# --- Messages ---


def feature_in(message: bytes, start: int, end: int) -> ParsedFeature:
    """Return the Feature message in these bytes, without a name.

    Raises:
        ValueError: when the bytes are not a Feature.
    """
    return _feature(message, "", [(start, end)])


def _map_entry(message: bytes, start: int, end: int) -> ParsedFeature | None:
    """Return the feature of a map entry; None for one with unknown fields, which protobuf leaves to newer versions."""
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
    """Merge the Feature messages in these spans."""
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
    """Record the positions of a list's values; return their number."""
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
_BAD_VARINTS: Final = re.compile(rb"[\x80-\xff]{10}|[\x80-\xff]\Z")


def count_varints(packed: bytes) -> int:
    """Count concatenated varints, which is the number of bytes without the continuation bit.

    Raises:
        ValueError: when one of them does not end.
    """
    if packed.isascii():
        return len(packed)
    if _BAD_VARINTS.search(packed):
        raise ValueError("a number in a packed list does not end")
    return len(packed.translate(None, _CONTINUED))


def _ints(packed: bytes) -> list[int]:
    """Decode concatenated varints as int64s."""
    if packed.isascii():
        return list(packed)
    numbers, position = [], 0
    while position < len(packed):
        number, position = _varint(packed, position, len(packed), 10)
        number &= 0xFFFFFFFFFFFFFFFF
        numbers.append(number - (1 << 64) if number >> 63 else number)
    return numbers


# --- The wire ---


def fields(data: bytes, position: int, end: int, depth: int, closing: int = -1) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message at a depth: tag, and start and end of the content.

    With `closing`, yield those of a group that ends with this tag.
    """
    while position < end:
        tag, start = data[position], position + 1
        if tag > 0x7F:
            tag, start = _varint(data, position, end, 5)
        wire = tag & 7
        if wire == 2 and start < end and data[start] < 0x80:
            position = start + 1 + data[start]
            start += 1
        elif wire == 2:
            length, start = _varint(data, start, end, 5)
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
    """Return the end of a field that has no length."""
    wire = tag & 7
    if wire == 0:
        return _varint(data, start, end, 10)[1]
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


def _varint(data: bytes, position: int, end: int, most: int) -> tuple[int, int]:
    """Read a number of at most this many bytes; return it and its end."""
    number = 0
    for index, byte in enumerate(data[position : min(position + most, end)]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError(f"a number at byte {position} does not end")
