"""Checks one file to its end, whatever it is; what is wrong becomes a fault, not an error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tar2tf_cli.checking.check_tfrecord import Checker, Findings, check_tfrecord
from tar2tf_cli.checking.checks import OwnCheck, own_checks
from tar2tf_cli.checking.faults import Amount, Fault, FileReport, Salvaged, damage, unreadable
from tar2tf_cli.checking.files import FileContext, FileTask, read_files
from tar2tf_cli.engines import cpu_count
from tar2tf_cli.errors import (
    DamagedShardError,
    OutputExistsError,
    SampleError,
    SourceError,
    UsageError,
    read_failed,
    write_errors,
)
from tar2tf_cli.events import Events
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.compression import foreign
from tar2tf_cli.formats.cursor import ByteStream, past_damage, read_to_end
from tar2tf_cli.formats.example import delimited_name
from tar2tf_cli.formats.files import RecordFile, WholeFile, whole_sample
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_index import find_samples, index_lines
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples, put_together
from tar2tf_cli.samples.grouping import KEY, KeySplit, Sample
from tar2tf_cli.spec.templates import TAR_SUFFIXES
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.conversion.manifest import ShardEntry
    from tar2tf_cli.flow.sample_flow import Located
    from tar2tf_cli.formats.census import Expected
    from tar2tf_cli.spec.conversion import Format


_LENGTH: Final = 8  # bytes of the length in front of a record


@dataclass(slots=True, eq=False, repr=False)
class CheckContext(FileContext):
    """The context that the checks of one run share.

    Attributes:
        schema: what is expected of each feature; None without a manifest.
        required: the names of features that every example must have.
        allows_others: whether records may be other messages than examples, as those that were copied unchanged.
        claimed: what a manifest says the files are; None without one.
        fast: whether only the framing and the CRCs of lengths are checked.
        decoders: number of threads per file that decode images and arrays; 0 if they are not to be decoded.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()
    allows_others: bool = False
    claimed: Format | None = None
    fast: bool = False
    decoders: int = 0


Part: TypeAlias = "Callable[[], AbstractContextManager[SalvagePart | None]]"
"""Opens the file for the good records of one file, or nothing if they are not kept."""


def _check_file(claim: ShardEntry | None, part: Part, item: ObjectInfo, context: CheckContext) -> FileReport:
    """Check a file and return its report."""
    return put_together(_FileCheck(claim, part, item, context).report)


@dataclass(frozen=True, slots=True)
class _FileCheck:
    """The check of one file.

    Attributes:
        claim: the file's entry in a manifest, if there is one; the file must then be what that says.
        part: where its good records go.
        item: the file.
        context: what it has in common with the other files.
    """

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
        stored = _Stored(index.look if index else None)
        report = FileReport(context.source.locate(self.item.name), context.claimed)
        try:
            wrap = stored if (self.claim or index) and not context.fast else lambda raw: raw
            with OpenShard(context.source, self.item, context.on_bytes, wrap) as shard:
                report.bytes = shard.size
                self._check(shard, report, index, regroup=regroup)
                report.bytes = shard.size
                if index and shard.plain and report.format == "tfrecord" and not report.faults:
                    index.check(shard.size, report)
                elif report.format == "tar" and shard.seekable and not report.faults and (beside := self._beside()):
                    beside.check_tar(context.rules.key_split, report)
                if shard.unusual and report.format == "tfrecord":
                    report.add(Fault("trailing_garbage", f"{shard.unusual}; decompress the file and compress it again"))
        except SourceError as error:
            report.add(unreadable(error))
            report.examined, report.cut, report.missing = False, True, error.kind == "missing"
        if self.claim:
            _compare(self.claim, stored, report)
        report.close()
        return report

    def _index(self) -> _Index | None:
        """The index of a TFRecord, if there is one."""
        return None if self.item.name.lower().endswith(TAR_SUFFIXES) else self._beside()

    def _beside(self) -> _Index | None:
        """The file NAME.idx beside the shard, if there is one that can be read."""
        source, name = self.context.source, f"{self.item.name}.idx"
        with suppress(SourceError):
            for item in source.find([name]).values():
                return _Index(read_to_end(source.open(item)))
        return None

    def _check(self, shard: OpenShard, report: FileReport, index: _Index | None, *, regroup: bool) -> None:
        report.format = report.format or shard.format
        if shard.damage and report.format is None:
            report.add(damage(shard.damage))
            report.cut = True
        elif report.format == "tar":
            rules = self.context.rules._replace(regroup=regroup or self.context.rules.regroup)
            names = EntryNames(report, self.context.schema, self.context.required)
            check_tar(shard, rules, report, names, decoders=self.context.decoders)
        elif report.format == "tfrecord":
            self._check_records(shard, report, index)
            if shard.by_name and not (report.records or self.claim):
                report.format = None
                report.faults.clear()
                report.counts.clear()
                report.add(_unknown(shard.head))
        else:
            report.add(_unknown(shard.head))

    def _check_records(self, shard: OpenShard, report: FileReport, index: _Index | None) -> None:
        if self.context.fast:
            stream, seeks = shard.seekable or shard, shard.seekable is not None
            reader = RecordReader(stream, shard.name, want="lengths", seeks=seeks, size=self.item.size)

            def begins(data: bytes) -> Findings:
                if index:
                    index.begins(reader.offset)
                return ()

            check_tfrecord(reader, begins, report)
            return
        context, decoders = self.context, self.context.decoders
        checker = Checker(context.schema, context.required, allows_others=context.allows_others)
        own = own_checks("check_record")

        def check(data: bytes) -> Findings:
            return [*checker.check(data), *(fault for check in own for fault in check(data))]

        try:
            with self.part() as part:
                every = decoders or own  # Python sees every record then, and not only those that the kernel leaves
                reader = RecordReader(
                    shard,
                    shard.name,
                    want="records" if every or part else "heads",
                    accept=None if every else checker,
                    keep=part.keep_framed if part else None,
                )
                check_tfrecord(
                    reader,
                    check if own else checker.check,
                    report,
                    decoders=decoders,
                    keep=part.keep if part else None,
                )
        finally:
            report.features, report.sequences, report.others = checker.counts(), checker.sequences, checker.others


