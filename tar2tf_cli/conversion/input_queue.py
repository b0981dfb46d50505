"""The queue of a conversion's inputs: the order of reading, the inputs of a task, read-ahead, results in order.

Also which inputs an update reads again, and who still needs the spool of a group.
"""

from __future__ import annotations

import contextlib
import os
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache, partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.sharding import PlannedShard
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, StoredIndex
from tar2tf_cli.conversion.worker import InputGroup, Worker, groups_in, load_group
from tar2tf_cli.errors import SourceError, Tar2tfError
from tar2tf_cli.inputs.report import InputReport

if TYPE_CHECKING:
    from tar2tf_cli.conversion.output_state import EarlierConversion

_GROUP_INPUTS: Final = 64  # maximum number of inputs that one task reads
_GROUP_BYTES: Final = 16 << 20  # maximum total bytes of several inputs that one task reads
_AHEAD: Final = 4  # groups per worker read ahead of the first unfinished one; bounds the disk space of spools


class InputQueue:
    """Hands out the inputs that are due, and others on request; each step takes constant time.

    Args:
        inputs: all inputs of the conversion.
        spools: contains the groups of inputs that an interrupted run read.
        readers: the number of tasks that may read inputs at once.
        due: numbers of the inputs that must be read, in ascending order.
        remote: whether each input costs a request, so that reading several at once is faster.
        all_at_once: whether all inputs are needed before the first shard, so that read-ahead is not limited.
    """

    def __init__(
        self,
        inputs: Sequence[ObjectInfo],
        spools: SpoolFiles,
        readers: int,
        due: Sequence[int],
        *,
        remote: bool = False,
        all_at_once: bool = False,
    ) -> None:
        self._inputs = inputs
        self._spools = spools
        self._remote = remote
        self._readers = readers
        self._all_at_once = all_at_once
        self._due = due
        self._position = 0  # of the next due input
        self._asked: list[int] = []  # requested inputs, in ascending order
        self._ahead = 0  # inputs that are being read, or wait for earlier ones
        self._urgent = -1  # the input that blocks progress; read even if it is far ahead

    def next(self) -> tuple[int, ...]:
        """Take the inputs of the next task: one, or several small ones; none while too many are ahead."""
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
        """Read an input and all earlier ones next, as it blocks progress."""
        self._urgent = number

    def request(self, number: int) -> None:
        """Add an input that is not due to the queue."""
        insort(self._asked, number)

    def mark_divided(self) -> None:
        """Record that the records of an input have been divided among shards, so that reading may advance."""
        self._ahead -= 1

    def _waiting(self) -> Iterator[int]:
        """Iterate over the inputs to be read, in ascending order."""
        return merge(self._asked, (self._due[position] for position in range(self._position, len(self._due))))

    def _taken(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Take inputs from the front of the queue."""
        for number in numbers:
            if self._asked and self._asked[0] == number:
                del self._asked[0]
            else:
                self._position += 1
        return numbers

    def _saved_group(self, first: int) -> tuple[int, ...]:
        """Return the next inputs if an interrupted run read them as a group; otherwise none."""
        group = self._spools.saved_group(first)
        numbers = group.numbers if group else ()
        return self._taken(numbers) if tuple(islice(self._waiting(), len(numbers))) == numbers else ()

    def _group(self, first: int) -> tuple[int, ...]:
        most = self._most(first)
        room = len(self._inputs) if self._all_at_once else _AHEAD * most * self._readers - self._ahead
        if room < 1:
            return self._taken((first,)) if first <= self._urgent else ()
        waiting = len(self._asked) + len(self._due) - self._position
        fair = -(-waiting // (2 * self._readers))  # so that every worker gets inputs until the end
        numbers: list[int] = []
        size = 0
        for number in islice(self._waiting(), min(room, max(1, min(most, fair)))):
            stored = self._inputs[number].size
            size += _GROUP_BYTES if stored is None else stored
            if numbers and (size > _GROUP_BYTES or number in self._spools.saved):
                break
            numbers.append(number)
        return self._taken(tuple(numbers))

    def _most(self, first: int) -> int:
        """Return how many inputs one task may read: several if a task for each would cost more than reading them."""
        size = self._inputs[first].size
        small = size is not None and size <= _GROUP_BYTES // _GROUP_INPUTS
        return _GROUP_INPUTS if self._remote or small else 1


class InputsInOrder:
    """Hands out inputs to read, and returns their results in input order, in whatever order they are read.

    Args:
        queue: the inputs that must be read.
        readers: the number of tasks that may read inputs at once.

    Attributes:
        queue: the argument.
        frontier: number of the first input whose records have not been divided among shards.
        finished: whether the records of all inputs, or all wanted records, have been divided.
    """

    def __init__(self, queue: InputQueue, readers: int) -> None:
        self.queue = queue
        self._readers = readers
        self._reading = 0
        self._read: dict[int, tuple[InputReport, InputUnits]] = {}  # results of inputs from the frontier on
        self._errors: dict[int, Tar2tfError] = {}  # errors of inputs from the frontier on
        self.frontier = 0
        self.finished = False

    @property
    def may_begin(self) -> bool:
        """Whether another task may read inputs."""
        return not self._errors and self._reading < self._readers

    def begin(self) -> tuple[int, ...]:
        """Take the inputs of the next task; none while too many are ahead."""
        numbers = self.queue.next()
        self._reading += bool(numbers)
        return numbers

    def end(self, group: InputGroup) -> None:
        """Record the result of a task; its error, if any, is raised after the results of earlier inputs."""
        self._reading -= 1
        if group.error:
            self._errors[group.numbers[len(group.reports)]] = group.error

    def add(self, number: int, report: InputReport, units: InputUnits) -> None:
        """Add the result of reading an input at or after the frontier."""
        self._read[number] = report, units

    def next(self) -> tuple[InputReport, InputUnits] | None:
        """Return the result of the input at the frontier; None if it has not been read.

        Raises:
            Tar2tfError: when it could not be read.
        """
        if self.frontier in self._errors:
            raise self._errors[self.frontier]
        read = self._read.pop(self.frontier, None)
        if read:
            self.queue.mark_divided()
        return read

    def check(self, *, waits: bool) -> None:
        """Raise the first error, unless a task is still reading an earlier input.

        Args:
            waits: whether shards still wait for inputs although all records have been divided.
        """
        if self._errors and not (self._reading or (self.finished and not waits)):
            raise next(iter(self._errors.values()))


# --- Spools ---


class SpoolFiles:
    """Loads the saved indexes of groups, and removes a spool once no input and no shard needs it.

    Args:
        worker: provides the paths of the files.

    Attributes:
        saved: numbers of the groups that an interrupted run read.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._users: Counter[int] = Counter()  # inputs to divide and shards to write, by group
        self._index = lru_cache(maxsize=1)(self._load_index)
        self.saved = groups_in(worker.folder)

    def saved_group(self, number: int) -> InputGroup | None:
        """Load a group that an interrupted run read; None if its file is missing or damaged."""
        return load_group(self._worker.path(number, "index")) if number in self.saved else None

    def saved_groups(self) -> Iterator[InputGroup]:
        """Iterate over the groups that an interrupted run read, loading each."""
        return filter(None, map(self.saved_group, self.saved))

    def unload(self, group: InputGroup) -> None:
        """Drop the index of a group from memory, so that it is read from its file whenever it is needed."""
        group.stored = StoredIndex(partial(self._index, group.number))

    def _load_index(self, number: int) -> SpoolIndex:
        group = load_group(self._worker.path(number, "index"))
        if group is None:
            raise SourceError("an index in the working folder was damaged", hint="run the same command again")
        return group.index

    def need(self, groups: Iterable[int]) -> None:
        """Count one more user of each group's spool."""
        for group in groups:  # a tenth of the time that `update` of a Counter takes for so few
            self._users[group] += 1

    def hand_over(self, groups: Iterable[int]) -> None:
        """Count one user less of each group's spool, but remove none, as shards need them next."""
        for group in groups:
            self._users[group] -= 1

    def release(self, groups: Set[int], *, still_open: Set[int]) -> None:
        """Count one user less of each group's spool, and remove spools without users.

        Args:
            groups: numbers of the groups.
            still_open: groups with records in incomplete shards, whose spools are kept.
        """
        self._users.subtract(groups)
        for group in groups - still_open:
            if not self._users[group]:
                del self._users[group]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(group, "spool"))


