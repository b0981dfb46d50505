"""Each op on images against its oracle, on more than a hundred images of odd sizes and kinds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from images import bmp, by_pillow, photo, png
from op_cases import cropped, decoded
from tar2tf_cli.ops import OPS, Decode, OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.image import ImageOp

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

pytestmark = pytest.mark.spread

SIZES = [(1, 1), (1, 2), (2, 1), (7, 8), (17, 33), (64, 64), (99, 101), (5000, 3), (3, 5000)]
PNGS = [(0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 2), (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)]


@cache
def odd_images() -> list[bytes]:
    """Gray, with alpha, with a palette, of 1 to 16 bits, interlaced; JPEG, WebP and BMP; of every size."""
    images = []
    for number, size in enumerate(SIZES):
        images += [png(color, depth, size, interlaced=bool(number % 2)) for color, depth in PNGS]
        images += [by_pillow(photo(*size), "JPEG", mode) for mode in ("L", "RGB")]
        images += [by_pillow(photo(*size, 4), "WEBP", mode) for mode in ("RGB", "RGBA")]
        images.append(bmp(photo(*size), 24))
    return images


def is_in_colours(data: bytes) -> bool:
    """Whether an image has three channels, as every encoder takes."""
    return bool(decoded(data).shape[2] == 3)


def upright(data: bytes) -> np.ndarray:
    """The image turned by Pillow as EXIF says; none of these has EXIF."""
    assert PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data))).size == PIL.Image.open(io.BytesIO(data)).size
    return decoded(data).numpy()


def again(data: bytes) -> np.ndarray:
    """The image as a PNG of TensorFlow's, decoded again."""
    return decoded(tf.io.encode_png(decoded(data)).numpy()).numpy()


def short_side(data: bytes) -> tf.Tensor:
    height, width = (int(side) for side in decoded(data).shape[:2])
    ratio = np.float32(24) / np.float32(min(height, width))
    size = [max(int(np.rint(np.float32(side) * ratio)), 1) for side in (height, width)]
    return tf.image.resize(decoded(data), size, "nearest")


def padded(data: bytes) -> Any:
    """None where a side would have no pixel, for which TensorFlow fails."""
    try:
        return tf.image.resize_with_pad(decoded(data), 20, 30, method="nearest")
    except tf.errors.InvalidArgumentError:
        return None


ORACLES: dict[str, tuple[list[str], Callable[[bytes], Any], float]] = {
    "decode": (["decode:x"], decoded, 0),
    "orient": (["orient:x"], upright, 0),
    "convert": (["decode:x", "convert:x,float32"], lambda b: tf.image.convert_image_dtype(decoded(b), tf.float32), 0),
    "cast": (["decode:x", "cast:x,int8"], lambda b: tf.saturate_cast(decoded(b), tf.int8), 0),
    "resize": (["decode:x", "resize:x,20x30"], lambda b: tf.image.resize(decoded(b), (20, 30)), 0.01),
    "resize, short": (["decode:x", "resize:x,short=24,method=nearest"], short_side, 0),
    "resize, antialias": (
        ["decode:x", "resize:x,20x30,lanczos3,antialias=true"],
        lambda b: tf.image.resize(decoded(b), (20, 30), "lanczos3", antialias=True),
        0.01,
    ),
    "pad": (["decode:x", "pad:x,20x30,method=nearest"], padded, 0),
    "crop": (["decode:x", "crop:x,20x30"], lambda b: tf.image.resize_with_crop_or_pad(decoded(b), 20, 30), 0),
    "rotate": (["decode:x", "rotate:x,90"], lambda b: tf.image.rot90(decoded(b), 3), 0),
    "center_crop": (["decode:x", "center_crop:x"], lambda b: cropped(decoded(b)), 0),
    "encode": (["decode:x", "encode:x,png", "decode:x"], again, 0),
}


@pytest.mark.parametrize("name", ORACLES)
def test_an_op_gives_what_its_oracle_gives(name: str) -> None:
    ops, oracle, tolerance = ORACLES[name]
    images = odd_images()
    compared = 0
    for data in images:
        (sample,) = apply_ops({"__key__": "k", "x": data}, [parse_op(op) for op in ops], OpContext())
        theirs = oracle(data)
        if theirs is None:
            assert sample["x"].shape[:2] == (20, 30)
            continue
        compared += 1
        expected = np.asarray(theirs)
        assert (sample["x"].shape, sample["x"].dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(sample["x"].astype("f8"), expected.astype("f8"), rtol=0, atol=tolerance)
    assert compared > 100


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if issubclass(op, ImageOp)])
def test_the_first_example_of_an_op_makes_an_image_of_each_and_does_not_change_it(name: str) -> None:
    example = parse_op(OPS[name].examples[0])
    ops = [example] if isinstance(example, Decode) else [parse_op("decode:jpg"), example]
    for data in filter(is_in_colours, odd_images()) if name == "encode" else odd_images():
        (first,) = apply_ops({"__key__": "k", "jpg": data}, ops, OpContext())
        (again,) = apply_ops({"__key__": "k", "jpg": data}, ops, OpContext())
        np.testing.assert_array_equal(first["jpg"], again["jpg"])
        assert isinstance(first["jpg"], bytes) or (first["jpg"].ndim == 3 and first["jpg"].size)
