"""Padding, cropping and turning, against TensorFlow and Pillow, on images of odd sizes and kinds."""

from __future__ import annotations

import io
import os
import zlib

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from images import chunk, noise, photo, png
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image import codecs, headers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

pytestmark = pytest.mark.spread

SIZES = [(1, 1), (1, 2), (3, 1), (7, 8), (17, 33), (64, 64), (99, 101), (240, 320), (900, 3), (3, 5000), (5000, 3)]
TARGETS = [(1, 1), (2, 3), (8, 7), (33, 17), (64, 64), (224, 224), (100, 1)]
CASES = [(size, target, 1 + place % 4) for place, size in enumerate(SIZES) for target in TARGETS]
DTYPES = ("uint8", "uint16", "float32")


def picture(size: tuple[int, int], channels: int, dtype: str) -> np.ndarray:
    return noise(*size, channels) if dtype == "uint8" else noise(*size, channels).astype(dtype)


@pytest.mark.parametrize("method", ["bilinear", "nearest", "area", "lanczos3"])
def test_padding_gives_what_tensorflow_gives(method: str) -> None:
    assert len(CASES) * len(DTYPES) > 200
    compared = 0
    for size, target, channels in CASES:
        for dtype in DTYPES if method == "nearest" else DTYPES[:1]:
            pixels = picture(size, channels, dtype)
            ours = image.pad(pixels, *target, method=method)
            assert ours.shape == (*target, channels)
            try:
                theirs = tf.image.resize_with_pad(pixels, *target, method=method).numpy()
            except tf.errors.InvalidArgumentError:  # a side without a pixel
                continue
            compared += 1
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=0 if method == "nearest" else 0.01)
    assert compared > 40


def test_new_pixels_are_filled_and_the_others_are_not() -> None:
    pixels = photo(20, 40)
    for fill in (0, 128, 255):
        padded = image.pad(pixels, 40, 40, fill, "nearest")
        np.testing.assert_array_equal(padded[10:30], pixels)
        assert set(np.unique(np.concatenate([padded[:10], padded[30:]]))) == {fill}
    assert image.pad(pixels, 40, 40, -7.5)[0, 0, 0] == np.float32(-7.5)
    assert image.pad(pixels, 40, 40, 999, "nearest")[0, 0, 0] == 255
    assert image.pad(pixels, 40, 40, -1, "nearest")[0, 0, 0] == 0


def test_a_mask_that_is_padded_keeps_its_classes() -> None:
    mask = np.random.default_rng(0).choice(np.array([0, 1, 5, 20], np.uint8), (99, 101, 1))
    for target in TARGETS:
        assert set(np.unique(image.pad(mask, *target, 255, "nearest"))) <= {0, 1, 5, 20, 255}


def test_cropping_gives_what_tensorflow_gives() -> None:
    for size, target, channels in CASES:
        for dtype in DTYPES:
            pixels = picture(size, channels, dtype)
            theirs = tf.image.resize_with_crop_or_pad(pixels, *target).numpy()
            ours = image.crop(pixels, *target)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def test_a_side_or_corner_is_cut_out() -> None:
    pixels = photo(60, 90)
    starts = {"top": (0, 20), "bottom": (20, 20), "left": (10, 0), "right": (10, 40), "center": (10, 20)}
    starts |= {"top-left": (0, 0), "top-right": (0, 40), "bottom-left": (20, 0), "bottom-right": (20, 40)}
    assert set(starts) | {"random"} == set(image.PLACES)
    for place, (top, left) in starts.items():
        theirs = tf.image.crop_to_bounding_box(pixels, top, left, 40, 50)
        np.testing.assert_array_equal(image.crop(pixels, 40, 50, place), theirs)


def test_a_random_part_depends_on_seed_and_key_alone_and_lies_anywhere() -> None:
    pixels = np.arange(12 * 9, dtype=np.uint8).reshape(12, 9, 1)

    def first(seed: int, key: str) -> int:
        part = image.crop(pixels, 10, 8, "random", seed=seed, key=key)
        np.testing.assert_array_equal(part, part[0, 0] + pixels[:10, :8])
        return int(part[0, 0, 0])

    assert {first(0, str(key)) for key in range(200)} == {top * 9 + left for top in range(3) for left in range(2)}
    assert [first(3, str(key)) for key in range(20)] == [first(3, str(key)) for key in range(20)]
    assert [first(3, str(key)) for key in range(20)] != [first(4, str(key)) for key in range(20)]
    np.testing.assert_array_equal(image.crop(pixels, 20, 20, "random"), image.crop(pixels, 20, 20))


# --- EXIF ---

KINDS = [
    ("JPEG", {"quality": 90}),
    ("PNG", {}),
    ("WEBP", {"lossless": True}),
]


def exif(orientation: int | None, *, big_endian: bool = False) -> bytes:
    tags = PIL.Image.Exif()
    if orientation is not None:
        tags[0x0112] = orientation
    tags[0x010E] = "a description that does not fit into its tag"
    tags.endian = ">" if big_endian else "<"
    return tags.tobytes()


