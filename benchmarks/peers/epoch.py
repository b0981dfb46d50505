"""The second epoch of the small samples in batches of 256: `epoch.py WAY FOLDER`.

The folder has shards that tar2tf wrote, or tars. `limit` only copies the bytes of the shards, a batch at a time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BATCH = 256
BUFFER = 10_000

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def by_load_dataset(folder: Path, **options: Any) -> Iterable[Any]:
    from tar2tf_cli import load_dataset

    return load_dataset(folder, batch=BATCH, **options)


def by_load_dataset_then_batch(folder: Path) -> Iterable[Any]:
    from tar2tf_cli import load_dataset

    return load_dataset(folder).batch(BATCH)


def by_records(folder: Path, **options: Any) -> Iterable[Any]:
    from tar2tf_cli import open_records

    return open_records(folder).batches(BATCH, **options)


def by_tensorflow(folder: Path, buffer: int = 0) -> Iterable[Any]:
    import tensorflow as tf

    kinds = {"__key__": tf.string, "png": tf.string, "cls": tf.int64}
    description = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}

    def parse(batch: Any) -> Any:
        return tf.io.parse_example(batch, description)

    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.record"))))
    records = records.shuffle(buffer) if buffer else records
    return records.batch(BATCH).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def by_webdataset(folder: Path) -> Iterable[Any]:
    import webdataset

    tars = sorted(map(str, folder.glob("*.tar")))
    samples = webdataset.WebDataset(tars, shardshuffle=False).to_tuple("png", "cls").map_tuple(bytes, int)
    return ({"cls": labels} for _, labels in samples.batched(BATCH))


def by_copying(folder: Path) -> Iterable[Any]:
    for path in sorted(folder.glob("*.record")):
        data = memoryview(path.read_bytes())
        for at in range(0, len(data), BATCH << 9):
            yield {"cls": bytes(data[at : at + (BATCH << 9)])[:0]}


WAYS: dict[str, Callable[[Path], Iterable[Any]]] = {
    "load_dataset": by_load_dataset,
    "load_dataset-then-batch": by_load_dataset_then_batch,
    "load_dataset-shuffle": lambda folder: by_load_dataset(folder, shuffle=True, seed=1),
    "records": by_records,
    "records-shuffle": lambda folder: by_records(folder, shuffle=True),
    "tensorflow": by_tensorflow,
    "tensorflow-shuffle": lambda folder: by_tensorflow(folder, BUFFER),
    "webdataset": by_webdataset,
    "limit": by_copying,
}


def main(way: str, folder: str) -> None:
    make = WAYS[way]
    batches = make(Path(folder))
    for _ in batches:  # the first epoch also opens files and traces functions
        pass
    if not way.startswith(("load", "tensorflow")):
        batches = make(Path(folder))
    begin, used, records = time.perf_counter(), time.process_time(), 0
    for batch in batches:
        records += len(batch["cls"])
    seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    counted = {} if way == "limit" else {"records": records}
    print(json.dumps({**counted, "seconds": seconds, "cpu": cpu}))


main(*sys.argv[1:])
