"""The task that reads inputs, and what all tasks of a conversion share; writing.py has the other task.

A local tar with large entries and no ops is only measured (from its headers alone if entries are stored unchanged), and
shards are written directly from it. The records of any other input are written to a spool and copied to shards from
there.

Measured with the whole command, 440 MB of 50 kB samples into shards of 100 MB on two cores under other load: written
directly, 0.65 s of CPU time and 2.5 s; through spools, 0.99 s and 4.4 s. With `--type cls=int64`, each input is read as
a whole twice: the CPU time is the same, and 2.1 s become 2.4 s through spools.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.conversion.group import FileKind, Group, group_file, load_group, save_group
from tar2tf_cli.conversion.spool import Spool
from tar2tf_cli.conversion.spool_index import SpoolIndex
from tar2tf_cli.errors import NotAdjacentError, Tar2tfError
from tar2tf_cli.flow.reading import Making, Reading
from tar2tf_cli.formats.record_file import WholeFile, crc32c_of_file
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.tar_samples import put_together
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.conversion.placing import Placing

__all__ = ["ReadInputs", "Worker", "spooled"]

_LARGE_RECORD: Final = 8192
_PROBE: Final = 16
_LOADED: Final = 1 << 17  # up to this size, reading an input again costs more than copying it


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """The context that the tasks of a conversion share.

    Attributes:
        folder: the working folder, which holds indexes, spools and unfinished shards.
        scratch: the folder to write them to; empty if that is the working folder itself.
        threads: how many threads work on one input.
        direct: whether shards are written without the page cache, as nothing reads them soon afterwards.
        fills: whether a shard is written while it fills up.
        stores_indexes: whether indexes are read from their files, as all are needed before the first shard is planned.
        placing: where a cluster stores the shards itself; None where they are written here.
        on_bytes: called with the number of stored bytes after each read of an input.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]
    folder: str
    threads: int = 1
    direct: bool = False
    fills: bool = False
    stores_indexes: bool = False
    placing: Placing | None = None
    on_bytes: Callable[[int], None] | None = None
    scratch: str = ""
    _making: Making | None = None

    def path(self, group: int, kind: FileKind) -> str:
        """Path of the index or spool of a group of inputs in the working folder."""
        return group_file(self.folder, group, kind)

    def is_small(self, number: int) -> bool:
        """Whether opening an input costs much in comparison with reading it, so that it is better read just once."""
        size = self.inputs[number].size
        return size is not None and size <= min(_LOADED, self.conversion.max_entry_size)

    def new_path(self, group: int, kind: FileKind) -> str:
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
        group = self._made(worker)
        if worker.stores_indexes:
            group.index = SpoolIndex()
        return group

    def _made(self, worker: Worker) -> Group:
        left = load_group(worker.path(self.numbers[0], "index"))
        if left and left.numbers == self.numbers and _has_spool(worker, left):
            return left
        if worker.placing:
            group = worker.placing.place(worker.source, self.numbers, worker.inputs)
        else:
            group = _measured(worker, self.numbers) or spooled(worker, self.numbers)
        if group.reports:
            save_group(worker.new_path(group.number, "index"), group)
        return group


def _has_spool(worker: Worker, group: Group) -> bool:
    """Whether nothing is wrong with a group's spool, which is gone if all its records are in whole shards."""
    path = worker.path(group.number, "spool")
    return group.spool_crc is None or not os.path.exists(path) or crc32c_of_file(path) == group.spool_crc


def _may_be_direct(worker: Worker, numbers: tuple[int, ...]) -> bool:
    """Whether records are cheap to make twice, and each one's place depends only on the records before it."""
    spec = worker.conversion
    light = spec.is_light and spec.output.compression == "none" and spec.on_error == "fail"
    if not (worker.source.seekable and light) or spec.shuffle or spec.split or spec.input.regroup:
        return False
    return not any(map(worker.is_small, numbers))


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


def spooled(worker: Worker, numbers: tuple[int, ...]) -> Group:
    """Write the records of inputs to a spool, up to the first input with an error."""
    group = Group(numbers)
    with ExitStack() as stack:
        if len(numbers) > 1:
            stack.enter_context(worker.source.expecting([worker.inputs[number] for number in numbers]))
        file = stack.enter_context(WholeFile(worker.new_path(group.number, "spool"), lasting=False))
        spool = Spool(worker.conversion, file, group.index)
        try:
            for number in numbers:
                group.add(_append(worker, number, spool))
        except Tar2tfError as error:
            if not group.reports:
                raise
            group.error = error
    group.spool_crc = file.crc
    return group


def _append(worker: Worker, number: int, spool: Spool) -> InputReport:
    """Append an input's records, or nothing after an error."""
    spec, item, mark = worker.conversion, worker.inputs[number], spool.mark()
    most = None if spec.shuffle else spec.limit
    options = {"ahead": most is not None, "small": worker.is_small(number), "threads": worker.threads}

    def read(regroup: bool) -> InputReport:
        try:
            with worker.read(number, on_bytes=worker.on_bytes, regroup=regroup, **options) as reading:
                spool.begin(item.name)
                for key, parts, size in islice(reading.records(spool.take if most is None else None), most):
                    spool.add(key, parts, size)
                spool.finish()
        except Tar2tfError:
            spool.go_back(mark)
            raise
        return reading.report

    return put_together(read)
