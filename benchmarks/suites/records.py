"""Checksums of records, and the comparison of two datasets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS
from tar2tf_cli.formats import kernel

PACKAGES = [
    ("google_crc32c", "google_crc32c", "value"),
    ("crc32c", "crc32c", "crc32c"),
    ("fastcrc", "fastcrc.crc32", "iscsi"),
]


@scenario
def checksums(bench: Bench) -> None:
    """CRC-32C of 64 B, 4 kB and 1 MB by the packages that compute it, and by the kernel."""
    native = kernel.native()
    ways: dict[str, Callable[[bytes], object]] = {"kernel": partial(native.extend, 0)} if native else {}
    for package, module, name in PACKAGES:
        if find_spec(package):
            ways[package] = getattr(import_module(module), name)
    ways["limit: copying the bytes"] = bytearray
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
def diff(bench: Bench) -> None:
    """Compare the small samples as tars with the same as TFRecord."""
    tars = bench.store.small()
    records = bench.store.records(tars)
    script = python(PEERS / "diff_script.py", tars.directory, records.directory)
    bench.race(
        "diff",
        [
            Peer("tar2tf diff -j 2", [tar2tf("diff", tars.directory, records.directory, "-j", "2", "-q")]),
            limit("cat FILES > /dev/null", ["sh", "-c", 'cat "$@" > /dev/null', "cat", *tars.files, *records.files]),
            Peer("a dict of hashes, by tarfile and tf.data", [script], Target(5, as_fast=True, imports=False)),
        ],
        tars,
    )
