"""Records of many plain samples at once: a batch takes the place of their members."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["Batch"]


@dataclass(slots=True, eq=False, repr=False)
class Batch:
    """Framed records of consecutive samples, each of which is whole, as another sample begins after it.

    Attributes:
        data: the records.
        sizes: the size of each record in bytes, as unsigned 64-bit integers.
        hashes: the hash of each key, as signed 64-bit integers.
        first: the key of the first sample.
        last: the key of the last sample.
        ascending: whether each key is greater than the one before.
        signatures: the names of the entries in their order, each followed by a NUL, and how many samples have them.
        kind: which of the signatures the last sample has.
        offset: offset of the header of the last sample's first member.
        end: position in the buffer at which the next sample begins.
        taken: set to true if the batch is used; otherwise its members follow one by one.
    """

    data: bytes
    sizes: bytes
    hashes: bytes
    first: str
    last: str
    ascending: bool
    signatures: list[tuple[bytes, int]]
    kind: int
    offset: int
    end: int
    taken: bool = False

    def __len__(self) -> int:
        return len(self.sizes) // 8

    def first_records(self, count: int) -> bytes:
        """The first so many records, or all of them."""
        return self.data if count >= len(self) else self.data[: sum(array("Q", self.sizes)[:count])]

    def names(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The names of the entries of the samples, and how many samples have them."""
        for names, count in self.signatures:
            if count:
                yield tuple(names.decode().split("\0")[:-1]), count

    def common(self, names: set[str] | None) -> set[str] | None:
        """The names that all samples have, among those given; None stands for any name."""
        for found, _ in self.names():
            names = set(found) if names is None else names & set(found)
        return names

    def all_names(self) -> set[str]:
        """The names that any sample has."""
        return {name for found, _ in self.names() for name in found}

    def last_names(self) -> set[str]:
        """The names of the entries of the last sample."""
        return set(self.signatures[self.kind][0].decode().split("\0")[:-1])

    def without_last(self) -> Batch:
        """The samples before the last one."""
        size = array("Q", self.sizes[-8:])[0]
        signatures = [(names, count - (kind == self.kind)) for kind, (names, count) in enumerate(self.signatures)]
        return replace(self, data=self.data[:-size], sizes=self.sizes[:-8], signatures=signatures)
