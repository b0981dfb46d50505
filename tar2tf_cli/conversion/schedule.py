"""Decides which task of a conversion is next: inputs are read a little ahead; shards are written once planned."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.sharding import Shard, ShardPlanner, ShardReport
from tar2tf_cli.conversion.shuffling import sorted_tables
from tar2tf_cli.conversion.spool import Part, SpoolIndex, StoredIndex
from tar2tf_cli.conversion.tally import Tally
from tar2tf_cli.conversion.tasks import Filling, Group, ReadInputs, Worker, WriteShard, groups_in, load_group
from tar2tf_cli.engines.base import Outcome, Schedule, Task
from tar2tf_cli.errors import SourceError, Tar2tfError
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import Flusher

if TYPE_CHECKING:
    from tar2tf_cli.conversion.targets import Target


_GROUP_INPUTS: Final = 64  # most inputs that one task reads
_GROUP_BYTES: Final = 16 << 20  # most bytes of several inputs that one task reads
_AHEAD: Final = 4  # groups per worker read ahead of the first unfinished one; bounds the disk space of spools


class InputQueue:
    """Hands out the inputs that have to be read, and others when they are asked for; each step takes the same time.

    Args:
        plan: the conversion and its inputs.
        worker: the context of the tasks.
        readers: how many tasks may read inputs at once.
        planner: says which inputs certainly have to be read, and whether all are needed before the first shard.
    """

    def __init__(self, plan: Plan, worker: Worker, readers: int, planner: ShardPlanner) -> None:
        self._inputs = plan.inputs
        self._worker = worker
        self._remote = plan.source.abilities().remote
        self._readers = readers
        self._holds_all = planner.holds_all
        self._due = planner.reads  # in ascending order
        self._position = 0  # of the next one
        self._asked: deque[int] = deque()  # others, in ascending order
        self._ever_asked: set[int] = set()
        self._in_a_row = 0  # how many inputs had to be asked for, one after the other
        self._ahead = 0  # inputs that are being read, or wait for those before them
        self._left = groups_in(worker.folder)  # by an interrupted run
        self._urgent = -1  # the input that all else waits for; read even if it is far ahead

    def next(self) -> tuple[int, ...]:
        """Take the inputs of the next task: one, or several small ones; none as long as too many are ahead."""
        first = next(self._waiting(), None)
        if first is None:
            return ()
        numbers = self._left_group(first) or self._group(first)
        self._ahead += len(numbers)
        return numbers

    def ask_for(self, number: int, missing: Sequence[int] = ()) -> None:
        """Have an input read next, as all else waits for it; until now it was not certain that it has to be.

        Args:
            number: the next input; some of those after it are read, too, twice as many each time.
            missing: in its place, earlier inputs, in ascending order.
        """
        self._urgent = number
        if number in self._ever_asked or self._is_due(number):
            return
        following = range(number, min(number + max(1, self._in_a_row), len(self._inputs)))
        asked = missing or [each for each in following if not (each in self._ever_asked or self._is_due(each))]
        self._in_a_row += 0 if missing else len(asked)
        self._ever_asked.update(asked)
        self._asked.extendleft(reversed(asked))

    def divided(self, *, read: bool) -> None:
        """Note that the records of an input have been divided among shards; `read`: whether it had to be read."""
        if read:
            self._ahead -= 1
        else:
            self._in_a_row = 0

    def _is_due(self, number: int) -> bool:
        """Whether an input certainly has to be read."""
        found = bisect_left(self._due, number)
        return found < len(self._due) and self._due[found] == number

    def _waiting(self) -> Iterator[int]:
        """The inputs to be read, in ascending order."""
        return merge(self._asked, (self._due[position] for position in range(self._position, len(self._due))))

    def _taken(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Take the first inputs."""
        for number in numbers:
            if self._asked and self._asked[0] == number:
                self._asked.popleft()
            else:
                self._position += 1
        return numbers

    def _left_group(self, first: int) -> tuple[int, ...]:
        """The next inputs if an interrupted run read them as a group; otherwise none."""
        group = load_group(self._worker.path(first, "index")) if first in self._left else None
        numbers = group.numbers if group else ()
        return self._taken(numbers) if tuple(islice(self._waiting(), len(numbers))) == numbers else ()

    def _group(self, first: int) -> tuple[int, ...]:
        most = self._most(first)
        room = len(self._inputs) if self._holds_all else _AHEAD * most * self._readers - self._ahead
        if room < 1:
            return self._taken((first,)) if first <= self._urgent else ()
        waiting = len(self._asked) + len(self._due) - self._position
        fair = -(-waiting // (2 * self._readers))  # so that no worker runs out of inputs early
        numbers: list[int] = []
        size = 0
        for number in islice(self._waiting(), min(room, max(1, min(most, fair)))):
            found = self._inputs[number].size
            size += _GROUP_BYTES if found is None else found
            if numbers and (size > _GROUP_BYTES or number in self._left):
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
        stems, earlier = plan.stems, target.earlier
        self._size = None if earlier else plan.size  # how many bytes will be read, if that is known
        self._planner: ShardPlanner
        if earlier:
            from tar2tf_cli.conversion.existing import UpdatePlanner

            self._planner = UpdatePlanner(plan.work, stems, earlier)
        else:
            tables = partial(sorted_tables, path=lambda number: worker.path(number, "table"), first=len(plan.inputs))
            self._planner = ShardPlanner(plan.work, stems, plan.records, tracked=plan.tracked, tables=tables)
        worker.stores_indexes = self._planner.holds_all
        self._load = lru_cache(maxsize=1)(self._load_stored)
        self._queue = InputQueue(plan, worker, readers, self._planner)
        self._reading = 0
        self._frontier = 0  # the first input whose records have not been divided among shards
        self._read: dict[int, tuple[InputReport, Part]] = {}  # inputs from the frontier on
        self._errors: dict[int, Tar2tfError] = {}  # of inputs from the frontier on
        self._finished = False
        self._ready: deque[Shard] = deque()
        self._users: Counter[int] = Counter()  # how many inputs to come and unwritten shards need a group's spool
        self._flusher: Flusher[tuple[Shard, ShardReport] | None] = Flusher()
        self._filling: Filling | None = None
        self._may_fill = worker.fills and not (target.resumes or target.earlier)

    def begin(self) -> None:
        """Report how much there is to do, and flush what is needed to continue, while inputs are read."""
        self._events.planned(len(self._plan.inputs), self._size)
        if self._target.journal:
            self._flusher.submit(self._target.journal, None)
        self._advance()

    @property
    def pending(self) -> int:
        """The number of shards being flushed to disk."""
        return self._flusher.pending

    def next(self) -> Task | None:
        """The next shard that is ready, otherwise the next inputs, unless they are too far ahead; None to wait."""
        if self._ready:
            return WriteShard(self._ready.popleft())
        if self._errors or self._finished or self._reading == self._readers:
            return None
        numbers = self._queue.next()
        self._reading += bool(numbers)
        return ReadInputs(numbers) if numbers else None

    def take(self, outcome: Outcome) -> None:
        """Handle the outcome of a task."""
        task, result, error = outcome.task, outcome.result, outcome.error
        if isinstance(task, ReadInputs):
            self._take_group(result or Group(task.numbers, error=error))
        elif error:
            raise error
        elif isinstance(task, WriteShard):
            self._flusher.submit(self._target.unsynced(task.shard), (task.shard, result))

    def _take_group(self, group: Group) -> None:
        """Keep what was read; the error of an input is raised once those before it have been divided among shards."""
        self._reading -= 1
        if self._worker.stores_indexes:
            group.stored = StoredIndex(partial(self._load, group.number))
        for number, report, part in group.parts():
            self._read[number] = report, part
            self._users[part.group] += 1
        if group.error:
            self._errors[group.numbers[len(group.reports)]] = group.error
        self._advance()
        if self._errors and not (self._reading or self._finished):
            raise next(iter(self._errors.values()))

    def settle(self, timeout: float) -> None:
        """Seal the shards that have been flushed to disk."""
        for shard, report in filter(None, self._flusher.done(timeout)):
            self._seal(shard, report)

    def progress(self, size: int) -> None:
        """Report how many bytes have been read; inputs that are read twice count once."""
        self._events.progress(size if self._size is None else min(size, self._size))

    def name(self, task: Task) -> str | None:
        """The shard that a task reads or writes."""
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
            suited = (shard for shard in self._planner.open_shards if Filling.suits(shard, self._worker.folder))
            if shard := next(suited, None):
                self._filling = Filling(shard, self._worker, self._flusher)

    def _divide(self) -> None:
        """Divide the inputs read so far among shards, in input order and up to the limit."""
        while not self._finished:
            if missing := self._planner.missing:
                number = missing[0]
            elif (number := self._frontier) == len(self._plan.inputs) or self._planner.full:
                self._enqueue(list(self._planner.finish()))
                self._finished = not self._planner.missing
                continue
            if number in self._errors:
                raise self._errors[number]
            report, part = self._read.pop(number, None) or (None if missing else self._planner.known(number), None)
            if report is None:
                self._queue.ask_for(number, missing)
                return
            self._queue.divided(read=part is not None)
            if missing:
                self._check_same(number, report)
            else:
                self._tally.add_input(number, report)
                self._frontier += 1
            self._enqueue(list(self._planner.add(number, part)))
            if part:
                self._users[part.group] -= 1

    def _check_same(self, number: int, report: InputReport) -> None:
        """Raise if an unchanged input gave other records than before: some of them would be missing."""
        if self._target.earlier and self._target.earlier.report(number).samples != report.samples:
            message = "has other records than before, although its size and version are the same"
            name = self._plan.source.locate(self._plan.inputs[number].name)
            raise SourceError(message, shard=name, hint="pass --overwrite to convert everything again")

    def _load_stored(self, number: int) -> SpoolIndex:
        """The index of a group, from its file."""
        group = load_group(self._worker.path(number, "index"))
        if group is None:
            raise SourceError("an index in the working folder was damaged", hint="run the same command again")
        return group.index

    def _enqueue(self, shards: Sequence[Shard]) -> None:
        """Queue shards to be written, except those that an interrupted run left whole."""
        for shard in shards:  # all of them first, or a spool that a later shard needs could be removed
            self._users.update(shard.groups)
        for shard in shards:
            self._tally.add_shard(shard)
            if shard.kept:
                self._seal(shard, shard.kept)
            elif whole := self._target.whole(shard):
                self._seal(shard, whole)
            elif not (self._filling and self._filling.completes(shard)):
                self._ready.append(shard)
        self._tally.foresee(self._planner.open_shards)

    def _seal(self, shard: Shard, report: ShardReport) -> None:
        """Pass a whole shard to the target, and remove the spools that no other shard needs."""
        self._target.seal(shard, report)
        self._tally.summary.bytes += report.size
        groups = shard.groups
        self._users.subtract(groups)
        for group in groups - self._planner.open_groups:
            if not self._users[group]:
                del self._users[group]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(group, "spool"))
