"""A CSV file whose rows describe examples, and the user's class that makes them; inputs are chunks of rows."""

from __future__ import annotations

import csv
import inspect
import io
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import ListingInfo, OnBytes, OnFault, Samples
from tar2tf_cli.api.values import KEY, Sample, SourceReport
from tar2tf_cli.errors import RAISED, SampleError, UsageError, changed, failure
from tar2tf_cli.formats.example import raw
from tar2tf_cli.inputs.kinds.table import RowsSource
from tar2tf_cli.inputs.rows import Rows, no_rows
from tar2tf_cli.ops.func import load_object
from tar2tf_cli.ops.user_code import source_digest
from tar2tf_cli.spec.conversion import Conversion


class IgnoreExample(Exception):
    """Exception to raise in `from_csv_row`, `load` or `split` to skip an example, which is counted, but not an error.

    >>> def from_csv_row(row):
    ...     if not row["text"]:
    ...         raise IgnoreExample
    """


class Field:
    """The types of stored attributes; each value is a NumPy dtype, with the prefix `array_` for arrays."""

    TYPE_BOOL: Final = "bool"
    TYPE_INT32: Final = "int32"
    TYPE_INT64: Final = "int64"
    TYPE_FLOAT: Final = "float32"
    TYPE_DOUBLE: Final = "float64"
    TYPE_STRING: Final = "string"
    TYPE_ARRAY_INT32: Final = "array_int32"
    TYPE_ARRAY_FLOAT32: Final = "array_float32"


class _Attribute(property):
    """A property with a stored type; each type is a subclass, as `setter` copies a property by calling its class."""

    dtype: ClassVar[str]

    def __reduce__(self) -> Any:
        """Pickle by value, since the class may come from a script that workers cannot import."""
        return _attribute, (self.dtype, self.fget, self.fset, self.fdel, self.__doc__)


def _attribute(dtype: str, *functions: object) -> _Attribute:
    made: _Attribute = _ATTRIBUTES[dtype](*functions)
    return made


def tfrecordable(dtype: str) -> Callable[[Callable[[object], object]], _Attribute]:
    """Make a decorator like `@property`, for a property whose value is stored.

    Args:
        dtype: one of `Example.Field`.

    Raises:
        UsageError: for another dtype.

    >>> from tar2tf_cli.recorder import Example
    >>> class Two(Example):
    ...     @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    ...     def number(self):
    ...         return 2.0
    """
    if dtype not in _ATTRIBUTES:
        raise UsageError(f"tfrecordable does not support the dtype {dtype!r}", hint="use one of Example.Field.TYPE_…")
    return _ATTRIBUTES[dtype]


