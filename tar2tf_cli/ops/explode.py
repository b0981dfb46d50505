"""The op explode, which makes a sample of each step of an episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeAlias, cast

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Array, Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.ops.base import DeclaredOp, missing_entry, register
from tar2tf_cli.ops.rules import Rule, text
from tar2tf_cli.structs import dataclass

_DIGITS = 6


@register
@dataclass(frozen=True)
class Explode(DeclaredOp):
    """Make a sample of each step of an episode.

    The entries PREFIX/NAME have a value for each step, as in RLDS: the sample of a step gets its own value, as NAME.
    Entries without the prefix are repeated in every sample. The key is KEY/000012 for the step of number 12, from 0.

    The number of steps is the length of the shortest of these entries; a longer one, such as a list of actions, is
    divided into as many equal parts. An array that has a shape of its own is divided along its first dimension.

    >>> parse_op("explode:steps") == Explode("steps")
    True
    """

    name = "explode"
    usage = "explode:PREFIX"
    examples = ("explode:steps",)
    gives_names = True
    checks: ClassVar[Mapping[str, Rule[object]]] = {"prefix": text}

    prefix: str

    def apply(self, sample: Sample, context: OpContext) -> Iterator[Sample]:
        """Return a sample for each step.

        Raises:
            SampleError: when no entry has the prefix, or one cannot be divided into the steps.
        """
        folder = f"{self.prefix}/"
        steps = {name.removeprefix(folder): _values(sample[name]) for name in sample if name.startswith(folder)}
        others = {name: value for name, value in sample.items() if not name.startswith(folder)}
        if not steps:
            raise missing_entry(sample, f"explode: has no entry {folder}...", folder, "--op explode")
        if both := [name for name in steps if name in others]:
            message = f"explode: {folder}{both[0]} would become {both[0]!r}, which the episode has, too"
            raise SampleError(message, hint="rename one of them")
        count = min(map(len, steps.values()))
        for name, values in steps.items():
            if count == 0 or len(values) % count:
                raise SampleError(f"explode: {folder}{name} has {len(values)} values, but there are {count} steps")
        return self._steps(sample[KEY], steps, others, count)

    @staticmethod
    def _steps(key: str, steps: Mapping[str, Values], others: Sample, count: int) -> Iterator[Sample]:
        for number in range(count):
            parts = {name: _part(values, number, len(values) // count) for name, values in steps.items()}
            yield {**others, **parts, KEY: f"{key}/{number:0{_DIGITS}d}"}


Values: TypeAlias = "Sequence[object] | Array"
"""The values of an entry, along its first dimension."""


def _values(value: object) -> Values:
    """Return the values of an entry along its first dimension; a single value becomes a list of one."""
    import numpy as np

    value = whole(value)
    if isinstance(value, (bytes, str)):
        texts = np.empty(1, object)
        texts[0] = value
        return texts
    return value if isinstance(value, (list, tuple)) else np.atleast_1d(cast("Array", value))


def _part(values: Values, number: int, size: int) -> object:
    """Return the value of one step, or its values if there are several."""
    return values[number] if size == 1 else values[number * size : (number + 1) * size]
