"""Format, size and orientation of an encoded image, read from its header without numpy; pages of a TIFF."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import streams
from tar2tf_cli.structs import NamedTuple

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES = 256, 257, 258, 259, 262, 277
_PLACES: Final = ((273, 279), (324, 325))
"""Tags of the offsets and sizes of strips, and of tiles."""

_FORMS: Final = {1: "B", 2: "B", 3: "H", 4: "I"}
_COMMON_BITS: Final = ({8}, {16})
_COMMON_COMPRESSIONS: Final = (1, 5, 8, 32773, 32946)  # none, LZW, deflate, PackBits, deflate
_DEFLATE: Final = (8, 32946)
_MOST_BYTES: Final = 8  # of a sample of a pixel
_AT_ONCE: Final = 1 << 20  # bytes inflated at once
_COMMON_COLORS: Final = (0, 1, 2, 3)  # gray, RGB, palette
_MOST_PAGES: Final = 10_000


class TiffPage(NamedTuple):
    """One image of a TIFF.

    Attributes:
        common: whether every reader supports its kind of pixels.
    """

    height: int
    width: int
    channels: int
    common: bool


def tiff_pages(data: bytes) -> Iterator[TiffPage]:
    """Yield the pages of a TIFF whose pixels are all within the data and, if compressed with deflate, can be inflated.

    Raises:
        ValueError: when it is cut short or damaged.
    """
    order = "<" if data[:2] == b"II" else ">"
    seen: set[int] = set()
    try:
        (place,) = struct.unpack_from(f"{order}I", data, 4)
        while place:
            if place in seen or len(seen) == _MOST_PAGES:
                raise ValueError("its pages do not end")
            seen.add(place)
            (entries,) = struct.unpack_from(f"{order}H", data, place)
            tags = dict(_tag(data, order, place + 2 + 12 * entry) for entry in range(entries))
            yield _page(tags, data)
            (place,) = struct.unpack_from(f"{order}I", data, place + 2 + 12 * entries)
    except struct.error:
        raise ValueError("it is cut short") from None
    if not seen:
        raise ValueError("it has no page")


def _tag(data: bytes, order: str, place: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of a TIFF tag, and its integer values; no values if they are of another type."""
    tag, kind, count = struct.unpack_from(f"{order}HHI", data, place)
    if kind not in _FORMS:
        return tag, ()
    form = struct.Struct(f"{order}{min(count, len(data))}{_FORMS[kind]}")
    if form.size > 4:
        (place,) = struct.unpack_from(f"{order}I", data, place + 8)
        return tag, form.unpack_from(data, place)
    return tag, form.unpack_from(data, place + 8)


def _page(tags: dict[int, tuple[int, ...]], data: bytes) -> TiffPage:
    def first(tag: int, otherwise: int = 0) -> int:
        return (*tags.get(tag, ()), otherwise)[0]

    offsets, sizes = next(((tags[a], tags[b]) for a, b in _PLACES if a in tags and b in tags), ((), ()))
    if any(offset + length > len(data) for offset, length in zip(offsets, sizes, strict=False)):
        raise ValueError("it is cut short: pixels are past its end")
    if not (first(_WIDTH) and first(_HEIGHT) and offsets):
        raise ValueError("a page has no pixels")
    if first(_COMPRESSION, 1) in _DEFLATE:
        most = first(_WIDTH) * first(_HEIGHT) * first(_SAMPLES, 1) * _MOST_BYTES
        for offset, length in zip(offsets, sizes, strict=False):
            _check_inflates(data[offset : offset + length], most)
    common = (
        set(tags.get(_BITS, ())) in _COMMON_BITS
        and first(_COMPRESSION, 1) in _COMMON_COMPRESSIONS
        and first(_PHOTOMETRIC) in _COMMON_COLORS
    )
    return TiffPage(first(_HEIGHT), first(_WIDTH), first(_SAMPLES, 1), common)


