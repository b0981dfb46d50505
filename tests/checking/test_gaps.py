"""Gaps in the numbering of shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.inputs.numbering import find_gaps
from verify_runs import Ran, framed, some_examples, write

# --- Numbering ---


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["train-1", "train-3"], [("train-2", "train-2")]),
        (["train-0", "train-1", "train-2"], []),
        (["train-9.record", "train-10.record", "train-12.record"], [("train-11.record", "train-11.record")]),
        (["t-0001.gz", "t-0003.gz", "t-0009.gz"], [("t-0002.gz", "t-0002.gz"), ("t-0004.gz", "t-0008.gz")]),
        (["a-00000-of-00004", "a-00002-of-00004"], [("a-00001-of-00004",) * 2, ("a-00003-of-00004",) * 2]),
        (["a-1-of-3", "a-2-of-3", "a-3-of-3"], []),
        (["a-0-of-2"], [("a-1-of-2", "a-1-of-2")]),
        (["v2-train-1", "v2-train-2", "v2-val-1", "v2-val-3"], [("v2-val-2", "v2-val-2")]),
        (["2024-01-01-0", "2024-01-01-1", "2024-01-07-0", "2024-01-07-2"], [("2024-01-07-1", "2024-01-07-1")]),
        (["cifar10", "cifar100"], []),
        (["mnist"], []),
        ([], []),
    ],
)
def test_gaps_in_a_numbering_are_found(names: list[str], missing: list[tuple[str, str]]) -> None:
    assert [(gap.first, gap.last) for gap in find_gaps(names)] == missing


@given(st.sets(st.integers(0, 300), min_size=2), st.booleans())
def test_a_padded_numbering_has_as_many_gaps_as_numbers_are_missing(numbers: set[int], total: bool) -> None:
    suffix = f"-of-{max(numbers) + 1:05d}" if total else ".record"
    gaps = find_gaps(f"train-{number:05d}{suffix}" for number in numbers)
    first = 0 if total else min(numbers)
    assert sum(gap.missing for gap in gaps) == max(numbers) - first + 1 - len(numbers)


def test_a_gap_is_a_fault_where_the_shard_should_be(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in (1, 2, 5):
        write(tmp_path / f"train-{number}.record", framed(*some_examples(2)))
    for arguments in ((tmp_path,), (tmp_path, "train-*")):
        ran = run(*arguments, "--json")
        assert ran.code == 1
        assert [(Path(file["path"]).name, file["status"]) for file in ran.json["files"]] == [
            ("train-1.record", "ok"),
            ("train-2.record", "ok"),
            ("train-3.record", "missing"),
            ("train-5.record", "ok"),
        ]
        assert ran.json["files"][2]["faults"] == [
            {
                "kind": "gap",
                "record": None,
                "offset": None,
                "message": f"2 shards, up to {'train-4.record'}, are missing from the numbering",
            }
        ]
    assert "not OK: 1 missing; 3 files, 6 records" in run(tmp_path).err


def test_an_empty_shard_is_not_missing_as_well(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in range(4):
        write(tmp_path / f"part-{number}.tfrecord", framed(*some_examples(2)) if number != 1 else b"")
    write(tmp_path / "part-0.tar", b"")
    ran = run(tmp_path)
    assert [line.split(": ")[1] for line in ran.out.splitlines()] == ["the file is empty (empty)"] * 2
    assert "not OK: 2 of 5 files faulty; 5 files" in ran.err


def test_shards_named_one_by_one_have_no_gaps(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in (1, 2, 5):
        write(tmp_path / f"train-{number}.record", framed(*some_examples(2)))
    assert run(tmp_path, "train-{1,2,5}.record").code == 0
    assert run(tmp_path / "train-5.record").code == 0
