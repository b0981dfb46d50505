"""What every kind of source has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ByteStream", "Input", "Source"]


@dataclass(frozen=True, slots=True)
class Input:
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


class ByteStream(Protocol):
    """An open input: raw bytes as stored, front to back."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" only at the end."""

    def close(self) -> None:
        """Let go of the file or connection."""


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

    def list(self, templates: Sequence[str]) -> list[Input]:
        """The inputs that templates stand for, in order.

        Raises:
            SourceError: when the bucket or an object of it is not there or may not be read.
        """

    def open(self, item: Input) -> ByteStream:
        """Open an input at its first byte.

        Raises:
            SourceError: when it cannot be opened, or is not the version that was listed; here or at the first read.
        """

    def locate(self, name: str) -> str:
        """The path or URL of an object, for messages and logs."""
