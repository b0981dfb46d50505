"""Keys, faulty samples and damaged tars in a conversion."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from commands import convert, tar2tf
from make_bytes import END, member, pax
from shards import contents, examples, keys, samples, shards_in, tree, write_members, write_tar
from verify_runs import write


def scattered(folder: Path) -> Path:
    """Shards in which all `cls` members come before all `jpg` members."""
    for number in range(3):
        chosen = samples(20, first=number * 100)
        members = [(f"{key}.{name}", entries[name]) for name in ("cls", "jpg") for key, entries in chosen]
        write_members(folder / f"scattered-{number}.tar", members)
    return folder


# --- Keys ---


def test_the_key_ends_at_the_first_or_the_last_dot(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a/x.1.JPG", b"1"), ("a/x.1.cls", b"2")])
    first = convert(tmp_path / "in.tar", "-o", tmp_path / "first.record")
    assert examples(tmp_path / "first.record") == [{"__key__": [b"a/x"], "1.jpg": [b"1"], "1.cls": [b"2"]}]
    assert first.stderr.count("--key-split last") == 1, "a difference between the rules is told once"
    again = convert(tmp_path / "in.tar", "-o", tmp_path / "first.record", "--type", "1.cls=int64", "--overwrite")
    assert "--key-split" not in again.stderr, "the run that made this output before has said so"
    last = convert(tmp_path / "in.tar", "-o", tmp_path / "last.record", "--key-split", "last")
    assert examples(tmp_path / "last.record") == [{"__key__": [b"a/x.1"], "JPG": [b"1"], "cls": [b"2"]}]
    assert "--key-split" not in last.stderr


def test_members_of_one_sample_that_stand_apart_are_an_error_if_asked_for(tmp_path: Path) -> None:
    bucket = scattered(tmp_path / "in")
    done = tar2tf("convert", bucket, "-o", tmp_path / "out" / "x.record", "--no-regroup")
    assert done.returncode == 3
    assert "scattered-0.tar" in done.stderr
    assert "'0000'" in done.stderr
    assert "--regroup" in done.stderr
    convert(bucket, "-o", tmp_path / "out" / "x.record", "--regroup")
    assert contents(tmp_path / "out" / "x.record") == [*samples(20), *samples(20, first=100), *samples(20, first=200)]


def test_what_is_no_sample_is_passed_over_and_counted(tmp_path: Path) -> None:
    members = [
        ("._a.jpg", b"x"),
        ("a.jpg", b"1"),
        ("__meta__", b"{}"),
        ("b.jpg", b"2"),
        ("README", b"r"),
        (".hid", b""),
    ]
    write_members(tmp_path / "in.tar", members)
    done = convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert keys(tmp_path / "x.record") == ["a", "b"]
    skipped = json.loads((tmp_path / "_x-manifest.json").read_bytes())["skipped"]
    assert sum(skipped["members"].values()) == 4
    for reason in skipped["members"]:
        assert reason in done.stderr


# --- Faulty samples ---


def faulty_shards(folder: Path) -> Path:
    """Four shards, of which the first is slow to read; faults in all but the first."""
    write_tar(folder / "0.tar", [(key, entries | {"cls": b"1"}) for key, entries in samples(4000, 2000, first=10_000)])
    for number in range(1, 4):
        chosen = samples(10, first=number * 100)
        for bad in (3, 7)[:number]:
            chosen[bad] = (chosen[bad][0], chosen[bad][1] | {"cls": b"no number"})
        write_tar(folder / f"{number}.tar", chosen)
    return folder


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_shards(tmp_path_factory.mktemp("faulty"))


BAD_KEYS = ["0103", "0203", "0207", "0303", "0307"]


@pytest.mark.parametrize("workers", ["1", "2", "5"])
def test_the_first_error_in_input_order_is_told_for_any_number_of_workers(
    workers: str, faulty: Path, tmp_path: Path
) -> None:
    done = tar2tf("convert", faulty, "-o", tmp_path / "x.record", "--type", "cls=int64", "-j", workers)
    assert done.returncode == 3
    assert "1.tar" in done.stderr.splitlines()[0]
    assert "0103" in done.stderr.splitlines()[0]
    assert not list(tmp_path.glob("*.record"))


def test_skipped_samples_are_listed_in_input_order_for_any_number_of_workers(faulty: Path, tmp_path: Path) -> None:
    trees = []
    for workers in ("1", "5"):
        out, errors = tmp_path / workers, tmp_path / f"{workers}.jsonl"
        policy = ["--on-error", "skip", "--errors", errors, "--max-shard-size", "100kB"]
        done = tar2tf(
            *["convert", faulty, "-o", out / "train-<>.record", "--type", "cls=int64", "-j", workers, *policy]
        )
        assert done.returncode == 1
        assert "5 samples skipped" in done.stderr
        faults = [json.loads(line) for line in errors.read_text().splitlines()]
        assert [fault["key"] for fault in faults] == BAD_KEYS
        for fault in faults:
            assert fault["shard"] == str(faulty / f"{fault['key'][1]}.tar")
            assert "'cls'" in fault["message"]
            assert isinstance(fault["offset"], int)
        trees.append(tree(out))
    assert trees[0] == trees[1]
    manifest = json.loads(trees[0]["_train-manifest.json"])
    assert manifest["skipped"]["samples"] == 5
    assert manifest["totals"]["records"] == 4025
    assert not set(BAD_KEYS) & set(keys(*shards_in(tmp_path / "1")))


def test_offsets_of_skipped_samples_lead_to_their_headers(faulty: Path, tmp_path: Path) -> None:
    options = ["--on-error", "skip", "--errors", tmp_path / "e.jsonl", "--type", "cls=int64"]
    tar2tf("convert", faulty, "[123].tar", "-o", tmp_path / "x.record", *options)
    faults = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [fault["key"] for fault in faults] == BAD_KEYS
    for fault in faults:
        data = Path(fault["shard"]).read_bytes()
        assert data[fault["offset"] :].startswith(fault["key"].encode() + b".")


def test_too_many_faulty_samples_end_the_run(faulty: Path, tmp_path: Path) -> None:
    command = ["convert", faulty, "-o", tmp_path / "x.record", "--type", "cls=int64", "--on-error", "skip"]
    done = tar2tf(*command, "--max-errors", "4")
    assert done.returncode == 3
    assert "--max-errors 4" in done.stderr
    assert not list(tmp_path.glob("*.record"))
    assert tar2tf(*command, "--max-errors", "5", "--overwrite").returncode == 1


def test_repeated_and_missing_entries_are_faulty_samples(tmp_path: Path) -> None:
    members = [("a.cls", b"1"), ("a.cls", b"2"), ("b.cls", b"1"), ("c.jpg", b"x"), ("b.jpg", b"again"), ("d.cls", b"4")]
    write_members(tmp_path / "in.tar", members)
    errors = tmp_path / "e.jsonl"
    options = ["--type", "cls=int64", "--on-error", "skip", "--errors", errors, "--no-regroup"]
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 1
    faults = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [fault["key"] for fault in faults] == ["a", "c", "b"]
    assert keys(tmp_path / "x.record") == ["b", "d"]


def test_faults_alike_are_told_in_one_line(tmp_path: Path) -> None:
    faulty = [(f"{number:04d}", {"cls": b"x%d" % number}) for number in range(1204)]
    write_tar(tmp_path / "in.tar", [*faulty, ("good", {"cls": b"1"})])
    options = ["--type", "cls=int64", "--on-error", "skip"]
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 1
    assert "1,204 x " in done.stderr
    assert len(done.stderr.splitlines()) < 6


# --- Bytes that are not a whole tar ---


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["small", "large", "gz"])
def test_a_cut_shard_leaves_nothing_under_its_final_name(kind: str, workers: str, tmp_path: Path) -> None:
    bucket = tmp_path / "in"
    write_tar(bucket / "0.tar", samples(20, 12_000 if kind == "large" else 300))
    damaged = write_tar(bucket / ("1.tar.gz" if kind == "gz" else "1.tar"), samples(20, 12_000))
    whole = damaged.read_bytes() if kind == "gz" else damaged.read_bytes().rstrip(b"\0")
    for cut in (len(whole) - 5, len(whole) // 2, 100, 0):
        damaged.write_bytes(whole[:cut])
        done = tar2tf("convert", bucket, "-o", tmp_path / str(cut) / "one.record", "-j", workers)
        assert done.returncode == 3
        assert str(damaged) in done.stderr.splitlines()[0]
        assert not list((tmp_path / str(cut)).glob("[!.]*"))


# --- Shards that are not whole ---

TAIL = 3 << 20
"""Zeros at the end of a file, more than any writer of tars fills up with."""


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three shards of 200 samples, the second with a damaged header in the middle."""
    for number in range(3):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(200, 3000, first=number * 200))
    shard = tmp_path / "in" / "1.tar"
    data = bytearray(shard.read_bytes())
    header = data.index(b"0300.cls")
    data[header : header + 512] = b"\xaa" * 512
    shard.write_bytes(data)
    return tmp_path / "in"


