"""Reads records or samples with one of several packages, in order or at random; or writes ArrayRecord files.

python record_reading.py PACKAGE WAY NUMBER SAMPLES FILE...
python record_reading.py array_record write FOLDER TFRECORD...

PACKAGE is tar2tf, tar2tf-tars, array_record, tf.data, webdataset, wids, dali, dali-tars, tarfile or limit. WAY is
`in-order`; or at random, `one-by-one` or `batches-N`, of which NUMBER records are read; or `shuffled`, which reads all,
by tf.data with a buffer for NUMBER; or `opened`, which also counts the time to find the records. SAMPLES is how many
each file holds. Files may be URLs, where packages read them.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

TOGETHER = 1024  # records that are read at once in order, by packages that have no better way


class Asked(NamedTuple):
    """What to read, as the arguments say."""

    way: str
    number: int
    samples: int
    paths: list[str]

    @property
    def batch(self) -> int:
        return int(self.way.partition("-")[2]) if self.way.startswith("batches-") else TOGETHER


def tar2tf(asked: Asked, *, raw: bool = True) -> Any:
    from tar2tf_cli import open_records

    return open_records(asked.paths, raw=raw)


def tar2tf_tars(asked: Asked) -> Any:
    return tar2tf(asked, raw=False)


def array_record(asked: Asked) -> Any:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(asked.paths)


def wids(asked: Asked) -> Any:
    """The indexed reader of webdataset, which copies shards that are not on the disk to a cache."""
    from wids import ShardListDataset

    shards = [{"url": path, "nsamples": asked.samples} for path in asked.paths]
    if os.path.exists(asked.paths[0]):
        return ShardListDataset(shards, localname=str, lru_size=len(shards), transformations=[])
    cache = tempfile.mkdtemp(dir=os.environ["TMPDIR"])
    return ShardListDataset(shards, cache_dir=cache, lru_size=len(shards), transformations=[])


class ByTarfile:
    """Samples of tars by number, as one writes it by hand: open files, and the members of each sample."""

    def __init__(self, asked: Asked) -> None:
        samples: dict[str, list[Any]] = {}
        for path in asked.paths:
            tar = tarfile.open(path)  # noqa: SIM115 - it is read until the end
            for member in tar:
                samples.setdefault(member.name.partition(".")[0], []).append((tar, member))
        self._samples = list(samples.values())

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> dict[str, bytes]:
        return {member.name.partition(".")[2]: tar.extractfile(member).read() for tar, member in self._samples[number]}


class Copied:
    """The limit: slices of mapped TFRecords, or ranges of those in S3, at places that are known; no CRC is checked."""

    def __init__(self, asked: Asked) -> None:
        self._files: list[memoryview] = []
        self._places: list[tuple[int, int, int]] = []
        for number, path in enumerate(asked.paths):
            local = (
                path if os.path.exists(path) else os.path.join(os.environ["TMPDIR"], "local", os.path.basename(path))
            )
            with open(local, "rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._files.append(data)
            at = 0
            while at < len(data):
                end = at + 16 + int.from_bytes(data[at : at + 8], "little")
                self._places.append((number, at, end))
                at = end
        self._store: Any = None
        if not os.path.exists(asked.paths[0]):
            from obstore.store import S3Store

            config = {"endpoint": os.environ["AWS_ENDPOINT_URL"]}
            self._store = S3Store("bench", config=config, client_options={"allow_http": True})
            self._names = [os.path.basename(path) for path in asked.paths]
            self._pool = ThreadPoolExecutor(32)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Any:
        file, start, end = self._places[number]
        if self._store is None:
            return bytes(self._files[file][start:end])
        return self._store.get_range(self._names[file], start=start, end=end)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        if self._store is None:
            return [self[number] for number in numbers]
        places: dict[int, list[tuple[int, int]]] = {}
        for file, *place in map(self._places.__getitem__, numbers):
            places.setdefault(file, []).append((place[0], place[1]))

        def ranges(file: int) -> list[Any]:
            starts, ends = zip(*places[file], strict=True)
            return self._store.get_ranges(self._names[file], starts=starts, ends=ends)

        return [data for found in self._pool.map(ranges, places) for data in found]


def webdataset(asked: Asked) -> Iterator[int]:
    import webdataset

    urls = [path if os.path.exists(path) else f"pipe:curl -sSf '{path}'" for path in asked.paths]
    yield 0
    yield from (1 for _ in webdataset.WebDataset(urls, shardshuffle=False))


def tf_data(asked: Asked) -> Iterator[int]:
    import tensorflow as tf

    records = tf.data.TFRecordDataset(asked.paths)
    if asked.way == "shuffled":
        records = records.shuffle(asked.number)
    yield 0
    yield from (len(batch) for batch in records.batch(asked.batch).as_numpy_iterator())


def dali(asked: Asked) -> Iterator[int]:
    """DALI's reader of TFRecords on the CPU, with an index beside each."""
    from nvidia.dali import fn, tfrecord

    indexes = [f"{path}.idx" for path in asked.paths]
    entry = {"cls": tfrecord.FixedLenFeature((), tfrecord.string, "")}
    return _by_dali(asked, lambda: fn.readers.tfrecord(path=asked.paths, index_path=indexes, features=entry, **READS))


