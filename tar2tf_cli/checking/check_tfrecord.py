"""Checks a TFRecord: every length, CRC and example; after damage it continues at the next record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.tfrecord import FRAMING, RecordReader, stored_crc

if TYPE_CHECKING:
    from tar2tf_cli.checking.undecodable import Faults
    from tar2tf_cli.flow.threads import Placed

__all__ = ["CheckRecord", "check_tfrecord"]

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
    from tar2tf_cli.flow.threads import work_in_threads

    seen = Values()

    def records() -> Iterator[Placed]:
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
