"""Rows of tables in one process: positions, values, the files that cells name, and every error with its advice."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from added.parts.shelf import ShelfStore
from images import jpeg, photo
from tar2tf_cli.errors import NothingFoundError, SampleError, SourceError, Tar2tfError
from tar2tf_cli.inputs.kinds.table import TableSource, entries_of_row
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.row_files import RowFiles
from tar2tf_cli.inputs.rows import Rows, TableFiles, has_table_suffix, is_named_as_table
from tar2tf_cli.spec.fields import Column
from tar2tf_cli.spec.urls import ConnectionOptions

NAMES = "name the columns in the first row; without such a row, name them by number: image=1:jpg,label=2:int64"
OBJECTS = "write one object per line; for a JSON list, use jq -c '.[]'"
CSV = "it must be UTF-8, with closed quotes, and lines that end with LF or CRLF"
PAGE = "fetch the table itself"


def outcome(run: Callable[[], Any]) -> Any:
    """What a function returns; or the class of its error, the message with its place, and the hint."""
    try:
        return run()
    except Tar2tfError as error:
        plain = Tar2tfError(error.message, shard=error.shard, member=error.member)
        return type(error).__name__, str(plain), error.hint


def read(path: Path, **options: Any) -> Any:
    """The form and the columns of a table, and its rows with their positions."""
    with Rows(str(path), **options) as rows:
        items = [*rows.items()]
        assert [*rows.spans()] == [span for span, _ in items]
        assert [rows.values(span) for span, _ in items] == [values for _, values in items]
        return rows.form, [*rows.columns], items


TABLES: dict[str, tuple[bytes, dict[str, Any], Any]] = {
    "commas": (b"a,b\n1,2\n", {}, ("csv", ["a", "b"], [((1, 4, 4), {"a": "1", "b": "2"})])),
    "tabs": (b"a,\tb\tc\n1\t2\t3\n", {}, ("csv", ["a,", "b", "c"], [((1, 7, 6), {"a,": "1", "b": "2", "c": "3"})])),
    "semicolons": (b" a ;b\n1;2", {}, ("csv", ["a", "b"], [((1, 6, 3), {"a": "1", "b": "2"})])),
    "as many commas": (b"a,b;c\n1,2\n", {}, ("csv", ["a", "b;c"], [((1, 6, 4), {"a": "1", "b;c": "2"})])),
    "mark": (b"\xef\xbb\xbfa\n\r\n1\r\n", {}, ("csv", ["a"], [((1, 7, 3), {"a": "1"})])),
    "blank": (b"\n\na\n\n1\n\n2", {}, ("csv", ["a"], [((1, 5, 2), {"a": "1"}), ((2, 8, 1), {"a": "2"})])),
    "quotes": (b'a\n"1\n""2"\n', {}, ("csv", ["a"], [((1, 2, 8), {"a": '1\n"2'})])),
    "no header": (b"a;1,b\n", {"header": False}, ("csv", [], [((1, 0, 6), {"1": "a;1", "2": "b"})])),
    "as csv": (b'{"a";1\n', {"form": "csv", "header": False}, ("csv", [], [((1, 0, 7), {"1": '{"a";1'})])),
    "lines": (b'\n {"a": 1}\n\n{"b": [2]}', {}, ("jsonl", [], [((1, 1, 10), {"a": 1}), ((2, 12, 10), {"b": [2]})])),
    "nothing": (b"", {"header": False}, ("csv", [], [])),
    "no rows": (b"\n", {}, ("SourceError", "PATH: has no rows", "list one example per line")),
    "twice": (b"a,b,a\n", {}, ("UsageError", "PATH: the first row names a column twice: a, b, a", NAMES)),
    "many": (
        b"a,b,c,d,e,f,g,h,i,a\n",
        {},
        ("UsageError", "PATH: the first row names a column twice: a, b, c, d, e, f, g, h and 2 more", NAMES),
    ),
    "lines before": (
        b"\n\na\n1\n\n\xff\n",
        {},
        ("SourceError", "PATH: cannot be read as CSV: line 6: it is not UTF-8", CSV),
    ),
    "without a name": (b"a,,\n", {}, ("UsageError", "PATH: the first row has a column without a name: a, , ", NAMES)),
    "a list": (b'[{"a": 1}]\n', {}, ("SourceError", "PATH, row 1: the row is not a JSON object", OBJECTS)),
    "no JSON": (
        b'{"a": 1}\n{"a":\n',
        {},
        ("SourceError", "PATH, row 2: the row is not JSON: Expecting value: line 2 column 1 (char 6)", OBJECTS),
    ),
    "too few": (
        b"a,b\n1,2\n1\n",
        {},
        ("SourceError", "PATH, row 2: the row has 1 cells, but the header names 2 columns", None),
    ),
    "too many": (
        b"a\n1,2\n",
        {},
        ("SourceError", "PATH, row 1: the row has 2 cells, but the header names 1 columns", None),
    ),
    "open": (
        b'a\n1\n"2\n',
        {},
        ("SourceError", "PATH: cannot be read as CSV: line 3: unexpected end of data", CSV),
    ),
    "Latin": (b"a\n1\n\xff\n", {}, ("SourceError", "PATH: cannot be read as CSV: line 3: it is not UTF-8", CSV)),
    "gzip": (gzip.compress(b"a"), {}, ("SourceError", "PATH: is compressed with gzip", "decompress it first")),
    "xml": (
        b" <?XML ?>",
        {},
        ("SourceError", "PATH: is an XML document, perhaps an error page, not a table", PAGE),
    ),
    "page": (b"<html>", {}, ("SourceError", "PATH: is a web page, perhaps an error page, not a table", PAGE)),
    "doctype": (
        b"\xef\xbb\xbf<!DOCTYPE html>",
        {},
        ("SourceError", "PATH: is a web page, perhaps an error page, not a table", PAGE),
    ),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\n",
        {},
        ("SourceError", "PATH: is a Git LFS pointer, not a table", "fetch what it points to: git lfs pull"),
    ),
}


def test_rows_have_positions_and_values_or_the_table_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for name, (data, options, expected) in TABLES.items():
        path.write_bytes(data)
        found = outcome(lambda options=options: read(path, **options))  # type: ignore[misc]
        if found[0] not in ("csv", "jsonl"):
            found = found[0], found[1].replace(str(path), "PATH"), found[2]
        assert (name, found) == (name, expected)


def raise_eio() -> bytes:
    raise OSError(errno.EIO, "Input/output error")


class Failing(io.BufferedReader):
    """A file that can be read until a number of times."""

    left = 1

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        return super().read(size) if self.left >= 0 else raise_eio()

    def __next__(self) -> bytes:
        return self.read(1)


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    fault = ("SourceError", f"{path}: cannot be read: Input/output error", None)
    path.write_bytes(b"a\n1\n")
    with Rows(str(path)) as rows, monkeypatch.context() as patched:
        patched.setattr(os, "pread", lambda *_: raise_eio())
        assert outcome(lambda: rows.data((1, 2, 2))) == fault
    for times in (0, 1):
        with Failing(io.FileIO(path)) as file:
            file.left = times
            assert outcome(lambda file=file: Rows(str(path), file=file)) == fault  # type: ignore[misc]
    assert outcome(lambda: Rows(str(tmp_path))) == ("SourceError", f"{tmp_path}: cannot be read: Is a directory", None)
    path.unlink()
    files = TableFiles(str(tmp_path))
    missing = ("SourceError", f"{path}: cannot be read: No such file or directory", None)
    path.write_bytes(b"a\n1\n")
    (item,) = files.list()
    path.unlink()
    assert outcome(lambda: Rows(str(path))) == missing
    assert outcome(lambda: files.open(item)) == missing


def test_a_row_that_is_no_longer_csv_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with Rows(str(path)) as rows:
        for data in (b"\xff", b'"', b'"a"b,c'):
            with pytest.raises(SampleError) as raised:
                rows.parsed(data)
            assert raised.value.message == "the row can no longer be read as CSV: the file changed meanwhile"
        assert rows.parsed(b'"1\r\n",2\r\n') == {"a": "1\r\n", "b": "2"}
        assert rows.version == (8, path.stat().st_mtime_ns)


# --- Names ---


def test_tables_are_known_by_their_suffix_before_that_of_a_compression() -> None:
    for suffix in ("csv", "TSV", "jsonl", "ndjson", "csv.gz", "csv.zst", "csv.bz2", "jsonl.XZ", "csv*"):
        assert has_table_suffix(f"a.{suffix}")
    assert [name for name in ("a.json", "csv", "a.csv.zip", "a.csv.gz.x", "a.gz") if has_table_suffix(name)] == []
    assert is_named_as_table("s3://bucket/{a.csv,b.tsv.gz}")
    assert not is_named_as_table("s3://bucket/{a.csv,b.tar}")


def test_tables_of_a_folder_template_or_list_are_opened_whatever_their_compression(tmp_path: Path) -> None:
    data = b"a\n1\n"
    for name, packed in {
        "a.csv": data,
        "b.csv.gz": gzip.compress(data),
        "c.tsv.bz2": bz2.compress(data),
        "deep/d.csv.xz": lzma.compress(data),
        "e.ndjson.zst": zstandard.compress(b'{"a": "1"}'),
        "f.txt": data,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(packed)

    def found(*named: str) -> Any:
        files = TableFiles(*[str(tmp_path / named[0]), named[1:]] if named[1:] else [str(tmp_path / named[0])])
        values = {}
        for item in files.list():
            with files.open(item) as rows:
                values[item.name] = [each for _, each in rows.items()]
            assert Path(files.locate(item)).name == Path(item.name).name
        assert {str(each) for each in values.values()} == {"[{'a': '1'}]"}
        return [*values]

    assert found("") == ["a.csv", "b.csv.gz", "c.tsv.bz2", "deep/d.csv.xz", "e.ndjson.zst"]
    assert found("", "*.txt") == ["f.txt"]
    assert found("?.csv*") == ["a.csv", "b.csv.gz"]
    assert found("f.txt") == ["f.txt"]
    several = [str(tmp_path / name) for name in ("b.csv.gz", "f.txt")]
    assert found(*several) == several
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.txt").touch()
    what = f"{tmp_path / 'none'}: holds no files that end with .csv, .tsv, .jsonl, .ndjson"
    hint = "name them with a template, such as '*.txt'"
    assert outcome(lambda: TableFiles(str(tmp_path / "none")).list()) == (NothingFoundError.__name__, what, hint)


# --- Samples ---


def source(path: Path, columns: dict[str, Column], **options: Any) -> TableSource:
    tables = TableFiles(str(path))
    return TableSource(tables, *tables.list(), columns, lambda url: {}, **options)


def samples(path: Path, columns: dict[str, Column], **options: Any) -> Any:
    """The samples of a table by their place, and its faults."""
    faults: list[Any] = []

    def fault(error: SampleError) -> None:
        faults.append((error.key, error.member, error.message, error.hint))

    found, made = [], source(path, columns, **options)
    for item in made.list(()):
        found += [(where["member"], sample) for where, sample in made.samples(item, InputReport(), fault)]
    assert made.listing_info().samples == len(found) + len(faults)
    return found, faults


def test_cells_become_numbers_texts_and_files_or_faults(tmp_path: Path) -> None:
    image = jpeg(photo(8, 8))
    (tmp_path / "a.png").write_bytes(image)
    (tmp_path / "b.png").write_bytes(b"text")
    path = tmp_path / "t.csv"
    path.write_text(
        "file,n,x,text\na.png,7,0.5,ü\nb.png,1,1,\nnone.png,1,1,\n.,1,1,\n,1,1,\na.png,x,1,\na.png,1,1e999x,\n"
    )
    columns = {
        "image": Column("file", "png"),
        "n": Column("n", "int64"),
        "x": Column("x", "float"),
        "text": Column("text", None),
    }
    found, faults = samples(path, columns)
    assert found == [("row 1", {"__key__": "1", "image": image, "n": 7, "x": 0.5, "text": "ü".encode()})]
    assert faults == [
        (
            "2",
            "row 2",
            f"the content of {tmp_path}/b.png is not an image",
            "file:file takes any file",
        ),
        ("3", "row 3", f"there is no file {tmp_path}/none.png, which the column 'file' names", None),
        ("4", "row 4", f"there is no file {tmp_path}/., which the column 'file' names", None),
        ("5", "row 5", "the path of a file is empty", None),
        ("6", "row 6", "'n' is not of type int64: 'x' is not a whole number", None),
        ("7", "row 7", "'x' is not of type float: '1e999x' is not a number", None),
    ]


def test_a_table_without_named_columns_gives_all_that_have_values_and_its_own_key(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [
        '{"__key__": "k", "n": 1, "none": null}',
        '{"text": "\\ud800"}',
        '{"__key__": 5, "on": true}',
        '{"t": "ü"}',
    ]
    path.write_text("\n".join(lines))
    for stem, before in (("", ""), ("a", "a-00000")):
        assert samples(path, {}, stem=stem) == (
            [
                ("row 1", {"__key__": "k", "n": 1}),
                ("row 3", {"__key__": "5", "on": True}),
                ("row 4", {"__key__": f"{before}4", "t": "ü".encode()}),
            ],
            [(f"{before}2", "row 2", "the text in the column 'text' is not UTF-8", None)],
        )


def test_columns_that_a_table_lacks_are_named_with_those_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    hint = "columns: path, label; where there is no header, name them by number: image=1:jpg"
    path.write_text("path,label\na,1\n")
    for name, like in (("paht", "; did you mean 'path'?"), ("zzz", "")):
        found = outcome(lambda name=name: source(path, {"x": Column(name, None)}).list(()))  # type: ignore[misc]
        assert found == ("UsageError", f"{path}: there is no column {name!r}{like}", hint)
    path.write_text("a.jpg,0\nb.jpg,1\n")
    hint = "name the columns in the first row, or by number: --columns image=1:jpg,label=2:int64"
    fault = ("UsageError", f"{path}: the first row does not look like a header: '0'", hint)
    assert outcome(lambda: source(path, {}).list(())) == fault
    assert samples(path, {"label": Column("2", "int64")}) == (
        [("row 1", {"__key__": "1", "label": 0}), ("row 2", {"__key__": "2", "label": 1})],
        [],
    )


def test_rows_have_keys_types_and_files_also_if_their_values_are_bytes() -> None:
    columns = {
        "__key__": Column("id", None),
        "ints": Column("ints", "int64_list"),
        "image": Column("image", "file"),
        "text": Column("text", None),
    }
    files = RowFiles("", None, lambda url: {})
    sample = entries_of_row(columns, files, "1", {"id": b"k", "ints": [1, 2], "image": b"x", "text": b"\xff"})
    assert sample == {"__key__": "k", "ints": sample["ints"], "image": b"x", "text": b"\xff"}
    for values, fault in (
        ({"id": 1}, "has no value in the column 'ints'"),
        ({"id": None}, "has no value in the column 'id'"),
        ({"id": "\ud800"}, "the text in the column '__key__' is not UTF-8"),
        ({"id": 1, "ints": "1 x"}, "'ints' is not of type int64_list: 'x' is not a whole number"),
        ({"id": 1, "ints": [1], "image": 5}, "the path of a file is 5"),
        ({"id": 1, "ints": [1], "image": []}, "the path of a file is empty"),
    ):
        with pytest.raises(SampleError) as raised:
            entries_of_row(columns, files, "1", values)
        assert raised.value.message == fault
    with pytest.raises(SampleError) as raised:
        entries_of_row({"image": Column("image", "jpg")}, files, "1", {"image": b"x"})
    assert str(raised.value) == "the content of the column 'image' is not an image; image:file takes any file"


def test_content_must_be_of_the_family_of_its_suffix() -> None:
    files = RowFiles("", None, no_options)
    contents = {
        "jpg": (jpeg(photo(8, 8)), "an image"),
        "wav": (b"RIFF\0\0\0\0WAVE", "a sound"),
        "opus": (b"OggS", "a sound"),
        "mp4": (b"\0\0\0\x20ftypmp42", "a video"),
        "npy": (b"\x93NUMPY", "an npy file"),
        "npz": (b"PK\x03\x04" + bytes(22) + b"\x05\0\0\0a.npy", "an npz file"),
        "txt": (b"text", ""),
        "file": (b"", ""),
    }
    for suffix, (data, family) in contents.items():
        columns = {"x": Column("c", suffix)}
        assert entries_of_row(columns, files, "1", {"c": data}) == {"__key__": "1", "x": data}
        for other in (b"more text", b""):
            if family:
                with pytest.raises(SampleError) as raised:
                    entries_of_row(columns, files, "1", {"c": other})
                assert raised.value.message == f"the content of the column 'c' is not {family}"
                assert raised.value.hint == "c:file takes any file"
            else:
                assert entries_of_row(columns, files, "1", {"c": other})["x"] == other


def test_inputs_have_the_sizes_of_rows_and_files_and_versions_that_change_with_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    path = tmp_path / "t.csv"
    path.write_text("c\na\nnone\na\n")

    def listed(**columns: Column) -> tuple[int | None, object]:
        (item,) = source(path, columns).list(())
        return item.size, item.version

    rows, with_files = listed(), listed(x=Column("c", "file"))
    assert (rows[0], with_files[0]) == (9, 9 + 2 * 3)
    assert rows[1] != with_files[1]
    assert listed(x=Column("c", "file")) == with_files
    os.utime(tmp_path / "a", ns=(1, 1))
    assert listed() == rows
    assert listed(x=Column("c", "file"))[1] != with_files[1]
    path.write_text("c\n\na\nnone\nb\n")
    assert listed()[0] == rows[0]
    assert listed()[1] != rows[1]


# --- Files that cells name ---


def no_options(url: str) -> ConnectionOptions:
    return {}


def test_files_are_named_from_the_folder_of_the_table_and_have_versions(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.utime(tmp_path / "a", ns=(5, 7))
    files = RowFiles(str(tmp_path), None, no_options)
    for each in (files, pickle.loads(pickle.dumps(files))):
        assert each.read("c", "a") == (b"abc", str(tmp_path / "a"))
        assert each.read("c", str(tmp_path / "a"))[0] == b"abc"
        assert each.version("a") == (3, b"3\0" + b"7\0")
        assert each.version("none") == each.version("a\0") == (0, b"0\0" + b"0\0")
        assert [each.is_unknown(cell) for cell in ("a", "none", 5, None)] == [False] * 4
        assert [*each.ahead(iter([1, 2]), lambda row: ["a", row])] == [1, 2]
    for cell, fault in (
        ("none", f"there is no file {tmp_path}/none, which the column 'c' names"),
        ("a/b", f"there is no file {tmp_path}/a/b, which the column 'c' names"),
        ("a\0", f"there is no file {tmp_path}/a\0, which the column 'c' names"),
        ("", "the path of a file is empty"),
        (None, "the path of a file is empty"),
        (7, "the path of a file is 7"),
        ("foo://a/b", "foo:// buckets are not supported"),
    ):
        with pytest.raises(SampleError) as raised:
            files.read("c", cell)
        assert (cell, raised.value.message) == (cell, fault)
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(SourceError) as failed:
        files.read("c", "a")
    assert str(failed.value) == f"{tmp_path}/a: cannot be read: Too many levels of symbolic links"


def test_files_in_the_bucket_of_a_table_are_named_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELF", str(tmp_path))
    for name, data in (("top", b"0"), ("t/a", b"abc"), ("t/deep/b", b"")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=(5, 7))
    store = ShelfStore("shelf://any/t", None)
    files = RowFiles("shelf://any/t", store, no_options)
    assert [files.is_unknown(cell) for cell in ("a", "none", 5, "")] == [True, True, False, False]
    files.look_up(["a", 5, "none", "", "../x/../top"])
    assert [files.is_unknown(cell) for cell in ("a", "none", "deep/b", "../top")] == [False, False, True, False]
    versions = {cell: files.version(cell) for cell in ("a", "none", "deep/../a", "deep/b", "../top")}
    assert versions == {
        "a": (3, b"3\x00" + b"7\x00"),
        "none": (0, b"0\x00" + b"0\x00"),
        "deep/../a": (3, b"3\x00" + b"7\x00"),
        "deep/b": (0, b"0\x00" + b"7\x00"),
        "../top": (1, b"1\x00" + b"7\x00"),
    }
    assert files.read("c", "a") == (b"abc", "shelf://any/t/a")
    assert files.read("c", "./deep//b") == (b"", "shelf://any/t/deep/b")
    assert [*files.ahead(iter(["a", "none", "../top"]), lambda row: [row])] == ["a", "none", "../top"]
    for cell, fault in (
        ("none", "there is no file shelf://any/t/none, which the column 'c' names"),
        ("../../x", "the path '../../x' leaves the bucket of the table"),
        ("../..", "the path '../..' leaves the bucket of the table"),
        ("/top", "the path '/top' leaves the bucket of the table"),
        (7, "the path of a file is 7"),
    ):
        with pytest.raises(SampleError) as raised:
            files.read("c", cell)
        assert (cell, raised.value.message) == (cell, fault)
    os.utime(tmp_path / "t/a", ns=(5, 8))
    files.forget_versions()
    assert files.is_unknown("a")
    assert files.version("a") == (3, b"3\x00" + b"8\x00")
