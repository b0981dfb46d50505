"""Datasets joined to the input samples by key: other shards, or the rows of tables.

A joined dataset is read once, to index the position of each of its samples; samples are then read by ranges. An index
takes 32 bytes of memory for each sample, which forked processes share.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.api.objects import ObjectInfo, Readable
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KEY, Batch, KeySplit, RowsJoined, Sample
from tar2tf_cli.errors import (
    DamagedShardError,
    SampleError,
    SourceError,
    Tar2tfError,
    UsageError,
    changed,
    did_you_mean,
    few,
)
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import HashTable, key_hash, key_hashes
from tar2tf_cli.formats.example import FRAMING, unframed
from tar2tf_cli.formats.streams import foreign, sniff
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.kinds.table import as_entry
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.parquet import KEY_COLUMNS, ParquetFiles, entries, key_text, key_texts
from tar2tf_cli.inputs.rows import Rows, TableFiles, has_table_suffix, is_named_as_table, no_rows
from tar2tf_cli.inputs.tar_index import TarSample, find_in_batches, find_samples
from tar2tf_cli.inputs.tar_samples import SeekableShard
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.spec.sample_keys import text_in
from tar2tf_cli.spec.templates import format_named
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.directory import DirectorySource
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from _typeshed import HasFileno

    from tar2tf_cli.api.shard_format import ShardFormat
    from tar2tf_cli.api.source import Ranges
    from tar2tf_cli.features.decoder import ExampleEntries
    from tar2tf_cli.inputs.shard_set import ShardSet
    from tar2tf_cli.ops.select import Select

_HASHED_AT_ONCE: Final = 1 << 12


class SampleRange(NamedTuple):
    """The byte range of a sample in a joined dataset.

    Attributes:
        file: the number of the shard.
        start: offset in the shard.
        size: size in bytes.
    """

    file: int
    start: int
    size: int


class Match(NamedTuple):
    """A sample of a joined dataset whose key equals that of an input sample.

    Attributes:
        row: the sample's number in the dataset's index.
        entries: the sample's entries.
    """

    row: int
    entries: Sample


class Joined:
    """A dataset that is joined to the input samples.

    Args:
        bucket: the name that the user gave.
        inputs: its shards, or the table.
        many: whether several samples may have one key.

    Attributes:
        bucket: the name that the user gave.
        inputs: its shards, or the table.
        key_name: the column or selection with the key; None for the keys of samples.
    """

    key_name: str | None

    def __init__(self, bucket: str, inputs: Sequence[ObjectInfo], many: bool) -> None:
        self.bucket = bucket
        self.inputs = inputs
        self._many = many
        self._ready: Joined | None = None  # an equal dataset that has the index
        self._table: HashTable | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ready": None, "_table": None}

    def scan(self) -> Iterator[array[int]]:
        """Yield four integers for each of several samples, of which `hashed` makes the index."""
        raise NotImplementedError

    @abstractmethod
    def read(self, place: SampleRange) -> Sample:
        """Return the sample in a byte range, with its key.

        Raises:
            SourceError: when the sample cannot be read, or the file is not the listed version.
        """

    def read_all(self, places: Sequence[SampleRange]) -> Iterable[Sample]:
        """Return the samples in several byte ranges, each as from `read`.

        Raises:
            Tar2tfError: when one of them cannot be read.
        """
        return list(map(self.read, places))

    @abstractmethod
    def locate(self, item: ObjectInfo) -> str:
        """Return the path or URL of one of the dataset's files."""

    def size(self) -> int:
        """Return the number of samples in the dataset."""
        return len(self._prepared()[1])

    def some_key(self) -> str:
        """Return any key of the dataset, for messages."""
        ready, table = self._prepared()
        key: str = ready.read(SampleRange(*table.row(0)[1:]))[KEY]
        return key

    def find(self, key: str) -> list[Match]:
        """Return the samples with a key, in dataset order; at most one unless `many` is set."""
        ready, table = self._prepared()
        return [*ready._matches_at(table, table.find(key_hash(key)), key)]

    def join(self, native: ModuleType, batch: Batch) -> RowsJoined | None:
        """Join to each sample of a batch the first sample with its key; None if that must be done one by one.

        Args:
            native: the kernel.
            batch: the samples.
        """
        ready, table = self._prepared()
        numbers = table.find_all(batch.hashes)
        if joined := ready.join_plain(table, numbers, batch):
            return joined
        matches = ready._first_matches(table, numbers, batch.keys())
        if (widened := batch.widened(native, [match and match.entries for match in matches])) is None:
            return None
        return [match and match.row for match in matches], widened

    def join_plain(self, table: HashTable, numbers: Sequence[int], batch: Batch) -> RowsJoined | None:
        """Return what `join` returns, without reading sample by sample; None if that cannot be done, as by default.

        Args:
            table: the index.
            numbers: for each key, the number in the index of the first sample with its hash; negative if there is none.
            batch: the samples with these keys.
        """
        return None

    def _first_matches(self, table: HashTable, numbers: Sequence[int], keys: Sequence[bytes]) -> list[Match | None]:
        """Return the first sample with each key, given the first row with the key's hash, or a negative number."""
        places = [SampleRange(*table.row(number)[1:]) for number in numbers if number >= 0]
        try:
            samples = iter(self.read_all(places))
        except Tar2tfError:  # one by one, the first faulty sample is reported
            samples = map(self.read, places)
        found = list[Match | None]()
        for number, key in zip(numbers, keys, strict=True):
            sample = next(samples) if number >= 0 else {KEY: None}
            if sample.pop(KEY) == key.decode():
                found.append(Match(number, sample))
            else:  # there is none, or its hash is that of another key
                found.append(next(self._matches_at(table, number, key.decode()), None))
        return found

    def _matches_at(self, table: HashTable, number: int, key: str) -> Iterator[Match]:
        """Iterate over the samples with a key; `number` is the first row with the key's hash, or negative."""
        if number < 0:
            return
        hashed = table.hashes[number]
        while number < len(table) and table.hashes[number] == hashed:
            sample = self.read(SampleRange(*table.row(number)[1:]))
            if sample.pop(KEY) == key:
                yield Match(number, sample)
            number += 1

    def _prepared(self) -> tuple[Joined, HashTable]:
        """Return the dataset that owns the index, and the index."""
        if self._ready is None:
            self.prepare()
        assert self._ready
        assert self._ready._table
        return self._ready, self._ready._table

    def prepare(self) -> None:
        """Build the index, so that processes forked from this one need not.

        Raises:
            SourceError: when an input cannot be read, or is damaged.
            UsageError: when a key occurs twice, or samples cannot be read by ranges.
        """
        identity = self._identity
        if identity not in _ready:
            try:
                self._table = self._index()
                if not len(self._table):
                    raise SourceError("has no samples to join", shard=without_secrets(self.bucket))
            except BaseException:
                self.close()
                raise
            _ready[identity] = self
        self._ready = _ready[identity]

    @property
    def _identity(self) -> tuple[object, ...]:
        """Return the values on which the index depends."""
        return self.bucket, self.key_name, self._many, *self.inputs

    def _index(self) -> HashTable:
        """Return the index: the hash of each key, and the byte range of its sample."""
        table = HashTable(self.hashed(), 4)
        for number in () if self._many else table.repeated():
            places = [SampleRange(*table.row(row)[1:]) for row in (number - 1, number)]
            key, other = (self.read(place)[KEY] for place in places)
            if key == other:
                first, second = (self.locate(self.inputs[place.file]) for place in places)
                where = f"in {first} and in {second}" if first != second else f"in {first} twice"
                hint = "--join-many list makes lists of their values, --join-many repeat a sample of each"
                raise UsageError(f"cannot be joined: the key {key!r} is {where}", shard=self.bucket, hint=hint)
        return table

    def hashed(self) -> array[int]:
        """Return four integers for each sample: the hash of its key, and its byte range."""
        rows = array("Q")
        for some in self.scan():
            rows += some
        return rows

    def close(self) -> None:
        """Discard the index, and close files."""
        _ready.pop(self._identity, None)
        self._table = self._ready = None

    def check(self, now: Joined) -> None:
        """Raise SourceError if an input has changed since another listing of the dataset."""
        known = {item.name: item[:3] for item in now.inputs}
        for item in self.inputs:
            if known.get(item.name) != item[:3]:
                raise changed(self.locate(item))

    def to_json(self) -> list[dict[str, object]]:
        """Return the dataset's inputs as a manifest lists them."""
        return [{"name": item.name, "size": item.size, "version": item.version} for item in self.inputs]


