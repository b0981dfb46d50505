"""Features that the kernel makes of plain samples: entries renamed, left out or selected, and text as numbers.

The names of a sample's entries determine which features it has, so this is decided once for each combination of names.
Where values have a say, or might be an error, the samples come one by one, and the general functions decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from struct import Struct
from types import ModuleType
from typing import Any, Final

from tar2tf_cli.api.op import Op, OpContext
from tar2tf_cli.api.values import KEY, Batch, Kind
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.feature_map import Look, Schema
from tar2tf_cli.formats.example import TAGS
from tar2tf_cli.ops.select import Select, flatten
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import NamedTuple

_HEAD: Final = Struct("=3i")
_KINDS: Final[dict[str, Kind]] = {"int64": "int64", "float": "float", "bytes": "bytes"}
_LOOKS: Final[dict[str, Look]] = {"int64": ("int64", "int64", ()), "float": ("float", "float32", ())}


class _FeatureNames(NamedTuple):
    """The features of samples that have the same names of entries.

    Attributes:
        names: their names, in order.
        encoded: how the kernel makes them, as `records` in kernel.c takes it.
    """

    names: tuple[str, ...]
    encoded: bytes


class FeatureColumns:
    """Makes features of the entries of plain samples, by their names.

    Args:
        conversion: one for which `expresses` is true.
    """

    def __init__(self, conversion: Conversion) -> None:
        self._select = None if conversion.select is None else flatten(conversion.select)
        self._types = conversion.types
        self._ops = conversion.ops[len(leading_filters(conversion.ops)) :]
        self._known: dict[bytes, _FeatureNames | None] = {}
        self._looks = {name: _LOOKS[kind] for name, kind in conversion.types.items() if kind in _LOOKS}

    def encode(self, native: ModuleType, batch: Batch) -> tuple[bytes, bytes] | None:
        """Return the records of a batch, and the size of each; None if its samples must come one by one."""
        maps = [names and names.encoded for names in map(self._features_of, batch.signatures)]
        return batch.encode(native, "record", maps=maps)

    def schema(self, batch: Batch) -> Schema:
        """Return the schema of the features of a batch that was encoded.

        Raises:
            SampleError: when a feature is of several kinds.
        """
        schema = Schema()
        for kind, count in batch.count_signatures().items():
            features = self._features_of(batch.signatures[kind])
            assert features
            schema.signatures[features.names] += count
            schema.looks |= {name: self._looks[name] for name in features.names if name in self._looks}
        return schema

    def _features_of(self, signature: bytes) -> _FeatureNames | None:
        """Return the features of samples with the entries of a signature; None if they are not determined by that."""
        if signature not in self._known:
            self._known[signature] = self._decide(signature.decode().split("\0")[:-1])
        return self._known[signature]

    def _decide(self, entries: Sequence[str]) -> _FeatureNames | None:
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
        return _FeatureNames(tuple(sample), b"".join(self._encoded(name, sample[name]) for name in _sorted(sample)))

    def _encoded(self, name: str, entry: int) -> bytes:
        data = name.encode("utf-8", "surrogateescape")
        return _HEAD.pack(entry, TAGS[_KINDS[self._types.get(name, "bytes")]][0], len(data)) + data


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape"))


def leading_filters(ops: Sequence[Op]) -> list[Op]:
    """Return the ops before any other that only skip samples by one of their entries."""
    return list(takewhile(lambda op: op.filter_entry is not None, ops))


def expresses(conversion: Conversion) -> bool:
    """Whether the names of entries determine the features, and the types are those of single numbers."""
    if conversion.labels or conversion.preset or conversion.record_to_example or conversion.example_ops:
        return False
    if conversion.input.join or conversion.input.key or conversion.output.traits.holds == "sample":
        return False
    selections = flatten(conversion.select or {}).values()
    ops = conversion.ops[len(leading_filters(conversion.ops)) :]
    return (
        all(type(selection) is Select for selection in selections)
        and all(op.moves_names for op in ops)
        and all(kind in _KINDS for kind in conversion.types.values())
        and KEY not in conversion.types
    )
