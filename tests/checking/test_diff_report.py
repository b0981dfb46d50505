"""`tar2tf diff` for a review: both values of what changed, as lines, as a page and as Markdown."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from inspect_runs import a_png
from make_bytes import npy
from verify_runs import a_tar, an_example, convert, edit, framed, in_a_process, write


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two tars: a sample only in each, one that is equal, and one that changed in every way."""
    a = [("1.cls", b"3"), ("1.png", a_png()), ("1.txt", b"one | two"), ("2.cls", b"1"), ("3.cls", b"7")]
    b = [("1.cls", b"4"), ("1.png", a_png(9, 9)), ("1.json", b"{}"), ("2.cls", b"1"), ("4.cls", b"7")]
    return write(tmp_path / "a.tar", a_tar(a)), write(tmp_path / "b.tar", a_tar(b))


def test_both_values_are_shown(two: tuple[Path, Path]) -> None:
    lines = in_a_process("diff", *two, "-v").lines
    assert lines[3:] == [
        "  cls: 3 -> 4",
        "  json: (absent) -> {}",
        f"  png: image/png 5x3x3, {len(a_png())} bytes -> image/png 9x9x3, {len(a_png(9, 9))} bytes",
        "  txt: one | two -> (absent)",
    ]


def test_numbers_of_records_are_shown(tmp_path: Path) -> None:
    for name, value in (("a", [1, 2]), ("b", [1, 3])):
        write(tmp_path / f"{name}.record", framed(an_example(__key__=b"k", n=value)))
    assert "  n: [1, 2] -> [1, 3]" in in_a_process("diff", tmp_path / "a.record", tmp_path / "b.record", "-v").lines


def test_values_have_the_types_and_shapes_of_the_manifest(tmp_path: Path) -> None:
    for name, more in (("a", 0), ("b", 1)):
        arrays = {
            "m": np.arange(12, dtype=np.uint8).reshape(2, 6) + more,
            "long": np.arange(13, dtype=np.int32) + more,
            "s": np.float64(2.5 + more),
            "v": np.full(3, 0.5 + more, np.float32),
        }
        entries = {f"{key}.npy": npy(array) for key, array in arrays.items()}
        about = b'{"words": ["caf\xc3\xa9", "%s"]}' % (b"x" * (1 + more))
        entries |= {"json": about, "bin": bytes([255, 0, more]), "n": b"%d" % more}
        write(tmp_path / f"{name}.tar", a_tar([(f"0.{entry}", data) for entry, data in entries.items()]))
        select = "m=m.npy,long=long.npy,s=s.npy,v=v.npy,words=json:words,bin,n"
        options = ("--op", "decode:*.npy", "--select", select, "--type", "n=int64", "--key-feature", "none")
        assert convert(tmp_path / f"{name}.tar", "-o", tmp_path / name / "x.record", *options).code == 0
    first = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    described = in_a_process("diff", tmp_path / "a", tmp_path / "b", "-v").lines[1:]
    assert described == [
        "  bin: bytes, 3 bytes -> bytes, 3 bytes",
        f"  long: int32 13 [0, {first}, 11, …] -> int32 13 [{first}, 11, 12, …]",
        "  m: uint8 2x6 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] -> uint8 2x6 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]",
        "  n: 0 -> 1",
        "  s: 2.5 -> 3.5",
        "  v: float32 3 [0.5, 0.5, 0.5] -> float32 3 [1.5, 1.5, 1.5]",
        "  words: [café, x] -> [café, xx]",
    ]
    shards = (tmp_path / "a" / "x.record", tmp_path / "b" / "x.record")
    assert in_a_process("diff", *shards, "-v").lines[1:] == [
        *described[:1],
        f"  long: [0, {first}, 11, …] -> [{first}, 11, 12, …]",
        "  m: bytes, 12 bytes -> bytes, 12 bytes",
        "  n: 0 -> 1",
        "  s: bytes, 8 bytes -> bytes, 8 bytes",
        "  v: [0.5, 0.5, 0.5] -> [1.5, 1.5, 1.5]",
        "  words: [café, x] -> [café, xx]",
    ]


