"""Indexes of the samples of shards: found once and cached for the user, or written next to each shard."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.api.source import Ranges, RangeStream, Source
from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.datasets.adjacent_files import AdjacentFiles
from tar2tf_cli.datasets.shards import DatasetShard
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, SinkError, SourceError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.example import FRAMING, record_length, unframed
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.formats.streams import StreamLog, compression_of, foreign
from tar2tf_cli.formats.tar import BLOCK
from tar2tf_cli.formats.tfrecord import (
    MEMBERS,
    RecordReader,
    ShardIndex,
    StreamPositions,
    find_records,
    index_of_lines,
    offsets_in,
    packed_index,
    read_index,
)
from tar2tf_cli.inputs.energon_index import DALI, ENERGON, dali_path_for_energon, index_writer
from tar2tf_cli.inputs.open_shard import OpenShard, format_by_name, not_a_shard, shard_format, unreadable
from tar2tf_cli.inputs.shard_set import nothing_found, resolve
from tar2tf_cli.inputs.tar_index import (
    NotAdjacentTarError,
    Runs,
    TarSample,
    find_in_batches,
    find_members,
    from_index_lines,
    is_next,
    sample_digest,
    sample_in,
)
from tar2tf_cli.plugins import DEFAULT_FORMAT, find_format, format_of
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_HEAD: Final = 1 << 12
_RECORD_HEAD: Final = 12
_SAMPLES: Final = 8
_READ: Final = 1 << 20
_MOST_ZEROS: Final = 1 << 20
_MOST_GAPS: Final = 64  # most gaps in a bucket, where each costs a request
_MOST_AT_ONCE: Final = 1 << 25
_IN_STREAMS: Final = "tar2tf convert divides it into streams of 1 MiB: -o 'new-<>"
_SMALLER: Final = {
    "tfrecord": f"{_IN_STREAMS}.record.gz' --compression gzip --max-shard-size 256MiB",
    "tar": f"{_IN_STREAMS}.tar.zst' --to tar --compression zstd --max-shard-size 256MiB",
}


Places: TypeAlias = NDArray[np.int64]
"""Positions of records in buffers: a row for each, with the buffer's number and the record's start and end in it."""


class Layout(ABC):
    """Layout of the samples in a kind of shard, each between two consecutive offsets of the index.

    Attributes:
        of: the kind of shard, as named in a cached index.
        wrong_index: kinds of errors that a sample appears to have if the index is of another version of the shard.
    """

    of: str
    wrong_index: tuple[str, ...]

    def scan(self, shard: DatasetShard, ranges: Ranges) -> ShardIndex:
        """Find all samples of a shard.

        Raises:
            SourceError: when it is damaged or cannot be read.
            UsageError: when its samples cannot be read in any order.
        """
        with opened_shard(shard, ranges) as opened:
            return self.read(opened, shard)

    @abstractmethod
    def read(self, opened: OpenShard, shard: DatasetShard) -> ShardIndex:
        """Find all samples of a shard by reading it sequentially.

        Raises:
            DamagedShardError: when it is damaged.
            UsageError: when its samples cannot be read in any order.
        """

    @abstractmethod
    def parse_index(self, data: bytes, shard: DatasetShard, ranges: Ranges) -> ShardIndex | None:
        """Parse an index file next to the shard; None unless it is certainly complete and for these bytes."""

    def contents(self, buffers: list[bytes], places: Places) -> list[bytes]:
        """Return the first of many records without framing; the caller reads the remaining ones individually.

        Args:
            buffers: parts of the shard.
            places: the number of the buffer of each record, and its start and end in the buffer.
        """
        return []

    @abstractmethod
    def content(self, data: bytes, shard: DatasetShard, digest: int | None) -> bytes | Sample:
        """Return the record or sample in a byte range.

        Args:
            data: the bytes.
            shard: the shard.
            digest: the digest that the sample must have, if an index file contains one.

        Raises:
            DamagedShardError: when the record or sample is damaged, or does not have exactly these bytes.
        """


def opened_shard(shard: DatasetShard, ranges: Ranges, streams: StreamLog | None = None) -> OpenShard:
    """Open a shard to read it sequentially; in a bucket, so that its bytes need not be requested again for ranges.

    Raises:
        SourceError: when it cannot be read, or its server does not report its size.
    """
    by_ranges = None if shard.source.capabilities.seekable or not shard.size else ranges
    return OpenShard(shard.source, shard.item, ranges=by_ranges, streams=streams)


class RecordLayout(Layout):
    """Layout of the records in a TFRecord."""

    of = "tfrecord"
    wrong_index = ("length_crc", "too_large", "truncated")

    def scan(self, shard: DatasetShard, ranges: Ranges) -> ShardIndex:
        try:
            if ranges.parallel > 1 and self._is_dense(shard, ranges):
                return super().scan(shard, ranges)
            return ShardIndex(self.of, find_records(partial(ranges.read, shard.item), shard.size, shard.name))
        except DamagedShardError as error:
            if not error.offset:
                _refuse(ranges.read(shard.item, 0, _HEAD), shard.name)
            error.hint = f"tar2tf verify --salvage writes its good records: {shard.name}"
            raise

    @staticmethod
    def _is_dense(shard: DatasetShard, ranges: Ranges) -> bool:
        """Whether reading all records is cheaper than requesting the length of each."""
        if shard.records:
            return shard.size / shard.records < ranges.gap
        with suppress(DamagedShardError):  # raised again with its location when the shard is read
            return record_length(ranges.read(shard.item, 0, _RECORD_HEAD)) < ranges.gap
        return False

    def read(self, opened: OpenShard, shard: DatasetShard) -> ShardIndex:
        return ShardIndex(self.of, offsets_in(RecordReader(opened.content, shard.name, want="lengths")))

    def parse_index(self, data: bytes, shard: DatasetShard, ranges: Ranges) -> ShardIndex | None:
        """Parse an index file; only the manifest's number of records can show that no line is missing."""
        offsets = index_of_lines(data, shard.size)
        if offsets is None or shard.records != len(offsets) - 1:
            return None
        for record in _spread_numbers(len(offsets) - 1, ranges):
            start, end = offsets[record : record + 2].tolist()
            try:
                if record_length(ranges.read(shard.item, start, _RECORD_HEAD)) != end - start - FRAMING:
                    return None
            except DamagedShardError:
                return None
        return ShardIndex(self.of, offsets)

    def contents(self, buffers: list[bytes], places: Places) -> list[bytes]:
        native = kernel.native()
        whole: list[bytes] = native.unframed(buffers, places.tobytes()) if native else []
        return whole

    def content(self, data: bytes, shard: DatasetShard, digest: int | None) -> bytes:
        return unframed(data)


