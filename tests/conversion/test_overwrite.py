"""`--overwrite`: the output that is there stays valid until the new one is, and what a kill leaves is never OK."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from zstandard import get_frame_parameters

from commands import convert, tar2tf
from interruptions import kill_once_published
from shards import every_file, samples, shards_in, write_tar
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.conversion.run import convert as run_conversion
from tar2tf_cli.spec.conversion import Conversion, Output


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    write_tar(tmp_path / "tars" / "a.tar", samples(60))
    write_tar(tmp_path / "tars" / "b.tar", samples(60, first=100))
    return tmp_path / "tars"


def test_the_earlier_output_is_valid_until_all_of_the_new_one_is_there(tars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["convert", tars, "-o", out / "x-<>.record", "--records-per-shard"]
    assert tar2tf(*command, 40).returncode == 0
    before = every_file(out)
    with (tars / "b.tar").open("r+b") as tar:
        tar.truncate(20_000)
    done = tar2tf(*command, 10, "--overwrite")
    assert done.returncode == 3
    assert {name: every_file(out)[name] for name in before} == before
    assert len(shards_in(out, "x-*.record")) == 3


def test_indexes_of_shards_that_are_no_more_go_with_them(tars: Path, tmp_path: Path) -> None:
    command = ["convert", tars, "-o", tmp_path / "out" / "x-<>.record", "--index", "--records-per-shard"]
    assert tar2tf(*command, 20).returncode == 0
    assert tar2tf(*command, 60, "--overwrite").returncode == 0
    shards = {"x-1.record", "x-2.record"}
    assert {name for name in every_file(tmp_path / "out") if name.startswith("x-")} == shards | {
        f"{name}.idx" for name in shards
    }


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
def test_a_kill_between_two_renames_leaves_no_manifest_and_the_same_command_continues(
    tars: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ["convert", tars, "-o", out / "x-<>.record", "--records-per-shard"]
    convert(*map(str, command[1:]), 30)
    kill_once_published("x-2.record", *command, 40, "--overwrite")
    assert (out / ".x-manifest.tar2tf" / "journal").exists()
    assert not (out / "_x-manifest.json").exists()
    assert tar2tf("verify", out).returncode == 1
    assert tar2tf(*command, 40, "--overwrite").returncode == 0
    assert len(shards_in(out, "x-*.record")) == 3
    assert verify(str(out / "_x-manifest.json")).ok


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
def test_what_a_killed_run_with_other_options_left_is_not_replaced_without_a_word(tars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["convert", tars, "-o", out / "x-<>.record", "--records-per-shard"]
    kill_once_published("x-2.record", *command, 10)
    before = {path: path.read_bytes() for path in shards_in(out, "x-*.record")}
    done = tar2tf(*command, 20)
    assert done.returncode == 2
    assert "was left by an interrupted run with other options" in done.stderr
    assert "--overwrite" in done.stderr
    assert {path: path.read_bytes() for path in shards_in(out, "x-*.record")} == before
    assert tar2tf(*command, 20, "--overwrite").returncode == 0
    assert verify(str(out / "_x-manifest.json")).records == 120


def test_no_rows_are_an_output_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    for options in ([], ["--shuffle"], ["--num-shards", "2"]):
        done = tar2tf(
            "convert",
            "--from",
            "table",
            "t.csv",
            "-o",
            "x.record",
            "--limit",
            "0",
            "--overwrite",
            *options,
            cwd=tmp_path,
        )
        assert (done.returncode, "0 records" in done.stderr) == (0, True)


def test_an_output_replaces_another_with_the_same_manifest(tars: Path, tmp_path: Path) -> None:
    convert(tars, "-o", tmp_path / "x-<>.record", "--records-per-shard", "50")
    convert(str(tmp_path), "x-*.record", "-o", tmp_path / "x.record", "--overwrite")
    assert verify(str(tmp_path / "x.record")).records == 120
    assert len(shards_in(tmp_path, "x-*.record")) == 3


# --- Integrity on the disk ---


@pytest.mark.parametrize("name", ["x.tar.zst", "x-<>.tar.zst", "x.tar.gz", "x-<>.tar.gz", "x-<>.record.gz"])
def test_a_flipped_bit_in_a_compressed_shard_is_found(name: str, tmp_path: Path) -> None:
    entries = [(f"{number:03}", {"bin": random.Random(number).randbytes(2000)}) for number in range(60)]
    convert(write_tar(tmp_path / "in.tar", entries), "-o", tmp_path / "out" / name)
    path = next(path for path in shards_in(tmp_path / "out", "x*") if path.suffix != ".json")
    data = path.read_bytes()
    if name.endswith("zst"):
        assert get_frame_parameters(data).has_checksum
    dice = random.Random(0)
    for _ in range(40):
        flipped = bytearray(data)
        flipped[dice.randrange(20, len(data) - 20)] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        assert not verify(str(path)).ok


def test_the_folder_of_each_shard_is_on_the_disk_before_the_manifest_is(
    tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renaming a file makes its folder's entries dirty again."""
    out, clean, published = tmp_path / "out", set[int](), list[str]()
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        clean.add(os.fstat(descriptor).st_ino)

    def noted_replace(old: str, new: str) -> None:
        if new.endswith("manifest.json"):
            assert {os.stat(out / name).st_ino for name in ("train", "val")} <= clean
        replace(old, new)
        clean.discard(os.stat(os.path.dirname(new)).st_ino)
        published.append(os.path.relpath(new, out))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    output = Output(f"{out}/<split>/x-<>.record", records_per_shard=30)
    run_conversion(Conversion(str(tars), output, split="train=0.5,val=0.5"), workers=1)
    assert {os.path.dirname(name) for name in published if name.endswith(".record")} == {"train", "val"}
