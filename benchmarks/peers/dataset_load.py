"""One epoch of decoded and resized images in batches of 32, by `Dataset(...).load(...)` or by webdataset.

python dataset_load.py tar2tf[-WORKERS]|webdataset SIZE TAR...

The tars may have URLs.

`seconds` stops at the last batch: TensorFlow's tuning thread sleeps for 10 ms, then twice as long each time, and an
iterator waits for it to wake up before it ends, so whole times would be 5.1, 10.2 or 20.5 seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf


def by_tar2tf(side: int, sources: list[str], workers: str) -> tf.data.Dataset:
    from tar2tf_cli import Dataset
    from tar2tf_cli.ops import Decode, Resize

    ops = [Decode("jpg"), Resize("jpg", (side, side))]
    data = Dataset(os.path.dirname(sources[0]), conversions=ops, selections=["jpg", "cls"])
    return data.load([*map(os.path.basename, sources)], num_workers=int(workers or 4))


def by_webdataset(side: int, sources: list[str], workers: str) -> tf.data.Dataset:
    import webdataset

    def elements() -> Iterator[tuple[np.ndarray, int]]:
        for sample in webdataset.WebDataset(sources, shardshuffle=False):
            image = tf.io.decode_image(sample["jpg"], channels=3, expand_animations=False)
            yield tf.image.resize(image, (side, side)).numpy(), int(sample["cls"])

    spec = (tf.TensorSpec((side, side, 3), tf.float32), tf.TensorSpec((), tf.int32))
    return tf.data.Dataset.from_generator(elements, output_signature=spec)


def main(way: str, size: str, *sources: str) -> None:
    tf.constant(0)  # initialises TensorFlow
    begin = time.perf_counter()
    package, _, workers = way.partition("-")
    dataset = {"tar2tf": by_tar2tf, "webdataset": by_webdataset}[package](int(size), list(sources), workers)
    records, seconds = 0, 0.0
    for _, labels in dataset.batch(32).prefetch(1).as_numpy_iterator():
        records += len(labels)
        seconds = time.perf_counter() - begin
    print(json.dumps({"records": records, "seconds": seconds}))


main(*sys.argv[1:])
