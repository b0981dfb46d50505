"""Checks one file to its end, whatever it is; what is wrong becomes a fault, not an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tar2tf_cli.checking.check_tar import check_tar, damage
from tar2tf_cli.checking.check_tfrecord import check_tfrecord
from tar2tf_cli.checking.example_checker import Checker, Expected
from tar2tf_cli.checking.faults import Fault, FileReport
from tar2tf_cli.checking.files import FileContext, read_files
from tar2tf_cli.conversion.manifest import ShardEntry, digest
from tar2tf_cli.errors import NotAdjacentError, SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.tfrecord import RecordReader, crc32c
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["CheckContext", "CheckFile", "CheckRun"]

_TFRECORD_NAME: Final = re.compile(r"\.(tf)?records?\b")


@dataclass(slots=True)
class CheckContext(FileContext):
    """The context that the checks of one run share.

    Attributes:
        schema: what is expected of each feature; None without a manifest.
        required: the names of features that every example must have.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckFile:
    """Checks one file.

    Attributes:
        item: the file.
        claim: the file's entry in a manifest, if there is one; the file must then be TFRecord.
    """

    item: ObjectInfo
    claim: ShardEntry | None = None

    def __str__(self) -> str:
        return self.item.name

    def run(self, context: CheckContext) -> FileReport:
        """Check the file and return its report."""
        stored = _Stored()
        report = FileReport(context.source.locate(self.item.name), "tfrecord" if self.claim else None)
        try:
            wrap = stored if self.claim else lambda raw: raw
            with OpenShard(context.source, self.item, context.on_bytes, wrap) as shard:
                report.bytes = shard.size
                self._check(shard, context, report)
                report.bytes = shard.size
        except NotAdjacentError:
            return self.run(replace(context, rules=replace(context.rules, regroup=True)))
        except SourceError as error:
            where = f"{error.member}: " if error.member else ""
            report.add(Fault("unreadable", f"{where}{error.message}", None, error.offset))
            report.examined = False
        if self.claim:
            _compare(self.claim, stored, report)
        report.close()
        return report

    def _check(self, shard: OpenShard, context: CheckContext, report: FileReport) -> None:
        report.format = report.format or shard.format
        if shard.damage:
            report.add(damage(shard.damage))
        elif report.format == "tar":
            check_tar(shard, context.rules, report)
        elif report.format == "tfrecord":
            _check_records(shard, context, report)
        elif report.format is None and _TFRECORD_NAME.search(self.item.name) and not foreign(shard.head):
            _search_records(shard, context, report)
        else:
            report.add(_unknown(shard.head))


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One run of checks: how tars are read, how many files are checked at once, and what is notified."""

    rules: TarRules
    workers: int | None
    events: Events

    def check(
        self,
        source: Source,
        tasks: Sequence[CheckFile],
        *,
        schema: Mapping[str, Expected] | None = None,
        required: frozenset[str] = frozenset(),
    ) -> list[FileReport]:
        """Check files, and return their reports in order."""
        context = CheckContext(source, self.rules, schema=schema, required=required)
        items = [task.item for task in tasks]
        reports: list[FileReport] = read_files(items, tasks, context, self.workers, self.events)
        for report in reports:
            if report.status == "ok":
                self.events.shard(report.path, report.records, report.bytes)
        return reports


def _check_records(shard: OpenShard, context: CheckContext, report: FileReport) -> None:
    checker = Checker(context.schema, context.required)
    try:
        check_tfrecord(RecordReader(shard, shard.name), checker.check, report)
    finally:
        report.features, report.sequences = checker.counts(), checker.sequences


def _search_records(shard: OpenShard, context: CheckContext, report: FileReport) -> None:
    """Check a file whose first bytes are not those of a TFRecord, although its name is that of one."""
    report.format = "tfrecord"
    _check_records(shard, context, report)
    if not report.records:
        report.format = None
        report.faults.clear()
        report.counts.clear()
        report.add(_unknown(shard.head))


def _unknown(head: bytes) -> Fault:
    if not head:
        return Fault("empty", "the file is empty")
    if len(head) < 12:
        return Fault("truncated", f"{len(head)} bytes are too few for a tar or a TFRecord", offset=0)
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
    if "unreadable" in report.counts:
        return
    if report.bytes != claim.bytes:
        report.add(Fault("size", f"the file has {report.bytes:,} bytes, but {claim.bytes:,} in the manifest"))
    if report.examined and report.records != claim.records:
        report.add(Fault("count", f"the file has {report.records:,} records, but {claim.records:,} in the manifest"))
    if stored.read_to_end and report.bytes == claim.bytes and digest(stored.crc) != claim.digest:
        report.add(Fault("digest", f"the file's digest is {digest(stored.crc)}, but {claim.digest} in the manifest"))
