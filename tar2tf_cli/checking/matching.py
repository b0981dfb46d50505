"""Search for common digests in two sets of files, in bounded memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from tar2tf_cli.errors import write_errors

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from tar2tf_cli.api.values import Array

DIGESTS_AT_ONCE: Final = 1 << 17
"""How many digests are compared at once; each takes about 60 bytes of memory then."""

_PIECE: Final = 1 << 20

Digests: TypeAlias = "Array"
"""Digests, as unsigned 64-bit integers."""


def digest_of(parts: Iterable[bytes], seed: int = 0) -> int:
    """Return the 64-bit digest (XXH64, as in the kernel) of a value in parts; it is not collision-resistant."""
    state = xxhash.xxh64(seed=seed)
    for part in parts:
        state.update(part)
    return int(state.intdigest())


class Spill:
    """Temporary storage for the digests of several files, in one unnamed file that vanishes with the process."""

    def __init__(self) -> None:
        with write_errors(tempfile.gettempdir()):
            self._file = tempfile.TemporaryFile(prefix="tar2tf-")  # noqa: SIM115 - closed by __exit__
        self._ranges: dict[int, tuple[int, int]] = {}
        self._end = 0
        self._whole: Array | None = None

    def add(self, number: int, parts: Iterable[bytes]) -> None:
        """Add data of the file with a number; files may be added in any order.

        Raises:
            SinkError: when the disk is full.
        """
        start, self._whole = self._end, None
        with write_errors(tempfile.gettempdir()):
            for part in parts:
                self._file.write(part)
                self._end += len(part)
        self._ranges[number] = start, self._end

    def take(self, number: int, path: str) -> None:
        """Add the content of a file that a task wrote, and delete that file."""
        with open(path, "rb") as file:
            self.add(number, iter(partial(file.read, _PIECE), b""))
        os.unlink(path)

    def of(self, number: int) -> Array:
        """Return the data of a file."""
        if self._whole is None:
            with write_errors(tempfile.gettempdir()):
                self._file.flush()
            self._whole = np.asarray(np.memmap(self._file, np.uint8, "r")) if self._end else np.empty(0, np.uint8)
        start, end = self._ranges.get(number, (0, 0))
        return self._whole[start:end]

    def by_file(self, dtype: DTypeLike) -> list[Array]:
        """Return the data of all files as arrays of a dtype, in order of their numbers."""
        return [self.of(number).view(dtype) for number in sorted(self._ranges)]

    def close(self) -> None:
        """Close the file; arrays returned by `of` remain readable."""
        self._file.close()


class FileStarts(NamedTuple):
    """Start positions of several files' digests in their concatenation, and its end."""

    starts: Array

    @classmethod
    def of(cls, files: Sequence[Digests]) -> FileStarts:
        """Return the start positions of these files' digests."""
        return cls(np.cumsum([0, *map(len, files)]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def split(self, every: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        """Split an array with a value for each digest by file."""
        return [every[start:end] for start, end in pairwise(self.starts.tolist())]

    def file_of(self, position: int) -> tuple[int, int]:
        """Return the number of the file that contains a position, and the position in that file."""
        file = int(np.searchsorted(self.starts, position, "right")) - 1
        return file, position - int(self.starts[file])


def match(first: Sequence[Digests], second: Sequence[Digests]) -> NDArray[np.int64]:
    """Match each digest of the first files with an equal digest of the second files, each used once.

    Equal digests are matched in order. Returns positions among all digests of the second files; -1 for none.
    """
    matched = np.full(sum(map(len, first)), -1, np.int64)
    for (these, here), (others, there) in _groups(first, second):
        order, other_order = np.argsort(these, kind="stable"), np.argsort(others, kind="stable")
        these, others = these[order], others[other_order]
        before = np.arange(len(these)) - np.searchsorted(these, these)
        place = np.searchsorted(others, these) + before
        has = place < np.searchsorted(others, these, "right")
        matched[here[order[has]]] = there[other_order[place[has]]]
    return matched


def among(first: Sequence[Digests], second: Sequence[Digests]) -> NDArray[np.bool_]:
    """Return whether each digest of the first files occurs in the second files."""
    is_among = np.zeros(sum(map(len, first)), np.bool_)
    for (these, here), (others, _) in _groups(first, second):
        is_among[here] = np.isin(these, others)
    return is_among


def left_over(starts: FileStarts, matched: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each of the second files' digests is unmatched."""
    left = np.ones(len(starts), np.bool_)
    left[matched[matched >= 0]] = False
    return left


_DigestGroup: TypeAlias = tuple[Digests, Digests]


def _groups(first: Sequence[Digests], second: Sequence[Digests]) -> Iterator[tuple[_DigestGroup, _DigestGroup]]:
    """Partition digests by their last bits into groups that fit into memory."""
    count = 1 << (sum(map(len, (*first, *second))) // DIGESTS_AT_ONCE).bit_length()
    for group in range(count):
        yield _group(first, group, count), _group(second, group, count)


def _group(files: Sequence[Digests], group: int, groups: int) -> _DigestGroup:
    """Return the digests of one group, and their positions in the concatenation."""
    digests, positions, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for every in files:
        numbers = np.flatnonzero(every & np.uint64(groups - 1) == group)
        digests.append(every[numbers])
        positions.append(numbers + start)
        start += len(every)
    return np.concatenate(digests), np.concatenate(positions)
