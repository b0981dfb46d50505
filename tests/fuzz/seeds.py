"""Inputs to begin with: a few of each kind that are whole, and all that were found before."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from pathlib import Path

from make_bytes import files_of, member, pax, tar_of
from tar2tf_cli import convert
from tar2tf_cli.formats.example import Encoder, bytes_list, float_list, frame, int64_list
from tar2tf_cli.spec.conversion import Conversion, Input, Output

__all__ = ["FOUND", "of"]

FOUND = Path(__file__).parent / "found"


def an_example() -> bytes:
    lists = {"x": float_list([0.5]), "n": int64_list([1, -2]), "b": bytes_list([b"x", b""]), "jpg": b"data"}
    return b"".join(Encoder().encode(lists)[0])


def a_manifest() -> bytes:
    shard = {"path": "x-0.record", "records": 1, "bytes": 30, "digest": "crc32c:00000000"}
    features = {
        "n": {"dtype": "int64", "shape": [], "encoding": "int64", "count": 1},
        "a": {"dtype": "float32", "shape": [None, 3], "encoding": "raw", "count": 1},
        "a/shape": {"dtype": "int64", "shape": [2], "encoding": "int64", "count": 1},
    }
    whole = {
        "version": 1,
        "spec": {"input": {"bucket": "in"}, "output": {"path": "x-<number>.record", "max_shard_size": 100}},
        "inputs": [{"name": "a.tar", "size": 10240, "version": "1"}],
        "shards": [shard, {**shard, "split": "train"}],
        "features": features,
        "totals": {"inputs": 1, "shards": 2, "records": 2, "bytes": 60},
        "skipped": {"samples": 0, "members": {}},
    }
    return json.dumps(whole).encode()


def a_manifest_of_a_run() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            Path(folder, f"{number}.tar").write_bytes(tar_of(files_of(3)))
        convert(Conversion(Input(folder, "*.tar"), Output(f"{folder}/x.record", max_shard_size=1000)))
        return Path(folder, "_x-manifest.json").read_bytes()


def of(name: str) -> list[bytes]:
    """The seeds of a target."""
    found = [path.read_bytes() for path in sorted(FOUND.glob(f"{name}-*"))]
    return [*_MAKERS[name](), *found]


def _tfrecords() -> list[bytes]:
    message = an_example()
    data = b"".join(part for size in (0, 3, len(message)) for part in frame([message[:size]], size))
    stored = [data, data[:-3], gzip.compress(data), zlib.compress(data)]
    chunks = b"".join(bytes([len(message)]) + message for _ in range(3))
    return [*(b"\0" + seed for seed in stored), b"\1" + chunks]


def _tars() -> list[bytes]:
    data = tar_of(files_of(2, 10))
    more = pax({"path": "é.jpg", "mtime": "1.5"}) + member(b"x.jpg", b"x") + member(b"a" * 100, b"")
    return [b"\1" + data, b"\0" + data[:1500], b"\1" + more + bytes(1024), b"\0" + gzip.compress(data)]


def _indexes() -> list[bytes]:
    return [
        b"\0\x64\0\0" + b"0 60\n60 40\n",
        b"\0\x64\0\0" + bytes([60, 0, 0, 0, 40, 0, 0, 0]),
        b"\xff\x64\0\0" + b"{}\n",
    ]


_MAKERS = {
    "tfrecord": _tfrecords,
    "tar": _tars,
    "example": lambda: [an_example(), b"", b"\x0a\x00"],
    "manifest": lambda: [a_manifest(), a_manifest_of_a_run()],
    "index": _indexes,
}
