"""Tables of `tar2tf inspect` fit the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import humanfriendly
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_runs import look_into
from shards import PHOTOS
from tar2tf_cli.checking import inspect as inspection
from tar2tf_cli.cli.output import printable, size, table
from verify_runs import Ran, a_tar, in_a_process, write

# --- Tables ---


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def test_a_table_is_cut_to_the_width_of_the_terminal() -> None:
    rows = [("name", "size", "example"), ("jpg", "12 KB", "x" * 90), ("long " * 9, "7 B", "日本語" * 30)]
    lines = list(table(rows, right={1}, shrink={2: 10, 0: 8}, width=50))
    assert max(map(columns, lines)) <= 50
    assert all("…" in line for line in lines[2:])
    assert [
        columns(line[: line.index(size)]) + len(size)
        for line, size in zip(lines, ("size", "12 KB", "7 B"), strict=True)
    ] == [columns(lines[0][: lines[0].index("size")]) + 4] * 3


@pytest.mark.parametrize("width", [20, 40, 80, 200, None])
def test_a_table_keeps_all_of_the_columns_that_do_not_shrink(width: int | None) -> None:
    rows = [("12345", "abc" * 20), ("1", "ä\u0308\x1b")]
    lines = list(table(rows, shrink={1: 5}, width=width))
    assert lines[0].startswith("12345  abc")
    assert width is None or max(map(len, lines)) <= max(width, 12)


@given(st.integers(0, 10**15) | st.integers(0, 15).map(lambda power: 10**power - 1))
def test_sizes_are_written_as_humanfriendly_writes_them(number: int) -> None:
    assert size(number) == humanfriendly.format_size(number)


@given(st.text(max_size=30))
def test_printable_text_does_nothing_to_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_many_shards_are_summed_up_unless_all_are_wanted(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    for number in range(30):
        write(tmp_path / f"train-{number:02d}.tar", a_tar([("a.cls", b"1")]))
    lines = run_inspect(tmp_path).lines
    assert sum("train-" in line for line in lines) == 10
    assert "and 20 more; use -v to see all" in lines
    assert sum("train-" in line for line in run_inspect(tmp_path, "-v").lines) == 30


def test_names_and_values_that_could_steer_a_terminal_are_written_as_escapes(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", a_tar([("a.t\x1b[31m", b"\x1b[31m"), ("a.日本", "値\u202e".encode())]))
    ran = in_a_process("inspect", tmp_path / "x.tar")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert "t\\x1b[31m" in ran.out
    ran = in_a_process("inspect", tmp_path / "x.tar", "-n", "1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.code == 0
    assert "\\u65e5" in ran.out


def test_a_shard_on_standard_input_is_described() -> None:
    data = (PHOTOS / "photos-3.tar.gz").read_bytes()
    ran = in_a_process("inspect", "-", "--json", stdin=data)
    assert (ran.code, ran.json["samples"], ran.json["bytes"]) == (0, 6, len(data))
    assert "<stdin>: sample 0, 0018" in in_a_process("inspect", "-", "-n", "1", stdin=data).out
    ran = in_a_process("inspect", "-", "-n", "1", "--json", stdin=data)
    assert (ran.code, "only once" in ran.err) == (2, True)


def test_looks_are_shared_among_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"{number}.tar", a_tar((f"{sample:03d}.cls", b"1") for sample in range(50)))
    monkeypatch.setattr(inspection, "LOOKS", 10)
    assert look_into(tmp_path).entries["cls"].kinds.total() == 12


def test_columns_are_left_out_where_the_others_would_be_cut_too_short() -> None:
    rows = [
        ("entry", "count", "kind", "min", "example"),
        ("a-long-name.json", "1,000", "image/jpeg 30x20x3", "7 B", "x" * 60),
    ]
    settings = {"right": {1, 3}, "shrink": {4: 10, 2: 20, 0: 24}, "drop": (4, 3)}
    assert [line.split()[-1] for line in table(rows, **settings, width=200)] == ["example", "x" * 60]
    assert [line.split()[-1] for line in table(rows, **settings, width=70)] == ["example", "x" * 19 + "…"]
    assert [line.split()[-1] for line in table(rows, **settings, width=50)] == ["min", "B"]
    assert [line.split()[-1] for line in table(rows, **settings, width=46)] == ["kind", "30x20x3"]
    assert list(table(rows, **settings, width=30))[1] == "a-long-name.json  1,000  imag…"
    assert all(len(line) <= 20 for line in table(rows, **settings, width=20))


def test_a_terminal_of_60_columns_shows_whole_names_and_kinds(
    tmp_path: Path, run_inspect: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = ("annotations.json", b'{"a": [1, 2, 3]}'), ("caption.txt", b"a man on a surfboard"), ("cls", b"7")
    path = write(
        tmp_path / "a.tar", a_tar([(f"{number:04d}.{name}", data) for number in range(9) for name, data in entries])
    )
    monkeypatch.setattr("tar2tf_cli.cli.output.terminal_width", lambda: 60)
    lines = run_inspect(path).out.splitlines()
    assert max(map(columns, lines[1:])) <= 60
    table = "\n".join(lines[2:])
    assert "…" not in table.replace('{"a": [1, …', "").replace("a man on a…", "")
    for name, _ in entries:
        assert re.search(rf"^{re.escape(name)} +9 +(json|text) ", table, re.MULTILINE)
