"""Image codecs: bytes to pixels, of one image or of the frames of an animation, and pixels to bytes."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import Any, Final, Literal, TypeAlias

from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS
from tar2tf_cli.api.values import Array
from tar2tf_cli.errors import ImageError, UsageError
from tar2tf_cli.formats.image import Image, NDArray, cv2, headers, np, opencv, shape_of
from tar2tf_cli.structs import NamedTuple

_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_HEADER: Final = 33  # bytes of the signature and the first chunk
_WIDEST: Final = 1_000_000  # libpng's own limit
_ADAM7: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_FILTERS: Final = 4
_BLOCK: Final = 65_535
_BAND: Final = 4 << 20  # bytes of rows that are checked at a time
_PIECE: Final = 1 << 20  # bytes of compressed data to inflate at a time, as the rest is copied each time
_MOST_STORED: Final = 64 << 20  # for more, a second copy of the rows costs more memory than ISA-L saves time


def plain_png(data: bytes) -> bytes:
    """Return a PNG of the same pixels that causes no libpng warnings: five kinds of chunks, uncompressed image data.

    The image data are inflated with ISA-L, which takes a third of the time that libpng's zlib takes, and stored. In
    all, decoding takes 0.9x the time for a photo of 500 x 375 pixels, 1.1x for one of 1600 x 1200, 1.2x for an icon. It
    lacks the chunks that only OpenCV evaluates and TensorFlow does not (animation, transparent colours outside a
    palette), and those that libpng ignores.

    Raises:
        ImageError: a chunk is cut short, fails its CRC, or is critical and unknown; the header is impossible, or the
            image data do not have the size that it says.
    """
    kept, stream, passes = _png_parts(data)
    size = sum(count * length for count, length in passes)
    rows = b"".join(_inflate(stream, size, size))
    _check_filters(rows, 0, passes)
    return b"".join(
        [*kept, _chunk(b"IDAT", _uncompressed(rows) if len(rows) < _MOST_STORED else stream), _chunk(b"IEND")]
    )


def check_png(data: bytes, max_pixels: int = DEFAULT_MAX_PIXELS) -> None:
    """Raise the error that `decode` would raise for a PNG, without decoding it, in a few mebibytes of extra memory.

    libpng decodes whatever has whole chunks, a valid header and palette, and rows that inflate to their size.
    """
    _check_pixels(headers.header(data), max_pixels)
    _, stream, passes = _png_parts(data)
    position = 0
    for rows in _inflate(stream, sum(count * length for count, length in passes), _BAND):
        _check_filters(rows, position, passes)
        position += len(rows)


def _check_pixels(expected: headers.ImageHeader, max_pixels: int) -> None:
    if expected.height * expected.width > max_pixels:
        raise ImageError(f"{expected.height}x{expected.width} pixels are more than the limit of {max_pixels}")


def _png_parts(data: bytes) -> tuple[list[bytes], bytes, list[tuple[int, int]]]:
    """Return the chunks to keep, the compressed image data, and the interlacing passes that the header implies."""
    if len(data) < _HEADER:
        raise ImageError(f"truncated PNG: its IHDR chunk ends at byte {_HEADER} of {len(data)}")
    width, height, depth, color, compression, filters, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    if depth not in _DEPTHS[color] or compression or filters or interlace > 1 or max(width, height) > _WIDEST:
        raise ImageError("damaged or unsupported PNG: its IHDR chunk has values that libpng does not accept")
    kept, stream = _split_png(data)
    return kept, stream, [*_passes(width, height, depth * _CHANNELS[color], interlaced=bool(interlace))]


def _check_filters(rows: bytes, position: int, passes: Iterable[tuple[int, int]]) -> None:
    """Check the filter type of each row that begins in a band of the image data."""
    begin = 0
    for count, length in passes:
        end = begin + count * length
        first = begin - position if begin >= position else -(position - begin) % length
        if max(rows[first : max(end - position, 0) : length], default=0) > _FILTERS:
            raise ImageError("damaged PNG: a row has a filter that does not exist")
        begin = end


def _split_png(data: bytes) -> tuple[list[bytes], bytes]:
    """Return a PNG's signature, header and palette, and its compressed image data."""
    palette = data[25] == headers.PNG_PALETTE
    kept: dict[bytes, bytes] = {}
    stream: list[bytes] = []
    for kind, start, end in _checked_chunks(data):
        if kind == b"IDAT":
            stream.append(data[start + 8 : end - 4])
        elif kind == b"IHDR" or (palette and kind == b"PLTE"):
            if kind in kept or stream:
                raise ImageError(f"damaged PNG: its {kind.decode()} chunk at byte {start} is out of place")
            kept[kind] = data[start:end]
        elif kind == b"tRNS" and palette and not (stream or kind in kept):
            size = end - start - 12
            if 0 < size <= _entries(kept) and headers.png_chunk_is_intact(data, start, end):
                kept[kind] = data[start:end]
    if palette:
        _check_palette(kept)
    return [data[:8], *kept.values()], b"".join(stream)


