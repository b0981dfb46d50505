"""keep, rename and drop_empty, as go-tfdata has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_cases import loaded, run
from tar2tf_cli import load_dataset
from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops import (
    DropEmpty,
    Keep,
    Op,
    OpContext,
    Rename,
)
from tar2tf_cli.ops.base import apply_ops

# --- Entries: keep, rename, drop_empty as go-tfdata has them ---


def through(sample: dict[str, Any], *ops: Op) -> list[dict[str, Any]]:
    return list(apply_ops({"__key__": "k", **sample}, ops, OpContext()))


ENTRIES = {"jpg": b"i", "seg.png": b"s", "mask.a": b"m", "png": b"p", "cls": b"3\n"}


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["jpg"], {"jpg"}),
        (["jp"], set()),
        (["prefix:seg"], {"seg.png"}),
        (["suffix:png"], {"seg.png", "png"}),
        (["contains:ask"], {"mask.a"}),
        (["cls=3"], {"cls"}),
        (["cls=4"], set()),
        (["jpg=3"], set()),
        (["jpg", "cls=3", "prefix:mask"], {"jpg", "cls", "mask.a"}),
        (["jpg", "jpg"], {"jpg"}),
        (["__key__"], set()),
    ],
)
def test_keep_is_the_union_of_its_rules(rules: list[str], kept: set[str]) -> None:
    (sample,) = through(dict(ENTRIES), Keep(*rules))
    assert set(sample) == {"__key__", *kept}
    assert all(sample[name] is ENTRIES[name] for name in kept)


def test_rename_takes_the_first_source_that_is_present() -> None:
    op = Rename(image=["jpg", "png"], label="cls")
    assert through({"png": b"p", "jpg": b"j", "cls": b"1"}, op) == [
        {"__key__": "k", "png": b"p", "image": b"j", "label": b"1"}
    ]
    assert through({"png": b"p", "cls": b"1"}, op) == [{"__key__": "k", "image": b"p", "label": b"1"}]
    assert through({"image": b"i", "cls": b"1"}, op) == [{"__key__": "k", "image": b"i", "label": b"1"}]


def test_rename_without_any_source_is_an_error_naming_both() -> None:
    with pytest.raises(SampleError, match=r"jpg, jpeg.*'image'"):
        through({"png": b"p"}, Rename(image=["jpg", "jpeg"]))


def test_samples_without_entries_are_dropped_and_others_are_not(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Keep("cls=2", "cls=5"), DropEmpty())
    assert [item["__key__"].numpy() for item in found] == [b"0002", b"0005"]
    assert [item["cls"].numpy() for item in found] == [b"2", b"5"]


def test_a_conversion_that_drops_everything_leaves_an_empty_dataset(bucket: Path, tmp_path: Path) -> None:
    summary = run(bucket, tmp_path, Keep("nothing"), DropEmpty())
    assert (summary.records, summary.shards) == (0, [])
    assert list(load_dataset(summary.manifest)) == []


@pytest.mark.parametrize(
    ("op", "same", "other"),
    [
        (Rename(image="jpg;jpeg"), Rename({"image": ["jpg", "jpeg"]}), Rename(image="jpeg;jpg")),
        (Keep("jpg", "cls"), Keep("jpg", "cls"), Keep("jpg")),
        (DropEmpty(), DropEmpty(), Keep("jpg")),
    ],
)
def test_ops_are_equal_if_they_do_the_same(op: Op, same: Op, other: Op) -> None:
    assert (op, hash(op)) == (same, hash(same))
    assert op != other
    assert op != op.canonical()