def _check_inflates(strip: bytes, most: int) -> None:
    """Check a strip or tile compressed with deflate, of which OpenCV ignores damage; no more than `most` bytes of it.

    Raises:
        ValueError: when it is damaged.
    """
    inflater, rest = zlib.decompressobj(), strip
    try:
        while most > 0 and rest and not inflater.eof:
            most -= len(inflater.decompress(rest, _AT_ONCE))
            rest = inflater.unconsumed_tail
    except zlib.error as error:
        raise ValueError(f"its pixels cannot be inflated: {error}") from None
    if most > 0 and not inflater.eof:
        raise ValueError("its pixels cannot be inflated: their stream does not end")


class ImageHeader(NamedTuple):
    """Format, as `image_format` names it, and the shape that `decode` returns."""

    format: str
    height: int
    width: int
    channels: int


def image_format(data: bytes) -> str | None:
    """Return the image format, such as jpeg, png, bmp, gif, webp or tiff, from the first bytes; or None."""
    kind = streams.sniff(data) or ""
    return kind[6:] if kind.startswith("image/") else None


def is_palette(data: bytes) -> bool:
    """Whether an image is a PNG with a palette, whose pixels are indices of colours, as masks often are."""
    return data[25:26] == bytes([PNG_PALETTE]) and image_format(data) == "png"


def header(data: bytes) -> ImageHeader:
    """Read format and shape of a JPEG, PNG, BMP, GIF, WebP or TIFF from its header, without decoding pixels.

    `channels` is what TensorFlow's decoder returns: 3 for a CMYK JPEG, 4 for a palette with transparency.

    Raises:
        ImageError: another format, or a header that is cut short or impossible.
    """
    name = image_format(data)
    if name is None or name not in _HEADERS:
        raise ImageError(f"cannot be decoded: {describe(data, name)}")
    return jpeg_header(data)[0] if name == "jpeg" else ImageHeader(name, *_checked_shape(name, data))


def jpeg_header(data: bytes) -> tuple[ImageHeader, int]:
    """Read the header of a JPEG, and the number of components in the file: 4 if it is CMYK.

    Raises:
        ImageError: a header that is cut short or impossible.
    """
    height, width, components = _checked_shape("jpeg", data)
    return ImageHeader("jpeg", height, width, min(components, 3)), components


def _checked_shape(name: str, data: bytes) -> tuple[int, int, int]:
    try:
        height, width, channels = _HEADERS[name](data)
    except (IndexError, struct.error):
        raise ImageError(f"truncated {name.upper()}: its header does not fit in {len(data)} bytes") from None
    if height < 1 or width < 1:
        raise ImageError(f"damaged {name.upper()}: {height} rows of {width} pixels")
    return height, width, channels


def describe(data: bytes, name: str | None) -> str:
    """Describe data that cannot be decoded: by its format if it is known, otherwise by its first bytes."""
    if name:
        return f"it is {name.upper()}"
    text = data[:6].decode("latin-1")
    start = text if text.isascii() and text.isprintable() else data[:6].hex(" ")
    return f"starts with {start}" if data else "it is empty"


