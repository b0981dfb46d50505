"""The image kernels against TensorFlow's own, on images of every kind it decodes and some it refuses."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import simplejpeg
import skimage.data
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from images import (
    PALETTE,
    PLAIN_BMP,
    SAMPLES,
    SMALL,
    bmp,
    by_pillow,
    by_tensorflow,
    chunk,
    jpeg,
    noise,
    photo,
    png,
    png_rows,
)
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.image import codecs, headers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SHIPPED = Path(skimage.data.__file__).parent
SIZES = [(1, 1), (1, 2), (3, 1), (7, 8), (17, 33), (64, 64), (99, 101), (375, 500)]

each_size = pytest.mark.parametrize("size", SIZES, ids=str)
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def exif_rotated(data: bytes) -> bytes:
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def without_adobe(data: bytes) -> bytes:
    at = data.index(b"Adobe")
    return data[: at - 4] + data[at - 2 + data[at - 1] :]


def as_ycck(data: bytes) -> bytes:
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1 :]


def by_us(data: bytes) -> np.ndarray | None:
    try:
        return codecs.decode(data)
    except ImageError:
        return None


def assert_decodes_as_in_tensorflow(data: bytes) -> None:
    expected, image = by_tensorflow(data), codecs.decode(data)
    assert expected is not None
    assert (image.dtype, image.shape) == (np.uint8, expected.shape)
    np.testing.assert_array_equal(image, expected)
    assert image.flags.c_contiguous
    assert headers.header(data)[1:] == image.shape


def assert_both_refuse(data: bytes) -> None:
    assert by_tensorflow(data) is None
    with pytest.raises(ImageError):
        codecs.decode(data)


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
    assert codecs.decode(data).shape == (*size, 1)


@each_size
@pytest.mark.parametrize("variant", [bytes, without_adobe, as_ycck])
def test_a_cmyk_jpeg_becomes_rgb_as_in_tensorflow(size: tuple[int, int], variant: Any) -> None:
    assert_decodes_as_in_tensorflow(variant(jpeg(photo(*size), "CMYK")))


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


def segment(marker: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2 if length is None else length) + body


def inserted(data: bytes, before: int, what: bytes) -> bytes:
    at = data.index(bytes([0xFF, before]))
    return data[:at] + what + data[at:]


ICC = b"ICC_PROFILE\0\x05\x02" + bytes(40)
FRAME_MARKER, TABLE_MARKER, SCAN_MARKER = 0xC0, 0xDB, 0xDA


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(inserted(SMALL, TABLE_MARKER, b"junk"), id="junk before a marker"),
        pytest.param(inserted(SMALL, SCAN_MARKER, bytes(300)), id="junk before the scan"),
        pytest.param(inserted(SMALL, TABLE_MARKER, b"\xff\0"), id="a marker of zero"),
        pytest.param(inserted(SMALL, TABLE_MARKER, segment(0xE1, b"Exif\0\0MM\0*" + bytes(30), 12)), id="long EXIF"),
        pytest.param(inserted(SMALL, TABLE_MARKER, segment(0xED, b"Photoshop 3.0\0" + bytes(9), 8)), id="Photoshop"),
        pytest.param(inserted(SMALL, SCAN_MARKER, segment(0xE2, ICC)), id="ICC profile after the frame"),
        pytest.param(inserted(SMALL, TABLE_MARKER, segment(0xEE, b"Adobe\0\x64", 9) + b"\0"), id="short Adobe"),
        pytest.param(inserted(jpeg(photo(9, 9), "L"), TABLE_MARKER, b"junk"), id="gray"),
        pytest.param(inserted(jpeg(photo(9, 9), "CMYK"), TABLE_MARKER, b"junk"), id="CMYK"),
        pytest.param(inserted(jpeg(photo(9, 9), progressive=True), TABLE_MARKER, b"junk"), id="progressive"),
    ],
)
def test_a_jpeg_whose_header_libjpeg_warns_of_decodes_as_in_tensorflow(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # a warning is an error there
        simplejpeg.decode_jpeg(data)
    assert_decodes_as_in_tensorflow(data)


def test_a_jpeg_with_bits_flipped_in_its_scan_decodes_as_in_tensorflow() -> None:
    whole = jpeg(photo(40, 56), quality=80)
    start = whole.index(b"\xff\xda") + 14
    for at in range(start, len(whole) - 2, 11):
        data = whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :]
        np.testing.assert_array_equal(by_us(data), by_tensorflow(data))


@pytest.mark.parametrize("restarts", [{}, {"restart_marker_blocks": 2}], ids=["", "restarts"])
@pytest.mark.parametrize("marker", [0xE4, 0xC4, 0xDD, 0xFE])
def test_a_jpeg_whose_end_is_hidden_by_what_damage_made_a_segment_is_refused(marker: int, restarts: Any) -> None:
    whole = jpeg(photo(40, 56), **restarts)
    at = whole.index(b"\xff\xda") + 60
    assert_both_refuse(whole[:at] + bytes([0xFF, marker, 0xFF, 0xF0]) + whole[at:])


@pytest.mark.parametrize(
    ("mode", "options"),
    [("L", {}), ("RGB", {}), ("RGB", {"restart_marker_blocks": 2}), ("CMYK", {"subsampling": 0})],
)
def test_what_is_decoded_of_a_damaged_jpeg_is_what_tensorflow_decodes(mode: str, options: Any) -> None:
    random, whole = Random(7), jpeg(photo(33, 47), mode, **options)
    for _ in range(100):
        at = random.randrange(2, len(whole))
        data = whole[:at] + random.randbytes(random.randrange(1, 4)) + whole[at + random.randrange(4) :]
        if (ours := by_us(data)) is not None:
            np.testing.assert_array_equal(ours, by_tensorflow(data))


@pytest.mark.parametrize("damage", [b"\xff\xbb", segment(0xC4, b"\0" + b"\xff" * 16)], ids=["marker", "table"])
def test_a_jpeg_with_a_warning_and_an_error_behind_it_is_refused(damage: bytes) -> None:
    assert_both_refuse(inserted(SMALL, TABLE_MARKER, b"junk" + damage))
    assert_both_refuse(inserted(inserted(SMALL, TABLE_MARKER, b"junk"), SCAN_MARKER, damage))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("kept", [0.02, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_jpeg_is_refused(kept: float, progressive: bool) -> None:
    data = jpeg(photo(99, 101), progressive=progressive)
    assert_both_refuse(data[: int(len(data) * kept)])
    assert_both_refuse(data[:-1])
    assert_both_refuse(data[:-2])


@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_jpeg_that_lost_image_data_but_has_its_end_marker_is_decoded_as_in_tensorflow(kept: float) -> None:
    data = jpeg(photo(99, 101))
    assert_decodes_as_in_tensorflow(data[: int(len(data) * kept)] + b"\xff\xd9")


def test_a_jpeg_whose_subsampling_libjpeg_turbo_cannot_name_is_refused() -> None:
    with pytest.raises(ImageError, match="CMYK of uncommon subsampling"):
        codecs.decode(jpeg(photo(20, 30), "CMYK", subsampling=2))


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xCB])
def test_a_lossless_or_hierarchical_jpeg_is_refused(marker: int) -> None:
    with pytest.raises(ImageError, match="lossless or hierarchical"):
        headers.header(SMALL.replace(b"\xff\xc0", bytes([0xFF, marker])))


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
    assert codecs.decode(data).shape[2] == {0: 1, 2: 3, 3: 4}[color]


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


# --- Decoding to a number of channels ---


def gamma(value: int) -> tuple[bytes, bytes]:
    return b"gAMA", struct.pack(">I", value)


def png_of(color: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG with these chunks behind its header, and before its palette."""
    data = png(color)
    return data[:33] + b"".join(chunk(*each) for each in chunks) + data[33:]


