"""Presets: known feature sets of existing training code and readers.

A file here is a preset: its `PRESET` is known by the file's name, with hyphens for underscores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from tar2tf_cli.errors import SampleError, UsageError, meant
from tar2tf_cli.formats.example_parser import parse_features
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.ops.base import OpContext, called
from tar2tf_cli.ops.base import label as name_of
from tar2tf_cli.registry import preset_names
from tar2tf_cli.samples.names import KEY, Sample

Make: TypeAlias = Callable[[Sample, OpContext], dict[str, Any]]
"""Makes features from a sample, or from the values that `select` took from it."""


class Preset(NamedTuple):
    """A known set of features.

    Attributes:
        make: makes the features.
        names: the features that it always makes; None if they are those of the sample.
        uses: the options that only some presets use.
        decodes: whether it decodes or encodes images, by libraries that release the GIL.
        light: whether making the features costs less than copying the sample.
    """

    make: Make
    names: tuple[str, ...] | None = None
    uses: tuple[str, ...] = ()
    decodes: bool = False
    light: bool = False

    def features(self, selected: Iterable[str] | None) -> Iterable[str] | None:
        """Return the names of its features if they are known, given those that `select` names, if it is given."""
        return self.names or (None if selected is None else [*selected, KEY])


def find_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises:
        UsageError: when it does not exist.
    """
    names = preset_names()
    if str(name) not in names:
        raise UsageError(f"there is no preset {name!r}{meant(name, names)}", hint=f"presets: {', '.join(names)}")
    preset: Preset = import_module(f"{__name__}.{name.replace('-', '_')}").PRESET
    return preset


def of_record_to_example(function: Callable[[Sample], Any]) -> Make:
    """Make features with your own function, which returns a tf.train.Example, its bytes, or a dict of values."""

    def features(sample: Sample, context: OpContext) -> dict[str, Any]:
        example = called(function, whole_sample(sample))
        if isinstance(example, dict):
            return example
        try:
            return parse_features(example if isinstance(example, bytes) else example.SerializeToString())
        except (AttributeError, ValueError):
            given = type(example).__name__
            raise SampleError(f"the function {name_of(function)} returned {given}, not a tf.train.Example") from None

    return features
