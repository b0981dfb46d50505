"""`tar2tf inspect` of shards some of which cannot be read: the others are shown, each error is named, the code is 3."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tar2tf_cli import convert, inspect, open_records, verify
from tar2tf_cli.errors import SourceError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from verify_runs import Ran, a_tar, an_example, flipped, framed, in_a_process, write

NO_SHARDS = "the manifest lists no shards, so there is nothing to read"


def samples(first: int, count: int) -> Iterator[tuple[str, bytes]]:
    return ((f"{number:03d}.{name}", b"7") for number in range(first, first + count) for name in ("cls", "txt"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four tars: whole, cut inside its third sample, an error page, whole."""
    folder = tmp_path / "set"
    for place in range(4):
        write(folder / f"{place}.tar", a_tar(samples(10 * place, 4)))
    write(folder / "1.tar", (folder / "1.tar").read_bytes()[: 5 * 1024 + 100])
    write(folder / "2.tar", b"<html>not found")
    return folder


def test_damaged_files_of_tensorflow_datasets_give_no_types(tmp_path: Path) -> None:
    write(tmp_path / "in.tar", a_tar([("0.n", b"1")]))
    command = ("convert", tmp_path / "in.tar", "-o", tmp_path / "out" / "x.record", "--type", "n=int64", "-q")
    assert in_a_process(*command).code == 0
    assert in_a_process("export", "tfds", tmp_path / "out").code == 0
    assert inspect(tmp_path / "out", workers=1).types == {"__key__": "Text", "n": "Scalar int64"}
    right = (tmp_path / "out" / "features.json").read_bytes()
    for data in (b"", b"[]", b"{", b"\xff", right[:-9], right.replace(b"featuresDict", b"features")):
        (tmp_path / "out" / "features.json").write_bytes(data)
        contents = inspect(tmp_path / "out" / "_x-manifest.json", workers=1)
        assert (contents.types, contents.samples) == ({}, 1), data