def test_a_shard_that_was_only_partly_downloaded_is_not_a_smaller_dataset(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(20))
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2 // 10240 * 10240] + bytes(TAIL))
    done = tar2tf("convert", shard, "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert "zeros" in done.stderr
    assert not (tmp_path / "x.record").exists()
    assert tar2tf("verify", shard).returncode == 1


def test_zeros_behind_a_whole_archive_need_a_flag(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(20))
    shard.write_bytes(shard.read_bytes() + bytes(TAIL))
    assert tar2tf("convert", shard, "-o", tmp_path / "x.record").returncode == 3
    convert(shard, "-o", tmp_path / "x.record", "--ignore-missing-end")
    assert contents(tmp_path / "x.record") == samples(20)


@pytest.mark.parametrize("data", [bytes(10_240), bytes(TAIL), None], ids=["archive", "zeros", "no extensions"])
def test_a_shard_without_samples_is_an_error(data: bytes | None, tmp_path: Path) -> None:
    write_members(tmp_path / "a.tar", [("README", b"x"), ("notes", b"y")])
    if data is not None:
        (tmp_path / "a.tar").write_bytes(data)
    done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert "a.tar" in done.stderr
    assert "zeros" in done.stderr or "no samples" in done.stderr
    assert sorted(path.name for path in tmp_path.glob("x*")) == []


def test_zeros_on_standard_input_are_not_an_empty_dataset(tmp_path: Path) -> None:
    done = tar2tf("convert", "-", "-o", tmp_path / "x.record", input="\0" * TAIL)
    assert done.returncode == 3
    assert not (tmp_path / "x.record").exists()


def test_damage_inside_a_shard_costs_the_samples_around_it_and_is_counted_every_time(
    damaged: Path, tmp_path: Path
) -> None:
    command = ["convert", damaged, "-o", tmp_path / "x.record", "--on-error", "skip", "--errors", tmp_path / "e.jsonl"]
    done = tar2tf(*command)
    assert done.returncode == 1
    assert "was not read (" in done.stderr
    assert "None" not in done.stderr
    kept, whole = dict(contents(tmp_path / "x.record")), dict(samples(600, 3000))
    assert whole.keys() - kept.keys() <= {"0299", "0300", "0301"}
    assert kept == {key: whole[key] for key in kept}
    errors = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert {error["key"] for error in errors} == whole.keys() - kept.keys()
    assert all(error["shard"].endswith("1.tar") for error in errors)
    again = tar2tf(*command)
    assert again.returncode == 1
    assert "up to date" in again.stderr
    most = tar2tf("convert", damaged, "-o", tmp_path / "y.record", "--on-error", "skip", "--max-errors", "0")
    assert most.returncode == 3


def test_what_cannot_be_read_behind_damage_is_reported_in_bytes(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(20, 3000))
    data = shard.read_bytes()
    cut = data.index(b"0010.cls")
    shard.write_bytes(data[:cut] + b"\xaa" * 51_200)
    done = tar2tf("convert", shard, "-o", tmp_path / "x.record", "--on-error", "skip")
    assert done.returncode == 1
    assert "the rest of the shard was not read (51,200 bytes)" in done.stderr
    assert keys(tmp_path / "x.record") == [key for key, _ in samples(9)]


@pytest.mark.parametrize("options", [[], ["--shuffle"], ["--regroup"], ["--op", "keep:cls,jpg"]])
def test_a_last_sample_that_lacks_an_entry_in_a_tar_with_a_proper_end_is_noted_and_converted(
    options: list[str], tmp_path: Path
) -> None:
    members = [(f"{key}.{name}", data) for key, entries in samples(5) for name, data in sorted(entries.items())]
    shard = write_members(tmp_path / "a.tar", members[:-1])
    for pure in ("", "1"):
        out = tmp_path / f"x{pure}.record"
        done = tar2tf("convert", shard, "-o", out, *options, env={"TAR2TF_PURE": pure})
        assert done.returncode == 0, done.stderr
        assert f"note: {shard}: the last sample, 0004, lacks jpg, which all others have" in done.stderr
        assert sorted(keys(out)) == [key for key, _ in samples(5)]
    without_end = tmp_path / "b.tar"
    without_end.write_bytes(shard.read_bytes()[:-1024])
    assert tar2tf("convert", without_end, "-o", tmp_path / "y.record", *options).returncode == 3


@pytest.mark.parametrize("options", [[], ["--regroup"], ["--shuffle"], ["--op", "keep:cls,jpg"]])
def test_an_entry_of_a_kind_that_cannot_be_read_makes_a_faulty_sample(options: list[str], tmp_path: Path) -> None:
    inner, odd = member(b"evil.jpg", b"1"), {2: b"S", 4: b"Z", 6: b"M"}
    parts = [
        member(b"%d.cls" % number, b"1") + member(b"%d.jpg" % number, inner, odd.get(number, b"0"))
        for number in range(8)
    ]
    (tmp_path / "a.tar").write_bytes(b"".join(parts) + member(b"README", b"", b"Z") + END)
    done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record", "--on-error", "skip", *options)
    assert done.returncode == 1
    assert sorted(keys(tmp_path / "x.record")) == ["0", "1", "3", "5", "7"]
    for what in ("sparse file", "member of unknown type 'Z'", "part of a file of another volume"):
        assert f"is a {what}, which tar2tf does not read" in done.stderr
    assert tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "y.record", *options).returncode == 3


