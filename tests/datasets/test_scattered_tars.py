"""Tars whose members are not adjacent are read in any order, with the samples that a conversion makes of them."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import subprocess
import tarfile
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


def archives(data: bytes) -> list[tuple[str, bytes]]:
    """The members of several archives, one after the other."""
    with tarfile.open(fileobj=io.BytesIO(data), ignore_zeros=True) as tar:
        return [(member.name, file.read()) for member in tar if (file := tar.extractfile(member))]


@pytest.mark.parametrize("ends", [bytes(1024), None])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("adjacent", [1, 12, 20])
def test_members_may_be_scattered_after_many_that_are_adjacent_and_across_archives(
    tmp_path: Path, web: FaultyServer, adjacent: int, remote: bool, ends: bytes | None
) -> None:
    first, others = MEMBERS[: 3 * adjacent], [("README", b"no sample"), *MEMBERS[3 * adjacent :]]
    rest = random.Random(adjacent).sample(
        [*others, *((f"{n:03d}.late", b"%d" % n) for n in range(20))], 20 + len(others)
    )
    parts = [a_tar(first), a_tar(rest[:25]), a_tar(rest[25:])]
    data = b"".join(
        parts if ends is None else [part.rstrip(b"\0") + bytes(-len(part.rstrip(b"\0")) % 512) + ends for part in parts]
    )
    expected: dict[str, dict[str, bytes]] = {}
    for name, content in archives(data):
        key, dot, entry = name.partition(".")
        if dot:
            expected.setdefault(key, {})[entry] = content
    path: Path | str = write(tmp_path / "in.tar", data)
    if remote:
        web.objects["in/x.tar"], path = data, f"{web.url}/in/x.tar"
    records = open_records(path, index_folder="")
    found = {sample["__key__"].decode(): {n: v for n, v in sample.items() if n != "__key__"} for sample in records}
    assert found == expected
    assert list(found) == list(expected), "in the order of their first members"


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
