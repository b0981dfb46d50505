"""Verifies shards: lists the files, checks each in a worker, and checks that the set is complete."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tar2tf_cli.checking.example_checker import expected
from tar2tf_cli.checking.files import read_files
from tar2tf_cli.checking.gaps import Gap, find_gaps
from tar2tf_cli.checking.verify_file import CheckContext, CheckFile, Fault, FileReport
from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.conversion.manifest_model import contradictions
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError, read_failed
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.open_shard import TarRules, list_files, nothing_found
from tar2tf_cli.inputs.paths import PathsSource, are_paths
from tar2tf_cli.spec.output_path import PathTemplate
from tar2tf_cli.spec.templates import SHARD_TEMPLATES, is_glob, is_numbered
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Folder, ObjectInfo, Source, open_source, read_with_folder
from tar2tf_cli.stores.directory import DirectorySource

__all__ = ["Report", "verify"]


@dataclass(slots=True)
class Report:
    """What a verification found.

    Attributes:
        files: every file that was checked or is missing, in the order of their names or of the manifest.
        skipped: names of files in a directory that are neither tar nor TFRecord.
        manifest: a manifest in the directory, which was also skipped.
    """

    files: list[FileReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    manifest: str | None = None

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
        return {"ok": self.ok, "files": [report.to_json() for report in self.files], "records": self.records}


def verify(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    rules: TarRules | None = None,
    workers: int | None = None,
    endpoint: str | None = None,
    events: Events | None = None,
) -> Report:
    """Check shards, or everything that a manifest lists.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, a URL of any of these, or a manifest by its path or URL.
        templates: which shards of the bucket; defaults to every tar and TFRecord.
        paths: whether bucket and templates are taken as files and folders if all of them exist.
        rules: how tars are read.
        workers: how many files are checked at once; defaults to the number of CPUs.
        endpoint: URL of the store that holds the bucket.
        events: notified of progress.

    Raises:
        SourceError: when there is nothing to check, or something cannot be read. Damage is a fault, not an error.
    """
    run = _Verification(rules or TarRules(), workers, events or Events())
    if paths and are_paths(bucket, templates):
        return run.paths((bucket, *templates))
    if document := _open_document(bucket, endpoint):
        if templates:
            raise UsageError("a manifest names its shards itself, so it takes no template")
        return run.manifest(document)
    return run.bucket(open_source(bucket, endpoint=endpoint), templates)


class _Verification:
    """One verification: its rules, its number of workers and its events."""

    def __init__(self, rules: TarRules, workers: int | None, events: Events) -> None:
        self._rules = rules
        self._workers = workers
        self._events = events

    def paths(self, paths: Sequence[str]) -> Report:
        """Check files and the contents of folders or, if all paths are manifests, what these list."""
        documents = list(filter(None, (_open_document(path, None) for path in paths)))
        if len(documents) < len(paths):
            return self.bucket(PathsSource(paths, every=True), (), by_folder=True)
        reports = [self.manifest(document) for document in documents]
        return Report([found for report in reports for found in report.files])

    def bucket(self, source: Source, templates: Sequence[str], *, by_folder: bool = False) -> Report:
        """Check the shards that match the templates or, without any, every file whose content is a shard.

        With `by_folder`, the shards of each folder are a separate series, and are missing only if not on disk.
        """
        inputs = list_files(source, templates)
        report = Report(self._check(CheckContext(source, self._rules), [CheckFile(item) for item in inputs]))
        names = _skip_others(source, templates, [item.name for item in inputs], report)
        if not report.files:
            raise nothing_found(source.bucket)
        if not templates or any(is_glob(name) or is_numbered(name) for name in templates):
            _add_gaps(source, names, report, by_folder=by_folder)
        return report

    def manifest(self, document: _Document) -> Report:
        """Check everything that a manifest lists, and that there are no other shards."""
        manifest = Manifest.from_bytes(document.data, document.path)
        if not manifest.shards:
            raise SourceError("the manifest lists no shards, so there is nothing to verify", shard=document.path)
        source, template = document.folder, manifest.template
        nearby = self._nearby(source, manifest, template)
        others = source.find([shard.path for shard in manifest.shards if shard.path not in nearby])
        found = [nearby.get(shard.path) or others.get(shard.path) for shard in manifest.shards]
        tasks = [CheckFile(item, shard) for item, shard in zip(found, manifest.shards, strict=True) if item]
        schema = expected(manifest.features)
        required = frozenset(name for name in schema if manifest.features[name].get("count") == manifest.records)
        checked = iter(self._check(CheckContext(source, self._rules, schema=schema, required=required), tasks))
        there = zip(found, manifest.shards, strict=True)
        report = Report([next(checked) if item else _missing(source, shard) for item, shard in there])
        if template:
            _look_around(source, manifest, template, nearby, report)
        whole = _check_sums(document.path, manifest, report)
        if whole.faults:
            report.files.append(whole)
        return report

    def _nearby(self, source: Source, manifest: Manifest, template: PathTemplate | None) -> dict[str, ObjectInfo]:
        """The files that may be a manifest's shards, by name; empty if they cannot be listed."""
        prefix = re.split("[<{]", template.text)[0] if template else ""
        if re.search(r"[*?\[\]{}%@\\]", prefix):  # it would not match itself literally
            prefix = ""
        deep = any("/" in shard.path for shard in manifest.shards)
        glob = f"{prefix[: prefix.rfind('/') + 1]}**/*" if deep else f"{prefix}*"
        try:
            return {item.name: item for item in source.list((glob,))}
        except (NothingFoundError, UsageError):  # only hidden files, or a store that cannot list
            return {}
        except SourceError as error:
            self._events.note(f"note: cannot check for shards that the manifest does not list: {error}")
            return {}

    def _check(self, context: CheckContext, tasks: list[CheckFile]) -> list[FileReport]:
        items = [task.item for task in tasks]
        reports: list[FileReport] = read_files(items, tasks, context, self._workers, self._events)
        for report in reports:
            if report.status == "ok":
                self._events.shard(report.path, report.records, report.bytes)
        return reports


