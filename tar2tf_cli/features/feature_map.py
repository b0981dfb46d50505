"""Samples to features: entries as the requested types, others as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from tar2tf_cli.errors import SampleError, UsageError, meant, reason
from tar2tf_cli.features.presets import Make, Preset
from tar2tf_cli.formats.example import Feature, Features, bytes_list, float_list, int64_list, packed_floats, raw, scalar
from tar2tf_cli.formats.stored import StoredBytes, whole
from tar2tf_cli.ops.base import OpContext
from tar2tf_cli.ops.select import Selection, flatten
from tar2tf_cli.samples.names import KEY, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

TypeName = Literal["int64", "int64_list", "float", "float_list", "bytes", "bytes_list"]
TYPES: Final[tuple[str, ...]] = get_args(TypeName)


def _called(value: Any) -> str:
    """What a value is, in the words of JSON where it has one."""
    names = {type(None): "null", dict: "an object", list: "a list", tuple: "a list"}
    return names.get(type(value)) or f"a value of type {type(value).__name__}"


class MissingFeatureError(SampleError):
    """A sample has no feature of a name that has a type.

    Attributes:
        names: the features that it has.
    """

    def __init__(self, name: str, values: Iterable[str]) -> None:
        self.name = name
        self.names = tuple(values)
        only = ", ".join(sorted(self.names))
        super().__init__(f"has no feature {name!r}, which --type requires, only {only}")


def no_such_feature(name: str, names: Iterable[str], shard: str | None = None) -> UsageError:
    """Make the error for the type of a feature that does not exist, which lists those that do."""
    known = sorted(names)
    what = "no sample of this input has" if shard else "does not exist"
    message = f"--type names the feature {name!r}, which {what}{meant(name, known)}"
    return UsageError(message, shard=shard, hint=f"features: {', '.join(known)}")


def check_types(
    types: Iterable[str], select: Mapping[str, Selection] | None = None, preset: Preset | None = None
) -> None:
    """Refuse the type of a feature that does not exist, if select and preset determine all features.

    Raises:
        UsageError: names the feature, and lists those that exist.
    """
    names: Iterable[str] | None = None if select is None else flatten(select)
    if preset:
        names = preset.features(names)
    for name in types:
        if names is not None and name not in names:
            raise no_such_feature(name, names)


class FeatureMap:
    """Makes features from samples: select, then a preset, then types.

    Args:
        select: a mapping of features to selections; None for every entry and `__key__`.
        preset: makes its own features from those selected.
        types: types of features, by name; the others follow from their values.
        context: settings that presets depend on besides the sample.
    """

    def __init__(
        self,
        types: Mapping[str, TypeName],
        select: Mapping[str, Selection] | None = None,
        preset: Make | None = None,
        context: OpContext | None = None,
    ) -> None:
        self._types = dict(types)
        self._select = None if select is None else flatten(select)
        self._preset = preset
        self._context = context or OpContext()
        self.plain = not types and select is None and preset is None
        """Whether the features are the entries themselves."""

    def features(self, sample: Sample) -> Features:
        """Return the features of a sample.

        Raises:
            SampleError: when an entry is missing, or a value does not have the requested type or cannot be a feature.
        """
        key = sample[KEY]
        if self._select is not None:
            values = {name: selection.select(sample) for name, selection in self._select.items()}
        else:
            values = sample
        if self._preset:
            values = self._preset({**values, KEY: key}, self._context)
        elif self._select is None:
            values[KEY] = key.encode("utf-8", "surrogateescape")
        for name in self._types:
            if name not in values:
                raise MissingFeatureError(name, values)
        give_types(values, self._types)
        return _as_features(values)


def give_types(values: dict[str, Any], types: Mapping[str, TypeName]) -> None:
    """Make features of the values that have a type.

    Raises:
        SampleError: when one is not of its type.
    """
    for name, kind in types.items():
        if name in values:
            try:
                values[name] = _typed(values[name], kind)
            except (ValueError, OverflowError, TypeError) as error:
                raise SampleError(f"{name!r} is not of type {kind}: {reason(error)}") from None


def _as_features(values: dict[str, Any]) -> Features:
    """Convert values to features: bytes and features unchanged, anything else by its Python or NumPy type."""
    for value in values.values():
        if type(value) is not bytes and type(value) is not Feature:
            break
    else:
        return values
    features: dict[str, bytes | StoredBytes | Feature] = {}
    for name, value in values.items():
        if isinstance(value, (bytes, StoredBytes, Feature)):
            features[name] = value
            continue
        try:
            features[name] = _by_value(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise SampleError(f"{name!r} cannot become a feature: {reason(error)}") from None
        if hasattr(value, "dtype") and value.shape:
            features[f"{name}/shape"] = _shape(value.shape)
    return features


def _by_value(value: Any) -> bytes | Feature:
    """Convert a value other than bytes to a feature."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bool, int)):
        return _one_integer(int(value))
    if isinstance(value, float):
        return scalar(float_list([value]))
    if isinstance(value, (list, tuple)):
        return _list(list(value))
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(value)
    if value is None:
        raise TypeError("it is null")
    raise TypeError(f"a feature cannot be a {type(value).__name__}; select a part of it")


