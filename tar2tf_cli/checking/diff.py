"""Comparison of two datasets of tars or TFRecords: samples that are missing, added, changed or reordered.

Each sample becomes a row of digests. Rows are matched in two steps, regardless of their order: first equal rows, then
the remaining ones by their keys. The digest of a sample is the sum of the digests of its entries, so that their order
does not matter; the digest of an entry depends on its name, the kind of its values, and the values, not on their
encoding in a record.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import Kind, Sample
from tar2tf_cli.checking.contents import MOST_LISTED, detect_kind, listed, shown
from tar2tf_cli.checking.files import CheckOptions, FileRun, FileTask, contents_of, declared_types, values_of
from tar2tf_cli.checking.matching import Digests, FileStarts, Spill, left_over, match
from tar2tf_cli.checking.rows import ROW, Details, EntryDigests, FileRows, RowsContext, details_in, rows_of
from tar2tf_cli.errors import SourceError, count, write_errors
from tar2tf_cli.features.decoder import Decoder
from tar2tf_cli.features.described import Described
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.inputs.open_shard import OpenShard, not_a_shard, unreadable
from tar2tf_cli.inputs.record_samples import numbered, stem_of
from tar2tf_cli.inputs.shard_set import ShardSet, nothing_found
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.structs import dataclass, field

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.conversion import PathText

DifferenceKind: TypeAlias = Literal["only_in_a", "only_in_b", "changed"]
KINDS: Final[tuple[DifferenceKind, ...]] = ("only_in_a", "only_in_b", "changed")
_MOST: Final = 1000
"""How many differences of each kind the JSON document lists; all of them are counted."""

_AT_ONCE: Final = 1 << 16


class SampleLocation(NamedTuple):
    """The location of a sample in a dataset.

    Attributes:
        path: path or URL of its shard.
        number: its number in the shard, from 0.
    """

    path: str
    number: int


class Difference(NamedTuple):
    """One sample that only one of two datasets has, or that differs between them.

    Attributes:
        kind: the kind of difference, such as `changed` or `only_in_a`.
        key: the sample's key; None for a record without `__key__`.
        a: location of the sample in the first dataset.
        b: location of the sample in the second dataset.
        entries: the kind of difference of each entry or feature that differs.

    >>> first = next(iter(diff("shards", "shards/photos-0.tar", workers=1)))
    >>> first.kind, first.key
    ('only_in_a', '0006')
    """

    kind: DifferenceKind
    key: str | None
    a: SampleLocation | None = None
    b: SampleLocation | None = None
    entries: Mapping[str, DifferenceKind] = {}

    def to_json(self) -> dict[str, object]:
        """Return the difference as plain JSON."""
        found = {"a": self.a and self.a._asdict(), "b": self.b and self.b._asdict()}
        entries = {"entries": dict(self.entries)} if self.entries else {}
        return {"kind": self.kind, "key": self.key, **{name: at for name, at in found.items() if at}, **entries}


@dataclass
class ComparedDataset:
    """One of two compared datasets, in a report.

    Attributes:
        path: the path given by the user.
        shards: paths of its shards.
        samples: number of samples.
        bytes: stored size in bytes.
        skipped: files that are neither tar nor TFRecord.
    """

    path: str
    shards: list[str] = field(default_factory=list)
    samples: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the dataset as plain JSON."""
        return {"path": self.path, "shards": len(self.shards), "samples": self.samples, "bytes": self.bytes}


class _Matches(NamedTuple):
    """The samples of two datasets that belong together, by their positions.

    Attributes:
        by_content: whether samples were matched by content.
        partner: the position in the second dataset of each sample of the first; -1 if that lacks it.
        equal: whether each sample of the first dataset is equal to its partner.
        only_b: positions of the samples that only the second dataset has.
    """

    by_content: bool
    partner: NDArray[np.int64]
    equal: NDArray[np.bool_]
    only_b: NDArray[np.int64]

    @classmethod
    def of(cls, a: _Side, b: _Side) -> _Matches:
        """Match the samples of two datasets: first those that are equal, then the others by their keys."""
        by_content = (a.keyless == len(a)) != (b.keyless == len(b)) and bool(len(a) and len(b))
        column = "content" if by_content else "whole"
        partner = match(a.column(column), b.column(column))
        equal = partner >= 0
        if not by_content:
            here, there = np.flatnonzero(~equal), np.flatnonzero(left_over(b.starts, partner))
            by_key = match([a.keys(~equal)], [b.keys(left_over(b.starts, partner))])
            partner[here[by_key >= 0]] = there[by_key[by_key >= 0]]
        return cls(by_content, partner, equal, np.flatnonzero(left_over(b.starts, partner)))

    def positions(self, kind: DifferenceKind) -> NDArray[np.int64]:
        """Return the positions of the samples of a kind of difference, in the first dataset unless it lacks them."""
        if kind == "only_in_b":
            return self.only_b
        missing = self.partner < 0
        return np.flatnonzero(missing if kind == "only_in_a" else ~missing & ~self.equal)


