"""Splits are divided by the key that is written, so that converting again moves no sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import convert
from shards import keys, samples, samples_of, shards_in, small_shards, write_tar
from verify_runs import an_example, framed, write

SPLIT = ["--split", "train=0.6,val=0.4"]
RENAME = """
def rename(sample, by=1):
    sample["__key__"] = "new-" + sample["__key__"][::-1]
    return sample
"""


def keys_in(*paths: Path) -> list[str]:
    """The keys of samples in TFRecords or tars."""
    return [key for key, _ in samples_of(*paths)] if paths[0].suffix == ".tar" else keys(*paths)


def divided(out: Path, suffix: str = "record") -> dict[str, set[str]]:
    return {split: {*keys_in(*shards_in(out, f"{split}-*.{suffix}"))} for split in ("train", "val")}


@pytest.mark.parametrize("suffix", ["record", "tar"])
def test_converting_again_moves_no_sample_between_splits(tmp_path: Path, suffix: str) -> None:
    shards = small_shards(tmp_path / "in")
    (tmp_path / "own.py").write_text(RENAME)
    op = ["--op", f"func:{tmp_path / 'own.py'}:rename"]
    convert(shards, "-o", tmp_path / f"a/<split>-<>.{suffix}", *SPLIT, *op)
    convert(shards, "-o", tmp_path / f"one.{suffix}", *op)
    convert(tmp_path / f"one.{suffix}", "-o", tmp_path / f"b/<split>-<>.{suffix}", *SPLIT)
    first = divided(tmp_path / "a", suffix)
    assert min(map(len, first.values())) > 60
    assert divided(tmp_path / "b", suffix) == first
    tars = "tar" if suffix == "record" else "record"
    convert(tmp_path / "a", "-o", tmp_path / f"c/<split>-<>.{tars}")
    convert(tmp_path / "c/_manifest.json", "-o", tmp_path / f"d/<split>-<>.{suffix}", *SPLIT)
    assert divided(tmp_path / "d", suffix) == first


def test_invented_keys_are_unique(tmp_path: Path) -> None:
    for folder in ("train", "val"):
        write(tmp_path / folder / "x.record", framed(*(an_example(n=number) for number in range(3))))
    convert(tmp_path, "*/x.record", "-o", tmp_path / "a.tar")
    wanted = [f"{folder}/x-00000000{number}" for folder in ("train", "val") for number in range(3)]
    found = keys_in(tmp_path / "a.tar")
    assert len({*found}) == 6
    assert [key.rpartition("-")[0] for key in found] == [key.rpartition("-")[0] for key in wanted]
    convert(tmp_path / "train", tmp_path / "val", "-o", tmp_path / "b.tar")
    assert keys_in(tmp_path / "b.tar") == found


def test_the_key_of_the_input_divides_examples_without_one(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", samples(40))
    convert(tar, "-o", tmp_path / "out/<split>-<>.record", *SPLIT, "--select", "cls")
    assert len(shards_in(tmp_path / "out", "*.record")) == 2
