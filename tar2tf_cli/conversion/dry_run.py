"""What `--dry-run` shows: the first sample after each op and after the selection, with dtypes and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.flow.sample_flow import Faults, flow
from tar2tf_cli.formats.example import Feature
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.samples.grouping import KEY

if TYPE_CHECKING:
    from tar2tf_cli.conversion.plan import Plan

__all__ = ["Step", "trace"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step, and a description of each entry or feature of the sample after it, by name."""

    title: str
    entries: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"step": self.title, "entries": self.entries}


def trace(plan: Plan) -> list[Step]:
    """The steps of a plan's first sample; empty if there is none, or if the input can be read only once.

    Raises:
        SampleError: when an op or selection fails on it.
    """
    if not plan.source.repeatable or not plan.inputs:
        return []
    with Reading(plan.conversion, plan.source, plan.inputs[0], ahead=True) as reading:
        sample = next(reading.samples(), None)
        if sample is None:
            return []
        steps = [Step(f"the first sample, {sample[KEY]}:", _looks(sample))]
        for op, one in reading.steps.each():
            title = f"after {_title(op.canonical())}:" if op else "features:"
            results = list(flow([sample], one, Faults(option="--on-error skip"), where=reading.where))
            if not results:
                return [*steps, Step(f"{title} dropped", {})]
            sample = results[0] if op else dict(sorted(results[0].items()))
            steps.append(Step(title if len(results) == 1 else f"{title} {len(results)} samples", _looks(sample)))
    return steps


def _title(canonical: dict[str, Any]) -> str:
    name, fields = next(iter(canonical.items()))
    if not isinstance(fields, dict):
        return f"{name} {fields}"
    return " ".join([name, *(f"{field}={value}" for field, value in fields.items())])


def _looks(values: Any) -> dict[str, str]:
    return {name: _look(value) for name, value in values.items()}


def _look(value: Any) -> str:
    """The type and the shape or length of a value; short values are shown."""
    if isinstance(value, Feature):
        return f"{value.dtype} {list(value.shape)}" + (", raw bytes" if value.encoding == "raw" else "")
    if hasattr(value, "dtype"):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, (bytes, StoredBytes)):
        return f"bytes, {len(value):,} long" + (f": {value!r}" if len(value) <= 40 else "")
    return f"{type(value).__name__}: {str(value)[:60]}"
