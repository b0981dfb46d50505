"""The order in which inputs are read: small ones together, and none too far ahead of those that are needed first."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from tar2tf_cli.conversion.group import groups_in, load_group
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.reading import Worker
from tar2tf_cli.conversion.sharding import ShardPlanner

__all__ = ["InputQueue"]

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
        self._remote = plan.source.remote
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
        return _GROUP_INPUTS if (self._remote or small) and not self._worker.placing else 1
