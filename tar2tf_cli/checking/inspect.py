"""Looks into shards: how many samples they hold, which entries or features these have, and what the values are.

Everything is counted; of the values, only the first few of each entry are looked at. Of a local tar, the rest is not
even read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tar2tf_cli.checking.content import Look, Stats, example_of, look_at, shortened
from tar2tf_cli.checking.files import FileContext, read_files
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.compression import PlainStream
from tar2tf_cli.formats.example_parser import ParsedFeature, parse
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import Format, OpenShard, TarRules, list_files, nothing_found
from tar2tf_cli.inputs.paths import open_inputs
from tar2tf_cli.samples.grouping import KEY, Grouper, Sample
from tar2tf_cli.stores import ObjectInfo

__all__ = ["Contents", "ShardContents", "add_record", "add_sample", "inspect", "not_a_shard", "sample_grouper"]

_LOOKS: Final = 100
"""About how many values of each entry are looked at, in all shards together."""

_MOST_NUMBERS: Final = 12


@dataclass(slots=True)
class ShardContents:
    """What one shard holds.

    Attributes:
        path: path or URL.
        name: its name in the bucket.
        format: what it is by its content; None when it is neither a tar nor a TFRecord.
        samples: how many samples or records.
        bytes: its size as stored.
        entries: of each entry or feature.
        faulty: samples at fault, which are not counted: a key that appears again, a last sample cut short.
        foreign: records that are not a tf.train.Example.
    """

    path: str
    name: str
    format: Format | None = None
    samples: int = 0
    bytes: int = 0
    entries: dict[str, Stats] = field(default_factory=dict)
    faulty: int = 0
    foreign: int = 0

    def stats(self, name: str) -> Stats:
        """What is known of an entry."""
        found = self.entries.get(name)
        if found is None:
            found = self.entries[name] = Stats()
        return found

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"path": self.path, "format": self.format, "samples": self.samples, "bytes": self.bytes}


@dataclass(slots=True)
class Contents:
    """What the shards of a bucket hold.

    Attributes:
        shards: the shards, in order.
        skipped: names of files of a directory that are neither tar nor TFRecord.
        bucket: what was looked into.
    """

    shards: list[ShardContents] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    bucket: str = ""

    @property
    def format(self) -> str:
        """`tar`, `tfrecord`, or `mixed` where there are both."""
        formats = {shard.format or "" for shard in self.shards}
        return formats.pop() if len(formats) == 1 else "mixed"

    @property
    def samples(self) -> int:
        """Samples or records in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Stored bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def entries(self) -> dict[str, Stats]:
        """Of each entry or feature, by name in order, what its values have in common."""
        merged: dict[str, Stats] = {}
        for shard in self.shards:
            for name, stats in shard.entries.items():
                merged.setdefault(name, Stats()).update(stats)
        return dict(sorted(merged.items()))

    def to_json(self) -> dict[str, Any]:
        """The document that `inspect --json` prints."""
        return {
            "format": self.format,
            "shards": [shard.to_json() for shard in self.shards],
            "samples": self.samples,
            "bytes": self.bytes,
            "entries": {name: stats.to_json() for name, stats in self.entries.items()},
        }


