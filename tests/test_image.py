"""The image kernels against TensorFlow's own, on images of every kind it decodes and some it refuses."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cv2
import numpy as np
import PIL.Image
import pytest
import simplejpeg
import skimage.data
import skimage.transform
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import image as kernels
from tar2tf_cli.formats.image import buffers, decode, pixels, resize
from tar2tf_cli.formats.image.buffers import buffer

SHIPPED = Path(skimage.data.__file__).parent
SIZES = [(1, 1), (1, 2), (3, 1), (7, 8), (17, 33), (64, 64), (99, 101), (375, 500)]

each_size = pytest.mark.parametrize("size", SIZES, ids=str)


# --- Images of every kind ---


def photo(height: int, width: int, channels: int = 3) -> np.ndarray:
    """A photograph of any size, with one to four of the channels red, green, blue and red again."""
    image = cv2.resize(skimage.data.astronaut(), (width, height), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(image[..., [0, 1, 2, 0][:channels]])


def noise(height: int, width: int, channels: int, dtype: str = "uint8") -> np.ndarray:
    """Black and white pixels: the hardest case for interpolation."""
    rng = np.random.default_rng(height * 1000 + width)
    return (rng.integers(0, 2, (height, width, channels)) * 255).astype(dtype)


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
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
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


def exif_rotated(data: bytes) -> bytes:
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def without_adobe(data: bytes) -> bytes:
    at = data.index(b"Adobe")
    return data[: at - 4] + data[at - 2 + data[at - 1] :]


def as_ycck(data: bytes) -> bytes:
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1 :]


# --- TensorFlow's answer ---


def by_tensorflow(data: bytes) -> np.ndarray | None:
    try:
        return tf.io.decode_image(data, expand_animations=False).numpy()
    except tf.errors.InvalidArgumentError:
        return None


def by_us(data: bytes) -> np.ndarray | None:
    try:
        return kernels.decode(data)
    except ImageError:
        return None


def assert_decodes_as_in_tensorflow(data: bytes) -> None:
    expected, image = by_tensorflow(data), kernels.decode(data)
    assert expected is not None
    assert (image.dtype, image.shape) == (np.uint8, expected.shape)
    np.testing.assert_array_equal(image, expected)
    assert image.flags.c_contiguous
    assert kernels.header(data)[1:] == image.shape


def assert_both_refuse(data: bytes) -> None:
    assert by_tensorflow(data) is None
    with pytest.raises(ImageError):
        kernels.decode(data)


def assert_same(ours: np.ndarray, theirs: tf.Tensor) -> None:
    assert ours.dtype == theirs.numpy().dtype
    np.testing.assert_array_equal(ours, theirs.numpy())


# --- Decoding: JPEG ---


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.glob("*.[jp][pn]g")))
def test_every_image_that_scikit_image_ships_decodes_as_in_tensorflow(name: str) -> None:
    assert_decodes_as_in_tensorflow((SHIPPED / name).read_bytes())


@each_size
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_jpeg_decodes_as_in_tensorflow(size: tuple[int, int], progressive: bool, subsampling: int) -> None:
    options = {"progressive": progressive, "subsampling": subsampling, "quality": 87}
    assert_decodes_as_in_tensorflow(jpeg(photo(*size), **options))


@each_size
@pytest.mark.parametrize("subsampling", ["440", "411"])
def test_a_jpeg_of_rare_subsampling_decodes_as_in_tensorflow(size: tuple[int, int], subsampling: str) -> None:
    assert_decodes_as_in_tensorflow(simplejpeg.encode_jpeg(photo(*size), colorsubsampling=subsampling))


@each_size
def test_a_gray_jpeg_has_one_channel(size: tuple[int, int]) -> None:
    data = jpeg(photo(*size), "L")
    assert_decodes_as_in_tensorflow(data)
    assert kernels.decode(data).shape == (*size, 1)


@each_size
@pytest.mark.parametrize("variant", [bytes, without_adobe, as_ycck])
def test_a_cmyk_jpeg_becomes_rgb_as_in_tensorflow(size: tuple[int, int], variant: Any) -> None:
    assert_decodes_as_in_tensorflow(variant(jpeg(photo(*size), "CMYK")))


SMALL = jpeg(photo(20, 30))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(exif_rotated(SMALL), id="EXIF orientation"),
        pytest.param(jpeg(photo(20, 30), keep_rgb=True), id="RGB inside"),
        pytest.param(jpeg(photo(20, 30), restart_marker_blocks=1), id="restart markers"),
        pytest.param(jpeg(photo(20, 30), icc_profile=b"x" * 70000), id="long segments"),
        pytest.param(jpeg(photo(20, 30), comment=b"\xff\xc0\xff\xda" * 9), id="markers in a comment"),
        pytest.param(SMALL + b"more" * 99, id="bytes after the end"),
        pytest.param(SMALL.replace(b"\xff\xdb", b"\xff\xff\xff\xdb"), id="fill bytes"),
        pytest.param(SMALL[:-2] + bytes(99) + SMALL[-2:], id="bytes before the end marker"),
        pytest.param(SMALL.replace(b"JFIF\0\1", b"JFIF\0\0"), id="JFIF version 0"),
    ],
)
def test_a_jpeg_with_a_harmless_oddity_decodes_as_in_tensorflow(data: bytes) -> None:
    assert_decodes_as_in_tensorflow(data)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("kept", [0.02, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_jpeg_is_refused(kept: float, progressive: bool) -> None:
    data = jpeg(photo(99, 101), progressive=progressive)
    assert_both_refuse(data[: int(len(data) * kept)])
    assert_both_refuse(data[:-1])
    assert_both_refuse(data[:-2])


def test_half_a_jpeg_is_refused_even_with_an_end_marker() -> None:
    data = jpeg(photo(99, 101))
    with pytest.raises(ImageError, match="premature end"):
        kernels.decode(data[: len(data) // 2] + b"\xff\xd9")


def test_a_jpeg_whose_subsampling_libjpeg_turbo_cannot_name_is_refused() -> None:
    with pytest.raises(ImageError, match="subsampling"):
        kernels.decode(jpeg(photo(20, 30), "CMYK", subsampling=2))


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xCB])
def test_a_lossless_or_hierarchical_jpeg_is_refused(marker: int) -> None:
    with pytest.raises(ImageError, match="lossless or hierarchical"):
        kernels.header(SMALL.replace(b"\xff\xc0", bytes([0xFF, marker])))


# --- Decoding: PNG ---


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 13), (33, 40)], ids=str)
@pytest.mark.parametrize(("color", "depth"), [(c, d) for c, depths in DEPTHS.items() for d in depths])
def test_a_png_decodes_as_in_tensorflow(color: int, depth: int, size: tuple[int, int], interlaced: bool) -> None:
    assert_decodes_as_in_tensorflow(png(color, depth, size, interlaced=interlaced))


TRANSPARENT = {0: b"\0\5", 2: b"\0\5\0\6\0\7", 3: b"\0\x50"}


@pytest.mark.parametrize(("color", "depth"), [(c, d) for c in TRANSPARENT for d in DEPTHS[c]])
def test_transparent_colours_are_a_channel_of_palettes_only(color: int, depth: int) -> None:
    data = png(color, depth, before=[(b"tRNS", TRANSPARENT[color])])
    assert_decodes_as_in_tensorflow(data)
    assert kernels.decode(data).shape[2] == {0: 1, 2: 3, 3: 4}[color]


FRAME = struct.pack(">IIIIIHHBB", 0, 10, 10, 3, 3, 1, 10, 0, 0)
ANCILLARY = {
    b"gAMA": struct.pack(">I", 90910),
    b"sBIT": bytes([5, 5, 5]),
    b"sRGB": b"\0",
    b"cICP": bytes([9, 16, 0, 1]),
    b"tEXt": b"a\0b",
    b"eXIf": b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
    b"acTL": struct.pack(">II", 2, 0),
    b"fcTL": FRAME,
}


@pytest.mark.parametrize("kind", ANCILLARY)
@pytest.mark.parametrize("color", [2, 3])
def test_gamma_profiles_orientation_and_animation_of_a_png_are_ignored(color: int, kind: bytes) -> None:
    assert_decodes_as_in_tensorflow(png(color, before=[(kind, ANCILLARY[kind])]))


def test_of_an_animated_png_the_default_image_counts() -> None:
    frame = struct.pack(">I", 2) + zlib.compress(png_rows(noise(33, 40, 3), 8))
    animation = [(b"acTL", struct.pack(">II", 2, 0)), (b"fcTL", FRAME)]
    assert_decodes_as_in_tensorflow(png(2, before=animation, after=[(b"fcTL", FRAME), (b"fdAT", frame)]))


RAW = png_rows(np.zeros((33, 40, 3), np.uint8), 8)
WHOLE = zlib.compress(RAW)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png(2) + b"more", id="bytes after the end"),
        pytest.param(png(2, data=[WHOLE[:20], b"", WHOLE[20:]]), id="split image data"),
        pytest.param(png(2, data=[WHOLE + b"more"]), id="bytes after the image data"),
        pytest.param(png(2, data=[zlib.compress(RAW + b"more")]), id="too many pixels"),
        pytest.param(png(2, before=[(b"PLTE", PALETTE)]), id="suggested palette"),
        pytest.param(png(3, before=[(b"tRNS", bytes(257))]), id="more transparency than palette"),
        pytest.param(png(3, before=[(b"tRNS", b"")]), id="empty transparency"),
        pytest.param(png(3, after=[(b"tRNS", bytes(9))]), id="transparency after the image data"),
        pytest.param(
            png(3, before=[(b"tRNS", b"\5")]).replace(chunk(b"tRNS", b"\5")[:9], chunk(b"tRNS", b"\6")[:9]),
            id="transparency of wrong CRC",
        ),
        pytest.param(png(3).replace(chunk(b"PLTE", PALETTE), chunk(b"PLTE", PALETTE[:99])), id="short palette"),
    ],
)
def test_a_png_with_a_harmless_oddity_decodes_as_in_tensorflow(data: bytes) -> None:
    assert_decodes_as_in_tensorflow(data)


@pytest.mark.parametrize("color", SAMPLES)
@pytest.mark.parametrize("lost", [1, 4, 8, 11, 12, 13, 16, 17, 50, 500])
def test_a_truncated_png_is_refused(color: int, lost: int) -> None:
    assert_both_refuse(png(color)[:-lost])
    assert_both_refuse(png(color, interlaced=True)[:-lost])


@pytest.mark.parametrize("kept", [8, 12, 16, 24, 28, 32, 33, 40, 45])
def test_a_png_that_ends_in_its_header_is_refused(kept: int) -> None:
    assert_both_refuse(png(3)[:kept])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png(2, data=[]), id="no image data"),
        pytest.param(png(2, data=[zlib.compress(RAW[:-1])]), id="a byte too few"),
        pytest.param(png(2, data=[WHOLE[:-9]]), id="cut image data"),
        pytest.param(png(2, data=[WHOLE[:-1] + bytes([WHOLE[-1] ^ 1])]), id="wrong Adler-32"),
        pytest.param(png(2, data=[zlib.compress(b"\7" + RAW[1:])]), id="unknown filter"),
        pytest.param(png(2).replace(b"IDAT", b"IDAT\0", 1), id="shifted image data"),
        pytest.param(png(2)[:-1] + b"\0", id="wrong CRC of the end"),
        pytest.param(png(2, before=[(b"ABCD", b"?")]), id="unknown critical chunk"),
        pytest.param(png(2, before=[(b"a\xd2cd", b"?")]), id="chunk without a name"),
        pytest.param(png(3).replace(chunk(b"PLTE", PALETTE), b""), id="no palette"),
        pytest.param(png(2).replace(b"IHDR", b"IHDX"), id="no header"),
        pytest.param(png(2, 8, (1, 1)).replace(b"\0\0\0\1\x08", b"\0\0\0\0\x08"), id="no rows"),
    ],
)
def test_a_damaged_png_is_refused(data: bytes) -> None:
    assert_both_refuse(data)


# --- Decoding: BMP ---


@each_size
@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_bmp_decodes_as_in_tensorflow(size: tuple[int, int], channels: int, top_down: bool) -> None:
    assert_decodes_as_in_tensorflow(bmp(photo(*size, channels), channels * 8, top_down=top_down))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_a_bmp_of_pillow_decodes_as_in_tensorflow(mode: str) -> None:
    assert_decodes_as_in_tensorflow(by_pillow(photo(33, 47), "BMP", mode))


def test_a_bmp_with_bit_fields_decodes_as_in_tensorflow() -> None:
    assert_decodes_as_in_tensorflow(bmp(photo(5, 7, 4), 32, gap=12, compression=3))


PLAIN_BMP = bmp(photo(33, 47), 24)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(by_pillow(photo(33, 47), "BMP", "1"), id="1 bit"),
        pytest.param(bmp(photo(33, 47, 2), 16), id="16 bits"),
        pytest.param(PLAIN_BMP + b"\0", id="a byte too many"),
        pytest.param(PLAIN_BMP[:-1], id="a byte too few"),
        pytest.param(PLAIN_BMP[:2000], id="cut in half"),
        pytest.param(PLAIN_BMP[:30], id="cut in its header"),
        pytest.param(PLAIN_BMP[:10], id="cut before its header"),
        pytest.param(PLAIN_BMP[:22] + bytes(4) + PLAIN_BMP[26:], id="no rows"),
        pytest.param(PLAIN_BMP[:18] + b"\xff\xff\xff\xff" + PLAIN_BMP[22:], id="negative width"),
        pytest.param(PLAIN_BMP[:10] + b"\xff\xff\xff\xff" + PLAIN_BMP[14:], id="pixels before the file"),
    ],
)
def test_a_bmp_that_tensorflow_refuses_is_refused(data: bytes) -> None:
    assert_both_refuse(data)


# --- Decoding: anything ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"hello world", "starts with hello"),
        (b"\0\1\2", "starts with 00 01 02"),
        (by_pillow(photo(5, 5), "GIF", "P"), "starts with GIF8.a"),
        (by_pillow(photo(5, 5), "TIFF", "RGB"), "TIFF"),
        (by_pillow(photo(5, 5), "WEBP", "RGB"), "WEBP"),
    ],
)
def test_another_format_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=f"not a BMP, JPEG or PNG: .*{message}"):
        kernels.decode(data)


@pytest.mark.parametrize("data", [SMALL, png(2, size=(20, 30)), bmp(photo(20, 30), 24)])
def test_an_image_of_too_many_pixels_is_refused_by_its_header(data: bytes) -> None:
    assert kernels.decode(data, max_pixels=600).shape == (20, 30, 3)
    with pytest.raises(ImageError, match="20x30 pixels are more than the limit of 599"):
        kernels.decode(data, max_pixels=599)


def test_a_png_that_claims_to_be_huge_is_refused_before_it_is_inflated() -> None:
    head = struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", WHOLE) + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="more than the limit"):
        kernels.decode(data)


SEEDS = [jpeg(photo(17, 23)), jpeg(photo(17, 23), "L"), jpeg(photo(17, 23), "CMYK"), bmp(photo(9, 9), 24)]
SEEDS += [png(color, size=(9, 11)) for color in SAMPLES]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(2, 10**6), st.binary(max_size=4), st.integers(0, 4))
def test_whatever_still_decodes_after_damage_decodes_as_in_tensorflow(
    data: bytes, at: int, patch: bytes, skipped: int
) -> None:
    at %= len(data)
    damaged = data[:at] + patch + data[at + skipped :]
    image = by_us(damaged)
    if image is not None:
        np.testing.assert_array_equal(image, by_tensorflow(damaged))


MAGIC = [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF8", b"RIFF____WEBP"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MAGIC), st.binary())
def test_no_bytes_raise_anything_but_an_image_error(magic: bytes, data: bytes) -> None:
    by_us(magic + data)
    with contextlib.suppress(ImageError):
        kernels.header(magic + data)


# --- Headers ---


@pytest.mark.parametrize(
    ("format", "mode", "channels"),
    [
        ("JPEG", "RGB", 3),
        ("JPEG", "CMYK", 3),
        ("PNG", "LA", 2),
        ("BMP", "RGB", 3),
        ("GIF", "P", 3),
        ("WEBP", "RGB", 3),
        ("WEBP", "RGBA", 4),
    ],
)
def test_a_header_tells_format_and_shape(format: str, mode: str, channels: int) -> None:
    data = by_pillow(photo(33, 47, 4), format, mode)
    assert kernels.header(data) == (format.lower(), 33, 47, channels)
    assert kernels.sniff(data) == format.lower()


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": False}, {"exif": b"Exif\0\0"}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_webp_header_of_each_kind_is_read(mode: str, options: dict[str, Any]) -> None:
    data = by_pillow(photo(300, 470, 4) // 2, "WEBP", mode, **options)
    assert kernels.header(data)[1:] == by_tensorflow(data).shape


@pytest.mark.parametrize("data", [SMALL, png(3), PLAIN_BMP, by_pillow(photo(5, 5), "GIF", "P")])
def test_a_header_cut_short_is_an_error(data: bytes) -> None:
    with pytest.raises(ImageError, match="truncated"):
        kernels.header(data[:9])


def test_headers_and_angles_need_neither_numpy_nor_opencv() -> None:
    code = (
        "import sys; from tar2tf_cli.formats import image; data = sys.stdin.buffer.read();"
        "print(image.header(data).width, image.random_angle(1, 'a') < 360,"
        "sorted({'numpy', 'cv2', 'simplejpeg', 'tensorflow'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=SMALL, capture_output=True, check=True, env=environment)
    assert done.stdout.decode().strip() == "30 True []"


# --- Values ---

ALL_PAIRS = list(itertools.product(kernels.DTYPES, repeat=2))
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
    assert_same(kernels.convert_dtype(image, target), tf.image.convert_image_dtype(image, target))


@pytest.mark.parametrize(("source", "target"), [pair for pair in CONVERTIBLE if tensorflow_saturates(pair)])
def test_dtypes_convert_with_saturation_as_in_tensorflow(source: str, target: str) -> None:
    image = wild_values(source)
    with np.errstate(all="ignore"):
        expected = tf.image.convert_image_dtype(image, target, saturate=True)
    assert_same(kernels.convert_dtype(image, target, saturate=True), expected)


@pytest.mark.parametrize(("source", "target"), BEYOND_FLOAT16)
def test_float16_to_a_range_it_cannot_hold_is_refused(source: str, target: str) -> None:
    with pytest.raises(ImageError, match="cannot hold the range"):
        kernels.convert_dtype(values(source), target)


@pytest.mark.parametrize(("source", "target"), [pair for pair in ALL_PAIRS if tensorflow_saturates(pair)])
def test_a_cast_saturates_as_in_tensorflow(source: str, target: str) -> None:
    image = wild_values(source)
    with np.errstate(all="ignore"):
        expected = tf.saturate_cast(image, target)
    assert_same(kernels.cast(image, target), expected)


@pytest.mark.parametrize(("source", "target"), [p for p in ALL_PAIRS if not tensorflow_saturates(p)])
def test_a_cast_saturates_where_that_of_tensorflow_does_not(source: str, target: str) -> None:
    image = wild_values(source)
    info: Any = np.finfo(target) if target.startswith("f") else np.iinfo(target)
    number = float if target.startswith("f") else int
    least, most = (number(limit) for limit in (info.min, info.max))
    expected = [min(max(value, least), most) for value in image.ravel().tolist()]
    tolerance = 1e-3 if target == "float16" else 1e-7
    np.testing.assert_allclose(kernels.cast(image, target).ravel().tolist(), expected, rtol=tolerance, atol=1)


@pytest.mark.parametrize("target", ["uint8", "int32", "float32"])
def test_a_cast_of_nan_is_that_of_tensorflow(target: str) -> None:
    image = np.full((5, 1, 1), np.nan, np.float32)
    assert_same(kernels.cast(image, target), tf.saturate_cast(image, target))


@pytest.mark.parametrize("change", [kernels.cast, kernels.convert_dtype])
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
    resized = kernels.resize(image, *target)
    assert (resized.dtype, resized.shape) == (np.float32, (*target, channels))
    np.testing.assert_allclose(resized, tf.image.resize(image, target), rtol=0, atol=0.01)


each_axis = st.integers(1, 1200)


@settings(max_examples=40, deadline=None)
@given(each_axis, each_axis, st.integers(1, 400), st.integers(1, 400))
def test_any_size_resizes_to_any_within_a_hundredth_of_a_level(
    rows: int, columns: int, height: int, width: int
) -> None:
    image = noise(rows, columns, 1)
    expected = tf.cast(tf.image.resize(image, [height, width]), tf.float32)
    np.testing.assert_allclose(kernels.resize(image, height, width), expected, rtol=0, atol=0.01)


@each_resize
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_the_exact_way_to_resize_is_exact(size: tuple[int, int], target: tuple[int, int], channels: int) -> None:
    image = noise(*size, channels)
    np.testing.assert_array_equal(pixels._resize_exactly(image, *target), tf.image.resize(image, target))


@pytest.mark.parametrize("dtype", [name for name in kernels.DTYPES if name != "uint32"])
@pytest.mark.parametrize("size", [(17, 23), (5, 5)])
def test_every_dtype_resizes_to_float32(dtype: str, size: tuple[int, int]) -> None:
    image = (photo(30, 40) // 2).astype(dtype)
    resized = kernels.resize(image, *size)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, tf.image.resize(image, size), rtol=0, atol=0.01)


def test_an_image_of_the_size_becomes_float32_all_the_same() -> None:
    image = photo(30, 40)
    resized = kernels.resize(image, 30, 40)
    assert resized.dtype == np.float32
    np.testing.assert_array_equal(resized, tf.image.resize(image, [30, 40]))


def test_views_resize_and_rotate_as_their_copies_do() -> None:
    view = photo(50, 60)[::-1, 5:50:2]
    np.testing.assert_array_equal(kernels.resize(view, 20, 20), kernels.resize(view.copy(), 20, 20))
    np.testing.assert_array_equal(kernels.rotate(view, 30), kernels.rotate(view.copy(), 30))


def test_opencv_is_left_as_it_was() -> None:
    before = cv2.ipp.useIPP()
    kernels.resize(photo(30, 40), 20, 20)
    assert cv2.ipp.useIPP() == before


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_a_size_below_one_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        kernels.resize(photo(5, 5), *size)


def to_two_by_two(image: np.ndarray) -> np.ndarray:
    return kernels.resize(image, 2, 2)


def by_one_degree(image: np.ndarray) -> np.ndarray:
    return kernels.rotate(image, 1)


@pytest.mark.parametrize("change", [to_two_by_two, by_one_degree, kernels.center_crop])
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5, 3), (0, 5, 3), (5, 5, 0)])
def test_what_is_no_image_has_no_geometry(change: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageError, match="not an image"):
        change(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("channels", [1, 3, 7])
@pytest.mark.parametrize(("angle", "turns"), [(0, 0), (90, 3), (180, 2), (270, 1), (360, 0), (-90, 1), (450.0, 3)])
def test_quarter_turns_are_clockwise_and_exact(angle: float, turns: int, channels: int) -> None:
    image = noise(5, 8, channels, "int32")
    turned = kernels.rotate(image, angle)
    np.testing.assert_array_equal(turned, np.rot90(image, turns))
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("dtype", kernels.DTYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("angle", [1, 30, -45, 133.7, 359])
def test_other_angles_keep_canvas_and_dtype_and_fill_with_zero(angle: float, channels: int, dtype: str) -> None:
    image = np.ascontiguousarray(np.repeat(photo(41, 60), 2, axis=2)[..., :channels] // 2).astype(dtype)
    turned = kernels.rotate(image, angle)
    assert (turned.dtype, turned.shape) == (image.dtype, image.shape)
    expected = skimage.transform.rotate(image.astype(np.float64), -angle, order=1, cval=0, preserve_range=True)
    # The two treat the border of the canvas differently, hence not every pixel.
    assert np.quantile(np.abs(turned - expected), 0.97) <= (0.1 if dtype.startswith("f") else 0.51)


@pytest.mark.parametrize("angle", [math.nan, math.inf])
def test_an_angle_that_is_no_number_is_refused(angle: float) -> None:
    with pytest.raises(ValueError, match="cannot rotate"):
        kernels.rotate(photo(5, 5), angle)


def test_a_random_angle_depends_on_seed_and_key_alone() -> None:
    assert kernels.random_angle(0, "a/b") == 53.55595673619168
    assert kernels.random_angle(-7, "\u00e9") == 188.7426506420202
    drawn = {kernels.random_angle(seed, key) for seed in (0, 1, -1) for key in ("", "1", "a", "\udcff")}
    assert len(drawn) == 12


def test_random_angles_are_uniform_over_the_circle() -> None:
    angles = np.array([kernels.random_angle(5, f"{n:06}") for n in range(4000)])
    assert 0 <= angles.min() < angles.max() < 360
    counts = np.histogram(angles, bins=12, range=(0, 360))[0]
    assert (np.abs(counts - 4000 / 12) < 5 * math.sqrt(4000 / 12)).all()


@pytest.mark.parametrize("size", [(5, 5), (5, 8), (8, 5), (5, 9), (1, 4), (100, 1)], ids=str)
def test_the_centre_crop_is_the_largest_square_and_its_margin_rounds_down(size: tuple[int, int]) -> None:
    image = noise(*size, 3)
    side, (height, width) = min(size), size
    top, left = (height - side) // 2, (width - side) // 2
    np.testing.assert_array_equal(kernels.center_crop(image), image[top:, left:][:side, :side])


# --- Encoding ---


@pytest.mark.parametrize("quality", [10, 75, 95, 100])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (33, 47), (375, 500)], ids=str)
def test_a_jpeg_is_encoded_as_by_tensorflow(size: tuple[int, int], channels: int, quality: int) -> None:
    image = photo(*size, channels)
    expected = by_tensorflow(tf.io.encode_jpeg(image, quality=quality).numpy())
    np.testing.assert_array_equal(by_tensorflow(kernels.encode(image, "jpeg", quality)), expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (33, 47)], ids=str)
def test_a_png_comes_back_as_it_was(size: tuple[int, int], channels: int) -> None:
    image = photo(*size, channels)
    data = kernels.encode(image, "png")
    np.testing.assert_array_equal(kernels.decode(data), image)
    np.testing.assert_array_equal(by_tensorflow(data), image)


@pytest.mark.parametrize(
    ("shape", "dtype", "format"),
    [
        ((5, 5, 2), "uint8", "jpeg"),
        ((5, 5, 4), "uint8", "jpeg"),
        ((5, 5, 5), "uint8", "png"),
        ((5, 5, 3), "float32", "png"),
        ((5, 5, 3), "uint16", "jpeg"),
        ((70000, 2, 3), "uint8", "jpeg"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(shape: tuple[int, ...], dtype: str, format: Any) -> None:
    with pytest.raises(ImageError, match="cannot encode"):
        kernels.encode(np.zeros(shape, dtype), format)


@pytest.mark.parametrize(("format", "quality"), [("gif", 95), ("jpeg", 0), ("jpeg", 101)])
def test_an_unknown_format_or_quality_is_refused(format: Any, quality: int) -> None:
    with pytest.raises(ValueError, match="cannot encode"):
        kernels.encode(photo(5, 5), format, quality)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_rgb_and_gray_jpegs_stay_as_they_are(mode: str) -> None:
    data = jpeg(photo(20, 30), mode, progressive=True)
    assert kernels.to_rgb_jpeg(data) is data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(jpeg(photo(33, 47), "CMYK"), id="CMYK"),
        pytest.param(png(3, before=[(b"tRNS", b"\5")]), id="palette with transparency"),
        *(pytest.param(png(color), id=f"PNG of colour type {color}") for color in SAMPLES),
        *(pytest.param(bmp(photo(9, 9, c), c * 8), id=f"BMP of {c} channels") for c in (1, 3, 4)),
    ],
)
def test_all_else_becomes_an_rgb_jpeg(data: bytes) -> None:
    made, image = kernels.to_rgb_jpeg(data), kernels.decode(data)
    rgb = image[..., :3] if image.shape[2] > 2 else np.repeat(image[..., :1], 3, axis=2)
    assert kernels.header(made) == ("jpeg", *rgb.shape)
    expected = by_tensorflow(tf.io.encode_jpeg(rgb, quality=100).numpy())
    np.testing.assert_array_equal(by_tensorflow(made), expected)


def test_bytes_that_are_no_image_do_not_become_a_jpeg() -> None:
    with pytest.raises(ImageError):
        kernels.to_rgb_jpeg(b"hello")


# --- Memory that is used again ---


def test_memory_of_an_array_is_used_again_only_when_nobody_holds_it() -> None:
    first = buffer((20, 30, 3), "uint8")
    place = first.ctypes.data
    first[...] = 7
    part = first[5:, ::2, 1].T
    del first
    second = buffer((20, 30, 3), "uint8")
    second[...] = 9
    assert not np.shares_memory(part, second)
    assert (part == 7).all()
    del part
    third = buffer((10, 12, 3), "float32")
    assert third.ctypes.data == place
    assert third.dtype == np.float32
    assert not np.shares_memory(second, third)


def test_images_that_are_kept_stay_as_they_were_decoded() -> None:
    encoded = [jpeg(np.full((40, 60, 3), level, np.uint8)) for level in range(0, 250, 10)]
    images = [decode(data) for data in encoded]
    resized = [resize(image, 20, 30) for image in images]
    for data, image, small in zip(encoded, images, resized, strict=True):
        assert (decode(data) == image).all()
        assert (resize(image, 20, 30) == small).all()


def test_each_thread_has_memory_of_its_own() -> None:
    held = buffer((64, 64, 3), "uint8")
    place = held.ctypes.data
    del held
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(buffer, (64, 64, 3), "uint8").result()
    assert other.ctypes.data != place


def test_memory_that_is_kept_is_bounded() -> None:
    for side in range(1000, 2000, 100):
        buffer((side, side, 3), "float32")
    assert sum(block.size for block in buffers._kept.blocks) <= 32 << 20
    huge = buffer((4000, 4000, 3), "uint8")
    place = huge.ctypes.data
    del huge
    assert all(block.ctypes.data != place for block in buffers._kept.blocks)
