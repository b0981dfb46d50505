"""`tar2tf inspect --keys` and `--extract`: keys one a line, entries as files, and never outside of the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import tar2tf
from shards import every_file
from verify_runs import Ran, a_tar, an_example, framed, write

MEMBERS = [("a/1.jpg", b"one"), ("b.jpg", b"two"), ("b.seg.png", b"png")]


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return write(tmp_path / "x.tar", a_tar(MEMBERS))


def test_keys_are_printed_one_a_line(tmp_path: Path, tar: Path, run_inspect: Callable[..., Ran]) -> None:
    assert run_inspect(tar, "--keys").lines == ["a/1", "b"]
    assert run_inspect(tar, "--keys", "-n", "1").lines == ["a/1"]
    records = [an_example(__key__=b"k-1", x=1), an_example(x=2), b"no example"]
    assert run_inspect(write(tmp_path / "y", framed(*records)), "--keys").lines == ["k-1", "y-000001", "y-000002"]


def test_keys_of_records_are_those_of_the_samples_however_long_and_odd(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    long = "k" * 210
    keys = [f"{long}/1", f"{long}/2", "two  spaces", " first", "not UTF-8: \udcff"]
    records = [an_example(__key__=key.encode("utf-8", "surrogateescape"), x=1) for key in keys]
    path = write(tmp_path / "x", framed(*records))
    assert tar2tf("inspect", path, "--keys").stdout.splitlines() == keys
    to = tmp_path / "to"
    ran = run_inspect(path, "--extract", "two  spaces", "--extract", f"{long}/2", "--to", to)
    assert ran.code == 0, ran.err
    assert every_file(to) == {f"{long}/2.x.txt": b"1\n", "two  spaces.x.txt": b"1\n"}


def test_entries_of_a_tar_are_extracted(tmp_path: Path, tar: Path, run_inspect: Callable[..., Ran]) -> None:
    to = tmp_path / "to"
    ran = run_inspect(tar, "--extract", "a/1", "--extract", "b", "--to", to)
    assert every_file(to) == dict(sorted(MEMBERS))
    assert ran.lines == [str(to / name) for name, _ in MEMBERS]


def test_features_of_a_record_are_extracted(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    values = {"__key__": b"k", "image/encoded": b"jpeg", "boxes": [0.5, 1.0], "label": 7, "words": [b"a", b"b"]}
    path, to = write(tmp_path / "x", framed(an_example(n=1), an_example(**values))), tmp_path / "to"
    assert run_inspect(path, "--extract", "k", "--extract", "x-000000", "--to", to).code == 0
    assert every_file(to) == {
        "x-000000.n.txt": b"1\n",
        "k.image_encoded": b"jpeg",
        "k.boxes.txt": b"0.5\n1.0\n",
        "k.label.txt": b"7\n",
        "k.0.words": b"a",
        "k.1.words": b"b",
    }


def test_a_sample_of_a_tar_of_the_current_folder_is_extracted(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x.tar", a_tar([("./d/a.jpg", b"picture"), ("./d/a.cls", b"1")]))
    ran = run_inspect(path, "--extract", "./d/a", "--to", tmp_path / "to")
    assert ran.code == 0, ran.err
    assert sorted(ran.lines) == [f"{tmp_path}/to/d/a.{name}" for name in ("cls", "jpg")]
    assert (tmp_path / "to" / "d" / "a.jpg").read_bytes() == b"picture"


@pytest.mark.parametrize("key", ["../evil", "/tmp/evil", "a/../../evil", "", "a//b", ".", "./../evil", ".//evil"])
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, run_inspect: Callable[..., Ran], key: str) -> None:
    path = write(tmp_path / "in" / "x", framed(an_example(__key__=key.encode(), x=b"evil")))
    ran = run_inspect(path, "--extract", key, "--to", tmp_path / "to")
    assert (ran.code, "is not a path inside a folder" in ran.err) == (2, True)
    assert not (tmp_path / "to").exists()


def test_a_link_in_the_folder_is_not_followed_out_of_it(
    tmp_path: Path, tar: Path, run_inspect: Callable[..., Ran]
) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "to" / "a").symlink_to(tmp_path / "out")
    ran = run_inspect(tar, "--extract", "a/1", "--to", tmp_path / "to")
    assert (ran.code, "a link on this path points outside the folder" in ran.err, every_file(tmp_path / "out")) == (
        2,
        True,
        {},
    )


def test_an_entry_name_cannot_lead_out_of_the_folder(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x", framed(an_example(__key__=b"k", **{"/../../evil": b"x"})))
    assert run_inspect(path, "--extract", "k", "--to", tmp_path / "to").code == 0
    assert list(every_file(tmp_path / "to")) == ["k._.._.._evil"]


def test_existing_files_are_kept_and_missing_keys_named(
    tmp_path: Path, tar: Path, run_inspect: Callable[..., Ran]
) -> None:
    kept = write(tmp_path / "to" / "b.jpg", b"precious")
    ran = run_inspect(tar, "--extract", "b", "--to", tmp_path / "to")
    assert (ran.code, "already exists" in ran.err, kept.read_bytes()) == (2, True, b"precious")
    ran = run_inspect(tar, "--extract", "c", "--to", tmp_path / "to")
    assert (ran.code, "no sample with the key c" in ran.err) == (3, True)


def test_names_that_would_be_equal_or_are_too_long_are_all_written(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    long = "x" * 280
    record = an_example(**{"__key__": b"k", "a/b": b"1", "a_b": b"2", long: b"3", f"{long}y": b"4"})
    path = write(tmp_path / "x.record", framed(record))
    ran = run_inspect(path, "--extract", "k", "--to", tmp_path / "out")
    assert ran.code == 0, ran.err
    written = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert sorted(written.values()) == [b"1", b"2", b"3", b"4"]
    assert {"k.a_b", "k~2.a_b"} < written.keys()
    key = "d" * 300 + "/" + "k" * 300
    tar = write(tmp_path / "x.tar", a_tar([(f"{key}.jpg", b"5")]))
    assert run_inspect(tar, "--extract", key, "--to", tmp_path / "long").code == 0
    (file,) = (tmp_path / "long").rglob("*.jpg")
    assert file.read_bytes() == b"5"
