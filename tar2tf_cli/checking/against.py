"""Verifies an output against its source: every sample is in it, once, with the bytes that the manifest's spec makes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tar2tf_cli.checking.faults import Fault, FileReport
from tar2tf_cli.checking.files import FileContext, FileTask, read_files
from tar2tf_cli.checking.record_digests import Differences, Place, compare, digest_of, write_digests
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.conversion.changes import differing
from tar2tf_cli.conversion.document import Document
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.errors import UsageError
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.formats.example_parser import decode
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.stages import TarsSource
from tar2tf_cli.inputs.tar_samples import TarRules, put_together
from tar2tf_cli.samples.names import KEY
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.reach import Reach
from tar2tf_cli.spec.yaml_file import build, overlaid
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["Origin", "verify_against"]

Origin: TypeAlias = tuple[str, Sequence[str], Reach]
"""What shards were made from: bucket and templates, and how the bucket is reached."""

T = TypeVar("T")

_OWN: Final = ("input.bucket", "input.template", "input.tars", "output.")
"""Keys of a spec that the parts of a dataset each have for themselves."""

_MOST: Final = 1000
"""About how many differences are described; the others are counted."""


def verify_against(run: CheckRun, documents: Sequence[Document], origin: Origin, reports: list[FileReport]) -> None:
    """Convert the source again in memory, and compare each record with those of the shards.

    Args:
        run: the run of checks.
        documents: manifests, which list the shards, and whose spec says how records are made. If the origin has
            templates, all shards together are compared with it; otherwise, each manifest's with what its spec names.
        origin: the source of the samples.
        reports: the reports of the shards, to which faults are added, and then those of the source's inputs.

    Raises:
        SourceError: when an input of the source cannot be read.
        SampleError: when a sample of it cannot be converted, and the spec does not skip such samples.
        UsageError: when the spec cannot be carried out here, such as one with a function that is not importable, or
            manifests that are compared together were made with different options.
    """
    _, templates, _ = origin
    if templates:
        _check_alike(documents)
    for together in [documents] if templates else [[document] for document in documents]:
        if shards := [(document.folder, item) for document in together for item in document.there()]:
            _compare(run, _plan(together[0].manifest, *origin), TarsSource(shards), reports)


def _check_alike(documents: Sequence[Document]) -> None:
    """Raise if manifests were not made with the same options, so that records are not made alike."""
    for document in documents[1:]:
        first, other = documents[0].manifest.spec, document.manifest.spec
        names = [name for name in differing(first, other) if not name.startswith(_OWN)]
        if names or "limit" in other:
            what = f"differ in {', '.join(names[:3])}" if names else "have a limit each"
            hint = "compare each by itself, or leave out the templates, to compare each with the inputs that it names"
            raise UsageError(f"these manifests cannot be compared as one, as their specs {what}", hint=hint)


def _compare(run: CheckRun, plan: Plan, shards: Source, reports: list[FileReport]) -> None:
    items = shards.list(())
    with tempfile.TemporaryDirectory(prefix="tar2tf-") as folder:
        expected = [os.path.join(folder, f"expected-{number}") for number in range(len(plan.inputs))]
        actual = [os.path.join(folder, f"actual-{number}") for number in range(len(items))]
        made = map(FileTask, plan.inputs, [partial(_write_expected, path) for path in expected])
        there = map(FileTask, items, [partial(_write_actual, path) for path in actual])
        read_files([*made], _Context(plan.source, TarRules(), conversion=plan.work), run.workers, run.events)
        read_files([*there], FileContext(shards, TarRules()), run.workers, run.events)
        limit = None if plan.conversion.shuffle else plan.work.limit
        found = compare(expected, actual, limit)
    if plan.work.limit is not None and plan.conversion.shuffle:
        found.missing.clear()  # which of them were drawn is not known
    if found:
        _report(found, plan, shards, items, reports)


def _plan(manifest: Manifest, bucket: str, templates: Sequence[str], reach: Reach) -> Plan:
    given: dict[str, Any] = {"bucket": bucket, "no_sign_request": reach.get("no_sign_request", False)}
    if templates:
        given["template"] = tuple(templates)
    spec = overlaid(manifest.spec, {"input": given, "retry_for": reach.get("retry_for")})
    return make_plan(build(spec), endpoint=reach.get("endpoint"))


# --- Digests ---


@dataclass(slots=True)
class _Context(FileContext):
    conversion: Conversion = field(kw_only=True)


def _write_expected(path: str, item: ObjectInfo, context: _Context) -> None:
    """Write the digests of the records that one input makes."""

    def write(regroup: bool) -> None:
        records = _made(context.conversion, context.source, item, context.on_bytes, regroup=regroup)
        write_digests(path, (digest_of(parts) for _, parts in records))

    put_together(write)


def _write_actual(path: str, item: ObjectInfo, context: FileContext) -> None:
    """Write the digests of the records in one shard."""
    records = _stored(context.source, item, context.on_bytes)
    write_digests(path, (digest_of((record.data,)) for record in records))


OnBytes: TypeAlias = "Callable[[int], None] | None"


def _made(
    conversion: Conversion, source: Source, item: ObjectInfo, on_bytes: OnBytes = None, *, regroup: bool = False
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The key and the data, in parts, of each record that an input makes."""
    with Reading(conversion, source, item, on_bytes=on_bytes, regroup=regroup) as reading:
        for key, parts, _ in reading.records():
            yield key, _inner(parts)


