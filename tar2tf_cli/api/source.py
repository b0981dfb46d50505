"""The interface of a source: shards that can be listed and read, wherever they are.

A source lists its inputs, opens each from front to back, and reads ranges of them. A subclass implements `list`, `open`
and `locate`; the other methods have defaults that suit most sources. Two optional interfaces are derived from it: a
`SampleSource` has samples instead of shards, and a `DistantSource` can fetch inputs while the listing that finds them
continues. Sources are pickled to worker processes: open files and connections belong to the process that made them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tar2tf_cli.api.objects import ByteStream, ObjectInfo, SeekableStream
from tar2tf_cli.api.values import Sample, SourceReport
from tar2tf_cli.errors import DamagedShardError, Location, SampleError, UsageError
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from _typeshed import HasFileno

    from tar2tf_cli.api.store import Store

IN_FLIGHT: Final = 32
"""Number of inputs that one process fetches at once, which hides the latency of most networks."""


class Ranges(ABC):
    """Random access to the inputs of a source, for one process and all its threads.

    Attributes:
        parallel: the number of concurrent calls above which reading becomes no faster.
    """

    parallel: int

    @property
    @abstractmethod
    def gap(self) -> int:
        """Largest gap in bytes between two ranges that costs less to read than a second call; may change over time."""

    @abstractmethod
    def read(self, item: ObjectInfo, start: int, size: int) -> bytes:
        """Return `size` bytes of an input, starting at an offset; fewer only at its end.

        Callers may rely on bytes of the listed version. The implementation may cache bytes, and read more than
        requested.

        Raises:
            SourceError: when the bytes cannot be read, or the input is not the listed version.
        """

    def read_each(self, item: ObjectInfo, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges of an input, each given by its offset and size; by default one after the other.

        Raises:
            SourceError: as from `read`.
        """
        return [self.read(item, start, size) for start, size in spans]

    def open_files(self, items: Sequence[ObjectInfo]) -> Sequence[HasFileno] | None:
        """Return several inputs as open files, from which the kernel reads; closed once the caller discards them.

        The result is None, as by default, if they are not files on this machine, or more than should be open at once.

        Raises:
            SourceError: when a file cannot be opened, or is not the listed version.
        """
        return None

    def open(self, item: ObjectInfo) -> SeekableStream:
        """Open an input of known size at its first byte, to be read mostly from front to back.

        By default, the stream reads ranges.

        Raises:
            SourceError: when bytes cannot be read, or the input is not the listed version; only on a read.
        """
        return RangeStream(partial(self.read, item))

    def look_up(self, names: Sequence[str]) -> dict[str, ObjectInfo] | None:
        """Return the objects that exist under a few names, with their first bytes kept for `read`.

        The result is None, as by default, if only `Source.find` can look up objects.

        Raises:
            SourceError: when the bucket cannot be reached or refuses.
        """
        return None


class RangeStream:
    """A stream that reads from a position on, with a function that reads ranges."""

    def __init__(self, read: Callable[[int, int], bytes], position: int = 0) -> None:
        self._read = read
        self._position = position

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""
        data = self._read(self._position, size)
        self._position += len(data)
        return data

    def seek(self, offset: int, /) -> None:
        """Go to an offset."""
        self._position = offset

    def close(self) -> None:
        """Do nothing, as nothing is open."""


class Capabilities(NamedTuple):
    """Optional abilities of a source, beyond listing its inputs and reading each from front to back.

    Attributes:
        seekable: whether the streams have a cheap `seek`.
        repeatable: whether an input can be opened twice.
        resumable: whether a later run can know that the inputs are unchanged.
        remote: whether each object costs a network round trip.
        gives: the kind of samples: entries of bytes, as in a tar; entries of any type; or examples, which are written
            unchanged.
        ordered: whether `list` already applies the conversion's shuffling and limit.
        threads: number of threads that make the examples of one input; None for as many as are useful.
    """

    seekable: bool = False
    repeatable: bool = True
    resumable: bool = True
    remote: bool = False
    gives: Literal["bytes", "values", "examples"] = "bytes"
    ordered: bool = False
    threads: int | None = None


READ_ONCE: Final = Capabilities(repeatable=False, resumable=False)
"""Capabilities of a stream that the caller has opened."""


