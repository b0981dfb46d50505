"""Inspection of shards: counts of samples, and statistics of entries or features and their values.

All samples are counted, but only the first few values of each entry are examined. The other values of a local tar are
not even read.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY, Array, Batch, Sample
from tar2tf_cli.checking.contents import (
    STEPS,
    Contents,
    ShardContents,
    Stats,
    ValueKind,
    detect_kind,
    example_of,
    numbers_shown,
    shortened,
)
from tar2tf_cli.checking.files import (
    AHEAD,
    CheckOptions,
    FileContext,
    FileRun,
    FileTask,
    contents_of,
    declared_types,
    values_of,
)
from tar2tf_cli.errors import (
    DamagedShardError,
    NothingFoundError,
    OutputExistsError,
    SampleError,
    SourceError,
    UsageError,
    write_errors,
)
from tar2tf_cli.features.described import Census, Expected
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.example import ParsedFeature, parse, parse_lists
from tar2tf_cli.formats.files import LARGE_VALUE, StoredBytes, WholeFile, pieces_of
from tar2tf_cli.formats.image import distinct_values, is_named_like_mask
from tar2tf_cli.formats.image.headers import is_palette, orientation
from tar2tf_cli.formats.streams import foreign
from tar2tf_cli.inputs.open_shard import OpenShard, not_a_shard
from tar2tf_cli.inputs.shard_set import nothing_found
from tar2tf_cli.inputs.tar_samples import TarSamples
from tar2tf_cli.plugins import format_names, plugin_names
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.structs import dataclass

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.conversion import PathText


LOOKS: Final = 100
"""About how many values of each entry are examined, in all shards together."""

_EMPTY_SEQUENCE: Final = re.compile(rb"(\n\x00|\x12\x00)+")
"""A tf.train.SequenceExample whose context and feature lists are empty."""

_SMALL: Final = 1 << 12
"""Entries below that are read with the header in front of them."""


def inspect(
    bucket: PathText,
    templates: PathText | Sequence[PathText] = (),
    *,
    paths: bool = False,
    damaged: bool = False,
    **options: Unpack[CheckOptions],
) -> Contents:
    """Inspect shards.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, a URL, or a manifest.
        templates: names of shards in the bucket; defaults to every tar and TFRecord. After a manifest, further
            manifests.
        paths: whether bucket and templates are treated as files and folders if all of them exist.
        damaged: whether to accept damaged and unreadable shards. Their readable parts are then counted, and the errors
            are in the result.
        options: `rules`, the rules for reading tars; `workers`, the number of shards to read at once, by default the
            number of CPUs; `endpoint`, the URL of the store that holds the bucket; `retry_for`, how many seconds to
            retry failed requests without progress, by default TAR2TF_RETRY_FOR, else 60; `no_sign_request`, to read a
            public cloud bucket without credentials; `events`, notified of progress.

    Raises:
        SourceError: when there is nothing to inspect, or a shard is damaged or cannot be read.

    >>> inspect("shards", workers=1).samples
    24
    """
    run = FileRun(**options)
    named = run.shards(bucket, templates, paths=paths)
    source, inputs = named.source, named.items
    run.note_on(named)
    looks = -(-LOOKS // max(len(inputs), 1))
    tasks = [FileTask(item, partial(_inspect_shard, looks, damaged)) for item in inputs]
    documents = named.documents if named.manifests else ()
    contents = Contents(bucket=source.bucket, manifests=[document.manifest for document in documents])
    inspected = run.read(tasks, FileContext(source, run.rules))
    for shard in inspected:
        known = shard.format in format_names() or shard.format in plugin_names("formats")
        if not known and not shard.error:
            shard.error = not_a_shard(shard.path, shard.bytes, shard.instead)
            if not damaged:
                raise shard.error
        contents.shards.append(shard)
    contents.skipped += named.left_out.others
    contents.types = declared_types(named)
    if not contents.shards:
        raise nothing_found(source.bucket)
    return contents


# --- One shard ---


def _inspect_shard(looks: int, damaged: bool, item: ObjectInfo, context: FileContext) -> ShardContents:
    """Return the contents of a shard; if `damaged` is set, also of a damaged or unreadable one, as far as possible."""
    try:
        contents = _read_shard(looks, damaged, item, context, regroup=False)
        if contents is None:
            contents = _read_shard(looks, damaged, item, context, regroup=True)
            assert contents
        return contents
    except SourceError as error:
        if not damaged:
            raise
        return ShardContents(context.source.locate(item.name), item.name, error=error)


def _read_shard(
    looks: int, damaged: bool, item: ObjectInfo, context: FileContext, *, regroup: bool
) -> ShardContents | None:
    """Count all samples and examine a few; the data of a local tar's other samples is not read, unless it is small.

    Returns:
        None if the tar ended at a key that appeared again, so that samples must be regrouped.
    """
    tars: list[TarSamples] = []

    def on_damage(error: DamagedShardError, more: bool) -> None:
        contents.error = contents.error or error.at(hint="run tar2tf verify to list all faults")
        if not damaged:
            raise contents.error from None

    def end(tar: TarSamples) -> None:
        tars.append(tar)
        contents.not_adjacent, contents.skipped = tar.not_adjacent, tar.skipped
        if contents.samples:  # an empty tar is visible from its counts
            tar.check_end()

    rules = context.rules._replace(regroup=regroup or context.rules.regroup, heads_only=True, least=_SMALL)
    with OpenShard(context.source, item, context.on_bytes) as shard:
        contents = ShardContents(shard.name, item.name)
        contents.instead = None if shard.format else foreign(shard.head)
        beginning = _whole_or_head if shard.seekable else StoredBytes.head
        try:
            many = _BulkCounter(contents, looks)
            for _, content in contents_of(shard, rules, on_damage, end, contents.count_fault, many):
                contents.samples += 1
                if isinstance(content, bytes):
                    many.note(add_record(contents, content, looks))
                else:
                    add_sample(contents, content, looks, beginning)
        except DamagedShardError as error:
            on_damage(error, False)
        contents.format, contents.bytes, contents.compression = shard.format, shard.size, shard.compression
    return None if any(tar.must_regroup for tar in tars) else contents


class _BulkCounter:
    """Counts samples and records in bulk, once enough values of each of their entries have been examined.

    Args:
        contents: the contents to which they are added.
        looks: number of values to examine of each entry.
    """

    def __init__(self, contents: ShardContents, looks: int) -> None:
        self._contents = contents
        self._looks = looks
        self._expected: dict[str, Expected] = {}
        self._census = Census(self._expected)

    def note(self, features: Mapping[str, ParsedFeature]) -> None:
        """Let the kernel count records with these features from now on, if enough values have been examined."""
        entries = self._contents.entries
        for name, feature in features.items():
            if not feature.kind or entries[name].count < self._looks:
                return
            if self._expected.setdefault(name, Expected(feature.kind)).kind != feature.kind:
                return
        self._census.count(features)

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Add records; return their end and number."""
        stop, counts, sums, numbers = native.sums(data, start, end, *self._census.known())
        count = self._census.add(counts)
        self._contents.samples += count
        if count:
            columns = zip(self._census.names(), numbers, zip(*[iter(array("q", sums))] * 6, strict=True), strict=True)
            for name, values, (examples, *amounts) in columns:
                kind, stats = self._expected[name].kind, self._contents.entries[name]
                assert kind  # features in the census have a kind
                if examples:
                    stats.add_examples(kind, examples, *amounts)
                if values:
                    stats.numbers.add(kind, [values])
        return stop, count

    def take_batch(self, batch: Batch, native: ModuleType, /) -> bool:
        """Add the samples of a batch; return False if values of an entry must be examined."""
        entries, sizes = self._contents.entries, batch.entry_sizes()
        if any(name not in entries or entries[name].count < self._looks for name in sizes):
            return False
        self._contents.samples += len(batch)
        for name, of_name in sizes.items():
            entries[name].add_all(of_name)
        return True


