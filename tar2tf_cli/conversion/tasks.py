"""Tasks that any worker can run on its own: reading inputs and writing a shard.

A local tar with large entries and no ops is only measured (from its headers alone if entries are stored unchanged), and
shards are written directly from it. The records of any other input are written to a spool and copied to shards from
there.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final, Literal, TypeAlias

from tar2tf_cli.conversion.sharding import Piece, Shard
from tar2tf_cli.conversion.spool import Spool, gzip_stream, spool_is_whole
from tar2tf_cli.conversion.spool_index import SpoolIndex, load_index, save_index
from tar2tf_cli.errors import NotAdjacentError, SourceError, Tar2tfError, changed
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.formats.record_file import WholeFile, sync
from tar2tf_cli.formats.record_lengths import LengthReader
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import RecordFile, shard_file
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["ReadInputs", "ShardReport", "Worker", "WriteShard", "copied"]

_LARGE_RECORD: Final = 8192
_PROBE: Final = 64
_COPY: Final = 1 << 20
_MOST_OPEN: Final = 64

Chunk: TypeAlias = tuple[Iterable[bytes], int]
"""Framed bytes in parts, and their total size."""


@dataclass(slots=True)
class Worker:
    """The context that the tasks of a conversion share.

    Attributes:
        folder: the working folder, which holds indexes, spools and unfinished shards.
        scratch: the folder to write them to; empty if that is the working folder itself.
        threads: how many threads work on one input.
        direct: whether shards are written without the page cache, as nothing reads them soon afterwards.
        compared: numbers of inputs whose records are compared with former shards, and so need spools.
        on_bytes: called with the number of stored bytes after each read of an input.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]
    folder: str
    threads: int = 1
    direct: bool = False
    compared: frozenset[int] = frozenset()
    on_bytes: Callable[[int], None] | None = None
    scratch: str = ""

    def path(self, number: int, kind: Literal["index", "spool"]) -> str:
        """Path of an input's index or spool in the working folder."""
        return os.path.join(self.folder, f"input-{number:05d}.{kind}")

    def made(self, number: int, kind: Literal["index", "spool"]) -> str:
        """Path at which an input's index or spool is written."""
        path = self.path(number, kind)
        return os.path.join(self.scratch, os.path.basename(path)) if self.scratch else path

    def read(self, number: int, **options: Any) -> Reading:
        """Open an input for reading; its records may be made elsewhere."""
        item = self.inputs[number]
        made: Reading | None = self.source.records(item, self.on_bytes)
        return made or Reading(self.conversion, self.source, item, first=number == 0, **options)


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """Reads inputs: writes the index of each, and a spool of its records unless the input will be read again.

    Indexes and spools that an interrupted run left are kept if they are whole. Several inputs of a remote bucket are
    fetched concurrently.

    Attributes:
        numbers: the inputs' numbers in the plan.
    """

    numbers: tuple[int, ...]

    def needs_folder(self, worker: Worker) -> bool:
        """Whether an interrupted run left something for it."""
        return any(os.path.exists(worker.path(number, "index")) for number in self.numbers)

    def run(self, worker: Worker) -> list[InputReport | Tar2tfError]:
        """The reports of the inputs in order, up to and including the first error."""
        source = worker.source
        with ExitStack() as stack:
            if len(self.numbers) > 1:
                stack.enter_context(source.expecting([worker.inputs[number] for number in self.numbers]))
            results: list[InputReport | Tar2tfError] = []
            for number in self.numbers:
                try:
                    results.append(self._read(worker, number))
                except Tar2tfError as error:
                    return [*results, error]
        return results

    def _read(self, worker: Worker, number: int) -> InputReport:
        index_path, spool_path = worker.path(number, "index"), worker.path(number, "spool")
        found = load_index(index_path)
        if found:
            left = InputReport.from_json(found[1])
            if left.spool_crc is None or not os.path.exists(spool_path) or spool_is_whole(spool_path, left.spool_crc):
                return left
        index = SpoolIndex()
        try:
            direct = _may_be_direct(worker) and number not in worker.compared
            measured = _measured(worker, number, index) if direct else None
            report = measured or _spooled(worker, number, index)
        except NotAdjacentError:
            index.clear()
            report = _spooled(worker, number, index, regroup=True)
        save_index(worker.made(number, "index"), index, report.to_json())
        return report


def _may_be_direct(worker: Worker) -> bool:
    """Whether records are cheap to make twice, and each one's place depends only on the records before it."""
    spec = worker.conversion
    light = spec.is_light and spec.output.compression == "none" and spec.on_error == "fail"
    return worker.source.seekable and light and not (spec.shuffle or spec.split or spec.input.regroup)


def _measured(worker: Worker, number: int, index: SpoolIndex) -> InputReport | None:
    """Fill in the index without writing a spool; None if that is impossible, or would cost more than it saves.

    If entries are stored unchanged, the headers alone give the sizes.
    """
    limit = worker.conversion.limit
    with worker.read(number, sizes_only=worker.conversion.keeps_entries, ahead=limit is not None) as reading:
        if not reading.seekable or reading.regroups:
            return None
        for size in islice(reading.sizes(), limit):
            index.sizes.append(size)
            index.offsets.append(reading.offset)
            if len(index.sizes) == _PROBE and sum(index.sizes) < _PROBE * _LARGE_RECORD:
                index.clear()
                return None
    return reading.report


