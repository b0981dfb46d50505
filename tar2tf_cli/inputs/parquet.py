"""Parquet files: their row groups, the values of their rows, and a source whose inputs are row groups.

Files are read by ranges, both in folders and in stores, and only the requested columns.
"""

from __future__ import annotations

import io
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import calcsize
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Capabilities, ListingInfo, OnBytes, OnFault, Ranges, Samples, SampleSource
from tar2tf_cli.api.values import KEY, ArrowColumn, Sample, SourceReport
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError, did_you_mean, few
from tar2tf_cli.formats.image import headers
from tar2tf_cli.inputs.base import stems_of
from tar2tf_cli.spec.fields import Column
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote
from tar2tf_cli.stores import open_source
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Unpack

SUFFIX: Final = ".parquet"
KEY_COLUMNS: Final = (KEY, "key")
_KEPT: Final = 4  # row groups in memory, for rows that are read by their numbers; more where they are small
_KEPT_BYTES: Final = 1 << 25
_COLUMN: Final = 1 << 13  # values of a column of keys converted to Python at once
_BATCH: Final = 64  # rows converted to Python at once; an image takes some hundred kilobytes
_BLOB: Final = {"bytes", "path"}  # fields of the structs in which Hugging Face stores images, sounds and videos

Row: TypeAlias = dict[str, object]


class RowGroup(NamedTuple):
    """A row group of a Parquet file.

    Attributes:
        file: the file.
        number: its number in the file, from 0.
        first: the number of its first row in the file, from 0.
        rows: the number of its rows.
        size: the size in bytes of the columns that are read, as stored.
    """

    file: ObjectInfo
    number: int
    first: int
    rows: int
    size: int


class ArrowColumns(NamedTuple):
    """The columns of a row group in memory, as the kernel takes them.

    Attributes:
        names: their names.
        rows: the number of rows.
        columns: a letter for the type of each, and its buffers.
    """

    names: list[str]
    rows: int
    columns: list[ArrowColumn]


def is_parquet(bucket: str) -> bool:
    """Whether a path, URL or template names Parquet files, or a folder with no other readable files."""
    if bucket.lower().endswith(SUFFIX):
        return True
    if is_remote(bucket) or not os.path.isdir(bucket):
        return False
    names = [os.path.splitext(name)[1].lower() for name in os.listdir(bucket)]
    return SUFFIX in names and not {".tar", ".csv", ".jsonl", ".record", ".tfrecord"} & {*names}


def _pyarrow() -> ModuleType:
    """Import `pyarrow.parquet`, or explain how to install it.

    Raises:
        UsageError: when the package is not installed.
    """
    try:
        import pyarrow.parquet  # only here, as it takes a tenth of a second
    except ImportError:
        hint = "pip install 'tar2tf-cli[parquet]'"
        raise UsageError("Parquet files need the package pyarrow", hint=hint) from None
    return pyarrow.parquet  # type: ignore[no-any-return]


class _RangeFile(io.RawIOBase):
    """A file-like object over byte ranges of a source's object."""

    def __init__(self, ranges: Ranges, item: ObjectInfo, count: Callable[[int], None]) -> None:
        super().__init__()
        self._ranges, self._item, self._count = ranges, item, count
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._item.size or 0}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max((self._item.size or 0) - self._position, 0)
        data = self._ranges.read(self._item, self._position, left if size < 0 else min(size, left)) if left else b""
        self._position += len(data)
        self._count(len(data))
        return data


