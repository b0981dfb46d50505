"""Verifies an output against its source: every sample is in it, once, with the bytes that the manifest's spec makes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.checking.faults import Fault, FileReport
from tar2tf_cli.checking.files import FileContext, FileTask, read_files
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.conversion.manifest import Document, Manifest, differing
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.errors import UsageError, write_errors
from tar2tf_cli.flow.sample_flow import Reading
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.example_parser import decode
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.inputs.named import paths_source
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.stages import TarsSource
from tar2tf_cli.inputs.tar_samples import TarRules, put_together
from tar2tf_cli.ops.func import asking
from tar2tf_cli.samples.names import KEY
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import Reach
from tar2tf_cli.spec.yaml_file import build, overlaid
from tar2tf_cli.stores import ObjectInfo, Source

Origin: TypeAlias = tuple[str, Sequence[str], Reach]
"""What shards were made from: bucket and templates, and how the bucket is reached."""

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
            with asking(partial(_ask, run, together[0].path)):
                plan = _plan(together[0].manifest, *origin)
            _compare(run, plan, TarsSource(shards), reports)


def _ask(run: CheckRun, manifest: str, where: str) -> None:
    """Refuse to run code that a manifest names, which may be from someone else, unless that is allowed."""
    if not run.allow_func:
        hint = "read it first; with --allow-func it is run"
        raise UsageError(f"the manifest {manifest} names {where}, a function that would be run", hint=hint)
    run.events.note(f"note: {where} is run, as {manifest} names it")


def _check_alike(documents: Sequence[Document]) -> None:
    """Raise if manifests were not made with the same options, so that records are not made alike."""
    for document in documents[1:]:
        first, other = documents[0].manifest.spec, document.manifest.spec
        names = [name for name in differing(first, other) if not name.startswith(_OWN)]
        if names or "limit" in other:
            what = f"differ in {', '.join(names[:3])}" if names else "each have a limit"
            hint = "compare each by itself, or leave out the templates, to compare each with the inputs that it names"
            raise UsageError(f"these manifests cannot be compared as one, as their specs {what}", hint=hint)


def _compare(run: CheckRun, plan: Plan, shards: Source, reports: list[FileReport]) -> None:
    inputs = _Side(plan.source, TarRules(), items=plan.inputs, conversion=plan.work)
    outputs = _Side(shards, TarRules(), items=shards.list(()))
    with Digests() as expected, Digests() as actual:
        for side, digests in ((inputs, expected), (outputs, actual)):
            tasks = [FileTask(item, _digests_of) for item in side.items]
            read_files(tasks, side, run.workers, run.events, digests.add)
        limit = None if plan.conversion.shuffle else plan.work.limit
        found = compare(expected, actual, limit)
    if plan.work.limit is not None and plan.conversion.shuffle:
        found.missing.clear()  # which of them were drawn is not known
    _report(found, inputs, outputs, reports)


def _plan(manifest: Manifest, bucket: str, templates: Sequence[str], reach: Reach) -> Plan:
    given: dict[str, Any] = {"bucket": bucket, "no_sign_request": reach.get("no_sign_request", False)}
    own = templates or _own(manifest, bucket)
    if own is not None:
        given["template"] = tuple(own)
    spec = overlaid(manifest.spec, {"input": given, "retry_for": reach.get("retry_for")})
    return make_plan(build(spec), endpoint=reach.get("endpoint"), source=paths_source(bucket, templates))


def _own(manifest: Manifest, bucket: str) -> Sequence[str] | None:
    """The templates of a manifest's own inputs in a bucket; None for those of its spec.

    Standard input, a file, and a bucket with a template of its own take none. Inputs that were given as paths, such
    as `shards/a.tar`, may be in another folder now, under the last parts of their names.
    """
    if bucket == "-" or os.path.isfile(bucket) or split_template(bucket)[1]:
        return ()
    made_from, names = str(manifest.spec.get("input", {}).get("bucket", "-")), [item.name for item in manifest.inputs]
    paths = any(name == made_from or name.startswith(os.path.join(made_from, "")) for name in names)
    if made_from != "-" and (paths or names == [os.path.basename(made_from)]):
        return [_below(bucket, name) for name in names]
    return None


def _below(bucket: str, name: str) -> str:
    """The longest end of a path that is a file in a folder; its last part if there is none."""
    parts = name.split("/")
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return next((end for end in ends if os.path.isfile(os.path.join(bucket, end))), ends[-1])


# --- The two sides ---


class _Record(NamedTuple):
    """A record that is in a shard, or should be.

    Attributes:
        parts: its data; to be used before the next record.
        key: the key of its sample, if it should be in a shard.
        number: its number in the shard, if it is in one.
        offset: its offset there.
    """

    parts: Iterable[bytes]
    key: str | None = None
    number: int | None = None
    offset: int | None = None

    @property
    def features(self) -> dict[str, tuple[Any, list[Any]]]:
        """Kind and values of each feature; none if it is not an example."""
        try:
            return decode(b"".join(self.parts))
        except ValueError:
            return {}


@dataclass(slots=True, eq=False, repr=False)
class _Side(FileContext):
    """One of the two sides: the inputs, which are converted again, or the shards.

    Attributes:
        items: the inputs or shards.
        conversion: makes records of inputs; None for shards.
    """

    items: Sequence[ObjectInfo] = ()
    conversion: Conversion | None = None

    def records(self, item: ObjectInfo, *, regroup: bool) -> Iterator[_Record]:
        """The records of an input; those of a shard whose CRCs are right, as the others are faults found elsewhere."""
        if self.conversion:
            with Reading(self.conversion, self.source, item, on_bytes=self.on_bytes, regroup=regroup) as reading:
                for key, parts, _ in reading.records():
                    yield _Record(_inner(parts), key)
            return
        with OpenShard(self.source, item, self.on_bytes) as shard:
            reader = RecordReader(shard, shard.name)
            for offset, data in reader.undamaged():
                yield _Record((data,), None, reader.count, offset)

    def at(self, ids: Iterable[RecordId]) -> Iterator[tuple[str, _Record]]:
        """The records with these ids, in order, each with the path of its input or shard."""
        for number, group in groupby(ids, key=lambda one: one[0]):
            item, wanted = self.items[number], {one[1] for one in group}
            for record in put_together(partial(self._some, item, wanted)):
                yield self.source.locate(item.name), record

    def _some(self, item: ObjectInfo, wanted: set[int], regroup: bool) -> list[_Record]:
        records = islice(self.records(item, regroup=regroup), max(wanted) + 1)
        return [
            record._replace(parts=(b"".join(record.parts),))
            for number, record in enumerate(records)
            if number in wanted
        ]


def _inner(parts: Iterable[bytes]) -> Iterator[bytes]:
    """All parts but the first and the last, which are the framing."""
    rest = islice(parts, 1, None)
    held = next(rest)
    for part in rest:
        yield held
        held = part


def _digests_of(item: ObjectInfo, side: _Side) -> bytes:
    def read(regroup: bool) -> bytes:
        return b"".join(digest_of(record.parts) for record in side.records(item, regroup=regroup))

    return put_together(read)


# --- Reports ---


def _report(found: Differences, inputs: _Side, outputs: _Side, reports: list[FileReport]) -> None:
    """Add a fault for each difference; a missing and an unexpected record of the same key are one that changed."""
    by_path = {report.path: report for report in reports}

    def add(path: str, fault: Fault) -> None:
        if path not in by_path:
            by_path[path] = FileReport(path)
            reports.append(by_path[path])
        by_path[path].add(fault)

    missing = {record.key: (path, record) for path, record in inputs.at(found.missing[:_MOST])}
    for path, record in outputs.at(found.unexpected[:_MOST]):
        key = _key(record)
        source = missing.pop(key, None) if key is not None else None
        what = f"differs{_where(record, source[1])} from what {source[0]} makes" if source else ""
        kind = "changed" if source else "unexpected"
        add(path, _fault(kind, record, key, what or "was not made from a sample of the source"))
    for path, record in outputs.at(found.doubled[:_MOST]):
        add(path, _fault("doubled", record, _key(record), "is in the output more often than it should"))
    for path, record in missing.values():
        add(path, Fault("missing", f"the record of the sample {record.key!r} is not in the output"))
    for kind, ids in (("missing", found.missing), ("unexpected", found.unexpected), ("doubled", found.doubled)):
        if len(ids) > _MOST:
            reports[0].add(Fault(kind, f"and {len(ids) - _MOST:,} more of this kind in all shards"))


def _fault(kind: str, record: _Record, key: str | None, what: str) -> Fault:
    of = f"the record of the sample {key!r}" if key is not None else "the record"
    return Fault(kind, f"{of} {what}", record.number, record.offset)


def _key(record: _Record) -> str | None:
    """The key in a record of a shard, if it has one."""
    kind, values = record.features.get(KEY, (None, []))
    return values[0].decode("utf-8", "surrogateescape") if kind == "bytes" and len(values) == 1 else None


def _where(record: _Record, wanted: _Record) -> str:
    """The features in which a record differs from the one that should be there."""
    there, made = record.features, wanted.features
    names = sorted(name for name in there.keys() | made.keys() if there.get(name) != made.get(name))
    return f" in {', '.join(map(repr, names[:5]))}" if names else ""


# --- Digests of records in files, and which of two sets of them lacks what, in bounded memory ---


_SIZE: Final = 8
DIGESTS_AT_ONCE: Final = 1 << 17
"""How many digests are compared at once; each takes about 60 bytes of memory then."""

_Numbers: TypeAlias = NDArray[Any]

RecordId: TypeAlias = tuple[int, int]
"""A record: the number of its file, and its number in the file."""


@dataclass(slots=True)
class Differences:
    """Where two sets of records differ.

    Attributes:
        missing: records of the first set that the second lacks.
        unexpected: records of the second set that the first lacks.
        doubled: records of the second set that are there more often than in the first.
    """

    missing: list[RecordId] = field(default_factory=list)
    unexpected: list[RecordId] = field(default_factory=list)
    doubled: list[RecordId] = field(default_factory=list)


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return the digest of a record given in parts, 64 bits."""
    state = blake2b(digest_size=_SIZE)
    for part in parts:
        state.update(part)
    return state.digest()


