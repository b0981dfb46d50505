"""The order of a conversion's tasks: inputs are read a little ahead, and shards are written once planned."""

from __future__ import annotations

import contextlib
import os
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache, partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.backend import Outcome, Task
from tar2tf_cli.conversion.disk_space import DiskSpace
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.publish import Tally
from tar2tf_cli.conversion.read_inputs import ReadInputs
from tar2tf_cli.conversion.sharding import PlannedShard, ShardPlanner, ShardReport, sorted_tables
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, StoredIndex
from tar2tf_cli.conversion.worker import Group, Worker, groups_in, load_group
from tar2tf_cli.conversion.write_shard import EagerShardWriter, WriteShard
from tar2tf_cli.engines.base import Schedule
from tar2tf_cli.errors import SourceError, Tar2tfError
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import Flusher

if TYPE_CHECKING:
    from tar2tf_cli.conversion.output_state import Earlier
    from tar2tf_cli.conversion.targets import Target


_GROUP_INPUTS: Final = 64  # most inputs that one task reads
_GROUP_BYTES: Final = 16 << 20  # most bytes of several inputs that one task reads
_TICK_SECONDS: Final = 0.2
_AHEAD: Final = 4  # groups per worker read ahead of the first unfinished one; bounds the disk space of spools


class InputQueue:
    """Hands out the inputs that have to be read, and others when they are asked for; each step takes the same time.

    Args:
        plan: the conversion and its inputs.
        worker: the context of the tasks.
        readers: how many tasks may read inputs at once.
        due: numbers of the inputs that have to be read, in ascending order.
        all_at_once: whether all are needed before the first shard, so that none is too far ahead.

    Attributes:
        saved: numbers of the groups that an interrupted run read.
    """

    def __init__(self, plan: Plan, worker: Worker, readers: int, due: Sequence[int], *, all_at_once: bool) -> None:
        self._inputs = plan.inputs
        self._worker = worker
        self._remote = plan.source.capabilities().remote
        self._readers = readers
        self._all_at_once = all_at_once
        self._due = due
        self._position = 0  # of the next one
        self._asked: list[int] = []  # others, in ascending order
        self._ahead = 0  # inputs that are being read, or wait for those before them
        self.saved = groups_in(worker.folder)
        self._urgent = -1  # the input that all else waits for; read even if it is far ahead

    def next(self) -> tuple[int, ...]:
        """Take the inputs of the next task: one, or several small ones; none as long as too many are ahead."""
        first = next(self._waiting(), None)
        if first is None:
            return ()
        numbers = self._saved_group(first) or self._group(first)
        self._ahead += len(numbers)
        return numbers

    def next_size(self) -> int:
        """Return about how many bytes the inputs of the next task have."""
        first = next(self._waiting(), None)
        return 0 if first is None else max(self._inputs[first].size or 0, self._most(first) > 1 and _GROUP_BYTES)

    def prioritize(self, number: int) -> None:
        """Have an input and those before it read next, as all else waits for it."""
        self._urgent = number

    def ask_for(self, number: int) -> None:
        """Have an input read that is not due."""
        insort(self._asked, number)

    def used(self) -> None:
        """Note that the records of an input that was read have been divided among shards."""
        self._ahead -= 1

    def _waiting(self) -> Iterator[int]:
        """Iterate over the inputs to be read, in ascending order."""
        return merge(self._asked, (self._due[position] for position in range(self._position, len(self._due))))

    def _taken(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Take the first inputs."""
        for number in numbers:
            if self._asked and self._asked[0] == number:
                del self._asked[0]
            else:
                self._position += 1
        return numbers

    def _saved_group(self, first: int) -> tuple[int, ...]:
        """Return the next inputs if an interrupted run read them as a group; otherwise none."""
        group = load_group(self._worker.path(first, "index")) if first in self.saved else None
        numbers = group.numbers if group else ()
        return self._taken(numbers) if tuple(islice(self._waiting(), len(numbers))) == numbers else ()

    def _group(self, first: int) -> tuple[int, ...]:
        most = self._most(first)
        room = len(self._inputs) if self._all_at_once else _AHEAD * most * self._readers - self._ahead
        if room < 1:
            return self._taken((first,)) if first <= self._urgent else ()
        waiting = len(self._asked) + len(self._due) - self._position
        fair = -(-waiting // (2 * self._readers))  # so that no worker runs out of inputs early
        numbers: list[int] = []
        size = 0
        for number in islice(self._waiting(), min(room, max(1, min(most, fair)))):
            stored = self._inputs[number].size
            size += _GROUP_BYTES if stored is None else stored
            if numbers and (size > _GROUP_BYTES or number in self.saved):
                break
            numbers.append(number)
        return self._taken(tuple(numbers))

    def _most(self, first: int) -> int:
        """How many inputs one task may read: several if a task for each would take longer than reading them."""
        size = self._inputs[first].size
        small = size is not None and size <= _GROUP_BYTES // _GROUP_INPUTS
        return _GROUP_INPUTS if self._remote or small else 1


class ConversionSchedule(Schedule):
    """Hands out tasks that read inputs and write shards, and passes their results to the tally and the target.

    Args:
        plan: the conversion and its inputs.
        worker: the context passed to each task.
        readers: how many tasks may read inputs at once.
        target: receives the shards.
        tally: adds up the totals of inputs and shards.
        events: notified of progress.
    """

    def __init__(self, plan: Plan, worker: Worker, readers: int, target: Target, tally: Tally, events: Events) -> None:
        self._plan = plan
        self._worker = worker
        self._readers = readers
        self._target = target
        self._tally = tally
        self._events = events
        self._earlier = earlier = target.earlier
        self._size = None if earlier else plan.size  # how many bytes will be read, if that is known
        tables = partial(
            sorted_tables,
            path=lambda number: worker.path(number, "table"),
            first=len(plan.inputs),
            keyed=plan.conversion.output.traits.holds == "sample",
        )
        tracked = earlier is not None
        self._planner = planner = ShardPlanner(plan.work, plan.stems, plan.records, tracked=tracked, tables=tables)
        worker.stores_indexes = planner.holds_all
        self._load = lru_cache(maxsize=1)(self._load_stored)
        due = earlier.changed if earlier else range(len(plan.inputs))
        self._begun = 0  # how many bytes an interrupted run read
        self._queue = InputQueue(plan, worker, readers, due, all_at_once=planner.holds_all)
        self._reading = 0
        self._frontier = 0  # the first input whose records have not been divided among shards
        self._read: dict[int, tuple[InputReport, InputUnits]] = {}  # inputs from the frontier on
        self._errors: dict[int, Tar2tfError] = {}  # of inputs from the frontier on
        self._finished = False
        self._ready: deque[PlannedShard] = deque()
        self._users: Counter[int] = Counter()  # how many inputs to come and unwritten shards need a group's spool
        self._flusher: Flusher[tuple[PlannedShard, ShardReport] | None] = Flusher()
        self._filling: EagerShardWriter | None = None
        self._may_fill = worker.fills and not (target.done or target.earlier)
        self._parts: dict[int, InputUnits] = {}  # of an update: inputs that were read, for shards that are not complete
        self._space = None
        if target.reads_shards and not planner.holds_all:
            self._space = DiskSpace(worker.folder, plan.conversion.output.limit or 0)
        self._waiting: dict[
            int, list[tuple[PlannedShard, set[int]]]
        ] = {}  # shards by each of the inputs that must be read
        self._needed: Counter[int] = Counter()  # how many of those shards hold records of an input

    def begin(self) -> None:
        """Report how much there is to do, and flush what is needed to continue, while inputs are read."""
        if self._size:
            self._begun = min(self._read_before(), self._size)
        self._events.planned(len(self._plan.inputs), self._size, self._begun)
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
        done = self._finished and not self._waiting
        if self._errors or done or self._reading == self._readers:
            return None
        return self._next_inputs()

    def _next_inputs(self) -> ReadInputs | None:
        size = self._queue.next_size()
        if not self._wait_for_room(lambda space: space.may_read(size)):
            return None
        numbers = self._queue.next()
        if not numbers:
            return None
        self._reading += 1
        task = ReadInputs(numbers)
        if self._space:
            self._space.begin_reading(_name_of(task), sum(self._plan.inputs[number].size or 0 for number in numbers))
        return task

    def _wait_for_room(self, has_room: Callable[[DiskSpace], bool]) -> bool:
        """Whether a task may begin that writes to the disk; wait for uploads only if no task runs that may end.

        Once nothing is left to wait for, it may: either there is room after all, or the disk is too small.
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
        if self._space:
            self._count_end(self._space, task, result)
        if isinstance(task, ReadInputs):
            self._take_group(result or Group(task.numbers, error=error))
        elif error:
            raise error
        elif isinstance(task, WriteShard):
            self._flusher.submit(self._target.unsynced(task.shard), (task.shard, result))

    def _count_end(self, space: DiskSpace, task: Task, group: Group | None) -> None:
        if not isinstance(task, ReadInputs) or group is None:
            space.end(_name_of(task))
            return
        spooled = 0 if group.spool_crc is None else sum(group.index.sizes)
        space.end(_name_of(task), sum(self._plan.inputs[number].size or 0 for number in task.numbers), spooled)

    def _take_group(self, group: Group) -> None:
        """Keep what was read; the error of an input is raised once those before it have been divided among shards."""
        self._reading -= 1
        if self._worker.stores_indexes:
            group.stored = StoredIndex(partial(self._load, group.number))
        for number, report, part in group.parts():
            self._users[part.group] += 1
            if number < self._frontier:
                self._take_known(number, part)
            else:
                self._read[number] = report, part
        if group.error:
            self._errors[group.numbers[len(group.reports)]] = group.error
        self._advance()
        if self._errors and not (self._reading or (self._finished and not self._waiting)):
            raise next(iter(self._errors.values()))

    def settle(self, timeout: float) -> None:
        """Seal the shards that have been flushed to disk."""
        for shard, report in filter(None, self._flusher.done(timeout)):
            self._seal(shard, report)

    def progress(self, size: int) -> None:
        """Report how many bytes have been read; inputs that are read twice count once."""
        size += self._begun
        self._events.progress(size if self._size is None else min(size, self._size))

    def _read_before(self) -> int:
        """Estimate the bytes that an interrupted run read: all that it spooled, and copied into finished shards.

        What is copied straight from a tar has about the size of the shard; so has what was spooled, or it is less.
        """
        left = (load_group(self._worker.path(number, "index")) for number in self._queue.saved)
        groups = [(group.numbers, group.spool_crc is not None) for group in left if group]
        inputs = self._plan.inputs
        spooled = sum(inputs[number].size or 0 for numbers, is_spooled in groups if is_spooled for number in numbers)
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
        if self._filling:
            self._filling.stop()
        self._flusher.close()

    def _advance(self) -> None:
        """Divide the inputs read so far among shards, and write the beginning of the one that fills up."""
        if not self._finished:
            self._divide()
        if self._filling and self._filling.busy:
            self._filling.grow()
        elif self._may_fill:
            suited = (
                shard for shard in self._planner.open_shards if EagerShardWriter.is_suitable(shard, self._worker.folder)
            )
            if shard := next(suited, None):
                self._filling = EagerShardWriter(shard, self._worker, self._flusher)

    def _divide(self) -> None:
        """Divide the inputs read so far among shards, in input order and up to the limit."""
        while not self._finished:
            if (number := self._frontier) == len(self._plan.inputs) or self._planner.full:
                self._enqueue([*self._planner.finish()])
                for tar in self._planner.tars:
                    self._check_keys(tar)
                self._finished = True
                return
            if number in self._errors:
                raise self._errors[number]
            if number in self._read:
                report, part = self._read.pop(number)
                self._queue.used()
                if self._earlier:
                    self._parts[number] = part
                else:
                    self._users[part.group] -= 1
            elif known := self._earlier and self._earlier.known(number):
                report, part = known
            else:
                self._queue.prioritize(number)
                return
            self._tally.add_input(number, report)
            self._target.add_input(report, part)
            self._frontier += 1
            self._enqueue([*self._planner.add(number, part)])
            if (seen := self._planner.seen) and seen.repeated:
                self._tally.add_duplicates(report, seen.repeated)
            report.sample_keys.clear()

    def _take_known(self, number: int, part: InputUnits) -> None:
        """Take an input that was known and had to be read again; its records must be those that it had before."""
        self._queue.used()
        self._parts[number] = part
        if not (self._earlier and self._earlier.is_as_before(number, part)):
            message = "has different records than before, although its size and version are the same"
            name = self._plan.source.locate(self._plan.inputs[number].name)
            raise SourceError(message, shard=name, hint="pass --overwrite to convert everything again")
        for shard, missing in self._waiting.pop(number):
            missing.discard(number)
            if not missing:
                shard.fill(self._parts)
                self._users.update(shard.groups)
                self._needed.subtract({origin.source for origin in shard.origins})
                self._ready.append(shard)
        self._forget()

    def _forget(self) -> None:
        """Let go of the inputs of an update that no shard to come needs."""
        needed = {origin.source for shard in self._planner.open_shards for origin in shard.origins}
        for number in [each for each in self._parts if each not in needed and not self._needed[each]]:
            self._let_go({self._parts.pop(number).group})
            del self._needed[number]

    def _load_stored(self, number: int) -> SpoolIndex:
        """Load the index of a group from its file."""
        group = load_group(self._worker.path(number, "index"))
        if group is None:
            raise SourceError("an index in the working folder was damaged", hint="run the same command again")
        return group.index

    def _enqueue(self, shards: Sequence[PlannedShard]) -> None:
        """Queue shards to be written, except those that are there already."""
        for shard in shards:  # all of them first, or a spool that a later shard needs could be removed
            self._check_keys(shard)
            if self._earlier:
                self._compare(shard, self._earlier)
            self._users.update(shard.groups)
        for shard in shards:
            self._tally.add_shard(shard)
            if whole := shard.kept or self._target.whole(shard):
                self._seal(shard, whole)
            elif missing := self._not_read(shard):
                self._wait_for(shard, missing)
            elif not (self._filling and self._filling.complete(shard)):
                self._ready.append(shard)
        if self._earlier:
            self._forget()
        self._tally.foresee(self._planner.open_shards)

    def _check_keys(self, shard: PlannedShard) -> None:
        """Refuse a tar that would hold two samples of the same key, which readers would take for one."""
        if same := shard.same_key():
            conversion, names = self._plan.conversion, {self._plan.inputs[number].name for number in same}
            of = "" if conversion.shuffle else f", one of {' and one of '.join(sorted(names))}"
            hint = "change their keys with --op func:FILE.py:NAME, or write one tar per input with <input> in the path"
            path = conversion.output.template.path(shard.number, split=shard.lane, stem=shard.lane)
            raise SourceError(f"two samples with the same key would be in this tar{of}", shard=path, hint=hint)

    def _compare(self, shard: PlannedShard, earlier: Earlier) -> None:
        """Find out whether a shard is kept, and otherwise where its records are, as far as they have been read."""
        shard.kept, shard.pieces = earlier.kept(shard), []
        if not (shard.kept or self._not_read(shard)):
            shard.fill(self._parts)

    def _not_read(self, shard: PlannedShard) -> set[int]:
        """Return the inputs of a shard that were not read, as their sizes are known."""
        return {origin.source for origin in shard.origins} - self._parts.keys()

    def _wait_for(self, shard: PlannedShard, missing: set[int]) -> None:
        """Have these inputs read before a shard is written."""
        self._needed.update({origin.source for origin in shard.origins})
        for number in sorted(missing):
            if number not in self._waiting:
                self._queue.ask_for(number)
            self._waiting.setdefault(number, []).append((shard, missing))

    def _seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Pass a whole shard to the target, and remove the spools that no other shard needs."""
        self._target.seal(shard, report)
        self._tally.summary.bytes += report.size
        self._let_go(shard.groups)

    def _let_go(self, groups: set[int]) -> None:
        """Count one user less of groups' spools, and remove those that nobody needs."""
        self._users.subtract(groups)
        for group in groups - self._planner.open_groups:
            if not self._users[group]:
                del self._users[group]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(group, "spool"))


def _name_of(task: Task) -> Hashable:
    """Name a task by its inputs or its shard."""
    return task.shard.place if isinstance(task, WriteShard) else task.numbers if isinstance(task, ReadInputs) else None
