"""Encoding of images, against TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from images import (
    SAMPLES,
    bmp,
    by_tensorflow,
    jpeg,
    photo,
    png,
)
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.image import codecs, headers

# --- Encoding ---


@pytest.mark.parametrize("quality", [10, 75, 95, 100])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (33, 47), (375, 500)], ids=str)
def test_a_jpeg_is_encoded_as_by_tensorflow(size: tuple[int, int], channels: int, quality: int) -> None:
    image = photo(*size, channels)
    expected = by_tensorflow(tf.io.encode_jpeg(image, quality=quality).numpy())
    np.testing.assert_array_equal(by_tensorflow(codecs.encode(image, "jpeg", quality)), expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (33, 47)], ids=str)
def test_a_png_comes_back_as_it_was(size: tuple[int, int], channels: int) -> None:
    image = photo(*size, channels)
    data = codecs.encode(image, "png")
    np.testing.assert_array_equal(codecs.decode(data), image)
    np.testing.assert_array_equal(by_tensorflow(data), image)


@pytest.mark.parametrize(
    ("shape", "dtype", "format"),
    [
        ((5, 5, 2), "uint8", "jpeg"),
        ((5, 5, 4), "uint8", "jpeg"),
        ((5, 5, 5), "uint8", "png"),
        ((5, 5, 3), "float32", "png"),
        ((5, 5, 3), "uint16", "jpeg"),
        ((70000, 2, 3), "uint8", "jpeg"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(shape: tuple[int, ...], dtype: str, format: Any) -> None:
    with pytest.raises(ImageError, match="cannot encode"):
        codecs.encode(np.zeros(shape, dtype), format)


@pytest.mark.parametrize(("format", "quality"), [("gif", 95), ("jpeg", 0), ("jpeg", 101)])
def test_an_unknown_format_or_quality_is_refused(format: Any, quality: int) -> None:
    with pytest.raises(ValueError, match="cannot encode"):
        codecs.encode(photo(5, 5), format, quality)


def test_rgb_jpegs_stay_as_they_are() -> None:
    data = jpeg(photo(20, 30), progressive=True)
    assert codecs.to_rgb_jpeg(data) is data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(jpeg(photo(33, 47), "CMYK"), id="CMYK"),
        pytest.param(jpeg(photo(33, 47), "L"), id="gray"),
        pytest.param(png(3, before=[(b"tRNS", b"\5")]), id="palette with transparency"),
        *(pytest.param(png(color), id=f"PNG of colour type {color}") for color in SAMPLES),
        *(pytest.param(bmp(photo(9, 9, c), c * 8), id=f"BMP of {c} channels") for c in (1, 3, 4)),
    ],
)
def test_all_else_becomes_an_rgb_jpeg(data: bytes) -> None:
    made, image = codecs.to_rgb_jpeg(data), codecs.decode(data)
    rgb = image[..., :3] if image.shape[2] > 2 else np.repeat(image[..., :1], 3, axis=2)
    assert headers.header(made) == ("jpeg", *rgb.shape)
    expected = by_tensorflow(tf.io.encode_jpeg(rgb, quality=100).numpy())
    np.testing.assert_array_equal(by_tensorflow(made), expected)


def test_bytes_that_are_no_image_do_not_become_a_jpeg() -> None:
    with pytest.raises(ImageError):
        codecs.to_rgb_jpeg(b"hello")
