"""Expectations and results of checks: faults of files, the losses that they cause, and reports in several formats."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.spec import __version__
from tar2tf_cli.structs import NamedTuple, dataclass, field

if TYPE_CHECKING:
    from tar2tf_cli.features.described import Expected

_MOST_FAULTS: Final = 1000

Messages: TypeAlias = Literal["example", "any"]
"""Whether each record must be a tf.train.Example, or may be any message."""


class Expectations(NamedTuple):
    """A manifest's or the user's expectations of all shards; none by default.

    Attributes:
        schema: the expectation of each feature, by name, or the names that samples of a tar may have; None for any.
        required: the names of features that every example, or of entries that every sample must have.
        messages: the kind of messages that records may be; None to require examples in each file whose first record is
            one.
        format: the format of the files.
        numbers: the numbers of the classes in a label map, by feature.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()
    messages: Messages | None = None
    format: str | None = None
    numbers: Mapping[str, Set[int]] = MappingProxyType({})


NO_EXPECTATIONS: Final = Expectations()
EXAMPLES: Final = Expectations(messages="example")


class Amount(NamedTuple):
    """A number of good records, and their size in bytes with framing."""

    records: int = 0
    bytes: int = 0


class Fault(NamedTuple):
    """One fault of a file.

    Attributes:
        kind: a short name of the kind of fault, such as "data_crc".
        message: a sentence without the record or offset.
        record: number of the record in the file, from 0.
        offset: byte offset in the decompressed TFRecord or tar; for a broken gzip stream, in the file as stored.
        lost: number of bytes from the offset on that belong to no good record; None if unknown, or if none are lost.
        before: the good records before the fault; None if unknown.
        after: the good records after the fault; None if unknown.
        key: the key of the faulty sample; None if unknown.

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
    key: str | None = None

    @property
    def place(self) -> str:
        """The location of the fault as far as it is known, such as `record 3, offset 180`."""
        named = {"record": self.record, "offset": self.offset}
        return ", ".join(f"{name} {number}" for name, number in named.items() if number is not None)

    def __str__(self) -> str:
        """Return location and message, such as `record 3, offset 180: the CRC of the record's data does not match`."""
        return f"{self.place}: {self.message}" if self.place else self.message

    def to_json(self) -> dict[str, object]:
        """Return the fault as plain JSON."""
        cost = {
            "lost": self.lost,
            "before": self.before and self.before._asdict(),
            "after": self.after and self.after._asdict(),
            "key": self.key,
        }
        known = {name: value for name, value in cost.items() if value is not None}
        return {"kind": self.kind, "record": self.record, "offset": self.offset, "message": self.message, **known}


@dataclass
class KeyLists:
    """The keys of a file's good and bad samples, for `convert --keys`.

    Attributes:
        good: the keys of samples without faults, in order.
        bad: the keys of samples with faults, as far as they are known.
        stem: the beginning of the keys of records without a key.
    """

    good: list[str] = field(default_factory=list)
    bad: dict[str, None] = field(default_factory=dict)
    stem: str = ""


@dataclass
class FileReport:
    """The results of checking one file.

    Attributes:
        path: path or URL of the file.
        format: detected from the content; None if it is neither a tar nor a TFRecord.
        records: number of complete records (in a tar, samples), as far as the file can be read.
        bytes: size of the file in bytes as stored.
        faults: the faults; at most a thousand of each kind, and one that says how many more there are.
        features: number of valid examples that have each feature.
        missing: whether the file does not exist.
        examined: whether the file was read to its end and every record was found.
        counts: number of faults of each kind, listed or not.
        good: the records without a fault; those with a wrong CRC are in `records`, too.
        not_adjacent: number of samples of a tar whose members are not adjacent, which is not a fault.
        bad: the records with a fault; a range in which no record was found counts as one.
        sequences: number of records that are a tf.train.SequenceExample.
        others: number of records that are not a tf.train.Example, and need not be one.
        cut: whether the end of the file could not be read.
        not_decoded: number of images and arrays of each kind that were not checked, because no decoder is installed.
        notes: descriptions of anything unusual that is not a fault.
        is_mixed: whether other messages were accepted because of the first record, but examples follow.
        keys: the keys of samples; None if they were not requested.
        unread: whether the file was not read, because it is not in the subset.
        must_regroup: whether the check ended at a repeated key, so that the samples must be regrouped.

    >>> [file.path for file in verify("out/train-1.record", workers=1).files]
    ['out/train-1.record']
    """

    path: str
    format: str | None = None
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
    is_mixed: bool = False
    keys: KeyLists | None = None
    unread: bool = False
    must_regroup: bool = False

    @property
    def status(self) -> str:
        """The status of the file: `ok`, `damaged` or `missing`."""
        return "missing" if self.missing else "damaged" if self.faults else "ok"

    def add(self, fault: Fault) -> None:
        """Add a fault to the report."""
        self.counts[fault.kind] += 1
        if self.keys and fault.key is not None:
            self.keys.bad[fault.key] = None
        if self.counts[fault.kind] <= _MOST_FAULTS:
            self.faults.append(fault)

    def add_damage(self, error: DamagedShardError, more: bool) -> None:
        """Add damage to the report; without `more`, nothing after it can be read."""
        self.add(damage(error, last=not more))
        self.cut = self.cut or not more

    def close(self) -> None:
        """Complete the report: add the amount of data after each fault, and the number of unlisted faults."""
        for place, fault in enumerate(self.faults):
            if fault.before:
                after = Amount(self.good.records - fault.before.records, self.good.bytes - fault.before.bytes)
                self.faults[place] = fault._replace(after=after)
        for kind, count in self.counts.items():
            if count > _MOST_FAULTS:
                self.faults.append(Fault(kind, f"and {count - _MOST_FAULTS:,} more of this kind"))

    def to_json(self) -> dict[str, object]:
        """Return the report as plain JSON."""
        return {
            "path": self.path,
            "status": self.status,
            "records": self.records,
            "bytes": self.bytes,
            "faults": [fault.to_json() for fault in self.faults],
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **({"not_decoded": dict(self.not_decoded)} if self.not_decoded else {}),
            **({"notes": self.notes} if self.notes else {}),
            **({"unread": True} if self.unread else {}),
        }


class Salvaged(NamedTuple):
    """The file with the good records of damaged files, and the losses.

    Attributes:
        path: the file with the good records.
        records: number of its records.
        bytes: its size.
        lost_records: number of lost records; a range in which no record was found counts as one.
        lost_bytes: size of the lost records, as far as it is known.
        cut: number of files whose end cannot be read, so that its records are unknown.
        tars: number of tars, which have no records.
        intact: number of files without a fault, whose records are in the new file, too.
    """

    path: str
    records: int
    bytes: int
    lost_records: int
    lost_bytes: int
    cut: int
    tars: int
    intact: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the salvaged file and its losses as plain JSON."""
        lost = {"records": self.lost_records, "bytes": self.lost_bytes, "cut": self.cut, "tars": self.tars}
        return {"path": self.path, "records": self.records, "bytes": self.bytes, "lost": lost}


