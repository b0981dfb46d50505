"""The straightforward script: tarfile, tf.train.Example and TFRecordWriter, one TFRecord file per tar.

python tarfile_script.py OUT TAR...
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
from itertools import groupby
from pathlib import Path

import tensorflow as tf


def split(member: tarfile.TarInfo) -> tuple[str, str]:
    key, _, extension = member.name.partition(".")
    return key, extension


def convert(source: Path, target: Path) -> int:
    records = 0
    with tarfile.open(source) as tar, tf.io.TFRecordWriter(str(target)) as writer:
        for key, members in groupby(tar, key=lambda member: split(member)[0]):
            entries = {"__key__": key.encode()}
            for member in members:
                data = tar.extractfile(member)
                assert data is not None, f"{member.name} is no file"
                entries[split(member)[1]] = data.read()
            feature = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])) for name, data in entries.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
            records += 1
    return records


def main(out: Path, *sources: Path) -> None:
    begin = time.perf_counter()
    records = sum(convert(source, out / f"{source.stem}.record") for source in sources)
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*map(Path, sys.argv[1:]))