def test_types_that_differ_are_named(tmp_path: Path) -> None:
    write(tmp_path / "in.tar", a_tar([("0.n", b"1"), ("0.m", b"2")]))
    options = ("--type", "n=int64,m=int64", "--key-feature", "none")
    for name in "ab":
        assert convert(tmp_path / "in.tar", "-o", tmp_path / name / "x.record", *options).code == 0
        assert in_a_process("export", "tfds", tmp_path / name).code == 0
    a, b = tmp_path / "a", tmp_path / "b"
    assert in_a_process("diff", a, b).code == 0
    described = json.loads((b / "features.json").read_text())
    described["featuresDict"]["features"]["n"]["tensor"]["dtype"] = "int32"
    (b / "features.json").write_text(json.dumps(described))
    ran = in_a_process("diff", a, b)
    assert (ran.code, ran.lines) == (1, ["type: n is Scalar int64 in A, and Scalar int32 in B"])
    assert ran.err.splitlines()[-1] == "not equal: 1 type of features; 1 sample the same"
    described["featuresDict"]["features"]["m"]["tensor"]["dtype"] = "uint8"
    (b / "features.json").write_text(json.dumps(described))
    ran = in_a_process("diff", a, b)
    assert ran.err.splitlines()[-1] == "not equal: 2 types of features; 1 sample the same"
    assert in_a_process("diff", a, b, "--json").json["types"] == {
        "n": ["Scalar int64", "Scalar int32"],
        "m": ["Scalar int64", "Scalar uint8"],
    }


def test_values_that_do_not_match_the_manifest_are_shown_as_they_are_stored(tmp_path: Path) -> None:
    for name, values in (("a", b"[1, 2]"), ("b", b"[1, 3]")):
        write(tmp_path / f"{name}.tar", a_tar([("0.n", values)]))
        options = ("--type", "n=int64_list", "--key-feature", "none")
        assert convert(tmp_path / f"{name}.tar", "-o", tmp_path / name / "x.record", *options).code == 0
        edit(
            tmp_path / name / "_x-manifest.json",
            lambda document: document["features"]["n"].update(shape=[3]),
        )
    assert in_a_process("diff", tmp_path / "a", tmp_path / "b", "-v").lines[1:] == ["  n: [1, 2] -> [1, 3]"]


def test_members_that_are_not_adjacent_are_those_of_their_sample(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.tar", a_tar([("1.x", b"1"), ("2.x", b"2"), ("1.y", name.encode()), ("2.y", b"2")]))
    assert "  y: a -> b" in in_a_process("diff", tmp_path / "a.tar", tmp_path / "b.tar", "-v").lines


def test_a_page_and_markdown_show_every_kind_of_difference(two: tuple[Path, Path], tmp_path: Path) -> None:
    assert in_a_process("diff", *two, "--html", tmp_path / "x.html", "--markdown", tmp_path / "x.md").code == 1
    page = html.unescape(re.sub("<[^>]*>", " ", (tmp_path / "x.html").read_text()))
    text = (tmp_path / "x.md").read_text()
    for shown in (page, text):
        assert all(word in shown for word in ("Only in A", "Only in B", "Changed", "(absent)", "image/png 9x9x3"))
    assert "| 1 | cls | 3 | 4 |" in text
    assert "one \\| two" in text
    assert "<script" not in (tmp_path / "x.html").read_text()


def test_equal_datasets_have_a_page_that_says_so(two: tuple[Path, Path], tmp_path: Path) -> None:
    assert in_a_process("diff", two[0], two[0], "--html", tmp_path / "x.html").code == 0
    assert "No sample differs." in (tmp_path / "x.html").read_text()


def test_arrays_are_shown_by_their_kind(tmp_path: Path) -> None:

    for name, length in (("a", 3), ("b", 4)):
        write(tmp_path / f"{name}.tar", a_tar([("1.npy", npy(np.zeros(length)))]))
    (line,) = [x for x in in_a_process("diff", tmp_path / "a.tar", tmp_path / "b.tar", "-v").lines if "->" in x]
    assert line.startswith("  npy: npy float64 3, ")
