"""The task that writes a shard, with bytes from spools or directly from the inputs."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.conversion.read_inputs import spool_inputs
from tar2tf_cli.conversion.sharding import Piece, PlannedShard, ShardReport, rows_of
from tar2tf_cli.conversion.spool import Chunk, overhead_size, shard_bytes
from tar2tf_cli.conversion.worker import Worker, load_group
from tar2tf_cli.errors import SourceError, Tar2tfError, WorkerError, changed
from tar2tf_cli.flow.sample_flow import ReadOptions
from tar2tf_cli.formats.files import RecordFile, shard_file, sync
from tar2tf_cli.sinks import Flusher
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import NamedTuple

_COPY: Final = 1 << 18  # stays in the CPU cache until it is written
MOST_OPEN: Final = 64


class WriteShard(NamedTuple):
    """Writes one shard to a temporary path; the flusher flushes it to disk later.

    The bytes are written in one of these ways, each the fastest in its case:

    - copied from spools, which every conversion can do;
    - straight from the tars, if no op changes a sample: half of the bytes written, 0.6 of the time for JPEG;
    - by a table of rows, if records are shuffled, so that memory does not grow with their number;
    - by renaming a spool that holds exactly the shard, without copying;
    - by `EagerShardWriter` while inputs are still read, which saves 8 to 10 % of the time for small samples.

    Attributes:
        shard: the shard.
    """

    shard: PlannedShard

    def needs_folder(self, worker: Worker) -> bool:
        """Whether the task needs files of other tasks: always, as it copies from spools."""
        return True

    def run(self, worker: Worker) -> ShardReport:
        """Write the shard to the working folder, with its `--index` next to it, and return its report.

        Raises:
            SourceError: when an input changed after it was measured.
            SinkError: when the shard cannot be written.
        """
        path = self.shard.part(worker.scratch or worker.folder)
        report = self._written(worker, path)
        if worker.scratch:  # perhaps on another machine than the flusher
            sync(path)
        return report

    def _written(self, worker: Worker, path: str) -> ShardReport:
        output = worker.conversion.output
        as_it_is = not (output.compresses_shards or output.index or overhead_size(output))
        if as_it_is and (report := self._rename_spool(worker, path)):
            return report
        report = _write(worker, path, self.shard, self.shard.pieces)
        if output.index:
            write_index(path, worker.conversion)
        return report

    def _rename_spool(self, worker: Worker, path: str) -> ShardReport | None:
        """Rename a spool to the shard if it holds exactly the shard's bytes; otherwise return None."""
        first, *others = self.shard.pieces
        spool = worker.path(first.group, "spool")
        if others or not first.spooled or not os.path.exists(spool) or os.stat(spool).st_size != first.size:
            return None
        group = load_group(worker.path(first.group, "index"))
        if group is None or group.spool_crc is None:
            return None
        (os.link if worker.scratch else os.replace)(spool, path)  # another attempt may need it
        return ShardReport(first.size, self.shard.records, group.spool_crc)


def _write(worker: Worker, path: str, shard: PlannedShard, pieces: Iterable[Piece]) -> ShardReport:
    """Write a shard from its pieces, to which more may be added while they are iterated."""
    with shard_file(path, shard.size) if worker.direct else RecordFile(path) as file:
        for parts, size in shard_bytes(_copied(worker, pieces), worker.conversion.output):
            file.write(parts, size)
    return ShardReport(file.size, shard.records, file.crc)


def _copied(worker: Worker, pieces: Iterable[Piece]) -> Iterator[Chunk]:
    """Iterate over the bytes of pieces, read from spools or directly from inputs."""
    with OpenSpools(worker) as spools:
        for piece in pieces:
            if worker.conversion.shuffle:
                width = 4 if worker.conversion.output.traits.holds == "sample" else 3
                yield from _from_table(worker.path(piece.group, "table"), width, piece, spools)
            elif piece.spooled:
                yield from from_spool(spools[piece.group], piece)
            else:
                yield from _from_input(worker, piece)