def _spooled(worker: Worker, number: int, index: SpoolIndex, *, regroup: bool = False) -> InputReport:
    """Write an input's records to its spool, and fill in the index.

    Raises:
        NotAdjacentError: when members of samples are not adjacent, and `regroup` would put them together.
    """
    spec = worker.conversion
    most = None if spec.shuffle else spec.limit
    options = {"ahead": most is not None, "regroup": regroup}
    with (
        worker.read(number, on_bytes=worker.on_bytes, threads=worker.threads, **options) as reading,
        WholeFile(worker.made(number, "spool"), lasting=False) as file,
    ):
        spool = Spool(spec, worker.inputs[number].name, file, index)
        for key, parts, size in islice(reading.records(spool.take if most is None else None), most):
            spool.add(key, parts, size)
        spool.finish()
    reading.report.spool_crc = file.crc
    return reading.report


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard as written: bytes on disk, records, CRC-32C of the file."""

    size: int
    records: int
    crc: int


@dataclass(frozen=True, slots=True)
class WriteShard:
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
        path = self.shard.part(worker.scratch or worker.folder)
        report = self._written(worker, path)
        if worker.scratch:  # perhaps on another machine than the flusher
            sync(path)
        return report

    def _written(self, worker: Worker, path: str) -> ShardReport:
        output = worker.conversion.output
        compressed_whole = output.compression == "gzip" and output.limit is None
        if not (compressed_whole or output.index) and (report := self._taken_over(worker, path)):
            return report
        chunks = copied(worker, self.shard)
        if compressed_whole:
            chunks = gzip_stream(chunks)
        with shard_file(path, self.shard.size) if worker.direct else RecordFile(path) as file:
            for parts, size in chunks:
                file.write(parts, size)
        if output.index:
            write_offsets(path)
        return ShardReport(file.size, self.shard.records, file.crc)

    def _taken_over(self, worker: Worker, path: str) -> ShardReport | None:
        """Rename a spool to the shard if it holds exactly the shard's bytes; otherwise None."""
        first, *others = self.shard.pieces
        spool = worker.path(first.source, "spool")
        if others or not first.spooled or not os.path.exists(spool) or os.stat(spool).st_size != first.size:
            return None
        found = load_index(worker.path(first.source, "index"))
        if found is None:
            return None
        (os.link if worker.scratch else os.replace)(spool, path)  # another attempt may need it
        return ShardReport(first.size, self.shard.records, found[1]["spool_crc"])


def copied(worker: Worker, shard: Shard) -> Iterator[Chunk]:
    """The bytes of a shard, read from spools or directly from inputs."""
    spools: dict[int, int] = {}  # open file descriptors; their number is kept below any limit on open files
    try:
        for piece in shard.pieces:
            if not piece.spooled:
                yield from _from_input(worker, piece)
                continue
            if piece.source not in spools:
                if len(spools) == _MOST_OPEN:
                    os.close(spools.pop(next(iter(spools))))
                spools[piece.source] = _open_spool(worker, piece.source)
            yield from _from_spool(spools[piece.source], piece)
    finally:
        for descriptor in spools.values():
            os.close(descriptor)


def _open_spool(worker: Worker, number: int) -> int:
    """A file descriptor of an input's spool; the spool is written again if an interrupted run removed it."""
    path = worker.path(number, "spool")
    if not os.path.exists(path):
        path = worker.made(number, "spool")
        found = load_index(worker.path(number, "index"))
        regroup = found is not None and bool(found[1]["not_adjacent"])
        report = _spooled(worker, number, SpoolIndex(), regroup=regroup)
        if found is None or report.spool_crc != found[1]["spool_crc"]:
            raise changed(worker.source.locate(worker.inputs[number].name))
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _from_spool(descriptor: int, piece: Piece) -> Iterator[Chunk]:
    position, end = piece.start, piece.start + piece.size
    while position < end:
        data = os.pread(descriptor, min(_COPY, end - position), position)
        if not data:
            raise SourceError("a spool in the working folder was cut short", hint="run the same command again")
        position += len(data)
        yield [data], len(data)


def _from_input(worker: Worker, piece: Piece) -> Iterator[Chunk]:
    with worker.read(piece.source, on_bytes=worker.on_bytes, trusted=True) as reading:
        reading.seek(piece.start)
        left = piece.size
        for _, parts, size in islice(reading.records(), piece.units):
            left -= size
            yield parts, size
        if left:
            raise changed(reading.name)


def write_offsets(path: str) -> None:
    """Write a shard's `--index`: a line `OFFSET SIZE` for each record, in bytes, framing included."""
    with open(path, "rb", buffering=0) as stream, RecordFile(f"{path}.idx") as file:
        reader = LengthReader(stream, path)
        offsets = array("Q", (offset for offset, _ in reader))
        offsets.append(reader.offset)
        for start, end in pairwise(offsets):
            line = b"%d %d\n" % (start, end - start)
            file.write([line], len(line))
