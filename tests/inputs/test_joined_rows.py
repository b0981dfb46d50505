"""Rows of CSV that the kernel finds for the samples of a batch are what Python finds, one key at a time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from kernel_build import built, needs_compiler
from make_bytes import END, member
from tar2tf_cli.api.values import Batch
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.formats import kernel
from tar2tf_cli.inputs import rows as rows_module
from tar2tf_cli.inputs.joined import JoinedTables
from tar2tf_cli.inputs.rows import Rows, TableFiles

pytestmark = [needs_compiler, pytest.mark.xdist_group("kernel")]

KEYS = [b"a", b"b", b"c d", b"\xc3\xbc", b"x/y", b"1"]


def batch_of(keys: list[bytes]) -> Batch:
    """A batch of samples with these keys and one entry."""
    native = built()
    assert native
    tar = b"".join(member(b"%b.txt" % key, b"1") for key in [*keys, b"last"]) + END
    return Batch(*native.samples(tar, 0, False, False, b""))


def outcome(path: Path, native: ModuleType | None) -> Any:
    """The size of a table, its rows that belong to samples, and the samples with their entries; or the error."""
    batch = batch_of([*KEYS, b"missing"])
    with patch.object(kernel, "native", lambda: native):
        try:
            with closing(JoinedTables(TableFiles(str(path)), None)) as table:
                if native:
                    joined = table.join(native, batch)
                    return table.size(), joined and (joined[0], [sample for _, sample in joined[1].samples()])
                found = [next(iter(table.find(key)), None) for _, _, key, _ in batch.layout()]
                if any(match and not match.entries.keys().isdisjoint(("txt", "__key__")) for match in found):
                    return table.size(), None
                samples = [
                    {**sample, **(match.entries if match else {})}
                    for (_, sample), match in zip(batch.samples(), found, strict=True)
                ]
                return table.size(), ([match and match.row for match in found], samples)
        except Tar2tfError as error:
            return type(error), str(error), error.hint


def is_plain(path: Path) -> bool:
    """Whether the kernel indexes the rows."""
    with patch.object(kernel, "native", built), Rows(str(path)) as rows:
        return rows.hashed("key", 0) is not None


PLAIN = [
    b"key,text\nb,2\na,1\n",
    b"key,text\r\na,1\r\n\r\n\nb,\r\nc d,x",
    b"text;key;n\n1;a;\n2;b; 3 \n",
    b"\xef\xbb\xbfkey\ttext\na\t1\n",
    "key,text\n\u00fc,\u00e4\n1,\u2028x\n".encode(),
    b"key\na\nb\n",
    b"key,text\na,1\na,1\n",
    b"txt,key\na,1\n",
    b'key,text\na,"1"\nb,2\n"c d","a ""b"", c"\n',
    b'"key","text"\r\n"a",""\r\nb,\r\n"c d","""x"""\r\n',
    b'key,text\na,1\nb,"2\n3"\n"c d","1\r\n2\r3\n\n"',
    b'key\n"a"\n"b"\n',
    b'key,text\nb,2\na,1\n"c d",3\n1,4\nx/y,"5,6"\n',
]
ODD = [
    b'key,text\na,1"\n',
    b'key,text\na, "1"\n',
    b'key,text\na,"1"2\n',
    b'key,text\na,"1" \n',
    b'key,text\na,"1\n',
    b'key,text\na,"1"\rb,2\n',
    b'key,text\na,"1"\r\r\n',
    b'key,text\na,"1\0"\n',
    b'key,text\na,"' + b"x" * 20_000 + b'"\n',
    b"key,text\na,1\nb\n",
    b"key,text\na,1,2\n",
    b"key,text\na,1\rb,2\n",
    b"key,text\na,1\r\r\n",
    b"key,text\na,\xff\n",
    b"key,text\na,1\0\n",
    b'{"key": "a", "text": "1"}\n',
]


@pytest.mark.parametrize("data", PLAIN)
def test_plain_rows_are_found_by_the_kernel_as_by_python(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    assert is_plain(path)
    assert outcome(path, built()) == outcome(path, None)


@pytest.mark.parametrize("data", ODD)
def test_odd_rows_are_left_to_python(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    assert not is_plain(path)
    assert outcome(path, built()) == outcome(path, None)


@pytest.mark.parametrize("data", [b"key,text\na,1\na,2\n", b"key,__key__\na,b\nb,b\n", b"key,text\na," + b"x" * 99_999])
def test_repeated_keys_columns_named_key_and_long_rows_are_treated_alike(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    assert outcome(path, built()) == outcome(path, None)


def test_a_row_that_changed_after_it_was_indexed_is_refused_alike(tmp_path: Path) -> None:
    found = []
    for native in (built(), None):
        path = tmp_path / "a.csv"
        path.write_bytes(b"key,text\na,1\nb,2\n")
        with (
            patch.object(kernel, "native", lambda native=native: native),
            closing(JoinedTables(TableFiles(str(path)), None)) as table,
        ):
            table.prepare()
            with path.open("r+b") as file:
                file.seek(10)
                file.write(b"\xff")
            with pytest.raises(Tar2tfError) as error:
                table.join(native, batch_of([b"a"])) if native else table.find("a")
            found.append(str(error.value))
    assert found[0] == found[1]


CELLS = [*KEYS, b"", b"x,", b"\r", b'"', b'"a"', b'"b', b'c d"', b" ", b"\xff", b"\n"]


@example_count(200)
@given(
    rows=st.lists(st.lists(st.sampled_from(CELLS), max_size=4), max_size=9),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_any_rows_are_found_alike(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[bytes]], end: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    path.write_bytes(end.join([b"key,text", *map(b",".join, rows)]))
    assert outcome(path, built()) == outcome(path, None)


def test_rows_that_go_on_behind_a_block_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"key,text\n" + b"".join(b'%b,"%b\n,%b"\n' % (key, key * 60, key) for key in KEYS))
    for size in range(1, 400, 7):
        with patch.object(rows_module, "_BLOCK", size):
            assert outcome(path, built()) == outcome(path, None)
            assert is_plain(path) == (size > 186)  # where a block has more than the first line of the longest row


def test_rows_of_several_files_are_those_of_one(tmp_path: Path) -> None:
    rows = [b"%b,text of %b\n" % (key, key) for key in KEYS]
    for number, some in enumerate((rows[:3], rows[3:5], rows[5:])):
        (tmp_path / f"{number}.csv").write_bytes(b"key,text\n" + b"".join(some))
    found = outcome(tmp_path / "*.csv", built())
    assert found == outcome(tmp_path / "*.csv", None)
    assert found[0] == len(KEYS)
