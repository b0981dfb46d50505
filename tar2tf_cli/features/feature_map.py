"""Converts samples to features: values of requested types, or bytes; and merges features to the schema of many
examples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Array, Batch, Encoding, Feature, FeatureDescription, Features, Sample
from tar2tf_cli.errors import MissingNameError, SampleError, UsageError, did_you_mean, reason
from tar2tf_cli.features.described import DTYPES
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list, packed_floats, raw
from tar2tf_cli.formats.files import StoredBytes, whole
from tar2tf_cli.structs import dataclass, field, new_counter

if TYPE_CHECKING:
    from typing import TypeGuard

    from _typeshed import ConvertibleToInt
    from numpy.typing import DTypeLike

    from tar2tf_cli.features.labels import LabelMap
    from tar2tf_cli.features.presets import Make, Preset
    from tar2tf_cli.ops.select import Select, Selection


Look: TypeAlias = 'tuple[Literal[Encoding, "mixed"], str, tuple[int | None, ...]]'
_PLAIN: Final[Look] = ("bytes", "bytes", ())
MIXED: Final[Look] = ("mixed", "", ())
"""The look of a feature of several kinds, which only records copied unchanged may have."""


@dataclass(eq=False)
class Schema:
    """The common schema of the features of many examples.

    Attributes:
        signatures: number of examples with each combination of names.
        looks: encoding, dtype and shape of each feature, with None for a dimension that differs; features that are
            one bytes value may be absent.
        allows_mixed: whether a feature may be of several kinds, which is then not described.
    """

    signatures: Counter[tuple[str, ...]] = field(default_factory=new_counter)
    looks: dict[str, Look] = field(default_factory=dict)
    allows_mixed: bool = False

    def add_plain(self, names: Iterable[str]) -> None:
        """Add an example whose features are one bytes value each."""
        self.signatures[tuple(names)] += 1

    def add_batch(self, batch: Batch) -> None:
        """Add the samples of a batch, whose features are their entries, one bytes value each."""
        for kind, count in batch.count_signatures().items():
            names = (KEY, *batch.names_of(kind))
            self.signatures[names] += count

    def add(self, features: Features) -> None:
        """Add one example's features.

        Raises:
            SampleError: when a feature is of another kind or rank than before.
        """
        for name, value in features.items():
            look = (value.encoding, value.dtype, value.shape) if isinstance(value, Feature) else _PLAIN
            if self.looks.get(name, _PLAIN) != look:
                self._merge(name, look, features)
        self.signatures[tuple(features)] += 1

    @property
    def key(self) -> Hashable:
        """A hashable value that is equal for equal schemas."""
        return (*self.signatures.items(), None, *self.looks.items())

    def update(self, other: Schema) -> None:
        """Merge another schema into this one, with its examples.

        Raises:
            SampleError: when a feature is of another kind or rank in the other schema.
        """
        if self.looks or other.looks:
            plain = {name: _PLAIN for name in self.looks if name not in other.looks and other._has(name)}
            for name, look in {**other.looks, **plain}.items():
                if self.looks.get(name) != look:
                    self._merge(name, look, other.looks)
        for names, count in other.signatures.items():
            self.signatures[names] += count

    def _has(self, name: str) -> bool:
        """Whether any example has a feature."""
        return any(name in names for names in self.signatures)

    @property
    def mixed(self) -> list[str]:
        """Return the names of features of several kinds, sorted."""
        return sorted(name for name, look in self.looks.items() if look == MIXED)

    def describe(self) -> dict[str, FeatureDescription]:
        """Return the manifest's `features`: dtype, shape, encoding and number of examples that have it, sorted by name.

        The encoding is the list that holds the values: bytes, int64, float, or `raw` for one bytes value with the
        array's bytes in C order, little-endian. A shape of [] is one value; null is a variable length.
        """
        counts: Counter[str] = Counter()
        for names, count in self.signatures.items():
            counts.update(dict.fromkeys(names, count))
        described: dict[str, FeatureDescription] = {}
        for name in sorted(counts):
            encoding, dtype, shape = self.looks.get(name, _PLAIN)
            if encoding != "mixed":
                described[name] = {"dtype": dtype, "shape": list(shape), "encoding": encoding, "count": counts[name]}
        return described

    def to_json(self) -> list[object]:
        """Return the schema as a JSON value."""
        return [list(self.signatures.items()), [[name, *look] for name, look in self.looks.items()]]

    @classmethod
    def from_json(cls, whole: list[Any]) -> Schema:
        """Parse the JSON value that `to_json` returned."""
        signatures, looks = whole
        return cls(
            Counter({tuple(names): count for names, count in signatures}),
            {name: (encoding, dtype, tuple(shape)) for name, encoding, dtype, shape in looks},
        )

    def _merge(self, name: str, look: Look, beside: Collection[str]) -> None:
        known = self.looks.get(name) or (_PLAIN if self._has(name) else look)
        if MIXED in (known, look):
            self.looks[name] = MIXED
            return
        if {len(known[2]), len(look[2])} == {0, 1} and known[0] != "raw":  # with the same bytes
            known, look = (*known[:2], known[2] or (1,)), (*look[:2], look[2] or (1,))
        stored = f"{name}/shape"
        known, look = _as_array(known, look, stored in self.looks), _as_array(look, known, stored in beside)
        self.looks[name] = known
        if known[:2] != look[:2] or len(known[2]) != len(look[2]):
            if self.allows_mixed:
                self.looks[name] = MIXED
                return
            raise SampleError(
                f"the feature {name!r} is {_named(look)} here and {_named(known)} elsewhere",
                hint=f"make it one kind with an op or --type {name}=TYPE",
            )
        if known[2] != look[2]:
            shape = tuple(a if a == b else None for a, b in zip(known[2], look[2], strict=True))
            self.looks[name] = (*known[:2], shape)


def _as_array(look: Look, other: Look, has_shape: bool) -> Look:
    """Treat an empty list of unknown rank as an empty array if the other look is an array."""
    empty = look[2] == (0,) and look[0] != "raw" and not has_shape
    return (*look[:2], (0, *other[2][1:])) if empty and len(other[2]) > 1 else look


def _named(look: Look) -> str:
    return f"{look[1]} of rank {len(look[2])}"


TypeName = Literal["int64", "int64_list", "float", "float_list", "bytes", "bytes_list"]
AUTO: Final = "auto"
"""The label map, instead of a path, of all values of a feature, numbered from 0 in sorted order."""

TYPES: Final[tuple[TypeName, ...]] = get_args(TypeName)


def _called(value: object) -> str:
    """Return the name of a value's type, by its JSON term if it has one."""
    return _WORDS.get(type(value)) or f"a value of type {type(value).__name__}"


