"""What shards hold: statistics of the entries or features of one shard, and of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tar2tf_cli.checking.content import Stats
from tar2tf_cli.errors import SampleError
from tar2tf_cli.inputs.open_shard import Format

__all__ = ["STEPS", "Contents", "ShardContents"]

STEPS: Final = "[]"
"""Ends the name of a feature list of a tf.train.SequenceExample; its sizes are numbers of steps."""


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
        }


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
        """`tar` or `tfrecord`; `mixed` if there are both."""
        formats = {shard.format or "" for shard in self.shards}
        return formats.pop() if len(formats) == 1 else "mixed"

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