class Differences:
    """The differences of two datasets; see `diff`.

    Attributes:
        same: number of samples that are equal in both datasets.
        counts: number of differences of each kind.
        entries: for each entry or feature, the number of samples in which it changed, or is only in one of the
            datasets.
        out_of_order: number of samples that follow a sample in the first dataset, but precede it in the second; samples
            that only one dataset has are ignored.
        types: the types of features whose type in TensorFlow Datasets differs between the datasets.
        moved: the keys of the first two samples that are out of order, in the order of the first dataset.
        ignore_order: whether the order is ignored.

    >>> diff("shards/photos-0.tar", "shards", workers=1).same
    6
    """

    def __init__(self, a: _Side, b: _Side, rules: TarRules, *, ignore_order: bool) -> None:
        self._a, self._b = a, b
        self._rules = rules
        self.ignore_order: bool = ignore_order
        both = a.types.keys() & b.types.keys()
        self.types: dict[str, tuple[str, str]] = {
            name: (a.types[name], b.types[name]) for name in sorted(both) if a.types[name] != b.types[name]
        }
        self._matches = _Matches.of(a, b)
        self.same: int = int(np.count_nonzero(self._matches.equal))
        self.counts: dict[DifferenceKind, int] = {kind: len(self._matches.positions(kind)) for kind in KINDS}
        self.entries: dict[str, Counter[DifferenceKind]] = {}
        for difference in self.of("changed"):
            for name, what in difference.entries.items():
                self.entries.setdefault(name, Counter())[what] += 1
        self.out_of_order: int
        self.out_of_order, first = _out_of_order(self._matches.partner)
        self.moved: tuple[str | None, ...] | None = tuple(a.details(at)[0] for at in first) if first else None

    @property
    def a(self) -> ComparedDataset:
        """The first dataset."""
        return self._a.dataset

    @property
    def b(self) -> ComparedDataset:
        """The second dataset."""
        return self._b.dataset

    @property
    def by_content(self) -> bool:
        """Whether samples were matched by content, because the records of one dataset have no keys."""
        return self._matches.by_content

    @property
    def equal(self) -> bool:
        """Whether the datasets are equal."""
        return not (self.types or any(self.counts.values())) and (self.ignore_order or not self.out_of_order)

    def of(self, kind: DifferenceKind) -> Iterator[Difference]:
        """Iterate over the differences of a kind, in the order of the first dataset that has the samples."""
        a, b = self._a, self._b
        for at in self._matches.positions(kind).tolist():
            if kind == "only_in_a":
                yield Difference(kind, a.details(at)[0], a=a.location(at))
            elif kind == "only_in_b":
                yield Difference(kind, b.details(at)[0], b=b.location(at))
            else:
                other = int(self._matches.partner[at])
                (key, ours), (_, theirs) = a.details(at), b.details(other)
                yield Difference(kind, key, a.location(at), b.location(other), _differing(ours, theirs))

    def keys(self, kind: DifferenceKind) -> Iterator[str]:
        """Iterate over the keys of differing samples of a kind, in the form that `convert --keys` accepts."""
        side = self._b if kind == "only_in_b" else self._a
        for difference in self.of(kind):
            location = difference.b if kind == "only_in_b" else difference.a
            if difference.key is not None:
                yield difference.key
            elif location:
                yield numbered(side.stems.get(location.path) or stem_of(location.path), location.number)

    def values(
        self, side: Literal["a", "b"], locations: Sequence[SampleLocation]
    ) -> dict[SampleLocation, dict[str, str]]:
        """Read the values of samples of one dataset again, as text; empty for standard input.

        Values of a feature that a manifest or TensorFlow Datasets describes have its dtype and shape.

        Raises:
            SourceError: when a shard cannot be read again.
        """
        named = (self._a if side == "a" else self._b).named
        repeatable = named.source.capabilities.repeatable
        return values_at(named.source, locations, self._rules, named.described) if repeatable else {}

    def __iter__(self) -> Iterator[Difference]:
        return chain.from_iterable(map(self.of, KINDS))

    def to_json(self) -> dict[str, object]:
        """Return the document that `diff --json` prints: all counts, and the first thousand differences per kind."""
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
            **({"types": {name: [*pair] for name, pair in self.types.items()}} if self.types else {}),
            "moved": self.moved and list(self.moved),
            "differences": listed,
        }


