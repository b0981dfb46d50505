"""Elements of a dataset: the values selected from a sample, and their TensorFlow specs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.presets import INTEGER_ENTRIES
from tar2tf_cli.ops import Func, Op, Rename, Resize, Select, SelectDict, Selection, SelectList
from tar2tf_cli.samples.names import Sample

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["as_leaf", "as_structure", "entries_of_fixed_size", "fixed_leaves", "given_spec", "picked", "tensor_spec"]


def entries_of_fixed_size(ops: Sequence[Op]) -> set[str]:
    """Entries whose height and width are the same in all samples: resized, and not changed by a later op."""
    sized: set[str] = set()
    for op in ops:
        if isinstance(op, Resize):
            sized.add(op.ext)
        elif isinstance(op, (Func, Rename)):
            sized.clear()
    return sized


def fixed_leaves(selection: Selection, value: Any, sized: set[str]) -> list[bool]:
    """For each leaf of a selected value, in tf.nest order, whether it is an image of fixed size."""
    import tensorflow as tf

    if isinstance(selection, Select):
        return [selection.ext_name in sized] * len(tf.nest.flatten(value))
    parts = sorted(selection.parts(), key=itemgetter(0))
    return [flag for key, part in parts for flag in fixed_leaves(part, value[key], sized)]


class _Number(bytes):
    """The text of an entry that holds an integer, such as `cls`."""

    def fits_int32(self) -> bool:
        """Whether the text is an integer that fits into 32 bits."""
        try:
            return -(2**31) <= int(self) < 2**31
        except ValueError:
            return False


def picked(selection: Selection, sample: Sample) -> Any:
    """The values selected from a sample, as a tf.nest structure."""
    if isinstance(selection, SelectDict):
        return {name: picked(item, sample) for name, item in selection.selections.items()}
    if isinstance(selection, SelectList):
        return tuple(picked(item, sample) for item in selection.selections)
    value = selection.select(sample)
    if isinstance(value, bytes) and selection.ext_name in INTEGER_ENTRIES:
        return _Number(value)
    return as_structure(value)


def as_structure(value: Any) -> Any:
    """Nested values as a tf.nest structure: lists of selections become tuples, lists of numbers arrays."""
    import numpy as np

    if isinstance(value, dict):
        return {name: as_structure(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(as_structure(item) for item in value)
    if isinstance(value, list):
        plain = all(isinstance(item, (bool, int, float, str)) for item in value)
        return np.asarray(value) if plain and value else tuple(as_structure(item) for item in value)
    return value


def given_spec(types: Any, shapes: Any) -> Any:
    """The element spec for dtypes and shapes.

    Raises:
        UsageError: when their structures differ.
    """
    import tensorflow as tf

    try:
        if isinstance(types, dict):
            return {name: given_spec(dtype, shapes[name]) for name, dtype in types.items()}
        if isinstance(types, (list, tuple)):
            return tuple(given_spec(dtype, shape) for dtype, shape in zip(types, shapes, strict=True))
        return tf.TensorSpec(shapes, types)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"output_shapes {shapes!r} do not fit output_types {types!r}") from None


def tensor_spec(value: Any, size_is_fixed: bool, key: str) -> tf.TensorSpec:
    """The spec inferred from a value: for images, the channels, and height and width if the size is fixed.

    Raises:
        SampleError: when it cannot be converted to a tensor.
    """
    import numpy as np
    import tensorflow as tf

    if isinstance(value, (bytes, str)):
        return tf.TensorSpec([], tf.int32 if isinstance(value, _Number) and value.fits_int32() else tf.string)
    shape: list[int | None] = list(np.shape(value))
    if len(shape) == 3 and not size_is_fixed:
        shape[:2] = [None, None]
    elif len(shape) != 3:
        shape = [None] * len(shape)
    if hasattr(value, "dtype"):
        return tf.TensorSpec(shape, tf.as_dtype(value.dtype))
    natural = {int: tf.int64, bool: tf.bool, float: tf.float32}
    if type(value) not in natural:
        raise SampleError(f"{value!r} cannot be converted to a tensor", key=key)
    return tf.TensorSpec(shape, natural[type(value)])


def as_leaf(value: Any, leaf: tf.TensorSpec, key: str) -> Any:
    """Convert a value to a spec.

    Raises:
        SampleError: when it has another shape, or cannot be converted to the dtype.
    """
    import numpy as np

    typed = _as_dtype(value, leaf.dtype, key)
    shape = np.shape(typed)
    if not leaf.shape.is_compatible_with(shape):
        gray = len(shape) == leaf.shape.rank == 3 and shape[2] != leaf.shape[2]
        hint = "decode all images to the same number of channels, such as Decode('jpg', channels=3)" if gray else None
        raise SampleError(f"has a value of shape {list(shape)} where {leaf.shape} is expected", key=key, hint=hint)
    return typed


def _as_dtype(value: Any, dtype: tf.DType, key: str) -> Any:
    """Convert a value to an array of a dtype; for a numeric dtype, bytes are parsed as text.

    Raises:
        SampleError: when it cannot be converted, or an integer would change.
    """
    import numpy as np

    if dtype.name == "string":
        return value if isinstance(value, (bytes, str)) or hasattr(value, "dtype") else str(value)
    try:
        if isinstance(value, (bytes, str)):
            value = int(value) if dtype.is_integer else float(value)
        elif value is None:
            raise TypeError
        array = np.asarray(value)
        typed = array.astype(dtype.as_numpy_dtype, copy=False)
        if not array.shape and dtype.is_integer and typed != array:
            raise OverflowError
    except (ValueError, TypeError, OverflowError):
        raise SampleError(f"{value!r} cannot be read as {dtype.name}", key=key) from None
    return typed
