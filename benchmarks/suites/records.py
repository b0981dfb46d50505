"""`open_records` compared with `tf.data` and ArrayRecord: the bytes of all records in order, and of some at random."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from benchmarks.bench import Bench, Peer, Target, python, scenario
from benchmarks.data import DISTINCT, PEERS, SHARDS, Dataset
from tar2tf_cli.formats import kernel

PACKAGES = [
    ("google_crc32c", "google_crc32c", "value"),
    ("crc32c", "crc32c", "crc32c"),
    ("fastcrc", "fastcrc.crc32", "iscsi"),
]
AT_RANDOM = {"small": 40_000, "jpeg": 4_000}
SCRIPT = PEERS / "record_reading.py"


@scenario
def checksums(bench: Bench) -> None:
    """CRC-32C of 64 B, 4 kB and 1 MB by the packages that compute it, and by the kernel."""
    native = kernel.native()
    ways: dict[str, Callable[[bytes], object]] = {"kernel": partial(native.extend, 0)} if native else {}
    for package, module, name in PACKAGES:
        if find_spec(package):
            ways[package] = getattr(import_module(module), name)
    print("\nchecksums: CPU time for one CRC-32C; the kernel's is used where there is one, else google_crc32c")
    for size in (64, 4_000, 1_000_000):
        data = os.urandom(size)
        times = {name: min(_nanoseconds(way, data) for _ in range(bench.rounds)) for name, way in ways.items()}
        print(f"  {size:>9,} B: " + ", ".join(f"{name} {took:,.0f} ns" for name, took in times.items()))


def _nanoseconds(way: Callable[[bytes], object], data: bytes) -> float:
    times = max(200_000_000 // (len(data) + 2_000), 1)
    begin = time.process_time()
    for _ in range(times):
        way(data)
    return (time.process_time() - begin) / times * 1e9


@scenario
def records_small(bench: Bench) -> None:
    """Read the small samples as TFRecord and ArrayRecord, in order and at random."""
    race(bench, "small", bench.store.records(bench.store.small()))


@scenario
def records_jpeg(bench: Bench) -> None:
    """Read 400 MB of the JPEG samples as TFRecord and ArrayRecord, in order and at random."""
    whole = bench.store.records(bench.store.jpeg())
    race(bench, "jpeg", whole.first(SHARDS // DISTINCT))


def race(bench: Bench, name: str, data: Dataset) -> None:
    """In order against `tf.data`, at random against ArrayRecord, both against its shuffle."""
    number = int(AT_RANDOM[name] * bench.store.scale)
    arrays = bench.store.array_records(data) if find_spec("array_record") else None
    if arrays is None:
        print(f"\nrecords-{name}: without ArrayRecord, which comes with pip install 'tar2tf-cli[readers]'")

    def peer(package: str, way: str, records: int, target: Target | None = None) -> Peer:
        files = arrays.files if arrays and package == "array_record" else data.files
        return Peer(f"{package}, {way}", [python(SCRIPT, package, way, str(number), *files)], target, records=records)

    also = ["array_record"] if arrays else []
    others = [peer(package, "in-order", data.samples) for package in also]
    wanted = Target(1.0, imports=False)
    bench.race(
        f"records-{name}, in order",
        [peer("tar2tf", "in-order", data.samples), peer("tf.data", "in-order", data.samples, wanted), *others],
        data,
    )
    within = Target(1.5, imports=False)
    for way in ("one-by-one", "batches"):
        others = [peer(package, way, number, within) for package in also]
        bench.race(f"records-{name}, {number:,} at random", [peer("tar2tf", way, number), *others])
    number = data.samples // 10
    bench.race(
        f"records-{name}, all of them shuffled",
        [peer("tar2tf", "shuffled", data.samples), peer("tf.data", "shuffled", data.samples)],
        data,
    )
