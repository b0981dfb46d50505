"""Datasets that are joined, in one process: their size, what is found by key, changes, and what cannot be joined."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from example_messages import encoded
from make_bytes import tar_of
from shards import write_tar
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.formats.example import frame
from tar2tf_cli.inputs.joined import Joined, JoinedParquet, JoinedShards, JoinedTables, SampleRange, is_table
from tar2tf_cli.inputs.parquet import ParquetFiles
from tar2tf_cli.inputs.rows import TableFiles
from tar2tf_cli.inputs.shard_set import resolve
from tar2tf_cli.ops.select import Select, to_selection


def shards(path: Path, key: str | None = None, **options: Any) -> JoinedShards:
    selection = to_selection(key) if key else None
    assert selection is None or isinstance(selection, Select)
    return JoinedShards(resolve(str(path)), "first", selection, **options)


def table(path: Path, key: str | None = None, **options: Any) -> JoinedTables:
    return JoinedTables(TableFiles(str(path)), key, **options)


def refused(function: Callable[[], Any]) -> Any:
    """The class of an error, its message, path, member and offset, and its hint."""
    with pytest.raises(Tar2tfError) as raised:
        function()
    error = raised.value
    return type(error).__name__, error.message, error.shard, error.member, error.offset, error.hint


def entries(joined: Joined, key: str) -> list[Any]:
    return [match.entries for match in joined.find(key)]


def records(*features: dict[str, Any]) -> bytes:
    messages = [encoded(each) for each in features]
    return b"".join(part for message in messages for part in frame([message], len(message)))


def test_samples_are_found_by_key_in_order_whatever_holds_them(tmp_path: Path) -> None:
    files = [("b.x", b"1"), ("b.y", b"2" * 600), ("a.x", b"3")]
    (tmp_path / "t.tar").write_bytes(tar_of(files))
    (tmp_path / "z.tar.gz").write_bytes(gzip.compress(tar_of(files)))
    keys = ({"__key__": ("bytes", [b"b"]), "x": ("bytes", [b"1"]), "y": ("bytes", [b"2" * 600])},)
    (tmp_path / "r.record").write_bytes(records(*keys, {"__key__": ("bytes", [b"a"]), "x": ("bytes", [b"3"])}))
    (tmp_path / "r.record.gz").write_bytes(gzip.compress((tmp_path / "r.record").read_bytes()))
    rows = [{"key": "b", "x": "1", "y": "2" * 600}, {"key": "a", "x": "3", "y": None}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("t.tar", "z.tar.gz", "r.record", "r.record.gz", "t.jsonl"):
        make = table if name.endswith("jsonl") else shards
        with closing(make(tmp_path / name)) as joined:
            assert (name, joined.size(), joined.some_key() in ("a", "b")) == (name, 2, True)
            assert entries(joined, "b") == [{"x": b"1", "y": b"2" * 600}]
            assert entries(joined, "a") == [{"x": b"3"}]
            assert entries(joined, "c") == []
            copy = pickle.loads(pickle.dumps(joined))
            assert entries(copy, "a") == [{"x": b"3"}]
            (item,) = joined.to_json()
            assert (item["name"], item["size"]) == (name, (tmp_path / name).stat().st_size)
            joined.check(copy)
        with closing(make(tmp_path / name)) as again:
            os.utime(tmp_path / name, ns=(1, 1))
            hint = "run the same command again when its writer is done"
            changed = ("SourceError", "changed while it was being read", str(tmp_path / name), None, None, hint)
            assert refused(lambda again=again, make=make, name=name: again.check(make(tmp_path / name))) == changed  # type: ignore[misc]


def test_samples_are_joined_by_a_value_in_them(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "t.tar",
        [("1", {"json": b'{"id": 7, "x": 1}', "txt": b"b"}), ("2", {"json": b'{"id": 8}', "txt": b"a"})],
    )
    with closing(shards(tmp_path / "t.tar", "json:id")) as joined:
        assert joined.key_name
        assert entries(joined, "7") == [{"json": b'{"id": 7, "x": 1}', "txt": b"b"}]
    with closing(shards(tmp_path / "t.tar", "txt")) as joined:
        assert entries(joined, "a") == [{"json": b'{"id": 8}'}]
    write_tar(tmp_path / "u.tar", [("1", {"json": b'{"id": 7}'}), ("2", {"json": b"{}"})])
    name, message, shard, member, offset, _ = refused(shards(tmp_path / "u.tar", "json:id").prepare)
    assert (name, shard, member, offset) == ("SourceError", str(tmp_path / "u.tar"), None, 1024)
    assert "id" in message


def test_keys_that_are_there_twice_are_refused_or_all_found(tmp_path: Path) -> None:
    for number, key in enumerate("aba"):
        write_tar(tmp_path / f"s/{number}.tar", [(key, {"x": b"%d" % number})])
    (tmp_path / "t.csv").write_text("key,x\na,0\nb,1\na,2\n")
    hint = "--join-many list makes lists of their values, --join-many repeat a sample of each"
    one, other = tmp_path / "s/0.tar", tmp_path / "s/2.tar"
    message = f"cannot be joined: the key 'a' is in {one} and in {other}"
    assert refused(shards(tmp_path / "s").prepare) == ("UsageError", message, str(tmp_path / "s"), None, None, hint)
    path = tmp_path / "t.csv"
    message = f"cannot be joined: the key 'a' is in {path} twice"
    assert refused(table(path).prepare) == ("UsageError", message, str(path), None, None, hint)
    for joined in (shards(tmp_path / "s", many=True), table(path, many=True)):
        with closing(joined):
            assert entries(joined, "a") == [{"x": b"0"}, {"x": b"2"}]
            assert [match.row for match in joined.find("a")] == sorted(match.row for match in joined.find("a"))


def test_what_cannot_be_joined_is_refused_with_its_place(tmp_path: Path) -> None:
    def of(name: str, data: bytes, **options: Any) -> Any:
        (tmp_path / name).write_bytes(data)
        make = table if "csv" in name or "jsonl" in name else shards
        return refused(lambda: make(tmp_path / name, **options).prepare())

    def error(name: str, message: str, **more: Any) -> Any:
        places = {"kind": "SourceError", "member": None, "offset": None, "hint": None, **more}
        place = str(tmp_path / name)
        return places["kind"], message, place, places["member"], places["offset"], places["hint"]

    kept = records({"__key__": ("bytes", [b"a"])})
    found = of("r.record", kept + records({"x": ("int64", [1])}))
    assert found == error("r.record", "cannot be joined: a record has no __key__", kind="UsageError", offset=len(kept))
    assert of("e.record", b"")[1:3] == ("is empty, so nothing can be joined", str(tmp_path / "e.record"))
    advice = "unzip it and make a tar of its contents, such as tar cf x.tar --sort=name -C FOLDER ."
    assert of("p.tar", b"PK\x03\x04" + bytes(600)) == error(
        "p.tar", "cannot be joined: it is a zip archive", hint=advice
    )
    found = of("t.tar.gz", gzip.compress(b"\x81\n" * 300))
    message = "cannot be joined: it is neither a tar nor a TFRecord"
    assert found == error("t.tar.gz", message, hint="decompress it first")
    none = "has no rows"
    assert of("h.csv", b"key,x\n") == error("h.csv", none, hint="list one example per line")
    found = of("n.jsonl", b'{"key": "a"}\n{"x": 1}\n')
    assert found == error("n.jsonl", "has no key in 'key'", member="row 2")
    hint = "name the column with the keys with --join-key; columns: id, x"
    found = of("c.csv", b"id,x\n1,2\n")
    assert found == error("c.csv", "no column is called __key__ or key", kind="UsageError", hint=hint)
    found = of("c.csv", b"id,x\n1,2\n", key="ix")
    message = "there is no column 'ix'; did you mean 'x'?"
    assert found == error("c.csv", message, kind="UsageError", hint=hint)


def test_a_file_that_became_shorter_or_another_after_it_was_indexed_is_refused(tmp_path: Path) -> None:
    hint = "run the same command again when its writer is done"
    path = tmp_path / "t.csv"
    path.write_text("key,x\na,1\nb,2\n")
    with closing(table(path)) as joined:
        joined.prepare()
        path.write_text("key,x\na,1\n" + '"\n')
        changed = ("SourceError", "changed while it was being read", str(path), None, 10, hint)
        assert refused(lambda: joined.find("b")) == changed
    tar = tmp_path / "t.tar.gz"
    tar.write_bytes(gzip.compress(tar_of([("a.x", b"1")])))
    with closing(shards(tar)) as copied:
        copied.prepare()
        tar.unlink()
        assert entries(copied, "a") == [{"x": b"1"}]


def test_tables_are_told_from_shards_by_name_or_content(tmp_path: Path) -> None:
    contents = {
        "a.csv": b"",
        "a.jsonl.gz": b"",
        "b.jsonl.gz": gzip.compress(b'{"key": "a"}\n'),
        "c.csv.gz": gzip.compress(b"key,x\n")[:-8],
        "d.csv.gz": gzip.compress(tar_of([("a.x", b"1")])),
        "a.txt": b"key,x\na,1\n",
        "a.tar": b"key,x\na,1\n",
        "b.dat": tar_of([("a.x", b"1")]),
        "c.dat": records({"x": ("int64", [1])}),
        "d.dat": gzip.compress(b"key,x\n"),
        "e.dat": b"\x89PNG\r\n\x1a\n" + bytes(600),
        "rows/a.csv": b"",
        "rows/_x.tar": b"",
        "both/a.csv": b"",
        "both/a.tar": b"",
        "none/a.txt": b"",
    }
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert [name for name in contents if is_table(str(tmp_path / name))] == [
        "a.csv",
        "a.jsonl.gz",
        "b.jsonl.gz",
        "c.csv.gz",
        "a.txt",
        "rows/a.csv",
        "both/a.csv",
        "none/a.txt",
    ]
    assert [name for name in ("rows", "both", "none") if is_table(str(tmp_path / name))] == ["rows"]
    assert is_table("s3://bucket/a.tsv")
    assert not is_table("s3://bucket/a.tar")
    assert not is_table("s3://bucket")


def test_rows_of_parquet_files_are_found_by_keys_of_any_kind(tmp_path: Path) -> None:
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")

    def parquet(*keys: Any, **options: Any) -> JoinedParquet:
        (tmp_path / "p").mkdir(exist_ok=True)
        for number, some in enumerate(keys):
            values = pa.table({"key": some, "n": [f"{number} {place}" for place in range(len(some))]})
            pq.write_table(values, tmp_path / f"p/{number}.parquet", row_group_size=20_000)
        return JoinedParquet(ParquetFiles(str(tmp_path / "p")), None, **options)

    many = [f"k{number}" for number in range(45_000)]  # several groups, each of several parts
    with closing(parquet(many, ["a", "b"])) as joined:
        assert joined.size() == 45_002
        for key, values in (("k0", "0 0"), ("k8192", "0 8192"), ("k19999", "0 19999"), ("k20000", "0 20000")):
            assert entries(joined, key) == [{"n": values.encode()}]
        assert entries(joined, "k44999") == [{"n": b"0 44999"}]
        assert entries(joined, "b") == [{"n": b"1 1"}]
        assert entries(joined, "c") == []
        places = [SampleRange(0, 2, 4999), SampleRange(1, 0, 0), SampleRange(0, 0, 1)]
        assert [sample["n"] for sample in joined.read_all(places)] == [b"0 44999", b"1 0", b"0 1"]
    with closing(parquet([7, 8], [b"\xff", b"9"])) as joined:
        found = [entries(joined, key) for key in ("7", "8", "\udcff", "9")]
        assert found == [[{"n": text}] for text in (b"0 0", b"0 1", b"1 0", b"1 1")]
    with closing(parquet(["a", "b"], ["b", "a"], many=True)) as joined:
        assert entries(joined, "a") == [{"n": b"0 0"}, {"n": b"1 1"}]
    none = refused(parquet(["a"], ["b", "c", None]).prepare)
    path = str(tmp_path / "p/1.parquet")
    assert none == ("SourceError", "has no key in 'key'", path, "row 3", None, None)


def test_a_value_that_is_no_key_is_named_with_the_option(tmp_path: Path) -> None:
    write_tar(tmp_path / "t.tar", [("1", {"json": b'{"id": [7]}'})])
    found = refused(shards(tmp_path / "t.tar", "json:id").prepare)
    message = "--join-on: json:id is a list, not a text or a whole number"
    assert found == ("SourceError", message, str(tmp_path / "t.tar"), None, 0, None)
