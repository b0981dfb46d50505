"""keep, rename and drop_empty, as go-tfdata has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_cases import loaded, run
from shards import write_tar
from tar2tf_cli import Conversion, Input, Output, convert, load_dataset, open_records
from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops import (
    DropEmpty,
    Keep,
    Op,
    OpContext,
    Rename,
    parse_op,
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


def test_an_entry_can_become_the_key(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("x", {"id": b"7\n", "txt": b"one"}), ("y", {"id": b"8", "txt": b"two"})])
    for output in ("o.record", "t.tar"):
        convert(Conversion(Input(tar), Output(tmp_path / output), ops=["rename:__key__=id"]), workers=1)
        found = [*open_records(tmp_path / output)]
        assert [one["__key__"] for one in found] == [b"7", b"8"]
        assert "id" not in found[0]
    again = Conversion(Input(tmp_path / "o.record"), Output(tmp_path / "n.record"), ops=["rename:name=__key__"])
    convert(again, workers=1)
    assert [one["name"] for one in open_records(tmp_path / "n.record")] == [b"7", b"8"]
    with pytest.raises(SampleError, match="is not one text or whole number, so it cannot be the key"):
        parse_op("rename:__key__=id").apply({"__key__": "a", "id": np.arange(2)}, OpContext())


def test_a_selected_key_is_that_of_the_sample(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("x", {"cls": b"cat", "txt": b"1"}), ("y", {"cls": b"dog", "txt": b"2"})])
    for output in ("o.record", "t.tar"):
        convert(Conversion(Input(tar), Output(tmp_path / output), select="__key__=cls,txt"), workers=1)
        found = [*open_records(tmp_path / output)]
        assert [one["__key__"] for one in found] == [b"cat", b"dog"]


def test_the_key_of_records_may_be_in_another_feature(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar", [("x", {"key": b"000001", "txt": b"1"}), ("y", {"key": b"000002", "txt": b"2"})]
    )
    convert(Conversion(Input(tar), Output(tmp_path / "i.record"), select="key,txt"), workers=1)
    convert(Conversion(Input(tmp_path / "i.record", key_feature="key"), Output(tmp_path / "o.tar")), workers=1)
    assert [one["__key__"] for one in open_records(tmp_path / "o.tar")] == [b"000001", b"000002"]
    with pytest.raises(SampleError, match="the feature 'name' is missing, which --key-feature names"):
        convert(Conversion(Input(tmp_path / "i.record", key_feature="name"), Output(tmp_path / "p.tar")), workers=1)
