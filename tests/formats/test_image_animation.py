"""GIF and animated WebP: the frames of `tf.io.decode_gif`, and of Pillow."""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageSequence
import pytest
import tensorflow as tf

from images import photo
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.image.codecs import decode_frames
from tar2tf_cli.formats.image.headers import has_frames

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SIZES = [(1, 1), (1, 7), (3, 5000), (5000, 3), (17, 33), (64, 64), (100, 3)]


def animation(format: str, *frames: PIL.Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    several = {"save_all": True, "append_images": frames[1:]} if len(frames) > 1 else {}
    frames[0].save(file, format, **several, **options)
    return file.getvalue()


def picture(size: tuple[int, int], colors: int = 256, angle: float = 0) -> PIL.Image.Image:
    return PIL.Image.fromarray(photo(*size)).rotate(angle).quantize(colors)


@cache
def gifs() -> list[bytes]:
    """One frame and several; of every size, number of colours, and way of painting."""
    made = []
    for size in SIZES:
        for colors in (2, 3, 16, 200, 256):
            made.append(animation("GIF", picture(size, colors)))
            made.append(animation("GIF", picture(size, colors), interlace=1))
            frames = [picture(size, colors, angle) for angle in (0, 3, 90)]
            made.append(animation("GIF", *frames, disposal=len(made) % 3 + 1, optimize=True))
    gray, alpha = PIL.Image.fromarray(photo(40, 50, 1)[..., 0]), PIL.Image.fromarray(photo(40, 50, 4))
    through = picture((40, 50), 32)
    made += [animation("GIF", gray), animation("GIF", gray.convert("1")), animation("GIF", alpha)]
    return [*made, animation("GIF", through, transparency=3), animation("GIF", through, through, transparency=5)]


def lzw(indices: np.ndarray) -> bytes:
    """Indices below 256 as the codes of a GIF, of nine bits each, without compression."""
    codes: list[int] = []
    for place, index in enumerate(indices.reshape(-1).tolist()):
        codes += [256, index] if place % 200 == 0 else [index]
    number = sum(code << 9 * place for place, code in enumerate([*codes, 257]))
    data = number.to_bytes(-(-9 * (len(codes) + 1) // 8), "little")
    blocks = [data[start : start + 255] for start in range(0, len(data), 255)]
    return b"\x08" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def by_hand(canvas: tuple[int, int], *frames: tuple[int, int, np.ndarray, int | None], colors: int = 256) -> bytes:
    """A GIF with frames (left, top, indices, transparent) anywhere on a canvas."""
    table = np.random.default_rng(colors).integers(0, 256, 3 << 8, dtype=np.uint8).tobytes()[: 3 * colors]
    head = struct.pack("<6sHHBBB", b"GIF89a", canvas[1], canvas[0], 0x80 | (colors.bit_length() - 2), 0, 0) + table
    parts = [head]
    for left, top, indices, transparent in frames:
        if transparent is not None:
            parts.append(struct.pack("<BBBBHBB", 0x21, 0xF9, 4, 1, 0, transparent, 0))
        parts.append(struct.pack("<BHHHHB", 0x2C, left, top, indices.shape[1], indices.shape[0], 0) + lzw(indices))
    return b"".join([*parts, b";"])


def indices(height: int, width: int, most: int = 256) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, most, (height, width))


PLACED = {
    "a part of the canvas": by_hand((20, 30), (0, 0, indices(20, 30), None), (3, 5, indices(9, 8), None)),
    "a part first": by_hand((20, 30), (3, 5, indices(9, 8), None), (0, 0, indices(20, 30), 7)),
    "transparent": by_hand((9, 9), (0, 0, indices(9, 9, 8), 3), (0, 0, indices(9, 9, 8), 5)),
    "over the edge": by_hand((9, 9), (0, 0, indices(9, 9), None), (5, 5, indices(8, 8), None)),
    "beyond the edge": by_hand((9, 9), (0, 0, indices(9, 9), None), (20, 20, indices(4, 4), None)),
    "a larger canvas": by_hand((40, 40), (0, 0, indices(9, 9), None)),
    "few colours": by_hand((9, 9), (0, 0, indices(9, 9, 16), None), colors=16),
}


def test_the_frames_of_a_gif_are_those_of_tensorflow() -> None:
    whole = [*gifs(), *PLACED.values()]
    assert len(whole) > 100
    for data in whole:
        np.testing.assert_array_equal(decode_frames(data), tf.io.decode_gif(data).numpy())
        assert has_frames(data)


def test_a_damaged_gif_is_refused_whenever_tensorflow_refuses_it() -> None:
    noise = random.Random(1)
    accepted = 0
    for number in range(400):
        changed = bytearray(noise.choice([*gifs()[30:45], *PLACED.values()]))
        for _ in range(1 + number % 3):
            changed[noise.randrange(13, len(changed))] = noise.randrange(256)
        try:
            found = decode_frames(bytes(changed))
        except ImageError:
            continue
        accepted += 1
        np.testing.assert_array_equal(found, tf.io.decode_gif(bytes(changed)).numpy())
    assert accepted > 50


def test_a_gif_without_the_byte_that_ends_it_is_whole() -> None:
    frames = animation("GIF", *(picture((20, 30), 64, angle) for angle in (0, 3, 90)))
    np.testing.assert_array_equal(decode_frames(frames[:-1]), decode_frames(frames))
    for data, words in {
        frames[:-2]: "cut short in frame 2",
        frames[:13]: "cut short",
        b"GIF89a\1\0\1\0\0\0\0;": "no frame",
        b"GIF89a\1\0\1\0\0\0\0": "truncated GIF: it is cut short",
        by_hand((9, 9), (0, 0, indices(9, 9), None), colors=16): "a colour that is not among its 16",
    }.items():
        with pytest.raises(ImageError, match=words):
            decode_frames(data)


def test_an_opencv_without_gif_says_so_and_does_not_call_it_damaged() -> None:
    code = """
import cv2
cv2.imdecode = lambda *_: None
from tar2tf_cli.formats.image.codecs import decode_frames
decode_frames(bytes.fromhex(%r))
"""
    done = subprocess.run([sys.executable, "-c", code % PLACED["few colours"].hex()], capture_output=True, text=True)
    assert "does not decode GIF" in done.stderr


def test_too_many_pixels_are_refused_before_any_is_decoded() -> None:
    huge = by_hand((60000, 60000), (0, 0, indices(1, 1), None)).replace(
        b",\0\0\0\0\1\0\1\0", b",\0\0\0\0\xff\xff\xff\xff"
    )
    with pytest.raises(ImageError, match="1 frames of 65535x65535 pixels are more than the limit"):
        decode_frames(huge)
    with pytest.raises(ImageError, match="3 frames of 20x30 pixels are more than the limit of 1799"):
        decode_frames(animation("GIF", *(picture((20, 30), 64, a) for a in (0, 3, 90))), max_pixels=1799)


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 60}, {"allow_mixed": True}])
def test_the_frames_of_a_webp_are_those_of_pillow(
    options: dict[str, Any], alpha: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    image = PIL.Image.fromarray(photo(33, 47, 4 if alpha else 3))
    frames = [image.rotate(angle) for angle in (0, 20, 90)]
    data = animation("WEBP", *frames, **options)
    found = decode_frames(data)
    theirs = PIL.Image.open(io.BytesIO(data))
    mode = "RGBA" if found.shape[3] == 4 else "RGB"
    pillows = [np.array(frame.convert(mode)) for frame in PIL.ImageSequence.Iterator(theirs)]
    np.testing.assert_array_equal(found, np.stack(pillows))
    if mode == "RGBA":  # tf.io.decode_webp takes rows of three channels from rows of four
        np.testing.assert_array_equal(found, tf.io.decode_webp(data).numpy())
    assert has_frames(data)
    assert not has_frames(animation("WEBP", image))
    with pytest.raises(ImageError, match="WebP animation"):
        decode_frames(data[: len(data) // 3])
    assert capfd.readouterr().err == ""
    with pytest.raises(ImageError, match="3 frames of 33x47 pixels"):
        decode_frames(data, max_pixels=33 * 47)


@pytest.mark.parametrize("interlace", [0, 1])
def test_data_after_the_last_pixel_of_a_frame_is_ignored_as_in_tensorflow(interlace: int) -> None:
    for size in ((1, 1), (17, 33), (64, 64)):
        data = animation("GIF", picture(size), interlace=interlace)
        for rest in (b"\3abc\0", b"\xff" + bytes(255) + b"\0"):
            longer = data.removesuffix(b"\0;") + rest + b";"
            assert np.array_equal(decode_frames(longer), tf.io.decode_gif(longer))


@pytest.mark.parametrize("rows", [1, 20, 32])
def test_rows_below_the_last_one_of_a_frame_are_ignored_as_in_tensorflow(rows: int) -> None:
    data = animation("GIF", picture((33, 40)))
    place = data.index(b",\0\0\0\0") + 7
    fewer = data[:8] + bytes([rows]) + data[9:place] + bytes([rows]) + data[place + 1 :]
    assert np.array_equal(decode_frames(fewer), tf.io.decode_gif(fewer))
