"""Verify an output against its source: it must contain each sample once, converted as the manifest's spec says."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial, reduce
from io import BytesIO
from itertools import accumulate, groupby, islice, pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KEY, RecordBatch
from tar2tf_cli.checking.faults import Fault, FileReport, KeyLists
from tar2tf_cli.checking.files import FileContext, FileTask
from tar2tf_cli.checking.matching import Digests, FileStarts, Spill, among, digest_of, left_over, match
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.conversion.repeats import DuplicateIndex
from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.feature_map import AUTO
from tar2tf_cli.features.labels import LabelMap
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan
from tar2tf_cli.flow.select import digest_in
from tar2tf_cli.formats.example import FRAMING, decode
from tar2tf_cli.formats.kernel import native
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import Accept, RecordReader
from tar2tf_cli.inputs.base import LocatedShard, MergedSource
from tar2tf_cli.inputs.manifest import Document, Manifest, differing
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.reader import attempts
from tar2tf_cli.inputs.record_samples import Forms, forms_in
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.ops.func import asking
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.spec.yaml_file import build, merge_specs
from tar2tf_cli.structs import dataclass

if TYPE_CHECKING:
    from tar2tf_cli.flow.group import Neighbours

Origin: TypeAlias = tuple[str, Sequence[str]]
"""The source of shards: bucket and templates."""

_OWN: Final = ("input.bucket", "input.template", "input.tars", "output.")
"""Keys of a spec that the parts of a dataset each have for themselves."""

_HEADER: Final = 12  # bytes of a record before its data

_MOST: Final = 1000
"""About how many differences are described; the others are counted."""


def verify_against(run: CheckRun, documents: Sequence[Document], origin: Origin, reports: list[FileReport]) -> None:
    """Convert the source again in memory, and compare each record with the records of the shards.

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
    _, templates = origin
    if templates:
        _check_alike(documents)
    for together in [documents] if templates else [[document] for document in documents]:
        shards = [LocatedShard(document.folder, item) for document in together for item in document.there()]
        if shards or any(not document.manifest.shards for document in together):
            with asking(partial(_ask, run, together[0].path)):
                plan = _plan(run, together[0].manifest, *origin)
            with plan.joined():
                _compare(run, plan, MergedSource(shards), reports)


def _ask(run: CheckRun, manifest: str, where: str) -> None:
    """Raise an error unless the user allows running code that a manifest names, as it may be from someone else."""
    if not run.checks.allow_func:
        hint = "read the function first, then pass --allow-func to run it"
        raise UsageError(f"the manifest {manifest} names {where}, a function that --against would run", hint=hint)
    run.events.note(f"note: {where} runs, because {manifest} names it")


def _check_alike(documents: Sequence[Document]) -> None:
    """Raise an error if manifests were made with different options, which would give different records."""
    for document in documents[1:]:
        first, other = documents[0].manifest.spec, document.manifest.spec
        names = [name for name in differing(first, other) if not name.startswith(_OWN)]
        names += ["labels"] if documents[0].manifest.labels != document.manifest.labels else []
        if names or "limit" in other:
            what = f"differ in {', '.join(names[:3])}" if names else "each have a limit"
            hint = "compare one manifest at a time, or leave out the templates to compare each with its own inputs"
            raise UsageError(f"these manifests cannot be compared together: their specs {what}", hint=hint)


def _compare(run: CheckRun, plan: Plan, shards: Source, reports: list[FileReport]) -> None:
    inputs = _ComparedFiles(plan.source, TarRules(), items=plan.inputs, conversion=plan.work, plan=plan)
    passing = None  # decoder that keeps tar entries
    if plan.work.output.traits.holds == "sample":
        passing = Conversion(Input("-", key_split=plan.work.input.key_split), Output("-", to=plan.work.output.to))
    outputs = _ComparedFiles(shards, TarRules(), items=shards.list(()), conversion=passing)
    with closing(Spill()) as expected, closing(Spill()) as actual:
        for side, digests in ((inputs, expected), (outputs, actual)):
            tasks = [FileTask(item, _digests_of) for item in side.items]
            run.read(tasks, side, digests.add)
        limit = None if plan.conversion.shuffle else plan.work.limit
        wanted = expected.by_file(np.uint64)
        stay = _first_of_each(wanted) if plan.conversion.drop_duplicates else None
        if stay:
            wanted = [columns.reshape(3, -1)[0][numbers] for columns, numbers in zip(wanted, stay, strict=True)]
        differences = compare(wanted, actual.by_file(np.uint64), limit)
        if stay:
            differences.missing[:] = [(file, int(stay[file][number])) for file, number in differences.missing]
    if plan.work.limit is not None and plan.conversion.shuffle:
        differences.missing.clear()  # it is unknown which records the conversion drew
    _report(differences, inputs, outputs, reports, None if run.checks.keys else _MOST)


