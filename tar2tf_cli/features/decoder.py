"""Decodes examples to values without TensorFlow, as described by a manifest's features or as stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from tar2tf_cli.api.values import Sample
from tar2tf_cli.features import described
from tar2tf_cli.features.described import DTYPES, Described, Expected
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import ParsedFeature, parse
from tar2tf_cli.formats.listed import Listed

Parsed: TypeAlias = "Mapping[str, ParsedFeature]"

_LISTS: Final[dict[str | None, np.dtype[Any]]] = {
    kind: np.dtype("object" if kind == "bytes" else DTYPES[kind][0]) for kind in ("bytes", "int64", "float")
}
"""The dtype of the values in each kind of list."""

_FEW: Final = 32
_MANY: Final = 3

_Lengths: TypeAlias = "Callable[[str], Sequence[int] | None]"
"""A function that returns the numbers in a feature of one example, by name; None if the example lacks the feature."""


class Decoder:
    """Decodes examples to dicts of values by feature name.

    With a manifest's features, values have its dtypes and shapes, and equal those of `load_dataset`: bytes, NumPy
    scalars and arrays; texts and images in lists are arrays of objects. A feature NAME/shape gives the array NAME its
    shape, and is not among the values; a feature that an example lacks is an empty array.

    Without features, values are as stored, and a list of one value becomes that value.

    Args:
        features: the manifest's features; None to return values as they are stored.
        records: number of records; a feature with a smaller count is optional.

    Attributes:
        features: the manifest's features; None for values as they are stored.
        records: number of records.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """

    def __init__(self, features: Described | None = None, records: int = 0) -> None:
        self.features = features or None
        self.records = records
        self._steps: list[_Step] | None = None
        self._columns = _ColumnParser({}, [])
        if features:
            steps = _steps(features, records)
            shapes = {f"{step.name}/shape" for step in steps if step.has_shape}
            self._steps = [step for step in steps if step.name not in shapes]
            self._columns = _ColumnParser({step.name: (step.form, step.wanted) for step in steps}, self._steps)

    def __call__(self, message: bytes) -> Sample:
        """Return the values of one example.

        Raises:
            ValueError: when the bytes are not an example, or not one that the manifest describes.
        """
        return self._decoded(parse(message))

    def each(self, messages: list[bytes]) -> Iterator[dict[str, object]]:
        """Yield the values of examples in order; many are parsed at once.

        Raises:
            ValueError: for the first bytes that are not an example, or not one that the manifest describes.
        """
        done = 0
        while done < len(messages):
            if len(messages) - done >= _MANY:
                some = self._columns.values(messages, done)
                yield from some
                done += len(some)
            if done < len(messages):
                parsed = parse(messages[done])
                if self._steps is None and len(messages) >= _MANY and len(parsed) <= described.MOST_KNOWN:
                    self._columns = self._columns.with_features(parsed)
                yield self._decoded(parsed)
                done += 1

    def _decoded(self, parsed: Parsed) -> dict[str, object]:
        if self._steps is None:
            return {name: _stored(feature) for name, feature in parsed.items() if feature.kind}
        return {step.name: step.value(parsed) for step in self._steps}


class _ColumnParser:
    """Parses examples with the kernel while they have the usual form and only known features.

    Args:
        known: for each feature, the form in which the kernel returns it (see `columns` in examples.h), and its
            requirements.
        steps: make values from the kernel's columns.
    """

    def __init__(self, known: Mapping[str, tuple[str, Expected]], steps: Sequence[_StoredStep]) -> None:
        self._known = known if len(known) <= described.MOST_KNOWN else {}
        self._steps = steps
        self._names = b"".join(described.for_kernel(name, wanted) for name, (_, wanted) in self._known.items())
        self._forms = "".join(form for form, _ in self._known.values()).encode()

    def with_features(self, features: Parsed) -> _ColumnParser:
        """Return a parser that also knows the features of another example, for values as stored."""
        known: dict[str, tuple[str, Expected]] = {}
        for name in dict.fromkeys((*self._known, *features)):
            form, before = self._known.get(name, ("", Expected()))
            feature = features.get(name)
            kind = (feature.kind if feature else None) or before.kind
            if kind and feature and feature.count == 1 and form not in ("A", "L"):
                known[name] = "t" if kind == "bytes" else "n", Expected(kind, 1)
            elif kind:
                known[name] = "L" if kind == "bytes" else "A", Expected(kind)
        return _ColumnParser(
            known, [_StoredStep(name, form, _LISTS[wanted.kind]) for name, (form, wanted) in known.items()]
        )

    def values(self, messages: list[bytes], first: int) -> list[dict[str, object]]:
        """Return the values of examples, from number `first` up to the first example of another form."""
        native = kernel.native()
        if not native or not self._known:
            return []
        try:
            found, count = native.columns(messages, first, self._names, self._forms)
            columns = dict(zip(self._known, found, strict=True))
            made = {step.name: step.values(columns) for step in self._steps}
        except ValueError:  # one example is faulty, and is reported when it is parsed alone
            return []
        examples: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, values in made.items():
            for example, value in zip(examples, values, strict=True):
                if value is not None:
                    example[name] = value
        return examples


def _of_column(data: bytearray | list[bytes], dtype: np.dtype[np.generic]) -> object:
    """Return one example's values in a column of the kernel as an array of one dimension."""
    if not isinstance(data, list):
        return np.frombuffer(data, dtype)
    texts = np.empty(len(data), object)
    texts[:] = data
    return texts


