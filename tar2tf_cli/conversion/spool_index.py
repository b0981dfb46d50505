"""The index of the units of a group of inputs, made when they are read.

Shards are made of units: a unit is one framed record, or one gzip block of several. Each unit is complete, so any
sequence of units is a valid TFRecord (RFC 1952 lets gzip members follow each other).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

__all__ = ["COLUMNS", "Lengths", "Part", "SpoolIndex", "StoredIndex"]

COLUMNS: Final = ("sizes", "records", "lanes", "order", "offsets")

Lengths: TypeAlias = list[int]


class SpoolIndex:
    """The units of a group of inputs, in input order; every column holds unsigned 64-bit integers.

    Attributes:
        sizes: size of each unit on disk in bytes.
        records: number of records in each unit; empty if every unit is one record.
        lanes: number of the split that each unit belongs to; empty without `--split`.
        order: sort key of each unit for shuffling; empty without `--shuffle`.
        offsets: byte offset of each sample in the input; empty if there is a spool.
    """

    __slots__ = (*COLUMNS, "_ends")

    def __init__(self, sizes: Iterable[int] = (), records: Iterable[int] = ()) -> None:
        self.sizes = array("Q", sizes)
        self.records = array("Q", records)
        self.lanes = array("Q")
        self.order = array("Q")
        self.offsets = array("Q")
        self._ends = array("Q")

    def loaded(self) -> SpoolIndex:
        """The index with all its columns."""
        return self

    def count(self, first: int = 0, stop: int | None = None) -> int:
        """The number of records in a range of units; `stop` is exclusive."""
        if self.records:
            return sum(self.records[first:stop])
        return (len(self.sizes) if stop is None else stop) - first

    @property
    def ends(self) -> array[int]:
        """0, followed by the end offset of each unit in the spool; computed once the index is complete."""
        if len(self._ends) != len(self.sizes) + 1:
            self._ends = array("Q", accumulate(self.sizes, initial=0))
        return self._ends

    def start(self, unit: int) -> int:
        """Byte offset of a unit in the spool or, if there is none, in the tar."""
        return self.offsets[unit] if self.offsets else self.ends[unit]

    def size(self, first: int, stop: int) -> int:
        """Size of a range of units in bytes; `stop` is exclusive."""
        return self.ends[stop] - self.ends[first]

    @property
    def lengths(self) -> Lengths:
        """The length of each column."""
        return [len(getattr(self, name)) for name in COLUMNS]

    def cut(self, lengths: Lengths) -> None:
        """Remove the units that were added since the columns had these lengths."""
        for name, length in zip(COLUMNS, lengths, strict=True):
            del getattr(self, name)[length:]


class StoredIndex(SpoolIndex):
    """An index that stays in a file, so that many need no memory; its columns are empty.

    Args:
        load: reads the index.
    """

    __slots__ = ("_load",)

    def __init__(self, load: Callable[[], SpoolIndex]) -> None:
        super().__init__()
        self._load = load

    def loaded(self) -> SpoolIndex:
        """The index, read again."""
        return self._load()


class Part(NamedTuple):
    """The units of one input.

    Attributes:
        group: number of the group whose spool holds them; without a spool, that of the input.
        spool: the index of that group.
        first: the input's first unit.
        stop: the exclusive end of its units.
    """

    group: int
    spool: SpoolIndex
    first: int
    stop: int
