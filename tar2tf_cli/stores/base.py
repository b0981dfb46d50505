"""The interface of every kind of source, and of random access to its inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import UsageError
from tar2tf_cli.formats.streams import ByteStream
from tar2tf_cli.spec.urls import is_remote, without_secrets

_SUFFIX: Final = re.compile(r"(?is)(?<=.)\.(?:tgz|(?:tar|(?:tf)?records?)(?:\.(?:gz|zst|bz2|xz|zlib))?)\Z")

IN_FLIGHT: Final = 32
"""Number of inputs that one process fetches at once, which hides the latency of most networks."""

T = TypeVar("T")


class ObjectInfo(NamedTuple):
    """One input shard.

    Attributes:
        name: the object's name in its bucket.
        size: size in bytes as stored; None when it is known only after reading to the end.
        version: changes when the object's bytes do, such as an ETag or modification time; None when there is none.
        checksum: kind and value of a checksum of its bytes, if a listing has it.
    """

    name: str
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None

    @property
    def stem(self) -> str:
        """Return the name without folders and without `.tar`, `.tar.gz`, `.record`, `.tfrecord` and the like."""
        base = self.name.rpartition("/")[2]
        match = _SUFFIX.search(base)
        return base[: match.start()] if match else base


Samples: TypeAlias = "Generator[tuple[Mapping[str, str | None], Sample], None, None]"
"""Samples and the origin of each, as errors name it: a file or row as `member`, a tar as `shard`."""

OnBytes: TypeAlias = "Callable[[int], None] | None"
"""Called with the number of bytes after each read."""

OnFault: TypeAlias = Callable[[Any], None]
"""Called with the error of each faulty sample; when it returns, the sample is skipped."""


class Ranges(Protocol):
    """Reads ranges of a bucket's inputs, for one process and all its threads.

    Attributes:
        gap: how many bytes between two ranges cost less to read than another call.
        parallel: how many calls at once are worth it.
    """

    gap: int
    parallel: int

    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Return `size` bytes of an input from an offset on; fewer only at its end.

        Raises:
            SourceError: when they cannot be read, or the input is not the version that was listed.
        """


class Capabilities(NamedTuple):
    """What a source can do besides listing its inputs and reading each from front to back.

    Attributes:
        seekable: whether the streams have a cheap `seek`.
        repeatable: whether an input can be opened twice.
        resumable: whether a later run can know that the inputs are the same.
        remote: whether each object costs a network round trip.
        gives: what `samples` yields: entries of bytes, as in a tar, entries of any type, or examples, which are written
            unchanged.
        ordered: whether `list` already applies the conversion's shuffling and limit.
        threads: how many threads make the examples of one input; None for as many as are useful.
    """

    seekable: bool = False
    repeatable: bool = True
    resumable: bool = True
    remote: bool = False
    gives: Literal["bytes", "values", "examples"] = "bytes"
    ordered: bool = False
    threads: int | None = None


class ListingInfo(NamedTuple):
    """What a source knows of its inputs once they are listed.

    Attributes:
        samples: how many samples they have in all, faulty ones included; None when that is known only after reading.
        skipped: how many items were skipped when they were listed, by reason.
        classes: names of the classes of an image folder, sorted.
        documents: files to write beside the manifest, by `NAME.SUFFIX`; None for content that is in the reports.
        identity: what identifies a conversion besides its spec and inputs.
        listed_by: keys of a conversion's spec that only say which inputs there are, as their names do.
    """

    samples: int | None = None
    skipped: Mapping[str, int] = MappingProxyType({})
    classes: Sequence[str] = ()
    documents: Mapping[str, bytes | None] = MappingProxyType({})
    identity: Mapping[str, Any] = MappingProxyType({})
    listed_by: Sequence[str] = ("input.template", "input.tars")


READ_ONCE: Final = Capabilities(repeatable=False, resumable=False)
"""The abilities of a stream that somebody else has opened."""