# ITU-T T.81, table B.1: sequential and progressive frames; lossless and hierarchical ones; bare markers.
_JPEG_FRAMES: Final = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_JPEG_PROGRESSIVE: Final = frozenset((0xC2, 0xCA))
_JPEG_OTHER_FRAMES: Final = frozenset((0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF))
_JPEG_BARE_MARKERS: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
_JPEG_TABLES, _JPEG_RESTARTS, _JPEG_LEAST = (0xC4, 0xCC, 0xDB, 0xDC), 0xDD, 0xC0
_JPEG_END, _JPEG_SCAN, _JPEG_COMMENT = 0xD9, 0xDA, 0xFE
_JPEG_APP0, _JPEG_APP1, _JPEG_APP14, _JPEG_APP15 = 0xE0, 0xE1, 0xEE, 0xEF
_JPEG_SEGMENTS: Final = frozenset(
    (*_JPEG_TABLES, _JPEG_RESTARTS, _JPEG_SCAN, *range(_JPEG_APP0, _JPEG_APP15 + 1), _JPEG_COMMENT)
)


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, payload start and payload end of each segment, up to the first scan (ITU-T T.81, B.1.1)."""
    offset = 2
    while True:
        marker, offset = _jpeg_marker(data, offset)
        if marker == _JPEG_END:
            return
        if marker in _JPEG_BARE_MARKERS:
            continue
        length = data[offset] << 8 | data[offset + 1]
        yield marker, offset + 2, offset + length
        if marker == _JPEG_SCAN:
            return
        offset += max(length, 2)


def _jpeg_marker(data: bytes, offset: int) -> tuple[int, int]:
    """Return the next marker from an offset on, and the offset after it.

    Raises:
        IndexError: when there is none.
    """
    offset = data.find(b"\xff", offset)
    if offset < 0:
        raise IndexError
    while data[offset] == 0xFF:
        offset += 1
    return data[offset], offset + 1


def jpeg_essentials(data: bytes) -> bytes | None:
    """Return a JPEG without bytes that make libjpeg warn but do not affect pixels; None if libjpeg finds no end of it.

    It lacks comments, application data other than JFIF's and Adobe's, and bytes between segments; JFIF's version
    becomes 1.
    """
    parts = [b"\xff\xd8"]
    try:
        for marker, start, end in jpeg_segments(data):
            if marker == _JPEG_SCAN:
                return b"".join([*parts, data[start - 4 :]]) if _reaches_end_marker(data, end) else None
            body = data[start:end]
            if marker == _JPEG_APP0 and body.startswith(b"JFIF\0") and len(body) >= 14:
                parts.append(data[start - 4 : start] + b"JFIF\0\x01" + body[6:])
            elif is_adobe_segment(marker, body) or not (_JPEG_APP0 <= marker <= _JPEG_APP15 or marker == _JPEG_COMMENT):
                parts.append(data[start - 4 : start] + body)
    except IndexError:
        return None
    return None


def _reaches_end_marker(data: bytes, offset: int) -> bool:
    """Whether libjpeg, from the first scan on, reaches an end marker before it has to give up (jdmarker.c).

    Damaged data may look like a marker, whose segment of arbitrary length may hide the end marker.
    """
    restarts = _JPEG_RESTARTS in (marker for marker, _, _ in jpeg_segments(data))
    try:
        while True:
            marker, offset = _jpeg_marker(data, offset)
            if marker == _JPEG_END:
                return True
            if marker in _JPEG_BARE_MARKERS or (restarts and marker < _JPEG_LEAST):
                continue  # when a restart is due, libjpeg skips an impossible marker and searches for the next
            length = data[offset] << 8 | data[offset + 1]
            if marker not in _JPEG_SEGMENTS or length < 2:
                return False
            offset += length
    except IndexError:
        pass
    return False


def lacks_scans(data: bytes) -> bool:
    """Whether a progressive JPEG lacks some of the scans that refine its coefficients (T.81, G.1.1.1).

    Decoders then smooth the coefficients that they have, each in its own way.
    """
    missing: dict[tuple[int, int], int] = {}  # bits of each coefficient of each component
    try:
        offset = 2
        while True:
            marker, offset = _jpeg_marker(data, offset)
            if marker == _JPEG_END:
                break
            if marker in _JPEG_BARE_MARKERS:
                continue
            body = data[offset + 2 : offset + int.from_bytes(data[offset : offset + 2], "big")]
            if marker in _JPEG_FRAMES:
                if marker not in _JPEG_PROGRESSIVE:
                    return False
                components = body[6 : 6 + 3 * body[5] : 3]
                missing = {(component, place): 1 for component in components for place in range(64)}
            elif marker == _JPEG_SCAN:
                count = body[0]
                first, last, bits = body[1 + 2 * count : 4 + 2 * count]
                for component in body[1 : 1 + 2 * count : 2]:
                    missing |= {(component, place): bits & 0x0F for place in range(first, last + 1)}
            offset += max(len(body) + 2, 2)
    except (IndexError, ValueError):
        pass
    return any(missing.values())


def is_adobe_segment(marker: int, body: bytes) -> bool:
    """Whether a JPEG segment is Adobe's, which states how colours are stored."""
    return marker == _JPEG_APP14 and len(body) >= 12 and body.startswith(b"Adobe")


