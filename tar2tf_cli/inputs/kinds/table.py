"""CSV and JSON Lines: where the rows of a file are and what they hold; a source whose inputs are chunks of them.

The columns of its samples are entries, or the paths of files.
"""

from __future__ import annotations

import csv
import io
import json
import os
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, cast

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import ListingInfo, OnBytes, OnFault, Samples, Source
from tar2tf_cli.api.values import KEY, Sample, SourceReport
from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, few, meant, read_failed, reason
from tar2tf_cli.features.feature_map import TypeName, give_types, number_of
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.image import headers
from tar2tf_cli.formats.streams import GZIP_MAGIC, IMAGE_SUFFIXES, sniff
from tar2tf_cli.inputs.base import ListSource, divided, shuffled
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.fields import Column
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import reach_of

Span: TypeAlias = tuple[int, int, int]
"""A row: its number from 1 without the header and blank rows, and its offset and size in bytes."""

Form: TypeAlias = Literal["csv", "jsonl"]

_LONGEST_CELL: Final = 2**31 - 1
_MARKS: Final = ",\t;"
_BOM: Final = b"\xef\xbb\xbf"
_HEAD: Final = 1 << 16


class Rows:
    """The rows of a file in UTF-8, which is open until it is closed; blank rows are skipped.

    Args:
        path: the file.
        header: whether the first row of a CSV file names its columns; otherwise their names are their numbers, from 1.
        form: `csv` with commas; by default, what the first line shows: JSON Lines if it begins with a brace, else CSV
            with commas, tabs or semicolons.

    Attributes:
        form: `csv` or `jsonl`.
        columns: the names in the header of a CSV file; empty without one.
        version: changes when the file does: its size, and its time of modification in nanoseconds.

    Raises:
        SourceError: when the file cannot be read.
        UsageError: when it has no header that could name columns.
    """

    def __init__(self, path: str, *, header: bool = True, form: Form | None = None) -> None:
        self.path = path
        self.columns: Sequence[str] = ()
        self._start = self._skipped = 0  # bytes and lines before the first row
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise read_failed(path, error) from None
        try:
            self._begin(header, form)
        except BaseException:
            self.close()
            raise

    def _begin(self, header: bool, form: Form | None) -> None:
        status = os.fstat(self._file.fileno())
        self.version = status.st_size, status.st_mtime_ns
        try:
            head = self._file.read(_HEAD)
        except OSError as error:
            raise read_failed(self.path, error) from None
        self._start = len(_BOM) if head.startswith(_BOM) else 0  # which does not belong to the first cell
        if head.startswith(GZIP_MAGIC):
            raise SourceError("is compressed with gzip", shard=self.path, hint="decompress it first: gzip -d FILE")
        text = head[self._start :].lstrip()
        self.form: Form = form or ("jsonl" if text.startswith((b"{", b"[")) else "csv")
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

    def spans(self) -> Iterator[Span]:
        """Yield the position of each row.

        Raises:
            SourceError: when the file cannot be read as CSV.
        """
        return (span for span, _ in self._each())

    def items(self) -> Iterator[tuple[Span, dict[str, object]]]:
        """Yield the position of each row, and its values as `parsed` returns them.

        Raises:
            SourceError: when the file cannot be read as CSV, or a row has no such values.
        """
        for span, row in self._each():
            try:
                yield span, _object(row) if isinstance(row, bytes) else self._by_column(row)
            except SampleError as error:
                raise SourceError(error.message, shard=self.path, member=f"row {span[0]}", hint=error.hint) from None

    def _each(self) -> Iterator[tuple[Span, bytes | list[str]]]:
        """The position of each row with its line of JSON, or its cells."""
        lines = _Lines(self._file, self._start, self._skipped)
        try:
            yield from self._json_rows(lines) if self.form == "jsonl" else self._csv_rows(lines)
        except OSError as error:
            raise read_failed(self.path, error) from None

    def _json_rows(self, lines: _Lines) -> Iterator[tuple[Span, bytes]]:
        number = 0
        for line in lines.raw():
            if line.strip():
                number += 1
                yield (number, lines.offset - len(line), len(line)), line

    def _csv_rows(self, lines: _Lines) -> Iterator[tuple[Span, list[str]]]:
        """Iterate over the rows of a CSV file, where a quoted cell may span several lines."""
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
            hint = "it has to be UTF-8, with closed quotes, and lines that end with LF or CRLF"
            raise SourceError(
                f"cannot be read as CSV: line {lines.number}: {reason}", shard=self.path, hint=hint
            ) from None

    def data(self, span: Span) -> bytes:
        """Return the bytes of a row.

        Raises:
            SourceError: when the file cannot be read.
        """
        try:
            return os.pread(self._file.fileno(), span[2], span[1])  # spans may be read at the same time
        except OSError as error:
            raise read_failed(self.path, error) from None

    def values(self, span: Span) -> dict[str, object]:
        """Return the values of a row by column, as `parsed` does."""
        return self.parsed(self.data(span))

    def parsed(self, data: bytes) -> dict[str, object]:
        """Return the values in a row's bytes by column: texts of CSV, or what JSON has: numbers, lists, objects.

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
        """Return the cells in the bytes of a row of CSV.

        Raises:
            SampleError: when they are not a row, although they were when its position was found.
        """
        try:
            line = data.decode()
            if '"' not in line:  # a third of the time
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


def no_rows(path: str) -> SourceError:
    """Make the error for a file without rows."""
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
    """The lines of a file as text, with the number of the last one, and the offset behind it."""

    def __init__(self, file: io.BufferedReader, start: int, skipped: int) -> None:
        self._file = file
        self.number = skipped
        self.offset = start
        file.seek(start)

    def raw(self) -> Iterator[bytes]:
        """Iterate over the lines of a file as bytes."""
        for line in self._file:
            self.number += 1
            self.offset += len(line)
            yield line

    def __iter__(self) -> Iterator[str]:
        for line in self.raw():
            yield line.decode()


def open_input(conversion: Conversion, endpoint: str | None) -> Source:
    """Return the source of the conversion's rows."""
    from tar2tf_cli.inputs.parquet import ParquetFiles, ParquetSource, is_parquet

    spec = conversion.input
    columns = {name: Column.parse(text) for name, text in spec.columns.items()}
    if is_parquet(spec.bucket) or any(map(is_parquet, spec.template)):
        files = ParquetFiles(spec.bucket, spec.template, **reach_of(spec.bucket, conversion, endpoint))
        return ParquetSource(files, columns, partial(entries_of_row, columns, os.path.dirname(spec.bucket)))
    return TableSource(
        spec.bucket,
        columns,
        seed=conversion.seed if conversion.shuffle else None,
        limit=conversion.limit,
    )


