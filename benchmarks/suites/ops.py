"""Ops on images, presets, and datasets in memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench, Peer, Target, python, scenario, tar2tf
from benchmarks.data import PEERS
from benchmarks.measure import Command

SIDE = "224"


@scenario
def resize(bench: Bench) -> None:
    """Decode 500x375 JPEGs, resize them to 224x224 and cast them to uint8."""
    data, files, samples = some(bench, 2)
    written = samples * 224 * 224 * 3
    ops = ("--op", "decode:jpg", "--op", f"resize:jpg,{SIDE}x{SIDE}", "--op", "cast:jpg,uint8")
    select = ("--select", "image=jpg,label=cls", "--type", "label=int64")
    ours = convert(bench, data, files, *ops, *select)
    theirs = python(PEERS / "tfdata_resize.py", bench.out, SIDE, *files)
    bench.race(
        f"resize: {samples:,} JPEGs of 500x375",
        [
            Peer("tar2tf convert -j 2", [ours], writes=written),
            Peer("tf.data map, AUTOTUNE", [theirs], Target(2, True, imports=False), written, samples),
        ],
    )


@scenario
def image_label(bench: Bench) -> None:
    """Convert JPEG samples with the preset image-label."""
    data, files, samples = some(bench, 8)
    ours = convert(bench, data, files, "--preset", "image-label")
    theirs = python(PEERS / "image_label.py", bench.out, *files)
    bench.race(
        f"image-label: {samples:,} JPEGs of 500x375",
        [
            Peer("tar2tf convert -j 2", [ours]),
            Peer("decode_jpeg, Example", [theirs], Target(10, True, imports=False), records=samples),
        ],
    )


@scenario
def dataset(bench: Bench) -> None:
    """An epoch of `Dataset(...).load(...)`: decoded, 224x224, batches of 32."""
    _, files, samples = some(bench, 2)
    peers = []
    for way, target in (("tar2tf", None), ("webdataset", Target(2, True, imports=False))):
        command = python(PEERS / "dataset_load.py", way, SIDE, *files)
        peers.append(Peer(f"{way}, batches of 32", [command], target, records=samples))
    bench.race(f"dataset: {samples:,} JPEGs of 500x375", peers)


def some(bench: Bench, shards: int) -> tuple[Path, list[Path], int]:
    """The first shards of the JPEG set: their directory, the files, and the number of samples in them."""
    data = bench.store.jpeg()
    return data.directory, data.files[:shards], data.samples * shards // len(data.files)


def convert(bench: Bench, data: Path, files: list[Path], *options: str) -> Command:
    output = ("-o", bench.out / "train-<>.record", "--max-shard-size", "100MB")
    return tar2tf("convert", data, names(files), *output, *options, "-j", "2", "-q")


def names(files: list[Path]) -> str:
    return "{" + ",".join(path.name for path in files) + "}"
