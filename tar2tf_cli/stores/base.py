"""What every kind of source has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tar2tf_cli.errors import SampleError
    from tar2tf_cli.inputs.report import InputReport
    from tar2tf_cli.samples.grouping import Sample

__all__ = ["ByteStream", "Folder", "Input", "ListSource", "Remote", "Source"]


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


class Folder(Source, Protocol):
    """A bucket that may be asked for objects by their exact names."""

    def find(self, names: Sequence[str]) -> dict[str, Input]:
        """Those of the names that are there; nothing in a name is a wildcard.

        Raises:
            SourceError: when that cannot be told.
        """


@runtime_checkable
class Remote(Source, Protocol):
    """A bucket behind a network, where each object costs a round trip."""

    def expecting(self, items: Sequence[Input]) -> AbstractContextManager[None]:
        """Begin to fetch inputs that are to be opened inside the `with` block, all at once."""


class ListSource(ABC):
    """A source that is no shards but a long list, of files or rows, whose parts are the inputs.

    Order, seed and limit are applied to the list, before anything is read.

    Attributes:
        skipped: what was passed over when the list was made, by reason.
        count: how many samples the inputs have together, faulty ones included; None when only reading tells.
    """

    seekable = False
    repeatable = True

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()
        self.count: int | None = None

    @property
    @abstractmethod
    def documents(self) -> dict[str, bytes | None]:
        """What is to be written beside the manifest, by `NAME.SUFFIX`; None for what the reports of inputs describe."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What makes a conversion another one besides its spec and inputs."""

    @abstractmethod
    def list(self, templates: Sequence[str]) -> list[Input]:
        """The parts of the list, in order, and what tells that they changed: nothing is read but the listing.

        Raises:
            SourceError: when it cannot be listed.
        """

    @abstractmethod
    def samples(
        self,
        item: Input,
        report: InputReport,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None = None,
    ) -> Generator[tuple[str, Sample], None, None]:
        """The samples of an input, each with the name of the file or row that it is made of.

        Args:
            item: the input.
            report: counts the samples that became examples; gets what was skipped, and what describes the stored.
            fault: called with what cannot become a sample.
            on_bytes: called with the number of bytes after each read.

        Raises:
            SourceError: when something cannot be read, or changed since it was listed.
        """

    def open(self, item: Input) -> ByteStream:
        """Not to be opened as one stream."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """The bucket's path; which file or row is meant, the sample tells."""
        return self.bucket