def _whole_or_head(data: StoredBytes) -> bytes:
    """Return a stored value, or only the beginning of a large one."""
    return data.whole() if len(data) < LARGE_VALUE else data.head()


def add_sample(
    contents: ShardContents,
    sample: Sample,
    looks: int,
    beginning: Callable[[StoredBytes], bytes] = StoredBytes.head,
) -> None:
    """Add the sizes of a sample's entries, and examine the first values of each entry."""
    for name, data in sample.items():
        if name != KEY:
            stats = contents.stats(name)
            if stats.count < looks:
                _look_at_value(stats, name, beginning(data) if isinstance(data, StoredBytes) else data, len(data))
            stats.add(len(data))


def _look_at_value(stats: Stats, name: str, head: bytes, size: int) -> None:
    """Examine a value, given at least its beginning."""
    look = detect_kind(head, size)
    stats.look(look, partial(example_of, head))
    if look.kind.startswith("image/"):
        stats.turned += orientation(head) > 1
    if len(head) == size and (is_named_like_mask(name) or is_palette(head)):
        from tar2tf_cli.formats.decoding import decode

        with suppress(SampleError, UsageError, ValueError):
            _add_distinct(stats, decode(head).get(""))


def _add_distinct(stats: Stats, pixels: Array | None) -> None:
    """Add the distinct values of a mask, if it is an image."""
    if pixels is not None and pixels.ndim in (2, 3):
        stats.add_distinct(distinct_values(pixels))


