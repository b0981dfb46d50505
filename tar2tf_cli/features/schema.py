"""The common schema of the features of many examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import Feature, Features

_Look = tuple[str, str, tuple[int | None, ...]]
_PLAIN: Final[_Look] = ("bytes", "bytes", ())


@dataclass(slots=True, eq=False)
class Schema:
    """The common schema of the features of many examples.

    Attributes:
        signatures: number of examples with each combination of names.
        looks: encoding, dtype and shape of each feature, with None for a dimension that differs; features that are
            one bytes value may be absent.
    """

    signatures: Counter[tuple[str, ...]] = field(default_factory=Counter)
    looks: dict[str, _Look] = field(default_factory=dict)

    def add_plain(self, names: Iterable[str]) -> None:
        """Add an example whose features are one bytes value each."""
        self.signatures[tuple(names)] += 1

    def add(self, features: Features) -> None:
        """Add one example's features.

        Raises:
            SampleError: when a feature is of another kind or rank than before.
        """
        for name, value in features.items():
            look = (value.encoding, value.dtype, value.shape) if isinstance(value, Feature) else _PLAIN
            if self.looks.get(name) != look:
                self._merge(name, look)
        self.signatures[tuple(features)] += 1

    @property
    def key(self) -> Hashable:
        """Equal for schemas that are equal in all respects."""
        return (*self.signatures.items(), None, *self.looks.items())

    def update(self, other: Schema, times: int = 1) -> None:
        """Merge another schema into this one, with its examples counted that many times.

        Raises:
            SampleError: when a feature is of another kind or rank there.
        """
        if times:
            self.signatures.update({names: count * times for names, count in other.signatures.items()})
        for name, look in other.looks.items():
            self._merge(name, look)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the manifest's `features`: dtype, shape, encoding and number of examples that have it, sorted by name.

        The encoding says where the values are: a list of bytes, int64 or float, or `raw`, one bytes value with the
        array's bytes in C order, little-endian. A shape of [] is one value; null is a length that differs.
        """
        counts: Counter[str] = Counter()
        for names, count in self.signatures.items():
            counts.update(dict.fromkeys(names, count))
        described = {}
        for name in sorted(counts):
            encoding, dtype, shape = self.looks.get(name, _PLAIN)
            described[name] = {"dtype": dtype, "shape": list(shape), "encoding": encoding, "count": counts[name]}
        return described

    def to_json(self) -> list[Any]:
        """Return the schema as plain JSON."""
        return [list(self.signatures.items()), [[name, *look] for name, look in self.looks.items()]]

    @classmethod
    def from_json(cls, whole: list[Any]) -> Schema:
        """Return the schema that `to_json` returned as JSON."""
        signatures, looks = whole
        return cls(
            Counter({tuple(names): count for names, count in signatures}),
            {name: (encoding, dtype, tuple(shape)) for name, encoding, dtype, shape in looks},
        )

    def _merge(self, name: str, look: _Look) -> None:
        known = self.looks.setdefault(name, look)
        if {len(known[2]), len(look[2])} == {0, 1} and known[0] != "raw":  # one value and a list of one: the same bytes
            known, look = (*known[:2], known[2] or (1,)), (*look[:2], look[2] or (1,))
            self.looks[name] = known
        if known[:2] != look[:2] or len(known[2]) != len(look[2]):
            raise SampleError(
                f"the feature {name!r} is {_named(look)} here and {_named(known)} elsewhere",
                hint=f"make it one kind with an op or --type {name}=TYPE",
            )
        if known[2] != look[2]:
            shape = tuple(a if a == b else None for a, b in zip(known[2], look[2], strict=True))
            self.looks[name] = (*known[:2], shape)


def _named(look: _Look) -> str:
    return f"{look[1]} of rank {len(look[2])}"
