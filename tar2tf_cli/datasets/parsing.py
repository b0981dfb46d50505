"""Parsers of serialised examples with tf.io, made from the features in a manifest.

features/decoder.py has the same rules for readers without TensorFlow, which this module imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import tensorflow as tf

from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.features.described import Described, is_optional, is_shape_of_array


def feature_description(features: Described, records: int) -> dict[str, Any]:
    """Return the feature descriptions for `tf.io.parse_single_example`.

    Args:
        features: the manifest's features.
        records: number of records; a feature with a smaller count is optional.
    """
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


def batch_parser(features: Described, records: int) -> Callable[[tf.Tensor], dict[str, tf.Tensor]] | None:
    """Return a function that parses a batch of serialised examples as `record_parser` does each; None if impossible.

    It takes a twentieth of the time. The result is None if there are no features, or one of them may be missing or vary
    in shape.
    """
    if not features:
        return None
    shapes = {name for name in features if is_shape_of_array(name, features)}
    for name, feature in features.items():
        if is_optional(feature, records) or (name not in shapes and None in (feature["shape"] or ())):
            return None
    own = {name: feature for name, feature in features.items() if name not in shapes}
    description = feature_description(own, records)

    def parse(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = cast("Mapping[str, tf.Tensor]", tf.io.parse_example(examples, description))
        return {name: _cast(_all_restored(feature, parsed[name]), feature["dtype"]) for name, feature in own.items()}

    return parse


def _all_restored(feature: FeatureDescription, values: tf.Tensor) -> tf.Tensor:
    """Reshape and cast the values of a feature in a batch of examples of one shape."""
    if feature["encoding"] != "raw":
        return values
    array = _from_bytes(values, feature["dtype"])
    shape = feature["shape"]
    restored: tf.Tensor = tf.ensure_shape(tf.reshape(array, [tf.size(values), *shape]), [None, *shape])
    return restored


def record_parser(features: Described, records: int = 0) -> Callable[[object], dict[str, tf.Tensor]]:
    """Return a function that parses a serialised example: arrays with shape and dtype, other values as stored.

    A feature NAME/shape is used to restore the array NAME, and is not among the tensors.

    Args:
        features: a manifest's features, accepted by `check_features`; the shape of an array of any number of dimensions
            may be None.
        records: number of records; a feature with a smaller count is optional.
    """
    description = feature_description(features, records)
    shapes = {name for name in features if is_shape_of_array(name, features)}
    optional = {name for name, feature in features.items() if is_optional(feature, records)}

    def parse(record: object) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, description)
        return {
            name: _restored(name, features[name], parsed, name in optional) for name in features if name not in shapes
        }

    return parse


def _restored(name: str, feature: FeatureDescription, parsed: Mapping[str, tf.Tensor], optional: bool) -> tf.Tensor:
    value, shape, dtype = parsed[name], feature["shape"], feature["dtype"]
    if feature["encoding"] == "raw":
        value = _from_bytes(tf.strings.reduce_join(value) if optional else value, dtype)
    if optional and shape == []:
        pass  # optional values become a vector of one value or none
    elif feature["encoding"] == "raw" or shape is None or len(shape) > 1 or f"{name}/shape" in parsed:
        own = _own_shape(name, shape, parsed)
        if optional:  # if the array is missing, so is its shape
            own, shape = tf.pad(own, [[0, len(shape) - tf.size(own)]]), [None] * len(shape)
        elif shape is not None and f"{name}/shape" in parsed and own.shape[0] is None:
            # single values and empty lists have no shape
            lengths = tf.stack([tf.minimum(tf.size(value), 1) if size is None else size for size in shape])
            own = tf.concat([own, tf.cast(lengths[tf.size(own) :], own.dtype)], 0)
        value = tf.ensure_shape(tf.reshape(value, own), shape)
    return _cast(value, dtype)


def _from_bytes(value: tf.Tensor, dtype: str) -> tf.Tensor:
    """Decode little-endian numbers from bytes."""
    stored = "int64" if dtype == "uint64" else dtype  # which decode_raw does not know
    numbers: tf.Tensor = tf.bitcast(tf.io.decode_raw(value, tf.as_dtype(stored)), dtype)
    return numbers


def _cast(value: tf.Tensor, dtype: str) -> tf.Tensor:
    """Cast values to the dtype in the manifest."""
    return value if dtype in ("bytes", value.dtype.name) else tf.cast(value, dtype)


def _own_shape(name: str, shape: list[int | None], parsed: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the shape of an example's array: fixed, stored next to it, or from the image's dimensions."""
    if f"{name}/shape" in parsed:
        return parsed[f"{name}/shape"]
    if shape.count(None) <= 1:
        return tf.constant([-1 if size is None else size for size in shape], tf.int32)  # [] would be float32
    folder = name.rpartition("/")[0]
    return tf.stack([parsed[f"{folder}/{axis}"] for axis in ("height", "width", "channels")])
