"""Checks a TFRecord: every length, CRC and example; after damage it continues at the next record."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.example import TAGS, varint
from tar2tf_cli.formats.example_parser import ParsedFeature, count_varints, is_sequence, strict_feature_at, strict_parse
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING, stored_crc

if TYPE_CHECKING:
    from tar2tf_cli.checking.undecodable import Faults
    from tar2tf_cli.conversion.manifest import Expected
    from tar2tf_cli.flow.sample_flow import Located


Findings: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one example, each as its kind and a message."""

_MOST_REMEMBERED: Final = 10_000
_MOST_KNOWN: Final = 64  # names and kinds that the kernel takes
_KNOWN: Final = Struct("=4i")
_LARGEST: Final = 2**31 - 1
_NO_KIND: Final = 0  # for a feature that the kernel cannot check


@dataclass(slots=True, eq=False)
class _Seen:
    """What is remembered about the features with one name.

    Attributes:
        bit: the bit of this name in a bit set of names.
        count: how many values the feature must have; None for any number.
        fits: serialised numbers that were found to be those expected; None if any are.
        width: how many bytes preceded the value of the next feature last time.
        widths: all such numbers of bytes so far.
    """

    bit: int
    count: int | None
    fits: set[bytes] | None = None
    width: int = 0
    widths: set[int] = field(default_factory=set)


_Head: TypeAlias = tuple[int, int, _Seen]
"""What the bytes before a value mean: their length plus that of the value, the offset of a packed list of integers
(0 if the value is not one), and the feature."""


