"""Inspects shards: counts their samples, and describes the entries or features and their values.

Everything is counted, but only the first few values of each entry are examined. The other values of a local tar are
not even read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from tar2tf_cli.checking.content import Look, Stats, example_of, look_at, shortened
from tar2tf_cli.checking.files import FileContext, read_files
from tar2tf_cli.errors import DamagedShardError, NotAdjacentError, SampleError, SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.example_parser import ParsedFeature, parse
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import Format, OpenShard, list_files, nothing_found
from tar2tf_cli.inputs.paths import open_inputs
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.grouping import KEY, Sample
from tar2tf_cli.stores import ObjectInfo

__all__ = ["Contents", "ShardContents", "add_record", "add_sample", "inspect", "not_a_shard"]

_LOOKS: Final = 100
"""About how many values of each entry are examined, in all shards together."""

_MOST_NUMBERS: Final = 12


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
        not_adjacent: number of samples of a tar whose members are not adjacent.
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
    not_adjacent: int = 0
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
    def entries(self) -> dict[str, Stats]:
        """Statistics of each entry or feature in all shards, sorted by name."""
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
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
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
    retry_for: float | None = None,
    no_sign_request: bool = False,
    events: Events | None = None,
) -> Contents:
    """Inspect shards.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, or a URL.
        templates: which shards of the bucket; defaults to every tar and TFRecord.
        paths: whether bucket and templates are taken as files and folders if all of them exist.
        rules: how tars are read.
        workers: how many shards are read at once; defaults to the number of CPUs.
        endpoint: URL of the store that holds the bucket.
        retry_for: for how many seconds failed requests to the store are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.
        events: notified of progress.

    Raises:
        SourceError: when there is nothing to inspect, or a shard is damaged or cannot be read.
    """
    source, templates = open_inputs(
        bucket, templates, paths=paths, endpoint=endpoint, retry_for=retry_for, no_sign_request=no_sign_request
    )
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
                raise not_a_shard(shard.path, shard.bytes, shard.instead)
            contents.skipped.append(shard.name)
    if not contents.shards:
        raise nothing_found(source.bucket)
    return contents


def not_a_shard(path: str, size: int | None, instead: tuple[str, str] | None) -> SourceError:
    """Return the error for a file that is not a shard, and what it is instead."""
    what, hint = instead or (None, None)
    message = f"is {what}, neither a tar nor a TFRecord" if what else "is neither a tar nor a TFRecord"
    return SourceError("is empty" if size == 0 else message, shard=path, hint=hint)


# --- One shard ---


@dataclass(frozen=True, slots=True)
class InspectShard:
    """Inspects one shard.

    Attributes:
        item: the shard.
        looks: how many values of each entry are examined.
    """

    item: ObjectInfo
    looks: int

    def __str__(self) -> str:
        return self.item.name

    def run(self, context: FileContext) -> ShardContents:
        """What the shard holds.

        Raises:
            SourceError: when it is damaged or cannot be read.
        """
        try:
            return self._look(context, context.rules)
        except NotAdjacentError:
            return self._look(context, replace(context.rules, regroup=True))

    def _look(self, context: FileContext, rules: TarRules) -> ShardContents:
        with OpenShard(context.source, self.item, context.on_bytes) as shard:
            contents = ShardContents(shard.name, self.item.name, shard.format)
            contents.instead = None if shard.format else foreign(shard.head)
            try:
                if shard.damage:
                    raise shard.damage
                if shard.format == "tar":
                    _read_tar(shard, rules, contents, self.looks)
                elif shard.format == "tfrecord":
                    _read_records(shard, contents, self.looks)
            except DamagedShardError as error:
                raise error.at(hint="run tar2tf verify to list all faults") from None
            contents.bytes = shard.size
        return contents


def _read_tar(shard: OpenShard, rules: TarRules, contents: ShardContents, looks: int) -> None:
    """Count all samples; if they can be read by offset, read only the headers, and then examine a few samples."""
    sizes_only = shard.seekable is not None and not rules.regroup
    wanted: deque[int] = deque()
    with closing(shard.samples(rules, contents.count_fault, sizes_only=sizes_only, heads_only=True)) as tar:
        for sample in tar.samples():
            contents.samples += 1
            if not sizes_only:
                add_sample(contents, sample, looks)
            elif _add_sizes(contents, sample, looks):
                wanted.append(tar.grouper.offset)
        contents.not_adjacent = tar.not_adjacent
    for sample in _samples_at(shard, wanted, rules):
        _look_at_sample(contents, sample, looks)


def _samples_at(shard: OpenShard, offsets: deque[int], rules: TarRules) -> Iterator[Sample]:
    """The samples at the given offsets of a tar; adjacent ones are read without seeking."""
    while offsets:
        with closing(shard.samples(rules, ShardContents("", "").count_fault, trusted=True)) as tar:
            tar.seek(offsets[0])
            for sample in tar.samples():
                if not offsets or tar.grouper.offset != offsets[0]:
                    break
                offsets.popleft()
                yield sample


def _add_sizes(contents: ShardContents, sample: Sample, looks: int) -> bool:
    """Add the sizes of a sample's entries; returns whether the values of one of them should be examined."""
    wanted = False
    for name, size in sample.items():
        if name != KEY:
            stats = contents.stats(name)
            wanted = wanted or stats.count < looks
            stats.add(size)
    return wanted


def add_sample(contents: ShardContents, sample: Sample, looks: int) -> None:
    """Add a sample with its data."""
    _look_at_sample(contents, sample, looks)
    for name, data in sample.items():
        if name != KEY:
            contents.stats(name).add(len(data))


def _look_at_sample(contents: ShardContents, sample: Sample, looks: int) -> None:
    for name, data in sample.items():
        if name != KEY:
            stats = contents.stats(name)
            if stats.kinds.total() < looks:
                head = data.head() if isinstance(data, StoredBytes) else data
                stats.look(look_at(head), partial(example_of, head))


def _read_records(shard: OpenShard, contents: ShardContents, looks: int) -> None:
    """Count all records and their features; only `verify` checks the CRCs of the data."""
    for _, record in RecordReader(shard, shard.name, check_data=False):
        contents.samples += 1
        add_record(contents, record, looks)


def add_record(contents: ShardContents, record: bytes, looks: int) -> None:
    """Add the features of a record."""
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
    """One number, or the beginning of a list of numbers."""
    shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values[:_MOST_NUMBERS]]
    if len(values) == 1:
        return shown[0]
    return f"[{', '.join(shown)}{', …' if len(values) > _MOST_NUMBERS else ''}]"
