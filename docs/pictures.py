"""Draws docs/reference/ops/*.jpg, a picture of what each op on images does, by running the ops.

`python man/generate.py` runs it, too. A picture that still shows what its op does stays as it is.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
import skimage.data

from tar2tf_cli.ops import OPS, OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.image import ImageOp

FOLDER = Path(__file__).parent / "reference" / "ops"
HEIGHT, MARGIN, LINE = 150, 8, 18
GRAY, BLACK, BLUE = (200, 200, 200), (40, 40, 40), (40, 90, 200)
FONT = PIL.ImageFont.load_default(12)


class Tile(NamedTuple):
    """A picture and what is written below it."""

    pixels: np.ndarray
    text: str


def photo() -> np.ndarray:
    """A photograph of 120 x 160 pixels."""
    return cv2.resize(skimage.data.astronaut()[:360, 40:], (160, 120), interpolation=cv2.INTER_AREA)[:, :160]


def mask() -> np.ndarray:
    """Regions of four classes, 30 x 40 pixels, with the gray levels of their indices in a palette of four."""
    rows, columns = np.mgrid[:30, :40]
    classes = (np.hypot(rows - 14, columns - 15) < 9) * 1 + (np.hypot(rows - 18, columns - 27) < 8) * 2
    return (classes * 60).astype(np.uint8)[..., None]


def encoded(pixels: np.ndarray, format: str = "PNG", **options: Any) -> bytes:
    """The pixels as a file."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels.squeeze()).save(file, format, **options)
    return file.getvalue()


def made(data: bytes, *ops: str) -> Any:
    """What ops make of an image in the entry jpg."""
    (sample,) = apply_ops({"__key__": "picture", "jpg": data}, [parse_op(op) for op in ops], OpContext())
    return sample["jpg"]


def tile(data: bytes, *ops: str, text: str = "", zoom: int = 1) -> Tile:
    """What ops make of an image, each pixel `zoom` times as wide."""
    pixels = made(data, *ops)
    shown = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).repeat(zoom, axis=0).repeat(zoom, axis=1)
    return Tile(shown.repeat(3, axis=2) if shown.shape[2] == 1 else shown, text or ops[-1])


def width_of(text: str) -> int:
    """How wide a text is in pixels."""
    return math.ceil(FONT.getlength(text))


def written(canvas: np.ndarray, text: str, place: tuple[int, int]) -> None:
    """Write a text into a picture, from a place on its baseline."""
    picture = PIL.Image.fromarray(canvas)
    PIL.ImageDraw.Draw(picture).text(place, text, BLACK, FONT, anchor="ls")
    canvas[...] = picture


