"""Plain samples to records, many at a time: batches take the place of members."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Protocol

from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.samples.names import KeySplit
from tar2tf_cli.samples.plain import PlainSamples

__all__ = ["Batch", "with_batches"]

_MOST_PAUSE: Final = 256


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
        """The names that all samples have, of those given unless it is None."""
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


class Taker(Protocol):
    """Decides about batches.

    Attributes:
        key_split: where a name is split into key and extension.
        split_differs: a name that the other key rule would split differently; None if there was none yet.
    """

    key_split: KeySplit
    split_differs: str | None

    def takes_batches(self) -> bool:
        """Whether the next samples may come as a batch."""


def with_batches(tar: TarReader, taker: Taker) -> Iterator[tuple[str, Any, int, int]]:
    """Iterate over the members of a tar, or over batches of them: each is the data of a member without a name.

    Batches are made by the kernel or, without it, in Python. While members are not plain, that is tried again, but less
    and less often.
    """
    return _with_batches((kernel.native() or PlainSamples()).records, tar, taker)


def _with_batches(records: Callable[..., Any], tar: TarReader, taker: Taker) -> Iterator[tuple[str, Any, int, int]]:
    members, name, pause, last_dot = iter(tar), "", 1, taker.key_split == "last"
    made: Any = False
    while True:
        while taker.takes_batches():
            data, position = tar.buffered
            previous = name.encode("utf-8", "surrogateescape")
            made = records(data, position, last_dot, taker.split_differs is not None, previous)
            if made is True and tar.read_ahead():
                continue
            if type(made) is not tuple:
                break
            batch = Batch(*made)
            start = tar.offset - position
            batch.offset += start
            yield "", batch, 0, start + batch.end
            if not batch.taken:
                break
            tar.go_on(batch.end)
            name, pause = "", 1
        name = ""
        for member in islice(members, 1 if made is None else pause):
            yield member
            name = member[0]
        if not name:
            return
        pause = pause if made is None else min(2 * pause, _MOST_PAUSE)
