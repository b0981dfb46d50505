"""JPEG images of 24 different sizes, and the template of the shards that hold them."""

from __future__ import annotations

import io

import PIL.Image

from images import astronaut

COUNT = 24


def encoded(number: int) -> bytes:
    file = io.BytesIO()
    image = PIL.Image.fromarray(astronaut()).resize((30 + number, 40 - number))
    image.save(file, "JPEG")
    return file.getvalue()


IMAGES = [encoded(number) for number in range(COUNT)]


ALL = "train-{0..1}.tar", "train-2.tar.gz"