COLORED = {
    "jpeg": jpeg(photo(33, 47)),
    "jpeg, rgb inside": jpeg(photo(33, 47), keep_rgb=True),
    "jpeg, progressive": jpeg(photo(33, 47), progressive=True),
    "jpeg, gray": jpeg(photo(33, 47), "L"),
    "jpeg, with junk": inserted(SMALL, TABLE_MARKER, b"junk"),
    **{f"png {color}, {depth} bits": png(color, depth) for color, depths in DEPTHS.items() for depth in depths},
    "png, interlaced": png(2, interlaced=True),
    "png, transparent palette": png(3, before=[(b"tRNS", b"\0\x50")]),
    "png, transparent colour": png(2, before=[(b"tRNS", bytes(6))]),
    **{
        f"png {color}, {name}": png_of(color, *chunks)
        for color in (2, 3, 6)
        for name, chunks in {
            "a gamma of 1/2.2": [gamma(45455)],
            "a gamma of 1.8": [gamma(180_000)],
            "a gamma of nearly nothing": [gamma(16)],
            "a gamma beyond that": [gamma(15)],
            "nearly no gamma": [gamma(95_000)],
            "just a gamma": [gamma(105_001)],
            "too large a gamma": [gamma(700_000_000)],
            "two gammas": [gamma(30_000), gamma(60_000)],
            "a wrong gamma and another": [gamma(0), gamma(30_000)],
            "a gamma that is cut short": [(b"gAMA", b"\0\1")],
            "sRGB": [(b"sRGB", b"\0")],
            "no intent of sRGB": [(b"sRGB", b"\4")],
            "sRGB before a gamma": [(b"sRGB", b"\0"), gamma(30_000)],
            "a gamma before sRGB": [gamma(30_000), (b"sRGB", b"\3")],
        }.items()
    },
    "png, a gamma behind the palette": png(3, before=[gamma(30_000)]),
    "png of 16 bits, nearly no gamma": png(2, 16, before=[gamma(100_000)]),
    "png, chromaticities": png(2, before=[(b"cHRM", struct.pack(">8I", 3, 3, 6, 3, 3, 6, 1, 1))]),
}