def _rows_of(samples: Iterable[tuple[str, SampleRange]]) -> Iterator[array[int]]:
    """Yield the rows of an index for samples, given the key and byte range of each."""
    found = iter(samples)
    while some := list(islice(found, _HASHED_AT_ONCE)):
        rows = array("Q", chain.from_iterable([(0, *place) for _, place in some]))
        rows[::4] = key_hashes([key for key, _ in some])
        yield rows


_ready: Final[dict[Any, Joined]] = {}
"""Datasets with an index in this process, so that a task from another machine uses the index of earlier tasks."""


class JoinedShards(Joined):
    """Shards joined to the input samples; compressed shards are decompressed into a temporary file.

    Args:
        shards: the shards.
        key_split: the dot at which the names of members are split into key and extension.
        key: the value in a sample that serves as its key; None for its own key.
        many: whether several samples may have one key.
    """

    def __init__(self, shards: ShardSet, key_split: KeySplit, key: Select | None = None, many: bool = False) -> None:
        super().__init__(shards.bucket, shards.items, many)
        self._key = key
        self.key_name = str(key.canonical()) if key else None
        self._source = shards.source
        self._described = shards.described
        self._key_split = key_split
        self._open = _OpenShards()

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_open": _OpenShards()}

    def close(self) -> None:
        super().close()
        for file in self._open.unpacked.values():
            file.close()
        self._open = _OpenShards()

    def locate(self, item: ObjectInfo) -> str:
        return self._source.locate(item.name)

    def scan(self) -> Iterator[array[int]]:
        for number, item in enumerate(self.inputs):
            with OpenShard(self._source, item) as shard:
                if not (kind := shard.kind):
                    what, hint = foreign(shard.head) or ("neither a tar nor a TFRecord", None)
                    if not shard.plain:  # perhaps a table, which needs random access
                        hint = "decompress it first"
                    raise SourceError(f"cannot be joined: it is {what}", shard=shard.name, hint=hint)
                stream: Readable = shard.seekable or shard
                if not shard.plain:
                    self._open.unpacked[number] = copy = _seekable_copy(shard)
                    stream = copy.view()
                self._open.kinds[number] = kind
                if kind.traits.carries_examples:
                    scan = self._records(stream, number)
                elif kind.traits.holds == "sample":
                    if not self._key:
                        yield from _rows_of_tar(number, find_in_batches(stream, shard.name, self._key_split))
                        continue
                    samples = find_samples(stream, shard.name, self._key_split)
                    scan = ((sample.key, SampleRange(number, sample.start, sample.size)) for sample in samples)
                else:
                    scan = self._units(stream, number, shard.name, kind)
                yield from _rows_of(self._keyed(scan, shard.name))

    def _keyed(self, scan: Iterator[tuple[str | None, SampleRange]], name: str) -> Iterator[tuple[str, SampleRange]]:
        """Iterate over the samples of a shard with the keys by which they are joined, given those that they have."""
        first = next(scan, None)
        if first is None:
            raise DamagedShardError("is empty, so nothing can be joined", kind="empty", shard=name)
        for key, place in chain((first,), scan):
            if self._key:
                key = self._selected_key(key, place)
            elif key is None:
                raise UsageError("cannot be joined: a record has no __key__", shard=name).at(offset=place.start)
            yield key, place

    def _selected_key(self, key: str | None, place: SampleRange) -> str:
        """Return the key of a sample that is joined by one of its values."""
        try:
            return str(self.read(place)[KEY])
        except SampleError as error:
            shard = self.locate(self.inputs[place.file])
            raise SourceError(error.message, shard=shard, key=key, offset=place.start, hint=error.hint) from None

    def _records(self, stream: Readable, file: int) -> Iterator[tuple[str | None, SampleRange]]:
        item = self.inputs[file]
        for offset, data in RecordReader(stream, self.locate(item)):
            key = None if self._key else key_of(self._entries(item)(data))
            yield key, SampleRange(file, offset, len(data) + FRAMING)

    def _units(
        self, stream: Readable, file: int, name: str, kind: ShardFormat
    ) -> Iterator[tuple[str | None, SampleRange]]:
        units, key, start = kind.units(stream, name), None, 0
        for offset, unit in units:
            if offset:
                yield key, SampleRange(file, start, offset - start)
            key, start = key_of(kind.sample(unit, name, self._key_split)), offset
        if units.offset:
            yield key, SampleRange(file, start, units.offset - start)

    def _entries(self, item: ObjectInfo) -> ExampleEntries:
        from tar2tf_cli.features.decoder import ExampleEntries

        entries = self._open.entries.get(item.name)
        if entries is None:
            entries = self._open.entries[item.name] = ExampleEntries(self._described.get(item.name, {}))
        return entries

    def _data(self, place: SampleRange) -> bytes:
        """Return the bytes of a sample."""
        item = self.inputs[place.file]
        if file := self._open.unpacked.get(place.file):
            data = os.pread(file.fileno(), place.size, place.start)
        else:
            data = self._open.ranges(self._source).read(item, place.start, place.size)
        if len(data) < place.size:
            raise changed(self.locate(item), place.start)
        return data

    def join_plain(self, table: HashTable, numbers: Sequence[int], batch: Batch) -> RowsJoined | None:
        native, found = kernel.native(), {*table.column(1, numbers)}
        if native is None or self._key or not all(self._open.kinds[file].traits.holds == "sample" for file in found):
            return None
        if (files := self._files(found)) is None:
            return None
        descriptors = {number: file.fileno() for number, file in files.items()}
        mark = b".." if self._key_split == "last" else b"."
        return batch.joined(native, table.data, array("q", numbers).tobytes(), [KEY], 0, mark, descriptors, [])

    def _files(self, numbers: Set[int]) -> Mapping[int, HasFileno] | None:
        """Return open files of several shards by their numbers; None if they cannot be read as files."""
        copies = {number: self._open.unpacked[number] for number in numbers if number in self._open.unpacked}
        stored = [number for number in numbers if number not in copies]
        inputs = [self.inputs[number] for number in stored]
        files = self._open.ranges(self._source).open_files(inputs) if inputs else []
        return None if files is None else {**copies, **dict(zip(stored, files, strict=True))}

    def read(self, place: SampleRange) -> Sample:
        item, data = self.inputs[place.file], self._data(place)
        name = self.locate(item)
        try:
            kind = self._open.kinds[place.file]
            if kind.traits.carries_examples:
                sample = self._entries(item)(unframed(data))
            else:
                sample = kind.sample(data, name, self._key_split)
            if self._key is None:
                sample = {**sample, KEY: key_of(sample)}
            return self._keyed_sample(sample)
        except DamagedShardError as error:
            raise error.at(shard=name, offset=place.start) from None

    def _keyed_sample(self, sample: Sample) -> Sample:
        """Return a sample keyed by the selected value, without the entry that holds only this value."""
        if self._key is None:
            return sample
        key = text_in(sample, self._key, "--join-on")
        whole_entry = None if self._key.gives_objects else self._key.ext_name
        return {**{name: value for name, value in sample.items() if name != whole_entry}, KEY: key}


