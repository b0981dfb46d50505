"""Rows and samples that the kernel finds for the samples of a batch are what Python finds, one key at a time."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from kernel_build import built, needs_compiler
from make_bytes import END, header, long_name, member, pax
from tar2tf_cli.api.values import Batch, KeySplit, Sample
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.formats import kernel
from tar2tf_cli.inputs import rows as rows_module
from tar2tf_cli.inputs.joined import Joined, JoinedParquet, JoinedShards, JoinedTables, Match
from tar2tf_cli.inputs.parquet import ParquetFiles
from tar2tf_cli.inputs.rows import Rows, TableFiles
from tar2tf_cli.inputs.shard_set import resolve
from tar2tf_cli.stores.directory import FileRanges

pytestmark = [needs_compiler, pytest.mark.xdist_group("kernel")]

KEYS = [b"a", b"b", b"c d", b"\xc3\xbc", b"x/y", b"1"]


def batch_of(keys: list[bytes]) -> Batch:
    """A batch of samples with these keys and one entry."""
    native = built()
    assert native
    tar = b"".join(member(b"%b.txt" % key, b"1") for key in [*keys, b"last"]) + END
    return Batch(*native.samples(tar, 0, False, False, b""))


def joined(path: Path, key_split: KeySplit = "first") -> Joined:
    """The rows of a file, or the samples of tars, as a dataset that is joined."""
    if ".tar" in path.suffixes:
        return JoinedShards(resolve(str(path)), key_split)
    is_parquet = path.suffix == ".parquet"
    return JoinedParquet(ParquetFiles(str(path)), None) if is_parquet else JoinedTables(TableFiles(str(path)), None)


def outcome(path: Path, native: ModuleType | None, key_split: KeySplit = "first") -> Any:
    """The size of a dataset, its rows that belong to samples, and the samples with their entries; or the error."""
    batch = batch_of([*KEYS, b"missing"])
    with patch.object(kernel, "native", lambda: native):
        try:
            with closing(joined(path, key_split)) as table:
                if native:
                    return table.size(), described(table.join(native, batch))
                found = [next(iter(table.find(key)), None) for _, _, key, _ in batch.layout()]
                every = [entries_in(match) for match in found]
                if any(not entries.keys().isdisjoint(("txt", "__key__")) for entries in every):
                    return table.size(), None
                if (widened := batch.widened(built(), every)) is None:  # type: ignore[arg-type]  # a kernel
                    return table.size(), None
                return table.size(), described(([match and match.row for match in found], widened))
        except Tar2tfError as error:
            return type(error), str(error), error.hint


def entries_in(match: Match | None) -> Sample:
    return match.entries if match else {}


def described(found: tuple[Sequence[int | None], Batch] | None) -> Any:
    """The rows, and the samples with their entries and the kinds of these."""
    if found is None:
        return None
    rows, batch = found
    kinds = [
        [(name, *batch.values_of(number)[place]) for place, name in enumerate(names)]
        for number, names in enumerate(batch.names())
    ]
    return rows, [(sample, kinds[row[1]]) for (_, sample), row in zip(batch.samples(), batch.layout(), strict=True)]


def is_plain(path: Path) -> bool:
    """Whether the kernel indexes the rows."""
    with patch.object(kernel, "native", built), Rows(str(path)) as rows:
        return rows.hashed("key", 0) is not None


def is_joined_by_the_kernel(path: Path, key_split: KeySplit = "first", keys: list[bytes] = KEYS) -> bool:
    """Whether the kernel finds the values of the rows, too."""
    with patch.object(kernel, "native", built), closing(joined(path, key_split)) as table:
        ready, index = table._prepared()
        batch = batch_of(keys)
        return ready.join_plain(index, index.find_all(batch.hashes), batch) is not None


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
    b'{"key": "a", "text": ["1"]}\n',
    b"[1]\n",
]

PLAIN_JSON = [
    b'{"key": "a", "text": "1"}\n{"text": "2", "key": "b"}\n',
    b'\r\n {"key":"a"\t,"n":-12 , "f":1.5e-3}\r\n\n \t\n{"key":"b","n":null}',
    b'\xef\xbb\xbf{"key": "a", "n": 9223372036854775807, "m": -9223372036854775808, "f": -0.0, "z": -0}\n',
    b'{"key": "\\u00fc", "text": "\\ud83d\\ude00 \\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u0000\\uFFFF"}\n',
    '{"key": "\u00fc", "t\u00e9xt": "\u2028 \U0001f600"}\n{"key": "c\\u0020d", "text": ""}'.encode(),
    b'{"key": "a", "t\\u0065xt": 1}\n{"key": "b", "text": "x"}\n{"key": "1", "text": 0.1}\n',
    b'{"__key__": "a", "key": "b"}\n{"__key__": "1", "more": "b"}\n',
    b'{"key": "a", "txt": "1"}\n',
    b'{"key": "a", "f": 16777217.0, "g": 1E+2, "h": 1e38, "i": 5e-324}\n',
]
ODD_JSON = [
    b'{"key": "a", "b": true}\n',
    b'{"key": "a", "b": [1]}\n',
    b'{"key": "a", "b": {"c": 1}}\n',
    b'{"key": "a", "b": NaN}\n',
    b'{"key": "a", "b": 1, "b": 2}\n',
    b'{"key": "a", "b": null, "c": 1, "b": 2}\n',
    b'{"key": "a", "key": "b"}\n',
    b'{"key": 1, "b": "x"}\n',
    b'{"key": "a", "b": "\\ud800"}\n',
    b'{"key": "a", "b": "\\ude00\\ud83d"}\n',
    b'{"key": "a", "b": "\xed\xa0\x80"}\n',
    b'{"key": "a", "b": "\xff"}\n',
    b'{"key": "a", "b": "1\t2"}\n',
    b'{"key": "a", "b": 01}\n',
    b'{"key": "a", "b": 1.}\n',
    b'{"key": "a", "b": +1}\n',
    b'{"key": "a", "b": .5}\n',
    b'{"key": "a", "b": 1e}\n',
    b'{"key": "a", "b": 1e+}\n',
    b'{"key": "a", "b": -}\n',
    b'{"key": "a", "b": 1.e5}\n',
    b'{"key": "a", "b": 1.5.2}\n',
    b'{"key": "a", "b": 1-2}\n',
    b'{"key": "a", "b": "\\x"}\n',
    b'{"key": "a", "b": "\\u00"}\n',
    b'{"key": "a", "b": "1"},\n',
    b'{"key": "a", "b": "1",}\n',
    b'{"key": "a", "b": "1"\n',
    b'{"key": "a"} {"key": "b"}\n',
    b'{"key": "a", "b": "1"}\0\n',
    b'{"key": "a",\n "b": "1"}\n',
    b'{"b": "1"}\n',
    b"{}\n",
    b'{"key": "a", "b": nulls}\n',
    b'{"key": "a", "b": 0.' + b"1" * 60 + b"}\n",
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


@pytest.mark.parametrize("data", PLAIN_JSON)
def test_plain_objects_are_found_by_the_kernel_as_by_python(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert is_plain(path) or b"__key__" in data
    assert outcome(path, built()) == outcome(path, None)
    assert is_joined_by_the_kernel(path) or b'"txt"' in data or b'"key": "b"' in data


@pytest.mark.parametrize("data", ODD_JSON)
def test_odd_objects_are_left_to_python(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"key": "a", "b": "0"}\n'.replace(b'"a"', b'"x/y"') + data)
    assert not is_plain(path)
    assert outcome(path, built()) == outcome(path, None)


@pytest.mark.parametrize("number", ["1e39", "-1e999", "9223372036854775808", "-9223372036854775809"])
def test_numbers_that_no_feature_can_have_are_left_to_python(number: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"key": "b", "c": 1}}\n{{"key": "a", "c": {number}}}\n')
    assert is_plain(path)
    assert is_joined_by_the_kernel(path, keys=[b"b"])
    assert not is_joined_by_the_kernel(path)
    assert outcome(path, built()) == outcome(path, None)


@pytest.mark.parametrize(
    "data",
    [
        b"key,text\na,1\na,2\n",
        b"key,__key__\na,b\nb,b\n",
        b"key,text\na," + b"x" * 99_999,
        b'{"key": "a", "b": "1"}\n{"key": "a"}\n',
    ],
)
def test_repeated_keys_columns_named_key_and_long_rows_are_treated_alike(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"  # JSON is known by its first line
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


PARTS = [*b'{}[]":,\\ \t-+.0159eEnulatrfs/bxd\xc3\xbc\xff']
TOKENS = [
    b'"key"',
    b'"a"',
    b'"b"',
    b'"text"',
    b": ",
    b", ",
    b"{",
    b"}",
    b"null",
    b"true",
    b"1",
    b"-2.5e1",
    b'"\\u00e9"',
]


@example_count(300)
@given(
    lines=st.lists(
        st.lists(st.sampled_from(TOKENS) | st.sampled_from([bytes([part]) for part in PARTS]), max_size=6), max_size=4
    ),
    values=st.lists(st.sampled_from(TOKENS[:4] + TOKENS[8:]), max_size=3),
)
def test_any_objects_are_found_alike(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[bytes]], values: list[bytes]
) -> None:
    rows = [b'{"key": "%b"%b}' % (key, b"".join(line)) for key, line in zip((b"a", b"b", b"a", b"1"), lines)]  # noqa: B905
    rows += [b'{"key": "x/y", "v%d": %b}' % pair for pair in enumerate(values)][:1]
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    path.write_bytes(b"\n".join(rows))
    assert outcome(path, built()) == outcome(path, None)


TEXT = ["1", None, "", "\u00fc\U0001f600", "x" * 300]
COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(TEXT),
    "large": pa.array(TEXT, pa.large_string()),
    "bytes": pa.array([b"\xff\0", b"", None, b"1", b"2"]),
    "large bytes": pa.array([b"\xff\0", b"", None, b"1", b"2"], pa.large_binary()),
    "int64": pa.array([2**63 - 1, -(2**63), 0, None, -1]),
    "int8": pa.array([127, -128, 0, None, 5], pa.int8()),
    "uint32": pa.array([2**32 - 1, 0, 7, None, 5], pa.uint32()),
    "uint64": pa.array([2**63 - 1, 0, 7, None, 5], pa.uint64()),
    "double": pa.array([0.1, -0.0, 1e-320, None, 3e38]),
    "float": pa.array([0.1, -0.0, 1e-42, None, 3e38], pa.float32()),
    "nulls": pa.array([None] * 5, pa.string()),
}
ODD_COLUMNS: dict[str, pa.Array] = {
    "uint64": pa.array([2**64 - 1, 0, 7, None, 5], pa.uint64()),
    "double": pa.array([float("nan"), 1.0, 1.0, 1.0, 1.0]),
    "large double": pa.array([1e39, 1.0, 1.0, 1.0, 1.0]),
    "half": pa.array([0.5, 1.0, None, 2.0, 3.0], pa.float16()),
    "bool": pa.array([True, None, False, True, True]),
    "list": pa.array([[1], None, [], [2], [3]]),
    "struct": pa.array([{"bytes": b"1", "path": "a.png"}] * 5),
    "date": pa.array([1, 2, 3, None, 5], pa.date32()),
    "category": pa.array(["x", "y", "x", None, "y"]).dictionary_encode(),
    "null": pa.array([None] * 5, pa.null()),
    "txt": pa.array(TEXT),
    "__key__": pa.array(["x", "y", "z", "a", "b"]),
}


def written(path: Path, columns: dict[str, pa.Array], group: int = 100) -> Path:
    keys = pa.array([key.decode() for key in (b"\xc3\xbc", b"a", b"1", b"more", b"x/y")])
    pq.write_table(pa.table({"key": keys, **columns}), path, row_group_size=group)
    return path


@pytest.mark.parametrize("group", [100, 2])
@pytest.mark.parametrize("names", [*([name] for name in COLUMNS), list(COLUMNS)], ids=", ".join)
def test_plain_columns_are_found_by_the_kernel_as_by_python(names: list[str], group: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {name: COLUMNS[name] for name in names}, group)
    assert is_joined_by_the_kernel(path)
    assert outcome(path, built()) == outcome(path, None)


@pytest.mark.parametrize("name", ODD_COLUMNS)
def test_odd_columns_are_left_to_python(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"text": COLUMNS["text"], name: ODD_COLUMNS[name]})
    if name != "__key__":
        assert not is_joined_by_the_kernel(path)
    assert outcome(path, built()) == outcome(path, None)


def test_keys_that_are_bytes_numbers_repeated_or_null_are_treated_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for keys in ([b"a", b"\xff", b"b\n"], [1, 2, 3], ["a", "b", "a"], ["a", None, "b"], ["", "a\r", "1"]):
        pq.write_table(pa.table({"key": keys, "text": ["x", "y", "z"]}), path)
        assert outcome(path, built()) == outcome(path, None)
    pq.write_table(pa.table({"__key__": ["a", "1"], "key": ["x", "y"]}), path)
    assert outcome(path, built()) == outcome(path, None)


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


PLAIN_TARS = {
    "another order": [member(b"b.cap", b"2"), member(b"more.cap", b"3"), member(b"a.cap", b"1"), member(b"a.cls", b"")],
    "times and folders": [pax({"mtime": "1.5"}), member(b"x/y.CAP", b"1"), pax({"atime": "2"}), member(b"1.x", b"2")],
    "several dots": [member(b"a.b.cap", b"1"), member(b"b.cap", b"2"), member(b"x/y.1.cap", b"3")],
    "other letters": [member("\u00fc.cap".encode(), b"\xff\0"), member(b"c d.cap", b"1")],
    "many entries": [member(b"a.%d" % number, b"%d" % number) for number in range(32)],
    "large entries": [member(b"%b.%b" % (key, name), key * 60_000) for key in (b"a", b"b", b"1") for name in KEYS[:2]],
    "no match": [member(b"z.cap", b"1")],
    "an end of a few zeros": [member(b"a.cap", b"1"), bytes(512)],
}
ODD_TARS = {
    "the same name": [member(b"a.txt", b"1")],
    "too many entries": [member(b"a.%d" % number) for number in range(33)],
    "too large": [member(b"a.cap", b"x" * (1 << 18) + b"x")],
    "too large together": [member(b"a.cap", b"x" * (1 << 17)), member(b"a.cls", b"x" * (1 << 17) + b"x")],
    "a folder between": [member(b"a.cap", b"1"), header(b"a/", kind=b"5"), member(b"a.cls", b"2")],
    "an unwanted member between": [member(b"a.cap", b"1"), member(b"._a.cap", b"0"), member(b"a.cls", b"2")],
    "a prefix": [member(b"y.cap", b"1", prefix=b"x")],
    "a path": [pax({"path": "a.cap"}), member(b"b.cap", b"1")],
    "a long name": [long_name(b"a." + b"c" * 99), member(b"a.c", b"1")],
    "an entry of another alphabet": [member("a.\u00fc".encode(), b"1")],
    "an old header": [member(b"a.cap", b"1", checksum="{:6o} \0")],
}
FAULTY_TARS = {
    "the same member": [member(b"a.cap", b"1"), member(b"a.cap", b"2")],
    "the same key": [member(b"a.cap", b"1"), member(b"b.cap", b"1"), member(b"a.cls", b"2")],
    "a link": [header(b"a.cap", kind=b"2", link=b"b.cap")],
    "a damaged header": [member(b"a.cap", b"1"), member(b"b.cap", b"1", checksum="{:06o}\0x")],
    "a cut end": [member(b"a.cap", b"1"), member(b"b.cap", b"1", size=9000)],
    "no samples": [member(b"cap", b"1")],
}
RULES: tuple[KeySplit, ...] = ("first", "last")


@pytest.mark.parametrize("key_split", RULES)
@pytest.mark.parametrize("members", PLAIN_TARS.values(), ids=PLAIN_TARS)
def test_plain_samples_of_tars_are_found_by_the_kernel_as_by_python(
    members: list[bytes], key_split: KeySplit, tmp_path: Path
) -> None:
    data = b"".join(members) + END
    for path in (tmp_path / "a.tar", tmp_path / "b.tar.gz"):
        path.write_bytes(data if path.suffix == ".tar" else gzip.compress(data))
        assert is_joined_by_the_kernel(path, key_split)
        assert outcome(path, built(), key_split) == outcome(path, None, key_split)


@pytest.mark.parametrize("key_split", RULES)
@pytest.mark.parametrize("members", ODD_TARS.values(), ids=ODD_TARS)
def test_odd_samples_of_tars_are_left_to_python(members: list[bytes], key_split: KeySplit, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join([member(b"1.cap", b"1"), *members, member(b"c d.cap", b"1"), END]))
    assert not is_joined_by_the_kernel(path, key_split)
    assert outcome(path, built(), key_split) == outcome(path, None, key_split)


@pytest.mark.parametrize("members", FAULTY_TARS.values(), ids=FAULTY_TARS)
def test_faulty_samples_of_tars_are_refused_alike(members: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(members) + END)
    assert outcome(path, built()) == outcome(path, None)


def test_samples_of_several_tars_in_any_order_are_those_of_one(tmp_path: Path) -> None:
    members = [member(b"%b.cap" % key, key * 9) for key in [*KEYS, *(b"%04d" % number for number in range(200))]]
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a.tar").write_bytes(b"".join(members) + END)
    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(b"".join(members[number::3]) + END)
    assert is_joined_by_the_kernel(tmp_path / "*.tar")
    assert outcome(tmp_path / "*.tar", built()) == outcome(tmp_path / "*.tar", None)
    (_, samples), (_, expected) = (outcome(path, built())[1] for path in (tmp_path / "*.tar", tmp_path / "one/a.tar"))
    assert samples == expected


def test_more_tars_than_may_be_open_are_joined_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, key in enumerate(KEYS):
        (tmp_path / f"{number}.tar").write_bytes(member(b"%b.cap" % key, key) + END)
    assert is_joined_by_the_kernel(tmp_path / "*.tar")
    monkeypatch.setattr(FileRanges, "MOST_OPEN", 3)
    assert not is_joined_by_the_kernel(tmp_path / "*.tar")
    assert outcome(tmp_path / "*.tar", built()) == outcome(tmp_path / "*.tar", None)


def test_many_large_samples_are_not_copied_at_once(tmp_path: Path) -> None:
    keys = [b"%02d" % number for number in range(20)]
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(member(b"%b.cap" % key, key * 120_000) for key in keys) + END)
    assert is_joined_by_the_kernel(path, keys=keys[:16])
    assert not is_joined_by_the_kernel(path, keys=keys)


@pytest.mark.parametrize("place", [0, 100, 130, 150, 512, 1024])
def test_a_sample_that_changed_after_it_was_indexed_is_refused_alike(place: int, tmp_path: Path) -> None:
    found = []
    for native in (built(), None):
        path = tmp_path / "a.tar"
        path.write_bytes(member(b"a.cap", b"1") + member(b"b.cap", b"2") + END)
        with (
            patch.object(kernel, "native", lambda native=native: native),
            closing(joined(path)) as table,
        ):
            table.prepare()
            with path.open("r+b") as file:
                file.seek(place)
                file.write(b"\xff")
            with pytest.raises(Tar2tfError) as error:
                table.join(native, batch_of([b"a", b"b"])) if native else table.find("a")
            found.append(str(error.value))
    assert found[0] == found[1]


NAMES = [
    b"a.cap",
    b"a.cls",
    b"b.cap",
    b"b.CAP",
    b"b.x.y",
    b"1.cap",
    b"x/y.cap",
    b"x/y.1.cap",
    b"c d.cap",
    b".cap",
    b"cap",
]
MEMBERS = [
    *(member(name, data) for name in NAMES for data in (b"", b"1", b"2" * 513)),
    pax({"mtime": "1"}),
    pax({"path": "b.more"}),
    header(b"a/", kind=b"5"),
    member(b"a.more", b"1", prefix=b"x"),
    bytes(512),
]


@example_count(300)
@given(members=st.lists(st.sampled_from(MEMBERS), max_size=8), key_split=st.sampled_from(RULES))
def test_any_members_are_found_alike(
    tmp_path_factory: pytest.TempPathFactory, members: list[bytes], key_split: KeySplit
) -> None:
    path = tmp_path_factory.getbasetemp() / "members.tar"
    path.write_bytes(b"".join(members) + END)
    assert outcome(path, built(), key_split) == outcome(path, None, key_split)
