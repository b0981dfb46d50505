"""Groups of inputs that one task reads, with one spool and one index together, however small the inputs are."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, chain
from typing import Any, Literal, TypeAlias

from tar2tf_cli.conversion.spool_index import COLUMNS, Part, SpoolIndex, StoredIndex
from tar2tf_cli.conversion.working_folder import entry_of, line_of
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.features.schema import Schema
from tar2tf_cli.formats.crc32c import crc32c
from tar2tf_cli.formats.record_file import write_whole
from tar2tf_cli.inputs.report import InputReport

__all__ = ["FileKind", "Group", "group_file", "groups_in", "load_group", "save_group"]


FileKind: TypeAlias = Literal["index", "spool", "table"]


def group_file(folder: str, number: int, kind: FileKind) -> str:
    """Path of a group's index or spool, or of a table of shuffled records, in a working folder."""
    return os.path.join(folder, f"input-{number:05d}.{kind}")


def groups_in(folder: str) -> frozenset[int]:
    """Numbers of the groups with an index in a working folder."""
    found = map(re.compile(r"input-([0-9]+)\.index").fullmatch, os.listdir(folder))
    return frozenset(int(name[1]) for name in found if name)


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """Inputs that were read together; in the working folder, its files are named by the first input.

    Attributes:
        numbers: the inputs' numbers in the plan, in the order in which they were read.
        index: the units of all of them; empty if it stays in its file.
        counts: how many units each input has.
        reports: the report of each input.
        spool_crc: CRC-32C of the spool; None when there is no spool and the inputs are read again.
        error: why the next input could not be read; the group then has those before it.
        stored: the index in its file, if it stays there.
    """

    numbers: tuple[int, ...]
    index: SpoolIndex = field(default_factory=SpoolIndex)
    counts: list[int] = field(default_factory=list)
    reports: list[InputReport] = field(default_factory=list)
    spool_crc: int | None = None
    error: Tar2tfError | None = None
    stored: StoredIndex | None = None
    _schemas: dict[Hashable, Schema] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the first input, which identifies the group."""
        return self.numbers[0]

    def add(self, report: InputReport) -> None:
        """Add the report of an input whose units have been added to the index."""
        report.schema = self._schemas.setdefault(report.schema.key, report.schema)  # one for all with the same features
        self.counts.append(len(self.index.sizes) - sum(self.counts))
        self.reports.append(report)

    def parts(self) -> Iterator[tuple[int, InputReport, Part]]:
        """The number, report and units of each input that was read."""
        stops = [*accumulate(self.counts)]
        starts = [0, *stops]
        for number, report, first, stop in zip(self.numbers, self.reports, starts, stops, strict=False):
            group = number if self.spool_crc is None else self.number
            yield number, report, Part(group, self.stored or self.index, first, stop)


def save_group(path: str, group: Group) -> None:
    """Write what was read of a group, without the error; the file appears whole or not at all."""
    columns = [getattr(group.index, name) for name in COLUMNS]
    schemas = {id(report.schema): report.schema for report in group.reports}
    places = {schema: place for place, schema in enumerate(schemas)}
    head = {
        "numbers": group.numbers[: len(group.reports)],
        "counts": group.counts,
        "schemas": [schema.to_json() for schema in schemas.values()],
        "reports": [[places[id(report.schema)], report.without_schema()] for report in group.reports],
        "spool_crc": group.spool_crc,
        "lengths": [len(column) * column.itemsize for column in columns],
        "crc": reduce(lambda crc, column: crc32c(column.tobytes(), crc), columns, 0),
    }
    write_whole(path, chain([line_of(head)], (column.tobytes() for column in columns)), lasting=False)


def load_group(path: str) -> Group | None:
    """Read what `save_group` wrote; None if there is nothing, or if it is damaged."""
    index, crc = SpoolIndex(), 0
    try:
        with open(path, "rb") as file:
            head: dict[str, Any] = entry_of(file.readline())
            for name, length in zip(COLUMNS, head["lengths"], strict=True):
                column = file.read(length)
                crc = crc32c(column, crc)
                getattr(index, name).frombytes(column)
        schemas = [Schema.from_json(schema) for schema in head["schemas"]]
        reports = [InputReport.from_json(report, schemas[place]) for place, report in head["reports"]]
        group = Group(tuple(head["numbers"]), index, head["counts"], reports, head["spool_crc"])
        return group if crc == head["crc"] else None
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        return None