@dataclass
class Report:
    """The results of a verification.

    Attributes:
        files: every file that was checked or is missing, in the order of their names or of the manifest.
        skipped: names of files in a directory that are neither tar nor TFRecord.
        manifest: a manifest in the directory, which was also skipped.
        salvaged: the file of good records; None without `salvage`.

    >>> report = verify("out/_train-manifest.json", workers=1)
    >>> report.ok, report.records
    (True, 24)
    """

    files: list[FileReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    manifest: str | None = None
    salvaged: Salvaged | None = None

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not any(report.faults for report in self.files)

    def keys(self, kind: Literal["good", "bad"]) -> Iterator[str]:
        """Iterate over the keys of good or bad samples; empty unless `verify` was called with `keys`."""
        listed = [file.keys for file in self.files if file.keys]
        bad = dict.fromkeys(key for keys in listed for key in keys.bad)
        return iter(bad) if kind == "bad" else (key for keys in listed for key in keys.good if key not in bad)

    @property
    def records(self) -> int:
        """The number of records (in tars, samples) in all files."""
        return sum(report.records for report in self.files)

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes as stored."""
        return sum(report.bytes for report in self.files)

    def to_json(self) -> dict[str, object]:
        """Return the document that `verify --json` prints."""
        whole = {"ok": self.ok, "files": [report.to_json() for report in self.files], "records": self.records}
        return whole if self.salvaged is None else {**whole, "salvaged": self.salvaged.to_json()}


def fault_of(error: SourceError, rest: str = "") -> Fault:
    """Convert an error to a fault of its file; `rest` is appended to the message."""
    member = f"{error.member}: " if error.member else ""
    return Fault(error.kind, f"{member}{error.message}{rest}", None, error.offset, key=error.key)


def unreadable(error: SourceError) -> Fault:
    """Convert the error of an unreadable file to a fault, with a next step."""
    return fault_of(error, f"; {error.hint}" if error.hint else "")


def damage(error: DamagedShardError, *, last: bool) -> Fault:
    """Convert damage to a fault; with `last`, its message says that nothing after it can be read."""
    said = not last or error.kind == "truncated" or (error.lost and error.lost.bytes)
    return fault_of(error, "" if said else "; the rest of the file cannot be read")


# --- Reports for a CI server ---


def write_report(report: Report, path: str) -> None:
    """Write a report; the suffix `.xml` means JUnit, `.sarif` SARIF, and any other the JSON of `verify --json`.

    Raises:
        SinkError: when the file cannot be written.
    """
    if path.lower().endswith(".xml"):
        data = _junit(report)
    else:
        document = _sarif(report) if path.lower().endswith((".sarif", ".sarif.json")) else report.to_json()
        import json

        data = json.dumps(document, indent=1).encode("utf-8", "backslashreplace")
    write_whole(path, [data, b"\n"])


# --- JUnit XML, valid by the schemas of Ant (https://github.com/windyroad/JUnit-Schema) and Jenkins ---


def _junit(report: Report) -> bytes:
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    root = Element("testsuites")
    faulty = sum(1 for file in report.files if file.faults)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    about = {"package": "tar2tf", "id": "0", "name": "tar2tf verify", "timestamp": now, "hostname": "localhost"}
    numbers = {"tests": f"{len(report.files)}", "failures": f"{faulty}", "errors": "0", "time": "0"}
    suite = SubElement(root, "testsuite", about | numbers)
    SubElement(SubElement(suite, "properties"), "property", name="version", value=__version__)
    for file in report.files:
        case = SubElement(suite, "testcase", classname="tar2tf.verify", name=_valid(file.path), time="0")
        if file.faults:
            lines = [_valid(f"{fault} ({fault.kind})") for fault in file.faults]
            failure = SubElement(case, "failure", type=_valid(file.faults[0].kind), message=lines[0])
            failure.text = "\n".join(lines)
    SubElement(suite, "system-out")
    SubElement(suite, "system-err")
    indent(root)
    data: bytes = tostring(root, encoding="UTF-8", xml_declaration=True)
    return data


def _valid(text: str) -> str:
    """Remove the characters that XML does not allow from text."""
    return (
        "".join(part if part >= " " or part in "\t\n" else repr(part)[1:-1] for part in text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )


# --- SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/ ---


def _sarif(report: Report) -> dict[str, object]:
    kinds = sorted({fault.kind for file in report.files for fault in file.faults})
    rules = [{"id": kind, "shortDescription": {"text": kind.replace("_", " ")}} for kind in kinds]
    results = [_result(file, fault, kinds) for file in report.files for fault in file.faults]
    driver = {"name": "tar2tf verify", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(file: FileReport, fault: Fault, kinds: list[str]) -> dict[str, object]:
    from urllib.parse import quote

    location: dict[str, Any] = {
        "artifactLocation": {"uri": quote(file.path, safe="/:@!$&'()*+,;=~-._", errors="surrogateescape")}
    }
    if fault.offset is not None:
        location["region"] = {"byteOffset": fault.offset, "byteLength": fault.lost or 0}
    return {
        "ruleId": fault.kind,
        "ruleIndex": kinds.index(fault.kind),
        "level": "error",
        "message": {"text": _valid(str(fault))},
        "locations": [{"physicalLocation": location}],
        "properties": {name: value for name, value in fault.to_json().items() if name not in ("kind", "message")},
    }
