"""Which samples are duplicates, the key of an example, and joins, limits and groups at the ends of inputs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shards import write_tar
from tar2tf_cli import Conversion, Input, Output, convert, open_records
from tar2tf_cli.api.values import KEY
from tar2tf_cli.errors import SampleError
from tar2tf_cli.flow.sample_flow import written_key
from tar2tf_cli.flow.select import SampleDigester, digest_in
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list
from tar2tf_cli.formats.files import StoredBytes
from verify_runs import a_tar, write


def digest(what: str = "*", **entries: Any) -> tuple[int, int] | None:
    sample = {KEY: "k", **entries}
    SampleDigester(what)(sample)
    assert sample[KEY] == "k"
    return digest_in(sample[KEY], None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": b"x", "b": b"y"}, {"b": b"y", "a": b"x"}, True),
        ({"a": b"x"}, {"b": b"x"}, False),
        ({"a": b"xy", "b": b""}, {"a": b"x", "b": b"y"}, False),
        ({"a": b"x"}, {"a": "x"}, False),
        ({"a": "x"}, {"a": "x"}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": (1, 2)}, False),
        ({"a": np.arange(4)}, {"a": np.arange(4)}, True),
        ({"a": np.arange(4)}, {"a": np.arange(4).reshape(2, 2)}, False),
        ({"a": np.zeros(2, "i4")}, {"a": np.zeros(2, "f4")}, False),
        ({"a": np.array([b"x", b"y"], object)}, {"a": np.array([b"x", b"y"], object)}, True),
        ({"a": np.array([b"x", b"y"], object)}, {"a": np.array([b"x", b"z"], object)}, False),
        ({"a": "\udcff"}, {"a": "\udcff"}, True),
        ({}, {}, True),
        ({}, {"a": b""}, False),
    ],
    ids=repr,
)
def test_duplicates_are_equal_in_names_kinds_and_values(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (digest(**one) == digest(**other)) is same


def test_bytes_in_a_file_are_as_those_in_memory(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "f").write_bytes(b"before" + data + b"after")
    with open(tmp_path / "f", "rb") as file:
        place: Any = SimpleNamespace(descriptor=file.fileno())
        stored = StoredBytes(place, 6, len(data), "s", "m", 1)
        assert digest(a=stored) == digest(a=data) == digest("a", a=stored, b=b"other")
        assert digest(a=stored) != digest(a=data[:-1])


def test_only_the_entry_that_is_named_is_compared() -> None:
    assert digest("a", a=b"x", b=b"y") == digest("a", a=b"x", b=b"z") == digest(a=b"x")
    with pytest.raises(SampleError) as caught:
        digest("c", a=b"x", b=b"y")
    assert caught.value.sentence == "--drop-duplicates: has no entry 'c', only a, b"


@pytest.mark.parametrize(
    ("features", "key"),
    [
        ({}, None),
        ({"x": b"a"}, None),
        ({KEY: b" a "}, b" a "),
        ({KEY: bytes_list([b"a"])}, b"a"),
        ({KEY: int64_list([-7])}, b"-7"),
        ({KEY: int64_list([1, 2])}, None),
        ({KEY: bytes_list([])}, None),
        ({KEY: float_list([0.5])}, None),
    ],
    ids=repr,
)
def test_the_key_that_an_example_has_is_one_text_or_whole_number(features: dict[str, Any], key: bytes | None) -> None:
    assert written_key(features) == key


@pytest.mark.parametrize(("missing", "words"), [("keep", [[b"one"], [], []]), ("skip", [b"one"]), ("error", None)])
def test_a_sample_without_the_value_to_join_on_has_no_match(missing: str, words: Any, tmp_path: Path) -> None:
    samples = [("a", {"id": b"1", "cls": b"1"}), ("b", {"cls": b"2"}), ("c", {"id": b"9", "cls": b"3"})]
    tar = write_tar(tmp_path / "in.tar", samples)
    (tmp_path / "t.csv").write_text("key,word\n1,one\n2,two\n")
    given = Input(str(tar), join=[str(tmp_path / "t.csv")], join_on="id", join_missing=missing)
    conversion = Conversion(given, Output(str(tmp_path / "x.record")))
    if missing == "error":
        with pytest.raises(SampleError) as caught:
            convert(conversion, workers=1)
        assert (caught.value.key, caught.value.message) == ("b", "--join-on: has no entry 'id', only cls")
        return
    convert(conversion, workers=1)
    found = [one["word"] for one in open_records(tmp_path / "x.record")]
    assert [word if isinstance(word, bytes) else word.tolist() for word in found] == words


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 99, None])
def test_a_limit_of_copied_records_counts_through_all_inputs(limit: int | None, tmp_path: Path) -> None:
    for name in "ab":
        tar = write_tar(tmp_path / f"{name}.tar", [(f"{name}{number}", {"txt": b"x" * 9000}) for number in range(3)])
        convert(Conversion(Input(str(tar)), Output(str(tmp_path / "in" / f"{name}.record"))), workers=1)
    output = Output(str(tmp_path / "out/x-<>.record"), records_per_shard=2)
    convert(Conversion(Input(str(tmp_path / "in"), template="*.record"), output, limit=limit), workers=1)
    found = [one[KEY] for path in sorted((tmp_path / "out").glob("*.record")) for one in open_records(path)]
    assert found == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"][:limit]


@pytest.mark.parametrize(
    ("last", "groups"),
    [(["b/1.txt", "b/1.cls"], {b"a": [b"0", b"1", b"2"], b"b": [b"1"]}), ([], {b"a": [b"0", b"1", b"2"]})],
)
def test_a_group_continues_in_an_input_of_scattered_members(
    last: list[str], groups: dict[bytes, list[bytes]], tmp_path: Path
) -> None:
    write(tmp_path / "in/0.tar", a_tar([("a/0.txt", b"0"), ("a/0.cls", b"0")]))
    names = ["a/1.txt", "a/2.txt", "a/2.cls", "a/1.cls", *last]
    write(tmp_path / "in/1.tar", a_tar([(name, name[2:3].encode()) for name in names]))
    convert(Conversion(tmp_path / "in", tmp_path / "o.record", group_by="s"), workers=1)
    assert {one[KEY]: one["s/txt"].tolist() for one in open_records(tmp_path / "o.record")} == groups
