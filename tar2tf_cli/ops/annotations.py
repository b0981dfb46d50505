"""Declarations of the boxes, points and masks of an image, in flags, spec files and Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from tar2tf_cli.ops.base import Declared
from tar2tf_cli.ops.rules import Rule, number_of, one_of, optional, probability, rule, text, yes_or_no
from tar2tf_cli.structs import dataclass

NO_LISTS: Final = "none"
"""The value of `beside` for boxes without lists that belong to them."""

ENCODED: Final = "image/encoded"
"""The image feature in TFRecords of TF-slim or the Object Detection API."""


@rule(anyOf=[text.schema, {"type": "array", "items": text.schema, "minItems": 1}])
def _selections(value: object, label: str) -> tuple[str, ...]:
    """Accept a selection of an entry or a value in it, or several, of which the first present one is used."""
    items = value if isinstance(value, (list, tuple)) else str(value).split("+")
    return tuple(text(item, label) for item in items)


@dataclass(frozen=True)
class Boxes(Declared):
    """Declaration of boxes on an image, which move with the image.

    Args:
        at: the selection of the values: `ENTRY:PATH` in JSON, an array of (n, 4), a text (`txt`) with the lines of
            YOLO's labels, or the prefix of four features, such as `image/object/bbox` for `image/object/bbox/xmin` and
            so on.
        format: the meaning of the four numbers; in `xywh`, x and y are the upper left corner.
        relative: whether they are fractions of the image's width and height.
        of: the entry of the image; by default the first of `IMAGE_ENTRIES`, or `image/encoded`.
        min_visible: boxes of which less than this fraction remains visible are dropped; invisible ones always are.
        beside: selections of lists with an item for each box; the item of a dropped box is removed, too. A JSON object
            that holds a dropped box is removed as a whole, and items in lists of the Object Detection API are removed
            automatically.

    >>> Boxes.from_value("json:objects.*.bbox,format=xyxy,relative").relative
    True
    """

    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "at": _selections,
        "format": one_of("xywh", "xyxy", "cxcywh", "yxyx"),
        "relative": yes_or_no,
        "of": optional(text),
        "min_visible": probability,
        "beside": optional(_selections),
    }

    at: tuple[str, ...] | str
    format: str = "xywh"
    relative: bool = False
    of: str | None = None
    min_visible: float = 0.0
    beside: tuple[str, ...] | str | None = None


@dataclass(frozen=True)
class Points(Declared):
    """Declaration of points on an image, such as keypoints, which move with it; coordinates are pixel numbers from 0.

    Args:
        at: the selection of the values: `ENTRY:PATH` in JSON, or an array of (n, 2) or (n, 3). A value may be a point,
            a list of points, or a list of their numbers.
        format: the numbers of a point: `xy`, `yx`, or `xyv` as in COCO, where v becomes 0 for a point outside.
        relative: whether they are fractions of the image's width and height.
        of: the entry of the image, as for boxes.
    """

    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "at": _selections,
        "format": one_of("xy", "yx", "xyv"),
        "relative": yes_or_no,
        "of": optional(text),
    }

    at: tuple[str, ...] | str
    format: str = "xy"
    relative: bool = False
    of: str | None = None


@dataclass(frozen=True)
class Mask(Declared):
    """Declaration of a mask of an image, which moves with the image by nearest-neighbour sampling.

    Args:
        at: the entry of the mask: a PNG, of which the palette indices are used, or an array.
        of: the entry of the image, as for boxes.
        fill: the value of pixels that the image gains by padding or rotating.
    """

    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "at": _selections,
        "of": optional(text),
        "fill": number_of("", 1e9),
    }

    at: tuple[str, ...] | str
    of: str | None = None
    fill: float = 0.0


OUTLINES: Final = (
    *("segmentation", "segmentations", "polygon", "polygons", "contour", "contours", "mask", "rle"),
    *("keypoints", "keypoint", "points", "landmarks"),
)
"""Usual names of outlines and points in a JSON object with a box; they do not move with the image unless declared."""


class Geometry(NamedTuple):
    """All declared boxes, points and masks of a conversion.

    Attributes:
        boxes: lists of boxes.
        points: lists of points.
        masks: masks.
        invalid: whether a box without area or outside its image is an `error`, is removed (`drop`), or kept.
        unmoved: names of undeclared outlines and points that are written, and counted as unmoved.
    """

    boxes: tuple[Boxes, ...] = ()
    points: tuple[Points, ...] = ()
    masks: tuple[Mask, ...] = ()
    invalid: str = "error"
    unmoved: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.boxes or self.points or self.masks)
