"""`--dry-run --preview FILE` draws the first sample before and after the ops."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest

from commands import tar2tf
from shards import write_tar
from tar2tf_cli import Conversion, Input, Output
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.conversion.preview import picture
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.image import codecs
from tar2tf_cli.formats.npy import to_npy
from tar2tf_cli.ops import Func


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


def drawn(folder: Path, entries: dict[str, bytes], *ops: Any, **declared: str) -> np.ndarray:
    """The picture of a sample before and after ops."""
    tar = write_tar(folder / "a.tar", [("x", entries)])
    plan = make_plan(Conversion(Input(str(tar)), Output(str(folder / "x.record")), ops=ops, **declared))
    return np.array(PIL.Image.open(io.BytesIO(picture(plan))))


RED, GREEN, WHITE, GRAY = (230, 0, 0), (0, 200, 0), (255, 255, 255), (100, 100, 100)
IMAGE = codecs.encode(np.full((12, 20, 1), 100, np.uint8), "png")


def test_visible_points_are_red_discs_and_masks_are_half_transparent(tmp_path: Path) -> None:
    mask = np.zeros((12, 20, 1), np.uint8)
    mask[8:, 16:] = [[[1]], [[2]], [[3]], [[0]]]
    entries = {"png": IMAGE, "seg": codecs.encode(mask, "png"), "json": b'{"p": [5, 4, 1, 11, 4, 0]}'}
    found = drawn(tmp_path, entries, "decode:png", "flip:png", points="json:p,format=xyv", mask="gone+seg")
    colours = cv2.applyColorMap(np.array([[67, 134, 201]], np.uint8), cv2.COLORMAP_HSV)[0]
    expected = np.full((12, 20 + 8 + 20, 3), 100, np.uint8)
    expected[:, 20:28] = WHITE
    for row, colour in zip((8, 9, 10), colours, strict=True):
        half = np.rint((GRAY + colour.astype(float)) / 2)
        expected[row, 16:20] = expected[row, 28:32] = half
    apart = np.abs(found.astype(int) - expected).max(axis=2)
    discs = {(row, column) for row, column in np.argwhere(apart > 1)}
    assert {tuple(found[each]) for each in discs} == {RED}
    assert discs == {
        (4 + down, x + across)
        for x in (5, 28 + 14)
        for down in range(-2, 3)
        for across in range(-2, 3)
        if down**2 + across**2 <= 4
    }


def test_annotations_that_a_sample_lacks_are_not_drawn(tmp_path: Path) -> None:
    declared = {"points": "json:p+other:q", "boxes": "json:b+other:b", "mask": "seg+png"}
    found = drawn(tmp_path, {"png": IMAGE, "txt": b""}, "decode:png", **declared)
    assert found.tolist() == [[[*GRAY]] * 20 + [[*WHITE]] * 8 + [[*GRAY]] * 20] * 12
    small = {"png": IMAGE, "seg": codecs.encode(np.ones((12, 19, 1), np.uint8), "png")}  # of another size
    assert drawn(tmp_path, small, "decode:png", mask="seg").tolist() == found.tolist()


@pytest.mark.parametrize(
    ("pixels", "colours"),
    [
        (np.array([[[0.5]]], np.float32), [[[128, 128, 128]]]),
        (np.array([[[0, 0.2, 1]]]), [[[0, 51, 255]]]),
        (np.array([[[0, 0.2, 2]]]), [[[0, 0, 2]]]),
        (np.array([[[-5, 99.6, 300]]]), [[[0, 100, 255]]]),
        (np.array([[[1, 2, 3, 4]]], np.uint16), [[[1, 2, 3]]]),
        (np.array([[[7, 8]]], np.uint8), [[[7, 7, 7]]]),
        (np.array([[[7]], [[300]]], np.int32), [[[7, 7, 7]], [[255, 255, 255]]]),
    ],
)
def test_pixels_of_any_dtype_and_channels_are_shown(pixels: np.ndarray, colours: list[Any], tmp_path: Path) -> None:
    found = drawn(tmp_path, {"png": IMAGE}, Func(lambda sample: {**sample, "png": pixels}))
    height, width = pixels.shape[:2]
    assert found.shape == (12, 20 + 8 + width, 3)
    assert found[:height, 28:].tolist() == colours
    assert (found[height:, 28:] == WHITE).all()


def test_each_sample_that_ops_make_is_shown(tmp_path: Path) -> None:
    twice = Func(lambda sample: [sample, {**sample, "png": np.zeros((2, 3, 3), np.uint8)}])
    assert drawn(tmp_path, {"png": IMAGE}, twice).shape == (12, 20 + 8 + 20 + 8 + 3, 3)
    assert drawn(tmp_path, {"png": IMAGE}, "filter:!png").shape == (12, 20, 3)


def test_a_sample_without_an_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(SampleError) as caught:
        drawn(tmp_path, {"png": IMAGE}, "rename:x=png")
    assert caught.value.sentence == "the ops left no image in the sample 'x'"
    with pytest.raises(UsageError) as refused:
        drawn(tmp_path, {"npy": to_npy(np.zeros(3))})
    assert refused.value.sentence == (
        "the first sample has no image to show; "
        "--preview shows the entry image, jpg, jpeg, png, bmp, webp, img or image/encoded"
    )
