"""An image folder to TFRecord as people usually write it: decode, crop, resize and cast in tf.data, one at a time.

Usage: imagefolder_script.py OUT FOLDER
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import tensorflow as tf

SIZE, SHARDS = 300, 10


def load(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    side = tf.minimum(height, width)
    image = tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)
    image = tf.cast(tf.image.resize(image, [SIZE, SIZE]), tf.uint8)
    return image, label, path


def of_bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def of_int(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def example(image: bytes, label: int, path: bytes) -> bytes:
    folder, name = path.rsplit(b"/", 2)[-2:]
    features = {
        "image/height": of_int(SIZE),
        "image/width": of_int(SIZE),
        "image/colorspace": of_bytes(b"RGB"),
        "image/channels": of_int(3),
        "image/class/label": of_int(label),
        "image/class/synset": of_bytes(folder),
        "image/class/text": of_bytes(b""),
        "image/format": of_bytes(b"tensor"),
        "image/filename": of_bytes(name),
        "image/encoded": of_bytes(image),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def main(out: Path, folder: Path) -> None:
    begin = time.perf_counter()
    paths = sorted(folder.glob("*/*.JPEG"))
    random.Random(1).shuffle(paths)
    classes = {name: number for number, name in enumerate(sorted({path.parent.name for path in paths}))}
    labels = [classes[path.parent.name] for path in paths]
    dataset = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    samples = dataset.as_numpy_iterator()
    for shard in range(SHARDS):
        count = len(paths) // SHARDS + (shard < len(paths) % SHARDS)
        with tf.io.TFRecordWriter(str(out / f"train-{shard:05}-of-{SHARDS:05}")) as writer:
            for _ in range(count):
                image, label, path = next(samples)
                writer.write(example(image.tobytes(), label, path))
    print(json.dumps({"records": len(paths), "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
