"""Boxes, points and masks move as albumentations and torchvision.transforms.v2 move them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest

from geometry_oracles import Case, Moved, mask_of, moved
from tar2tf_cli.api.op import OpContext
from tar2tf_cli.ops import parse_op
from tar2tf_cli.ops.annotations import Boxes, Geometry, Mask, Points
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import follow_image

pytestmark = [
    pytest.mark.skipif(
        not (find_spec("albumentations") and find_spec("torchvision")), reason="needs the extra readers"
    ),
    pytest.mark.xdist_group("readers"),
    pytest.mark.timeout(600),
]

CASES = 100
"""Of each kind of move, of which there are seven."""

GEOMETRY = Geometry((Boxes("boxes.json:b.*.box", format="xyxy"),), (Points("points.json:*"),), (Mask("mask"),))


class Ours(NamedTuple):
    """What remains after our ops: boxes by their number, points, and the mask."""

    boxes: dict[int, list[float]]
    points: np.ndarray
    mask: np.ndarray


def a_case(rng: np.random.Generator, *kinds: str) -> Case:
    height, width = (int(side) for side in rng.integers(20, 120, 2))
    corner = rng.uniform(0, 0.8, (rng.integers(1, 8), 2))
    side = rng.uniform(0.05, 1, corner.shape) * (1 - corner)
    boxes = np.concatenate([corner, corner + side], 1) * np.array([width, height] * 2)
    points = rng.integers(0, [width, height], (5, 2)).astype(float)
    moves: list[tuple[str, list[float]]] = []
    now = (height, width)
    for kind in kinds:
        numbers: list[float] = []
        if kind == "turn":
            numbers = [int(rng.choice([90, 180, 270]))]
            now = now[::-1] if numbers[0] != 180 else now
        elif kind == "rotate":
            numbers = [int(rng.choice([angle for angle in range(1, 360) if angle % 90]))]
        elif kind == "resize":
            numbers = [int(side) for side in rng.integers(10, 150, 2)]
            now = (int(numbers[0]), int(numbers[1]))
        elif kind == "crop":
            high, wide = (int(rng.integers(5, side + 1)) for side in now)
            numbers = [(now[0] - high) // 2, (now[1] - wide) // 2, high, wide]
            now = high, wide
        moves.append((kind, numbers))
    return Case((height, width), boxes.tolist(), points.tolist(), moves)


def op_of(kind: str, numbers: list[float]) -> str:
    if kind in ("resize", "crop"):
        return f"{kind}:jpg,{numbers[-2]}x{numbers[-1]}"
    return {"flip": "flip:jpg"}.get(kind) or f"rotate:jpg,{numbers[0]}"


def ours(case: Case) -> Ours:
    objects = [{"box": box, "number": number} for number, box in enumerate(case.boxes)]
    sample = {
        "__key__": "k",
        "jpg": np.zeros((*case.size, 3), np.uint8),
        "boxes.json": json.dumps({"b": objects}).encode(),
        "points.json": json.dumps(case.points).encode(),
        "mask": mask_of(case.size),
    }
    ops = [parse_op(op_of(*move)) for move in case.moves]
    (made,) = apply_ops(sample, follow_image(ops, GEOMETRY), OpContext())
    found = {item["number"]: item["box"] for item in json.loads(made["boxes.json"])["b"]}
    return Ours(found, np.array(json.loads(made["points.json"])), made["mask"])


def differences(mine: dict[int, list[float]], theirs: dict[int, list[float]], tolerance: float) -> list[float]:
    """By how much boxes differ; of one that only one side has, its shorter side, as next to nothing may be left."""
    lone = [(mine.get(number) or theirs[number]) for number in mine.keys() ^ theirs.keys()]
    slivers = [min(right - left, bottom - top) for left, top, right, bottom in lone]
    both = mine.keys() & theirs.keys()
    return slivers + [float(np.abs(np.subtract(mine[number], theirs[number])).max()) for number in both]


EXACT, ROUNDED, HALF = 1e-9, 1e-3, 0.5
"""In pixels: nothing but doubles, single precision of the other library, and what issue and libraries call the same."""

KINDS: dict[str, tuple[tuple[str, ...], float, float]] = {
    "flips": (("flip",), EXACT, ROUNDED),
    "quarter turns": (("turn",), EXACT, ROUNDED),
    "sizes": (("resize",), ROUNDED, HALF),
    "crops": (("crop",), ROUNDED, ROUNDED),
    "angles": (("rotate",), HALF, HALF),
    "several": (("crop", "turn", "flip"), ROUNDED, ROUNDED),
    "several and a size": (("crop", "turn", "flip", "resize"), ROUNDED, HALF),
}
"""Moves, and how far boxes may be from those of torchvision and of albumentations."""


@pytest.fixture(scope="module")
def cases() -> dict[str, list[tuple[Case, Moved]]]:
    rng = np.random.default_rng(20)
    made = {kind: [a_case(rng, *moves) for _ in range(CASES)] for kind, (moves, *_) in KINDS.items()}
    theirs = iter(moved([case for group in made.values() for case in group]))
    return {kind: [(case, next(theirs)) for case in group] for kind, group in made.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_move_as_by_other_libraries(kind: str, cases: dict[str, list[tuple[Case, Moved]]]) -> None:
    _, of_torchvision, of_albumentations = KINDS[kind]
    for case, theirs in cases[kind]:
        mine = ours(case).boxes
        assert max(differences(mine, theirs.torchvision, of_torchvision), default=0) <= of_torchvision, case
        assert max(differences(mine, theirs.albumentations, of_albumentations), default=0) <= of_albumentations, case


@pytest.mark.parametrize("kind", ["flips", "quarter turns", "sizes", "crops", "angles", "several"])
def test_points_move_as_by_albumentations(kind: str, cases: dict[str, list[tuple[Case, Moved]]]) -> None:
    for case, theirs in cases[kind]:
        found = np.abs(ours(case).points - theirs.points).max()
        # it scales the number of a pixel, not its centre
        scale = max(*np.divide(case.moves[0][1], case.size), 1) if kind == "sizes" else 1
        assert found <= ROUNDED + (HALF * scale if kind in ("sizes", "angles") else 0), case


@pytest.mark.parametrize("kind", ["flips", "quarter turns", "crops", "several"])
def test_masks_move_exactly_as_by_albumentations(kind: str, cases: dict[str, list[tuple[Case, Moved]]]) -> None:
    for case, theirs in cases[kind]:
        np.testing.assert_array_equal(ours(case).mask, theirs.mask, str(case))
