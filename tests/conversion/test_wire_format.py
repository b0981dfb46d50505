"""What a conversion writes, as TensorFlow reads it; its index and manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import convert, tar2tf
from shards import Sample, examples, records, samples_of, shards_in, sizes, write_members, write_tar

# --- Wire format ---


def parsed_by_tf_data(paths: list[Path], compression: str = "") -> list[Sample]:
    """The records as tf.data reads them and tf.io.parse_single_example parses them."""
    import tensorflow as tf

    found = []
    for record in tf.data.TFRecordDataset([str(path) for path in paths], compression_type=compression):
        names = tf.train.Example.FromString(record.numpy()).features.feature
        parsed = tf.io.parse_single_example(record, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
        entries = {name: value.numpy() for name, value in parsed.items()}
        found.append((os.fsdecode(entries.pop("__key__")), entries))
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("kind", ["mixed", "photos"])
def test_tensorflow_reads_what_the_tar_holds(
    kind: str, compression: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    bucket = inputs(kind)
    options = ["--compression", compression, "--max-shard-size", "60kB"]
    convert(bucket, "-o", tmp_path / "train-<>.record", *options)
    found = parsed_by_tf_data(shards_in(tmp_path), "GZIP" if compression == "gzip" else "")
    assert found == samples_of(*sorted(bucket.iterdir()))


def test_odd_names_and_sizes_arrive_unchanged(tmp_path: Path) -> None:
    odd: list[Sample] = [
        ("plain", {"bin": b""}),
        ("folder/below/x", {"bin": b"\0" * 511, "txt": b"text\r\n"}),
        ("./dotted", {"bin": bytes(range(256)) * 2}),
        ("with blank and 'quotes' \"double\"", {"bin": b"1"}),
        ("new\nline", {"bin": b"2"}),
        ("ünïcödé-日本-🙂", {"bin": b"3"}),
        ("long-" + "x" * 300, {"bin": bytes(1_500_000)}),
        ("many", {f"field{number:03d}": b"%d" % number for number in range(300)} | {"bin": b""}),
        ("two-dots", {"seg.png": b"4", "bin": b"5"}),
    ]
    write_tar(tmp_path / "in.tar", odd)
    for name, options in (("direct", []), ("spooled", ["--on-error", "skip"]), ("gzip", ["--compression", "gzip"])):
        convert(tmp_path / "in.tar", "-o", tmp_path / f"{name}.record", *options)
        compression = "GZIP" if name == "gzip" else ""
        assert parsed_by_tf_data([tmp_path / f"{name}.record"], compression) == odd


def test_names_that_are_not_utf8_arrive_as_the_bytes_they_are(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("caf\udce9.txt", b"1")])
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert examples(tmp_path / "x.record") == [{"__key__": [b"caf\xe9"], "txt": [b"1"]}]


def test_features_are_written_in_sorted_order(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a.zz", b"1"), ("a.b", b"2"), ("b.b", b"3"), ("b.zz", b"4")])
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    found = records(tmp_path / "x.record")
    assert len(found) == 2
    for record in found:
        assert 0 < record.index(b"__key__") < record.index(b"\x01b") < record.index(b"zz")


def test_typed_features_are_numbers(tmp_path: Path) -> None:
    import tensorflow as tf

    typed: list[Sample] = [
        ("a", {"i": b"7", "f": b"0.5", "il": b"1 2 3", "fl": b"[1.5, -2]", "raw": b"x"}),
        ("b", {"i": b" -9223372036854775808\n", "f": b"1e3", "il": b"", "fl": b"3", "raw": b"\xff\x00"}),
    ]
    write_tar(tmp_path / "in.tar", typed)
    types = ["--type", "i=int64,f=float", "--type", "il=int64_list", "--type", "fl=float_list,raw=bytes_list"]
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record", *types)
    description = {
        "__key__": tf.io.FixedLenFeature([], tf.string),
        "i": tf.io.FixedLenFeature([], tf.int64),
        "f": tf.io.FixedLenFeature([], tf.float32),
        "il": tf.io.VarLenFeature(tf.int64),
        "fl": tf.io.VarLenFeature(tf.float32),
        "raw": tf.io.FixedLenFeature([], tf.string),
    }
    found = []
    for record in tf.data.TFRecordDataset(str(tmp_path / "x.record")):
        parsed = tf.io.parse_single_example(record, description)
        lists = (parsed["il"].values.numpy().tolist(), parsed["fl"].values.numpy().tolist())
        found.append((parsed["i"].numpy(), parsed["f"].numpy(), *lists, parsed["raw"].numpy()))
    assert found == [(7, 0.5, [1, 2, 3], [1.5, -2], b"x"), (-(2**63), 1000, [], [3], b"\xff\x00")]
    features = json.loads((tmp_path / "_x-manifest.json").read_bytes())["features"]
    assert {name: feature["dtype"] for name, feature in features.items()} == {
        "__key__": "bytes",
        "raw": "bytes",
        "i": "int64",
        "il": "int64",
        "f": "float32",
        "fl": "float32",
    }


def test_a_feature_of_two_kinds_is_an_error_naming_the_second_shard(tmp_path: Path) -> None:
    for number, text in enumerate((b"7", b"seven")):
        write_tar(tmp_path / "in" / f"a-{number}.tar", [(f"{number}", {"cls": text})])
    function = tmp_path / "kinds.py"
    function.write_text("def number(s):\n    return {**s, 'cls': int(s['cls'])} if s['cls'].isdigit() else s\n")
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "a.record", "--op", f"func:{function}:number")
    assert done.returncode == 3, done.stderr
    assert "a-1.tar" in done.stderr
    assert "cls" in done.stderr


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[("int64", text) for text in (b"", b"x", b"1.5", b"1 2", b"9223372036854775808", b"\xff", b"[1", b"{}")],
        *[("float", text) for text in (b"", b"one", b"1 2", b"[[1]]", b"null")],
        *[("int64_list", text) for text in (b"1 x", b"[1.5]", b'["a"]', b"[null]")],
        ("int64_list", b"[" * 5000),
        ("float_list", b"1 2 x"),
    ],
)
def test_text_that_is_not_of_its_type_is_an_error_naming_shard_and_key(kind: str, text: bytes, tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [("good", {"cls": b"1"}), ("bad", {"cls": text}), ("fine", {"cls": b"1"})])
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out" / "x.record", "--type", f"cls={kind}")
    assert done.returncode == 3
    first = done.stderr.splitlines()[0]
    assert f"{tmp_path}/in.tar" in first
    assert "sample bad" in first
    assert "cls" in first
    assert not list((tmp_path / "out").glob("*.record"))


def test_index_lines_lead_to_the_records(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "train-<>.record", "--index", "--max-shard-size", "50kB")
    assert len(list(tmp_path.glob("*.idx"))) == len(shards_in(tmp_path)) > 2
    for shard in shards_in(tmp_path):
        data, position = shard.read_bytes(), 0
        lines = Path(f"{shard}.idx").read_text().splitlines()
        for line, record in zip(lines, records(shard), strict=True):
            offset, size = map(int, line.split())
            assert offset == position
            assert data[offset + 12 : offset + size - 4] == record
            position += size
        assert position == len(data)


def test_the_manifest_says_what_was_written(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    import google_crc32c

    bucket = inputs("mixed")
    convert(bucket, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB")
    manifest = json.loads((tmp_path / "_train-manifest.json").read_bytes())
    assert [entry["name"] for entry in manifest["inputs"]] == sorted(path.name for path in bucket.iterdir())
    assert [entry["size"] for entry in manifest["inputs"]] == sizes(sorted(bucket.iterdir()))
    shards = shards_in(tmp_path)
    assert [tmp_path / entry["path"] for entry in manifest["shards"]] == shards
    assert [entry["bytes"] for entry in manifest["shards"]] == sizes(shards)
    assert [entry["records"] for entry in manifest["shards"]] == [len(records(shard)) for shard in shards]
    digests = [f"crc32c:{google_crc32c.value(shard.read_bytes()):08x}" for shard in shards]
    assert [entry["digest"] for entry in manifest["shards"]] == digests
    totals = {"inputs": 6, "shards": len(shards), "records": 148, "bytes": sum(sizes(shards))}
    assert manifest["totals"] == totals
    assert {name: feature["count"] for name, feature in manifest["features"].items()} == {
        "__key__": 148,
        "cls": 148,
        "jpg": 148,
    }