class ParquetFiles:
    """The Parquet files named by a path, URL, folder or template.

    Args:
        bucket: the path or URL.
        templates: templates for the names of files in it.
        connection: `ConnectionOptions` of the bucket's server.

    Raises:
        SourceError: when a path does not exist.
    """

    def __init__(self, bucket: str, templates: Sequence[str] = (), **connection: Unpack[ConnectionOptions]) -> None:
        self.bucket = bucket
        self._templates = templates
        self._source = open_source(bucket, **connection)
        self._read: dict[tuple[str, int], Any] = {}  # tables of pyarrow
        self._plain: dict[tuple[str, int], ArrowColumns | None] = {}  # of these tables
        self._open: tuple[int, Ranges] | None = None  # of this process; forked processes do not share it

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": None, "_read": {}, "_plain": {}}

    def close(self) -> None:
        """Close the files, and discard cached row groups."""
        self._open = None
        self._read = {}
        self._plain = {}

    def _ranges(self) -> Ranges:
        """Return this process's reader of ranges, for files that were listed, as a listing may move to their folder."""
        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), self._source.ranges()
        return self._open[1]

    def list(self) -> list[ObjectInfo]:
        """List the files in order of their names.

        Raises:
            SourceError: when there are none.
        """
        source = self._source
        named = self._templates or source.templates or self.bucket.lower().endswith(SUFFIX)
        return source.list(self._templates if named else (f"**/*{SUFFIX}",))

    def locate(self, item: ObjectInfo) -> str:
        """Return the path or URL of a file."""
        return self._source.locate(item.name)

    def open(self, item: ObjectInfo, count: Callable[[int], None] = lambda size: None) -> Any:
        """Return a file as pyarrow's `ParquetFile`.

        Args:
            item: the file.
            count: called with the number of bytes after each read.

        Raises:
            DamagedShardError: when it is not a Parquet file.
        """
        parquet = _pyarrow()
        ahead = self._source.capabilities.remote  # in threads, with which a process is not forked
        try:
            return parquet.ParquetFile(_RangeFile(self._ranges(), item, count), pre_buffer=ahead)
        except (ValueError, OSError) as error:  # pyarrow's errors are subclasses of these
            raise self._damaged(item, error) from None

    def rows(
        self, group: RowGroup, columns: Sequence[str] | None, count: Callable[[int], None] = lambda size: None
    ) -> Iterator[Row]:
        """Iterate over the rows of a row group, each as values by column.

        Raises:
            DamagedShardError: when they cannot be read.
        """
        file = self.open(group.file, count)
        try:
            for batch in file.iter_batches(_BATCH, row_groups=[group.number], columns=columns, use_threads=False):
                yield from batch.to_pylist()
        except (ValueError, OSError) as error:
            raise self._damaged(group.file, error) from None

    def column(self, group: RowGroup, name: str) -> Iterator[Sequence[object]]:
        """Iterate over the values of one column of a row group, several at a time.

        Raises:
            DamagedShardError: when they cannot be read.
        """
        file = self.open(group.file)
        try:
            for batch in file.iter_batches(_COLUMN, row_groups=[group.number], columns=[name], use_threads=False):
                yield batch.column(0).to_pylist()
        except (ValueError, OSError) as error:
            raise self._damaged(group.file, error) from None

    def rows_at(self, item: ObjectInfo, group: int, numbers: Sequence[int]) -> Sequence[Row]:
        """Return several rows of a row group; recently read row groups are cached.

        Raises:
            DamagedShardError: when they cannot be read.
        """
        table = self._group(item, group)
        if len(numbers) == 1:  # `take` imports pyarrow.compute, which takes a tenth of a second
            return table.slice(numbers[0], 1).to_pylist()  # type: ignore[no-any-return]
        return table.take(numbers).to_pylist()  # type: ignore[no-any-return]

    def arrow_columns(self, item: ObjectInfo, group: int) -> ArrowColumns | None:
        """Return the columns of a row group for the kernel; None if one is not of text, bytes, integers or floats.

        Raises:
            DamagedShardError: when they cannot be read.
        """
        table = self._group(item, group)
        place = item.name, group
        if place not in self._plain:
            columns = [_arrow_column(table.column(number)) for number in range(table.num_columns)]
            plain = [column for column in columns if column]
            names = table.column_names
            fits = len(plain) == len(columns)
            self._plain[place] = ArrowColumns(names, table.num_rows, plain) if fits else None
        return self._plain[place]

    def _group(self, item: ObjectInfo, group: int) -> Any:
        """Return a row group as a table of pyarrow; recently read row groups are cached."""
        place = item.name, group
        if place not in self._read:
            file = self.open(item)
            try:
                self._read[place] = file.read_row_group(group, use_threads=False).combine_chunks()
            except (ValueError, OSError) as error:
                raise self._damaged(item, error) from None
            while len(self._read) > _KEPT and sum(table.nbytes for table in self._read.values()) > _KEPT_BYTES:
                oldest = next(iter(self._read))
                del self._read[oldest]
                self._plain.pop(oldest, None)
        return self._read[place]

    def groups(self, columns: Sequence[str] | None) -> Iterator[RowGroup]:
        """Iterate over the row groups of all files.

        Raises:
            UsageError: when a file lacks a column.
        """
        for item in self.list():
            file = self.open(item)
            self._check(item, file.schema_arrow.names, columns or ())
            first = 0
            for number in range(file.metadata.num_row_groups):
                about = file.metadata.row_group(number)
                chunks = [about.column(place) for place in range(about.num_columns)]
                size = sum(
                    chunk.total_compressed_size
                    for chunk in chunks
                    if columns is None or chunk.path_in_schema.partition(".")[0] in columns
                )
                if about.num_rows:
                    yield RowGroup(item, number, first, about.num_rows, size)
                first += about.num_rows

    def _check(self, item: ObjectInfo, known: Sequence[str], columns: Sequence[str]) -> None:
        """Raise an error for requested columns that a file lacks."""
        if missing := next((name for name in columns if name not in known), None):
            what = f"there is no column {missing!r}{did_you_mean(missing, known)}"
            raise UsageError(what, shard=self.locate(item), hint=f"columns: {few(known, 8)}")

    def _damaged(self, item: ObjectInfo, error: Exception) -> DamagedShardError:
        text = " ".join(str(error).split())
        return DamagedShardError(f"cannot be read as Parquet: {text}", shard=self.locate(item))


