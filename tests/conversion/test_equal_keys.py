"""Samples whose key an earlier input has are counted, whatever makes the records."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import convert
from shards import samples, write_tar
from tar2tf_cli.conversion.repeats import EqualKeys, KeyIndex
from tar2tf_cli.formats.checksums import ordered

hashes = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1 << 60, (1 << 60) - 1, 2**64 - 1])
runs = st.lists(st.tuples(st.integers(0, 3), st.lists(hashes, max_size=6)), max_size=8)


@given(runs)
def test_each_key_counts_once_for_each_input_that_has_it_after_another(runs: list[tuple[int, list[int]]]) -> None:
    index, owners, equal, first = KeyIndex(), dict[int, int](), set[tuple[int, int]](), None
    for source, keys in sorted(runs, key=lambda run: run[0]):
        index.add(source, array("Q", keys))
        for key in keys:
            if owners.setdefault(key, source) != source:
                first = first or (source, owners[key])
                equal.add((source, key))
    assert index.find_equal() == (EqualKeys(len(equal), *first) if first else None)


def test_a_hundred_thousand_keys_are_compared() -> None:
    index, keys = KeyIndex(), np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64)
    for number, part in enumerate(np.split(keys, 10)):
        index.add(number, array("Q", part.tobytes()))
    index.add(10, array("Q", keys[[70_000, 12_345, 99_999]].tobytes()))
    assert index.find_equal() == EqualKeys(3, 10, 7)


@given(st.lists(hashes, max_size=200), st.integers(0, 3))
def test_numbers_are_sorted_and_kept_once(numbers: list[int], times: int) -> None:
    many = numbers * (1 << times)
    assert array("Q", ordered(array("Q", many).tobytes())).tolist() == sorted({*numbers})


def equal_keys_said(tmp_path: Path, *options: str, to: str = "o.record") -> list[str]:
    said = convert(tmp_path / "in", "-o", tmp_path / to, *options).stderr
    return [line for line in said.splitlines() if "earlier input" in line]


NOTE = "note: {} the same key as one in an earlier input, first in {}, as in {}; --keys, --join and --split treat "


@pytest.fixture
def overlapping(tmp_path: Path) -> Path:
    """Three tars, of which the second and the third have a sample of the first one, in the middle and at the end."""
    write_tar(tmp_path / "in/0.tar", samples(20))
    write_tar(tmp_path / "in/1.tar", [*samples(10, first=100), *samples(1, first=7), *samples(10, first=200)])
    write_tar(tmp_path / "in/2.tar", [*samples(10, first=300), *samples(1, first=7)])
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--type", "cls=int64"],
        ["--select", "cls"],
        ["--op", "rename:label=cls"],
        ["--shuffle"],
        ["--num-shards", "2", "--shuffle"],
        ["--max-shard-size", "1kB", "--compression", "gzip"],
        ["--split", "a=0.5,b=0.5"],
        ["--sample", "1.0"],
        ["-j", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("overlapping")
def test_samples_with_the_key_of_an_earlier_input_are_counted_in_one_note(tmp_path: Path, options: list[str]) -> None:
    to = "<split>-<>.record" if "--split" in options else "o-<>.record" if "num-shards" in str(options) else "o.record"
    (line,) = equal_keys_said(tmp_path, *options, to=to)
    assert line.startswith(NOTE.format("2 samples have", "1.tar", "0.tar"))


@pytest.mark.usefixtures("overlapping")
def test_tars_of_one_input_each_are_counted_too(tmp_path: Path) -> None:
    (line,) = equal_keys_said(tmp_path, to="o/<input>.tar")
    assert line.startswith(NOTE.format("2 samples have", "1.tar", "0.tar"))


@pytest.mark.usefixtures("overlapping")
def test_only_samples_that_are_written_count(tmp_path: Path) -> None:
    (line,) = equal_keys_said(tmp_path, "--limit", "35", to="a.record")
    assert line.startswith(NOTE.format("1 sample has", "1.tar", "0.tar"))
    assert equal_keys_said(tmp_path, "--limit", "30", to="b.record") == []
    assert equal_keys_said(tmp_path, "--drop-duplicates", to="c.record") == []


def test_large_records_are_counted_though_they_are_never_spooled(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(
            tmp_path / f"in/{number}.tar", [("a", {"bin": b"a" * 200_000}), (f"b{number}", {"bin": b"b" * 200_000})]
        )
    (line,) = equal_keys_said(tmp_path)
    assert line.startswith(NOTE.format("2 samples have", "1.tar", "0.tar"))


def test_samples_made_of_one_sample_are_no_equal_keys(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def twice(sample):\n    return [sample, dict(sample)]\n")
    for number in range(2):
        write_tar(tmp_path / f"in/{number}.tar", samples(3, first=10 * number))
    assert equal_keys_said(tmp_path, "--op", f"func:{tmp_path / 'own.py'}:twice") == []
