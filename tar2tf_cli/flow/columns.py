"""Features that the kernel makes from plain samples: entries renamed, dropped or selected, and texts parsed as numbers.

The names of a sample's entries determine its features, so they are decided once for each combination of names. If
values matter or may be invalid, samples are processed singly by the general functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from struct import Struct
from types import ModuleType
from typing import Any, Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, SINGLE_BYTES_TAG, WHOLE_LIST_FLAG, Batch, Form, Kind
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.described import DTYPES
from tar2tf_cli.features.feature_map import Look, Schema
from tar2tf_cli.formats.example import TAGS
from tar2tf_cli.ops.base import leading_filters
from tar2tf_cli.ops.select import Select, flatten
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import NamedTuple

_HEAD: Final = Struct("=3i")
_KINDS: Final[dict[str, Kind]] = {"int64": "int64", "float": "float", "bytes": "bytes"}
_OF_TAGS: Final[dict[int, Kind]] = {tag[0]: kind for kind, tag in TAGS.items()}


class _FeatureNames(NamedTuple):
    """The features of samples with the same entry names.

    Attributes:
        names: the names of the features, in order.
        looks: the look of each feature that is not one bytes value, as the members of a tar are.
        encoded: the features in the form that `records` in samples.h accepts.
    """

    names: tuple[str, ...]
    looks: dict[str, Look]
    encoded: bytes


class FeatureColumns:
    """Makes features from plain samples with the kernel, according to the names of their entries.

    Args:
        conversion: a conversion for which `can_express` is true.
    """

    def __init__(self, conversion: Conversion) -> None:
        self._select = None if conversion.select is None else flatten(conversion.select)
        self._types = conversion.types
        self._ops = conversion.ops[len(leading_filters(conversion.ops)) :]
        self._form: Form = "members" if conversion.output.traits.holds == "sample" else "record"
        self._key_split = conversion.input.key_split
        self._known: dict[tuple[bytes, bytes], _FeatureNames | None] = {}

    def encode(self, native: ModuleType, batch: Batch) -> tuple[bytes, bytes] | None:
        """Return the records or members of a batch, and their sizes; None if its samples must come one by one."""
        decided = [self._features_of(batch, number) for number in range(len(batch.signatures))]
        maps = [names and names.encoded for names in decided]
        return batch.encode(native, self._form, maps=maps, key_split=self._key_split)

    def names(self, batch: Batch) -> set[str]:
        """Return the names of the features of a batch."""
        decided = (self._features_of(batch, number) for number in range(len(batch.signatures)))
        return {name for features in decided if features for name in features.names}

    def schema(self, batch: Batch) -> Schema:
        """Return the schema of the features of an encoded batch.

        Raises:
            SampleError: when a feature is of several kinds.
        """
        schema = Schema()
        for number, count in batch.count_signatures().items():
            features = self._features_of(batch, number)
            assert features
            schema.update(Schema(Counter({features.names: count}), features.looks))
        return schema

    def _features_of(self, batch: Batch, number: int) -> _FeatureNames | None:
        """Return the features of a signature's samples; None if entry names do not determine them."""
        signature = batch.signatures[number], batch.lists[number] if batch.lists else b""
        if signature not in self._known:
            self._known[signature] = self._decide(batch.names_of(number), batch.values_of(number))
        return self._known[signature]

    def _decide(self, entries: Sequence[str], values: Sequence[tuple[int, int]]) -> _FeatureNames | None:
        sample: Any = {name: number for number, name in enumerate((KEY, *entries))}
        try:
            for op in self._ops:
                if not isinstance(sample := op.apply(sample, OpContext()), dict):
                    return None
            if self._select is not None:
                sample = {name: selection.select(sample) for name, selection in self._select.items()}
            elif sample[KEY] != 0:
                return None
        except SampleError:
            return None
        if any(name not in sample for name in self._types):
            return None
        if sample.get(KEY, 0) != 0:  # encoded under another key, which may decide about the split
            return None
        values = [(SINGLE_BYTES_TAG, 1), *values]
        after = {name: values[entry][0] for name, entry in sample.items()}
        for name, kind in self._types.items():
            if after[name] not in (SINGLE_BYTES_TAG, TAGS[_KINDS[kind]][0]):
                return None
            after[name] = TAGS[_KINDS[kind]][0]
        if self._form == "members":
            sample = {KEY: 0, **sample}
        encoded = b"".join(_encoded(name, entry, after.get(name, SINGLE_BYTES_TAG)) for name, entry in sample.items())
        looks = {
            name: _look_of(tag, values[sample[name]][1])
            for name, tag in after.items()
            if tag != SINGLE_BYTES_TAG and self._form != "members"
        }
        return _FeatureNames(tuple(sample), looks, encoded)


def _encoded(name: str, entry: int, tag: int) -> bytes:
    data = name.encode("utf-8", "surrogateescape")
    return _HEAD.pack(entry, tag & ~WHOLE_LIST_FLAG, len(data)) + data


def _look_of(tag: int, count: int) -> Look:
    """Return the look of a feature, given its list tag and number of values as in `Batch.lists`."""
    kind = _OF_TAGS[tag & ~WHOLE_LIST_FLAG]
    dtype = DTYPES[kind][0]
    return kind, dtype, (None if count < 0 else count,) if tag & WHOLE_LIST_FLAG else ()


def looks_in(batch: Batch) -> dict[str, Look]:
    """Return the looks of the entries of a batch that are not one bytes value.

    Raises:
        SampleError: when an entry is of several kinds.
    """
    if not batch.lists:
        return {}
    schema = Schema()
    for number in batch.count_signatures():
        values = zip(batch.names_of(number), batch.values_of(number), strict=True)
        looks = {name: _look_of(tag, count) for name, (tag, count) in values if tag != SINGLE_BYTES_TAG}
        schema.update(Schema(Counter({batch.names_of(number): 1}), looks))
    return schema.looks


def can_express(conversion: Conversion) -> bool:
    """Whether `FeatureColumns` can make a conversion's features: entry names determine them, and types are single
    numbers.
    """
    if conversion.labels or conversion.preset or conversion.record_to_example or conversion.example_ops:
        return False
    if conversion.input.key:
        return False
    selections = flatten(conversion.select or {}).values()
    ops = conversion.ops[len(leading_filters(conversion.ops)) :]
    return (
        all(type(selection) is Select for selection in selections)
        and all(op.moves_names for op in ops)
        and all(kind in _KINDS for kind in conversion.types.values())
        and KEY not in conversion.types
    )
