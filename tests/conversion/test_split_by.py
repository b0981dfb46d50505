"""`--split-by` keeps samples that belong together in one split, `--stratify` gives each split its share of each value.

Each split may have a number of shards of its own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands import convert, tar2tf
from shards import samples_of, shards_in, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Conversion, Output

PATIENTS = 60
SPLIT = ["--split", "train=0.6,val=0.4", "--split-by", "json:patient"]


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """Three images of each patient, one in each shard."""
    for shard in "abc":
        contents = [(f"{shard}{number}", {"json": b'{"patient": "p%d"}' % number}) for number in range(PATIENTS)]
        write_tar(tmp_path / f"in/{shard}.tar", contents)
    return tmp_path / "in"


def patients(out: Path, split: str) -> list[str]:
    records = [record for path in shards_in(out, f"{split}-*.record") for record in open_records(str(path))]
    return [json.loads(record["json"])["patient"] for record in records]


@pytest.mark.parametrize("more", [[], ["--shuffle"], ["--max-shard-size", "500B", "--compression", "gzip"]], ids=str)
def test_no_group_is_in_two_splits(more: list[str], bucket: Path, tmp_path: Path) -> None:
    path = "<split>-<>.record"
    convert(bucket, "-o", tmp_path / "1" / path, *SPLIT, *more, "-j", 1)
    convert(bucket, "-o", tmp_path / "2" / path, *SPLIT, *more, "-j", 2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    found = {split: patients(tmp_path / "1", split) for split in ("train", "val")}
    assert sorted(found["train"] + found["val"]) == sorted(3 * [f"p{number}" for number in range(PATIENTS)])
    assert {*found["train"]}.isdisjoint(found["val"])
    assert 0.4 < len(found["train"]) / (3 * PATIENTS) < 0.8
    assert tar2tf("verify", tmp_path / "1/_manifest.json", "--against", bucket).returncode == 0


def test_records_and_tars_are_divided_by_the_same_value(bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "1/<split>-<>.record", *SPLIT)
    convert(bucket, "-o", tmp_path / "all.record")
    convert(tmp_path / "all.record", "-o", tmp_path / "2/<split>-<>.record", *SPLIT)
    convert(bucket, "-o", tmp_path / "3/<split>-<>.tar", *SPLIT, "--drop-duplicates=json", "--op", "rename:meta=json")
    for split in ("train", "val"):
        assert patients(tmp_path / "1", split) == patients(tmp_path / "2", split)
        tars = samples_of(*shards_in(tmp_path / "3", f"{split}-*.tar"))
        assert [json.loads(entries["meta"])["patient"] for _, entries in tars] == [
            *dict.fromkeys(patients(tmp_path / "1", split))
        ]


def test_each_split_has_its_own_number_of_shards(bucket: Path, tmp_path: Path) -> None:
    counts = ["--num-shards", "train=5,val=2"]
    convert(bucket, "-o", tmp_path / "out/<split>-<>.record", "--split", "train=0.6,val=0.4", *counts)
    assert [len(shards_in(tmp_path / "out", f"{split}-*.record")) for split in ("train", "val")] == [5, 2]
    convert(tmp_path / "out", "-o", tmp_path / "new/<split>-<>.record", "--num-shards", "val=1,train=3")
    assert [len(shards_in(tmp_path / "new", f"{split}-*.record")) for split in ("train", "val")] == [3, 1]
    assert patients(tmp_path / "new", "val") == patients(tmp_path / "out", "val")
    done = tar2tf("convert", tmp_path / "out", "-o", tmp_path / "x/<split>-<>.record", "--num-shards", "train=3")
    assert done.returncode == 2
    assert "--num-shards has train, but the inputs have train, val" in done.stderr


def test_a_sample_without_the_value_is_faulty(bucket: Path, tmp_path: Path) -> None:
    out, split = tmp_path / "<split>-<>.record", ["--split", "train=0.6,val=0.4", "--split-by", "json:doctor"]
    done = tar2tf("convert", bucket, "-o", out, *split)
    assert done.returncode == 3
    assert "entry 'json' has nothing at 'doctor'" in done.stderr


LABELS = {"common": 250, "rare": 20, "two": 2, "one": 1}
THREE = ["--split", "train=0.8,val=0.1,test=0.1", "--stratify", "json:label"]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Samples of labels of different number, shuffled among three shards."""
    labels = [label for label, number in LABELS.items() for _ in range(number)]
    random.Random(5).shuffle(labels)
    contents = [(f"{number:04d}", {"json": b'{"label": "%s"}' % label.encode()}) for number, label in enumerate(labels)]
    for number in range(3):
        write_tar(tmp_path / f"labelled/{number}.tar", contents[number::3])
    return tmp_path / "labelled"


