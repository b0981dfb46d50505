"""The second epoch of records in batches: `epoch.py WAY FOLDER`.

The folder has shards that tar2tf wrote, tars, or ArrayRecords. Ways that end in `-decode` decode the JPEG of each
sample to 224x224, in batches of 32; others read small samples in batches of 256.

`seconds` stops at the last batch: an iterator of tf.data ends only when TensorFlow's tuning thread wakes up, after 10,
30, 70, 150 or 310 ms in all, so times to the end would be one of these.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

BATCH, DECODED = 256, 32
BUFFER = 10_000
SIDE = 224
WORKERS = 2

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def shards(folder: Path, suffix: str = "record") -> list[str]:
    return sorted(map(str, folder.glob(f"*.{suffix}")))


# --- with TensorFlow ---


def by_load_dataset(folder: Path, **options: Any) -> Iterable[Any]:
    from tar2tf_cli import load_dataset

    return load_dataset(folder, batch=BATCH, **options)


def by_load_dataset_then_batch(folder: Path) -> Iterable[Any]:
    from tar2tf_cli import load_dataset

    return load_dataset(folder).batch(BATCH)


def by_tensorflow(folder: Path, buffer: int = 0, size: int = BATCH, value: str = "png") -> Any:
    import tensorflow as tf

    kinds = {"__key__": tf.string, value: tf.string, "cls": tf.int64}
    description = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}

    def parse(batch: Any) -> Any:
        return tf.io.parse_example(batch, description)

    records = tf.data.TFRecordDataset(shards(folder))
    records = records.shuffle(buffer) if buffer else records
    return records.batch(size).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def decoding(batches: Any) -> Any:
    """Decode and resize the images of batches: one by one in as many threads as there are cores, then batched."""
    import tensorflow as tf

    def decode(sample: Any) -> Any:
        image = tf.io.decode_jpeg(sample["jpg"], channels=3)
        return {"jpg": tf.image.resize(image, (SIDE, SIDE)), "cls": sample["cls"]}

    samples = batches.unbatch().map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return samples.batch(DECODED).prefetch(tf.data.AUTOTUNE)


def by_load_dataset_decoded(folder: Path) -> Any:
    from tar2tf_cli import load_dataset

    return decoding(load_dataset(folder, batch=DECODED))


def by_tensorflow_decoded(folder: Path) -> Any:
    return decoding(by_tensorflow(folder, size=DECODED, value="jpg"))


def repeating(batches: Any) -> Any:
    """Return as many batches, the first one each time: what TensorFlow and Python need to pass them on."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(next(iter(batches))).repeat(len(batches))


def by_repeating(folder: Path) -> Any:
    return repeating(by_load_dataset(folder))


def by_repeating_decoded(folder: Path) -> Any:
    from tar2tf_cli import load_dataset

    return decoding(repeating(load_dataset(folder, batch=DECODED)))


# --- without it ---


def by_records(folder: Path, **options: Any) -> Iterable[Any]:
    from tar2tf_cli import open_records

    return open_records(folder).batches(BATCH, **options)


def by_records_in_torch(folder: Path, shuffle: bool = False) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    from tar2tf_cli import open_records

    return DataLoader(open_records(folder), BATCH, shuffle=shuffle, num_workers=WORKERS)  # type: ignore[arg-type]


def by_records_in_grain(folder: Path, shuffle: bool = False) -> Iterable[Any]:
    import grain

    from tar2tf_cli import open_records

    source = grain.MapDataset.source(open_records(folder))
    return (source.shuffle(1) if shuffle else source).batch(BATCH, batch_fn=collated).to_iter_dataset()


def collated(samples: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def parsed(record: bytes) -> dict[str, Any]:
    """Parse an example as users of Grain do: by protobuf."""
    import tensorflow as tf

    feature = tf.train.Example.FromString(record).features.feature
    return {"png": feature["png"].bytes_list.value[0], "cls": int(feature["cls"].bytes_list.value[0])}


def by_array_record(folder: Path, shuffle: bool = False) -> Iterable[Any]:
    import grain

    source = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(shards(folder, "array_record")))
    source = source.shuffle(1) if shuffle else source
    return source.map(parsed).batch(BATCH, batch_fn=collated).to_iter_dataset()


