"""Checks one file to its end, whatever it is; what is wrong becomes a fault, not an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
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
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.cursor import past_damage
from tar2tf_cli.formats.example import delimited_name
from tar2tf_cli.formats.files import RecordFile, WholeFile
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples, put_together
from tar2tf_cli.samples.names import KEY, Sample
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.conversion.manifest import Expected, ShardEntry
    from tar2tf_cli.flow.sample_flow import Located


_TFRECORD_NAME: Final = re.compile(r"\.(tf)?records?\b")


@dataclass(slots=True, eq=False, repr=False)
class CheckContext(FileContext):
    """The context that the checks of one run share.

    Attributes:
        schema: what is expected of each feature; None without a manifest.
        required: the names of features that every example must have.
        fast: whether only the framing and the CRCs of lengths are checked.
        decoders: number of threads per file that decode images and arrays; 0 if they are not to be decoded.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()
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
        claim: the file's entry in a manifest, if there is one; the file must then be TFRecord.
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
        stored, context = _Stored(), self.context
        report = FileReport(context.source.locate(self.item.name), "tfrecord" if self.claim else None)
        try:
            wrap = stored if self.claim and not context.fast else lambda raw: raw
            with OpenShard(context.source, self.item, context.on_bytes, wrap) as shard:
                report.bytes = shard.size
                self._check(shard, report, regroup=regroup)
                report.bytes = shard.size
                if report.format == "tfrecord" and shard.seekable and not report.faults:
                    _compare_index(self.item, report)
                if shard.unusual and report.format == "tfrecord":
                    report.add(Fault("trailing_garbage", f"{shard.unusual}; decompress the file and compress it again"))
        except SourceError as error:
            report.add(unreadable(error))
            report.examined, report.cut, report.missing = False, True, error.kind == "missing"
        if self.claim:
            _compare(self.claim, stored, report)
        report.close()
        return report

    def _check(self, shard: OpenShard, report: FileReport, *, regroup: bool) -> None:
        report.format = report.format or shard.format
        if shard.damage and report.format is None:
            report.add(damage(shard.damage))
            report.cut = True
        elif report.format == "tar":
            rules = self.context.rules._replace(regroup=regroup or self.context.rules.regroup)
            check_tar(shard, rules, report, decoders=self.context.decoders)
        elif report.format == "tfrecord":
            self._check_records(shard, report)
        elif report.format is None and _TFRECORD_NAME.search(self.item.name) and not foreign(shard.head):
            self._search_records(shard, report)
        else:
            report.add(_unknown(shard.head))

    def _check_records(self, shard: OpenShard, report: FileReport) -> None:
        if self.context.fast:
            stream, seeks = shard.seekable or shard, shard.seekable is not None
            reader = RecordReader(stream, shard.name, want="lengths", seeks=seeks, size=self.item.size)
            check_tfrecord(reader, lambda data: (), report)
            return
        checker, decoders = Checker(self.context.schema, self.context.required), self.context.decoders
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
            report.features, report.sequences = checker.counts(), checker.sequences

    def _search_records(self, shard: OpenShard, report: FileReport) -> None:
        """Check a file whose first bytes are not those of a TFRecord, although its name is that of one."""
        report.format = "tfrecord"
        self._check_records(shard, report)
        if not report.records:
            report.format = None
            report.faults.clear()
            report.counts.clear()
            report.add(_unknown(shard.head))


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
    ) -> list[FileReport]:
        """Check files, each with its entry in a manifest if it has one, and return their reports in order."""
        context = CheckContext(source, self.rules, schema=schema, required=required, fast=self.fast)
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
    if found := foreign(head):
        return Fault("unknown_format", f"the file is {found[0]}, neither a tar nor a TFRecord; {found[1]}", offset=0)
    return Fault("unknown_format", "the file is neither a tar nor a TFRecord, or its first bytes are damaged", offset=0)


# --- What a manifest claims ---


class _Stored:
    """Wraps the stream of an input, and computes the CRC-32C of everything that is read from it."""

    def __init__(self) -> None:
        self.crc = 0
        self.read_to_end = False

    def __call__(self, raw: ByteStream) -> ByteStream:
        self._raw = raw
        return self

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self.crc = crc32c(data, self.crc)
        self.read_to_end = not data
        return data

    def close(self) -> None:
        self._raw.close()


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


def _compare_index(item: ObjectInfo, report: FileReport) -> None:
    """Compare PATH.idx, if there is one, with the lengths in a shard on the disk, which are read again for that."""
    try:
        index = open(f"{report.path}.idx", "rb")  # noqa: SIM115
    except OSError:
        return
    with index, open(report.path, "rb", buffering=0) as shard:
        wanted = RecordReader(shard, report.path, want="lengths", seeks=True, size=item.size).index_lines()
        for number, (line, right) in enumerate(zip_longest(index, wanted), 1):
            if line is None or right is None or line.split() != right.split():
                says = f"says {line[:60].decode(errors='replace').strip()!r}" if line else "is missing"
                should = f"should be {right.decode().strip()!r}" if right else "there are no more records"
                message = f"its index says otherwise where its records are: line {number:,} {says}, but {should}"
                report.add(Fault("index", message))
                return


# --- A tar ---


def check_tar(shard: OpenShard, rules: TarRules, report: FileReport, *, decoders: int = 0) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Args:
        shard: the tar.
        rules: how it is read.
        report: the report of the file.
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
        samples = _well_named(past_damage(tar.samples, tar.resume, damaged), tar, report)
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
    from tar2tf_cli.checking.undecodable import Values
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
            raise OutputExistsError("exists already; --salvage writes a new file", shard=path, hint="name another file")
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
