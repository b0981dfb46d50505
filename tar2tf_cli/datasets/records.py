"""TFRecord shards and tars as a sequence of samples with random access, without TensorFlow."""

from __future__ import annotations

import copy
import os
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

import numpy as np

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.shard_format import FormatTraits
from tar2tf_cli.api.source import Ranges
from tar2tf_cli.api.values import KEY, KeySplit, Sample
from tar2tf_cli.datasets.batches import Batches, BatchOptions, ColumnReader, stacked
from tar2tf_cli.datasets.indexes import Indexes, Layout, Places, opened_shard
from tar2tf_cli.datasets.process_resources import DecompressedRanges, ProcessResources, RegroupedRanges
from tar2tf_cli.datasets.schema import (
    UNSET,
    Default,
    FeatureForm,
    SchemaFinder,
    UniformValues,
    check_default,
    manifest_schema,
)
from tar2tf_cli.datasets.shards import DatasetShard, Paths, find_shards, paths_in, shards_of
from tar2tf_cli.errors import DamagedShardError, SampleError, UsageError, count
from tar2tf_cli.events import Events
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.example import parse
from tar2tf_cli.formats.tfrecord import MEMBERS, ShardIndex
from tar2tf_cli.inputs.tar_index import entry_names
from tar2tf_cli.ops.rules import accepted, one_of, optional
from tar2tf_cli.plugins import find_format
from tar2tf_cli.samples.keys import key_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from tar2tf_cli.features.decoder import Decoder
    from tar2tf_cli.formats.tfrecord import KeyHashes
    from tar2tf_cli.inputs.manifest import Document
    from tar2tf_cli.spec.urls import ConnectionOptions

    class _Opening(ConnectionOptions, total=False):
        """Arguments of `open_records` that do not affect its return type."""

        split: str | None
        preset: Literal["webdataset"] | None
        key_split: KeySplit
        default: Default
        index_folder: str | os.PathLike[str] | None


T = TypeVar("T")

_TOGETHER: Final = 4 << 20
"""The most bytes that are read at once."""

_AT_ONCE: Final = 1 << 12
"""How many records are looked up at once where all are read in order."""

_FEW: Final = 12
"""How many records of a shard on disk are read one by one."""

_MOST_FILES: Final = 512
"""The most shards whose files stay open for batches."""

_LARGE: Final = 2 << 20
"""The size from which a request counts as two of those at once, as memory is limited, too."""


@overload
def open_records(
    shards: Paths, *more: str | os.PathLike[str], raw: Literal[False] = ..., **options: Unpack[_Opening]
) -> Records[Sample]: ...


@overload
def open_records(
    shards: Paths, *more: str | os.PathLike[str], raw: Literal[True], **options: Unpack[_Opening]
) -> Records[bytes]: ...