def _jpeg_frame(data: bytes) -> tuple[int, int, int]:
    """Return height, width and the number of components from the frame header of a JPEG."""
    for marker, start, _ in jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", data, start)
            if precision != 8 or components not in (1, 3, 4):
                raise ImageError(f"unsupported JPEG: {components} components of {precision} bits")
            return height, width, components
        if marker in _JPEG_OTHER_FRAMES:
            raise ImageError(f"unsupported JPEG: lossless or hierarchical (frame marker 0x{marker:02x})")
    raise ImageError("damaged JPEG: the image data begin before any frame header")


_PNG_CHANNELS: Final = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
PNG_PALETTE: Final = 3
PNG_GRAY_ALPHA: Final = 4


def _png_header(data: bytes) -> tuple[int, int, int]:
    length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13 or color not in _PNG_CHANNELS:
        raise ImageError("damaged PNG: it does not begin with a valid IHDR chunk")
    if color == PNG_PALETTE and _palette_has_alpha(data, 1 << depth):
        return height, width, 4
    return height, width, _PNG_CHANNELS[color]


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and end of each PNG chunk, including length and CRC, up to IEND (ISO 15948, 5.3)."""
    offset, kind = 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, offset)
        yield kind, offset, offset + length + 12
        offset += length + 12


def png_chunk_is_intact(data: bytes, start: int, end: int) -> bool:
    """Whether the CRC of a PNG chunk matches."""
    return zlib.crc32(memoryview(data)[start + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")


def _palette_has_alpha(data: bytes, most_entries: int) -> bool:
    """Whether a PNG has a tRNS chunk that libpng uses: complete, between PLTE and IDAT, not longer than the palette."""
    entries = 0
    for kind, start, end in png_chunks(data):
        if kind == b"IDAT":
            return False
        if kind == b"PLTE":
            entries = min((end - start - 12) // 3, most_entries)
        elif kind == b"tRNS" and 0 < end - start - 12 <= entries and png_chunk_is_intact(data, start, end):
            return True
    return False


def bmp_layout(data: bytes) -> tuple[int, int, int, int]:
    """Return a BMP's pixel offset, width, height (negative if the top row is first), and number of channels."""
    (pixels,) = struct.unpack_from("<i", data, 10)
    width, height, _, bits = struct.unpack_from("<iihh", data, 18)
    if bits // 8 not in (1, 3, 4):
        raise ImageError(f"unsupported BMP: {bits} bits per pixel; only 8, 24 and 32 can be decoded")
    return pixels, width, height, bits // 8


def _bmp_header(data: bytes) -> tuple[int, int, int]:
    _, width, height, channels = bmp_layout(data)
    return abs(height), width, channels


