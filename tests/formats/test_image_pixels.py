"""Types, sizes and angles of pixels, against TensorFlow."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from images import (
    noise,
    photo,
)
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import image as image_module

pytestmark = pytest.mark.spread


def assert_same(ours: np.ndarray, theirs: tf.Tensor) -> None:
    assert ours.dtype == theirs.numpy().dtype
    np.testing.assert_array_equal(ours, theirs.numpy())


# --- Values ---

ALL_PAIRS = list(itertools.product(image_module.DTYPES, repeat=2))
BEYOND_FLOAT16 = [p for p in ALL_PAIRS if "float16" in p and {"uint16", "uint32", "int32", "int64"} & set(p)]
CONVERTIBLE = [pair for pair in ALL_PAIRS if pair not in BEYOND_FLOAT16]


def tensorflow_saturates(pair: tuple[str, str]) -> bool:
    """TensorFlow has no kernel to clip uint32, and takes 2^63 for the greatest int64."""
    return "uint32" != pair[0] != "int64" and pair != ("float32", "int64") and pair != ("float64", "int64")


def values(dtype: str) -> np.ndarray:
    """Values from all over the range of `dtype`, as an image."""
    rng = np.random.default_rng(7)
    if dtype.startswith("f"):
        numbers = np.concatenate([rng.random(999), np.linspace(0, 0.999, 257)]).astype(dtype)
        return numbers.reshape(-1, 1, 1)
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, 999, dtype=dtype, endpoint=True)
    return np.concatenate([drawn, np.array([info.min, info.max, 0, 1], dtype)]).reshape(-1, 1, 1)


def wild_values(dtype: str) -> np.ndarray:
    """The same, and for floats values beyond 0 .. 1 and beyond other types' limits."""
    if not dtype.startswith("f"):
        return values(dtype)
    limits = [
        -1e30,
        -300,
        -1,
        -0.5,
        0.5,
        1,
        1.5,
        127.9,
        254.9,
        255.5,
        65535.5,
        3e9,
        1e30,
        math.inf,
        -math.inf,
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([values(dtype), np.array(limits).astype(dtype).reshape(-1, 1, 1)])


@pytest.mark.parametrize(("source", "target"), CONVERTIBLE)
def test_dtypes_convert_as_in_tensorflow(source: str, target: str) -> None:
    image = values(source)
    assert_same(image_module.convert_dtype(image, target), tf.image.convert_image_dtype(image, target))


@pytest.mark.parametrize(("source", "target"), BEYOND_FLOAT16)
def test_float16_to_a_range_it_cannot_hold_is_refused(source: str, target: str) -> None:
    with pytest.raises(ImageError, match="cannot hold the range"):
        image_module.convert_dtype(values(source), target)


@pytest.mark.parametrize(("source", "target"), [pair for pair in ALL_PAIRS if tensorflow_saturates(pair)])
def test_a_cast_saturates_as_in_tensorflow(source: str, target: str) -> None:
    image = wild_values(source)
    with np.errstate(all="ignore"):
        expected = tf.saturate_cast(image, target)
    assert_same(image_module.cast(image, target), expected)


@pytest.mark.parametrize(("source", "target"), [p for p in ALL_PAIRS if not tensorflow_saturates(p)])
def test_a_cast_saturates_where_that_of_tensorflow_does_not(source: str, target: str) -> None:
    image = wild_values(source)
    info: Any = np.finfo(target) if target.startswith("f") else np.iinfo(target)
    number = float if target.startswith("f") else int
    least, most = (number(limit) for limit in (info.min, info.max))
    expected = [min(max(value, least), most) for value in image.ravel().tolist()]
    tolerance = 1e-3 if target == "float16" else 1e-7
    np.testing.assert_allclose(image_module.cast(image, target).ravel().tolist(), expected, rtol=tolerance, atol=1)


@pytest.mark.parametrize("target", ["uint8", "int32", "float32"])
def test_a_cast_of_nan_is_that_of_tensorflow(target: str) -> None:
    image = np.full((5, 1, 1), np.nan, np.float32)
    assert_same(image_module.cast(image, target), tf.saturate_cast(image, target))


@pytest.mark.parametrize("change", [image_module.cast, image_module.convert_dtype])
@pytest.mark.parametrize(("source", "target"), [("bool", "uint8"), ("uint8", "bool"), ("complex64", "int8")])
def test_dtypes_that_are_no_numbers_are_refused(change: Any, source: str, target: str) -> None:
    with pytest.raises(ImageError, match="not supported"):
        change(np.zeros((2, 2, 1), source), target)


# --- Geometry ---

each_resize = pytest.mark.parametrize(
    ("size", "target"),
    [
        ((375, 500), (224, 224)),
        ((500, 333), (331, 331)),
        ((375, 500), (375, 300)),
        ((97, 131), (224, 225)),
        ((448, 448), (224, 224)),
        ((32, 32), (224, 224)),
        ((17, 19), (300, 200)),
        ((1, 7), (5, 5)),
        ((7, 1), (1, 1)),
        ((1, 1), (3, 4)),
        ((9, 9), (3, 3)),
        ((1000, 1100), (299, 301)),
        ((700, 1030), (699, 1031)),
        ((1500, 2000), (224, 224)),
        ((3000, 70), (64, 64)),
        ((70, 40000), (32, 50)),
    ],
    ids=str,
)


@each_resize
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 11])
def test_the_hardest_image_resizes_within_a_hundredth_of_a_level(
    size: tuple[int, int], target: tuple[int, int], channels: int
) -> None:
    image = noise(*size, channels)
    resized = image_module.resize(image, *target)
    assert (resized.dtype, resized.shape) == (np.float32, (*target, channels))
    np.testing.assert_allclose(resized, tf.image.resize(image, target), rtol=0, atol=0.01)


