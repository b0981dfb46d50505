"""The straightforward script of a WebDataset user: its reader and TFRecordWriter, one TFRecord file.

python webdataset_script.py OUT TAR...
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tensorflow as tf
import webdataset


def main(out: str, *sources: str) -> None:
    begin = time.perf_counter()
    records = 0
    with tf.io.TFRecordWriter(str(Path(out, "train.record"))) as writer:
        for sample in webdataset.WebDataset(list(sources), shardshuffle=False):
            sample["__key__"] = sample["__key__"].encode()
            feature = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
                for name, data in sample.items()
                if isinstance(data, bytes)
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
            records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
