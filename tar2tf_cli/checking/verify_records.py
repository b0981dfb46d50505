"""Check of a TFRecord to its end: framing, CRCs and messages, resuming after damage at the next record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from typing import TypeAlias

from tar2tf_cli.api.values import Sample
from tar2tf_cli.checking.faults import EXAMPLES, Amount, Expectations, Fault, FileReport, KeyLists
from tar2tf_cli.checking.values import CheckedUnit, Faults, NamedValue, decoded, value_checker
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.features.described import Census, Expected
from tar2tf_cli.formats.example import FRAMING, ParsedFeature, crc_field, is_sequence, parse, strict_parse
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.samples.keys import key_of

RecordCheck: TypeAlias = "Callable[[bytes], Faults]"
"""Returns the faults of a record whose CRCs match."""


class Checker(Census):
    """Checks messages against expectations, and counts the examples.

    If nothing says whether messages are examples, the first message with fields of an example or of another message
    decides: after one that is not an example, all messages are accepted, and `is_mixed` says whether examples followed.

    Args:
        expectations: the expectations.

    Attributes:
        sequences: number of messages that are a tf.train.SequenceExample, which is an example of its context, too.
        others: number of accepted messages that are not a tf.train.Example, or are a tf.train.SequenceExample instead
            of one.
    """

    def __init__(self, expectations: Expectations = EXAMPLES) -> None:
        super().__init__(expectations.schema or {})
        self._expectations = expectations
        messages = expectations.messages or ("example" if expectations.schema is not None else None)
        self._accepts_others = None if messages is None else messages == "any"
        self._is_guess = messages is None
        self.sequences = self.others = 0

    @property
    def is_mixed(self) -> bool:
        """Whether there are examples among other messages, which are accepted as the first message was none."""
        return bool(self._is_guess and self._accepts_others and any(self.counts().values()))

    def check(self, message: bytes) -> Faults:
        """Return the faults of a message; empty for an example that matches the schema.

        The kinds of faults are "not_an_example" and "schema".
        """
        try:
            if fault := getattr(message, "fault", None):
                raise ValueError(fault)
            features = strict_parse(message)
        except ValueError as error:
            if self._accepts_others is None:
                self._accepts_others = True
            self.others += self._accepts_others
            if self._accepts_others:
                return ()
            return [("not_an_example", f"the record is not a tf.train.Example: {error}")]
        is_other = is_sequence(message)
        self.sequences += is_other
        if is_other and self._accepts_others and not self._is_guess:
            self.others += 1
            return ()
        if features and self._accepts_others is None:
            self._accepts_others = False
        return self._check_example(features)

    def _check_example(self, features: Mapping[str, ParsedFeature]) -> Faults:
        schema, required = self._expectations.schema, self._expectations.required
        if schema is not None:  # an unset feature counts as absent
            features = {name: feature for name, feature in features.items() if feature.kind}
        faults = [("schema", misfit) for feature in features.values() if (misfit := _misfit(feature, schema))]
        if missing := sorted(required - features.keys()):
            faults.append(("schema", f"the example lacks {', '.join(map(repr, missing))}, which all others have"))
        if not faults:
            self.count(features)
        return faults


def _misfit(feature: ParsedFeature, schema: Mapping[str, Expected] | None) -> str | None:
    if schema is None:
        return None
    if feature.name not in schema:
        return f"the feature {feature.name!r} is not in the manifest"
    return schema[feature.name].misfit(feature)


def check_tfrecord(
    reader: RecordReader,
    check: RecordCheck,
    report: FileReport,
    *,
    decoders: int = 0,
    keep: Callable[[bytes], None] | None = None,
    numbers: Mapping[str, Set[int]] | None = None,
) -> None:
    """Read all records, and add faults and counts to the report.

    Args:
        reader: the reader, at the beginning of the file.
        check: called with each record whose CRCs match.
        report: the report of the file.
        decoders: number of threads that decode images and arrays; 0 if they are not to be decoded.
        keep: called with each good record, in order.
        numbers: the permitted class numbers, by feature, if values are decoded.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
    """
    tally, checker = _BadRecords(reader, report), value_checker(report, decoders)

    def records() -> Iterator[CheckedUnit]:
        for offset, data in reader:
            yield CheckedUnit({"record": data}, check(data), "", reader.count, offset, data)

    def checked_records() -> Iterator[CheckedUnit]:
        return decoded(records(), _values, checker, decoders, numbers)

    try:
        for checked in iter_resuming(checked_records, tally.resume, lambda error, more: None):
            if checked.faults:
                tally.reject(checked, reader.size_of(checked.data))
                continue
            if keep:
                keep(checked.data)
            if report.keys:
                report.keys.good.append(_key_of(checked.data) or _numbered(report.keys, checked.number))
    finally:
        tally.finish()


def _values(item: Sample) -> list[NamedValue]:
    """Return the bytes values of an example with the names of their features, except plain numbers."""
    with suppress(ValueError):  # not an example
        features = parse(item.get("record", b""), sequence=True)
        named = (feature for feature in features.values() if feature.kind == "bytes")
        return [(item.name, part) for item in named if f"{item.name}/shape" not in features for part in item.parts()]
    return []


def _key_of(record: bytes) -> str | None:
    """Return the key in a record, or None."""
    with suppress(ValueError):
        return key_of(parse(record))
    return None


def _numbered(keys: KeyLists, number: int) -> str:
    """Return the key that a conversion gives to a record without one."""
    from tar2tf_cli.inputs.record_samples import numbered  # slow to import, and only for lists of keys

    return numbered(keys.stem, number)


class _BadRecords:
    """Adds faults to a file's report, and counts bad records; a damaged gap counts as one record."""

    def __init__(self, reader: RecordReader, report: FileReport) -> None:
        self._reader = reader
        self._report = report
        self._bad = Amount()
        self._gaps = 0  # damaged gaps, each of which may be several records or none

    def reject(self, checked: CheckedUnit, length: int) -> None:
        """Add the faults of a record with correct framing, given the length of its data."""
        number, offset, key = checked.number, checked.offset, _key_of(checked.data)
        if self._report.keys and key is None:
            self._report.keys.bad[_numbered(self._report.keys, number)] = None
        before = Amount(number - self._bad.records, offset - self._bad.bytes)
        for kind, message in checked.faults:
            self._report.add(Fault(kind, message, number, offset, length + FRAMING, before, key=key))
        self._bad = Amount(self._bad.records + 1, self._bad.bytes + length + FRAMING)

    def resume(self, error: DamagedShardError) -> bool:
        """Add a framing fault, and go to the next record; return whether there may be one."""
        reader, before, number, start = self._reader, self._good(), self._reader.count, self._reader.offset
        second = None
        try:
            more = reader.resume(error)
        except DamagedShardError as next_one:
            more, second = False, next_one
        if reader.count == number:
            self._end(error)
            return False
        lost = reader.offset - start
        fault = Fault(error.kind, error.message, number, start, lost, before)
        fault = fault if more else _last(fault, reader.header)
        self._report.add(fault)
        self._bad = Amount(self._bad.records + 1, self._bad.bytes + lost)
        self._gaps += fault.kind != "data_crc"
        if second:
            self._end(second)
        return more

    def finish(self) -> None:
        """Fill in the counts of the report."""
        self._report.good, self._report.bad = self._good(), self._bad
        self._report.records = self._reader.count - self._gaps
        self._report.examined = not self._report.cut and not self._gaps

    def _good(self) -> Amount:
        return Amount(self._reader.count - self._bad.records, self._reader.offset - self._bad.bytes)

    def _end(self, error: DamagedShardError) -> None:
        """Add a fault of the stream, after which nothing can be read."""
        rest = "" if error.kind == "truncated" else "; the rest of the file cannot be read"
        self._report.add(Fault(error.kind, error.message + rest, self._reader.count, error.offset, None, self._good()))
        self._report.cut = True


def _last(fault: Fault, header: bytes) -> Fault:
    """Return a fault that no record follows: a damaged last record, or trailing bytes."""
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
    """Whether fewer than 12 bytes can be the beginning of a record below 4 GiB."""
    return any(header) and not any(header[4:8]) and crc_field(header[:8]).startswith(header[8:])
