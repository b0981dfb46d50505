"""What `--update` needs of a finished conversion: the sizes of its records, published beside the manifest.

The ordinary planner divides them among shards as it did then, and so says which records each shard holds. The same
planner then divides the sizes of the inputs as they are now; only new and changed ones have to be read for that. A
shard that holds the same records as before is kept.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.conversion.plan import Plan, lanes_of
from tar2tf_cli.conversion.sharding import Origin, Shard, ShardPlanner, ShardReport
from tar2tf_cli.conversion.spool import Part, SpoolIndex, packed, unpacked
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.files import RecordFile, write_whole
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo

_AT_ONCE: Final = 1 << 20
_COLUMNS: Final = ("sizes", "records", "lanes", "high", "low")
_NONE: Final = array("B")


class Measured(NamedTuple):
    """What is known of an input without reading it: its report, and the sizes of its units."""

    report: InputReport
    units: SpoolIndex


class Measure:
    """Says which sizes of an input's units are published.

    Args:
        conversion: the conversion.

    Attributes:
        columns: their names in an index; of tars also the hashes of keys, which no two of a shard share.
    """

    def __init__(self, conversion: Conversion) -> None:
        output = conversion.output
        self.columns: tuple[str, ...] = (*_COLUMNS, "keys") if output.is_tar else _COLUMNS
        divided = output.is_limited or output.limit is not None or conversion.split
        self._together = not (divided or conversion.drop_duplicates is not None)

    def of(self, part: Part) -> SpoolIndex:
        """The sizes of an input's units; where no input is ever divided, that of all its records together."""
        index, first, stop = part.spool, part.first, part.stop
        if self._together:
            sizes = SpoolIndex([index.size(first, stop)], [index.count(first, stop)]) if first < stop else SpoolIndex()
        else:
            sizes = SpoolIndex()
            for name in _COLUMNS:
                if column := getattr(index, name):
                    setattr(sizes, name, column[first:stop])
        sizes.keys = index.keys_of(first, stop)
        return sizes


class SizesFile:
    """Writes what is known of each input, in input order: a few bytes for each record.

    Args:
        path: the file's path.
        conversion: the conversion.
    """

    def __init__(self, path: str, conversion: Conversion) -> None:
        self._measure = Measure(conversion)
        self._file = RecordFile(path)
        self._last: Hashable = None  # the last schema

    def add(self, report: InputReport, part: Part) -> None:
        """Add the next input."""
        whole = report.as_before()
        if report.schema.key != self._last:
            self._last = report.schema.key
            whole["schema"] = report.schema.to_json()
        index = self._measure.of(part)
        parts = packed({"report": whole}, (_narrow(getattr(index, name)) for name in self._measure.columns))
        self._file.write(parts, sum(map(len, parts)))

    def close(self) -> int:
        """Flush the file to the disk, and close it; returns its CRC-32C."""
        with self._file as file:
            file.sync()
        return file.crc

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.abandon()


def _narrow(column: array[int]) -> array[int]:
    """The same numbers in as few bytes as all of them fit into."""
    if not column:
        return _NONE
    for code in "BHI":
        with suppress(OverflowError):
            return array(code, column)
    return column


