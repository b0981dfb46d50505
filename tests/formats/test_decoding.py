"""Any bytes are decoded, or refused by a named error; nothing is printed."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import PIL.Image
import pytest
import soundfile

from images import by_pillow, jpeg, photo, png
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.decoding import ImageOptions, can_decode, decode
from tar2tf_cli.formats.image.headers import orientation


def sound(format: str, subtype: str) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(-9999, 9999, (3000, 2), np.int16)
    soundfile.write(file, noise, 16000, format=format, subtype=subtype)
    return file.getvalue()


def saved(save: Any, *values: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *values, **named)
    return file.getvalue()


def seeds() -> list[bytes]:
    exif, image = PIL.Image.Exif(), PIL.Image.fromarray(photo(20, 30))
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [image.rotate(20), image.rotate(40)]}
    return [
        *(sound("WAV", subtype) for subtype in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT")),
        sound("FLAC", "PCM_16"), sound("OGG", "VORBIS"), sound("OGG", "OPUS"),
        saved(np.save, np.arange(9.0)), saved(np.savez, x=np.arange(99.0)), saved(np.savez_compressed, x=np.zeros(99)),
        saved(image.save, "GIF", **frames), saved(image.save, "WEBP", **frames),
        by_pillow(photo(20, 30), "WEBP", "RGB", exif=exif.tobytes()), jpeg(photo(20, 30), exif=exif.tobytes()),
        png(3), png(6, 16), png(0, 16, interlaced=True), by_pillow(photo(9, 9), "BMP", "RGB"),
    ]  # fmt: skip


def changed(data: bytearray, noise: random.Random) -> bytes:
    """Some bytes replaced, left out or doubled, or the end cut off."""
    for _ in range(noise.choice((0, 1, 1, 2, 3, 8))):
        place = noise.randrange(min(len(data), noise.choice((60, 200, len(data)))))
        length = noise.choice((1, 2, 4, 50))
        kind = noise.random()
        if kind < 0.7:
            data[place] = noise.choice((0, 255, 128, 127, 1, noise.randrange(256)))
        elif kind < 0.85 and length < len(data):
            del data[place : place + length]
        else:
            data[place:place] = data[place : place + length]
    return bytes(data[: noise.randrange(len(data) + 1)] if noise.random() < 0.2 else data)


def test_any_bytes_are_decoded_or_refused_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    noise, whole = random.Random(1), seeds()
    decoded = 0
    for _ in range(4000):
        data = changed(bytearray(noise.choice(whole)), noise)
        assert 1 <= orientation(data) <= 8
        try:
            decode(data, ImageOptions(noise.choice((0, 0, 0, 1, 3)), noise.choice(("uint8", "uint8", "uint16"))))
        except (SampleError, ValueError):
            continue
        decoded += 1
    assert decoded > 200
    assert capfd.readouterr().err == ""


def test_each_seed_is_decoded() -> None:
    for data in seeds():
        assert decode(data)
    assert can_decode("audio/wav")
    assert not can_decode("image/tiff")
