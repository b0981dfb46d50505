"""How many examples have which features, in a form that the kernel can add to: see `examples` in kernel.c."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Final

from tar2tf_cli.formats.example import TAGS, Kind, ParsedFeature

MOST_REMEMBERED: Final = 10_000
"""Names, and combinations of them, whose records are counted together before they are forgotten."""

MOST_KNOWN: Final = 64
"""Names that the kernel takes."""

_MOST_KINDS: Final = 512  # combinations of them
_KNOWN: Final = Struct("=5i")
_LARGEST: Final = 2**31 - 1
_NO_KIND: Final = 0  # of a feature of which no list is right


@dataclass(frozen=True, slots=True)
class Expected:
    """What is required of one feature; None allows anything.

    Attributes:
        kind: the kind of list that holds the values.
        count: number of values.
        size: total size of the values on the wire in bytes.
        values: the values themselves, each a number or None for any.
    """

    kind: Kind | None = None
    count: int | None = None
    size: int | None = None
    values: tuple[int | None, ...] | None = None

    def misfit(self, feature: ParsedFeature) -> str | None:
        """What is wrong with a feature, if anything."""
        if self.kind is not None and feature.kind != self.kind:
            return f"the feature {feature.name!r} is {feature.kind or 'unset'}, but {self.kind} in the manifest"
        if self.count is not None and feature.count != self.count:
            return f"the feature {feature.name!r} has {feature.count:,} values, but {self.count:,} in the manifest"
        if self.size is not None and feature.size != self.size:
            return f"the feature {feature.name!r} has {feature.size:,} bytes, but {self.size:,} in the manifest"
        if self.values is not None and not _alike(values := feature.values(), self.values):
            shape = ["?" if length is None else length for length in self.values]
            return f"the feature {feature.name!r} is {_shown(values)}, but {_shown(shape)} by its shape in the manifest"
        return None


def _alike(values: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(values) == len(wanted) and all(b in (a, None) for a, b in zip(values, wanted, strict=True))


def _shown(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


class Census:
    """Counts examples by the combination of features that they have.

    It is an `Accept` of `RecordReader`: the kernel counts the examples of combinations that were added before, whose
    features are as expected, and leaves all others to Python.

    Args:
        expected: what is required of each feature, by name; a feature without an entry may be anything.
    """

    def __init__(self, expected: Mapping[str, Expected]) -> None:
        self._expected = expected
        self._counts: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._bits: dict[str, int] = {}  # the bit of each name
        self._records: dict[int, int] = {}  # how many examples there are by the bits of their names
        self._kinds: list[int] = []  # those of them that the kernel knows
        self._known = (0, 0), (b"", b"")

    def count(self, names: Iterable[str]) -> None:
        """Count one example."""
        if max(len(self._bits), len(self._records)) >= MOST_REMEMBERED:
            self.counts()
        bits = sum(self._bits.get(name) or self._bits.setdefault(name, 1 << len(self._bits)) for name in names)
        self._records[bits] = self._records.get(bits, 0) + 1

    def known(self) -> tuple[bytes, bytes]:
        """The names and kinds of examples that the kernel may check, as many as it takes."""
        sizes = min(len(self._bits), MOST_KNOWN), min(len(self._records), _MOST_KINDS)
        if self._known[0] != sizes:
            names = b"".join(described(name, self._expected.get(name)) for name in islice(self._bits, MOST_KNOWN))
            self._kinds = [kind for kind in islice(self._records, _MOST_KINDS) if kind < 1 << MOST_KNOWN]
            self._known = sizes, (names, array("Q", self._kinds).tobytes())
        return self._known[1]

    def expects_more(self) -> None:
        """Note that what is expected of a feature has changed."""
        self._known = (0, 0), (b"", b"")

    def add(self, counts: bytes) -> int:
        """Count examples of known kinds; return how many there are."""
        tallies = array("Q", counts)
        for names, records in zip(self._kinds, tallies, strict=True):
            self._records[names] += records
        return sum(tallies)

    def signatures(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The combinations of names, and how many examples have them."""
        for bits, records in self._records.items():
            yield tuple(name for name, bit in self._bits.items() if bits & bit), records

    def counts(self) -> Counter[str]:
        """How many examples have each feature; the combinations are then forgotten."""
        for names, records in self.signatures():
            self._counts.update(dict.fromkeys(names, records))
        self._begin()
        return self._counts


def described(name: str, wanted: Expected | None) -> bytes:
    """What the kernel takes about one feature."""
    text, kind, count, size, values = name.encode(), -1, None, None, None
    if wanted:
        kind = TAGS[wanted.kind][0] if wanted.kind else -1
        count, size, values = wanted.count, wanted.size, wanted.values
    if values is not None and count != len(values):
        count, kind = len(values), kind if count is None else _NO_KIND
    numbers = [-1 if number is None else min(number, _LARGEST) for number in (count, size)]
    content = array("q", [-1 if value is None else value for value in values or ()]).tobytes()
    return _KNOWN.pack(kind, *numbers, len(text), values is not None) + text + content