class ExampleEntries:
    """Converts the features of examples to entries, from which the encoder makes the same features again.

    Bytes are entries unchanged. Numbers are NumPy scalars and arrays, with the dtype and shape that a manifest gives;
    without one, an array NAME has the shape in the feature NAME/shape, if there is one. Several texts are an array of
    objects. A missing feature becomes no entry.

    Args:
        features: the manifest's features; empty for values as they are stored.
        lists: names of features that are lists, even if an example has a single value.
        unshaped: names of features whose NAME/shape is an independent feature, as it contradicts an example's values.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """

    def __init__(self, features: Described, lists: Collection[str] = (), unshaped: Collection[str] = ()) -> None:
        self._known = {step.name: step for step in _steps(features)}
        self._lists = lists
        self._unshaped = unshaped

    def __call__(self, message: bytes) -> dict[str, object]:
        """Return the entries of one example.

        Raises:
            ValueError: when the bytes are not an example, or not one that the manifest describes.
        """
        parsed = parse(message)
        present = {name: feature for name, feature in parsed.items() if feature.kind}
        shaped = {f"{name}/shape" for name, feature in present.items() if self._is_shaped(feature, present)}
        return {name: self._value(feature, present, shaped) for name, feature in present.items() if name not in shaped}

    def _is_shaped(self, feature: ParsedFeature, parsed: Parsed) -> bool:
        """Whether a feature NAME/shape belongs to the feature, so that the encoder makes it again."""
        shape = parsed.get(f"{feature.name}/shape")
        if shape is None or shape.kind != "int64" or feature.name in self._unshaped:
            return False
        if step := self._known.get(feature.name):
            return step.has_shape
        return feature.kind != "bytes" and shape.count > 0 and prod(shape.values()) == feature.count

    def _value(self, feature: ParsedFeature, parsed: Parsed, shaped: Collection[str]) -> object:
        own = f"{feature.name}/shape"
        if step := self._known.get(feature.name):
            value = step.value(parsed)
        elif own in shaped:
            value = _array(feature).reshape(parsed[own].values())
        else:
            value = _array(feature) if feature.name in self._lists else _stored(feature)
        is_list = own not in shaped and getattr(value, "ndim", 0) == 1
        return value.view(Listed) if is_list else value


def _steps(features: Described, records: int = 0) -> list[_Step]:
    """Make the decoding step of each feature in a manifest.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """
    described.check_features(features)
    return [_Step(name, features, records, wanted) for name, wanted in described.expected(features).items()]


class _StoredStep:
    """Makes values of one feature as stored from the kernel's columns; None for a missing one."""

    def __init__(self, name: str, form: str, stored: np.dtype[np.generic]) -> None:
        self.name = name
        self.form = form
        self._stored = self._dtype = stored

    def values(self, columns: Mapping[str, Any]) -> Sequence[Any]:
        """Return the values of many examples from the kernel's columns."""
        column = columns[self.name]
        if self.form == "t":
            return column  # type: ignore[no-any-return]
        if self.form == "n":
            return list(np.frombuffer(column, self._stored).astype(self._dtype, copy=False))
        arrays = [None if data is None else _of_column(data, self._stored) for data in column]
        return [
            self._nothing() if array is None else self._shaped(array, partial(_lengths_in, columns, number))
            for number, array in enumerate(arrays)
        ]

    def _nothing(self) -> object:
        """Return the value for an example that lacks the feature."""
        return None

    def _shaped(self, values: Any, lengths: _Lengths) -> Any:
        return values[0] if len(values) == 1 else values


