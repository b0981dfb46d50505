"""The straightforward join: a dict of all captions, tarfile, tf.train.Example and TFRecordWriter.

python join_script.py OUT CAPTIONS.csv TAR...
"""

from __future__ import annotations

import csv
import json
import sys
import tarfile
import time
from itertools import groupby
from pathlib import Path

import tensorflow as tf


def main(out: Path, captions: Path, *sources: Path) -> None:
    begin = time.perf_counter()
    with captions.open(newline="") as file:
        caption_of = {row["key"]: row["caption"].encode() for row in csv.DictReader(file)}
    records = 0
    for source in sources:
        with tarfile.open(source) as tar, tf.io.TFRecordWriter(str(out / f"{source.stem}.record")) as writer:
            for key, members in groupby(tar, key=lambda member: member.name.partition(".")[0]):
                entries = {"__key__": key.encode(), "caption": caption_of[key]}
                for member in members:
                    data = tar.extractfile(member)
                    assert data is not None, f"{member.name} is no file"
                    entries[member.name.partition(".")[2]] = data.read()
                feature = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
                    for name, data in entries.items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
                records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*map(Path, sys.argv[1:]))
