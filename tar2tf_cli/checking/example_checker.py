"""What a serialised tf.train.Example is made of, strictly parsed and without taking its values out.

`entries` parses one message. `Checker` checks many: it remembers how the bytes before each value have looked, and
parses only what it has not seen. The nesting of the messages is drawn in example.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.formats.example import Kind, kind_of, varint

__all__ = ["Checker", "Entry", "Expected", "entries", "expected"]


class Entry(NamedTuple):
    """One feature of a serialised example.

    Attributes:
        kind: which list it holds; None for none at all, which is how an unset feature looks.
        values: how many values.
        size: bytes that the values take together on the wire, without tags and lengths.
        start: where the first value begins.
        end: where the last value ends.
        simple: whether there is one run of value bytes, and nothing behind it in the map entry.
    """

    name: str
    kind: Kind | None
    values: int
    size: int
    start: int
    end: int
    simple: bool


def entries(message: bytes) -> Iterator[Entry]:
    """The features of an example, in the order they are stored.

    Raises:
        ValueError: when the bytes are not an Example; says what is wrong and at which byte.
    """
    names = set()
    position, end = 0, len(message)
    while position < end:
        if message[position] == 0x12:
            raise ValueError("has feature_lists, as a tf.train.SequenceExample")
        position, stop = _field(message, position, end, 0x0A)
        while position < stop:
            entry, position = _entry(message, position, stop)
            if entry.name in names:
                raise ValueError(f"the feature {entry.name!r} comes twice")
            names.add(entry.name)
            yield entry


def _entry(message: bytes, position: int, stop: int) -> tuple[Entry, int]:
    """The map entry at a position, and where it ends."""
    position, entry_end = _field(message, position, stop, 0x0A)
    name: str | None = None
    feature: tuple[int, int] | None = None
    while position < entry_end:
        tag = message[position]
        start, end = _field(message, position, entry_end, 0x12 if tag == 0x12 else 0x0A)
        if tag == 0x12 and feature is None:
            feature = start, end
        elif tag == 0x0A and name is None:
            name = _name(message, start, end)
        else:
            raise ValueError(f"a name or a feature comes twice in the map entry that ends at byte {entry_end}")
        position = end
    return _feature(name or "", message, *(feature or (entry_end, entry_end)), entry_end), entry_end


def _name(message: bytes, start: int, end: int) -> str:
    try:
        return message[start:end].decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the name of the feature at byte {start} is not UTF-8") from None


def _feature(name: str, message: bytes, start: int, end: int, entry_end: int) -> Entry:
    """The entry of a Feature message in `message[start:end]`."""
    kind = kind_of(message, start, end)
    if kind is None:
        return Entry(name, None, 0, 0, end, end, end == entry_end)
    position, stop = _field(message, start, end, message[start])
    if stop != end:
        raise ValueError(f"unexpected bytes behind the list of the feature {name!r} at byte {stop}")
    count = size = runs = 0
    first, packed = stop, True
    while position < stop:
        packed = message[position] == 0x0A
        values, begin, position = _run(kind, message, position, stop)
        first = first if runs else begin
        runs, count, size = runs + 1, count + values, size + position - begin
    return Entry(name, kind, count, size, first, stop, runs < 2 and packed and stop == entry_end)


def _run(kind: Kind, message: bytes, position: int, stop: int) -> tuple[int, int, int]:
    """Values that stand under one tag in a list: one of bytes, a packed run or a lone number; count, start, end."""
    tag = message[position]
    if kind == "float" and tag == 0x0D:
        begin, end = position + 1, position + 5
    elif kind == "int64" and tag == 0x08:
        begin, end = position + 1, _read_varint(message, position + 1, stop, 10)[1]
    else:
        begin, end = _field(message, position, stop, 0x0A)
    if kind == "bytes":
        return 1, begin, end
    if kind == "int64":
        return _count_varints(message[begin:end]), begin, end
    if (end - begin) % 4 or end > stop:
        raise ValueError(f"the floats at byte {begin} are not whole")
    return (end - begin) // 4, begin, end


_CONTINUED: Final = bytes(range(0x80, 0x100))
_BAD_VARINTS: Final = re.compile(rb"[\x80-\xff]{10}|[\x80-\xff]\Z")


def _count_varints(packed: bytes) -> int:
    """How many varints stand end to end: as many as there are bytes without the continuation bit."""
    if packed.isascii():
        return len(packed)
    if _BAD_VARINTS.search(packed):
        raise ValueError("a number in a packed list does not end")
    return len(packed.translate(None, _CONTINUED))


def _field(data: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Start and end of the length-delimited field at a position, which must bear a tag and fit before `end`."""
    if data[position] != tag:
        raise ValueError(f"unexpected field tag {data[position]:#04x} at byte {position}")
    position += 1
    if position < end and data[position] < 0x80:
        length, position = data[position], position + 1
    else:
        length, position = _read_varint(data, position, end, 5)
    if position + length > end:
        raise ValueError(f"a field at byte {position} runs past the end of its message")
    return position, position + length


