"""Images: bytes to pixels, pixels to pixels, pixels to bytes, each as TensorFlow does it.

An image is a numpy array (height, width, channels). What a function returns depends on its arguments alone;
it knows neither samples nor ops. numpy, OpenCV and libjpeg-turbo are imported by the first call that needs
them: reading a header, drawing an angle and `tar2tf --help` never do.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from tar2tf_cli.errors import ImageError

if TYPE_CHECKING:
    import cv2
    import numpy as np
    import simplejpeg  # type: ignore[import-untyped]
    from numpy.typing import NDArray

    Image: TypeAlias = NDArray[Any]
else:

    class _OnFirstUse:
        """Stands in for a module and imports it when an attribute is asked for, which it then keeps."""

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self._module), name)
            setattr(self, name, value)
            return value

    cv2, np, simplejpeg = _OnFirstUse("cv2"), _OnFirstUse("numpy"), _OnFirstUse("simplejpeg")

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "DTYPES",
    "ImageHeader",
    "cast",
    "center_crop",
    "convert_dtype",
    "decode",
    "encode",
    "header",
    "random_angle",
    "resize",
    "rotate",
    "sniff",
    "to_rgb_jpeg",
]

DEFAULT_MAX_PIXELS: Final = 2**27
"""Height x width above which `decode` refuses an image: 402 MB of RGB bytes."""

DTYPES: Final = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
"""The dtypes that `convert_dtype` and `cast` take and give."""


class ImageHeader(NamedTuple):
    """Format, as `sniff` names it, and the shape that `decode` returns."""

    format: str
    height: int
    width: int
    channels: int


# --- What is it? ---

_MAGIC: Final = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"BM", "bmp"),
    (b"GIF8", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
)


def sniff(data: bytes) -> str | None:
    """Name the image format by its first bytes: jpeg, png, bmp, gif, webp, tiff, or None."""
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def header(data: bytes) -> ImageHeader:
    """Read format and shape of a JPEG, PNG, BMP, GIF or WebP from its first bytes; nothing is decoded.

    `channels` is what TensorFlow's decoder returns: 3 for a CMYK JPEG, 4 for a palette with transparency.

    Raises:
        ImageError: another format, or a header that is cut short or impossible.
    """
    name = sniff(data)
    if name is None or name not in _HEADERS:
        raise ImageError(f"not a BMP, JPEG or PNG: {_describe(data, name)}")
    try:
        height, width, channels = _HEADERS[name](data)
    except (IndexError, struct.error):
        raise ImageError(f"truncated {name.upper()}: its header does not fit in {len(data)} bytes") from None
    if height < 1 or width < 1:
        raise ImageError(f"damaged {name.upper()}: {height} rows of {width} pixels")
    return ImageHeader(name, height, width, channels)


def _describe(data: bytes, name: str | None) -> str:
    text = data[:6].decode("latin-1")
    start = text if text.isascii() and text.isprintable() else data[:6].hex(" ")
    return (f"starts with {start}" if data else "it is empty") + (f" ({name.upper()})" if name else "")


class _JpegFrame(NamedTuple):
    height: int
    width: int
    components: int


# ITU-T T.81, table B.1: sequential and progressive frames; lossless and hierarchical ones; bare markers.
_JPEG_FRAMES: Final = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_JPEG_OTHER_FRAMES: Final = frozenset((0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF))
_JPEG_BARE_MARKERS: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, start and end of each segment's payload, up to the first scan (ITU-T T.81, B.1.1)."""
    offset = 2
    while (offset := data.find(b"\xff", offset)) >= 0:
        while data[offset] == 0xFF:
            offset += 1
        marker = data[offset]
        offset += 1
        if marker in (0xD9, 0xDA):
            return
        if marker in _JPEG_BARE_MARKERS:
            continue
        length = data[offset] << 8 | data[offset + 1]
        yield marker, offset + 2, offset + length
        offset += max(length, 2)
    raise IndexError


def _jpeg_frame(data: bytes) -> _JpegFrame:
    for marker, start, _ in _jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", data, start)
            if precision != 8 or components not in (1, 3, 4):
                raise ImageError(f"unsupported JPEG: {components} components of {precision} bits")
            return _JpegFrame(height, width, components)
        if marker in _JPEG_OTHER_FRAMES:
            raise ImageError(f"unsupported JPEG: lossless or hierarchical (frame marker 0x{marker:02x})")
    raise ImageError("damaged JPEG: the image data begin before any frame header")