def _rows_of_tar(file: int, samples: Iterable[TarSample | Batch]) -> Iterator[array[int]]:
    """Yield the rows of an index for the samples of a tar; those of a batch are adjacent."""
    for found in samples:
        if isinstance(found, Batch):
            native = kernel.native()
            assert native  # which found the batch
            yield array("Q", native.positions(found.rows, file, found.start, found.end))
        else:
            yield array("Q", (key_hash(found.key), file, found.start, found.size))


class _OpenShards:
    """Open files of joined shards in this process."""

    def __init__(self) -> None:
        self.kinds: dict[int, ShardFormat] = {}
        self.unpacked: dict[int, SeekableShard] = {}
        self.entries: dict[str, ExampleEntries] = {}
        self._ranges: tuple[int, Ranges] | None = None

    def ranges(self, source: Source) -> Ranges:
        """Return this process's reader of ranges, which forked processes do not share."""
        if self._ranges is None or self._ranges[0] != os.getpid():
            self._ranges = os.getpid(), source.ranges()
        return self._ranges[1]


def _seekable_copy(shard: OpenShard) -> SeekableShard:
    """Return a compressed shard as a copy that can be read by offset."""
    return SeekableShard(lambda: shard.content, shard.name, seekable=False)


class JoinedTables(Joined):
    """The rows of CSV or JSON Lines files joined to the input samples; each column except the key is an entry.

    Args:
        tables: the files.
        key: the column with the keys; by default `__key__` or `key`.
        many: whether several rows may have one key.

    Raises:
        UsageError: when a file has no such column.
    """

    key_name: str

    def __init__(self, tables: TableFiles, key: str | None, many: bool = False) -> None:
        super().__init__(tables.bucket, tables.list(), many)
        self._tables = tables
        self._rows: dict[int, Rows] = {}
        with self._tables.open(self.inputs[0]) as rows:
            columns = next(([*values] for _, values in rows.items()), [])
        if not columns:
            raise no_rows(self.locate(self.inputs[0]))
        self.key_name = _key_column(columns, key, self.locate(self.inputs[0]))

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_rows": {}}

    def close(self) -> None:
        super().close()
        for rows in self._rows.values():
            rows.close()
        self._rows = {}

    def locate(self, item: ObjectInfo) -> str:
        return self._tables.locate(item)

    def scan(self) -> Iterator[array[int]]:
        return _rows_of(self._samples())

    def _samples(self) -> Iterator[tuple[str, SampleRange]]:
        for file, item in enumerate(self.inputs):
            for (number, start, size), values in self._opened(file).items():
                key = values.get(self.key_name)
                if key is None:
                    raise SourceError(
                        f"has no key in {self.key_name!r}", shard=self.locate(item), member=f"row {number}"
                    )
                yield str(key), SampleRange(file, start, size)

    def hashed(self) -> array[int]:
        rows = array("Q")
        for file in range(len(self.inputs)):
            found = self._opened(file).hashed(self.key_name, file)
            if found is None:
                return super().hashed()
            rows += found
        return rows

    def join_plain(self, table: HashTable, numbers: Sequence[int], batch: Batch) -> RowsJoined | None:
        found = array("q", numbers).tobytes()
        return self._opened(0).joined(table.data, found, batch, self.key_name) if len(self.inputs) == 1 else None

    def read(self, place: SampleRange) -> Sample:
        try:
            values = self._opened(place.file).values((0, place.start, place.size))
            key = str(values.pop(self.key_name))
        except (SampleError, KeyError):  # the row was valid when it was indexed
            raise changed(self.locate(self.inputs[place.file]), place.start) from None
        return {KEY: key, **{name: as_entry(name, value) for name, value in values.items() if value is not None}}

    def _opened(self, file: int) -> Rows:
        if file not in self._rows:
            self._rows[file] = self._tables.open(self.inputs[file])
        return self._rows[file]