@pytest.mark.parametrize("name", COLORED)
@pytest.mark.parametrize("channels", [0, 1, 3])
def test_an_image_has_the_channels_asked_for_as_in_tensorflow(name: str, channels: int) -> None:
    expected, image = by_tensorflow(COLORED[name], channels), codecs.decode(COLORED[name], channels)
    np.testing.assert_array_equal(image, expected)
    assert image.flags.c_contiguous
    assert not channels or image.shape[2] == channels


ONLY_RGB = {
    "jpeg, cmyk": (jpeg(photo(33, 47), "CMYK"), "CMYK"),
    "bmp": (bmp(photo(33, 47), 24), "BMP"),
    "bmp with alpha": (bmp(photo(33, 47, 4), 32), "BMP"),
    "png of a profile": (png(2, before=[(b"iCCP", b"a\0\0" + zlib.compress(bytes(132)))]), "has an ICC profile"),
    "png of 16 bits and a gamma": (png(2, 16, before=[gamma(90_910)]), "16 bits and a gamma"),
    "png of 16 bits and sRGB": (png(6, 16, before=[(b"sRGB", b"\0")]), "16 bits and a gamma"),
}


@pytest.mark.parametrize("name", ONLY_RGB)
def test_what_cannot_be_gray_as_in_tensorflow_is_refused_by_name_and_becomes_rgb(name: str) -> None:
    data, reason = ONLY_RGB[name]
    with pytest.raises(ImageError, match=reason):
        codecs.decode(data, 1)
    np.testing.assert_array_equal(codecs.decode(data, 3), by_tensorflow(data, 3))


def test_a_gray_bmp_becomes_rgb() -> None:
    data = bmp(photo(33, 47, 1), 8)
    np.testing.assert_array_equal(codecs.decode(data, 3), by_tensorflow(data, 3))
    np.testing.assert_array_equal(codecs.decode(data, 1), by_tensorflow(data))


@pytest.mark.parametrize("channels", [-1, 2, 4])
def test_another_number_of_channels_is_refused(channels: int) -> None:
    with pytest.raises(ValueError, match=r"0 \(as in the file\), 1 or 3"):
        codecs.decode(SMALL, channels)


# --- Decoding: anything ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"hello world", "starts with hello"),
        (b"\0\1\2", "starts with 00 01 02"),
        (by_pillow(photo(5, 5), "GIF", "P"), "it is GIF"),
        (by_pillow(photo(5, 5), "TIFF", "RGB"), "it is TIFF"),
    ],
)
def test_another_format_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=f"cannot be decoded: .*{message}"):
        codecs.decode(data)


@pytest.mark.parametrize("data", [SMALL, png(2, size=(20, 30)), bmp(photo(20, 30), 24)])
def test_an_image_of_too_many_pixels_is_refused_by_its_header(data: bytes) -> None:
    assert codecs.decode(data, max_pixels=600).shape == (20, 30, 3)
    with pytest.raises(ImageError, match="20x30 pixels are more than the limit of 599"):
        codecs.decode(data, max_pixels=599)


def test_a_png_that_claims_to_be_huge_is_refused_before_it_is_inflated() -> None:
    head = struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", WHOLE) + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="more than the limit"):
        codecs.decode(data)


SEEDS = [jpeg(photo(17, 23)), jpeg(photo(17, 23), "L"), jpeg(photo(17, 23), "CMYK"), bmp(photo(9, 9), 24)]
SEEDS += [png(color, size=(9, 11)) for color in SAMPLES]


@example_count(300)
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


@example_count(200)
@given(st.sampled_from(MAGIC), st.binary())
def test_no_bytes_raise_anything_but_an_image_error(magic: bytes, data: bytes) -> None:
    by_us(magic + data)
    with contextlib.suppress(ImageError):
        headers.header(magic + data)


