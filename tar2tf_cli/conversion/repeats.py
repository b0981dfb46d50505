"""Samples, keys and groups of samples that earlier inputs had already.

The options `--keys`, `--join` and `--split` confuse samples of equal keys, which are counted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.checksums import key_hash, ordered
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tar2tf_cli.api.values import Array

_RANGES: Final = 16
"""Number of ranges of hashes, which are compared one after the other to save memory."""


class EqualKeys(NamedTuple):
    """Count of the samples with a key that an earlier input also has.

    Attributes:
        samples: the number of these samples; samples of one input with equal keys count once.
        first: the number of the input with the first such sample.
        earlier: the number of the first input that has its key.
    """

    samples: int
    first: int
    earlier: int


class KeyIndex:
    """Stores the hash of each written key, in eight bytes of memory, or sixteen while keys are compared."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._inputs: list[int] = []
        self._ends: list[int] = []  # for each of these inputs, the number of hashes up to and including its own

    def add(self, source: int, hashes: array[int]) -> None:
        """Add the key hashes of the next samples, in input order.

        Args:
            source: the number of the input of these samples.
            hashes: the hash of each key.
        """
        if not hashes:
            return
        self._hashes.extend(hashes)
        if self._inputs[-1:] == [source]:
            self._ends.pop()
        else:
            self._inputs.append(source)
        self._ends.append(len(self._hashes))

    def find_equal(self) -> EqualKeys | None:
        """Count the samples with a key that an earlier input has, and clear the index; None if there are none."""
        data, self._hashes = self._hashes.tobytes(), array("Q")
        if len(self._inputs) < 2 or len(ordered(data)) == len(data):
            return None
        import numpy as np

        hashes, found = np.frombuffer(data, np.uint64), list[tuple[int, int, int]]()
        for number in range(_RANGES):
            first, last = (np.uint64((each << 64) // _RANGES - end) for each, end in ((number, 0), (number + 1, 1)))
            found += self._equal_among(hashes, np.flatnonzero((first <= hashes) & (hashes <= last)))
        if not found:
            return None
        _, place, earlier = min(found, key=itemgetter(1))
        return EqualKeys(sum(count for count, *_ in found), self._owner(place), self._owner(earlier))

    def _owner(self, place: int) -> int:
        return self._inputs[bisect_right(self._ends, place)]

    def _equal_among(self, hashes: NDArray[np.uint64], places: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
        """Yield the number of samples with a key of an earlier input, and the positions of the first and of the earlier
        one.
        """
        import numpy as np

        places = places[np.argsort(hashes[places], kind="stable")]
        keys, owners = hashes[places], np.searchsorted(self._ends, places, "right")
        is_first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
        leaders = np.maximum.accumulate(np.where(is_first, np.arange(len(keys)), 0))
        first_of_input = is_first | np.append(True, owners[1:] != owners[:-1])[: len(keys)]
        equal = np.flatnonzero((owners != owners[leaders]) & first_of_input)
        if len(equal):
            first = equal[np.argmin(places[equal])]
            yield len(equal), int(places[first]), int(places[leaders[first]])


# --- Equal samples ---

Buffer: TypeAlias = "array[int] | Array"
"""Unsigned 64-bit integers."""


class DuplicateIndex:
    """Index of sample digests that finds duplicates; 16 bytes of memory for each distinct sample.

    Attributes:
        repeated: numbers, from 0, of the samples of the last input that are duplicates of earlier samples.
    """

    def __init__(self) -> None:
        self._seen: list[Array] = []  # sorted digests; each array is at least twice as long as the next
        self.repeated: list[int] = []

    def among(self, high: Buffer, low: Buffer) -> NDArray[np.bool_]:
        """Return for each of the next units, given by the digest columns of their index, whether its sample is new."""
        import numpy as np

        halves = np.column_stack([np.frombuffer(column, np.uint64) for column in (high, low)])
        begins = np.flatnonzero(halves.any(axis=1))  # the first unit of each sample
        digests, first = np.unique(np.ascontiguousarray(halves[begins]).view("S16").ravel(), return_index=True)
        new = np.ones(len(digests), np.bool_)
        for seen in self._seen:
            place = np.minimum(np.searchsorted(seen, digests), len(seen) - 1)
            new &= seen[place] != digests
        self._add(digests[new])
        is_first = np.zeros(len(begins), np.bool_)
        is_first[first[new]] = True
        self.repeated = np.flatnonzero(~is_first).tolist()
        return np.repeat(is_first, np.diff(begins, append=len(halves)))

    def _add(self, digests: NDArray[np.generic]) -> None:
        import numpy as np

        if len(digests):
            self._seen.append(digests)
        while len(self._seen) > 1 and len(self._seen[-2]) < 2 * len(self._seen[-1]):
            self._seen[-2:] = [np.sort(np.concatenate(self._seen[-2:]))]

    def ranges(self, part: InputUnits) -> list[tuple[int, int]]:
        """Return the runs of an input's units whose samples are not duplicates, as first unit and exclusive end."""
        import numpy as np

        index = part.spool.loaded()
        if part.first == part.stop:
            self.repeated = []
            return []
        mask = self.among(index.high[part.first : part.stop], index.low[part.first : part.stop])
        edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)) + part.first
        return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


# --- Groups of samples ---

_APART: Final = "and each input is an output of its own (<input>), or can be read only once"
_JOIN: Final = "leave <input> out of the output path; or if these are two groups: --key '<input>/<key>'"
_AGAIN: Final = "add --regroup if members of its samples are not adjacent; leave the input out if it is damaged"


class GroupCheck:
    """Checks that each group of samples (`--group-by`) was made once, from all its samples.

    Args:
        plan: the conversion.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._go_on = bool(plan.group_lanes)
        self._known: dict[str, DuplicateIndex] = {}  # the groups of each lane
        self._after: dict[str, dict[str, int]] = {}  # samples that a lane's last input read from later ones
        self._last = ""  # the last group of the last input with one

    def add(self, number: int, report: InputReport) -> None:
        """Check the groups of the next input, given its number.

        Raises:
            SampleError: when samples of one group are in two inputs that are not adjacent or must not share groups, or
                when the continuation of a group was not found.
        """
        shard = self._plan.source.locate(self._plan.inputs[number].name)
        lane, groups = self._plan.stems[number], report.groups
        if not self._go_on:
            if groups and groups[0] == self._last:
                message = f"--group-by: samples of the group are in the input before, too, {_APART}"
                raise SampleError(message, shard=shard, key=groups[0], hint=_JOIN)
            self._last = groups[-1] if groups else self._last
            return
        before, self._after[lane] = self._after.get(lane, report.group_before), report.group_after
        if before != report.group_before and self._plan.conversion.limit is None:
            message = "--group-by: the group that begins the input was not read twice in the same way"
            raise SampleError(message, shard=shard, key=next(iter(before), None), hint=_AGAIN)
        known = self._known.setdefault(lane, DuplicateIndex())
        hashes = array("Q", map(key_hash, groups))
        known.among(hashes, array("Q", [1]) * len(hashes))
        if known.repeated:
            group = groups[known.repeated[0]]
            message = "--group-by: samples of the group are in an earlier input, too, which is not the one before"
            raise SampleError(message, shard=shard, key=group, hint="name the inputs in their order")