def dali_tars(asked: Asked) -> Iterator[int]:
    """DALI's reader of tars on the CPU, with the index that `tar2tf index` writes beside each."""
    from nvidia.dali import fn

    with open(f"{asked.paths[0]}.idx") as lines:
        entries = [*lines][1].split()[::4]
    files = {"paths": asked.paths, "index_paths": [f"{path}.idx" for path in asked.paths]}
    return _by_dali(asked, lambda: fn.readers.webdataset(**files, ext=entries, **READS))


READS = {"name": "reader", "prefetch_queue_depth": 4}


def _by_dali(asked: Asked, reader: Callable[[], Any]) -> Iterator[int]:
    from nvidia.dali import pipeline_def

    @pipeline_def(batch_size=asked.batch, num_threads=2, device_id=None)
    def whole() -> Any:
        read = reader()
        return tuple(read.values() if isinstance(read, dict) else read)

    pipeline = whole()
    pipeline.build()
    total = pipeline.epoch_size("reader")
    yield 0
    for first in range(0, total, asked.batch):
        pipeline.run()
        yield min(asked.batch, total - first)


BY_NUMBER: dict[str, Callable[[Asked], Any]] = {
    "tar2tf": tar2tf,
    "tar2tf-tars": tar2tf_tars,
    "array_record": array_record,
    "wids": wids,
    "tarfile": ByTarfile,
    "limit": Copied,
}
IN_ORDER: dict[str, Callable[[Asked], Iterator[int]]] = {
    "tf.data": tf_data,
    "webdataset": webdataset,
    "dali": dali,
    "dali-tars": dali_tars,
}
"""How many records come at once; first 0, once all is imported and open."""


def read(records: Any, asked: Asked) -> int:
    """Read what is asked for from a sequence; returns the number of records."""
    total, chance = len(records), random.Random(1)
    together = getattr(records, "__getitems__", lambda numbers: [records[number] for number in numbers])
    if asked.way == "in-order":
        if hasattr(type(records), "__iter__"):
            return sum(1 for _ in records)
        order: Sequence[int] = range(total)
    elif asked.way in ("shuffled", "opened"):
        order = chance.sample(range(total), total)
    else:
        order = [chance.randrange(total) for _ in range(asked.number)]
    if asked.way == "one-by-one":
        return sum(1 for number in order if records[number])
    size = asked.batch
    return sum(len(together(list(order[at : at + size]))) for at in range(0, len(order), size))


def write(folder: str, paths: list[str]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for path in paths:
        writer = ArrayRecordWriter(f"{folder}/{Path(path).stem}.array_record", "group_size:1,uncompressed")
        for record in tar2tf(Asked("in-order", 0, 0, [path])):
            writer.write(record)
        writer.close()


def cpu_seconds() -> float:
    """CPU time of this process and of those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(package: str, way: str, number: str, *rest: str) -> None:
    if way == "write":
        write(number, [*rest])
        return
    asked = Asked(way, int(number), int(rest[0]), [*rest[1:]])
    if package in IN_ORDER:
        counts = IN_ORDER[package](asked)
        next(counts)
        begin, cpu = time.perf_counter(), cpu_seconds()
        count = sum(counts)
    elif asked.way == "opened":
        begin, cpu = time.perf_counter(), cpu_seconds()
        count = read(BY_NUMBER[package](asked), asked)
    else:
        if package != "wids":
            BY_NUMBER[package](asked)  # finds the records, which is done once
        records = BY_NUMBER[package](asked)
        len(records)
        begin, cpu = time.perf_counter(), cpu_seconds()
        count = read(records, asked)
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    print(json.dumps({"records": count, "seconds": seconds, "cpu": cpu}))


main(*sys.argv[1:])
