"""The limit of preparing large JPEGs: libjpeg-turbo at 1/8 of the size, OpenCV to 224x224, nothing written.

python reduced_loop.py TAR...
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor

import cv2
import simplejpeg

SIDE = 224


def prepare(path: str) -> int:
    count = 0
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.endswith(".jpg"):
                data = tar.extractfile(member).read()
                pixels = simplejpeg.decode_jpeg(data, fastdct=True, min_height=256, min_width=256)
                cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
                count += 1
    return count


if __name__ == "__main__":
    begin = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        records = sum(pool.map(prepare, sys.argv[1:]))
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))
