"""Samples to features: entries typed as asked, the rest as bytes, and what all of them look like together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tar2tf_cli.errors import SampleError
from tar2tf_cli.example import Feature, Features, bytes_list, float_list, int64_list, scalar
from tar2tf_cli.samples import KEY, Sample
from tar2tf_cli.spec import TypeName

__all__ = ["FeatureMap", "Schema", "describe"]


class FeatureMap:
    """Makes features of samples.

    Args:
        types: the type of each entry that is not to stay as it is.
    """

    def __init__(self, types: Mapping[str, TypeName]) -> None:
        self._types = dict(types)

    def features(self, sample: Sample) -> Features:
        """The features of a sample, under the names of its entries; `__key__` becomes bytes.

        Raises:
            SampleError: when an entry named in the types is missing or is not of its type.
        """
        sample[KEY] = sample[KEY].encode("utf-8", "surrogateescape")
        for name, kind in self._types.items():
            if name not in sample:
                raise SampleError(f"has no entry {name!r}, which --type asks for", key=_key(sample), hint=_SKIP_HINT)
            try:
                sample[name] = _typed(sample[name], kind)
            except (ValueError, OverflowError) as error:
                raise SampleError(f"entry {name!r} is no {kind}: {error}", key=_key(sample), hint=_SKIP_HINT) from None
        return sample


_SKIP_HINT: Final = "correct the sample, or pass over such samples with --on-error skip"


def _key(sample: Sample) -> str:
    key: bytes = sample[KEY]
    return key.decode("utf-8", "surrogateescape")


def _typed(value: Any, kind: TypeName) -> bytes | Feature:
    """A value of an entry as a feature of the type; bytes are read as text where numbers are asked for."""
    if kind == "bytes":
        return bytes(value)
    if kind == "bytes_list":
        return bytes_list(value if isinstance(value, list) else [value])
    numbers = _numbers(value)
    feature = int64_list(map(_integer, numbers)) if kind.startswith("int64") else float_list(map(float, numbers))
    if kind.endswith("_list"):
        return feature
    if len(numbers) != 1:
        raise ValueError(f"holds {len(numbers)} values where one belongs")
    return scalar(feature)


def _numbers(value: Any) -> list[Any]:
    """The numbers of a text such as `7`, `1 2 3`, `1,2,3` or `[1, 2, 3]`, as text or as JSON has them."""
    if not isinstance(value, bytes):
        return list(value) if isinstance(value, (list, tuple)) else [value]
    text = value.decode("utf-8").strip()
    if text.startswith("["):
        numbers = json.loads(text)
        return list(numbers)
    return text.replace(",", " ").split()


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def describe(value: bytes | Feature) -> str:
    """A feature for people: its kind and shape, and how bytes begin."""
    if isinstance(value, Feature):
        return f"{value.kind}, shape {list(value.shape)}"
    return f"bytes, {len(value):,} long: {value[:24]!r}{'...' if len(value) > 24 else ''}"


@dataclass(slots=True)
class Schema:
    """What the features of many examples look like together.

    Attributes:
        signatures: how many examples had each combination of names.
        kinds: of each feature that is not one bytes value: its kind and shape, a dimension None where it differs.
    """

    signatures: Counter[tuple[str, ...]] = field(default_factory=Counter)
    kinds: dict[str, tuple[str, tuple[int | None, ...]]] = field(default_factory=dict)

    def add(self, features: Features) -> None:
        """Take note of one example's features."""
        self.signatures[tuple(features)] += 1
        for name, value in features.items():
            if type(value) is Feature:
                self._merge(name, value.kind, value.shape)

    def update(self, other: Schema) -> None:
        """Take note of all that another has seen."""
        self.signatures.update(other.signatures)
        for name, (kind, shape) in other.kinds.items():
            self._merge(name, kind, shape)

    def describe(self) -> dict[str, dict[str, Any]]:
        """The manifest's `features`: dtype, shape, encoding and how many examples have it, by name in order.

        The encoding is the list that holds the values: bytes, int64 or float. A shape of [] is one value; null
        stands for a length that differs.
        """
        counts: Counter[str] = Counter()
        for names, count in self.signatures.items():
            counts.update(dict.fromkeys(names, count))
        described = {}
        for name in sorted(counts):
            kind, shape = self.kinds.get(name, ("bytes", ()))
            dtype = "float32" if kind == "float" else kind
            described[name] = {"dtype": dtype, "shape": list(shape), "encoding": kind, "count": counts[name]}
        return described

    def to_json(self) -> list[Any]:
        """As plain JSON."""
        return [list(self.signatures.items()), [[name, *what] for name, what in self.kinds.items()]]

    @classmethod
    def from_json(cls, whole: list[Any]) -> Schema:
        """The schema that `to_json` gave."""
        signatures, kinds = whole
        return cls(
            Counter({tuple(names): count for names, count in signatures}),
            {name: (kind, tuple(shape)) for name, kind, shape in kinds},
        )

    def _merge(self, name: str, kind: str, shape: tuple[int | None, ...]) -> None:
        known_kind, known = self.kinds.setdefault(name, (kind, shape))
        if known_kind != kind or len(known) != len(shape):
            raise SampleError(
                f"the feature {name!r} is {kind} of shape {shape} here and {known_kind} of {known} elsewhere"
            )
        if known != shape:
            self.kinds[name] = kind, tuple(a if a == b else None for a, b in zip(known, shape, strict=True))