class UnitLayout(Layout):
    """Layout of the units in a shard of any format."""

    wrong_index = ("truncated", "index")

    def __init__(self, kind: ShardFormat, key_split: KeySplit) -> None:
        self.of = kind.name
        self._kind = kind
        self._key_split: KeySplit = key_split

    def read(self, opened: OpenShard, shard: DatasetShard) -> ShardIndex:
        units = self._kind.units(opened.content, shard.name)
        offsets = array("q", [offset for offset, _ in units])
        offsets.append(units.offset)
        return ShardIndex(self.of, np.frombuffer(offsets, np.int64))

    def parse_index(self, data: bytes, shard: DatasetShard, ranges: Ranges) -> ShardIndex | None:
        """Return None, as there is no index format for units."""
        return None

    def content(self, data: bytes, shard: DatasetShard, digest: int | None) -> Sample:
        return self._kind.sample(data, shard.name, self._key_split)


class TarLayout(Layout):
    """Layout of the samples in a tar."""

    of = "tar"
    wrong_index = ("bad_header", "unknown_format", "truncated", "index")

    def __init__(self, key_split: KeySplit) -> None:
        self._key_split: KeySplit = key_split

    def scan(self, shard: DatasetShard, ranges: Ranges) -> ShardIndex:
        found = _SamplePositions()
        with opened_shard(shard, ranges) as opened:
            try:
                return self._index(found.add_each(self._find(opened, shard)), shard)
            except NotAdjacentTarError as error:
                return self._regrouped(self._all_members(opened, shard, found, error.archives), shard)

    def read(self, opened: OpenShard, shard: DatasetShard) -> ShardIndex:
        return self._index(_SamplePositions().add_each(self._find(opened, shard)), shard)

    def _find(self, opened: OpenShard, shard: DatasetShard) -> Iterator[TarSample | Batch]:
        return find_in_batches(opened.seekable or opened, shard.name, self._key_split)

    def _all_members(self, opened: OpenShard, shard: DatasetShard, found: _SamplePositions, archives: int) -> Runs:
        """Return the runs of members of each sample: those found before the first scattered one, and all others."""
        assert opened.seekable
        if not archives:  # ends of archives must be counted from the first one on
            with suppress(DamagedShardError):  # raised again with what the beginning shows
                return find_members(opened.seekable, shard.name, self._key_split, found.runs(), found.end)
        return find_members(opened.seekable, shard.name, self._key_split)

    def parse_index(self, data: bytes, shard: DatasetShard, ranges: Ranges) -> ShardIndex | None:
        """Parse an index of `wds2idx`, which is complete if nothing but its entries is in the tar.

        Other members, and long headers, are in gaps between entries, each of which is read. Each sample is compared
        with its entry in the index when it is read.
        """
        samples = from_index_lines(data, self._key_split, shard.size)
        if not samples or shard.records not in (None, len(samples)):
            return None
        entries = [entry for sample in samples for entry in sample.entries]
        ends = [0, *(entry.end for entry in entries)]
        rest = shard.size - ends[-1]
        if rest > _MOST_ZEROS or any(ranges.read(shard.item, ends[-1], rest)):
            return None
        gaps = [place for place, entry in enumerate(entries) if entry.offset != ends[place] + BLOCK]
        if len(gaps) > _MOST_GAPS and ranges.parallel > 1:
            return None
        for place in {*gaps, *_spread_numbers(len(entries), ranges)}:
            stream = RangeStream(partial(ranges.read, shard.item), ends[place])
            if not is_next(stream, ends[place], entries[place], shard.name, self._key_split):
                return None
        digests = np.array([sample.digest(self._key_split) for sample in samples], np.uint64)
        return self._index(_SamplePositions().add_each(samples), shard)._replace(digests=digests)

    def content(self, data: bytes, shard: DatasetShard, digest: int | None) -> Sample:
        sample = sample_in(data, shard.name, self._key_split)
        if digest not in (None, sample_digest(sample)):
            message = f"the sample {sample[KEY]!r} is at the offset of another one in the index"
            raise DamagedShardError(message, kind="index", shard=shard.name)
        return sample

    def _regrouped(self, members: Runs, shard: DatasetShard) -> ShardIndex:
        """Return an index as if each sample's members were adjacent, with the members' actual positions."""
        runs = np.array([run for own in members.values() for run in own], np.int64)
        plain = np.concatenate(([0], np.cumsum(runs[:, 1] - runs[:, 0])))
        offsets = plain[np.concatenate(([0], np.cumsum([len(own) for own in members.values()])))]
        keys = np.array([*members], np.uint64)
        streams = StreamPositions(MEMBERS, np.append(runs[:, 0], shard.size), plain)
        return ShardIndex(self.of, offsets, keys, streams)

    def _index(self, samples: _SamplePositions, shard: DatasetShard) -> ShardIndex:
        samples.starts.append(shard.size)
        return ShardIndex(self.of, np.frombuffer(samples.starts, np.int64), np.frombuffer(samples.keys, np.uint64))


