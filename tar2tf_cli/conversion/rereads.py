"""The inputs that an update reads again, as they have records of shards that are not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tar2tf_cli.conversion.input_queue import InputQueue
from tar2tf_cli.conversion.sharding import PlannedShard
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.inputs.report import InputReport

if TYPE_CHECKING:
    from tar2tf_cli.conversion.output_state import EarlierConversion


class Rereads:
    """Decides which shards of an earlier conversion are kept, and requests the inputs of all others.

    Args:
        earlier: the earlier conversion.
        queue: reads the requested inputs.
    """

    def __init__(self, earlier: EarlierConversion, queue: InputQueue) -> None:
        self._earlier = earlier
        self._queue = queue
        self._units: dict[int, InputUnits] = {}  # units of inputs that were read, for shards that are not complete
        self._waiting: dict[int, list[tuple[PlannedShard, set[int]]]] = {}  # the shards that wait for each input
        self._needed: Counter[int] = Counter()  # the number of those shards with records of each input

    @property
    def waits(self) -> bool:
        """Whether any shard waits for inputs."""
        return bool(self._waiting)

    def known(self, number: int) -> tuple[InputReport, InputUnits] | None:
        """Return the report and units of an unchanged input, without reading it; None for any other input."""
        return self._earlier.known(number)

    def add(self, number: int, units: InputUnits) -> None:
        """Add the units of a new or changed input that was read."""
        self._units[number] = units

    def add_known(self, number: int, units: InputUnits) -> Iterator[PlannedShard] | None:
        """Add the units of an unchanged input that was read again; None if its records differ from the recorded ones.

        Returns:
            The shards for which all inputs have now been read.
        """
        self._units[number] = units
        return self._complete(number) if self._earlier.is_as_before(number, units) else None

    def _complete(self, number: int) -> Iterator[PlannedShard]:
        for shard, missing in self._waiting.pop(number):
            missing.discard(number)
            if not missing:
                shard.fill(self._units)
                self._needed.subtract(_inputs_of(shard))
                yield shard

    def keep_or_fill(self, shard: PlannedShard) -> None:
        """Keep the earlier conversion's shard if it has the same records; otherwise fill the shard from inputs read so
        far.
        """
        shard.kept, shard.pieces = self._earlier.kept(shard), []
        if not (shard.kept or self._missing(shard)):
            shard.fill(self._units)

    def must_wait(self, shard: PlannedShard) -> bool:
        """Whether inputs of a shard must be read first, which this requests."""
        missing = self._missing(shard)
        if missing:
            self._needed.update(_inputs_of(shard))
        for number in sorted(missing):
            if number not in self._waiting:
                self._queue.request(number)
            self._waiting.setdefault(number, []).append((shard, missing))
        return bool(missing)

    def _missing(self, shard: PlannedShard) -> set[int]:
        """Return the inputs of a shard that were not read, as only their sizes were needed."""
        return _inputs_of(shard) - self._units.keys()

    def drop_unneeded(self, open_shards: Iterable[PlannedShard]) -> Iterator[int]:
        """Drop the units of inputs that no waiting or incomplete shard needs, and yield their groups."""
        needed = {number for shard in open_shards for number in _inputs_of(shard)}
        for number in [each for each in self._units if each not in needed and not self._needed[each]]:
            yield self._units.pop(number).group
            del self._needed[number]


def _inputs_of(shard: PlannedShard) -> set[int]:
    return {origin.source for origin in shard.origins}