@pytest.mark.parametrize("cut", [60_000, 60_416])
def test_the_bytes_that_were_not_read_stand_in_the_list_of_errors(cut: int, tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(60, 6000))
    shard.write_bytes(shard.read_bytes()[:cut])
    options = ["--on-error", "skip", "--errors", tmp_path / "e.jsonl"]
    assert tar2tf("convert", shard, "-o", tmp_path / "x.record", *options).returncode == 1
    (error,) = map(json.loads, (tmp_path / "e.jsonl").read_text().splitlines())
    assert error["lost"]["to"] is None
    assert error["lost"]["bytes"] == cut - error["lost"]["from"] < 8000


def test_zeros_in_a_shard_are_not_the_end_of_an_archive(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(40, 400))
    data = bytearray(shard.read_bytes())
    data[10_240:14_336] = bytes(4096)
    shard.write_bytes(data)
    assert tar2tf("convert", shard, "-o", tmp_path / "x.record").returncode == 3
    options = ["--on-error", "skip", "--errors", tmp_path / "e.jsonl"]
    assert tar2tf("convert", shard, "-o", tmp_path / "x.record", *options).returncode == 1
    lost = [
        error["lost"]
        for line in (tmp_path / "e.jsonl").read_text().splitlines()
        if "lost" in (error := json.loads(line))
    ]
    assert lost == [{"from": 10_240, "to": 14_848, "bytes": 4608}]


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """60 samples of two members, of which the tar holds about 54, and a whole tar."""
    whole = write_tar(tmp_path / "in" / "a.tar", [(f"{n:03d}", {"cls": b"1", "txt": b"x" * n}) for n in range(60)])
    write_tar(tmp_path / "in" / "b.tar", [("b", {"cls": b"1", "txt": b"x"})])
    whole.write_bytes(whole.read_bytes()[:110_000])
    return tmp_path / "in"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_bytes_that_could_not_be_read_are_counted_everywhere_each_time(cut: Path, tmp_path: Path, workers: str) -> None:
    out, errors = tmp_path / "out" / "x.record", tmp_path / "errors.jsonl"
    command = ("convert", cut, "-o", out, "--on-error", "skip", "--errors", errors, "-j", workers)
    done = tar2tf(*command, "--json")
    assert done.returncode == 1
    (lost,) = json.loads(done.stdout)["skipped"]["lost"]
    assert (lost["input"], lost["to"]) == ("a.tar", None)
    assert lost["from"] + lost["bytes"] == 110_000
    assert [json.loads(line)["lost"] for line in errors.read_text().splitlines()] == [
        {name: lost[name] for name in ("from", "to", "bytes")}
    ]
    says = f"1 sample skipped, or more: 1 part of 1 input could not be read ({lost['bytes']} bytes and whatever was"
    assert says in done.stderr
    assert json.loads((tmp_path / "out" / "_x-manifest.json").read_text())["skipped"]["lost"] == [lost]
    again = tar2tf(*command[:-4], "--json")
    assert (again.returncode, json.loads(again.stdout)["skipped"]["lost"]) == (1, [lost])
    assert says in again.stderr
    verified = tar2tf("verify", tmp_path / "out" / "_x-manifest.json", "--against", cut)
    assert verified.returncode == 1
    assert f"a.tar was not read from byte {lost['from']:,} on" in verified.stdout
    assert "not OK" in verified.stderr


