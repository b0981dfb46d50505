"""Reads the bytes of records, in order or at random, from TFRecord or ArrayRecord; or writes ArrayRecord files.

python record_reading.py tar2tf|array_record in-order|one-by-one|batches|shuffled NUMBER FILE...
python record_reading.py tf.data in-order|shuffled NUMBER FILE...
python record_reading.py array_record write FOLDER TFRECORD...

NUMBER is how many records are read at random; `shuffled` reads all of them, by tf.data with a buffer for so many.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BATCH = 64


def opened(package: str, paths: list[str]) -> Any:
    if package == "tar2tf":
        from tar2tf_cli import open_records

        return open_records(paths, raw=True)
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(paths)


def batches(numbers: Iterable[int]) -> Iterable[list[int]]:
    whole = list(numbers)
    return (whole[first : first + BATCH] for first in range(0, len(whole), BATCH))


def read(package: str, way: str, number: int, paths: list[str]) -> int:
    records = opened(package, paths)
    if way == "in-order":
        if package == "tar2tf":
            return sum(1 for _ in records)
        return sum(len(records.__getitems__(batch)) for batch in batches(range(len(records))))
    chance = random.Random(1)
    order = [chance.randrange(len(records)) for _ in range(number)]
    if way == "shuffled":
        order = chance.sample(range(len(records)), len(records))
    if way != "one-by-one":
        return sum(len(records.__getitems__(batch)) for batch in batches(order))
    return sum(1 for place in order if records[place])


def read_with_tf_data(way: str, number: int, paths: list[str]) -> int:
    import tensorflow as tf

    records = tf.data.TFRecordDataset(paths)
    if way == "shuffled":
        records = records.shuffle(number)
    return sum(len(batch) for batch in records.batch(BATCH).as_numpy_iterator())


def write(folder: str, paths: list[str]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for path in paths:
        writer = ArrayRecordWriter(f"{folder}/{Path(path).stem}.array_record", "group_size:1,uncompressed")
        for record in opened("tar2tf", [path]):
            writer.write(record)
        writer.close()


def main(package: str, way: str, number: str, *paths: str) -> None:
    if way == "write":
        write(number, [*paths])
        return
    if package == "tf.data":
        import tensorflow as tf

        tf.constant(0)  # initialises TensorFlow
        begin = time.perf_counter()
        count = read_with_tf_data(way, int(number), [*paths])
    else:
        opened(package, [*paths])  # imports, and finds the records, which is done once
        begin = time.perf_counter()
        count = read(package, way, int(number), [*paths])
    print(json.dumps({"records": count, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