def _out_of_order(partner: NDArray[np.int64]) -> tuple[int, tuple[int, int] | None]:
    """Count adjacent samples of the first dataset that are in reverse order in the second; return the first two.

    Args:
        partner: the position in the second dataset of each sample of the first; -1 if it is missing.
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


def _differing(ours: EntryDigests, theirs: EntryDigests) -> dict[str, DifferenceKind]:
    """Return the kind of difference of each entry that differs."""
    names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return {
        name: "only_in_b" if name not in ours else "only_in_a" if name not in theirs else "changed" for name in names
    }


def diff(
    a: PathText,
    b: PathText,
    *,
    ignore_order: bool = False,
    **options: Unpack[CheckOptions],
) -> Differences:
    """Compare two datasets, each of tars or of TFRecords, sample by sample.

    Samples are matched by key, and records without `__key__` by content and, if their content differs, by number. How
    samples are divided among shards does not matter. Between a tar and a TFRecord, entries are compared with the
    features of the same name, and text is parsed as numbers as `convert --type` would.

    Args:
        a: a directory, a template of files, a tar or TFRecord file, `-`, a URL of any of these, or a manifest. In a
            directory with a manifest, only the shards that it lists are compared.
        b: the second dataset, named in any of these ways.
        ignore_order: whether to ignore the order of the samples.
        options: options as for `inspect`: `rules`, `workers`, `endpoint`, `retry_for`, `no_sign_request` and `events`.

    Raises:
        SourceError: when there is nothing to compare, or a shard is damaged or cannot be read.
        SampleError: when a sample of a tar is faulty.
        UsageError: when a directory has several manifests, and so is not a single dataset.

    >>> diff("shards", "out/_train-manifest.json", workers=1).equal
    True
    """
    run = FileRun(**options)
    named = [_open(run, each) for each in (a, b)]
    with ExitStack() as stack:
        with write_errors(tempfile.gettempdir()):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tar2tf-"))
        sides = [stack.enter_context(closing(_Side(each))) for each in named]
        context = RowsContext(sides[0].named.source, run.rules, sources=[each.source for each in named])
        context.folder = folder
        for together in _reading_groups(sides):
            of = [(side, number) for side in together for number in range(len(side.items))]
            tasks = [FileTask(side.items[number], partial(rows_of, sides.index(side))) for side, number in of]
            run.read(tasks, context, partial(_add, of))
            context.numbers = {name: kind for side in together for name, kind in side.numbers.items()}
        for side in sides:
            side.finish()
        return Differences(sides[0], sides[1], run.rules, ignore_order=ignore_order)


def _add(of: Sequence[tuple[_Side, int]], task: int, file_rows: FileRows) -> None:
    side, number = of[task]
    side.add(number, file_rows)


def _open(run: FileRun, path: PathText) -> ShardSet:
    """Resolve a path to shards; a folder with a manifest means the manifest, which determines their order."""
    shards = run.shards(path)
    manifest = shards.folder_manifest()
    shards = run.shards(manifest) if manifest else shards
    shards.check_kinds()
    shards.check_totals()
    run.note_on(shards)
    return shards


class _Side:
    """One of two compared datasets: its files and, once all are read, the rows of its samples with details.

    Attributes:
        named: the named shards.
        stems: the beginning of the keys of records without a key, by the paths of files whose stem is not unique.
        numbers: the features of its records that hold numbers, and their kinds.
        dataset: the dataset.
        types: the types of the features in TensorFlow Datasets, by name, if its files describe the shards.
        starts: the positions at which the rows of each file start.
        keyless: number of samples without a key.
    """

    def __init__(self, named: ShardSet) -> None:
        self.named = named
        self.stems = {named.source.locate(name): stem for name, stem in named.stems.items()}
        self.numbers: dict[str, Kind | None] = {}
        self.dataset = ComparedDataset(without_secrets(named.bucket))
        self.types = declared_types(named)
        self._spilled_rows, self._spilled_details = Spill(), Spill()
        self._file_rows: dict[int, FileRows] = {}

    @property
    def items(self) -> Sequence[ObjectInfo]:
        """Its files."""
        return self.named.items

    def holds_tars(self) -> bool:
        """Whether the first shard is a tar; True for an input that can be read only once."""
        source = self.named.source
        if not source.capabilities.repeatable:
            return True
        for item in self.items:
            with OpenShard(source, item) as shard:
                if shard.kind:
                    return shard.kind.traits.holds == "sample"
        return False

    def add(self, number: int, file_rows: FileRows) -> None:
        """Add the rows of a file."""
        self._file_rows[number] = file_rows
        self.numbers |= file_rows.numbers
        if file_rows.is_shard:
            self._spilled_rows.take(number, file_rows.rows)
            self._spilled_details.take(number, file_rows.details)

    def finish(self) -> None:
        """Sort the rows of all shards into order.

        Raises:
            SourceError: when there are no shards, or a named file is not a shard.
        """
        source, dataset, failed = self.named.source, self.dataset, list[SourceError]()
        for number, item in enumerate(self.items):
            file_rows, path = self._file_rows[number], source.locate(item.name)
            if file_rows.is_shard:
                dataset.shards.append(path)
                dataset.samples += file_rows.samples
                dataset.bytes += file_rows.size
            else:
                failed.append(not_a_shard(path, item.size, file_rows.instead))
        if failed:
            raise unreadable(failed, "cannot be compared")
        dataset.skipped += self.named.left_out.others
        if not dataset.shards:
            raise nothing_found(source.bucket)
        self._rows, self._details = self._spilled_rows.by_file(ROW), self._spilled_details.by_file(np.uint8)
        self.starts = FileStarts.of(self._rows)
        self.keyless = sum(int(np.count_nonzero(rows["key"] == 0)) for rows in self._rows)

    def __len__(self) -> int:
        return len(self.starts)

    def column(self, name: str) -> list[Digests]:
        """Return one of the digests of each row, by file."""
        return [rows[name] for rows in self._rows]

    def keys(self, wanted: NDArray[np.bool_]) -> Digests:
        """Return the key digests of some rows; rows without a key are identified by their position."""
        parts = [rows["key"][here] for rows, here in zip(self._rows, self.starts.split(wanted), strict=True)]
        keys = np.concatenate([np.empty(0, np.uint64), *parts])
        return np.where(keys == 0, np.flatnonzero(wanted).astype(np.uint64), keys)

    def details(self, position: int) -> Details:
        """Return key and entries of a row."""
        file, number = self.starts.file_of(position)
        start = int(self._rows[file]["details"][number])
        return details_in(self._details[file][start:].data)

    def location(self, position: int) -> SampleLocation:
        """Return the location of a row's sample."""
        file, number = self.starts.file_of(position)
        return SampleLocation(self.dataset.shards[file], number)

    def close(self) -> None:
        """Delete the rows and details."""
        self._spilled_rows.close()
        self._spilled_details.close()


