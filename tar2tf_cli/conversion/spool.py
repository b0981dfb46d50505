"""Spools: files that hold the units of a group of inputs until they are copied into shards, each with its index.

A unit is never divided between shards. The units of each kind of shard are:

| shards | compressed before records are divided among them, as a limit counts bytes | compressed as a whole |
|---|---|---|
| TFRecord, gzip | each unit is a gzip member | a gzip member for each MiB |
| tar, gzip | each unit is a part of one member, as many readers of tars stop after the first | one gzip member |
| tar, zstd | each unit is a zstd frame | a frame for each MiB |

Members and frames are decompressed one by one, so that `open_records` reads such shards in any order. Units can be
concatenated in any order. The end blocks of a tar follow its units, and count towards its size.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, repeat
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TypeAlias

from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.conversion.working_folder import format_entry, parse_entry
from tar2tf_cli.flow.select import digest_in, group_in, stratum_in
from tar2tf_cli.formats.checksums import crc32c, hash64, key_hash
from tar2tf_cli.formats.files import RecordFile
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.structs import NamedTuple, Protocol

COLUMNS: Final = ("sizes", "records", "lanes", "order", "offsets", "keys", "high", "low")

Lengths: TypeAlias = list[int]

Strata: TypeAlias = Mapping[str, Sequence[int]]
"""The hash of the first sample of each split but the first, by the value of `--stratify`."""

Chunk: TypeAlias = "tuple[Iterable[bytes], int]"
"""Bytes in parts, and their total size."""


class SpoolIndex:
    """The units of a group of inputs, in input order; every column holds unsigned 64-bit integers.

    Attributes:
        sizes: size of each unit on disk in bytes.
        records: number of records in each unit; empty if every unit is one record.
        lanes: number of the split that each unit belongs to; empty without `--split`.
        order: sort key of each unit for shuffling; empty without `--shuffle`.
        offsets: byte offset of each sample in the input; empty if there is a spool.
        keys: hash of the key of each record: the written key for tars, in which keys must be unique, otherwise the key
            of the sample in the input; empty if keys are unknown because records are copied.
        high: first half of the digest that identifies duplicates of the unit's sample.
        low: second half of the digest. Both are 0 if the unit is of the same sample as the previous unit, and empty
            without `--drop-duplicates`.
        copied: whether `offsets` are offsets of records that are copied unchanged.
    """

    __slots__ = (*COLUMNS, "_ends", "_record_ends", "copied")

    def __init__(self, sizes: Iterable[int] = (), records: Iterable[int] = ()) -> None:
        self.sizes = array("Q", sizes)
        self.records = array("Q", records)
        self.lanes = array("Q")
        self.order = array("Q")
        self.offsets = array("Q")
        self.keys = array("Q")
        self.high = array("Q")
        self.low = array("Q")
        self._ends = array("Q")
        self._record_ends = array("Q")
        self.copied = False

    def loaded(self) -> SpoolIndex:
        """Return the index with all its columns in memory."""
        return self

    def count(self, first: int = 0, stop: int | None = None) -> int:
        """Return the number of records in a range of units; `stop` is exclusive."""
        stop = len(self.sizes) if stop is None else stop
        if not self.records:
            return stop - first
        if len(self._record_ends) != len(self.records) + 1:  # computed once the index is complete
            self._record_ends = array("Q", accumulate(self.records, initial=0))
        return self._record_ends[stop] - self._record_ends[first]

    @property
    def ends(self) -> array[int]:
        """Return 0 and the end offset of each unit in the spool; computed once the index is complete."""
        if len(self._ends) != len(self.sizes) + 1:
            self._ends = array("Q", accumulate(self.sizes, initial=0))
        return self._ends

    def start(self, unit: int) -> int:
        """Return the byte offset of a unit in the spool or, without a spool, in the tar."""
        return self.offsets[unit] if self.offsets else self.ends[unit]

    def keys_of(self, first: int, stop: int) -> array[int]:
        """Return the hashes of the keys of a range of units; `stop` is exclusive."""
        if len(self.keys) < self.count():
            return array("Q")  # the keys of some inputs are not known
        if self.records:
            first, stop = self.count(0, first), self.count(0, stop)
        return self.keys[first:stop]

    def units(self, first: int, record: int, records: int) -> tuple[int, int]:
        """Return the range of units with `records` records from number `record` on, counted from the unit `first`."""
        if not self.records:
            return first + record, first + record + records
        ends = [0, *accumulate(self.records[first:])]
        return first + ends.index(record), first + ends.index(record + records)

    def size(self, first: int, stop: int) -> int:
        """Return the size of a range of units in bytes; `stop` is exclusive."""
        ends = self.ends
        return ends[stop] - ends[first]

    @property
    def columns(self) -> tuple[array[int], ...]:
        """Return all columns, in the order of `COLUMNS`."""
        return self.sizes, self.records, self.lanes, self.order, self.offsets, self.keys, self.high, self.low

    @property
    def lengths(self) -> Lengths:
        """Return the length of each column, for `cut`."""
        return [*map(len, self.columns)]

    def cut(self, lengths: Lengths) -> None:
        """Remove the units added since the columns had these lengths."""
        for column, length in zip(self.columns, lengths, strict=True):
            del column[length:]


class StoredIndex(SpoolIndex):
    """An index that stays in its file to save memory; its own columns are empty.

    Args:
        load: reads the index.
    """

    __slots__ = ("_load",)

    def __init__(self, load: Callable[[], SpoolIndex]) -> None:
        super().__init__()
        self._load = load

    def loaded(self) -> SpoolIndex:
        """Read the index from its file."""
        return self._load()


class InputUnits(NamedTuple):
    """The units of one input.

    Attributes:
        group: number of the group whose spool holds them; without a spool, number of the input.
        spool: the index of that group.
        first: the input's first unit.
        stop: the exclusive end of its units.
    """

    group: int
    spool: SpoolIndex
    first: int
    stop: int

    def loaded(self) -> InputUnits:
        """Return the units with all columns of their index in memory."""
        index = self.spool.loaded()
        return self if index is self.spool else self._replace(spool=index)


def pack_columns(head: Mapping[str, object], columns: Iterable[array[int]]) -> list[bytes]:
    """Serialise a JSON line and columns of little-endian integers, each protected by a CRC."""
    columns = list(columns)
    kinds = [[column.typecode, len(column)] for column in columns]
    data = b"".join(_little_endian(column).tobytes() for column in columns if column)
    return [format_entry({**head, "columns": kinds, "crc": crc32c(data)}), data]


def unpack_columns(file: BinaryIO) -> tuple[dict[str, Any], list[array[int]]]:
    """Read a JSON head and columns that `pack_columns` serialised, from the file's current position.

    Raises:
        ValueError: when the bytes are damaged, or the file is at its end.
    """
    head: dict[str, Any] = parse_entry(file.readline())
    columns, crc = [], 0
    for typecode, length in head["columns"]:
        column = array(typecode)
        data = file.read(length * column.itemsize)
        crc = crc32c(data, crc)
        column.frombytes(data)
        columns.append(_little_endian(column))
    if crc != head["crc"]:
        raise ValueError("the columns of an index are damaged")
    return head, columns


def _little_endian(column: array[int]) -> array[int]:
    """Convert a column from the machine's byte order to little-endian, or back."""
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column