each_axis = st.integers(1, 1200)


@example_count(40)
@given(each_axis, each_axis, st.integers(1, 400), st.integers(1, 400))
def test_any_size_resizes_to_any_within_a_hundredth_of_a_level(
    rows: int, columns: int, height: int, width: int
) -> None:
    image = noise(rows, columns, 1)
    expected = tf.cast(tf.image.resize(image, [height, width]), tf.float32)
    np.testing.assert_allclose(image_module.resize(image, height, width), expected, rtol=0, atol=0.01)


@each_resize
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_the_exact_way_to_resize_is_exact(size: tuple[int, int], target: tuple[int, int], channels: int) -> None:
    image = noise(*size, channels)
    np.testing.assert_array_equal(image_module.resize_exactly(image, *target), tf.image.resize(image, target))


@pytest.mark.parametrize("dtype", [name for name in image_module.DTYPES if name != "uint32"])
@pytest.mark.parametrize("size", [(17, 23), (5, 5)])
def test_every_dtype_resizes_to_float32(dtype: str, size: tuple[int, int]) -> None:
    image = (photo(30, 40) // 2).astype(dtype)
    resized = image_module.resize(image, *size)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, tf.image.resize(image, size), rtol=0, atol=0.01)


def test_an_image_of_the_size_becomes_float32_all_the_same() -> None:
    image = photo(30, 40)
    resized = image_module.resize(image, 30, 40)
    assert resized.dtype == np.float32
    np.testing.assert_array_equal(resized, tf.image.resize(image, [30, 40]))


def test_views_resize_and_rotate_as_their_copies_do() -> None:
    view = photo(50, 60)[::-1, 5:50:2]
    np.testing.assert_array_equal(image_module.resize(view, 20, 20), image_module.resize(view.copy(), 20, 20))
    np.testing.assert_array_equal(image_module.rotate(view, 30), image_module.rotate(view.copy(), 30))


def test_opencv_is_left_as_it_was() -> None:
    before = cv2.ipp.useIPP()
    image_module.resize(photo(30, 40), 20, 20)
    assert cv2.ipp.useIPP() == before


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_a_size_below_one_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        image_module.resize(photo(5, 5), *size)


def to_two_by_two(image: np.ndarray) -> np.ndarray:
    return image_module.resize(image, 2, 2)


def by_one_degree(image: np.ndarray) -> np.ndarray:
    return image_module.rotate(image, 1)