def _jpeg_header(data: bytes) -> tuple[int, int, int]:
    height, width, components = _jpeg_frame(data)
    return height, width, min(components, 3)


_PNG_CHANNELS: Final = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PNG_PALETTE: Final = 3
_PNG_GRAY_ALPHA: Final = 4


def _png_header(data: bytes) -> tuple[int, int, int]:
    length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13 or color not in _PNG_CHANNELS:
        raise ImageError("damaged PNG: it does not begin with a valid IHDR chunk")
    if color == _PNG_PALETTE and _palette_has_alpha(data, 1 << depth):
        return height, width, 4
    return height, width, _PNG_CHANNELS[color]


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and end of each chunk, length and CRC included, up to IEND (ISO 15948, 5.3)."""
    offset, kind = 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, offset)
        yield kind, offset, offset + length + 12
        offset += length + 12


def _png_chunk_is_intact(data: bytes, start: int, end: int) -> bool:
    return zlib.crc32(memoryview(data)[start + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")


def _palette_has_alpha(data: bytes, most_entries: int) -> bool:
    """Look for a tRNS chunk that libpng heeds: whole, between PLTE and IDAT, no longer than the palette."""
    entries = 0
    for kind, start, end in _png_chunks(data):
        if kind == b"IDAT":
            return False
        if kind == b"PLTE":
            entries = min((end - start - 12) // 3, most_entries)
        elif kind == b"tRNS" and 0 < end - start - 12 <= entries and _png_chunk_is_intact(data, start, end):
            return True
    return False


class _BmpLayout(NamedTuple):
    pixels: int
    width: int
    height: int
    channels: int


def _bmp_layout(data: bytes) -> _BmpLayout:
    (pixels,) = struct.unpack_from("<i", data, 10)
    width, height, _, bits = struct.unpack_from("<iihh", data, 18)
    if bits // 8 not in (1, 3, 4):
        raise ImageError(f"unsupported BMP: {bits} bits a pixel, where 8, 24 and 32 can be decoded")
    return _BmpLayout(pixels, width, height, bits // 8)


def _bmp_header(data: bytes) -> tuple[int, int, int]:
    layout = _bmp_layout(data)
    return abs(layout.height), layout.width, layout.channels


def _gif_header(data: bytes) -> tuple[int, int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return height, width, 3


def _webp_header(data: bytes) -> tuple[int, int, int]:
    """Shape of a lossy, lossless or extended WebP (RFC 9649, 2.5 to 2.7)."""
    kind = data[12:16]
    if kind == b"VP8X":
        flags, size = data[20], int.from_bytes(data[24:30], "little")
        return (size >> 24) + 1, (size & 0xFFFFFF) + 1, 4 if flags & 0x10 else 3
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4 if bits >> 28 & 1 else 3
    width, height = struct.unpack_from("<HH", data, 26)
    return height & 0x3FFF, width & 0x3FFF, 3


_HEADERS: Final = {
    "jpeg": _jpeg_header,
    "png": _png_header,
    "bmp": _bmp_header,
    "gif": _gif_header,
    "webp": _webp_header,
}


# --- Bytes to pixels ---


def decode(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a BMP, JPEG or PNG to uint8 (height, width, channels): the pixels of `tf.io.decode_image`.

    So gray is 1 channel, gray with alpha 2, RGB 3, RGBA 4; 16 bits lose their low 8; a CMYK JPEG becomes RGB;
    EXIF orientation, gamma and colour profiles are ignored; an 8-bit BMP gives its palette indices as gray.

    Raises:
        ImageError: another format; more than `max_pixels` (height x width, judged by the header); bytes that
            are cut short or damaged. TensorFlow decodes some damaged JPEGs, with gray or noise for what is
            lost, and some of uncommon chroma subsampling; both are refused here.
    """
    name = sniff(data)
    if name not in ("bmp", "jpeg", "png"):
        raise ImageError(f"not a BMP, JPEG or PNG: {_describe(data, name)}")
    expected = header(data)
    if expected.height * expected.width > max_pixels:
        raise ImageError(f"{expected.height}x{expected.width} pixels are more than the limit of {max_pixels}")
    image = _DECODERS[name](data)
    if image.shape != expected[1:]:
        raise ImageError(f"damaged {name.upper()}: its header says {expected[1:]}, its pixels {image.shape}")
    return image


_JPEG_COLORSPACES: Final = {1: "GRAY", 3: "RGB", 4: "CMYK"}


