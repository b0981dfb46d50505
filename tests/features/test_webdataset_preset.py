"""The preset webdataset: what webdataset's own decoder reads from shards that its own writer wrote."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import webdataset
from webdataset.autodecode import Decoder, basichandlers

from commands import tar2tf
from op_cases import encoded, loaded
from shards import records, write_tar
from tar2tf_cli import load_dataset
from tar2tf_cli.ops import Decode

ARRAYS = {
    "npy": np.arange(6, dtype=">f4").reshape(2, 3),
    "f.npy": np.asfortranarray(np.arange(24, dtype="i8").reshape(2, 3, 4)),
    "u8.npy": np.arange(12, dtype="u1").reshape(3, 4),
    "b.npy": np.array([True, False]),
    "one.npy": np.array(7, "<i2"),
}


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.tar"
    path.parent.mkdir()
    with webdataset.TarWriter(str(path)) as writer:
        for number in range(3):
            writer.write(
                {
                    "__key__": f"dir/{number:04d}",
                    "jpg": PIL.Image.new("RGB", (8, 6), (number, 2, 3)),
                    "cls": number - 1,
                    "cls2": f" {2**40 + number}\n",
                    "index": 7,
                    "inx": 8,
                    "id": 9,
                    "left.cls": 10,
                    "txt": "Grüße",
                    "text": "t",
                    "transcript": "u",
                    "json": {"label": {"id": number}, "list": [1, 2.5]},
                    "bin": b"\xff\x00",
                    **ARRAYS,
                }
            )
    return path


def decoded(shard: Path) -> list[dict[str, Any]]:
    """The samples as webdataset itself decodes them, without images."""
    with shard.open("rb") as stream:
        grouped = webdataset.tariterators.group_by_keys(
            webdataset.tariterators.tar_file_expander([{"url": str(shard), "stream": stream}])
        )
        return list(map(Decoder([basichandlers]), grouped))


def comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.shape:
        return (value.shape, value.astype("f8").tolist())
    value = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, dict | list):
        return value
    return value.encode() if isinstance(value, str) else value


def test_entries_have_the_values_that_webdatasets_decoder_gives(shard: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", shard, "-o", tmp_path / "out" / "all.record", "--preset", "webdataset")
    assert done.returncode == 0, done.stderr
    found, expected = list(load_dataset(str(tmp_path / "out" / "_all-manifest.json"))), decoded(shard)
    assert len(found) == len(expected) == 3
    for ours, theirs in zip(found, expected, strict=True):
        values = {name: value.numpy() for name, value in ours.items() if not name.endswith("/shape")}
        values["json"] = json.loads(values["json"])
        theirs = {name: value for name, value in theirs.items() if name in ("__key__",) or not name.startswith("__")}
        assert values.keys() == theirs.keys()
        for name, value in theirs.items():
            assert comparable(values[name]) == comparable(value), name


def test_the_types_are_int64_arrays_and_bytes(shard: Path, tmp_path: Path) -> None:
    options = ["--preset", "webdataset", "-o", tmp_path / "out" / "all.record"]
    assert tar2tf("convert", shard, *options).returncode == 0
    features = json.loads((tmp_path / "out" / "_all-manifest.json").read_text())["features"]
    looks = {name: (look["dtype"], look["shape"]) for name, look in features.items()}
    for name in ("cls", "cls2", "index", "inx", "id", "left.cls"):
        assert looks[name] == ("int64", [])
    for name in ("jpg", "txt", "text", "transcript", "json", "bin", "__key__"):
        assert looks[name] == ("bytes", [])
    for name, array in ARRAYS.items():
        assert looks[name] == (array.dtype.newbyteorder("=").name, list(array.shape))


def test_entries_that_only_webdatasets_documentation_calls_numbers_are_numbers(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a", {"class": b"5", "count": b"6"})])
    assert tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x", "--preset", "webdataset").returncode == 0
    (element,) = load_dataset(str(tmp_path / "_x-manifest.json"))
    assert (element["class"].numpy(), element["count"].numpy()) == (5, 6)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cls", b"five"),
        ("cls", b""),
        ("id", b"1.5"),
        ("txt", b"\xff"),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("npy", b"\x93NUMPY"),
        ("npy", b"no array"),
    ],
)
def test_what_its_decoder_refuses_is_a_faulty_sample(name: str, data: bytes, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("bad", {name: data}), ("a", {"jpg": b"x"}), ("b", {"jpg": b"x"})])
    done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x", "--preset", "webdataset")
    assert done.returncode == 3
    assert f"sample bad, offset 0: entry {name!r} cannot be decoded as {name}: " in done.stderr
    skipped = tar2tf(
        *["convert", tmp_path / "a.tar", "-o", tmp_path / "x", "--preset", "webdataset", "--on-error", "skip"]
    )
    assert skipped.returncode == 1
    assert len(records(tmp_path / "x")) == 2


def test_with_a_selection_there_are_only_those_and_the_key(shard: Path, tmp_path: Path) -> None:
    options = ["--preset", "webdataset", "--select", "label.cls=cls,npy", "-o", tmp_path / "x"]
    assert tar2tf("convert", shard, *options).returncode == 0
    features = json.loads((tmp_path / "_x-manifest.json").read_text())["features"]
    assert {name: look["dtype"] for name, look in features.items()} == {
        "__key__": "bytes",
        "label.cls": "int64",
        "npy": "float32",
        "npy/shape": "int64",
    }


def test_decode_npy_gives_the_array_and_ops_follow(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.asfortranarray(np.arange(24, dtype=">u2").reshape(2, 4, 3)))
    write_tar(tmp_path / "in" / "a.tar", [("a", {"npy": file.getvalue(), "jpg": encoded((6, 8))})])
    (element,) = loaded(tmp_path / "in", tmp_path / "plain", Decode("npy"))
    assert element["npy"].numpy().tolist() == np.arange(24).reshape(2, 4, 3).tolist()
    done = tar2tf(
        *["convert", tmp_path / "in", "-o", tmp_path / "x", "--op", "decode:npy", "--op", "center_crop:npy"],
        *["--op", "resize:npy,4x4", "--op", "cast:npy,uint8"],
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "_x-manifest.json").read_text())["features"]["npy"]["shape"] == [4, 4, 3]


@pytest.mark.parametrize(
    ("op", "data", "words"),
    [
        ("decode:npy,3", b"\x93NUMPY\x01\x00", "it is npy, but channels and dtype are only"),
        ("decode:npy", b"\x93NUMPY\x01\x00", "decode: the npy header|decode: not an npy file"),
        ("decode:npy", b"PK\x03\x04", "cannot be decoded"),
    ],
)
def test_what_is_no_array_is_a_faulty_sample_named_with_its_member(
    op: str, data: bytes, words: str, tmp_path: Path
) -> None:
    write_tar(tmp_path / "a.tar", [("bad", {"npy": data})])
    done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x", "--op", op)
    assert done.returncode == 3
    assert "member bad.npy, offset 0: " in done.stderr
    assert re.search(words, done.stderr)
