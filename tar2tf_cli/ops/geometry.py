"""The internal ops that apply the moves of an image to its boxes, points and masks.

`follow_image` puts two internal ops around those of a conversion: `Track` begins to record the moves of images, and
`Follow` applies the recorded moves, after the last op and before any op that reads other entries. Without declarations,
neither is added.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.api.op import JsonSchema, JsonValue, Op, OpContext, Samples
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.image.geometry import Move, Size, clip_edges, follow_boxes, follow_mask, follow_points
from tar2tf_cli.ops.annotations import ENCODED, Boxes, Geometry, Mask, Points
from tar2tf_cli.ops.base import IMAGE_ENTRIES, missing_entry, runs_own_code
from tar2tf_cli.ops.image import MOVES
from tar2tf_cli.ops.positions import BoxList, find_boxes, find_points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAPS: Final = "__geometry__"
"""The entry in which a function may return how it moved images: eight numbers by entry, or None for no move."""

OUTSIDE: Final = 1.0
"""Number of pixels by which a box may leave its image and be clipped, as annotation tools round."""


def follow_image(ops: Sequence[Op], geometry: Geometry) -> tuple[Op, ...]:
    """Add the ops that move boxes, points and masks with their images to the ops of a conversion.

    Raises:
        UsageError: when an op moves the pixels of a declared mask.
    """
    if not geometry or not any(getattr(op, "moves", False) or op.on_pixels or runs_own_code(op) for op in ops):
        return tuple(ops)
    masks = [entry for mask in geometry.masks for entry in mask.at]
    track, follow = Track(), Follow(geometry)
    made: list[Op] = [track]
    for op in ops:
        entry = getattr(op, "ext", "") if getattr(op, "moves", False) else ""
        if moved := fnmatch.filter(masks, entry):
            message = f"the mask {moved[0]!r} already moves with its image, so {op.name} on it would move it twice"
            raise UsageError(message, hint=_without_mask(op.name, entry, moved[0]))
        if op.on_pixels:
            made.append(op)
        elif runs_own_code(op):
            made += (follow, CheckedUserOp(op, geometry), track)
        else:
            made += (follow, op, track)
    return (*made, follow)


def _without_mask(op: str, entry: str, mask: str) -> str:
    other = f"leave out --op {op}:{entry},..." if entry == mask else f"write the image's own name in place of {entry}"
    return f"{other}, or leave out --mask {mask}"


class _Internal(Op):
    """Base class of ops that users cannot write."""

    by_name = True

    @classmethod
    def from_value(cls, value: JsonValue) -> Op:
        raise ValueError(f"{cls.name} is not for users")

    @classmethod
    def schema(cls) -> JsonSchema:
        return {}

    def canonical(self) -> dict[str, JsonValue]:
        return {self.name: None}


class Track(_Internal):
    """Op that begins to record the moves of images."""

    name = "track"
    usage = ""

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        sample.setdefault(MOVES, {})
        return sample


class Follow(_Internal):
    """Op that applies the recorded moves to boxes, points and masks.

    Args:
        geometry: the declared boxes, points and masks.
    """

    name = usage = "follow"

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def canonical(self) -> dict[str, JsonValue]:
        boxes, points, masks, *_ = self._geometry
        declared: list[Boxes | Points | Mask] = [*boxes, *points, *masks]
        return {self.name: ", ".join(item.at[0] for item in declared)}

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        """Change the coordinates in the sample, keeping their format.

        Raises:
            SampleError: for values that are not boxes or points, and for invalid boxes.
        """
        moves: dict[str, list[Move]] = sample.pop(MOVES, {})
        if not moves:
            return sample
        for points in self._geometry.points:
            if moved := moves_of(sample, points, "--points", moves):
                _move_points(sample, points, moved)
        for boxes in self._geometry.boxes:
            if moved := moves_of(sample, boxes, "--boxes", moves):
                self._move_boxes(sample, boxes, moved, context)
        for mask in self._geometry.masks:
            if moved := moves_of(sample, mask, "--mask", moves):
                _move_masks(sample, mask, image_of(sample, mask.of), moved, context)
        return sample

    def _move_boxes(self, sample: Sample, boxes: Boxes, moves: Sequence[Move], context: OpContext) -> None:
        found = find_boxes(sample, boxes.at, boxes.beside or ())
        if found is None:
            return
        form, relative = found.form or boxes.format, boxes.relative or found.form is not None
        edges = to_edges(found.numbers(), form, moves[0].before if relative else None)
        invalid = invalid_boxes(edges, moves[0].before)
        if invalid and self._geometry.invalid == "error":
            number, fault = next(iter(invalid.items()))
            raise SampleError(f"box {number} of {boxes.at[0]!r} {fault}", hint=INVALID_HINT)
        if not len(edges):
            return
        followed = follow_boxes(clip_edges(edges, moves[0].before), moves)
        kept = (followed.visible > 0) & (followed.visible >= boxes.min_visible)
        kept[[*invalid]] = self._geometry.invalid == "keep"
        after = moves[-1].after if relative else None
        self._count_unmoved(found, context)
        found.replace(from_edges(followed.edges, form, after), followed.visible * followed.scale, kept)
        _count(context, followed.visible, kept, len(invalid))

    def _count_unmoved(self, found: BoxList, context: OpContext) -> None:
        """Count the boxes whose object also has an outline or points that do not move with the image."""
        if context.boxes and self._geometry.unmoved:
            declared = [selection for points in self._geometry.points for selection in points.at]
            for name in found.names_in_objects(self._geometry.unmoved, declared):
                context.boxes.add(f"{UNMOVED} {name}", 1)


UNMOVED: Final = "unmoved"
"""Prefix of the counts of boxes whose object has an outline or points that did not move."""

INVALID_HINT: Final = "correct it, or pass --invalid-boxes drop or keep"


def _count(context: OpContext, visible: NDArray[np.float64], kept: NDArray[np.bool_], invalid: int) -> None:
    """Count the boxes that were clipped and dropped."""
    if context.boxes:
        context.boxes.add("clipped", int(((visible < 1) & kept).sum()))
        context.boxes.add("dropped", int((~kept).sum()))
        context.boxes.add("invalid", invalid)


def image_of(sample: Sample, of: str | None) -> str:
    """Return the image entry of a declaration: the declared entry, or the entry that presets choose."""
    return of or next((name for name in (*IMAGE_ENTRIES, ENCODED) if name in sample), "")


def moves_of(
    sample: Sample, declared: Boxes | Points | Mask, option: str, moves: Mapping[str, Sequence[Move]]
) -> Sequence[Move]:
    """Return the moves of a declaration's image; none if the image was not moved.

    Args:
        sample: the sample.
        declared: the declaration.
        option: the option of the declaration.
        moves: the moves of each image that was moved.

    Raises:
        SampleError: when the sample lacks the declared image.
        UsageError: when no image is declared, and the sample has none of the usual names.
    """
    name = image_of(sample, declared.of)
    if name in sample:
        return moves.get(name, ())
    if declared.of:
        raise missing_entry(sample, f"has no entry {name!r}, the image of {declared.at[0]!r}", name, option)
    raise UsageError(
        f"it is unclear which image {declared.at[0]!r} is on, and {', '.join(map(repr, moves))} moved",
        hint=f"name the image: {option} {declared.at[0]},of={next(iter(moves))}",
    )


def to_edges(numbers: NDArray[np.float64], form: str, size: Size | None = None) -> NDArray[np.float64]:
    """Convert boxes to (n, 4) of left, top, right and bottom in pixels.

    Args:
        numbers: (n, 4) in a format of `Boxes`.
        form: the format.
        size: height and width of the image if the numbers are fractions of it.
    """
    import numpy as np

    if form == "yxyx":
        edges = numbers[:, [1, 0, 3, 2]]
    elif form == "xyxy":
        edges = numbers.copy()
    else:
        corner, sides = numbers[:, :2], numbers[:, 2:]
        corner = corner - sides / 2 if form == "cxcywh" else corner
        edges = np.concatenate([corner, corner + sides], axis=1)
    return edges * np.array([size[1], size[0]] * 2, np.float64) if size else edges


def from_edges(edges: NDArray[np.float64], form: str, size: Size | None = None) -> NDArray[np.float64]:
    """Convert boxes from left, top, right and bottom to another format; the inverse of `to_edges`."""
    import numpy as np

    if size:
        edges = edges / np.array([size[1], size[0]] * 2, np.float64)
    if form == "yxyx":
        return edges[:, [1, 0, 3, 2]]
    if form == "xyxy":
        return edges
    corner, sides = edges[:, :2], edges[:, 2:] - edges[:, :2]
    return np.concatenate([corner + sides / 2 if form == "cxcywh" else corner, sides], axis=1)


class LocatedBoxes(NamedTuple):
    """The boxes of a sample on their image.

    Attributes:
        edges: (n, 4): left, top, right and bottom in pixels.
        classes: the name or number of each box's class; empty if unknown.
    """

    edges: NDArray[np.float64]
    classes: Sequence[str]


def locate_boxes(sample: Sample, boxes: Boxes, size: Size) -> LocatedBoxes | None:
    """Return the declared boxes of a sample in pixels; None if none of several selections is present.

    Raises:
        SampleError: when the sample lacks the boxes, or a box does not have four numbers.
    """
    found = find_boxes(sample, boxes.at, boxes.beside or ())
    if found is None:
        return None
    relative = boxes.relative or found.form is not None
    return LocatedBoxes(
        to_edges(found.numbers(), found.form or boxes.format, size if relative else None), found.classes()
    )


def locate_points(sample: Sample, points: Points, size: Size) -> NDArray[np.float64] | None:
    """Return x and y, (n, 2), of the visible declared points, measured from the edges of the image.

    A point with pixel numbers is at the pixel's centre, half a pixel from the pixel's edges.

    Raises:
        SampleError: when the sample lacks the points, or a point has too few numbers.
    """
    import numpy as np

    found = find_points(sample, points.at, len(points.format))
    if found is None:
        return None
    numbers = found.numbers()
    if points.format == "xyv":
        numbers = numbers[numbers[:, 2] > 0]
    xy = numbers[:, [1, 0] if points.format == "yx" else [0, 1]]
    return xy * np.array(size[::-1], np.float64) if points.relative else xy + 0.5


def invalid_boxes(edges: NDArray[np.float64], size: Size) -> dict[int, str]:
    """Return the faults of invalid boxes by box number: NaN, no area, outside the image."""
    import numpy as np

    height, width = size
    faults: dict[int, str] = {}
    for number, (left, top, right, bottom) in enumerate(edges.tolist()):
        shown = f"[{left:g}, {top:g}, {right:g}, {bottom:g}]"
        if not np.isfinite(edges[number]).all():
            faults[number] = f"has a number that is not finite: {shown}"
        elif right <= left or bottom <= top:
            faults[number] = f"has no area: left, top, right, bottom are {shown}"
        elif min(left, top) < -OUTSIDE or right > width + OUTSIDE or bottom > height + OUTSIDE:
            faults[number] = f"is not inside the image, {width} pixels wide and {height} high: {shown}"
        elif left >= width or top >= height or right <= 0 or bottom <= 0:
            faults[number] = f"is outside the image, {width} pixels wide and {height} high: {shown}"
    return faults


def _move_points(sample: Sample, points: Points, moves: Sequence[Move]) -> None:
    import numpy as np

    stride = len(points.format)
    found = find_points(sample, points.at, stride)
    if found is None or not len(numbers := found.numbers()):
        return
    xy = numbers[:, [1, 0]] if points.format == "yx" else numbers[:, :2]
    before, after = (np.array(size[::-1], np.float64) for size in (moves[0].before, moves[-1].after))
    # a fraction of the width is a position between edges, half a pixel from the number of the pixel
    xy = xy * before - 0.5 if points.relative else xy
    moved = follow_points(xy, moves)
    outside = (moved <= -1).any(1) | (moved >= after).any(1)
    moved = (moved + 0.5) / after if points.relative else moved
    made = moved[:, [1, 0]] if points.format == "yx" else moved
    if stride == 3:
        seen = numbers[:, 2:]
        made = np.concatenate([np.where(seen > 0, made, numbers[:, :2]), seen], axis=1)
        made[outside & (seen[:, 0] > 0)] = 0
    found.replace(made)


def _move_masks(sample: Sample, declared: Mask, image_name: str, moves: Sequence[Move], context: OpContext) -> None:
    from tar2tf_cli.formats.image import codecs

    name = next((name for name in declared.at if name in sample and name != image_name), None)
    if name is None:
        return
    value = whole(sample[name])
    try:
        mask = codecs.decode_indices(value, max_pixels=context.max_pixels) if isinstance(value, bytes) else value
        moved = follow_mask(mask, moves, declared.fill)
    except (SampleError, ValueError) as error:
        fault = error if isinstance(error, SampleError) else SampleError(f"entry {name!r}: {error}")
        raise fault.at(member=f"{sample[KEY]}.{name}") from None
    sample[name] = codecs.encode(moved, "png", 95) if isinstance(value, bytes) else moved


class CheckedUserOp(_Internal):
    """Op that calls an op of the user and raises an error if that moves an image without returning the move.

    A function returns how it moved an image in the entry `__geometry__` of its sample:
    `{"jpg": (a, b, c, d, e, f, height, width)}` for x' = a x + b y + c, y' = d x + e y + f and the new size, or
    `{"jpg": None}` if boxes, points and masks need no change.

    Args:
        op: the op.
        geometry: the declared boxes, points and masks.
    """

    def __init__(self, op: Op, geometry: Geometry) -> None:
        self._op = op
        self.name, self.usage, self.by_name = op.name, op.usage, op.by_name  # type: ignore[misc]
        boxes, points, masks, *_ = geometry
        self._of = [*(item.of for item in boxes), *(item.of for item in points), *(item.of for item in masks)]

    def canonical(self) -> dict[str, JsonValue]:
        """Return the form of the user's op."""
        return self._op.canonical()

    def apply(self, sample: Sample, context: OpContext) -> Samples:
        """Apply the user's op.

        Raises:
            UsageError: when the op changed an image without returning its move.
        """
        before = {name: _fingerprint(sample[name]) for name in {image_of(sample, of) for of in self._of} if name}
        result = self._op.apply(sample, context)
        if result is None or isinstance(result, dict):
            return result and self._checked(result, before)
        return (self._checked(one, before) for one in result)

    def _checked(self, sample: Sample, before: Mapping[str, _Fingerprint]) -> Sample:
        given = sample.pop(MAPS, {})
        moves = sample.setdefault(MOVES, {})
        for name, known in before.items():
            if name not in sample or _fingerprint(sample[name]) == known:
                continue
            if name not in given:
                what = getattr(self._op, "label", self._op.name)
                message = f"the function {what} changed the image {name!r}, but does not say how it moved pixels"
                hint = (
                    f"return it in the sample: sample['{MAPS}'] = {{'{name}': (a, b, c, d, e, f, height, width)}}, "
                    "or None instead of the numbers if nothing moved"
                )
                raise UsageError(message, hint=hint)
            if given[name] is not None:
                *matrix, height, width = given[name]
                moves.setdefault(name, []).append(Move(tuple(matrix), known.size, (height, width)))
        return sample


class _Fingerprint(NamedTuple):
    """Fingerprint of an image, by which changes are detected.

    Attributes:
        digest: a digest of the image's pixels or bytes.
        size: height and width.
    """

    digest: bytes
    size: Size


def _fingerprint(value: Any) -> _Fingerprint:
    import xxhash

    from tar2tf_cli.formats.image import headers

    value = whole(value)
    if isinstance(value, bytes):
        header = headers.header(value)
        return _Fingerprint(xxhash.xxh3_128_digest(value), (header.height, header.width))
    return _Fingerprint(xxhash.xxh3_128_digest(value.tobytes()), value.shape[:2])
