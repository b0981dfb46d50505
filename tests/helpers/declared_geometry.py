"""Shards whose boxes, points, masks and sizes are declared to lie on their images, and conversions that move these."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from images import by_pillow, jpeg, photo
from shards import examples, write_tar

HEIGHT, WIDTH = 20, 40
"""The size of an image after the ops."""


def moves(entry: str) -> list[str]:
    """The options of ops on an image, two of them by chance."""
    steps = ("crop", "30x30,random"), ("flip", "p=0.5"), ("resize", f"{HEIGHT}x{WIDTH}"), ("cast", "uint8")
    ops = [f"decode:{entry}", *(f"{op}:{entry},{how}" for op, how in steps), f"encode:{entry},png"]
    return [word for op in ops for word in ("--op", op)]


DECLARED = ("--boxes", "json:annotations.*.bbox", "--points", "json:points.*", "--mask", "seg.png,fill=255")

TARS = {
    "declared": [*moves("jpg"), *DECLARED],
    "detection": [*moves("jpg"), "--preset", "detection"],
    "segmentation": [*moves("jpg"), "--preset", "segmentation"],
}
"""Conversions of the tars."""

RECORDS = [*moves("image/encoded"), "--boxes", "image/object/bbox"]
"""A conversion of the records that the preset detection makes of them."""


def annotated_tars(folder: Path) -> Path:
    """Two tars of four images, each with a mask and a JSON document."""
    for shard in range(2):
        samples = []
        for number in range(4):
            boxes = [[4 + number, 6, 20, 30], [35, 1, 20, 39 - shard]]
            names = ("cat", "dog")
            objects = [
                {"bbox": box, "category_id": at + 1, "name": names[at], "area": 9} for at, box in enumerate(boxes)
            ]
            about = {"annotations": objects, "points": [[15, 7 + number], [50, 30]]}
            mask = np.random.default_rng(number).integers(0, 9, (40, 60), np.uint8)
            entries = {"jpg": jpeg(photo(40, 60)), "seg.png": by_pillow(mask, "PNG", "L")}
            samples.append((f"{shard}{number}", {**entries, "json": json.dumps(about).encode()}))
        write_tar(folder / f"{shard}.tar", samples)
    return folder


def check_sizes(*records: Path) -> None:
    """Check that records of the Object Detection API have the size of their images, and boxes inside of them."""
    found = examples(*records)
    assert found
    for one in found:
        assert (one["image/height"], one["image/width"]) == ([HEIGHT], [WIDTH])
        sides = [one[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
        assert all(0 <= side <= 1 for values in sides for side in values)
        assert {len(one[name]) for name in one if name.startswith("image/object/")} == {len(sides[0])}
