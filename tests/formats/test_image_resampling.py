"""Every method of `tf.image.resize`, against TensorFlow, on images of odd sizes."""

from __future__ import annotations

import os

import cv2
import numpy as np
import pytest
import tensorflow as tf

from images import noise
from tar2tf_cli.formats import image

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

pytestmark = pytest.mark.spread

SIZES = [(1, 1), (1, 2), (3, 1), (7, 8), (17, 33), (64, 64), (99, 101), (240, 320), (5000, 3), (3, 5000)]
TARGETS = [(1, 1), (2, 3), (8, 7), (33, 17), (64, 64), (100, 1)]
CASES = [(size, target, 1 + place % 4) for place, size in enumerate(SIZES) for target in TARGETS]


def picture(size: tuple[int, int], channels: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, (*size, channels), dtype=np.uint8)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", image.METHODS)
def test_a_method_gives_what_tensorflow_gives(method: str, antialias: bool) -> None:
    assert len(CASES) * 3 > 150
    for dtype in (np.uint8, np.uint16, np.float32):
        for size, target, channels in CASES:
            pixels = picture(size, channels).astype(dtype)
            ours = image.resample(pixels, *target, method, antialias=antialias)
            theirs = tf.image.resize(pixels, target, method, antialias=antialias).numpy()
            assert ours.dtype == theirs.dtype
            if method == "nearest":
                np.testing.assert_array_equal(ours, theirs)
            else:
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.002)


@pytest.mark.parametrize("method", sorted({*image.METHODS} - {"nearest", "bilinear", "area"}))
@pytest.mark.parametrize("antialias", [False, True])
def test_pixels_at_the_rim_of_a_kernel_count_as_in_tensorflow(method: str, antialias: bool) -> None:
    for rows, height in [(1023, 310), (17, 17), (500, 333), (333, 500), (2049, 683), (96, 64), (99, 11)]:
        pixels = noise(rows, 2, 1)
        theirs = tf.image.resize(pixels, (height, 2), method, antialias=antialias)
        ours = image.resample(pixels, height, 2, method, antialias=antialias)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.002)


@pytest.mark.parametrize("used", [False, True])
def test_opencv_is_left_as_the_program_had_it(used: bool) -> None:
    before = cv2.ipp.useIPP()
    try:
        cv2.ipp.setUseIPP(used)
        used = cv2.ipp.useIPP()  # not where OpenCV was built without it
        image.resize(noise(9, 8, 3), 5, 4)
        assert cv2.ipp.useIPP() == used
    finally:
        cv2.ipp.setUseIPP(before)


def test_a_mask_keeps_its_classes_with_nearest() -> None:
    mask = np.random.default_rng(0).choice(np.array([0, 1, 5, 20], np.uint8), (99, 101, 1))
    for target in TARGETS:
        assert set(np.unique(image.resample(mask, *target, "nearest"))) <= {0, 1, 5, 20}


@pytest.mark.parametrize("size", SIZES)
def test_the_long_side_gives_the_size_that_tensorflow_chooses(size: tuple[int, int]) -> None:
    for long in (1, 7, 256, 513):
        if long * min(size) >= max(size):  # or TensorFlow fails, as a side would have no pixel
            theirs = tf.image.resize(picture(size, 1), (long, long), "nearest", preserve_aspect_ratio=True)
            assert image.scaled_size(*size, long=long) == theirs.shape[:2]


def test_the_short_side_becomes_as_long_as_asked() -> None:
    assert image.scaled_size(480, 640, short=256) == (256, 341)
    assert image.scaled_size(640, 480, short=256) == (341, 256)
    assert image.scaled_size(5000, 3, short=1) == (1667, 1)
