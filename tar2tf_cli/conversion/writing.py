"""The task that writes a shard, from spools or directly from inputs."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tar2tf_cli.conversion.group import load_group
from tar2tf_cli.conversion.reading import Worker, spooled
from tar2tf_cli.conversion.sharding import Piece, Shard, ShardReport
from tar2tf_cli.conversion.shuffling import rows_of
from tar2tf_cli.conversion.spool import gzip_stream
from tar2tf_cli.errors import SourceError, changed
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.direct_file import shard_file
from tar2tf_cli.formats.record_file import RecordFile, sync
from tar2tf_cli.samples.batches import Batch

if TYPE_CHECKING:
    from tar2tf_cli.conversion.placing import Placing

__all__ = ["WriteShard", "from_spool"]

_COPY: Final = 1 << 18  # stays in the CPU cache until it is written
_MOST_OPEN: Final = 64

Chunk: TypeAlias = tuple[Iterable[bytes], int]
"""Framed bytes in parts, and their total size."""


class WriteShard(NamedTuple):
    """Writes one shard to a temporary path; the flusher flushes it to disk later.

    Attributes:
        shard: the shard.
    """

    shard: Shard

    def needs_folder(self, worker: Worker) -> bool:
        """Always: it copies from spools."""
        return True

    def run(self, worker: Worker) -> ShardReport:
        """Write the shard to the working folder, with its `--index` beside it, and return its report.

        Raises:
            SourceError: when an input changed after it was measured.
            SinkError: when the shard cannot be written.
        """
        if worker.placing and (placed := self._placed(worker, worker.placing)):
            return placed
        path = self.shard.part(worker.scratch or worker.folder)
        report = self._written(worker, path)
        if worker.scratch:  # perhaps on another machine than the flusher
            sync(path)
        return report

    def _written(self, worker: Worker, path: str) -> ShardReport:
        output = worker.conversion.output
        if not (output.compresses_shards or output.index) and (report := self._taken_over(worker, path)):
            return report
        with shard_file(path, self.shard.size) if worker.direct else RecordFile(path) as file:
            chunks = copied(worker, self.shard, file)
            for parts, size in gzip_stream(chunks) if output.compresses_shards else chunks:
                file.write(parts, size)
        if output.index:
            write_offsets(path)
        return ShardReport(file.size, self.shard.records, file.crc)

    def _placed(self, worker: Worker, placing: Placing) -> ShardReport | None:
        """The shard that the cluster stored, if that is still there; None if it did not."""
        group = load_group(worker.path(self.shard.pieces[0].group, "index"))
        if group is None or group.spool_crc is None or not (group.reports[0].placed and placing.is_there(self.shard)):
            return None
        return ShardReport(self.shard.size, self.shard.records, group.spool_crc, placed=True)

    def _taken_over(self, worker: Worker, path: str) -> ShardReport | None:
        """Rename a spool to the shard if it holds exactly the shard's bytes; otherwise None."""
        first, *others = self.shard.pieces
        spool = worker.path(first.group, "spool")
        if others or not first.spooled or not os.path.exists(spool) or os.stat(spool).st_size != first.size:
            return None
        group = load_group(worker.path(first.group, "index"))
        if group is None or group.spool_crc is None:
            return None
        (os.link if worker.scratch else os.replace)(spool, path)  # another attempt may need it
        return ShardReport(first.size, self.shard.records, group.spool_crc)


def copied(worker: Worker, shard: Shard, file: RecordFile) -> Iterator[Chunk]:
    """The bytes of a shard, read from spools or directly from inputs, of which batches go to the file at once."""
    with _Spools(worker) as spools:
        for piece in shard.pieces:
            if worker.conversion.shuffle:
                yield from _from_table(worker.path(piece.group, "table"), piece, spools)
            elif piece.spooled:
                yield from from_spool(spools[piece.group], piece)
            else:
                yield from _from_input(worker, piece, file)


class _Spools:
    """Descriptors of the spools of groups; their number is kept below any limit on open files."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._open: dict[int, int] = {}

    def __getitem__(self, group: int) -> int:
        if group not in self._open:
            if len(self._open) == _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[group] = _open_spool(self._worker, group)
        return self._open[group]

    def __enter__(self) -> _Spools:
        return self

    def __exit__(self, *exception: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


def _open_spool(worker: Worker, number: int) -> int:
    """A file descriptor of a group's spool; the spool is written again if an interrupted run removed it."""
    path = worker.path(number, "spool")
    if not os.path.exists(path):
        path = worker.new_path(number, "spool")
        found = load_group(worker.path(number, "index"))
        again = spooled(worker, found.numbers if found else (number,))
        if again.error:
            raise again.error
        if found is None or again.spool_crc != found.spool_crc:
            raise changed(worker.source.locate(worker.inputs[number].name))
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _from_table(path: str, piece: Piece, spools: _Spools) -> Iterator[Chunk]:
    """The bytes of shuffled records, of which a few at a time are read in the order in which they are in spools."""
    groups, starts, sizes = rows_of(path, piece.first, piece.units)
    first = 0
    while first < piece.units:
        size, stop = sizes[first], first + 1
        if size > _COPY:
            yield from from_spool(spools[groups[first]], piece._replace(start=starts[first], size=size))
            first = stop
            continue
        while stop < piece.units and size + sizes[stop] <= _COPY:
            size, stop = size + sizes[stop], stop + 1
        found = [b""] * (stop - first)
        for row in sorted(range(first, stop), key=groups.__getitem__):
            found[row - first] = _at(spools[groups[row]], starts[row], sizes[row])
        yield found, size
        first = stop


def _at(descriptor: int, start: int, size: int) -> bytes:
    data = os.pread(descriptor, size, start)
    if len(data) < size:
        raise _cut_short()
    return data


def _cut_short() -> SourceError:
    return SourceError("a spool in the working folder was cut short", hint="run the same command again")


def from_spool(descriptor: int, piece: Piece) -> Iterator[Chunk]:
    """The bytes of a piece, read from its spool."""
    position, end = piece.start, piece.start + piece.size
    while position < end:
        data = os.pread(descriptor, min(_COPY, end - position), position)
        if not data:
            raise _cut_short()
        position += len(data)
        yield [data], len(data)


class _Enough(Exception):
    """A piece is complete, and nothing behind it may be read."""


def _from_input(worker: Worker, piece: Piece, file: RecordFile) -> Iterator[Chunk]:
    units, left = piece.units, piece.size

    def take(batch: Batch) -> None:
        nonlocal units, left
        data = batch.first_records(units)
        file.write([data], len(data))
        units, left = units - len(batch), left - len(data)
        if units <= 0:
            raise _Enough

    with worker.read(piece.group, on_bytes=worker.on_bytes, trusted=True) as reading, contextlib.suppress(_Enough):
        reading.seek(piece.start)
        for _, parts, size in reading.records(take if kernel.native() else None):
            units, left = units - 1, left - size
            yield parts, size
            if not units:
                break
    if left:
        raise changed(reading.name)


def write_offsets(path: str) -> None:
    """Write a shard's `--index`: a line `OFFSET SIZE` for each record, in bytes, framing included."""
    from tar2tf_cli.formats.record_lengths import LengthReader

    with open(path, "rb", buffering=0) as stream, RecordFile(f"{path}.idx") as file:
        reader = LengthReader(stream, path)
        offsets = array("Q", (offset for offset, _ in reader))
        offsets.append(reader.offset)
        for start, end in pairwise(offsets):
            line = b"%d %d\n" % (start, end - start)
            file.write([line], len(line))
