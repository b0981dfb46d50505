"""Pixels to pixels: dtypes and values, sizes and angles."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.image.lazy import Image, NDArray, cv2, np

COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether reference counts are exact, which requires the GIL; without it, no memory is reused."""

_MOST_BYTES: Final = 32 << 20
"""The most bytes that each thread keeps."""


def _references(blocks: Sequence[Any], place: int) -> int:
    return sys.getrefcount(blocks[place])


_UNUSED: Final = _references([object()], 0)
"""The reference count of a kept block that no array uses, as measured in this interpreter."""


class KeptBlocks(threading.local):
    """Blocks of memory that a thread keeps to use again, and how many bytes they have."""

    def __init__(self) -> None:
        self.blocks: list[NDArray[np.uint8]] = []
        self.bytes = 0


kept_blocks: Final = KeptBlocks()


def buffer(shape: tuple[int, ...], dtype: str | np.dtype[Any]) -> NDArray[Any]:
    """Return an uninitialised array in C order, in the memory of a deleted array if possible.

    The memory of an array in use, even of a view of it, is not reused, since arrays refer to their block.
    """
    if not COUNTED:
        return np.empty(shape, dtype)
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return _block(size)[:size].view(dtype).reshape(shape)


def _block(size: int) -> NDArray[np.uint8]:
    blocks = kept_blocks.blocks
    for place in range(len(blocks)):
        if size <= blocks[place].size <= 2 * size and _references(blocks, place) == _UNUSED:
            return blocks[place]
    block = np.empty(size, np.uint8)
    if kept_blocks.bytes + size <= _MOST_BYTES:
        kept_blocks.blocks.append(block)
        kept_blocks.bytes += size
    elif size <= _MOST_BYTES:
        _forget_unused()
    return block


def _forget_unused() -> None:
    """Release unused blocks, to make room for images of another size."""
    blocks = kept_blocks.blocks
    kept_blocks.blocks = [blocks[place] for place in range(len(blocks)) if _references(blocks, place) > _UNUSED]
    kept_blocks.bytes = sum(block.size for block in kept_blocks.blocks)


DTYPES: Final = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
"""The dtypes that `convert_dtype` and `cast` accept and return."""


