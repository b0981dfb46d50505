"""Lists of keys feed the next command: what `verify`, `inspect` and `diff` list is what `convert --keys` takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli import open_records
from tar2tf_cli.spec.key_lists import key_line, keys_in
from verify_runs import Ran, a_tar, an_example, convert, flipped, framed, in_a_process, write

ODD = ["0001", "1", "a\nb", "b\r", "\ufeffc", "\\d", "e\\n", "\udcff\udcfe", "f g", '"h"']
"""Keys with newlines, leading zeros, bytes that are not UTF-8, and everything else that is special in a list."""


def samples(folder: Path, keys: list[str]) -> Path:
    records = [an_example(__key__=key.encode("utf-8", "surrogateescape"), text=b"x") for key in keys]
    return write(folder / "in.record", framed(*records))


def keys_of(path: Path) -> list[str]:
    return [record["__key__"].decode("utf-8", "surrogateescape") for record in open_records(path, index_folder="")]


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=5)))
def test_each_key_is_one_line_and_comes_back(keys: list[str]) -> None:
    keys = [key.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for key in keys]
    lines = b"".join(map(key_line, keys))
    assert lines.count(b"\n") == len(keys)
    assert [key.decode("utf-8", "surrogateescape") for key in keys_in(lines)] == keys


@pytest.mark.parametrize("kind", ["tar", "record"])
def test_listed_keys_choose_their_samples(tmp_path: Path, kind: str) -> None:
    path = samples(tmp_path, ODD)
    if kind == "tar":
        path = write(tmp_path / "in.tar", a_tar((f"{key}.txt", b"x") for key in ODD if not key.endswith("\r")))
    listed = in_a_process("inspect", path, "--keys")
    assert listed.code == 0
    write(tmp_path / "all", listed.out.encode("utf-8", "surrogateescape"))
    for number, key in enumerate(list(keys_in((tmp_path / "all").read_bytes()))):
        write(tmp_path / "one", key_line(key.decode("utf-8", "surrogateescape")))
        made = convert(path, "-o", tmp_path / f"{number}.record", "--keys", tmp_path / "one")
        assert (made.code, keys_of(tmp_path / f"{number}.record")) == (0, [key.decode("utf-8", "surrogateescape")])


def test_a_damaged_record_is_in_neither_list_and_counted(tmp_path: Path, run: Callable[..., Ran]) -> None:
    path = samples(tmp_path, ["a", "b", "c"])
    write(path, flipped(path.read_bytes(), 20))
    ran = run(path, "--bad-keys", tmp_path / "bad", "--good", tmp_path / "good")
    assert (ran.code, (tmp_path / "bad").read_text(), (tmp_path / "good").read_text()) == (1, "", "b\nc\n")
    assert "note: 1 damaged record without a readable key, so in neither list of keys" in ran.err


def test_records_without_a_key_are_listed_by_their_numbers(tmp_path: Path, run: Callable[..., Ran]) -> None:
    records = [an_example(__key__=b"a", x=1), b"\xff\xff", an_example(x=b"a"), an_example(__key__=b"d", x=1)]
    data, third, last = framed(*records), len(framed(*records[:2])), len(framed(*records[:3]))
    crc, length = "the CRC of the record's data does not match", "the CRC of the record's length does not match"
    no_example = (
        "not_an_example",
        1,
        len(framed(records[0])),
        "the record is not a tf.train.Example: a number at byte 0 does not end",
    )
    bad_data = ("data_crc", 2, third, crc)
    bad_length = ("length_crc", 3, last, length)
    rest = f"{len(data) - third} bytes after the last record do not form a record"
    cut = ("truncated", 3, last, "the file ends 3 bytes short of a record's end")
    for damaged, messages, faults, bad, good in (
        (data, "example", [no_example], ["x-000001"], ["a", "x-000002", "d"]),
        (data, "any", [], [], ["a", "x-000001", "x-000002", "d"]),
        (flipped(data, third + 13), "example", [no_example, bad_data], ["x-000001"], ["a", "d"]),
        (flipped(data, third + 1), "any", [("length_crc", 2, third, length)], [], ["a", "x-000001", "d"]),
        (flipped(flipped(data, third + 13), last + 1), "any", [bad_data, bad_length], [], ["a", "x-000001"]),
        (
            flipped(flipped(data, third + 1), last + 1),
            "any",
            [("trailing_garbage", 2, third, rest)],
            [],
            ["a", "x-000001"],
        ),
        (flipped(data, last + 1), "any", [bad_length], [], ["a", "x-000001", "x-000002"]),
        (data[:-3], "any", [cut], [], ["a", "x-000001", "x-000002"]),
    ):
        path, lists = write(tmp_path / "x.record", damaged), (tmp_path / "bad", tmp_path / "good")
        ran = run(path, "--bad-keys", lists[0], "--good", lists[1], "--messages", messages, "--json")
        found = ran.json["files"][0]["faults"]
        assert [tuple(fault[name] for name in ("kind", "record", "offset", "message")) for fault in found] == faults
        assert [one.read_text().splitlines() for one in lists] == [bad, good]


def test_the_keys_of_faulty_samples_and_of_all_others_are_listed(tmp_path: Path, run: Callable[..., Ran]) -> None:
    keys = [key.encode("utf-8", "surrogateescape") for key in ODD]
    records = [an_example(__key__=key, text=b"x") for key in keys]
    for number in (0, 2, 7):
        records[number] = an_example(__key__=keys[number], jpg=b"\xff\xd8\xff\xe0 no image")
    path = write(tmp_path / "in.record", framed(*records))
    lists = ("--bad-keys", tmp_path / "bad", "--good", tmp_path / "good")
    for _ in range(2):  # a list of keys may be written again
        assert run(path, "--decode", *lists).code == 1
    for name, keys in (("bad", [ODD[0], ODD[2], ODD[7]]), ("good", [ODD[n] for n in (1, 3, 4, 5, 6, 8, 9)])):
        made = convert(path, "-o", tmp_path / f"{name}.record", "--keys", tmp_path / name)
        assert (made.code, keys_of(tmp_path / f"{name}.record")) == (0, keys)


def test_the_keys_of_a_tar_are_listed(tmp_path: Path, run: Callable[..., Ran]) -> None:
    members = [("0.a", b"1"), ("1.a", b"1"), ("1.a", b"2"), ("2.a", b"1"), ("3.a", b"")]
    path = write(tmp_path / "in.tar", a_tar(members))
    assert run(path, "--bad-keys", tmp_path / "bad", "--good", tmp_path / "good").code == 1
    assert ((tmp_path / "bad").read_text(), (tmp_path / "good").read_text()) == ("1\n", "0\n2\n3\n")


def test_records_without_a_key_are_listed_as_convert_numbers_them(tmp_path: Path, run: Callable[..., Ran]) -> None:
    parts = [framed(an_example(a=number)) for number in range(4)]
    path = write(tmp_path / "in.record", b"".join([*parts[:2], flipped(parts[2], 14), parts[3]]))
    assert run(path, "--good", tmp_path / "good").code == 1
    assert (tmp_path / "good").read_text() == "in-000000\nin-000001\nin-000003\n"


def test_records_of_shards_with_equal_names_are_listed_with_their_folders(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    for folder, first in (("a", 0), ("b", 10)):
        write(tmp_path / f"in/{folder}/x.record", framed(*(an_example(n=first + number) for number in range(2))))
    names, expected = f"{tmp_path}/in/**/*.record", "a/x-000000\na/x-000001\nb/x-000000\nb/x-000001\n"
    assert run(names, "--good", tmp_path / "good").code == 0
    assert (tmp_path / "good").read_text() == expected
    write(tmp_path / "other.record", framed(an_example(n=0), an_example(n=99)))
    lists = ("--only-a", tmp_path / "only", "--changed", tmp_path / "changed")
    assert in_a_process("diff", names, tmp_path / "other.record", *lists).code == 1
    assert (tmp_path / "changed").read_text() == "a/x-000001\n"
    assert (tmp_path / "only").read_text() == "b/x-000000\nb/x-000001\n"
    made = convert(names, "-o", tmp_path / "all.record", "--keys", tmp_path / "only", "--json")
    assert (made.code, json.loads(made.out)["records"]) == (0, 2)


def test_samples_that_differ_from_their_source_are_listed(tmp_path: Path, run: Callable[..., Ran]) -> None:
    tar = write(tmp_path / "in.tar", a_tar((f"{number}.a", b"%d" % number) for number in range(5)))
    assert convert(tar, "-o", tmp_path / "o.record").code == 0
    write(tar, a_tar((f"{number}.a", b"other" if number == 3 else b"%d" % number) for number in range(6)))
    lists = ("--bad-keys", tmp_path / "bad", "--good", tmp_path / "good")
    assert run(tmp_path / "_o-manifest.json", "--against", tar, *lists).code == 1
    assert ((tmp_path / "bad").read_text(), (tmp_path / "good").read_text()) == ("3\n5\n", "0\n1\n2\n4\n")


def test_two_lists_are_two_files_and_no_list_replaces_a_shard(tmp_path: Path, run: Callable[..., Ran]) -> None:
    path = samples(tmp_path, ["1"])
    ran = run(path, "--bad-keys", tmp_path / "x", "--good", tmp_path / "x")
    assert "--bad-keys and --good name the same file; name two files" in ran.err
    assert "exists and is not text" in run(path, "--good", path).err
    assert run(path, "--good", tmp_path / "x", "--fast").code == 2


def test_the_keys_of_differences_choose_their_samples(tmp_path: Path) -> None:
    a = [an_example(__key__=key.encode("utf-8", "surrogateescape"), n=0) for key in ODD[:7]]
    b = [an_example(__key__=key.encode("utf-8", "surrogateescape"), n=int(key == ODD[3])) for key in ODD[3:]]
    paths = write(tmp_path / "a.record", framed(*a)), write(tmp_path / "b.record", framed(*b))
    flags = {"--only-a": ODD[:3], "--only-b": ODD[7:], "--changed": ODD[3:4]}
    lists = [word for flag in flags for word in (flag, tmp_path / flag.strip("-"))]
    assert in_a_process("diff", *paths, *lists).code == 1
    for flag, keys in flags.items():
        path = paths[flag == "--only-b"]
        made = convert(path, "-o", tmp_path / f"{flag}.record", "--keys", tmp_path / flag.strip("-"))
        assert (made.code, keys_of(tmp_path / f"{flag}.record")) == (0, keys)
