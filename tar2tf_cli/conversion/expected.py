"""What a manifest's features require of the features of each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from tar2tf_cli.conversion.manifest_model import shape_features
from tar2tf_cli.formats.example import Kind
from tar2tf_cli.formats.example_parser import ParsedFeature

__all__ = ["Expected", "expected"]

_SIZES: Final = {"uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "float32": 4, "int32": 4}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a schema requires of one feature; None allows anything.

    Attributes:
        kind: the kind of list that holds the values.
        count: number of values.
        size: total size of the values on the wire in bytes.
        values: the values themselves, each a number or None for any.
    """

    kind: Kind | None = None
    count: int | None = None
    size: int | None = None
    values: tuple[int | None, ...] | None = None

    def misfit(self, feature: ParsedFeature) -> str | None:
        """What is wrong with a feature, if anything."""
        if self.kind is not None and feature.kind != self.kind:
            return f"the feature {feature.name!r} is {feature.kind or 'unset'}, but {self.kind} in the manifest"
        if self.count is not None and feature.count != self.count:
            return f"the feature {feature.name!r} has {feature.count:,} values, but {self.count:,} in the manifest"
        if self.size is not None and feature.size != self.size:
            return f"the feature {feature.name!r} has {feature.size:,} bytes, but {self.size:,} in the manifest"
        if self.values is not None and not _alike(found := feature.values(), self.values):
            shape = ["?" if length is None else length for length in self.values]
            return f"the feature {feature.name!r} is {_shown(found)}, but {_shown(shape)} by its shape in the manifest"
        return None


def _alike(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(found) == len(wanted) and all(b in (a, None) for a, b in zip(found, wanted, strict=True))


def _shown(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


def expected(features: Mapping[str, Mapping[str, Any]]) -> dict[str, Expected]:
    """What a manifest's features (`Schema.describe`) require of each."""
    found = {name: _expected(described) for name, described in features.items()}
    for name, described in features.items():
        stored, shape = shape_features(name, features), described["shape"]
        if any(length is not None for length in shape):
            lengths = [tuple(shape)] if len(stored) == 1 else [(length,) for length in shape]
            found |= {shaped: replace(found[shaped], values=own) for shaped, own in zip(stored, lengths, strict=False)}
    return found


def _expected(described: Mapping[str, Any]) -> Expected:
    encoding, shape = described["encoding"], described["shape"]
    count = None if None in shape else prod(shape)
    if encoding == "raw":
        width = _SIZES.get(described["dtype"])
        return Expected("bytes", 1, count * width if count is not None and width else None)
    return Expected(encoding, count)