class CheckRun(NamedTuple):
    """One run of checks.

    Attributes:
        rules: how tars are read.
        workers: how many files are checked at once; None for the number of CPUs.
        events: notified of progress.
        fast: whether only framing and lengths are checked.
        decode: whether images and arrays are decoded.
        salvage: where the good records go.
        allow_func: whether functions that a manifest names may be run.
    """

    rules: TarRules
    workers: int | None
    events: Events
    fast: bool = False
    decode: bool = False
    salvage: Salvage | None = None
    allow_func: bool = False

    def check(
        self,
        source: Source,
        files: Iterable[tuple[ObjectInfo, ShardEntry | None]],
        *,
        schema: Mapping[str, Expected] | None = None,
        required: frozenset[str] = frozenset(),
        allows_others: bool = False,
        claimed: Format | None = None,
    ) -> list[FileReport]:
        """Check files, each with its entry in a manifest if it has one, and return their reports in order."""
        context = CheckContext(
            source,
            self.rules,
            schema=schema,
            required=required,
            allows_others=allows_others,
            claimed=claimed,
            fast=self.fast,
        )
        part: Callable[[], Part] = self.salvage.next_part if self.salvage else lambda: nullcontext
        tasks = [FileTask(item, partial(_check_file, claim, part())) for item, claim in files]
        if self.decode:
            context.decoders = -(-(self.workers or cpu_count()) // max(len(tasks), 1))
        reports: list[FileReport] = read_files(tasks, context, self.workers, self.events)
        for report in reports:
            if report.status == "ok":
                self.events.shard(report.path, report.records, report.bytes)
        return reports


def _unknown(head: bytes) -> Fault:
    if not head:
        return Fault("empty", "the file is empty")
    if len(head) < 12:
        return Fault("truncated", f"the file is too short for a tar or a TFRecord: {len(head)} B", offset=0)
    if kind := foreign(head):
        return Fault("unknown_format", f"the file is {kind[0]}, neither a tar nor a TFRecord; {kind[1]}", offset=0)
    return Fault("unknown_format", "the file is neither a tar nor a TFRecord, or its first bytes are damaged", offset=0)


# --- What a manifest claims ---


class _Stored:
    """Wraps the stream of an input, and computes the CRC-32C of everything that is read from it.

    Args:
        look: gets it, too; None for nothing more.
    """

    def __init__(self, look: Callable[[bytes], None] | None) -> None:
        self.crc = 0
        self.read_to_end = False
        self._look = look

    def __call__(self, raw: ByteStream) -> ByteStream:
        self._raw = raw
        return self

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self.crc = crc32c(data, self.crc)
        self.read_to_end = not data
        if self._look:
            self._look(data)
        return data

    def close(self) -> None:
        self._raw.close()


class _Index:
    """Compares the lines of an index, `OFFSET SIZE`, with where the records of a TFRecord are; or that of a tar.

    Args:
        lines: the index.
    """

    def __init__(self, lines: bytes) -> None:
        self._lines = enumerate(lines.splitlines(), 1)
        self._begin: int | None = None  # of the last record
        self._next = self._seen = 0  # offset of the next record, and of the bytes that come next
        self._rest = b""  # of the bytes before, the beginning of a length
        self._message = ""

    def look(self, data: bytes) -> None:
        """Go through the next bytes of the shard, from length to length."""
        buffer, start = self._rest + data, self._seen - len(self._rest)
        self._seen += len(data)
        while self._next + _LENGTH <= self._seen:
            at = self._next - start
            self.begins(self._next)
            self._next += int.from_bytes(buffer[at : at + _LENGTH], "little") + FRAMING
        self._rest = buffer[self._next - start :]

    def begins(self, offset: int) -> None:
        """Compare the record that ends where another begins."""
        if self._begin is not None and not self._message:
            self._compare(b"%d %d" % (self._begin, offset - self._begin))
        self._begin = offset

    def check(self, size: int, report: FileReport) -> None:
        """Compare the last record, and report the first difference."""
        self.begins(size)
        self._report(report)

    def check_tar(self, key_split: KeySplit, report: FileReport) -> None:
        """Compare the index of a tar on the disk with its headers, which are read again for that."""
        try:
            with open(report.path, "rb", buffering=0) as tar:
                for line in index_lines(find_samples(tar, report.path, key_split)):
                    if not self._message:
                        self._compare(line.rstrip())
        except (UsageError, SampleError) as error:
            self._message = error.message
        self._report(report)

    def _report(self, report: FileReport) -> None:
        if not self._message:
            self._compare(None)
        if self._message:
            report.add(Fault("index", f"its index is wrong: {self._message}"))

    def _compare(self, right: bytes | None) -> None:
        number, line = next(self._lines, (0, None))
        if line is None and right is None:
            return
        if line is None or right is None or line.split() != right.split():
            says = f"line {number:,} says {line[:60].decode(errors='replace')!r}" if line else "a line is missing"
            should = f"it should be {right[:60].decode(errors='replace')!r}" if right else "there are no more records"
            self._message = f"{says}, but {should}"


def _compare(claim: ShardEntry, stored: _Stored, report: FileReport) -> None:
    """Compare size, number of records and digest; if not every record was found, only size and digest."""
    from tar2tf_cli.conversion.manifest import digest

    if report.counts.keys() & {"unreadable", "missing"}:
        return
    if report.bytes != claim.bytes:
        report.add(Fault("size", f"the file has {report.bytes:,} bytes, but {claim.bytes:,} in the manifest"))
    if report.examined and report.records != claim.records:
        report.add(Fault("count", f"the file has {report.records:,} records, but {claim.records:,} in the manifest"))
    if stored.read_to_end and report.bytes == claim.bytes and digest(stored.crc) != claim.digest:
        report.add(Fault("digest", f"the file's digest is {digest(stored.crc)}, but {claim.digest} in the manifest"))


# --- A tar ---


class EntryNames:
    """Counts the entries of samples by their names, and checks these against a manifest.

    Args:
        report: receives the counts, and faults of the kind "schema".
        schema: has the names that may be there; None for any.
        required: names that every sample must have.
    """

    def __init__(self, report: FileReport, schema: Mapping[str, Expected] | None, required: frozenset[str]) -> None:
        self._report = report
        self._schema = schema
        self._required = required
        self._samples: Counter[tuple[str, ...]] = Counter()

    def counted(self, samples: Iterator[Sample], tar: TarSamples) -> Iterator[Sample]:
        """The same samples."""
        for sample in samples:
            names = tuple(sample)
            self._samples[names] += 1
            if self._schema is not None:
                for misfit in self._misfits(names):
                    self._report.add(Fault("schema", f"sample {sample[KEY]} {misfit}", None, tar.grouper.offset))
            yield sample
        for names, count in self._samples.items():
            self._report.features.update(dict.fromkeys(names, count))

    def _misfits(self, names: tuple[str, ...]) -> Iterator[str]:
        for name in names:
            if self._schema is not None and name not in self._schema:
                yield f"has an entry {name!r}, which is not in the manifest"
        if missing := self._required.difference(names):
            yield f"lacks {', '.join(map(repr, sorted(missing)))}, which all others have"


def check_tar(shard: OpenShard, rules: TarRules, report: FileReport, names: EntryNames, *, decoders: int = 0) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Args:
        shard: the tar.
        rules: how it is read.
        report: the report of the file.
        names: counts the entries.
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
    with closing(shard.samples(rules, note, sizes_only=not (decoders or own), every_byte=True)) as tar:
        samples = names.counted(past_damage(tar.samples, tar.resume, damaged), tar)
        samples = _well_named(samples, tar, report)
        if decoders or own:
            _check_samples(tar, samples, report, own, decoders)
        else:
            for _ in samples:
                report.records += 1
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


def _well_named(samples: Iterator[Sample], tar: TarSamples, report: FileReport) -> Iterator[Sample]:
    """The same samples; reports names of entries that no feature can have."""
    good: set[str] = set()
    for sample in samples:
        for name in () if good.issuperset(sample) else sample.keys() - good:
            try:
                delimited_name(name)
                good.add(name)
            except SampleError as error:
                report.add(Fault("name", f"sample {sample[KEY]}: {error.message}", None, tar.grouper.offset))
        yield sample


def _check_samples(
    tar: TarSamples, samples: Iterator[Sample], report: FileReport, own: Sequence[OwnCheck], decoders: int
) -> None:
    from tar2tf_cli.checking.check_tfrecord import Values
    from tar2tf_cli.flow.sample_flow import work_in_threads

    seen = Values()

    def checked() -> Iterator[Located]:
        for stored in samples:
            key, sample = stored[KEY], {}
            try:
                sample = whole_sample(stored)
                faults = [fault for check in own for fault in check(sample)]
                faults += seen.odd(_values(sample)) if decoders else []
            except SampleError as error:
                faults = [("undecodable", f"{error.member} {error.message}")]
            decoded = sample if decoders and not faults else {}
            yield decoded, key, {"offset": tar.grouper.offset, "faults": faults}

    work = work_in_threads(checked(), lambda sample: [seen.undecodable(_values(sample))], decoders or 1)
    for faults, key, place in work:
        report.records += 1
        for kind, message in place["faults"] or faults:
            report.add(Fault(kind, f"sample {key}: {message}", None, place["offset"]))
    report.not_decoded.update(seen.unknown)


def _values(sample: Sample) -> list[tuple[str, bytes]]:
    return [(name, data) for name, data in sample.items() if name != KEY]


# --- Salvage ---


_BLOCK: Final = 1 << 20


class SalvagePart(RecordFile):
    """The good records of one file, in a hidden file beside the final one."""

    def keep(self, data: bytes) -> None:
        """Append a record."""
        self.write(frame([data], len(data)), len(data) + FRAMING)

    def keep_framed(self, records: bytes) -> None:
        """Append records as they are in the file."""
        self.write([records], len(records))


class Salvage:
    """The good records of several files, which workers write to parts, and then to one file, which appears when whole.

    Args:
        path: the new file.

    Raises:
        UsageError: when the path is not that of a new file on this machine.
    """

    def __init__(self, path: str) -> None:
        if is_remote(path):
            raise UsageError("--salvage writes a local file", shard=path, hint="copy it to the bucket afterwards")
        if os.path.lexists(path):
            raise OutputExistsError("already exists; --salvage writes a new file", shard=path, hint="name another file")
        folder, base = os.path.split(path)
        if not base or (folder and not os.path.isdir(folder)):
            raise UsageError("is not a file in an existing folder", shard=path, hint="create the folder first")
        self.path = path
        from tempfile import mkdtemp  # slow to import, and only for --salvage

        with write_errors(path):
            self._folder = mkdtemp(prefix=f".{base}.", dir=folder or ".")
        self._parts: list[str] = []

    def next_part(self) -> Callable[[], SalvagePart]:
        """Return what opens the part for the next file, in the worker that checks it."""
        self._parts.append(os.path.join(self._folder, str(len(self._parts))))
        return partial(SalvagePart, self.path, self._parts[-1])

    def finish(self, reports: Sequence[FileReport]) -> Salvaged:
        """Join the parts in order, and delete them; there is no new file if there are only tars.

        Raises:
            SinkError: when the file cannot be written.
        """
        kept, tars = 0, sum(report.format == "tar" for report in reports)
        if tars < len(reports):
            with WholeFile(self.path) as whole:
                for part in filter(os.path.exists, self._parts):
                    kept += _append(whole, part)
        return Salvaged(
            self.path,
            sum(report.good.records for report in reports if report.format == "tfrecord"),
            kept,
            lost_records=sum(report.bad.records for report in reports),
            lost_bytes=sum(report.bad.bytes for report in reports),
            cut=sum(report.cut for report in reports if report.format != "tar"),
            tars=tars,
        )

    def close(self) -> None:
        """Delete parts that are left."""
        from shutil import rmtree

        rmtree(self._folder, ignore_errors=True)


def _append(whole: WholeFile, part: str) -> int:
    """Append a part and delete it; returns its size."""
    size = 0
    try:
        with open(part, "rb", buffering=0) as file:
            while data := file.read(_BLOCK):
                whole.write([data], len(data))
                size += len(data)
    except OSError as error:
        raise read_failed(part, error) from None
    os.unlink(part)
    return size
