"""The context of a conversion's tasks: its inputs, its working folder, and the groups of inputs in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from tar2tf_cli.api.backend import RecordMaker
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import OnBytes, Source
from tar2tf_cli.conversion.spool import (
    COLUMNS,
    InputUnits,
    SpoolIndex,
    StoredIndex,
    Strata,
    pack_columns,
    unpack_columns,
)
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.formats.streams import PlainStream
from tar2tf_cli.inputs.reader import attempts
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import dataclass, field

if TYPE_CHECKING:
    from tar2tf_cli.features.described import Described
    from tar2tf_cli.inputs.joined import Joined
    from tar2tf_cli.inputs.record_samples import Forms

WorkingFile: TypeAlias = 'Literal["index", "spool", "table"]'
"""A kind of file in a working folder."""


def groups_in(folder: str) -> frozenset[int]:
    """Return the numbers of the groups with an index in a working folder."""
    named = (name.partition(".") for name in os.listdir(folder) if name.startswith("input-"))
    return frozenset(int(stem.removeprefix("input-")) for stem, _, suffix in named if suffix == "index")


@dataclass(eq=False, repr=False)
class InputGroup:
    """Inputs that one task reads together; its files in the working folder are named by the first input's number.

    Attributes:
        numbers: the inputs' numbers in the plan, in the order in which they were read.
        index: the units of all inputs; empty if they are only in the index file.
        counts: the number of units of each input.
        reports: the report of each input.
        spool_crc: CRC-32C of the spool; None when there is no spool and the inputs are read again.
        error: the error at which reading stopped; the group then contains the inputs before it.
        stored: the index if it is only in its file.
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
        """Number of the first input, which identifies the group."""
        return self.numbers[0]

    def add(self, report: InputReport) -> None:
        """Add the report of an input whose units have been added to the index."""
        report.schema = self._schemas.setdefault(report.schema.key, report.schema)  # one for equal features
        self.counts.append(len(self.index.sizes) - sum(self.counts))
        self.reports.append(report)

    def parts(self) -> Iterator[tuple[int, InputReport, InputUnits]]:
        """Yield the number, report and units of each input that was read."""
        stops = [*accumulate(self.counts)]
        starts = [0, *stops]
        for number, report, first, stop in zip(self.numbers, self.reports, starts, stops, strict=False):
            group = number if self.spool_crc is None else self.number
            yield number, report, InputUnits(group, self.stored or self.index, first, stop)


def save_group(path: str, group: InputGroup) -> None:
    """Write the index and reports of a group, without the error; the file appears complete or not at all."""
    schemas = {id(report.schema): report.schema for report in group.reports}
    places = {schema: place for place, schema in enumerate(schemas)}
    head = {
        "numbers": group.numbers[: len(group.reports)],
        "counts": group.counts,
        "schemas": [schema.to_json() for schema in schemas.values()],
        "reports": [[places[id(report.schema)], report.without_schema()] for report in group.reports],
        "spool_crc": group.spool_crc,
        "copied": group.index.copied,
    }
    write_whole(path, pack_columns(head, group.index.columns), lasting=False)


def load_group(path: str) -> InputGroup | None:
    """Read the index and reports of a group; None if they are missing or damaged."""
    index = SpoolIndex()
    try:
        with open(path, "rb") as file:
            head, columns = unpack_columns(file)
        for name, column in zip(COLUMNS, columns, strict=True):
            setattr(index, name, column)
        index.copied = head["copied"]
        schemas = [Schema.from_json(schema) for schema in head["schemas"]]
        reports = [InputReport.from_json(report, schemas[place]) for place, report in head["reports"]]
        return InputGroup(tuple(head["numbers"]), index, head["counts"], reports, head["spool_crc"])
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        return None


_LOADED: Final = 1 << 17  # up to this size, reading an input again costs more than copying it


