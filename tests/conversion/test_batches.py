"""Shards that are written directly from tars, many records at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from makers import END, member
from shards import keys, samples, tree, write_members, write_tar
from tar2tf_cli.cli import main
from tar2tf_cli.samples.grouping import Batch


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_last_sample_with_another_entry_in_place_of_one_that_all_others_have_is_whole(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    names = [f"{number:03d}.{extension}" for number in range(20) for extension in ("cls", "jpg")]
    for last, lacks in (("999.png", False), ("999.cls", True)):
        write_members(tmp_path / "x.tar", ((name, b"1") for name in [*names, last]))
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "x.tar"), "-o", str(tmp_path / f"{last}.record")])
        assert ("the last sample, 999, lacks jpg" in capsys.readouterr().err) == lacks


@pytest.mark.parametrize(
    "limit", [(), ("--max-shard-size", "150kB"), ("--records-per-shard", "7"), ("--num-shards", "4"), ("--limit", "41")]
)
@pytest.mark.usefixtures("with_kernel")
def test_large_samples_come_in_batches_that_end_where_their_shards_end(
    limit: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(40, 12_000, first=40 * number))
    taken: list[int] = []

    def first_records(batch: Batch, count: int) -> bytes:
        taken.append(min(count, len(batch)))
        return whole(batch, count)

    whole = Batch.first_records
    monkeypatch.setattr(Batch, "first_records", first_records)
    for pure in ("1", "0"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        output = str(tmp_path / pure / "x-<>.record")
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "in"), "-o", output, *limit, "-j", "1", "-q"])
        assert sum(taken) == 0 if pure == "1" else sum(taken) > 30
    assert tree(tmp_path / "0") == tree(tmp_path / "1")


@pytest.mark.parametrize("options", [(), ("--op", "keep:txt"), ("--on-error", "skip")])
@pytest.mark.usefixtures("with_kernel")
def test_a_member_without_a_name_ends_nothing(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [b"a.txt", b"b.txt", b"README", b"", b"c.txt", b"d.txt"]
    (tmp_path / "x.tar").write_bytes(b"".join(member(name, b"1") for name in names) + END)
    for pure in ("0", "1"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "x.tar"), "-o", str(tmp_path / f"{pure}.record"), *options])
        assert keys(tmp_path / f"{pure}.record") == ["a", "b", "c", "d"]
