"""Tars whose members are not adjacent are read in any order, with the samples that a conversion makes of them."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import subprocess
from pathlib import Path

import pytest

from commands import tar2tf
from servers import FaultyServer
from tar2tf_cli import open_records
from tar2tf_cli.errors import DamagedShardError, UsageError
from verify_runs import a_tar, flipped, write

NAMES = ("cls", "txt", "x")
MEMBERS = [(f"{number:03d}.{name}", b"%d " % number * (number + 1)) for number in range(20) for name in NAMES]


def scattered(seed: int = 0) -> list[tuple[str, bytes]]:
    return random.Random(seed).sample(MEMBERS, len(MEMBERS))


@pytest.mark.parametrize("long", ["", "long" * 40])
@pytest.mark.parametrize("seed", range(3))
def test_samples_are_those_of_a_conversion(tmp_path: Path, seed: int, long: str) -> None:
    tar = write(tmp_path / "in.tar", a_tar([(f"{long}{name}", data) for name, data in scattered(seed)]))
    assert tar2tf("convert", tar, "-o", tmp_path / "o.tar", "-q").returncode == 0
    expected = [*open_records(tmp_path / "o.tar")]
    for index_folder in ("", tmp_path / "cache", tmp_path / "cache"):
        records = open_records(tar, index_folder=index_folder)
        assert [*records] == expected
        order = random.Random(seed).sample(range(20), 20)
        assert records.__getitems__(order) == [expected[number] for number in order]
        assert [records[number] for number in order] == [expected[number] for number in order]
        assert all(records.key(sample["__key__"]) == sample for sample in expected)
        assert [*pickle.loads(pickle.dumps(records))[3:5]] == expected[3:5]
        assert records.schema().keys() == {"cls", "txt", "x", "__key__"}


def test_a_folder_that_gnu_tar_packed_in_its_own_order_is_read(tmp_path: Path) -> None:
    for name, data in MEMBERS:
        write(tmp_path / "folder" / name, data)
    names = [name for name, _ in scattered(5)]
    subprocess.run(["tar", "cf", tmp_path / "x.tar", "-C", tmp_path / "folder", *names], check=True)
    samples = {sample["__key__"]: sample for sample in open_records(tmp_path / "x.tar", index_folder="")}
    assert all(samples[name[:3].encode()][name[4:]] == data for name, data in MEMBERS)


def test_from_a_server_only_the_members_of_a_sample_are_asked_for(tmp_path: Path, web: FaultyServer) -> None:
    web.objects["in/x.tar"] = a_tar(scattered())
    expected = [*open_records(write(tmp_path / "x.tar", a_tar(scattered())))]
    records = open_records(f"{web.url}/in/x.tar", index_folder=tmp_path / "cache")
    assert records.__getitems__([5, 0, 19]) == [expected[number] for number in (5, 0, 19)]


def test_damage_is_named_by_its_offset_in_the_tar(tmp_path: Path) -> None:
    data = a_tar(scattered())
    tar = write(tmp_path / "x.tar", data)
    records = open_records(tar, index_folder=tmp_path / "cache")
    place = next(n for n, sample in enumerate(records) if sample["__key__"] == b"007")
    first = min(data.index(f"007.{name}".encode()) for name in ("cls", "txt", "x"))
    stat = tar.stat()
    tar.write_bytes(flipped(data, first + 124))

    os.utime(tar, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DamagedShardError) as caught:
        open_records(tar, index_folder=tmp_path / "cache")[place]
    assert caught.value.offset == first


def test_a_compressed_one_is_refused_with_what_to_do(tmp_path: Path) -> None:

    tar = write(tmp_path / "x.tar.gz", gzip.compress(a_tar(scattered())))
    with pytest.raises(UsageError, match=r"not adjacent.*tar2tf convert"):
        open_records(tar)
