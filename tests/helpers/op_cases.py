"""Images, samples and oracles for the tests of ops."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import PIL.Image
import tensorflow as tf

from images import astronaut
from read_back import load_both
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.ops import Decode, Op
from tar2tf_cli.spec.conversion import Conversion, Input, Output

SIZES = [(24, 32), (31, 17), (40, 40), (9, 50), (24, 33), (64, 48)]


def encoded(size: tuple[int, int], format: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """A photograph of a height and width."""
    file = io.BytesIO()
    image = PIL.Image.fromarray(astronaut()).resize(size[::-1]).convert(mode)
    image.save(file, format, **({"quality": 90} if format == "JPEG" else {}), **options)
    return file.getvalue()


IMAGES = {f"{number:04d}": encoded(size, mode="L" if number == 1 else "RGB") for number, size in enumerate(SIZES)}


def decoded(data: bytes) -> tf.Tensor:
    """What TensorFlow makes of an image."""
    return tf.io.decode_image(data, expand_animations=False)


def cropped(image: tf.Tensor) -> tf.Tensor:
    """The largest centred square."""
    height, width = image.shape[:2]
    side = min(height, width)
    return tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)


def run(bucket: Path, out: Path, *ops: Op, workers: int = 1, **options: Any) -> Summary:
    """A conversion of a bucket to `out/all.record`."""
    output = Output(str(out / "all.record"))
    return convert(Conversion(Input(str(bucket)), output, ops=ops, **options), workers=workers)


def loaded(bucket: Path, out: Path, *ops: Op, **options: Any) -> list[dict[str, tf.Tensor]]:
    """What `load_dataset` returns of a conversion."""
    manifest = run(bucket, out, *ops, **options).manifest
    assert manifest
    return load_both(manifest)


D = Decode("jpg")