def chart(op: str, values: np.ndarray, low: float, high: float) -> Tile:
    """What an op makes of numbers: a line from the least to the greatest of them."""
    results = next(apply_ops({"__key__": "", "jpg": values[None, :, None]}, [parse_op(op)], OpContext()))["jpg"].ravel()
    (left, right), (top, bottom) = (34, 200), (14, HEIGHT - 18)
    x = np.interp(values, (values[0], values[-1]), (left, right))
    y = np.interp(results.astype(float), (low, high), (bottom, top))
    canvas = np.full((HEIGHT, right + 14, 3), 255, np.uint8)
    cv2.rectangle(canvas, (left, top), (right, bottom), GRAY)
    cv2.polylines(canvas, [np.stack([x, y], axis=1).astype(np.int32)], False, BLUE, 2, cv2.LINE_AA)
    for number, end, height in ((low, left - 5, bottom + 4), (high, left - 5, top + 4)):
        written(canvas, f"{number:g}", (end - width_of(f"{number:g}"), height))
    for number, middle in ((values[0], left), (values[-1], right)):
        written(canvas, f"{number:g}", (middle - width_of(f"{number:g}") // 2, HEIGHT - 3))
    return Tile(canvas, f"{op} of {values.dtype}")


def pictures() -> dict[str, Sequence[Tile]]:
    """The tiles of each op."""
    source = encoded(photo())
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    lying = encoded(np.ascontiguousarray(np.rot90(photo())), exif=exif)
    classes = encoded(mask())
    before = tile(source, "decode:jpg", text="before")
    each = {
        "decode": [("decode:jpg",), ("decode:jpg,1",)],
        "resize": [("decode:jpg", "resize:jpg,60x60"), ("decode:jpg", "resize:jpg,short=60")],
        "pad": [("decode:jpg", "pad:jpg,100x100"), ("decode:jpg", "pad:jpg,140x100,fill=128")],
        "crop": [("decode:jpg", "crop:jpg,100x100"), ("decode:jpg", "crop:jpg,100,top-left"),
                 ("decode:jpg", "crop:jpg,140x180")],
        "rotate": [("decode:jpg", "rotate:jpg,90"), ("decode:jpg", "rotate:jpg,20")],
        "center_crop": [("decode:jpg", "center_crop:jpg")],
    }  # fmt: skip
    found = {op: [before, *(tile(source, *chain) for chain in chains)] for op, chains in each.items()}
    found["decode"] = found["decode"][1:]
    found["orient"] = [tile(lying, "decode:jpg"), tile(lying, "orient:jpg")]
    found["resize"] += [
        tile(classes, "decode:jpg", text="mask", zoom=3),
        tile(classes, "decode:jpg", "resize:jpg,90x120,nearest"),
        tile(classes, "decode:jpg", "resize:jpg,90x120,bilinear"),
    ]
    found["encode"] = [
        tile(source, "decode:jpg", f"encode:jpg,jpeg,quality={quality}", "decode:jpg", text=f"quality={quality}")
        for quality in (95, 20, 5)
    ]
    found["convert"] = [
        chart("convert:jpg,float32", np.arange(256, dtype=np.uint8), 0, 1),
        chart("convert:jpg,uint8", np.linspace(0, 1, 256, dtype=np.float32), 0, 255),
    ]
    found["cast"] = [
        chart("cast:jpg,float32", np.arange(256, dtype=np.uint8), 0, 255),
        chart("cast:jpg,uint8", np.linspace(-100, 400, 500, dtype=np.float32), 0, 255),
    ]
    for name in on_images():
        if name not in found:  # no tiles of its own: the photograph before, and after each of its examples
            found[name] = [before, *(tile(source, "decode:jpg", example) for example in OPS[name].examples)]
    return found


def on_images() -> list[str]:
    """The names of the ops on images."""
    return [name for name, op in OPS.items() if issubclass(op, ImageOp)]


def drawn(tiles: Sequence[Tile]) -> np.ndarray:
    """The tiles beside each other, with their texts."""
    widths = [max(item.pixels.shape[1], width_of(item.text)) for item in tiles]
    height = max(item.pixels.shape[0] for item in tiles) + LINE + 2 * MARGIN
    canvas = np.full((height, sum(widths) + MARGIN * (len(tiles) + 1) * 2, 3), 255, np.uint8)
    left = MARGIN
    for (pixels, text), width in zip(tiles, widths, strict=True):
        rows, columns = pixels.shape[:2]
        canvas[MARGIN : MARGIN + rows, left : left + columns] = pixels
        written(canvas, text, (left, MARGIN + rows + LINE - 4))
        left += width + 2 * MARGIN
    return canvas


def is_up_to_date(path: Path, canvas: np.ndarray) -> bool:
    """Whether a file shows this picture, but for what JPEG changes."""
    if not path.exists():
        return False
    stored = np.array(PIL.Image.open(path)).astype(int)
    return stored.shape == canvas.shape and bool(np.abs(stored - canvas.astype(int)).mean() < 3)


def main() -> None:
    """Draw the pictures that are missing or show something else."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for op, tiles in pictures().items():
        path, canvas = FOLDER / f"{op}.jpg", drawn(tiles)
        if not is_up_to_date(path, canvas):
            PIL.Image.fromarray(canvas).save(path, quality=88, optimize=True)


if __name__ == "__main__":
    main()