def _decode_jpeg(data: bytes) -> NDArray[np.uint8]:
    components = _jpeg_frame(data).components
    try:
        image = _libjpeg(data, _JPEG_COLORSPACES[components])
    except ValueError as error:
        raise ImageError(f"damaged or unsupported JPEG: {error}") from None
    return _rgb_of_cmyk(image, inverted=_has_adobe_marker(data)) if components == 4 else image


def _libjpeg(data: bytes, colorspace: str) -> NDArray[np.uint8]:
    """Decode with TensorFlow's settings: the fast integer DCT, smooth upsampling of chroma.

    simplejpeg makes an error of every warning. Two of them leave the pixels whole, are common in scraped data
    and are ignored by TensorFlow: bytes between the last scan and the end marker, and a JFIF version other
    than 1.
    """
    decode_jpeg = partial(simplejpeg.decode_jpeg, colorspace=colorspace, fastdct=True, fastupsample=False)
    image: NDArray[np.uint8]
    try:
        image = decode_jpeg(data)
    except ValueError as error:
        if "extraneous bytes before marker 0xd9" in str(error):
            image = decode_jpeg(data, strict=False)
        elif "unknown JFIF revision" in str(error) and (mended := _with_jfif_version_1(data)) != data:
            image = _libjpeg(mended, colorspace)
        else:
            raise
    return image


def _with_jfif_version_1(data: bytes) -> bytes:
    return re.sub(rb"JFIF\0[^\x01]", b"JFIF\0\x01", data)


def _has_adobe_marker(data: bytes) -> bool:
    return any(
        marker == 0xEE and end - start >= 12 and data.startswith(b"Adobe", start)
        for marker, start, end in _jpeg_segments(data)
    )


def _rgb_of_cmyk(image: NDArray[np.uint8], *, inverted: bool) -> NDArray[np.uint8]:
    """Multiply the inks by black (tensorflow/core/lib/jpeg/jpeg_mem.cc); Adobe stores them inverted."""
    light = (image if inverted else 255 - image).astype(np.uint16)
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)


def _decode_png(data: bytes) -> NDArray[np.uint8]:
    essentials = np.frombuffer(_png_essentials(data), np.uint8)
    with _opencv("decode a PNG"):
        image: Any = cv2.imdecode(essentials, cv2.IMREAD_UNCHANGED)
    if image is None:
        raise ImageError("damaged PNG: its image data do not inflate to the size in its header")
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if data[25] == _PNG_GRAY_ALPHA:
        image = image[..., ::3]
    elif image.ndim == 3:
        image = cv2.cvtColor(image, cv2.COLOR_BGRA2RGBA if image.shape[2] == 4 else cv2.COLOR_BGR2RGB)
    return np.ascontiguousarray(image.reshape(*image.shape[:2], -1))


def _png_essentials(data: bytes) -> bytes:
    """Check every chunk that pixels depend on, and leave out the others.

    Left out are those of which OpenCV makes something and TensorFlow nothing (animation, transparent colours
    outside a palette), and those about which libpng would complain on stderr.

    Raises:
        ImageError: a chunk is cut short, fails its CRC, or is critical and unknown.
    """
    kept = [data[:8]]
    try:
        for kind, start, end in _png_chunks(data):
            if not kind.isalpha():
                raise ImageError(f"damaged PNG: no chunk begins at byte {start}")
            if kind == b"tRNS" and data[25] == _PNG_PALETTE and _png_chunk_is_intact(data, start, end):
                kept.append(data[start:end])
            elif not kind[0] & 0x20:  # an upper-case initial: critical
                _check_critical_chunk(data, kind, start, end)
                kept.append(data[start:end])
    except struct.error:
        raise ImageError(f"truncated PNG: no end chunk in {len(data)} bytes") from None
    return b"".join(kept)


def _check_critical_chunk(data: bytes, kind: bytes, start: int, end: int) -> None:
    name = kind.decode("ascii", "replace")
    if end > len(data):
        raise ImageError(f"truncated PNG: its {name} chunk ends at byte {end} of {len(data)}")
    if not _png_chunk_is_intact(data, start, end):
        raise ImageError(f"damaged PNG: the CRC of its {name} chunk at byte {start} does not match")
    if kind not in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
        raise ImageError(f"unsupported PNG: unknown critical chunk {name}")


