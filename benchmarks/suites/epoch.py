"""Epochs of small samples in batches: what a training job reads again and again."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec

from benchmarks.bench import Bench, Peer, Target, python, scenario, tar2tf
from benchmarks.data import PEERS

SCRIPT = PEERS / "epoch.py"


@scenario
def epoch(bench: Bench) -> None:
    """Read a second epoch of the small samples in batches of 256, in order and shuffled."""
    data, folder = bench.store.small(), bench.store.root / "epoch"
    shutil.rmtree(folder, ignore_errors=True)
    convert = tar2tf("convert", data.directory, "-o", folder / "train-<>.record", "--type", "cls=int64")
    subprocess.run([*convert, "--max-shard-size", "6MB"], check=True, capture_output=True)

    def peer(name: str, way: str, target: Target | None = None, source: object = folder) -> Peer:
        records = None if way == "limit" else data.samples
        return Peer(name, [python(SCRIPT, way, str(source))], target, records=records)

    faster = Target(1.5, as_fast=True, imports=False)
    in_order = [
        peer("load_dataset(batch=)", "load_dataset"),
        peer("load_dataset().batch()", "load_dataset-then-batch"),
        peer("open_records().batches()", "records"),
        peer("TFRecordDataset, parse_example", "tensorflow", faster),
        *([peer("webdataset, tars", "webdataset", source=data.directory)] if find_spec("webdataset") else []),
        peer("copying the bytes", "limit"),
    ]
    bench.race("epoch", in_order, data)
    shuffled = [
        peer("load_dataset(shuffle=True)", "load_dataset-shuffle"),
        peer("open_records().batches(shuffle=True)", "records-shuffle"),
        peer("TFRecordDataset, a buffer of 10,000", "tensorflow-shuffle", faster),
        peer("copying the bytes", "limit"),
    ]
    bench.race("epoch, shuffled", shuffled, data)
    shutil.rmtree(folder)