class _Splits:
    """Assigns samples to splits, by a hash of their group.

    Args:
        conversion: contains the shares of the splits.
        strata: with `--stratify`, the hashes at which splits end for each value.
    """

    def __init__(self, conversion: Conversion, strata: Strata) -> None:
        self._ends = [int(end * 2**64) for end in accumulate(conversion.split.values())][:-1]
        self._strata = strata

    def of(self, key: str, name: bytes | None) -> int:
        """Return the number of the split of a sample, by the group in its key, else by the key that is written."""
        group, stratum = group_in(key), stratum_in(key)
        if group is None:
            group = key.encode("utf-8", "surrogateescape") if name is None else name
        return self.of_group(group) if stratum is None else bisect_right(self._strata[stratum], hash64(group))

    def of_group(self, group: bytes) -> int:
        """Return the number of the split of the samples of a group."""
        return bisect_right(self._ends, hash64(group))


class Spool:
    """Appends records to a spool and its index, compressing them if shards are limited by size on disk.

    Args:
        conversion: contains the split, shuffle and compression.
        file: the spool.
        index: receives the size and other values of each unit.
        strata: with `--stratify`, the hashes at which splits end for each value.

    Attributes:
        sample_keys: the key of each sample of the input so far, if duplicates are skipped later.
    """

    def __init__(
        self, conversion: Conversion, file: RecordFile, index: SpoolIndex, strata: Strata = MappingProxyType({})
    ) -> None:
        self._conversion = conversion
        self._file = file
        self._index = index
        self._splits = _Splits(conversion, strata) if conversion.split else None
        self._keyed = conversion.output.traits.holds == "sample"
        self._has_digests = conversion.drop_duplicates is not None
        self._last_key: str | None = None
        self.sample_keys: list[str] = []
        self._seed: bytes | None = None
        self._first = 0
        self._block_size = block_size(conversion)
        self._blocks: dict[int, _Block] = {}

    def begin(self, name: str) -> None:
        """Begin an input; shuffled records are ordered by a hash of its name and the seed."""
        spec = self._conversion
        self._seed = f"{spec.seed}\0{name}\0".encode("utf-8", "surrogateescape") if spec.shuffle else None
        self._first = len(self._index.sizes)
        self._last_key = None
        self.sample_keys = []

    def add(self, key: str, parts: Iterable[bytes], size: int, name: bytes | None = None) -> None:
        """Append one record of `size` bytes.

        Args:
            key: the key of the sample in the input.
            parts: the encoded record.
            size: the length of the parts.
            name: the written key, which decides the split and must be unique in a tar; None if `key` decides.
        """
        if self._has_digests:
            self._note_digest(key)
        written = name if self._keyed and name is not None else key
        keys = [key_hash(written)] if written else []  # cluster transformers make records without a key
        lane = self._splits.of(key, name) if self._splits else 0
        if self._block_size is None:
            self._file.write(parts, size)
            self._note(lane, size, keys)
            return
        if lane in self._blocks and self._blocks[lane].size + size > self._block_size:
            self._close_block(lane)  # so that only a single record can exceed the block size
        if not isinstance(parts, list):  # a large record, which is not held in memory
            if lane in self._blocks:
                self._close_block(lane)
            self._append_block(lane, [(parts, size)], 1, keys)
            return
        block = self._blocks.setdefault(lane, _Block())
        block.add(parts, size, 1, keys)
        if block.size >= self._block_size:
            self._close_block(lane)

    def mark(self) -> tuple[int, Lengths]:
        """Return the current end of the spool and its index, for `rewind`."""
        return self._file.size + self._file.pending, self._index.lengths

    def rewind(self, mark: tuple[int, Lengths]) -> None:
        """Remove all records appended since a mark."""
        size, lengths = mark
        self._blocks.clear()
        self._file.cut(size)
        self._index.cut(lengths)

    @property
    def takes_batches(self) -> bool:
        """Whether batches of records may be added, as no record is compressed by itself."""
        return self._block_size != 1

    def add_batch(self, batch: RecordBatch) -> None:
        """Append a batch of records."""
        if self._block_size is not None:
            self._add_to_blocks(batch, self._block_size)
            return
        index = self._index
        self._file.write([batch.data], len(batch.data))
        index.sizes.frombytes(batch.sizes)
        index.keys.frombytes(batch.hashes)
        if batch.digests:
            index.high.extend(high for high, _ in batch.digests)
            index.low.extend(low for _, low in batch.digests)
            self.sample_keys += [key.decode("utf-8", "surrogateescape") for key in batch.keys]
        if self._splits:
            index.lanes.extend(map(self._splits.of_group, batch.keys))
        if self._seed is not None:
            numbers = range(len(index.order) - self._first, len(index.sizes) - self._first)
            index.order.extend(hash64(self._seed + b"%d" % number) for number in numbers)

    def _add_to_blocks(self, batch: RecordBatch, most: int) -> None:
        """Append a batch to the blocks of its splits, as many records at once as fit into a block."""
        data, keys = memoryview(batch.data), array("Q", batch.hashes)
        ends = array("Q", accumulate(array("Q", batch.sizes), initial=0))
        lanes = map(self._splits.of_group, batch.keys) if self._splits else repeat(0, len(batch))
        first = stop = 0
        for lane, run in groupby(lanes):
            stop += sum(1 for _ in run)
            while first < stop:
                block = self._blocks.setdefault(lane, _Block())
                fitting = bisect_right(ends, ends[first] + most - block.size, first, stop + 1) - 1
                last = fitting if fitting > first or block.size else first + 1  # a block holds at least one record
                block.add([data[ends[first] : ends[last]]], ends[last] - ends[first], last - first, keys[first:last])
                if last < stop or block.size >= most:
                    self._close_block(lane)
                first = last

    def finish(self) -> None:
        """End an input: append the unfinished blocks."""
        for lane in list(self._blocks):
            self._close_block(lane)

    def _close_block(self, lane: int) -> None:
        block = self._blocks.pop(lane)
        self._append_block(lane, [([b"".join(block.parts)], block.size)], block.records, block.keys)

    def _append_block(self, lane: int, records: Iterable[Chunk], count: int, keys: list[int]) -> None:
        size = 0
        for parts, length in unit_bytes(records, self._conversion.output):
            self._file.write(parts, length)
            size += length
        self._note(lane, size, keys)
        self._index.records.append(count)

    def _note(self, lane: int, size: int, keys: list[int]) -> None:
        index = self._index
        index.sizes.append(size)
        index.keys.extend(keys)
        if self._splits:
            index.lanes.append(lane)
        if self._seed is not None:
            index.order.append(hash64(self._seed + b"%d" % (len(index.order) - self._first)))

    def _note_digest(self, key: str) -> None:
        high, low = digest_in(key, self._last_key)
        self._last_key = key
        self._index.high.append(high)
        self._index.low.append(low)
        if high or low:
            self.sample_keys.append(str(key))