def test_shards_that_can_be_read_are_shown_and_errors_named(folder: Path, run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(*sorted(folder.iterdir()))
    assert ran.code == 3
    assert "4 tar shards, 10 samples" in ran.lines[0]
    rows = {words[0]: words[1:] for line in ran.lines if (words := line.split()) and words[0].endswith(".tar")}
    assert {Path(name).name: (row[0], row[-1]) for name, row in rows.items()} == {
        "0.tar": ("4", "KB"),
        "1.tar": ("2", "truncated"),
        "2.tar": ("0", "unknown_format"),
        "3.tar": ("4", "KB"),
    }
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert [f"{place}.tar" in error for place, error in zip("12", errors, strict=True)] == [True, True]
    assert "2 of 4 shards could not be read completely; the counts are partial" in ran.err


def test_the_document_lists_faults_as_verify_does(
    folder: Path, run_inspect: Callable[..., Ran], run: Callable[..., Ran]
) -> None:
    paths = sorted(folder.iterdir())
    ran = run_inspect(*paths, "--json")
    whole, cut, page, last = ran.json["shards"]
    assert (ran.code, ran.json["samples"]) == (3, 10)
    assert not {"status", "faults"} & (whole.keys() | last.keys())
    assert (cut["status"], cut["samples"]) == ("damaged", 2)
    verified = [file["faults"][0] for file in run(*paths, "--json").json["files"][1:3]]
    assert cut["faults"][0].keys() <= verified[0].keys()
    assert [shard["faults"][0]["kind"] for shard in (cut, page)] == [fault["kind"] for fault in verified]
    assert ran.json["entries"]["cls"]["count"] == 10


def test_a_document_is_printed_even_if_no_shard_is_whole(folder: Path, run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(folder / "2.tar", "--json")
    assert (ran.code, ran.json["format"], ran.json["shards"][0]["status"]) == (3, "unknown", "damaged")
    ran = run_inspect(folder / "1.tar", folder / "2.tar")
    assert (ran.code, "2 tar shards, 2 samples" in ran.out, ran.err.count("error: ")) == (3, True, 2)
    assert run_inspect(folder / "2.tar").out == ""


def test_many_errors_fit_on_a_screen_unless_all_are_wanted(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    write(tmp_path / "x.tar", a_tar(samples(0, 1)))
    for number in range(30):
        write(tmp_path / f"{number:02d}.tar", a_tar(samples(0, 1))[:700])
    ran = run_inspect(tmp_path)
    assert (ran.code, ran.err.count("error: "), "and 20 more errors; use -v to see all" in ran.err) == (3, 10, True)
    assert run_inspect(tmp_path, "-v").err.count("error: ") == 30
    assert sum(1 for shard in run_inspect(tmp_path, "--json").json["shards"] if "faults" in shard) == 30


def test_keys_and_samples_come_from_all_shards(folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    paths = sorted(folder.iterdir())
    ran = run_inspect(*paths, "--keys")
    assert (ran.code, ran.err.count("error: ")) == (3, 2)
    assert ran.lines == ["000", "001", "002", "003", "010", "011", "030", "031", "032", "033"]
    ran = run_inspect(*paths, "-n", "7")
    assert (ran.code, "3.tar: sample 0, 030" in ran.out) == (3, True)
    ran = run_inspect(*paths, "-n", "7", "--json")
    assert (ran.code, ran.err.count("error: ")) == (3, 2)
    assert [sample["key"] for sample in ran.json["first"]][-2:] == ["011", "030"]
    ran = run_inspect(*paths, "--extract", "032", "--to", tmp_path / "to")
    assert (ran.code, sorted(os.listdir(tmp_path / "to"))) == (3, ["032.cls", "032.txt"])
    assert ran.err.count("error: ") == 2


def test_code_is_printed_for_what_can_be_read(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    data = framed(*(an_example(label=number) for number in range(4)))
    write(tmp_path / "a.record", flipped(data, len(data) // 2 + 1))
    write(tmp_path / "b.record", data)
    ran = run_inspect(tmp_path, "--code")
    assert (ran.code, "label" in ran.out, ran.err.count("error: ")) == (3, True, 1)
    compile(ran.out, "code", "exec")


def test_values_before_the_damage_are_examined(folder: Path, run_inspect: Callable[..., Ran]) -> None:
    entries = run_inspect(folder / "1.tar", "--json").json["entries"]
    assert {name: (entry["kind"], entry["example"]) for name, entry in entries.items()} == {
        "cls": ("text", "7"),
        "txt": ("text", "7"),
    }


def test_a_pipe_and_an_empty_folder_are_faults_among_others(
    folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran], run: Callable[..., Ran]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    paths = (tmp_path / "pipe", folder / "0.tar", tmp_path / "empty")
    ran = run(*paths, "--json")
    assert (ran.code, ran.json["records"]) == (1, 4)
    assert [file["status"] for file in ran.json["files"]] == ["damaged", "ok", "missing"]
    assert [fault["kind"] for file in ran.json["files"] for fault in file["faults"]] == ["unreadable", "missing"]
    assert "pipe: is not a regular file; pipe it to standard input, with - as BUCKET (unreadable)" in run(*paths).out
    ran = run_inspect(*paths, "--json")
    assert (ran.code, ran.json["samples"]) == (3, 4)
    assert [shard.get("status") for shard in ran.json["shards"]] == ["damaged", None, "missing"]
    assert run(tmp_path / "pipe").code == run(tmp_path / "empty").code == 3  # nothing could be checked


def test_a_missing_shard_of_a_manifest_does_not_hide_the_others(
    folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    output = Output(str(tmp_path / "out" / "x-<>.record"), records_per_shard=2)
    convert(Conversion(Input(str(folder), ("0.tar",)), output), workers=1)
    (tmp_path / "out" / "x-1.record").unlink()
    write(tmp_path / "_bad-manifest.json", b"{")
    ran = run_inspect(tmp_path / "out" / "_x-manifest.json", tmp_path / "_bad-manifest.json", "--json")
    assert (ran.code, ran.json["samples"]) == (3, 2)
    assert [shard.get("status") for shard in ran.json["shards"]] == ["missing", None, "damaged"]


def test_in_python_the_first_error_is_raised_unless_damage_is_accepted(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"1\.tar"):
        inspect(str(folder / "0.tar"), [str(folder / "1.tar"), str(folder / "2.tar")], paths=True)
    found = inspect(str(folder / "0.tar"), [str(folder / "1.tar")], paths=True, damaged=True)
    assert (found.samples, [error.shard for error in found.errors]) == (6, [str(folder / "1.tar")])


@pytest.mark.parametrize("option", ["", "--json", "--keys", "-n=1", "--code", "--extract=a", "--html=x.html"])
def test_a_manifest_without_shards_is_said_to_list_none(
    option: str, tmp_path: Path, run_inspect: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tar = write(tmp_path / "in.tar", a_tar([("a.jpg", b"no image")]))
    output = Output(str(tmp_path / "out" / "x.record"))
    convert(Conversion(Input(str(tar)), output, ops=["filter:jpg=other"]))
    ran = run_inspect(tmp_path / "out" / "_x-manifest.json", *filter(None, option.split("=")))
    assert (ran.code, ran.err) == (3, f"error: {tmp_path}/out/_x-manifest.json: {NO_SHARDS}\n")


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_behind_damage_in_a_tar_is_found_as_convert_finds_it(
    compressed: bool, tmp_path: Path, run_inspect: Callable[..., Ran], run: Callable[..., Ran]
) -> None:
    data = bytearray(a_tar(samples(0, 60)))
    for offset in (20 * 2048 + 1024, 40 * 2048):  # headers of the second member of 020, and of the first of 040
        data[offset : offset + 100] = b"\xff" * 100
    path = write(tmp_path / "x.tar", gzip.compress(data) if compressed else bytes(data))
    output = Output(str(tmp_path / "x.record"))
    assert convert(Conversion(Input(str(path)), output, on_error="skip")).records == 56
    kept = [record["__key__"].decode() for record in open_records(tmp_path / "x.record")]
    assert not {"020", "040"} & {*kept}
    ran = run(path, "--json")
    (file,) = ran.json["files"]
    assert (ran.code, file["records"]) == (1, 56)
    first = file["faults"][0]
    assert (first["kind"], first["offset"]) == ("bad_header", 20 * 2048 + 1024)
    assert not any("the rest of the file cannot be read" in fault["message"] for fault in file["faults"])
    ran = run_inspect(path, "--json")
    assert (ran.code, ran.json["samples"], ran.json["entries"]["cls"]["count"]) == (3, 56, 56)
    assert run_inspect(path, "--keys").lines == kept
    assert run_inspect(path, "-n", "60").out.count(": sample ") == 56
    assert run_inspect(path, "--extract", "050", "--to", tmp_path / "to").code == 3
    assert (tmp_path / "to" / "050.cls").read_bytes() == b"7"


def test_what_is_behind_damage_in_a_tfrecord_is_found(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    records = [an_example(__key__=b"%d" % number, label=number) for number in range(9)]
    data = bytearray(framed(*records))
    data[4 * len(framed(records[0])) + 3] ^= 1  # the length of the fifth record
    data[6 * len(framed(records[0])) + 14] ^= 1  # data of the seventh
    path = write(tmp_path / "x.record", bytes(data))
    ran = run_inspect(path, "--keys")
    assert (ran.code, ran.lines, ran.err.count("error: ")) == (3, [*"0123", "5", *"78"], 2)
    ran = run_inspect(path, "--json")
    assert (ran.code, ran.json["samples"]) == (3, 7)
    only_data = write(tmp_path / "y.record", flipped(framed(*records), 6 * len(framed(records[0])) + 14))
    ran = run_inspect(only_data, "--json")
    assert (ran.code, ran.json["samples"], ran.json["shards"][0]["faults"][0]["kind"]) == (3, 8, "data_crc")
    assert run_inspect(path, "--extract", "8", "--to", tmp_path / "to").code == 3
    assert (tmp_path / "to" / "8.label.txt").read_bytes() == b"8\n"
    assert "label" in run_inspect(path, "--code").out


@pytest.mark.parametrize("compressed", [False, True])
def test_a_tar_whose_first_header_is_damaged_is_read_from_the_second(
    compressed: bool, tmp_path: Path, run_inspect: Callable[..., Ran], run: Callable[..., Ran]
) -> None:
    data = b"\xff" * 512 + a_tar(samples(0, 6))[512:]
    path = write(tmp_path / "x.tar", gzip.compress(data) if compressed else data)
    ran = run(path, "--json")
    (file,) = ran.json["files"]
    assert (ran.code, file["records"], file["faults"][0]["kind"]) == (1, 5, "bad_header")
    ran = run_inspect(path, "--keys")
    assert (ran.code, ran.lines) == (3, ["001", "002", "003", "004", "005"])


def test_what_was_not_read_is_said_once(tmp_path: Path, run: Callable[..., Ran]) -> None:
    first = a_tar(samples(0, 1))[:512]
    path = write(tmp_path / "x.tar", first[:124] + b"3_0" + first[127:] + bytes(1024))
    ran = run(path)
    assert (ran.code, ran.out.count("the rest of")) == (1, 1), ran.out


def test_a_tfrecord_whose_first_bytes_are_damaged_is_one_by_its_name_as_it_is_to_verify(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    data = framed(*(an_example(__key__=b"%04d" % number, data=b"x" * 9000) for number in range(5)))
    path = write(tmp_path / "x.record", bytes(range(200)) * 6 + data[1200:])
    ran = run_inspect(path, "--json")
    assert (ran.code, ran.json["format"], ran.json["samples"]) == (3, "tfrecord", 4)
    assert run_inspect(path, "--keys").out.split() == ["0001", "0002", "0003", "0004"]
    assert verify(str(path)).records == 4


@pytest.mark.parametrize("options", [[], ["--keys"], ["--json"]])
def test_a_file_with_the_name_of_a_tfrecord_and_no_record_is_none(
    tmp_path: Path, run_inspect: Callable[..., Ran], options: list[str]
) -> None:
    ran = run_inspect(write(tmp_path / "x.record", bytes(range(1, 200)) * 60), *options)
    assert ran.code == 3
    assert "is neither a tar nor a TFRecord" in ran.out + ran.err