# --- A bucket ---

_SUFFIXES: Final = (
    *(template.removeprefix("*") for template in SHARD_TEMPLATES),
    ".record",
    ".tfrecord",
    ".tfrecords",
)
_DIGITS: Final = re.compile(r"\d+")


def _skip_others(source: Source, templates: Sequence[str], names: list[str], report: Report) -> list[str]:
    """Skip files that are not shards and were not named by the user; returns the names of the others.

    A file with the name of a shard, or a name like those of the other shards, is kept even if its content is not that
    of a shard: it is reported as a fault.
    """
    shapes = {_shape(name) for name, found in zip(names, report.files, strict=True) if _is_shard(found)}
    kept = []
    for name, found in zip(names, report.files, strict=True):
        asked_for = source.asked_for(name, templates)
        if found.format == "manifest" and not asked_for:
            report.manifest = report.manifest or found.path
        elif asked_for or _is_shard(found) or _shape(name) in shapes or name.lower().endswith(_SUFFIXES):
            kept.append((name, found))
        else:
            report.skipped.append(name)
    report.files = [found for _, found in kept]
    return [name for name, _ in kept]


def _is_shard(found: FileReport) -> bool:
    return found.format in ("tar", "tfrecord")


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def _add_gaps(source: Source, names: list[str], report: Report, *, by_folder: bool = False) -> None:
    """Insert a fault for every gap in the numbering, in the place of the missing shards."""
    records = [name for name, found in zip(names, report.files, strict=False) if found.format == "tfrecord"]
    for gap in _gaps_by_folder(records) if by_folder else find_gaps(records):
        place = names.index(gap.before) if gap.before else len(names)
        names.insert(place, gap.first)
        report.files.insert(place, _gap(source, gap))


def _gaps_by_folder(paths: list[str]) -> Iterator[Gap]:
    """The gaps in each folder whose first shard does not exist on disk."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    return (gap for alike in folders.values() for gap in find_gaps(alike) if not os.path.exists(gap.first))


def _gap(source: Source, gap: Gap) -> FileReport:
    message = "the numbering lacks this shard"
    if gap.count > 1:
        message = f"the numbering lacks {gap.count:,} shards, up to {gap.last}"
    return FileReport(source.locate(gap.first), "tfrecord", faults=[Fault("gap", message)], missing=True)


# --- A manifest ---


class _Document(NamedTuple):
    """A manifest's path or URL, its bytes, and the folder that holds it."""

    path: str
    data: bytes
    folder: Folder


def _open_document(bucket: str, endpoint: str | None) -> _Document | None:
    """Open a manifest if the suffix of a path or URL is that of one; otherwise None.

    Raises:
        SourceError: when it cannot be read.
    """
    if is_remote(bucket):
        path = without_secrets(bucket)
        if not path.endswith(".json"):
            return None
        found = read_with_folder(bucket, endpoint=endpoint)
        if found is None:
            raise SourceError("the manifest does not exist", shard=path)
        return _Document(path, *found)
    if not (bucket.endswith(".json") and os.path.isfile(bucket)):
        return None
    try:
        with open(bucket, "rb") as file:
            return _Document(bucket, file.read(), DirectorySource(os.path.dirname(bucket) or "."))
    except OSError as error:
        raise read_failed(bucket, error) from None


def _missing(source: Source, shard: ShardEntry) -> FileReport:
    fault = Fault("missing", f"the file is not there; the manifest says {shard.records:,} records")
    return FileReport(source.locate(shard.path), "tfrecord", faults=[fault], missing=True)


def _look_around(
    source: Source, manifest: Manifest, template: PathTemplate, nearby: dict[str, ObjectInfo], report: Report
) -> None:
    """Add a fault for each gap in the manifest's list, and for each existing shard that is not in it."""
    names = [shard.path for shard in manifest.shards]
    regex, listed = template.regex(), set(names)
    if "number" in template.fields and "input" not in template.fields:  # with <input>, the numbers come from the inputs
        _add_gaps(source, names, report)
    for name, item in nearby.items():
        if name not in listed and regex.match(name):
            fault = Fault("stray", "the manifest does not list this shard")
            report.files.append(FileReport(source.locate(name), None, bytes=item.size or 0, faults=[fault]))


def _check_sums(path: str, manifest: Manifest, report: Report) -> FileReport:
    """Check the manifest itself: its totals against those of its shards, and its counts of features."""
    whole = FileReport(path, "manifest")
    for name, number in manifest.totals.items():
        claimed = manifest.claimed.get(name, number)
        if claimed != number:
            of = "inputs lists" if name == "inputs" else "shards make"
            whole.add(Fault("count", f"the manifest's total of {name} is {claimed}; its {of} {number}"))
    for contradiction in contradictions(manifest.features):
        whole.add(Fault("schema", contradiction))
    if report.ok:
        counts = sum((found.features for found in report.files), Counter[str]())
        for name, described in manifest.features.items():
            claimed = described.get("count", counts[name])
            if claimed != counts[name]:
                message = f"{counts[name]} examples have the feature {name!r}, and {claimed} in the manifest"
                whole.add(Fault("count", message))
    return whole
