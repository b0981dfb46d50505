"""Sources composed of other sources: lists divided into inputs, shards of several buckets, and output of stages."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import Capabilities, ListingInfo, OnBytes, OnFault, Samples, SampleSource, Source
from tar2tf_cli.api.values import SourceReport
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.directory import OF_FILES
from tar2tf_cli.structs import NamedTuple

CHUNK: Final = 128
"""Files or rows per input. More would leave workers idle at the end, fewer would make the manifest long."""

_SMALLEST: Final = 32
_LARGEST: Final = 2048

T = TypeVar("T")


class ListSource(SampleSource):
    """A long list of files or rows, divided into inputs; shuffling and the limit apply to the whole list."""

    capabilities = Capabilities(gives="values", ordered=True, threads=1)

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()

    def locate(self, name: str) -> str:
        """Return the bucket's path, as the samples themselves name their file or row."""
        return self.bucket


def shuffled(items: list[T], seed: int | None, name_of: Callable[[T], str]) -> list[T]:
    """Shuffle items by seed and name, equally on every machine; without a seed, keep their order."""
    if seed is None:
        return items
    prefix = f"{seed}\0"

    def rank(item: T) -> bytes:
        return blake2b((prefix + name_of(item)).encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return sorted(items, key=rank)


def divided(
    noun: str, items: list[T], describe: Callable[[T], tuple[int, bytes]], shards: int | None = None
) -> Iterator[tuple[ObjectInfo, list[T]]]:
    """Divide items into chunks of consecutive ones, and yield the input and the items of each chunk.

    Args:
        noun: the noun for the items; inputs are named by position, from 1: `rows 1-128`, `rows 129-256`.
        items: the items, in order.
        describe: returns an item's size in bytes and its version, which changes when its bytes do.
        shards: the number of shards of equal count to make. Each chunk is then one shard, with larger ones first,
            unless they are very small or very large.
    """
    least, larger = divmod(len(items), shards or 1)
    counts = [CHUNK] * -(-len(items) // CHUNK)
    if shards and _SMALLEST <= least < _LARGEST:
        counts = [least + (number < larger) for number in range(shards)]
    first = 0
    for count in counts:
        chunk = items[first : first + count]
        size, version = 0, blake2b(digest_size=16)
        for item in chunk:
            added, described = describe(item)
            size += added
            version.update(described)
        yield ObjectInfo(f"{noun} {first + 1}-{first + len(chunk)}", size, version.hexdigest()), chunk
        first += count


def stems_of(names: Sequence[str]) -> dict[str, str]:
    """Return, for each table file, the prefix of its rows' keys: its stem, with its folders if stems are equal."""
    stems = {name: os.path.splitext(os.path.basename(name))[0] for name in names}
    alike = len({*stems.values()}) < len(stems)
    return {name: os.path.splitext(name)[0] for name in names} if alike else stems


class LocatedShard(NamedTuple):
    """A shard, and the source that opens it."""

    source: Source
    item: ObjectInfo


OpenStages: TypeAlias = "Callable[[SourceReport, OnFault], Samples]"
"""Starts the stages, which yield samples or examples; adds skips to the report and calls the function with failures."""


class MergedSource(Source):
    """The shards of several buckets as the inputs of one source, named by their paths or URLs.

    Args:
        shards: the shards in order.
        resumable: whether a later run can check that the shards are unchanged.
        threads: number of threads that make the examples of one shard; None for as many as are useful.
    """

    def __init__(self, shards: Sequence[LocatedShard], *, resumable: bool = True, threads: int | None = None) -> None:
        self._shards = {_url(*shard): shard for shard in shards}
        self._inputs = [item._replace(name=_url(source, item)) for source, item in shards]
        self.bucket = _named_together(shards)
        able = [source.capabilities for source, _ in shards]
        repeatable = all(each.repeatable for each in able)
        self.capabilities = Capabilities(
            seekable=all(each.seekable for each in able),
            repeatable=repeatable,
            resumable=resumable and all(each.resumable for each in able),
            threads=threads,
        )

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the shards, named by path or URL."""
        return self._inputs

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open a shard at its first byte."""
        source, named = self._shards[item.name]
        return source.open(named)

    def locate(self, name: str) -> str:
        """Return the path or URL of a shard, which is its name."""
        return name


class _Unreadable(Source):
    """A path that cannot be read, as an input that fails to open, so that other inputs are still read."""

    capabilities = OF_FILES

    def __init__(self, path: str, error: SourceError) -> None:
        self.bucket = path
        self._error = error

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        return [ObjectInfo(self.bucket, 0, None)]

    def open(self, item: ObjectInfo) -> ByteStream:
        raise self._error

    def locate(self, name: str) -> str:
        return self.bucket


def unreadable_input(path: str, error: SourceError) -> LocatedShard:
    """Return an input that raises an error when it is opened, for a path or URL that cannot be read."""
    source = _Unreadable(path, error)
    return LocatedShard(source, source.list(())[0])


class StagesSource(ListSource):
    """The output of pipeline stages as a single input, since a stage may process the whole stream.

    Args:
        tars: the input of the first stage; empty if that stage is the user's own.
        open_stages: starts the stages.
        stages: the stages as written in the manifest.
        repeatable: whether a later run can check that the stages are unchanged.
    """

    def __init__(
        self,
        tars: Sequence[LocatedShard],
        open_stages: OpenStages,
        stages: Sequence[Mapping[str, object]],
        *,
        repeatable: bool,
    ) -> None:
        super().__init__(_named_together(tars) if tars else "the TarStage")
        self._tars = tars
        self._open = open_stages
        self._stages = stages
        again = repeatable and bool(tars) and all(source.capabilities.resumable for source, _ in tars)
        self.capabilities = self.capabilities._replace(gives="examples", repeatable=again, resumable=again)

    def listing_info(self) -> ListingInfo:
        """Return the identity of the input: its tars, and the names and sources of the stages."""
        paths = [source.locate(item.name) for source, item in self._tars]
        return ListingInfo(identity={"tars": self._described(), "stages": list(self._stages)}, paths=paths)

    def _described(self) -> list[dict[str, object]]:
        return [{"name": _url(source, item), "size": item.size, "version": item.version} for source, item in self._tars]

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List a single input, whose size and version combine those of the tars."""
        sizes = [item.size for _, item in self._tars]
        if not sizes or None in sizes:
            return [ObjectInfo(self.bucket, None, None)]
        text = repr(self._described()).encode("utf-8", "surrogateescape")
        return [ObjectInfo(self.bucket, sum(size or 0 for size in sizes), blake2b(text, digest_size=16).hexdigest())]

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield the output of the stages."""
        return self._open(report, fault)


def _url(source: Source, item: ObjectInfo) -> str:
    return without_secrets(source.locate(item.name))


def _named_together(tars: Sequence[LocatedShard]) -> str:
    """Return a name for several tars: the first one, and the number of others."""
    if not tars:
        return ""
    first = _url(*tars[0])
    return first if len(tars) == 1 else f"{first} and {len(tars) - 1} more"
