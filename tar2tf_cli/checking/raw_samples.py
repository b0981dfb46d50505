"""Reads the samples of shards one by one, as they are stored, and extracts their entries to files in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.checking.contents import ShardContents, Stats
from tar2tf_cli.checking.files import open_shards
from tar2tf_cli.checking.inspect import add_record, add_sample, not_a_shard
from tar2tf_cli.errors import NothingFoundError, OutputExistsError, SourceError, UsageError, write_errors
from tar2tf_cli.formats.example_parser import ParsedFeature, parse
from tar2tf_cli.formats.files import WholeFile
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.named import nothing_found
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.names import KEY, Sample, key_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.urls import Reach


@dataclass(frozen=True, slots=True)
class RawSample:
    """One sample as it is stored.

    Attributes:
        path: path or URL of the shard.
        number: number of the sample in the shard, from 0.
        content: the sample of a tar, or the bytes of a record.
    """

    path: str
    number: int
    content: Sample | bytes

    @property
    def key(self) -> str | None:
        """The key; None for a record without a `__key__`."""
        return key_of(values_of(self.content))

    @property
    def entries(self) -> dict[str, Stats]:
        """Statistics of each entry or feature, with its value as the example."""
        contents = ShardContents("", "")
        if isinstance(self.content, dict):
            add_sample(contents, self.content, 1)
        else:
            add_record(contents, self.content, 1)
        if contents.foreign:
            contents.entries["(not a tf.train.Example)"] = contents.payload
        return contents.entries

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        values = {
            name: {"kind": stats.kind, "unit": stats.unit, "size": stats.most, "value": stats.example}
            for name, stats in self.entries.items()
        }
        return {"path": self.path, "number": self.number, "key": self.key, "entries": values}


def values_of(content: Sample | bytes) -> dict[str, Any]:
    """The entries of a sample; or the features of a record, those of one bytes value as bytes.

    For a tf.train.SequenceExample, these are the features of its context. A record of another kind is a single value
    with the name `record`.
    """
    if isinstance(content, dict):
        return content
    try:
        features = parse(content, sequence=True)
    except ValueError:
        return {"record": content}
    single = {name: item.parts()[0] for name, item in features.items() if (item.kind, item.count) == ("bytes", 1)}
    return {**features, **single}


def read_samples(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    rules: TarRules | None = None,
    heads_only: bool = False,
    damaged: Callable[[SourceError], None] | None = None,
    **reach: Unpack[Reach],
) -> Iterator[RawSample]:
    """The samples of a bucket's shards; no more is read than is asked for.

    With `heads_only`, only the first mebibyte of large entries will be used. `damaged` is called with the error of each
    shard that is damaged or unreadable, and the next one is read; without it, the error is raised.

    Raises:
        SourceError: when there is no shard, or one is damaged.
    """
    named = open_shards(bucket, templates, paths=paths, **reach)
    source, templates = named.source, named.templates
    rules = rules or TarRules()
    found = False
    for item in named.files():
        try:
            with OpenShard(source, item) as shard:
                read = contents_of(shard, rules, heads_only=heads_only)
                yield from (RawSample(shard.name, number, content) for number, content in enumerate(read))
                if shard.format in ("tar", "tfrecord"):
                    found = True
                elif source.asked_for(item.name, templates):
                    raise not_a_shard(shard.name, item.size, foreign(shard.head))
        except SourceError as error:
            if damaged is None:
                raise
            damaged(error)
            found = True
    if not found:
        raise nothing_found(source.bucket)


_AHEAD: Final = 1 << 20  # of a compressed or remote tar, to find out whether members of samples are adjacent


def contents_of(shard: OpenShard, rules: TarRules, *, heads_only: bool = False) -> Iterator[Sample | bytes]:
    """The samples of an open tar, or the records of an open TFRecord; none of another file.

    Raises:
        SourceError: when it is damaged or cannot be read.
    """
    if shard.damage:
        raise shard.damage
    if shard.format == "tar":
        with closing(shard.samples(rules, lambda error: None, ahead=_AHEAD, heads_only=heads_only)) as tar:
            yield from tar.samples()
    elif shard.format == "tfrecord":
        yield from (record for _, record in RecordReader(shard, shard.name))


_UNSAFE: Final = re.compile(r"[/\0]")
_HERE: Final = re.compile(r"^(\./)+")  # as in `tar cf x.tar -C FOLDER .`


def extract(samples: Iterable[RawSample], keys: Sequence[str], folder: str) -> Iterator[str]:
    """Write each entry of the samples with these keys to `FOLDER/KEY.ENTRY`; yield the path of each file.

    A feature's bytes are written as they are, and numbers as text, one a line; several bytes values of a feature are
    numbered. A slash in the name of a feature becomes an underscore. A record without a key is named by its number.

    Raises:
        UsageError: for a key that would lead out of the folder, and for a file that exists.
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
        key = sample.key if sample.key is not None else str(sample.number)
        if key in wanted:
            for name, data in _entries(sample):
                yield _write(folder, f"{_HERE.sub('', key)}.{_UNSAFE.sub('_', name)}", data)
            wanted.discard(key)
            if not wanted:
                return
    if wanted:
        missing = ", ".join(sorted(wanted)[:3])
        raise NothingFoundError(f"there is no sample with the key {missing}", hint="tar2tf inspect --keys lists them")


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
        elif value.kind:
            yield f"{name}.txt", "".join(f"{number}\n" for number in value.values()).encode("ascii")


def _write(folder: str, name: str, data: bytes | StoredBytes) -> str:
    path = os.path.join(folder, name)
    parent, root = os.path.dirname(path), os.path.realpath(folder)
    if os.path.commonpath((root, os.path.realpath(parent))) != root:
        raise UsageError("a link on this path leads out of the folder", shard=path)
    with write_errors(path):
        os.makedirs(parent, exist_ok=True)
    if os.path.lexists(path):
        raise OutputExistsError("exists already", shard=path, hint="name another folder with --to")
    with WholeFile(path, lasting=False) as file:
        for piece in data.pieces() if isinstance(data, StoredBytes) else (data,):
            file.write([piece], len(piece))
    return path
