"""What shards hold: statistics of each entry or feature, of one shard, and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from tar2tf_cli.checking.look import Look
from tar2tf_cli.errors import SampleError, SourceError
from tar2tf_cli.inputs.open_shard import Format

N = TypeVar("N", int, float)

STEPS: Final = "[]"
"""Ends the name of a feature list of a tf.train.SequenceExample; its sizes are numbers of steps."""


@dataclass(slots=True)
class Stats:
    """What the values of one entry or feature have in common.

    Attributes:
        unit: the unit of `least`, `most` and `total`: bytes or, for lists of numbers, values.
        count: how many samples have the entry or feature.
        example: one of the values, shortened.
        kinds: how many of the examined values have each kind.
        shapes: the smallest and largest dimensions of each kind of image, video or array; empty if their number varies.
        seconds: the shortest and longest duration of each kind of audio or video.
        values: the smallest and largest number of values of a feature in a record.
        lists: the kinds of lists that hold the values of a feature; None for a feature without a list.
        divided: whether numbers of a list are in several pieces, as protobuf allows.
        shaped: what a feature NAME/shape is the shape of: `values`, or `uint8` for bytes; empty if of neither, and None
            if there is no such feature.
    """

    unit: Literal["bytes", "values"] = "bytes"
    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    example: str | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    values: tuple[int, int] | None = None
    lists: set[str | None] = field(default_factory=set)
    shaped: str | None = None
    divided: bool = False

    @property
    def mean(self) -> float:
        """Mean of the sizes."""
        return self.total / self.count if self.count else 0.0

    @property
    def kind(self) -> str:
        """The kinds, most frequent first, such as `image/jpeg 500x375x3` or `image/png 28-32x28-32x1, text`."""
        return ", ".join(self._described(kind) for kind, _ in self.kinds.most_common()) or "bytes"

    def add(self, size: int) -> None:
        """Add the size of a value."""
        self.least = size if not self.count or size < self.least else self.least
        self.most = size if size > self.most else self.most
        self.count += 1
        self.total += size

    def add_list(self, kind: str | None, number: int) -> None:
        """Add the kind of a list and its number of values; None for a feature without a list."""
        if kind not in self.lists:
            self.lists.add(kind)
        if kind is None:
            return
        if self.values is None:
            self.values = number, number
        elif not self.values[0] <= number <= self.values[1]:
            self.values = _wider(self.values, (number, number))

    def look(self, look: Look, example: Callable[[], str]) -> None:
        """Add what a value is; `example` is called for the first value only."""
        self.kinds[look.kind] += 1
        if self.example is None:
            self.example = example()
        if look.shape:
            self._widen(look.kind, look.shape, look.shape)
        if look.seconds is not None:
            self.seconds[look.kind] = _wider(self.seconds.get(look.kind), (look.seconds, look.seconds))

    def update(self, other: Stats) -> None:
        """Add the statistics of another shard."""
        if self.example is None:
            self.example = other.example
        if not self.count:
            self.unit = other.unit
        if other.values:
            self.values = _wider(self.values, other.values)
        self.lists |= other.lists
        self.divided = self.divided or other.divided
        if other.shaped is not None:
            self.shaped = other.shaped if self.shaped in (None, other.shaped) else ""
        self.least = min(self.least, other.least) if self.count and other.count else self.least or other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        self.kinds.update(other.kinds)
        for kind, (low, high) in other.shapes.items():
            self._widen(kind, low, high)
        for kind, seconds in other.seconds.items():
            self.seconds[kind] = _wider(self.seconds.get(kind), seconds)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "count": self.count,
            "kind": self.kind,
            "unit": self.unit,
            "min": self.least,
            "mean": round(self.mean, 2),
            "max": self.most,
            "example": self.example,
        }

    def _widen(self, kind: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
        known_low, known_high = self.shapes.get(kind, (low, high))
        same = len(known_low) == len(low) == len(known_high)
        widened = tuple(map(min, known_low, low)), tuple(map(max, known_high, high))
        self.shapes[kind] = widened if same else ((), ())

    def _described(self, kind: str) -> str:
        parts = [kind]
        if sizes := [_range(low, high) for low, high in zip(*self.shapes.get(kind, ((), ())), strict=True)]:
            parts.append("x".join(sizes))
        if kind in self.seconds:
            parts.append(_range(*(f"{seconds:.3g}" for seconds in self.seconds[kind])) + " s")
        return " ".join(parts)


def _wider(known: tuple[N, N] | None, found: tuple[N, N]) -> tuple[N, N]:
    """The smallest and the largest number of both."""
    return (min(known[0], found[0]), max(known[1], found[1])) if known else found


def _range(low: object, high: object) -> str:
    return str(low) if low == high else f"{low}-{high}"


@dataclass(slots=True)
class ShardContents:
    """What one shard holds.

    Attributes:
        path: path or URL of the shard.
        name: the shard's name in the bucket.
        format: detected from the content; None if it is neither a tar nor a TFRecord.
        samples: number of samples or records.
        bytes: size of the shard in bytes as stored.
        entries: statistics of each entry or feature.
        faulty: number of faulty samples, which are not in `samples`, such as a key that appears again.
        foreign: number of records that are not a tf.train.Example.
        payload: what these are.
        sequences: number of records that are a tf.train.SequenceExample.
        compression: how the shard is compressed, as TensorFlow names it; empty if it is not.
        not_adjacent: number of samples of a tar whose members are not adjacent.
        skipped: how many members of a tar are not part of any sample, by reason.
        instead: what a file is that is not a shard, and what to do with it; None if it is unknown.
        error: the first reason why a part of the shard, or all of it, cannot be read; the rest is counted.
    """

    path: str
    name: str
    format: Format | None = None
    samples: int = 0
    bytes: int = 0
    entries: dict[str, Stats] = field(default_factory=dict)
    faulty: int = 0
    foreign: int = 0
    payload: Stats = field(default_factory=Stats)
    sequences: int = 0
    compression: str = ""
    not_adjacent: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    instead: tuple[str, str] | None = None
    error: SourceError | None = None

    @property
    def status(self) -> str:
        """`damaged` or `missing` if the shard cannot be read to its end; else `ok`, though data may be damaged."""
        return "ok" if self.error is None else "missing" if self.error.kind == "missing" else "damaged"

    def stats(self, name: str) -> Stats:
        """The statistics of an entry; created if necessary."""
        found = self.entries.get(name)
        if found is None:
            found = self.entries[name] = Stats()
        return found

    def count_fault(self, error: SampleError) -> None:
        """Count a faulty sample."""
        self.faulty += 1

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "path": self.path,
            "format": self.format,
            "samples": self.samples,
            "bytes": self.bytes,
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **(_of_unreadable(self.error, self.status) if self.error else {}),
        }


def _of_unreadable(error: SourceError, status: str) -> dict[str, Any]:
    from tar2tf_cli.checking.faults import fault_of  # only here, as few shards cannot be read

    return {"status": status, "faults": [fault_of(error).to_json()]}


@dataclass(slots=True)
class Contents:
    """What the shards of a bucket hold.

    Attributes:
        shards: the shards, in order.
        skipped: names of files in a directory that are neither tar nor TFRecord.
        bucket: what was inspected.
    """

    shards: list[ShardContents] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    bucket: str = ""

    @property
    def format(self) -> str:
        """`tar` or `tfrecord`; `mixed` if there are both, `unknown` if no shard can be opened."""
        formats: set[str] = {shard.format for shard in self.shards if shard.format}
        return "mixed" if len(formats) > 1 else next(iter(formats), "unknown")

    @property
    def errors(self) -> list[SourceError]:
        """Why shards, or the rest of them, cannot be read."""
        return [shard.error for shard in self.shards if shard.error]

    @property
    def samples(self) -> int:
        """The number of samples or records in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The total size of the shards in bytes as stored."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def not_adjacent(self) -> int:
        """The number of samples in tars whose members are not adjacent."""
        return sum(shard.not_adjacent for shard in self.shards)

    @property
    def skipped_members(self) -> Counter[str]:
        """How many members of tars are not part of any sample, by reason."""
        return sum((shard.skipped for shard in self.shards), Counter())

    @property
    def entries(self) -> dict[str, Stats]:
        """Statistics of each entry or feature in all shards, sorted by name."""
        merged: dict[str, Stats] = {}
        for shard in self.shards:
            for name, stats in shard.entries.items():
                merged.setdefault(name, Stats()).update(stats)
        return dict(sorted(merged.items()))

    def lacking(self, stats: Stats) -> int:
        """How many samples or examples lack an entry or feature with these statistics."""
        return self.samples - sum(shard.foreign for shard in self.shards) - stats.count

    @property
    def payload(self) -> Stats:
        """What the records are that are not examples."""
        merged = Stats()
        for shard in self.shards:
            merged.update(shard.payload)
        return merged

    def to_json(self) -> dict[str, Any]:
        """The document that `inspect --json` prints."""
        return {
            "format": self.format,
            "shards": [shard.to_json() for shard in self.shards],
            "samples": self.samples,
            "bytes": self.bytes,
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **({"skipped": dict(sorted(self.skipped_members.items()))} if self.skipped_members else {}),
            "entries": {
                name: {**stats.to_json(), "missing": self.lacking(stats)} for name, stats in self.entries.items()
            },
        }
