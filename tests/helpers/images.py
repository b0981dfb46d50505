"""Images of every kind, and TensorFlow's answer to them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import cv2
import numpy as np
import PIL.Image
import skimage.data
import skimage.transform
import tensorflow as tf


@cache
def astronaut() -> np.ndarray:
    """A photograph of 512 by 512 pixels, decoded once."""
    image = skimage.data.astronaut()
    image.setflags(write=False)
    return image


def photo(height: int, width: int, channels: int = 3) -> np.ndarray:
    """A photograph of any size, with one to four of the channels red, green, blue and red again."""
    image = cv2.resize(astronaut(), (width, height), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(image[..., [0, 1, 2, 0][:channels]])


def noise(height: int, width: int, channels: int, dtype: str = "uint8") -> np.ndarray:
    """Black and white pixels: the hardest case for interpolation."""
    rng = np.random.default_rng(height * 1000 + width)
    return (rng.integers(0, 2, (height, width, channels), np.uint8) * np.uint8(255)).astype(dtype)


def by_pillow(image: np.ndarray, format: str, mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(image).convert(mode).save(file, format, **options)
    return file.getvalue()


def jpeg(image: np.ndarray, mode: str = "RGB", **options: Any) -> bytes:
    return by_pillow(image, "JPEG", mode, **options)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def packed(samples: np.ndarray, depth: int) -> bytes:
    if depth >= 8:
        return samples.astype(">u2" if depth == 16 else np.uint8).tobytes()
    bits = samples.reshape(-1, 1) >> np.arange(depth)[::-1] & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PALETTE = np.random.default_rng(3).integers(0, 256, 768).astype(np.uint8).tobytes()


def png_rows(image: np.ndarray, depth: int, interlaced: bool = False) -> bytes:
    passes = [image[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [image]
    return b"".join(b"\0" + packed(row.reshape(-1), depth) for part in passes if part.size for row in part)


def png(
    color: int,
    depth: int = 8,
    size: tuple[int, int] = (33, 40),
    *,
    interlaced: bool = False,
    before: Iterable[tuple[bytes, bytes]] = (),
    after: Iterable[tuple[bytes, bytes]] = (),
    data: list[bytes] | None = None,
) -> bytes:
    """A PNG of random samples; `data` replaces the bodies of its IDAT chunks."""
    rng = np.random.default_rng(color * 100 + depth)
    image = rng.integers(0, 1 << depth, (*size, SAMPLES[color]))
    head = struct.pack(">IIBBBBB", size[1], size[0], depth, color, 0, 0, interlaced)
    palette = [(b"PLTE", PALETTE[: 3 << depth])] if color == 3 else []
    bodies = [zlib.compress(png_rows(image, depth, interlaced))] if data is None else data
    pixels = [(b"IDAT", body) for body in bodies]
    chunks = [(b"IHDR", head), *palette, *before, *pixels, *after, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def bmp(image: np.ndarray, bits: int, *, top_down: bool = False, gap: int = 0, compression: int = 0) -> bytes:
    height, width = image.shape[:2]
    rows = [row.tobytes() + bytes(-len(row.tobytes()) % 4) for row in (image if top_down else image[::-1])]
    pixels, start = b"".join(rows), 54 + gap
    file = struct.pack("<2sIHHI", b"BM", start + len(pixels), 0, 0, start)
    info = (40, width, -height if top_down else height, 1, bits, compression, len(pixels), 0, 0, 0, 0)
    return file + struct.pack("<IiiHHIIiiII", *info) + bytes(gap) + pixels


def by_tensorflow(data: bytes, channels: int = 0) -> np.ndarray | None:
    try:
        return tf.io.decode_image(data, channels, expand_animations=False).numpy()
    except tf.errors.InvalidArgumentError:
        return None


SMALL = jpeg(photo(20, 30))


PLAIN_BMP = bmp(photo(33, 47), 24)
