"""`tar2tf verify` on tars: what is damaged is found and placed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import tar2tf
from make_bytes import END, member
from tar2tf_cli.inputs.tar_samples import TarRules
from verify_runs import Ran, a_tar, check, flipped, kinds, some_members, write

# --- Damaged tars ---


def test_a_tar_cut_anywhere_is_found(tmp_path: Path) -> None:
    data = a_tar(some_members(3))
    end = data.rstrip(b"\0")
    whole = -(-len(end) // 512) * 512 + 1024
    for length in [*range(1, whole, 97), *range(512, whole, 512)]:
        found = check(write(tmp_path / "train.tar", data[:length]))
        assert found.faults, length
        assert found.records <= 3
    assert not check(write(tmp_path / "train.tar", data[:whole])).faults


def test_every_flipped_bit_of_a_tar_header_is_found(tmp_path: Path) -> None:
    data = a_tar(some_members(3))
    member = 3 * 512
    for position in (*range(0, 512, 7), *range(member, member + 512, 7), *range(5 * member, 5 * member + 512, 7)):
        if position % member == 154:
            continue  # behind the digits of the checksum, where writers differ
        found = check(write(tmp_path / "train.tar", flipped(data, position)))
        assert kinds(found)[0] in ("bad_header", "unknown_format"), position
        assert found.faults[0].offset == position // member * member


def test_a_tar_gz_cut_anywhere_is_found(tmp_path: Path) -> None:
    data = gzip.compress(a_tar(some_members(3)), mtime=0)
    for length in range(1, len(data), 7):
        assert check(write(tmp_path / "train.tar.gz", data[:length])).faults, length


def test_a_tar_without_its_end_is_accepted_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", a_tar(some_members(3))[: 6 * 1536])
    assert kinds(check(path)) == ["truncated"]
    assert not check(path, rules=TarRules(ignore_missing_end=True)).faults


def test_a_zeroed_block_in_a_tar_is_found(tmp_path: Path) -> None:
    data = bytearray(a_tar(some_members(3)))
    data[3 * 1536 : 3 * 1536 + 512] = bytes(512)
    assert kinds(check(write(tmp_path / "x.tar", bytes(data)))) == ["zeroed", "half_sample"]


def test_a_last_sample_that_lacks_an_entry_is_a_note_as_it_is_to_convert(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    path = write(tmp_path / "x.tar", a_tar(some_members(3)[:-1]))
    ran = run(path, "--json")
    lacks = "the last sample, 0002, lacks jpg, which all others have"
    assert (ran.code, ran.json["files"][0]["faults"], ran.json["files"][0]["notes"]) == (0, [], [lacks])
    assert lacks in tar2tf("verify", path).stderr
    assert lacks in tar2tf("convert", path, "-o", tmp_path / "x.record").stderr


def test_a_half_sample_without_an_end_is_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    whole = a_tar(some_members(3)[:-1])
    ran = run(write(tmp_path / "x.tar", whole[: len(whole.rstrip(b"\0")) // 512 * 512 + 512]), "--json")
    assert ran.code == 1
    assert "truncated" in [fault["kind"] for fault in ran.json["files"][0]["faults"]]


def test_zeros_in_place_of_a_small_member_are_found_by_verify_and_convert(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    """Two blocks of them also end an archive; here nothing else would show that a sample is missing."""
    data = bytearray(a_tar([(f"{number:04}.json", b"{}") for number in range(30)]))
    data[12 * 1024 : 13 * 1024] = bytes(1024)
    path = write(tmp_path / "x.tar", bytes(data))
    ran = run(path, "--json")
    (fault,) = ran.json["files"][0]["faults"]
    assert (ran.code, fault["kind"], fault["offset"]) == (1, "zeroed", 12 * 1024)
    assert ran.json["files"][0]["records"] == 29
    assert "1,024 zero bytes up to offset 13312" in tar2tf("inspect", path).stderr
    failed = tar2tf("convert", path, "-o", tmp_path / "x.record")
    assert failed.returncode == 3
    assert "offset 12288: 1,024 zero bytes up to offset 13312 in the middle of the archive" in failed.stderr
    done = tar2tf("convert", path, "-o", tmp_path / "x.record", "--on-error", "skip", "--json")
    assert done.returncode == 1
    manifest = json.loads((tmp_path / "_x-manifest.json").read_text())
    assert [(lost["from"], lost["to"], lost["bytes"]) for lost in manifest["skipped"]["lost"]] == [(12288, 13312, 1024)]
    assert sum(shard["records"] for shard in manifest["shards"]) == 29


def test_a_key_that_comes_back_is_a_fault_only_if_asked_for(tmp_path: Path, run: Callable[..., Ran]) -> None:
    members = sorted(some_members(3), key=lambda member: member[0][-3:])
    path = write(tmp_path / "x.tar", a_tar(members))
    faults = run(path, "--json", "--no-regroup").json["files"][0]["faults"]
    assert [fault["kind"] for fault in faults] == ["duplicate_key"] * 3
    assert faults[0]["offset"] == a_tar(members).index(b"0000.jpg")
    assert run(path, "--regroup").code == 0
    assert run(path).code == 0


def test_a_member_that_comes_twice_is_found(tmp_path: Path) -> None:
    found = check(write(tmp_path / "x.tar", a_tar([*some_members(2), some_members(2)[-1]])))
    assert kinds(found) == ["duplicate_key"]
    assert "0001.jpg" in found.faults[0].message


def test_the_key_rule_decides_what_a_sample_is(tmp_path: Path, run: Callable[..., Ran]) -> None:
    members = [(f"a.{number}.{extension}", b"x") for number in range(3) for extension in ("cls", "jpg")]
    path = write(tmp_path / "x.tar", a_tar(members))
    assert run(path, "--json").json["records"] == 1
    assert run(path, "--json", "--key-split", "last").json["records"] == 3


@pytest.mark.parametrize("members", [[], [("folder/no-extension", b"x")]])
def test_a_tar_without_samples_is_a_fault(tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    found = check(write(tmp_path / "x.tar", a_tar(members)))
    assert kinds(found) == ["empty"]
    assert found.format == "tar"


@pytest.mark.parametrize("options", [[], ["--decode"]])
def test_what_convert_would_refuse_is_a_fault(options: list[str], tmp_path: Path, run: Callable[..., Ran]) -> None:
    entries = [member(b"a.txt"), member(b"b.tx\xff"), member(b"c.txt", b"x", b"Z"), member(b"d.txt", b"x", b"S")]
    (tmp_path / "x.tar").write_bytes(b"".join(entries) + END)
    done = run(tmp_path / "x.tar", "--json", *options)
    (file,) = done.json["files"]
    assert [fault["kind"] for fault in file["faults"]] == ["unknown_type", "sparse", "name"]
    assert file["records"] == 2
