"""A CSV file whose rows describe examples, and your class that makes them; its inputs are chunks of rows."""

from __future__ import annotations

import csv
import inspect
import io
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, read_failed
from tar2tf_cli.inputs.base import ListSource, divided, shuffled
from tar2tf_cli.inputs.example_class import Example, IgnoreExample, find_class
from tar2tf_cli.ops.identity import RAISED, source_digest
from tar2tf_cli.samples.names import KEY, Sample
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import OnBytes, OnFault, Placed

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["ExamplesSource", "count_rows"]

_LONGEST_CELL: Final = 2**31 - 1
_METHODS: Final = ("from_csv_row", "load", "split")

_Place: TypeAlias = tuple[int, int, int]  # number of a row from 1, its offset and size in bytes
_Row: TypeAlias = tuple[int, list[str], int]  # number, cells, size in bytes


class ExamplesSource(ListSource):
    """The examples described by the rows of a CSV file without a header; blank rows are skipped.

    Args:
        bucket: the CSV file, in UTF-8.
        example_class: a subclass of `recorder.Example`, or `FILE.py:CLASS`.
        example_args: keyword arguments for its methods `from_csv_row`, `load` and `split`.
        seed: shuffle the rows with this random seed.
        rows: first row in that order, from 0, and exclusive end; None for all.
        limit: the most rows to take of these.

    Raises:
        UsageError: when the class cannot be found, or an argument is not accepted by any of its methods.
    """

    def __init__(
        self,
        bucket: str,
        example_class: type[Example] | str,
        example_args: Mapping[str, Any],
        *,
        seed: int | None = None,
        rows: tuple[int, int] | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(bucket)
        self._where = example_class
        self._arguments = _arguments(find_class(example_class), example_args)
        self._seed = seed
        self._rows = slice(*rows) if rows else slice(None)
        self._limit = limit
        self._chunks: dict[str, array[int]] = {}  # the positions of each input's rows, end to end
        self._version = (0, 0)

    @property
    def documents(self) -> dict[str, bytes | None]:
        """The file to write beside the manifest: `examples.csv`; its content is in the reports of the inputs."""
        return {"examples.csv": None}

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies a conversion besides its spec and rows: the attributes and source of the class."""
        found = find_class(self._where)
        return {"fields": found.fields(), "digest": source_digest(found)}

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the rows, with sizes in bytes and versions that are hashes of their text.

        Raises:
            SourceError: when the file cannot be read as CSV.
            UsageError: for a template.
        """
        if templates:
            raise UsageError("is a single file of examples, so it takes no template", shard=self.bucket)
        with _opened(self.bucket) as file:
            self._version = _version(file)
            places = shuffled(list(_places(file, self.bucket)), self._seed, lambda place: str(place[0]))
            if not places:
                raise _no_rows(self.bucket)

            def described(place: _Place) -> tuple[int, bytes]:
                number, offset, size = place
                file.seek(offset)
                return size, b"%d\0%d\0" % (number, size) + file.read(size)

            inputs = list(divided("rows", places[self._rows][: self._limit], described))
        self._chunks = {item.name: array("Q", chain.from_iterable(chunk)) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def samples(self, item: ObjectInfo, report: InputReport, fault: OnFault, on_bytes: OnBytes = None) -> Placed:
        """Yield the samples of each row, if any: the row number from 1, and the attributes in declared order.

        The report gets rows from which the same examples can be made again.
        """
        found = find_class(self._where)
        for number, row, size in self._read(item):
            if on_bytes:
                on_bytes(size)
            stored, described = report.samples, row
            try:
                example = _call(found, "from_csv_row", row, **self._arguments["from_csv_row"])
                if not isinstance(example, Example):
                    raise SampleError(
                        f"{found.__name__}.from_csv_row returned {type(example).__name__}, not an Example"
                    )
                _call(example, "load", **self._arguments["load"])
                described = _call(example, "to_csv_row") or row
                for sample in _parts(example, str(number), self._arguments["split"]):
                    yield {"member": f"row {number}"}, sample
            except IgnoreExample:
                report.skipped["ignored by its class"] += 1
            except SampleError as error:
                fault(error.at(key=str(number), member=f"row {number}", hint=_advice(number, row)))
            if report.samples > stored:
                report.described += _csv_line(described)

    def _read(self, item: ObjectInfo) -> Iterator[_Row]:
        """Yield the number, cells and size in bytes of each row of an input."""
        places = self._chunks[item.name]
        with _opened(self.bucket) as file:
            if _version(file) != self._version:
                raise changed(self.bucket)
            for position in range(0, len(places), 3):
                number, offset, size = places[position : position + 3]
                file.seek(offset)
                yield number, next(_csv_reader(io.StringIO(file.read(size).decode(), newline=""))), size


def count_rows(path: str) -> int:
    """Count the rows of a CSV file, without blank ones.

    Raises:
        SourceError: when it cannot be read as CSV, or has none.
    """
    with _opened(path) as file:
        rows = sum(1 for _ in _places(file, path))
    if not rows:
        raise _no_rows(path)
    return rows


def _no_rows(path: str) -> SourceError:
    return SourceError("has no rows", shard=path, hint="list one example per line")


def _parts(example: Example, key: str, arguments: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield a sample for each part of an example; a part is released when the next one is requested."""
    given = _call(example, "split", **arguments)
    parts = iter([example]) if given is None else _call(given, "__iter__")
    while True:
        try:
            part = _call(parts, "__next__")
        except StopIteration:
            break
        if not isinstance(part, Example):
            raise SampleError(f"{type(example).__name__}.split returned {type(part).__name__}, not an Example")
        yield {KEY: key, **_call(part, "values")}
        if part is not example:
            _call(part, "release")
    _call(example, "release")


def _call(owner: Any, method: str, *values: Any, **arguments: Any) -> Any:
    """Call one of the user's methods; an exception becomes a SampleError."""
    try:
        return getattr(owner, method)(*values, **arguments)
    except (IgnoreExample, SampleError):
        raise
    except RAISED as error:
        if isinstance(error, StopIteration) and method == "__next__":
            raise
        name = getattr(owner, "__name__", type(owner).__name__)
        raise SampleError(f"{name}.{method} raised {type(error).__name__}: {error}") from error


def _arguments(found: type[Example], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments for each method: those that it accepts.

    Raises:
        UsageError: for an argument that none of them accepts.
    """
    taken = {method: _taken(getattr(found, method), given) for method in _METHODS}
    for name in given:
        if not any(name in arguments for arguments in taken.values()):
            hint = f"its methods are {', '.join(_METHODS)}"
            raise UsageError(f"no method of {found.__name__} accepts the argument {name!r}", hint=hint)
    return taken


def _taken(method: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise read_failed(path, error) from None


def _version(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _places(file: BinaryIO, path: str) -> Iterator[_Place]:
    """Yield the position of each row in a CSV file; a quoted cell may span several lines."""
    lines = _Lines(file)
    reader = _csv_reader(lines)
    number = 0
    try:
        while True:
            start = lines.offset
            row = next(reader, None)
            if row is None:
                return
            if row:
                number += 1
                yield number, start, lines.offset - start
    except (csv.Error, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        hint = "it has to be UTF-8, with commas, closed quotes, and lines that end with LF or CRLF"
        raise SourceError(f"cannot be read as CSV: line {lines.number}: {reason}", shard=path, hint=hint) from None
    except OSError as error:
        raise read_failed(path, error) from None


class _Lines:
    """The lines of a file as text, and the number of bytes read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file: Iterable[bytes] = file
        self.number = 0
        self.offset = 3 if file.read(3) == b"\xef\xbb\xbf" else 0  # a byte order mark does not belong to the first cell
        file.seek(self.offset)

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.number += 1
            self.offset += len(line)
            yield line.decode()


def _csv_reader(lines: Iterable[str]) -> Iterator[list[str]]:
    csv.field_size_limit(_LONGEST_CELL)
    return csv.reader(lines, strict=True)


def _advice(number: int, row: Sequence[str]) -> str | None:
    """What to do about a first row, and about one that other characters than commas seem to divide."""
    divided = len(row) == 1 and (";" in row[0] or "\t" in row[0])
    if number == 1 and not divided:
        return "correct the row, or remove it if it is a header; --on-error skip skips such rows"
    return f"separate the cells by commas; the row is a single cell now: {row[0][:40]!r}" if divided else None


def _csv_line(row: Sequence[Any]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()
