"""What reading an input leaves in the working folder: an index of its units.

A unit is what is divided among shards: one framed record, or one gzip block of several. Units are whole in
themselves, so any sequence of them is a valid TFRecord (RFC 1952 lets gzip members follow each other).
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import Any, Final

from tar2tf_cli.formats.record_file import write_whole
from tar2tf_cli.formats.tfrecord import crc32c

__all__ = ["SpoolIndex", "load_index", "save_index"]

_COLUMNS: Final = ("sizes", "records", "lanes", "order", "offsets")


def _column() -> array[int]:
    return array("Q")


@dataclass(slots=True)
class SpoolIndex:
    """What one input gives, unit by unit, in input order; every column is unsigned 64-bit.

    Attributes:
        sizes: bytes each unit takes on disk.
        records: records in each unit; empty when every unit is one record.
        lanes: number of the split each unit belongs to; empty when there is one.
        order: number by which units are shuffled; empty when they are not.
        offsets: where in the input each sample begins; empty when there is a spool.
    """

    sizes: array[int] = field(default_factory=_column)
    records: array[int] = field(default_factory=_column)
    lanes: array[int] = field(default_factory=_column)
    order: array[int] = field(default_factory=_column)
    offsets: array[int] = field(default_factory=_column)
    _ends: array[int] = field(default_factory=_column)

    def count(self, first: int = 0, stop: int | None = None) -> int:
        """Records in a range of units."""
        return sum(self.records[first:stop]) if self.records else len(self.sizes[first:stop])

    @property
    def ends(self) -> array[int]:
        """0, and where each unit ends in the spool; computed once the index is whole."""
        if len(self._ends) != len(self.sizes) + 1:
            self._ends = array("Q", accumulate(self.sizes, initial=0))
        return self._ends

    def start(self, unit: int) -> int:
        """Where a unit begins, in the spool or, without one, in the tar."""
        return self.offsets[unit] if self.offsets else self.ends[unit]

    def size(self, first: int, stop: int) -> int:
        """Bytes of a range of units."""
        return self.ends[stop] - self.ends[first]

    def clear(self) -> None:
        """Forget all units."""
        for name in _COLUMNS:
            del getattr(self, name)[:]


def save_index(path: str, index: SpoolIndex, report: dict[str, Any]) -> None:
    """Write an index and the report that goes with it; the file appears whole or not at all."""
    columns = [getattr(index, name).tobytes() for name in _COLUMNS]
    crc = reduce(lambda crc, column: crc32c(column, crc), columns, 0)
    head = json.dumps({"report": report, "lengths": [len(column) for column in columns], "crc": crc})
    parts = [head.encode("utf-8", "surrogateescape") + b"\n", *columns]
    write_whole(path, parts, lasting=False)


def load_index(path: str) -> tuple[SpoolIndex, dict[str, Any]] | None:
    """The index and report that `save_index` wrote; None when there is none or it is not whole."""
    index, crc = SpoolIndex(), 0
    try:
        with open(path, "rb") as file:
            head = json.loads(file.readline())
            for name, length in zip(_COLUMNS, head["lengths"], strict=True):
                column = file.read(length)
                crc = crc32c(column, crc)
                getattr(index, name).frombytes(column)
    except (FileNotFoundError, ValueError):
        return None
    return (index, head["report"]) if crc == head["crc"] else None
