"""Examples described by your own class: the attributes it stores, their types, and how to make one from a CSV row.

    class ToyExample(Example):
        def __init__(self, name, label):
            super().__init__()
            self.name, self._label, self._data = name, label, None

        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self):
            return self._label

        @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
        def data(self):
            return self._data

        def load(self, directory=".", **kwargs):
            self._data = np.load(f"{directory}/{self.name}.npy")

        @staticmethod
        def from_csv_row(row, **kwargs):
            return ToyExample(row[0], int(row[1]))

The names are those of TFRecorder (github.com/gdoras/TFRecorder).
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, ClassVar, Final

import numpy as np

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.example import raw
from tar2tf_cli.ops.func import load_object

__all__ = ["Example", "Field", "IgnoreExample", "find_class", "tfrecordable"]


class IgnoreExample(Exception):
    """Raise it in `from_csv_row`, `load` or `split` to skip an example, which is counted but is not an error."""


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
    """A property with a stored type: one subclass per type, as `setter` copies a property by calling its class."""

    dtype: ClassVar[str]

    def __reduce__(self) -> Any:
        """Pickle by value, since the class of a script has to reach the workers."""
        return _attribute, (self.dtype, self.fget, self.fset, self.fdel, self.__doc__)


def _attribute(dtype: str, *functions: Any) -> _Attribute:
    made: _Attribute = _ATTRIBUTES[dtype](*functions)
    return made


def tfrecordable(dtype: str) -> Callable[[Callable[[Any], Any]], _Attribute]:
    """Make a property, as `@property` does, whose value is stored.

    Args:
        dtype: one of `Example.Field`.

    Raises:
        UsageError: for another dtype.
    """
    if dtype not in _ATTRIBUTES:
        raise UsageError(f"tfrecordable does not support the dtype {dtype!r}", hint="use one of Example.Field.TYPE_…")
    return _ATTRIBUTES[dtype]


class Example:
    """One example. Subclasses declare stored attributes with `tfrecordable`, and define how an example is made.

    Methods are called in the workers, with those of the run's arguments that they accept.
    """

    Field: ClassVar[type[Field]] = Field
    _stored: ClassVar[tuple[tuple[str, str], ...]] = ()  # names and types, base classes first

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        stored = {}
        for base in reversed(cls.__mro__):
            stored.update({name: item.dtype for name, item in vars(base).items() if isinstance(item, _Attribute)})
        cls._stored = tuple(stored.items())

    @classmethod
    def from_csv_row(cls, row: list[str], **kwargs: Any) -> Any:
        """Make the example of a row, without loading large data.

        Raises:
            IgnoreExample: to skip it.
        """
        raise NotImplementedError(f"{cls.__name__} has no method from_csv_row")

    def load(self, **kwargs: Any) -> None:
        """Load large data; called just before the example is stored.

        Raises:
            IgnoreExample: to skip it.
        """

    def split(self, **kwargs: Any) -> Iterable[Any] | None:
        """Return the examples to store instead of this one, in order; None for this one itself.

        Raises:
            IgnoreExample: to skip it.
        """
        return None

    def release(self) -> None:
        """Release large data; called when the example has been stored. By default, every setter is called with None."""
        for name, _ in self._stored:
            if getattr(type(self), name).fset is not None:
                setattr(self, name, None)

    def to_csv_row(self) -> Sequence[Any] | None:
        """Return a row that describes the example; called once it is loaded. None for the row it was made from."""
        return None

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the type of each stored attribute, in order of declaration."""
        return dict(cls._stored)

    def values(self) -> dict[str, Any]:
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


def _integer(kind: type[np.int32] | type[np.int64]) -> Callable[[Any], Any]:
    limits = np.iinfo(kind)

    def convert(value: Any) -> Any:
        number = index(value)
        if not limits.min <= number <= limits.max:
            raise OverflowError(f"{number} does not fit")
        return kind(number)

    return convert


def _bool(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return np.bool_(value)
    raise TypeError(f"{value!r} is neither true nor false")


def _float(value: Any) -> Any:
    return np.float32(struct.unpack("<f", struct.pack("<f", _number(value)))[0])  # raises for values that do not fit


def _double(value: Any) -> Any:
    return raw(struct.pack("<d", _number(value)), (), "float64")  # a float list would lose half of the digits


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is text")
    return float(value)


def _string(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{type(value).__name__} is not text")
    return value


def _float_array(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype == np.float32:
        return array
    if array.dtype.kind not in "fiub":
        raise TypeError(f"an array of {array.dtype} does not hold numbers")
    with np.errstate(over="raise"):
        return array.astype(np.float32, copy=False)


def _int_array(value: Any) -> Any:
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


def find_class(where: type[Example] | str) -> type[Example]:
    """Return a subclass of `Example`, given as itself or as `package.module:name` or `path/file.py:name`.

    Raises:
        UsageError: when it cannot be found, or has no attributes to store.
    """
    try:
        found = load_object(where) if isinstance(where, str) else where
    except ValueError as error:
        raise UsageError(
            f"example_class: {error}", hint="name a subclass of tar2tf_cli.recorder.Example as FILE.py:CLASS"
        ) from None
    if not (inspect.isclass(found) and issubclass(found, Example)):
        raise UsageError(f"example_class: {where!r} is not a subclass of tar2tf_cli.recorder.Example")
    if not found.fields():
        raise UsageError(
            f"example_class: {where!r} has no attributes to store",
            hint="add @tfrecordable to those that are to be stored",
        )
    return found
