"""The straightforward comparison of tars with TFRecords: a dict of hashes of one, compared with the other.

python diff_script.py TARS RECORDS
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import time
from pathlib import Path

import tensorflow as tf


def main(tars: str, records: str) -> None:
    begin = time.perf_counter()
    samples: dict[str, dict[str, bytes]] = {}
    for path in sorted(Path(tars).glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, name = member.name.partition(".")
                samples.setdefault(key, {})[name] = hashlib.md5(tar.extractfile(member).read()).digest()
    count = different = 0
    for record in tf.data.TFRecordDataset(sorted(map(str, Path(records).glob("*.record")))).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        values = {name: feature.bytes_list.value[0] for name, feature in features.items()}
        key = values.pop("__key__").decode()
        different += samples.pop(key, None) != {name: hashlib.md5(data).digest() for name, data in values.items()}
        count += 1
    assert not different
    assert not samples
    print(json.dumps({"records": count, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