_WORDS: Final = {type(None): "null", dict: "an object", list: "a list", tuple: "a list"}


def _kind(kind: type) -> str:
    return _WORDS.get(kind) or kind.__name__


def missing_feature(name: str, names: Iterable[str], option: str) -> MissingNameError:
    """Make the error for a sample without a feature that an option names, which lists the features that it has."""
    only = ", ".join(sorted(names))
    message = f"has no feature {name!r}, which {option} requires, only {only}"
    return MissingNameError(message, name=name, names=names, option=option, noun="feature")


def check_names(
    given: Iterable[str],
    select: Mapping[str, Selection] | None = None,
    preset: Preset | None = None,
    option: str = "--type",
) -> None:
    """Raise an error for the name of a feature that does not exist, if select and preset determine all features.

    Raises:
        UsageError: for such a name; the message lists the features that exist.
    """
    selections = _flattened(select)
    names: Iterable[str] | None = selections
    if preset:
        names = preset.features(names)
    objects = _objects_of(selections or {})
    for name in given:
        if names is not None and name not in names and not name.startswith(objects):
            known = sorted(names)
            message = f"{option} names the feature {name!r}, which does not exist{did_you_mean(name, known)}"
            raise UsageError(message, hint=f"features: {', '.join(known)}")


def _flattened(select: Mapping[str, Selection] | None) -> Mapping[str, Select] | None:
    """Return each selection by the name of its feature; None for every entry."""
    if select is None:
        return None
    from tar2tf_cli.ops.select import flatten

    return flatten(select)


def _objects_of(select: Mapping[str, Select]) -> tuple[str, ...]:
    """Return the prefixes of features that may come from an object of JSON."""
    return tuple(f"{name}/" for name, selection in select.items() if selection.gives_objects)