class RowExample:
    """One example. Subclasses declare stored attributes with `tfrecordable`, and define how an example is made.

    Methods are called in the workers, with those of the run's arguments that they accept.
    """

    Field: ClassVar[type[Field]] = Field
    _stored: ClassVar[tuple[tuple[str, str], ...]] = ()  # names and types, base classes first

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        stored = {}
        for base in reversed(cls.__mro__):
            stored.update({name: item.dtype for name, item in vars(base).items() if isinstance(item, _Attribute)})
        cls._stored = tuple(stored.items())

    @classmethod
    def from_csv_row(cls, row: list[str], **kwargs: object) -> object:
        """Make the example that a row describes, without loading large data.

        Raises:
            IgnoreExample: to skip it.
        """
        raise NotImplementedError(f"{cls.__name__} has no method from_csv_row")

    def load(self, **kwargs: object) -> None:
        """Load large data; called just before the example is stored.

        Raises:
            IgnoreExample: to skip it.
        """

    def split(self, **kwargs: object) -> Iterable[object] | None:
        """Return the examples to store instead of this one, in order; None to store this one.

        Raises:
            IgnoreExample: to skip it.
        """
        return None

    def release(self) -> None:
        """Release large data; called when the example has been stored. By default, every setter is called with None."""
        for name, _ in self._stored:
            if getattr(type(self), name).fset is not None:
                setattr(self, name, None)

    def to_csv_row(self) -> Sequence[object] | None:
        """Return a row that describes the loaded example; None for the row that it was made from."""
        return None

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the type of each stored attribute, in order of declaration."""
        return dict(cls._stored)

    def values(self) -> dict[str, object]:
        """Return the value of each stored attribute, converted to its type, in order of declaration.

        Raises:
            SampleError: when a value does not have its type.
        """
        values = {}
        for name, dtype in self._stored:
            value = getattr(self, name)
            if value is None:
                raise SampleError(f"{name!r} has no value", hint="set it in load")
            try:
                values[name] = _VALUES[dtype](value)
            except (TypeError, ValueError, OverflowError, FloatingPointError) as error:
                raise SampleError(f"{name!r} is not of type {dtype}: {error}") from None
        return values


def _integer(kind: type[np.int32] | type[np.int64]) -> Callable[[object], object]:
    limits = np.iinfo(kind)

    def convert(value: Any) -> Any:
        number = index(value)
        if not limits.min <= number <= limits.max:
            raise OverflowError(f"{number} does not fit")
        return kind(number)

    return convert


def _bool(value: object) -> object:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return np.bool_(value)
    raise TypeError(f"{value!r} is neither true nor false")


def _float(value: object) -> object:
    return np.float32(struct.unpack("<f", struct.pack("<f", _number(value)))[0])  # raises for values that do not fit


def _double(value: object) -> object:
    return raw(struct.pack("<d", _number(value)), (), "float64")  # a float list would lose half of the precision


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is text")
    return float(value)


def _string(value: object) -> object:
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{type(value).__name__} is not text")
    return value


def _float_array(value: object) -> object:
    array = np.asarray(value)
    if array.dtype == np.float32:
        return array
    if array.dtype == np.float64 and isinstance(value, np.ndarray):
        raise TypeError("an array of float64 would be rounded; convert it: .astype(numpy.float32)")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"an array of {array.dtype} does not hold numbers")
    with np.errstate(over="raise"):
        return array.astype(np.float32, copy=False)


def _int_array(value: object) -> object:
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise TypeError(f"an array of {array.dtype} does not hold whole numbers")
    if array.dtype != np.int32 and array.size and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise OverflowError("a value does not fit")
    return array.astype(np.int32, copy=False)


_VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    Field.TYPE_BOOL: _bool,
    Field.TYPE_INT32: _integer(np.int32),
    Field.TYPE_INT64: _integer(np.int64),
    Field.TYPE_FLOAT: _float,
    Field.TYPE_DOUBLE: _double,
    Field.TYPE_STRING: _string,
    Field.TYPE_ARRAY_INT32: _int_array,
    Field.TYPE_ARRAY_FLOAT32: _float_array,
}


_ATTRIBUTES: Final = {dtype: type(f"_{dtype}", (_Attribute,), {"dtype": dtype}) for dtype in _VALUES}


def find_class(where: type[RowExample] | str) -> type[RowExample]:
    """Return a subclass of `RowExample`, given as a class, as `package.module:name`, or as `path/file.py:name`.

    Raises:
        UsageError: when it cannot be found, or has no attributes to store.
    """
    try:
        cls = load_object(where) if isinstance(where, str) else where
    except ValueError as error:
        raise UsageError(
            f"example_class: {error}", hint="name a subclass of tar2tf_cli.recorder.Example as FILE.py:CLASS"
        ) from None
    if not (inspect.isclass(cls) and issubclass(cls, RowExample)):
        raise UsageError(f"example_class: {where!r} is not a subclass of tar2tf_cli.recorder.Example")
    if not cls.fields():
        raise UsageError(
            f"example_class: {where!r} has no attributes to store",
            hint="add @tfrecordable to the attributes to store",
        )
    return cls


_METHODS: Final = ("from_csv_row", "load", "split")

_Row: TypeAlias = tuple[int, list[str], int]  # number, cells, size in bytes


def open_input(conversion: Conversion, endpoint: str | None) -> ExamplesSource:
    """Return the source of the conversion's rows."""
    spec = conversion.input
    return ExamplesSource(
        spec.bucket,
        spec.example_class or "",
        spec.example_args,
        seed=conversion.seed if conversion.shuffle else None,
        rows=spec.rows,
        limit=conversion.limit,
    )


