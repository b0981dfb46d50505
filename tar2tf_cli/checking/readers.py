"""Rules for `verify --for`: properties of shards that make another reader fail or misread them.

Each rule states a behaviour of that reader's current version, which a test of the rule runs.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.checking.faults import Fault
from tar2tf_cli.checking.files import FileContext, contents_of, features_of
from tar2tf_cli.errors import SourceError, UsageError, count, did_you_mean, few
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.keys import split_name, unwanted
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.structs import dataclass, field

_EXAMINED: Final = 5
"""How many samples Hugging Face's datasets looks at to learn the columns."""

_SHORT_NAME: Final = 100
"""The most bytes of a name in a tar without a pax or GNU header for it."""

_TYPE: Final = 156
"""The offset of the type in a header of a tar."""


@dataclass
class ShardTraits:
    """Properties of one shard that affect readers.

    Attributes:
        format: the format; None if it cannot be read.
        compression: `gzip`, `zstd` or another; empty for none.
        samples: number of samples or records.
        names: number of samples or records with each entry or feature.
        first: the names in each of the first samples.
        null_first: the names of JSON values that are null in each of the first samples, with a sample in which they are
            not.
        capitals: a member whose extension has capitals, if there is one.
        dotted: a member whose name the other key rule splits at another dot, if that gives more samples.
        long: a member whose name does not fit into a header, if there is one.
        pax: a member whose long name is in a pax header, if there is one.
        not_adjacent: the first sample whose members are not adjacent, if there is one.
        varying: the lengths of the lists of each numeric feature.
    """

    format: str | None = None
    compression: str = ""
    samples: int = 0
    names: Counter[str] = field(default_factory=Counter)
    first: list[frozenset[str]] = field(default_factory=list)
    null_first: dict[str, str] = field(default_factory=dict)
    capitals: str | None = None
    dotted: str | None = None
    long: str | None = None
    pax: str | None = None
    not_adjacent: str | None = None
    varying: dict[str, set[int]] = field(default_factory=dict)


def shard_traits(item: ObjectInfo, context: FileContext) -> ShardTraits:
    """Read a shard to find its traits; an unreadable one has none, as `verify` itself reports it."""
    traits = ShardTraits()
    try:
        with OpenShard(context.source, item) as shard:
            traits.format = shard.kind.name if shard.kind else None
            traits.compression = shard.compression.lower()
            kind = shard.traits
            if kind.holds == "sample":
                _read_headers(shard, traits)
        if kind.holds == "sample":
            with OpenShard(context.source, item) as shard:
                _read_nulls(shard, context.rules, traits)
        elif kind.carries_examples:
            with OpenShard(context.source, item) as shard:
                _read_features(shard, context.rules, traits)
    except SourceError:
        pass
    return traits


def _read_headers(shard: OpenShard, traits: ShardTraits) -> None:
    by_key: dict[str, set[str]] = {}
    by_last: set[str] = set()
    previous, dotted = "", ""
    stream = shard.seekable or shard
    for name, _, _, start in TarReader(stream, shard.name, headers_only=True, need_end=False):
        key, _ = split_name(name, "first")
        if not key or unwanted(name):
            continue
        extension = name[len(key) + 1 :]
        if key in by_key and key != previous:
            traits.not_adjacent = traits.not_adjacent or key
        by_key.setdefault(key, set()).add(extension)
        by_last.add(split_name(name, "last")[0])
        previous = key
        if "." in extension:
            dotted = dotted or name
        if extension != extension.lower():
            traits.capitals = traits.capitals or name
        if len(os.fsencode(name)) > _SHORT_NAME:
            traits.long = traits.long or name
            if _is_pax(shard, start):
                traits.pax = traits.pax or name
    traits.samples = len(by_key)
    traits.dotted = dotted if dotted and len(by_last) > len(by_key) else None
    for extensions in by_key.values():
        traits.names.update(extensions)
    traits.first = [frozenset(extensions) for extensions in list(by_key.values())[:_EXAMINED]]


def _is_pax(shard: OpenShard, start: int) -> bool:
    """Whether a member of a local tar has a pax header."""
    try:
        with open(shard.name, "rb", buffering=0) as file:
            file.seek(start + _TYPE)
            return not shard.compression and file.read(1) == b"x"
    except OSError:  # not a local file
        return False


def _read_nulls(shard: OpenShard, rules: TarRules, traits: ShardTraits) -> None:
    nulls: dict[str, bool] = {}
    for number, content in contents_of(shard, rules._replace(regroup=True), lambda error, more: None):
        if not isinstance(content, dict):
            return
        for name, data in content.items():
            if name == "json" or name.endswith(".json"):
                for key, value in _object_in(data).items():
                    path = f"{name}:{key}"
                    if number < _EXAMINED:
                        nulls[path] = nulls.get(path, True) and value is None
                    elif value is not None and nulls.get(path):
                        traits.null_first.setdefault(path, str(content["__key__"]))
        if number >= _EXAMINED and not any(nulls.values()):
            return


