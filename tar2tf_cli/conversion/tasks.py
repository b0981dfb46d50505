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
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from tar2tf_cli.conversion.group import Group, group_file, load_group, save_group
from tar2tf_cli.conversion.sharding import Piece, Shard
from tar2tf_cli.conversion.spool import Spool, gzip_stream, spool_is_whole
from tar2tf_cli.errors import NotAdjacentError, SourceError, Tar2tfError, changed
from tar2tf_cli.flow.reading import Making, Reading
from tar2tf_cli.formats.record_file import WholeFile, sync
from tar2tf_cli.formats.record_lengths import LengthReader
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import RecordFile, shard_file
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.conversion.placing import Placing

__all__ = ["ReadInputs", "ShardReport", "Worker", "WriteShard", "copied"]

_LARGE_RECORD: Final = 8192
_PROBE: Final = 64
_LOADED: Final = 1 << 17  # up to this size, reading an input again costs more than copying it
_COPY: Final = 1 << 20
_MOST_OPEN: Final = 64

Chunk: TypeAlias = tuple[Iterable[bytes], int]
"""Framed bytes in parts, and their total size."""


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """The context that the tasks of a conversion share.

    Attributes:
        folder: the working folder, which holds indexes, spools and unfinished shards.
        scratch: the folder to write them to; empty if that is the working folder itself.
        threads: how many threads work on one input.
        direct: whether shards are written without the page cache, as nothing reads them soon afterwards.
        placing: where a cluster stores the shards itself; None where they are written here.
        compared: numbers of inputs whose records are compared with former shards, and so need spools.
        on_bytes: called with the number of stored bytes after each read of an input.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]
    folder: str
    threads: int = 1
    direct: bool = False
    placing: Placing | None = None
    compared: frozenset[int] = frozenset()
    on_bytes: Callable[[int], None] | None = None
    scratch: str = ""
    _making: Making | None = None

    def path(self, group: int, kind: Literal["index", "spool"]) -> str:
        """Path of the index or spool of a group of inputs in the working folder."""
        return group_file(self.folder, group, kind)

    def is_small(self, number: int) -> bool:
        """Whether opening an input costs much in comparison with reading it, so that it is better read just once."""
        size = self.inputs[number].size
        return size is not None and size <= min(_LOADED, self.conversion.max_entry_size)

    def made(self, group: int, kind: Literal["index", "spool"]) -> str:
        """Path at which the index or spool of a group is written."""
        return group_file(self.scratch or self.folder, group, kind)

    def read(self, number: int, **options: Any) -> Reading:
        """Open an input for reading; its records may be made elsewhere."""
        self._making = making = self._making or Making(self.conversion, self.source)
        item = self.inputs[number]
        made: Reading | None = self.source.records(item, self.on_bytes)
        return made or Reading(self.conversion, self.source, item, first=number == 0, making=making, **options)


class ReadInputs(NamedTuple):
    """Reads a group of inputs: makes the index of their records, and a spool unless the inputs will be read again.

    Index and spool that an interrupted run left are kept if they are whole. Several inputs of a remote bucket are
    fetched concurrently.

    Attributes:
        numbers: the inputs' numbers in the plan; the first one is that of the group.
    """

    numbers: tuple[int, ...]

    def needs_folder(self, worker: Worker) -> bool:
        """Whether an interrupted run left something for it."""
        return os.path.exists(worker.path(self.numbers[0], "index"))

    def run(self, worker: Worker) -> Group:
        """What was read, up to the first error; the index is also saved for a later run."""
        left = load_group(worker.path(self.numbers[0], "index"))
        if left and left.numbers == self.numbers and _has_spool(worker, left):
            return left
        if worker.placing:
            group = worker.placing.place(worker.source, self.numbers, worker.inputs)
        else:
            group = _measured(worker, self.numbers) or _spooled(worker, self.numbers)
        if group.reports:
            save_group(worker.made(group.number, "index"), group)
        return group


def _has_spool(worker: Worker, group: Group) -> bool:
    """Whether nothing is wrong with a group's spool, which is gone if all its records are in whole shards."""
    path = worker.path(group.number, "spool")
    return group.spool_crc is None or not os.path.exists(path) or spool_is_whole(path, group.spool_crc)


def _may_be_direct(worker: Worker, numbers: tuple[int, ...]) -> bool:
    """Whether records are cheap to make twice, and each one's place depends only on the records before it."""
    spec = worker.conversion
    light = spec.is_light and spec.output.compression == "none" and spec.on_error == "fail"
    if not (worker.source.seekable and light) or spec.shuffle or spec.split or spec.input.regroup:
        return False
    return not any(worker.is_small(number) or number in worker.compared for number in numbers)