class _Step(_StoredStep):
    """Decodes one feature of examples as described by a manifest."""

    def __init__(self, name: str, features: Described, records: int, wanted: Expected) -> None:
        feature = features[name]
        self.wanted = wanted
        self._optional = optional = described.is_optional(feature, records)
        self._raw = feature["encoding"] == "raw"
        self._shape: list[int | None] = feature["shape"]
        shaping = described.shape_features(name, features)
        self.has_shape = shaping == [f"{name}/shape"]
        self._shaping = shaping if self.has_shape or self._shape.count(None) > 1 else []
        self._scalar = not optional and not self._raw and self._shape == []
        # an optional value is a vector of one value or none
        self._array = bool((self._raw and not (optional and self._shape == [])) or self._shape[1:] or self.has_shape)
        text = feature["encoding"] == "bytes"
        form = ("t" if text else "n") if self._scalar else "l" if text else "a"
        dtype = np.dtype("object" if feature["dtype"] == "bytes" else feature["dtype"])
        super().__init__(name, form.upper() if optional else form, dtype if self._raw else _LISTS[feature["encoding"]])
        self._dtype = dtype

    def value(self, parsed: Parsed) -> Any:
        feature = parsed.get(self.name)
        if feature is None or feature.kind is None:
            if not self._optional:
                raise ValueError(f"the feature {self.name!r} is missing, but every example has it in the manifest")
            return self._nothing()
        if fault := self.wanted.misfit(feature):
            raise ValueError(fault)
        if self._scalar:
            return feature.value() if feature.kind == "bytes" else self._dtype.type(feature.value())
        # a buffer of bytes could not be written to
        values = np.frombuffer(bytearray(feature.parts()[0]), self._dtype) if self._raw else _array(feature)
        return self._shaped(values, lambda name: parsed[name].values() if name in parsed else None)

    def _nothing(self) -> object:
        """Return the value for an example that lacks the feature."""
        return np.empty([0] * (len(self._shape) if self._array else 1), self._dtype)

    def _shaped(self, values: Any, lengths: _Lengths) -> Any:
        if self._array:
            values = values.reshape(self._lengths(lengths, len(values)))
        return values.astype(self._dtype, copy=False)[()]  # a single number has the shape ()

    def _lengths(self, lengths: _Lengths, size: int) -> Sequence[int]:
        own = [length for part in self._shaping for length in lengths(part) or ()]
        if len(own) == len(self._shape):  # single values among lists of one, and empty lists, have no shape
            return own
        unknown = -1 if size else 0
        return [unknown if length is None else length for length in self._shape]


def _lengths_in(columns: Mapping[str, Any], number: int, name: str) -> Sequence[int] | None:
    """Return the integers in an example's feature, from the columns of the kernel."""
    column = columns[name]
    if isinstance(column, bytearray):
        return memoryview(column).cast("q")[number : number + 1].tolist()
    return None if column[number] is None else memoryview(column[number]).cast("q").tolist()


def _stored(feature: ParsedFeature) -> object:
    """Return the single value of a feature, or an array of several; texts in arrays are objects."""
    if feature.count != 1:
        return _array(feature)
    return feature.value() if feature.kind == "bytes" else _LISTS[feature.kind].type(feature.value())


def _array(feature: ParsedFeature) -> Any:
    """Return the values of a feature as an array of one dimension."""
    if feature.kind == "bytes":
        return _of_column(feature.parts(), _LISTS["bytes"])
    if feature.kind == "int64" and feature.count < _FEW:
        return np.array(feature.values(), np.int64)
    return numbers_in(str(feature.kind), bytearray(b"".join(feature.parts())))


def numbers_in(kind: str, packed: bytearray) -> Any:
    """Decode the packed numbers of an int64 or a float list to an array, which may share their memory."""
    return np.frombuffer(packed, "<f4") if kind == "float" else _integers(packed)


def _integers(packed: bytes | bytearray) -> object:
    """Decode concatenated varints (protobuf.dev/programming-guides/encoding#varints) to int64."""
    digits = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(digits < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if len(digits) == len(ends):
        return digits.astype(np.int64)
    place = np.arange(len(digits)) - np.repeat(starts, ends - starts + 1)
    return np.add.reduceat((digits & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64), starts).view(np.int64)
