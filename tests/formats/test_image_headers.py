"""Format and shape of an image by its header alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from images import (
    PLAIN_BMP,
    SMALL,
    by_pillow,
    by_tensorflow,
    photo,
    png,
)
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.image import headers

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
    assert headers.header(data) == (format.lower(), 33, 47, channels)
    assert headers.image_format(data) == format.lower()


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": False}, {"exif": b"Exif\0\0"}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_webp_header_of_each_kind_is_read(mode: str, options: dict[str, Any]) -> None:
    data = by_pillow(photo(300, 470, 4) // 2, "WEBP", mode, **options)
    assert headers.header(data)[1:] == by_tensorflow(data).shape


@pytest.mark.parametrize("data", [SMALL, png(3), PLAIN_BMP, by_pillow(photo(5, 5), "GIF", "P")])
def test_a_header_cut_short_is_an_error(data: bytes) -> None:
    with pytest.raises(ImageError, match="truncated"):
        headers.header(data[:9])


def test_headers_and_angles_need_neither_numpy_nor_opencv() -> None:
    code = (
        "import sys; from tar2tf_cli.formats import image; from tar2tf_cli.formats.image.headers import header;"
        "print(header(sys.stdin.buffer.read()).width, image.random_angle(1, 'a') < 360,"
        "sorted({'numpy', 'cv2', 'simplejpeg', 'tensorflow'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=SMALL, capture_output=True, check=True, env=environment)
    assert done.stdout.decode().strip() == "30 True []"
