"""Geometry of ops on images: an affine map for each, applied to boxes, points and masks.

Coordinates are continuous, x to the right and y down: an image spans (0, 0) to (width, height), and the centre of its
first pixel is (0.5, 0.5), as in `tf.image.resize`. A box consists of edges. A point names a pixel, so that (0, 0) is
the centre of the first one; it moves as that centre does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from tar2tf_cli.formats import image
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Edges: TypeAlias = "NDArray[np.float64]"
else:
    from tar2tf_cli.formats.image import np

Size: TypeAlias = tuple[int, int]
"""Height and width in pixels."""

Matrix: TypeAlias = tuple[float, float, float, float, float, float]
"""a, b, c, d, e, f of x' = a x + b y + c and y' = d x + e y + f."""

_NUDGE = 2**-20  # a centre exactly between two pixels belongs to the second, as in `image.rotate`


class Move(NamedTuple):
    """An affine map from the pixels of an image to those of the transformed image.

    Attributes:
        matrix: maps continuous coordinates of the original image to those of the transformed image.
        before: height and width of the original image.
        after: height and width of the transformed image.
    """

    matrix: Matrix
    before: Size
    after: Size

    @property
    def scale(self) -> float:
        """The factor by which the map scales areas."""
        a, b, _, d, e, _ = self.matrix
        return abs(a * e - b * d)


def scaled(before: Size, after: Size) -> Move:
    """Return the map of an image that is scaled to another size."""
    return placed(before, after, after, 0, 0)


def placed(before: Size, inner: Size, after: Size, top: int, left: int) -> Move:
    """Return the map of an image that is scaled to an inner size, and pasted at a position of a canvas."""
    return Move((inner[1] / before[1], 0.0, left, 0.0, inner[0] / before[0], top), before, after)


def mirrored(before: Size) -> Move:
    """Return the map of an image that is flipped left to right."""
    return Move((-1.0, 0.0, before[1], 0.0, 1.0, 0.0), before, before)


def rotated(before: Size, angle: float) -> Move:
    """Return the map of `image.rotate`: clockwise by degrees about the centre; quarter turns may swap the sides."""
    height, width = before
    quarters, rest = divmod(angle % 360, 90)
    if rest:
        sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        x, y = width / 2, height / 2
        matrix = (cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y)
        return Move(matrix, before, before)
    by_quarters: tuple[Matrix, ...] = (
        (1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        (0.0, -1.0, height, 1.0, 0.0, 0.0),
        (-1.0, 0.0, width, 0.0, -1.0, height),
        (0.0, 1.0, 0.0, -1.0, 0.0, width),
    )
    return Move(by_quarters[int(quarters)], before, (width, height) if quarters % 2 else before)


def oriented(before: Size, orientation: int) -> Move:
    """Return the map of `image.oriented`, given the value of EXIF's tag 274."""
    swapped = orientation in (5, 6, 7, 8)
    height, width = after = before[::-1] if swapped else before
    across, down = -1.0 if orientation in (2, 3, 6, 7) else 1.0, -1.0 if orientation in (3, 4, 7, 8) else 1.0
    x, y = (width if across < 0 else 0.0), (height if down < 0 else 0.0)
    matrix = (0.0, across, x, down, 0.0, y) if swapped else (across, 0.0, x, 0.0, down, y)
    return Move(matrix, before, after)


def move_edges(edges: Edges, move: Move) -> Edges:
    """Return the boxes, (n, 4) of left, top, right, bottom, that enclose mapped boxes; they may exceed the image."""
    a, b, c, d, e, f = move.matrix
    x, y = edges[:, [0, 2, 0, 2]], edges[:, [1, 1, 3, 3]]
    across, down = a * x + b * y + c, d * x + e * y + f
    return np.stack([across.min(1), down.min(1), across.max(1), down.max(1)], axis=1)


def clip_edges(edges: Edges, size: Size) -> Edges:
    """Clip boxes to an image of a size."""
    return edges.clip(0, np.array([size[1], size[0], size[1], size[0]], np.float64))


def areas(edges: Edges) -> Edges:
    """Return the area of each box."""
    return (edges[:, 2] - edges[:, 0]) * (edges[:, 3] - edges[:, 1])


class FollowedBoxes(NamedTuple):
    """Boxes after the transformations of their image.

    Attributes:
        edges: left, top, right and bottom of each box in the transformed image, clipped to it.
        visible: the fraction of each box's area that no move cut off.
        scale: the factor by which areas grew before clipping.
    """

    edges: Edges
    visible: Edges
    scale: float


def follow_boxes(edges: Edges, moves: Iterable[Move]) -> FollowedBoxes:
    """Transform boxes along with their image, and clip them after each step."""
    visible, scale = np.ones(len(edges)), 1.0
    for move in moves:
        unclipped = move_edges(edges, move)
        edges = clip_edges(unclipped, move.after)
        whole = areas(unclipped)
        visible = visible * np.divide(areas(edges), whole, out=np.zeros(len(edges)), where=whole > 0)
        scale *= move.scale
    return FollowedBoxes(edges, visible, scale)


def follow_points(points: Edges, moves: Iterable[Move]) -> Edges:
    """Transform points, (n, 2) of x and y, along with their image; they may end up outside it."""
    for move in moves:
        a, b, c, d, e, f = move.matrix
        x, y = points[:, 0] + 0.5, points[:, 1] + 0.5
        points = np.stack([a * x + b * y + c, d * x + e * y + f], axis=1) - 0.5
    return points


def follow_mask(mask: image.Image, moves: Iterable[Move], fill: float = 0) -> image.Image:
    """Transform a mask (height, width[, channels]) along with its image: nearest neighbour, padded with a value.

    Raises:
        ValueError: when the mask and the image differ in size.
    """
    for move in moves:
        if mask.shape[:2] != move.before:
            sizes = "{}x{} pixels, but its image {}x{}".format(*mask.shape[:2], *move.before)
            raise ValueError(f"the mask has {sizes} (height x width)")
        mask = _move_mask(mask, move, fill)
    return mask


def _move_mask(mask: image.Image, move: Move, fill: float) -> image.Image:
    a, b, c, d, e, f = move.matrix
    (height, width), (rows, columns) = move.after, move.before
    moved = np.full((height, width, *mask.shape[2:]), fill, mask.dtype)
    if not (b or d) and min(a, e) > 0:  # no rotation or mirroring: use the tables of tf.image.resize
        flat = mask.reshape(rows, columns, -1)  # masks in npy files have no channels
        inner = image.resample(flat, round(e * rows), round(a * columns), "nearest")
        inner = inner.reshape(*inner.shape[:2], *mask.shape[2:])
        top, left = round(f), round(c)
        part = inner[max(-top, 0) : height - top, max(-left, 0) : width - left]
        top, left = max(top, 0), max(left, 0)
        moved[top : top + part.shape[0], left : left + part.shape[1]] = part
        return moved
    area = a * e - b * d
    x, y = np.arange(width) + 0.5 - c, (np.arange(height) + 0.5 - f)[:, None]
    across = np.floor((e * x - b * y) / area + _NUDGE).astype(np.intp)
    down = np.floor((a * y - d * x) / area + _NUDGE).astype(np.intp)
    inside = (across >= 0) & (across < columns) & (down >= 0) & (down < rows)
    moved[inside] = mask[down[inside], across[inside]]
    return moved
