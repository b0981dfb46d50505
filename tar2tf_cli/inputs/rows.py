"""The rows of tables in CSV or JSON Lines: the files that a user names, positions of their rows, and values."""

from __future__ import annotations

import csv
import io
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.store import Store, at_folder
from tar2tf_cli.api.values import Batch, RowsJoined
from tar2tf_cli.errors import NothingFoundError, SampleError, SourceError, UsageError, few, read_failed
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.streams import LFS_POINTER, LFS_PULL, compression_of, open_stream
from tar2tf_cli.inputs.base import LocatedShard, MergedSource
from tar2tf_cli.inputs.tar_samples import SeekableShard
from tar2tf_cli.spec.templates import expand
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote, without_secrets
from tar2tf_cli.stores import open_source

if TYPE_CHECKING:
    from typing_extensions import Unpack

RowSpan: TypeAlias = tuple[int, int, int]
"""A row: its number from 1 without the header and blank rows, and its offset and size in bytes."""

TableFormat: TypeAlias = Literal["csv", "jsonl"]

_BLOCK: Final = 1 << 20
_LONGEST_CELL: Final = 2**31 - 1
_MARKS: Final = ",\t;"
_BOM: Final = b"\xef\xbb\xbf"
_HEAD: Final = 1 << 16


class Rows:
    """The rows of an open UTF-8 file of CSV or JSON Lines; blank rows are skipped.

    Args:
        path: the file.
        header: whether the first row of a CSV file names its columns; otherwise their names are their numbers, from 1.
        form: `csv` with commas; by default, detected from the first line: JSON Lines if it begins with a brace,
            otherwise CSV with commas, tabs or semicolons.
        file: the open file, if it is not the one at the path; `path` is then its name in errors.

    Attributes:
        form: `csv` or `jsonl`.
        columns: the names in the header of a CSV file; empty without one.
        version: the file's size, and its modification time in nanoseconds.

    Raises:
        SourceError: when the file cannot be read.
        UsageError: when it has no header that could name columns.
    """

    def __init__(
        self, path: str, *, header: bool = True, form: TableFormat | None = None, file: io.BufferedReader | None = None
    ) -> None:
        self.path = path
        self.columns: Sequence[str] = ()
        self._start = self._skipped = 0  # bytes and lines before the first row
        try:
            self._file = file or open(path, "rb")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise read_failed(path, error) from None
        try:
            self._begin(header, form)
        except BaseException:
            self.close()
            raise

    def _begin(self, header: bool, form: TableFormat | None) -> None:
        status = os.fstat(self._file.fileno())
        self.version = status.st_size, status.st_mtime_ns
        try:
            head = self._file.read(_HEAD)
        except OSError as error:
            raise read_failed(self.path, error) from None
        self._start = len(_BOM) if head.startswith(_BOM) else 0  # the byte order mark is not part of the first cell
        if method := compression_of(head):
            raise SourceError(f"is compressed with {method}", shard=self.path, hint="decompress it first")
        text = head[self._start :].lstrip()
        for begins, what, hint in _NO_TABLES:
            if text[: len(begins)].lower() == begins:
                raise SourceError(f"is {what}, not a table", shard=self.path, hint=hint)
        self.form: TableFormat = form or ("jsonl" if text.startswith((b"{", b"[")) else "csv")
        first, *_ = text.splitlines() or [b""]
        self._mark = "," if form else max(_MARKS, key=lambda mark: first.count(mark.encode()))
        if self.form == "csv" and header:
            self._read_header()

    def _read_header(self) -> None:
        number, offset, size = next(self.spans(), (0, 0, 0))
        if not number:
            raise no_rows(self.path)
        names = [name.strip() for name in self.cells(self.data((number, offset, size)))]
        self._start, self._skipped = offset + size, self.data((0, 0, offset + size)).count(b"\n")
        if not all(names) or len(set(names)) < len(names):
            what = "has a column without a name" if not all(names) else "names a column twice"
            raise UsageError(f"the first row {what}: {few(names, 8)}", shard=self.path, hint=_HEADER)
        self.columns = names

    def spans(self) -> Iterator[RowSpan]:
        """Yield the position of each row.

        Raises:
            SourceError: when the file cannot be read as CSV.
        """
        return (span for span, _ in self._each())

    def items(self) -> Iterator[tuple[RowSpan, dict[str, object]]]:
        """Yield the position of each row, and its values as returned by `parsed`.

        Raises:
            SourceError: when the file cannot be read as CSV, or a row cannot be parsed.
        """
        for span, row in self._each():
            try:
                yield span, _object(row) if isinstance(row, bytes) else self._by_column(row)
            except SampleError as error:
                raise SourceError(error.message, shard=self.path, member=f"row {span[0]}", hint=error.hint) from None

    def _each(self) -> Iterator[tuple[RowSpan, bytes | list[str]]]:
        """Yield the position of each row with its line of JSON, or its cells."""
        lines = _Lines(self._file, self._start, self._skipped)
        try:
            yield from self._json_rows(lines) if self.form == "jsonl" else self._csv_rows(lines)
        except OSError as error:
            raise read_failed(self.path, error) from None

    def _json_rows(self, lines: _Lines) -> Iterator[tuple[RowSpan, bytes]]:
        number = 0
        for line in lines.raw():
            if line.strip():
                number += 1
                yield (number, lines.offset - len(line), len(line)), line

    def _csv_rows(self, lines: _Lines) -> Iterator[tuple[RowSpan, list[str]]]:
        """Iterate over the rows of a CSV file, in which a quoted cell may span several lines."""
        reader, number = self._reader(lines), 0
        try:
            while True:
                start = lines.offset
                row = next(reader, None)
                if row is None:
                    return
                if row:
                    number += 1
                    yield (number, start, lines.offset - start), row
        except (csv.Error, UnicodeDecodeError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            hint = "it must be UTF-8, with closed quotes, and lines that end with LF or CRLF"
            raise SourceError(
                f"cannot be read as CSV: line {lines.number}: {reason}", shard=self.path, hint=hint
            ) from None

    def hashed(self, key: str, file: int) -> array[int] | None:
        """Return four integers for each row, as `HashTable` expects them, by the kernel; None if a row is not plain.

        Args:
            key: the column whose hash is the first integer.
            file: the second integer; the others are offset and size.

        Raises:
            SourceError: when the file cannot be read.
        """
        native, form = kernel.native(), self._kernel_form(key)
        if native is None or form is None:
            return None
        names, column, mark = form
        rows, offset = array("Q"), self._start
        try:
            self._file.seek(offset)
            while lines := self._file.read(_BLOCK) + self._file.readline():
                made = native.table(lines, mark, names, column, file, offset)
                if made is None or not made[1]:
                    return None
                rows.frombytes(made[0])
                offset += made[1]
                if made[1] < len(lines):  # the last row goes on in the next lines
                    self._file.seek(offset)
        except OSError as error:
            raise read_failed(self.path, error) from None
        return rows

    def joined(self, rows: bytes, found: bytes, batch: Batch, key: str) -> RowsJoined | None:
        """Join the rows with the keys of the samples of a batch, by the kernel; None if one of them is not plain.

        Args:
            rows: the integers that `hashed` returned, in order.
            found: for each key, the number of the first row with its hash, as signed 64-bit integers; negative for
                none.
            batch: the samples.
            key: the column with the key.
        """
        native, form = kernel.native(), self._kernel_form(key)
        return batch.joined(native, rows, found, *form, {0: self._file.fileno()}, []) if native and form else None

    def _kernel_form(self, key: str) -> tuple[list[str], int, bytes] | None:
        """Return names of columns, the number of the key's, and the mark for the kernel; None without such a column."""
        if self.form == "jsonl":
            return [key], 0, b"{"
        columns = [*self.columns]
        return (columns, columns.index(key), self._mark.encode()) if key in columns else None

    def data(self, span: RowSpan) -> bytes:
        """Return the bytes of a row, given its position.

        Raises:
            SourceError: when the file cannot be read.
        """
        try:
            return os.pread(self._file.fileno(), span[2], span[1])  # spans may be read concurrently
        except OSError as error:
            raise read_failed(self.path, error) from None

    def values(self, span: RowSpan) -> dict[str, object]:
        """Return the values of a row by column, given its position."""
        return self.parsed(self.data(span))

    def parsed(self, data: bytes) -> dict[str, object]:
        """Parse a row's bytes to values by column: text in CSV; numbers, lists or objects in JSON too.

        Raises:
            SampleError: when the row has more or fewer cells than the header, or is not a JSON object.
        """
        if self.form == "jsonl":
            return _object(data)
        return self._by_column(self.cells(data))

    def _by_column(self, cells: list[str]) -> dict[str, object]:
        columns = self.columns or [str(number) for number in range(1, len(cells) + 1)]
        if len(cells) != len(columns):
            raise SampleError(f"the row has {len(cells)} cells, but the header names {len(columns)} columns")
        return dict(zip(columns, cells, strict=True))

    def cells(self, data: bytes) -> list[str]:
        """Return the cells in the bytes of a CSV row.

        Raises:
            SampleError: when the bytes are not a row, although they were when its position was found.
        """
        try:
            line = data.decode()
            if '"' not in line:  # a fast path that takes a third of the time
                return line.rstrip("\r\n").split(self._mark)
            return next(self._reader([line]))
        except (UnicodeDecodeError, csv.Error):
            raise SampleError("the row can no longer be read as CSV: the file changed meanwhile") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        csv.field_size_limit(_LONGEST_CELL)
        return csv.reader(lines, delimiter=self._mark, strict=True)


_HEADER: Final = "name the columns in the first row; without such a row, name them by number: image=1:jpg,label=2:int64"


_OBJECTS: Final = "write one object per line; for a JSON list, use jq -c '.[]'"


_PAGE: Final = "fetch the table itself"

_NO_TABLES: Final = (
    (LFS_POINTER, "a Git LFS pointer", LFS_PULL),
    (b"<?xml", "an XML document, perhaps an error page", _PAGE),
    (b"<!doctype html", "a web page, perhaps an error page", _PAGE),
    (b"<html", "a web page, perhaps an error page", _PAGE),
)
"""How files begin that would pass for CSV, but are none; what they are, and what to do."""


def no_rows(path: str) -> SourceError:
    """Return the error for a file without rows."""
    return SourceError("has no rows", shard=path, hint="list one example per line")


def _object(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"the row is not JSON: {error}", hint=_OBJECTS) from None
    if not isinstance(value, dict):
        raise SampleError("the row is not a JSON object", hint=_OBJECTS)
    return value


class _Lines:
    """The lines of a file as text, with the number of the current line and the offset after it."""

    def __init__(self, file: io.BufferedReader, start: int, skipped: int) -> None:
        self._file = file
        self.number = skipped
        self.offset = start
        file.seek(start)

    def raw(self) -> Iterator[bytes]:
        """Iterate over the lines as bytes."""
        for line in self._file:
            self.number += 1
            self.offset += len(line)
            yield line

    def __iter__(self) -> Iterator[str]:
        for line in self.raw():
            yield line.decode()


# --- Files ---


SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson")
"""The suffixes of tables, before that of a compression."""

_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz")
_KEPT: Final = 64  # copies of tables per process


def is_named_as_table(name: str) -> bool:
    """Whether a path, URL or template has the suffix of a table in CSV or JSON Lines.

    >>> is_named_as_table("s3://bucket/{captions.jsonl.gz,labels.csv*}")
    True
    """
    return all(map(has_table_suffix, expand(without_secrets(name))))


def has_table_suffix(name: str) -> bool:
    """Whether a file name has the suffix of a table in CSV or JSON Lines, compressed or not."""
    plain = name.lower().rstrip("*")
    for suffix in _COMPRESSED:
        plain = plain.removesuffix(suffix)
    return plain.endswith(SUFFIXES)


class TableFiles:
    """The CSV or JSON Lines tables that a user names: by file, folder, template, URL, or several paths.

    A table that is compressed, or in a store, is copied to a temporary file, from which rows are read by offset.

    Args:
        bucket: the path or URL.
        templates: templates for the names of files in it or, if it is a file, further paths.
        connection: `ConnectionOptions` of the bucket's server.

    Raises:
        SourceError: when a path does not exist.
    """

    def __init__(self, bucket: str, templates: Sequence[str] = (), **connection: Unpack[ConnectionOptions]) -> None:
        self.bucket = bucket
        self._templates = templates
        self._source: Source
        if templates and os.path.isfile(bucket):
            self._templates = ()
            several = [TableFiles(path) for path in (bucket, *templates)]
            self._source = MergedSource([LocatedShard(one._source, item) for one in several for item in one.list()])
        else:
            self._source = open_source(bucket, **connection)

    def list(self) -> list[ObjectInfo]:
        """List the tables; in a folder without a template, the files that have a table's suffix.

        Raises:
            SourceError: when there are none.
        """
        source, bucket = self._source, self.bucket
        if self._templates or source.templates or os.path.isfile(bucket) or is_named_as_table(bucket):
            return source.list(self._templates)
        with suppress(NothingFoundError):
            if found := [item for item in source.list(("**/*",)) if has_table_suffix(item.name)]:
                return found
        hint = "name them with a template, such as '*.txt'"
        raise NothingFoundError(f"holds no files that end with {', '.join(SUFFIXES)}", shard=bucket, hint=hint)

    def locate(self, item: ObjectInfo) -> str:
        """Return the path or URL of a table."""
        return self._source.locate(item.name)

    def store(self, item: ObjectInfo) -> Store | None:
        """Return the store of a table, at the table's folder; None for a local table."""
        store = self._source.store
        folder = os.path.dirname(item.name)
        return store and at_folder(store, f"{store.root}{folder}/" if folder else store.root)

    def open(self, item: ObjectInfo, *, header: bool = True) -> Rows:
        """Open a table.

        Raises:
            SourceError: when it cannot be read, or is not the version that was listed.
            SinkError: when the disk has no space for a copy.
            UsageError: when it has no header that could name columns.
        """
        name = self.locate(item)
        if not is_remote(name) and not _is_compressed(name):
            return Rows(name, header=header)
        place = name, item.version
        if place not in _copies:
            while len(_copies) >= _KEPT:
                del _copies[next(iter(_copies))]
            _copies[place] = SeekableShard(lambda: open_stream(self._source.open(item), name), name, seekable=False)
        return Rows(name, header=header, file=io.BufferedReader(_CopiedFile(_copies[place])))


_copies: Final[dict[tuple[str, str | int | None], SeekableShard]] = {}
"""Copies of tables in this process, by their names and versions, so that each task need not fetch them again."""


def _is_compressed(path: str) -> bool:
    """Whether a local file is compressed."""
    try:
        with open(path, "rb", buffering=0) as file:
            return compression_of(file.read(_HEAD)) is not None
    except OSError as error:
        raise read_failed(path, error) from None


class _CopiedFile(io.RawIOBase):
    """A file with its own position in the copy of a table, as forked processes share the copy's position."""

    def __init__(self, copy: SeekableShard) -> None:
        super().__init__()
        self._copy = copy  # the copy is closed when garbage-collected
        self._view = copy.view()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a copy is read from an offset on")
        self._view.seek(offset)
        return offset

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._view.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def fileno(self) -> int:
        return self._copy.fileno()
