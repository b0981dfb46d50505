"""Sources whose inputs are chunks of the rows of tables in CSV or JSON Lines.

The columns of their samples are entries, or the paths of files.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Capabilities, ListingInfo, OnBytes, OnFault, Samples, SampleSource, Source
from tar2tf_cli.api.values import KEY, Sample, SourceReport
from tar2tf_cli.errors import SampleError, UsageError, changed, did_you_mean, few, reason
from tar2tf_cli.features.feature_map import TypeName, give_types, number_of
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.image import headers
from tar2tf_cli.formats.streams import IMAGE_SUFFIXES, sniff
from tar2tf_cli.inputs.base import ListSource, divided, shuffled, stems_of
from tar2tf_cli.inputs.row_files import ConnectionFor, RowFiles
from tar2tf_cli.inputs.rows import Rows, RowSpan, TableFiles, no_rows
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.fields import Column
from tar2tf_cli.stores import connection_options

if TYPE_CHECKING:
    from tar2tf_cli.spec.urls import ConnectionOptions


def open_input(conversion: Conversion, endpoint: str | None) -> Source:
    """Return the source of the conversion's rows."""
    from tar2tf_cli.inputs.parquet import ParquetFiles, ParquetSource, is_parquet

    spec = conversion.input
    columns = {name: Column.parse(text) for name, text in spec.columns.items()}
    if is_parquet(spec.bucket) or any(map(is_parquet, spec.template)):
        files = ParquetFiles(spec.bucket, spec.template, **connection_options(spec.bucket, conversion, endpoint))
        named = RowFiles(os.path.dirname(spec.bucket), None, partial(_row_connection, conversion, endpoint))
        return ParquetSource(files, columns, partial(entries_of_row, columns, named))
    tables = TableFiles(spec.bucket, spec.template, **connection_options(spec.bucket, conversion, endpoint))
    first, *others = tables.list()
    connection_for = partial(_row_connection, conversion, endpoint)
    if others:
        return TablesSource(tables, [first, *others], columns, connection_for)
    return TableSource(
        tables,
        first,
        columns,
        connection_for,
        seed=conversion.seed if conversion.shuffle else None,
        limit=conversion.limit,
    )


def _row_connection(conversion: Conversion, endpoint: str | None, url: str) -> ConnectionOptions:
    """Return the connection options for URLs in cells: the input's own options if they apply to the URL's store."""
    return {**connection_options(url, conversion, endpoint), "no_sign_request": conversion.input.no_sign_request}


class RowsSource(ListSource):
    """The rows of a file, with chunks of rows as inputs.

    Args:
        bucket: the file.
        seed: shuffle the rows with this random seed.
        rows: first row in that order, from 0, and exclusive end; None for all.
        limit: the maximum number of these rows.
    """

    def __init__(
        self, bucket: str, *, seed: int | None, rows: tuple[int, int] | None = None, limit: int | None
    ) -> None:
        super().__init__(bucket)
        self._seed = seed
        self._rows = slice(*rows) if rows else slice(None)
        self._limit = limit
        self._chunks: dict[str, array[int]] = {}  # the concatenated positions of each input's rows
        self._count: int | None = None
        self._version = (0, 0)

    @abstractmethod
    def _opened(self) -> Rows:
        """Open the file of rows."""

    def _check(self, rows: Rows) -> None:
        """Check that the file has the requested columns; does nothing by default."""

    def _listed(self, rows: Rows, span: RowSpan, spans: Sequence[RowSpan]) -> tuple[int, bytes]:
        """Return the size in bytes of one of several rows, and a version that changes when the row does."""
        return span[2], b"%d\0%d\0" % (span[0], span[2]) + rows.data(span)

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the rows, with their sizes in bytes, and hashes of their content as versions.

        Raises:
            SourceError: when the file cannot be read.
            UsageError: when the file lacks a column.
        """
        with self._opened() as rows:
            self._check(rows)
            self._version = rows.version
            spans = shuffled(list(rows.spans()), self._seed, lambda span: str(span[0]))
            if not spans:
                raise no_rows(self.bucket)
            spans = spans[self._rows][: self._limit]
            inputs = list(divided("rows", spans, lambda span: self._listed(rows, span, spans)))
        self._count = len(spans)
        self._chunks = {item.name: array("Q", chain.from_iterable(chunk)) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def _spans(self, item: ObjectInfo) -> Iterator[RowSpan]:
        """Return the positions of an input's rows."""
        positions = iter(self._chunks[item.name])
        return zip(positions, positions, positions, strict=True)


