"""Preview of a conversion: plan and first sample for `--dry-run`, an estimate of the output's size, and a picture."""

from __future__ import annotations

import copy
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY, Array, Feature, Sample
from tar2tf_cli.conversion.output_state import NO_MANIFEST, Action, decide, destination
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.spool import compressed
from tar2tf_cli.errors import MissingNameError, SampleError, Tar2tfError, UsageError
from tar2tf_cli.features.described import notes_on_shapes
from tar2tf_cli.features.feature_map import AUTO, Schema
from tar2tf_cli.features.labels import PlaceholderLabelMap
from tar2tf_cli.flow.faults import FaultPolicy
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan, context_of, flow
from tar2tf_cli.formats import image
from tar2tf_cli.formats.files import StoredBytes, whole, whole_sample
from tar2tf_cli.formats.image import codecs
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.structs import NamedTuple, dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tar2tf_cli.ops.annotations import Geometry

_INPUTS: Final = 3
_SAMPLES: Final = 32
_SECONDS: Final = 1.0
_MOST_GZIP: Final = 1 << 20


class Estimate(NamedTuple):
    """Estimate of a conversion's output.

    Attributes:
        records: number of records.
        bytes: size of all shards.
        shards: number of shards.
        shapes: notes on features with several shapes in the converted samples.
        palettes: names of entries that are PNGs with a palette.
        local: maximum bytes on the local disk: all shards, and the records not yet in a shard.
        seconds: time for one worker, extrapolated from the converted samples.
    """

    records: int
    bytes: int
    shards: int
    shapes: Sequence[str] = ()
    palettes: Sequence[str] = ()
    local: int = 0
    seconds: float = 0.0


@dataclass
class _SampleTotals:
    """Totals of the samples converted for an estimate: features, stored bytes, records, and bytes in shards."""

    schema: Schema
    palettes: set[str]
    consumed: int = 0
    records: int = 0
    plain: int = 0
    written: float = 0
    seconds: float = 0


def estimate(plan: Plan) -> Estimate | None:
    """Convert the first samples of a few inputs of each kind, evenly spread, and scale the result by the inputs' sizes.

    Returns:
        The estimate; None if an input can be read only once, the sizes are unknown, or no sample could be converted.

    Raises:
        SampleError: when a sample cannot be converted, and such samples are not skipped.
    """
    plan = _unnumbered(plan)
    size, spec = plan.size, plan.conversion
    if not (plan.source.capabilities.repeatable and plan.inputs and size is not None):
        return None
    count = plan.source.listing_info().samples
    records, total, local, seconds, schema, palettes = 0.0, 0.0, 0.0, 0.0, Schema(), set[str]()
    for group in _by_suffix(plan.inputs, whole=count is not None):
        seen = _SampleTotals(schema, palettes)
        for place in sorted({round(each * (len(group) - 1) / (_INPUTS - 1)) for each in range(_INPUTS)}):
            try:
                _convert_first_samples(plan, group[place], seen)
            except SampleError:
                raise
            except Tar2tfError:  # the conversion will report the error
                continue
        if seen.records:
            stored = sum(item.size or 0 for item in group)
            expected = count if count is not None else seen.records * stored / max(seen.consumed, 1)
            records += expected
            total += expected * seen.written / seen.records
            local += expected * (seen.written + seen.plain) / seen.records
            seconds += expected * seen.seconds / seen.records
    if not records:
        return None
    part = 1.0 if spec.limit is None else min(1.0, spec.limit / records)
    shapes = notes_on_shapes(schema.describe(), spec.canonical())
    shards = _shards(plan, round(records * part), total * part)
    palettes_found, local, seconds = sorted(palettes), local * part, round(seconds * part, 1)
    return Estimate(round(records * part), round(total * part), shards, shapes, palettes_found, round(local), seconds)