def add_record(contents: ShardContents, record: bytes, looks: int) -> Mapping[str, ParsedFeature]:
    """Add the features of a record, including those of a SequenceExample's context and feature lists.

    Returns:
        The features of a tf.train.Example; none of another record.
    """
    try:
        features = parse(record)
    except ValueError:
        _add_other(contents, record, looks)
        return {}
    _add_features(contents, features, looks)
    return features


def _add_features(contents: ShardContents, features: Mapping[str, ParsedFeature], looks: int) -> None:
    for name, feature in features.items():
        stats = contents.entries.get(name) or contents.stats(name)
        if stats.count < looks or not stats.lists[feature.kind]:
            _look_at_feature(stats, feature)
            if shape := features.get(f"{name}/shape"):
                _look_at_shape(stats, feature, shape)
        _add_list(stats, feature)
        if feature.kind in ("bytes", None):
            stats.add(feature.size)
        else:
            stats.add(feature.count)
            parts = feature.parts()
            if type(feature.message) is bytes or feature.size == sum(map(len, parts)):  # else some were not read
                stats.numbers.add(feature.kind, parts)


def _look_at_shape(stats: Stats, feature: ParsedFeature, shape: ParsedFeature) -> None:
    """Update whether a feature NAME/shape holds the shape of NAME, whose values are numbers or uint8 bytes.

    Of masks, the distinct values are added.
    """
    size = prod(shape.values()) if shape.kind == "int64" else None
    if feature.kind == "bytes":
        fits = "uint8" if feature.count == 1 and size == feature.size else ""
    else:
        fits = "values" if size == feature.count else ""
    stats.shaped = fits if stats.shaped in (None, fits) else ""
    if fits and is_named_like_mask(feature.name):
        import numpy as np

        data = np.frombuffer(feature.parts()[0], np.uint8) if feature.kind == "bytes" else np.array(feature.values())
        if len(data) == size:
            _add_distinct(stats, data.reshape(shape.values()))


def _add_other(contents: ShardContents, record: bytes, looks: int) -> None:
    """Add a record that is not a tf.train.Example."""
    try:
        parsed, lists = parse(record, sequence=True), parse_lists(record)
    except ValueError:
        parsed, lists = {}, {}
    if not (parsed or lists or _EMPTY_SEQUENCE.fullmatch(record)):
        contents.foreign += 1
        if contents.foreign <= looks:
            contents.payload.look(detect_kind(record), partial(example_of, record))
        contents.payload.add(len(record))
        return
    contents.sequences += 1
    _add_features(contents, parsed, looks)
    for name, features in lists.items():
        stats = contents.stats(name + STEPS)
        stats.is_steps = True
        if stats.count < looks and features:
            _look_at_feature(stats, features[0])
        stats.unit = "values"
        for feature in features:
            _add_list(stats, feature)
        stats.add(len(features))


