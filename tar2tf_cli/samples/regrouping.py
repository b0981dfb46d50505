"""Members that are not adjacent: the order that puts those of each sample together, found from the headers alone."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from tar2tf_cli.formats.tar import Member, TarReader
from tar2tf_cli.samples.grouping import Grouper

__all__ = ["Runs"]


class Runs:
    """The offsets of each sample's members, as runs of adjacent members, sorted by the first appearance of their keys.

    It takes about 150 bytes per sample while the headers are read, and 60 afterwards.

    Args:
        grouper: splits names into keys and extensions, and counts the members that belong to no sample.

    Attributes:
        entries: how many members have each extension.
    """

    def __init__(self, grouper: Grouper) -> None:
        self._split = grouper.split
        self._numbers: dict[int, int] = {}  # of samples, by the hash of the key
        self._owners = array("I")
        self._starts = array("Q")
        self._ends = array("Q")
        self._scattered = bytearray()  # one byte a sample
        self.entries: Counter[str] = Counter()

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self._scattered)

    @property
    def ends_last(self) -> bool:
        """Whether the last member is one of the last sample."""
        return not self._owners or self._owners[-1] == self.samples - 1

    @property
    def not_adjacent(self) -> int:
        """The number of samples whose members are not adjacent."""
        return sum(self._scattered)

    def scan(self, tar: TarReader) -> None:
        """Add the members of a tar; after damage, call it again with the same reader."""
        numbers, scattered, current, last = self._numbers, self._scattered, -1, -1
        for name, _, _, start in tar:
            key, extension = self._split(name)
            if not key:
                current = -1  # ends the run, as it is not a member of a sample
                continue
            self.entries[extension] += 1
            number = numbers.setdefault(hash(key), len(numbers))
            if number == len(scattered):
                scattered.append(False)
            elif number != last:
                scattered[number] = True
            if number != current:
                self._owners.append(number)
                self._starts.append(start)
                self._ends.append(0)
            current = last = number
            self._ends[-1] = tar.offset

    def members(self, tar: TarReader) -> Iterator[Member]:
        """The members of all samples, sample by sample, from a reader whose stream can seek."""
        self._numbers.clear()
        for run in sorted(range(len(self._owners)), key=self._owners.__getitem__):
            end = self._ends[run]
            tar.start_at(self._starts[run], end)
            for member in tar:
                yield member
                if tar.offset >= end:
                    break