def open_records(
    shards: Paths,
    *more: str | os.PathLike[str],
    split: str | None = None,
    raw: bool = False,
    preset: Literal["webdataset"] | None = None,
    key_split: KeySplit = "first",
    default: Default = UNSET,
    index_folder: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> Records[Any]:
    """Open TFRecord shards or tars as a sequence of samples with random access.

    `records[i]` is a dict of NumPy values and bytes by feature name; with a manifest, the values are those of
    `load_dataset`. For a tar, it is the sample: the bytes of each entry by its name, and the key as `__key__`, as if
    the tar had been converted without ops. `records.key("000123")` is the sample with that key. TensorFlow is not
    imported. The result suits `grain.MapDataset.source` and the DataLoader of torch: it can be pickled, and several
    threads and forked processes may read from it. In a `with` block, files and connections are closed at its end.

    If SHARD.idx exists next to a shard, the offsets of the samples are taken from it. Otherwise, the lengths in a
    TFRecord, or the headers of a tar, are read once, and an index is kept in the user's cache for this version of the
    shard. The CRCs of each record, or the header checksums of a tar, are checked when it is read. A compressed shard is
    read stream by stream; `convert --compression` writes many small streams.

    Args:
        shards: the path or URL of a manifest, a shard, a folder with or without a manifest, or a template such as
            `"out/train-*.record"`; or a list of these, whose records follow each other.
        more: further shards or manifests.
        split: only the shards of this split of the manifest.
        raw: return the bytes of each record, which need not be an example; only for TFRecords.
        preset: `"webdataset"` decodes the entries of tars like the preset of that name: classes as int64, npy as
            arrays.
        key_split: whether the name of a tar's member is split into key and extension at its first or last dot.
        default: the value of a feature or entry that a sample lacks, or a dict of such values by name. Each sample then
            has all features, and each feature has one form in all samples, as returned by `schema`, which batches of
            torch, Grain and Hugging Face need. Without it, a feature that only some records of a manifest have is an
            array of one value or none, and without a manifest a sample has only its stored features.
        index_folder: the folder for cached indexes; by default tar2tf in XDG_CACHE_HOME or ~/.cache, "" to cache none.
        endpoint: URL of the store that holds the bucket.
        retry_for: how many seconds to retry failed requests without progress; by default TAR2TF_RETRY_FOR, else 60.
        no_sign_request: read a public cloud bucket without credentials.

    Raises:
        SourceError: when a path does not exist, or a shard of the manifest is missing.
        DamagedShardError: when the size of a shard differs from the manifest or, without a manifest, a length is
            damaged.
        UsageError: when a shard is neither a TFRecord nor a tar, or has a compressed stream of more than 32 MiB, when
            members of a compressed tar's samples are not adjacent, or when the split does not exist.

    >>> records = open_records("out/_train-manifest.json")
    >>> len(records), sorted(records[7])
    (24, ['__key__', 'cls', 'jpg', 'json'])
    """
    accepted(optional(one_of("webdataset")), preset, "preset")
    accepted(one_of("first", "last"), key_split, "key_split")
    check_default(default)
    if raw and default is not UNSET:
        raise UsageError(
            "raw=True returns the bytes of records, which default cannot add to", hint="leave out one of them"
        )
    connection: ConnectionOptions = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    process = ProcessResources()
    chosen, notes = find_shards(paths_in(shards, more), split, process, **connection)
    indexes = Indexes(None if index_folder is None else os.fspath(index_folder), key_split)
    try:
        return Records(chosen, indexes, process, raw=raw, preset=preset, default=default)
    finally:
        for note in notes:  # also if a shard is faulty, which a conversion that is not finished may explain
            Events().note(note)


def open_documents(read: Sequence[Document], split: str | None, process: ProcessResources) -> Records[bytes]:
    """Open the shards of parsed manifests, as `open_records` does with `raw=True`."""
    return Records(shards_of(read, split, process), Indexes(), process, raw=True)


class _RecordSpan(NamedTuple):
    """The byte range of one record, framing included.

    Attributes:
        shard: number of its shard among the shards.
        record: number of the record in its shard.
        start: offset of its first byte.
        end: offset after its last byte.
    """

    shard: int
    record: int
    start: int
    end: int


class _ReadGroup(NamedTuple):
    """Records of one shard that are read together, in contiguous byte ranges.

    Attributes:
        shard: number of the shard.
        records: numbers of the records in the shard.
        stretches: start and end of each byte range.
        places: the position of each record in these ranges.
    """

    shard: int
    records: NDArray[np.int64]
    stretches: list[tuple[int, int]]
    places: Places

    def span(self, place: int) -> _RecordSpan:
        """Return the byte range of a record in the shard, given its index in the group."""
        buffer, start, end = self.places[place].tolist()
        begin = self.stretches[buffer][0]
        return _RecordSpan(self.shard, int(self.records[place]), begin + start, begin + end)


class _Findings:
    """Facts about all shards of a dataset, each found at its first use; slices of the dataset share them.

    Attributes:
        schema: the form of each feature.
        uniform: converts all samples to one form.
        knows_columns: whether `columns` has been set.
        columns: the reader of columns; None if there is none.
        offsets: the offsets of the records of all shards, and the end of each shard.
        by_key: the sorted hashes of the keys, and the numbers of their records.
    """

    def __init__(self) -> None:
        self.schema: dict[str, FeatureForm] | None = None
        self.uniform: UniformValues | None = None
        self.knows_columns = False
        self.columns: ColumnReader | None = None
        self.offsets: NDArray[np.int64] | None = None
        self.by_key: tuple[KeyHashes, NDArray[np.int64]] | None = None


class Records(Sequence[T]):
    """The samples of shards, as a sequence; see `open_records`.

    A slice is a view of the same shards, such as `records[host::hosts]` for one of several hosts.

    Raises:
        DamagedShardError: on access to a record that is damaged, or not an example as described by the manifest.
        IndexError: when the record does not exist.
        SourceError: when a shard cannot be read, or has changed since it was opened.

    >>> records = open_records("out/_train-manifest.json")
    >>> [record["__key__"] for record in records.__getitems__([0, 5, 3])]
    [b'0000', b'0005', b'0003']
    """

    def __init__(
        self,
        shards: Sequence[DatasetShard],
        where: Indexes,
        process: ProcessResources,
        *,
        raw: bool = False,
        preset: str | None = None,
        default: Default = UNSET,
    ) -> None:
        self._shards = shards
        self._where = where
        self._raw = raw
        self._preset = preset
        self._default = default
        self._found = _Findings()
        self._indexes: dict[int, ShardIndex] = {}  # found when a shard is read for the first time
        self._process = process
        self._index_each([number for number, shard in enumerate(shards) if shard.records is None or preset])
        counts = [len(self._index(p).offsets) - 1 if s.records is None else s.records for p, s in enumerate(shards)]
        self._ends = list(accumulate(counts))
        self._numbers = range(sum(counts))

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        ends = dict.fromkeys(shard.name for shard in (*self._shards[:1], *self._shards[-1:]))
        return f"<{count(len(self), 'record')} of {count(len(self._shards), 'shard')}: {' … '.join(ends)}>"

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Records[T]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            view = copy.copy(self)
            view._numbers = self._numbers[index]
            return view
        span = self._span(self._number(index))
        content = self._one(span)
        return content if self._raw else next(self._values(span.shard, [span.record], [content]))

    def __getitems__(self, indices: Iterable[int]) -> list[T]:
        """Return the samples with several indices, reading those that are close in a shard together."""
        numbers = np.array([self._number(index) for index in indices], np.int64)
        order = np.argsort(numbers, kind="stable")
        values: list[Any] = [None] * len(numbers)
        for place, value in zip(order.tolist(), self._read([numbers[order]]), strict=True):
            values[place] = value
        return values

    def batches(
        self,
        size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        shard: tuple[int, int] = (1, 0),
        start: int = 0,
        epochs: int | None = 1,
        drop_remainder: bool = False,
        threads: int = 2,
    ) -> Batches:
        """Iterate over batches, each a dict of arrays whose first dimension is the sample, reading ahead in threads.

        Records of local shards are read and parsed outside the GIL, directly into these arrays, if all have every
        feature in one shape according to the manifest. torch.from_numpy and jax.numpy.asarray take them without a copy.
        Texts and images are arrays of bytes objects; values that differ in shape are arrays of objects.

        Args:
            size: number of samples in a batch; the last one of an epoch may be smaller.
            shuffle: read all samples in a random order, a different one in each epoch.
            seed: determines the orders, which are those of `load_dataset(..., shuffle=True)`.
            shard: `(hosts, host)`: read every n-th sample of the order, for one of n hosts.
            start: number of samples already read, counted from the first epoch: the value of `Batches.read`.
            epochs: number of epochs, of which the rest of the one with `start` is the first; None for no end.
            drop_remainder: drop an incomplete last batch.
            threads: number of threads that read ahead.

        Raises:
            UsageError: when a number is out of range, or with `raw=True`.
        """
        if self._raw:
            raise UsageError("raw=True returns the bytes of records, which have no columns", hint="leave it out")
        reading = BatchOptions(size, seed if shuffle else None, start, shard, drop_remainder, epochs)
        return Batches(self, reading, threads)

    def columns(self, indices: NDArray[np.int64]) -> dict[str, object]:
        """Return the samples with these indices as a dict of arrays, whose first dimension is the sample."""
        columns = self._columns()
        found = columns.read(self._file_spans(indices)) if columns else None
        if found is None:
            samples: list[Any] = self.__getitems__(indices.tolist())
            found = stacked(samples)
        return found

    def _columns(self) -> ColumnReader | None:
        """The column reader; None if shards are remote, too many, or not described by a single manifest."""
        found = self._found
        if not found.knows_columns:
            found.knows_columns = True
            decoder = self._shards[0].decode if len(self._shards) in range(1, _MOST_FILES) else None
            if decoder and decoder.features and all(self._is_plain(n, decoder) for n in range(len(self._shards))):
                found.columns = ColumnReader(decoder.features, decoder.records)
        return found.columns

    def _is_plain(self, number: int, decoder: Decoder) -> bool:
        """Whether a shard is a local uncompressed file whose records a decoder reads."""
        shard = self._shards[number]
        is_local = not shard.source.capabilities.remote
        return is_local and shard.decode is decoder and self._index(number).streams is None

    def _file_spans(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the file descriptor of each record, and its start and end in the file."""
        if self._found.offsets is None:
            self._found.offsets = np.concatenate([self._index(number).offsets for number in range(len(self._shards))])
        offsets = self._found.offsets
        numbers = self._numbers.start + indices * self._numbers.step
        shards = np.searchsorted(self._ends, numbers, "right")
        names = {number: self._shards[number].name for number in np.unique(shards).tolist()}
        files = np.zeros(len(self._shards), np.int64)
        files[list(names)] = [self._resources.files.descriptor(name) for name in names.values()]
        at = numbers + shards  # each shard has one offset more than records
        return np.stack([files[shards], offsets[at], offsets[at + 1]], axis=1)

    def __iter__(self) -> Iterator[T]:
        numbers = self._numbers
        return self._read(np.array(numbers[at : at + _AT_ONCE], np.int64) for at in range(0, len(numbers), _AT_ONCE))

    def key(self, key: str | bytes | int) -> T:
        """Return the first sample with a key, which may be given in any form in which samples store keys.

        The keys of tars are in their indexes. The keys of TFRecords are found once by reading all data, and kept.

        Raises:
            KeyError: when no sample has the key.
        """
        if self._found.by_key is None:
            keys = np.concatenate([np.empty(0, np.uint64), *map(self._keys, range(len(self._shards)))])
            order = np.argsort(keys, kind="stable")
            self._found.by_key = keys[order], order
        hashes, numbers = self._found.by_key
        if (named := key_of({KEY: key})) is None:
            raise KeyError(key)
        wanted = np.uint64(key_hash(named))
        for place in range(np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")):
            number = int(numbers[place])
            if number in self._numbers and self._key_of(self._one(self._span(number))) == named:
                return self[self._numbers.index(number)]
        raise KeyError(key)

    def schema(self) -> dict[str, FeatureForm]:
        """Return dtype, shape and optionality of each feature or entry in all samples.

        They are taken from the manifest. Without one, all records, or the headers of all tars, are read once.

        Raises:
            UsageError: with `raw=True`.
        """
        if self._raw:
            raise UsageError("raw=True returns the bytes of records, which have no schema", hint="leave it out")
        if self._found.schema is None:
            self._found.schema = self._find_schema()
        return dict(self._found.schema)

    def _find_schema(self) -> dict[str, FeatureForm]:
        decoder = self._shards[0].decode
        if decoder.features and all(shard.decode is decoder for shard in self._shards):
            return manifest_schema(decoder.features, decoder.records)
        finder = SchemaFinder()
        for number, shard in enumerate(self._shards):
            if self._traits(number).holds == "sample" and not self._preset:
                with opened_shard(shard, self._stored(number)) as opened:
                    for names in entry_names(opened.seekable or opened, shard.name, self._where.key_split):
                        finder.add(dict.fromkeys((*names, KEY), b""))
            else:
                for together, contents in self._contents(self._parts_of(number)):
                    for sample in self._stored_values(together.shard, together.records, contents):
                        finder.add(sample)
        return finder.schema()

    def _parts_of(self, shard: int) -> Iterator[NDArray[np.int64]]:
        """Yield the record numbers of a shard in parts."""
        first, end = self._ends[shard - 1] if shard else 0, self._ends[shard]
        return (np.arange(at, min(at + _AT_ONCE, end)) for at in range(first, end, _AT_ONCE))

    def close(self) -> None:
        """Close files and connections; later reads reopen them."""
        self._resources.close()

    def __enter__(self) -> Records[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def _resources(self) -> ProcessResources:
        """Return the files, connections and threads of this process; forked processes create their own."""
        if self._process.number != os.getpid():
            self._process = ProcessResources()
        return self._process

    def _number(self, index: int) -> int:
        """Return the number of a record among those of all shards."""
        if isinstance(index, (str, bytes)):
            raise TypeError(f"records are read by their numbers; .key({index!r}) reads the one with this key")
        try:
            return self._numbers[index]
        except TypeError:
            kind = type(index).__name__
            raise TypeError(f"records are read by their numbers, not by {kind}; .__getitems__ reads several") from None
        except IndexError:
            raise IndexError(f"there is no record {index}: there are {len(self):,}") from None

    def _read(self, batches: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """Yield the values of records in the given order; from a bucket, the next ones are requested meanwhile."""
        for together, contents in self._contents(batches):
            if self._raw:
                yield from contents
            else:
                yield from self._values(together.shard, together.records, contents)

    def _contents(self, batches: Iterable[NDArray[np.int64]]) -> Iterator[tuple[_ReadGroup, list[bytes | Sample]]]:
        """Yield records or samples by number, as they are read."""
        waiting: deque[tuple[_ReadGroup, list[Future[bytes]], int]] = deque()
        requests = 0
        for together in chain.from_iterable(map(self._group_reads, batches)):
            ranges, item = self._ranges(together.shard), self._shards[together.shard].item
            if ranges.parallel == 1:
                buffers = (ranges.read(item, start, end - start) for start, end in together.stretches)
                yield together, self._unpacked(together, buffers)
                continue
            ask = self._resources.submit
            futures = [ask(ranges.read, item, start, end - start) for start, end in together.stretches]
            count_as = sum(1 + (end - start) // _LARGE for start, end in together.stretches)
            waiting.append((together, futures, count_as))
            requests += count_as
            while requests >= ranges.parallel and waiting:
                first, asked, counted = waiting.popleft()
                requests -= counted
                yield first, self._unpacked(first, (future.result() for future in asked))
        for together, futures, _ in waiting:
            yield together, self._unpacked(together, (future.result() for future in futures))

    def _group_reads(self, numbers: NDArray[np.int64]) -> Iterator[_ReadGroup]:
        """Group records by shard and, if there are many, by size."""
        shards = np.searchsorted(self._ends, numbers, "right")
        edges = (np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist()
        if len(self._indexes) < len(self._shards):
            self._index_each(np.unique(shards).tolist())
        for at, end in pairwise([0, *edges, len(numbers)] if len(numbers) else []):
            shard = int(shards[at])
            records = numbers[at:end] - (self._ends[shard - 1] if shard else 0)
            offsets = self._index(shard).offsets
            starts, ends = offsets[records], offsets[records + 1]
            sizes = np.cumsum(ends - starts) // _TOGETHER
            cuts = (np.flatnonzero(sizes[1:] != sizes[:-1]) + 1).tolist() if sizes[-1] else []
            for first, last in pairwise([0, *cuts, len(records)]):
                yield self._merge_reads(shard, records[first:last], starts[first:last], ends[first:last])

    def _merge_reads(
        self, shard: int, records: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> _ReadGroup:
        """Group records that are close to each other into contiguous reads, unless there are only a few."""
        if len(records) <= _FEW and self._ranges(shard).parallel == 1:
            each = list(zip(starts.tolist(), ends.tolist(), strict=True))
            few = np.array([(number, 0, end - start) for number, (start, end) in enumerate(each)], np.int64)
            return _ReadGroup(shard, records, each, few)
        apart = (starts[1:] > ends[:-1] + self._ranges(shard).gap) | (starts[1:] < starts[:-1])
        begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
        places = np.zeros((len(records), 3), np.int64)
        places[begins[1:], 0] = 1
        places[:, 0].cumsum(out=places[:, 0])
        begin, end = starts[begins], np.maximum.reduceat(ends, begins)
        base = begin[places[:, 0]]
        places[:, 1], places[:, 2] = starts - base, ends - base
        return _ReadGroup(shard, records, list(zip(begin.tolist(), end.tolist(), strict=True)), places)

    def _unpacked(self, together: _ReadGroup, reads: Iterable[bytes]) -> list[bytes | Sample]:
        """Return the records or samples in the bytes of contiguous reads."""
        try:
            buffers = list(reads)
        except DamagedShardError:  # compressed data, whose error does not identify the record
            return [self._one(together.span(place)) for place in range(len(together.records))]
        contents: list[Any] = self._layout(together.shard).contents(buffers, together.places)
        for place in range(len(contents), len(together.records)):
            buffer, start, end = together.places[place].tolist()
            contents.append(self._content(together.span(place), buffers[buffer][start:end]))
        return contents

    def _span(self, number: int) -> _RecordSpan:
        shard = bisect_right(self._ends, number)
        record = number - self._ends[shard - 1] if shard else number
        offsets = self._index(shard).offsets
        return _RecordSpan(shard, record, int(offsets[record]), int(offsets[record + 1]))

    def _one(self, span: _RecordSpan) -> bytes | Sample:
        """Read the record or sample in a byte range."""
        item = self._shards[span.shard].item
        try:
            data = self._ranges(span.shard).read(item, span.start, span.end - span.start)
        except DamagedShardError as error:
            raise self._at(error, span) from None
        return self._content(span, data)

    def _index(self, number: int) -> ShardIndex:
        index = self._indexes.get(number)
        if index is None:
            with self._resources.indexing(number):
                if number not in self._indexes:
                    self._indexes[number] = self._usable(self._shards[number], self._stored(number))
                index = self._indexes[number]
        return index

    def _index_each(self, numbers: Sequence[int]) -> None:
        """Find the indexes of shards, several concurrently."""
        missing = [number for number in numbers if number not in self._indexes]
        if len(missing) == 1:
            self._index(missing[0])
        else:
            for found in [self._resources.submit(self._index, number) for number in missing]:
                found.result()

    def _layout(self, number: int) -> Layout:
        return self._where.layout(self._index(number).of)

    def _traits(self, number: int) -> FormatTraits:
        return find_format(self._index(number).of).traits

    def _usable(self, shard: DatasetShard, ranges: Ranges) -> ShardIndex:
        index = self._where.find(shard, ranges, partial(self._resources.index_file, shard.source, shard.item.name))
        of_samples = find_format(index.of).traits.holds == "sample"
        if self._raw and of_samples:
            raise UsageError(f"is a {index.of}, and raw=True returns the bytes of records", shard=shard.name)
        if self._preset and not of_samples:
            hint = "leave preset out: the values of records are already decoded"
            raise UsageError("holds records, and preset decodes the entries of tars", shard=shard.name, hint=hint)
        return index

    def _keys(self, number: int) -> KeyHashes:
        """Return the hashes of a shard's keys; 0 for a record without a key."""
        index = self._index(number)
        if index.keys is None:
            parts = self._contents(self._parts_of(number))
            keys = (self._key_of(content) for _, contents in parts for content in contents)
            hashes = array("Q", (0 if key is None else key_hash(key) for key in keys))
            index = index._replace(keys=np.array(hashes, np.uint64))
            self._indexes[number] = index
            self._where.keep(self._shards[number], index)
        assert index.keys is not None
        return index.keys

    def _key_of(self, content: bytes | Sample) -> str | None:
        with suppress(ValueError):
            return key_of(content if isinstance(content, dict) else parse(content))
        return None

    def _ranges(self, number: int) -> Ranges:
        """Return the byte ranges to which the offsets in a shard's index refer."""
        streams, stored = self._index(number).streams, self._stored(number)
        if streams is None:
            return stored
        if streams.method == MEMBERS:
            return RegroupedRanges(stored, streams)
        return DecompressedRanges(stored, streams, self._shards[number].name, self._resources.recent)

    def _stored(self, number: int) -> Ranges:
        return self._resources.ranges(self._shards[number].source)

    def _content(self, span: _RecordSpan, data: bytes) -> bytes | Sample:
        layout = self._layout(span.shard)
        try:
            digests = self._index(span.shard).digests
            digest = None if digests is None else int(digests[span.record])
            return layout.content(data, self._shards[span.shard], digest)
        except DamagedShardError as error:
            if error.kind in layout.wrong_index and (other := self._reindex(span)):
                return self._one(other)
            raise self._at(error, span) from None

    def _values(self, shard: int, records: Sequence[int] | NDArray[np.int64], contents: list[Any]) -> Iterator[Any]:
        """Yield the values of a shard's records or samples by number; in one form if there is a default."""
        values = self._stored_values(shard, records, contents)
        if self._default is UNSET:
            return values
        if self._found.uniform is None:
            self._found.uniform = UniformValues(self.schema(), self._default)
        return map(self._found.uniform, values)

    def _stored_values(
        self, shard: int, records: Sequence[int] | NDArray[np.int64], contents: list[Any]
    ) -> Iterator[Sample]:
        """Yield the values of a shard's records or samples as they are stored."""
        if not self._traits(shard).carries_examples:
            for record, sample in zip(records, contents, strict=True):
                yield self._entries(shard, int(record), sample)
            return
        read = 0
        try:
            for value in self._shards[shard].decode.each(contents):
                read += 1
                yield value
        except ValueError as error:
            record = int(records[read])
            hint = "raw=True returns its bytes"
            offset = int(self._index(shard).offsets[record])
            where: dict[str, Any] = {"shard": self._shards[shard].name, "member": f"record {record}", "offset": offset}
            raise DamagedShardError(str(error), kind="not_an_example", hint=hint, **where) from None

    def _entries(self, shard: int, record: int, sample: Sample) -> dict[str, object]:
        """Return the values of a tar's sample, as stored or decoded by the preset."""
        key = (key_of(sample) or f"{record:06d}").encode("utf-8", "surrogateescape")
        if self._preset:
            try:
                made = find_preset(self._preset).make(sample, OpContext())
            except SampleError as error:
                offset = int(self._index(shard).offsets[record])
                raise error.at(shard=self._shards[shard].name, key=sample[KEY], offset=offset) from None
            sample = {name: np.int64(value) if type(value) is int else value for name, value in made.items()}
        return {**sample, KEY: key}

    def _at(self, error: DamagedShardError, span: _RecordSpan) -> DamagedShardError:
        shard = self._shards[span.shard].name
        hint = f"tar2tf verify lists the faults of a shard: {shard}"
        if self._traits(span.shard).carries_examples:
            hint = f"tar2tf verify --salvage writes the good records of a shard: {shard}"
        error.offset, error.hint = self._index(span.shard).stored_offset(span.start), hint
        return error.at(shard=shard, member=f"record {span.record}")

    def _reindex(self, span: _RecordSpan) -> _RecordSpan | None:
        """Reindex a shard by reading it; return the record's range if the index next to the shard was wrong."""
        shard = self._shards[span.shard]
        try:
            index = self._where.find(shard, self._stored(span.shard), None)
        except (DamagedShardError, UsageError):
            return None
        self._indexes[span.shard] = index
        start, end = index.offsets[span.record : span.record + 2].tolist()
        return None if (start, end) == (span.start, span.end) else span._replace(start=start, end=end)
