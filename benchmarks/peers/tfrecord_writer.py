"""The straightforward script of who wants other shards of TFRecord: tf.data and TFRecordWriter.

python tfrecord_writer.py OUT FILE...
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

LIMIT = 256 << 20


def main(out: str, *sources: str) -> None:
    begin = time.perf_counter()
    records = shards = size = 0
    writer = None
    for record in tf.data.TFRecordDataset(list(sources)).as_numpy_iterator():
        if writer is None or size + len(record) + 16 > LIMIT:
            if writer:
                writer.close()
            writer, size, shards = tf.io.TFRecordWriter(str(Path(out, f"new-{shards:05}.record"))), 0, shards + 1
        writer.write(record)
        size += len(record) + 16
        records += 1
    if writer:
        writer.close()
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
