"""Image folders to tensors, and examples that a CSV file describes."""

from __future__ import annotations

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS
from benchmarks.suites.core import cat
from benchmarks.suites.ops import value_loop


@scenario
def imagefolder(bench: Bench) -> None:
    """A folder of 4,000 JPEGs to imagenet-tensor at 300x300."""
    data = bench.store.photos()
    ours = tar2tf("convert", "--from", "imagefolder", data.directory, "-o", bench.out / "train-<00000>-of-<total>",
        "--preset", "imagenet-tensor", "--image-size", "300", "--num-shards", "10", "--shuffle", "--seed", "1",
        "-j", "2", "-q")  # fmt: skip
    theirs = python(PEERS / "imagefolder_script.py", bench.out, data.directory)
    written = data.samples * 300 * 300 * 3
    bench.race(
        "imagefolder",
        [
            Peer("tar2tf convert -j 2", [ours], writes=written),
            Peer("tf.data map", [theirs], Target(1.25, True), written, data.samples),
            limit("simplejpeg, cv2.resize", value_loop(bench, "square", data), writes=written, records=data.samples),
        ],
        data,
    )


@scenario
def examples(bench: Bench) -> None:
    """Described examples: 400 arrays of 500 rows of 600 floats, in chunks of five rows."""
    data = bench.store.described()
    where = f"{PEERS / 'described.py'}:Described"
    ours = tar2tf("convert", "--from", "examples", "--example-class", where, data.directory / "examples.csv",
        "-o", bench.out / "<0>.tfr", "--max-shard-size", "100MB", "-j", "2", "-q")  # fmt: skip
    theirs = python(PEERS / "described.py", bench.out, data.directory / "examples.csv")
    bench.race(
        "examples",
        [
            Peer("tar2tf convert -j 2", [ours], writes=data.payload),
            Peer("tf.train.Example, flush", [theirs], Target(5, True), data.payload, data.samples),
            limit("cat, then sync FILE", cat(bench, data, sync=True), writes=data.payload),
        ],
        data,
    )
