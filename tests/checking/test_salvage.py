"""`tar2tf verify --salvage`: every good record of every input is in the new file, and nothing else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from checked import SEVERAL, Ran, flipped, framed, some_examples, write


def damaged(folder: Path) -> list[bytes]:
    """Three files with damage; returns their good records in order."""
    first, second, third = some_examples(20), some_examples(20, 100), some_examples(20, 200)
    parts = [framed(record) for record in first]
    parts[3], parts[9] = flipped(parts[3], 30), flipped(parts[9], 1)
    write(folder / "a.record", b"".join(parts) + b"garbage")
    write(folder / "b.record", framed(*second[:5], b"not an example", *second[5:])[:-3])
    write(folder / "c.record", gzip.compress(framed(*third)))
    return [*first[:3], *first[4:9], *first[10:], *second[:-1], *third]


@pytest.mark.parametrize("workers", [(), SEVERAL])
def test_every_good_record_is_saved_in_order(tmp_path: Path, run: Callable[..., Ran], workers: tuple[str, ...]) -> None:
    good = damaged(tmp_path / "in")
    ran = run(tmp_path / "in", "--salvage", tmp_path / "good.record", "--json", *workers)
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "good.record"))] == good
    saved = ran.json["salvaged"]
    assert (ran.code, saved["records"], saved["lost"]["records"]) == (1, len(good), 5)
    assert saved["bytes"] == (tmp_path / "good.record").stat().st_size
    lost = sum(fault.get("lost") or 0 for file in ran.json["files"] for fault in file["faults"])
    assert saved["lost"]["bytes"] == lost
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.record", "in"]
    assert run(tmp_path / "good.record").code == 0


def test_the_summary_says_what_was_lost(tmp_path: Path, run: Callable[..., Ran]) -> None:
    good = damaged(tmp_path / "in")
    ran = run(tmp_path / "in", "--salvage", tmp_path / "x")
    assert f"salvaged {len(good)} records" in ran.err
    assert "lost 5 records" in ran.err


def test_an_existing_file_is_not_replaced(tmp_path: Path, run: Callable[..., Ran]) -> None:
    damaged(tmp_path / "in")
    taken = write(tmp_path / "x", b"precious")
    ran = run(tmp_path / "in", "--salvage", taken)
    assert (ran.code, "exists already" in ran.err, taken.read_bytes()) == (2, True, b"precious")
    for path in ("s3://bucket/x", tmp_path / "no" / "x"):
        assert run(tmp_path / "in", "--salvage", path).code == 2
    assert run(tmp_path / "in", "--salvage", tmp_path / "y", "--fast").code == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
