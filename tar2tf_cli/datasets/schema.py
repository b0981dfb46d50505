"""The common form of each feature in all samples of a sequence, and defaults for missing values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import UsageError, alternatives, did_you_mean
from tar2tf_cli.features.described import Described, is_optional, is_shape_of_array


class _Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "..."

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
"""Stands for no default, as None is one."""

Default: TypeAlias = "Mapping[str, object] | bytes | str | int | float | _Unset | None"
"""The value of missing features, or of each one by its name."""


class FeatureForm(NamedTuple):
    """The common form of one feature in all samples.

    Attributes:
        dtype: `bytes`, or the name of a NumPy dtype; `mixed` if samples differ.
        shape: the lengths of its dimensions, None for a variable length; () for a single value.
        optional: whether some samples lack it.

    >>> open_records("out/_train-manifest.json").schema()["cls"]
    FeatureForm(dtype='bytes', shape=(), optional=False)
    """

    dtype: str
    shape: tuple[int | None, ...]
    optional: bool = False


def manifest_schema(features: Described, records: int) -> dict[str, FeatureForm]:
    """Return the forms of the features in a manifest."""
    return {
        name: FeatureForm(about["dtype"], tuple(about["shape"]), is_optional(about, records))
        for name, about in features.items()
        if not is_shape_of_array(name, features)
    }


@dataclass(slots=True)
class SchemaFinder:
    """Infers the forms of features from samples, one after another.

    Attributes:
        samples: number of samples so far.
        forms: the form of each feature so far, without `optional`.
        counts: number of samples that have each feature.
    """

    samples: int = 0
    forms: dict[str, FeatureForm] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Add the values of a sample."""
        self.samples += 1
        for name, value in sample.items():
            found = _form_of(value)
            known = self.forms.get(name)
            self.forms[name] = found if known in (None, found) else _widened(known, found)
            self.counts[name] = self.counts.get(name, 0) + 1

    def schema(self) -> dict[str, FeatureForm]:
        """Return the inferred forms."""
        return {name: form._replace(optional=self.counts[name] < self.samples) for name, form in self.forms.items()}


def _form_of(value: object) -> FeatureForm:
    if isinstance(value, np.ndarray):
        return FeatureForm("bytes" if value.dtype == object else value.dtype.name, value.shape)
    return FeatureForm("bytes" if isinstance(value, (bytes, str)) else np.asarray(value).dtype.name, ())


def _widened(known: FeatureForm, found: FeatureForm) -> FeatureForm:
    """Return a form that includes two others; a scalar counts as a list of one value."""
    dtype = known.dtype if known.dtype == found.dtype else "mixed"
    one, other = (form.shape or (1,) for form in (known, found))
    if len(one) != len(other):
        return FeatureForm(dtype, (None,))
    return FeatureForm(dtype, tuple(a if a == b else None for a, b in zip(one, other, strict=True)))


class UniformValues:
    """Converts each feature of a sample to its common form in all samples.

    Args:
        schema: the form of each feature.
        default: the value of missing features. An optional feature without a default becomes an array of one value or
            none.

    Raises:
        UsageError: when the default names a feature that does not exist.
    """

    def __init__(self, schema: Mapping[str, FeatureForm], default: Default) -> None:
        self._schema = schema
        if isinstance(default, Mapping):
            for name in default:
                if name not in schema:
                    hint = f"features: {', '.join(schema)}"
                    raise UsageError(
                        f"default names {name!r}, which no sample has{did_you_mean(name, schema)}", hint=hint
                    )
        self._default = default

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample with all features, in the order of the schema."""
        return {name: self._value(name, form, sample.get(name)) for name, form in self._schema.items()}

    def _value(self, name: str, form: FeatureForm, value: object) -> object:
        default = self._default.get(name, UNSET) if isinstance(self._default, Mapping) else self._default
        missing = value is None or (form.optional and isinstance(value, np.ndarray) and not value.size)
        if missing and default is not UNSET:
            return _of_dtype(default, form.dtype)
        as_list = form.shape != () or (form.optional and default is UNSET)
        if missing:
            return np.empty([0] * max(len(form.shape), 1), _dtype(form.dtype))
        if as_list and not isinstance(value, np.ndarray):
            return _list_of([value], form.dtype)
        return value[0] if not as_list and isinstance(value, np.ndarray) and value.shape == (1,) else value


def _of_dtype(default: object, dtype: str) -> object:
    """Return a default as a value of a feature's dtype: text as bytes, and a Python number as a NumPy number.

    A number that the dtype cannot represent is returned unchanged.
    """
    if isinstance(default, str) and dtype == "bytes":
        return default.encode()
    if dtype in ("bytes", "mixed") or not isinstance(default, (int, float)):
        return default
    kind = np.dtype(dtype)
    try:
        number: object = kind.type(default)
    except (OverflowError, ValueError):
        return default
    return number if kind.kind not in "iu" or number == default else default


def _list_of(values: Iterable[object], dtype: str) -> np.ndarray[Any, Any]:
    held = list(values)
    array = np.empty(len(held), _dtype(dtype))
    array[:] = held
    return array


def _dtype(name: str) -> np.dtype[np.generic]:
    return np.dtype(object if name in ("bytes", "mixed") else name)


def check_default(default: object) -> None:
    """Check that a default is one value, or values by name.

    Raises:
        UsageError: when it is anything else.
    """
    values = (Mapping, bytes, str, int, float, np.generic, type(None), _Unset)
    if not isinstance(default, values):
        kinds = alternatives(["a number", "bytes", "None", "a dict of these by feature"])
        raise UsageError(f"default must be {kinds}, not {default!r}")