def test_an_image_is_turned_as_pillow_turns_it() -> None:
    cases = 0
    for format, options in KINDS:
        for orientation in range(10):
            for number, size in enumerate([(1, 1), (1, 7), (3, 2), (40, 60), (3, 500)]):
                picture = PIL.Image.fromarray(photo(*size))
                if format == "PNG" and number % 2:
                    picture = picture.convert(("L", "RGBA", "LA")[orientation % 3])
                file = io.BytesIO()
                picture.save(file, format, exif=exif(orientation, big_endian=bool(number % 2)), **options)
                data = file.getvalue()
                assert headers.orientation(data) == (orientation if 1 <= orientation <= 8 else 1)
                theirs = np.array(PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data))))
                pixels = codecs.decode(data)
                theirs = theirs.reshape(*theirs.shape[:2], -1)
                ours = image.oriented(pixels, headers.orientation(data))
                assert ours.shape == theirs.shape
                if format == "JPEG":  # Pillow's DCT and upsampling are others
                    upright = PIL.Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels)
                    upright.getexif()[0x0112] = orientation
                    theirs = np.array(PIL.ImageOps.exif_transpose(upright)).reshape(ours.shape)
                np.testing.assert_array_equal(ours, theirs)
                assert ours.flags["C_CONTIGUOUS"]
                cases += 1
    assert cases > 100


def xmp(orientation: int, *, as_element: bool = False) -> bytes:
    rest = f"><tiff:Orientation>{orientation}<" if as_element else f' tiff:Orientation="{orientation}">'
    return f"<x:xmpmeta><rdf:Description{rest}/rdf:Description></x:xmpmeta>".encode()


def with_texts(*texts: tuple[bytes, bytes]) -> bytes:
    """A PNG with these chunks of text."""
    data = png(2)
    return data[:-12] + b"".join(chunk(*text) for text in texts) + data[-12:]


PROFILE = b"\nexif\n %d\n%s\n" % (len(exif(8)), exif(8).hex().encode())
IN_TEXT = {
    "xmp": with_texts((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6))),
    "compressed xmp": with_texts((b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp(5, as_element=True)))),
    "another text of this name": with_texts((b"tEXt", b"of XML:com.adobe.xmp\0" + xmp(6))),
    "exif of ImageMagick": with_texts((b"tEXt", b"Raw profile type exif\0" + PROFILE)),
    "compressed exif of ImageMagick": with_texts((b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(PROFILE))),
    "exif of ImageMagick and exif": with_texts((b"tEXt", b"Raw profile type exif\0" + PROFILE), (b"eXIf", exif(3)[6:])),
    "exif and xmp": with_texts((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6)), (b"eXIf", exif(3)[6:])),
}


def theirs_of(data: bytes) -> int:
    picture = PIL.Image.open(io.BytesIO(data))
    picture.load()
    return int(picture.getexif().get(0x0112, 1))


@pytest.mark.parametrize("name", IN_TEXT)
def test_the_texts_of_a_png_turn_it_as_for_pillow(name: str) -> None:
    assert headers.orientation(IN_TEXT[name]) == theirs_of(IN_TEXT[name])
    assert (theirs_of(IN_TEXT[name]) > 1) == (name != "another text of this name")


@pytest.mark.parametrize("format", ["JPEG", "WEBP"])
@pytest.mark.parametrize("in_exif", [None, 0, 3])
def test_xmp_turns_an_image_whose_exif_does_not(format: str, in_exif: int | None) -> None:
    file = io.BytesIO()
    tags = exif(in_exif)
    PIL.Image.fromarray(photo(20, 30)).save(file, format, exif=tags, xmp=xmp(8))
    assert headers.orientation(file.getvalue()) == max(theirs_of(file.getvalue()), 1)
    assert theirs_of(file.getvalue()) == (8 if in_exif is None else in_exif)


@pytest.mark.parametrize(
    "texts",
    [
        [(b"iTXt", b"XML:com.adobe.xmp\0\1")],
        [(b"zTXt", b"Raw profile type exif\0\0no")],
        [(b"tEXt", b"Raw profile type exif\0\n\n\nno")],
    ],
)
def test_damaged_texts_do_not_turn_a_png(texts: list[tuple[bytes, bytes]]) -> None:
    assert headers.orientation(with_texts(*texts)) == 1


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff\xe1", png(2), b"RIFF\0\0\0\0WEBPVP8 ", b"GIF89a", b"\xff\xd8\xff"]
)
def test_what_has_no_orientation_that_can_be_read_is_upright(data: bytes) -> None:
    assert headers.orientation(data) == 1


def test_damaged_exif_is_no_orientation() -> None:
    file = io.BytesIO()
    PIL.Image.fromarray(photo(20, 30)).save(file, "JPEG", exif=exif(6))
    data = file.getvalue()
    start = data.index(b"Exif\0\0")
    for place in range(start, start + 40):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        assert 1 <= headers.orientation(bytes(changed)) <= 8
    assert headers.orientation(data[: start + 10]) == 1