class Earlier:
    """What an earlier conversion with the same options made of other inputs.

    Args:
        manifest: its manifest.
        sizes: the sizes that it published.
        plan: the conversion now.
        path: the path of a shard, as a manifest has it.
        is_there: whether the output has the shard of an entry.

    Attributes:
        changed: numbers of the inputs that must be read: new and changed ones, in ascending order.

    Raises:
        ValueError: when the sizes do not belong to the manifest, or do not add up to its shards.
    """

    def __init__(
        self,
        manifest: Manifest,
        sizes: BinaryIO,
        plan: Plan,
        path: Callable[[Shard], str],
        is_there: Callable[[ShardEntry], bool],
    ) -> None:
        self._sizes = sizes
        self._measure = Measure(plan.conversion)
        self._places = array("Q")  # of each earlier input in the file
        self._schemas: list[Schema] = []
        self._schema_of = array("Q")  # each earlier input
        self._shards: dict[tuple[str, int], tuple[list[Origin], ShardReport]] = {}
        now = _renumbered(manifest.inputs, plan.inputs)
        self._before = {new: old for old, new in now.items()}
        self.changed = [number for number in range(len(plan.inputs)) if number not in self._before]
        self._check_sum(manifest.sizes)
        exact = not plan.conversion.output.compresses_shards
        entries = {entry.path: entry for entry in manifest.shards}
        for shard in self._planned(manifest, plan):
            entry = entries.pop(path(shard), None)
            if entry is None or entry.records != shard.records or (exact and entry.bytes != shard.size):
                raise ValueError("the sizes do not add up to the shards")
            if is_there(entry):
                origins = [origin._replace(source=now.get(origin.source, -1)) for origin in shard.origins]
                crc = int(entry.digest.rpartition(":")[2], 16)
                self._shards[shard.place] = origins, ShardReport(entry.bytes, entry.records, crc)
        if entries:
            raise ValueError("the sizes do not add up to the shards")

    def known(self, number: int) -> Measured | None:
        """What is known of an input; None if it is new, or has changed."""
        old = self._before.get(number)
        if old is None:
            return None
        self._sizes.seek(self._places[old])
        return self._next(self._schemas[self._schema_of[old]])

    def is_as_before(self, number: int, part: Part) -> bool:
        """Whether an input that was known, and has been read again, has the units that it had before."""
        known, units = self.known(number), self._measure.of(part)
        return known is not None and all(
            getattr(known.units, name) == getattr(units, name) for name in self._measure.columns
        )

    def close(self) -> None:
        """Close the file of sizes."""
        self._sizes.close()

    def save(self, path: str) -> None:
        """Copy the sizes to a file, so that an update that is interrupted can go on."""
        self._sizes.seek(0)
        write_whole(path, iter(partial(self._sizes.read, _AT_ONCE), b""))

    def report(self, shard: Shard) -> ShardReport | None:
        """The report of the shard that is there already, whatever it holds; None if there is none."""
        return self._shards[shard.place][1] if shard.place in self._shards else None

    def kept(self, shard: Shard) -> ShardReport | None:
        """The report of a shard that is there already and holds the same records; otherwise None."""
        origins, report = self._shards.get(shard.place, (None, None))
        return report if origins == shard.origins else None

    def _check_sum(self, digest: str | None) -> None:
        crc = 0
        while data := self._sizes.read(_AT_ONCE):
            crc = crc32c(data, crc)
        self._sizes.seek(0)
        if digest != f"crc32c:{crc:08x}":
            raise ValueError("the sizes are those of another conversion")

    def _planned(self, manifest: Manifest, plan: Plan) -> Iterator[Shard]:
        """The shards of the earlier conversion, each with its origins then."""
        lanes = lanes_of(plan.conversion, manifest.inputs)
        planner = ShardPlanner(plan.work, lanes, tracked=True)
        for number in range(len(manifest.inputs)):
            self._places.append(self._sizes.tell())
            units = self._next().units
            yield from planner.add(number, Part(number, units, 0, len(units.sizes)))
        yield from planner.finish()

    def _next(self, schema: Schema | None = None) -> Measured:
        """What the file says of the next input; of the first pass, the schema may be that of the input before."""
        head, columns = unpacked(self._sizes)
        own = head["report"].pop("schema", None)
        if schema is None:
            if own:
                self._schemas.append(Schema.from_json(own))
            self._schema_of.append(len(self._schemas) - 1)
            schema = self._schemas[-1]
        units = SpoolIndex()
        for name, column in zip(self._measure.columns, columns, strict=True):
            setattr(units, name, array("Q", column))
        return Measured(InputReport.from_json(head["report"], schema), units)


def _renumbered(before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> dict[int, int]:
    """The numbers that unchanged inputs have now, by their numbers before."""
    numbers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for number, item in enumerate(now):
        if item.version is not None:
            numbers[item[:3]].append(number)
    new_numbers: dict[int, int] = {}
    for number, item in enumerate(before):
        if same := numbers.get(item[:3]):
            new_numbers[number] = same.popleft()
    return new_numbers
