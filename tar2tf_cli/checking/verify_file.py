"""Checks one file to its end, whatever it is; what is wrong becomes a fault, not an error."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.checking.checks import own_checks
from tar2tf_cli.checking.faults import Amount, Fault, FileReport, damage, unreadable
from tar2tf_cli.checking.files import FileContext, FileTask, Run
from tar2tf_cli.engines import cpu_count
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError
from tar2tf_cli.features.described import Census, Expected
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.example import (
    FRAMING,
    ParsedFeature,
    crc_field,
    delimited_name,
    frame,
    is_sequence,
    parse,
    strict_parse,
)
from tar2tf_cli.formats.files import RecordFile, whole_sample
from tar2tf_cli.formats.streams import ByteStream, foreign, iter_resuming, read_to_end
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_index import find_samples, index_lines
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples, put_together
from tar2tf_cli.spec.templates import TAR_SUFFIXES
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.checking.decode import Values
    from tar2tf_cli.flow.sample_flow import Located
    from tar2tf_cli.inputs.manifest import ShardEntry
    from tar2tf_cli.spec.conversion import Format


_LENGTH: Final = 8  # bytes of the length in front of a record


class ManifestExpectations(NamedTuple):
    """What a manifest says of all its shards; without a manifest, nothing.

    Attributes:
        schema: what is expected of each feature, by name, or the names that samples of a tar may have; None for any.
        required: the names of features that every example, or of entries that every sample must have.
        allows_others: whether records may be other messages than examples, as those that were copied unchanged.
        format: what the files are.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()
    allows_others: bool = False
    format: Format | None = None


NO_CLAIMS: Final = ManifestExpectations()


@dataclass(slots=True, eq=False, repr=False)
class CheckContext(FileContext):
    """The context that the checks of one run share.

    Attributes:
        claims: what a manifest says of the files.
        fast: whether only the framing and the CRCs of lengths are checked.
        decoders: number of threads per file that decode images and arrays; 0 if they are not to be decoded.
    """

    claims: ManifestExpectations = NO_CLAIMS
    fast: bool = False
    decoders: int = 0


class SalvagePart(RecordFile):
    """The good records of one file, in a hidden file beside the final one."""

    def keep(self, data: bytes) -> None:
        """Append a record."""
        self.write(frame([data], len(data)), len(data) + FRAMING)

    def keep_framed(self, records: bytes) -> None:
        """Append records as they are in the file."""
        self.write([records], len(records))


Part: TypeAlias = "Callable[[], AbstractContextManager[SalvagePart | None]]"
"""Opens the file for the good records of one file, or nothing if they are not kept."""