def _object_in(data: bytes | StoredBytes) -> Mapping[str, object]:
    try:
        value = json.loads(data if isinstance(data, bytes) else data.whole())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_features(shard: OpenShard, rules: TarRules, traits: ShardTraits) -> None:
    for _, content in contents_of(shard, rules._replace(heads_only=True), lambda error, more: None):
        if isinstance(content, bytes):
            features = features_of(content)
            traits.samples += 1
            traits.names.update(features.keys())
            for name, feature in features.items():
                if isinstance(feature, ParsedFeature):
                    traits.varying.setdefault(name, set()).add(feature.count)


# --- Rules ---


class ShardsToRead(NamedTuple):
    """All shards, as given to a rule.

    Attributes:
        traits: the traits of each shard by its path.
        others: the names of files next to the shards.
        described: whether files of TensorFlow Datasets describe the shards.
        has_card: whether a dataset card lists the shards.
        splits: the split of each shard that belongs to one, by its path.
        hosts: number of hosts that divide the shards among them.
    """

    traits: Mapping[str, ShardTraits]
    others: Sequence[str] = ()
    described: bool = False
    has_card: bool = False
    splits: Mapping[str, str] = MappingProxyType({})
    hosts: int = 1

    def of(self, format: str) -> Iterator[tuple[str, ShardTraits]]:
        """Iterate over the shards of a format."""
        return ((path, traits) for path, traits in self.traits.items() if traits.format == format)


def names_files(source: Source, item: ObjectInfo) -> bool:
    """Whether a README.md is a dataset card that lists the files of each split."""
    with suppress(SourceError), closing(source.open(item)) as file:
        return (
            re.match(rb"---\r?\n.*^\s*(- )?data_files:.*^---", file.read(1 << 16), re.DOTALL | re.MULTILINE) is not None
        )
    return False


ReaderRule: TypeAlias = Callable[[ShardsToRead], Iterator[tuple[str, str]]]
"""Yields the path of each shard that a reader does not read as meant, and what happens."""

_MOST_READ: Final = "convert it: tar2tf convert IN -o 'new-<>.tar'"