class RowsSource(ListSource):
    """The rows of a file; inputs are chunks of them.

    Args:
        bucket: the file.
        what: what kind of file it is, for errors.
        seed: shuffle the rows with this random seed.
        rows: first row in that order, from 0, and exclusive end; None for all.
        limit: the most rows to take of these.
    """

    def __init__(
        self, bucket: str, what: str, *, seed: int | None, rows: tuple[int, int] | None = None, limit: int | None
    ) -> None:
        super().__init__(bucket)
        self._what = what
        self._seed = seed
        self._rows = slice(*rows) if rows else slice(None)
        self._limit = limit
        self._chunks: dict[str, array[int]] = {}  # the positions of each input's rows, end to end
        self._count: int | None = None
        self._version = (0, 0)

    @abstractmethod
    def _opened(self) -> Rows:
        """Open the file."""

    def _check(self, rows: Rows) -> None:
        """See that the file has what is asked for; by default, nothing is."""

    def _listed(self, rows: Rows, span: Span) -> tuple[int, bytes]:
        """The size in bytes of a row, and what changes when it does."""
        return span[2], b"%d\0%d\0" % (span[0], span[2]) + rows.data(span)

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the rows, with their sizes in bytes and versions that are hashes of what is in them.

        Raises:
            SourceError: when the file cannot be read.
            UsageError: for a template, and for what the file lacks.
        """
        if templates:
            raise UsageError(f"is a single {self._what}, so it takes no template", shard=self.bucket)
        with self._opened() as rows:
            self._check(rows)
            self._version = rows.version
            spans = shuffled(list(rows.spans()), self._seed, lambda span: str(span[0]))
            if not spans:
                raise no_rows(self.bucket)
            spans = spans[self._rows][: self._limit]
            inputs = list(divided("rows", spans, lambda span: self._listed(rows, span)))
        self._count = len(spans)
        self._chunks = {item.name: array("Q", chain.from_iterable(chunk)) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def _spans(self, item: ObjectInfo) -> Iterator[Span]:
        """The positions of an input's rows."""
        positions = iter(self._chunks[item.name])
        return zip(positions, positions, positions, strict=True)