class _SamplePositions:
    """Positions of the samples of a tar, in the order in which they were found.

    Attributes:
        starts: offset of each sample's first header.
        keys: the hash of each key.
    """

    def __init__(self) -> None:
        self.starts, self.keys = array("q"), array("Q")
        self._ends = array("q")  # offset after the last block of each sample's last entry

    def add_each(self, samples: Iterable[TarSample | Batch]) -> Self:
        """Add samples and batches of them, and return the positions."""
        for found in samples:
            if isinstance(found, Batch):
                self.starts.extend(found.offsets)
                self.keys.extend(found.hashes)
                self._ends.frombytes(_ends_of(found).tobytes())
            else:
                self.starts.append(found.start)
                self.keys.append(key_hash(found.key))
                self._ends.append(found.end)
        return self

    @property
    def end(self) -> int:
        """The offset after the last sample; 0 without any."""
        return self._ends[-1] if self._ends else 0

    def runs(self) -> Runs:
        """Return the start and end of each sample, by the hash of its key."""
        spans = zip(self.starts, self._ends, strict=True)
        return {key: [span] for key, span in zip(self.keys, spans, strict=True)}


def _ends_of(batch: Batch) -> NDArray[np.int64]:
    """Return the offset in the tar after the last block of each of a batch's samples."""
    rows = np.frombuffer(batch.rows, np.int64).reshape(len(batch), -1)
    spans = np.frombuffer(batch.spans, np.int64).reshape(-1, 2)
    counts = np.array([names.count(b"\0") for names in batch.signatures])
    last = spans[rows[:, 4] + counts[rows[:, 3]] - 1]
    ends: NDArray[np.int64] = batch.start + last[:, 0] + last[:, 1] + (-last[:, 1] & (BLOCK - 1))
    return ends


class Indexes:
    """Finds and caches the indexes of shards.

    Args:
        folder: the folder for indexes; None for tar2tf in XDG_CACHE_HOME or ~/.cache, "" to keep none.
        key_split: the dot at which the names of a tar's members are split into key and extension.

    Attributes:
        key_split: the rule for names.
        layouts: the layout of the samples, by kind of shard.
    """

    def __init__(self, folder: str | None = None, key_split: KeySplit = "first") -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self.folder = os.path.join(home, "tar2tf") if folder is None else folder
        self.key_split: KeySplit = key_split
        self._said = False
        self._layouts: dict[str, Layout] = {each.of: each for each in (RecordLayout(), TarLayout(key_split))}

    def find(self, shard: DatasetShard, ranges: Ranges, file: Callable[[], Future[bytes | None]] | None) -> ShardIndex:
        """Return the index of a shard.

        Args:
            shard: the shard.
            ranges: reads the shard.
            file: requests the file SHARD.idx; None if it may not be used.

        Raises:
            DamagedShardError: when the shard is damaged, or its number of samples differs from the manifest.
            SourceError: when it cannot be read.
            UsageError: when it is neither a TFRecord nor a tar, or has a compressed stream that is too large.
        """
        index = self._kept(shard)
        if index is None:
            requested = file and file()  # each costs a round trip in a bucket
            head = ranges.read(shard.item, 0, _HEAD)
            method, layout = compression_of(head), self._layout_of(head, shard.name)
            data = requested.result() if requested and not method else None
            index = None if data is None else layout.parse_index(data, shard, ranges)
            if index is None:
                self._say(shard)
                index = self._decompressed(shard, method, ranges) if method else layout.scan(shard, ranges)
                self._check_count(index, shard)
                self.keep(shard, index)
        return index

    def layout(self, name: str) -> Layout:
        """Return the layout of a shard format by its name."""
        return self._layouts.get(name) or self._layouts.setdefault(name, UnitLayout(find_format(name), self.key_split))

    def _layout_of(self, head: bytes, name: str) -> Layout:
        kind = format_of(head) or format_by_name(head, name)
        return self.layout(kind.name if kind else DEFAULT_FORMAT)

    def _decompressed(self, shard: DatasetShard, method: str, ranges: Ranges) -> ShardIndex:
        """Read a compressed shard once, to find its samples and its compressed streams."""
        log, head, layout = StreamLog(_MOST_AT_ONCE), b"", self.layout(DEFAULT_FORMAT)
        try:
            with opened_shard(shard, ranges, log) as opened:
                head, layout = opened.head, self._layout_of(opened.head, shard.name)
                index = layout.read(opened, shard)
                while opened.read(_READ):
                    pass
        except DamagedShardError as error:
            if not error.offset and layout.of == DEFAULT_FORMAT:
                _refuse(head, shard.name)
            raise
        except UsageError as error:
            error.hint = error.hint or f"{_SMALLER[layout.of]}; load_dataset reads it from front to back"
            raise
        index.offsets[-1] = log.size
        stored, plain = np.array([*log.stored, shard.size]), np.array([*log.plain, log.size])
        return index._replace(streams=StreamPositions(method, stored, plain))

    def _say(self, shard: DatasetShard) -> None:
        """Emit a note, once, that shards in a bucket are read to be indexed."""
        if is_remote(shard.name) and not self._said:
            self._said = True
            kept = f"; the index is kept in {self.folder}" if self._path(shard) else " each time it is opened"
            Events().note(
                f"note: {shard.name} has no index, so it is read to the end to find its records{kept}; "
                "convert --index writes indexes next to shards"
            )

    def keep(self, shard: DatasetShard, index: ShardIndex) -> None:
        """Save an index for the next time if possible."""
        if path := self._path(shard):
            with suppress(OSError, SinkError):  # an unwritable cache folder is no error
                os.makedirs(self.folder, exist_ok=True)
                write_whole(path, packed_index(index, shard.name, str(shard.item.version)), lasting=False)

    def _kept(self, shard: DatasetShard) -> ShardIndex | None:
        path = self._path(shard)
        with suppress(OSError):
            if path:
                with open(path, "rb") as file:
                    kept = read_index(file.read(), shard.name, str(shard.item.version), shard.size)
                if kept and shard.records in (None, len(kept.offsets) - 1):
                    return kept
        return None

    def _check_count(self, index: ShardIndex, shard: DatasetShard) -> None:
        number = len(index.offsets) - 1
        if shard.records not in (None, number):
            message = f"the file has {number:,} records, but {shard.records:,} in the manifest"
            raise DamagedShardError(message, kind="count", shard=shard.name, hint="convert again")

    def _path(self, shard: DatasetShard) -> str | None:
        """Return the cache path of a shard's index, whose name depends on all that identifies the shard's bytes."""
        if not self.folder or shard.item.version is None:
            return None
        name = shard.name if is_remote(shard.name) else os.path.abspath(shard.name)
        whole = f"{name}\n{shard.size}\n{shard.item.version}\n{self.key_split}".encode("utf-8", "surrogateescape")
        return os.path.join(self.folder, f"{hashlib.sha256(whole).hexdigest()[:32]}.index")