# --- WebP, and PNG of 16 bits ---

WEBP_SIZES = [(1, 1), (1, 2), (3, 1), (7, 8), (17, 33), (64, 64), (3, 5000), (5000, 3), (240, 320)]
WEBP_OPTIONS: list[dict[str, Any]] = [{"lossless": True}, {"quality": 80}, {"quality": 5}, {"exif": b"Exif\0\0II*\0"}]


def test_a_webp_has_the_pixels_of_tensorflow() -> None:
    modes = ("L", "RGB", "RGBA")
    cases = [(size, mode, options) for size in WEBP_SIZES for mode in modes for options in WEBP_OPTIONS]
    assert len(cases) > 100
    for size, mode, options in cases:
        source = photo(*size, 4)
        source[..., 3] = np.arange(source.shape[1], dtype=np.uint8)
        data = by_pillow(source, "WEBP", mode, **options)
        theirs = tf.io.decode_webp(data).numpy()[0]
        np.testing.assert_array_equal(codecs.decode(data), theirs)
        assert headers.header(data)[1:] == theirs.shape
        np.testing.assert_array_equal(codecs.decode(data, 3), theirs[..., :3])


def tiny_webp(width: int, height: int, green: int, red: int) -> bytes:
    """A lossless WebP of one colour, whose pixels take no bits (RFC 9649, 3)."""
    fields = [(0x2F, 8), (width - 1, 14), (height - 1, 14), (0, 7)]  # no alpha, version, transforms, caches
    for symbol in (green, red, 0, 0, 0):
        fields += [(1, 2), (0, 1), (symbol, 1)] if symbol < 2 else [(1, 2), (1, 1), (symbol, 8)]
    bits, position = 0, 0
    for value, size in fields:
        bits, position = bits | value << position, position + size
    body = bits.to_bytes(-(-position // 8), "little")
    padded = body + bytes(len(body) % 2)
    return struct.pack("<4sI4s4sI", b"RIFF", 12 + len(padded), b"WEBP", b"VP8L", len(body)) + padded


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 1)])
def test_a_webp_of_less_than_32_bytes_has_the_pixels_of_tensorflow(shape: tuple[int, int]) -> None:
    for colors in ((0, 0), (1, 0), (200, 0)):
        data = tiny_webp(*shape, *colors)
        assert len(data) < 32
        assert np.array_equal(codecs.decode(data), tf.io.decode_webp(data).numpy()[0, ..., :3])


def test_a_damaged_webp_is_refused_exactly_if_tensorflow_refuses_it() -> None:
    rng, refused = np.random.default_rng(1), 0
    whole = by_pillow(photo(60, 70), "WEBP", "RGB")
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(int(rng.integers(1, 4))):
            changed[int(rng.integers(20, len(whole)))] = int(rng.integers(256))
        try:
            theirs = tf.io.decode_webp(bytes(changed)).numpy()[0]
        except tf.errors.InvalidArgumentError:
            refused += 1
            with pytest.raises(ImageError):
                codecs.decode(bytes(changed))
            continue
        np.testing.assert_array_equal(codecs.decode(bytes(changed)), theirs)
    assert refused
    for part in range(1, 10):
        with pytest.raises(ImageError, match=r"(?i)webp"):
            codecs.decode(whole[: len(whole) * part // 10])
    with pytest.raises(ImageError, match="only to 3"):
        codecs.decode(whole, 1)


def test_a_png_keeps_its_16_bits_on_request() -> None:
    cases = 0
    for color, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            for size in ((1, 1), (3, 1), (33, 40), (7, 500)):
                for interlaced in (False, True):
                    data = png(color, depth, size, interlaced=interlaced)
                    for channels in (0, 1, 3):
                        ours = codecs.decode(data, channels, dtype="uint16")
                        theirs = tf.io.decode_png(data, channels, tf.uint16).numpy()
                        assert ours.dtype == np.uint16
                        np.testing.assert_array_equal(ours, theirs)
                        cases += 1
    assert cases > 300
    with pytest.raises(ImageError, match="it is JPEG, and only a PNG can be decoded to uint16"):
        codecs.decode(SMALL, dtype="uint16")
    with pytest.raises(ValueError, match="float32"):
        codecs.decode(SMALL, dtype="float32")


def test_a_png_with_a_palette_is_known_by_its_header() -> None:
    assert headers.is_palette(png(3))
    assert not any(map(headers.is_palette, (png(0), png(2), SMALL, b"", png(3)[:20])))