class _Block:
    """Consecutive records of a split that are compressed together."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.size = 0
        self.records = 0
        self.keys: list[int] = []

    def add(self, parts: Iterable[bytes | memoryview], size: int, records: int, keys: Iterable[int]) -> None:
        """Append records of `size` bytes in total, and the hashes of their keys if known."""
        self.parts += parts
        self.size += size
        self.records += records
        self.keys += keys


_BLOCK: Final = 1 << 20
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_GZIP_HEAD: Final = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # RFC 1952: no name, no time, unknown system


def block_size(conversion: Conversion) -> int | None:
    """Uncompressed size in bytes of a unit that is compressed by itself; None if units are plain records.

    Records are compressed before they are divided among shards only if there is a limit on the size on disk. A block
    is small compared with the limit, so that shards fill up well; if records are counted, shuffled or compared, it
    is one record.
    """
    output = conversion.output
    if output.compression == "none" or output.limit is None:
        return None
    one_by_one = conversion.shuffle or conversion.limit is not None or conversion.drop_duplicates is not None
    if one_by_one or output.records_per_shard:
        return 1
    return min(_BLOCK, max(output.limit // 16, 1))


def compressed(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress chunks into one gzip member or zstd frame; equal chunks give equal bytes."""
    return _through(_compressor(output.compression), chunks)