def _decode_bmp(data: bytes) -> NDArray[np.uint8]:
    """Rows of whole bytes, bottom row first unless the height is negative, each padded to 4 bytes."""
    pixels, width, height, channels = _bmp_layout(data)
    row = (width * channels + 3) // 4 * 4
    if pixels < 0 or len(data) != pixels + row * abs(height):
        expected = pixels + row * abs(height)
        raise ImageError(f"truncated or unsupported BMP: {expected} bytes by its header, {len(data)} in fact")
    rows = np.frombuffer(data, np.uint8, offset=pixels).reshape(abs(height), row)
    image = rows[:: 1 if height < 0 else -1, : width * channels].reshape(abs(height), width, channels)
    return np.ascontiguousarray(image[..., [2, 1, 0, 3][:channels]] if channels > 1 else image)


_DECODERS: Final = {"jpeg": _decode_jpeg, "png": _decode_png, "bmp": _decode_bmp}


# --- Pixels to pixels: values ---


def convert_dtype(image: Image, dtype: str, saturate: bool = False) -> Image:
    """Scale values from the range of one dtype to that of another: `tf.image.convert_image_dtype`.

    Integers range to their type's maximum, floats to 1. Between integers the scale is a power of two; an
    integer becomes x * (1 / max), a float trunc(x * (max + 0.5)), in the precision of the float. Beyond the
    range, and at 1.0 for integers wider than the float's precision, what comes out is undefined (as it is in
    TensorFlow) unless `saturate` is set, which clamps.

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
        raise ImageError(f"{floating} cannot hold the range of {integer}: convert by way of float32")
    return most


def _times(image: Image, factor: float) -> Image:
    """Multiply in the dtype of the image, to which the factor is rounded first, as TensorFlow does."""
    with np.errstate(over="ignore"):
        product: Image = image * image.dtype.type(factor)
    return product


def _plain_cast(image: Image, dtype: str) -> Image:
    with np.errstate(invalid="ignore", over="ignore"):
        converted: Image = image.astype(dtype)
    return converted


def cast(image: Image, dtype: str) -> Image:
    """Change the dtype, clamping to what the new one can hold: `tf.saturate_cast`.

    TensorFlow's own overflows from int64, and from float32 and float64 to int64; this does not.

    Floats are clamped, then truncated towards zero: to uint8, 254.9 -> 254, -0.9 -> 0, 300.0 -> 255.
    Infinities become the largest finite value. NaN stays NaN among floats; as an integer it is what the CPU
    makes of it, on x86-64 the least value of int32 and int64 and 0 for the others.

    Raises:
        ImageError: an array or dtype outside `DTYPES`.
    """
    source, target = _supported(image.dtype), _supported(dtype)
    (low_in, high_in), (low_out, high_out) = _limits(source), _limits(target)
    low, high = max(low_in, low_out), min(high_in, high_out)
    return _plain_cast(np.clip(image, _inward(low, source), _inward(high, source)), dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    number = float if dtype.kind == "f" else int
    return number(info.min), number(info.max)


def _inward(limit: float, dtype: np.dtype[Any]) -> Any:
    """Give the limit in a dtype that may lack the exact value, nudged towards zero rather than beyond it."""
    value = dtype.type(limit)
    return np.nextafter(value, dtype.type(0)) if abs(value.item()) > abs(limit) else value


def _supported(dtype: Any) -> np.dtype[Any]:
    name = str(dtype)
    if name not in DTYPES:
        raise ImageError(f"dtype {name} is not supported: only {', '.join(DTYPES)}")
    return np.dtype(name)


# --- Pixels to pixels: geometry ---

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
    rows, columns, channels = _shape(image)
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

    They part where a coordinate passes a power of two: by at most 2^-16 up to 512, 2^-15 up to 1024.
    """
    exact = (np.arange(size_out) + 0.5) / _opencv_factor(size_in, size_out) - 0.5
    gaps = exact.astype(np.float32).astype(np.float64) - _coordinates(size_in, size_out)
    return float(np.abs(gaps).max())


def _resize_fast(image: Image, height: int, width: int) -> NDArray[np.float32]:
    rows, columns, channels = image.shape
    fx, fy = _opencv_factor(columns, width), _opencv_factor(rows, height)
    source = np.ascontiguousarray(image, np.float32)
    with _opencv("resize"):
        resized: Any = cv2.resize(source, None, fx=fx, fy=fy, interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(resized.reshape(height, width, channels))


@contextmanager
def _opencv(task: str) -> Iterator[None]:
    """Make OpenCV's errors ours, and keep it from Intel's IPP, whose results depend on the CPU's model."""
    before = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)
    try:
        yield
    except cv2.error as error:
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
    """Turn clockwise by `angle` degrees about the centre; the dtype stays.

    Multiples of 90 move pixels unchanged, and 90 and 270 swap height and width. Any other angle keeps the
    canvas: what leaves it is lost, what enters is 0; values are interpolated bilinearly (32 and 64 bits in
    float32), and rounded if integers.

    Raises:
        ImageError: not a numeric array of three dimensions.
        ValueError: the angle is not finite.
    """
    _shape(image)
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
        with _opencv("rotate"):
            warped: Any = cv2.warpAffine(part, matrix, (width, height), flags=cv2.INTER_LINEAR)
        turned.append(warped.reshape(part.shape))
    whole: Image = np.concatenate(turned, axis=2)
    if whole.dtype == image.dtype:
        return whole
    return cast(whole if image.dtype.kind == "f" else np.rint(whole), image.dtype.name)


