"""Parses records as a manifest's features describe them: feature descriptions for tf.io, and restored arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tar2tf_cli.conversion.manifest_model import contradictions, shape_features
from tar2tf_cli.errors import SourceError

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["check_features", "feature_description", "is_optional", "is_shape_of_array", "record_parser"]


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
        if is_optional(feature, records) or (None in shape and not single):
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
        value = tf.io.decode_raw(tf.strings.reduce_join(value) if optional else value, tf.as_dtype(dtype))
    if feature["encoding"] == "raw" or len(shape) > 1 or f"{name}/shape" in parsed:
        own = _own_shape(name, shape, parsed)
        if optional:  # if the array is missing, so is its shape
            own, shape = tf.pad(own, [[0, len(shape) - tf.size(own)]]), [None] * len(shape)
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
