"""The order of a conversion's tasks: inputs are read a little ahead, and shards are written once planned.

A task that writes to a local disk that fills up waits for uploads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.backend import Outcome, Task
from tar2tf_cli.conversion.input_queue import InputQueue, InputsInOrder, Rereads, SpoolFiles
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.publish import Tally
from tar2tf_cli.conversion.read_inputs import ReadInputs
from tar2tf_cli.conversion.sharding import PlannedShard, ShardPlanner, ShardReport, sorted_tables
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.conversion.worker import InputGroup, Worker
from tar2tf_cli.conversion.write_shard import FillingShard, WriteShard
from tar2tf_cli.engines.base import Schedule
from tar2tf_cli.errors import SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import Flusher

if TYPE_CHECKING:
    from tar2tf_cli.conversion.targets import Target


_TICK_SECONDS: Final = 0.2


class ReadProgress:
    """Reports how many bytes of the inputs have been read.

    Args:
        plan: the conversion and its inputs.
        events: notified of progress.
        size: number of bytes to be read; None if unknown.
    """

    def __init__(self, plan: Plan, events: Events, size: int | None) -> None:
        self._inputs = len(plan.inputs)
        self._events = events
        self._size = size
        self._before = 0  # bytes that an interrupted run read

    def begin(self, before: Callable[[], int]) -> None:
        """Report the total amount of work, and the part that an interrupted run did, computed only if needed."""
        if self._size:
            self._before = min(before(), self._size)
        self._events.planned(self._inputs, self._size, self._before)

    def report(self, size: int) -> None:
        """Report how many bytes this run has read; inputs that are read twice count once."""
        size += self._before
        self._events.progress(size if self._size is None else min(size, self._size))


class ConversionSchedule(Schedule):
    """Hands out tasks that read inputs and write shards, and passes their results to the tally and the target.

    Args:
        plan: the conversion and its inputs.
        worker: the context passed to each task.
        readers: the number of tasks that may read inputs at once.
        target: receives the shards.
        tally: adds up the totals of inputs and shards.
        events: notified of progress.
    """

    def __init__(self, plan: Plan, worker: Worker, readers: int, target: Target, tally: Tally, events: Events) -> None:
        self._plan = plan
        self._target = target
        self._tally = tally
        earlier = target.earlier
        self._planner = planner = _planner(plan, worker, tracked=earlier is not None)
        worker.stores_indexes = planner.needs_all_inputs
        self._spools = SpoolFiles(worker)
        due = earlier.changed if earlier else range(len(plan.inputs))
        remote = plan.source.capabilities.remote
        queue = InputQueue(plan.inputs, self._spools, readers, due, remote=remote, all_at_once=planner.needs_all_inputs)
        self._inputs = InputsInOrder(queue, readers)
        self._rereads = Rereads(earlier, queue) if earlier else None
        self._ready: deque[PlannedShard] = deque()
        self._flusher: Flusher[tuple[PlannedShard, ShardReport] | None] = Flusher()
        self._filling = FillingShard(worker, self._flusher, wanted=worker.writes_early and not (target.done or earlier))
        self._space = None
        if target.reads_shards and not planner.needs_all_inputs:
            self._space = DiskSpace(worker.folder, plan.conversion.output.limit or 0)
        self._progress = ReadProgress(plan, events, None if earlier else plan.size)

    def begin(self) -> None:
        """Report the total amount of work, and start flushing the files needed to continue."""
        self._progress.begin(self._read_before)
        if self._target.journal:
            self._flusher.submit(self._target.journal, None)
        self._advance()

    @property
    def pending(self) -> int:
        """The number of shards being flushed to disk."""
        return self._flusher.pending

    def next(self) -> Task | None:
        """Return the task of the next shard that is ready, or of the next inputs; None if these are too far ahead."""
        if self._ready:
            shard = self._ready[0]
            if not self._wait_for_room(lambda space: space.may_write(shard.size)):
                return None
            task = WriteShard(self._ready.popleft())
            if self._space:
                self._space.begin_writing(_name_of(task), shard.size)
            return task
        done = self._inputs.finished and not self._waits
        return None if done or not self._inputs.may_begin else self._next_inputs()

    def _next_inputs(self) -> ReadInputs | None:
        size = self._inputs.queue.next_size()
        if not self._wait_for_room(lambda space: space.may_read(size)):
            return None
        numbers = self._inputs.begin()
        if not numbers:
            return None
        task = ReadInputs(numbers)
        if self._space:
            self._space.begin_reading(_name_of(task), self._stored_size(numbers))
        return task

    def _stored_size(self, numbers: Iterable[int]) -> int:
        return sum(self._plan.inputs[number].size or 0 for number in numbers)

    def _wait_for_room(self, has_room: Callable[[DiskSpace], bool]) -> bool:
        """Whether a task that writes to the disk may begin; wait for uploads only if no running task can free space.

        Once there are no more uploads to wait for, it may begin: either space is free now, or the disk is too small.
        """
        space = self._space
        while space and not has_room(space):
            if not space.is_idle:
                return False
            if self._flusher.pending:
                self.settle(_TICK_SECONDS)
            elif not self._target.wait():
                break
        return True

    def take(self, outcome: Outcome) -> None:
        """Handle the outcome of a task."""
        task, result, error = outcome.task, outcome.result, outcome.error
        group = result if isinstance(result, InputGroup) else None
        if self._space:
            self._count_end(self._space, task, group)
        if isinstance(task, ReadInputs):
            self._take_group(group or InputGroup(task.numbers, error=error))
        elif error:
            raise error
        elif isinstance(task, WriteShard) and isinstance(result, ShardReport):
            self._flusher.submit(self._target.unsynced(task.shard), (task.shard, result))

    def _count_end(self, space: DiskSpace, task: Task, group: InputGroup | None) -> None:
        if not isinstance(task, ReadInputs) or group is None:
            space.end(_name_of(task))
            return
        spooled = 0 if group.spool_crc is None else sum(group.index.sizes)
        space.end(_name_of(task), self._stored_size(task.numbers), spooled)

    def _take_group(self, group: InputGroup) -> None:
        """Keep the result of reading a group; an input's error is raised after earlier inputs are divided."""
        self._inputs.end(group)
        if self._planner.needs_all_inputs:
            self._spools.unload(group)
        for number, report, units in group.parts():
            self._spools.need([units.group])
            if number < self._inputs.frontier:
                self._take_reread(number, units)
            else:
                self._inputs.add(number, report, units)
        self._advance()
        self._inputs.check(waits=self._waits)

    def settle(self, timeout: float) -> None:
        """Seal the shards that have been flushed to disk."""
        for shard, report in filter(None, self._flusher.done(timeout)):
            self._seal(shard, report)

    def progress(self, size: int) -> None:
        """Report how many bytes have been read."""
        self._progress.report(size)

    def _read_before(self) -> int:
        """Estimate the input bytes that an interrupted run read: those spooled, and those copied into finished shards.

        The size of a finished shard is about the number of bytes copied from a tar, and at least the number of spooled
        bytes.
        """
        groups = [(group.numbers, group.spool_crc is not None) for group in self._spools.saved_groups()]
        spooled = sum(self._stored_size(numbers) for numbers, is_spooled in groups if is_spooled)
        return spooled if all(is_spooled for _, is_spooled in groups) else max(spooled, self._target.done)

    def name(self, task: Task) -> str | None:
        """Return the path or URL of the shard that a task reads or writes."""
        if isinstance(task, ReadInputs):
            return self._plan.source.locate(self._plan.inputs[task.numbers[0]].name)
        output = self._plan.conversion.output
        if isinstance(task, WriteShard) and not output.is_stream:
            return output.template.path(task.shard.number, split=task.shard.lane, stem=task.shard.lane)
        return None

    def close(self) -> None:
        """Stop waiting for shards to be flushed."""
        self._filling.stop()
        self._flusher.close()

    def _advance(self) -> None:
        """Divide the inputs read so far among shards, and write the beginning of the shard being filled."""
        if not self._inputs.finished:
            self._divide()
        self._filling.grow(self._planner.open_shards)

    def _divide(self) -> None:
        """Divide the inputs read so far among shards, in input order and up to the limit."""
        inputs = self._inputs
        while (number := inputs.frontier) < len(self._plan.inputs) and not self._planner.full:
            read = inputs.next()
            if read:
                self._keep_for_update(number, read[1])
            else:
                read = self._rereads.known(number) if self._rereads else None
            if read is None:
                inputs.queue.prioritize(number)
                return
            self._add(number, *read)
        self._enqueue([*self._planner.finish()])
        for tar in self._planner.tars:
            self._check_keys(tar)
        self._tally.note_equal_keys(self._planner.keys.find_equal())
        inputs.finished = True

    def _keep_for_update(self, number: int, units: InputUnits) -> None:
        """In an update, keep the units of an input that was read; otherwise release its spool to the shards."""
        if self._rereads:
            self._rereads.add(number, units)
        else:
            self._spools.hand_over([units.group])

    def _add(self, number: int, report: InputReport, units: InputUnits) -> None:
        """Add the input at the frontier to the totals and to the shards."""
        self._tally.add_input(number, report)
        self._target.add_input(report, units)
        self._inputs.frontier += 1
        self._enqueue([*self._planner.add(number, units)])
        if (seen := self._planner.seen) and seen.repeated:
            self._tally.add_duplicates(report, seen.repeated)
        report.sample_keys.clear()

    @property
    def _waits(self) -> bool:
        """Whether a shard of an update waits for inputs."""
        return bool(self._rereads and self._rereads.waits)

    def _take_reread(self, number: int, units: InputUnits) -> None:
        """Handle an unchanged input that an update had to read again."""
        self._inputs.queue.mark_divided()
        shards = self._rereads.add_known(number, units) if self._rereads else None
        if shards is None:
            message = "has different records than before, although its size and version are the same"
            name = self._plan.source.locate(self._plan.inputs[number].name)
            raise SourceError(message, shard=name, hint="pass --overwrite to convert everything again")
        for shard in shards:
            self._spools.need(shard.groups)
            self._ready.append(shard)
        self._drop_unneeded()

    def _drop_unneeded(self) -> None:
        """Release the spools of an update's inputs that no further shard needs."""
        if self._rereads:
            for group in self._rereads.drop_unneeded(self._planner.open_shards):
                self._release({group})

    def _enqueue(self, shards: Sequence[PlannedShard]) -> None:
        """Queue shards to be written, except shards that exist already."""
        for shard in shards:  # all shards first, or a spool that a later one needs could be removed
            self._check_keys(shard)
            if self._rereads:
                self._rereads.keep_or_fill(shard)
            self._spools.need(shard.groups)
        for shard in shards:
            self._tally.add_shard(shard)
            if completed := shard.kept or self._target.completed(shard):
                self._seal(shard, completed)
            elif self._rereads and self._rereads.must_wait(shard):
                continue
            elif not self._filling.complete(shard):
                self._ready.append(shard)
        self._drop_unneeded()
        self._tally.warn_of_growth(self._planner.open_shards)

    def _check_keys(self, shard: PlannedShard) -> None:
        """Raise an error for a tar with two samples of the same key, which readers would merge into one."""
        if same := shard.find_same_key():
            conversion, names = self._plan.conversion, {self._plan.inputs[number].name for number in same}
            of = "" if conversion.shuffle else f", one of {' and one of '.join(sorted(names))}"
            hint = "change their keys with --op func:FILE.py:NAME, or write one tar per input with <input> in the path"
            path = conversion.output.template.path(shard.number, split=shard.lane, stem=shard.lane)
            raise SourceError(f"two samples with the same key would be in this tar{of}", shard=path, hint=hint)

    def _seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Pass a complete shard to the target, and remove the spools that no other shard needs."""
        self._target.seal(shard, report)
        self._tally.summary.bytes += report.size
        self._release(shard.groups)

    def _release(self, groups: Set[int]) -> None:
        self._spools.release(groups, still_open=self._planner.open_groups)


def _planner(plan: Plan, worker: Worker, *, tracked: bool) -> ShardPlanner:
    """Make the planner of the shards, which sorts shuffled records into tables in the working folder."""
    tables = partial(
        sorted_tables,
        path=lambda number: worker.path(number, "table"),
        first=len(plan.inputs),
        keyed=plan.conversion.output.traits.holds == "sample",
    )
    return ShardPlanner(plan.work, plan.stems, plan.records, tracked=tracked, tables=tables)


def _name_of(task: Task) -> Hashable:
    """Return an identifier of a task: its inputs or its shard."""
    return (
        task.shard.lane_and_number
        if isinstance(task, WriteShard)
        else task.numbers
        if isinstance(task, ReadInputs)
        else None
    )


# --- Temporary output that is uploaded to a bucket or copied to a stream ---


class DiskSpace:
    """Decides whether a task that writes to the working folder may begin now or must wait for uploads.

    While the disk has free space, no task waits. Space for one input's records and one shard for each worker suffices:
    reading then waits until shards are uploaded and the spools that only they need are removed.

    Args:
        folder: the working folder.
        shard: number of bytes to keep free for a shard, which may need records of all inputs read so far.
    """

    def __init__(self, folder: str, shard: int) -> None:
        self._folder = folder
        self._shard = shard
        self._running: dict[Hashable, int] = {}
        self._stored = self._spooled = 0

    @property
    def is_idle(self) -> bool:
        """Whether no running task may free space."""
        return not self._running

    def may_read(self, stored: int) -> bool:
        """Whether the disk has space for a shard and the records of inputs of `stored` bytes."""
        return self._has_room(self._estimate(stored) + self._shard)

    def may_write(self, size: int) -> bool:
        """Whether the disk has space for a shard of a given size."""
        return self._has_room(size)

    def begin_reading(self, task: Hashable, stored: int) -> None:
        """Reserve space for a task that reads inputs of `stored` bytes."""
        self._running[task] = self._estimate(stored)

    def begin_writing(self, task: Hashable, size: int) -> None:
        """Reserve space for a task that writes a shard."""
        self._running[task] = size

    def end(self, task: Hashable, stored: int = 0, spooled: int = 0) -> None:
        """Release the space reserved for a task; a reading task gives the bytes that it read and spooled."""
        self._running.pop(task, None)
        self._stored += stored
        self._spooled += spooled

    def _estimate(self, stored: int) -> int:
        """Estimate the size of the spool of inputs of `stored` bytes from the inputs read so far."""
        return stored * self._spooled // self._stored if self._stored else stored

    def _has_room(self, size: int) -> bool:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize - sum(self._running.values()) >= size