def random_angle(seed: int, key: str) -> float:
    """Draw an angle in [0, 360) from seed and key: the same on every machine, whatever was drawn before.

    The first 53 bits of BLAKE2b over "SEED NUL KEY" as a fraction of 2^53, times 360.
    """
    text = f"{seed}\0{key}".encode("utf-8", "surrogateescape")
    bits = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 11
    return bits / 2**53 * 360


def center_crop(image: Image) -> Image:
    """Cut out the largest centred square.

    It begins (long - short) // 2 along the longer side: an odd margin is larger at the bottom or right.

    Raises:
        ImageError: not a numeric array of three dimensions.
    """
    height, width, _ = _shape(image)
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return np.ascontiguousarray(image[top : top + side, left : left + side])


def _shape(image: Image) -> tuple[int, int, int]:
    if image.ndim != 3 or not image.size:
        raise ImageError(f"not an image (height, width, channels): an array of shape {image.shape}")
    _supported(image.dtype)
    height, width, channels = image.shape
    return height, width, channels


# --- Pixels to bytes ---


def encode(image: Image, format: Literal["jpeg", "png"], quality: int = 95) -> bytes:
    """Encode uint8 (height, width, channels) to JPEG (1 or 3 channels) or lossless PNG (1, 2, 3 or 4).

    Three channels are RGB, two gray and alpha. A JPEG decodes to the pixels that one of `tf.io.encode_jpeg`
    decodes to: chroma is 4:2:0, the DCT accurate. `quality` (1 to 100) is for JPEG only.

    Raises:
        ImageError: another dtype or number of channels, or a size the format cannot hold.
        ValueError: another format or quality.
    """
    channels = _shape(image)[2]
    if format not in _ENCODED_CHANNELS or not 1 <= quality <= 100:
        raise ValueError(f"cannot encode as {format} of quality {quality}: jpeg or png, 1 to 100")
    if image.dtype.name != "uint8" or channels not in _ENCODED_CHANNELS[format]:
        raise ImageError(f"cannot encode {image.dtype} with {channels} channels as {format.upper()}")
    if format == "png" and channels == 2:
        return _encode_gray_alpha(image)
    return _encode_with_opencv(image, format, quality)


_ENCODED_CHANNELS: Final = {"jpeg": (1, 3), "png": (1, 2, 3, 4)}


def _encode_with_opencv(image: Image, format: str, quality: int) -> bytes:
    swap = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}.get(image.shape[2])
    pixels: Any = np.ascontiguousarray(image)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if format == "jpeg" else []
    with _opencv(f"encode {image.shape} as {format.upper()}"):
        done, encoded = cv2.imencode(f".{format}", pixels if swap is None else cv2.cvtColor(pixels, swap), options)
    if not done:
        raise ImageError(f"cannot encode {image.shape} as {format.upper()}")
    return encoded.tobytes()


def _encode_gray_alpha(image: Image) -> bytes:
    """Write the PNG that OpenCV cannot: colour type 4, every row unfiltered."""
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    head = struct.pack(">IIBBBBB", width, height, 8, _PNG_GRAY_ALPHA, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def to_rgb_jpeg(data: bytes, quality: int = 100) -> bytes:
    """Make any decodable image a JPEG that decodes to RGB or gray: TF-slim's rule for ImageNet.

    A JPEG of one or three components is returned as it is, undecoded; a CMYK JPEG, a PNG or a BMP is decoded
    and encoded as an RGB JPEG, gray repeated and alpha dropped (tensorflow/models,
    research/slim/datasets/build_imagenet_data.py, whose quality is the default).

    Raises:
        ImageError: as `decode` and `encode`.
    """
    if header(data).format == "jpeg" and _jpeg_frame(data).components != 4:
        return data
    image = decode(data)
    rgb = image[..., :3] if image.shape[2] > 2 else image[..., :1].repeat(3, axis=2)
    return encode(rgb, "jpeg", quality)
