"""Intact and damaged files, runs of `verify` on them, and access to the faults in its reports."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from commands import tar2tf
from tar2tf_cli.checking.faults import Report
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.formats.example import frame
from tar2tf_cli.inputs.manifest import Manifest

SEVERAL = ("--num-workers", "2")


def an_example(**features: Any) -> bytes:
    """A serialised tf.train.Example, made by TensorFlow."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def feature(value: Any) -> tf.train.Feature:
        values = value if isinstance(value, list) else [value]
        if not values:
            return tf.train.Feature()
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    made = tf.train.Features(feature={name: feature(value) for name, value in features.items()})
    return tf.train.Example(features=made).SerializeToString()


def write_with_tensorflow(path: Path, records: Iterable[bytes], compression: str = "") -> Path:
    """Write a TFRecord by TensorFlow's writer."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for record in records:
            writer.write(record)
    return path


def some_examples(count: int, first: int = 0) -> list[bytes]:
    return [an_example(key=b"%04d" % n, label=n, jpg=bytes(range(n % 7 + 40))) for n in range(first, first + count)]


def framed(*records: bytes) -> bytes:
    return b"".join(part for record in records for part in frame([record], len(record)))


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def a_tar(members: Iterable[tuple[str, bytes]], **options: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", **options) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def some_members(count: int, size: int = 700) -> list[tuple[str, bytes]]:
    return [
        (f"{number:04d}.{extension}", bytes([number]) * (size + number))
        for number in range(count)
        for extension in ("cls", "jpg")
    ]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def in_a_process(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Ran:
    done = tar2tf(*arguments, input=stdin, env=environment)
    return Ran(done.returncode, done.stdout, done.stderr)


def only(report: Report) -> Any:
    """The report of the only file."""
    (found,) = report.files
    return found


def check(path: Path, **options: Any) -> Any:
    return only(verify(str(path), workers=1, **options))


def kinds(found: Any) -> list[str]:
    return [fault.kind for fault in found.faults]


values = st.one_of(
    st.lists(st.binary(max_size=200), max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)


def convert(*arguments: str | Path) -> Ran:
    return in_a_process("convert", *arguments, "-q")


def manifest_of(out: Path) -> Path:
    return out / "_photos-manifest.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a manifest, and its checksum of itself with it."""
    document = json.loads(path.read_bytes())
    change(document)
    with contextlib.suppress(Tar2tfError):
        changed = Manifest.from_bytes(json.dumps(document).encode(), "x")
        document["checksum"] = json.loads(changed.to_bytes())["checksum"]
    path.write_text(json.dumps(document, indent=1))
    return path


def faults_of(ran: Ran) -> list[tuple[str, str, str]]:
    """Name, status and kind of each fault."""
    return [
        (Path(file["path"]).name, file["status"], fault["kind"])
        for file in ran.json["files"]
        for fault in file["faults"]
    ]