def _compression(formats: Mapping[str, Sequence[str]]) -> ReaderRule:
    """Return a rule for a reader that does not support some compressions, by format."""

    def rule(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
        for path, traits in shards.traits.items():
            if traits.compression in formats.get(traits.format or "", ()):
                yield path, f"it does not read {traits.compression}; write shards without it, or with one that it reads"

    return rule


def _only(format: str, what: str) -> ReaderRule:
    """Return a rule for a reader that supports only one format."""

    def rule(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
        for path, traits in shards.traits.items():
            if traits.format not in (None, format):
                yield path, f"it reads {what} only; tar2tf convert writes either kind"

    return rule


def _of_tars(trait: str, text: str) -> ReaderRule:
    """Return a rule for tars with a trait that names a sample or a member, which the text mentions as `{}`."""

    def rule(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
        for path, traits in shards.of("tar"):
            if named := getattr(traits, trait):
                yield path, text.format(repr(named))

    return rule


def _dots(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    for path, traits in shards.of("tar"):
        if traits.dotted:
            key, _ = split_name(traits.dotted, "first")
            hint = "convert with --key-split last and --key to names without dots"
            yield path, f"{traits.dotted!r} has several dots: it belongs to the sample {key!r}, with others; {hint}"


def _same_first(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    for path, traits in shards.of("tar"):
        if len(set(traits.first)) > 1:
            lacking = sorted(frozenset.union(*traits.first) - frozenset.intersection(*traits.first))
            hint = "keep entries that all samples have (--op keep), or put a complete sample first"
            yield path, f"some of the first {_EXAMINED} samples lack {few(lacking)}, so it refuses the shard; {hint}"


def _nulls(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    for path, traits in shards.of("tar"):
        for name, key in traits.null_first.items():
            text = f"{name} is null in the first {_EXAMINED} samples and not in {key!r}, where it fails"
            yield path, f"{text}; put a sample with a value first"


def _lacking(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find features that some records lack, so that records cannot be batched."""
    names = sum((traits.names for traits in shards.traits.values()), Counter[str]())
    samples = sum(traits.samples for traits in shards.traits.values())
    lacking = {name: samples - number for name, number in names.items() if number < samples}
    for name, number in sorted(lacking.items()):
        path = next(path for path, traits in shards.traits.items() if traits.names[name] < traits.samples)
        text = f"{count(number, 'sample')} {'lacks' if number == 1 else 'lack'} {name!r}, so batches fail"
        yield path, f"{text}; open_records(default=) gives all samples one form"


def _lists(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find features that are a single value in some records and a list in others."""
    for path, traits in shards.of("tfrecord"):
        for name, lengths in traits.varying.items():
            if 1 in lengths and len(lengths) > 1:
                yield (
                    path,
                    f"{name!r} has one value in some records and several in others: it is a value there, a list here",
                )


def _ragged(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find features that are lists of different lengths, which cannot be batched."""
    lengths: dict[str, set[int]] = {}
    for path, traits in shards.of("tfrecord"):
        for name, some in traits.varying.items():
            known = lengths.setdefault(name, set())
            if len(known) < 2 and len(known | some) > 1:
                yield (
                    path,
                    f"the lists of {name!r} differ in length, so batches fail; load_dataset(pad=True) pads",
                )
            known |= some


def _side_files(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find files that the reader would read as shards, as their names do not begin with an underscore."""
    others = [name for name in shards.others if not os.path.basename(name).startswith("_")]
    if others and (path := next(iter(shards.traits), None)):
        hint = "name the shards by a pattern, or move these files"
        yield path, f"{_next_to(others)}, and it reads a folder's files as shards; {hint}"


def _next_to(names: Sequence[str]) -> str:
    return f"{few(names)} {'is' if len(names) == 1 else 'are'} next to the shards"


_DATA: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".parquet", ".arrow", ".xml", ".zip")


def _outnumbered(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find files that the reader would read instead of shards, as more files have their extension."""
    kinds = Counter(os.path.splitext(name)[1].lower() for name in shards.others)
    alike = next((kind for kind, number in kinds.items() if kind in _DATA and number >= len(shards.traits)), None)
    if alike and not shards.has_card and (path := next(iter(shards.traits), None)):
        others = [name for name in shards.others if name.lower().endswith(alike)]
        what = f"{_next_to(others)}, and it reads the files of the most frequent extension"
        yield path, f"{what}; write a dataset card: tar2tf export hf"


def _few(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    """Find splits with fewer shards than hosts, which leave some hosts without data."""
    by_split: dict[str, list[str]] = {}
    for path in shards.traits:
        by_split.setdefault(shards.splits.get(path, ""), []).append(path)
    for split, paths in by_split.items():
        if len(paths) < shards.hosts:
            what = f"{count(len(paths), 'shard')}{f' of {split}' if split else ''} for {shards.hosts} hosts"
            yield paths[0], f"there are only {what}, so some get none, and it fails there; convert with --num-shards"


def _undescribed(shards: ShardsToRead) -> Iterator[tuple[str, str]]:
    if not shards.described and (path := next((path for path, _ in shards.of("tfrecord")), None)):
        yield path, "no dataset_info.json and features.json describe the shards; tar2tf export tfds writes them"


_TARS: Final = _only("tar", "tars")
_adjacent: Final = _of_tars(
    "not_adjacent",
    "the members of sample {} are not adjacent: it reads several samples; tar2tf convert regroups them",
)
_capitals: Final = _of_tars(
    "capitals",
    "the extension of {} has capitals, which it keeps in the column's name; "
    "tar2tf convert writes extensions in lower case",
)
_pax: Final = _of_tars("pax", f"the long name {{}} is in a pax header, which it refuses; {_MOST_READ}")
_long: Final = _of_tars(
    "long", f"of the name {{}} it reads {_SHORT_NAME} bytes; give samples shorter keys with convert --key"
)
_PLAIN: Final = ("gzip", "zstd", "bzip2", "xz", "zlib")

READERS: Final[Mapping[str, Sequence[ReaderRule]]] = {
    "dali": (_compression({"tar": _PLAIN, "tfrecord": _PLAIN}), _adjacent, _dots, _capitals, _pax),
    "energon": (_TARS, _compression({"tar": _PLAIN}), _adjacent, _dots, _capitals),
    "grain": (_dots, _lacking, _ragged),
    "hf": (_TARS, _compression({"tar": ("zstd",)}), _adjacent, _dots, _capitals, _same_first, _nulls, _outnumbered),
    "ray": (_compression({"tfrecord": _PLAIN}), _adjacent, _dots, _capitals, _lists, _side_files),
    "tfds": (_only("tfrecord", "TFRecords"), _compression({"tfrecord": _PLAIN}), _undescribed, _few),
    "webdataset": (_TARS, _compression({"tar": ("zstd",)}), _adjacent, _dots, _few),
    "wids": (_TARS, _compression({"tar": _PLAIN}), _adjacent, _dots, _capitals, _long),
}
"""The rules of each reader."""


def parse_readers(text: str) -> list[str]:
    """Parse a list of readers such as `hf,dali`.

    Raises:
        UsageError: when one is unknown.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in READERS:
            raise UsageError(
                f"--for knows no reader {name!r}{did_you_mean(name, READERS)}", hint=f"readers: {', '.join(READERS)}"
            )
    return names


def check_output(names: Sequence[str], output: Output) -> None:
    """Check, before a conversion, that readers support its output's format and compression.

    Raises:
        UsageError: when a reader does not support them.
    """
    traits = ShardTraits(output.format.name, "" if output.compression == "none" else output.compression)
    for _, fault in reader_faults(names, ShardsToRead({output.path: traits}, described=True)):
        what, _, hint = fault.message.partition("; ")
        raise UsageError(f"--for {what}", shard=output.shown, hint=hint or None)


def reader_faults(names: Sequence[str], shards: ShardsToRead) -> Iterator[tuple[str, Fault]]:
    """Yield a fault, with the path of the shard, for each reason why a reader would fail or misread it."""
    for name in names:
        for rule in READERS[name]:
            for path, message in rule(shards):
                yield path, Fault("reader", f"{name}: {message}")
