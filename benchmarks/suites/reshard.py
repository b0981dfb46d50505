"""Shards of samples to other shards of the same kind, and with entries of other datasets."""

from __future__ import annotations

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command
from benchmarks.suites.core import c_loop, cat, go_tfdata, script
from tar2tf_cli.formats import kernel


@scenario
def tars_jpeg(bench: Bench) -> None:
    """Repack the JPEG samples, 1.7 GB, from tars into tars."""
    data = bench.store.jpeg()
    bench.race(
        "tars-jpeg",
        [
            Peer("tar2tf convert -j 2", [convert_command(bench, data)], writes=data.payload),
            Peer("cat", [cat(bench, data)], None, data.bytes),
            limit("cat, then sync FILE", cat(bench, data, sync=True), target=Target(1.3), writes=data.bytes),
            script(bench, data, "webdataset_shards"),
        ],
        data,
    )


@scenario
def tars_small(bench: Bench) -> None:
    """Repack 80,000 samples of 400-byte PNG from tars into tars."""
    data = bench.store.small()
    bench.race(
        "tars-small",
        [
            Peer("tar2tf convert -j 2", [convert_command(bench, data)], writes=data.payload),
            Peer("without the kernel", [["env", "TAR2TF_PURE=1", *convert_command(bench, data)]]),
            limit("cat, then sync FILE", cat(bench, data, sync=True), writes=data.bytes),
            script(bench, data, "webdataset_shards", Target(15, as_fast=True)),
        ],
        data,
    )


@scenario
def records_jpeg(bench: Bench) -> None:
    """Reshard the JPEG samples, 1.7 GB, from TFRecord to TFRecord."""
    data = bench.store.records(bench.store.jpeg())
    bench.race(
        "records-jpeg",
        [
            Peer("tar2tf convert -j 2", [convert_command(bench, data, "record")], writes=data.payload),
            Peer("cat", [cat(bench, data)], None, data.bytes),
            limit("cat, then sync FILE", cat(bench, data, sync=True), target=Target(1.3), writes=data.bytes),
            *go_tfdata(bench, data, None),
            script(bench, data, "tfrecord_writer"),
        ],
        data,
    )


@scenario
def records_small(bench: Bench) -> None:
    """Reshard 80,000 small records from TFRecord to TFRecord."""
    data = bench.store.records(bench.store.small())
    bench.race(
        "records-small",
        [
            Peer("tar2tf convert -j 2", [convert_command(bench, data, "record")], writes=data.payload),
            Peer("without the kernel", [["env", "TAR2TF_PURE=1", *convert_command(bench, data, "record")]]),
            limit("cat, then sync FILE", cat(bench, data, sync=True), writes=data.bytes),
            *go_tfdata(bench, data, 3 if kernel.native() else None),
            script(bench, data, "tfrecord_writer", Target(20, as_fast=True)),
        ],
        data,
    )


@scenario
def records_many(bench: Bench) -> None:
    """Reshard the JPEG samples, 1.7 GB, into 2,048 shards of TFRecord."""
    data = bench.store.records(bench.store.jpeg())
    out = bench.out / "new-<00000>-of-<total>"
    options = ["--to", "tfrecord", "--num-shards", "2048", "-j", "2", "-q", "--overwrite"]
    loop = python(PEERS / "divide_files.py", bench.out, "2048", *data.files)
    bench.race(
        "records-many",
        [
            Peer("tar2tf convert -j 2", [tar2tf("convert", data.directory, "-o", out, *options)], writes=data.payload),
            limit("a loop with fsync", loop, target=Target(1.2), writes=data.bytes),
            Peer("cat", [cat(bench, data)], None, data.bytes),
        ],
        data,
    )


@scenario
def join(bench: Bench) -> None:
    """Join 80,000 captions of a CSV file, in another order, to the small samples."""
    data, captions = bench.store.small(), bench.store.captions()
    command = python(PEERS / "join_script.py", bench.out, captions, *data.files)
    joined = ["--join", str(captions)]
    bench.race(
        "join",
        [
            Peer("tar2tf convert -j 2", [[*convert_command(bench, data, "record"), *joined]], writes=data.payload),
            Peer("without the join", [convert_command(bench, data, "record")], writes=data.payload),
            Peer("dict script", [command], Target(10, as_fast=True), data.payload, data.samples),
            c_loop(bench, data),
        ],
        data,
    )


@scenario
def choose(bench: Bench) -> None:
    """Convert those of the small samples that options choose by the key or the data of each."""
    data, keys = bench.store.small(), bench.store.keys()
    plain = convert_command(bench, data, "record")
    chosen = {
        "keys": ["--keys", str(keys)],
        "part": ["--sample", "0.99"],
        "filter": ["--op", "filter:png"],
        "duplicates": ["--drop-duplicates"],
    }
    for name, options in chosen.items():
        bench.race(
            f"choose-{name}",
            [
                Peer(f"tar2tf convert {options[0]}", [[*plain, *options]]),
                Peer("all samples", [plain], Target(1.5), data.payload),
                c_loop(bench, data),
            ],
            data,
        )


def convert_command(bench: Bench, data: Dataset, suffix: str = "tar") -> Command:
    limit = f"--max-shard-size={round(bench.store.scale * (1 << 28))}"  # so that no tar gets the samples of two links
    return tar2tf(
        "convert", data.directory, "-o", bench.out / f"new-<>.{suffix}", limit, "-j", "2", "-q", "--overwrite"
    )