def _inner(parts: Iterable[bytes]) -> Iterator[bytes]:
    """All parts but the first and the last, which are the framing."""
    rest = islice(parts, 1, None)
    held = next(rest)
    for part in rest:
        yield held
        held = part


class _Record(NamedTuple):
    number: int
    offset: int
    data: bytes


def _stored(source: Source, item: ObjectInfo, on_bytes: OnBytes = None) -> Iterator[_Record]:
    """The records of a shard whose CRCs are right; the others are faults that are found elsewhere."""
    with OpenShard(source, item, on_bytes) as shard:
        reader = RecordReader(shard, shard.name)
        for offset, data in reader.undamaged():
            yield _Record(reader.count, offset, data)


# --- Reports ---


class _Sample(NamedTuple):
    """A sample whose record is missing."""

    input: str
    key: str
    data: bytes


def _report(
    found: Differences, plan: Plan, shards: Source, items: Sequence[ObjectInfo], reports: list[FileReport]
) -> None:
    """Add a fault for each difference; a missing and an unexpected record of the same key are one that changed."""
    by_path = {report.path: report for report in reports}

    def report_of(path: str) -> FileReport:
        if path not in by_path:
            by_path[path] = FileReport(path)
            reports.append(by_path[path])
        return by_path[path]

    missing = {sample.key: sample for sample in _missing_samples(found.missing[:_MOST], plan)}
    for kind, places in (("unexpected", found.unexpected), ("doubled", found.doubled)):
        for path, record in _records_at(places[:_MOST], shards, items):
            key = _key(record.data)
            sample = missing.pop(key, None) if key is not None and kind == "unexpected" else None
            report_of(path).add(_fault(kind, record, key, sample))
    for sample in missing.values():
        message = f"the record of the sample {sample.key!r} is not in the output"
        report_of(sample.input).add(Fault("missing", message))
    for kind, places in (("missing", found.missing), ("unexpected", found.unexpected), ("doubled", found.doubled)):
        if len(places) > _MOST:
            reports[0].add(Fault(kind, f"and {len(places) - _MOST:,} more of this kind in all shards"))


def _missing_samples(places: Sequence[Place], plan: Plan) -> Iterator[_Sample]:
    for number, group in groupby(places, key=lambda place: place[0]):
        yield from put_together(partial(_samples_at, plan, plan.inputs[number], {place[1] for place in group}))


def _samples_at(plan: Plan, item: ObjectInfo, wanted: set[int], regroup: bool) -> list[_Sample]:
    made = _some(_made(plan.work, plan.source, item, regroup=regroup), wanted)
    return [_Sample(plan.source.locate(item.name), key, b"".join(parts)) for key, parts in made]


def _records_at(places: Sequence[Place], shards: Source, items: Sequence[ObjectInfo]) -> Iterator[tuple[str, _Record]]:
    for number, group in groupby(places, key=lambda place: place[0]):
        wanted, item = {place[1] for place in group}, items[number]
        for record in _some(_stored(shards, item), wanted):
            yield shards.locate(item.name), record


def _some(items: Iterable[T], wanted: set[int]) -> Iterator[T]:
    return (item for number, item in zip(range(max(wanted) + 1), items, strict=False) if number in wanted)


def _key(data: bytes) -> str | None:
    """The key in a record, if it has one."""
    kind, values = _features(data).get(KEY, (None, []))
    return values[0].decode("utf-8", "surrogateescape") if kind == "bytes" and len(values) == 1 else None


def _features(data: bytes) -> dict[str, tuple[Any, list[Any]]]:
    try:
        return decode(data)
    except ValueError:
        return {}


def _fault(kind: str, record: _Record, key: str | None, sample: _Sample | None) -> Fault:
    of = f"the record of the sample {key!r}" if key is not None else "the record"
    if sample:
        there, wanted = _features(record.data), _features(sample.data)
        names = sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))
        where = f" in {', '.join(map(repr, names[:5]))}" if names else ""
        return Fault("changed", f"{of} differs{where} from what {sample.input} makes", record.number, record.offset)
    message = f"{of} is in the output more often than it should be"
    if kind == "unexpected":
        message = f"{of} is not what a sample of the source makes"
    return Fault(kind, message, record.number, record.offset)