def convert_dtype(image: Image, dtype: str, saturate: bool = False) -> Image:
    """Scale values from the range of one dtype to that of another: `tf.image.convert_image_dtype`.

    Integers range to their type's maximum, floats to 1. Between integers the scale is a power of two; an
    integer becomes x * (1 / max), a float trunc(x * (max + 0.5)), in the precision of the float. Beyond the
    range, and at 1.0 for integers wider than the float's precision, the result is undefined (as in TensorFlow)
    unless `saturate` is set, which clamps.

    Raises:
        ImageError: an array or dtype outside `DTYPES`; float16 and an integer of a range that float16 cannot
            hold, for which TensorFlow returns infinities and noise.
    """
    source, target = _supported(image.dtype), _supported(dtype)
    fit = cast if saturate else _plain_cast
    if source == target:
        return image
    if source.kind == target.kind == "f":
        return _plain_cast(image, dtype)
    if source.kind == "f":
        return fit(_times(image, _most(target, source) + 0.5), dtype)
    if target.kind == "f":
        return _times(_plain_cast(image, dtype), 1 / _most(source, target))
    range_in, range_out = int(np.iinfo(source).max) + 1, int(np.iinfo(target).max) + 1
    if range_in > range_out:
        return fit(image // source.type(range_in // range_out), dtype)
    return _times(fit(image, dtype), range_out // range_in)


def _most(integer: np.dtype[Any], floating: np.dtype[Any]) -> int:
    most = int(np.iinfo(integer).max)
    if most > float(np.finfo(floating).max):
        raise ImageError(f"{floating} cannot hold the range of {integer}: convert to float32 first")
    return most


def _times(image: Image, factor: float) -> Image:
    """Multiply in the dtype of the image, to which the factor is rounded first, as TensorFlow does."""
    with np.errstate(over="ignore"):
        product: Image = np.multiply(image, image.dtype.type(factor), out=buffer(image.shape, image.dtype))
    return product


def _plain_cast(image: Image, dtype: str) -> Image:
    converted: Image = buffer(image.shape, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        converted[...] = image
    return converted


def cast(image: Image, dtype: str) -> Image:
    """Change the dtype, clamping to what the new one can hold: `tf.saturate_cast`.

    TensorFlow's own overflows from int64, and from float32 and float64 to int64; this does not.

    Floats are clamped, then truncated towards zero: to uint8, 254.9 -> 254, -0.9 -> 0, 300.0 -> 255.
    Infinities become the largest finite value. NaN stays NaN in floats; as an integer it depends on the
    CPU: on x86-64, the least value of int32 and int64, and 0 for the others.

    Raises:
        ImageError: an array or dtype outside `DTYPES`.
    """
    bounds = _bounds(image.dtype, dtype)
    if bounds:
        image = np.clip(image, *bounds, out=buffer(image.shape, image.dtype))
    return _plain_cast(image, dtype)


@lru_cache(maxsize=256)
def _bounds(dtype: np.dtype[Any], wanted: str) -> tuple[Any, Any] | None:
    """The least and greatest value of one dtype that the other can hold; None if it can hold all of them."""
    source, target = _supported(dtype), _supported(wanted)
    (low_in, high_in), (low_out, high_out) = _limits(source), _limits(target)
    low, high = max(low_in, low_out), min(high_in, high_out)
    if source.kind != "f" and (low, high) == (low_in, high_in):
        return None
    return _inward(low, source), _inward(high, source)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    number = float if dtype.kind == "f" else int
    return number(info.min), number(info.max)


def _inward(limit: float, dtype: np.dtype[Any]) -> Any:
    """Give the limit in a dtype that may lack the exact value, nudged towards zero rather than beyond it."""
    value = dtype.type(limit)
    return np.nextafter(value, dtype.type(0)) if abs(value.item()) > abs(limit) else value


@lru_cache(maxsize=256)
def _supported(dtype: Any) -> np.dtype[Any]:
    name = str(dtype)
    if name not in DTYPES:
        raise ImageError(f"dtype {name} is not supported: only {', '.join(DTYPES)}")
    return np.dtype(name)


# In pixels: where neighbours differ by 255 levels, 0.009 of a level. The rest of the 0.01 that the design
# allows is for the arithmetic of interpolation.
_MOST_ROUNDING_GAP: Final = 0.009 / 255

# OpenCV's path converts every pixel to float32, numpy's only those it reads. Measured break-even.
_MOST_SHRINKING: Final = 16


def resize(image: Image, height: int, width: int) -> NDArray[np.float32]:
    """Resize bilinearly to float32 (height, width, channels): `tf.image.resize(image, [height, width])`.

    Half-pixel centres, no antialiasing, the edge repeated; no value of 255 levels is off by more than 0.01.
    OpenCV computes it where that is faster and its coordinates round as TensorFlow's do; else numpy, exactly.

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
        return _resize_exactly(image, height, width)
    return _resize_fast(image, height, width)


def _coordinates(size_in: int, size_out: int) -> NDArray[np.float32]:
    """Where TensorFlow samples one axis, in its precision (tensorflow/core/util/image_resizer_state.h)."""
    scale = np.float32(size_in) / np.float32(size_out)
    points: NDArray[np.float32] = (np.arange(size_out, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    return points


def _opencv_factor(size_in: int, size_out: int) -> float:
    """Give the factor that makes OpenCV divide by TensorFlow's float32 scale instead of the exact ratio."""
    return 1 / float(np.float32(size_in) / np.float32(size_out))


@lru_cache(maxsize=65536)
def _rounding_gap(size_in: int, size_out: int) -> float:
    """How far OpenCV's coordinates, rounded once, are from TensorFlow's, rounded at each step, in pixels.

    They differ where a coordinate exceeds a power of two: by at most 2^-16 up to 512, 2^-15 up to 1024.
    """
    exact = (np.arange(size_out) + 0.5) / _opencv_factor(size_in, size_out) - 0.5
    gaps = exact.astype(np.float32).astype(np.float64) - _coordinates(size_in, size_out)
    return float(np.abs(gaps).max())


def _resize_fast(image: Image, height: int, width: int) -> NDArray[np.float32]:
    rows, columns, channels = image.shape
    fx, fy = _opencv_factor(columns, width), _opencv_factor(rows, height)
    source = _as_float32(image)
    with opencv("resize"):
        resized: Any = cv2.resize(source, None, buffer((height, width, channels), "float32"), fx, fy, cv2.INTER_LINEAR)
    return np.ascontiguousarray(resized.reshape(height, width, channels))


def _as_float32(image: Image) -> NDArray[np.float32]:
    if image.dtype == np.float32:
        return np.ascontiguousarray(image)
    floats: NDArray[np.float32] = buffer(image.shape, "float32")
    floats[...] = image
    return floats


@contextmanager
def opencv(task: str) -> Iterator[None]:
    """Make OpenCV's errors ours, and keep it from Intel's IPP, whose results depend on the CPU's model.

    Raises:
        ImageError: what OpenCV cannot do.
        MemoryError: when it gets no memory.
    """
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


def _resize_exactly(image: Image, height: int, width: int) -> NDArray[np.float32]:
    """Interpolate in the order of tensorflow/core/kernels/image/resize_bilinear_op.cc: the same bits."""
    rows, columns, channels = image.shape
    above, below, down = _taps(rows, height)
    left, right, across = _taps(columns, width)
    read = image.take(np.concatenate([above, below]), axis=0)
    flat = (2 * height, width * channels)
    lefts = read.take(left, axis=1).reshape(flat).astype(np.float32)
    rights = read.take(right, axis=1).reshape(flat).astype(np.float32)
    lines = _lerp(lefts, rights, np.repeat(across, channels))
    return _lerp(lines[:height], lines[height:], down[:, np.newaxis]).reshape(height, width, channels)


def _taps(size_in: int, size_out: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Give the two source indices of every output index along one axis, and the weight of the second."""
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


def rotate(image: Image, angle: float) -> Image:
    """Rotate clockwise by `angle` degrees about the centre; the dtype does not change.

    Multiples of 90 move pixels unchanged, and 90 and 270 swap height and width. Any other angle keeps the
    canvas: pixels that leave it are lost, new ones are 0; values are interpolated bilinearly (32 and 64 bits in
    float32), and rounded if integers.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: the angle is not finite.
    """
    shape_of(image)
    if not math.isfinite(angle):
        raise ValueError(f"cannot rotate by {angle} degrees")
    quarters, rest = divmod(angle % 360, 90)
    if rest:
        return _rotate_within_canvas(image, angle)
    return np.ascontiguousarray(np.rot90(image, -int(quarters)))


def _rotate_within_canvas(image: Image, angle: float) -> Image:
    height, width, channels = image.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -angle, 1.0)
    # OpenCV rounds positions to 1/32 of a pixel where it has two channels or other dtypes than these.
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
    """Draw an angle in [0, 360) from seed and key: the same on every machine, independent of earlier draws.

    The first 53 bits of BLAKE2b over "SEED NUL KEY" as a fraction of 2^53, times 360.
    """
    text = f"{seed}\0{key}".encode("utf-8", "surrogateescape")
    bits = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11
    return bits / 2**53 * 360


def center_crop(image: Image) -> Image:
    """Cut out the largest centred square.

    It begins (long - short) // 2 along the longer side: an odd margin is larger at the bottom or right.

    Raises:
        ImageError: not a numeric array of three dimensions.
    """
    height, width, _ = shape_of(image)
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return np.ascontiguousarray(image[top : top + side, left : left + side])


def shape_of(image: Image) -> tuple[int, int, int]:
    """Height, width and channels of an array that is an image."""
    if image.ndim != 3 or not image.size:
        raise ImageError(f"not an image (height, width, channels): an array of shape {image.shape}")
    _supported(image.dtype)
    height, width, channels = image.shape
    return height, width, channels
