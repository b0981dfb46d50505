"""Makes the sample shards beside this file from the photographs that scikit-image ships.

    pip install scikit-image && python tests/data/make_photos.py [DIRECTORY]

Nothing here depends on the time, the user or the machine: a second run writes the same bytes
(given the same versions of Pillow and zlib, which decide the JPEG and gzip bytes).
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from PIL import Image, ImageOps

# The place in this table is the class number. README.md names the licence of every source.
CLASSES: dict[str, tuple[str, ...]] = {
    "cat": ("chelsea.png",),
    "clock": ("clock_motion.png",),
    "coffee": ("coffee.png",),
    "sky": ("hubble_deep_field.jpg", "rocket.jpg"),
    "ground": ("brick.png", "grass.png", "gravel.png"),
}
SIZES = ((160, 120), (192, 144), (256, 192), (224, 224))  # width, height
CENTRES = ((0.5, 0.5), (0.3, 0.4), (0.7, 0.4), (0.4, 0.6), (0.6, 0.6))  # of the crop: across, down
ZOOM = 0.85  # each later view of a class shows this much of the one before it
GRAY = 1  # the one sample that is a JPEG of one component
SAMPLES = 24
SHARDS = ("photos-0.tar", "photos-1.tar", "photos-2.tar", "photos-3.tar.gz")


def view(source: str, size: tuple[int, int], step: int) -> Image.Image:
    """The `step`-th view of a source image, scaled to `size`; odd views are mirrored."""
    with (files("skimage") / "data" / source).open("rb") as file:
        image = Image.open(file).convert("RGB")
    largest = ImageOps.contain(Image.new("1", size), image.size).size
    width, height = (round(side * ZOOM**step) for side in largest)
    across, down = CENTRES[step % len(CENTRES)]
    left = min(max(round(across * image.width - width / 2), 0), image.width - width)
    top = min(max(round(down * image.height - height / 2), 0), image.height - height)
    image = image.resize(size, Image.Resampling.LANCZOS, (left, top, left + width, top + height))
    return ImageOps.mirror(image) if step % 2 else image


def sample(number: int) -> dict[str, bytes]:
    """One sample: member name to bytes."""
    names = list(CLASSES)
    label, step = number % len(names), number // len(names)
    sources = CLASSES[names[label]]
    image = view(sources[step % len(sources)], SIZES[number % len(SIZES)], step)
    if number == GRAY:
        image = image.convert("L")
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG", quality=85, subsampling="4:2:0")
    about = {"label": {"name": names[label], "id": label}, "width": image.width, "height": image.height}
    return {
        f"{number:04}.cls": str(label).encode(),
        f"{number:04}.jpg": jpeg.getvalue(),
        f"{number:04}.json": json.dumps(about).encode(),
    }


def shards() -> Iterator[tuple[str, bytes]]:
    """Every shard: file name and bytes."""
    each = SAMPLES // len(SHARDS)
    for index, name in enumerate(SHARDS):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(index * each, (index + 1) * each):
                for member, data in sorted(sample(number).items()):
                    info = tarfile.TarInfo(member)  # mtime, uid and gid are 0, the mode 0644
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        data = buffer.getvalue()
        yield name, gzipped(data) if name.endswith(".gz") else data


def gzipped(data: bytes) -> bytes:
    buffer = io.BytesIO()  # gzip.compress() leaves the header to zlib, which names the operating system
    with gzip.GzipFile("", "wb", fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def main(directory: Path) -> None:
    for name, data in shards():
        (directory / name).write_bytes(data)
        print(f"{name}: {len(data):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