def _spread_numbers(count: int, ranges: Ranges) -> range:
    """Return the numbers of a few evenly spaced samples; only one in a bucket, where each costs a request."""
    most = _SAMPLES if ranges.parallel == 1 else 1
    return range(0, count, -(-count // most) or 1)


def _refuse(head: bytes, name: str) -> None:
    """Raise an error if a file's first bytes show that it is no TFRecord."""
    if other := foreign(head):
        raise UsageError(f"is {other[0]}, neither a TFRecord nor a tar", shard=name, hint=other[1])
    if shard_format(head) is None:
        hint = "name only the shards, by a manifest or a template such as 'out/*.record'"
        raise UsageError("is neither a TFRecord nor a tar, or its first bytes are damaged", shard=name, hint=hint)


# --- SHARD.idx, written ---


def write_indexes(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    key_split: KeySplit = "first",
    overwrite: bool = False,
    **connection: Unpack[ConnectionOptions],
) -> Iterator[tuple[str, int]]:
    """Write SHARD.idx next to each shard; yield its path and its number of samples or records.

    For a tar, that is the index of DALI's `wds2idx`, version 1.2; for a TFRecord, a line with offset and size for each
    record, as `tfrecord2idx` and `convert --index` write it. A correct existing index is kept. If TAR.idx is the index
    of Megatron Energon, DALI's index is written as `a.idx` for `a.tar`.

    Args:
        bucket: a folder, a shard, or a template of files, or the URL of any of these.
        templates: names in the bucket, or further paths.
        key_split: the dot at which the names of members are split into key and extension.
        overwrite: whether to replace an index that does not match its shard.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        OutputExistsError: when another file has that name.
        SourceError: when shards are damaged or cannot be read, after the indexes of the others were written.
        UsageError: when a shard is compressed, members of a sample are not adjacent, or the bucket is read-only.
    """
    files = AdjacentFiles.of(bucket, **connection)
    named = resolve(bucket, templates, paths=True, described=False, **connection)
    if named.manifests:
        raise UsageError("is a manifest: name the shards, or their folder", shard=bucket)
    for note in named.notes():
        Events().note(note)
    failed: list[SourceError] = []
    with files:
        for item in named.items:
            shard = files.inside(named.source.locate(item.name))
            try:
                lines = index_lines_of(named.source, item, key_split)
            except SourceError as error:
                failed.append(error)
                continue
            path = f"{shard}.idx"
            writer = index_writer(files.read(path) or b"")
            if writer == ENERGON:
                path = dali_path_for_energon(shard)
            elif writer not in (None, DALI) and not overwrite:
                hint = "both have this name: keep it, or move it elsewhere first"
                raise OutputExistsError(f"is an index of {writer}", shard=files.locate(path), hint=hint)
            data = b"".join(lines)
            files.write({path: data}, "exists, and is not the index of this shard", overwrite=overwrite)
            yield files.locate(path), data.count(b"\n") - data.startswith(b"v")
    if not named.items:
        raise nothing_found(bucket)
    if failed:
        raise unreadable(failed, "have no index")


def index_lines_of(source: Source, item: ObjectInfo, key_split: KeySplit) -> list[bytes]:
    """Return the lines of a shard's index file; DALI's lines for a tar.

    Raises:
        SourceError: when it is damaged, or cannot be read.
        UsageError: when it is compressed, or the members of a sample are not adjacent.
    """
    with open_uncompressed(source, item) as shard:
        kind = shard.kind
        assert kind is not None
        return [*kind.index_lines(shard.seekable or shard, shard.name, key_split)]


@contextmanager
def open_uncompressed(source: Source, item: ObjectInfo) -> Iterator[OpenShard]:
    """Open a shard that must be uncompressed, so that it can be read by offset.

    Raises:
        DamagedShardError: when the file is not a shard.
        UsageError: when the shard is compressed.
    """
    with OpenShard(source, item) as shard:
        if shard.compression and shard.kind:
            message = f"is compressed with {shard.compression.lower()}, so nothing in it can be read by offset"
            raise UsageError(message, shard=shard.name, hint="decompress it first")
        if shard.kind is None:
            raise not_a_shard(shard.name, item.size, foreign(shard.head))
        yield shard
