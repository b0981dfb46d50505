"""`tar2tf verify` of a conversion against its manifest."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from make_bytes import tar_of
from shards import PHOTOS
from tar2tf_cli import verify
from tar2tf_cli.inputs.tar_samples import TarRules
from verify_runs import (
    SEVERAL,
    Ran,
    a_tar,
    check,
    convert,
    edit,
    faults_of,
    flipped,
    in_a_process,
    kinds,
    manifest_of,
    some_members,
    write,
)


def test_a_conversion_is_what_its_manifest_says(out: Path, run: Callable[..., Ran]) -> None:
    ran = run(manifest_of(out), "--json")
    assert (ran.code, ran.json["ok"], ran.json["records"]) == (0, True, 24)
    assert [Path(file["path"]).name for file in ran.json["files"]] == [f"photos-{n}.record" for n in range(1, 5)]


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "x-<00000>-of-<total>.record.gz", "--compression", "gzip", "--records-per-shard", "5"),
        ("-o", "<split>/x-<>.record", "--split", "train=0.7,val=0.3", "--index"),
        ("-o", "<input>.record"),
        ("-o", "one.record", "--shuffle"),
    ],
    ids=str,
)
def test_every_kind_of_conversion_is_what_its_manifest_says(
    tmp_path: Path, run: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    ran = convert(PHOTOS, "-o", tmp_path / options[1], *options[2:])
    assert ran.code == 0, ran.err
    (path,) = tmp_path.glob("*manifest*.json")
    ran = run(path, "--json", *SEVERAL)
    assert (ran.code, ran.json["records"]) == (0, 24), ran


def test_a_manifest_needs_no_folder_in_front_of_it(out: Path) -> None:
    command = [sys.executable, "-m", "tar2tf_cli", "verify", "_photos-manifest.json"]
    assert subprocess.run(command, cwd=out, capture_output=True, timeout=60, check=False).returncode == 0


def test_a_record_whose_length_is_damaged_is_one_fault_and_no_other_number_of_records(
    out: Path, run: Callable[..., Ran]
) -> None:
    data = (out / "photos-3.record").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    (out / "photos-3.record").write_bytes(flipped(data, size + 16))
    ran = run(manifest_of(out), "--json")
    assert faults_of(ran) == [("photos-3.record", "damaged", kind) for kind in ("length_crc", "digest")]


def test_a_shard_that_is_gone_is_missing(out: Path, run: Callable[..., Ran]) -> None:
    (out / "photos-2.record").unlink()
    ran = run(manifest_of(out), "--json")
    assert ran.code == 1
    assert faults_of(ran) == [("photos-2.record", "missing", "missing")]
    assert ran.json["records"] == 18


def test_a_shard_that_the_manifest_does_not_list_is_a_stray(out: Path, run: Callable[..., Ran]) -> None:
    shutil.copy(out / "photos-1.record", out / "photos-5.record")
    shutil.copy(out / "photos-1.record", out / "unrelated.record")
    ran = run(manifest_of(out), "--json")
    assert ran.code == 1
    assert faults_of(ran) == [("photos-5.record", "damaged", "stray")]


def test_a_stray_is_found_whatever_marks_of_templates_its_name_has(tmp_path: Path) -> None:
    write(tmp_path / "in.tar", a_tar(some_members(4)))
    for name in ("x[a]", "x*", "x?", "x{{a}}", "x%", "x@", "x\\", "[ab]/x", "a/x", "ü"):
        folder = tmp_path / "out"
        template = f"{name}-<>.record"
        assert convert(tmp_path / "in.tar", "-o", folder / template, "--num-shards", "2").code == 0
        (manifest,) = folder.rglob("_*manifest.json")
        assert verify(manifest, workers=1).ok, name
        shutil.copy(folder / f"{name}-1.record", stray := folder / f"{name}-9.record")
        faults = [(file.path, fault.message) for file in verify(manifest, workers=1).files for fault in file.faults]
        assert faults == [(str(stray), "the manifest does not list this shard")]
        shutil.rmtree(folder)


def test_a_gap_in_the_manifest_itself_is_found(out: Path, run: Callable[..., Ran]) -> None:
    (out / "photos-2.record").unlink()
    path = edit(manifest_of(out), lambda whole: whole["shards"].pop(1))
    assert ("photos-2.record", "missing", "gap") in faults_of(run(path, "--json"))


def test_a_shard_cut_between_records_has_another_size_and_count(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-4.record"
    data = path.read_bytes()
    first = struct.unpack("<Q", data[:8])[0] + 16
    path.write_bytes(data[:first])
    assert faults_of(run(manifest_of(out), "--json")) == [
        ("photos-4.record", "damaged", "size"),
        ("photos-4.record", "damaged", "count"),
    ]


def test_another_shard_of_equal_size_has_another_digest(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-1.record"
    records = []
    data = path.read_bytes()
    while data:
        length = struct.unpack("<Q", data[:8])[0] + 16
        records.append(data[:length])
        data = data[length:]
    path.write_bytes(b"".join(reversed(records)))
    assert faults_of(run(manifest_of(out), "--json")) == [("photos-1.record", "damaged", "digest")]


def test_a_damaged_shard_is_placed_as_without_a_manifest(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-3.record"
    path.write_bytes(flipped(path.read_bytes(), 100))
    faults = faults_of(run(manifest_of(out), "--json"))
    assert faults == [("photos-3.record", "damaged", "data_crc"), ("photos-3.record", "damaged", "digest")]


SCATTERED = [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3"), ("b.cls", b"4")]


def test_a_tar_with_scattered_samples_in_the_place_of_a_listed_one_has_another_digest(tmp_path: Path) -> None:
    members = [SCATTERED[number] for number in (0, 2, 1, 3)]
    write(tmp_path / "in.tar", tar_of(members))
    assert convert(tmp_path / "in.tar", "-o", tmp_path / "out" / "x.tar").code == 0
    manifest, shard = tmp_path / "out" / "_x-manifest.json", tmp_path / "out" / "x.tar"
    assert check(manifest).faults == []
    write(shard, tar_of(SCATTERED))
    (file,) = verify(manifest, workers=1).files
    assert (kinds(file), file.records, file.features) == (["digest"], 2, {"__key__": 2, "cls": 2, "txt": 2})


def test_scattered_samples_have_no_index(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", tar_of(SCATTERED))
    write(tmp_path / "x.tar.idx", b"v1.2 2\ntxt 512 1 a.txt\ntxt 1536 1 b.txt\n")
    for rules in (TarRules(), TarRules(regroup=True)):
        found = check(tmp_path, rules=rules)
        message = "its index is wrong: the members of the sample 'a' are not adjacent"
        assert [(fault.kind, fault.message) for fault in found.faults] == [("index", message)]
        assert found.records == 2


@pytest.mark.parametrize("described", ["manifest", "index"])
def test_large_entries_of_a_described_tar_are_decoded(described: str, tmp_path: Path) -> None:
    bitmap = (
        b"BM" + struct.pack("<IIIIiiHHIIiiII", 0, 0, 54, 40, 2000, 2000, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(12_000_000)
    )
    members = [("a.bmp", bitmap), ("a.txt", b"1"), ("b.bmp", bitmap[:-9]), ("b.txt", b"2"), ("c.txt", b"3")]
    write(tmp_path / "in.tar", tar_of(members))
    if described == "manifest":
        assert convert(tmp_path / "in.tar", "-o", tmp_path / "out" / "x.tar").code == 0
        path = tmp_path / "out" / "_x-manifest.json"
    else:
        path = tmp_path / "in.tar"
        assert in_a_process("index", path).code == 0
    (file,) = verify(path, decode=True, workers=1).files
    assert [(fault.kind, fault.message.partition(": ")[0], fault.key) for fault in file.faults] == [
        ("undecodable", "sample b", "b")
    ]
    assert file.records == 3


def change_feature(name: str, **described: Any) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole["features"].setdefault(name, {}).update(described)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (change_feature("cls", encoding="float"), "schema", "'cls' is int64, but float in the manifest"),
        (change_feature("cls", shape=[2]), "schema", "'cls' has 1 values, but 2 in the manifest"),
        (lambda whole: whole["features"].pop("json"), "schema", "'json' is not in the manifest"),
        (change_feature("png", encoding="bytes", shape=[], dtype="bytes", count=24), "schema", "lacks 'png'"),
        (change_feature("jpg", count=23), "count", "24 examples have the feature 'jpg', but 23 in the manifest"),
        (
            lambda whole: whole["totals"].update(records=25),
            "count",
            "total of records is 25, but its shards have 24",
        ),
        (lambda whole: whole["shards"][0].update(digest="crc32c:00000000"), "digest", "crc32c:00000000"),
        (lambda whole: whole["shards"][0].update(records=5), "count", "6 records, but 5 in the manifest"),
    ],
)
def test_a_manifest_that_says_something_else_is_found(
    out: Path, run: Callable[..., Ran], change: Callable[[dict[str, Any]], object], kind: str, words: str
) -> None:
    ran = run(edit(manifest_of(out), change))
    assert ran.code == 1
    assert any(words in line and line.endswith(f"({kind})") for line in ran.lines), ran.out


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 99}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": [], "features": {}, "skipped": {}}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": [{"path": 1, "records": 1, "bytes": 1, "digest": ""}],'
        b' "features": {}, "skipped": {}}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": 3, "features": [], "skipped": {}}',
    ],
)
def test_what_is_no_manifest_is_an_error(tmp_path: Path, run: Callable[..., Ran], data: bytes) -> None:
    ran = run(write(tmp_path / "_train-manifest.json", data), "--json")
    assert (ran.code, ran.out) == (3, "")
    assert "manifest" in ran.err


def test_a_manifest_that_was_not_made_use_of_is_mentioned(out: Path, run: Callable[..., Ran]) -> None:
    ran = run(out, "--json")
    assert (ran.code, len(ran.json["files"])) == (0, 4)
    assert f"{manifest_of(out)} was skipped" in ran.err


def test_a_folder_lacks_what_its_manifest_lists(out: Path, run: Callable[..., Ran]) -> None:
    *_, last = sorted(out.glob("*.record"))
    last.unlink()
    ran = run(out)
    assert (ran.code, f"{last}: the file is missing; the manifest lists it" in ran.out) == (1, True)


def test_what_the_conversion_skipped_is_said_every_time(tmp_path: Path, run: Callable[..., Ran]) -> None:
    tar = write(tmp_path / "in.tar", a_tar(some_members(60))[:60_000])
    assert convert(tar, "-o", tmp_path / "out" / "x.record", "--on-error", "skip").code == 1
    manifest = tmp_path / "out" / "_x-manifest.json"
    (lost,) = json.loads(manifest.read_bytes())["skipped"]["lost"]
    where = f"from byte {lost['from']:,} on, {lost['bytes']:,} bytes"
    for _ in range(2):
        for arguments in ((), ("--fast",), ("--against", tar)):
            ran = run(manifest, *arguments)
            assert (ran.code, "whole: " in ran.err.replace("not OK: ", "")) == (1, False)
            assert "1 sample of the inputs skipped; to list them, convert with --errors FILE (skipped)" in ran.out
            assert f"in.tar was not read {where}, which held at least 1 sample (lost)" in ran.out
    for checked in (manifest, manifest.parent):
        faults = [fault for file in run(checked, "--json").json["files"] for fault in file["faults"]]
        assert [(fault["kind"], fault.get("lost")) for fault in faults] == [("skipped", None), ("lost", lost["bytes"])]


def test_a_folder_with_a_manifest_that_cannot_be_read_is_checked_without_it(out: Path, run: Callable[..., Ran]) -> None:
    manifest_of(out).write_bytes(manifest_of(out).read_bytes()[:-9])
    assert run(out).code == 0


def test_a_conversion_that_skipped_all_leaves_nothing_to_verify(tmp_path: Path, run: Callable[..., Ran]) -> None:
    tar = write(tmp_path / "in.tar", a_tar([("a.jpg", b"no image")]))
    options = ("--op", "decode:jpg", "--on-error", "skip")
    assert convert(tar, "-o", tmp_path / "out" / "x.record", *options).code == 3
    assert run(tmp_path / "out" / "_x-manifest.json").code != 0
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."] == []


def test_a_conversion_that_was_asked_to_skip_all_is_whole(tmp_path: Path, run: Callable[..., Ran]) -> None:
    assert convert(PHOTOS, "-o", tmp_path / "x-<>.record", "--op", "filter:cls=77").code == 0
    for options in ((), ("--against", PHOTOS)):
        ran = run(tmp_path / "_x-manifest.json", *options)
        assert (ran.code, ran.err) == (0, "OK: 0 files, 0 records, 0 bytes\n")
    write(tmp_path / "others" / "photos-0.tar", a_tar([("9.cls", b"77"), ("9.jpg", b"new")]))
    ran = run(tmp_path / "_x-manifest.json", "--against", tmp_path / "others", "*.tar")
    assert ran.code == 1
    assert "the record of the sample '9' is not in the output" in ran.out
