"""The limit of ops: the libraries decode and resize the values in tars or files, two processes write what results.

python value_loop.py WORK OUT FILE...
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import simplejpeg

SIDE = 224
IN_A_PART = 100  # files that are no tars


def resize(data: bytes, method: int = cv2.INTER_LINEAR, side: int = SIDE) -> np.ndarray:
    return cv2.resize(simplejpeg.decode_jpeg(data, fastdct=True), (side, side), interpolation=method)


def short(data: bytes) -> np.ndarray:
    pixels = simplejpeg.decode_jpeg(data, fastdct=True)
    ratio = SIDE / min(pixels.shape[:2])
    return cv2.resize(pixels, (round(pixels.shape[1] * ratio), round(pixels.shape[0] * ratio)))


def pad(data: bytes) -> np.ndarray:
    pixels = simplejpeg.decode_jpeg(data, fastdct=True)
    ratio = SIDE / max(pixels.shape[:2])
    resized = cv2.resize(pixels, (round(pixels.shape[1] * ratio), round(pixels.shape[0] * ratio)))
    padded = np.zeros((SIDE, SIDE, 3), np.uint8)
    top, left = (SIDE - resized.shape[0]) // 2, (SIDE - resized.shape[1]) // 2
    padded[top : top + resized.shape[0], left : left + resized.shape[1]] = resized
    return padded


def reduced(data: bytes) -> np.ndarray:
    return cv2.resize(simplejpeg.decode_jpeg(data, fastdct=True, min_height=256, min_width=256), (SIDE, SIDE))


def square(data: bytes) -> np.ndarray:
    pixels = simplejpeg.decode_jpeg(data, fastdct=True)
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    return cv2.resize(pixels[top : top + side, left : left + side], (300, 300))


def decoded(data: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)


def nearest(data: bytes) -> np.ndarray:
    return cv2.resize(decoded(data), (SIDE, SIDE), interpolation=cv2.INTER_NEAREST)


def wav(data: bytes) -> np.ndarray:
    import soundfile

    return soundfile.read(io.BytesIO(data), dtype="float32")[0]


WORK: dict[str, tuple[str, Callable[[bytes], np.ndarray]]] = {
    "resize": (".jpg", resize),
    "reduced": (".jpg", reduced),
    "short": (".jpg", short),
    "pad": (".jpg", pad),
    "area": (".jpg", partial(resize, method=cv2.INTER_AREA)),
    "bicubic": (".jpg", partial(resize, method=cv2.INTER_CUBIC)),
    "square": (".JPEG", square),
    "nearest": (".png", nearest),
    "webp": (".webp", decoded),
    "wav": (".wav", wav),
}


def values(paths: list[str], suffix: str) -> Iterator[bytes]:
    for path in paths:
        if path.endswith(suffix):
            yield Path(path).read_bytes()
            continue
        with tarfile.open(path) as tar:
            yield from (tar.extractfile(member).read() for member in tar if member.name.endswith(suffix))


def prepare(work: str, out: str, number: int, paths: list[str]) -> int:
    suffix, change = WORK[work]
    count = 0
    with Path(out, f"{number}.raw").open("wb") as file:
        for data in values(paths, suffix):
            file.write(np.ascontiguousarray(change(data)))
            count += 1
    return count


if __name__ == "__main__":
    work, out, *paths = sys.argv[1:]
    each = 1 if paths[0].endswith(".tar") else IN_A_PART
    parts = [paths[at : at + each] for at in range(0, len(paths), each)]
    begin = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        records = sum(pool.map(partial(prepare, work, out), range(len(parts)), parts))
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))