class TableSource(RowsSource):
    """The rows of a CSV or JSON Lines file, each of which is a sample.

    Args:
        tables: the tables that the user named.
        table: the file, in UTF-8.
        columns: the column of each entry, and the type of its cells. If there are none, every column is an entry,
            unchanged. The entry `__key__` is the sample's key.
        connection_for: gives the connection options of URLs in cells.
        stem: the beginning of keys, before the six-digit number of the row, if no column contains the key; without it,
            a key is just that number.
        seed: shuffle the rows with this random seed.
        limit: the maximum number of rows, counted from the first.
    """

    def __init__(
        self,
        tables: TableFiles,
        table: ObjectInfo,
        columns: Mapping[str, Column],
        connection_for: ConnectionFor,
        *,
        stem: str = "",
        seed: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(tables.locate(table), seed=seed, limit=limit)
        self._tables, self._table = tables, table
        self._columns = columns
        self._stem = stem
        self._header = not (columns and all(column.name.isdecimal() for column in columns.values()))
        self._files = [column.name for column in columns.values() if column.is_file]
        self._named = RowFiles(os.path.dirname(self.bucket), tables.store(table), connection_for)

    def listing_info(self) -> ListingInfo:
        """Return the number of rows."""
        return ListingInfo(self._count, self.skipped)

    def _opened(self) -> Rows:
        return self._tables.open(self._table, header=self._header)

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each row, with its columns as entries.

        Raises:
            SourceError: when the table or a file that it names changed since it was listed, or cannot be read.
        """
        version = blake2b(digest_size=16)
        self._named.forget_versions()
        with self._opened() as rows:
            found = ((span[0], rows.data(span)) for span in self._spans(item))
            parsed = ((number, data, *self._parsed(rows, data)) for number, data in found)
            for number, data, values, unparsed in self._named.ahead(parsed, lambda row: self._cells(row[2])):
                key, sample = f"{self._stem}-{number:06d}" if self._stem else str(number), None
                try:
                    if unparsed:
                        raise unparsed
                    sample = self._sample(key, values)
                except SampleError as error:
                    fault(error.at(key=key, member=f"row {number}"))
                # request versions after reading, to verify that they are the listed ones
                total, described = self._described(number, data, values)
                version.update(described)
                if on_bytes:
                    on_bytes(total)
                if sample:
                    yield {"member": f"row {number}"}, sample
        if version.hexdigest() != item.version:
            raise changed(self.bucket)

    def _check(self, rows: Rows) -> None:
        """Check that a CSV file has the requested columns."""
        self._named.forget_versions()
        known = rows.columns
        if not known:
            return
        if not self._columns and (number := next(filter(_is_number, known), None)):
            hint = "name the columns in the first row, or by number: --columns image=1:jpg,label=2:int64"
            raise UsageError(f"the first row does not look like a header: {number!r}", shard=self.bucket, hint=hint)
        for column in self._columns.values():
            if column.name not in known:
                hint = f"columns: {few(known, 8)}; where there is no header, name them by number: image=1:jpg"
                message = f"there is no column {column.name!r}{did_you_mean(column.name, known)}"
                raise UsageError(message, shard=self.bucket, hint=hint)

    def _listed(self, rows: Rows, span: RowSpan, spans: Sequence[RowSpan]) -> tuple[int, bytes]:
        """Return the size in bytes of a row and its files, and a version that changes when they do."""
        data = rows.data(span)
        values, _ = self._parsed(rows, data) if self._files else ({}, None)
        if any(map(self._named.is_unknown, self._cells(values))):
            every = (self._parsed(rows, rows.data(one))[0] for one in spans)
            self._named.look_up(cell for row in every for cell in self._cells(row))
        return self._described(span[0], data, values)

    @staticmethod
    def _parsed(rows: Rows, data: bytes) -> tuple[Mapping[str, object], SampleError | None]:
        """Return the values of a row; none, and the error, if it is faulty."""
        try:
            return rows.parsed(data), None
        except SampleError as error:
            return {}, error

    def _cells(self, values: Mapping[str, object]) -> Sequence[object]:
        """Return the cells of a row that name files."""
        return [values.get(name) for name in self._files]

    def _described(self, number: int, data: bytes, values: Mapping[str, object]) -> tuple[int, bytes]:
        """Return size and version of a row, given its number, bytes and values."""
        total, described = len(data), b"%d\0%d\0" % (number, len(data)) + data
        for cell in self._cells(values):
            with suppress(SampleError):
                size, version = self._named.version(cell)
                total, described = total + size, described + version
        return total, described

    def _sample(self, key: str, values: Mapping[str, object]) -> Sample:
        """Return the sample of a row.

        Raises:
            SampleError: when a cell is missing, or is not what its column holds.
        """
        if not self._columns:
            given = {name: value for name, value in values.items() if value is not None}
            return {KEY: _key(given.pop(KEY, key)), **{name: as_entry(name, value) for name, value in given.items()}}
        return entries_of_row(self._columns, self._named, key, values)


class TablesSource(SampleSource):
    """The rows of several CSV or JSON Lines files; each input is a chunk of the rows of one file.

    Args:
        tables: the tables that the user named.
        items: the files.
        columns: the column of each entry, as for a single file.
        connection_for: gives the connection options of URLs in cells.
    """

    capabilities = Capabilities(gives="values", threads=1)

    def __init__(
        self,
        tables: TableFiles,
        items: Sequence[ObjectInfo],
        columns: Mapping[str, Column],
        connection_for: ConnectionFor,
    ) -> None:
        self.bucket = tables.bucket
        stems = stems_of([item.name for item in items])
        self._sources = {
            item.name: TableSource(tables, item, columns, connection_for, stem=stems[item.name]) for item in items
        }
        self._chunks: dict[str, tuple[TableSource, ObjectInfo]] = {}

    def listing_info(self) -> ListingInfo:
        """Return the number of rows."""
        return ListingInfo(sum(source.listing_info().samples or 0 for source in self._sources.values()))

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the rows of each file.

        Raises:
            SourceError: when a file cannot be read.
            UsageError: when a file lacks a column.
        """
        self._chunks = {
            f"{name} {chunk.name}": (source, chunk)
            for name, source in self._sources.items()
            for chunk in source.list(())
        }
        return [chunk._replace(name=name) for name, (_, chunk) in self._chunks.items()]

    def locate(self, name: str) -> str:
        """Return the path or URL of the file, as the samples themselves name their row."""
        return self._chunks[name][0].bucket if name in self._chunks else self.bucket

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each row of a chunk.

        Raises:
            SourceError: when the file changed since it was listed, or cannot be read.
        """
        source, chunk = self._chunks[item.name]
        return source.samples(chunk, report, fault, on_bytes)


def entries_of_row(columns: Mapping[str, Column], named: RowFiles, key: str, values: Mapping[str, object]) -> Sample:
    """Return the sample of a row, made of the selected columns.

    Args:
        columns: the column of each entry, and the type of its cells.
        named: reads the files that cells name.
        key: the key of the sample, if no column contains it.
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
            sample[name] = _content(column, named, value)
        else:
            sample[name] = _typed(column, value) if column.kind else as_entry(column.name, value)
    return sample


def _content(column: Column, named: RowFiles, cell: object) -> bytes:
    """Return the bytes of the file that a cell names or contains."""
    data, place = (cell, f"the column {column.name!r}") if isinstance(cell, bytes) else named.read(column.name, cell)
    if fault := _content_fault(column.kind, data):
        raise SampleError(f"the content of {place} is not {fault}", hint=f"{column.name}:file takes any file")
    return data


def _content_fault(suffix: str, data: bytes) -> str | None:
    """Return the expected kind if content does not match a file's suffix; None if it does, or any content may."""
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
    """Convert a cell to a number that ops can use, or to a feature of the column's type."""
    entry, kind = {column.name: value}, cast("TypeName", column.kind)
    if kind not in ("int64", "float"):
        give_types(entry, {column.name: kind})
        return entry[column.name]
    try:
        return number_of(value, kind)
    except (ValueError, OverflowError, TypeError) as error:
        raise SampleError(f"{column.name!r} is not of type {column.kind}: {reason(error)}") from None


def _key(value: object) -> str:
    """Convert a value to a key, which must be UTF-8 to be a feature."""
    as_entry(KEY, text := str(value))
    return text


def as_entry(name: str, value: object) -> object:
    """Convert text to bytes, as in an entry of a tar; leave other JSON values unchanged."""
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
