"""Checks one file to its end: every CRC, example and sample; whatever is wrong becomes a fault, not an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tar2tf_cli.checking.example_checker import Checker, Expected
from tar2tf_cli.checking.files import FileContext
from tar2tf_cli.conversion.manifest import ShardEntry, digest
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import RecordReader, crc32c
from tar2tf_cli.inputs.open_shard import Format, OpenShard, TarRules
from tar2tf_cli.samples.grouping import Grouper, no_samples
from tar2tf_cli.stores import ObjectInfo

__all__ = ["CheckContext", "CheckFile", "Fault", "FileReport"]

_MOST_FAULTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a file.

    Attributes:
        kind: a short name of the kind of fault, such as "data-crc".
        message: a sentence without the record or offset.
        record: number of the record in the file, from 0.
        offset: byte offset in the decompressed TFRecord or tar; for a broken gzip stream, in the file as stored.
    """

    kind: str
    message: str
    record: int | None = None
    offset: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"kind": self.kind, "record": self.record, "offset": self.offset, "message": self.message}


@dataclass(slots=True)
class FileReport:
    """The results for one file.

    Attributes:
        path: path or URL of the file.
        format: detected from the content; None if it is neither a tar nor a TFRecord.
        records: number of whole records (in a tar, samples), as far as the file can be read.
        bytes: size of the file in bytes as stored.
        faults: what is wrong; at most a thousand of each kind, and one that says how many more there are.
        features: number of valid examples that have each feature.
        missing: whether the file does not exist.
        examined: whether the file was read to its end.
        counts: number of faults of each kind, listed or not.
    """

    path: str
    format: Format | None = None
    records: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    features: Counter[str] = field(default_factory=Counter)
    missing: bool = False
    examined: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def status(self) -> str:
        """`ok`, `damaged` or `missing`."""
        return "missing" if self.missing else "damaged" if self.faults else "ok"

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] <= _MOST_FAULTS:
            self.faults.append(fault)

    def close(self) -> None:
        """Add, for each kind, how many faults are not listed."""
        for kind, count in self.counts.items():
            if count > _MOST_FAULTS:
                self.faults.append(Fault(kind, f"and {count - _MOST_FAULTS:,} more of this kind"))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "path": self.path,
            "status": self.status,
            "records": self.records,
            "bytes": self.bytes,
            "faults": [fault.to_json() for fault in self.faults],
        }


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
        """Check the file and return its report.

        Raises:
            SourceError: when the file cannot be read for reasons other than damage.
        """
        stored = _Stored()
        with OpenShard(context.source, self.item, context.on_bytes, stored if self.claim else lambda raw: raw) as shard:
            report = FileReport(shard.name, "tfrecord" if self.claim else shard.format)
            if shard.damage:
                report.add(_fault(shard.damage))
            elif report.format == "tar":
                _check_tar(shard, context.rules, report)
            elif report.format == "tfrecord":
                _check_records(shard, Checker(context.schema, context.required), report)
            else:
                report.add(_unknown(shard.head))
            report.bytes = shard.size
        if self.claim:
            _compare(self.claim, stored, report)
        report.close()
        return report


def _unknown(head: bytes) -> Fault:
    if not head:
        return Fault("empty", "the file is empty")
    if len(head) < 12:
        return Fault("truncated", f"{len(head)} bytes are too few for a tar or a TFRecord", offset=0)
    if found := foreign(head):
        return Fault("unknown-format", f"the file is {found[0]}, neither a tar nor a TFRecord; {found[1]}", offset=0)
    return Fault("unknown-format", "the file is neither a tar nor a TFRecord, or its first bytes are damaged", offset=0)


def _fault(error: DamagedShardError, record: int | None = None, *, last: bool = True) -> Fault:
    """An error as a fault; with `last`, nothing after it can be read."""
    member = f"{error.member}: " if error.member and record is None else ""
    rest = "; the rest of the file cannot be read" if last and error.kind != "truncated" else ""
    return Fault(error.kind, f"{member}{error.message}{rest}", record, error.offset)


# --- TFRecord ---


def _check_records(shard: OpenShard, checker: Checker, report: FileReport) -> None:
    """Check every record; nothing can be read after a damaged length."""
    reader = RecordReader(shard, shard.name)
    check = checker.check
    while True:
        try:
            for offset, data in reader:
                for kind, message in check(data):
                    report.add(Fault(kind, message, reader.count, offset))
            report.examined = True
            break
        except DamagedShardError as error:
            report.add(_fault(error, reader.count, last=error.kind != "data-crc"))
            if error.kind != "data-crc":
                break
            reader.skip_damaged()
    report.records = reader.count
    report.features = checker.counts()


# --- tar ---


def _check_tar(shard: OpenShard, rules: TarRules, report: FileReport) -> None:
    """Check that a tar is whole and its members form samples; every byte is read, as any of them may be unreadable."""

    def note(error: SampleError) -> None:
        kind, place = ("duplicate-key", error.member) if error.member else ("half-sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{place}: {error.message}", None, error.offset))

    tar = TarReader(shard, shard.name, headers_only=True, need_end=not rules.ignore_missing_end)
    grouper = Grouper(shard.name, note, key_split=rules.key_split, regroup=rules.regroup, sizes_only=True)
    tar.links = links = shard.links(grouper, sizes_only=True)
    try:
        for _ in grouper.samples(tar):
            report.records += 1
        report.examined = True
    except DamagedShardError as error:
        report.add(_fault(error))
    finally:
        links.close()
    if grouper.empty:
        report.add(_fault(no_samples(tar.skipped + grouper.skipped), last=False))


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
    """Compare size, number of records and digest; if the file could not be read to its end, only its size."""
    if report.bytes != claim.bytes:
        report.add(Fault("size", f"the file has {report.bytes:,} bytes, and {claim.bytes:,} in the manifest"))
    if not report.examined:
        return
    if report.records != claim.records:
        report.add(Fault("count", f"the file has {report.records:,} records, and {claim.records:,} in the manifest"))
    if stored.read_to_end and report.bytes == claim.bytes and digest(stored.crc) != claim.digest:
        report.add(Fault("digest", f"the file's digest is {digest(stored.crc)}, and {claim.digest} in the manifest"))
