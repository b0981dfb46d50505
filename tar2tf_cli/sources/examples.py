"""A CSV file whose rows describe examples, and your class that makes them; its inputs are chunks of its rows."""

from __future__ import annotations

import csv
import inspect
import io
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.ops.func import load_object, source_digest
from tar2tf_cli.samples import KEY, Sample
from tar2tf_cli.sources.base import ByteStream, Input
from tar2tf_cli.sources.chunks import chunks, shuffled

if TYPE_CHECKING:
    from tar2tf_cli.recorder import Example

__all__ = ["ExamplesSource", "count_rows", "find_class"]

_LONGEST_FIELD: Final = 2**31 - 1
_METHODS: Final = ("from_csv_row", "load", "split")


class ExamplesSource:
    """The examples that the rows of a CSV file describe, without a header, blank rows left out.

    Args:
        bucket: the CSV file, in UTF-8.
        example_class: a subclass of `recorder.Example`, or where to find one.
        example_args: what its methods `from_csv_row`, `load` and `split` are called with.
        seed: shuffle the rows, the order drawn from it.
        rows: number of the first row in that order, and of the one behind the last; None for all.

    Raises:
        SourceError: when there is no such file.
        UsageError: when there is no such class, or none of its methods takes an argument.
    """

    seekable = False
    repeatable = True

    def __init__(
        self,
        bucket: str,
        example_class: type[Example] | str,
        example_args: Mapping[str, Any],
        *,
        seed: int | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        self.bucket = bucket
        self.skipped: dict[str, int] = {}
        self._class = example_class
        self._seed = seed
        self._rows = slice(*rows) if rows else slice(None)
        self._chunks: dict[str, array[int]] = {}  # row number, offset and size in bytes, one behind the other
        self._version: tuple[int, int] = (0, 0)
        self._args = _arguments(find_class(example_class), example_args)

    @property
    def documents(self) -> dict[str, bytes]:
        """What is to be written beside the manifest and known already: nothing."""
        return {}

    @property
    def identity(self) -> dict[str, Any]:
        """What makes a conversion another one besides its spec and rows: the class, by its attributes and source."""
        found = find_class(self._class)
        return {"fields": dict(found.fields()), "digest": source_digest(found)}

    def list(self, templates: Sequence[str]) -> list[Input]:
        """Chunks of the rows; sizes in bytes, versions from their text.

        Raises:
            SourceError: when the file cannot be read as CSV.
        """
        if templates:
            raise UsageError("a file of examples is a single one, so it takes no template", shard=self.bucket)
        try:
            with open(self.bucket, "rb") as file:
                status = os.fstat(file.fileno())
                self._version = (status.st_size, status.st_mtime_ns)
                places = list(_scan(file, self.bucket))
                if not places:
                    raise SourceError("holds no rows", shard=self.bucket)
                places = shuffled(places, self._seed, lambda place: str(place[0]))[self._rows]
                return [self._input(f"rows {span}", chunk, file) for span, chunk in chunks(places)]
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", shard=self.bucket) from None

    def open(self, item: Input) -> ByteStream:
        """Not to be opened: an input is a choice of rows."""
        raise NotImplementedError

    def samples(
        self, item: Input, fault: Callable[[SampleError], None], on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[Sample]:
        """The samples of an input: `__key__`, the row's number from 1, and the attributes in declared order."""
        return ExampleReading(self, item, fault, on_bytes).samples()

    def read(
        self, item: Input, fault: Callable[[SampleError], None], on_bytes: Callable[[int], None] | None = None
    ) -> ExampleReading:
        """Begin to make the examples of an input."""
        return ExampleReading(self, item, fault, on_bytes)

    def rows(self, item: Input) -> Iterator[tuple[int, list[str], int]]:
        """Number from 1, cells and size in bytes of each row of an input.

        Raises:
            SourceError: when the file cannot be read, or changed since it was listed.
        """
        places = self._chunks[item.name]
        try:
            with open(self.bucket, "rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != self._version:
                    raise SourceError(
                        "changed while it was being converted",
                        shard=self.bucket,
                        hint="start again when its writer is done",
                    )
                for position in range(0, len(places), 3):
                    number, offset, size = places[position : position + 3]
                    file.seek(offset)
                    yield number, next(csv.reader(io.StringIO(_text(file.read(size)), newline=""))), size
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", shard=self.bucket) from None

    def locate(self, name: str) -> str:
        """The file's path; which row is meant, the sample tells."""
        return self.bucket

    def _input(self, name: str, places: Sequence[tuple[int, int, int]], file: io.BufferedReader) -> Input:
        self._chunks[name] = array("Q", [number for place in places for number in place])
        digest = blake2b(digest_size=16)
        for number, offset, size in places:
            file.seek(offset)
            digest.update(b"%d\0%d\0" % (number, size) + file.read(size))
        return Input(name, sum(size for _, _, size in places), digest.hexdigest())


class ExampleReading:
    """The examples of one input, made one by one, each released when it is stored.

    Attributes:
        ignored: examples that their class had ignored.
        kept: CSV text that describes those of which something was stored.
        stored: how many records have been stored so far; to be counted up by whoever stores them.
    """

    def __init__(
        self,
        source: ExamplesSource,
        item: Input,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._source = source
        self._item = item
        self._fault = fault
        self._on_bytes = on_bytes
        self._kept = io.StringIO()
        self.ignored = 0
        self.stored = 0

    @property
    def kept(self) -> str:
        return self._kept.getvalue()