class JoinedParquet(Joined):
    """The rows of Parquet files joined to the input samples; each column except the key is an entry.

    Args:
        files: the files.
        key: the column with the keys; by default `__key__` or `key`.
        many: whether several rows may have one key.

    Raises:
        UsageError: when a file has no such column.
    """

    key_name: str

    def __init__(self, files: ParquetFiles, key: str | None, many: bool = False) -> None:
        super().__init__(files.bucket, files.list(), many)
        self._files = files
        columns = files.open(self.inputs[0]).schema_arrow.names if self.inputs else []
        self.key_name = _key_column(columns, key, files.bucket)

    def close(self) -> None:
        super().close()
        self._files.close()

    def locate(self, item: ObjectInfo) -> str:
        return self._files.locate(item)

    def hashed(self) -> array[int]:
        rows = array("Q")
        for file, group, number, keys in self._keys():
            columns = array("Q", (0, file, group, 0)) * len(keys)
            columns[::4], columns[3::4] = key_hashes(keys), array("Q", range(number, number + len(keys)))
            rows += columns
        return rows

    def _keys(self) -> Iterator[tuple[int, int, int, Sequence[str]]]:
        """Yield the keys of several rows, after the numbers of their file, row group, and first row in the group."""
        numbers = {item.name: number for number, item in enumerate(self.inputs)}
        for group in self._files.groups([self.key_name]):
            first = 0
            for values in self._files.column(group, self.key_name):
                if None in values:
                    where, row = self.locate(group.file), group.first + first + values.index(None) + 1
                    raise SourceError(f"has no key in {self.key_name!r}", shard=where, member=f"row {row}")
                yield numbers[group.file.name], group.number, first, key_texts(values)
                first += len(values)

    def read(self, place: SampleRange) -> Sample:
        (sample,) = self.read_all([place])
        return sample

    def read_all(self, places: Sequence[SampleRange]) -> Iterable[Sample]:
        samples = [Sample()] * len(places)
        for (file, group), numbers in _by_group(places).items():
            rows = self._files.rows_at(self.inputs[file], group, [places[number].size for number in numbers])
            for number, values in zip(numbers, rows, strict=True):
                samples[number] = {KEY: key_text(values.pop(self.key_name)), **entries(values)}
        return samples

    def join_plain(self, table: HashTable, numbers: Sequence[int], batch: Batch) -> RowsJoined | None:
        native, groups, names = kernel.native(), [], list[str]()
        for file, group in sorted({*zip(table.column(1, numbers), table.column(2, numbers), strict=True)}):
            columns = self._files.arrow_columns(self.inputs[file], group)
            if columns is None or (names and names != columns.names):
                return None
            names = columns.names
            groups.append((file, group, columns.rows, columns.columns))
        if native is None or not groups:
            return None
        return batch.joined(
            native, table.data, array("q", numbers).tobytes(), names, names.index(self.key_name), b"", {}, groups
        )


