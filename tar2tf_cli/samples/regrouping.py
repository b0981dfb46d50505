"""Regroups samples whose members are not adjacent, in two passes: all headers first, then members by offset."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator

from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.tar import Member, TarReader
from tar2tf_cli.samples.grouping import Grouper, may_be_misnamed


class _HeaderDamage:
    """Finds the samples that may have lost members to damage among the headers.

    Attributes:
        lost: whether damage may have hidden members of any sample.
    """

    def __init__(self) -> None:
        self.lost = False
        self._adjacent = True  # whether members were adjacent up to the damage, which may make them look scattered
        self._just_passed = False  # whether no member of a sample has followed the last damage yet
        self._misnamed = 0  # the number of members up to the last one after damage, if that may have lost its name
        self._around: list[tuple[str, str, int]] = []  # keys before and after, and offset after it

    @property
    def pending(self) -> bool:
        """Whether the next run of members may belong to a sample that lost members."""
        return self._just_passed or self._misnamed > 0

    def begin(self, *, adjacent: bool) -> None:
        """Record damage that may have hidden members after the last one, and whether members were adjacent so far."""
        self._adjacent = self._adjacent and adjacent
        self._just_passed = True

    def add(self, before: str, key: str, offset: int, members: int, *, misnamed: bool) -> None:
        """Record the samples next to damage: that of a member, and of the next one if it may have lost its name.

        Args:
            before: the key of the previous member.
            key: the member's key.
            offset: the member's offset.
            members: the number of members up to this one.
            misnamed: whether the member may have lost its name.
        """
        if self._just_passed or self._misnamed == members - 1:
            self._around.append((before, key, offset))
        self._misnamed = members if misnamed and self._just_passed and key != before else 0
        self._just_passed = False

    def skip_neighbours(self, grouper: Grouper, last: str) -> None:
        """Skip the samples next to damage, unless members are scattered, so that any sample may be incomplete.

        Args:
            grouper: receives the faulty samples.
            last: the key of the last member.
        """
        if not self._adjacent:
            return
        for before, after, offset in self._around:
            grouper.skip(before)
            grouper.skip_incomplete(after, offset)
        if self._just_passed:
            grouper.skip(last)


class Regrouper:
    """Regroups samples whose members are not adjacent: reads all headers first, then members by offset.

    Between both passes it keeps the offsets of each sample's members, as runs of adjacent members, ordered by the first
    appearance of keys: about 150 bytes per sample while headers are read, and 60 afterwards.

    Args:
        grouper: splits names into keys and extensions, counts the members that belong to no sample, and makes samples.
    """

    def __init__(self, grouper: Grouper) -> None:
        self._grouper = grouper
        self._scanned = False
        self._key = ""  # of the last member that belongs to a sample
        self._damage = _HeaderDamage()
        self._after_zeros = False
        self._numbers: dict[int, int] = {}  # numbers of samples, by the hash of the key
        self._owners = array("I")
        self._starts = array("Q")
        self._ends = array("Q")
        self._scattered = bytearray()  # one byte per sample
        self._entries: Counter[str] = Counter()  # how many members have each extension

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self._scattered)

    @property
    def not_adjacent(self) -> int:
        """The number of samples whose members are not adjacent."""
        return sum(self._scattered)

    def samples(self, headers: TarReader, by_offset: Callable[[], TarReader]) -> Iterator[Sample]:
        """Iterate over the samples; after damage, call it again with the same reader of headers if `resume` says so.

        Args:
            headers: reads the headers.
            by_offset: makes a reader of the members, whose stream can seek.
        """
        grouper = self._grouper
        if not self._scanned:
            self.scan(headers)
            self._scanned = True
        required = frozenset[str]()
        if self._damage.lost:
            self._damage.skip_neighbours(grouper, self._key)
            required = frozenset(name for name, count in self._entries.items() if 4 * count > self.count)
        grouper.expect(required, ends_last=not self._owners or self._owners[-1] == self.count - 1)
        yield from grouper.samples(self.members(by_offset()))

    def resume(self, error: DamagedShardError, *, resumed: bool) -> bool:
        """Record damage, and return whether to continue: only after damage to a header, not to a member read by offset.

        Args:
            error: the damage; it names the damaged member, whose sample is skipped, if that is known.
            resumed: whether more headers can be read; otherwise, no headers follow those read so far.
        """
        key = self._grouper.names.key_of(error.member)
        if key:
            self._grouper.skip(key)
        else:
            self._damage.begin(adjacent=not self.not_adjacent)
        self._damage.lost |= not (key and resumed)
        first, self._scanned = not self._scanned, self._scanned or not resumed
        return first

    def scan(self, tar: TarReader) -> None:
        """Add the members of a tar; after damage, call it again with the same reader."""
        numbers, scattered, damage, current = self._numbers, self._scattered, self._damage, -1
        last = self._owners[-1] if self._owners else -1
        for name, _, _, start in tar:
            key, extension = self._grouper.names.split(name)
            if not key:
                current = -1  # ends the run, as the member belongs to no sample
                continue
            self._entries[extension] += 1
            number = numbers.setdefault(hash(key), len(numbers))
            if number == len(scattered):
                scattered.append(False)
            elif number != last:
                scattered[number] = True
            if number != current:
                self._owners.append(number)
                self._starts.append(start)
                self._ends.append(0)
                if damage.pending:
                    members = sum(self._entries.values())
                    damage.add(self._key, key, start, members, misnamed=may_be_misnamed(name, tar.extends))
                if self._after_zeros:
                    self._grouper.compare(key)
                    self._after_zeros = False
                self._key = key
            current = last = number
            self._ends[-1] = tar.offset

    def zeros(self) -> None:
        """Record that zeros follow the last member; they may be the end of an archive, or overwritten members."""
        self._grouper.compare(self._key)
        self._after_zeros = True

    def members(self, tar: TarReader) -> Iterator[Member]:
        """Iterate over the members of all samples, sample by sample, from a reader whose stream can seek."""
        self._numbers.clear()
        for run in sorted(range(len(self._owners)), key=self._owners.__getitem__):
            end = self._ends[run]
            tar.start_at(self._starts[run], end)
            for member in tar:
                yield member
                if tar.offset >= end:
                    break