# --- Updates ---


class Rereads:
    """Decides which shards of an earlier conversion are kept, and requests the inputs of all others.

    Args:
        earlier: the earlier conversion.
        queue: reads the requested inputs.
    """

    def __init__(self, earlier: EarlierConversion, queue: InputQueue) -> None:
        self._earlier = earlier
        self._queue = queue
        self._units: dict[int, InputUnits] = {}  # units of inputs that were read, for shards that are not complete
        self._waiting: dict[int, list[tuple[PlannedShard, set[int]]]] = {}  # the shards that wait for each input
        self._needed: Counter[int] = Counter()  # the number of those shards with records of each input

    @property
    def waits(self) -> bool:
        """Whether any shard waits for inputs."""
        return bool(self._waiting)

    def known(self, number: int) -> tuple[InputReport, InputUnits] | None:
        """Return the report and units of an unchanged input, without reading it; None for any other input."""
        return self._earlier.known(number)

    def add(self, number: int, units: InputUnits) -> None:
        """Add the units of a new or changed input that was read."""
        self._units[number] = units

    def add_known(self, number: int, units: InputUnits) -> Iterator[PlannedShard] | None:
        """Add the units of an unchanged input that was read again; None if its records differ from the recorded ones.

        Returns:
            The shards for which all inputs have now been read.
        """
        self._units[number] = units
        return self._complete(number) if self._earlier.is_as_before(number, units) else None

    def _complete(self, number: int) -> Iterator[PlannedShard]:
        for shard, missing in self._waiting.pop(number):
            missing.discard(number)
            if not missing:
                shard.fill(self._units)
                self._needed.subtract(_inputs_of(shard))
                yield shard

    def keep_or_fill(self, shard: PlannedShard) -> None:
        """Keep the earlier conversion's shard if it has the same records; otherwise fill the shard from inputs read so
        far.
        """
        shard.kept, shard.pieces = self._earlier.kept(shard), []
        if not (shard.kept or self._missing(shard)):
            shard.fill(self._units)

    def must_wait(self, shard: PlannedShard) -> bool:
        """Whether inputs of a shard must be read first, which this requests."""
        missing = self._missing(shard)
        if missing:
            self._needed.update(_inputs_of(shard))
        for number in sorted(missing):
            if number not in self._waiting:
                self._queue.request(number)
            self._waiting.setdefault(number, []).append((shard, missing))
        return bool(missing)

    def _missing(self, shard: PlannedShard) -> set[int]:
        """Return the inputs of a shard that were not read, as only their sizes were needed."""
        return _inputs_of(shard) - self._units.keys()

    def drop_unneeded(self, open_shards: Iterable[PlannedShard]) -> Iterator[int]:
        """Drop the units of inputs that no waiting or incomplete shard needs, and yield their groups."""
        needed = {number for shard in open_shards for number in _inputs_of(shard)}
        for number in [each for each in self._units if each not in needed and not self._needed[each]]:
            yield self._units.pop(number).group
            del self._needed[number]


def _inputs_of(shard: PlannedShard) -> set[int]:
    return {origin.source for origin in shard.origins}
