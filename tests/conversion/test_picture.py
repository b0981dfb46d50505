"""`--dry-run --preview FILE` draws the first sample before and after the ops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image

from commands import tar2tf
from shards import write_tar
from tar2tf_cli.formats.image import codecs


def test_the_picture_has_the_image_before_and_after_with_its_boxes(tmp_path: Path) -> None:
    jpg = codecs.encode(np.zeros((40, 60, 3), np.uint8), "png")
    about = json.dumps({"b": [{"box": [10, 5, 20, 10]}]}).encode()
    tar = write_tar(tmp_path / "a.tar", [("x", {"png": jpg, "json": about})])
    ops = ("--op", "decode:png", "--op", "flip:png", "--boxes", "json:b.*.box")
    done = tar2tf("convert", tar, "-o", tmp_path / "x.record", "--dry-run", "--preview", tmp_path / "p.png", *ops)
    assert done.returncode == 0, done.stderr
    pixels = np.array(PIL.Image.open(tmp_path / "p.png"))
    assert pixels.shape == (40, 60 + 8 + 60, 3)
    for first, left in ((0, 10), (68, 30)):
        rows, columns = np.nonzero((pixels[:, first : first + 60] == (0, 200, 0)).all(2))
        assert (columns.min(), columns.max(), rows.min(), rows.max()) == (left, left + 19, 5, 14)
    assert not (tmp_path / "x.record").exists()


def test_it_needs_a_dry_run(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("x", {"txt": b"1"})])
    done = tar2tf("convert", tar, "-o", tmp_path / "x.record", "--preview", tmp_path / "p.png")
    assert (done.returncode, "add --dry-run" in done.stderr) == (2, True)
    done = tar2tf("convert", tar, "-o", tmp_path / "x.record", "--dry-run", "--preview", tmp_path / "p.png")
    assert (done.returncode, "has no image to show" in done.stderr) == (2, True)
