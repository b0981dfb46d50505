"""Operations on pixels: dtypes and values, resizing by each method of `tf.image.resize`, padding, cropping, turning.

An image is a NumPy array (height, width, channels). Results equal TensorFlow's and depend only on a function's
arguments; nothing in this folder knows samples or ops. NumPy, OpenCV and libjpeg-turbo are imported by the first call
that needs them, which reading a header, drawing an angle and `tar2tf --help` never do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.checksums import blake2b

if TYPE_CHECKING:
    import cv2
    import numpy as np
    from numpy.typing import NDArray

    from tar2tf_cli.api.values import Array

    Image: TypeAlias = Array
else:

    class _LazyModule:
        """Lazy module: imports a module on first access of an attribute, and caches the attribute."""

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> object:
            value = getattr(import_module(self._module), name)
            setattr(self, name, value)
            return value

    cv2, np = _LazyModule("cv2"), _LazyModule("numpy")
    Image = NDArray = Any

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
        return resize(image, height, width)
    if method not in METHODS or min(height, width) < 1:
        raise ValueError(f"cannot resize to {height}x{width} by {method}")
    rows, columns, _ = shape_of(image)
    if method == "nearest":
        return image.take(_nearest(rows, height), axis=0).take(_nearest(columns, width), axis=1)
    if (rows, columns) == (height, width) and method not in _BLURRING:
        return np.ascontiguousarray(image, np.float32)
    lines = _weighted_sums(np.ascontiguousarray(image, np.float32), *_taps(rows, height, method, antialias))
    return _transpose(_weighted_sums(_transpose(lines), *_taps(columns, width, method, antialias)))


def _transpose(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Swap rows and columns, with OpenCV in a sixth of NumPy's time."""
    rows, columns, channels = image.shape
    if channels > 4:
        return np.ascontiguousarray(image.swapaxes(0, 1))
    turned: Any = cv2.transpose(image)
    return np.ascontiguousarray(turned.reshape(columns, rows, channels))