class TableSource(RowsSource):
    """The rows of a CSV or JSON Lines file; each of them is a sample.

    Args:
        bucket: the file, in UTF-8.
        columns: the column of each entry, and what its cells are. If there are none, every column is an entry, as it
            is. The entry `__key__` is the sample's key, which is otherwise the number of the row.
        seed: shuffle the rows with this random seed.
        limit: the most rows to take, from the first on.
    """

    def __init__(
        self, bucket: str, columns: Mapping[str, Column], *, seed: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(bucket, "table", seed=seed, limit=limit)
        self._columns = columns
        self._header = not (columns and all(column.name.isdecimal() for column in columns.values()))
        self._files = [column.name for column in columns.values() if column.is_file]
        self._folder = os.path.dirname(bucket)

    def listing_info(self) -> ListingInfo:
        """Return the number of rows."""
        return ListingInfo(self._count, self.skipped)

    def _opened(self) -> Rows:
        return Rows(self.bucket, header=self._header)

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each row, with its columns as entries.

        Raises:
            SourceError: when the table or a file that it names changed since it was listed, or cannot be read.
        """
        version = blake2b(digest_size=16)
        with self._opened() as rows:
            for span in self._spans(item):
                number, data, sample = span[0], rows.data(span), None
                values: Mapping[str, Any] = {}
                try:
                    values = rows.parsed(data)
                    sample = self._sample(str(number), values)
                except SampleError as error:
                    fault(error.at(key=str(number), member=f"row {number}"))
                # their versions are asked for after the files are read, to see that they are those listed
                total, described = self._described(number, data, values)
                version.update(described)
                if on_bytes:
                    on_bytes(total)
                if sample:
                    yield {"member": f"row {number}"}, sample
        if version.hexdigest() != item.version:
            raise changed(self.bucket)

    def _check(self, rows: Rows) -> None:
        """Check that a CSV file has the columns that are asked for."""
        known = rows.columns
        if not known:
            return
        if not self._columns and (number := next(filter(_is_number, known), None)):
            hint = "name the columns in the first row, or by number: --columns image=1:jpg,label=2:int64"
            raise UsageError(f"the first row does not look like a header: {number!r}", shard=self.bucket, hint=hint)
        for column in self._columns.values():
            if column.name not in known:
                hint = f"columns: {few(known, 8)}; where there is no header, name them by number: image=1:jpg"
                message = f"there is no column {column.name!r}{meant(column.name, known)}"
                raise UsageError(message, shard=self.bucket, hint=hint)

    def _listed(self, rows: Rows, span: Span) -> tuple[int, bytes]:
        """The size in bytes of a row and its files, and what changes when they do."""
        data, values = rows.data(span), {}
        if self._files:
            with suppress(SampleError):
                values = rows.parsed(data)
        return self._described(span[0], data, values)

    def _described(self, number: int, data: bytes, values: Mapping[str, object]) -> tuple[int, bytes]:
        """Return size and version of the row with this number, its bytes and its values."""
        total, described = len(data), b"%d\0%d\0" % (number, len(data)) + data
        for name in self._files:
            with suppress(SampleError):
                size, modified = _status(_path(self._folder, values.get(name)))
                total, described = total + size, described + b"%d\0%d\0" % (size, modified)
        return total, described

    def _sample(self, key: str, values: Mapping[str, object]) -> Sample:
        """The entries of a row.

        Raises:
            SampleError: when a cell is missing, or is not what its column holds.
        """
        if not self._columns:
            given = {name: value for name, value in values.items() if value is not None}
            return {KEY: _key(given.pop(KEY, key)), **{name: as_entry(name, value) for name, value in given.items()}}
        return entries_of_row(self._columns, self._folder, key, values)


def entries_of_row(columns: Mapping[str, Column], folder: str, key: str, values: Mapping[str, object]) -> Sample:
    """Return the sample of a row whose columns are named.

    Args:
        columns: the column of each entry, and what its cells are.
        folder: the folder of the paths that cells hold.
        key: the key of the sample, if no column has it.
        values: the cells by column; a column of files may also have their bytes.

    Raises:
        SampleError: when a cell is missing, or is not what its column holds.
    """
    sample: Sample = {KEY: key}
    for name, column in columns.items():
        value = values.get(column.name)
        if value is None:
            raise SampleError(f"has no value in the column {column.name!r}")
        if name == KEY:
            sample[KEY] = _key(value.decode() if isinstance(value, bytes) else value)
        elif column.is_file:
            sample[name] = _content(column, folder, value)
        else:
            sample[name] = _typed(column, value) if column.kind else as_entry(column.name, value)
    return sample


def _path(folder: str, cell: object) -> str:
    """The path of the file that a cell names; that of the table's folder is added.

    Raises:
        SampleError: when it is not a path.
    """
    if not isinstance(cell, str) or not cell:
        raise SampleError(f"the path of a file is {cell!r}" if cell else "the path of a file is empty")
    if is_remote(cell):
        raise SampleError(f"{cell} is a URL; the files of a table are read from a local disk")
    return os.path.join(folder, cell)


def _content(column: Column, folder: str, cell: object) -> bytes:
    """The bytes of the file that a cell names, or holds."""
    data, named = (cell, f"the column {column.name!r}") if isinstance(cell, bytes) else _read(column, folder, cell)
    if fault := _content_fault(column.kind, data):
        raise SampleError(f"the content of {named} is not {fault}", hint=f"{column.name}:file takes any file")
    return data


def _read(column: Column, folder: str, cell: object) -> tuple[bytes, str]:
    """The bytes and the path of the file that a cell names."""
    path = _path(folder, cell)
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(), path
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        raise SampleError(f"there is no file {path}, which the column {column.name!r} names") from None
    except OSError as error:
        raise read_failed(path, error) from None


def _content_fault(suffix: str, data: bytes) -> str | None:
    """Return what the suffix asks for, if the content of a file is not of that family; text and others may be any."""
    if suffix in IMAGE_SUFFIXES:
        return "an image" if headers.image_format(data) is None else None
    if suffix not in _FAMILIES:
        return None
    formats, named = _FAMILIES[suffix]
    return None if (sniff(data) or "").startswith(formats) else named


_FAMILIES: Final = {
    **dict.fromkeys(("flac", "m4a", "mp3", "ogg", "opus", "wav"), (("audio/", "video/mp4"), "a sound")),
    **dict.fromkeys(("avi", "mkv", "mp4", "webm"), (("video/",), "a video")),
    **{suffix: ((suffix,), f"an {suffix} file") for suffix in ("npy", "npz")},
}
"""Beginnings of the formats that `sniff` gives for files with a suffix, and what errors call them.

An MP4 may hold sound alone. `mov` is not among them, as older files begin with any box.
"""


def _typed(column: Column, value: object) -> object:
    """A number that ops can use, or else a feature of the column's type."""
    entry, kind = {column.name: value}, cast("TypeName", column.kind)
    if kind not in ("int64", "float"):
        give_types(entry, {column.name: kind})
        return entry[column.name]
    try:
        return number_of(value, kind)
    except (ValueError, OverflowError, TypeError) as error:
        raise SampleError(f"{column.name!r} is not of type {column.kind}: {reason(error)}") from None


def _key(value: object) -> str:
    """A key, which as a feature has to be UTF-8."""
    as_entry(KEY, text := str(value))
    return text


def as_entry(name: str, value: object) -> object:
    """Text as an entry of a tar has it, and other values of JSON as they are."""
    try:
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise SampleError(f"the text in the column {name!r} is not UTF-8") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _status(path: str) -> tuple[int, int]:
    """Size and time of modification of a file; 0 if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns
