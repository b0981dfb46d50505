"""Tables: CSV and JSON Lines, headers, columns as values and as files, what is wrong with a row, and changes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import wave
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import zstandard

from commands import convert, tar2tf
from images import jpeg, photo
from servers import FaultyServer
from shards import examples, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.conversion.run import convert as run
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.inputs.kinds.table import TableSource
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.rows import Rows, TableFiles
from tar2tf_cli.spec.conversion import Conversion, Input
from tar2tf_cli.spec.fields import Column

COLUMNS = "image=path:jpg,label=label:int64"
NAMES = ["plain", "with, a comma", 'with "quotes"', "two\nlines", "ünïcode", " blanks "]


def write(path: Path, rows: Sequence[Sequence[Any]], mark: str = ",", start: bytes = b"") -> Path:
    """A table by Python's csv module; in the form of its suffix where that is jsonl."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(dict(zip(rows[0], row, strict=True))) + "\n" for row in rows[1:])
        else:
            csv.writer(file, delimiter=mark).writerows(rows)
    path.write_bytes(start + path.read_bytes())
    return path


@pytest.fixture
def photos(tmp_path: Path) -> list[tuple[str, int]]:
    """Paths below the table's folder, and labels, of six photos."""
    (tmp_path / "photos").mkdir()
    listed = [(f"photos/{number}.jpg", 3 - number) for number in range(6)]
    for number, (path, _) in enumerate(listed):
        (tmp_path / path).write_bytes(jpeg(photo(10 + number, 20)))
    return listed


def table(folder: Path, photos: Sequence[tuple[str, int]], name: str = "data.csv", **how: Any) -> Path:
    rows = [(name, *row) for name, row in zip(NAMES, photos, strict=True)]
    return write(folder / name, [("name", "path", "label"), *rows], **how)


# --- Forms ---


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("data.csv", {}),
        ("data.csv", {"start": b"\xef\xbb\xbf"}),
        ("data.csv", {"mark": ";"}),
        ("data.tsv", {"mark": "\t"}),
        ("data.jsonl", {}),
        ("data.jsonl", {"start": b"\n\n"}),
    ],
)
def test_a_table_becomes_the_same_examples_in_each_form(tmp_path, photos, name, how):
    columns = f"__key__=path,{COLUMNS},name=name"
    convert("--from", "table", table(tmp_path, photos, name, **how), "-o", tmp_path / "t.record", "--columns", columns)
    found = examples(tmp_path / "t.record")
    assert [example["image"][0] for example in found] == [(tmp_path / path).read_bytes() for path, _ in photos]
    assert [example["label"][0] for example in found] == [label for _, label in photos]
    assert [example["name"][0].decode() for example in found] == NAMES
    assert [example["__key__"][0].decode() for example in found] == [path for path, _ in photos]


def test_without_columns_every_column_is_an_entry_and_the_key_is_the_number_of_the_row(tmp_path, photos):
    convert("--from", "table", table(tmp_path, photos), "-o", tmp_path / "t.record", "--type", "label=int64")
    found = examples(tmp_path / "t.record")
    assert [example["__key__"][0] for example in found] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {*found[0]} == {"__key__", "name", "path", "label"}
    assert [example["label"][0] for example in found] == [label for _, label in photos]


def test_columns_of_a_table_without_a_header_are_named_by_number(tmp_path, photos):
    path = write(tmp_path / "data.csv", photos)
    convert("--from", "table", path, "-o", tmp_path / "t.record", "--columns", "image=1:jpg,label=2:int64")
    assert [example["label"][0] for example in examples(tmp_path / "t.record")] == [label for _, label in photos]


def test_values_of_json_keep_their_types(tmp_path):
    lines = [
        {"n": 3, "x": 0.5, "on": True, "boxes": [1, 2], "words": ["a", "b"], "left": None, "about": {"deep": [4]}},
        {"n": -1, "x": 1.5, "on": False, "boxes": [3], "words": ["c"], "left": None, "about": {"deep": [5]}},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    select = "n,x,on,boxes,words,deep=about:deep.0"
    convert("--from", "table", tmp_path / "t.jsonl", "-o", tmp_path / "t.record", "--select", select)
    records = list(open_records(tmp_path / "_t-manifest.json"))
    assert [record["n"] for record in records] == [3, -1]
    assert [record["x"] for record in records] == [0.5, 1.5]
    assert [record["on"] for record in records] == [1, 0]
    assert [record["boxes"].tolist() for record in records] == [[1, 2], [3]]
    assert [list(record["words"]) for record in records] == [[b"a", b"b"], [b"c"]]
    assert [record["deep"] for record in records] == [4, 5]


@pytest.mark.parametrize(
    ("kind", "cells", "expected"),
    [
        ("int64", ["7", " -8"], [7, -8]),
        ("float", ["0.5", "1e3"], [0.5, 1000.0]),
        ("int64_list", ["1 2", "[3]"], [[1, 2], [3]]),
        ("float_list", ["1,2", "3"], [[1.0, 2.0], [3.0]]),
        ("bytes", ["a", "b"], [b"a", b"b"]),
    ],
)
def test_cells_are_parsed_as_the_type_of_their_column(tmp_path, kind, cells, expected):
    path = write(tmp_path / "t.csv", [("value",), *[(cell,) for cell in cells]])
    convert("--from", "table", path, "-o", tmp_path / "t.record", "--columns", f"v=value:{kind}")
    found = [record["v"] for record in open_records(tmp_path / "_t-manifest.json")]
    assert [value.tolist() if isinstance(value, np.ndarray) else value for value in found] == expected


def test_ops_get_numbers_as_numbers_and_files_as_bytes(tmp_path, photos):
    (tmp_path / "mine.py").write_text("def fn(s):\n    return {**s, 'label': s['label'] + len(s['image'])}\n")
    ops = ("--op", f"func:{tmp_path / 'mine.py'}:fn", "--op", "decode:image")
    convert("--from", "table", table(tmp_path, photos), "-o", tmp_path / "t.record", "--columns", COLUMNS, *ops)
    records = list(open_records(tmp_path / "_t-manifest.json"))
    assert [record["label"] for record in records] == [
        label + os.path.getsize(tmp_path / path) for path, label in photos
    ]
    assert [record["image"].shape for record in records] == [(10 + number, 20, 3) for number in range(6)]


# --- The flow ---


@pytest.mark.parametrize("options", [(), ("--shuffle", "--seed", "3"), ("--limit", "130"), ("--num-shards", "3")])
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, options):
    rows = [("name", "value"), *[(f"n{number}", number) for number in range(500)]]
    path = write(tmp_path / "t.csv", rows)
    for workers in ("1", "3"):
        out = tmp_path / workers / "t-<>.record"
        convert("--from", "table", path, "-o", out, "--columns", "v=value:int64", "-j", workers, *options)
    assert tree(tmp_path / "1") == tree(tmp_path / "3")


def test_a_yaml_spec_and_python_say_the_same_as_flags(tmp_path, photos):
    path = table(tmp_path, photos)
    convert("--from", "table", path, "-o", tmp_path / "flags" / "t.record", "--columns", COLUMNS)
    (tmp_path / "spec.yaml").write_text(
        f"input:\n  bucket: {path}\n  from: table\n  columns: {{image: 'path:jpg', label: 'label:int64'}}\n"
        f"output:\n  path: {tmp_path}/yaml/t.record\n"
    )
    convert("--spec", tmp_path / "spec.yaml")
    columns = {"image": "path:jpg", "label": "label:int64"}
    run(Conversion(Input(path, kind="table", columns=columns), tmp_path / "python" / "t.record"))
    assert tree(tmp_path / "flags") == tree(tmp_path / "yaml") == tree(tmp_path / "python")


def test_a_second_run_is_up_to_date_until_a_row_or_a_file_changes(tmp_path, photos):
    command = ("--from", "table", table(tmp_path, photos), "-o", tmp_path / "t.record", "--columns", COLUMNS)
    convert(*command)
    assert "up to date" in convert(*command).stderr
    (tmp_path / photos[2][0]).write_bytes(jpeg(photo(40, 40)))
    refused = tar2tf("convert", *command)
    assert refused.returncode == 2
    assert "pass --update" in refused.stderr
    convert(*command, "--update")
    assert examples(tmp_path / "t.record")[2]["image"][0] == (tmp_path / photos[2][0]).read_bytes()


def test_a_file_that_changes_between_listing_and_reading_is_an_error(tmp_path, photos):
    tables = TableFiles(str(table(tmp_path, photos)))
    source = TableSource(tables, *tables.list(), {"image": Column("path", "jpg")}, lambda url: {})
    (item,) = source.list(())
    assert len([*source.samples(item, InputReport(), pytest.fail)]) == 6
    os.utime(tmp_path / photos[1][0], ns=(1, 1))
    with pytest.raises(SourceError, match="changed"):
        deque(source.samples(item, InputReport(), pytest.fail), maxlen=0)


@pytest.mark.parametrize("new", [b"\xff", b'"'])
def test_a_table_that_changes_between_listing_and_reading_is_an_error(tmp_path, new):
    path = tmp_path / "t.csv"
    path.write_bytes(b"text\none\ntwo\n")
    tables = TableFiles(str(path))
    source = TableSource(tables, *tables.list(), {}, lambda url: {})
    (item,) = source.list(())
    path.write_bytes(b"text\none\n" + new + b"wo\n")
    faults = []
    with pytest.raises(SourceError, match="changed"):
        deque(source.samples(item, InputReport(), faults.append), maxlen=0)
    assert [error.message for error in faults] == ["the row can no longer be read as CSV: the file changed meanwhile"]


# --- What is wrong ---


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (("missing.jpg", 1), "there is no file "),
        (("", 1), "the path of a file is empty"),
        (("photos", 1), "there is no file"),
        (("text.jpg", 1), "is not an image"),
        (("photos/0.jpg", "cat"), "'label' is not of type int64"),
        (("photos/0.jpg", ""), "'label' is not of type int64"),
        (("photos/0.jpg",), "the row has 1 cells, but the header names 2 columns"),
    ],
)
def test_a_faulty_row_is_named_and_can_be_skipped(tmp_path, photos, row, fault):
    (tmp_path / "text.jpg").write_text("not an image")
    path = write(tmp_path / "t.csv", [("path", "label"), photos[0], row, photos[1]])
    command = ("convert", "--from", "table", path, "-o", tmp_path / "t.record", "--columns", COLUMNS)
    done = tar2tf(*command)
    assert done.returncode == 3
    assert f"{path}, row 2" in done.stderr
    assert fault in done.stderr
    assert not (tmp_path / "t.record").exists()
    assert tar2tf(*command, "--on-error", "skip").returncode == 1
    assert len(examples(tmp_path / "t.record")) == 2


@pytest.mark.parametrize(
    ("suffix", "fault"),
    [("wav", "a sound"), ("mp3", "a sound"), ("mp4", "a video"), ("npy", "an npy file"), ("txt", ""), ("file", "")],
)
def test_the_content_of_a_file_is_of_the_family_that_its_suffix_names(suffix, fault, tmp_path):
    (tmp_path / "a.wav").write_text("<html>not found</html>")
    path = write(tmp_path / "t.csv", [("path",), ("a.wav",)])
    columns = f"a=path:{suffix}"
    done = tar2tf("convert", "--from", "table", path, "-o", tmp_path / "t.record", "--columns", columns)
    assert done.returncode == (3 if fault else 0)
    assert not fault or f"a.wav is not {fault}" in done.stderr


def test_sounds_and_arrays_are_known_by_their_content(tmp_path):
    file = io.BytesIO()
    np.save(file, np.arange(3))
    (tmp_path / "a").write_bytes(file.getvalue())
    with wave.open(str(tmp_path / "b"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(20))
    path = write(tmp_path / "t.csv", [("array", "sound"), ("a", "b")])
    columns = "a=array:npy,b=sound:wav"
    done = tar2tf("convert", "--from", "table", path, "-o", tmp_path / "t.record", "--columns", columns)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("line", "fault"), [("{", "is not JSON"), ("[1]", "is not a JSON object"), ("{}", "no value")])
def test_a_faulty_line_of_json_is_named(tmp_path, line, fault):
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n' + line + "\n")
    done = tar2tf("convert", "--from", "table", tmp_path / "t.jsonl", "-o", tmp_path / "t.record", "--columns", "a=a")
    assert done.returncode == 3
    assert "row 2" in done.stderr
    assert fault in done.stderr


@pytest.mark.parametrize("columns", [(), ("--columns", "__key__=__key__,a=a")], ids=["all", "named"])
def test_a_key_in_json_that_is_not_utf8_is_a_faulty_row(tmp_path, columns):
    (tmp_path / "t.jsonl").write_text('{"__key__": "k", "a": 1}\n{"__key__": "\\ud800", "a": 2}\n')
    done = tar2tf("convert", "--from", "table", tmp_path / "t.jsonl", "-o", tmp_path / "t.record", *columns)
    assert done.returncode == 3
    assert "row 2: the text in the column '__key__' is not UTF-8" in done.stderr


@pytest.mark.parametrize(
    ("data", "options", "fault"),
    [
        ("a,b\n1,2\n", ("--columns", "x=c"), "there is no column 'c'"),
        ("path,label\na,2\n", ("--columns", "x=paht"), "did you mean 'path'?"),
        ("a.jpg,0\nb.jpg,1\n", (), "the first row does not look like a header: '0'"),
        ("a,a\n1,2\n", (), "names a column twice"),
        ("a,\n1,2\n", (), "a column without a name"),
        ("", (), "has no rows"),
        ("a,b\n", (), "has no rows"),
        ('a,b\n1,"2\n', (), "line 2"),
        ("a\n1\n", ("--columns", "x=a:int46"), "did you mean 'int64'?"),
        ('[\n {"a": 1}\n]\n', (), "jq -c '.[]'"),
        ("a\n1\n", ("--columns", "x"), "is not ENTRY=COLUMN"),
    ],
)
def test_a_table_that_is_not_as_asked_for_is_refused(tmp_path, data, options, fault):
    (tmp_path / "t.csv").write_text(data)
    done = tar2tf("convert", "--from", "table", tmp_path / "t.csv", "-o", tmp_path / "t.record", *options)
    assert done.returncode in (2, 3)
    assert fault in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "a Git LFS pointer"),
        (b'\n<?xml version="1.0"?>\n<Error/>\n', "an XML document"),
        (b"<!DOCTYPE html>\n<p>404</p>\n", "a web page"),
        (b"<HTML>\n<p>404</p>\n", "a web page"),
    ],
)
def test_what_a_server_sent_in_place_of_a_table_is_named(tmp_path, data, what):
    (tmp_path / "t.csv").write_bytes(data)
    (tmp_path / "t.tar").write_bytes(data)
    write_tar(tmp_path / "a.tar", [("a", {"txt": b"x"})])
    out = ("-o", tmp_path / "o.record")
    read = tar2tf("convert", tmp_path / "t.csv", "--from", "table", *out)
    joined = tar2tf("convert", tmp_path / "a.tar", "--join", tmp_path / "t.csv", *out)
    assert [f"t.csv: is {what}" in done.stderr for done in (read, joined)] == [True, True]
    named_as_tar = tar2tf("convert", tmp_path / "a.tar", "--join", tmp_path / "t.tar", *out)
    assert "t.tar: cannot be joined: it is " in named_as_tar.stderr
    assert {done.returncode for done in (read, joined, named_as_tar)} == {3}


def test_git_lfs_pointers_in_place_of_images_and_label_maps_are_named(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "a.jpg").write_bytes(pointer)
    (tmp_path / "labels.txt").write_bytes(pointer)
    write_tar(tmp_path / "a.tar", [("a", {"cls": b"x"})])
    out = ("-o", tmp_path / "o.record")
    photos = tar2tf("convert", "--from", "imagefolder", tmp_path / "photos", *out)
    labels = tar2tf("convert", tmp_path / "a.tar", "--labels", f"cls={tmp_path}/labels.txt", *out)
    assert "it is a Git LFS pointer; fetch what it points to" in photos.stderr
    assert "labels.txt: is a Git LFS pointer, not a label map" in labels.stderr
    assert (photos.returncode, labels.returncode) == (3, 3)


@pytest.mark.parametrize(("name", "shown"), [("data.csv", "name, path, label"), ("data.jsonl", "name, path, label")])
def test_convert_of_a_table_says_how(tmp_path, photos, name, shown):
    done = tar2tf("convert", table(tmp_path, photos, name), "-o", tmp_path / "t.record")
    assert done.returncode == 3
    assert "--from table" in done.stderr
    assert shown in done.stderr


def test_standard_input_is_no_table(tmp_path):
    done = tar2tf("convert", "--from", "table", "-", "-o", tmp_path / "t.record")
    assert done.returncode == 2
    assert "--from table reads local files, not standard input" in done.stderr


def test_columns_are_only_for_tables():
    with pytest.raises(UsageError, match="--columns is only for tables; add kind table"):
        Input("shards", columns="a=b")


def test_rows_can_be_read_again_by_their_positions_while_others_are_listed(tmp_path, photos):
    with Rows(str(table(tmp_path, photos))) as rows:
        assert [rows.values(span)["name"] for span in rows.spans()] == NAMES
        assert [rows.values(span)["name"] for span in reversed([*rows.spans()])] == NAMES[::-1]


# --- Several tables, compressed ones, and stores ---

TEXTS = [f"row {number}" for number in range(300)]


def texts(path: Path, first: int, end: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, [("id", "text"), *((str(number), TEXTS[number]) for number in range(first, end))])


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder of three tables, one in a folder below it and two compressed, and a file that is no table."""
    folder = tmp_path / "tables"
    texts(folder / "a.csv", 0, 140)
    for name, data in (("b.jsonl", gzip), ("more/c.csv", zstandard)):
        first = 140 if name == "b.jsonl" else 200
        path = texts(folder / name, first, 200 if first == 140 else 300)
        (folder / f"{name}.{'gz' if data is gzip else 'zst'}").write_bytes(data.compress(path.read_bytes()))
        path.unlink()
    (folder / "notes.md").write_text("no table")
    return folder


def keys_and_texts(manifest: Path) -> list[tuple[str, bytes]]:
    return [(record["__key__"].decode(), record["text"]) for record in open_records(manifest)]


def test_the_tables_of_a_folder_are_read_one_after_the_other_whatever_their_compression(tmp_path, tables):
    for workers in (1, 3):
        convert("--from", "table", tables, "-o", tmp_path / f"{workers}" / "x.record", "-j", workers)
    assert (tmp_path / "1/x.record").read_bytes() == (tmp_path / "3/x.record").read_bytes()
    read = keys_and_texts(tmp_path / "1")
    assert [text.decode() for _, text in read] == TEXTS
    assert [read[number][0] for number in (0, 100, 299)] == ["a-000001", "a-000101", "c.csv-000100"]
    assert len({key for key, _ in read}) == 300


def test_tables_are_named_one_by_one_or_by_a_template(tmp_path, tables):
    for number, names in enumerate(
        [(tables / "a.csv", tables / "b.jsonl.gz"), (tables, "[ab].*"), (f"{tables}/[ab].*",)]
    ):
        convert("--from", "table", *names, "-o", tmp_path / f"{number}.record")
        assert [text.decode() for _, text in keys_and_texts(tmp_path / f"_{number}-manifest.json")] == TEXTS[:200]


def test_rows_of_several_tables_are_shuffled_limited_and_split_as_samples_are(tmp_path, tables):
    out = ("--shuffle", "--limit", 100, "--split", "train=0.8,val=0.2", "-o", tmp_path / "<split>.record")
    convert("--from", "table", tables, "--columns", "__key__=id,text=text", *out)
    read = {key for split in ("train", "val") for key, _ in keys_and_texts(tmp_path / f"{split}.record")}
    assert len(read) == 100
    assert {int(key) // 100 for key in read} == {0, 1, 2}


def test_a_folder_without_tables_says_what_a_table_is(tmp_path, tables):
    (tmp_path / "empty").mkdir()
    done = tar2tf("convert", "--from", "table", tmp_path / "empty", "-o", tmp_path / "t.record")
    assert done.returncode == 3
    assert "holds no files that end with .csv, .tsv, .jsonl, .ndjson" in done.stderr


def test_a_faulty_row_of_several_tables_is_named_with_its_file(tmp_path, tables):
    texts(tables / "a.csv", 0, 3)
    with open(tables / "a.csv", "a", encoding="utf-8") as file:
        file.write("a,b,c\n")
    done = tar2tf("convert", "--from", "table", tables, "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert f"{tables}/a.csv, row 4: the row has 3 cells" in done.stderr


@pytest.mark.xdist_group("s3")
def test_tables_in_a_store_are_read_and_joined_as_local_ones(tmp_path, tables, s3, s3_client, web):
    s3_client.create_bucket(Bucket="tables")
    for path in filter(Path.is_file, tables.rglob("*")):
        s3_client.upload_file(str(path), "tables", f"in/{path.relative_to(tables)}")
        web.objects[f"in/{path.name}"] = path.read_bytes()
    columns = ("--columns", "__key__=id,text=text")
    convert("--from", "table", tables, "-o", tmp_path / "0.record", *columns)
    whole = (tmp_path / "0.record").read_bytes()
    ways = [
        ("s3://tables/in",),
        ("s3://tables/in/{a,b,more/c}.*",),
        ("s3://tables", "in/a.csv", "in/b.jsonl.gz", "in/more/c.csv.zst"),
        (f"{web.url}/in", "{a.csv,b.jsonl.gz,c.csv.zst}"),
    ]
    for number, names in enumerate(ways, 1):
        convert("--from", "table", *names, "-o", tmp_path / f"{number}.record", *columns, "-j", 2)
        assert (tmp_path / f"{number}.record").read_bytes() == whole
    convert("--from", "table", "s3://tables/in/a.csv", "-o", tmp_path / "one.record")
    assert keys_and_texts(tmp_path / "_one-manifest.json")[0] == ("1", b"row 0")
    shard = write_tar(tmp_path / "in/a.tar", [(key, {"x": b""}) for key in ("7", "120", "299")])
    places = ("s3://tables/in/**/*.csv*", tables, f"{web.url}/in/{{a.csv,b.jsonl.gz,c.csv.zst}}")
    for number, place in enumerate(places):
        joined = tmp_path / f"joined{number}" / "x.record"
        convert(shard, "-o", joined, "--join", place, "--join-key", "id", "-j", 2)
        assert [text for _, text in keys_and_texts(joined.parent)] == [b"row 7", b"row 120", b"row 299"]


@pytest.fixture
def pictures(s3: str, s3_client: Any) -> list[bytes]:
    """Texts in a bucket, next to a folder for tables that name them."""
    with suppress(s3_client.exceptions.BucketAlreadyOwnedByYou):
        s3_client.create_bucket(Bucket="paths")
    texts = [b"text %d" % number for number in range(150)]
    for number, text in enumerate(texts):
        s3_client.put_object(Bucket="paths", Key=f"in/files/{number}.txt", Body=text)
    return texts


def convert_paths(tmp_path: Path, table: Any, *more: Any) -> tuple[int, str, list[bytes]]:
    """Convert a table with a column `path`; return the code, what was said, and the files in the output."""
    out = tmp_path / "out" / "x.record"
    done = tar2tf("convert", "--from", "table", table, "--columns", "x=path:file", "-o", out, *more)
    return done.returncode, done.stderr, [sample["x"] for sample in open_records(out)] if out.exists() else []


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("jobs", [1, 2])
def test_files_named_in_a_table_lie_in_its_store_or_at_urls(
    tmp_path: Path, s3_client: Any, pictures: list[bytes], web: FaultyServer, jobs: int
) -> None:
    web.objects["b c/u.txt"] = b"of the web"
    ways = ["files/{}.txt", "../in/./files/{}.txt", "s3://paths/in/files/{}.txt"]
    names = [ways[number % 3].format(number) for number in range(150)]
    rows = "\n".join(["path", *names, f"{web.url}/b%20c/u.txt", "files/7.txt"])
    s3_client.put_object(Bucket="paths", Key="in/t.csv", Body=rows.encode())
    expected = [*pictures, b"of the web", pictures[7]]
    assert convert_paths(tmp_path, "s3://paths/in/t.csv", "-j", jobs) == (0, ANY, expected)
    local = write(tmp_path / "t.csv", [["path"], ["u.txt"], *([name] for name in names[2::3])])
    (tmp_path / "u.txt").write_bytes(b"of the disk")
    assert convert_paths(tmp_path, local, "--overwrite", "-j", jobs) == (0, ANY, [b"of the disk", *pictures[2::3]])


@pytest.mark.xdist_group("s3")
def test_a_file_in_a_store_that_changes_is_converted_again(
    tmp_path: Path, s3_client: Any, pictures: list[bytes]
) -> None:
    s3_client.put_object(Bucket="paths", Key="in/t.csv", Body=b"path\nfiles/1.txt\nfiles/2.txt\n")
    assert convert_paths(tmp_path, "s3://paths/in/t.csv")[2] == pictures[1:3]
    s3_client.put_object(Bucket="paths", Key="in/files/2.txt", Body=b"new")
    assert convert_paths(tmp_path, "s3://paths/in/t.csv")[0] != 0
    assert convert_paths(tmp_path, "s3://paths/in/t.csv", "--update") == (0, ANY, [pictures[1], b"new"])


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("files/missing.txt", "there is no file s3://paths/in/files/missing.txt, which the column 'path' names"),
        ("../../x.txt", "leaves the bucket"),
        ("/etc/hostname", "leaves the bucket"),
        ("ftp://host/x.txt", "ftp:// buckets are not supported"),
    ],
)
def test_a_row_whose_file_is_not_in_the_store_is_faulty(
    tmp_path: Path, s3_client: Any, pictures: list[bytes], cell: str, words: str
) -> None:
    s3_client.put_object(Bucket="paths", Key="in/t.csv", Body=f"path\nfiles/1.txt\n{cell}\n".encode())
    code, said, _ = convert_paths(tmp_path, "s3://paths/in/t.csv")
    assert code == 3
    assert words in said
    assert convert_paths(tmp_path, "s3://paths/in/t.csv", "--on-error", "skip")[2] == [pictures[1]]