class CheckRun(Run):
    """One run of checks.

    Attributes:
        fast: whether only framing and lengths are checked.
        decode: whether images and arrays are decoded.
        allow_func: whether functions that a manifest names may be run.
        next_part: says where the good records of the next file go.
    """

    fast = decode = allow_func = False
    next_part: Callable[[], Part] = staticmethod(lambda: nullcontext)

    def check(
        self,
        source: Source,
        files: Iterable[tuple[ObjectInfo, ShardEntry | None]],
        claims: ManifestExpectations = NO_CLAIMS,
        rules: TarRules | None = None,
    ) -> list[FileReport]:
        """Check files, each with its entry in a manifest if it has one, and return their reports in order."""
        context = CheckContext(source, rules or self.rules, claims=claims, fast=self.fast)
        tasks = [FileTask(item, partial(_check_file, claim, self.next_part())) for item, claim in files]
        if self.decode:
            context.decoders = -(-(self.workers or cpu_count()) // max(len(tasks), 1))
        reports: list[FileReport] = self.read(tasks, context)
        for report in reports:
            if report.status == "ok":
                self.events.shard(report.path, report.records, report.bytes)
        return reports


def _check_file(claim: ShardEntry | None, part: Part, item: ObjectInfo, context: CheckContext) -> FileReport:
    """Check a file and return its report.

    Args:
        claim: the file's entry in a manifest, if there is one; the file must then be what that says.
        part: where its good records go.
        item: the file.
        context: what it has in common with the other files.
    """
    return put_together(_FileCheck(claim, part, item, context).report)


@dataclass(frozen=True, slots=True)
class _FileCheck:
    """The check of one file; the attributes are the arguments of `_check_file`."""

    claim: ShardEntry | None
    part: Part
    item: ObjectInfo
    context: CheckContext

    def report(self, regroup: bool) -> FileReport:
        """Check the file; with `regroup`, samples of a tar are put together from the start.

        Raises:
            NotAdjacentError: when the check must begin again with `regroup`.
        """
        context, index = self.context, self._index()
        passing = _Passing(index is not None)
        report = FileReport(context.source.locate(self.item.name), context.claims.format)
        try:
            wrap = passing if (self.claim or index is not None) and not context.fast else lambda raw: raw
            with OpenShard(context.source, self.item, context.on_bytes, wrap) as shard:
                report.bytes = shard.size
                self._check(shard, report, passing.starts if index is not None else None, regroup=regroup)
                report.bytes = shard.size
                if index is not None and shard.plain and not report.faults:
                    self._check_index(index, passing.starts, report)
                if (unusual := shard.content.unusual) and report.format == "tfrecord":
                    report.add(Fault("trailing_garbage", f"{unusual}; decompress the file and compress it again"))
        except SourceError as error:
            report.add(unreadable(error))
            report.examined, report.cut, report.missing = False, True, error.kind == "missing"
        if self.claim:
            _compare(self.claim, passing, report)
        report.close()
        return report

    def _index(self) -> bytes | None:
        """The file NAME.idx beside the shard, if there is one that can be read; that of a tar only if it is local."""
        source, name = self.context.source, self.item.name
        if source.capabilities().seekable or not name.lower().endswith(TAR_SUFFIXES):
            with suppress(SourceError):
                for item in source.find([f"{name}.idx"]).values():
                    return read_to_end(source.open(item))
        return None

    def _check_index(self, index: bytes, starts: array[int], report: FileReport) -> None:
        """Compare an index, lines of `OFFSET SIZE`, with where records began; the headers of a tar are read again."""
        if report.format == "tfrecord":
            ranges = pairwise(chain(starts, (report.bytes,)))
            _compare_index(index, (b"%d %d" % (start, end - start) for start, end in ranges), report)
        elif report.format == "tar" and self.context.source.capabilities().seekable:
            try:
                with open(report.path, "rb", buffering=0) as tar:
                    samples = find_samples(tar, report.path, self.context.rules.key_split)
                    _compare_index(index, index_lines(samples), report)
            except (UsageError, SampleError) as error:
                report.add(_wrong_index(error.message))

    def _check(self, shard: OpenShard, report: FileReport, starts: array[int] | None, *, regroup: bool) -> None:
        context = self.context
        report.format = report.format or shard.format
        if shard.damage and report.format is None:
            report.add(damage(shard.damage))
            report.cut = True
        elif report.format == "tar":
            rules = context.rules._replace(regroup=regroup or context.rules.regroup)
            check_tar(shard, rules, report, context.claims, decoders=context.decoders)
        elif report.format == "tfrecord":
            if context.fast:
                self._check_lengths(shard, report, starts)
            else:
                self._check_records(shard, report)
            if shard.by_name and not (report.records or self.claim):
                report.format = None
                report.faults.clear()
                report.counts.clear()
                report.add(_unknown(shard.head))
        else:
            report.add(_unknown(shard.head))

    def _check_lengths(self, shard: OpenShard, report: FileReport, starts: array[int] | None) -> None:
        seeks = shard.seekable is not None
        reader = RecordReader(shard.content, shard.name, want="lengths", seeks=seeks, size=self.item.size)

        def begins(data: bytes) -> Faults:
            if starts is not None:
                starts.append(reader.offset)
            return ()

        check_tfrecord(reader, begins, report)

    def _check_records(self, shard: OpenShard, report: FileReport) -> None:
        decoders = self.context.decoders
        checker = Checker(self.context.claims)
        own = own_checks("check_record")

        def check(data: bytes) -> Faults:
            return [*checker.check(data), *(fault for check in own for fault in check(data))]

        try:
            with self.part() as part:
                every = decoders or own  # Python sees every record then, and not only those that the kernel leaves
                reader = RecordReader(
                    shard.content,
                    shard.name,
                    want="records" if every or part else "heads",
                    accept=None if every else checker,
                    keep=part.keep_framed if part else None,
                )
                keep = part.keep if part else None
                check_tfrecord(reader, check if own else checker.check, report, decoders=decoders, keep=keep)
        finally:
            report.features, report.sequences, report.others = checker.counts(), checker.sequences, checker.others


def _unknown(head: bytes) -> Fault:
    if not head:
        return Fault("empty", "the file is empty")
    if len(head) < 12:
        return Fault("truncated", f"the file is too short for a tar or a TFRecord: {len(head)} B", offset=0)
    if kind := foreign(head):
        return Fault("unknown_format", f"the file is {kind[0]}, neither a tar nor a TFRecord; {kind[1]}", offset=0)
    return Fault("unknown_format", "the file is neither a tar nor a TFRecord, or its first bytes are damaged", offset=0)


# --- What a manifest claims, and an index ---


class _Passing:
    """Wraps the stream of an input, and notes of everything that is read from it what must be compared.

    Args:
        looks: whether to look where records begin.

    Attributes:
        crc: the CRC-32C of what was read.
        read_to_end: whether that is everything.
        starts: the offset of each record of a TFRecord.
    """

    def __init__(self, looks: bool) -> None:
        self.crc = 0
        self.read_to_end = False
        self.starts = array("Q")
        self._looks = looks
        self._next = self._seen = 0  # offset of the next record, and of the bytes that come next
        self._rest = b""  # of the bytes before, the beginning of a length

    def __call__(self, raw: ByteStream) -> ByteStream:
        self._raw = raw
        return self

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self.crc = crc32c(data, self.crc)
        self.read_to_end = not data
        if self._looks:
            self._look(data)
        return data

    def close(self) -> None:
        self._raw.close()

    def _look(self, data: bytes) -> None:
        """Go through the next bytes, from length to length."""
        buffer, start = self._rest + data, self._seen - len(self._rest)
        self._seen += len(data)
        while self._next + _LENGTH <= self._seen:
            at = self._next - start
            self.starts.append(self._next)
            self._next += int.from_bytes(buffer[at : at + _LENGTH], "little") + FRAMING
        self._rest = buffer[self._next - start :]


def _compare_index(index: bytes, right: Iterable[bytes], report: FileReport) -> None:
    """Report the first line of an index that is wrong."""
    for number, (line, wanted) in enumerate(zip_longest(index.splitlines(), right), 1):
        if line is None or wanted is None or line.split() != wanted.split():
            says = f"line {number:,} says {line[:60].decode(errors='replace')!r}" if line else "a line is missing"
            should = f"it should be {wanted.rstrip()[:60].decode()!r}" if wanted else "there are no more records"
            report.add(_wrong_index(f"{says}, but {should}"))
            return


def _wrong_index(message: str) -> Fault:
    return Fault("index", f"its index is wrong: {message}")


def _compare(claim: ShardEntry, passing: _Passing, report: FileReport) -> None:
    """Compare size, number of records and digest; if not every record was found, only size and digest."""
    from tar2tf_cli.inputs.manifest import digest

    if report.counts.keys() & {"unreadable", "missing"}:
        return
    if report.bytes != claim.bytes:
        report.add(Fault("size", f"the file has {report.bytes:,} bytes, but {claim.bytes:,} in the manifest"))
    if report.examined and report.records != claim.records:
        report.add(Fault("count", f"the file has {report.records:,} records, but {claim.records:,} in the manifest"))
    if passing.read_to_end and report.bytes == claim.bytes and digest(passing.crc) != claim.digest:
        report.add(Fault("digest", f"the file's digest is {digest(passing.crc)}, but {claim.digest} in the manifest"))


# --- A tar ---


def check_tar(
    shard: OpenShard, rules: TarRules, report: FileReport, claims: ManifestExpectations, *, decoders: int = 0
) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Args:
        shard: the tar.
        rules: how it is read.
        report: the report of the file.
        claims: which entries samples may and must have.
        decoders: number of threads that decode images and arrays; 0 if they are not to be decoded.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
        NotAdjacentError: when the check must begin again with `regroup`.
    """

    def note(error: SampleError) -> None:
        kind, place = ("duplicate_key", error.member) if error.member else ("half_sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{place}: {error.message}", None, error.offset))

    def damaged(error: DamagedShardError, more: bool) -> None:
        report.add(damage(error, last=not more))
        report.cut = report.cut or not more

    own = own_checks("check_sample")
    names = _EntryNames(report, claims)
    rules = rules._replace(sizes_only=not (decoders or own), every_byte=True)
    with closing(TarSamples(shard, rules, note)) as tar:

        def samples() -> Iterator[_Checked]:
            for stored in iter_resuming(tar.samples, tar.resume, damaged):
                report.records += 1
                names.check(stored, tar.grouper.offset)
                if decoders or own:
                    sample, faults = _whole(stored)
                    faults = faults or [fault for check in own for fault in check(sample)]
                    yield sample, faults, (stored[KEY], tar.grouper.offset)

        for faults, (key, offset) in _decoded(samples(), _entries, _seen(report, decoders), decoders):
            for kind, message in faults:
                report.add(Fault(kind, f"sample {key}: {message}", None, offset))
        report.features.update(names.counts())
        report.examined = not report.faults
        report.not_adjacent = tar.not_adjacent
        try:
            tar.check_end()
        except DamagedShardError as error:
            report.add(damage(error, last=False))
        if tar.archives > 1:
            report.notes.append(f"holds {tar.archives} archives end to end; all were read")
        if tar.grouper.lacking:
            report.notes.append(tar.grouper.lacking)
    report.good = Amount(report.records, report.bytes)


def _whole(stored: Sample) -> tuple[Sample, Faults]:
    """A sample with its values in memory, or what is wrong with it."""
    try:
        return whole_sample(stored), []
    except SampleError as error:
        return {}, [("undecodable", f"{error.member} {error.message}")]


def _entries(sample: Sample) -> list[Value]:
    return [(name, data) for name, data in sample.items() if name != KEY]


class _EntryNames:
    """Checks the names of the entries of samples, and counts them.

    Args:
        report: receives the faults.
        claims: which names samples may and must have.
    """

    def __init__(self, report: FileReport, claims: ManifestExpectations) -> None:
        self._report = report
        self._claims = claims
        self._samples: Counter[tuple[str, ...]] = Counter()
        self._wrong: dict[tuple[str, ...], Faults] = {}

    def check(self, sample: Sample, offset: int) -> None:
        """Report what is wrong with the names of a sample's entries."""
        names = tuple(sample)
        if names not in self._samples:
            self._wrong[names] = [*self._misfits(names)]
        self._samples[names] += 1
        for kind, what in self._wrong[names]:
            self._report.add(Fault(kind, f"sample {sample[KEY]}{what}", None, offset))

    def counts(self) -> Counter[str]:
        """How many samples have each entry."""
        counts: Counter[str] = Counter()
        for names, samples in self._samples.items():
            counts.update(dict.fromkeys(names, samples))
        return counts

    def _misfits(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        schema, required, *_ = self._claims
        for name in names:
            if schema is not None and name not in schema:
                yield "schema", f" has an entry {name!r}, which is not in the manifest"
        if missing := sorted(required.difference(names)):
            yield "schema", f" lacks {', '.join(map(repr, missing))}, which all others have"
        for name in names:
            try:
                delimited_name(name)  # which no feature can have, either
            except SampleError as error:
                yield "name", f": {error.message}"


# --- Values, with `--decode` ---


Faults: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one record or sample, each as its kind and a message."""

Value: TypeAlias = tuple[str, bytes]

_Checked: TypeAlias = tuple[Mapping[str, Any], Faults, Any]
"""What was checked, its faults, and where it is."""


def _seen(report: FileReport, threads: int) -> Values | None:
    """What remembers the values of a shard, if threads are to decode them."""
    if not threads:
        return None
    from tar2tf_cli.checking.decode import Values  # only here, as it needs all that reads images

    return Values(report.not_decoded)


def _decoded(
    items: Iterator[_Checked], values: Callable[[Any], Iterable[Value]], seen: Values | None, threads: int
) -> Iterator[tuple[Faults, Any]]:
    """The faults of each item, and where it is; the values of those without a fault are decoded if they are `seen`."""
    if seen is None:
        yield from ((faults, place) for _, faults, place in items)
        return
    from tar2tf_cli.flow.sample_flow import work_in_threads

    def located() -> Iterator[Located]:
        for item, faults, place in items:
            faults = faults or seen.odd(values(item))
            yield {} if faults else item, "", {"faults": faults, "place": place}

    for faults, _, where in work_in_threads(located(), lambda item: [seen.undecodable(values(item))], threads):
        yield where["faults"] or faults, where["place"]


def _record_values(item: Mapping[str, bytes]) -> list[Value]:
    """The bytes values of a tf.train.Example with the names of their features; not those that are plain numbers."""
    features = parse(item.get("record", b""), sequence=True)
    single = (feature for feature in features.values() if feature.kind == "bytes")
    return [(item.name, part) for item in single if f"{item.name}/shape" not in features for part in item.parts()]


# --- A TFRecord ---


class Checker(Census):
    """Checks whether messages are examples and as a manifest says; counts those that are.

    Args:
        claims: what the manifest says.

    Attributes:
        sequences: how many of the messages are a tf.train.SequenceExample, which is an example of its context, too.
        others: how many are no tf.train.Example, or a tf.train.SequenceExample, where these are allowed.
    """

    def __init__(self, claims: ManifestExpectations = NO_CLAIMS) -> None:
        super().__init__(claims.schema or {})
        self._claims = claims
        self.sequences = self.others = 0

    def check(self, message: bytes) -> Faults:
        """What is wrong with a message; empty if it is an example that matches the schema.

        The kinds of faults are "not_an_example" and "schema".
        """
        schema, required, allows_others, _ = self._claims
        try:
            if fault := getattr(message, "fault", None):
                raise ValueError(fault)
            features = strict_parse(message)
        except ValueError as error:
            self.others += allows_others
            return () if allows_others else [("not_an_example", f"the record is not a tf.train.Example: {error}")]
        is_other = is_sequence(message)
        self.sequences += is_other
        if is_other and allows_others:
            self.others += 1
            return ()
        if schema is not None:  # unset is as good as absent
            features = {name: feature for name, feature in features.items() if feature.kind}
        faults = [("schema", misfit) for feature in features.values() if (misfit := _misfit(feature, schema))]
        missing = sorted(required - features.keys())
        if missing:
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
    check: Callable[[bytes], Faults],
    report: FileReport,
    *,
    decoders: int = 0,
    keep: Callable[[bytes], None] | None = None,
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
    tally, seen = _Tally(reader, report), _seen(report, decoders)

    def records() -> Iterator[_Checked]:
        for offset, data in reader:
            yield {"record": data}, check(data), (reader.count, offset, data)

    def decoded() -> Iterator[tuple[Faults, Any]]:
        return _decoded(records(), _record_values, seen, decoders)

    try:
        for faults, (number, offset, data) in iter_resuming(decoded, tally.resume, lambda error, more: None):
            if faults:
                tally.reject(faults, number, offset, reader.size_of(data))
            elif keep:
                keep(data)
    finally:
        tally.finish()


class _Tally:
    """Adds faults to the report of a file, and counts its bad records; a gap in which none was found counts as one."""

    def __init__(self, reader: RecordReader, report: FileReport) -> None:
        self._reader = reader
        self._report = report
        self._bad = Amount()
        self._gaps = 0  # those of the bad records that may be several records, or none

    def reject(self, faults: Faults, number: int, offset: int, length: int) -> None:
        """Add the faults of a record that is framed well."""
        before = Amount(number - self._bad.records, offset - self._bad.bytes)
        for kind, message in faults:
            self._report.add(Fault(kind, message, number, offset, length + FRAMING, before))
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
        self._report.add(fault)
        self._bad = Amount(self._bad.records + 1, self._bad.bytes + lost)
        self._gaps += fault.kind != "data_crc"
        if second:
            self._end(second)
        return more

    def finish(self) -> None:
        """Fill in the numbers of the report."""
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