def _reading_groups(sides: Sequence[_Side]) -> list[list[_Side]]:
    """Group the datasets by when they are read: together, or TFRecords before the tars compared with them."""
    tars = [side for side in sides if side.holds_tars()]
    records = [side for side in sides if side not in tars]
    return [records, tars] if tars and records else [list(sides)]


# --- Values of single samples, read again as text for people ---


def values_at(
    source: Source, locations: Iterable[SampleLocation], rules: TarRules, described: Mapping[str, Described]
) -> dict[SampleLocation, dict[str, str]]:
    """Read the shortened values of samples, reading each shard once up to the last of its samples.

    Args:
        source: lists the shards.
        locations: the samples.
        rules: the rules for reading tars.
        described: the described features of records, by the names of their shards; values have the dtypes and shapes of
            the description.

    Raises:
        SourceError: when a shard cannot be read.
    """
    rules = rules._replace(regroup=True, heads_only=True)
    wanted: dict[str, set[int]] = {}
    for location in locations:
        wanted.setdefault(location.path, set()).add(location.number)
    items = {source.locate(item.name): item for item in source.list(())}
    found: dict[SampleLocation, dict[str, str]] = {}
    for path, numbers in wanted.items():
        features = described.get(items[path].name)
        how, decode = (rules._replace(heads_only=False), Decoder(features)) if features else (rules, None)
        with OpenShard(source, items[path]) as shard:
            for number, content in islice(contents_of(shard, how), max(numbers) + 1):
                if number in numbers:
                    values = values_of(content)
                    if decode and isinstance(content, bytes):
                        values |= _typed(decode, content, values)
                    found[SampleLocation(path, number)] = {name: _text(value) for name, value in values.items()}
    return found


def _typed(decode: Decoder, record: bytes, stored: Sample) -> Sample:
    """Return a record's features decoded by their description; empty if they do not match it."""
    try:
        return {name: value for name, value in decode(record).items() if name in stored}
    except ValueError:
        return {}


def _text(value: object) -> str:
    """Format a value as text; images and other bytes as kind and size."""
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if not isinstance(value, (bytes, StoredBytes)):
        return shown(value)
    head = value if isinstance(value, bytes) else value.head()
    look = detect_kind(head, len(value))
    if look.kind in ("text", "json"):
        return shown(head)
    shape = "x".join(map(str, look.shape))
    return f"{' '.join(filter(None, (look.kind, shape)))}, {count(len(value), 'byte')}"


def _array_text(array: NDArray[np.generic]) -> str:
    """Format dtype, shape and first values of an array; single texts and images like other values."""
    values = array.ravel()[:MOST_LISTED].tolist()
    if array.dtype == object:
        return listed([_text(value) for value in values], array.size)
    lengths = "x".join(map(str, array.shape))
    return f"{array.dtype} {lengths} {listed(map(shown, values), array.size)}"
