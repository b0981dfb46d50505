"""The index of an input's units, written to the working folder when the input is read.

Shards are made of units: a unit is one framed record, or one gzip block of several. Each unit is complete, so any
sequence of units is a valid TFRecord (RFC 1952 lets gzip members follow each other).
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
    """The units of one input, in input order; every column holds unsigned 64-bit integers.

    Attributes:
        sizes: size of each unit on disk in bytes.
        records: number of records in each unit; empty if every unit is one record.
        lanes: number of the split that each unit belongs to; empty without `--split`.
        order: sort key of each unit for shuffling; empty without `--shuffle`.
        offsets: byte offset of each sample in the input; empty if there is a spool.
    """

    sizes: array[int] = field(default_factory=_column)
    records: array[int] = field(default_factory=_column)
    lanes: array[int] = field(default_factory=_column)
    order: array[int] = field(default_factory=_column)
    offsets: array[int] = field(default_factory=_column)
    _ends: array[int] = field(default_factory=_column)

    def count(self, first: int = 0, stop: int | None = None) -> int:
        """The number of records in a range of units; `stop` is exclusive."""
        return sum(self.records[first:stop]) if self.records else len(self.sizes[first:stop])

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

    def clear(self) -> None:
        """Remove all units."""
        for name in _COLUMNS:
            del getattr(self, name)[:]


def save_index(path: str, index: SpoolIndex, report: dict[str, Any]) -> None:
    """Write an index and its report; the file appears whole or not at all."""
    columns = [getattr(index, name).tobytes() for name in _COLUMNS]
    crc = reduce(lambda crc, column: crc32c(column, crc), columns, 0)
    head = json.dumps({"report": report, "lengths": [len(column) for column in columns], "crc": crc})
    parts = [head.encode("utf-8", "surrogateescape") + b"\n", *columns]
    write_whole(path, parts, lasting=False)


def load_index(path: str) -> tuple[SpoolIndex, dict[str, Any]] | None:
    """Read an index and report written by `save_index`; None if there is none, or if it is damaged."""
    index, crc = SpoolIndex(), 0
    try:
        with open(path, "rb") as file:
            head = json.loads(file.readline())
            for name, length in zip(_COLUMNS, head["lengths"], strict=True):
                column = file.read(length)
                crc = crc32c(column, crc)
                getattr(index, name).frombytes(column)
            return (index, head["report"]) if crc == head["crc"] else None
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        return None