def test_lost_bytes_are_bounded(cut: Path, tmp_path: Path) -> None:
    command = ("convert", cut, "-o", tmp_path / "x.record", "--on-error", "skip", "--max-lost")
    done = tar2tf(*command, "1GB")
    assert done.returncode == 3
    assert "a.tar is cut short, so more than --max-lost 1,000,000,000 bytes may be missing" in done.stderr
    whole = write_tar(cut / "a.tar", [(f"{n:03d}", {"cls": b"1", "txt": b"x" * n}) for n in range(60)])
    data = bytearray(whole.read_bytes())
    start = data.index(b"020.txt")
    data[start : start + 100] = b"\xff" * 100
    whole.write_bytes(data)
    done = tar2tf(*command, "1000")
    assert done.returncode == 3
    assert "1,024 bytes of the inputs could not be read, more than --max-lost 1,000 allows" in done.stderr
    assert tar2tf(*command, "1024").returncode == 1


def test_a_member_behind_damage_may_have_lost_its_name(tmp_path: Path) -> None:
    names = [f"ä{number}.{entry}" for number in range(4) for entry in ("cls", "jpg", "txt")]
    members = [pax({"path": name}) + member(name.replace("ä", "?").encode(), b"1") for name in names]
    for damaged in (2, 3, 4):
        pieces = [*members]
        pieces[damaged] = b"\1" * 512 + pieces[damaged][512:]
        (tmp_path / "a.tar").write_bytes(b"".join(pieces) + END)
        for options in ([], ["--regroup"]):
            out = tmp_path / f"{damaged}{len(options)}.record"
            assert tar2tf("convert", tmp_path / "a.tar", "-o", out, "--on-error", "skip", *options).returncode == 1
            assert all(entries.keys() == {"cls", "jpg", "txt"} for _, entries in contents(out))
            assert {f"ä{number}" for number in range(4)} > {key for key, _ in contents(out)}