def _arrow_column(column: Any) -> ArrowColumn | None:
    """Return the letter and buffers of a column; None if it has not text, bytes, floats or integers of int64."""
    name = str(column.type)
    if column.num_chunks != 1 or name not in _LETTERS or column.chunk(0).offset:
        return None
    letter, width = _LETTERS[name]
    valid, *ends, values = column.chunk(0).buffers()
    if width and values is not None:  # by hand, as `cast` imports pyarrow.compute, which takes a tenth of a second
        try:
            whole = memoryview(values).cast("B")[: calcsize(width) * len(column)]
            values = array("q" if letter == "i" else "d", whole.cast(width)).tobytes()
        except OverflowError:  # an integer above those of int64
            return None
    return letter, valid, ends[0] if ends else None, values


_LETTERS: Final[Mapping[str, tuple[str, Any]]] = {
    **dict.fromkeys(("string", "binary"), ("s", "")),
    **dict.fromkeys(("large_string", "large_binary"), ("S", "")),
    "int8": ("i", "b"),
    "int16": ("i", "h"),
    "int32": ("i", "i"),
    "int64": ("i", ""),
    "uint8": ("i", "B"),
    "uint16": ("i", "H"),
    "uint32": ("i", "I"),
    "uint64": ("i", "Q"),
    "float": ("d", "f"),
    "double": ("d", ""),
}
"""Types of Apache Arrow: their letter in the kernel's `joined`, and the typecode of numbers that have not 64 bits."""


def value_of(name: str, value: object) -> object:
    """Convert a value of a row to an entry: text to bytes, dates to text, numbers unchanged.

    Raises:
        SampleError: when a text is not UTF-8, or a struct of bytes and a path has no bytes.
    """
    if isinstance(value, str):
        return value.encode()
    if is_blob(value):
        if value["bytes"] is None:
            raise SampleError(f"the column {name!r} has the path {value['path']!r}, but no bytes")
        return value["bytes"]
    if value is None or isinstance(value, (bytes, bool, int, float, list, dict)):
        return value
    return (value.isoformat() if hasattr(value, "isoformat") else str(value)).encode()