class ListingInfo(NamedTuple):
    """Facts about the inputs that a source knows once it has listed them.

    Attributes:
        samples: number of samples in all inputs, including faulty ones; None when it is known only after reading.
        skipped: number of items that the listing skipped, by reason.
        classes: names of the classes of an image folder, sorted.
        documents: files to write next to the manifest, by `NAME.SUFFIX`; None for content that is in the reports.
        identity: facts that identify a conversion, in addition to its spec and inputs.
        listed_by: keys of a conversion's spec that only determine its inputs, whose names are recorded anyway.
        paths: paths and URLs from which the inputs are read, if they differ from the inputs' own.
        hidden: names of objects that are hidden or in hidden folders, by the listed prefix.
    """

    samples: int | None = None
    skipped: Mapping[str, int] = MappingProxyType({})
    classes: Sequence[str] = ()
    documents: Mapping[str, bytes | None] = MappingProxyType({})
    identity: Mapping[str, object] = MappingProxyType({})
    listed_by: Sequence[str] = ("input.template", "input.tars")
    paths: Sequence[str] | None = None
    hidden: Mapping[str, Sequence[str]] = MappingProxyType({})


Samples: TypeAlias = "Generator[tuple[Location, Sample], None, None]"
"""Samples and the origin of each, as errors name it: a file or row as `member`, a tar as `shard`."""

OnBytes: TypeAlias = "Callable[[int], None] | None"
"""Called with the number of bytes after each read."""

OnFile: TypeAlias = Callable[[ObjectInfo], None]
"""Called with each input that a listing finds, before the listing has ended."""

SampleFault: TypeAlias = SampleError | DamagedShardError
"""The error of a faulty sample, or of damage that destroyed some samples."""

OnFault: TypeAlias = Callable[[SampleFault], None]
"""Called with the error of each faulty sample; when it returns, the sample is skipped."""


class Source(ABC):
    """A bucket of shards that can be listed and opened; `capabilities` says what else the source can do.

    Attributes:
        bucket: the bucket as the user gave it.
        templates: templates to list when the caller gives none: the last part of a bucket such as `shards/*.tar`.
        capabilities: the optional abilities of the source, which never change.
        store: the store that holds the inputs; None if they are not in a store.
    """

    bucket: str
    templates: Sequence[str] = ()
    capabilities = Capabilities()
    store: Store | None = None

    @abstractmethod
    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the inputs that match the templates, in order.

        Callers may rely on the order (by template, then by name) and on each input being listed once. The source
        decides how many requests it sends.

        Raises:
            SourceError: when the bucket or an object in it does not exist or may not be read.
        """

    @abstractmethod
    def open(self, item: ObjectInfo) -> ByteStream:
        """Open an input at its first byte.

        Callers may rely on getting every byte of the listed version, or an error if the stream ends early or the object
        was replaced. The source decides about retries, resumption and read-ahead.

        Raises:
            SourceError: when the input cannot be opened, or is not the listed version; here or on any read.
        """

    @abstractmethod
    def locate(self, name: str) -> str:
        """Return the path or URL of an object without secrets, for messages, logs and manifests."""

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return the objects with exactly these names next to the inputs; none by default.

        Raises:
            SourceError: when the bucket cannot be reached or refuses.
        """
        return {}

    def listing_info(self) -> ListingInfo:
        """Return facts about the inputs; call it after `list`."""
        return ListingInfo()

    def prefetch(self, items: Sequence[ObjectInfo], most: int = IN_FLIGHT) -> AbstractContextManager[None]:
        """Start fetching the inputs that will be opened inside the `with` block, in this order.

        Callers may open other inputs, or none. By default, nothing is fetched in advance.

        Args:
            items: the inputs.
            most: number of inputs to start fetching before the first is opened; opening one starts another.
        """
        return nullcontext()

    def ranges(self) -> Ranges:
        """Return a reader of ranges of the inputs, for this process.

        Raises:
            UsageError: when inputs can only be read from front to back, as by default.
        """
        raise UsageError("can only be read from front to back", shard=self.bucket, hint="write it to a file first")

    def list_with_unreadable(self, templates: Sequence[str]) -> Sequence[ObjectInfo]:
        """List inputs as `list` does, including those that exist but cannot be read, if the source can find them."""
        return self.list(templates)


class SampleSource(Source):
    """A source whose inputs are lists of samples, such as rows of a table, in place of shards."""

    def open(self, item: ObjectInfo) -> ByteStream:
        """Raise an error: samples cannot be opened as a stream."""
        raise NotImplementedError

    @abstractmethod
    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield the samples of an input, each with its origin.

        Args:
            item: the input.
            report: receives skips and descriptions of stored examples.
            fault: called with the error of each faulty sample.
            on_bytes: called with the number of bytes after each read.

        Raises:
            SourceError: when an input cannot be read, or has changed since it was listed.
        """


class DistantSource(Source):
    """A source whose listing takes so long that callers fetch what it has found before it ends."""

    @abstractmethod
    def while_listing(self, on_file: OnFile) -> AbstractContextManager[None]:
        """Have a function called with each input as soon as a listing inside the `with` block finds it.

        The function may call `begin`; inputs that were not opened by the end of the block are closed.
        """

    @abstractmethod
    def begin(self, item: ObjectInfo) -> None:
        """Start fetching an input that will be opened soon."""