def test_a_cut_behind_a_member_that_is_skipped_shortens_the_sample_before_it(tmp_path: Path) -> None:
    data = b"".join(member(name) for name in (b"w.a", b"w.b", b"x.a")) + member(b"__meta__.json", b"1")
    (tmp_path / "a.tar").write_bytes(data[:-100])
    assert tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record", "--on-error", "skip").returncode == 1
    assert keys(tmp_path / "x.record") == ["w"]


@pytest.mark.parametrize("options", [("-j", "1"), ("-j", "2"), ("--regroup",)], ids=" ".join)
def test_what_a_wrong_checksum_covers_is_not_used(tmp_path: Path, options: tuple[str, ...]) -> None:
    tar = write_tar(tmp_path / "whole.tar", samples(20)).read_bytes()
    packed = bytearray(gzip.compress(tar, compresslevel=0, mtime=0))
    packed[packed.index(samples(20)[7][1]["jpg"])] ^= 1  # one pixel of one sample, which only the CRC at the end shows
    write(tmp_path / "in" / "a.tar.gz", packed)
    write_tar(tmp_path / "in" / "b.tar", samples(10, first=100))
    out = tmp_path / "out" / "x.record"
    done = tar2tf("convert", tmp_path / "in", "-o", out, "--on-error", "skip", "--json", *options)
    assert done.returncode == 1
    assert contents(out) == samples(10, first=100)
    (lost,) = json.loads(done.stdout)["skipped"]["lost"]
    assert lost == {"input": "a.tar.gz", "from": 0, "to": None, "bytes": len(packed)}
    fault = r"1 x the gzip stream is damaged: .*checksum.*; any of its samples may be changed, so none is used, first: "
    assert re.search(fault, done.stderr)
    whole = tar2tf("convert", tmp_path / "in" / "a.tar.gz", "-o", tmp_path / "fail.record")
    assert (whole.returncode, (tmp_path / "fail.record").exists()) == (3, False)


@pytest.mark.parametrize("output", ["x.record", "x-<>.tar", "-"])
def test_a_conversion_that_skips_every_sample_publishes_nothing_and_fails(output: str, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in" / "a.tar", [(f"{number}", {"jpg": b"no image"}) for number in range(3)])
    out = output if output == "-" else tmp_path / "out" / output
    errors = tmp_path / "errors.jsonl"
    command = ("convert", tar, "-o", out, "--op", "decode:jpg", "--on-error", "skip", "--errors", errors)
    for _ in range(2):
        done = tar2tf(*command)
        assert done.returncode == 3
        assert done.stdout == ""
        assert f"{tar}: no sample could be converted: 3 samples skipped as faulty\n  3 x " in done.stderr
        faults = [json.loads(line) for line in errors.read_text().splitlines()]
        assert [fault["key"] for fault in faults if fault.get("key")] == ["0", "1", "2"]
        assert not [path for path in (tmp_path / "out").glob("*") if not path.name.startswith(".")]