def _gif_header(data: bytes) -> tuple[int, int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return height, width, 3


def _webp_header(data: bytes) -> tuple[int, int, int]:
    """Return the shape of a lossy, lossless or extended WebP (RFC 9649, 2.5 to 2.7)."""
    kind = data[12:16]
    if kind == b"VP8X":
        flags, size = data[20], int.from_bytes(data[24:30], "little")
        return (size >> 24) + 1, (size & 0xFFFFFF) + 1, 4 if flags & 0x10 else 3
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4 if bits >> 28 & 1 else 3
    width, height = struct.unpack_from("<HH", data, 26)
    return height & 0x3FFF, width & 0x3FFF, 3


def _tiff_header(data: bytes) -> tuple[int, int, int]:
    try:
        page = next(tiff_pages(data))
    except ValueError as error:
        raise ImageError(f"damaged TIFF: {error}") from None
    return page[:3]


_HEADERS: Final = {
    "jpeg": _jpeg_frame,
    "png": _png_header,
    "bmp": _bmp_header,
    "gif": _gif_header,
    "webp": _webp_header,
    "tiff": _tiff_header,
}


def has_frames(data: bytes) -> bool:
    """Whether an image is decoded to several frames: a GIF, or an animated WebP (RFC 9649, 2.7.1)."""
    return data.startswith(b"GIF8") or (data[8:16] == b"WEBPVP8X" and len(data) > 20 and bool(data[20] & 2))


_ORIENTATION: Final = 274
_EXIF: Final = b"Exif\0\0"
_XMP: Final = b"http://ns.adobe.com/xap/1.0/\0"
_IN_XMP: Final = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def orientation(data: bytes) -> int:
    """Return the EXIF orientation of an image, 1 to 8 as in tag 274; 1 if the metadata has none or cannot be read.

    EXIF is in the first APP1 segment of a JPEG that begins as EXIF, the eXIf chunk or the text of a PNG, or the EXIF
    chunk of a WebP. If it has no orientation, XMP's is used, as in Pillow.
    """
    name = image_format(data)
    try:
        turn = _exif_orientation(_metadata(name, data, _EXIF))
        if turn is None and (found := _IN_XMP.search(_metadata(name, data, _XMP))):
            turn = int(found[1])
    except (struct.error, IndexError, ValueError, zlib.error):
        return 1
    return turn if turn and 1 <= turn <= 8 else 1


def _exif_orientation(block: bytes) -> int | None:
    """Return the orientation in an EXIF block; None if it has none."""
    block = block.removeprefix(_EXIF)
    if not block:
        return None
    order = "<" if block[:2] == b"II" else ">"
    (place,) = struct.unpack_from(f"{order}I", block, 4)
    (entries,) = struct.unpack_from(f"{order}H", block, place)
    turn = dict(_tag(block, order, place + 2 + 12 * entry) for entry in range(entries)).get(_ORIENTATION)
    return turn[0] if turn else None


def _metadata(name: str | None, data: bytes, kind: bytes) -> bytes:
    """Return the EXIF or XMP of an image; empty if there is none."""
    if name == "jpeg" and kind in data:
        bodies = (data[start:end] for marker, start, end in jpeg_segments(data) if marker == _JPEG_APP1)
        return next((body for body in bodies if body.startswith(kind)), b"")
    if name == "webp":
        wanted = b"EXIF" if kind == _EXIF else b"XMP "
        return next((data[at : at + size] for found, at, size in streams.riff_chunks(data) if found == wanted), b"")
    if name == "png":
        return _png_exif(data) if kind == _EXIF else _png_text(data, b"XML:com.adobe.xmp")
    return b""


def _png_exif(data: bytes) -> bytes:
    """Return a PNG's EXIF: its eXIf chunk, or ImageMagick's older form of it, a text of three lines in hexadecimal."""
    found = next((data[start + 8 : end - 4] for kind, start, end in png_chunks(data) if kind == b"eXIf"), b"")
    if not found and (text := _png_text(data, b"Raw profile type exif")):
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    return found


_MOST_TEXT: Final = 1 << 20


def _png_text(data: bytes, keyword: bytes) -> bytes:
    """Return a PNG's text with a keyword (ISO 15948, 11.3.4)."""
    if keyword not in data:
        return b""
    for kind, start, end in png_chunks(data):
        name, _, text = data[start + 8 : end - 4].partition(b"\0")
        if name != keyword or kind not in (b"tEXt", b"zTXt", b"iTXt"):
            continue
        compressed = kind == b"zTXt" or (kind == b"iTXt" and text[:1] == b"\1")
        if kind != b"tEXt":
            text = text[1:] if kind == b"zTXt" else text[2:].split(b"\0", 2)[2]
        return zlib.decompressobj().decompress(text, _MOST_TEXT) if compressed else text
    return b""