def _plan(run: CheckRun, manifest: Manifest, bucket: str, templates: Sequence[str]) -> Plan:
    connection = run.connection
    given: dict[str, Any] = {"bucket": bucket, "no_sign_request": connection.get("no_sign_request", False)}
    own = templates or _own(manifest, bucket)
    if own is not None:
        given["template"] = tuple(own)
    spec = merge_specs(manifest.spec, {"input": given, "retry_for": connection.get("retry_for")})
    plan = make_plan(build(spec), endpoint=connection.get("endpoint"), paths=bool(templates))
    maps = {name: manifest.labels.get(name, {}) for name, labels in plan.conversion.labels.items() if labels == AUTO}
    forms = [forms_in(plan.source, item) for item in plan.undescribed]
    plan = plan._replace(
        labels={name: LabelMap(numbers) for name, numbers in maps.items()},
        forms=reduce(Forms.joined, forms) if forms else None,
    )
    listed, now = (spec.get("input", {}).get("keys_digest") for spec in (manifest.spec, plan.manifest().spec))
    if listed != now:
        hint = "restore the file, or convert again"
        raise UsageError("no longer lists the keys of this output", shard=plan.conversion.input.keys, hint=hint)
    return plan


def _own(manifest: Manifest, bucket: str) -> Sequence[str] | None:
    """Return templates for a manifest's own inputs in a bucket; None for the templates in its spec.

    Standard input, a file, and a bucket with a template of its own take none. Inputs that were given as paths, such
    as `shards/a.tar`, may be in another folder now, under the last parts of their names.
    """
    made_from, names = str(manifest.spec.get("input", {}).get("bucket", "-")), [item.name for item in manifest.inputs]
    is_file = names == [os.path.basename(bucket)] if is_remote(bucket) else os.path.isfile(bucket)
    if bucket == "-" or is_file or split_template(bucket)[1]:
        return ()
    paths = any(name == made_from or name.startswith(os.path.join(made_from, "")) for name in names)
    if made_from != "-" and (paths or names == [os.path.basename(made_from)]):
        return [_below(bucket, name) for name in names]
    return None


def _below(bucket: str, name: str) -> str:
    """Return the longest suffix of a path that exists in a folder; its last part if none does."""
    parts = name.split("/")
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return next((end for end in ends if os.path.isfile(os.path.join(bucket, end))), ends[-1])


# --- The two sides ---


class _ComparedRecord(NamedTuple):
    """A record that is in a shard, or that should be.

    Attributes:
        parts: its data; to be used before the next record.
        key: the key of its sample, if it should be in a shard, or is in a tar.
        number: its number in the shard, if it is in one.
        offset: its offset there.
        members: whether it consists of members of a tar.
        sample: the key of its sample in the input.
    """

    parts: Iterable[bytes]
    key: str | None = None
    number: int | None = None
    offset: int | None = None
    members: bool = False
    sample: str | None = None

    @property
    def features(self) -> dict[str, tuple[Any, list[Any]]]:
        """Return kind and values of each feature, or tar entry; empty if the record is no example."""
        if self.members:
            reader = TarReader(BytesIO(b"".join(self.parts)), "", need_end=False)
            return {name.removeprefix(f"{self.key}."): ("bytes", [data]) for name, data, _, _ in reader}
        try:
            return decode(b"".join(self.parts))
        except ValueError:
            return {}