class OpenSpools:
    """File descriptors of the spools of groups, fewer than any usual limit on open files."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._open: dict[int, int] = {}

    def __getitem__(self, group: int) -> int:
        if group not in self._open:
            if len(self._open) == MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[group] = open_spool(self._worker, group)
        return self._open[group]

    def __enter__(self) -> OpenSpools:
        return self

    def __exit__(self, *exception: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


def open_spool(worker: Worker, number: int) -> int:
    """Open a group's spool and return its file descriptor; a spool that an interrupted run removed is written again."""
    path = worker.path(number, "spool")
    if not os.path.exists(path):
        path = worker.new_path(number, "spool")
        known = load_group(worker.path(number, "index"))
        again = spool_inputs(worker, known.numbers if known else (number,))
        if again.error:
            raise again.error
        if known is None or again.spool_crc != known.spool_crc:
            raise changed(worker.inputs.name(number))
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _from_table(path: str, width: int, piece: Piece, spools: OpenSpools) -> Iterator[Chunk]:
    """Iterate over the bytes of shuffled records, reading some at a time in their order in the spools."""
    groups, starts, sizes, *_ = rows_of(path, piece.first, piece.units, width)
    first = 0
    while first < piece.units:
        size, stop = sizes[first], first + 1
        if size > _COPY:
            yield from from_spool(spools[groups[first]], piece._replace(start=starts[first], size=size))
            first = stop
            continue
        while stop < piece.units and size + sizes[stop] <= _COPY:
            size, stop = size + sizes[stop], stop + 1
        records = [b""] * (stop - first)
        for row in sorted(range(first, stop), key=groups.__getitem__):
            records[row - first] = record_at(spools[groups[row]], starts[row], sizes[row])
        yield records, size
        first = stop


def record_at(descriptor: int, start: int, size: int) -> bytes:
    """Return the bytes of one record of a spool."""
    data = os.pread(descriptor, size, start)
    if len(data) < size:
        raise _cut_short()
    return data


def _cut_short() -> SourceError:
    return SourceError("a spool in the working folder was cut short", hint="run the same command again")


def from_spool(descriptor: int, piece: Piece) -> Iterator[Chunk]:
    """Iterate over the bytes of a piece, read from its spool."""
    position, end = piece.start, piece.start + piece.size
    while position < end:
        data = os.pread(descriptor, min(_COPY, end - position), position)
        if not data:
            raise _cut_short()
        position += len(data)
        yield [data], len(data)


def _from_input(worker: Worker, piece: Piece) -> Iterator[Chunk]:
    """Iterate over the bytes of a piece, copied from its input or encoded again."""
    left = piece.size
    for chunk in _copied_from_input(worker, piece) if piece.copied else _encoded_again(worker, piece):
        left -= chunk[1]
        yield chunk
    if left:
        raise changed(worker.inputs.name(piece.group))


def _copied_from_input(worker: Worker, piece: Piece) -> Iterator[Chunk]:
    """Iterate over bytes copied from an input; records were checked when the input was measured."""
    left = piece.size
    with closing(worker.inputs.open_stored(piece.group, worker.on_bytes)) as stream:
        stream.seek(piece.start)
        while left and (data := stream.read(min(_COPY, left))):
            left -= len(data)
            yield [data], len(data)


def _encoded_again(worker: Worker, piece: Piece) -> Iterator[Chunk]:
    units = piece.units
    with worker.inputs.open(piece.group, ReadOptions(trusted=True), worker.on_bytes) as reading:
        reading.seek(piece.start)
        for made in reading.records_and_batches():
            if isinstance(made, RecordBatch):
                data = made.first_records(units)
                units -= len(made)
                yield [data], len(data)
            else:
                units -= 1
                yield made[1:3]
            if units <= 0:  # bytes after the piece are not read
                return


def write_index(path: str, conversion: Conversion) -> None:
    """Write a shard's `--index`."""
    with open(path, "rb", buffering=0) as stream, RecordFile(f"{path}.idx") as file:
        for line in conversion.output.format.index_lines(stream, path, conversion.input.key_split):
            file.write([line], len(line))


