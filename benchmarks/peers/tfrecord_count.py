"""Counts records with tf.data, without parsing them.

python tfrecord_count.py reduce|loop|batches TFRECORD...
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import tensorflow as tf

WAYS: dict[str, Callable[[tf.data.Dataset], int]] = {
    "reduce": lambda records: int(records.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)),
    "loop": lambda records: sum(1 for _ in records),
    "batches": lambda records: sum(int(count) for count in records.batch(256).map(tf.size)),
}


def main(way: str, *sources: str) -> None:
    tf.constant(0)  # initialises TensorFlow
    begin = time.perf_counter()
    records = WAYS[way](tf.data.TFRecordDataset(list(sources)))
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
