"""Check of one file to its end, whatever its format; all problems become faults, not errors."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.api.objects import ByteStream, ObjectInfo, Readable
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KeySplit
from tar2tf_cli.checking.checks import custom_checks
from tar2tf_cli.checking.faults import NO_EXPECTATIONS, Expectations, Fault, FileReport, KeyLists, Messages, unreadable
from tar2tf_cli.checking.files import CheckOptions, FileContext, FileRun, FileTask
from tar2tf_cli.checking.salvage import Salvage, SalvagePart
from tar2tf_cli.checking.values import Faults
from tar2tf_cli.checking.verify_records import Checker, check_tfrecord
from tar2tf_cli.checking.verify_tar import check_tar, check_units
from tar2tf_cli.engines import cpu_count
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.example import FRAMING
from tar2tf_cli.formats.streams import foreign, read_to_end
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.energon_index import DALI, ENERGON, energon_samples, index_writer, packed_offsets
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.shard_set import stems_of
from tar2tf_cli.inputs.tar_index import find_in_batches, index_lines
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.plugins import find_format, traits_of
from tar2tf_cli.structs import dataclass, field, replace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.checking.subset import Subset
    from tar2tf_cli.inputs.manifest import ShardEntry


_LENGTH: Final = 8  # bytes of the length before a record


@dataclass(frozen=True)
class Checks:
    """The checks that the user selected for a run.

    Attributes:
        fast: whether only the framing and the CRCs of lengths are checked.
        decode: whether images, sounds and arrays are decoded.
        messages: whether records must be examples; None to decide for each file by its first record.
        allow_empty: whether an empty file is an empty TFRecord, and not a fault.
        allow_func: whether functions that a manifest names may be run.
        keys: whether the keys of samples with and without faults are listed.
        subset: the shards to read, None for all; only existence and size of the others are checked.
    """

    fast: bool = False
    decode: bool = False
    messages: Messages | None = None
    allow_empty: bool = False
    allow_func: bool = False
    keys: bool = False
    subset: Subset | None = None


@dataclass(eq=False, repr=False)
class CheckContext(FileContext):
    """The context shared by the checks of one run.

    Attributes:
        checks: the checks.
        expectations: expectations of all files.
        decoders: number of threads per file that decode images and arrays; 0 if they are not to be decoded.
        stems: the beginning of the keys of records without a key, by the names of files whose stem is not unique.
    """

    checks: Checks = Checks()
    expectations: Expectations = NO_EXPECTATIONS
    decoders: int = 0
    stems: Mapping[str, str] = field(default_factory=dict)


class CheckRun(FileRun):
    """One run of checks.

    Args:
        checks: the checks.
        salvage: receives good records; None if they are not kept.
        options: the options for reading files.
    """

    def __init__(self, checks: Checks, salvage: Salvage | None = None, **options: Unpack[CheckOptions]) -> None:
        super().__init__(**options)
        self.checks = checks
        self._salvage = salvage

    def check(
        self,
        source: Source,
        files: Iterable[tuple[ObjectInfo, ShardEntry | None]],
        expectations: Expectations = NO_EXPECTATIONS,
        rules: TarRules | None = None,
    ) -> list[FileReport]:
        """Check files, each with its manifest entry if it has one, and return their reports in order."""
        if self.checks.messages:
            expectations = expectations._replace(messages=expectations.messages or self.checks.messages)
        context = CheckContext(source, rules or self.rules, checks=self.checks, expectations=expectations)
        next_part = self._salvage.next_part if self._salvage else lambda: None
        files, subset = list(files), self.checks.subset
        if self.checks.keys:
            context.stems = stems_of(item for item, _ in files)
        read = subset.choose([item for item, _ in files]) if subset else [True] * len(files)
        chosen = [file for file, is_read in zip(files, read, strict=True) if is_read]
        tasks = [FileTask(item, partial(_check_file, entry, next_part())) for item, entry in chosen]
        if self.checks.decode:
            context.decoders = -(-(self.workers or cpu_count()) // max(len(tasks), 1))
        reports: list[FileReport] = self.read(tasks, context)
        for report in reports:
            if report.status == "ok":
                self.events.shard(report.path, report.records, report.bytes)
        checked = iter(reports)
        return [
            next(checked) if is_read else _unread(source, item, entry, expectations)
            for (item, entry), is_read in zip(files, read, strict=True)
        ]


def _unread(source: Source, item: ObjectInfo, entry: ShardEntry | None, expectations: Expectations) -> FileReport:
    """Return the report of a file outside of the subset, of which only the size is checked."""
    report = FileReport(source.locate(item.name), expectations.format, bytes=item.size or 0, unread=True)
    if entry and item.size not in (None, entry.bytes):
        report.add(Fault("size", f"the file has {item.size:,} bytes, but {entry.bytes:,} in the manifest"))
    return report


def _check_file(
    entry: ShardEntry | None, part: SalvagePart | None, item: ObjectInfo, context: CheckContext
) -> FileReport:
    """Check a file and return its report.

    If its first record is not an example, but others are, the file is read again, and the first record is a fault.

    Args:
        entry: the file's entry in a manifest, if there is one, which it must match.
        part: receives its good records.
        item: the file.
        context: shared by all files.
    """
    check = _FileCheck(entry, part, item, context)
    report = check.report()
    if report.is_mixed and context.source.capabilities.repeatable:
        expectations = context.expectations._replace(messages="example")
        return replace(check, context=replace(context, expectations=expectations)).report()
    if report.is_mixed:
        some = f"{report.others:,} of the records are not tf.train.Examples, but others are"
        report.add(Fault("not_an_example", f"{some}; --messages any accepts them"))
    return report


@dataclass(frozen=True)
class _FileCheck:
    """The check of one file; attributes are the arguments of `_check_file`."""

    entry: ShardEntry | None
    part: SalvagePart | None
    item: ObjectInfo
    context: CheckContext

    def report(self) -> FileReport:
        """Check the file, twice if it is a tar whose samples turn out to be scattered."""
        first = self._attempt(regroup=False)
        return self._attempt(regroup=True) if first.must_regroup else first

    def _attempt(self, *, regroup: bool) -> FileReport:
        """Check the file; with `regroup`, scattered samples are expected."""
        context, index = self.context, self._index()
        observer = _StreamObserver(index is not None)
        observes = (self.entry or index is not None) and not context.checks.fast
        report = FileReport(context.source.locate(self.item.name), context.expectations.format)
        report.keys = KeyLists(stem=context.stems.get(self.item.name, self.item.stem)) if context.checks.keys else None
        try:
            wrap: Callable[[ByteStream], ByteStream] = observer if observes else lambda raw: raw
            with OpenShard(context.source, self.item, context.on_bytes, wrap) as shard:
                report.bytes = shard.size
                self._check(shard, report, observer.starts if index is not None else None, regroup=regroup)
                if report.must_regroup:
                    return report
                report.bytes = shard.size
                if index is not None and shard.plain and not report.faults:
                    self._check_index(index, observer.starts, report)
                if (unusual := shard.content.unusual) and traits_of(report.format).carries_examples:
                    report.add(Fault("trailing_garbage", f"{unusual}; decompress the file and compress it again"))
        except SourceError as error:
            report.add(unreadable(error))
            report.examined, report.cut, report.missing = False, True, error.kind == "missing"
        if self.entry:
            _compare(self.entry, observer, report)
        report.close()
        return report

    def _index(self) -> bytes | None:
        """Return the index file NAME.idx next to the shard, if it is readable; for a tar only a local one."""
        source, name = self.context.source, self.item.name
        if source.capabilities.seekable or not find_format("tar").is_named(name.lower()):
            with suppress(SourceError):
                for item in source.find([f"{name}.idx"]).values():
                    return read_to_end(source.open(item))
        return None

    def _check_index(self, index: bytes, starts: array[int], report: FileReport) -> None:
        """Compare an index of lines `OFFSET SIZE` with the starts of records; for a tar, read its headers."""
        traits = traits_of(report.format)
        if traits.carries_examples:
            ranges = pairwise(chain(starts, (report.bytes,)))
            _compare_index(index, [b"%d %d\n" % (start, end - start) for start, end in ranges], report)
        elif traits.holds == "sample" and self.context.source.capabilities.seekable:
            try:
                with open(report.path, "rb", buffering=0) as tar:
                    _check_tar_index(index, tar, self.context.rules.key_split, report)
            except (UsageError, SampleError) as error:
                report.add(_wrong_index(error.message))

    def _check(self, shard: OpenShard, report: FileReport, starts: array[int] | None, *, regroup: bool) -> None:
        context = self.context
        report.format = report.format or shard.format
        if shard.damage and report.format is None:
            report.add_damage(shard.damage, more=False)
        elif (traits := traits_of(report.format)).holds == "sample":
            rules = context.rules._replace(regroup=regroup or context.rules.regroup)
            check_tar(shard, rules, report, context.expectations, decoders=context.decoders)
        elif traits.carries_examples:
            self._check_tfrecord(shard, report, starts)
        elif kind := shard.kind:
            check_units(shard, kind, context.rules.key_split, report, context.expectations)
        else:
            self._check_unknown(shard, report)

    def _check_tfrecord(self, shard: OpenShard, report: FileReport, starts: array[int] | None) -> None:
        if self.context.checks.fast:
            self._check_lengths(shard, report, starts)
        else:
            self._check_records(shard, report)
        if shard.by_name and not (report.records or self.entry):
            report.format = None
            report.faults.clear()
            report.counts.clear()
            self._check_unknown(shard, report)

    def _check_unknown(self, shard: OpenShard, report: FileReport) -> None:
        if not shard.head and self.context.checks.allow_empty:
            report.format, report.examined = "tfrecord", True
        else:
            report.add(_unknown(shard.head))

    def _check_lengths(self, shard: OpenShard, report: FileReport, starts: array[int] | None) -> None:
        seeks = shard.seekable is not None
        reader = RecordReader(shard.content, shard.name, want="lengths", seeks=seeks, size=shard.length)

        def begins(data: bytes) -> Faults:
            if starts is not None:
                starts.append(reader.offset)
            return ()

        check_tfrecord(reader, begins, report)

    def _check_records(self, shard: OpenShard, report: FileReport) -> None:
        decoders = self.context.decoders
        checker = Checker(self.context.expectations)
        own = custom_checks("check_record")

        def check(data: bytes) -> Faults:
            return [*checker.check(data), *(fault for check in own for fault in check(data))]

        no_part: AbstractContextManager[Any] = nullcontext()
        try:
            with self.part.open() if self.part else no_part as part:
                every = (
                    decoders or own or report.keys
                )  # then Python sees every record, not only those that the kernel rejects
                reader = RecordReader(
                    shard.content,
                    shard.name,
                    want="records" if every or part else "heads",
                    accept=None if every else checker,
                    keep=part.keep_framed if part else None,
                )
                keep = part.keep if part else None
                numbers = self.context.expectations.numbers
                check_tfrecord(
                    reader, check if own else checker.check, report, decoders=decoders, keep=keep, numbers=numbers
                )
        finally:
            report.is_mixed = checker.is_mixed
            report.features, report.sequences, report.others = checker.counts(), checker.sequences, checker.others


def _unknown(head: bytes) -> Fault:
    if not head:
        return Fault("empty", "the file is empty")
    if len(head) < 12:
        return Fault("truncated", f"the file is too short for a tar or a TFRecord: {len(head)} B", offset=0)
    if kind := foreign(head):
        return Fault("unknown_format", f"the file is {kind[0]}, neither a tar nor a TFRecord; {kind[1]}", offset=0)
    return Fault("unknown_format", "the file is neither a tar nor a TFRecord, or its first bytes are damaged", offset=0)


# --- A manifest's entry, and an index ---


class _StreamObserver:
    """Stream wrapper that collects the size, digest and record starts of a file while it is read.

    Args:
        finds_records: whether to note where records begin.

    Attributes:
        crc: the CRC-32C of the bytes read.
        read_to_end: whether all bytes of the file have been read.
        starts: the offset of each record of a TFRecord.
    """

    def __init__(self, finds_records: bool) -> None:
        self.crc = 0
        self.read_to_end = False
        self.starts = array("Q")
        self._finds_records = finds_records
        self._next = self._seen = 0  # offset of the next record, and of the next bytes
        self._rest = b""  # an incomplete length at the end of the previous bytes

    def __call__(self, raw: ByteStream) -> ByteStream:
        self._raw = raw
        return self

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self.crc = crc32c(data, self.crc)
        self.read_to_end = not data
        if self._finds_records:
            self._find_records(data)
        return data

    def close(self) -> None:
        self._raw.close()

    def _find_records(self, data: bytes) -> None:
        """Find the starts of records in the next bytes, from length to length."""
        buffer, start = self._rest + data, self._seen - len(self._rest)
        self._seen += len(data)
        while self._next + _LENGTH <= self._seen:
            at = self._next - start
            self.starts.append(self._next)
            self._next += int.from_bytes(buffer[at : at + _LENGTH], "little") + FRAMING
        self._rest = buffer[self._next - start :]


def _check_tar_index(index: bytes, tar: Readable, key_split: KeySplit, report: FileReport) -> None:
    """Compare the index of a tar with its samples; an index of an old format only gives a note."""
    writer = index_writer(index)
    if writer in (None, DALI):
        _compare_index(index, index_lines(find_in_batches(tar, report.path, key_split)), report)
    elif writer != ENERGON:
        report.notes.append(f"its index is one of {writer}, which tar2tf does not use")
    elif index != packed_offsets(list(energon_samples(tar, report.path))):
        report.add(_wrong_index(f"it is one of {writer}, and its offsets are not those of the samples"))


def _compare_index(index: bytes, expected: Iterable[bytes], report: FileReport) -> None:
    """Report the first line of an index that differs from the expected one, ignoring blanks."""
    lines = b"".join(expected)
    if index == lines:
        return
    for number, (line, wanted) in enumerate(zip_longest(index.splitlines(), lines.splitlines()), 1):
        if line is None or wanted is None or line.split() != wanted.split():
            says = f"line {number:,} says {line[:60].decode(errors='replace')!r}" if line else "a line is missing"
            should = f"it should be {wanted.rstrip()[:60].decode()!r}" if wanted else "there are no more records"
            report.add(_wrong_index(f"{says}, but {should}"))
            return


def _wrong_index(message: str) -> Fault:
    return Fault("index", f"its index is wrong: {message}")


def _compare(entry: ShardEntry, observer: _StreamObserver, report: FileReport) -> None:
    """Compare size, digest and, if all records were read, their number with the manifest."""
    from tar2tf_cli.inputs.manifest import digest

    if report.counts.keys() & {"unreadable", "missing"}:
        return
    if report.bytes != entry.bytes:
        report.add(Fault("size", f"the file has {report.bytes:,} bytes, but {entry.bytes:,} in the manifest"))
    if report.examined and report.records != entry.records:
        report.add(Fault("count", f"the file has {report.records:,} records, but {entry.records:,} in the manifest"))
    is_whole = observer.read_to_end and report.bytes == entry.bytes
    if entry.digest and is_whole and digest(observer.crc) != entry.digest:
        report.add(Fault("digest", f"the file's digest is {digest(observer.crc)}, but {entry.digest} in the manifest"))
