"""Boxes and points move as albumentations and torchvision.transforms.v2 move them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.ops import parse_op
from tar2tf_cli.ops.annotations import Boxes, Geometry, Points
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import follow_image

A = pytest.importorskip("albumentations")
torch = pytest.importorskip("torch")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")
functional = pytest.importorskip("torchvision.transforms.v2.functional")

CASES = 150
GEOMETRY = Geometry((Boxes("boxes.json:b.*.box", format="xyxy"),), (Points("points.json:*"),))


class Case:
    """A random image size, boxes and points in it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.height, self.width = (int(side) for side in rng.integers(20, 120, 2))
        corner = rng.uniform(0, 0.8, (rng.integers(1, 8), 2))
        side = rng.uniform(0.05, 1, corner.shape) * (1 - corner)
        self.boxes = np.concatenate([corner, corner + side], 1) * np.array([self.width, self.height] * 2)
        self.points = rng.integers(0, [self.width, self.height], (5, 2)).astype(float)

    def ours(self, op: str) -> tuple[dict[int, list[float]], np.ndarray]:
        """The boxes that remain, by number, and the points, after an op."""
        objects = [{"box": box, "number": number} for number, box in enumerate(self.boxes.tolist())]
        sample = {
            "__key__": "k",
            "jpg": np.zeros((self.height, self.width, 3), np.uint8),
            "boxes.json": json.dumps({"b": objects}).encode(),
            "points.json": json.dumps(self.points.tolist()).encode(),
        }
        (made,) = apply_ops(sample, follow_image([parse_op(op)], GEOMETRY), OpContext())
        found = {item["number"]: item["box"] for item in json.loads(made["boxes.json"])["b"]}
        return found, np.array(json.loads(made["points.json"]))

    def by_albumentations(self, transform: Any) -> tuple[dict[int, list[float]], np.ndarray]:
        pipeline = A.Compose(
            [transform],
            bbox_params=A.BboxParams("pascal_voc", label_fields=["numbers"]),
            keypoint_params=A.KeypointParams("xy", remove_invisible=False),
        )
        image = np.zeros((self.height, self.width, 3), np.uint8)
        made = pipeline(image=image, bboxes=self.boxes, numbers=[*range(len(self.boxes))], keypoints=self.points)
        numbers = map(int, made["numbers"])
        return dict(zip(numbers, map(list, made["bboxes"]), strict=True)), np.array(made["keypoints"])

    def by_torchvision(self, transform: Callable[[Any], Any]) -> dict[int, list[float]]:
        boxes = tv_tensors.BoundingBoxes(
            torch.tensor(self.boxes), format="XYXY", canvas_size=(self.height, self.width), dtype=torch.float64
        )
        moved = functional.clamp_bounding_boxes(transform(boxes)).tolist()
        return {number: box for number, box in enumerate(moved) if box[2] > box[0] and box[3] > box[1]}


def compare(ours: dict[int, list[float]], theirs: dict[int, list[float]], tolerance: float) -> None:
    for number in ours.keys() ^ theirs.keys():  # boxes of which next to nothing is left
        left, top, right, bottom = (ours.get(number) or theirs[number])[:4]
        assert min(right - left, bottom - top) <= max(tolerance, 1e-3)
    for number in ours.keys() & theirs.keys():
        np.testing.assert_allclose(ours[number], theirs[number][:4], rtol=0, atol=max(tolerance, 1e-4))


@pytest.mark.parametrize("seed", range(CASES))
def test_boxes_and_points_move_as_elsewhere(seed: int) -> None:
    case = Case(seed)
    rng, size = case.rng, (case.height, case.width)
    height, width = (int(side) for side in rng.integers(10, 150, 2))
    ours, points = case.ours("flip:jpg")
    theirs, their_points = case.by_albumentations(A.HorizontalFlip(p=1))
    compare(ours, theirs, 0)
    compare(ours, case.by_torchvision(functional.horizontal_flip), 0)
    np.testing.assert_allclose(points, their_points, atol=1e-4)
    for angle in (90, 180, 270):
        ours, _ = case.ours(f"rotate:jpg,{angle}")
        compare(ours, case.by_torchvision(lambda boxes: functional.rotate(boxes, -angle, expand=True)), 1e-3)  # noqa: B023
    ours, points = case.ours(f"resize:jpg,{height}x{width}")
    compare(ours, case.by_torchvision(lambda boxes: functional.resize(boxes, [height, width])), 1e-3)
    theirs, their_points = case.by_albumentations(A.Resize(height, width, p=1))
    compare(ours, theirs, 0.5)
    scale = max(height / size[0], width / size[1], 1)
    np.testing.assert_allclose(points, their_points, atol=0.5 * scale)  # which does not scale the half of a pixel
    crop = (min(height, size[0]), min(width, size[1]))
    ours, points = case.ours(f"crop:jpg,{crop[0]}x{crop[1]}")
    top, left = (size[0] - crop[0]) // 2, (size[1] - crop[1]) // 2
    compare(ours, case.by_torchvision(lambda boxes: functional.crop(boxes, top, left, *crop)), 1e-3)
    theirs, their_points = case.by_albumentations(A.Crop(left, top, left + crop[1], top + crop[0], p=1))
    compare(ours, theirs, 0.5)
    np.testing.assert_allclose(points, their_points, atol=1e-3)
    angle = int(rng.integers(1, 359))
    if angle % 90:
        ours, points = case.ours(f"rotate:jpg,{angle}")
        compare(ours, case.by_torchvision(lambda boxes: functional.rotate(boxes, -angle)), 0.5)
        rotate = A.Rotate((-angle, -angle), p=1, rotate_method="largest_box")
        theirs, their_points = case.by_albumentations(rotate)
        np.testing.assert_allclose(points, their_points, atol=0.5)
