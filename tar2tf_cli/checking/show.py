"""Shows the first samples of shards; no more is read than necessary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.checking.content import Stats, example_of, look_at
from tar2tf_cli.checking.inspect import ShardContents, add_record, add_sample, not_a_shard
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard, list_files, nothing_found
from tar2tf_cli.inputs.paths import open_inputs
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.grouping import KEY

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.reach import Reach

__all__ = ["Shown", "first_samples"]


@dataclass(frozen=True, slots=True)
class Shown:
    """One sample to be shown.

    Attributes:
        path: path or URL of the shard.
        number: number of the sample in the shard, from 0.
        key: its key; None for a record without a `__key__`.
        entries: statistics of each entry or feature, with its value as the example.
    """

    path: str
    number: int
    key: str | None
    entries: dict[str, Stats]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        values = {
            name: {"kind": stats.kind, "unit": stats.unit, "size": stats.most, "value": stats.example}
            for name, stats in self.entries.items()
        }
        return {"path": self.path, "number": self.number, "key": self.key, "entries": values}


def first_samples(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    most: int,
    paths: bool = False,
    rules: TarRules | None = None,
    **reach: Unpack[Reach],
) -> Iterator[Shown]:
    """The first samples of a bucket's shards; no more is read than necessary.

    Raises:
        SourceError: when there is no shard, or one is damaged before `most` samples are found.
    """
    source, templates = open_inputs(bucket, templates, paths=paths, **reach)
    rules = rules or TarRules()
    found = False
    for item in list_files(source, templates):
        if most < 1:
            return
        with OpenShard(source, item) as shard:
            if shard.damage:
                raise shard.damage
            reader = _READERS.get(shard.format or "")
            if not reader:
                if source.asked_for(item.name, templates):
                    raise not_a_shard(shard.name, item.size, foreign(shard.head))
                continue
            found = True
            for shown in islice(reader(shard, rules), most):
                most -= 1
                yield shown
    if not found:
        raise nothing_found(source.bucket)


def _shown_samples(shard: OpenShard, rules: TarRules) -> Iterator[Shown]:
    with closing(shard.samples(rules, ShardContents("", "").count_fault, ahead=_AHEAD, heads_only=True)) as tar:
        for number, sample in enumerate(tar.samples()):
            contents = ShardContents("", "")
            add_sample(contents, sample, 1)
            yield Shown(shard.name, number, sample[KEY], contents.entries)


def _shown_records(shard: OpenShard, rules: TarRules) -> Iterator[Shown]:
    for number, (_, record) in enumerate(RecordReader(shard, shard.name)):
        contents = ShardContents("", "")
        add_record(contents, record, 1)
        if contents.foreign:
            stats = contents.stats("(not a tf.train.Example)")
            stats.look(look_at(record), partial(example_of, record))
            stats.add(len(record))
        key = contents.entries.get(KEY)
        yield Shown(shard.name, number, key.example if key else None, contents.entries)


_AHEAD: Final = 1 << 20  # of a compressed or remote tar, to find out whether members of samples are adjacent

_READERS: Final = {"tar": _shown_samples, "tfrecord": _shown_records}