def _checked_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and end of each chunk after checking critical chunks."""
    try:
        for kind, start, end in headers.png_chunks(data):
            if not kind.isalpha():
                raise ImageError(f"damaged PNG: no chunk begins at byte {start}")
            if not kind[0] & 0x20:  # an upper-case initial marks a critical chunk
                _check_critical_chunk(data, kind, start, end)
            yield kind, start, end
    except struct.error:
        raise ImageError(f"truncated PNG: no end chunk in {len(data)} bytes") from None


def _entries(kept: dict[bytes, bytes]) -> int:
    """Return the number of colours in the palette that the bit depth can address."""
    return min((len(kept.get(b"PLTE", b"")) - 12) // 3, 1 << kept[b"IHDR"][16])


def _check_palette(kept: dict[bytes, bytes]) -> None:
    size = len(kept.get(b"PLTE", b"")) - 12
    if size <= 0 or size % 3 or size > 3 * 256:
        raise ImageError("damaged PNG: it has no valid palette before its image data")


def _check_critical_chunk(data: bytes, kind: bytes, start: int, end: int) -> None:
    name = kind.decode("ascii", "replace")
    if end > len(data):
        raise ImageError(f"truncated PNG: its {name} chunk ends at byte {end} of {len(data)}")
    if not headers.png_chunk_is_intact(data, start, end):
        raise ImageError(f"damaged PNG: the CRC of its {name} chunk at byte {start} does not match")
    if kind not in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
        raise ImageError(f"unsupported PNG: unknown critical chunk {name}")


def _passes(width: int, height: int, bits: int, *, interlaced: bool) -> Iterator[tuple[int, int]]:
    """Yield the number of rows of each pass, and the bytes of a row with its filter type (ISO 15948, 8.2)."""
    for left, top, across, down in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = -((left - width) // across), -((top - height) // down)
        if columns > 0 and rows > 0:
            yield rows, 1 + (columns * bits + 7) // 8


def _inflate(stream: bytes, size: int, band: int) -> Iterator[bytes]:
    """Yield the decompressed image data in bands; surplus data and bytes after the stream are ignored, as by libpng.

    Zlib may accept data that ISA-L refuses, and continues after the bands that ISA-L inflated.

    Raises:
        ImageError: when they are cut short or damaged.
    """
    from isal import isal_zlib

    given = 0
    for library in (isal_zlib, zlib):
        done = 0
        try:
            for rows in _bands(library.decompressobj(), stream, size, band):
                done += len(rows)
                if done > given:
                    yield rows[given - done :]
                    given = done
        except (library.error, EOFError):
            continue
        return
    raise ImageError("damaged PNG: its image data do not inflate to the size in its header")


def _bands(inflater: Any, stream: bytes, size: int, band: int) -> Iterator[bytes]:
    left, piece = size, max(band, len(stream)) if band >= size else _PIECE
    for start in range(0, len(stream), piece):
        rest = stream[start : start + piece]
        while rest and left:
            rows: bytes = inflater.decompress(rest, min(band, left))
            yield rows
            left -= len(rows)
            rest = inflater.unconsumed_tail
        if not left and (inflater.eof or inflater.decompress(rest, 1) or inflater.eof):
            return
    raise EOFError


def _uncompressed(data: bytes) -> bytes:
    """Return a zlib stream of uncompressed blocks (RFC 1950, RFC 1951 3.2.4)."""
    from isal import isal_zlib

    view = memoryview(data)
    parts: list[bytes | memoryview] = [b"\x78\x01"]
    for start in range(0, len(data), _BLOCK):
        block = view[start : start + _BLOCK]
        parts += (struct.pack("<BHH", start + _BLOCK >= len(data), len(block), len(block) ^ 0xFFFF), block)
    parts.append(isal_zlib.adler32(data).to_bytes(4, "big"))
    return b"".join(parts)


def _chunk(kind: bytes, body: bytes = b"") -> bytes:
    from isal import isal_zlib

    crc = isal_zlib.crc32(body, isal_zlib.crc32(kind))
    return b"".join((len(body).to_bytes(4, "big"), kind, body, crc.to_bytes(4, "big")))


CHANNELS: Final = (0, 1, 3)
"""Values of `channels` that `decode` accepts."""


DEPTHS: Final = ("uint8", "uint16")
"""Values of `dtype` that `decode` accepts."""


def decode(data: bytes, channels: int = 0, *, dtype: str = "uint8", max_pixels: int = DEFAULT_MAX_PIXELS) -> Array:
    """Decode a BMP, JPEG, PNG or WebP to (height, width, channels): the pixels of `tf.io.decode_image`.

    Args:
        data: the encoded image.
        channels: 1 for gray, computed from colours as TensorFlow does for the format; 3 for RGB, with gray repeated and
            alpha dropped; 0 for the file's own channels.
        dtype: uint8; or for a PNG uint16, into which 8-bit levels are scaled by 257.
        max_pixels: the limit of height x width.

    With 0, gray is 1 channel, gray with alpha 2, RGB 3, RGBA 4; 16 bits as uint8 lose their low 8; a CMYK JPEG becomes
    RGB; EXIF orientation, gamma and colour profiles are ignored; an 8-bit BMP gives its palette indices as gray. A WebP
    has the pixels of `tf.io.decode_webp`, and an animated one is decoded by `decode_frames`.

    Raises:
        ImageError: another format; more than `max_pixels` (height x width, judged by the header); bytes that are cut
            short or damaged. Where libjpeg only warns, the pixels are TensorFlow's. Two kinds of JPEGs are refused that
            TensorFlow decodes: those whose data end before their end marker, which TensorFlow completes with gray, and
            those of uncommon subsampling, such as any subsampled CMYK. Pixels of damaged progressive JPEGs may be off
            by one level, because newer versions of libjpeg-turbo smooth them differently than TensorFlow's.
    """
    name = headers.image_format(data)
    if name is None or name not in (*_DECODERS, "jpeg"):
        raise ImageError(f"cannot be decoded: {headers.describe(data, name)}")
    if channels not in CHANNELS:
        raise ValueError(f"cannot decode to {channels} channels: 0 (as in the file), 1 or 3")
    if dtype not in DEPTHS:
        raise ValueError(f"cannot decode to {dtype}: only to {' or '.join(DEPTHS)}")
    if dtype == "uint16" and name != "png":
        raise ImageError(f"it is {name.upper()}, and only a PNG can be decoded to uint16")
    if name == "jpeg":
        return decode_jpeg(data, channels, max_pixels=max_pixels)
    expected = headers.header(data)
    _check_pixels(expected, max_pixels)
    image = _decode_png(data, channels, dtype) if name == "png" else _DECODERS[name](data, channels)
    image = _with_channels(image, channels)
    if image.shape != (expected.height, expected.width, channels or expected.channels):
        raise ImageError(f"damaged {name.upper()}: its header says {expected[1:]}, its pixels {image.shape}")
    return image


def decode_jpeg(
    data: bytes,
    channels: int = 0,
    *,
    at_least: tuple[int, int] | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Decode a JPEG, in full or at the smallest of 1/1, 1/2, 1/4 and 1/8 of its size: `tf.io.decode_jpeg(ratio=)`.

    Args:
        data: the encoded image.
        channels: as in `decode`.
        at_least: height and width in pixels that the result keeps; None for those of the file.
        max_pixels: the limit of height x width of the image in the file.

    Raises:
        ImageError: as `decode`.
    """
    header, components = headers.jpeg_header(data)
    _check_pixels(header, max_pixels)
    ratio = next((ratio for ratio in _RATIOS if _is_large_enough(header, ratio, at_least)), 1) if at_least else 1
    size = _scaled_size(header.height, header.width, ratio)
    return _with_channels(_decode_jpeg(data, channels, size, components), channels)