def _read_varint(data: bytes, position: int, end: int, most: int) -> tuple[int, int]:
    """A number of at most so many bytes, and where it ends."""
    number = 0
    for index, byte in enumerate(data[position : min(position + most, end)]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError(f"a number at byte {position} does not end")


# --- What a schema expects ---

_SIZES: Final = {"uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "float32": 4, "int32": 4}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a schema says of one feature; None stands for anything.

    Attributes:
        kind: the list that holds the values.
        values: how many values.
        size: bytes of the values on the wire together.
    """

    kind: Kind | None = None
    count: int | None = None
    size: int | None = None

    def misfit(self, entry: Entry) -> str | None:
        """What is wrong with an entry, if anything."""
        if self.kind is not None and entry.kind != self.kind:
            return f"the feature {entry.name!r} is {entry.kind or 'unset'}, and {self.kind} in the manifest"
        if self.count is not None and entry.values != self.count:
            return f"the feature {entry.name!r} holds {entry.values:,} values, and {self.count:,} in the manifest"
        if self.size is not None and entry.size != self.size:
            return f"the feature {entry.name!r} holds {entry.size:,} bytes, and {self.size:,} in the manifest"
        return None


def expected(described: Mapping[str, Any]) -> Expected:
    """What one feature of a manifest (`Schema.describe`) says."""
    encoding, shape = described.get("encoding"), described.get("shape")
    known = isinstance(shape, list) and all(isinstance(length, int) for length in shape)
    count = prod(shape) if isinstance(shape, list) and known else None
    if encoding == "raw":
        width = _SIZES.get(str(described.get("dtype")))
        return Expected("bytes", 1, count * width if count is not None and width else None)
    if encoding in ("bytes", "float", "int64"):
        return Expected(encoding, count)
    return Expected()


# --- Many examples in a row ---

Findings: TypeAlias = Sequence[tuple[str, str]]
"""Faults of one example: a word for the kind, and a sentence."""

_MOST_REMEMBERED: Final = 50_000


class _State:
    """What is known after some features: which they are, and how the next one's bytes have begun before.

    Attributes:
        name: of the last feature.
        count: how many values it must have; None for any number.
        heads: by the bytes that come before a value: the length of these and of the value, where a packed list of
            integers begins (0 when the value is none), and the state behind the value.
        width: how many bytes came before the value last time.
        widths: how many have ever come.
        records: examples that ended here.
    """

    __slots__ = ("complete", "count", "following", "heads", "name", "parent", "records", "width", "widths")

    def __init__(self, parent: _State | None, name: str, count: int | None) -> None:
        self.parent = parent
        self.name = name
        self.count = count
        self.heads: dict[bytes, tuple[int, int, _State]] = {}
        self.width = 0
        self.widths: set[int] = set()
        self.following: dict[str, _State] = {}
        self.records = 0
        self.complete: bool | None = None

    def names(self) -> Iterator[str]:
        """The features up to here, last first."""
        state = self
        while state.parent:
            yield state.name
            state = state.parent


class Checker:
    """Checks whether messages are examples, and fit a schema.

    Args:
        schema: what is expected of each feature, by name; None expects nothing.
        required: the features that every example must have.
    """

    def __init__(self, schema: Mapping[str, Expected] | None = None, required: frozenset[str] = frozenset()) -> None:
        self._schema = schema
        self._required = required
        self._prefixes: dict[int, bytes] = {}
        self._root = _State(None, "", None)
        self._states = [self._root]
        self._remembered = 0
        self._counts: Counter[str] = Counter()

    def check(self, message: bytes) -> Findings:
        """What is wrong with a message; empty when it is an example, and one that fits.

        Kinds are "not-an-example" and "schema".
        """
        length = len(message)
        prefix = self._prefixes.get(length) or self._prefix(length)
        if not prefix or not message.startswith(prefix):
            return self._parse(message)
        position, state = len(prefix), self._root
        while position < length:
            known = state.heads.get(message[position : position + state.width])
            if known is None:
                known = self._look(state, message, position)
                if known is None:
                    return self._parse(message)
            size, packed, state = known
            if packed:
                numbers = message[position + packed : position + size]
                if not (numbers.isascii() and (state.count is None or state.count == len(numbers))) and (
                    not _holds(numbers, state.count)
                ):
                    return self._parse(message)
            position += size
        if position != length or not (state.complete or self._is_complete(state)):
            return self._parse(message)
        state.records += 1
        if self._remembered > _MOST_REMEMBERED:
            self._forget()
        return ()

    def counts(self) -> Counter[str]:
        """How many of the examples had each feature; those at fault are left out."""
        self._forget()
        return self._counts

    def _prefix(self, length: int) -> bytes:
        """What comes before the first entry in an example of a length; b"" when there can be no such example."""
        if len(self._prefixes) > _MOST_REMEMBERED:
            self._prefixes.clear()
        for digits in range(1, 6):
            number = varint(max(length - 1 - digits, 0))
            if len(number) == digits and length > digits:
                self._prefixes[length] = b"\x0a" + number
                return self._prefixes[length]
        return b""

    def _look(self, state: _State, message: bytes, position: int) -> tuple[int, int, _State] | None:
        """What stands at a position that does not begin as last time; None when that is nothing good."""
        for width in state.widths:
            known = state.heads.get(message[position : position + width])
            if known:
                state.width = width
                return known
        try:
            entry, end = _entry(message, position, len(message))
        except ValueError:
            return None
        following = state.following.get(entry.name) or self._grow(state, entry.name)
        if following is None or self._misfit(entry):
            return None
        known = end - position, 0, following
        if entry.simple:
            width = entry.start - position
            if entry.kind == "int64":
                known = end - position, width, following
            state.heads[message[position : entry.start]] = known
            state.width = width
            state.widths.add(width)
            self._remembered += 1
        return known

    def _grow(self, state: _State, name: str) -> _State | None:
        """The state behind a feature that has not come here before; None when it comes twice."""
        if name in state.names():
            return None
        count = self._schema[name].count if self._schema and name in self._schema else None
        following = state.following[name] = _State(state, name, count)
        self._states.append(following)
        self._remembered += 1
        return following

    def _is_complete(self, state: _State) -> bool:
        state.complete = self._required <= set(state.names())
        return state.complete

    def _misfit(self, entry: Entry) -> str | None:
        if self._schema is None:
            return None
        if entry.name not in self._schema:
            return f"the feature {entry.name!r} is not in the manifest"
        return self._schema[entry.name].misfit(entry)

    def _parse(self, message: bytes) -> Findings:
        """The same check, made from scratch."""
        try:
            found = list(entries(message))
        except ValueError as error:
            return [("not-an-example", f"the record is no tf.train.Example: {error}")]
        findings = [("schema", misfit) for misfit in map(self._misfit, found) if misfit]
        missing = sorted(self._required - {entry.name for entry in found})
        if missing:
            findings.append(("schema", f"the example lacks {', '.join(map(repr, missing))}, which all others have"))
        if not findings:
            self._counts.update(entry.name for entry in found)
        return findings

    def _forget(self) -> None:
        """Add up what the states have counted, and begin to remember anew."""
        for state in self._states:
            if state.records:
                self._counts.update(dict.fromkeys(state.names(), state.records))
        self._root = _State(None, "", None)
        self._states = [self._root]
        self._remembered = 0


def _holds(packed: bytes, count: int | None) -> bool:
    """Whether varints are whole, and as many as they should be."""
    try:
        return _count_varints(packed) == count or count is None
    except ValueError:
        return False
