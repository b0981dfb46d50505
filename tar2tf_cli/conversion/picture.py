"""Draws the first sample of a conversion before and after its ops, with boxes, points and masks: `--preview`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.api.values import KEY, Array, Sample
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, context_of
from tar2tf_cli.formats.files import whole, whole_sample
from tar2tf_cli.ops.annotations import Geometry
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import image_of, locate_boxes, locate_points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GREEN, _RED = (0, 200, 0), (230, 0, 0)
_SHADE: Final = 0.5  # of a mask over its image
_GAP: Final = 8


def picture(plan: Plan) -> bytes:
    """Return a PNG of the first sample's image before its ops and, to the right, after them.

    Raises:
        UsageError: when the first sample has no image.
        SampleError: when an op fails on it.
    """
    from tar2tf_cli.formats.image import codecs

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

    name = image_of(sample, None)
    if not name:
        raise SampleError(f"no image is left in the sample {sample[KEY]!r}")
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

    from tar2tf_cli.formats.image import codecs

    value = whole(value)
    pixels = codecs.decode(value, 3) if isinstance(value, bytes) else np.asarray(value)
    if pixels.dtype.kind == "f" and pixels.size and pixels.max() <= 1:
        pixels = pixels * 255
    pixels = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, axis=2))


def _levels(value: Any) -> Array:
    from tar2tf_cli.formats.image import codecs

    value = whole(value)
    return codecs.decode_indices(value) if isinstance(value, bytes) else value  # type: ignore[no-any-return]


def _side_by_side(images: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Join images from left to right on white."""
    import numpy as np

    height = max(len(image) for image in images)
    width = sum(image.shape[1] for image in images) + _GAP * (len(images) - 1)
    canvas = np.full((height, width, 3), 255, np.uint8)
    left = 0
    for image in images:
        canvas[: len(image), left : left + image.shape[1]] = image
        left += image.shape[1] + _GAP
    return canvas