@dataclass(eq=False, repr=False)
class _ComparedFiles(FileContext):
    """One side of the comparison: the inputs, which are converted again, or the shards.

    Attributes:
        items: the inputs or shards.
        conversion: makes records of inputs, or reads tars; None for shards of TFRecord.
        plan: gives what is joined to the samples of inputs; None for shards.
    """

    items: Sequence[ObjectInfo] = ()
    conversion: Conversion | None = None
    plan: Plan | None = None

    def attempts(self, item: ObjectInfo) -> Iterator[Iterator[_ComparedRecord]]:
        """Yield attempts to read the records of an input or shard; the last attempt is valid."""
        if not self.conversion:
            yield self._stored(item)
            return
        for reading in self._readings(item):
            yield _converted(reading, self.conversion)

    def digests(self, item: ObjectInfo) -> _RecordDigests:
        """Return the digests of the records of an input or shard."""
        made = _RecordDigests()
        if not self.conversion:
            for record in self._stored(item, made):
                made.add(record.parts)
            return made
        for reading in self._readings(item):
            made = _RecordDigests()
            made.add_converted(reading, self.conversion)
        return made

    def _readings(self, item: ObjectInfo) -> Iterator[InputFlow]:
        assert self.conversion
        plan = self.plan.read_plan() if self.plan else ReadPlan.of(self.conversion, self.source)

        def opened(regroup: bool) -> InputFlow:
            options = ReadOptions(regroup=regroup, neighbours=self._neighbours(item))
            return InputFlow(plan, item, options, on_bytes=self.on_bytes)

        return attempts(opened)

    def _neighbours(self, item: ObjectInfo) -> Neighbours | None:
        if not self.plan or not self.plan.group_lanes:
            return None
        from tar2tf_cli.flow.group import Neighbours  # only here, as few conversions group samples

        return Neighbours.of(self.items, self.plan.group_lanes, self.items.index(item))

    def _stored(self, item: ObjectInfo, accept: Accept | None = None) -> Iterator[_ComparedRecord]:
        """Iterate over a shard's records with correct CRCs; `verify` itself reports the others."""
        with OpenShard(self.source, item, self.on_bytes) as shard:
            reader = RecordReader(shard.content, shard.name, accept=accept)
            for offset, data in reader.undamaged():
                yield _ComparedRecord((data,), None, reader.count, offset)

    def at(self, ids: Iterable[RecordId]) -> Iterator[tuple[str, _ComparedRecord]]:
        """Yield the records with given ids, in order, each with the path of its input or shard."""
        for number, group in groupby(ids, key=lambda one: one[0]):
            item, wanted = self.items[number], {one[1] for one in group}
            some: list[_ComparedRecord] = []
            for records in self.attempts(item):
                some = [
                    record._replace(parts=(b"".join(record.parts),))
                    for number, record in enumerate(islice(records, max(wanted) + 1))
                    if number in wanted
                ]
            for record in some:
                yield self.source.locate(item.name), record


def _converted(reading: InputFlow, conversion: Conversion) -> Iterator[_ComparedRecord]:
    """Iterate over the records into which an input is converted again."""
    for number, (key, parts, _, written) in enumerate(islice(reading.records(), conversion.limit_of_each)):
        if reading.plan.keyed and written is not None:
            named = written.decode("utf-8", "surrogateescape")
            yield _ComparedRecord(parts, named, number, reading.offset, True, key)
        else:
            yield _ComparedRecord(_inner(parts), key, sample=key)


