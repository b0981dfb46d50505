"""The script that people write by hand: tf.data decodes and resizes on all cores, TFRecordWriter writes.

python tfdata_resize.py OUT SIZE TAR...
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import tensorflow as tf


def samples(sources: list[str]) -> Iterator[tuple[bytes, bytes, bytes]]:
    for source in sources:
        with tarfile.open(source) as tar:
            for key, members in groupby(tar, key=lambda member: member.name.partition(".")[0]):
                entries = {member.name.partition(".")[2]: tar.extractfile(member).read() for member in members}
                yield key.encode(), entries["jpg"], entries["cls"]


def main(out: str, size: str, *sources: str) -> None:
    begin = time.perf_counter()
    side = int(size)

    def convert(key: tf.Tensor, jpg: tf.Tensor, cls: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = tf.io.decode_image(jpg, channels=3, expand_animations=False)
        resized = tf.saturate_cast(tf.image.resize(image, (side, side)), tf.uint8)
        return key, resized, cls

    spec = tuple(tf.TensorSpec([], tf.string) for _ in range(3))
    dataset = tf.data.Dataset.from_generator(lambda: samples(list(sources)), output_signature=spec)
    dataset = dataset.map(convert, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    records = 0
    with tf.io.TFRecordWriter(str(Path(out, "train.record"))) as writer:
        for key, image, cls in dataset.as_numpy_iterator():
            feature = {
                "__key__": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key])),
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(cls)])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
            records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
