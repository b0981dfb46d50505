"""What `--dry-run` shows: what would happen to the output, and the first sample after each op and the selection."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, NamedTuple, TypeAlias

from tar2tf_cli.conversion.claim import NO_MANIFEST, make_claim
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.takeover import Takeover
from tar2tf_cli.errors import OutputExistsError, UsageError
from tar2tf_cli.features.feature_map import MissingFeatureError
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.flow.sample_flow import Faults, flow
from tar2tf_cli.formats.example import Feature
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.samples.names import KEY

__all__ = ["Outcome", "Step", "outcome", "trace"]

Status: TypeAlias = Literal["new", "up to date", "continue", "update", "overwrite", "refuse"]


class Outcome(NamedTuple):
    """What a conversion would do to its output, in a word and in a sentence, which is empty for a new output."""

    status: Status
    message: str = ""


def outcome(plan: Plan, **options: Any) -> Outcome:
    """What the conversion of a plan would do to the files that are there; nothing is changed.

    Args:
        plan: the conversion.
        **options: `endpoint`, `overwrite` and `update`, as for `convert`.
    """
    if plan.conversion.output.is_stream:
        if options["update"]:
            raise UsageError(NO_MANIFEST)
        return Outcome("new")
    try:
        claim = make_claim(plan, **options)
        folder = claim.working_folder()
        if claim.finished():
            return Outcome("up to date", "up to date: nothing would be done")
        takeover = Takeover(claim, folder)
    except OutputExistsError as error:
        return Outcome("refuse", f"would refuse: {error}")
    if takeover.sealed:
        return Outcome("continue", f"would continue an interrupted run that finished {len(takeover.sealed):,} shards")
    if takeover.changes:
        return Outcome("update", f"would update: {takeover.changes}")
    if takeover.everything:
        return Outcome("update", f"would convert everything again: {takeover.everything}")
    if replaced := len(takeover.found | takeover.stale):
        return Outcome("overwrite", f"would replace what is there: {replaced:,} files")
    return Outcome("new")


class Step(NamedTuple):
    """A step, and a description of each entry or feature of the sample after it, by name."""

    step: str
    entries: dict[str, str]


def trace(plan: Plan) -> list[Step]:
    """The steps of a plan's first sample; empty if there is none, or if the input can be read only once.

    Raises:
        SampleError: when an op or selection fails on it.
        UsageError: when no sample of the first input has a feature that has a type.
    """
    try:
        return _steps(plan)
    except MissingFeatureError:
        with Reading(plan.conversion, plan.source, plan.inputs[0], first=True) as reading:
            deque(reading.records(), maxlen=0)  # raises the UsageError
        raise


def _steps(plan: Plan) -> list[Step]:
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
