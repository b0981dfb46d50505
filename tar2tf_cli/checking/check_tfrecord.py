"""Checks a TFRecord: every length, CRC and example; after damage it continues at the next record."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.example import TAGS
from tar2tf_cli.formats.example_parser import ParsedFeature, is_sequence, strict_parse
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING, crc_field

if TYPE_CHECKING:
    from tar2tf_cli.checking.undecodable import Faults
    from tar2tf_cli.conversion.manifest import Expected
    from tar2tf_cli.flow.sample_flow import Located


Findings: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one example, each as its kind and a message."""

MOST_REMEMBERED: Final = 10_000
"""Names, and combinations of them, whose records are counted together before they are forgotten."""

_MOST_KNOWN: Final = 64  # names that the kernel takes
_MOST_KINDS: Final = 512  # combinations of them
_KNOWN: Final = Struct("=5i")
_LARGEST: Final = 2**31 - 1
_NO_KIND: Final = 0  # of a feature of which no list is right


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
        self._bits: dict[str, int] = {}  # the bit of each name
        self._records: dict[int, int] = {}  # how many good records there are by the bits of their names
        self._kinds: list[int] = []  # those of them that the kernel knows
        self._known = (0, 0), (b"", b"")

    def check(self, message: bytes) -> Findings:
        """What is wrong with a message; empty if it is an example that matches the schema.

        The kinds of faults are "not_an_example" and "schema".
        """
        try:
            if fault := getattr(message, "fault", None):
                raise ValueError(fault)
            features = strict_parse(message)
        except ValueError as error:
            return [("not_an_example", f"the record is not a tf.train.Example: {error}")]
        findings = [("schema", misfit) for misfit in map(self._misfit, features.values()) if misfit]
        missing = sorted(self._required - features.keys())
        if missing:
            findings.append(("schema", f"the example lacks {', '.join(map(repr, missing))}, which all others have"))
        self.sequences += is_sequence(message)
        if not findings:
            if max(len(self._bits), len(self._records)) >= MOST_REMEMBERED:
                self.counts()
            names = sum(self._bits.get(name) or self._new_bit(name) for name in features)
            self._records[names] = self._records.get(names, 0) + 1
        return findings

    def known(self) -> tuple[bytes, bytes]:
        """The names and kinds of examples that the kernel may check, as many as it takes."""
        sizes = min(len(self._bits), _MOST_KNOWN), min(len(self._records), _MOST_KINDS)
        if self._known[0] != sizes:
            schema = self._schema or {}
            names = b"".join(_described(name, schema.get(name)) for name in islice(self._bits, _MOST_KNOWN))
            self._kinds = [kind for kind in islice(self._records, _MOST_KINDS) if kind < 1 << _MOST_KNOWN]
            self._known = sizes, (names, array("Q", self._kinds).tobytes())
        return self._known[1]

    def add(self, counts: bytes) -> int:
        """Count records of known kinds; return how many there are."""
        found = array("Q", counts)
        for names, records in zip(self._kinds, found, strict=True):
            self._records[names] += records
        return sum(found)

    def counts(self) -> Counter[str]:
        """How many examples have each feature; faulty examples are not counted."""
        for names, records in self._records.items():
            self._counts.update({name: records for name, bit in self._bits.items() if names & bit})
        self._begin()
        return self._counts

    def _misfit(self, feature: ParsedFeature) -> str | None:
        if self._schema is None:
            return None
        if feature.name not in self._schema:
            return f"the feature {feature.name!r} is not in the manifest"
        return self._schema[feature.name].misfit(feature)

    def _new_bit(self, name: str) -> int:
        return self._bits.setdefault(name, 1 << len(self._bits))


def _described(name: str, wanted: Expected | None) -> bytes:
    """What the kernel takes about one feature: see `examples` in kernel.c."""
    text, kind, count, size, values = name.encode(), -1, None, None, None
    if wanted:
        kind = TAGS[wanted.kind][0] if wanted.kind else -1
        count, size, values = wanted.count, wanted.size, wanted.values
    if values is not None and count != len(values):
        count, kind = len(values), kind if count is None else _NO_KIND
    numbers = [-1 if number is None else min(number, _LARGEST) for number in (count, size)]
    content = array("q", [-1 if value is None else value for value in values or ()]).tobytes()
    return _KNOWN.pack(kind, *numbers, len(text), values is not None) + text + content


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
            more = reader.resume(error)
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
    damaged = fault.kind == "length_crc" and (header[:8] == length or header[8:] == crc_field(length))
    if damaged or fault.kind == "too_large" or not fault.offset:
        return fault
    message = f"{lost:,} bytes after the last record do not form a record"
    return Fault("trailing_garbage", message, fault.record, fault.offset, lost, fault.before)


def _may_begin_record(header: bytes) -> bool:
    """Whether fewer than 12 bytes may be the beginning of a record below 4 GiB."""
    return any(header) and not any(header[4:8]) and crc_field(header[:8]).startswith(header[8:])