class FeatureMap:
    """Makes features from samples: select, then label maps, a preset, and types.

    Args:
        select: a mapping of features to selections; None for every entry and `__key__`.
        preset: makes its own features from those selected.
        types: types of features, by name; types of other features follow from their values.
        context: settings that presets depend on besides the sample.
        labels: label maps of features whose texts become numbers, by name; `auto` for a map that is still unknown.
    """

    def __init__(
        self,
        types: Mapping[str, TypeName],
        select: Mapping[str, Selection] | None = None,
        preset: Make | None = None,
        context: OpContext | None = None,
        labels: Mapping[str, LabelMap | str] | None = None,
    ) -> None:
        self._types = dict(types)
        self._labels = dict(labels or {})
        self._select = _flattened(select)
        self._preset = preset
        self._context = context or OpContext()
        self._objects = _objects_of(self._select or {})
        self.plain = not types and not labels and select is None and preset is None
        """Whether the features are the entries themselves."""

    def features(self, sample: Sample) -> Features:
        """Return the features of a sample.

        Raises:
            SampleError: when an entry is missing, or a value does not have the requested type or cannot be a feature.
        """
        key = sample[KEY]
        values = self._selected(sample)
        for name, labels in self._labels.items():
            values[name] = _numbered(name, _labelled(name, values), labels)
        if self._preset:
            values = self._preset({**values, KEY: key}, self._context)
            self._spread(values)
        else:
            values.update({name: int64_list([]) for name in self._labels if values[name] == []})
            if self._select is None:
                values[KEY] = key.encode("utf-8", "surrogateescape")
        for name in self._types:
            if name not in values:
                raise missing_feature(name, values, "--type")
        give_types(values, self._types)
        return _as_features(values)

    def texts(self, sample: Sample) -> dict[str, set[str]]:
        """Return the texts of the features that have a label map.

        Raises:
            SampleError: when one is missing, or is not text.
        """
        values = self._selected(sample)
        from tar2tf_cli.features.labels import PlaceholderLabelMap

        seen = {name: PlaceholderLabelMap({}) for name in self._labels}
        for name, labels in seen.items():
            labels.numbers(_labelled(name, values))
        return {name: {*labels} for name, labels in seen.items()}

    def _selected(self, sample: Sample) -> dict[str, object]:
        """Return the values that become features, or from which a preset makes features."""
        if self._select is None:
            return sample
        values = {name: selection.select(sample) for name, selection in self._select.items()}
        if self._objects and not self._preset:
            self._spread(values)
        return values

    def _spread(self, values: dict[str, object]) -> None:
        """Replace each JSON object, or list of objects, by one value for each of its keys."""
        for folder in self._objects:
            name = folder[:-1]
            value = values.get(name)
            if value == []:  # perhaps a list of objects
                value = {kind.removeprefix(folder): [] for kind in self._types if kind.startswith(folder)} or value
            if isinstance(value, dict) or _are_objects(value):
                del values[name]
                values.update(_parts(name, value))


def _labelled(name: str, values: Mapping[str, object]) -> object:
    """Return the value of a feature with a label map."""
    if name not in values:
        raise missing_feature(name, values, "--labels")
    return values[name]


def _numbered(name: str, value: object, labels: LabelMap | str) -> object:
    """Return the label number of a text, or of each text in a list."""
    if isinstance(labels, str):
        hint = "use convert, or the label map in the manifest that it wrote"
        raise UsageError(f"--labels {name}={AUTO} must read all inputs before the first sample is made", hint=hint)
    try:
        return labels.numbers(value)
    except SampleError as error:
        raise SampleError(f"{name!r}: {error.message}", hint=error.hint) from None


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in a JSON object by feature name NAME/key; a list of objects yields lists."""
    if _are_objects(value):
        keys = value[0].keys()
        for number, item in enumerate(value):
            if not isinstance(item, dict) or item.keys() != keys:
                raise SampleError(
                    f"the objects of {name!r} differ: item {number} has {_keys(item)}, but the first one {_keys(keys)}",
                    hint=f"select each value by itself: {name}/KEY=ENTRY:PATH.*.KEY=DEFAULT",
                )
        value = {key: [item[key] for item in value] for key in keys}
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from _parts(f"{name}/{key}", item)


def _keys(item: object) -> str:
    return ", ".join(map(str, item)) or "no keys" if isinstance(item, (dict, Set)) else _called(item)


def give_types(values: dict[str, object], types: Mapping[str, TypeName]) -> None:
    """Replace the values with a type by features of that type.

    Raises:
        SampleError: when a value is not of its type.
    """
    for name, kind in types.items():
        if name in values:
            value = values[name]
            try:
                text = type(value) is bytes and len(value) <= _SHORT
                values[name] = feature = _typed_text(value, kind) if text else _typed(value, kind)
            except (ValueError, OverflowError, TypeError) as error:
                hint = (
                    f"number texts with --labels {name}=FILE or --labels {name}=auto" if _is_word(value, kind) else None
                )
                raise SampleError(f"{name!r} is not of type {kind}: {reason(error)}", hint=hint) from None
            if isinstance(feature, Feature) and len(feature.shape) > 1:
                values[f"{name}/shape"] = _shape(feature.shape)


def _is_word(value: object, kind: TypeName) -> bool:
    """Whether the type is a whole number, but the value is text without any digit."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) and len(value) <= _SHORT else value
    return kind.startswith("int64") and isinstance(text, str) and not any(map(str.isdigit, text)) and bool(text.strip())


