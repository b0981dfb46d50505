"""Samples as a transformer sends them: each is an example, in which entries are bytes and arrays are npy files."""

from __future__ import annotations

import io
from typing import Any, Final

from tar2tf_cli.formats.example_usual import parse_usual
from tar2tf_cli.formats.npy import read_array
from tar2tf_cli.samples.names import KEY, Sample

__all__ = ["from_example", "to_features"]

_ARRAY: Final = "\0npy"
"""What the names of arrays end with; no name in a tar has a NUL."""


def to_features(sample: Sample) -> dict[str, bytes]:
    """Return the features that stand for a sample."""
    key = sample[KEY].encode("utf-8", "surrogateescape")
    return dict(_feature(name, value) for name, value in {**sample, KEY: key}.items())


def _feature(name: str, value: Any) -> tuple[str, bytes]:
    if isinstance(value, bytes):
        return name, value
    import numpy as np

    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return name + _ARRAY, file.getvalue()


def from_example(message: bytes) -> Sample:
    """Return the sample that an example stands for.

    Raises:
        ValueError: when it is none that a transformer made.
    """
    sample: Sample = {}
    for name, feature in parse_usual(message).items():
        (value,) = feature.parts()
        sample[name.removesuffix(_ARRAY)] = read_array(value) if name.endswith(_ARRAY) else value
    sample[KEY] = sample[KEY].decode("utf-8", "surrogateescape")
    return sample
