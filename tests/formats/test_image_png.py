"""PNGs that libpng warns about: the pixels of TensorFlow or an error, and nothing on stderr."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from images import by_tensorflow, chunk
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.image import codecs

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLORS = chunk(b"PLTE", bytes(range(30)))
ALPHA = chunk(b"tRNS", bytes(5))


def ihdr(color: int = 0, depth: int = 8, width: int = 8, height: int = 6, rest: bytes = bytes(3)) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBB", width, height, depth, color) + rest)


def noise(length: int, rows: int = 6, most: int = 256) -> bytes:
    """Rows of a filter and `length` bytes each."""
    rng = random.Random(length)
    return b"".join(b"\0" + bytes(rng.randrange(most) for _ in range(length)) for _ in range(rows))


def idat(rows: bytes) -> bytes:
    return chunk(b"IDAT", zlib.compress(rows))


GRAY, RGB, INDEXES = noise(8), noise(24), noise(8, most=10)
STREAM = zlib.compress(GRAY)
END = chunk(b"IEND", b"")

ODD = {
    "plain": [ihdr(), idat(GRAY), END],
    "wrong checksum": [ihdr(), chunk(b"IDAT", STREAM[:-1] + bytes([STREAM[-1] ^ 1])), END],
    "no checksum": [ihdr(), chunk(b"IDAT", STREAM[:-4]), END],
    "too many rows": [ihdr(), idat(GRAY + bytes(50)), END],
    "too few rows": [ihdr(), idat(GRAY[:-9]), END],
    "bytes behind the stream": [ihdr(), chunk(b"IDAT", STREAM + b"trailing"), END],
    "half a stream": [ihdr(), chunk(b"IDAT", STREAM[:20]), END],
    "not a stream": [ihdr(), chunk(b"IDAT", b"nothing compressed"), END],
    "no image data": [ihdr(), END],
    "two parts": [ihdr(), chunk(b"IDAT", STREAM[:20]), chunk(b"IDAT", STREAM[20:]), END],
    "no such filter": [ihdr(), idat(b"".join(b"\x09" + bytes(8) for _ in range(6))), END],
    "gray with a palette": [ihdr(), COLORS, idat(GRAY), END],
    "RGB with a palette": [ihdr(2), COLORS, idat(RGB), END],
    "RGB with half a palette": [ihdr(2), chunk(b"PLTE", bytes(31)), idat(RGB), END],
    "palette": [ihdr(3), COLORS, idat(INDEXES), END],
    "palette of no colours": [ihdr(3), chunk(b"PLTE", b""), idat(INDEXES), END],
    "palette of a third of a colour": [ihdr(3), chunk(b"PLTE", bytes(31)), idat(INDEXES), END],
    "palette of too many colours": [ihdr(3), chunk(b"PLTE", bytes(900)), idat(INDEXES), END],
    "palette of more colours than bits": [ihdr(3, 1), COLORS, idat(noise(1)), END],
    "no palette": [ihdr(3), idat(INDEXES), END],
    "palette behind the data": [ihdr(3), idat(INDEXES), COLORS, END],
    "two palettes": [ihdr(3), COLORS, COLORS, idat(INDEXES), END],
    "colours that the palette lacks": [ihdr(3), COLORS, idat(noise(8)), END],
    "transparency": [ihdr(3), COLORS, ALPHA, idat(INDEXES), END],
    "transparency twice": [ihdr(3), COLORS, ALPHA, ALPHA, idat(INDEXES), END],
    "transparency before the palette": [ihdr(3), ALPHA, COLORS, idat(INDEXES), END],
    "transparency of nothing": [ihdr(3), COLORS, chunk(b"tRNS", b""), idat(INDEXES), END],
    "transparency of too many colours": [ihdr(3), COLORS, chunk(b"tRNS", bytes(20)), idat(INDEXES), END],
    "two headers": [ihdr(), ihdr(), idat(GRAY), END],
    "no such depth": [ihdr(0, 3), idat(GRAY), END],
    "no such compression": [ihdr(rest=b"\1\0\0"), idat(GRAY), END],
    "no such filter method": [ihdr(rest=b"\0\1\0"), idat(GRAY), END],
    "no such interlacing": [ihdr(rest=b"\0\0\2"), idat(GRAY), END],
    "wider than libpng allows": [ihdr(width=2_000_000, height=1), idat(bytes(2_000_001)), END],
    "bytes in the end": [ihdr(), idat(GRAY), chunk(b"IEND", b"end")],
}


@pytest.mark.parametrize("name", ODD)
def test_what_tensorflow_decodes_is_decoded_without_a_word(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = SIGNATURE + b"".join(ODD[name])
    expected = by_tensorflow(data)
    codecs.decode(SIGNATURE + b"".join(ODD["plain"]))
    capfd.readouterr()
    try:
        found = codecs.decode(data)
    except ImageError:
        found = None
    assert capfd.readouterr().err == "", "libpng and OpenCV print nothing"
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("color", [0, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (8, 8), (33, 17)])
def test_interlaced_and_not(color: int, size: tuple[int, int]) -> None:
    from images import png

    for depth in (8,) if color == 3 else (8, 16):
        for interlaced in (False, True):
            data = png(color, depth, size, interlaced=interlaced)
            np.testing.assert_array_equal(codecs.decode(data), by_tensorflow(data))


def test_mutated_image_data(capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(7)
    for _ in range(150):
        stream = bytearray(STREAM)
        for _ in range(rng.randrange(1, 4)):
            stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        data = SIGNATURE + ihdr() + chunk(b"IDAT", bytes(stream)) + END
        expected = by_tensorflow(data)
        capfd.readouterr()
        try:
            found = codecs.decode(data)
        except ImageError:
            found = None
        assert capfd.readouterr().err == ""
        if expected is not None:
            np.testing.assert_array_equal(found, expected)


def test_a_png_cut_anywhere_is_an_image_error() -> None:
    whole = SIGNATURE + b"".join(ODD["plain"])
    for length in range(len(whole)):
        with pytest.raises(ImageError):
            codecs.decode(whole[:length])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "1", "I;16"])
def test_a_png_is_refused_without_its_pixels_exactly_if_it_is_with_them(mode: str) -> None:
    random = np.random.default_rng(7)
    pixels = Image.fromarray(random.integers(0, 256, (37, 41, 3), np.uint8))
    whole = io.BytesIO()
    (Image.new("I;16", (41, 37), 700) if mode == "I;16" else pixels.convert(mode)).save(whole, "png")
    codecs.check_png(whole.getvalue())
    refused = 0
    for _ in range(150):
        data = bytearray(whole.getvalue())
        at = int(random.integers(8, len(data)))
        if random.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << int(random.integers(8))
        outcomes = []
        for read in (codecs.decode, codecs.check_png):
            try:
                read(bytes(data))
                outcomes.append("")
            except ImageError as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1]
        refused += bool(outcomes[0])
    assert refused > 50


def test_a_large_png_is_checked_in_little_memory() -> None:
    rows = b"".join(b"\0" + bytes([row % 251]) * 12_000 for row in range(4000))  # of which all but the filters may vary
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4000, 4000, 8, 2, 0, 0, 0))
    good, bad = (
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
        for data in (rows, rows[: 12_001 * 3999] + b"\5" + rows[12_001 * 3999 + 1 :])
    )
    del rows
    tracemalloc.start()
    codecs.check_png(good)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    with pytest.raises(ImageError, match="a filter that does not exist"):
        codecs.check_png(bad)
    with pytest.raises(ImageError, match="more than the limit of 100"):
        codecs.check_png(good, max_pixels=100)
