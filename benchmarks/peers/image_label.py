"""The algorithm of the first AIS tar2tf client: decode_jpeg per image for its size, tf.train.Example, TFRecordWriter.

python image_label.py OUT TAR...
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
from pathlib import Path

import tensorflow as tf


def int64(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def example(image: bytes, label: bytes) -> tf.train.Example:
    height, width, depth = tf.image.decode_jpeg(image).shape
    feature = {
        "height": int64(height),
        "width": int64(width),
        "depth": int64(depth),
        "label": int64(int(label)),
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


def samples(source: str) -> dict[str, dict[str, bytes]]:
    """Read the whole tar into memory, as that client does."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(source) as tar:
        for member in tar:
            key, _, extension = member.name.partition(".")
            found.setdefault(key, {})[extension] = tar.extractfile(member).read()
    return found


def main(out: str, *sources: str) -> None:
    begin = time.perf_counter()
    records = 0
    with tf.io.TFRecordWriter(str(Path(out, "train.record"))) as writer:
        for source in sources:
            for entries in samples(source).values():
                writer.write(example(entries["jpg"], entries["cls"]).SerializeToString())
                records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