def _by_group(places: Sequence[SampleRange]) -> dict[tuple[int, int], list[int]]:
    """Return the numbers of places of rows by their file and row group."""
    groups = defaultdict[tuple[int, int], list[int]](list)
    for number, place in enumerate(places):
        groups[place.file, place.start].append(number)
    return groups


def _key_column(columns: Sequence[str], key: str | None, bucket: str) -> str:
    """Return the column that holds the keys.

    Raises:
        UsageError: when there is no such column.
    """
    if found := next((name for name in ([key] if key else KEY_COLUMNS) if name in columns), None):
        return found
    what = f"there is no column {key!r}{did_you_mean(key, columns)}" if key else "no column is called __key__ or key"
    hint = f"name the column with the keys with --join-key; columns: {few(columns, 8)}"
    raise UsageError(what, shard=bucket, hint=hint)


def is_table(path: str) -> bool:
    """Whether a path or URL names tables, by its suffix or, for a local file, because its content is not a shard.

    A local folder names tables if it contains no other readable files.
    """
    if os.path.isdir(path):
        names = [name for name in os.listdir(path) if not name.startswith((".", "_"))]
        return any(map(has_table_suffix, names)) and not any(map(format_named, names))
    if format_named(path.lower()) or not os.path.isfile(path):
        return is_named_as_table(path)
    source = DirectorySource(path)
    with OpenShard(source, source.list(())[0]) as shard:
        if shard.format is None and shard.plain is None:  # compressed, and perhaps damaged
            return has_table_suffix(path)
        return shard.format is None and shard.damage is None and not sniff(shard.head)