def _by_suffix(inputs: Sequence[ObjectInfo], *, whole: bool) -> list[list[ObjectInfo]]:
    """Group the inputs by their suffix, as compressed ones have more samples per byte."""
    groups: dict[str, list[ObjectInfo]] = {}
    for item in inputs:
        suffix = item.name[item.name.rfind(item.stem) + len(item.stem) :]
        groups.setdefault("" if whole else suffix, []).append(item)
    return list(groups.values())


def _convert_first_samples(plan: Plan, item: ObjectInfo, seen: _SampleTotals) -> None:
    """Convert the first samples of an input, and add them to the totals."""
    fetched: list[int] = []
    began, whole = time.monotonic(), item.size or 0
    deadline, plain = began + _SECONDS, 0
    ahead = plan.source.capabilities.seekable
    how, options = plan.read_plan(), ReadOptions(ahead=ahead)
    with InputFlow(how, item, options, on_bytes=fetched.append) as reading:
        consumed, blocks, records, written = whole, 0, 0, 0.0
        for _, parts, size, _ in reading.records():
            late = records and time.monotonic() > deadline
            known = reading.seekable or len(fetched) > blocks  # in a new block, all earlier blocks have been used
            if late or (known and records >= _SAMPLES):
                consumed = reading.offset if reading.seekable else sum(fetched[: blocks or None])
                if count := reading.reader.content.count:
                    consumed = round(whole * records / count)
                break
            blocks = len(fetched)
            records += 1
            plain += size
            written += size * _compression_ratio(parts, plan.conversion.output)
    seen.records += records
    seen.consumed += consumed
    seen.written += written
    seen.plain += plain
    seen.seconds += time.monotonic() - began
    seen.schema.update(reading.report.schema)
    seen.palettes.update(reading.report.palettes)


def _compression_ratio(parts: Iterable[bytes], output: Output) -> float:
    """Return the ratio of a record's compressed to its uncompressed size, estimated from its beginning."""
    if output.compression == "none":
        return 1.0
    taken, total = list[bytes](), 0
    for part in parts:
        taken.append(part)
        total += len(part)
        if total > _MOST_GZIP:
            break
    return sum(size for _, size in compressed([(taken, total)], output)) / total