def _measured(worker: Worker, numbers: tuple[int, ...]) -> Group | None:
    """The index of inputs without a spool; None if that is impossible, or would cost more than it saves."""
    group = Group(numbers)
    try:
        if not _may_be_direct(worker, numbers) or not all(_measure(worker, number, group) for number in numbers):
            return None
    except NotAdjacentError:
        return None
    except Tar2tfError as error:
        if not group.reports:
            raise
        group.index.cut([sum(group.counts) if column else 0 for column in group.index.lengths])
        group.error = error
    return group


def _measure(worker: Worker, number: int, group: Group) -> bool:
    """Add an input to a group without a spool, if it can be read by offset and its records are not small.

    If entries are stored unchanged, the headers alone give the sizes.
    """
    limit, sizes, offsets = worker.conversion.limit, group.index.sizes, group.index.offsets
    first = len(sizes)
    with worker.read(number, sizes_only=worker.conversion.keeps_entries, ahead=limit is not None) as reading:
        if not reading.seekable or reading.regroups:
            return False
        for size in islice(reading.sizes(), limit):
            sizes.append(size)
            offsets.append(reading.offset)
            if len(sizes) - first == _PROBE and sum(sizes[first:]) < _PROBE * _LARGE_RECORD:
                return False
    group.add(reading.report)
    return True


def _spooled(worker: Worker, numbers: tuple[int, ...]) -> Group:
    """Write the records of inputs to a spool, up to the first input with an error."""
    group = Group(numbers)
    with ExitStack() as stack:
        if len(numbers) > 1:
            stack.enter_context(worker.source.expecting([worker.inputs[number] for number in numbers]))
        file = stack.enter_context(WholeFile(worker.made(group.number, "spool"), lasting=False))
        spool = Spool(worker.conversion, file, group.index)
        for number in numbers:
            try:
                group.add(_append(worker, number, spool))
            except Tar2tfError as error:
                if not group.reports:
                    raise
                group.error = error
                break
    group.spool_crc = file.crc
    return group


def _append(worker: Worker, number: int, spool: Spool, *, regroup: bool = False) -> InputReport:
    """Append an input's records, or nothing after an error; samples that must be put together take a second try."""
    spec, item, mark = worker.conversion, worker.inputs[number], spool.mark()
    most = None if spec.shuffle else spec.limit
    options = {"ahead": most is not None, "regroup": regroup, "small": worker.is_small(number)}
    try:
        with worker.read(number, on_bytes=worker.on_bytes, threads=worker.threads, **options) as reading:
            spool.begin(item.name)
            for key, parts, size in islice(reading.records(spool.take if most is None else None), most):
                spool.add(key, parts, size)
            spool.finish()
    except Tar2tfError as error:
        spool.go_back(mark)
        if regroup or not isinstance(error, NotAdjacentError):
            raise
        return _append(worker, number, spool, regroup=True)
    return reading.report


class ShardReport(NamedTuple):
    """A shard as written: bytes on disk, records, CRC-32C of the file; whether it is at its final place already."""

    size: int
    records: int
    crc: int
    placed: bool = False


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


def copied(worker: Worker, shard: Shard) -> Iterator[Chunk]:
    """The bytes of a shard, read from spools or directly from inputs."""
    spools: dict[int, int] = {}  # open file descriptors; their number is kept below any limit on open files
    try:
        for piece in shard.pieces:
            if not piece.spooled:
                yield from _from_input(worker, piece)
                continue
            if piece.group not in spools:
                if len(spools) == _MOST_OPEN:
                    os.close(spools.pop(next(iter(spools))))
                spools[piece.group] = _open_spool(worker, piece.group)
            yield from _from_spool(spools[piece.group], piece)
    finally:
        for descriptor in spools.values():
            os.close(descriptor)


def _open_spool(worker: Worker, number: int) -> int:
    """A file descriptor of a group's spool; the spool is written again if an interrupted run removed it."""
    path = worker.path(number, "spool")
    if not os.path.exists(path):
        path = worker.made(number, "spool")
        found = load_group(worker.path(number, "index"))
        again = _spooled(worker, found.numbers if found else (number,))
        if again.error:
            raise again.error
        if found is None or again.spool_crc != found.spool_crc:
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
    with worker.read(piece.group, on_bytes=worker.on_bytes, trusted=True) as reading:
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
