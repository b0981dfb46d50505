"""The pictures of ops show what the ops do today."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

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
    drawn = pictures.drawn(TILES[op])
    assert pictures.is_up_to_date(pictures.FOLDER / f"{op}.jpg", drawn), "python man/generate.py"
    assert not pictures.is_up_to_date(pictures.FOLDER / f"{op}.jpg", 255 - drawn)