class Checker:
    """Checks whether messages are examples and match a schema.

    Args:
        schema: what is expected of each feature, by name; None for no schema.
        required: the names of features that every example must have.

    Attributes:
        sequences: how many of the messages are a tf.train.SequenceExample, which is an example of its context, too.
    """

    def __init__(self, schema: Mapping[str, Expected] | None = None, required: frozenset[str] = frozenset()) -> None:
        self._schema = schema
        self._required = required
        self._counts: Counter[str] = Counter()
        self.sequences = 0
        self._begin()

    def _begin(self) -> None:
        self._known = b"", b""
        self._known_sizes: tuple[int, int] = 0, 0
        self._first = _Seen(0, None)
        self._names: dict[str, _Seen] = {}
        self._heads: dict[bytes, _Head] = {}
        self._records: dict[int, int] = {}

    def known(self) -> tuple[bytes, bytes]:
        """The names and kinds of examples that the kernel may check; both are empty if it cannot know all of them."""
        if self._known_sizes != (sizes := (len(self._names), len(self._records))):
            self._known_sizes = sizes
            self._known = (b"", b"") if max(sizes) > _MOST_KNOWN else self._described()
        return self._known

    def add(self, counts: bytes) -> int:
        """Count records of known kinds; return how many there are."""
        found = array("Q", counts)
        for names, records in zip(self._records, found, strict=False):
            self._records[names] += records
        return sum(found)

    def _described(self) -> tuple[bytes, bytes]:
        names = b""
        for name, seen in self._names.items():
            wanted, text = self._schema.get(name) if self._schema else None, name.encode()
            kind = _NO_KIND if seen.fits is not None else TAGS[wanted.kind][0] if wanted and wanted.kind else -1
            size = wanted.size if wanted else None
            numbers = [-1 if number is None else min(number, _LARGEST) for number in (seen.count, size)]
            names += _KNOWN.pack(kind, *numbers, len(text)) + text
        return names, array("Q", self._records).tobytes()

    def check(self, message: bytes) -> Findings:
        """What is wrong with a message; empty if it is an example that matches the schema.

        The kinds of faults are "not_an_example" and "schema".
        """
        if type(message) is not bytes:  # a large record, whose lengths are not those of its values
            return self._parse(message)
        length, heads = len(message), self._heads
        prefix = _prefix(length)
        if not message.startswith(prefix):
            return self._parse(message)
        position, names, seen = len(prefix), 0, self._first
        while position < length:
            head = heads.get(message[position : position + seen.width]) or self._look(seen, message, position)
            if head is None:
                return self._parse(message)
            size, packed, seen = head
            if packed:
                numbers = message[position + packed : position + size]
                if seen.fits is not None and numbers not in seen.fits:
                    return self._parse(message)
                if not (numbers.isascii() and (seen.count is None or seen.count == len(numbers))) and (
                    not _holds(numbers, seen.count)
                ):
                    return self._parse(message)
            names |= seen.bit
            position += size
        if position != length or names not in self._records:
            return self._parse(message)
        self._records[names] += 1
        return ()

    def counts(self) -> Counter[str]:
        """How many examples have each feature; faulty examples are not counted."""
        self._forget()
        return self._counts

    def _look(self, before: _Seen, message: bytes, position: int) -> _Head | None:
        """The meaning of bytes that differ from last time; None if the message must be parsed."""
        for width in before.widths:
            if head := self._heads.get(message[position : position + width]):
                before.width = width
                return head
        try:
            feature, end = strict_feature_at(message, position)
        except ValueError:
            return None
        if feature is None or self._misfit(feature):
            return None
        seen = self._seen(feature.name)
        start, stop = feature.runs[0] if feature.runs else (end, end)
        packed = feature.kind == "int64" and _is_packed(message, start, stop)
        if stop < end or len(feature.runs) > 1 or (feature.kind == "int64" and not packed):
            return end - position, 0, seen
        before.width = start - position
        before.widths.add(before.width)
        head = end - position, before.width if packed else 0, seen
        if len(self._heads) >= _MOST_REMEMBERED:
            self._heads.clear()
        self._heads[message[position:start]] = head
        return head

    def _seen(self, name: str) -> _Seen:
        if name not in self._names:
            required = self._schema.get(name) if self._schema else None
            fits = set[bytes]() if required and required.values is not None else None
            self._names[name] = _Seen(1 << len(self._names), required.count if required else None, fits)
        return self._names[name]

    def _misfit(self, feature: ParsedFeature) -> str | None:
        if self._schema is None:
            return None
        if feature.name not in self._schema:
            return f"the feature {feature.name!r} is not in the manifest"
        misfit = self._schema[feature.name].misfit(feature)
        if misfit is None and (fits := self._seen(feature.name).fits) is not None and len(fits) < _MOST_REMEMBERED:
            fits.update(feature.parts())
        return misfit

    def _parse(self, message: bytes) -> Findings:
        """The same check by parsing the message."""
        try:
            if fault := getattr(message, "fault", None):
                raise ValueError(fault)
            found = strict_parse(message)
        except ValueError as error:
            return [("not_an_example", f"the record is not a tf.train.Example: {error}")]
        findings = [("schema", misfit) for misfit in map(self._misfit, found.values()) if misfit]
        missing = sorted(self._required - found.keys())
        if missing:
            findings.append(("schema", f"the example lacks {', '.join(map(repr, missing))}, which all others have"))
        self.sequences += is_sequence(message)
        if not findings:
            if len(self._names) > _MOST_REMEMBERED or len(self._records) > _MOST_REMEMBERED:
                self._forget()
            names = sum(self._seen(name).bit for name in found)
            self._records[names] = self._records.get(names, 0) + 1
        return findings

    def _forget(self) -> None:
        """Add up the counts and clear the memory."""
        for names, records in self._records.items():
            self._counts.update({name: records for name, seen in self._names.items() if names & seen.bit})
        self._begin()


@lru_cache(_MOST_REMEMBERED)
def _prefix(length: int) -> bytes:
    """The bytes that usually precede the first feature in an example of a given length."""
    features = max(length - 2, 0)
    while features and 1 + len(varint(features)) + features > length:
        features -= 1
    return b"\x0a" + varint(features)


def _is_packed(message: bytes, start: int, stop: int) -> bool:
    """Whether a list of integers at these positions is packed: their tag and length precede them."""
    head = b"\x0a" + varint(stop - start)
    return message[start - len(head) : start] == head


def _holds(packed: bytes, count: int | None) -> bool:
    """Whether varints are complete and there are `count` of them."""
    try:
        return count_varints(packed) == count or count is None
    except ValueError:
        return False


CheckRecord: TypeAlias = "Callable[[bytes], Faults]"
"""Returns the faults of one record, each as its kind and a message."""

Keep: TypeAlias = Callable[[bytes], None]


def check_tfrecord(
    reader: RecordReader, check: CheckRecord, report: FileReport, *, decoders: int = 0, keep: Keep | None = None
) -> None:
    """Read all records; fill in the report's faults and numbers.

    Args:
        reader: at the beginning of the file.
        check: called with each record whose CRCs are right.
        report: the report of the file.
        decoders: number of threads that decode images and arrays; 0 if they are not to be decoded.
        keep: called with each good record, in order.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
    """
    tally = _Tally(reader, report)
    read = partial(_decode_records, threads=decoders) if decoders else _check_records
    more = True
    try:
        while more:
            try:
                read(reader, check, tally, keep)
                more = False
            except DamagedShardError as error:
                more = tally.resume(error)
    finally:
        tally.finish()