def labelled(folder: Path) -> Any:
    import webdataset

    samples = webdataset.WebDataset(shards(folder, "tar"), shardshuffle=False)
    return samples.to_tuple("png", "cls").map_tuple(bytes, int)


def by_webdataset(folder: Path) -> Iterable[Any]:
    return ({"cls": labels} for _, labels in labelled(folder).batched(BATCH))


def by_webdataset_in_torch(folder: Path, buffer: int = 0) -> Iterable[Any]:
    """Batched by the workers, as webdataset's documents recommend."""
    import webdataset

    samples = labelled(folder)
    samples = samples.shuffle(buffer) if buffer else samples
    loader = webdataset.WebLoader(samples.batched(BATCH), batch_size=None, num_workers=WORKERS)
    return ({"cls": labels} for _, labels in loader)


def by_memcpy(folder: Path) -> Iterator[Any]:
    for path in shards(folder):
        data = memoryview(Path(path).read_bytes())
        for at in range(0, len(data), BATCH << 9):
            yield {"cls": bytes(data[at : at + (BATCH << 9)])[:0]}


def decoded_alone(folder: Path) -> Iterator[Any]:
    """simplejpeg and OpenCV in two threads, which release the GIL."""
    from concurrent.futures import ThreadPoolExecutor

    import cv2
    import numpy as np
    import simplejpeg

    from tar2tf_cli import open_records

    def one(sample: dict[str, Any]) -> Any:
        pixels = simplejpeg.decode_jpeg(sample["jpg"], fastdct=True).astype(np.float32)
        return cv2.resize(pixels, (SIDE, SIDE))

    records = open_records(folder)
    with ThreadPoolExecutor(WORKERS) as pool:
        for at in range(0, len(records), DECODED):
            samples = records[at : at + DECODED]
            yield {"cls": np.stack([*pool.map(one, samples)])}


WAYS: dict[str, Callable[[Path], Iterable[Any]]] = {
    "load_dataset": by_load_dataset,
    "load_dataset-then-batch": by_load_dataset_then_batch,
    "load_dataset-shuffle": partial(by_load_dataset, shuffle=True, seed=1),
    "load_dataset-decode": by_load_dataset_decoded,
    "records": by_records,
    "records-shuffle": partial(by_records, shuffle=True),
    "records-torch": by_records_in_torch,
    "records-torch-shuffle": partial(by_records_in_torch, shuffle=True),
    "records-grain": by_records_in_grain,
    "records-grain-shuffle": partial(by_records_in_grain, shuffle=True),
    "tensorflow": by_tensorflow,
    "tensorflow-shuffle": partial(by_tensorflow, buffer=BUFFER),
    "tensorflow-decode": by_tensorflow_decoded,
    "repeat": by_repeating,
    "repeat-decode": by_repeating_decoded,
    "grain": by_array_record,
    "grain-shuffle": partial(by_array_record, shuffle=True),
    "webdataset": by_webdataset,
    "webdataset-torch": by_webdataset_in_torch,
    "webdataset-torch-shuffle": partial(by_webdataset_in_torch, buffer=BUFFER),
    "memcpy": by_memcpy,
    "decode": decoded_alone,
}


def cpu_seconds() -> float:
    """CPU time of this process and of its workers that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(way: str, folder: str) -> None:
    make = WAYS[way]
    batches = make(Path(folder))
    for _ in batches:  # the first epoch also opens files and traces functions
        pass
    if not way.startswith(("load", "tensorflow", "repeat")):
        batches = make(Path(folder))
    begin, used, records, seconds = time.perf_counter(), cpu_seconds(), 0, 0.0
    for batch in batches:
        records += len(batch["cls"])
        seconds = time.perf_counter() - begin
    cpu = cpu_seconds() - used
    counted = {} if way in ("memcpy", "repeat") else {"records": records}
    print(json.dumps({**counted, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main(*sys.argv[1:])
