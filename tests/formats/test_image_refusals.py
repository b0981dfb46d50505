"""What the functions on images refuse, in whole messages, and what their rarer branches compute."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from images import PLAIN_BMP, SMALL, by_pillow, chunk, jpeg, noise, photo, png
from tar2tf_cli.formats.image import (
    ImageError,
    cast,
    convert_dtype,
    crop,
    describe_values,
    distinct_values,
    opencv,
    resample,
)
from tar2tf_cli.formats.image.codecs import decode, decode_frames, decode_indices, decode_jpeg, encode
from tar2tf_cli.formats.image.geometry import (
    clip_edges,
    follow_boxes,
    follow_mask,
    follow_points,
    mirrored,
    move_edges,
    oriented,
    placed,
    rotated,
    scaled,
)
from tar2tf_cli.formats.image.headers import jpeg_essentials, lacks_scans, tiff_pages


def refused(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[str, str]:
    """The class and the message of an error."""
    with pytest.raises((ImageError, ValueError)) as raised:
        function(*arguments, **options)
    return type(raised.value).__name__, getattr(raised.value, "message", None) or str(raised.value)


DTYPES = "uint8, int8, uint16, int16, uint32, int32, int64, float16, float32, float64"
CMYK = by_pillow(photo(16, 16), "JPEG", "CMYK")
WEBP = by_pillow(photo(16, 16), "WEBP", "RGB", lossless=True)


def test_images_that_cannot_be_decoded_as_asked_for_say_why() -> None:
    refusals = [
        refused(decode, b"text"),
        refused(decode, SMALL, 2),
        refused(decode, SMALL, dtype="float32"),
        refused(decode, SMALL, dtype="uint16"),
        refused(decode, CMYK, 1),
        refused(decode, PLAIN_BMP, 1),
        refused(decode, PLAIN_BMP[:-1]),
        refused(decode, WEBP, 1),
        refused(decode, WEBP[:-3]),
        refused(decode, WEBP[:40] + bytes(len(WEBP) - 40)),
        refused(decode, SMALL, max_pixels=599),
        refused(decode_indices, SMALL),
        refused(decode_indices, png(2)),
        refused(decode_indices, png(0, 16)),
        refused(decode_indices, png(3), max_pixels=33 * 40 - 1),
        refused(decode, png(2, 8, before=[(b"iCCP", b"x")]), 1),
        refused(decode, png(2, 16, before=[(b"gAMA", struct.pack(">I", 50_000))]), 1),
    ]
    assert refusals == [
        ("ImageError", "cannot be decoded: starts with text"),
        ("ValueError", "cannot decode to 2 channels: 0 (as in the file), 1 or 3"),
        ("ValueError", "cannot decode to float32: only to uint8 or uint16"),
        ("ImageError", "it is JPEG, and only a PNG can be decoded to uint16"),
        ("ImageError", "unsupported JPEG: CMYK cannot be decoded to 1 channel, only to 3"),
        ("ImageError", "unsupported BMP: its colours cannot be decoded to 1 channel, only to 3"),
        ("ImageError", "truncated or unsupported BMP: 4806 bytes by its header, but it has 4805"),
        ("ImageError", "unsupported WebP: its colours cannot be decoded to 1 channel, only to 3"),
        ("ImageError", "truncated WebP: its header says that it is longer"),
        ("ImageError", "damaged WebP"),
        ("ImageError", "20x30 pixels are more than the limit of 599"),
        ("ImageError", "only a PNG has indices: it is JPEG"),
        ("ImageError", "a PNG has indices if it has a palette, or gray levels of up to 8 bits; this one has neither"),
        ("ImageError", "a PNG has indices if it has a palette, or gray levels of up to 8 bits; this one has neither"),
        ("ImageError", "33x40 pixels are more than the limit of 1319"),
        ("ImageError", "unsupported PNG: it has an ICC profile, so its colours cannot become gray; decode to 3"),
        ("ImageError", "unsupported PNG: with 16 bits and a gamma, its colours cannot become gray; decode to 3"),
    ]


def test_damaged_pngs_say_what_is_wrong_and_where() -> None:
    whole = png(0, 8, (4, 4))
    data = zlib.compress(bytes(20))
    unknown = chunk(b"ABCD", b"")
    end = whole.index(b"IDAT") - 4
    refusals = [
        refused(decode, whole[:-12]),
        refused(decode, whole[: len(whole) - 20]),
        refused(decode, whole[:end] + unknown + whole[end:]),
        refused(decode, whole[:end] + bytes(4) + b"\0\0\0\0" + whole[end:]),
        refused(decode, whole[:29] + b"\0" + whole[30:]),
        refused(decode, whole[:33] + whole[8:33] + whole[33:]),
        refused(decode, png(0, 8, (4, 4), data=[data[:-9]])),
        refused(decode, png(0, 8, (4, 4), data=[b""])),
        refused(decode, png(0, 8, (4, 4), data=[zlib.compress(b"\x05" * 20)])),
        refused(decode, png(3, 8, (4, 4)).replace(b"PLTE", b"plte")),
    ]
    assert refusals == [
        ("ImageError", "truncated PNG: no end chunk in 74 bytes"),
        ("ImageError", "truncated PNG: its IDAT chunk ends at byte 74 of 66"),
        ("ImageError", "unsupported PNG: unknown critical chunk ABCD"),
        ("ImageError", "damaged PNG: no chunk begins at byte 33"),
        ("ImageError", "damaged PNG: the CRC of its IHDR chunk at byte 8 does not match"),
        ("ImageError", "damaged PNG: its IHDR chunk at byte 33 is out of place"),
        ("ImageError", "damaged PNG: its image data do not inflate to the size in its header"),
        ("ImageError", "damaged PNG: its image data do not inflate to the size in its header"),
        ("ImageError", "damaged PNG: a row has a filter that does not exist"),
        ("ImageError", "damaged PNG: it has no valid palette before its image data"),
    ]
    assert decode(png(0, 8, (4, 4), data=[data[:5], data[5:], b"more"])).tolist() == [[[0]] * 4] * 4
    surplus = zlib.compress(bytes(20) + b"more")
    assert decode(png(0, 8, (4, 4), data=[surplus])).tolist() == [[[0]] * 4] * 4


def test_memory_that_libraries_do_not_get_is_not_damage_of_an_image() -> None:
    for code in (cv2.Error.StsNoMem, cv2.Error.StsBadArg):
        error = cv2.error("why")
        error.code, error.err = code, "why"
        with pytest.raises(MemoryError if code == cv2.Error.StsNoMem else ImageError) as raised, opencv("try it"):
            raise error
        if code != cv2.Error.StsNoMem:
            assert str(raised.value) == "cannot try it: OpenCV: why"


def test_sizes_methods_and_places_out_of_range_are_refused() -> None:
    array = photo(4, 5)
    refusals = [
        refused(resample, array, 0, 5, "area"),
        refused(resample, array, 5, 0, "nearest"),
        refused(resample, array, 5, 5, "cubic"),
        refused(crop, array, 0, 5, "center"),
        refused(crop, array, 5, 0, "center"),
        refused(crop, array, 5, 5, "middle"),
        refused(resample, array[0], 5, 5, "area"),
        refused(convert_dtype, array.astype("uint32"), "float16"),
        refused(convert_dtype, array, "complex64"),
        refused(cast, array, "bool"),
    ]
    assert refusals == [
        ("ValueError", "cannot resize to 0x5 by area"),
        ("ValueError", "cannot resize to 5x0 by nearest"),
        ("ValueError", "cannot resize to 5x5 by cubic"),
        ("ValueError", "cannot crop to 0x5 at center"),
        ("ValueError", "cannot crop to 5x0 at center"),
        ("ValueError", "cannot crop to 5x5 at middle"),
        ("ImageError", "not an image (height, width, channels): an array of shape (5, 3)"),
        ("ImageError", "float16 cannot hold the range of uint32: convert to float32 first"),
        (
            "ImageError",
            f"dtype complex64 is not supported: only {DTYPES}",
        ),
        (
            "ImageError",
            f"dtype bool is not supported: only {DTYPES}",
        ),
    ]


def test_images_of_many_channels_are_resized_as_each_channel_alone() -> None:
    many = np.concatenate([photo(20, 30), noise(20, 30, 3)], axis=2)
    for method in ("bilinear", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic", "nearest"):
        for antialias in (False, True):
            made = resample(many, 7, 45, method, antialias=antialias)
            parts = [resample(many[..., n : n + 1], 7, 45, method, antialias=antialias) for n in range(6)]
            assert (made.shape, made.dtype) == ((7, 45, 6), parts[0].dtype)
            np.testing.assert_allclose(made, np.concatenate(parts, axis=2), atol=1e-3)
            expected = tf.image.resize(many, (7, 45), method, antialias=antialias).numpy()
            np.testing.assert_allclose(made, expected, atol=0.01)
            same = resample(many, 20, 30, method, antialias=antialias)
            expected = tf.image.resize(many, (20, 30), method, antialias=antialias).numpy()
            np.testing.assert_allclose(same, expected, atol=0.01)


def test_dtypes_are_converted_and_cast_as_by_tensorflow() -> None:
    levels = {
        "uint8": [0, 1, 127, 255],
        "uint16": [0, 1, 32767, 65535],
        "int16": [-32768, -1, 0, 32767],
        "int32": [-(2**31), 0, 1 << 24, 2**30],
        "float32": [0.0, 0.25, 0.5, 0.999],
        "float64": [0.0, 0.25, 0.5, 0.999],
    }
    for source, values in levels.items():
        array = np.array(values, source).reshape(2, 2, 1)
        for target in levels:
            made = convert_dtype(array, target)
            assert made.dtype == target
            np.testing.assert_array_equal(made, tf.image.convert_image_dtype(array, target).numpy())
            if not (source == "float64" and target == "int32"):
                np.testing.assert_array_equal(cast(array, target), tf.saturate_cast(array, target).numpy())
    assert convert_dtype(array, "float64") is array
    wide = np.array([[[-0.9], [254.9], [300.0], [-math.inf], [math.inf]]], np.float32)
    assert cast(wide, "uint8").tolist() == [[[0], [254], [255], [0], [255]]]
    assert np.isnan(cast(np.full((1, 1, 1), math.nan), "float32")).all()


def test_distinct_values_are_counted_and_shown_if_they_are_few() -> None:
    assert distinct_values(np.array([[1, 2], [2, 1]])) == {1, 2}
    assert distinct_values(np.array([[[1], [2]]], np.uint8)) == {1, 2}
    assert distinct_values(np.array([[[1, 2, 3], [1, 2, 3], [3, 2, 1]]], np.uint8)) == {(1, 2, 3), (3, 2, 1)}
    assert distinct_values(np.array([[[1, 2], [3, 4]]], np.int32)) == {(1, 2), (3, 4)}
    shown = [describe_values(values) for values in ([], [3], [2, 1], range(16), range(17), range(1000), range(5000))]
    assert shown == [
        "0 distinct values: ",
        "1 distinct value: 3",
        "2 distinct values: 1, 2",
        "16 distinct values",
        "17 distinct values",
        "1,000 distinct values",
        "more than 4,096 distinct values",
    ]


def test_a_jpeg_is_decoded_at_the_least_size_that_is_large_enough() -> None:
    data = jpeg(photo(101, 64))
    expected = {
        (1, 1): (13, 8),
        (13, 8): (13, 8),
        (14, 8): (26, 16),
        (13, 9): (26, 16),
        (26, 16): (26, 16),
        (27, 16): (51, 32),
        (51, 32): (51, 32),
        (52, 1): (101, 64),
        (101, 64): (101, 64),
        (500, 500): (101, 64),
    }
    sizes = {at_least: decode_jpeg(data, at_least=at_least).shape[:2] for at_least in expected}
    assert sizes == expected


# --- Headers ---


def tiff(*pages: dict[int, tuple[int, ...]], order: str = "<") -> bytes:
    """A TIFF of pages with tags of long integers."""
    data = bytearray((b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8))
    for number, tags in enumerate(pages):
        entries = b""
        after = len(data) + 2 + 12 * len(tags) + 4
        more = b""
        for tag, values in tags.items():
            packed = struct.pack(f"{order}{len(values)}I", *values)
            if len(packed) > 4:
                entries += struct.pack(f"{order}HHII", tag, 4, len(values), after + len(more))
                more += packed
            else:
                entries += struct.pack(f"{order}HHI", tag, 4, len(values)) + packed
        following = after + len(more) if number + 1 < len(pages) else 0
        data += struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", following) + more
    return bytes(data)


PAGE = {256: (7,), 257: (5,), 258: (8, 8, 8), 259: (1,), 262: (2,), 273: (8,), 277: (3,), 279: (4,)}


def test_pages_of_a_tiff_have_sizes_and_damage_is_named() -> None:
    for order in "<>":
        data = tiff(PAGE, {**PAGE, 256: (70000,), 259: (34712,)}, order=order)
        assert [*tiff_pages(data)] == [(5, 7, 3, True), (5, 70000, 3, False)]
    assert [*tiff_pages(tiff({256: (7,), 257: (5,), 273: (8,), 279: (1,)}))] == [(5, 7, 1, False)]
    data = tiff(PAGE)
    loop = data[: 8 + 2 + 12 * 8] + struct.pack("<I", 8) + data[8 + 2 + 12 * 8 + 4 :]
    faults = [
        refused(lambda data=data: [*tiff_pages(data)])
        for data in (
            loop,
            data[:9],
            data[:4] + bytes(4),
            tiff({**PAGE, 273: (1 << 20,)}),
            tiff({**PAGE, 279: (len(data) - 7,)}),
            tiff({tag: values for tag, values in PAGE.items() if tag != 273}),
            tiff({**PAGE, 256: (0,)}),
        )
    ]
    assert faults == [
        ("ValueError", "its pages do not end"),
        ("ValueError", "it is cut short"),
        ("ValueError", "it has no page"),
        ("ValueError", "it is cut short: pixels are past its end"),
        ("ValueError", "it is cut short: pixels are past its end"),
        ("ValueError", "a page has no pixels"),
        ("ValueError", "a page has no pixels"),
    ]
    assert [*tiff_pages(tiff({**PAGE, 279: (len(data) - 8,)}))] == [(5, 7, 3, True)]


def test_essentials_of_a_jpeg_lack_what_does_not_affect_its_pixels() -> None:
    comment = b"\xff\xfe\x00\x05abc"
    private = b"\xff\xe5\x00\x04xy"
    with_more = SMALL[:2] + comment + private + SMALL[2:]
    essentials = jpeg_essentials(with_more)
    assert essentials
    assert essentials == jpeg_essentials(SMALL)
    assert comment not in essentials
    assert np.array_equal(decode(essentials), decode(SMALL))
    assert jpeg_essentials(SMALL[:-2]) is None
    assert jpeg_essentials(SMALL[:200]) is None
    assert jpeg_essentials(SMALL[:2]) is None
    assert jpeg_essentials(SMALL[:2] + b"\xff\xd9") is None


def test_progressive_jpegs_that_lack_scans_are_told_from_whole_ones() -> None:
    progressive = jpeg(photo(40, 40), progressive=True)
    scans = [place for place in range(len(progressive) - 1) if progressive[place : place + 2] == b"\xff\xda"]
    assert len(scans) > 3
    assert not lacks_scans(progressive)
    assert not lacks_scans(SMALL)
    assert not lacks_scans(b"\xff\xd8")
    for place in scans[1:]:
        assert lacks_scans(progressive[:place] + b"\xff\xd9")
        assert lacks_scans(progressive[:place])


# --- Maps ---


def test_maps_of_rotations_mirrors_and_crops_move_edges_points_and_areas() -> None:
    size = (4, 6)  # height and width
    corner = np.array([[1.0, 1.0, 2.0, 3.0]])
    moves = {
        "0": rotated(size, 0),
        "90": rotated(size, 90),
        "180": rotated(size, 180),
        "270": rotated(size, 270),
        "-90": rotated(size, -90),
        "360": rotated(size, 360),
        "450": rotated(size, 450),
        "mirror": mirrored(size),
        "scaled": scaled(size, (8, 3)),
        "placed": placed(size, (8, 12), (10, 10), 1, -2),
    }
    assert {name: (move.after, move.scale) for name, move in moves.items()} == {
        "0": (size, 1),
        "90": ((6, 4), 1),
        "180": (size, 1),
        "270": ((6, 4), 1),
        "-90": ((6, 4), 1),
        "360": (size, 1),
        "450": ((6, 4), 1),
        "mirror": (size, 1),
        "scaled": ((8, 3), 1),
        "placed": ((10, 10), 4),
    }
    assert {name: move_edges(corner, move).tolist() for name, move in moves.items()} == {
        "0": [[1, 1, 2, 3]],
        "90": [[1, 1, 3, 2]],
        "180": [[4, 1, 5, 3]],
        "270": [[1, 4, 3, 5]],
        "-90": [[1, 4, 3, 5]],
        "360": [[1, 1, 2, 3]],
        "450": [[1, 1, 3, 2]],
        "mirror": [[4, 1, 5, 3]],
        "scaled": [[0.5, 2, 1, 6]],
        "placed": [[0, 3, 2, 7]],
    }
    turned = rotated(size, 30)
    assert (turned.after, round(turned.scale, 12)) == (size, 1)
    np.testing.assert_allclose(follow_points(np.array([[2.5, 1.5]]), [turned]), [[2.5, 1.5]])
    sine, cosine = math.sin(math.radians(30)), math.cos(math.radians(30))
    np.testing.assert_allclose(follow_points(np.array([[3.5, 1.5]]), [turned]), [[2.5 + cosine, 1.5 + sine]])
    assert clip_edges(np.array([[-1.0, -1.0, 9.0, 9.0]]), size).tolist() == [[0, 0, 6, 4]]
    boxes = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    followed = follow_boxes(boxes, [moves["placed"], mirrored((10, 10))])
    assert followed.edges.tolist() == [[8, 1, 10, 5], [10, 3, 10, 3]]
    assert followed.visible.tolist() == [0.5, 0]
    assert followed.scale == 4


def test_masks_follow_their_image_and_must_have_its_size() -> None:
    mask = np.array([[1, 2, 3], [4, 5, 6]])
    assert follow_mask(mask, [mirrored((2, 3))]).tolist() == [[3, 2, 1], [6, 5, 4]]
    assert follow_mask(mask, [rotated((2, 3), 90)]).tolist() == [[4, 1], [5, 2], [6, 3]]
    moved = follow_mask(mask, [placed((2, 3), (2, 3), (3, 3), 1, -1)], fill=9)
    assert moved.tolist() == [[9, 9, 9], [2, 3, 9], [5, 6, 9]]
    message = "the mask has 2x3 pixels, but its image 3x2 (height x width)"
    assert refused(follow_mask, mask, [mirrored((3, 2))]) == ("ValueError", message)


def test_orientations_of_exif_turn_and_mirror_maps_as_they_do_images() -> None:
    size = (4, 6)
    mask = np.arange(24).reshape(size)
    expected = {
        1: mask,
        2: mask[:, ::-1],
        3: mask[::-1, ::-1],
        4: mask[::-1],
        5: mask.T,
        6: mask[::-1].T,
        7: mask[::-1, ::-1].T,
        8: mask[:, ::-1].T,
    }
    corner = np.array([[1.0, 0.0, 2.0, 1.0]])  # the pixel in row 0 and column 1, which is 1
    for orientation, turned in expected.items():
        move = oriented(size, orientation)
        assert (move.after, move.scale) == (turned.shape, 1)
        np.testing.assert_array_equal(follow_mask(mask, [move]), turned)
        ((left, top, right, bottom),) = move_edges(corner, move)
        assert (right - left, bottom - top, turned[int(top), int(left)]) == (1, 1, 1)
    assert oriented(size, 0) == oriented(size, 9) == oriented(size, 1)


def test_masks_are_scaled_pasted_and_turned_by_nearest_pixels() -> None:
    mask = np.arange(1, 13).reshape(3, 4)
    doubled = mask.repeat(2, axis=0).repeat(2, axis=1)
    assert follow_mask(mask, [scaled((3, 4), (6, 8))]).tolist() == doubled.tolist()
    pasted = follow_mask(mask, [placed((3, 4), (6, 8), (9, 10), 2, 1)], fill=-1)
    assert pasted[2:8, 1:9].tolist() == doubled.tolist()
    assert (pasted == -1).sum() == 9 * 10 - 6 * 8
    colours = np.stack([mask, mask + 20], axis=2)
    assert follow_mask(colours, [scaled((3, 4), (6, 8))])[..., 1].tolist() == (doubled + 20).tolist()
    square = np.arange(1, 26).reshape(5, 5)
    turned = follow_mask(square, [rotated((5, 5), 45)], fill=0)
    assert turned[2, 2] == square[2, 2]
    assert [turned[0, 0], turned[0, 4], turned[4, 0], turned[4, 4]] == [0] * 4
    assert turned[0, 2] == square[1, 1]
    assert {*turned.ravel().tolist()} <= {0, *square.ravel().tolist()}


# --- Pixels ---


def test_indices_of_a_png_are_its_stored_levels_whatever_their_depth() -> None:
    for color in (0, 3):
        for depth in (1, 2, 4, 8):
            levels = np.random.default_rng(color * 100 + depth).integers(0, 1 << depth, (33, 40, 1))
            for interlaced in (False, True):
                data = png(color, depth, interlaced=interlaced)
                found = decode_indices(data, max_pixels=33 * 40)
                assert (found.dtype, found.tolist() == levels.tolist()) == (np.uint8, True)


def test_images_that_cannot_be_encoded_say_why() -> None:
    array = photo(4, 5)
    refusals = [
        refused(encode, array, "gif"),
        refused(encode, array, "jpeg", 0),
        refused(encode, array, "jpeg", 101),
        refused(encode, array.astype("uint16"), "png"),
        refused(encode, photo(4, 5, 2), "jpeg"),
        refused(encode, photo(4, 5, 4), "jpeg"),
        refused(encode, np.zeros((4, 5, 5), np.uint8), "png"),
    ]
    assert refusals == [
        ("ValueError", "cannot encode as gif of quality 95: jpeg or png, 1 to 100"),
        ("ValueError", "cannot encode as jpeg of quality 0: jpeg or png, 1 to 100"),
        ("ValueError", "cannot encode as jpeg of quality 101: jpeg or png, 1 to 100"),
        ("ImageError", "cannot encode uint16 with 3 channels as PNG"),
        ("ImageError", "cannot encode uint8 with 2 channels as JPEG"),
        ("ImageError", "cannot encode uint8 with 4 channels as JPEG"),
        ("ImageError", "cannot encode uint8 with 5 channels as PNG"),
    ]
    for channels in (1, 2, 3, 4):
        np.testing.assert_array_equal(decode(encode(photo(9, 7, channels), "png")), photo(9, 7, channels))
    assert len(encode(array, "jpeg", 1)) < len(encode(array, "jpeg", 100))


def test_frames_are_limited_by_all_of_their_pixels() -> None:
    frames = [PIL.Image.fromarray(noise(20, 30, 3) // np.uint8(number + 1)) for number in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    data = file.getvalue()
    made = decode_frames(data, max_pixels=1800)
    assert made.shape == (3, 20, 30, 3)
    np.testing.assert_array_equal(made, tf.io.decode_gif(data).numpy())
    message = "3 frames of 20x30 pixels are more than the limit of 1799"
    assert refused(lambda: decode_frames(data, max_pixels=1799)) == ("ImageError", message)


def test_the_smallest_webp_is_decoded() -> None:
    data = by_pillow(np.full((1, 1, 3), 200, np.uint8), "WEBP", "RGB", lossless=True)
    assert len(data) < 40
    assert decode(data).tolist() == [[[200] * 3]]


def test_frames_without_pixels_and_animations_as_one_image_are_refused() -> None:
    frames = [PIL.Image.fromarray(noise(20, 30, 3) // np.uint8(number + 1)) for number in range(2)]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:])
    assert refused(decode, file.getvalue()) == ("ImageError", "the WebP is an animation, not one image")
    screen = struct.pack("<6sHHBBB", b"GIF89a", 3, 0, 0x80, 0, 0) + bytes(6)
    frame = struct.pack("<BHHHHB", 0x2C, 0, 0, 3, 0, 0) + b"\2\2\x4c\1\0"
    assert refused(lambda: decode_frames(screen + frame + b";")) == ("ImageError", "damaged GIF: 0 rows of 3 pixels")