_shape = lru_cache(maxsize=4096)(int64_list)


@lru_cache(maxsize=4096)
def _one_integer(value: int) -> Feature:
    return scalar(int64_list([value]))


def _list(values: list[Any]) -> Feature:
    """Convert a list of one kind; ints among floats count as floats."""
    kinds = {type(value) for value in values}
    if kinds <= {int, bool} and kinds:
        return int64_list(values)
    if kinds <= {int, bool, float} and kinds:
        return float_list(values)
    if kinds <= {str, bytes} and kinds:
        return bytes_list([value.encode() if isinstance(value, str) else value for value in values])
    if not kinds:
        raise ValueError("an empty list has no type; give it one with --type")
    raise TypeError(f"a list of {', '.join(sorted(kind.__name__ for kind in kinds))} has no single type")


_LISTED: Final = frozenset(("bool", "int8", "int16", "uint16", "int32", "uint32", "int64"))
_RAW: Final = frozenset(("uint8", "uint64", "float64", "complex64", "complex128"))
"""Arrays that no list of an example holds exactly, and those of bytes: one bytes value in C order, little-endian."""


def _array(value: Any) -> bytes | Feature:
    """Convert an array by its dtype: to a list of integers or floats that holds its values, or to one bytes value."""
    import numpy as np

    array = np.asarray(value)
    shape, dtype = array.shape, array.dtype.name
    if dtype in _LISTED or (dtype == "uint8" and not shape):
        return int64_list(array.ravel().tolist(), shape, dtype)
    if dtype in ("float16", "float32"):
        return packed_floats(_bytes_of(array, "<f4"), shape, dtype)
    if dtype not in _RAW:
        raise TypeError(f"an array of {dtype} cannot be a feature")
    return raw(_bytes_of(array, array.dtype.newbyteorder("<")), shape, dtype)


def _bytes_of(array: NDArray[Any], dtype: Any) -> memoryview:
    """The bytes of an array in C order, of a dtype that can hold its values."""
    import numpy as np

    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def describe(value: bytes | Feature) -> str:
    """Describe a feature to a user: its dtype and shape, or the first bytes."""
    if isinstance(value, Feature):
        return f"{value.dtype}, shape {list(value.shape)}"
    return f"bytes, {len(value):,} long: {value[:24]!r}{'...' if len(value) > 24 else ''}"


def _typed(value: Any, kind: TypeName) -> bytes | StoredBytes | Feature:
    """Convert an entry's value to a feature of a type; for numbers, bytes are parsed as text."""
    if value is None:
        raise TypeError("it is null")
    if isinstance(value, Feature):
        raise TypeError(f"it is {describe(value)} already")
    if kind == "bytes":
        return value if isinstance(value, StoredBytes) else _as_bytes(value)
    value = whole(value)
    if kind == "bytes_list":
        return bytes_list([_as_bytes(item) for item in (value if isinstance(value, (list, tuple)) else [value])])
    numbers, whole_ones = _numbers(value), kind.startswith("int64")
    try:
        feature = int64_list(map(_integer, numbers)) if whole_ones else float_list(map(float, numbers))
    except OverflowError:
        raise OverflowError(f"a value does not fit in {'64 bits' if whole_ones else 'a float32'}") from None
    except (ValueError, TypeError) as error:
        odd = next((number for number in numbers if not isinstance(number, (str, int, float))), None)
        given = reason(error) if isinstance(error, ValueError) else _called(odd)
        raise ValueError(f"{given} is not {'a whole number' if whole_ones else 'a number'}") from None
    if kind.endswith("_list"):
        return feature
    if len(numbers) != 1:
        raise ValueError(f"holds {len(numbers)} values instead of one")
    return scalar(feature)


def _numbers(value: Any) -> list[Any]:
    """Return the numbers in text such as `7`, `1 2 3`, `1,2,3` or `[1, 2, 3]`, in a list or in an array."""
    if hasattr(value, "ravel"):
        return list(value.ravel().tolist())
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if not isinstance(value, str):
        return list(value) if isinstance(value, (list, tuple)) else [value]
    text = value.strip()
    if text.startswith("["):
        try:
            return list(json.loads(text))
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None
    return text.replace(",", " ").split()


def _as_bytes(value: Any) -> bytes:
    if value is None or isinstance(value, (dict, list, tuple)):
        raise TypeError(f"it holds {'null' if value is None else 'a ' + type(value).__name__}")
    if hasattr(value, "tobytes"):
        data: bytes = value.tobytes()
        return data
    return value if isinstance(value, bytes) else str(value).encode()


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"could not convert it: {value!r}")
    return int(value)