@pytest.mark.parametrize("change", [to_two_by_two, by_one_degree, image_module.center_crop])
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5, 3), (0, 5, 3), (5, 5, 0)])
def test_what_is_no_image_has_no_geometry(change: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageError, match="not an image"):
        change(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("channels", [1, 3, 7])
@pytest.mark.parametrize(("angle", "turns"), [(0, 0), (90, 3), (180, 2), (270, 1), (360, 0), (-90, 1), (450.0, 3)])
def test_quarter_turns_are_clockwise_and_exact(angle: float, turns: int, channels: int) -> None:
    image = noise(5, 8, channels, "int32")
    turned = image_module.rotate(image, angle)
    np.testing.assert_array_equal(turned, np.rot90(image, turns))
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("dtype", image_module.DTYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("angle", [1, 30, -45, 133.7, 359])
def test_other_angles_keep_canvas_and_dtype_and_fill_with_zero(angle: float, channels: int, dtype: str) -> None:
    import skimage.transform

    image = np.ascontiguousarray(np.repeat(photo(41, 60), 2, axis=2)[..., :channels] // 2).astype(dtype)
    turned = image_module.rotate(image, angle)
    assert (turned.dtype, turned.shape) == (image.dtype, image.shape)
    expected = skimage.transform.rotate(image.astype(np.float64), -angle, order=1, cval=0, preserve_range=True)
    # The two treat the border of the canvas differently, hence not every pixel.
    assert np.quantile(np.abs(turned - expected), 0.97) <= (0.1 if dtype.startswith("f") else 0.51)


@pytest.mark.parametrize("dtype", image_module.DTYPES)
@pytest.mark.parametrize("angle", [1, 30, -45, 133.7, 359])
def test_by_nearest_an_angle_moves_pixels_and_makes_no_new_values(angle: float, dtype: str) -> None:
    import skimage.transform

    for size in [(1, 1), (1, 7), (41, 60), (64, 33)]:
        mask = np.random.default_rng(5).choice(np.array([1, 5, 20, 77], dtype), (*size, 2))
        turned = image_module.rotate(mask, angle, "nearest")
        assert (turned.dtype, turned.shape) == (mask.dtype, mask.shape)
        assert {*np.unique(turned)} <= {0, *np.unique(mask)}
        expected = skimage.transform.rotate(mask.astype(np.float64), -angle, order=0, cval=0, preserve_range=True)
        moved = (turned != expected).any(axis=2)  # where the centre of a new pixel lies between two
        assert moved.sum() <= max(2, moved.size // 50)


def test_a_centre_between_two_pixels_belongs_to_the_second_whatever_the_last_bit_of_a_sine() -> None:
    mask = np.random.default_rng(6).integers(0, 255, (40, 61, 1), np.uint8)
    for angle in (30, 150, 210, 330, 45):
        for other in (np.nextafter(angle, 0), np.nextafter(angle, 400)):
            np.testing.assert_array_equal(
                image_module.rotate(mask, angle, "nearest"), image_module.rotate(mask, other, "nearest")
            )


def test_nearest_keeps_quarter_turns_and_numbers_of_64_bits() -> None:
    image = np.arange(2**62, 2**62 + 15).reshape(3, 5, 1)
    np.testing.assert_array_equal(image_module.rotate(image, 90, "nearest"), np.rot90(image, 3))
    assert image_module.rotate(image, 10, "nearest")[1, 2, 0] == image[1, 2, 0]
    with pytest.raises(ValueError, match="cannot rotate by 10 degrees, area"):
        image_module.rotate(image, 10, "area")


@pytest.mark.parametrize("angle", [math.nan, math.inf])
def test_an_angle_that_is_no_number_is_refused(angle: float) -> None:
    with pytest.raises(ValueError, match="cannot rotate"):
        image_module.rotate(photo(5, 5), angle)


def test_a_random_angle_depends_on_seed_and_key_alone() -> None:
    assert image_module.random_angle(0, "a/b") == 53.55595673619168
    assert image_module.random_angle(-7, "\u00e9") == 188.7426506420202
    drawn = {image_module.random_angle(seed, key) for seed in (0, 1, -1) for key in ("", "1", "a", "\udcff")}
    assert len(drawn) == 12


def test_random_angles_are_uniform_over_the_circle() -> None:
    angles = np.array([image_module.random_angle(5, f"{n:06}") for n in range(4000)])
    assert 0 <= angles.min() < angles.max() < 360
    counts = np.histogram(angles, bins=12, range=(0, 360))[0]
    assert (np.abs(counts - 4000 / 12) < 5 * math.sqrt(4000 / 12)).all()


@pytest.mark.parametrize("size", [(5, 5), (5, 8), (8, 5), (5, 9), (1, 4), (100, 1)], ids=str)
def test_the_centre_crop_is_the_largest_square_and_its_margin_rounds_down(size: tuple[int, int]) -> None:
    image = noise(*size, 3)
    side, (height, width) = min(size), size
    top, left = (height - side) // 2, (width - side) // 2
    np.testing.assert_array_equal(image_module.center_crop(image), image[top:, left:][:side, :side])