def _add_list(stats: Stats, feature: ParsedFeature) -> None:
    stats.add_list(feature.kind, feature.count)
    if len(feature.runs) > 1 and feature.kind != "bytes" and feature.is_packed:
        stats.divided = True


def _look_at_feature(stats: Stats, feature: ParsedFeature) -> None:
    if feature.kind in ("int64", "float"):
        stats.unit = stats.unit if stats.count else "values"
        stats.look(ValueKind(feature.kind), lambda: numbers_shown(feature.values()))
    elif feature.count == 1:
        (data,) = feature.parts()
        _look_at_value(stats, feature.name, data, feature.size)
    elif feature.count:
        first = feature.parts()[0]
        look = detect_kind(first)
        stats.look(look._replace(kind=f"list of {look.kind}"), lambda: f"[{shortened(example_of(first))}, …]")
    else:
        stats.look(ValueKind("empty list" if feature.kind else "unset"), str)


# --- Samples one by one, as they are stored ---


@dataclass(frozen=True)
class RawSample:
    """One sample as it is stored, not decoded.

    Attributes:
        path: path or URL of the shard.
        number: number of the sample in the shard, from 0.
        content: the sample of a tar, or the bytes of a record.
        stem: the beginning of the name of a record without a key; by default, the stem of the shard's name.
    """

    path: str
    number: int
    content: Sample | bytes
    stem: str = ""

    @property
    def key(self) -> str | None:
        """The key; None for a record without a `__key__`."""
        return key_of(values_of(self.content))

    @property
    def name(self) -> str:
        """The key, or the key that `convert` would give a record without one."""
        key = self.key
        if key is not None:
            return key
        from tar2tf_cli.inputs.record_samples import numbered, stem_of  # slow to import, and few records have no key

        return numbered(self.stem or stem_of(self.path), self.number)

    @property
    def entries(self) -> dict[str, Stats]:
        """The statistics of each entry or feature, with its value as the example."""
        contents = ShardContents("", "")
        if isinstance(self.content, dict):
            add_sample(contents, self.content, 1)
        else:
            add_record(contents, self.content, 1)
        if contents.foreign:
            contents.entries["(not a tf.train.Example)"] = contents.payload
        return contents.entries

    def to_json(self) -> dict[str, object]:
        """Return the sample as plain JSON."""
        values = {
            name: {"kind": stats.kind, "unit": stats.unit, "size": stats.most, "value": stats.example}
            for name, stats in self.entries.items()
        }
        return {"path": self.path, "number": self.number, "key": self.key, "entries": values}


def read_samples(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    heads_only: bool = False,
    damaged: Callable[[SourceError], None] | None = None,
    **options: Unpack[CheckOptions],
) -> Iterator[RawSample]:
    """Iterate lazily over the samples of a bucket's shards.

    With `heads_only`, only the first mebibyte of large entries is available. `damaged` is called with each damage
    error, and with the error of each unreadable shard, and iteration continues; without it, the error is raised.

    Raises:
        SourceError: when there is no shard, or one is damaged.
    """
    run = FileRun(**options)
    named = run.shards(bucket, templates, paths=paths)
    source, any_read = named.source, False
    run.note_on(named)

    def on_damage(error: DamagedShardError, more: bool) -> None:
        if damaged is None:
            raise error from None
        damaged(error)

    for item in named.items:
        try:
            with OpenShard(source, item) as shard:
                read = contents_of(shard, run.rules._replace(ahead=AHEAD, heads_only=heads_only), on_damage)
                stem = named.stems.get(item.name, "")
                yield from (RawSample(shard.name, number, content, stem) for number, content in read)
                if shard.kind:
                    any_read = True
                else:
                    raise not_a_shard(shard.name, item.size, foreign(shard.head))
        except SourceError as error:
            if damaged is None:
                raise
            damaged(error)
            any_read = True
    if not any_read:
        raise nothing_found(source.bucket)


