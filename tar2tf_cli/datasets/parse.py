"""Parses records as a manifest's features describe them: with tf.io, or to NumPy values without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tar2tf_cli.conversion.manifest import contradictions, expected, shape_features
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.example_parser import ParsedFeature, parse

if TYPE_CHECKING:
    import tensorflow as tf


def feature_description(features: Mapping[str, Mapping[str, Any]], records: int) -> dict[str, Any]:
    """The feature descriptions for `tf.io.parse_single_example`.

    Args:
        features: the manifest's features.
        records: number of records; a feature with a smaller count is optional.
    """
    import tensorflow as tf

    dtypes = {"bytes": tf.string, "raw": tf.string, "int64": tf.int64, "float": tf.float32}
    description: dict[str, Any] = {}
    for name, feature in features.items():
        dtype, shape = dtypes[feature["encoding"]], feature["shape"]
        single = shape == [] or feature["encoding"] == "raw"
        if shape is None or is_optional(feature, records) or (None in shape and not single):
            description[name] = tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True)
        else:
            description[name] = tf.io.FixedLenFeature([] if single else shape, dtype)
    return description


def is_optional(feature: Mapping[str, Any], records: int) -> bool:
    """Whether a record may lack a feature; with --limit, the manifest may not say how many have it."""
    return bool(feature.get("count", 0) < records)


def record_parser(features: Mapping[str, Mapping[str, Any]], records: int) -> Callable[[Any], dict[str, tf.Tensor]]:
    """A function from a serialised example to its tensors: arrays with their shape and dtype, the rest as stored.

    A feature NAME/shape is used to restore the array NAME, and is not among the tensors.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """
    check_features(features)
    return tensors_parser(features, records)


def tensors_parser(
    features: Mapping[str, Mapping[str, Any]], records: int = 0
) -> Callable[[Any], dict[str, tf.Tensor]]:
    """The same for features that need no check; the shape of an array may be None, for any number of dimensions."""
    import tensorflow as tf

    description = feature_description(features, records)
    shapes = {name for name in features if is_shape_of_array(name, features)}
    optional = {name for name, feature in features.items() if is_optional(feature, records)}

    def parse(record: Any) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, description)
        return {
            name: _restored(name, features[name], parsed, name in optional) for name in features if name not in shapes
        }

    return parse


def check_features(features: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that every array can be given its shape.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """
    for contradiction in (*contradictions(features), *_without_shape(features)):
        raise SourceError(contradiction, hint="verify the manifest, restore it from a copy, or convert again")