class Source(Protocol):
    """A bucket of shards: it lists, opens and locates them. What else it can do, it says when it is asked.

    Sources can be pickled: each worker gets one and opens inputs by itself. A subclass implements `list`, `open` and
    `locate`; the defaults of the rest suit most.

    Attributes:
        bucket: the bucket as the user gave it.
        templates: what is listed unless templates are given: the last part of a bucket such as `shards/*.tar`.
        joined: what is joined to its samples (`inputs.joined.Joined`).
        described: the features of inputs by their names, where a manifest describes them (`Schema.describe`).
    """

    bucket: str
    templates: Sequence[str] = ()
    described: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    joined: Sequence[Any] = ()

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the inputs that match the templates, in order.

        Raises:
            SourceError: when the bucket or an object in it does not exist or may not be read.
        """

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open an input at its first byte.

        Raises:
            SourceError: when it cannot be opened, or is not the version that was listed; here or at the first read.
        """

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return those of the names that exist beside the inputs, literally; none by default.

        Raises:
            SourceError: when the store cannot be reached or refuses.
        """
        return {}

    def locate(self, name: str) -> str:
        """Return the path or URL of an object, for messages and logs."""

    def capabilities(self) -> Capabilities:
        """Return what the source can do besides."""
        return Capabilities()

    def known(self) -> ListingInfo:
        """Return what is known of the inputs that were listed."""
        return ListingInfo()

    def paths(self, items: Sequence[ObjectInfo]) -> Sequence[str]:
        """Locations of the inputs, which must not be overwritten."""
        return [self.locate(item.name) for item in items]

    def expecting(self, items: Sequence[ObjectInfo], most: int = IN_FLIGHT) -> AbstractContextManager[None]:
        """Start fetching the inputs that will be opened inside the `with` block, in this order.

        Args:
            items: the inputs.
            most: how many are fetched before the first is opened; each that is opened begins another.
        """
        return nullcontext()

    def asked_for(self, name: str, templates: Sequence[str]) -> bool:
        """Whether just this object was asked for, by its name or a template, and not all that is in a folder."""
        return bool(templates or self.templates) or not (os.path.isdir(self.bucket) or is_remote(self.bucket))

    def samples(self, item: ObjectInfo, report: Any, fault: OnFault, on_bytes: OnBytes = None) -> Samples | None:
        """Yield the samples of an input, each with its origin; None for a tar.

        Args:
            item: the input.
            report: the InputReport, to which skips and descriptions of stored examples are added.
            fault: called with the error of each faulty sample.
            on_bytes: called with the number of bytes after each read.

        Raises:
            SourceError: when something cannot be read, or changed since it was listed.
        """
        return None

    def list_anyway(self, templates: Sequence[str]) -> Sequence[ObjectInfo]:
        """Like `list`, but inputs that exist and cannot be read are listed, too, if the source knows of them."""
        return self.list(templates)

    def store(self) -> Any | None:
        """Return the `Store` that has the inputs; None where they are elsewhere."""
        return None

    def ranges(self) -> Ranges:
        """Return a reader of ranges of the inputs, for this process.

        Raises:
            UsageError: when inputs can only be read from front to back.
        """
        raise UsageError("can only be read from front to back", shard=self.bucket, hint="write it to a file first")


class Ahead(Generic[T]):
    """What will be taken soon, begun in that order and a few at a time.

    Args:
        items: what will be taken.
        begin: begins to fetch one, and returns what `take` will give for it.
        most: how many are begun before the first is taken; each that is taken begins another.
    """

    def __init__(self, items: Iterable[ObjectInfo], begin: Callable[[ObjectInfo], T], most: int) -> None:
        self._coming = iter([*items])
        self._begin = begin
        self._begun: dict[ObjectInfo, T] = {}
        for _ in range(most):
            self._begin_next()

    def _begin_next(self) -> None:
        if item := next(self._coming, None):
            self._begun[item] = self._begin(item)

    def take(self, item: ObjectInfo) -> T | None:
        """Return what was begun for an item, once; None if nothing was."""
        self._begin_next()
        return self._begun.pop(item, None)

    def rest(self) -> list[T]:
        """Return what nobody took; nothing more is begun."""
        self._coming = iter(())
        left = [*self._begun.values()]
        self._begun.clear()
        return left


def templates_of(source: Source, templates: Sequence[str]) -> Sequence[str]:
    """Return templates, or those in a source's bucket where none are given.

    Raises:
        UsageError: when there are both, or one is a URL.
    """
    if url := next(filter(is_remote, templates), None):
        hint = "give one bucket, then names of shards in it, such as '{a,b}.tar'"
        message = f"{without_secrets(url)!r} is a URL, not the name of a shard in this bucket"
        raise UsageError(message, shard=source.bucket, hint=hint)
    if templates and source.templates:
        message = f"{source.templates[0]!r} is a template already, so it cannot be followed by {templates[0]!r}"
        raise UsageError(message, shard=source.bucket, hint="give a bucket first, then its templates")
    return templates or source.templates