def is_blob(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a struct of bytes and path, as Hugging Face stores files."""
    return isinstance(value, dict) and value.keys() == _BLOB


def entry_name(name: str, value: object) -> str:
    """Return the name of a column's entry, which ends with the extension if the column holds files.

    >>> entry_name("image", {"bytes": None, "path": "a/b.PNG"})
    'image.png'
    """
    if not is_blob(value):
        return name
    kind = headers.image_format(value["bytes"]) if value["bytes"] else None
    named = os.path.splitext(value["path"] or "")[1].lstrip(".").lower()
    suffix = {"jpeg": "jpg"}.get(kind, kind) if kind else named
    return f"{name}.{suffix}" if suffix and not name.lower().endswith(f".{suffix}") else name


EntriesOf: TypeAlias = Callable[[str, Mapping[str, object]], Sample]
"""Makes the sample of a row, given its key without a column for it, and its values."""


class ParquetSource(SampleSource):
    """The rows of Parquet files, with row groups as inputs.

    Args:
        files: the files.
        columns: the column of each entry, and the type of its cells; if there are none, every column is an entry.
        entries_of: makes the sample of a row whose columns are named.
    """

    capabilities = Capabilities(gives="values", threads=1)

    def __init__(self, files: ParquetFiles, columns: Mapping[str, Column], entries_of: EntriesOf) -> None:
        self.bucket = files.bucket
        self._files = files
        self._columns = columns
        self._entries_of = entries_of
        self._wanted = [*dict.fromkeys(column.name for column in columns.values())] or None
        self._groups: dict[str, RowGroup] = {}
        self._stems: dict[str, str] = {}

    def listing_info(self) -> ListingInfo:
        """Return the number of rows."""
        return ListingInfo(sum(group.rows for group in self._groups.values()))

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the row groups, with the sizes of the selected columns.

        Raises:
            SourceError: when there are none, or a file cannot be read.
            UsageError: when a file lacks a column.
        """
        groups = {f"{group.file.name} row group {group.number}": group for group in self._files.groups(self._wanted)}
        if not groups:
            raise SourceError("has no rows", shard=self.bucket)
        self._groups = groups
        self._stems = stems_of([*dict.fromkeys(group.file.name for group in groups.values())])
        return [ObjectInfo(name, group.size, group.file.version) for name, group in groups.items()]

    def locate(self, name: str) -> str:
        """Return the path or URL of the file, as the samples themselves name their row."""
        group = self._groups.get(name)
        return self._files.locate(group.file) if group else self.bucket

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each row of a row group.

        Raises:
            SourceError: when the file changed since it was listed, or cannot be read.
        """
        group = self._groups[item.name]
        stem = self._stems[group.file.name]
        rows = self._files.rows(group, self._wanted, on_bytes or (lambda size: None))
        for number, values in enumerate(rows, group.first):
            key = f"{stem}-{number:06d}"
            try:
                sample = self._sample(key, values)
            except SampleError as error:
                fault(error.at(shard=self._files.locate(group.file), key=key, member=f"row {number + 1}"))
                continue
            yield {"member": f"row {number + 1}"}, sample

    def _sample(self, key: str, values: Row) -> Sample:
        """Return the sample of a row."""
        if self._columns:
            return self._entries_of(key, {name: value_of(name, value) for name, value in values.items()})
        column = next((name for name in KEY_COLUMNS if values.get(name) is not None), None)
        sample: Sample = {KEY: key if column is None else key_text(values.pop(column))}
        return sample | entries(values)


def key_text(value: object) -> str:
    """Convert a value to the text of a key."""
    if type(value) is str:
        return value
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def key_texts(values: Sequence[Any]) -> Sequence[str]:
    """Convert the values of a column, which have one type, to the texts of keys."""
    return values if values and type(values[0]) is str else [*map(key_text, values)]


def entries(values: Row) -> Sample:
    """Return the values of a row as entries, except nulls.

    Raises:
        SampleError: when a value cannot be an entry.
    """
    return {
        entry_name(name, value) if isinstance(value, dict) else name: value_of(name, value)
        for name, value in values.items()
        if value is not None
    }