def _as_features(values: Sample) -> Features:
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
            features[name] = feature = _by_value(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise SampleError(f"{name!r} cannot become a feature: {reason(error)}") from None
        if isinstance(feature, Feature) and _stores_shape(name, value, feature, values):
            features[f"{name}/shape"] = _shape(feature.shape)
    return features


def _stores_shape(name: str, value: object, feature: Feature, values: Mapping[str, object]) -> bool:
    """Whether to store a feature NAME/shape for an array: not if the sample has it, or the array itself is one."""
    if len(feature.shape) < (1 if _has_own_shape(value) else 2) or f"{name}/shape" in values:
        return False
    return not name.endswith("/shape") or name.removesuffix("/shape") not in values


def _has_own_shape(value: object) -> bool:
    """Whether a value is an array, and not a list that was read from an example (`formats.listed.Listed`)."""
    return hasattr(value, "dtype") and not getattr(value, "listed", False)


def _by_value(value: object) -> bytes | Feature:
    """Convert a value other than bytes to a feature."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bool, int)):
        return _one_integer(int(value))
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # NumPy's float64 is a float, too, but is twice as wide
        return _array(value)
    if isinstance(value, float):
        return float_list([value], ())
    if isinstance(value, (list, tuple)):
        return _list(list(value))
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if value is None:
        raise TypeError("it is null")
    raise TypeError(f"a feature cannot be a {type(value).__name__}; select a part of it")


_shape = lru_cache(maxsize=4096)(int64_list)


@lru_cache(maxsize=4096)
def _one_integer(value: int) -> Feature:
    return int64_list([value], ())


def _list(values: Sequence[Any]) -> Feature:
    """Convert a list of one kind, in which lists may be nested; ints among floats count as floats."""
    values, shape = unnested(values)
    kinds = {type(value) for value in values}
    if not kinds:
        raise ValueError("an empty list has no type; give it one with --type: int64_list, float_list or bytes_list")
    if kinds <= {int, bool}:
        return int64_list(values, shape)
    if kinds <= {int, bool, float}:
        return float_list(values, shape)
    if kinds <= {str, bytes}:
        texts = [value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value for value in values]
        return bytes_list(texts, shape)
    if len(kinds) == 1:
        raise TypeError(f"a list of {_kind(*kinds)} cannot be a feature; make it an array")
    raise TypeError(f"a list of {', '.join(sorted(map(_kind, kinds)))} has no single type")


def unnested(values: Sequence[Any]) -> tuple[Sequence[Any], tuple[int, ...]]:
    """Return the values in nested lists, in order, and their shape.

    Raises:
        ValueError: when lists at the same level have different lengths.
    """
    shape: tuple[int, ...] = (len(values),)
    while values and isinstance(values[0], (list, tuple)):
        lengths = {len(item) if isinstance(item, (list, tuple)) else 0 for item in values}
        if len(lengths) > 1:
            least, *_, most = sorted(lengths)
            raise ValueError(f"lists of different lengths, {least} and {most}, are not an array; select a part of them")
        shape = (*shape, *lengths)
        values = [value for item in values for value in item]
    return values, shape


_RAW: Final = frozenset(("uint8", "uint64", "float64", "complex64", "complex128"))
"""Dtypes of arrays stored as one bytes value, in C order, little-endian, as no list holds them exactly or compactly."""


def _array(value: object) -> bytes | Feature:
    """Convert an array by its dtype to a list of integers or floats, or to one bytes value."""
    import numpy as np

    array = np.asarray(value)
    shape, dtype = array.shape, array.dtype.name
    if dtype in _RAW and (shape or dtype != "uint8"):
        return raw(_bytes_of(array, array.dtype.newbyteorder("<")), shape, dtype)
    if dtype in DTYPES["int64"]:
        return int64_list(array.ravel().tolist(), shape, dtype)
    if dtype in DTYPES["float"]:
        return packed_floats(_bytes_of(array, "<f4"), shape, dtype)
    if dtype == "object" and all(isinstance(item, bytes) for item in array.flat):
        return bytes_list(array.ravel().tolist(), shape)
    raise TypeError(f"no feature can hold an array of {array.dtype.type.__name__.rstrip('_')}")


def _bytes_of(array: Array, dtype: DTypeLike) -> memoryview:
    """Return the bytes of an array in C order, converted to a dtype that can hold its values."""
    import numpy as np

    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def describe(value: bytes | Feature) -> str:
    """Describe a feature for users: its dtype and shape, or the first bytes."""
    if isinstance(value, Feature):
        return f"{value.dtype}, shape {list(value.shape)}"
    return f"bytes, {len(value):,} long: {value[:24]!r}{'...' if len(value) > 24 else ''}"


def _typed(value: object, kind: TypeName) -> bytes | StoredBytes | Feature:
    """Convert an entry's value to a feature of a type; for numbers, bytes are parsed as text."""
    if value is None:
        raise TypeError("it is null")
    if isinstance(value, Feature):
        if kind == f"{value.encoding}_list" or (kind == value.encoding and not value.shape):
            return value
        raise TypeError(f"it is {describe(value)} already")
    if kind == "bytes":
        return value if isinstance(value, StoredBytes) else _as_bytes(value)
    value = whole(value)
    if kind == "bytes_list":
        values, shape = unnested(value if isinstance(value, (list, tuple)) else [value])
        return bytes_list([_as_bytes(item) for item in values], shape)
    whole_ones = kind.startswith("int64")
    numbers, shape = unnested(_numbers(value)) if kind.endswith("_list") else (_numbers(value), ())
    try:
        numbers = _converted(numbers, kind)
        return int64_list(numbers, shape) if whole_ones else float_list(numbers, shape)
    except OverflowError:
        raise OverflowError(f"a value does not fit in {'64 bits' if whole_ones else 'a float32'}") from None


_SHORT: Final = 24
_typed_text = lru_cache(maxsize=4096)(_typed)  # labels repeat often


def number_of(value: object, kind: Literal["int64", "float"]) -> int | float:
    """Parse a number of a type, given as a number or text.

    Raises:
        OverflowError: when the number is too large for a float.
        ValueError: when the value is not one number of this type.
    """
    number: int | float = _converted(_numbers(value), kind)[0]
    return number


def _converted(numbers: Sequence[Any], kind: TypeName) -> list[Any]:
    whole_ones = kind.startswith("int64")
    try:
        converted = [*map(_integer if whole_ones else float, numbers)]
    except (ValueError, TypeError) as error:
        odd = next((number for number in numbers if not isinstance(number, (str, int, float))), None)
        given = reason(error) if isinstance(error, ValueError) else _called(odd)
        raise ValueError(f"{given} is not {'a whole number' if whole_ones else 'a number'}") from None
    if len(converted) != 1 and not kind.endswith("_list"):
        raise ValueError(f"holds {len(converted)} values instead of one; the type of a list is {kind}_list")
    return converted


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
            raise ValueError("the JSON is nested too deeply") from None
    return text.replace(",", " ").split()


def is_array_of_objects(value: object) -> TypeGuard[Array]:
    """Whether a value is an array of Python objects, such as texts, so that its bytes are their addresses."""
    return hasattr(value, "dtype") and hasattr(value, "tolist") and value.dtype.kind == "O"


def _as_bytes(value: object) -> bytes:
    if value is None or isinstance(value, (dict, list, tuple)):
        raise TypeError(f"it holds {'null' if value is None else 'a ' + type(value).__name__}")
    if is_array_of_objects(value):
        return _only_one(value.tolist())
    if hasattr(value, "tobytes"):
        data: bytes = value.tobytes()
        return data
    return value if isinstance(value, bytes) else str(value).encode()


def _only_one(values: Sequence[object]) -> bytes:
    """Return the bytes of the only value of a list.

    Raises:
        ValueError: when the list has another number of values.
    """
    if len(values) != 1:
        raise ValueError(f"holds {len(values)} values instead of one; the type of a list is bytes_list")
    return _as_bytes(values[0])


def _integer(value: ConvertibleToInt) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"could not convert it: {value!r}")
    return int(value)