_UNSAFE: Final = re.compile(r"[/\0]")
_MOST_NAME: Final = 255  # bytes of a part of a path
_ROOM: Final = 55  # bytes for the temporary suffix of a file that is being written
_MOST_EXTENSION: Final = 100
_HERE: Final = re.compile(r"^(\./)+")  # as in `tar cf x.tar -C FOLDER .`


def extract(samples: Iterable[RawSample], keys: Sequence[str], folder: str) -> Iterator[str]:
    """Write each entry of the samples with these keys to `FOLDER/KEY.ENTRY`; yield the path of each file.

    A feature's bytes are written unchanged, and numbers as text, one per line; several bytes values of a feature are
    numbered. A slash in the name of a feature becomes an underscore; names that would then be equal get a number, and
    long ones are cut. A record without a key is named by its shard and number.

    Raises:
        UsageError: for a key that would leave the folder, and for a file that exists.
        NothingFoundError: when a key does not exist; the others are extracted.
        SourceError: when a shard cannot be read.
        SinkError: when a file cannot be written.
    """
    wanted = set(keys)
    for key in keys:
        _check(key)
    with write_errors(folder):
        os.makedirs(folder, exist_ok=True)
    for sample in samples:
        key = sample.name
        if key in wanted:
            used: set[str] = set()
            for name, data in _entries(sample):
                yield _write(folder, _file_name(f"{_HERE.sub('', key)}.{_UNSAFE.sub('_', name)}", used), data)
            wanted.discard(key)
            if not wanted:
                return
    if wanted:
        missing = ", ".join(sorted(wanted)[:3])
        raise NothingFoundError(
            f"there is no sample with the key {missing}", hint="list the keys with tar2tf inspect --keys"
        )


def _file_name(path: str, used: set[str]) -> str:
    """Return a valid file path that is not used yet for the sample, and add it to the used ones."""
    *folders, base = path.split("/")
    stem, dot, extension = base.rpartition(".")
    end = f"{dot}{extension}" if stem and len(os.fsencode(extension)) < _MOST_EXTENSION else ""
    stem = base.removesuffix(end)

    def named(number: int) -> str:
        last = f"~{number}{end}" if number > 1 else end
        return "/".join([*map(_shortened, folders), _shortened(stem, len(os.fsencode(last)) + _ROOM) + last])

    name = next(name for name in map(named, count(1)) if name not in used)
    used.add(name)
    return name


def _shortened(name: str, reserved: int = 0) -> str:
    """Shorten a part of a path that is too long, with a digest to keep it unique."""
    data = os.fsencode(name)
    if len(data) + reserved <= _MOST_NAME:
        return name
    digest = f"~{key_hash(name):016x}"
    return data[: _MOST_NAME - reserved - len(digest)].decode("utf-8", "ignore") + digest


def _check(key: str) -> None:
    parts = _HERE.sub("", key).split("/")
    if os.path.isabs(key) or any(part in ("", ".", "..") for part in parts) or "\0" in key:
        raise UsageError(f"the key {key!r} is not a path inside a folder, so it cannot be extracted")


def _entries(sample: RawSample) -> Iterator[tuple[str, bytes | StoredBytes]]:
    for name, value in values_of(sample.content).items():
        if name == KEY:
            continue
        if not isinstance(value, ParsedFeature):
            yield name, value
        elif value.kind == "bytes":
            yield from ((f"{number}.{name}", part) for number, part in enumerate(value.parts()))
        else:
            yield f"{name}.txt", "".join(f"{number}\n" for number in value.values()).encode("ascii")


def _write(folder: str, name: str, data: bytes | StoredBytes) -> str:
    path = os.path.join(folder, name)
    parent, root = os.path.dirname(path), os.path.realpath(folder)
    if os.path.commonpath((root, os.path.realpath(parent))) != root:
        raise UsageError("a link on this path points outside the folder", shard=path)
    with write_errors(path):
        os.makedirs(parent, exist_ok=True)
    if os.path.lexists(path):
        raise OutputExistsError("already exists", shard=path, hint="name another folder with --to")
    with WholeFile(path, lasting=False) as file:
        for piece in pieces_of(data):
            file.write([piece], len(piece))
    return path
