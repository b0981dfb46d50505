"""The methods of `tf.image.resize`: each output pixel is a weighted sum of some rows, then of some columns.

Only additions and multiplications of numpy, whose results are the same on every CPU, as those of a BLAS are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from tar2tf_cli.formats.image.lazy import Image, NDArray, np
from tar2tf_cli.formats.image.pixels import resize as resize_bilinearly
from tar2tf_cli.formats.image.pixels import shape_of

Taps: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.float32]]"
"""For each output row or column: the input's that it is made of, and their weights, both (size, taps)."""

_Kernel: TypeAlias = "Callable[[NDArray[np.float64]], NDArray[np.float64]]"


def resample(image: Image, height: int, width: int, method: str = "bilinear", *, antialias: bool = False) -> Image:
    """Resize to (height, width, channels): `tf.image.resize(image, [height, width], method, antialias=antialias)`.

    Float32, within 0.01 of 255 levels of TensorFlow's; with `nearest`, the same pixels in the image's own dtype.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: another method, or height or width below 1.
    """
    if method == "bilinear" and not antialias:
        return resize_bilinearly(image, height, width)
    if method not in METHODS or min(height, width) < 1:
        raise ValueError(f"cannot resize to {height}x{width} by {method}")
    rows, columns, _ = shape_of(image)
    if method == "nearest":
        return image.take(_nearest(rows, height), axis=0).take(_nearest(columns, width), axis=1)
    if (rows, columns) == (height, width):
        return np.ascontiguousarray(image, np.float32)
    lines = _summed(np.ascontiguousarray(image, np.float32), *_taps(rows, height, method, antialias))
    turned = np.ascontiguousarray(lines.swapaxes(0, 1))
    return np.ascontiguousarray(_summed(turned, *_taps(columns, width, method, antialias)).swapaxes(0, 1))


def scaled_size(rows: int, columns: int, *, short: int | None = None, long: int | None = None) -> tuple[int, int]:
    """Height and width with the ratio kept: `tf.image.resize(..., preserve_aspect_ratio=True)` for the long side."""
    side = np.float32(short or long)
    ratios = side / np.float32(rows), side / np.float32(columns)
    ratio = max(ratios) if short else min(ratios)
    height, width = (max(int(np.rint(np.float32(length) * ratio)), 1) for length in (rows, columns))
    return height, width


