"""Compares two datasets of tars or TFRecords: samples that only one has, those that changed and in what, their order.

Each sample becomes a row of digests. Rows are matched in two steps, whatever their order: first those that are equal,
then those that are left, by their keys. The digest of a sample is the sum of those of its entries, so that their order
does not matter; that of an entry depends on its name, the kind of its values, and the values, not on how a record
happens to encode them.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KEY, Feature, Kind, StoredValue
from tar2tf_cli.checking.files import (
    FileContext,
    FileTask,
    ReadOptions,
    Run,
    contents_of,
    features_of,
)
from tar2tf_cli.errors import DamagedShardError, SampleError, Tar2tfError, write_errors
from tar2tf_cli.features.feature_map import FeatureMap, give_types
from tar2tf_cli.formats.example import ParsedFeature, feature_in, int64_list
from tar2tf_cli.formats.files import StoredBytes, whole
from tar2tf_cli.formats.npy import read_array
from tar2tf_cli.formats.streams import foreign
from tar2tf_cli.inputs.open_shard import OpenShard, not_a_shard
from tar2tf_cli.inputs.shard_set import ShardSet, nothing_found
from tar2tf_cli.inputs.tar_samples import TarSamples
from tar2tf_cli.samples.grouping import key_of
from tar2tf_cli.spec.urls import without_secrets

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.features.feature_map import TypeName
    from tar2tf_cli.spec.conversion import PathText

DifferenceKind: TypeAlias = Literal["only_in_a", "only_in_b", "changed"]
KINDS: Final[tuple[DifferenceKind, ...]] = ("only_in_a", "only_in_b", "changed")
_MOST: Final = 1000
"""How many differences of each kind the JSON document lists; all of them are counted."""

_AT_ONCE: Final = 1 << 16


class Place(NamedTuple):
    """Where a sample is.

    Attributes:
        path: path or URL of its shard.
        number: its number there, from 0.
    """

    path: str
    number: int


class Difference(NamedTuple):
    """One sample that only one of two datasets has, or that both have, but not alike.

    Attributes:
        kind: which of these.
        key: its key; None for a record without `__key__`.
        a: where it is in the first dataset.
        b: where it is in the second.
        entries: what became of each entry or feature that differs.

    >>> first = next(iter(diff("shards", "shards/photos-0.tar", workers=1)))
    >>> first.kind, first.key
    ('only_in_a', '0006')
    """

    kind: DifferenceKind
    key: str | None
    a: Place | None = None
    b: Place | None = None
    entries: Mapping[str, DifferenceKind] = {}

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        places = {"a": self.a and self.a._asdict(), "b": self.b and self.b._asdict()}
        entries = {"entries": dict(self.entries)} if self.entries else {}
        return {"kind": self.kind, "key": self.key, **{name: at for name, at in places.items() if at}, **entries}


@dataclass(slots=True)
class Dataset:
    """One of two datasets that are compared.

    Attributes:
        path: as it was named.
        shards: its shards.
        samples: how many it has.
        bytes: its size as stored.
        skipped: files that are neither tar nor TFRecord.
    """

    path: str
    shards: list[str] = field(default_factory=list)
    samples: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"path": self.path, "shards": len(self.shards), "samples": self.samples, "bytes": self.bytes}


class Differences:
    """How two datasets differ; see `diff`.

    Attributes:
        a: the first dataset.
        b: the second dataset.
        same: how many samples are equal in both datasets.
        counts: how many differences there are of each kind.
        entries: for each entry or feature, in how many samples it changed, or is only in one of the two.
        by_content: whether samples were matched by content, because the records of one dataset have no keys.
        out_of_order: how many samples come after a sample in the first dataset, but before it in the second. Samples
            that only one dataset has do not count.
        moved: the keys of the first two such samples, in the order of the first dataset.
        ignore_order: whether the order makes no difference.

    >>> diff("shards/photos-0.tar", "shards", workers=1).same
    6
    """

    def __init__(self, a: _Side, b: _Side, *, ignore_order: bool) -> None:
        self._a, self._b = a, b
        self.a: Dataset = a.dataset
        self.b: Dataset = b.dataset
        self.ignore_order: bool = ignore_order
        self.by_content: bool = (a.keyless == len(a)) != (b.keyless == len(b)) and bool(len(a) and len(b))
        column = "content" if self.by_content else "whole"
        partner = match(a.column(column), b.column(column))
        equal = partner >= 0
        if not self.by_content:
            here, there = np.flatnonzero(~equal), np.flatnonzero(left_over(b.places, partner))
            by_key = match([a.keys(~equal)], [b.keys(left_over(b.places, partner))])
            partner[here[by_key >= 0]] = there[by_key[by_key >= 0]]
        self._only_a, self._only_b = np.flatnonzero(partner < 0), np.flatnonzero(left_over(b.places, partner))
        self._changed = np.flatnonzero((partner >= 0) & ~equal)
        self._partner = partner
        self.same: int = int(np.count_nonzero(equal))
        numbers = (len(self._only_a), len(self._only_b), len(self._changed))
        self.counts: dict[DifferenceKind, int] = dict(zip(KINDS, numbers, strict=True))
        self.entries: dict[str, Counter[DifferenceKind]] = {}
        for difference in self.of("changed"):
            for name, what in difference.entries.items():
                self.entries.setdefault(name, Counter())[what] += 1
        self.out_of_order: int
        self.out_of_order, first = _out_of_order(partner)
        self.moved: tuple[str | None, ...] | None = tuple(a.details(at)[0] for at in first) if first else None

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not any(self.counts.values()) and (self.ignore_order or not self.out_of_order)

    def of(self, kind: DifferenceKind) -> Iterator[Difference]:
        """The differences of a kind, in the order of the first dataset, or of the second where only that has them."""
        a, b = self._a, self._b
        if kind == "only_in_a":
            for at in self._only_a.tolist():
                yield Difference(kind, a.details(at)[0], a=a.place(at))
        elif kind == "only_in_b":
            for at in self._only_b.tolist():
                yield Difference(kind, b.details(at)[0], b=b.place(at))
        else:
            for at in self._changed.tolist():
                other = int(self._partner[at])
                (key, ours), (_, theirs) = a.details(at), b.details(other)
                yield Difference(kind, key, a.place(at), b.place(other), _differing(ours, theirs))

    def __iter__(self) -> Iterator[Difference]:
        return chain.from_iterable(map(self.of, KINDS))

    def to_json(self) -> dict[str, Any]:
        """The document that `diff --json` prints: all numbers, and the first thousand differences of each kind."""
        listed = [difference.to_json() for kind in KINDS for difference in islice(self.of(kind), _MOST)]
        return {
            "equal": self.equal,
            "a": self.a.to_json(),
            "b": self.b.to_json(),
            "same": self.same,
            **{str(kind): number for kind, number in self.counts.items()},
            "entries": {name: dict(counts) for name, counts in sorted(self.entries.items())},
            "by_content": self.by_content,
            "out_of_order": self.out_of_order,
            "moved": self.moved and list(self.moved),
            "differences": listed,
        }


def _out_of_order(partner: NDArray[np.int64]) -> tuple[int, tuple[int, int] | None]:
    """How many samples of the first dataset follow one that comes after them in the second; the first such two.

    Args:
        partner: where each sample of the first dataset is in the second; -1 if it is not there.
    """
    count, first, before, place = 0, None, -1, -1
    for start in range(0, len(partner), _AT_ONCE):
        block = partner[start : start + _AT_ONCE]
        here = np.flatnonzero(block >= 0)
        if len(here):
            places, here = np.append(place, block[here]), np.append(before, here + start)
            back = np.flatnonzero(places[1:] < places[:-1])
            if len(back) and first is None:
                first = int(here[back[0]]), int(here[back[0] + 1])
            count += len(back)
            before, place = int(here[-1]), int(places[-1])
    return count, first


def _differing(ours: Entries, theirs: Entries) -> dict[str, DifferenceKind]:
    """What became of each entry that differs."""
    names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return {
        name: "only_in_b" if name not in ours else "only_in_a" if name not in theirs else "changed" for name in names
    }


def diff(
    a: PathText,
    b: PathText,
    *,
    ignore_order: bool = False,
    **options: Unpack[ReadOptions],
) -> Differences:
    """Compare two datasets, each of tars or of TFRecords, sample by sample.

    Samples are matched by key, and records without `__key__` by content and, if their content differs, by number. How
    samples are divided among shards does not matter. Between a tar and a TFRecord, entries are compared with the
    features of the same name, and text is parsed as numbers as `convert --type` would.

    Args:
        a: a directory, a template of files, a tar or TFRecord file, `-`, a URL of any of these, or a manifest. In a
            directory with a manifest, only the shards that it lists are compared.
        b: the same for the second dataset.
        ignore_order: whether the order of the samples makes no difference.
        options: those of `inspect`: `rules`, `workers`, `endpoint`, `retry_for`, `no_sign_request` and `events`.

    Raises:
        SourceError: when there is nothing to compare, or a shard is damaged or cannot be read.
        SampleError: when a sample of a tar is faulty.
        UsageError: when a directory has several manifests, and so is not a single dataset.

    >>> diff("shards", "out/train-manifest.json", workers=1).equal
    True
    """
    run = Run(**options)
    named = [_open(run, each) for each in (a, b)]
    with ExitStack() as stack:
        with write_errors(tempfile.gettempdir()):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tar2tf-"))
        sides = [stack.enter_context(_Side(each)) for each in named]
        context = RowsContext(sides[0].named.source, run.rules, sources=[each.source for each in named])
        context.folder = folder
        for together in _in_turn(sides):
            of = [(side, number) for side in together for number in range(len(side.items))]
            tasks = [FileTask(side.items[number], partial(rows_of, sides.index(side))) for side, number in of]
            run.read(tasks, context, partial(_add, of))
            context.numbers = {name: kind for side in together for name, kind in side.numbers.items()}
        for side in sides:
            side.finish()
        return Differences(*sides, ignore_order=ignore_order)


def _add(of: Sequence[tuple[_Side, int]], task: int, file_rows: FileRows) -> None:
    side, number = of[task]
    side.add(number, file_rows)


def _open(run: Run, path: PathText) -> ShardSet:
    """What a path names; a folder with a manifest stands for it, as the order of the shards is then known."""
    shards = run.shards(path)
    manifest = shards.folder_manifest()
    shards = run.shards(manifest) if manifest else shards
    shards.check_kinds()
    shards.check_totals()
    run.note_on(shards)
    return shards


class _Side:
    """One of the two datasets: its files and, once all are read, the rows of its shards and their details.

    Attributes:
        named: the shards that were named.
        items: its files.
        numbers: the features of its records that hold numbers, and their kinds.
        dataset: the dataset.
        places: where each row is.
        keyless: how many samples have no key.
    """

    def __init__(self, named: ShardSet) -> None:
        self.named = named
        self.items = named.items
        self.numbers: dict[str, Kind | None] = {}
        self.dataset = Dataset(without_secrets(named.bucket))
        self._spilled_rows, self._spilled_details = Spill(), Spill()
        self._file_rows: dict[int, FileRows] = {}

    def holds_tars(self) -> bool:
        """Whether its first shard is a tar, as what can be read only once is taken to be."""
        source = self.named.source
        if not source.capabilities().repeatable:
            return True
        for item in self.items:
            with OpenShard(source, item) as shard:
                if shard.kind:
                    return shard.kind.traits.holds == "sample"
        return False

    def add(self, number: int, file_rows: FileRows) -> None:
        """Add what was read of a file."""
        self._file_rows[number] = file_rows
        self.numbers |= file_rows.numbers
        if file_rows.is_shard:
            self._spilled_rows.take(number, file_rows.rows)
            self._spilled_details.take(number, file_rows.details)

    def finish(self) -> None:
        """Put the rows of all shards in order.

        Raises:
            SourceError: when there is none, or a file is no shard although it was named.
        """
        source, dataset = self.named.source, self.dataset
        for number, item in enumerate(self.items):
            file_rows, path = self._file_rows[number], source.locate(item.name)
            if file_rows.is_shard:
                dataset.shards.append(path)
                dataset.samples += file_rows.samples
                dataset.bytes += file_rows.size
            else:
                raise not_a_shard(path, item.size, file_rows.instead)
        dataset.skipped += self.named.left_out.others
        if not dataset.shards:
            raise nothing_found(source.bucket)
        self._rows, self._details = self._spilled_rows.by_file(ROW), self._spilled_details.by_file(np.uint8)
        self.places = Places.of(self._rows)
        self.keyless = sum(int(np.count_nonzero(rows["key"] == 0)) for rows in self._rows)

    def __len__(self) -> int:
        return len(self.places)

    def column(self, name: str) -> list[Numbers]:
        """One of the digests of each row, by file."""
        return [rows[name] for rows in self._rows]

    def keys(self, wanted: NDArray[np.bool_]) -> Numbers:
        """The digests of the keys of some rows; those without a key are known by their number among all."""
        parts = [rows["key"][here] for rows, here in zip(self._rows, self.places.split(wanted), strict=True)]
        keys = np.concatenate([np.empty(0, np.uint64), *parts])
        return np.where(keys == 0, np.flatnonzero(wanted).astype(np.uint64), keys)

    def details(self, position: int) -> Details:
        """The key and the entries of a row."""
        file, number = self.places.file_of(position)
        start = int(self._rows[file]["details"][number])
        details: Details = pickle.loads(self._details[file][start:].data)
        return details

    def place(self, position: int) -> Place:
        """Where the sample of a row is."""
        file, number = self.places.file_of(position)
        return Place(self.dataset.shards[file], number)

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *exception: object) -> None:
        self._spilled_rows.close()
        self._spilled_details.close()


def _in_turn(sides: Sequence[_Side]) -> list[list[_Side]]:
    """The datasets as they are read: both at once, or TFRecords before the tars that they are compared with."""
    tars = [side for side in sides if side.holds_tars()]
    records = [side for side in sides if side not in tars]
    return [records, tars] if tars and records else [list(sides)]


# --- The rows of a file, which tasks make: digests of each sample and, as its details, its key and entries ---


ROW: Final = np.dtype([(name, "<u8") for name in ("whole", "content", "key", "details")])
"""A sample: digests of all of it, of its entries and of its key (0 if it has none), and the offset of its details."""

_PACKED: Final = struct.Struct("<4Q")

Entries: TypeAlias = dict[str, int]
"""The digest of each entry of a sample."""

Details: TypeAlias = tuple["str | None", Entries]
"""The key of a sample, if it has one, and its entries."""

_64_BITS: Final = (1 << 64) - 1
_COPIED: Final = 1 << 12  # bytes that are copied faster than a view of them is made
_LONG_VARINT: Final = re.compile(rb"[\x80-\xff]\x00|[\x80-\xff]{9}[\x02-\x7f]")


class FileRows(NamedTuple):
    """What was read of one file.

    Attributes:
        is_shard: whether it is a tar or TFRecord; otherwise there are no rows.
        instead: what else it is, and what to do about it, if that is known.
        samples: how many it has.
        size: its size in bytes as stored.
        rows: the path of a file with a row for each.
        details: the path of a file with their details.
        numbers: the features that hold numbers, or several values, and their kinds.
    """

    is_shard: bool
    instead: tuple[str, str] | None = None
    samples: int = 0
    size: int = 0
    rows: str = ""
    details: str = ""
    numbers: Mapping[str, Kind | None] = {}


@dataclass(slots=True, eq=False, repr=False)
class RowsContext(FileContext):
    """The context of the tasks that make rows.

    Attributes:
        sources: where the files of each dataset are.
        folder: where they write their files.
        numbers: the features that hold numbers in the TFRecords that tars are compared with, and their kinds.
    """

    sources: Sequence[Source] = ()
    folder: str = ""
    numbers: Mapping[str, Kind | None] = field(default_factory=dict)


def rows_of(dataset: int, item: ObjectInfo, context: RowsContext) -> FileRows:
    """Make the rows of a file of one of the datasets.

    Raises:
        SourceError: when it cannot be read, or is damaged.
        SampleError: when a sample of a tar is faulty.
    """
    source = context.sources[dataset]
    rows = _rows(source, item, context, regroup=False)
    if rows is None:
        rows = _rows(source, item, context, regroup=True)
        assert rows
    return rows


def _rows(source: Source, item: ObjectInfo, context: RowsContext, *, regroup: bool) -> FileRows | None:
    """Make the rows of a file; None if it ended at a key that appeared again, so that samples must be regrouped."""
    tars: list[TarSamples] = []

    def end(tar: TarSamples) -> None:
        tar.check_end()
        tars.append(tar)

    rules = context.rules._replace(regroup=regroup or context.rules.regroup)
    with (
        OpenShard(source, item, context.on_bytes) as shard,
        write_errors(context.folder),
        _Files(context.folder) as files,
    ):
        digester = Digester(context.numbers if shard.kind and shard.kind.traits.holds == "sample" else {})
        try:
            for _, content in contents_of(shard, rules, _raise, end, _raise):
                entries = content if isinstance(content, dict) else features_of(content)
                key = key_of(entries)
                files.add(key, *digester.digests(key, entries))
        except DamagedShardError as error:
            raise error.at(hint="run tar2tf verify to list all faults") from None
    if any(tar.must_regroup for tar in tars):
        return None
    if not shard.kind:
        return FileRows(False, foreign(shard.head))
    return FileRows(True, None, files.samples, shard.size, files.rows, files.details, digester.numbers)


def _raise(error: Tar2tfError, more: bool = False) -> None:
    raise error


def content_of(entries: Entries) -> int:
    """The digest of a sample without its key, whatever the order of its entries."""
    return sum(entries.values()) & _64_BITS


class Digester:
    """Makes the digests of entries.

    Args:
        wanted: the features that hold numbers in the records that samples of a tar are compared with: entries of these
            names are read as `convert --type` reads them, if that is possible.

    Attributes:
        numbers: the features of records that hold numbers, or several values, and their kinds.
    """

    def __init__(self, wanted: Mapping[str, Kind | None]) -> None:
        self._wanted = wanted
        self._seeds: dict[tuple[str, str | None], int] = {}
        self.numbers: dict[str, Kind | None] = {}

    def digests(self, key: str | None, entries: Mapping[str, Any]) -> tuple[int, Entries]:
        """The digest of a key, 0 if there is none, and those of the entries."""
        if self._wanted:
            entries = _as_features(entries, self._wanted)
        made = {name: self._digest(name, value) for name, value in entries.items() if name != KEY or key is None}
        return (0 if key is None else self._of_bytes(KEY, key.encode("utf-8", "surrogateescape")) or 1), made

    def _digest(self, name: str, value: Any) -> int:
        if type(value) is bytes:
            return self._of_bytes(name, value)
        if isinstance(value, StoredBytes):
            return digest_of(value.pieces(), self._seed(name, "bytes"))
        if value.kind == "bytes" and value.count == 1:
            ((start, end),) = value.runs
            data = value.message if end - start < _COPIED else memoryview(value.message)
            return self._of_bytes(name, data[start:end])
        self.numbers[name] = value.kind
        return digest_of(_parts(value), self._seed(name, f"{value.kind}, several"))

    def _of_bytes(self, name: str, data: bytes | memoryview) -> int:
        return int(xxhash.xxh3_64_intdigest(data, self._seed(name, "bytes")))

    def _seed(self, name: str, kind: str) -> int:
        seed = self._seeds.get((name, kind))
        if seed is None:
            seed = self._seeds[name, kind] = digest_of([f"{kind} {name}".encode("utf-8", "surrogateescape")])
        return seed


def _parts(feature: ParsedFeature) -> Iterator[bytes]:
    """The values of a feature, in one of the many forms in which they may be encoded."""
    parts = feature.parts()
    if feature.kind == "int64" and any(map(_LONG_VARINT.search, parts)):
        parts = _parsed(int64_list(feature.values())).parts()
    for part in parts:
        if feature.kind == "bytes":
            yield len(part).to_bytes(8, "little")
        yield part


# --- Entries of tars as the features that they are compared with ---


def _as_features(entries: Mapping[str, Any], wanted: Mapping[str, Kind | None]) -> dict[str, Any]:
    """The entries, with numbers in place of those that hold them as text or as an array, also one named `NAME.npy`."""
    made: dict[str, Any] = {}
    for name, value in entries.items():
        kind, base = wanted.get(name) if name != KEY else None, name.removesuffix(".npy")
        if f"{name}/shape" in wanted:
            made |= _array(name, value)
        elif base != name and not wanted.keys().isdisjoint((base, f"{base}/shape")):
            made |= {part: data for part, data in _array(base, value).items() if part in (base, *wanted)}
        elif kind == "int64" or kind == "float":
            made[name] = _numbers(name, value, "int64_list" if kind == "int64" else "float_list")
        else:
            made[name] = value
    return made


def _numbers(name: str, value: bytes | StoredBytes, kind: TypeName) -> Any:
    values: dict[str, Any] = {name: value}
    try:
        give_types(values, {name: kind})
    except SampleError:
        return value
    return _parsed(values[name])


def _array(name: str, value: bytes | StoredBytes) -> dict[str, Any]:
    try:
        features = FeatureMap({}).features({KEY: "", name: read_array(whole(value))})
    except (SampleError, ValueError):
        return {name: value}
    return {name: _parsed(made) for name, made in features.items() if name != KEY}


def _parsed(feature: bytes | StoredValue | Feature) -> Any:
    return feature_in(feature.message, 0, len(feature.message)) if isinstance(feature, Feature) else feature


# --- Files of rows ---


class _Files:
    """The two files that a task writes, so that neither it nor what it sends grows with the number of samples.

    Attributes:
        rows: path of the rows.
        details: path of their details.
        samples: how many were added.
    """

    def __init__(self, folder: str) -> None:
        self._offset = self.samples = 0
        (rows, self.rows), (details, self.details) = tempfile.mkstemp(dir=folder), tempfile.mkstemp(dir=folder)
        self._rows, self._details = os.fdopen(rows, "wb"), os.fdopen(details, "wb")

    def add(self, key: str | None, key_digest: int, entries: Entries) -> None:
        """Add a sample."""
        content = content_of(entries)
        self._rows.write(_PACKED.pack((content + key_digest) & _64_BITS, content, key_digest, self._offset))
        details = pickle.dumps((key, entries), pickle.HIGHEST_PROTOCOL)
        self._details.write(details)
        self._offset += len(details)
        self.samples += 1

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *exception: object) -> None:
        self._rows.close()
        self._details.close()


# --- Digests of many files, and which of two sets of them have which in common, in bounded memory ---

DIGESTS_AT_ONCE: Final = 1 << 17
"""How many digests are compared at once; each takes about 60 bytes of memory then."""

_PIECE: Final = 1 << 20

Numbers: TypeAlias = NDArray[Any]
"""Digests, as unsigned 64-bit integers."""


def digest_of(parts: Iterable[bytes], seed: int = 0) -> int:
    """Return the digest of a value given in parts, 64 bits (XXH3); it is no proof against one who wants two alike."""
    state = xxhash.xxh3_64(seed=seed)
    for part in parts:
        state.update(part)
    return int(state.intdigest())


class Spill:
    """What is known of several files, in one temporary file without a name: no kill leaves it behind."""

    def __init__(self) -> None:
        with write_errors(tempfile.gettempdir()):
            self._file = tempfile.TemporaryFile(prefix="tar2tf-")  # noqa: SIM115 - closed by __exit__
        self._ranges: dict[int, tuple[int, int]] = {}
        self._end = 0
        self._whole: Numbers | None = None

    def add(self, number: int, parts: Iterable[bytes]) -> None:
        """Add what belongs to the file with this number, in any order of the numbers.

        Raises:
            SinkError: when there is no room for it.
        """
        start, self._whole = self._end, None
        with write_errors(tempfile.gettempdir()):
            for part in parts:
                self._file.write(part)
                self._end += len(part)
        self._ranges[number] = start, self._end

    def take(self, number: int, path: str) -> None:
        """Add what a task wrote to a file, and remove that."""
        with open(path, "rb") as file:
            self.add(number, iter(partial(file.read, _PIECE), b""))
        os.unlink(path)

    def of(self, number: int) -> Numbers:
        """The bytes that belong to a file."""
        if self._whole is None:
            with write_errors(tempfile.gettempdir()):
                self._file.flush()
            self._whole = np.asarray(np.memmap(self._file, np.uint8, "r")) if self._end else np.empty(0, np.uint8)
        start, end = self._ranges.get(number, (0, 0))
        return self._whole[start:end]

    def by_file(self, dtype: Any) -> list[Numbers]:
        """Those of all files as arrays of a dtype, in order of the numbers."""
        return [self.of(number).view(dtype) for number in sorted(self._ranges)]

    def close(self) -> None:
        """Close the file; what `of` returned stays readable."""
        self._file.close()

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Places(NamedTuple):
    """Where each of the digests of several files is: the position of the first of each file among all of them."""

    starts: Numbers

    @classmethod
    def of(cls, files: Sequence[Numbers]) -> Places:
        """The places of the digests in these files."""
        return cls(np.cumsum([0, *map(len, files)]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def split(self, every: NDArray[Any]) -> list[NDArray[Any]]:
        """Divide an array with a value for each digest by file."""
        return [every[start:end] for start, end in pairwise(self.starts.tolist())]

    def file_of(self, position: int) -> tuple[int, int]:
        """The number of the file at a position among all digests, and the number in that file."""
        file = int(np.searchsorted(self.starts, position, "right")) - 1
        return file, position - int(self.starts[file])


def match(first: Sequence[Numbers], second: Sequence[Numbers]) -> NDArray[np.int64]:
    """Find for each digest of the first files an equal one of the second files. Each is used once.

    Equal ones are matched in their order. Returns positions among all digests of the second files; -1 for none.
    """
    matched = np.full(sum(map(len, first)), -1, np.int64)
    for (these, here), (others, there) in _groups(first, second):
        order, other_order = np.argsort(these, kind="stable"), np.argsort(others, kind="stable")
        these, others = these[order], others[other_order]
        before = np.arange(len(these)) - np.searchsorted(these, these)
        place = np.searchsorted(others, these) + before
        has = place < np.searchsorted(others, these, "right")
        matched[here[order[has]]] = there[other_order[place[has]]]
    return matched


def among(first: Sequence[Numbers], second: Sequence[Numbers]) -> NDArray[np.bool_]:
    """Whether each digest of the first files is also one of the second files, however often."""
    is_among = np.zeros(sum(map(len, first)), np.bool_)
    for (these, here), (others, _) in _groups(first, second):
        is_among[here] = np.isin(these, others)
    return is_among


def left_over(places: Places, matched: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of the second files' digests is none of those that were matched."""
    left = np.ones(len(places), np.bool_)
    left[matched[matched >= 0]] = False
    return left


_Group: TypeAlias = tuple[Numbers, Numbers]


def _groups(first: Sequence[Numbers], second: Sequence[Numbers]) -> Iterator[tuple[_Group, _Group]]:
    """Divide digests by their last bits into as many groups as are needed to hold one of them in memory."""
    count = 1 << (sum(map(len, (*first, *second))) // DIGESTS_AT_ONCE).bit_length()
    for group in range(count):
        yield _group(first, group, count), _group(second, group, count)


def _group(files: Sequence[Numbers], group: int, groups: int) -> _Group:
    """The digests of one group, and the position of each among all."""
    digests, positions, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for every in files:
        numbers = np.flatnonzero(every & np.uint64(groups - 1) == group)
        digests.append(every[numbers])
        positions.append(numbers + start)
        start += len(every)
    return np.concatenate(digests), np.concatenate(positions)