def _shards(plan: Plan, records: int, total: float) -> int:
    """Return the number of shards for a number of records and bytes."""
    output = plan.conversion.output
    count = 0
    for lane, part in _lanes(plan):
        share = max(round(records * part), 1)
        if shards := output.shards_in(lane):
            count += min(shards, share)
        else:
            by_size = -(-total * part // output.limit) if output.limit else 1
            by_count = -(-share // output.records_per_shard) if output.records_per_shard else 1
            count += max(int(by_size), by_count, 1)
    return count if records else 0


def _lanes(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield each lane of shards with its fraction of the records."""
    size = plan.size
    if any(plan.stems) and size:
        sizes: Counter[str] = Counter()
        for item, lane in zip(plan.inputs, plan.stems, strict=True):
            sizes[lane] += item.size or 0
        yield from ((lane, part / size) for lane, part in sizes.items())
    else:
        yield from plan.conversion.split.items() or (("", 1.0),)


class PlanOutcome(NamedTuple):
    """The effect of a conversion on existing output: a word and a sentence, empty for a new output."""

    status: Action
    message: str = ""


def outcome(plan: Plan, *, endpoint: str | None, update: bool, **how: bool) -> PlanOutcome:
    """Return the effect of a plan's conversion on existing files, without changing them.

    Args:
        plan: the conversion.
        endpoint: URL of the store that holds the output.
        update: as for `convert`.
        **how: `overwrite` and `remove_many`, as for `convert`.
    """
    if plan.conversion.output.is_stream:
        if update:
            raise UsageError(NO_MANIFEST)
        return PlanOutcome("new")
    there = destination(plan, endpoint=endpoint, update=update, **how)
    with closing(decide(there, there.working_folder())) as decision:
        return PlanOutcome(*decision.outcome)


class TracedStep(NamedTuple):
    """A step of a conversion, and a description of each entry or feature of the sample after the step, by name."""

    step: str
    entries: dict[str, str]


def trace(plan: Plan) -> list[TracedStep]:
    """Return the steps of the first sample; empty without a sample, or if the input can be read only once.

    Raises:
        SampleError: when an op or selection fails on it.
        UsageError: when no sample of the first input has an entry or feature that an option names.
    """
    plan = _unnumbered(plan)
    try:
        return _steps(plan)
    except MissingNameError:
        how = plan.read_plan()
        with InputFlow(how, plan.inputs[0], ReadOptions(first=True)) as reading:
            deque(reading.records(), maxlen=0)  # raises the UsageError
        raise


def _unnumbered(plan: Plan) -> Plan:
    """Return the plan with label maps that number any text, as `--labels NAME=auto` has not read the inputs yet."""
    return plan._replace(
        labels={name: PlaceholderLabelMap({}) for name, labels in plan.label_maps.items() if labels == AUTO}
    )


def _steps(plan: Plan) -> list[TracedStep]:
    if not plan.source.capabilities.repeatable or not plan.inputs:
        return []
    how = plan.read_plan()
    with InputFlow(how, plan.inputs[0], ReadOptions(ahead=True)) as reading:
        sample = next(reading.samples(), None)
        if sample is None:
            return []
        steps = [TracedStep(f"the first sample, {sample[KEY]}:", _describe_values(sample))]
        of_samples = plan.conversion.output.traits.holds == "sample"
        for op, one in reading.transform.each():
            title = f"after {_title(op.canonical())}:" if op else "members:" if of_samples else "features:"
            if op is None and plan.conversion.group_by and (sample := _first_group(how, plan)):
                steps.append(TracedStep(f"the first group, {sample[KEY]}:", _describe_values(sample)))
            results = list(flow([sample], one, FaultPolicy(option="--on-error skip"), where=reading.reader.where))
            if not results:
                return [*steps, TracedStep(f"{title} dropped", {})]
            sample = results[0] if op or of_samples else dict(sorted(results[0].items()))
            if op and not op.usage:  # it prepares other ops, and changes nothing that users see
                continue
            looks = _describe_values(sample, reading.transform.context.palettes or ())
            steps.append(TracedStep(title if len(results) == 1 else f"{title} {len(results)} samples", looks))
    return steps


def _first_group(how: ReadPlan, plan: Plan) -> Sample:
    """Return the sample made of the first group of samples; empty if there is none."""
    from tar2tf_cli.flow.group import Neighbours

    neighbours = Neighbours.of(plan.inputs, plan.group_lanes, 0) if plan.group_lanes else None
    with InputFlow(how, plan.inputs[0], ReadOptions(ahead=True, neighbours=neighbours)) as reading:
        return next(reading.grouped(reading.samples(), reading.transform), {})


def _title(canonical: Mapping[str, object]) -> str:
    name, fields = next(iter(canonical.items()))
    if not isinstance(fields, dict):
        return f"{name} {fields}"
    return " ".join([name, *(f"{field}={value}" for field, value in fields.items())])


def _describe_values(values: Sample, palettes: Collection[str] = ()) -> dict[str, str]:
    """Describe each value; for the pixels of masks, also the number of distinct values."""
    looks = {name: _describe_value(value) for name, value in values.items() if name == KEY or not name.startswith("__")}
    for name, value in values.items():
        if (name in palettes or image.is_named_like_mask(name)) and getattr(value, "ndim", 0) in (2, 3):
            looks[name] += f", {image.describe_values(image.distinct_values(value))}"
    return looks


def _describe_value(value: Any) -> str:
    """Describe a value by its type and shape or length; a short value is shown itself."""
    if isinstance(value, Feature):
        return f"{value.dtype} {list(value.shape)}" + (", raw bytes" if value.encoding == "raw" else "")
    if hasattr(value, "dtype"):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, (bytes, StoredBytes)):
        return f"bytes, {len(value):,} long" + (f": {value!r}" if len(value) <= 40 else "")
    return f"{type(value).__name__}: {str(value)[:60]}"


# --- The picture of `--preview`: the first sample before and after its ops, with boxes, points and masks ---

_GREEN, _RED = (0, 200, 0), (230, 0, 0)
_SHADE: Final = 0.5  # of a mask over its image
_GAP: Final = 8


def picture(plan: Plan) -> bytes:
    """Return a PNG of the first sample's image before its ops and, to the right, after them.

    Raises:
        UsageError: when the first sample has no image.
        SampleError: when an op fails on it.
    """
    from tar2tf_cli.ops.annotations import Geometry
    from tar2tf_cli.ops.geometry import image_of

    conversion = plan.conversion
    with InputFlow(plan.read_plan(), plan.inputs[0], ReadOptions(ahead=True)) as reading:
        sample = next(reading.samples(), None)
        before = None if sample is None else whole_sample(copy.copy(sample))
    if before is None or not image_of(before, None):
        hint = "--preview shows the entry image, jpg, jpeg, png, bmp, webp, img or image/encoded"
        raise UsageError("the first sample has no image to show", hint=hint)
    results = apply_ops(copy.deepcopy(before), conversion.sample_ops, context_of(conversion))
    drawn = [_drawn(one, conversion.geometry or Geometry()) for one in (before, *results)]
    return codecs.encode(_side_by_side(drawn), "png")


def _drawn(sample: Sample, geometry: Geometry) -> NDArray[np.uint8]:
    """Return the image of a sample with its boxes, points and masks drawn on it."""
    import cv2
    import numpy as np

    from tar2tf_cli.ops.geometry import image_of, locate_boxes, locate_points

    name = image_of(sample, None)
    if not name:
        raise SampleError(f"the ops left no image in the sample {sample[KEY]!r}")
    pixels = _in_colours(sample[name])
    for mask in geometry.masks:
        entry = next((entry for entry in mask.at if entry in sample and entry != name), None)
        if entry and (levels := _levels(sample[entry])).shape[:2] == pixels.shape[:2]:
            colours = cv2.applyColorMap((levels[..., 0].astype(np.int64) * 67 % 256).astype(np.uint8), cv2.COLORMAP_HSV)
            mixed = cv2.addWeighted(pixels, 1 - _SHADE, colours, _SHADE, 0)
            pixels = np.where(levels[..., :1] > 0, mixed, pixels).astype(np.uint8)
    height, width = pixels.shape[:2]
    for boxes in geometry.boxes:
        if located := locate_boxes(sample, boxes, (height, width)):
            for left, top, right, bottom in np.nan_to_num(located.edges).round().astype(int).tolist():
                cv2.rectangle(pixels, (left, top), (right - 1, bottom - 1), _GREEN, 1)
    for points in geometry.points:
        marks = locate_points(sample, points, (height, width))
        for x, y in () if marks is None else np.floor(np.nan_to_num(marks)).astype(int).tolist():
            cv2.circle(pixels, (x, y), 2, _RED, -1)
    return pixels


def _in_colours(value: object) -> NDArray[np.uint8]:
    """Convert an image to uint8 with three channels; floats up to 1 are scaled, others are clipped."""
    import numpy as np

    value = whole(value)
    pixels = codecs.decode(value, 3) if isinstance(value, bytes) else np.asarray(value)
    if pixels.dtype.kind == "f" and pixels.size and pixels.max() <= 1:
        pixels = pixels * 255
    pixels = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, axis=2))


def _levels(value: Any) -> Array:
    value = whole(value)
    return codecs.decode_indices(value) if isinstance(value, bytes) else value  # type: ignore[no-any-return]


def _side_by_side(images: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Join images from left to right on white."""
    import numpy as np

    height = max(len(pixels) for pixels in images)
    width = sum(pixels.shape[1] for pixels in images) + _GAP * (len(images) - 1)
    canvas = np.full((height, width, 3), 255, np.uint8)
    left = 0
    for pixels in images:
        canvas[: len(pixels), left : left + pixels.shape[1]] = pixels
        left += pixels.shape[1] + _GAP
    return canvas