def _weighted_sums(
    image: NDArray[np.float32], indices: NDArray[np.intp], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the weighted sums of rows, in the order of the taps."""
    rows = image.reshape(len(image), -1)
    total = np.empty((len(indices), rows.shape[1]), np.float32)
    if len(indices) < indices.shape[1]:
        for place, (taps, weight) in enumerate(zip(indices, weights, strict=True)):
            (rows.take(taps, axis=0) * weight[:, None]).sum(axis=0, out=total[place])
        return total.reshape(len(indices), *image.shape[1:])
    product = total
    for tap in range(indices.shape[1]):
        rows.take(indices[:, tap], axis=0, out=product, mode="clip")  # the default mode makes a copy
        product *= weights[:, tap, None]
        if tap:
            total += product
        else:
            product = np.empty_like(total)
    return total.reshape(len(indices), *image.shape[1:])


@lru_cache(maxsize=256)
def _nearest(size_in: int, size_out: int) -> NDArray[np.intp]:
    """Return the index of the nearest source pixel of each output pixel (image_resizer_state.h)."""
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
    """Return how much of each source pixel an output pixel covers (tensorflow/core/kernels/image/resize_area_op.cc)."""
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
    """Return Keys' cubic weights of four pixels, from a table (tensorflow/core/kernels/image/resize_bicubic_op.cc)."""
    scale = np.float32(size_in) / np.float32(size_out)
    at = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(at)
    offset = np.rint((at - floor) * np.float32(_TABLE)).astype(np.float64) / _TABLE
    indices = floor.astype(np.intp)[:, None] + np.arange(-1, 3)
    weights = _keys_cubic(np.stack([1 + offset, offset, 1 - offset, 2 - offset], axis=1))
    return _normalised(indices, weights, size_in)


def _kernel_taps(size_in: int, size_out: int, kernel: _Kernel, radius: float, *, antialias: bool) -> Taps:
    """Return the source pixels and weights under a kernel, widened for antialiasing (scale_and_translate_op.cc)."""
    inverse = np.float32(1) / (np.float32(size_out) / np.float32(size_in))
    stretch = max(inverse, np.float32(1)) if antialias else np.float32(1)
    at = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * inverse
    support = np.float32(radius) * stretch
    first = np.ceil(at - support - np.float32(0.5)).astype(np.intp)
    last = np.floor(at + support - np.float32(0.5)).astype(np.intp)
    indices = first[:, None] + np.arange(int((last - first).max()) + 1)
    # TensorFlow's precision and order matter for pixels at the edge of a kernel
    distances = indices.astype(np.float32) + np.float32(0.5) - at[:, None]
    weights = kernel(np.abs(distances * (np.float32(1) / stretch)).astype(np.float64))
    return _normalised(indices, weights, size_in)


def _normalised(indices: NDArray[np.intp], weights: NDArray[np.float64], size: int) -> Taps:
    """Drop taps outside the image, and scale the weights of each output pixel so that their sum is 1.

    They come in double precision: sines and exponentials differ between CPUs, but not after rounding to float32.
    """
    weights = np.where((indices >= 0) & (indices < size), weights, 0.0)
    return indices.clip(0, size - 1), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _triangle(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - x, 0)


def _keys_cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    near, far = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _mitchell_cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    near, far = ((7 / 6 * x - 2) * x) * x + 8 / 9, ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _gaussian(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(x < 1.5, np.exp(-2 * x * x), 0)


def _lanczos(radius: int) -> _Kernel:
    def kernel(x: NDArray[np.float64]) -> NDArray[np.float64]:
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

_BLURRING: Final = ("gaussian", "mitchellcubic")
"""Methods that change an image even where its size stays."""

METHODS: Final = ("bilinear", "nearest", "area", "bicubic", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
"""The methods of `tf.image.resize`."""


DTYPES: Final = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
"""The dtypes that `convert_dtype` and `cast` accept and return."""


def convert_dtype(image: Image, dtype: str) -> Image:
    """Scale values from the range of one dtype to that of another: `tf.image.convert_image_dtype`.

    The range of integers ends at their type's maximum, that of floats at 1. Between integers the scale is a power of
    two; an integer becomes the float x * (1 / max), a float the integer trunc(x * (max + 0.5)), in the precision of the
    float. Outside the range, and at 1.0 for integers wider than the float's precision, the result is undefined, as in
    TensorFlow.

    Raises:
        ImageError: an array or dtype outside `DTYPES`; float16 and an integer of a range that float16 cannot
            hold, for which TensorFlow returns infinities and noise.
    """
    source, target = _supported(image.dtype), _supported(dtype)
    if source == target:
        return image
    if source.kind == target.kind == "f":
        return _plain_cast(image, dtype)
    if source.kind == "f":
        return _plain_cast(_multiply(image, _most(target, source) + 0.5), dtype)
    if target.kind == "f":
        return _multiply(_plain_cast(image, dtype), 1 / _most(source, target))
    range_in, range_out = int(np.iinfo(source).max) + 1, int(np.iinfo(target).max) + 1
    if range_in > range_out:
        return _plain_cast(image // source.type(range_in // range_out), dtype)
    return _multiply(_plain_cast(image, dtype), range_out // range_in)


def _most(integer: np.dtype[Any], floating: np.dtype[Any]) -> int:
    most = int(np.iinfo(integer).max)
    if most > float(np.finfo(floating).max):
        raise ImageError(f"{floating} cannot hold the range of {integer}: convert to float32 first")
    return most


def _multiply(image: Image, factor: float) -> Image:
    """Multiply pixels in the image's dtype, to which the factor is rounded first, as TensorFlow does."""
    with np.errstate(over="ignore"):
        product: Image = image * image.dtype.type(factor)
    return product


def _plain_cast(image: Image, dtype: str) -> Image:
    with np.errstate(invalid="ignore", over="ignore"):
        return image.astype(dtype, "C")


def cast(image: Image, dtype: str) -> Image:
    """Change the dtype, clamping to the new dtype's range: `tf.saturate_cast`.

    Unlike TensorFlow's, it does not overflow from int64, nor from float32 and float64 to int64.

    Floats are clamped, then truncated towards zero: to uint8, 254.9 -> 254, -0.9 -> 0, 300.0 -> 255.
    Infinities become the largest finite value. NaN stays NaN in floats; as an integer it depends on the
    CPU: on x86-64, the least value of int32 and int64, and 0 for the others.

    Raises:
        ImageError: an array or dtype outside `DTYPES`.
    """
    bounds = _bounds(image.dtype, dtype)
    if bounds:
        image = np.clip(image, *bounds)
    return _plain_cast(image, dtype)


@lru_cache(maxsize=256)
def _bounds(dtype: np.dtype[Any], wanted: str) -> tuple[Any, Any] | None:
    """Return the least and greatest value of one dtype that the other can represent; None if it can represent all."""
    source, target = _supported(dtype), _supported(wanted)
    (low_in, high_in), (low_out, high_out) = _limits(source), _limits(target)
    low, high = max(low_in, low_out), min(high_in, high_out)
    if source.kind != "f" and (low, high) == (low_in, high_in):
        return None
    return _round_towards_zero(low, source), _round_towards_zero(high, source)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    number = float if dtype.kind == "f" else int
    return number(info.min), number(info.max)


def _round_towards_zero(limit: float, dtype: np.dtype[np.generic]) -> object:
    """Return a limit in a dtype that may not represent it exactly, rounded towards zero."""
    value = dtype.type(limit)
    return np.nextafter(value, dtype.type(0)) if abs(value.item()) > abs(limit) else value


@lru_cache(maxsize=256)
def _supported(dtype: Any) -> np.dtype[Any]:
    name = str(dtype)
    if name not in DTYPES:
        raise ImageError(f"dtype {name} is not supported: only {', '.join(DTYPES)}")
    return np.dtype(name)


# In pixels: 0.009 of a level where neighbours differ by 255 levels. The remainder of the permitted 0.01 is for the
# arithmetic of interpolation.
_MOST_ROUNDING_GAP: Final = 0.009 / 255

# OpenCV converts every pixel to float32, NumPy only the pixels that it reads; measured break-even.
_MOST_SHRINKING: Final = 16


def resize(image: Image, height: int, width: int) -> NDArray[np.float32]:
    """Resize bilinearly to float32 (height, width, channels): `tf.image.resize(image, [height, width])`.

    Half-pixel centres, no antialiasing, the edge repeated; no value of 255 levels is off by more than 0.01. OpenCV
    computes it where that is faster and its coordinates round as TensorFlow's do; otherwise NumPy, exactly.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: height or width below 1.
    """
    if height < 1 or width < 1:
        raise ValueError(f"cannot resize to {height}x{width}: both must be at least 1")
    rows, columns, channels = shape_of(image)
    if (rows, columns) == (height, width):
        return np.ascontiguousarray(image, np.float32)
    shrinking = rows * columns / (height * width)
    gap = _rounding_gap(rows, height) + _rounding_gap(columns, width)
    if channels > 4 or shrinking > _MOST_SHRINKING or gap > _MOST_ROUNDING_GAP:
        return resize_exactly(image, height, width)
    return _resize_fast(image, height, width)


def _coordinates(size_in: int, size_out: int) -> NDArray[np.float32]:
    """Return the source coordinates that TensorFlow samples along one axis (image_resizer_state.h)."""
    scale = np.float32(size_in) / np.float32(size_out)
    points: NDArray[np.float32] = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    return points


def _opencv_factor(size_in: int, size_out: int) -> float:
    """Return the factor that makes OpenCV divide by TensorFlow's float32 scale instead of the exact ratio."""
    return 1 / float(np.float32(size_in) / np.float32(size_out))


@lru_cache(maxsize=65536)
def _rounding_gap(size_in: int, size_out: int) -> float:
    """Return the distance in pixels between OpenCV's coordinates, rounded once, and TensorFlow's, rounded at each step.

    They differ where a coordinate exceeds a power of two: by at most 2^-16 up to 512, 2^-15 up to 1024.
    """
    exact = (np.arange(size_out) + 0.5) / _opencv_factor(size_in, size_out) - 0.5
    gaps = exact.astype(np.float32).astype(np.float64) - _coordinates(size_in, size_out)
    return float(np.abs(gaps).max())


def _resize_fast(image: Image, height: int, width: int) -> NDArray[np.float32]:
    rows, columns, channels = image.shape
    fx, fy = _opencv_factor(columns, width), _opencv_factor(rows, height)
    source = np.ascontiguousarray(image, np.float32)
    with opencv("resize"):
        resized: Any = cv2.resize(source, None, None, fx, fy, cv2.INTER_LINEAR)
    return np.ascontiguousarray(resized.reshape(height, width, channels))


@contextmanager
def opencv(task: str) -> Iterator[None]:
    """Map OpenCV's errors to ours, silence its log, and disable Intel's IPP, whose results depend on the CPU model.

    Raises:
        ImageError: when OpenCV fails.
        MemoryError: when OpenCV cannot allocate memory.
    """
    cv2.utils.logging.setLogLevel(0)  # our own errors report its findings, once and with their location
    before = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)
    try:
        yield
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError from None
        raise ImageError(f"cannot {task}: OpenCV: {error.err or error}") from None
    finally:
        cv2.ipp.setUseIPP(before)


def resize_exactly(image: Image, height: int, width: int) -> NDArray[np.float32]:
    """Resize bilinearly, bit for bit as tensorflow/core/kernels/image/resize_bilinear_op.cc does."""
    rows, columns, channels = image.shape
    above, below, down = _bilinear_taps(rows, height)
    left, right, across = _bilinear_taps(columns, width)
    read = image.take(np.concatenate([above, below]), axis=0)
    flat = (2 * height, width * channels)
    lefts = read.take(left, axis=1).reshape(flat).astype(np.float32)
    rights = read.take(right, axis=1).reshape(flat).astype(np.float32)
    lines = _lerp(lefts, rights, np.repeat(across, channels))
    return _lerp(lines[:height], lines[height:], down[:, np.newaxis]).reshape(height, width, channels)


def _bilinear_taps(size_in: int, size_out: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Return the two source indices of every output index along one axis, and the weight of the second."""
    at = _coordinates(size_in, size_out)
    floor = np.floor(at)
    lower = np.maximum(floor, 0).astype(np.intp)
    upper = np.minimum(np.ceil(at), size_in - 1).astype(np.intp)
    return np.minimum(lower, size_in - 1), upper, at - floor


def _lerp(first: NDArray[np.float32], second: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute first + (second - first) * weight in the memory of `second`."""
    second -= first
    second *= weight
    second += first
    return second


def rotate(image: Image, angle: float, method: str = "bilinear") -> Image:
    """Rotate clockwise by `angle` degrees about the centre; the dtype does not change.

    Multiples of 90 move pixels unchanged, and 90 and 270 swap height and width. Any other angle keeps the canvas:
    pixels that leave it are lost, and new ones are 0. `bilinear` interpolates values (32 and 64 bits in float32), and
    rounds integers; `nearest` copies the image's values.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: another method, or the angle is not finite.
    """
    shape_of(image)
    if not math.isfinite(angle) or method not in TURNING:
        raise ValueError(f"cannot rotate by {angle} degrees, {method}")
    quarters, rest = divmod(angle % 360, 90)
    if rest:
        return _rotate_nearest(image, angle) if method == "nearest" else _rotate_within_canvas(image, angle)
    return np.ascontiguousarray(np.rot90(image, -int(quarters)))


TURNING: Final = ("bilinear", "nearest")
"""The methods of `rotate`."""


_NUDGE: Final = 2**-20
"""Shift that assigns a point midway between two pixels to the second, as sines differ in the last bit by machine."""


def _rotate_nearest(image: Image, angle: float) -> Image:
    """Rotate an image by nearest neighbour; pixels from outside the image are 0."""
    height, width, _ = image.shape
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    down, across = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    rows = np.floor(cosine * down - sine * across + (height / 2 + _NUDGE)).astype(np.intp)
    columns = np.floor(sine * down + cosine * across + (width / 2 + _NUDGE)).astype(np.intp)
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    turned = np.zeros_like(image, order="C")
    turned[inside] = image[rows[inside], columns[inside]]
    return turned


def _rotate_within_canvas(image: Image, angle: float) -> Image:
    height, width, channels = image.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -angle, 1.0)
    # OpenCV rounds positions to 1/32 pixel for two channels, or dtypes other than these.
    source = image if image.dtype.name in ("uint8", "uint16", "float32") else image.astype(np.float32)
    step = channels if channels in (1, 3, 4) else 1
    turned = []
    for first in range(0, channels, step):
        part = np.ascontiguousarray(source[..., first : first + step])
        with opencv("rotate"):
            warped: Any = cv2.warpAffine(part, matrix, (width, height), flags=cv2.INTER_LINEAR)
        turned.append(warped.reshape(part.shape))
    whole: Image = np.concatenate(turned, axis=2)
    if whole.dtype == image.dtype:
        return whole
    return cast(whole if image.dtype.kind == "f" else np.rint(whole), image.dtype.name)


def random_angle(seed: int, key: str) -> float:
    """Draw an angle in [0, 360) that depends on seed and key only, not on the machine or earlier draws."""
    return random_fraction(seed, key) * 360


def random_fraction(seed: int, key: str, number: int = 0) -> float:
    """Draw a number in [0, 1) from seed and key: the first 53 bits of BLAKE2b over "SEED NUL KEY", of 2^53.

    Further numbers of the same seed and key are drawn over "SEED NUL KEY NUL NUMBER".
    """
    text = f"{seed}\0{key}\0{number}" if number else f"{seed}\0{key}"
    digest = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def scaled_size(rows: int, columns: int, *, short: int | None = None, long: int | None = None) -> tuple[int, int]:
    """Return height and width scaled with the aspect ratio preserved, as `tf.image.resize` does for the long side."""
    side = np.float32(short or long)
    ratios = side / np.float32(rows), side / np.float32(columns)
    ratio = max(ratios) if short else min(ratios)
    height, width = (max(int(np.rint(np.float32(length) * ratio)), 1) for length in (rows, columns))
    return height, width


def pad(
    image: Image, height: int, width: int, fill: float = 0, method: str = "bilinear", *, antialias: bool = False
) -> Image:
    """Resize with the ratio preserved, then pad all sides: `tf.image.resize_with_pad(image, height, width, method)`.

    The result is float32, or the image's own dtype with `nearest`. If the margins differ by a pixel, the bottom or
    right one is larger. A side that would have no pixels gets one; TensorFlow fails there.

    Args:
        image: (height, width, channels).
        height: height of the result.
        width: width of the result.
        fill: the value of new pixels, in every channel; clamped to the range of the dtype.
        method: as in `resample`.
        antialias: as in `resample`.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: another method, or height or width below 1.
    """
    rows, columns, _ = shape_of(image)
    size, top, left = pad_layout(rows, columns, height, width)
    return _paste(resample(image, *size, method, antialias=antialias), height, width, top, left, fill)


def pad_layout(rows: int, columns: int, height: int, width: int) -> tuple[tuple[int, int], int, int]:
    """Return the size to which `pad` scales an image, and its first row and column in the result."""
    ratio = max(np.float32(columns) / np.float32(width), np.float32(rows) / np.float32(height))
    inner_height, inner_width = np.float32(rows) / ratio, np.float32(columns) / ratio
    top, left = (int(max(side // 2, 0)) for side in (height - inner_height, width - inner_width))
    return (max(int(inner_height), 1), max(int(inner_width), 1)), top, left


def _paste(image: Image, height: int, width: int, top: int, left: int, fill: float) -> Image:
    """Return a larger image that contains the image at a position, and a fill value elsewhere."""
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image
    whole: Image = np.empty((height, width, channels), image.dtype)
    limits = None if image.dtype.kind == "f" else np.iinfo(image.dtype)
    whole[...] = fill if limits is None else min(max(round(fill), limits.min), limits.max)
    whole[top : top + rows, left : left + columns] = image
    return whole


PLACES: Final = (
    "center", "top", "bottom", "left", "right", "top-left", "top-right", "bottom-left", "bottom-right", "random",
)  # fmt: skip
"""Parts of an image that `crop` can keep."""


def crop(image: Image, height: int, width: int, at: str = "center", *, seed: int = 0, key: str = "") -> Image:
    """Cut out a region, padded with 0 where the image is smaller: at the center, `tf.image.resize_with_crop_or_pad`.

    Args:
        image: (height, width, channels).
        height: height of the result.
        width: width of the result.
        at: one of `PLACES`; a padded image is always centred.
        seed: determines a random position, together with the key.
        key: the sample's key.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: another place, or height or width below 1.
    """
    if at not in PLACES or min(height, width) < 1:
        raise ValueError(f"cannot crop to {height}x{width} at {at}")
    rows, columns, _ = shape_of(image)
    top, left = crop_start(rows, columns, height, width, at, seed=seed, key=key)
    part = np.ascontiguousarray(image[max(top, 0) : max(top, 0) + height, max(left, 0) : max(left, 0) + width])
    return _paste(part, height, width, max(-top, 0), max(-left, 0), 0)


def crop_start(
    rows: int, columns: int, height: int, width: int, at: str, *, seed: int = 0, key: str = ""
) -> tuple[int, int]:
    """Return the row and column of an image at which the result of `crop` begins; negative where it is padded."""
    down, across = (random_fraction(seed, key, side) if at == "random" else 0.0 for side in (1, 2))
    top = _start(rows - height, at, ("top", "bottom"), down) - max(height - rows, 0) // 2
    left = _start(columns - width, at, ("left", "right"), across) - max(width - columns, 0) // 2
    return top, left


def _start(rest: int, at: str, sides: tuple[str, str], fraction: float) -> int:
    """Return the start of a region along one axis, given that the region is `rest` pixels shorter than the axis."""
    if rest <= 0 or sides[0] in at:
        return 0
    if sides[1] in at:
        return rest
    return int(fraction * (rest + 1)) if at == "random" else rest // 2


def center_crop(image: Image) -> Image:
    """Cut out the largest centred square.

    It begins (long - short) // 2 along the longer side: an odd margin is larger at the bottom or right.

    Raises:
        ImageError: not a numeric array of three dimensions.
    """
    height, width, _ = shape_of(image)
    return crop(image, min(height, width), min(height, width))


def flipped(image: Image) -> Image:
    """Mirror an image left to right: `tf.image.flip_left_right`."""
    return np.ascontiguousarray(image[:, ::-1])


def oriented(image: Image, orientation: int) -> Image:
    """Turn an image as its EXIF orientation (tag 274) requires: `PIL.ImageOps.exif_transpose`.

    Args:
        image: (height, width, channels); 5 to 8 swap height and width.
        orientation: 1 to 8 (EXIF 2.32, 4.6.4 A): 2 is mirrored, 3 turned by 180 degrees, 4 flipped, 5 transposed, 6
            turned by 90 degrees clockwise, 7 transposed along the other diagonal, 8 turned by 270 degrees.
    """
    if orientation in (5, 6, 7, 8):
        image = image.swapaxes(0, 1)
    down, across = -1 if orientation in (3, 4, 7, 8) else 1, -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(image[::down, ::across])


def shape_of(image: Image) -> tuple[int, int, int]:
    """Return height, width and channels of an array that is an image."""
    if image.ndim != 3 or not image.size:
        raise ImageError(f"not an image (height, width, channels): an array of shape {image.shape}")
    _supported(image.dtype)
    height, width, channels = image.shape
    return height, width, channels


# --- Masks: images with a class or distance per pixel, which must not be interpolated ---

_NAMED: Final = re.compile(r"(?i)(^|[._-])(mask|seg|segm|segmentation|label|labels|depth|instance|panoptic)s?($|[._-])")

MOST_VALUES: Final = 4096
"""The most distinct values of masks that are counted."""

_MOST_SHOWN: Final = 12


def is_named_like_mask(name: str) -> bool:
    """Whether the name of an entry suggests that it holds a class or a distance for each pixel."""
    return _NAMED.search(name) is not None


def distinct_values(pixels: NDArray[np.generic]) -> set[object]:
    """Return the distinct values of pixels (height, width) or (height, width, channels); colours are tuples."""
    if pixels.ndim != 3 or pixels.shape[2] == 1:
        return set(np.unique(pixels).tolist())
    rows = np.ascontiguousarray(pixels.reshape(-1, pixels.shape[2]))
    if rows.dtype == np.uint8 and rows.shape[1] < 5:
        packed = np.zeros((len(rows), 4), np.uint8)
        packed[:, : rows.shape[1]] = rows
        rows = np.unique(packed.view("u4")).view(np.uint8).reshape(-1, 4)[:, : rows.shape[1]]
    return set(map(tuple, np.unique(rows, axis=0).tolist()))


def describe_values(values: Collection[Any]) -> str:
    """Describe distinct pixel values: their number, and the values if they are few."""
    if len(values) > MOST_VALUES:
        return f"more than {MOST_VALUES:,} distinct values"
    shown = f": {', '.join(map(str, sorted(values)))}" if len(values) <= _MOST_SHOWN else ""
    return f"{len(values):,} distinct value{'s' * (len(values) != 1)}{shown}"
