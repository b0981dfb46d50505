"""`tar2tf diff`: what only one of two datasets has, what changed and in which entry, and the order."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from make_bytes import npy
from shards import PHOTOS
from tar2tf_cli import diff
from tar2tf_cli.formats.example import Encoder, float_list, int64_list
from verify_runs import a_tar, an_example, convert, flipped, framed, in_a_process, write

Samples = list[tuple[str, dict[str, bytes]]]

SOME: Samples = [(f"{number:03d}", {"txt": b"text %d" % number, "cls": b"%d" % (number % 3)}) for number in range(12)]


def shards(folder: Path, samples: Samples, each: int = 5) -> Path:
    """Tars of some samples each."""
    for start in range(0, len(samples), each):
        members = [
            (f"{key}.{name}", data) for key, entries in samples[start : start + each] for name, data in entries.items()
        ]
        write(folder / f"s-{start:04d}.tar", a_tar(members))
    return folder


def compared(*arguments: str | Path, code: int, stdin: bytes = b"") -> Any:
    ran = in_a_process("diff", *arguments, "--json", stdin=stdin)
    assert ran.code == code, ran.err
    document = ran.json
    assert document["equal"] == (code == 0)
    return document


def found(document: Any) -> list[tuple[str, str | None, dict[str, str]]]:
    return [(each["kind"], each["key"], each.get("entries", {})) for each in document["differences"]]


def changed(samples: Samples, key: str, entries: dict[str, bytes]) -> Samples:
    return [(name, entries if name == key else there) for name, there in samples]


def test_the_same_samples_are_equal_however_they_are_stored(tmp_path: Path) -> None:
    source = shards(tmp_path / "in", SOME)
    members = [(f"{key}.{name}", data) for key, entries in SOME for name, data in reversed(entries.items())]
    write(tmp_path / "one.tar.gz", gzip.compress(a_tar(members)))
    assert convert(source, "-o", tmp_path / "a" / "x-<>.record", "--records-per-shard", "1").code == 0
    assert convert(source, "-o", tmp_path / "b" / "x.record", "--compression", "gzip").code == 0
    ways = [source, tmp_path / "one.tar.gz", tmp_path / "a", tmp_path / "a" / "_x-manifest.json", tmp_path / "b"]
    for a in ways:
        for b in ways:
            document = compared(a, b, code=0)
            assert (document["same"], document["differences"]) == (12, [])
    assert compared(f"{source}/s-*.tar", f"{source}/s-{{0000,0005,0010}}.tar", code=0)["same"] == 12
    assert compared("-", source, code=0, stdin=a_tar(members))["same"] == 12


def test_each_difference_is_named(tmp_path: Path) -> None:
    a = shards(tmp_path / "a", SOME)
    other = changed(SOME[1:], "003", {"txt": b"text 3", "cls": b"9", "json": b"{}"})
    b = shards(tmp_path / "b", [*changed(other, "007", {"txt": b"text 7"}), ("new", {"txt": b""})], 7)
    document = compared(a, b, code=1)
    assert found(document) == [
        ("only_in_a", "000", {}),
        ("only_in_b", "new", {}),
        ("changed", "003", {"cls": "changed", "json": "only_in_b"}),
        ("changed", "007", {"cls": "only_in_a"}),
    ]
    assert [document[name] for name in ("same", "only_in_a", "only_in_b", "changed", "out_of_order")] == [9, 1, 1, 2, 0]
    assert document["entries"] == {"cls": {"changed": 1, "only_in_a": 1}, "json": {"only_in_b": 1}}
    assert document["differences"][3]["a"] == {"path": str(a / "s-0005.tar"), "number": 2}
    assert document["differences"][3]["b"] == {"path": str(b / "s-0000.tar"), "number": 6}
    ran = in_a_process("diff", a, b)
    assert (ran.code, ran.lines) == (
        1,
        [
            f"only in A: 000 ({a / 's-0000.tar'})",
            f"only in B: new ({b / 's-0007.tar'})",
            f"changed: 003 ({a / 's-0000.tar'}, {b / 's-0000.tar'}): cls, json only in B",
            f"changed: 007 ({a / 's-0005.tar'}, {b / 's-0000.tar'}): cls only in A",
        ],
    )
    assert "not equal: 1 only in A, 1 only in B, 2 changed; 9 samples the same" in ran.err
    assert "in changed samples, cls: changed 1, only in A 1" in ran.err
    lines = in_a_process("diff", a, b, "--json-lines").lines
    assert [json.loads(line) for line in lines] == document["differences"]
    assert in_a_process("diff", a, b, "-q").err == ""


def test_the_order_is_a_difference_unless_it_is_ignored(tmp_path: Path) -> None:
    a = shards(tmp_path / "a", SOME)
    b = shards(tmp_path / "b", [*SOME[6:], ("new", {"txt": b""}), *SOME[:6]])
    write(tmp_path / "less.tar", a_tar([("003.txt", b"text 3"), ("003.cls", b"0")]))
    document = compared(a, b, code=1)
    assert (document["same"], document["out_of_order"], document["moved"]) == (12, 1, ["005", "006"])
    ran = in_a_process("diff", a, b, "--ignore-order")
    assert (ran.code, ran.lines) == (1, [f"only in B: new ({b / 's-0005.tar'})"])
    reversed_ones = shards(tmp_path / "c", SOME[::-1])
    line = "order: '001' comes after '000' in A, but before it in B (and 10 more places)"
    assert in_a_process("diff", a, reversed_ones).lines == [line]
    ran = in_a_process("diff", a, reversed_ones, "--ignore-order")
    assert (ran.code, ran.out, "equal: 12 samples in a different order" in ran.err) == (0, "", True)
    assert compared(a, tmp_path / "less.tar", code=1)["out_of_order"] == 0


def test_shards_of_a_manifest_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    source = shards(tmp_path / "in", SOME)
    assert convert(source, "-o", tmp_path / "out" / "x-<>.record", "--records-per-shard", "1").code == 0
    assert (tmp_path / "out" / "x-12.record").exists()
    for named in (tmp_path / "out", tmp_path / "out" / "_x-manifest.json"):
        assert compared(source, named, code=0)["out_of_order"] == 0
    assert compared(source, f"{tmp_path}/out/*.record", code=1)["out_of_order"] > 0


def test_numbers_and_arrays_of_records_are_compared_with_the_text_and_npy_of_tars(tmp_path: Path) -> None:
    arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.ones((2, 2), np.uint8), np.array([0.5, -1], np.float16)]
    samples: Samples = [
        (f"{number}", {"npy": npy(array), "cls": b" %d\n" % -number, "w": b"[1, 2.5]", "txt": b"%d" % number})
        for number, array in enumerate(arrays)
    ]
    typed = ("--type", "cls=int64", "--type", "w=float_list", "--op", "decode:npy")
    (tmp_path / "in").mkdir()
    for number, sample in enumerate(samples):
        shards(tmp_path / "in", [sample], 1).joinpath("s-0000.tar").rename(tmp_path / "in" / f"{number}.tar")
        out = tmp_path / f"{number}.record"
        assert convert(tmp_path / "in" / f"{number}.tar", "-o", out, *typed).code == 0
        assert compared(tmp_path / "in" / f"{number}.tar", out, code=0)["same"] == 1
        assert compared(out, tmp_path / "in" / f"{number}.tar", code=0)["same"] == 1
    wrong = shards(tmp_path / "wrong", changed(samples[:1], "0", {**samples[0][1], "cls": b"1", "w": b"x"}))
    assert found(compared(wrong, tmp_path / "0.record", code=1)) == [
        ("changed", "0", {"cls": "changed", "w": "changed"})
    ]
    other = shards(tmp_path / "other", changed(samples[:1], "0", {**samples[0][1], "npy": npy(arrays[0].T.copy())}))
    assert found(compared(other, tmp_path / "0.record", code=1)) == [
        ("changed", "0", {"npy": "changed", "npy/shape": "changed"})
    ]


def test_arrays_that_cannot_be_read_are_compared_as_bytes(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}, None]), allow_pickle=True)
    for data in (b"\x93NUMPY\x01\x00broken", b"", b"text", file.getvalue()):
        source = write(tmp_path / "in.tar", a_tar([("0.npy", data), ("0.txt", b"1")]))
        assert convert(source, "-o", tmp_path / "x.record").code == 0
        assert compared(source, tmp_path / "x.record", code=0)["same"] == 1
        other = write(tmp_path / "other.tar", a_tar([("0.npy", data + b"1"), ("0.txt", b"1")]))
        assert found(compared(other, tmp_path / "x.record", code=1)) == [("changed", "0", {"npy": "changed"})]
        for path in tmp_path.glob("*x*"):
            path.unlink()
    right = write(tmp_path / "right.tar", a_tar([("0.npy", npy(np.arange(3))), ("1.npy", npy(np.arange(4)))]))
    assert convert(right, "-o", tmp_path / "x.record", "--op", "decode:npy").code == 0
    for data in (b"\x93NUMPY\x01\x00broken", b"", file.getvalue()):
        wrong = write(tmp_path / "wrong.tar", a_tar([("0.npy", npy(np.arange(3))), ("1.npy", data)]))
        (difference,) = found(compared(wrong, tmp_path / "x.record", code=1))
        assert difference == ("changed", "1", {"npy": "changed", "npy/shape": "only_in_b"})


def test_what_becomes_a_tar_and_is_divided_again_is_equal_all_the_way(tmp_path: Path) -> None:
    ops = ("--op", "decode:jpg", "--op", "resize:jpg,8x6", "--op", "cast:jpg,uint8", "--type", "cls=int64")
    assert convert(PHOTOS, "-o", tmp_path / "a" / "x.record", *ops).code == 0
    assert convert(tmp_path / "a", "-o", tmp_path / "b" / "x.tar").code == 0
    assert convert(tmp_path / "b", "-o", tmp_path / "c" / "x-<>.tar.gz", "--num-shards", "3").code == 0
    with tarfile.open(tmp_path / "b" / "x.tar") as tar:
        assert any(name.endswith(".jpg.npy") for name in tar.getnames())
    for other in ("b", "c"):
        document = compared(tmp_path / "a", tmp_path / other, code=0)
        assert (document["same"], document["out_of_order"]) == (24, 0)


def test_the_values_of_records_count_and_not_how_they_are_encoded(tmp_path: Path) -> None:
    features = {"__key__": b"a", "n": [1, -1, 300], "f": [0.5, 2.0], "b": b"x" * 5000, "list": [b"1", b"23"]}
    made = Encoder().encode(
        {"n": int64_list([1, -1, 300]), "f": float_list([0.5, 2.0]), "b": b"x" * 5000, "__key__": b"a"}
    )[0]
    rest = an_example(list=[b"1", b"23"])
    one_by_one = b"".join(bytes((0x08, *number)) for number in ([1], [0xFF] * 9 + [1], [0xAC, 0x82, 0x00]))
    value = b"\x1a" + bytes([len(one_by_one)]) + one_by_one
    entry = b"\x0a\x01n\x12" + bytes([len(value)]) + value
    body = b"\x0a" + bytes([len(entry)]) + entry
    odd = (
        an_example(**{name: value for name, value in features.items() if name != "n"})
        + b"\x0a"
        + bytes([len(body)])
        + body
    )
    write(tmp_path / "tf.record", framed(an_example(**features)))
    write(tmp_path / "merged.record", framed(b"".join(map(bytes, made)) + rest))
    write(tmp_path / "odd.record", framed(odd))
    for other in ("merged.record", "odd.record"):
        assert compared(tmp_path / "tf.record", tmp_path / other, code=0)["same"] == 1
    for name, value in (("n", [1, -1, 301]), ("n", [b"1"]), ("f", [0.5]), ("list", [b"12", b"3"]), ("list", b"123")):
        write(tmp_path / "x.record", framed(an_example(**{**features, name: value})))
        document = compared(tmp_path / "tf.record", tmp_path / "x.record", code=1)
        assert found(document) == [("changed", "a", {name: "changed"})]


def test_a_feature_of_no_kind_is_none(tmp_path: Path) -> None:
    unset = b"\x0a\x05\x0a\x03\x0a\x01n"  # {"n": Feature()}, which TensorFlow parses as if it were not there
    write(tmp_path / "unset.record", framed(an_example(__key__=b"a", b=b"x") + unset))
    write(tmp_path / "without.record", framed(an_example(__key__=b"a", b=b"x")))
    assert compared(tmp_path / "unset.record", tmp_path / "without.record", code=0)["same"] == 1


def test_records_without_keys_are_matched_by_content_and_then_by_number(tmp_path: Path) -> None:
    records = [an_example(n=number, x=b"%d" % number) for number in range(6)]
    a = write(tmp_path / "a.record", framed(*records))
    b = write(tmp_path / "b.record", framed(*records[1:4], an_example(n=9, x=b"4"), records[5], records[0]))
    document = compared(a, b, "--ignore-order", code=1)
    assert (document["same"], document["only_in_a"], document["only_in_b"]) == (5, 1, 1)
    c = write(tmp_path / "c.record", framed(*records[:4], an_example(n=9, x=b"4"), records[5]))
    assert found(compared(a, c, code=1)) == [("changed", None, {"n": "changed"})]
    assert f"changed: record 4 ({a}, {c}): n" in in_a_process("diff", a, c).lines


def test_records_without_keys_are_compared_with_samples_by_content(tmp_path: Path) -> None:
    source = shards(tmp_path / "in", SOME)
    assert convert(source, "-o", tmp_path / "x.record", "--select", "txt=txt,cls=cls").code == 0
    document = compared(source, tmp_path / "x.record", code=0)
    assert (document["same"], document["by_content"]) == (12, True)
    assert "no __key__" in in_a_process("diff", source, tmp_path / "x.record").err
    document = compared(source, shards(tmp_path / "less", SOME[:-1]), code=1)
    assert not document["by_content"]


def test_records_that_are_no_examples_are_compared_as_they_are(tmp_path: Path) -> None:
    a = write(tmp_path / "a.record", framed(b"\xff\xff", b"", b"text"))
    assert compared(a, write(tmp_path / "b.record", framed(b"\xff\xff", b"", b"text")), code=0)["same"] == 3
    b = write(tmp_path / "b.record", framed(b"\xff\xff", b"", b"texT"))
    assert found(compared(a, b, code=1)) == [("changed", None, {"record": "changed"})]


def test_keys_that_begin_again_in_each_shard_are_matched_by_content_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for shard in range(3):
            members = [(f"{number}.txt", b"%d %d" % (shard, number)) for number in range(4)]
            write(tmp_path / name / f"{shard if name == 'a' else 2 - shard}.tar", a_tar(members))
    assert compared(tmp_path / "a", tmp_path / "b", "--ignore-order", code=0)["same"] == 12


def test_many_differences_are_summed_up_unless_all_are_wanted(tmp_path: Path) -> None:
    many = [(f"{number:05d}", {"txt": b"%d" % number}) for number in range(1200)]
    a, b = shards(tmp_path / "a", many, 1200), shards(tmp_path / "b", many[:10], 1200)
    lines = in_a_process("diff", a, b).lines
    assert (len(lines), lines[-1]) == (11, "only in A: 1,180 more; use -v to see all")
    assert len(in_a_process("diff", a, b, "-v").lines) == 1190
    assert len(in_a_process("diff", a, b, "--json-lines").lines) == 1190
    document = compared(a, b, code=1)
    assert (document["only_in_a"], len(document["differences"])) == (1190, 1000)


def test_members_need_not_be_adjacent(tmp_path: Path) -> None:
    members = [(f"{key}.{name}", data) for name in ("cls", "txt") for key, entries in SOME for data in [entries[name]]]
    write(tmp_path / "scattered.tar", a_tar(members))
    source = shards(tmp_path / "in", SOME)
    assert compared(source, tmp_path / "scattered.tar", code=0)["same"] == 12
    assert in_a_process("diff", source, tmp_path / "scattered.tar", "--no-regroup").code == 3


def test_what_cannot_be_read_is_an_error_and_no_difference(tmp_path: Path) -> None:
    source = shards(tmp_path / "in", SOME)
    assert convert(source, "-o", tmp_path / "x.record").code == 0
    data, record = (source / "s-0005.tar").read_bytes(), (tmp_path / "x.record").read_bytes()
    tar, cut = write(tmp_path / "header.tar", flipped(data, 1030)), write(tmp_path / "cut.tar", data[:1500])
    twice = write(tmp_path / "twice.tar", a_tar([("a.txt", b"1"), ("a.txt", b"2")]))
    wrong = write(tmp_path / "wrong.record", flipped(record, 40))
    text, gone = write(tmp_path / "notes.txt", b"nothing"), tmp_path / "gone.tar"
    for path in (tar, cut, twice, wrong, text, gone):
        for arguments in ((source, path), (path, source)):
            ran = in_a_process("diff", *arguments)
            assert (ran.code, ran.out, path.name in ran.err) == (3, "", True), ran.err
    assert in_a_process("diff", source).code == 2
    assert in_a_process("diff", source, source, "--json", "--json-lines").code == 2
    (tmp_path / "two").mkdir()
    for name in ("a", "b"):
        assert convert(source, "-o", tmp_path / "two" / f"{name}.record").code == 0
    ran = in_a_process("diff", source, tmp_path / "two")
    assert (ran.code, "has 2 manifests" in ran.err) == (2, True)


def test_a_kill_or_an_end_leaves_nothing_behind(tmp_path: Path) -> None:
    source = shards(tmp_path / "in", SOME)
    (tmp_path / "tmp").mkdir()
    ran = in_a_process("diff", source, source, TMPDIR=str(tmp_path / "tmp"))
    assert (ran.code, os.listdir(tmp_path / "tmp")) == (0, [])


keys = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
entries = st.dictionaries(st.sampled_from(["jpg", "txt", "cls"]), st.sampled_from([b"", b"1", b"22"]), min_size=1)
datasets = keys.flatmap(lambda names: st.tuples(*[st.tuples(st.just(name), entries) for name in names])).map(list)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(datasets.filter(bool), datasets.filter(bool))
def test_two_datasets_differ_as_dicts_do(tmp_path: Path, first: Samples, second: Samples) -> None:
    paths = []
    for name, samples in (("a", first), ("b", second)):
        members = [(f"{key}.{entry}", data) for key, entries in samples for entry, data in entries.items()]
        paths.append(write(tmp_path / f"{name}.tar", a_tar(members)))
    differences = diff(*paths, workers=1)
    ours, theirs = dict(first), dict(second)
    both = [key for key, _ in first if key in theirs]
    assert [each.key for each in differences.of("only_in_a")] == [key for key, _ in first if key not in theirs]
    assert [each.key for each in differences.of("only_in_b")] == [key for key, _ in second if key not in ours]
    assert {each.key: set(each.entries) for each in differences.of("changed")} == {
        key: {name for name in ours[key].keys() | theirs[key].keys() if ours[key].get(name) != theirs[key].get(name)}
        for key in both
        if ours[key] != theirs[key]
    }
    places = [[key for key, _ in second].index(key) for key in both]
    assert differences.out_of_order == sum(a > b for a, b in pairwise(places))
    assert differences.equal == (first == second)


def test_a_flag_overrides_a_variable_that_asks_for_another_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shards(tmp_path / "in", SOME)
    monkeypatch.setenv("TAR2TF_JSON_LINES", "1")
    assert in_a_process("diff", source, source, "--json").json["equal"]
