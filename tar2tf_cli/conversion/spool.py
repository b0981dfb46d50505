"""Spools: files in the working folder that hold the units of a group of inputs until they are copied into shards."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from tar2tf_cli.conversion.spool_index import Lengths, SpoolIndex
from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.formats.record_file import RecordFile
from tar2tf_cli.samples.batches import Batch
from tar2tf_cli.spec.conversion import Conversion

__all__ = ["Spool", "gzip_stream"]

_GZIP_LEVEL: Final = 6
_GZIP_BLOCK: Final = 1 << 20


def gzip_stream(chunks: Iterable[tuple[Iterable[bytes], int]]) -> Iterator[tuple[list[bytes], int]]:
    """Compress chunks into one gzip member, always the same; takes and yields byte strings and their total size."""
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # without a name and a timestamp
    for parts, _ in chunks:
        for part in parts:
            if data := compressor.compress(part):
                yield [data], len(data)
    data = compressor.flush()
    yield [data], len(data)


class Spool:
    """Appends records to a spool and its index, compressed if their size on disk determines the shards.

    Args:
        conversion: gives the split, shuffle and compression.
        file: the spool.
        index: filled in unit by unit.
    """

    def __init__(self, conversion: Conversion, file: RecordFile, index: SpoolIndex) -> None:
        self._conversion = conversion
        self._file = file
        self._index = index
        self._lanes = [int(end * 2**64) for end in accumulate(conversion.split.values())][:-1]
        self._has_lanes = bool(conversion.split)
        self._seed: bytes | None = None
        self._first = 0
        self._block_size = _block_size(conversion)
        self._blocks: dict[int, _Block] = {}

    def begin(self, name: str) -> None:
        """Begin an input; shuffled records are ordered by a hash of its name and the seed."""
        spec = self._conversion
        self._seed = f"{spec.seed}\0{name}\0".encode("utf-8", "surrogateescape") if spec.shuffle else None
        self._first = len(self._index.sizes)

    def add(self, key: str, parts: Iterable[bytes], size: int) -> None:
        """Append one framed record of `size` bytes."""
        lane = bisect_right(self._lanes, _hash(key.encode("utf-8", "surrogateescape"))) if self._has_lanes else 0
        if self._block_size is None:
            self._file.write(parts, size)
            self._note(lane, size)
            return
        if lane in self._blocks and self._blocks[lane].size + size > self._block_size:
            self._close_block(lane)  # so that only a single record can exceed the block size
        if not isinstance(parts, list):  # a large record, which is not held in memory
            if lane in self._blocks:
                self._close_block(lane)
            self._append_block(lane, [(parts, size)], 1)
            return
        block = self._blocks.setdefault(lane, _Block())
        block.parts += parts
        block.size += size
        block.records += 1
        if block.size >= self._block_size:
            self._close_block(lane)

    def mark(self) -> tuple[int, Lengths]:
        """The place that the spool and its index have reached, between two inputs."""
        return self._file.size + self._file.pending, self._index.lengths

    def go_back(self, mark: tuple[int, Lengths]) -> None:
        """Remove all that was appended since a mark."""
        size, lengths = mark
        self._blocks.clear()
        self._file.cut(size)
        self._index.cut(lengths)

    @property
    def take(self) -> Callable[[Batch], None] | None:
        """Appends a batch of records; None where each record is handled by itself."""
        return None if self._has_lanes or self._block_size is not None else self._append_batch

    def _append_batch(self, batch: Batch) -> None:
        index = self._index
        self._file.write([batch.data], len(batch.data))
        index.sizes.frombytes(batch.sizes)
        if self._seed is not None:
            numbers = range(len(index.order) - self._first, len(index.sizes) - self._first)
            index.order.extend(_hash(self._seed + b"%d" % number) for number in numbers)

    def finish(self) -> None:
        """End an input: append the unfinished blocks."""
        for lane in list(self._blocks):
            self._close_block(lane)

    def _close_block(self, lane: int) -> None:
        block = self._blocks.pop(lane)
        self._append_block(lane, [([b"".join(block.parts)], block.size)], block.records)

    def _append_block(self, lane: int, records: Iterable[tuple[Iterable[bytes], int]], count: int) -> None:
        size = 0
        for parts, length in gzip_stream(records):
            self._file.write(parts, length)
            size += length
        self._note(lane, size)
        self._index.records.append(count)

    def _note(self, lane: int, size: int) -> None:
        index = self._index
        index.sizes.append(size)
        if self._has_lanes:
            index.lanes.append(lane)
        if self._seed is not None:
            index.order.append(_hash(self._seed + b"%d" % (len(index.order) - self._first)))


class _Block:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.records = 0


def _block_size(conversion: Conversion) -> int | None:
    """Uncompressed size of a gzip block in bytes; None if units are plain records.

    Records are compressed before they are divided among shards only if there is a limit on the size on disk. A block
    is small compared with the limit, so that shards fill up well; if records are counted or shuffled, it is one record.
    """
    output = conversion.output
    if output.compression == "none" or output.limit is None:
        return None
    if conversion.shuffle or conversion.limit is not None or output.records_per_shard:
        return 1
    return min(_GZIP_BLOCK, max(output.limit // 16, 1))


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
