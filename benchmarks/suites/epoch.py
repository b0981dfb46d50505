"""Epochs of samples in batches: what a training job reads again and again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset

SCRIPT = PEERS / "epoch.py"
NEEDS = {"webdataset": ["webdataset"], "webdataset-torch": ["webdataset", "torch"], "grain": ["grain", "array_record"],
    "records-torch": ["torch"], "records-grain": ["grain"]}  # fmt: skip


@scenario
def epoch(bench: Bench) -> None:
    """Read a second epoch of the small samples in batches of 256, in order and shuffled."""
    data = bench.store.small()
    with _records(bench, data, "--select", "__key__,png,cls", "--type", "cls=int64") as folder:
        sources = {"webdataset": data.directory}
        if not _lacks("grain"):
            sources["grain"] = bench.store.array_records(bench.store.records(data)).directory
        faster, twice = Target(1.5, as_fast=True, imports=False), Target(2, as_fast=True, imports=False)
        for order in ("", "-shuffle"):
            ways = {
                "load_dataset(batch=)": ("load_dataset", None),
                **({} if order else {"load_dataset().batch()": ("load_dataset-then-batch", None)}),
                "open_records().batches()": ("records", None),
                "open_records, torch": ("records-torch", None),
                "open_records, Grain": ("records-grain", None),
                "TFRecordDataset, parse_example": ("tensorflow", faster),
                **({} if order else {"webdataset, tars": ("webdataset", None)}),
                "webdataset, torch, tars": ("webdataset-torch", twice),
                "Grain, ArrayRecord": ("grain", None),
            }
            peers = []
            for name, (way, target) in ways.items():
                if missing := _lacks(way):
                    print(f"\nwithout {name}: needs {missing}")
                    continue
                source = sources.get(way.partition("-")[0], folder)
                peers.append(Peer(name, [python(SCRIPT, way + order, source)], target, records=data.samples))
            peers.append(limit("tf.data, one batch again and again", python(SCRIPT, "repeat", folder)))
            peers.append(limit("copying the bytes", python(SCRIPT, "memcpy", folder)))
            bench.race("epoch, shuffled" if order else "epoch", peers, data)


@scenario
def epoch_jpeg(bench: Bench) -> None:
    """Read a second epoch of 4,000 of the JPEG samples, decoded, 224x224, in batches of 32."""
    data = bench.store.jpeg().first(8)
    with _records(bench, data, "--select", "__key__,jpg,cls", "--type", "cls=int64") as folder:

        def command(way: str) -> list[str | Path]:
            return [*python(SCRIPT, way, folder)]

        target = Target(1.2, as_fast=True, imports=False)
        peers = [
            Peer("load_dataset(batch=)", [command("load_dataset-decode")], records=data.samples),
            Peer("TFRecordDataset, parse_example", [command("tensorflow-decode")], target, records=data.samples),
            limit("TensorFlow's ops, one batch", command("repeat-decode"), records=data.samples),
            limit("simplejpeg, cv2.resize", command("decode"), records=data.samples),
        ]
        bench.race("epoch-jpeg", peers, data)


@contextmanager
def _records(bench: Bench, data: Dataset, *options: str) -> Iterator[Path]:
    """A folder with a dataset as TFRecords of ours, while it is needed."""
    folder = bench.store.root / "epoch"
    shutil.rmtree(folder, ignore_errors=True)
    convert = tar2tf("convert", data.directory, data.template, "-o", folder / "train-<>.record", *options)
    subprocess.run([*convert, "--max-shard-size", "6MB"], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


def _lacks(way: str) -> str:
    """The package that a way needs and that is not installed; "" if there is none."""
    return next((name for name in NEEDS.get(way, []) if find_spec(name) is None), "")
