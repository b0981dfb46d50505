"""Parquet files as tables and as joined datasets: rows, columns, files inside, row groups, and stores."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import convert, tar2tf
from images import jpeg, photo
from shards import examples, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.errors import UsageError
from tar2tf_cli.inputs import parquet as module

pytest.importorskip("pyarrow")
ROWS = 100


def write(path: Path, columns: Mapping[str, Sequence[Any]], group: int = 30) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
    return path


def numbered(first: int = 0) -> dict[str, list[Any]]:
    numbers = range(first, first + ROWS)
    return {
        "id": [*numbers],
        "caption": [f"nümber {number}" for number in numbers],
        "score": [number / 2 for number in numbers],
        "vector": [[float(number), 1.0] for number in numbers],
        "on": [number % 2 == 0 for number in numbers],
    }


def test_rows_become_samples_whatever_the_workers(tmp_path: Path) -> None:
    for part in range(2):
        write(tmp_path / f"in/part-{part}.parquet", numbered(ROWS * part))
    for workers in (1, 2):
        out = tmp_path / f"{workers}/x-<>.record"
        convert("--from", "table", tmp_path / "in", "-o", out, "--records-per-shard", 60, "-j", workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    records = [*open_records(str(tmp_path / "1/_x-manifest.json"))]
    assert [record["id"] for record in records] == [*range(2 * ROWS)]
    assert [record["caption"].decode() for record in records] == [f"nümber {number}" for number in range(2 * ROWS)]
    assert [record["vector"].tolist() for record in records] == [[number, 1.0] for number in range(2 * ROWS)]
    assert [record["on"] for record in records] == [number % 2 == 0 for number in range(2 * ROWS)]
    assert [record["__key__"].decode() for record in records] == [
        f"part-{part}-{number:06d}" for part in range(2) for number in range(ROWS)
    ]
    assert tar2tf("convert", "--from", "table", tmp_path / "in", "-o", out, "--records-per-shard", 60).returncode == 0


def test_named_columns_are_typed_and_only_they_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {**numbered(), "blob": [b"\0" * 20_000] * ROWS}, group=ROWS)
    columns = "__key__=id,text=caption,half=score:float"
    done = tar2tf("convert", "--from", "table", path, "-o", tmp_path / "t.record", "--columns", columns, "--json")
    assert done.returncode == 0, done.stderr
    found = examples(tmp_path / "t.record")
    assert {*found[0]} == {"__key__", "text", "half"}
    assert [example["__key__"] for example in found] == [[b"%d" % number] for number in range(ROWS)]
    assert [example["half"][0] for example in found] == [number / 2 for number in range(ROWS)]
    inputs = json.loads((tmp_path / "_t-manifest.json").read_text())["inputs"]
    assert sum(item["size"] for item in inputs) < 10_000


def test_images_of_hugging_face_become_entries_with_their_extension(tmp_path: Path) -> None:
    data = [jpeg(photo(10 + number, 20)) for number in range(3)]
    images = [{"bytes": item, "path": None} for item in data]
    sounds = [{"bytes": b"fLaC", "path": "a/b.FLAC"}] * 3
    path = write(tmp_path / "t.parquet", {"image": images, "audio": sounds, "key": ["a", "b", "c"]})
    convert("--from", "table", path, "-o", tmp_path / "t.tar")
    convert(tmp_path / "t.tar", "-o", tmp_path / "r.record")
    found = examples(tmp_path / "r.record")
    assert [example["image.jpg"][0] for example in found] == data
    assert [example["audio.flac"][0] for example in found] == [b"fLaC"] * 3
    assert [example["__key__"][0] for example in found] == [b"a", b"b", b"c"]
    columns = "picture=image:jpg,__key__=key"
    convert("--from", "table", path, "-o", tmp_path / "n.record", "--columns", columns, "--op", "decode:picture")
    assert [len(example["picture"][0]) for example in examples(tmp_path / "n.record")] == [600, 660, 720]


def test_dates_are_texts_and_nulls_are_absent(tmp_path: Path) -> None:
    days = [datetime.date(2024, 1, 31), None]
    path = write(tmp_path / "t.parquet", {"day": days, "n": [1, 2]})
    convert("--from", "table", path, "-o", tmp_path / "t.record")
    first, second = examples(tmp_path / "t.record")
    assert first["day"] == [b"2024-01-31"]
    assert "day" not in second


def test_an_image_without_bytes_is_named_with_its_file_and_row(tmp_path: Path) -> None:
    images = [{"bytes": b"x", "path": "a.bin"}, {"bytes": None, "path": "b.bin"}]
    path = write(tmp_path / "a.parquet", {"image": images})
    done = tar2tf("convert", "--from", "table", path, "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert f"{path}, row 2" in done.stderr


def test_rows_are_shuffled_limited_and_split_as_samples_are(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", numbered())
    for workers in (1, 2):
        out = tmp_path / f"{workers}/x.record"
        convert("--from", "table", path, "-o", out, "--shuffle", "--limit", 50, "-j", workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    found = [record["id"] for record in open_records(str(tmp_path / "1/x.record"))]
    assert len({*found}) == 50
    assert found != sorted(found)
    assert max(found) > 60


def test_a_file_that_is_none_is_an_error_and_so_is_a_column_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    done = tar2tf("convert", "--from", "table", tmp_path / "bad.parquet", "-o", tmp_path / "t.record")
    assert done.returncode == 3
    assert "bad.parquet: cannot be read as Parquet" in done.stderr
    path = write(tmp_path / "t.parquet", numbered())
    done = tar2tf("convert", "--from", "table", path, "-o", tmp_path / "t.record", "--columns", "a=captoin")
    assert done.returncode == 2
    assert "there is no column 'captoin'; did you mean 'caption'?" in done.stderr


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"need the package pyarrow") as raised:
        module.ParquetFiles(str(write_tar(tmp_path / "x.parquet", []))).open(
            module.ParquetFiles(str(tmp_path / "x.parquet")).list()[0]
        )
    assert raised.value.hint == "pip install 'tar2tf-cli[parquet]'"


def test_workers_are_forked_after_a_column_of_a_local_file_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"key": ["a", "b"]})
    code = f"""
from tar2tf_cli.engines.local import may_fork
from tar2tf_cli.inputs.parquet import ParquetFiles
files = ParquetFiles({str(path)!r})
assert [list(files.column(group, "key")) for group in files.groups(["key"])] == [[["a", "b"]]]
assert may_fork()
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=True)


def test_the_side_files_of_img2dataset_join_by_key(tmp_path: Path) -> None:
    folder = tmp_path / "img"
    for shard in range(2):
        keys = [f"{shard:05d}{number:04d}" for number in range(ROWS)]
        write_tar(folder / f"{shard:05d}.tar", [(key, {"jpg": b"x", "txt": key.encode()}) for key in keys])
        urls = [f"https://example.org/{key}" for key in keys]
        failed = {"url": [*urls, "https://example.org/no"], "key": [*keys, "none"], "width": [7] * ROWS + [None]}
        write(folder / f"{shard:05d}.parquet", failed)
        (folder / f"{shard:05d}_stats.json").write_text("{}")
    for workers in (1, 2):
        out, join = tmp_path / f"{workers}/x.record", ["--join", f"{folder}/*.parquet"]
        if workers == 1:  # the key that is there twice is of rows that failed
            done = tar2tf("convert", folder, "-o", out, *join)
            assert "the key 'none' is in" in done.stderr
        convert(folder, "-o", out, *join, "--join-many", "list", "-j", workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    records = [*open_records(str(tmp_path / "1/_x-manifest.json"))]
    assert [record["url"][0] for record in records] == [b"https://example.org/" + record["txt"] for record in records]
    assert len(records) == 2 * ROWS
    assert tar2tf("verify", tmp_path / "1/_x-manifest.json", "--against", folder).returncode == 0


def test_a_joined_file_without_a_column_of_keys_is_refused(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "in/a.tar", [("1", {"txt": b"x"})])
    path = write(tmp_path / "t.parquet", numbered())
    done = tar2tf("convert", shard, "-o", tmp_path / "x.record", "--join", path)
    assert done.returncode == 2
    assert "no column is called __key__ or key" in done.stderr
    convert(shard, "-o", tmp_path / "x.record", "--join", path, "--join-key", "id")
    assert examples(tmp_path / "x.record")[0]["caption"] == ["nümber 1".encode()]


def test_files_in_a_store_are_read_by_ranges(tmp_path: Path, s3: str, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="parquet")
    for part in range(2):
        path = write(
            tmp_path / f"local/part-{part}.parquet", {**numbered(ROWS * part), "key": [*map(str, range(ROWS))]}
        )
        s3_client.upload_file(str(path), "parquet", f"in/part-{part}.parquet")
    columns = ["--columns", "__key__=id,caption=caption"]
    convert("--from", "table", tmp_path / "local", "-o", tmp_path / "1/x.record", *columns)
    convert("--from", "table", "s3://parquet/in/*.parquet", "-o", tmp_path / "2/x.record", *columns, "-j", 2)
    assert (tmp_path / "1/x.record").read_bytes() == (tmp_path / "2/x.record").read_bytes()
    shard = write_tar(tmp_path / "in/a.tar", [("7", {"txt": b"x"}), ("105", {"txt": b"y"})])
    join = ["--join", "s3://parquet/in/*.parquet", "--join-key", "id"]
    convert(shard, "-o", tmp_path / "3/x.record", *join)
    assert [found["score"] for found in examples(tmp_path / "3/x.record")] == [[3.5], [52.5]]
