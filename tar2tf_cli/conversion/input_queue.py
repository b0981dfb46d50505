"""The queue of a conversion's inputs: the order of reading, the inputs of a task, read-ahead, results in order."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.conversion.spool_files import SpoolFiles
from tar2tf_cli.conversion.worker import InputGroup
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.inputs.report import InputReport

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
        frontier: number of the first input whose records have not been divided among shards.
        finished: whether the records of all inputs, or all wanted records, have been divided.
    """

    def __init__(self, queue: InputQueue, readers: int) -> None:
        self._queue = queue
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

    def next_size(self) -> int:
        """Return about how many bytes the inputs of the next task have."""
        return self._queue.next_size()

    def begin(self) -> tuple[int, ...]:
        """Take the inputs of the next task; none while too many are ahead."""
        numbers = self._queue.next()
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
            self._queue.mark_divided()
        return read

    def mark_divided(self) -> None:
        """Record that the records of an input before the frontier, which was reread, have been divided among shards."""
        self._queue.mark_divided()

    def prioritize_frontier(self) -> None:
        """Read the input at the frontier next, as it blocks progress."""
        self._queue.prioritize(self.frontier)

    def check(self, *, waits: bool) -> None:
        """Raise the first error, unless a task is still reading an earlier input.

        Args:
            waits: whether shards still wait for inputs although all records have been divided.
        """
        if self._errors and not (self._reading or (self.finished and not waits)):
            raise next(iter(self._errors.values()))