MIN_EARLY_BYTES = 8 << 20  # minimum bytes of a shard that is not full yet


class EagerShardWriter:
    """Writes a shard in its own thread while pieces are added, copying them from their spools.

    This saves 8 to 10 % of the time, as writing to the disk begins before the last input is read.

    Args:
        shard: the shard; pieces may be added to it.
        worker: provides the paths of the spools and of the shard.
        flusher: receives the shard once it is complete, or an error.
    """

    def __init__(
        self, shard: PlannedShard, worker: Worker, flusher: Flusher[tuple[PlannedShard, ShardReport] | None]
    ) -> None:
        self._shard = shard
        self._worker = worker
        self._flusher = flusher
        self._pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._place = self._given = 0  # the last piece that was queued, and the number of its bytes queued
        self._wanted = True
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        self.grow()

    @property
    def busy(self) -> bool:
        """Whether part of the shard is still to be written."""
        return self._thread.is_alive()

    @staticmethod
    def is_suitable(shard: PlannedShard, folder: str) -> bool:
        """Whether an incomplete shard is large enough to start writing it, and no file of it exists yet."""
        return shard.size >= MIN_EARLY_BYTES and shard.pieces[0].spooled and not os.path.exists(shard.part(folder))

    def grow(self) -> None:
        """Queue the pieces added to the shard since the last call."""
        for place in range(self._place, len(self._shard.pieces)):
            piece, given = self._shard.pieces[place], self._given if place == self._place else 0
            if not piece.spooled:
                self._wanted = False
            elif piece.size > given:
                self._pieces.put(piece._replace(start=piece.start + given, size=piece.size - given))
            self._place, self._given = place, piece.size

    def complete(self, shard: PlannedShard) -> bool:
        """Write the rest of a complete shard; return False if it is not the current one, or not entirely spooled."""
        if shard is not self._shard:
            return False
        self.grow()
        if not self._wanted:
            self.stop()
            return False
        self._pieces.put(None)
        self._flusher.expect()
        return True

    def stop(self) -> None:
        """Stop at once."""
        self._wanted = False
        self._pieces.put(None)
        self._thread.join()

    def run(self) -> None:
        part = self._shard.part(self._worker.folder)
        try:
            report = _write(self._worker, part, self._shard, self._queued())
        except Tar2tfError as error:
            self._flusher.fail(error)
        except OSError as error:
            self._flusher.fail(WorkerError(f"{type(error).__name__}: {error}"))
        else:
            if self._wanted:
                self._flusher.put([part], (self._shard, report))

    def _queued(self) -> Iterator[Piece]:
        while self._wanted and (piece := self._pieces.get()):
            yield piece


class FillingShard:
    """Writes one shard at a time while it is being filled, if that is worthwhile.

    Args:
        worker: provides the paths of the spools and of the shard.
        flusher: receives the shard once it is complete.
        wanted: whether to write shards early.
    """

    def __init__(
        self, worker: Worker, flusher: Flusher[tuple[PlannedShard, ShardReport] | None], *, wanted: bool
    ) -> None:
        self._worker = worker
        self._flusher = flusher
        self._wanted = wanted
        self._writer: EagerShardWriter | None = None

    def grow(self, open_shards: Iterable[PlannedShard]) -> None:
        """Write pieces added to the current shard, or begin with the first incomplete shard that is large enough."""
        if self._writer and self._writer.busy:
            self._writer.grow()
        elif self._wanted:
            folder = self._worker.folder
            shard = next((shard for shard in open_shards if EagerShardWriter.is_suitable(shard, folder)), None)
            if shard:
                self._writer = EagerShardWriter(shard, self._worker, self._flusher)

    def complete(self, shard: PlannedShard) -> bool:
        """Write the rest of a complete shard; return False if it is not the current one, or not entirely spooled."""
        return self._writer is not None and self._writer.complete(shard)

    def stop(self) -> None:
        """Stop at once."""
        if self._writer:
            self._writer.stop()
