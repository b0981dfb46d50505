"""The pictures of ops show what the ops do today."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
assert _spec
assert _spec.loader
pictures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pictures)

TILES = pictures.pictures()


def test_every_op_on_images_has_a_picture_on_the_page() -> None:
    on_images = {*pictures.on_images()}
    assert set(TILES) == on_images
    page = (ROOT / "docs" / "reference" / "ops.md").read_text(encoding="utf-8")
    assert set(re.findall(r"!\[[^\]]+\]\(ops/(\w+)\.jpg\)", page)) == on_images
    assert {path.stem for path in pictures.FOLDER.iterdir()} == on_images


@pytest.mark.parametrize("op", TILES)
def test_a_picture_is_what_the_op_makes(op: str) -> None:
    stored = np.array(PIL.Image.open(pictures.FOLDER / f"{op}.jpg")).astype(int)
    drawn = pictures.drawn(TILES[op]).astype(int)
    assert stored.shape == drawn.shape, "python docs/pictures.py"
    assert np.abs(stored - drawn).mean() < 3, "python docs/pictures.py"
