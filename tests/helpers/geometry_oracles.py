"""Boxes, points and masks as albumentations and torchvision.transforms.v2 move them, in a process of its own.

torch's compiler and TensorFlow each bring an LLVM, and a process that has loaded TensorFlow's aborts when it loads the
other; the processes of pytest-xdist are forked from one that has. So tests run this file: it reads cases as JSON from
standard input, and writes where everything has moved to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """Boxes and points on an image, and what happens to it.

    Attributes:
        size: height and width of the image.
        boxes: left, top, right and bottom of each.
        points: x and y of each.
        moves: what happens: a name and numbers for each op.
    """

    size: tuple[int, int]
    boxes: list[list[float]]
    points: list[list[float]]
    moves: list[tuple[str, list[float]]]


@dataclass(frozen=True)
class Moved:
    """Boxes and points after the moves, as a library has them; a box is named by its number, as some are gone.

    Attributes:
        torchvision: boxes.
        albumentations: boxes.
        points: points, as albumentations has them.
        mask: the mask of `mask_of`, as albumentations has it.
    """

    torchvision: dict[int, list[float]]
    albumentations: dict[int, list[float]]
    points: list[list[float]]
    mask: list[list[int]]


def moved(cases: Sequence[Case]) -> list[Moved]:
    """Run the libraries on cases, in another process."""
    given = json.dumps([vars(case) for case in cases])
    command = [sys.executable, "-W", "ignore", __file__]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return [Moved(_by_number(item[0]), _by_number(item[1]), *item[2:]) for item in json.loads(done.stdout)]


def _by_number(boxes: dict[str, list[float]]) -> dict[int, list[float]]:
    return {int(number): box for number, box in boxes.items()}


def mask_of(size: Sequence[int]) -> np.ndarray:
    """A mask whose pixels are numbered, in 16 bits."""
    return np.arange(size[0] * size[1], dtype=np.uint16).reshape(*size)


def _main() -> None:
    import albumentations
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms.v2 import functional

    def by_torchvision(case: Case) -> dict[int, list[float]]:
        boxes = torch.tensor(case.boxes, dtype=torch.float64)
        there = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=case.size)  # type: ignore[call-overload]
        known: dict[str, Callable[..., Any]] = {
            "flip": functional.horizontal_flip,
            "turn": lambda boxes, angle: functional.rotate(boxes, -angle, expand=True),
            "rotate": lambda boxes, angle: functional.rotate(boxes, -angle),
            "resize": lambda boxes, height, width: functional.resize(boxes, [height, width]),
            "crop": functional.crop,
        }
        for name, numbers in case.moves:
            there = functional.clamp_bounding_boxes(known[name](there, *numbers))
        found = enumerate(there.tolist())
        return {number: box for number, box in found if box[2] > box[0] and box[3] > box[1]}

    def by_albumentations(case: Case) -> tuple[Any, Any, Any]:
        moves = (_for_albumentations(albumentations, name, numbers) for name, numbers in case.moves)
        pipeline = albumentations.Compose(
            list(chain.from_iterable(moves)),
            bbox_params=albumentations.BboxParams("pascal_voc", label_fields=["numbers"]),
            keypoint_params=albumentations.KeypointParams("xy", remove_invisible=False),
        )
        image, numbers = np.zeros((*case.size, 3), np.uint8), [*range(len(case.boxes))]
        made = pipeline(
            image=image,
            mask=mask_of(case.size),
            bboxes=np.array(case.boxes),
            numbers=numbers,
            keypoints=np.array(case.points),
        )
        boxes = [[float(number) for number in box[:4]] for box in made["bboxes"]]
        by_number = dict(zip(map(int, made["numbers"]), boxes, strict=True))
        return by_number, np.array(made["keypoints"], float).tolist(), made["mask"].tolist()

    cases = [Case(**item) for item in json.load(sys.stdin)]
    json.dump([(by_torchvision(case), *by_albumentations(case)) for case in cases], sys.stdout)


def _for_albumentations(library: Any, name: str, numbers: Sequence[float]) -> list[Any]:
    """Return the transforms that a move consists of."""
    flip, upside_down = library.HorizontalFlip(p=1), library.VerticalFlip(p=1)
    if name == "flip":
        return [flip]
    if name == "turn":
        transpose = library.Transpose(p=1)
        return {90: [transpose, flip], 180: [flip, upside_down], 270: [transpose, upside_down]}[int(numbers[0])]
    if name == "rotate":
        return [library.Rotate((-numbers[0], -numbers[0]), p=1, rotate_method="largest_box")]
    if name == "resize":
        return [library.Resize(*numbers, p=1)]
    top, left, height, width = numbers
    return [library.Crop(left, top, left + width, top + height, p=1)]


if __name__ == "__main__":
    _main()