def labels_of(out: Path, split: str, suffix: str = "record") -> Counter[str]:
    records = [record for path in shards_in(out, f"{split}-*.{suffix}") for record in open_records(str(path))]
    return Counter(json.loads(record["json"])["label"] for record in records)


@pytest.mark.parametrize(
    "more", [[], ["--shuffle"], ["--num-shards", "train=3,val=1,test=1"], ["--compression", "gzip"]]
)
def test_each_split_has_its_share_of_each_label(more: list[str], labelled: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        convert(labelled, "-o", tmp_path / f"{workers}" / "<split>-<>.record", *THREE, "-j", workers, *more)
    assert tree(tmp_path / "1") == tree(tmp_path / "3")
    found = {split: labels_of(tmp_path / "1", split) for split in ("train", "val", "test")}
    assert sum(found.values(), Counter()) == LABELS
    for split, fraction in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        for label, number in LABELS.items():
            assert abs(found[split][label] - fraction * number) <= 1
    assert (found["train"]["common"], found["val"]["common"], found["test"]["common"]) == (200, 25, 25)
    assert tar2tf("verify", tmp_path / "1/_manifest.json", "--against", labelled).returncode == 0


def test_samples_that_ops_skip_do_not_count_and_tars_and_records_are_divided_alike(
    labelled: Path, tmp_path: Path
) -> None:
    out = ("--op", "filter:json:label!=rare", *THREE)
    convert(labelled, "-o", tmp_path / "1/<split>-<>.record", *out)
    assert labels_of(tmp_path / "1", "val") == {"common": 25}
    convert(labelled, "-o", tmp_path / "2/<split>-<>.tar", *out)
    convert(labelled, "-o", tmp_path / "all.record")
    convert(tmp_path / "all.record", "-o", tmp_path / "3/<split>-<>.record", *out)
    keys = [
        [
            record["__key__"]
            for path in shards_in(tmp_path / folder, f"val-*.{kind}")
            for record in open_records(str(path))
        ]
        for folder, kind in (("1", "record"), ("2", "tar"), ("3", "record"))
    ]
    assert sorted(keys[0]) == sorted(keys[2])
    assert sorted(keys[0]) == sorted(keys[1])


def test_a_dry_run_writes_nothing_and_a_second_run_is_up_to_date(labelled: Path, tmp_path: Path) -> None:
    convert(labelled, "-o", tmp_path / "1/<split>-<>.record", *THREE)
    done = tar2tf("convert", labelled, "-o", tmp_path / "2/<split>-<>.record", *THREE, "--dry-run")
    assert done.returncode == 0, done.stderr
    convert(labelled, "-o", tmp_path / "2/<split>-<>.record", *THREE)
    again = convert(labelled, "-o", tmp_path / "2/<split>-<>.record", *THREE)
    assert "up to date" in again.stderr
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


@pytest.mark.parametrize(
    ("path", "options", "what"),
    [
        ("<split>.record", {"split_by": "json:x"}, "--split-by needs --split"),
        ("<split>.record", {"stratify": "json:x"}, "--stratify needs --split"),
        ("<split>.record", {"stratify": "cls", "split_by": "json:x", "split": "a=1"}, "cannot be combined"),
        ("<split>.record", {"stratify": "cls", "split": "a=1", "remote_exec": True}, "cannot run in the cluster"),
        ("x.record", {"num_shards": {"a": 2}}, "no <split>"),
        ("<split>-<>.record", {"num_shards": "a=2,c=3", "split": "a=0.5,b=0.5"}, "--split has a, b"),
        ("<split>-<>.record", {"num_shards": "a=0"}, "a must be"),
        ("<split>-<>.record", {"num_shards": "a"}, "must be"),
    ],
)
def test_numbers_and_values_without_splits_are_refused(path: str, options: dict[str, Any], what: str) -> None:
    shards = options.pop("num_shards", None)
    with pytest.raises(UsageError, match=what):
        Conversion("in", Output(path, num_shards=shards), **options)


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        (
            "<split>-<>.record",
            ["--split", "train=0.6,val=0.4", "--num-shards", "train=3"],
            "--num-shards has train, but --split has train, val\n  give a number for each split",
        ),
        (
            "x-<>.record",
            ["--num-shards", "train=3"],
            "--num-shards has a number for each split, but the output path has no <split>",
        ),
    ],
)
def test_numbers_of_shards_name_the_splits_of_the_output(
    output: str, options: list[str], message: str, bucket: Path, tmp_path: Path
) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / output, *options)
    assert (done.returncode, done.stderr) == (2, f"error: {message}\n")
