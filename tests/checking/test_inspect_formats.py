"""`tar2tf inspect --format`: the same numbers as a table, as CSV, as Markdown and as JSON."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from shards import PHOTOS
from verify_runs import a_tar, an_example, framed, in_a_process, write


def test_csv_has_plain_numbers_for_each_entry(tmp_path: Path) -> None:
    records = [an_example(n=number, text=b'a "b", c') for number in range(2000)]
    path = write(tmp_path / "x.record", framed(*records, an_example(n=1)))
    text = in_a_process("inspect", path, "--format", "csv").out
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(text))}
    assert {**rows["n"], "example": ""} == {
        "name": "n",
        "count": "2001",
        "missing": "0",
        "kind": "int64",
        "unit": "value",
        "min": "0",
        "mean": str(1999001 / 2001),
        "max": "1999",
        "example": "",
    }
    assert (rows["text"]["missing"], rows["text"]["min"], rows["text"]["example"]) == ("1", "8", 'a "b", c')


def test_markdown_has_all_shards_and_entries(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"s-{number:02d}.tar", a_tar([("0.txt", b"a | b"), ("0.cls", b"1")]))
    lines = in_a_process("inspect", tmp_path, "--format", "markdown").lines
    assert lines[:2] == ["| shard | samples | size |", "| --- | --- | --- |"]
    assert sum(line.startswith("| s-") for line in lines) == 30
    assert lines[-1] == "| txt | 30 | - | text | 5 B | 5 B | 5 B | a \\| b |"


def test_json_is_that_of_the_flag() -> None:
    assert in_a_process("inspect", PHOTOS, "--format", "json").out == in_a_process("inspect", PHOTOS, "--json").out


def test_table_is_the_default_and_quiet_prints_no_table() -> None:
    table = in_a_process("inspect", PHOTOS).out
    assert table == in_a_process("inspect", PHOTOS, "--format", "table").out
    assert in_a_process("inspect", PHOTOS, "-q")[:2] == (0, "")
    assert in_a_process("inspect", PHOTOS, "-q", "--format", "csv").out.startswith("name,count,")


@pytest.mark.parametrize("other", [["--keys"], ["--code"], ["-n", "1"], ["--json"]])
def test_a_format_of_something_else_is_refused(other: list[str]) -> None:
    ran = in_a_process("inspect", PHOTOS, "--format", "csv", *other)
    assert (ran.code, "cannot be combined" in ran.err) == (2, True)
