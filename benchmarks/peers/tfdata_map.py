"""The script that people write by hand: tf.data decodes and changes values on all cores, TFRecordWriter writes.

python tfdata_map.py OUT WORK TAR...
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import tensorflow as tf

SIDE = 224


def resize(data: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_image(data, channels=3, expand_animations=False)
    return tf.saturate_cast(tf.image.resize(image, (SIDE, SIDE)), tf.uint8)


def photograph(data: tf.Tensor, ratio: int = 1, antialias: bool = False) -> tf.Tensor:
    image = tf.io.decode_jpeg(data, channels=3, ratio=ratio)
    return tf.saturate_cast(tf.image.resize(image, (SIDE, SIDE), antialias=antialias), tf.uint8)


def nearest(data: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(tf.io.decode_png(data), (SIDE, SIDE), "nearest")


def short(data: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(data, channels=3)
    size = tf.shape(image)[:2]
    target = tf.cast(tf.round(tf.cast(size, tf.float32) * (SIDE / tf.cast(tf.reduce_min(size), tf.float32))), tf.int32)
    return tf.saturate_cast(tf.image.resize(image, target), tf.uint8)


def pad(data: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(data, channels=3)
    return tf.saturate_cast(tf.image.resize_with_pad(image, SIDE, SIDE), tf.uint8)


def area(data: tf.Tensor) -> tf.Tensor:
    return tf.saturate_cast(tf.image.resize(tf.io.decode_jpeg(data, channels=3), (SIDE, SIDE), "area"), tf.uint8)


def bicubic(data: tf.Tensor) -> tf.Tensor:
    return tf.saturate_cast(tf.image.resize(tf.io.decode_jpeg(data, channels=3), (SIDE, SIDE), "bicubic"), tf.uint8)


def webp(data: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_webp(data)[0]


def wav(data: tf.Tensor) -> tf.Tensor:
    return tf.audio.decode_wav(data).audio


WORK: dict[str, tuple[str, Callable[[tf.Tensor], tf.Tensor]]] = {
    "resize": ("jpg", resize),
    "reduced-plain": ("jpg", partial(photograph, ratio=8)),
    "reduced-antialias": ("jpg", partial(photograph, ratio=8, antialias=True)),
    "full-plain": ("jpg", photograph),
    "full-antialias": ("jpg", partial(photograph, antialias=True)),
    "short": ("jpg", short),
    "pad": ("jpg", pad),
    "area": ("jpg", area),
    "bicubic": ("jpg", bicubic),
    "nearest": ("png", nearest),
    "webp": ("webp", webp),
    "wav": ("wav", wav),
}


def samples(sources: list[str], entry: str) -> Iterator[tuple[bytes, bytes, bytes]]:
    for source in sources:
        with tarfile.open(source) as tar:
            for key, members in groupby(tar, key=lambda member: member.name.partition(".")[0]):
                entries = {member.name.partition(".")[2]: tar.extractfile(member).read() for member in members}
                yield key.encode(), entries[entry], entries["cls"]


def main(out: str, work: str, *sources: str) -> None:
    begin = time.perf_counter()
    entry, change = WORK[work]
    spec = tuple(tf.TensorSpec([], tf.string) for _ in range(3))
    dataset = tf.data.Dataset.from_generator(lambda: samples(list(sources), entry), output_signature=spec)
    dataset = dataset.map(lambda key, data, cls: (key, change(data), cls), num_parallel_calls=tf.data.AUTOTUNE)
    records = 0
    with tf.io.TFRecordWriter(str(Path(out, "train.record"))) as writer:
        for key, value, cls in dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
            feature = {
                "__key__": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key])),
                "value": tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()])),
                "value/shape": tf.train.Feature(int64_list=tf.train.Int64List(value=value.shape)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(cls)])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
            records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
