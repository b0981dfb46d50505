"""Whole conversions through the command line: same bytes for any number of workers, order, fill, wire format."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commands import COMMAND, SECONDS, convert
from shards import contents, samples, samples_of, shards_in, tree, write_tar

pytestmark = pytest.mark.spread

# --- 1. The same bytes for any number of workers ---

LAYOUTS = {
    "one file": ["all.record"],
    "max-shard-size": ["train-<>.record", "--max-shard-size", "20kB"],
    "max-shard-size below a record": ["train-<>.record", "--max-shard-size", "500"],
    "num-shards": ["train-<>.record", "--num-shards", "7"],
    "records-per-shard": ["train-<00>.record", "--records-per-shard", "9"],
    "both limits": ["train-<>.record", "--records-per-shard", "9", "--max-shard-size", "30kB"],
    "limit": ["train-<>.record", "--limit", "83", "--max-shard-size", "20kB"],
    "shuffle": ["train-<>.record", "--shuffle", "--seed", "3", "--max-shard-size", "20kB"],
    "shuffle and limit": ["train-<>.record", "--shuffle", "--limit", "50", "--records-per-shard", "8"],
    "shuffle into num-shards": ["train-<>.record", "--shuffle", "--num-shards", "4"],
    "split": ["<split>-<000>.record", "--split", "train=0.7,val=0.2,test=0.1", "--max-shard-size", "20kB"],
    "split folders": ["<split>/<0>.record", "--split", "train=0.5,val=0.5", "--num-shards", "3"],
    "split and shuffle": ["<split>-<>.record", "--split", "a=0.5,b=0.5", "--shuffle", "--records-per-shard", "20"],
    "gzip": ["all.record.gz", "--compression", "gzip"],
    "gzip and size": ["train-<>.record.gz", "--compression", "gzip", "--max-shard-size", "20kB"],
    "gzip and num-shards": ["train-<>.record.gz", "--compression", "gzip", "--num-shards", "3"],
    "gzip, split and limit": [
        *["<split>-<>.gz", "--compression", "gzip", "--split", "a=0.5,b=0.5"],
        *["--limit", "60", "--max-shard-size", "9kB"],
    ],
    "gzip and shuffle": ["train-<>.gz", "--compression", "gzip", "--shuffle", "--max-shard-size", "20kB"],
    "index": ["train-<>.record", "--index", "--max-shard-size", "20kB"],
    "types": ["train-<>.record", "--type", "cls=int64", "--max-shard-size", "20kB"],
    "key-split": ["train-<>.record", "--key-split", "last", "--max-shard-size", "20kB"],
    "regroup": ["train-<>.record", "--regroup", "--max-shard-size", "20kB"],
    "input": ["<input>.record"],
    "input and size": ["<input>-<>.record", "--max-shard-size", "20kB"],
    "input and num-shards": ["<input>-<>.record", "--num-shards", "2"],
    "total": ["train-<000>-of-<total>.record", "--max-shard-size", "20kB"],
    "total and split": ["<split>-<0>-of-<total>.record", "--split", "a=0.5,b=0.5", "--records-per-shard", "10"],
    "skip": ["train-<>.record", "--on-error", "skip", "--max-shard-size", "20kB"],
}

CASES = [
    *[("mixed", layout) for layout in LAYOUTS],
    *[("small", layout) for layout in ("one file", "max-shard-size", "shuffle", "gzip and size", "total")],
    *[("large", layout) for layout in ("one file", "max-shard-size", "num-shards", "input", "limit", "index", "total")],
    *[("one", layout) for layout in ("one file", "max-shard-size", "gzip and size", "num-shards")],
]


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_any_number_of_workers_writes_the_same_bytes(
    kind: str, layout: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    path, *options = LAYOUTS[layout]
    bucket = inputs(kind)

    def converted(workers: int) -> dict[str, bytes]:
        out = tmp_path / f"j{workers}"
        convert(bucket, "-o", out / path, "-j", str(workers), *options)
        return tree(out)

    with (
        ThreadPoolExecutor() as pool
    ):  # what two workers write is compared with what was written before, in test_golden
        one, five = pool.map(converted, (1, 5))
    assert one == five
    manifests = [name for name in one if name.endswith(".json")]
    assert len(manifests) == 1, "the working folder is gone, and one manifest stands"
    listed = {shard["path"] for shard in json.loads(one[manifests[0]])["shards"]}
    assert set(one) == {*listed, *manifests, *(f"{name}.idx" for name in listed if "--index" in options)}


@pytest.mark.parametrize("kind", ["mixed", "large"])
def test_standard_output_is_the_same_stream_for_any_number_of_workers(
    kind: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    convert(inputs(kind), "-o", tmp_path / "one.record")
    for workers in ("1", "2", "5"):
        command = [*COMMAND, "convert", inputs(kind), "-o", "-", "-j", workers]
        done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS)
        assert done.stdout == (tmp_path / "one.record").read_bytes()


@pytest.mark.parametrize("options", [[], ["--select", "image=jpg,label=cls", "--type", "label=int64"]])
def test_every_way_of_reading_gives_the_same_records(options: list[str], tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in" / "x.tar", samples(30, 12_000))
    gz = tmp_path / "x.tgz"
    gz.write_bytes(gzip.compress(tar.read_bytes()))
    convert(tar, "-o", tmp_path / "direct.record", *options)
    convert(gz, "-o", tmp_path / "gzip.record", *options)
    convert(tar, "-o", tmp_path / "spooled.record", "--on-error", "skip", *options)
    with tar.open() as stdin:
        convert("-", "-o", tmp_path / "stdin.record", *options, stdin=stdin)
    convert(tmp_path / "in", "-o", tmp_path / "regrouped.record", "--regroup", *options)
    assert len({path.read_bytes() for path in tmp_path.glob("*.record")}) == 1
    features = [json.loads(path.read_bytes())["features"] for path in tmp_path.glob("*.json")]
    assert len(features) == 5
    assert all(found == features[0] for found in features)


def test_the_bytes_do_not_depend_on_where_the_output_lies(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    options = ["--max-shard-size", "20kB", "-q"]
    convert(inputs("mixed"), "-o", tmp_path / "a" / "train-<>.record", *options)
    convert(inputs("mixed"), "-o", "train-<>.record", *options, cwd=(tmp_path / "a").parent)
    (tmp_path / "b").mkdir()
    convert(inputs("mixed"), "-o", "./b/train-<>.record", *options, cwd=tmp_path)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


# --- 2. Order ---


@pytest.mark.parametrize("kind", ["small", "large", "mixed"])
def test_shards_in_number_order_hold_the_samples_in_input_order(
    kind: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    bucket = inputs(kind)
    convert(bucket, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB", "-j", "5")
    shards = shards_in(tmp_path)
    assert len(shards) > 3
    assert contents(*shards) == samples_of(*sorted(bucket.iterdir()))


def test_braces_give_the_order_and_globs_are_sorted(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    bucket = inputs("small")
    convert(bucket, "small-{3..1}.tar", "-o", tmp_path / "braces.record")
    assert contents(tmp_path / "braces.record") == samples_of(*(bucket / f"small-{n}.tar" for n in (3, 2, 1)))
    convert(bucket, "small-3.tar", "small-[01].tar", "-o", tmp_path / "globs.record")
    assert contents(tmp_path / "globs.record") == samples_of(*(bucket / f"small-{n}.tar" for n in (3, 0, 1)))


def test_a_tar_file_as_bucket_is_that_one_shard(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("small") / "small-2.tar", "-o", tmp_path / "one.record")
    assert contents(tmp_path / "one.record") == samples_of(inputs("small") / "small-2.tar")
