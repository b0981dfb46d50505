"""Sizes that are stored next to an image are written anew when it changes, in tars, in TFRecords and in processes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_cases import encoded
from shards import write_tar
from tar2tf_cli import Conversion, Input, Output, convert, open_records
from tar2tf_cli.ops import OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.image import update_sizes

OPS = ["decode:image/encoded", "resize:image/encoded,3x5", "cast:image/encoded,uint8", "encode:image/encoded,png"]


def changed(sample: dict[str, Any], name: str, size: tuple[int, ...]) -> dict[str, Any]:
    made = {name: np.zeros((2, 2, 3), np.uint8), **sample}
    update_sizes(made, name, size)
    return {entry: made[entry] for entry in sample}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("image/encoded", {"image/height": 9, "image/width": 9}, {"image/height": 3, "image/width": 5}),
        ("jpg", {"jpg/height": b"9", "height": b"9"}, {"jpg/height": b"3", "height": b"9"}),
        ("image_raw", {"height": 9, "width": 9, "depth": 3}, {"height": 3, "width": 5, "depth": 3}),
        ("image", {"image/shape": [9, 9, 3]}, {"image/shape": [3, 5, 3]}),
        ("image/encoded", {"image/shape": b"9 9 3"}, {"image/shape": b"3 5 3"}),
        ("image/encoded", {"image/shape": [9, 9]}, {"image/shape": [3, 5]}),
        ("image", {"image/shape": [2, 2, 2, 2]}, {"image/shape": [2, 2, 2, 2]}),
        ("image", {"image/shape": (9, 9)}, {"image/shape": (3, 5)}),
        ("image", {"image/shape": 9}, {"image/shape": 9}),
        ("x/encoded", {"x/encoded/width": b"9", "x/channels": 3}, {"x/encoded/width": b"5", "x/channels": 3}),
        (
            "image_raw",
            {"image_raw/height": 9, "image_raw/shape": [9, 9]},
            {"image_raw/height": 9, "image_raw/shape": [3, 5]},
        ),
    ],
)
def test_a_size_keeps_its_form(name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changed(before, name, (3, 5)) == after


def test_numbers_of_numpy_keep_their_dtype() -> None:
    made = changed({"x/height": np.int64(9), "x/shape": np.array([9, 9, 3], np.int32)}, "x", (3, 5))
    assert (made["x/height"], made["x/height"].dtype) == (3, np.int64)
    assert (made["x/shape"].tolist(), made["x/shape"].dtype) == ([3, 5, 3], np.int32)
    made = changed({"x/height": np.array([9], np.int16), "x/width": np.array(9, np.uint8)}, "x", (3, 5))
    assert (made["x/height"].tolist(), made["x/height"].dtype) == ([3], np.int16)
    assert (made["x/width"].tolist(), made["x/width"].dtype) == (5, np.uint8)


def test_the_format_and_the_digest_are_those_of_the_new_bytes() -> None:
    sample = {"__key__": "a", "image/encoded": encoded((6, 10)), "image/format": b"JPEG", "image/key/sha256": b"0"}
    (made,) = apply_ops(sample, [parse_op(op) for op in OPS], OpContext())
    assert made["image/format"] == b"PNG"
    assert made["image/key/sha256"] == hashlib.sha256(made["image/encoded"]).hexdigest().encode()


@pytest.mark.parametrize(
    ("name", "entry", "known", "made"),
    [
        ("image/encoded", "image/format", b"JPEG", b"PNG"),
        ("image/encoded", "image/format", b"jpeg", b"png"),
        ("image/encoded", "image/format", b"Jpeg", b"png"),
        ("image/encoded", "image/format", b"", b"png"),
        ("image/encoded", "image/encoded/format", b"JPEG", b"PNG"),
        ("image/encoded", "image/format", "JPEG", "JPEG"),
        ("image/encoded", "format", b"JPEG", b"JPEG"),
        ("jpg", "jpg/format", b"JPEG", b"PNG"),
        ("image_raw", "image_raw/format", b"JPEG", b"JPEG"),
        ("jpg", "jpg/key/sha256", b"0", None),
        ("image/encoded", "image/key/sha256", b"0", None),
        ("image/encoded", "image/key/sha256", 0, 0),
        ("image_raw", "image_raw/key/sha256", b"0", b"0"),
    ],
)
def test_the_format_keeps_its_form_and_the_digest_is_written_if_it_was_there(
    name: str, entry: str, known: Any, made: Any
) -> None:
    sample = {"__key__": "a", name: np.zeros((2, 2, 3), np.uint8), entry: known}
    (found,) = apply_ops(sample, [parse_op(f"encode:{name},png")], OpContext())
    assert found[entry] == (hashlib.sha256(found[name]).hexdigest().encode() if made is None else made)
    assert found.keys() == {"__key__", name, entry}


@pytest.mark.parametrize(
    ("size", "larger", "smaller"),
    [
        ((4, 6), False, False),
        ((5, 6), True, False),
        ((4, 7), True, False),
        ((5, 7), True, False),
        ((3, 6), False, True),
        ((4, 5), False, True),
        ((3, 5), False, True),
        ((5, 5), True, True),
        ((3, 7), True, True),
    ],
)
def test_an_image_is_resized_only_if_a_side_is_larger_or_smaller(
    size: tuple[int, int], larger: bool, smaller: bool
) -> None:
    for only_if, resized in (("larger", larger), ("smaller", smaller)):
        for method, dtype in (("nearest", np.uint8), ("bilinear", np.float32)):
            op = parse_op(f"resize:png,4x6,{method},only_if={only_if}")
            pixels = np.arange(3 * size[0] * size[1], dtype=np.uint8).reshape(*size, 3)
            (made,) = apply_ops({"__key__": "a", "png": pixels, "png/height": size[0]}, [op], OpContext())
            assert (made["png"].shape, made["png"].dtype) == (((4, 6) if resized else size) + (3,), dtype)
            assert made["png/height"] == (4 if resized else size[0])
            assert resized or (made["png"] == pixels).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_record_of_tf_slim_is_resized_with_its_size(workers: int, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [(f"{n}", {"jpg": encoded((6, 10)), "cls": b"1"}) for n in range(4)])
    convert(Conversion(Input(tar), Output(tmp_path / "i.record"), preset="imagenet"), workers=1)
    convert(Conversion(Input(tmp_path / "i.record"), Output(tmp_path / "o.record"), ops=OPS), workers=workers)
    for one in open_records(tmp_path / "o.record"):
        assert (one["image/height"], one["image/width"], one["image/format"]) == (3, 5, b"PNG")


@pytest.mark.parametrize("workers", [1, 2])
def test_boxes_in_a_tar_follow_on_every_path(workers: int, tmp_path: Path) -> None:
    about = json.dumps({"annotations": [{"bbox": [10, 10, 20, 20], "category_id": 1}]}).encode()
    samples = [(f"{n}", {"jpg": encoded((50, 100)), "json": about}) for n in range(6)]
    tar = write_tar(tmp_path / "a.tar", samples)
    ops = ["decode:jpg", "resize:jpg,100x200", "flip:jpg", "cast:jpg,uint8", "encode:jpg,jpeg"]
    for output in ("o.record", "t.tar"):
        conversion = Conversion(Input(tar), Output(tmp_path / output), ops=ops, boxes="json:annotations.*.bbox")
        convert(conversion, workers=workers)
        for one in open_records(tmp_path / output):
            assert json.loads(one["json"])["annotations"][0]["bbox"] == [140, 20, 40, 40]