def _summed(image: NDArray[np.float32], indices: NDArray[np.intp], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The weighted sums of rows, in the order of the taps; by taps or by sums, whichever are fewer."""
    rows = image.reshape(len(image), -1)
    total = np.zeros((len(indices), rows.shape[1]), np.float32)
    if len(indices) < indices.shape[1]:
        for place, (taps, weight) in enumerate(zip(indices, weights, strict=True)):
            (rows.take(taps, axis=0) * weight[:, None]).sum(axis=0, out=total[place])
    else:
        part = np.empty_like(total)
        for tap in range(indices.shape[1]):
            rows.take(indices[:, tap], axis=0, out=part, mode="clip")  # the default mode makes a copy
            part *= weights[:, tap, None]
            total += part
    return total.reshape(len(indices), *image.shape[1:])


@lru_cache(maxsize=256)
def _nearest(size_in: int, size_out: int) -> NDArray[np.intp]:
    """The pixel under the centre of each new one, in TensorFlow's precision (image_resizer_state.h)."""
    scale = np.float32(size_in) / np.float32(size_out)
    at = np.floor((np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * scale)
    indices: NDArray[np.intp] = np.minimum(at.astype(np.intp), size_in - 1)
    return indices


@lru_cache(maxsize=256)
def _taps(size_in: int, size_out: int, method: str, antialias: bool) -> Taps:
    if method == "area":
        return _area_taps(size_in, size_out)
    if method == "bicubic" and not antialias:
        return _cubic_taps(size_in, size_out)
    return _kernel_taps(size_in, size_out, *_KERNELS[method], antialias=antialias)


def _area_taps(size_in: int, size_out: int) -> Taps:
    """How much of each pixel a new one covers (tensorflow/core/kernels/image/resize_area_op.cc)."""
    scale = np.float32(size_in) / np.float32(size_out)
    begin = np.arange(size_out, dtype=np.float32) * scale
    end = np.arange(1, size_out + 1, dtype=np.float32) * scale
    first = np.floor(begin).astype(np.intp)
    indices = first[:, None] + np.arange(math.ceil(scale) + 1)
    covered = np.minimum(indices + 1, end[:, None]) - np.maximum(indices, begin[:, None])
    covered[(indices < begin[:, None]) & (indices + 1 > end[:, None])] = scale  # exactly
    return np.minimum(indices, size_in - 1), (np.maximum(covered, 0) / scale).astype(np.float32)


_TABLE: Final = 1024


def _cubic_taps(size_in: int, size_out: int) -> Taps:
    """Keys' cubic of four pixels, from a table of 1024 weights (tensorflow/core/kernels/image/resize_bicubic_op.cc)."""
    scale = np.float32(size_in) / np.float32(size_out)
    at = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(at)
    offset = np.rint((at - floor) * np.float32(_TABLE)).astype(np.float64) / _TABLE
    indices = floor.astype(np.intp)[:, None] + np.arange(-1, 3)
    weights = _keys_cubic(np.stack([1 + offset, offset, 1 - offset, 2 - offset], axis=1))
    return _normalised(indices, weights, size_in)


def _kernel_taps(size_in: int, size_out: int, kernel: _Kernel, radius: float, *, antialias: bool) -> Taps:
    """The pixels under a kernel, which is as wide as a new one for antialias (scale_and_translate_op.cc)."""
    inverse = np.float32(1) / (np.float32(size_out) / np.float32(size_in))
    stretch = max(inverse, np.float32(1)) if antialias else np.float32(1)
    at = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * inverse
    reach = np.float32(radius) * stretch
    first = np.ceil(at - reach - np.float32(0.5)).astype(np.intp)
    last = np.floor(at + reach - np.float32(0.5)).astype(np.intp)
    indices = first[:, None] + np.arange(int((last - first).max()) + 1)
    weights = kernel(np.abs((indices + np.float32(0.5) - at[:, None]) / stretch).astype(np.float64))
    return _normalised(indices, weights, size_in)


def _normalised(indices: NDArray[np.intp], weights: NDArray[np.float64], size: int) -> Taps:
    """Without pixels outside the image, and with weights whose sum is 1.

    They come in double precision: sines and exponentials differ between CPUs, but not in what is left of them here.
    """
    weights = np.where((indices >= 0) & (indices < size), weights, 0.0)
    return indices.clip(0, size - 1), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _triangle(x: Any) -> Any:
    return np.maximum(1 - x, 0)


def _keys_cubic(x: Any) -> Any:
    near, far = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _mitchell_cubic(x: Any) -> Any:
    near, far = ((7 / 6 * x - 2) * x) * x + 8 / 9, ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _gaussian(x: Any) -> Any:
    return np.where(x < 1.5, np.exp(-2 * x * x), 0)


def _lanczos(radius: int) -> _Kernel:
    def kernel(x: Any) -> Any:
        turned = np.pi * np.maximum(x, 1e-3)
        value = radius * np.sin(turned) * np.sin(turned / radius) / (turned * turned)
        return np.where(x > radius, 0, np.where(x <= 1e-3, 1, value))

    return kernel


_KERNELS: Final[dict[str, tuple[_Kernel, float]]] = {
    "bilinear": (_triangle, 1),
    "bicubic": (_keys_cubic, 2),
    "lanczos3": (_lanczos(3), 3),
    "lanczos5": (_lanczos(5), 5),
    "gaussian": (_gaussian, 1.5),
    "mitchellcubic": (_mitchell_cubic, 2),
}

METHODS: Final = ("bilinear", "nearest", "area", "bicubic", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
"""The methods of `tf.image.resize`."""