class ExamplesSource(RowsSource):
    """The examples described by the rows of a CSV file without a header; blank rows are skipped.

    Args:
        bucket: the CSV file, in UTF-8.
        example_class: a subclass of `recorder.Example`, or `FILE.py:CLASS`.
        example_args: keyword arguments for its methods `from_csv_row`, `load` and `split`.
        seed: shuffle the rows with this random seed.
        rows: first row in that order, from 0, and exclusive end; None for all.
        limit: the maximum number of these rows.

    Raises:
        UsageError: when the class cannot be found, or an argument is not accepted by any of its methods.
    """

    def __init__(
        self,
        bucket: str,
        example_class: type[RowExample] | str,
        example_args: Mapping[str, object],
        *,
        seed: int | None = None,
        rows: tuple[int, int] | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(bucket, seed=seed, rows=rows, limit=limit)
        self._where = example_class
        self._arguments = _arguments(find_class(example_class), example_args)

    def listing_info(self) -> ListingInfo:
        """Return the attributes and source of the class; the reports of inputs hold the file `examples.csv`."""
        cls = find_class(self._where)
        identity = {"fields": cls.fields(), "digest": source_digest(cls)}
        return ListingInfo(skipped=self.skipped, documents={"examples.csv": None}, identity=identity)

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the rows, as for any table.

        Raises:
            SourceError: when the file cannot be read.
            UsageError: for a template.
        """
        if templates:
            raise UsageError("is a single file of examples, so it takes no template", shard=self.bucket)
        return super().list(())

    def _opened(self) -> Rows:
        return _rows(self.bucket)

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield the samples of each row, if any: the row number from 1, and the attributes in declared order.

        The report gets rows from which the same examples can be made again.
        """
        cls = find_class(self._where)
        for number, row, size in self._read(item):
            if on_bytes:
                on_bytes(size)
            stored, described = report.samples, row
            try:
                example = _call(cls, "from_csv_row", row, **self._arguments["from_csv_row"])
                if not isinstance(example, RowExample):
                    raise SampleError(f"{cls.__name__}.from_csv_row returned {type(example).__name__}, not an Example")
                _call(example, "load", **self._arguments["load"])
                described = _call(example, "to_csv_row") or row
                for sample in _parts(example, str(number), self._arguments["split"]):
                    yield {"member": f"row {number}"}, sample
            except IgnoreExample:
                report.filtered["IgnoreExample"] += 1
            except SampleError as error:
                fault(error.at(key=str(number), member=f"row {number}", hint=_advice(number, row)))
            if report.samples > stored:
                report.described += _csv_line(described)

    def _read(self, item: ObjectInfo) -> Iterator[_Row]:
        """Yield the number, cells and size in bytes of each row of an input."""
        with _rows(self.bucket) as rows:
            if rows.version != self._version:
                raise changed(self.bucket)
            for span in self._spans(item):
                yield span[0], rows.cells(rows.data(span)), span[2]


def count_rows(path: str) -> int:
    """Count the rows of a CSV file, ignoring blank ones.

    Raises:
        SourceError: when the file cannot be read as CSV, or has no rows.
    """
    with _rows(path) as rows:
        number = sum(1 for _ in rows.spans())
    if not number:
        raise no_rows(path)
    return number


def _rows(path: str) -> Rows:
    return Rows(path, header=False, form="csv")


def _parts(example: RowExample, key: str, arguments: Mapping[str, object]) -> Iterator[Sample]:
    """Yield a sample for each part of an example; a part is released when the next one is requested."""
    given = _call(example, "split", **arguments)
    parts = iter([example]) if given is None else _call(given, "__iter__")
    while True:
        try:
            part = _call(parts, "__next__")
        except StopIteration:
            break
        if not isinstance(part, RowExample):
            raise SampleError(f"{type(example).__name__}.split returned {type(part).__name__}, not an Example")
        yield {KEY: key, **_call(part, "values")}
        if part is not example:
            _call(part, "release")
    _call(example, "release")


def _call(owner: Any, method: str, *values: Any, **arguments: Any) -> Any:
    """Call a method of the user's class; an exception becomes a SampleError, unless the machine is at fault."""
    try:
        return getattr(owner, method)(*values, **arguments)
    except IgnoreExample:
        raise
    except RAISED as error:
        if isinstance(error, StopIteration) and method == "__next__":
            raise
        name = getattr(owner, "__name__", type(owner).__name__)
        raise failure(f"{name}.{method} raised", error) from error


def _arguments(cls: type[RowExample], given: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return, for each method, those of the given arguments that it accepts.

    Raises:
        UsageError: for an argument that no method accepts.
    """
    taken = {method: _taken(getattr(cls, method), given) for method in _METHODS}
    for name in given:
        if not any(name in arguments for arguments in taken.values()):
            hint = f"its methods are {', '.join(_METHODS)}"
            raise UsageError(f"no method of {cls.__name__} accepts the argument {name!r}", hint=hint)
    return taken


def _taken(method: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    parameters = inspect.signature(method).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _advice(number: int, row: Sequence[str]) -> str | None:
    """Return a hint for a faulty first row, or for a row that seems to use another separator than commas."""
    divided = len(row) == 1 and (";" in row[0] or "\t" in row[0])
    if number == 1 and not divided:
        return "correct the row, or remove it if it is a header; --on-error skip skips such rows"
    return f"separate the cells by commas; the row is a single cell now: {row[0][:40]!r}" if divided else None


def _csv_line(row: Sequence[object]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()