def _inner(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Return a record's parts without the first and last, which are its framing."""
    rest = islice(parts, 1, None)
    held = next(rest)
    for part in rest:
        yield held
        held = part


def _digests_of(item: ObjectInfo, side: _ComparedFiles) -> list[bytes]:
    """Return the digests of records and, if duplicates are skipped, of the values that identify duplicates."""
    made = side.digests(item)
    return [made.records.tobytes(), made.high.tobytes(), made.low.tobytes()]


class _RecordDigests:
    """The digests of a file's records, most of which the kernel computes.

    Attributes:
        records: a digest for each record.
        high: the upper half of the digest by which each sample is known, if duplicates are skipped.
        low: the lower half.
    """

    def __init__(self) -> None:
        self.records, self.high, self.low = array("Q"), array("Q"), array("Q")

    def add(self, parts: Iterable[bytes]) -> None:
        """Add a record."""
        self.records.append(digest_of(parts))

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Add intact framed records; return their end and number."""
        digests, stop = native.record_digests(data, start, end)
        self.records.frombytes(digests)
        return stop, len(digests) // 8

    def add_converted(self, reading: InputFlow, conversion: Conversion) -> None:
        """Add the records into which an input is converted again, up to the conversion's limit."""
        limit, keyed, previous = conversion.limit_of_each, reading.plan.keyed, None
        for made in reading.records_and_batches():
            if isinstance(made, RecordBatch):
                self._add_batch(made, keyed=keyed)
                samples = made.digests
            else:
                key, parts, _, _ = made
                self.add(parts if keyed else _inner(parts))
                samples, previous = [digest_in(key, previous)], key
            if conversion.drop_duplicates:
                self.high.extend(high for high, _ in samples)
                self.low.extend(low for _, low in samples)
            if limit is not None and len(self.records) >= limit:
                del self.records[limit:]
                return

    def _add_batch(self, batch: RecordBatch, *, keyed: bool) -> None:
        """Add a batch of records, or of samples as tar members."""
        kernel = None if keyed else native()
        if kernel:
            self.take(kernel, batch.data, 0, len(batch.data))
            return
        before, after = (0, 0) if keyed else (_HEADER, FRAMING - _HEADER)
        for start, end in pairwise(accumulate(array("Q", batch.sizes), initial=0)):
            self.add([batch.data[start + before : end - after]])


def _first_of_each(files: Sequence[Digests]) -> list[Digests]:
    """Return, for each file, the numbers of the records that are not duplicates of earlier ones."""
    seen = DuplicateIndex()
    return [np.flatnonzero(seen.among(high, low)) for _, high, low in (columns.reshape(3, -1) for columns in files)]


# --- Reports ---


def _report(
    differences: UnmatchedRecords,
    inputs: _ComparedFiles,
    outputs: _ComparedFiles,
    reports: list[FileReport],
    most: int | None,
) -> None:
    """Add a fault for each difference, up to a maximum per kind.

    A missing and an unexpected record of the same key are one that changed.
    """
    by_path = {report.path: report for report in reports}

    def add(path: str, fault: Fault) -> None:
        if path not in by_path:
            by_path[path] = FileReport(path, keys=None if most else KeyLists())
            reports.append(by_path[path])
        by_path[path].add(fault)

    missing = {record.key: (path, record) for path, record in inputs.at(differences.missing[:most])}
    for path, record in outputs.at(differences.unexpected[:most]):
        key = _key(record)
        source = missing.pop(key, None) if key is not None else None
        what = f"differs{_where(record, source[1])} from what {source[0]} makes" if source else ""
        kind = "changed" if source else "unexpected"
        add(path, _fault(kind, record, key, what or "was not made from a sample of the source"))
    for path, record in outputs.at(differences.doubled[:most]):
        add(path, _fault("doubled", record, _key(record), "is in the output more often than it should"))
    for path, record in missing.values():
        add(path, Fault("missing", f"the record of the sample {record.key!r} is not in the output", key=record.key))
    for kind, ids in (
        ("missing", differences.missing),
        ("unexpected", differences.unexpected),
        ("doubled", differences.doubled),
    ):
        if most and len(ids) > most:
            more, first = len(ids) - most, reports[0]
            first.counts[kind] += more
            first.faults.append(Fault(kind, f"and {more:,} more of this kind in all shards"))


def _fault(kind: str, record: _ComparedRecord, key: str | None, what: str) -> Fault:
    of = f"the record of the sample {key!r}" if key is not None else "the record"
    return Fault(kind, f"{of} {what}", record.number, record.offset, key=key)


def _key(record: _ComparedRecord) -> str | None:
    """Return the key of a shard's record, if it has one."""
    if record.key is not None:
        return record.key
    kind, values = record.features.get(KEY, (None, []))
    return values[0].decode("utf-8", "surrogateescape") if kind == "bytes" and len(values) == 1 else None


def _where(record: _ComparedRecord, wanted: _ComparedRecord) -> str:
    """Describe the features in which a record differs from the expected one."""
    there, made = record.features, wanted.features
    names = sorted(name for name in there.keys() | made.keys() if there.get(name) != made.get(name))
    return f" in {', '.join(map(repr, names[:5]))}" if names else ""


# --- Missing and unexpected records ---


RecordId: TypeAlias = tuple[int, int]
"""A record: the number of its file, and its number in the file."""


@dataclass
class UnmatchedRecords:
    """The records of two sets that have no counterpart in the other.

    Attributes:
        missing: records of the first set that the second lacks.
        unexpected: records of the second set that the first lacks.
        doubled: records of the second set that are there more often than in the first.
    """

    missing: list[RecordId]
    unexpected: list[RecordId]
    doubled: list[RecordId]


def compare(first: Sequence[Digests], second: Sequence[Digests], limit: int | None = None) -> UnmatchedRecords:
    """Compare the digests of two sets of files, ignoring their order.

    Args:
        first: those of the first set.
        second: those of the second set.
        limit: how many records of the first set count, from the beginning; None for all.
    """
    first = list(_limited(first, limit))
    wanted, there, matched = FileStarts.of(first), FileStarts.of(second), match(first, second)
    extra = left_over(there, matched)
    surplus = [digests[left] for digests, left in zip(second, there.split(extra), strict=True)]
    doubled = among(surplus, first)
    positions = np.flatnonzero(extra)
    return UnmatchedRecords(
        missing=[wanted.file_of(position) for position in np.flatnonzero(matched < 0).tolist()],
        unexpected=[there.file_of(position) for position in positions[~doubled].tolist()],
        doubled=[there.file_of(position) for position in positions[doubled].tolist()],
    )


def _limited(files: Sequence[Digests], limit: int | None) -> Iterator[Digests]:
    for digests in files:
        yield digests[:limit]
        limit = None if limit is None else max(limit - len(digests), 0)