def inspect(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    rules: TarRules | None = None,
    workers: int | None = None,
    endpoint: str | None = None,
    events: Events | None = None,
) -> Contents:
    """Look into shards.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, or a URL.
        templates: which shards of the bucket; every tar and TFRecord when there is none.
        paths: whether bucket and templates are files and folders to be looked at, where they are existing paths.
        rules: how tars are read.
        workers: how many shards are read at once; as many as there are CPUs when None.
        endpoint: where the store of the bucket answers, as `open_source` takes it.
        events: hears of progress.

    Raises:
        SourceError: when there is nothing to look into, a shard is damaged or cannot be read.
    """
    source, templates = open_inputs(bucket, templates, endpoint=endpoint, paths=paths)
    inputs = list_files(source, templates)
    looks = -(-_LOOKS // max(len(inputs), 1))
    tasks = [InspectShard(item, looks) for item in inputs]
    context = FileContext(source, rules or TarRules())
    contents = Contents(bucket=source.bucket)
    found = read_files(inputs, tasks, context, workers, events or Events())
    for item, shard in zip(inputs, found, strict=True):
        if shard.format in ("tar", "tfrecord"):
            contents.shards.append(shard)
        else:
            if source.asked_for(item.name, templates):
                raise not_a_shard(shard.path, shard.bytes)
            contents.skipped.append(shard.name)
    if not contents.shards:
        raise nothing_found(source.bucket)
    return contents


def not_a_shard(path: str, size: int | None) -> SourceError:
    """The error for a file that is not a shard."""
    return SourceError("is empty" if size == 0 else "is neither a tar nor a TFRecord", shard=path)


# --- One shard ---


@dataclass(frozen=True, slots=True)
class InspectShard:
    """Look into one shard.

    Attributes:
        item: the shard.
        looks: how many values of each entry are looked at.
    """

    item: ObjectInfo
    looks: int

    def __str__(self) -> str:
        return self.item.name

    def run(self, context: FileContext) -> ShardContents:
        """What it holds.

        Raises:
            SourceError: when it is damaged or cannot be read.
        """
        with OpenShard(context.source, self.item, context.on_bytes) as shard:
            contents = ShardContents(shard.name, self.item.name, shard.format)
            try:
                if shard.damage:
                    raise shard.damage
                if shard.format == "tar":
                    _read_tar(shard, context, contents, self.looks)
                elif shard.format == "tfrecord":
                    _read_records(shard, contents, self.looks)
            except DamagedShardError as error:
                raise error.at(hint="tar2tf verify finds all that is wrong with it") from None
            contents.bytes = shard.size
        return contents


def _read_tar(shard: OpenShard, context: FileContext, contents: ShardContents, looks: int) -> None:
    """Count all samples; where the tar can be sought in, by its headers alone, and then look at a few samples."""
    direct = shard.plain if context.source.seekable and not context.rules.regroup else None
    need_end = not context.rules.ignore_missing_end
    tar = TarReader(direct or shard, shard.name, headers_only=direct is not None, need_end=need_end)
    grouper = sample_grouper(shard.name, context.rules, contents, sizes_only=direct is not None)
    wanted: deque[int] = deque()
    tar.links = links = shard.links(grouper, sizes_only=direct is not None)
    with closing(links):
        for sample in grouper.samples(tar):
            contents.samples += 1
            if direct is None:
                add_sample(contents, sample, looks)
            elif _add_sizes(contents, sample, looks):
                wanted.append(grouper.offset)
    if direct:
        for sample in _samples_at(shard, direct, wanted, context.rules):
            _look_at_sample(contents, sample, looks)


def sample_grouper(name: str, rules: TarRules, contents: ShardContents, **options: bool) -> Grouper:
    """Groups members into samples, and counts those at fault."""

    def count(error: SampleError) -> None:
        contents.faulty += 1

    return Grouper(name, count, key_split=rules.key_split, regroup=rules.regroup, **options)


def _samples_at(shard: OpenShard, stream: PlainStream, offsets: deque[int], rules: TarRules) -> Iterator[Sample]:
    """The samples that begin at certain offsets of a tar; neighbours are read in one go."""
    while offsets:
        tar = TarReader(stream, shard.name, need_end=False)
        tar.start_at(offsets[0])
        grouper = sample_grouper(shard.name, rules, ShardContents("", ""), trusted=True)
        tar.links = links = shard.links(grouper)
        with closing(links):
            for sample in grouper.samples(tar):
                if not offsets or grouper.offset != offsets[0]:
                    break
                offsets.popleft()
                yield sample


def _add_sizes(contents: ShardContents, sample: Sample, looks: int) -> bool:
    """Take note of a sample's sizes; whether too few of one of its entries have come before."""
    wanted = False
    for name, size in sample.items():
        if name != KEY:
            stats = contents.stats(name)
            wanted = wanted or stats.count < looks
            stats.add(size)
    return wanted


def add_sample(contents: ShardContents, sample: Sample, looks: int) -> None:
    """Take note of a sample with its data."""
    _look_at_sample(contents, sample, looks)
    for name, data in sample.items():
        if name != KEY:
            contents.stats(name).add(len(data))


def _look_at_sample(contents: ShardContents, sample: Sample, looks: int) -> None:
    for name, data in sample.items():
        if name != KEY:
            stats = contents.stats(name)
            if stats.kinds.total() < looks:
                stats.look(look_at(data), partial(example_of, data))


def _read_records(shard: OpenShard, contents: ShardContents, looks: int) -> None:
    """Count all records and their features; the CRCs of the data are left to `verify`."""
    for _, record in RecordReader(shard, shard.name, check_data=False):
        contents.samples += 1
        add_record(contents, record, looks)


def add_record(contents: ShardContents, record: bytes, looks: int) -> None:
    """Take note of a record's features."""
    try:
        found = parse(record)
    except ValueError:
        contents.foreign += 1
        return
    for name, feature in found.items():
        stats = contents.stats(name)
        if stats.count < looks:
            _look_at_feature(stats, feature)
        stats.add(feature.size if feature.kind in ("bytes", None) else feature.count)


def _look_at_feature(stats: Stats, feature: ParsedFeature) -> None:
    if feature.kind in ("int64", "float"):
        stats.unit = "values"
        stats.look(Look(feature.kind), lambda: _numbers(feature.values()))
    elif feature.count == 1:
        (data,) = feature.parts()
        stats.look(look_at(data), partial(example_of, data))
    elif feature.count:
        first = feature.parts()[0]
        kind, shape = look_at(first)
        stats.look(Look(f"list of {kind}", shape), lambda: f"[{shortened(example_of(first))}, …]")
    else:
        stats.look(Look("empty list" if feature.kind else "unset"), str)


def _numbers(values: Sequence[float]) -> str:
    """One number, or how a list of them begins."""
    shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values[:_MOST_NUMBERS]]
    if len(values) == 1:
        return shown[0]
    return f"[{', '.join(shown)}{', …' if len(values) > _MOST_NUMBERS else ''}]"
