"""What every kind of source has in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.samples.grouping import Sample
from tar2tf_cli.spec.urls import is_remote

__all__ = ["Folder", "ObjectInfo", "Placed", "Source"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One input shard.

    Attributes:
        name: the object's name in its bucket.
        size: bytes as stored; None when only reading to the end would tell.
        version: what changes when the object's bytes do, an ETag or a time of modification; None when unknowable.
        checksum: kind and value of a checksum of its bytes, where a listing has it.
    """

    name: str
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None

    @property
    def stem(self) -> str:
        """The name without folders and without `.tar`, `.tar.gz` or `.tgz`."""
        base = self.name.rpartition("/")[2]
        for suffix in (".tar.gz", ".tgz", ".tar"):
            if base.lower().endswith(suffix) and len(base) > len(suffix):
                return base[: -len(suffix)]
        return base


Placed: TypeAlias = "tuple[Mapping[str, str | None], Sample]"
"""Where a sample is from, as faults name it: a file or row as `member`, a tar as `shard`."""


class Source(Protocol):
    """A bucket of shards; a conversion asks it what it can do.

    Sources pickle: a worker gets one and opens inputs by itself. A class that derives from this one has to say how
    inputs are listed, opened and named; the rest is as it is for most.

    Attributes:
        bucket: the bucket as the user gave it.
        seekable: whether the streams have `seek`, at no cost of note.
        repeatable: whether an input can be opened twice.
        remote: whether each object costs a round trip.
        ordered: whether the inputs are listed shuffled and limited already, as the conversion asks.
        threads: how many threads make the examples of one input; None for as many as gain by it.
        gives: what `samples` gives: entries of bytes, as a tar has them, entries of any type, or examples, which are
            to be written as they are.
        count: how many samples the inputs have together, faulty ones included; None when it must be read to know.
        skipped: how much was skipped when the inputs were listed, by reason.
    """

    bucket: str
    seekable: bool = False
    repeatable: bool = True
    remote: bool = False
    ordered: bool = False
    threads: int | None = None
    gives: Literal["bytes", "values", "examples"] = "bytes"
    count: int | None = None
    skipped: Mapping[str, int] = MappingProxyType({})

    @property
    def identity(self) -> dict[str, Any]:
        """What makes a conversion another one besides its spec and inputs."""
        return {}

    @property
    def documents(self) -> dict[str, bytes | None]:
        """What is to be written beside the manifest, by `NAME.SUFFIX`; None for what the reports of inputs describe."""
        return {}

    def paths(self, items: Sequence[ObjectInfo]) -> Sequence[str]:
        """Where inputs are, none of which may be written over."""
        return [self.locate(item.name) for item in items]

    def expecting(self, items: Sequence[ObjectInfo]) -> AbstractContextManager[None]:
        """Begin to fetch inputs that are to be opened inside the `with` block, all at once."""
        return nullcontext()

    def asked_for(self, name: str, templates: Sequence[str]) -> bool:
        """Whether just this object was asked for, by its name or a template, and not all that is in a folder."""
        return bool(templates) or not (os.path.isdir(self.bucket) or is_remote(self.bucket))

    def samples(
        self,
        item: ObjectInfo,
        report: Any,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None = None,
    ) -> Generator[Placed, None, None] | None:
        """The samples of an input, each with where it is from; None for a tar.

        Args:
            item: the input.
            report: the InputReport, which gets what was skipped and what describes the stored.
            fault: called with what cannot become a sample.
            on_bytes: called with the number of bytes after each read.

        Raises:
            SourceError: when something cannot be read, or changed since it was listed.
        """
        return None

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """The inputs that templates stand for, in order.

        Raises:
            SourceError: when the bucket or an object of it is not there or may not be read.
        """

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open an input at its first byte.

        Raises:
            SourceError: when it cannot be opened, or is not the version that was listed; here or at the first read.
        """

    def locate(self, name: str) -> str:
        """The path or URL of an object, for messages and logs."""


class Folder(Source, Protocol):
    """A bucket that may be asked for objects by their exact names."""

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Those of the names that are there; nothing in a name is a wildcard.

        Raises:
            SourceError: when the store cannot be asked.
        """