@dataclass(eq=False, repr=False)
class TaskInputs:
    """The inputs of a conversion, each of which a task can open.

    Attributes:
        conversion: the conversion.
        source: lists and opens the inputs.
        items: the inputs.
        joined: datasets whose entries are added to the samples.
        described: the features of TFRecords that a manifest describes, by the names of the inputs.
        maker: makes the records in a cluster; None if tasks make them from the inputs.
        stems: prefix of the keys given to records without a key, by the names of inputs whose stem is not unique.
        strata: with `--stratify`, the hashes at which splits end for each value.
        forms: the forms of features of TFRecords that no manifest describes; None if each input decides for itself.
        group_lanes: the lane of each input, if a group of samples may continue in the next input of its lane.
    """

    conversion: Conversion
    source: Source
    items: Sequence[ObjectInfo]
    joined: Sequence[Joined] = ()
    described: Mapping[str, Described] = field(default_factory=dict)
    maker: RecordMaker | None = None
    stems: Mapping[str, str] = field(default_factory=dict)
    strata: Strata = field(default_factory=dict)
    forms: Forms | None = None
    group_lanes: Sequence[str] = ()
    _plan: ReadPlan | None = None

    def open(self, number: int, options: ReadOptions, on_bytes: OnBytes = None) -> InputFlow:
        """Open an input, or its records if a cluster makes them.

        Args:
            number: the input's number in the plan.
            options: the options for reading it.
            on_bytes: called with the number of stored bytes after each read.
        """
        item = self.items[number]
        if self.maker:
            return cast("InputFlow", self.maker.read(item, on_bytes))
        self._plan = plan = self._plan or ReadPlan.of(
            self.conversion, self.source, self.joined, self.described, self.stems, self.forms
        )
        if self.group_lanes:
            from tar2tf_cli.flow.group import Neighbours  # imported here, as few conversions group samples

            options = options._replace(neighbours=Neighbours.of(self.items, self.group_lanes, number))
        if number == 0:
            options = options._replace(first=True)
        return InputFlow(plan, item, options, on_bytes=on_bytes)

    def open_stored(self, number: int, on_bytes: OnBytes = None) -> PlainStream:
        """Open the stored bytes of an input that was read before."""
        item = self.items[number]
        return PlainStream(self.source.open(item), self.source.locate(item.name), on_bytes, first=0)

    def prefetch(self, numbers: Sequence[int]) -> AbstractContextManager[None]:
        """Return a context manager that fetches inputs concurrently before they are opened, in this order."""
        return (self.maker or self.source).prefetch([self.items[number] for number in numbers])

    def name(self, number: int) -> str:
        """Return the path or URL of an input."""
        return self.source.locate(self.items[number].name)

    def is_small(self, number: int) -> bool:
        """Whether opening an input costs more than reading it, so that it is read just once."""
        size = self.items[number].size
        return size is not None and size <= min(_LOADED, self.conversion.max_entry_size)


@dataclass(eq=False, repr=False)
class Worker:
    """The context that the tasks of a conversion share.

    Attributes:
        inputs: the inputs of the conversion.
        folder: the working folder, which holds indexes, spools and unfinished shards.
        threads: the number of threads that work on one input.
        direct: whether shards bypass the page cache, as nothing reads them soon afterwards.
        writes_early: whether a shard is written while it fills up.
        stores_indexes: whether indexes are read from their files, because all are needed before the first shard is
            planned.
        on_bytes: called with the number of stored bytes after each read of an input.
        scratch: the folder for files that a task writes; empty for the working folder itself.
    """

    inputs: TaskInputs
    folder: str
    threads: int = 1
    direct: bool = False
    writes_early: bool = False
    stores_indexes: bool = False
    on_bytes: Callable[[int], None] | None = None
    scratch: str = ""

    @property
    def conversion(self) -> Conversion:
        """The conversion of the inputs."""
        return self.inputs.conversion

    def attempts(self, number: int, options: ReadOptions) -> Iterator[InputFlow]:
        """Open an input, and again if its samples must be regrouped; bytes that are read count as progress."""
        return attempts(
            lambda again: self.inputs.open(number, options._replace(regroup=True) if again else options, self.on_bytes)
        )

    def path(self, group: int, kind: WorkingFile) -> str:
        """Return the path of a group's index or spool, or of a table of shuffled records, in the working folder."""
        return os.path.join(self.folder, f"input-{group:05d}.{kind}")

    def new_path(self, group: int, kind: WorkingFile) -> str:
        """Return the path at which a task writes the index or spool of a group."""
        return os.path.join(self.scratch or self.folder, os.path.basename(self.path(group, kind)))