def _check_records(reader: RecordReader, check: CheckRecord, tally: _Tally, keep: Keep | None) -> None:
    for offset, data in reader:
        if faults := check(data):
            tally.reject(faults, reader.count, offset, reader.size_of(data))
        elif keep:
            keep(data)


def _decode_records(
    reader: RecordReader, check: CheckRecord, tally: _Tally, keep: Keep | None, *, threads: int
) -> None:
    from tar2tf_cli.checking.undecodable import Values, record_values
    from tar2tf_cli.flow.sample_flow import work_in_threads

    seen = Values()

    def records() -> Iterator[Located]:
        for offset, data in reader:
            faults = check(data) or seen.odd(record_values(data))
            yield {"data": data, "faults": faults}, "", {"number": reader.count, "offset": offset, "data": data}

    def decode(record: Mapping[str, Any]) -> list[Faults]:
        return [record["faults"] or seen.undecodable(record_values(record["data"]))]

    for faults, _, place in work_in_threads(records(), decode, threads):
        if faults:
            tally.reject(faults, place["number"], place["offset"], len(place["data"]))
        elif keep:
            keep(place["data"])
    tally.report.not_decoded.update(seen.unknown)


class _Tally:
    """Adds faults to the report of a file, and counts its bad records; a gap in which none was found counts as one."""

    def __init__(self, reader: RecordReader, report: FileReport) -> None:
        self._reader = reader
        self.report = report
        self._bad = Amount()
        self._gaps = 0  # those of the bad records that may be several records, or none

    def reject(self, faults: Faults, number: int, offset: int, length: int) -> None:
        """Add the faults of a record that is framed well."""
        before = Amount(number - self._bad.records, offset - self._bad.bytes)
        for kind, message in faults:
            self.report.add(Fault(kind, message, number, offset, length + FRAMING, before))
        self._bad = Amount(self._bad.records + 1, self._bad.bytes + length + FRAMING)

    def resume(self, error: DamagedShardError) -> bool:
        """Add a fault of the framing, and go to the next record; returns whether there may be one."""
        reader, before, number, start = self._reader, self._good(), self._reader.count, self._reader.offset
        second = None
        try:
            more = reader.resume()
        except DamagedShardError as found:
            more, second = False, found
        if reader.count == number:
            self._end(error)
            return False
        lost = reader.offset - start
        fault = Fault(error.kind, error.message, number, start, lost, before)
        fault = fault if more else _last(fault, reader.header)
        self.report.add(fault)
        self._bad = Amount(self._bad.records + 1, self._bad.bytes + lost)
        self._gaps += fault.kind != "data_crc"
        if second:
            self._end(second)
        return more

    def finish(self) -> None:
        """Fill in the numbers of the report."""
        self.report.good, self.report.bad = self._good(), self._bad
        self.report.records = self._reader.count - self._gaps
        self.report.examined = not self.report.cut and not self._gaps

    def _good(self) -> Amount:
        return Amount(self._reader.count - self._bad.records, self._reader.offset - self._bad.bytes)

    def _end(self, error: DamagedShardError) -> None:
        """Add a fault of the stream, after which nothing can be read."""
        rest = "" if error.kind == "truncated" else "; the rest of the file cannot be read"
        self.report.add(Fault(error.kind, error.message + rest, self._reader.count, error.offset, None, self._good()))
        self.report.cut = True


def _last(fault: Fault, header: bytes) -> Fault:
    """A fault after which no record was found: a damaged last record, or bytes that are not part of one."""
    lost = fault.lost or 0
    if fault.kind == "truncated" and (len(header) == 12 or _may_begin_record(header)):
        return fault
    length = (lost - FRAMING).to_bytes(8, "little", signed=True)
    damaged = fault.kind == "length_crc" and (header[:8] == length or header[8:] == stored_crc(length))
    if damaged or fault.kind == "too_large" or not fault.offset:
        return fault
    message = f"{lost:,} bytes after the last record do not form a record"
    return Fault("trailing_garbage", message, fault.record, fault.offset, lost, fault.before)


def _may_begin_record(header: bytes) -> bool:
    """Whether fewer than 12 bytes may be the beginning of a record below 4 GiB."""
    return any(header) and not any(header[4:8]) and stored_crc(header[:8]).startswith(header[8:])
