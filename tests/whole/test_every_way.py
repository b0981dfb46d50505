"""Whoever reads a dataset says the same of it: how many samples it has, which ones, and whether it is whole."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import tar2tf
from make_bytes import files_of, tar_of
from shards import keys
from tar2tf_cli import open_records
from tar2tf_cli.errors import Tar2tfError

pytestmark = pytest.mark.spread


class Said(NamedTuple):
    """What one way of reading says of a file: the keys of the samples that it takes, and whether the file is whole."""

    keys: list[str]
    whole: bool


def converted(path: Path, folder: Path, *options: str, **environment: str) -> Said:
    out = folder / "x.record"
    done = tar2tf("convert", path, "-o", out, "--on-error", "skip", *options, env=environment)
    assert done.returncode in (0, 1, 3), done.stderr
    return Said(keys(out) if out.exists() else [], done.returncode == 0)


def to_a_tar(path: Path, folder: Path) -> Said:
    done = tar2tf("convert", path, "-o", folder / "x.tar", "--on-error", "skip")
    return Said(listed(folder / "x.tar"), done.returncode == 0)


def inspected(path: Path, folder: Path) -> Said:
    done = tar2tf("inspect", path, "--json")
    assert json.loads(done.stdout)["samples"] == len(listed(path))
    return Said(listed(path), done.returncode == 0)


def listed(path: Path) -> list[str]:
    return tar2tf("inspect", path, "--keys").stdout.splitlines() if path.exists() else []


WAYS: dict[str, Callable[[Path, Path], Said]] = {
    "convert": converted,
    "without the kernel": lambda path, folder: converted(path, folder, TAR2TF_PURE="1"),
    "with an op": lambda path, folder: converted(path, folder, "--op", "drop_empty"),
    "by keys": lambda path, folder: converted(path, folder, "--sample", "1"),
    "regrouped": lambda path, folder: converted(path, folder, "--regroup"),
    "to a tar": to_a_tar,
    "inspect": inspected,
}


def damaged(kind: str, rng: random.Random) -> bytes:
    """A tar of 30 samples that is whole, or is not."""
    files = files_of(30, 600)
    if kind == "lacks a member":
        return tar_of(files[:-1], end=bytes(10240))
    data = bytearray(tar_of(files, end=bytes(10240)))
    block = 512 * rng.randrange(1, 30 * 5)
    if kind == "cut":
        del data[block + rng.choice([0, 1, 511]) :]
    elif kind == "zeroed":
        data[block : block + 4096] = bytes(4096)
    elif kind == "overwritten":
        data[block : block + 512] = rng.randbytes(512)
    elif kind == "longer":
        data += b"?" * 700
    return bytes(data)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["whole", "lacks a member", "cut", "zeroed", "overwritten", "longer"])
def test_all_ways_of_reading_a_tar_find_the_same_samples(kind: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(damaged(kind, random.Random(f"{kind} {seed}")))
    said = {}
    for number, (name, read) in enumerate(WAYS.items()):
        (folder := tmp_path / str(number)).mkdir()
        said[name] = read(path, folder)
    first = said["convert"]
    assert said == dict.fromkeys(WAYS, first)
    verified = tar2tf("verify", path, "--json")
    assert (json.loads(verified.stdout)["records"], verified.returncode == 0) == (len(first.keys), first.whole)
    assert tar2tf("convert", path, "-o", tmp_path / "x.record").returncode == (0 if first.whole else 3)
    try:
        with open_records(path) as records:
            assert Said([sample["__key__"].decode() for sample in records], True) == first
    except Tar2tfError:
        assert not first.whole


@pytest.mark.parametrize("behind", [b"", b"junk" * 200, b"\x1f\x8b" + bytes(30)], ids=["cut", "text", "gzip"])
def test_what_is_lost_of_a_compressed_tar_does_not_depend_on_how_it_is_read(behind: bytes, tmp_path: Path) -> None:
    packed = gzip.compress(tar_of(files_of(30, 600), end=bytes(10240)), mtime=0)
    path = tmp_path / "in.tar.gz"
    path.write_bytes(packed + behind if behind else packed[:-3000])
    intact = tmp_path / "other.tar"
    intact.write_bytes(tar_of([("other.cls", b"1"), ("other.jpg", b"picture")]))
    skipped = []
    for options in ((), ("--regroup",), ("--op", "drop_empty")):
        output = tmp_path / "".join(options) / "x.record"
        done = tar2tf("convert", path, intact, "-o", output, "--on-error", "skip", "--json", *options)
        assert done.returncode == 1
        skipped.append(json.loads(done.stdout)["skipped"])
    assert skipped[0]["lost"]
    assert skipped[1:] == skipped[:1] * 2


def test_a_small_member_that_was_zeroed_is_found_in_any_order(tmp_path: Path) -> None:
    data = bytearray(tar_of(files_of(30, 600), end=bytes(10240)))
    place = data.index(b"0007.cls")
    data[place : place + 1024] = bytes(1024)
    filled = bytes(data) + bytes(-len(data) % 10240)
    (tmp_path / "in.tar").write_bytes(filled)
    assert tar2tf("verify", tmp_path / "in.tar").returncode == 1
    with pytest.raises(Tar2tfError, match="1,024 zero bytes"):
        open_records(tmp_path / "in.tar")


@pytest.mark.parametrize("place", [0, 1, 2, 3, 14, 19, 40, 58])  # 19 ends as an archive may
def test_no_half_of_a_sample_beside_zeros_is_converted(place: int, tmp_path: Path) -> None:
    data = bytearray(tar_of(files_of(30, 100), end=bytes(10240)))
    data += bytes(-len(data) % 10240)
    data[1024 * place : 1024 * place + 1024] = bytes(1024)  # all of a member
    path = tmp_path / "in.tar"
    path.write_bytes(data)
    (tmp_path / "in.tar.gz").write_bytes(gzip.compress(data))
    whole = [f"{number:04d}" for number in range(30) if number != place // 2]
    ways: dict[str, Callable[[Path, Path], Said]] = {
        **WAYS,
        "compressed": lambda path, folder: converted(path.with_suffix(".tar.gz"), folder),
    }
    said = {}
    for name, read in ways.items():
        (folder := tmp_path / name).mkdir()
        said[name] = read(path, folder)
    assert said.pop("inspect").keys == whole
    assert said == dict.fromkeys(said, Said(whole, False))
    assert tar2tf("convert", path, "-o", tmp_path / "x.record").returncode == 3
    verified = tar2tf("verify", path, "--json")
    assert (json.loads(verified.stdout)["records"], verified.returncode) == (29, 1)
