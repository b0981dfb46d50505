"""Counts samples whose key a sample of an earlier input has, as `--keys`, `--join` and `--split` confuse them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tar2tf_cli.formats.checksums import ordered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