def _is_large_enough(header: headers.ImageHeader, ratio: int, at_least: tuple[int, int]) -> bool:
    """Whether a JPEG that is decoded at a fraction of its size still has at least a height and width."""
    height, width = _scaled_size(header.height, header.width, ratio)
    return height >= at_least[0] and width >= at_least[1]


_RATIOS: Final = (8, 4, 2)


def _scaled_size(height: int, width: int, ratio: int) -> tuple[int, int]:
    """Return height and width of a JPEG that is decoded at a fraction of its size."""
    return -(-height // ratio), -(-width // ratio)


def decode_indices(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a PNG to the indices of its palette, or to its gray levels as they are stored: (height, width, 1).

    Raises:
        ImageError: another format; a PNG of colours, or of 16 bits; as `decode`.
    """
    if headers.image_format(data) != "png":
        raise ImageError(f"only a PNG has indices: {headers.describe(data, headers.image_format(data))}")
    _check_pixels(headers.header(data), max_pixels)
    depth, color = data[24], data[25]
    if color not in (0, headers.PNG_PALETTE) or depth > 8:
        raise ImageError("a PNG has indices if it has a palette, or gray levels of up to 8 bits; this one has neither")
    (signature, header, *_), stream, passes = _png_parts(data)
    rows = b"".join(_inflate(stream, size := sum(count * length for count, length in passes), size))
    _check_filters(rows, 0, passes)
    gray = _chunk(b"IHDR", header[8:17] + b"\0" + header[18:21])
    levels = _opencv_decoded(b"".join([signature, gray, _chunk(b"IDAT", _uncompressed(rows)), _chunk(b"IEND")]), "PNG")
    if levels is None:
        raise ImageError("damaged PNG: OpenCV does not decode it")
    return np.ascontiguousarray(levels.reshape(*levels.shape[:2], -1)[..., :1] // (255 // ((1 << depth) - 1)))


def _with_channels(image: Array, channels: int) -> Array:
    """Convert grayscale to RGB, or drop the alpha channel, to have a number of channels."""
    present = image.shape[2]
    if channels in (0, present):
        return image
    if channels == 3 and present < 3:
        return image[..., :1].repeat(3, axis=2)
    return np.ascontiguousarray(image[..., :channels])


def _opencv_decoded(data: bytes, name: str, flags: int | None = None) -> Array | None:
    """Decode with OpenCV, unchanged unless flags say otherwise; return None for an image that OpenCV cannot decode."""
    with opencv(f"decode a {name}"):
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED if flags is None else flags)


def _swap_red_blue(image: Array) -> Array:
    """Convert colours between OpenCV's BGR and RGB, in either direction; grayscale is unchanged."""
    codes = {3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGBA}
    return cv2.cvtColor(image, codes[image.shape[2]]) if image.ndim == 3 and image.shape[2] in codes else image


_JPEG_COLORSPACES: Final = {1: "GRAY", 3: "RGB", 4: "CMYK"}


def _decode_jpeg(data: bytes, channels: int, size: tuple[int, int], components: int) -> NDArray[np.uint8]:
    if components == 4 and channels == 1:
        raise ImageError("unsupported JPEG: CMYK cannot be decoded to 1 channel, only to 3")
    decoded = components if components == 4 else channels or components
    try:
        image = _libjpeg(data, _JPEG_COLORSPACES[decoded], np.empty((*size, decoded), np.uint8))
    except ValueError as error:
        raise _jpeg_error(error, components) from None
    return _rgb_of_cmyk(image, inverted=_has_adobe_marker(data)) if components == 4 else image


_NO_MEMORY: Final = re.compile("(?i)insufficient memory|memory allocation failure")
"""Messages of libjpeg-turbo when it gets no memory (jerror.h, turbojpeg.c)."""


def _jpeg_error(error: ValueError, components: int) -> Exception:
    if _NO_MEMORY.search(str(error)):
        return MemoryError()
    if "subsampling" in str(error):
        colors = "CMYK" if components == 4 else "colours"
        return ImageError(f"unsupported JPEG: {colors} of uncommon subsampling", hint="save it as an RGB JPEG or a PNG")
    return ImageError(f"damaged or unsupported JPEG: {error}")


def _libjpeg(data: bytes, colorspace: str, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decode into `pixels` with TensorFlow's settings: the fast integer DCT, smooth upsampling of chroma.

    TensorFlow ignores libjpeg's warnings, even if damage made some of the pixels gray; simplejpeg turns them into
    errors. Most concern header bytes that do not affect pixels, so a JPEG with a warning is decoded again without these
    bytes.
    """
    import simplejpeg

    options: dict[str, Any] = {"colorspace": colorspace, "fastdct": True, "fastupsample": False, "buffer": pixels}
    options |= {"min_height": pixels.shape[0], "min_width": pixels.shape[1]}
    decode_jpeg = partial(simplejpeg.decode_jpeg, **options)
    image: NDArray[np.uint8]
    try:
        image = decode_jpeg(data)
        return image
    except ValueError as error:
        essentials = headers.jpeg_essentials(data) if _is_ignored(error) else None
        if essentials is None:
            raise
    try:
        image = decode_jpeg(essentials)
    except ValueError as error:
        if not _is_ignored(error):
            raise
        # simplejpeg then ignores errors too: libjpeg stops, and the last row keeps its old content
        unset = np.resize(np.arange(89, 255, dtype=np.uint8), pixels[-1].shape)
        pixels[-1] = unset
        image = decode_jpeg(essentials, strict=False)
        if np.array_equal(image[-1], unset):
            raise
    return image


_IGNORED_WARNINGS: Final = re.compile(
    "Corrupt JPEG data|unknown JFIF revision|Unknown Adobe color transform|Invalid SOS parameters"
    "|Inconsistent progression sequence"
)
"""Warnings of libjpeg (jerror.h) that TensorFlow ignores; it refuses a file that ends before its image does."""


def _is_ignored(error: ValueError) -> bool:
    return _IGNORED_WARNINGS.search(str(error)) is not None


def _has_adobe_marker(data: bytes) -> bool:
    return any(headers.is_adobe_segment(marker, data[start:end]) for marker, start, end in headers.jpeg_segments(data))


def _rgb_of_cmyk(image: NDArray[np.uint8], *, inverted: bool) -> NDArray[np.uint8]:
    """Convert CMYK to RGB by multiplying with black (tensorflow/core/lib/jpeg/jpeg_mem.cc); Adobe inverts it."""
    light = (image if inverted else 255 - image).astype(np.uint16)
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)


def _decode_png(data: bytes, channels: int, dtype: str = "uint8") -> NDArray[np.generic]:
    image = _opencv_decoded(plain_png(data), "PNG")
    if image is None:
        raise ImageError("damaged PNG: its image data do not inflate to the size in its header")
    if data[25] == headers.PNG_GRAY_ALPHA:
        image = image[..., ::3]
    elif image.ndim == 3 and channels == 1:
        image = _png_gray(image, data)
    else:
        image = _swap_red_blue(image)
    if image.dtype == np.uint16 and dtype == "uint8":
        image = (image >> 8).astype(np.uint8)
    elif image.dtype == np.uint8 and dtype == "uint16":
        image = image * np.uint16(257)
    return np.ascontiguousarray(image.reshape(*image.shape[:2], -1))


def _png_gray(image: Image, data: bytes) -> Image:
    """Convert a PNG's colours to grayscale as libpng does with TensorFlow's weights.

    They are 0.299 of red, 0.587 of green, and the rest, as libpng rounds them to 1/32768 (png.c and pngrtran.c,
    png_do_rgb_to_gray); 8 bits are truncated, 16 bits rounded. In a PNG with a gamma, the weights apply to linear
    light, and a pixel of three equal levels keeps its level.

    Raises:
        ImageError: the PNG has a profile, or 16 bits and a gamma.
    """
    blue, green, red = (image[..., place] for place in range(3))
    gamma = _png_gamma(data)
    inverse = int(1e10 / gamma + 0.5)
    if not (_needs_correction(gamma) or _needs_correction(inverse)):
        weighed = _weighed(red, green, blue)
        return ((weighed + 0x4000 if image.dtype == np.uint16 else weighed) >> 15).astype(image.dtype)
    if image.dtype == np.uint16:
        raise ImageError("unsupported PNG: with 16 bits and a gamma, its colours cannot become gray; decode to 3")
    to_light, from_light = _gamma_table(inverse), _gamma_table(int(1e10 / inverse + 0.5))
    light = _weighed(*(cv2.LUT(np.ascontiguousarray(level), to_light) for level in (red, green, blue)))
    gray = cv2.LUT((light + 0x4000 >> 15).astype(np.uint8), from_light)
    return np.where((red == green) & (red == blue), red, gray)


def _weighed(red: NDArray[np.generic], green: NDArray[np.generic], blue: NDArray[np.generic]) -> NDArray[np.uint32]:
    red, green, blue = (level.astype(np.uint32) for level in (red, green, blue))
    return red * 9797 + green * 19234 + blue * 3737


_LINEAR, _OF_SRGB = 100_000, 45_455
_GAMMAS: Final = range(16, 625_000_001)


def _png_gamma(data: bytes) -> int:
    """Return the gamma of a PNG in 1/100000, as libpng finds it in the chunks before palette and pixels.

    Raises:
        ImageError: it has a profile, whose gamma libpng knows by its checksum.
    """
    found: list[tuple[bytes, int]] = []
    for kind, start, end in headers.png_chunks(data):
        if kind in (b"PLTE", b"IDAT"):
            break
        if kind == b"iCCP":
            raise ImageError("unsupported PNG: it has an ICC profile, so its colours cannot become gray; decode to 3")
        if _GAMMA_SIZES.get(kind) == end - start - 12 and headers.png_chunk_is_intact(data, start, end):
            found.append((kind, int.from_bytes(data[start + 8 : end - 4], "big")))
    for kind, value in found:
        if value not in (_GAMMAS if kind == b"gAMA" else range(4)):
            return _LINEAR  # libpng then ignores all gamma chunks
    if any(kind == b"sRGB" for kind, _ in found):
        return _OF_SRGB
    return found[0][1] if found else _LINEAR


_GAMMA_SIZES: Final = {b"gAMA": 4, b"sRGB": 1}


def _needs_correction(gamma: int) -> bool:
    """Whether a gamma differs enough from 1 for libpng to apply it."""
    return not 95_000 <= gamma <= 105_000


@lru_cache(maxsize=16)
def _gamma_table(gamma: int) -> NDArray[np.uint8]:
    """Return the corrected level of each of 256 levels (png.c, png_gamma_8bit_correct)."""
    exponent = gamma * 0.00001 if _needs_correction(gamma) else 1
    return np.array([int(255 * (level / 255) ** exponent + 0.5) for level in range(256)], np.uint8)


def _decode_bmp(data: bytes, wanted: int) -> NDArray[np.uint8]:
    """Decode a BMP: rows padded to 4 bytes, bottom row first unless the height is negative."""
    pixels, width, height, channels = headers.bmp_layout(data)
    if wanted == 1 < channels:
        raise ImageError("unsupported BMP: its colours cannot be decoded to 1 channel, only to 3")
    row = (width * channels + 3) // 4 * 4
    if pixels < 0 or len(data) != pixels + row * abs(height):
        expected = pixels + row * abs(height)
        raise ImageError(f"truncated or unsupported BMP: {expected} bytes by its header, but it has {len(data)}")
    rows = np.frombuffer(data, np.uint8, offset=pixels).reshape(abs(height), row)
    image = rows[:: 1 if height < 0 else -1, : width * channels].reshape(abs(height), width, channels)
    return np.ascontiguousarray(image[..., [2, 1, 0, 3][:channels]] if channels > 1 else image)


_LEAST_WEBP: Final = 32
"""OpenCV takes no shorter file for a WebP, although one of a few pixels can be shorter."""


def _decode_webp(data: bytes, channels: int) -> NDArray[np.uint8]:
    if headers.has_frames(data):
        raise ImageError("the WebP is an animation, not one image")
    if channels == 1:
        raise ImageError("unsupported WebP: its colours cannot be decoded to 1 channel, only to 3")
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise ImageError("truncated WebP: its header says that it is longer")
    image = _opencv_decoded(data.ljust(_LEAST_WEBP, b"\0"), "WebP")
    if image is None:
        raise ImageError("damaged WebP")
    return np.asarray(_swap_red_blue(image))


_Decoder: TypeAlias = "Callable[[bytes, int], Array]"
_DECODERS: Final[dict[str, _Decoder]] = {
    "png": _decode_png,
    "bmp": _decode_bmp,
    "webp": _decode_webp,
}


def encode(image: Image, format: Literal["jpeg", "png"], quality: int = 95) -> bytes:
    """Encode uint8 (height, width, channels) to JPEG (1 or 3 channels) or lossless PNG (1, 2, 3 or 4).

    Three channels are RGB, two gray and alpha. A JPEG decodes to the same pixels as that of `tf.io.encode_jpeg`: chroma
    is 4:2:0, the DCT accurate. `quality` (1 to 100) is for JPEG only.

    Raises:
        ImageError: another dtype or number of channels, or a size the format cannot hold.
        ValueError: another format or quality.
    """
    channels = shape_of(image)[2]
    if format not in _ENCODED_CHANNELS or not 1 <= quality <= 100:
        raise ValueError(f"cannot encode as {format} of quality {quality}: jpeg or png, 1 to 100")
    if image.dtype.name != "uint8" or channels not in _ENCODED_CHANNELS[format]:
        raise ImageError(f"cannot encode {image.dtype} with {channels} channels as {format.upper()}")
    if format == "png" and channels == 2:
        return _encode_gray_alpha(image)
    return _encode_with_opencv(image, format, quality)


_ENCODED_CHANNELS: Final = {"jpeg": (1, 3), "png": (1, 2, 3, 4)}


def _encode_with_opencv(image: Image, format: str, quality: int) -> bytes:
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if format == "jpeg" else []
    with opencv(f"encode {image.shape} as {format.upper()}"):
        done, encoded = cv2.imencode(f".{format}", _swap_red_blue(np.ascontiguousarray(image)), options)
    if not done:
        raise ImageError(f"cannot encode {image.shape} as {format.upper()}")
    return encoded.tobytes()


def _encode_gray_alpha(image: Image) -> bytes:
    """Write the PNG that OpenCV cannot: colour type 4, every row unfiltered."""
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    head = struct.pack(">IIBBBBB", width, height, 8, headers.PNG_GRAY_ALPHA, 0, 0, 0)
    chunks = _chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def to_rgb_jpeg(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> bytes:
    """Convert any decodable image to an RGB JPEG, as TF-Slim does for ImageNet.

    A JPEG of three components is returned as it is, undecoded; any other image is decoded and encoded as an RGB
    JPEG of quality 100, gray repeated and alpha dropped (tensorflow/models,
    research/slim/datasets/build_imagenet_data.py).

    Raises:
        ImageError: as `decode` and `encode`.
    """
    if headers.image_format(data) == "jpeg" and headers.jpeg_header(data)[1] == 3:
        return data
    return encode(decode(data, 3, max_pixels=max_pixels), "jpeg", 100)


def decode_frames(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a GIF or an animated WebP to uint8 (frames, height, width, channels).

    A GIF has 3 channels and the pixels of `tf.io.decode_gif`: each frame is painted over the previous one, regardless
    of its disposal method, on a canvas of the greatest height and width of any frame. A WebP has 3 channels, or 4 with
    alpha.

    Args:
        data: the encoded frames.
        max_pixels: the limit of frames x height x width.

    Raises:
        ImageError: more than `max_pixels`; bytes that are cut short or damaged.
        UsageError: the installed OpenCV is too old.
    """
    return _decode_gif(data, max_pixels) if data.startswith(b"GIF8") else _decode_webp_frames(data, max_pixels)


def _check_frames(frames: int, height: int, width: int, most: int) -> None:
    if frames * height * width > most:
        raise ImageError(f"{frames} frames of {height}x{width} pixels are more than the limit of {most}")


def _decode_webp_frames(data: bytes, max_pixels: int) -> NDArray[np.uint8]:
    _require("animated WebP", hasattr(cv2, "imdecodeanimation"))
    shape = headers.header(data)
    _check_frames(data.count(b"ANMF"), shape.height, shape.width, max_pixels)
    with opencv("decode a WebP"):
        done, animation = cv2.imdecodeanimation(np.frombuffer(data, np.uint8))
    if not done or not animation.frames:
        raise ImageError("damaged or truncated WebP animation")
    return np.stack([_swap_red_blue(frame) for frame in animation.frames])


class _Frame(NamedTuple):
    """A frame of a GIF.

    Attributes:
        colors: its colours, each as three bytes.
        transparent: the index of transparent pixels; -1 for none.
        codes: its compressed indices: the size of the first code, blocks, and the empty one that ends them.
    """

    left: int
    top: int
    width: int
    height: int
    interlaced: bool
    colors: bytes
    transparent: int
    codes: bytes


_FRAME, _EXTENSION, _END, _CONTROL = 0x2C, 0x21, 0x3B, 0xF9
_CUT: Final = "it is cut short"


def _gif_frames(data: bytes) -> Iterator[_Frame]:
    """Yield the frames of a GIF, accepting a missing trailer byte as other readers do (GIF89a, 18 to 27)."""
    frames, transparent = 0, -1
    try:
        shared = _colors(data, 13, data[10])
        position = 13 + len(shared)
        while position < len(data) and data[position] != _END:
            if data[position] == _EXTENSION:
                if data[position + 1] == _CONTROL:
                    transparent = data[position + 6] if data[position + 3] & 1 else -1
                position = _blocks_end(data, position + 2)
            elif data[position] == _FRAME:
                left, top, width, height, flags = struct.unpack_from("<HHHHB", data, position + 1)
                own = _colors(data, position + 10, flags)
                start = position + 10 + len(own)
                position = _blocks_end(data, start + 1)
                codes = data[start:position]
                yield _Frame(left, top, width, height, bool(flags & 0x40), own or shared, transparent, codes)
                frames, transparent = frames + 1, -1
            else:
                raise ImageError(f"damaged GIF: there is neither a frame nor an extension at byte {position}")
    except (IndexError, struct.error):
        raise ImageError(f"truncated GIF: {_CUT} in frame {frames}") from None
    if not frames:
        raise ImageError("damaged GIF: it has no frame" if position < len(data) else f"truncated GIF: {_CUT}")


def _colors(data: bytes, start: int, flags: int) -> bytes:
    size = 3 << (flags & 7) + 1 if flags & 0x80 else 0
    if start + size > len(data):
        raise IndexError
    return data[start : start + size]


def _blocks_end(data: bytes, position: int) -> int:
    """Return the position after a GIF's sub-blocks."""
    while size := data[position]:
        position += 1 + size
    return position + 1


def _decode_gif(data: bytes, max_pixels: int) -> NDArray[np.uint8]:
    frames = list(_gif_frames(data))
    height, width = max(frame.height for frame in frames), max(frame.width for frame in frames)
    if not height or not width:
        raise ImageError(f"damaged GIF: {height} rows of {width} pixels")
    _check_frames(len(frames), height, width, max_pixels)
    images = np.zeros((len(frames), height, width, 3), np.uint8)
    for number, frame in enumerate(frames):
        if number:
            images[number] = images[number - 1]
        part = images[number, frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
        indices = _indices(frame, number)[: part.shape[0], : part.shape[1]]
        visible = indices != frame.transparent
        count = len(frame.colors) // 3
        if count < 256 and (indices[visible] >= count).any():
            raise ImageError(f"damaged GIF: frame {number} has a colour that is not among its {count}")
        table = np.zeros((1, 256, 3), np.uint8)
        table[0, :count] = np.frombuffer(frame.colors, np.uint8).reshape(-1, 3)
        if part.size:
            np.copyto(part, cv2.LUT(np.ascontiguousarray(indices), table), where=visible)
    return images


_GRAY: Final = bytes(level for level in range(256) for _ in range(3))


def _indices(frame: _Frame, number: int) -> NDArray[np.uint8]:
    """Decode the colour indices of a GIF frame, by giving OpenCV that frame with a palette of indices.

    OpenCV's own composition of frames is not that of TensorFlow.
    """
    size = frame.width, frame.height
    screen = struct.pack("<6sHHBBB", b"GIF89a", *size, 0xF7, 0, 0)
    place = struct.pack("<BHHHHB", _FRAME, 0, 0, *size, 0x40 * frame.interlaced)
    alone = b"".join((screen, _GRAY, place, frame.codes, bytes([_END])))
    _require_gif()
    indices = _opencv_decoded(alone, "GIF", cv2.IMREAD_COLOR)
    if indices is not None:
        return np.asarray(indices)
    pixels = _unpack_lzw(frame.codes, frame.width * frame.height)  # a frame may have more data than OpenCV accepts
    if len(pixels) < frame.width * frame.height:
        raise ImageError(f"damaged GIF: frame {number} does not have all of its pixels")
    rows = np.frombuffer(pixels, np.uint8).reshape(frame.height, frame.width)
    if frame.interlaced:
        order = [row for start, step in _GIF_PASSES for row in range(start, frame.height, step)]
        rows = rows[np.argsort(order)]
    return np.repeat(rows[:, :, None], 3, 2)


_GIF_PASSES: Final = ((0, 8), (4, 8), (2, 4), (1, 2))
_MOST_LZW_BITS: Final = 12


def _unpack_lzw(codes: bytes, most: int) -> bytes:
    """Decompress at most `most` indices of a GIF frame, up to the first invalid code (GIF89a, appendix F)."""
    least = codes[0]
    blocks, position = bytearray(), 1
    while size := codes[position]:
        blocks += codes[position + 1 : position + 1 + size]
        position += 1 + size
    clear = 1 << least
    table: list[bytes] = []
    out, previous, bits = bytearray(), b"", least + 1
    buffered = have = 0
    for byte in blocks:
        buffered, have = buffered | byte << have, have + 8
        while have >= bits and len(out) < most:
            code, buffered, have = buffered & (1 << bits) - 1, buffered >> bits, have - bits
            if code == clear:
                table, previous, bits = [bytes((index,)) for index in range(clear)] + [b"", b""], b"", least + 1
            elif code == clear + 1 or code > len(table) or (code == len(table) and not previous):
                return bytes(out)
            else:
                entry = table[code] if code < len(table) else previous + previous[:1]
                out += entry
                if previous and len(table) < 1 << _MOST_LZW_BITS:
                    table.append(previous + entry[:1])
                previous = entry
                bits = min(max(len(table).bit_length(), bits), _MOST_LZW_BITS)
    return bytes(out[:most])


_DOT: Final = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2L\1\0;"


@cache
def _require_gif() -> None:
    _require("GIF", _opencv_decoded(_DOT, "GIF", cv2.IMREAD_COLOR) is not None)


def _require(what: str, has_it: bool) -> None:
    if not has_it:
        hint = "pip install -U opencv-python-headless"
        raise UsageError(f"the installed OpenCV {cv2.__version__} does not decode {what}", hint=hint)