def _without_shape(features: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Arrays whose lengths are neither in the manifest nor in the examples."""
    for name, feature in features.items():
        array = feature["encoding"] == "raw" or len(feature["shape"]) > 1
        if array and feature["shape"].count(None) > 1 and not shape_features(name, features):
            yield f"the feature {name!r} has the shape {feature['shape']}, but there is no feature {name + '/shape'!r}"


def is_shape_of_array(name: str, features: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a feature is only the shape of another one."""
    base, slash, last = name.rpartition("/")
    return bool(slash) and last == "shape" and base in features and features[base]["shape"] != []


def _restored(name: str, feature: Mapping[str, Any], parsed: Mapping[str, Any], optional: bool) -> tf.Tensor:
    import tensorflow as tf

    value, shape, dtype = parsed[name], feature["shape"], feature["dtype"]
    if feature["encoding"] == "raw":
        stored = "int64" if dtype == "uint64" else dtype  # which decode_raw does not know
        value = tf.io.decode_raw(tf.strings.reduce_join(value) if optional else value, tf.as_dtype(stored))
        value = tf.bitcast(value, dtype)
    if feature["encoding"] == "raw" or shape is None or len(shape) > 1 or f"{name}/shape" in parsed:
        own = _own_shape(name, shape, parsed)
        if optional:  # if the array is missing, so is its shape
            own, shape = tf.pad(own, [[0, len(shape) - tf.size(own)]]), [None] * len(shape)
        elif shape is not None and f"{name}/shape" in parsed and own.shape[0] is None:  # single values have no shape
            own = tf.pad(own, [[0, len(shape) - tf.size(own)]], constant_values=1)
        value = tf.ensure_shape(tf.reshape(value, own), shape)
    if dtype not in ("bytes", value.dtype.name):
        value = tf.cast(value, dtype)
    return value


def _own_shape(name: str, shape: list[int | None], parsed: Mapping[str, Any]) -> Any:
    """The shape of one example's array: fixed, stored beside it, or given by the image's height, width and channels."""
    import tensorflow as tf

    if f"{name}/shape" in parsed:
        return parsed[f"{name}/shape"]
    if shape.count(None) <= 1:
        return [-1 if size is None else size for size in shape]
    folder = name.rpartition("/")[0]
    return tf.stack([parsed[f"{folder}/{axis}"] for axis in ("height", "width", "channels")])


Parsed: TypeAlias = "Mapping[str, ParsedFeature]"

_DTYPES: Final = {"bytes": "object", "raw": "object", "int64": "int64", "float": "float32"}
_FEW: Final = 32


class Decoder:
    """Decodes examples to dicts of values by feature name.

    With a manifest's features, values have its dtypes and shapes, and equal those of `load_dataset`: bytes, NumPy
    scalars and arrays; texts and images in lists are arrays of objects. A feature NAME/shape gives the array NAME its
    shape, and is not among the values; a feature that an example lacks is an empty array.

    Without features, values are those stored: a list of one value is that value.

    Args:
        features: the manifest's features; None for values as they are stored.
        records: number of records; a feature with a smaller count is optional.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """

    def __init__(self, features: Mapping[str, Mapping[str, Any]] | None = None, records: int = 0) -> None:
        self._steps: list[_Step] | None = None
        if features:
            check_features(features)
            wanted = expected(features)
            self._steps = [
                _Step(name, feature, features, optional=is_optional(feature, records), misfit=wanted[name].misfit)
                for name, feature in features.items()
                if not is_shape_of_array(name, features)
            ]

    def __call__(self, message: bytes) -> dict[str, Any]:
        """Return the values of one example.

        Raises:
            ValueError: when the bytes are not an example, or not one that the manifest describes.
        """
        parsed = parse(message)
        if self._steps is None:
            return {name: _stored(feature) for name, feature in parsed.items() if feature.kind}
        return {step.name: step.value(parsed) for step in self._steps}


class _Step:
    """Decodes one feature of each example."""

    def __init__(
        self,
        name: str,
        feature: Mapping[str, Any],
        features: Mapping[str, Any],
        *,
        optional: bool,
        misfit: Callable[[ParsedFeature], str | None],
    ) -> None:
        self.name = name
        self._misfit = misfit
        self._optional = optional
        self._raw = feature["encoding"] == "raw"
        self._stored = np.dtype(_DTYPES[feature["encoding"]])
        self._dtype = np.dtype("object" if feature["dtype"] == "bytes" else feature["dtype"])
        self._shape: list[int | None] = feature["shape"]
        self._own = f"{name}/shape" if f"{name}/shape" in features else None
        self._axes: list[str] = []
        if not self._own and self._shape.count(None) > 1:
            self._axes = [f"{name.rpartition('/')[0]}/{axis}" for axis in ("height", "width", "channels")]
        self._scalar = not optional and not self._raw and self._shape == []
        self._array = self._raw or len(self._shape) > 1 or self._own is not None

    def value(self, parsed: Parsed) -> Any:
        feature = parsed.get(self.name)
        if feature is None or feature.kind is None:
            if not self._optional:
                raise ValueError(f"the feature {self.name!r} is missing, but every example has it in the manifest")
            return np.empty([0] * (len(self._shape) if self._array else 1), self._dtype)
        if fault := self._misfit(feature):
            raise ValueError(fault)
        if self._scalar:
            (value,) = feature.values()
            return value if feature.kind == "bytes" else self._dtype.type(value)
        values = np.frombuffer(feature.parts()[0], self._dtype) if self._raw else _array(feature)
        if self._array:
            values = values.reshape(self._lengths(parsed))
        return values.astype(self._dtype, copy=self._raw)  # a buffer of bytes cannot be written to

    def _lengths(self, parsed: Parsed) -> list[int]:
        if self._own and (own := parsed.get(self._own)):  # single values among lists of one have no shape
            return [int(length) for length in own.values()]
        if self._axes:
            return [int(parsed[axis].values()[0]) for axis in self._axes]
        return [-1 if length is None else length for length in self._shape]


def _stored(feature: ParsedFeature) -> Any:
    """Return one value, or an array of several; texts in lists are objects."""
    return _array(feature)[0] if feature.count == 1 else _array(feature)


def _array(feature: ParsedFeature) -> Any:
    """Return the values of a feature as an array of one dimension."""
    if feature.kind == "bytes":
        values = np.empty(feature.count, object)
        values[:] = feature.parts()
        return values
    packed = b"".join(feature.parts())
    if feature.kind == "float":
        return np.frombuffer(bytearray(packed), "<f4")
    return np.array(feature.values(), np.int64) if feature.count < _FEW else _integers(packed)


def _integers(packed: bytes) -> Any:
    """Decode concatenated varints (protobuf.dev/programming-guides/encoding#varints) to int64."""
    digits = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(digits < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if len(digits) == len(ends):
        return digits.astype(np.int64)
    place = np.arange(len(digits)) - np.repeat(starts, ends - starts + 1)
    return np.add.reduceat((digits & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64), starts).view(np.int64)
