"""The inputs that an update reads again: inputs with records of shards that are not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tar2tf_cli.conversion.input_queue import InputQueue
from tar2tf_cli.conversion.sharding import PlannedShard
from tar2tf_cli.conversion.spool import InputUnits
from tar2tf_cli.inputs.report import InputReport

if TYPE_CHECKING:
    from tar2tf_cli.conversion.output_state import Earlier


class Rereads:
    """Decides which shards of an earlier conversion are kept, and has the inputs of all others read.

    Args:
        earlier: the earlier conversion.
        queue: reads the inputs that are asked for.
    """

    def __init__(self, earlier: Earlier, queue: InputQueue) -> None:
        self._earlier = earlier
        self._queue = queue
        self._units: dict[int, InputUnits] = {}  # of inputs that were read, for shards that are not complete
        self._waiting: dict[int, list[tuple[PlannedShard, set[int]]]] = {}  # shards by each input that must be read
        self._needed: Counter[int] = Counter()  # how many of those shards hold records of an input

    @property
    def waits(self) -> bool:
        """Whether a shard waits for inputs."""
        return bool(self._waiting)

    def known(self, number: int) -> tuple[InputReport, InputUnits] | None:
        """Return the report and the sizes of an input that is as it was, without reading it; None for any other."""
        return self._earlier.known(number)

    def add(self, number: int, units: InputUnits) -> None:
        """Add an input that is new, or has changed, and was read."""
        self._units[number] = units

    def add_known(self, number: int, units: InputUnits) -> Iterator[PlannedShard] | None:
        """Add an input that was known and has been read again; None if its records differ from those that it had.

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
        """Keep the earlier conversion's shard if it has the same records; otherwise find those that have been read."""
        shard.kept, shard.pieces = self._earlier.kept(shard), []
        if not (shard.kept or self._missing(shard)):
            shard.fill(self._units)

    def must_wait(self, shard: PlannedShard) -> bool:
        """Whether inputs of a shard have to be read first; these are asked for."""
        missing = self._missing(shard)
        if missing:
            self._needed.update(_inputs_of(shard))
        for number in sorted(missing):
            if number not in self._waiting:
                self._queue.ask_for(number)
            self._waiting.setdefault(number, []).append((shard, missing))
        return bool(missing)

    def _missing(self, shard: PlannedShard) -> set[int]:
        """Return the inputs of a shard that were not read, as their sizes are known."""
        return _inputs_of(shard) - self._units.keys()

    def drop_unneeded(self, open_shards: Iterable[PlannedShard]) -> Iterator[int]:
        """Drop the inputs that no shard needs, neither one that waits nor an incomplete one; yield their groups."""
        needed = {number for shard in open_shards for number in _inputs_of(shard)}
        for number in [each for each in self._units if each not in needed and not self._needed[each]]:
            yield self._units.pop(number).group
            del self._needed[number]


def _inputs_of(shard: PlannedShard) -> set[int]:
    return {origin.source for origin in shard.origins}
