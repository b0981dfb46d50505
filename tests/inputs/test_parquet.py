"""Parquet files as tables and as joined datasets: rows, columns, files inside, row groups, and stores."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import struct
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
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError
from tar2tf_cli.inputs import parquet as module
from tar2tf_cli.inputs.parquet import ParquetFiles, ParquetSource, RowGroup, entries, entry_name, key_text, value_of
from tar2tf_cli.inputs.report import InputReport

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
    one = "part-0.parquet"  # a file named by itself
    convert("--from", "table", tmp_path / "local" / one, "-o", tmp_path / "4/x.record", *columns)
    convert("--from", "table", f"s3://parquet/in/{one}", "-o", tmp_path / "5/x.record", *columns, "-j", 2)
    assert (tmp_path / "4/x.record").read_bytes() == (tmp_path / "5/x.record").read_bytes()
    shard = write_tar(tmp_path / "in/a.tar", [("7", {"txt": b"x"}), ("105", {"txt": b"y"})])
    for number, name in enumerate(("*.parquet", "part-1.parquet")):
        join = ["--join", f"s3://parquet/in/{name}", "--join-key", "id", "--join-missing", "skip"]
        convert(shard, "-o", tmp_path / f"3/{number}.record", *join)
    assert [found["score"] for found in examples(tmp_path / "3/0.record")] == [[3.5], [52.5]]
    assert [found["score"] for found in examples(tmp_path / "3/1.record")] == [[52.5]]


# --- In one process ---


def rows_of(source: ParquetSource) -> tuple[list[Any], list[Any], int]:
    """The places, keys and entries of samples, the faults with their places, and the bytes that were read."""
    counted: list[int] = []
    faults: list[Any] = []

    def fault(error: SampleError) -> None:
        faults.append((error.shard, error.key, error.member, error.message))

    found = []
    for item in source.list(()):
        for where, sample in source.samples(item, InputReport(), fault, counted.append):
            found.append((where["member"], sample))
    return found, faults, sum(counted)


def source_of(path: Path) -> ParquetSource:
    return ParquetSource(ParquetFiles(str(path)), {}, lambda key, values: {"__key__": key, **values})


def test_a_key_is_in_one_of_two_columns_or_is_the_number_of_the_row(tmp_path: Path) -> None:
    keys = {"key": ["x", None, "yyy"], "__key__": [None, None, "z"]}
    write(tmp_path / "in/a.parquet", {**keys, "n": [1, 2, 3]}, group=2)
    write(tmp_path / "in/b.parquet", {"key": [b"\xff", b"b"], "n": [4, 5]})
    source = source_of(tmp_path / "in")
    found, faults, read = rows_of(source)
    assert found == [
        ("row 1", {"__key__": "x", "n": 1}),
        ("row 2", {"__key__": "a-000001", "n": 2}),
        ("row 3", {"__key__": "z", "key": b"yyy", "n": 3}),
        ("row 1", {"__key__": "\udcff", "n": 4}),
        ("row 2", {"__key__": "b", "n": 5}),
    ]
    assert faults == []
    assert read > 0
    assert source.listing_info().samples == 5
    names = [item.name for item in source.list(())]
    assert names == ["a.parquet row group 0", "a.parquet row group 1", "b.parquet row group 0"]
    assert source.locate(names[1]) == str(tmp_path / "in/a.parquet")
    assert source.locate("other") == str(tmp_path / "in")


def test_faulty_rows_are_named_by_file_key_and_row_and_the_others_are_read(tmp_path: Path) -> None:
    images = [{"bytes": b"x", "path": "a.bin"}, {"bytes": None, "path": "b.bin"}] * 2
    path = write(tmp_path / "a.parquet", {"image": images}, group=3)
    found, faults, _ = rows_of(source_of(path))
    assert found == [
        ("row 1", {"__key__": "a-000000", "image.bin": b"x"}),
        ("row 3", {"__key__": "a-000002", "image.bin": b"x"}),
    ]
    message = "the column 'image' has the path 'b.bin', but no bytes"
    assert faults == [(str(path), f"a-{n:06d}", f"row {n + 1}", message) for n in (1, 3)]


def test_files_without_rows_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"n": []})
    with pytest.raises(SourceError) as raised:
        source_of(path).list(())
    assert str(raised.value) == f"{path}: has no rows"


def test_values_become_entries_by_their_type() -> None:
    image = jpeg(photo(8, 8))
    row: dict[str, Any] = {
        "text": "ü",
        "bytes": b"\xff",
        "on": True,
        "n": 3,
        "x": 0.5,
        "list": [1, 2],
        "struct": {"bytes": b"x"},
        "day": datetime.date(2024, 1, 31),
        "time": datetime.datetime(2024, 1, 31, 12, 5),
        "decimal": decimal.Decimal("1.50"),
        "none": None,
        "image": {"bytes": image, "path": "a.PNG"},
        "sound": {"bytes": b"x", "path": "a/b.FLAC"},
        "sound.flac": {"bytes": b"y", "path": "a/b.FLAC"},
        "file": {"bytes": b"z", "path": None},
        "empty": {"bytes": b"", "path": "noext"},
    }
    assert entries(row) == {
        "text": "ü".encode(),
        "bytes": b"\xff",
        "on": True,
        "n": 3,
        "x": 0.5,
        "list": [1, 2],
        "struct": {"bytes": b"x"},
        "day": b"2024-01-31",
        "time": b"2024-01-31T12:05:00",
        "decimal": b"1.50",
        "image.jpg": image,
        "sound.flac": b"y",
        "file": b"z",
        "empty": b"",
    }
    assert value_of("none", None) is None
    assert entry_name("A.JPG", {"bytes": image, "path": None}) == "A.JPG"
    assert [key_text(key) for key in ("ü", "ü".encode(), b"\xff", 5, None)] == ["ü", "ü", "\udcff", "5", "None"]


def test_damage_within_a_file_is_an_error_however_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"text": [f"{number:09d}" for number in range(200)]}, group=200)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 600 + data[604:])
    (item,) = ParquetFiles(str(path)).list()
    group = RowGroup(item, 0, 0, 200, 1)
    for read in (
        lambda files: [*files.rows(group, None)],
        lambda files: [*files.column(group, "text")],
        lambda files: files.rows_at(item, 0, [1]),
        lambda files: files.arrow_columns(item, 0),
    ):
        with pytest.raises(DamagedShardError) as raised:
            read(ParquetFiles(str(path)))
        assert raised.value.shard == str(path)
        assert raised.value.message.startswith("cannot be read as Parquet: ")


def test_the_kernel_gets_columns_of_text_bytes_whole_and_real_numbers(tmp_path: Path) -> None:
    import pyarrow as pa

    forms = {
        "text": (pa.array(["a", None, "ü"]), "s"),
        "bytes": (pa.array([b"a", b"", b"b"]), "s"),
        "long text": (pa.array(["a", "b", ""], pa.large_string()), "S"),
        **{
            name: (pa.array([1, None, 100], getattr(pa, name)()), "i")
            for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        },
        "float32": (pa.array([0.5, 1, -2], pa.float32()), "d"),
        "float64": (pa.array([0.5, 1, -2], pa.float64()), "d"),
    }
    path = write(tmp_path / "a.parquet", {name: column for name, (column, _) in forms.items()})
    files = ParquetFiles(str(path))
    found = files.arrow_columns(files.list()[0], 0)
    assert found
    assert (found.names, found.rows) == ([*forms], 3)
    assert [letter for letter, *_ in found.columns] == [letter for _, letter in forms.values()]
    numbers = {name: memoryview(column[3]).cast("B") for name, column in zip(forms, found.columns, strict=True)}
    for name, (_, letter) in forms.items():
        if letter in "id":
            first, _, last = struct.unpack("<3q" if letter == "i" else "<3d", numbers[name][:24])
            assert (name, first, last) == (name, *((1, 100) if letter == "i" else (0.5, -2.0)))
    for odd in (pa.array([2**63], pa.uint64()), pa.array([True]), pa.array([[1]]), pa.array([datetime.date.today()])):
        files = ParquetFiles(str(write(tmp_path / "b.parquet", {"n": pa.array([1]), "odd": odd})))
        assert files.arrow_columns(files.list()[0], 0) is None


def test_a_name_is_of_parquet_by_its_suffix_or_a_folder_by_what_else_is_in_it(tmp_path: Path) -> None:
    folders = {"only": "a.PARQUET b.txt", "tars": "a.parquet a.tar", "none": "a.txt", "rows": "a.parquet b.CSV"}
    for folder, names in folders.items():
        (tmp_path / folder).mkdir()
        for name in names.split():
            (tmp_path / folder / name).touch()
    found = {name: module.is_parquet(str(tmp_path / name)) for name in (*folders, "x.Parquet", "x")}
    assert found == {"only": True, "tars": False, "none": False, "rows": False, "x.Parquet": True, "x": False}
    assert module.is_parquet("s3://bucket/*.parquet")
    assert not module.is_parquet("s3://bucket/in")
