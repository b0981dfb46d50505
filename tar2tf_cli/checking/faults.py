"""What checks find: the faults of a file and what each of them cost, the report of a file, and of all files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.inputs.open_shard import Format

_MOST_FAULTS: Final = 1000


class Amount(NamedTuple):
    """A number of good records, and their bytes with framing."""

    records: int = 0
    bytes: int = 0


class Fault(NamedTuple):
    """One thing that is wrong with a file.

    Attributes:
        kind: a short name of the kind of fault, such as "data_crc".
        message: a sentence without the record or offset.
        record: number of the record in the file, from 0.
        offset: byte offset in the decompressed TFRecord or tar; for a broken gzip stream, in the file as stored.
        lost: number of bytes, from the offset, that no good record holds; None if unknown, or if none are lost.
        before: the good records before the fault; None if unknown.
        after: the good records after the fault; None if unknown.

    >>> verify("cut.record", workers=1).files[0].faults[0].kind
    'truncated'
    """

    kind: str
    message: str
    record: int | None = None
    offset: int | None = None
    lost: int | None = None
    before: Amount | None = None
    after: Amount | None = None

    @property
    def place(self) -> str:
        """`record 3, offset 180`, as far as it is known."""
        named = {"record": self.record, "offset": self.offset}
        return ", ".join(f"{name} {number}" for name, number in named.items() if number is not None)

    def __str__(self) -> str:
        """`record 3, offset 180: the CRC of the record's data does not match`."""
        return f"{self.place}: {self.message}" if self.place else self.message

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        cost = {
            "lost": self.lost,
            "before": self.before and self.before._asdict(),
            "after": self.after and self.after._asdict(),
        }
        known = {name: value for name, value in cost.items() if value is not None}
        return {"kind": self.kind, "record": self.record, "offset": self.offset, "message": self.message, **known}


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
        examined: whether the file was read to its end and every record was found.
        counts: number of faults of each kind, listed or not.
        good: the records without a fault; those with a wrong CRC are in `records`, too.
        not_adjacent: number of samples of a tar whose members are not adjacent, which is not a fault.
        bad: the records with a fault; a stretch in which no record was found counts as one.
        sequences: how many records are a tf.train.SequenceExample.
        others: how many records are no tf.train.Example, and need not be one.
        cut: whether there is a place behind which nothing can be read.
        not_decoded: how many images and arrays of each kind could not be decoded here, though they may be whole.
        notes: what is unusual and no fault.

    >>> [file.path for file in verify("out/train-1.record", workers=1).files]
    ['out/train-1.record']
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
    good: Amount = field(default_factory=Amount)
    not_adjacent: int = 0
    bad: Amount = field(default_factory=Amount)
    sequences: int = 0
    others: int = 0
    cut: bool = False
    not_decoded: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

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
        """Add what lies after each fault and, for each kind, how many faults are not listed."""
        for place, fault in enumerate(self.faults):
            if fault.before:
                after = Amount(self.good.records - fault.before.records, self.good.bytes - fault.before.bytes)
                self.faults[place] = fault._replace(after=after)
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
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **({"not_decoded": dict(self.not_decoded)} if self.not_decoded else {}),
            **({"notes": self.notes} if self.notes else {}),
        }


class Salvaged(NamedTuple):
    """What was written of the good records of damaged files, and what of them it lacks.

    Attributes:
        path: the file with the good records.
        records: how many it has.
        bytes: its size.
        lost_records: how many records are lost; a stretch in which no record was found counts as one.
        lost_bytes: their size, as far as it is known.
        cut: the number of files whose rest cannot be read, so that it is unknown what it held.
        tars: the number of tars, which have no records.
    """

    path: str
    records: int
    bytes: int
    lost_records: int
    lost_bytes: int
    cut: int
    tars: int

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        lost = {"records": self.lost_records, "bytes": self.lost_bytes, "cut": self.cut, "tars": self.tars}
        return {"path": self.path, "records": self.records, "bytes": self.bytes, "lost": lost}


@dataclass(slots=True)
class Report:
    """What a verification found.

    Attributes:
        files: every file that was checked or is missing, in the order of their names or of the manifest.
        skipped: names of files in a directory that are neither tar nor TFRecord.
        manifest: a manifest in the directory, which was also skipped.
        salvaged: what was written of the good records, if that was asked for.

    >>> report = verify("out/train-manifest.json", workers=1)
    >>> report.ok, report.records
    (True, 24)
    """

    files: list[FileReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    manifest: str | None = None
    salvaged: Salvaged | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(report.faults for report in self.files)

    @property
    def records(self) -> int:
        """The number of records (in tars, samples) in all files."""
        return sum(report.records for report in self.files)

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes as stored."""
        return sum(report.bytes for report in self.files)

    def to_json(self) -> dict[str, Any]:
        """The document that `verify --json` prints."""
        whole = {"ok": self.ok, "files": [report.to_json() for report in self.files], "records": self.records}
        return whole if self.salvaged is None else {**whole, "salvaged": self.salvaged.to_json()}


def fault_of(error: SourceError, rest: str = "") -> Fault:
    """An error as a fault of its file; `rest` ends its message."""
    member = f"{error.member}: " if error.member else ""
    return Fault(error.kind, f"{member}{error.message}{rest}", None, error.offset)


def unreadable(error: SourceError) -> Fault:
    """The error of a file that cannot be read as its fault, which says what to do."""
    return fault_of(error, f"; {error.hint}" if error.hint else "")


def damage(error: DamagedShardError, *, last: bool = True) -> Fault:
    """Damage as a fault; with `last`, nothing after it can be read, which the message may say already."""
    said = not last or error.kind == "truncated" or (error.lost and error.lost.bytes)
    return fault_of(error, "" if said else "; the rest of the file cannot be read")