def unit_bytes(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress the records of a unit so that several compressed units can be concatenated to a shard."""
    if _shares_one_member(output):
        deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        return _through(deflate, chunks, zlib.Z_FULL_FLUSH)  # independent of earlier data, and ends at a byte boundary
    return compressed(chunks, output)


def overhead_size(output: Output) -> int:
    """Return the number of bytes that a shard has in addition to its units."""
    return sum(size for _, size in shard_bytes((), output)) if output.end else 0


def shard_bytes(units: Iterable[Chunk], output: Output) -> Iterable[Chunk]:
    """Yield the bytes of a shard made of units."""
    end: list[Chunk] = [([output.end], len(output.end))] if output.end else []
    if output.compresses_shards:
        ended = chain(units, end)
        return compressed(ended, output) if _is_one_member(output) else _in_streams(ended, output)
    if _shares_one_member(output):
        return _in_one_member(units, output.end)
    return chain(units, compressed(end, output) if end and output.compression != "none" else end)


class _Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self, how: int = ..., /) -> bytes: ...


def _compressor(method: str) -> _Compressor:
    if method == "zstd":
        from zstandard import ZstdCompressor

        made: _Compressor = ZstdCompressor(_ZSTD_LEVEL, write_checksum=True).compressobj()
        return made
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # without a name and a timestamp


def _through(compressor: _Compressor, chunks: Iterable[Chunk], *how: int) -> Iterator[Chunk]:
    """Compress chunks and flush the compressor; `how` is passed to its `flush`."""
    for parts, _ in chunks:
        for part in parts:
            if data := compressor.compress(part):
                yield [data], len(data)
    data = compressor.flush(*how)
    yield [data], len(data)


def _in_streams(chunks: Iterable[Chunk], output: Output) -> Iterator[Chunk]:
    """Compress chunks into one gzip member or zstd frame per block of bytes; a single one for no chunks."""
    compressor, left, is_empty = _compressor(output.compression), _BLOCK, True
    for part in chain.from_iterable(parts for parts, _ in chunks):
        data = memoryview(part)
        while len(data) >= left:
            whole = compressor.compress(data[:left]) + compressor.flush()
            yield [whole], len(whole)
            data, compressor, left, is_empty = data[left:], _compressor(output.compression), _BLOCK, False
        left -= len(data)
        if some := compressor.compress(data):
            yield [some], len(some)
    if is_empty or left < _BLOCK:
        last = compressor.flush()
        yield [last], len(last)


def _is_one_member(output: Output) -> bool:
    """Whether a shard is a single gzip member."""
    return output.traits.one_member and output.compression == "gzip"


def _shares_one_member(output: Output) -> bool:
    """Whether the units of a shard share one gzip member, as the shard has a limit and tar readers read one member."""
    return _is_one_member(output) and output.limit is not None


def _in_one_member(units: Iterable[Chunk], end: bytes) -> Iterator[Chunk]:
    """Join parts and the end of the shard to one gzip member; the parts are decompressed again for its checksum."""
    from isal import isal_zlib

    yield [_GZIP_HEAD], len(_GZIP_HEAD)
    inflate: Any = isal_zlib.decompressobj(-zlib.MAX_WBITS)
    crc = size = 0
    for parts, length in units:
        held = [*parts]
        yield held, length
        compressed, data = b"".join(held), b""
        while compressed or len(data) == _BLOCK:  # a full block: more may wait in the decompressor
            data = inflate.decompress(compressed, _BLOCK)
            crc, size = zlib.crc32(data, crc), size + len(data)
            compressed = inflate.unconsumed_tail
    deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    crc, size = zlib.crc32(end, crc), size + len(end)
    last = deflate.compress(end) + deflate.flush()
    last += crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    yield [last], len(last)
