"""Checks a TFRecord: every length, CRC and example; after damage it continues at the next record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.checking.contents import is_text
from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError, ImageError, SampleError, UsageError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.census import Census, Expected
from tar2tf_cli.formats.compression import sniff
from tar2tf_cli.formats.decoding import can_decode, decode
from tar2tf_cli.formats.example import ParsedFeature, is_sequence, parse, strict_parse
from tar2tf_cli.formats.files import DEFAULT_MAX_PIXELS
from tar2tf_cli.formats.image.headers import tiff_pages
from tar2tf_cli.formats.image.lazy import cv2, np
from tar2tf_cli.formats.image.pixels import opencv
from tar2tf_cli.formats.npy import PickledError
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING, crc_field

if TYPE_CHECKING:
    from tar2tf_cli.flow.sample_flow import Located


_SOUND = ("audio", "sound")
_NAMED: Final = {
    **dict.fromkeys(("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff"), ("image", "an image")),
    **dict.fromkeys(("wav", "flac", "ogg"), _SOUND),
    "npy": ("npy", "an npy array"),
    "npz": ("npz", "an npz file"),
}
"""What kind of value a name promises, and what it is called."""

_PROMISES: Final = dict(_NAMED.values())
_HEAD: Final = 1024

Faults: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one record or sample, each as its kind and a message."""

_Value: TypeAlias = tuple[str, bytes]


class Values:
    """Remembers what the values of each name are, to find one that differs, such as an image without its beginning.

    Attributes:
        unknown: how many values of each kind cannot be decoded here, so that nothing is known of them.
    """

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self._kinds: dict[str, str] = {}
        self._lock = Lock()

    def odd(self, values: Iterable[_Value]) -> list[tuple[str, str]]:
        """The faults of values that are not images, sounds or arrays, although their name or those before say so."""
        faults = []
        for name, data in values:
            kind = _kind(data).partition("/")[0]
            wanted = self._kinds.get(name) or _NAMED.get(name.rpartition(".")[2], ("", ""))[0]
            if kind in _PROMISES:
                self._kinds[name] = kind
            elif wanted:
                what = _PROMISES[wanted]
                state = "empty" if not data else f"not {what}"
                faults.append(("undecodable", f"{name!r} is {state}, where {what} is expected"))
        return faults

    def undecodable(self, values: Iterable[_Value]) -> list[tuple[str, str]]:
        """The faults of images, sounds and arrays that are damaged; may be called in several threads."""
        faults = []
        for name, data in values:
            kind = _kind(data)
            try:
                _try(kind, data)
            except _UnknownError as error:
                with self._lock:
                    self.unknown[f"{kind or 'unknown bytes'} {error}".rstrip()] += 1
            except (SampleError, ValueError) as error:
                faults.append(("undecodable", f"{name!r} cannot be decoded: {error}"))
        return faults


def record_values(message: bytes) -> list[_Value]:
    """The bytes values of a tf.train.Example with the names of their features; not those that are plain numbers."""
    features = parse(message, sequence=True)
    single = (feature for feature in features.values() if feature.kind == "bytes")
    return [(item.name, part) for item in single if f"{item.name}/shape" not in features for part in item.parts()]


def _kind(data: bytes) -> str:
    kind = sniff(data[:_HEAD]) or ""
    if kind == "image/bmp" and (len(data) < 26 or any(data[6:10])):
        return ""  # a text may begin with BM, too
    return kind


class _UnknownError(Exception):
    """Nobody here can tell whether a value is whole; says why, or nothing."""


def _try(kind: str, data: bytes) -> None:
    """Decode a value.

    Raises:
        _UnknownError: when it cannot be decoded here, and is no text.
        SampleError, ValueError: when it is damaged.
    """
    if kind == "image/tiff":
        _decode_tiff(data)
    elif kind == "image/png":
        image.check_png(data)
    elif can_decode(kind):
        try:
            decode(data)
        except PickledError:
            raise _UnknownError("of Python objects") from None
        except UsageError as error:
            raise _UnknownError(f"({error.message})") from None
    elif kind or not is_text(data):
        raise _UnknownError


def _decode_tiff(data: bytes) -> None:
    """Decode all pages of a TIFF with OpenCV."""
    shape = image.header(data)
    if shape.height * shape.width > DEFAULT_MAX_PIXELS:
        raise ImageError(f"{shape.height}x{shape.width} pixels are more than the limit of {DEFAULT_MAX_PIXELS}")
    pages = list(tiff_pages(data))
    try:
        with opencv("decode a TIFF"):
            whole, images = cv2.imdecodemulti(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except ImageError:
        whole, images = False, ()
    if not (whole and images):
        if all(page.common for page in pages):
            raise ValueError("it is damaged")
        raise _UnknownError("of an uncommon kind")


Findings: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one example, each as its kind and a message."""


class Checker:
    """Checks whether messages are examples and match a schema.

    Args:
        schema: what is expected of each feature, by name; None for no schema.
        required: the names of features that every example must have.
        allows_others: whether messages may be of other kinds, as those that were copied from a TFRecord unchanged.

    Attributes:
        sequences: how many of the messages are a tf.train.SequenceExample, which is an example of its context, too.
        others: how many are no tf.train.Example, or a tf.train.SequenceExample, where these are allowed.
    """

    def __init__(
        self,
        schema: Mapping[str, Expected] | None = None,
        required: frozenset[str] = frozenset(),
        *,
        allows_others: bool = False,
    ) -> None:
        self._schema = schema
        self._required = required
        self._allows_others = allows_others
        self._good = Census(schema or {})
        self.sequences = self.others = 0

    def check(self, message: bytes) -> Findings:
        """What is wrong with a message; empty if it is an example that matches the schema.

        The kinds of faults are "not_an_example" and "schema".
        """
        try:
            if fault := getattr(message, "fault", None):
                raise ValueError(fault)
            features = strict_parse(message)
        except ValueError as error:
            self.others += self._allows_others
            return () if self._allows_others else [("not_an_example", f"the record is not a tf.train.Example: {error}")]
        is_other = is_sequence(message)
        self.sequences += is_other
        if is_other and self._allows_others:
            self.others += 1
            return ()
        if self._schema is not None:  # unset is as good as absent
            features = {name: feature for name, feature in features.items() if feature.kind}
        findings = [("schema", misfit) for misfit in map(self._misfit, features.values()) if misfit]
        missing = sorted(self._required - features.keys())
        if missing:
            findings.append(("schema", f"the example lacks {', '.join(map(repr, missing))}, which all others have"))
        if not findings:
            self._good.count(features)
        return findings

    def known(self) -> tuple[bytes, bytes]:
        """The names and kinds of examples that the kernel may check, as many as it takes."""
        return self._good.known()

    def add(self, counts: bytes) -> int:
        """Count records of known kinds; return how many there are."""
        return self._good.add(counts)

    def counts(self) -> Counter[str]:
        """How many examples have each feature; faulty examples are not counted."""
        return self._good.counts()

    def _misfit(self, feature: ParsedFeature) -> str | None:
        if self._schema is None:
            return None
        if feature.name not in self._schema:
            return f"the feature {feature.name!r} is not in the manifest"
        return self._schema[feature.name].misfit(feature)


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
        except DamagedShardError as next_one:
            more, second = False, next_one
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
