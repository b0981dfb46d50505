"""The order of shuffled records, sorted through files: memory does not grow with the number of records.

Records are first divided by their order numbers among a few temporary files; each of them is then sorted in memory, and
becomes a table for each lane: where the records are, in their order. A shard is a range of rows of some tables.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.spool import Part, SpoolIndex, StoredIndex
from tar2tf_cli.errors import write_errors
from tar2tf_cli.formats.files import write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray


SORTED_AT_ONCE: Final = 1 << 16
"""How many records are sorted at once, in 5 MB of memory."""

MOST_FILES: Final = 128
_CELL: Final = 8  # bytes


def sorted_tables(
    parts: Iterable[Part], most: int | None, path: Callable[[int], str], first: int
) -> Iterator[tuple[int, Part]]:
    """The number of the lane and the rows of each table; records with equal order numbers keep the input order.

    Args:
        parts: all records; each is a unit of its own.
        most: how many records to keep, the first ones in the new order; None for all.
        path: returns the path of a table by its number; tables are numbered like groups of inputs.
        first: the number of the first table.
    """
    import numpy as np

    numbers = count(first)
    for rows in _sorted(list(parts), os.path.dirname(path(first))):
        rows = rows[:most]
        most = None if most is None else most - len(rows)
        for lane in np.unique(rows[:, 4]):
            number, table = next(numbers), rows[rows[:, 4] == lane, 1:4]
            write_whole(path(number), [np.ascontiguousarray(table.T).tobytes()], lasting=False)
            yield int(lane), Part(number, StoredIndex(partial(_table_index, path(number))), 0, len(table))


def _table_index(path: str) -> SpoolIndex:
    """A table as the index of records that follow each other."""
    *_, sizes = rows_of(path, 0, os.path.getsize(path) // (3 * _CELL))
    return SpoolIndex(sizes)


def rows_of(path: str, first: int, count: int) -> list[array[int]]:
    """Some rows of a table: the group, the offset in its spool and the size of each record."""
    columns = [array("Q") for _ in range(3)]
    with open(path, "rb") as file:
        height = os.fstat(file.fileno()).st_size // len(columns)
        for place, column in enumerate(columns):
            file.seek(place * height + first * _CELL)
            column.frombytes(file.read(count * _CELL))
    return columns


def _sorted(parts: list[Part], folder: str) -> Iterator[NDArray[Any]]:
    """All records in order: order number, group, offset in its spool, size, and number of the lane."""
    from tempfile import TemporaryFile

    import numpy as np

    buckets = min(1 + sum(part.stop - part.first for part in parts) // SORTED_AT_ONCE, MOST_FILES)
    bounds = np.array([(2**64 * place) // buckets for place in range(1, buckets)], np.uint64)
    with ExitStack() as stack:
        with write_errors(folder):
            files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(buckets)]
            for rows in (rows for part in parts for rows in _rows(part)):
                bucket = np.searchsorted(bounds, rows[:, 0], side="right").astype(np.uint8)
                rows = rows[np.argsort(bucket, kind="stable")]
                ends = np.cumsum(np.bincount(bucket, minlength=buckets))
                for file, some in zip(files, np.split(rows, ends), strict=False):
                    file.write(some.tobytes())
        for file in files:
            file.seek(0)
            rows = np.frombuffer(file.read(), np.uint64).reshape(-1, 5)
            yield rows[np.argsort(rows[:, 0], kind="stable")]


def _rows(part: Part) -> Iterator[NDArray[Any]]:
    import numpy as np

    index = part.spool.loaded()
    order, sizes, lanes = (np.frombuffer(column, np.uint64) for column in (index.order, index.sizes, index.lanes))
    end = int(sizes[: part.first].sum())
    for first in range(part.first, part.stop, SORTED_AT_ONCE):
        here = slice(first, min(first + SORTED_AT_ONCE, part.stop))
        ends = end + np.cumsum(sizes[here], dtype=np.uint64)
        end = int(ends[-1])
        group, lane = np.full_like(ends, part.group), lanes[here] if lanes.size else np.zeros_like(ends)
        yield np.column_stack([order[here], group, ends - sizes[here], sizes[here], lane])
