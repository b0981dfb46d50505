"""Boxes, points and masks on the images of samples, in image pixels, for the page of `inspect`.

They are declared, or found by the names of the Object Detection API and of masks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from tar2tf_cli.api.values import KEY
from tar2tf_cli.checking.html import Box
from tar2tf_cli.errors import ImageError, LackingError, MissingNameError, SampleError
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.formats.image import codecs, headers, is_named_like_mask
from tar2tf_cli.formats.image.geometry import Size
from tar2tf_cli.ops.annotations import ENCODED, Boxes, Geometry, Mask, Points
from tar2tf_cli.ops.geometry import image_of, invalid_boxes, locate_boxes, locate_points
from tar2tf_cli.ops.positions import SIDES, entry_of
from tar2tf_cli.ops.rules import accepted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tar2tf_cli.api.values import Sample

    Levels = NDArray[np.uint8]

MOST_BOXES: Final = 100
"""Boxes of an image that are kept, and as many points."""

_MOST_LEVELS: Final = 64
"""Distinct values of a mask that is not declared; an image of more is one of gray, or a depth."""

_MOST_CLASS: Final = 40
_FIRST_SIDE: Final = f"/{SIDES[0]}"
_KEYPOINTS: Final = "image/object/keypoint"
_SEGMENTATION: Final = "image/segmentation/class/encoded"
_MAX_PIXELS: Final = 1 << 26

SampleValues: TypeAlias = Mapping[str, Any]
"""The entries of a sample, or the features of a record."""


class Overlay(NamedTuple):
    """The boxes, points and masks of an image.

    Attributes:
        height: height of the image.
        width: width of the image.
        boxes: the first of its boxes.
        points: the first of its points, each as x and y.
        levels: the mask, (height, width); None if there is none.
        more: number of boxes and points that are not included.
        faults: faults of boxes, points and masks.
    """

    height: int
    width: int
    boxes: Sequence[Box] = ()
    points: Sequence[tuple[float, float]] = ()
    levels: Levels | None = None
    more: int = 0
    faults: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.boxes or self.points or self.levels is not None or self.faults)


def overlay_of(name: str, size: Size, values: SampleValues, geometry: Geometry) -> Overlay:
    """Return the boxes, points and masks of an image of a sample, given its name, height and width."""
    sample = _as_sample(values)
    boxes, faults = list[Box](), list[str]()
    for declared in _boxes(sample, geometry):
        if (declared.of or image_of(sample, None)) == name:
            found, wrong = _located(sample, declared, size)
            boxes += found
            faults += wrong
    points, wrong = _points(name, sample, geometry, size)
    more = max(len(boxes) - MOST_BOXES, 0) + max(len(points) - MOST_BOXES, 0)
    levels = next(_masks(name, values, sample, geometry, size), None)
    return Overlay(*size, boxes[:MOST_BOXES], points[:MOST_BOXES], levels, more, [*faults, *wrong])


def _as_sample(values: SampleValues) -> Sample:
    """Convert values to the form in which ops get them: numbers as arrays, several texts as lists."""
    return {name: _plain(value) for name, value in values.items()} | {KEY: ""}


def _plain(value: object) -> object:
    if not isinstance(value, ParsedFeature):
        return value
    return value.values() if value.kind == "bytes" else np.array(value.values())


def declared_geometry(spec: Mapping[str, Any]) -> Geometry:
    """Return a spec's declarations of geometry on images: `boxes`, `points`, `mask`, and those of its `preset`.

    Raises:
        UsageError: for an invalid declaration, or an unknown preset.
    """
    from tar2tf_cli.features.presets import find_preset
    from tar2tf_cli.spec import fields

    own, preset = Geometry(), find_preset(spec["preset"]) if spec.get("preset") else None
    if preset and preset.geometry:
        own = preset.geometry(
            {name: item for name, item in (spec.get("select") or {}).items() if isinstance(item, str)}
        )
    boxes = accepted(fields.boxes, spec.get("boxes") or (), "boxes")
    points = accepted(fields.points, spec.get("points") or (), "points")
    return Geometry(boxes or own.boxes, points, accepted(fields.masks, spec.get("mask") or (), "mask") or own.masks)


def check_names(geometry: Geometry, names: Collection[str]) -> None:
    """Check that each declaration refers to some entry or feature of a dataset.

    Raises:
        UsageError: when a declaration refers to none.
    """
    options: dict[str, Sequence[Boxes | Points | Mask]] = {
        "--boxes": geometry.boxes,
        "--points": geometry.points,
        "--mask": geometry.masks,
    }
    for option, declarations in options.items():
        for declared in declarations:
            entries = [entry_of(selection) for selection in declared.at]
            if not any(entry in names or f"{entry}{_FIRST_SIDE}" in names for entry in entries):
                raise MissingNameError("", name=entries[0], option=option).usage_error(names, None)


# --- Boxes and points ---


def _boxes(sample: Sample, geometry: Geometry) -> Iterator[Boxes]:
    """Yield the declared boxes, and those implied by feature names of the Object Detection API."""
    yield from geometry.boxes
    declared = {selection for boxes in geometry.boxes for selection in boxes.at}
    for name in sample:
        prefix = name.removesuffix(_FIRST_SIDE)
        if prefix != name and prefix not in declared and all(f"{prefix}/{side}" in sample for side in SIDES):
            of = f"{name.partition('/')[0]}/encoded"
            yield Boxes(prefix, of=of if of in sample else None)


def _located(sample: Sample, declared: Boxes, size: Size) -> tuple[list[Box], list[str]]:
    """Return boxes with finite edges, and the faults of boxes."""
    try:
        located = locate_boxes(sample, declared, size)
    except LackingError:
        return [], []
    except SampleError as error:
        return [], [error.message]
    if located is None:
        return [], []
    edges, classes = located
    wrong = [f"box {number} of {declared.at[0]!r} {fault}" for number, fault in invalid_boxes(edges, size).items()]
    named = [text[:_MOST_CLASS] for text in classes] if len(classes) == len(edges) else [""] * len(edges)
    boxes = [
        Box(left, top, right, bottom, label)
        for (left, top, right, bottom), label in zip(edges.tolist(), named, strict=True)
        if np.isfinite(left + top + right + bottom)
    ]
    return boxes, wrong


def _points(name: str, sample: Sample, geometry: Geometry, size: Size) -> tuple[list[tuple[float, float]], list[str]]:
    """Return the points on an image, and their faults."""
    rows, faults = list[list[float]](), list[str]()
    for declared in geometry.points:
        if (declared.of or image_of(sample, None)) == name:
            try:
                located = locate_points(sample, declared, size)
            except LackingError:
                continue
            except SampleError as error:
                faults.append(error.message)
                continue
            rows += [] if located is None else located.tolist()
    x, y = (np.atleast_1d(sample.get(f"{_KEYPOINTS}/{axis}", ())) for axis in "xy")
    if name == ENCODED and x.dtype.kind == y.dtype.kind == "f" and x.shape == y.shape:
        rows += (np.stack([x, y], axis=1) * size[::-1]).tolist()
    return [(x, y) for x, y in rows if np.isfinite(x + y)], faults


# --- Masks ---


def _masks(name: str, values: SampleValues, sample: Sample, geometry: Geometry, size: Size) -> Iterator[Levels]:
    """Yield the masks that have the size of an image: the declared ones, then those recognised by name."""
    declared = [mask for mask in geometry.masks if image_of(sample, mask.of) == name]
    for mask in declared or ([Mask(_named(sample, name))] if image_of(sample, None) == name else ()):
        for entry in mask.at:
            levels = _levels(entry, values) if entry in values and entry != name else None
            if levels is not None and levels.shape == size and (declared or _are_classes(levels)):
                yield levels


def _named(sample: Sample, image: str) -> tuple[str, ...]:
    named = [entry for entry in sample if entry == _SEGMENTATION or (is_named_like_mask(entry) and entry != image)]
    return tuple(named)


def _are_classes(levels: Levels) -> bool:
    return len(np.unique(levels)) <= _MOST_LEVELS


def _levels(name: str, values: SampleValues) -> Levels | None:
    """Return the levels of a mask: the indices of a PNG, or uint8 numbers with a shape; None for other values."""
    value = values[name]
    if not isinstance(value, bytes):
        return None
    shape = values.get(f"{name}/shape")
    if isinstance(shape, ParsedFeature) and shape.kind == "int64":
        sides = shape.values()
        fits = len(sides) in (2, 3) and (*sides, 1)[2] == 1 and int(np.prod(sides)) == len(value)
        return np.frombuffer(value, np.uint8).reshape(sides[:2]) if fits else None
    try:
        if headers.image_format(value) == "png":
            return codecs.decode_indices(value, max_pixels=_MAX_PIXELS)[..., 0]
    except (ImageError, ValueError):
        pass
    return None


def colours(levels: Levels) -> NDArray[np.uint8]:
    """Return a mask as RGBA: 0 transparent, 255 white, other levels in the PASCAL VOC palette.

    Source: the function VOClabelcolormap of the development kit, http://host.robots.ox.ac.uk/pascal/VOC/.
    """
    numbers = np.arange(256)
    table = np.zeros((256, 4), np.uint8)
    for shift in range(8):
        for channel in range(3):
            table[:, channel] |= ((numbers >> (3 * shift + channel) & 1) << (7 - shift)).astype(np.uint8)
    table[1:, 3] = 255
    table[255, :3] = 255
    return table[levels]
