"""What every kind of source has in common."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tar2tf_cli.formats.bytestream import ByteStream

__all__ = ["Folder", "ObjectInfo", "Remote", "Source"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One input shard.

    Attributes:
        name: the object's name in its bucket.
        size: bytes as stored; None when only reading to the end would tell.
        version: what changes when the object's bytes do, an ETag or a time of modification; None when unknowable.
        checksum: kind and value of a checksum of its bytes, where a listing tells it.
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


class Source(Protocol):
    """A bucket of shards.

    Sources pickle: a worker gets one and opens inputs by itself.

    Attributes:
        bucket: the bucket as the user gave it.
        seekable: whether the streams have `seek`, at no cost of note.
        repeatable: whether an input can be opened twice.
    """

    bucket: str
    seekable: bool
    repeatable: bool

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
            SourceError: when that cannot be told.
        """


@runtime_checkable
class Remote(Source, Protocol):
    """A bucket behind a network, where each object costs a round trip."""

    def expecting(self, items: Sequence[ObjectInfo]) -> AbstractContextManager[None]:
        """Begin to fetch inputs that are to be opened inside the `with` block, all at once."""