class Digests:
    """The digests of the records in several files, in one temporary file without a name: no kill leaves it behind."""

    def __init__(self) -> None:
        with write_errors(tempfile.gettempdir()):
            self._file = tempfile.TemporaryFile(prefix="tar2tf-")  # noqa: SIM115 - closed by __exit__
        self._ranges: dict[int, tuple[int, int]] = {}
        self._count = 0

    def add(self, number: int, digests: bytes) -> None:
        """Add the digests of a file with this number, in any order of the numbers.

        Raises:
            SinkError: when there is no room for them.
        """
        with write_errors(tempfile.gettempdir()):
            self._file.write(digests)
        self._ranges[number] = self._count, self._count + len(digests) // _SIZE
        self._count += len(digests) // _SIZE

    def by_file(self, limit: int | None = None) -> list[_Numbers]:
        """The digests of each file, in order of the numbers, up to the first `limit` of all."""
        with write_errors(tempfile.gettempdir()):
            self._file.flush()
        whole = np.memmap(self._file, np.uint64, "r") if self._count else np.empty(0, np.uint64)
        found: list[_Numbers] = []
        for _, (start, end) in sorted(self._ranges.items()):
            found.append(whole[start : end if limit is None else min(end, start + limit)])
            limit = None if limit is None else limit - len(found[-1])
        return found

    def __enter__(self) -> Digests:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def compare(first: Digests, second: Digests, limit: int | None = None) -> Differences:
    """Compare the digests in two sets of files, regardless of their order.

    The digests are divided by their last bits into as many groups as are needed to hold one of them in memory.

    Args:
        first: those of the first set.
        second: those of the second set.
        limit: how many records of the first set count, from the beginning; None for all.
    """
    sides = first.by_file(limit), second.by_file()
    groups = 1 << (sum(len(digests) for side in sides for digests in side) // DIGESTS_AT_ONCE).bit_length()
    found = Differences()
    for group in range(groups):
        (wanted, wanted_at), (there, there_at) = (_group(side, group, groups) for side in sides)
        extra = _beyond(there, wanted)
        doubled = np.isin(there[extra], wanted)
        found.missing += _ids(wanted_at[_beyond(wanted, there)])
        found.unexpected += _ids(there_at[extra[~doubled]])
        found.doubled += _ids(there_at[extra[doubled]])
    for ids in (found.missing, found.unexpected, found.doubled):
        ids.sort()
    return found


def _group(files: Sequence[_Numbers], group: int, groups: int) -> tuple[_Numbers, _Numbers]:
    """The digests of one group, and the id of the record of each."""
    digests, ids = [np.empty(0, np.uint64)], [np.empty((0, 2), np.int64)]
    for file, every in enumerate(files):
        numbers = np.flatnonzero(every & np.uint64(groups - 1) == group)
        digests.append(every[numbers])
        ids.append(np.column_stack([np.full_like(numbers, file), numbers]))
    return np.concatenate(digests), np.concatenate(ids)


def _beyond(these: _Numbers, others: _Numbers) -> _Numbers:
    """The positions of surplus numbers: those beyond as many equal ones as there are among the others."""
    order = np.argsort(these, kind="stable")
    these, others = these[order], np.sort(others)
    before = np.arange(len(these)) - np.searchsorted(these, these)
    there = np.searchsorted(others, these, "right") - np.searchsorted(others, these)
    return order[before >= there]


def _ids(rows: _Numbers) -> list[RecordId]:
    return [(file, number) for file, number in rows.tolist()]
