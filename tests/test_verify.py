"""`tar2tf verify`: every kind of damage, made here byte by byte, is found, named and placed; what is whole passes."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tar2tf_cli.checking import example_checker as outline
from tar2tf_cli.checking.example_checker import Checker, Expected, entries, expected
from tar2tf_cli.checking.gaps import find_gaps
from tar2tf_cli.checking.verify import Report, verify
from tar2tf_cli.cli import main
from tar2tf_cli.errors import UsageError
from tar2tf_cli.formats import example
from tar2tf_cli.formats.tfrecord import crc32c, frame, masked
from tar2tf_cli.inputs.open_shard import TarRules, sniff

PHOTOS = Path(__file__).parent / "data"
SEVERAL = ("--num-workers", "2")


# --- Files ---


def an_example(**features: Any) -> bytes:
    """A serialised tf.train.Example, made by TensorFlow."""

    def feature(value: Any) -> tf.train.Feature:
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    made = tf.train.Features(feature={name: feature(value) for name, value in features.items()})
    return tf.train.Example(features=made).SerializeToString()


def some_examples(count: int, first: int = 0) -> list[bytes]:
    return [an_example(key=b"%04d" % n, label=n, jpg=bytes(range(n % 7 + 40))) for n in range(first, first + count)]


def write_with_tensorflow(path: Path, records: Iterable[bytes], compression: str = "") -> Path:
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for record in records:
            writer.write(record)
    return path


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


# --- The command ---


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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command line in this process, with one worker unless told otherwise."""

    def call(*arguments: str | Path) -> Ran:
        workers = () if "--num-workers" in arguments else ("--num-workers", "1")
        with pytest.raises(SystemExit) as ended:
            main(["verify", *map(str, arguments), *workers])
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, *capsys.readouterr())

    return call


def in_a_process(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Ran:
    command = [sys.executable, "-m", "tar2tf_cli", *map(str, arguments)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=60, env={**os.environ, **environment}, check=False
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def only(report: Report) -> Any:
    """The report of the only file."""
    (found,) = report.files
    return found


def check(path: Path, **options: Any) -> Any:
    return only(verify(str(path), workers=1, **options))


def kinds(found: Any) -> list[str]:
    return [fault.kind for fault in found.faults]


# --- Whole files ---


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_tensorflow_writes_is_whole(tmp_path: Path, run: Callable[..., Ran], compression: str) -> None:
    path = write_with_tensorflow(tmp_path / "train.record", some_examples(9), compression)
    ran = run(path, "--json")
    assert ran.code == 0
    file = {"path": str(path), "status": "ok", "records": 9, "bytes": path.stat().st_size, "faults": []}
    assert ran.json == {"ok": True, "files": [file], "records": 9}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_what_tarfile_writes_is_whole(
    tmp_path: Path, run: Callable[..., Ran], format: int, compress: Callable[[bytes], bytes]
) -> None:
    names = ["a" * 60 + f"/{number}-ä.{extension}" for number in range(4) for extension in ("cls", "jpg")]
    path = write(tmp_path / "x", compress(a_tar([(name, b"x" * 600) for name in names], format=format)))
    ran = run(path, "--json")
    assert (ran.code, ran.json["records"]) == (0, 4)


def test_the_photographs_are_whole_in_every_form(run: Callable[..., Ran], tmp_path: Path) -> None:
    ran = run(PHOTOS)
    assert (ran.code, ran.out) == (0, "")
    assert "whole: 4 files, 24 samples" in ran.err
    assert "2 files left out" in ran.err
    assert convert(PHOTOS, "-o", tmp_path / "photos-<>.record", "--records-per-shard", "7").code == 0
    ran = run(tmp_path, *SEVERAL, "--verbose")
    assert (ran.code, ran.out) == (0, "")
    assert "whole: 4 files, 24 records" in ran.err
    assert "photos-4.record: 3 records" in ran.err


def test_quiet_says_nothing_about_what_is_whole(run: Callable[..., Ran]) -> None:
    assert run(PHOTOS, "-q") == (0, "", "")


def test_gzip_members_end_to_end_are_one_shard(tmp_path: Path) -> None:
    parts = [framed(*some_examples(3)), framed(*some_examples(4, 3))]
    found = check(write(tmp_path / "x", b"".join(map(gzip.compress, parts))))
    assert (found.records, found.faults) == (7, [])


def test_a_record_larger_than_any_buffer_is_whole(tmp_path: Path) -> None:
    records = [an_example(x=bytes(40 << 20)), an_example(x=b"small"), an_example(x=bytes(3 << 20))]
    found = check(write_with_tensorflow(tmp_path / "x", records))
    assert (found.records, found.faults) == (3, [])


# --- Damaged TFRecord ---

PLACES = {
    "length": (2, "length-crc"),
    "length CRC": (9, "length-crc"),
    "data": (20, "data-crc"),
    "data CRC": (-2, "data-crc"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_flipped_byte_is_placed(tmp_path: Path, run: Callable[..., Ran], place: str, number: int) -> None:
    position, kind = PLACES[place]
    records = [framed(record) for record in some_examples(5)]
    start = sum(map(len, records[:number]))
    records[number] = flipped(records[number], position)
    path = write(tmp_path / "train-1.record", b"".join(records))
    read = number if kind == "length-crc" else 5

    ran = run(path, "--json")
    document = ran.json
    (fault,) = document["files"][0].pop("faults")
    assert ran.code == 1
    assert (fault["kind"], fault["record"], fault["offset"]) == (kind, number, start)
    assert place.split()[0] in fault["message"]
    file = {"path": str(path), "status": "damaged", "records": read, "bytes": path.stat().st_size}
    assert document == {"ok": False, "files": [file], "records": read}

    ran = run(path)
    (line,) = ran.lines
    assert line.startswith(f"{path}: record {number}, offset {start}: the CRC of the record's {place.split()[0]} does")
    assert line.endswith(f" ({kind})")
    assert ("the rest of the file cannot be read" in line) == (kind == "length-crc")
    assert "not whole: 1 of 1 file faulty" in ran.err


def test_every_flipped_bit_of_a_tfrecord_is_found(tmp_path: Path) -> None:
    data = framed(*some_examples(2))
    for position in range(len(data)):
        found = check(write(tmp_path / "x", flipped(data, position, position % 8)))
        assert kinds(found) in (["length-crc"], ["data-crc"]), position


def test_a_tfrecord_cut_anywhere_inside_a_record_is_found(tmp_path: Path) -> None:
    records = [framed(record) for record in some_examples(3)]
    data = b"".join(records)
    ends = {len(b"".join(records[:number])): number for number in range(1, 4)}
    for length in range(1, len(data)):
        found = check(write(tmp_path / "x", data[:length]))
        if length in ends:
            assert (found.faults, found.records) == ([], ends[length])
        else:
            assert kinds(found) == ["truncated"], length
            assert found.records == sum(end < length for end in ends)


LARGE = [an_example(x=bytes([65 + n]) * size) for n, size in enumerate((40_000, 100, 300_000, 33_000, 1_000_000, 10))]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", range(len(LARGE)))
def test_a_flipped_byte_is_placed_among_records_of_all_sizes(
    tmp_path: Path, place: str, number: int, compress: Callable[[bytes], bytes]
) -> None:
    position, kind = PLACES[place]
    records = [framed(record) for record in LARGE]
    records[number] = flipped(records[number], position)
    found = check(write(tmp_path / "x", compress(b"".join(records))))
    assert kinds(found) == [kind]
    assert (found.faults[0].record, found.faults[0].offset) == (number, sum(map(len, records[:number])))
    assert found.records == (number if kind == "length-crc" else 6)


@pytest.mark.parametrize("number", range(len(LARGE)))
def test_large_records_cut_short_are_found(tmp_path: Path, number: int) -> None:
    records = [framed(record) for record in LARGE]
    start = sum(map(len, records[:number]))
    end = start + len(records[number])
    for length in {start + 1, start + 11, start + 12, start + 13, (start + end) // 2, *range(end - 5, end)}:
        found = check(write(tmp_path / "x", b"".join(records)[:length]))
        assert (kinds(found), found.records, found.faults[0].offset) == (["truncated"], number, start)
        if length > start + 12:
            assert f"ends {end - length:,} bytes short" in found.faults[0].message


def test_several_damaged_records_are_all_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    records = [framed(record) for record in some_examples(9)]
    for number in (1, 2, 7):
        records[number] = flipped(records[number], 20)
    ran = run(write(tmp_path / "x", b"".join(records)), "--json")
    assert [fault["record"] for fault in ran.json["files"][0]["faults"]] == [1, 2, 7]
    assert ran.json["records"] == 9


def test_repeats_are_grouped_in_text_and_counted(tmp_path: Path, run: Callable[..., Ran]) -> None:
    records = [flipped(framed(record), 20) for record in some_examples(1500)]
    path = write(tmp_path / "x", b"".join(records))
    last = len(b"".join(records[:999]))
    lines = run(path).lines
    assert lines == [
        f"{path}: record 0, offset 0: the CRC of the record's data does not match (data-crc)",
        f"{path}: 1,499 more like it, up to record 999, offset {last} (data-crc)",
    ]
    faults = run(path, "--json").json["files"][0]["faults"]
    assert len(faults) == 1001
    assert faults[-1] == {"kind": "data-crc", "record": None, "offset": None, "message": "and 500 more of this kind"}


def test_a_length_beyond_protobuf_is_named(tmp_path: Path) -> None:
    length = (1 << 40).to_bytes(8, "little")
    data = framed(*some_examples(1)) + length + masked(crc32c(length)).to_bytes(4, "little") + b"x" * 99
    found = check(write(tmp_path / "x", data))
    assert (kinds(found), found.records) == (["too-large"], 1)


@pytest.mark.parametrize("cut", [1, 5, 9, 30])
def test_a_gzip_tfrecord_cut_short_is_found(tmp_path: Path, cut: int) -> None:
    data = gzip.compress(framed(*some_examples(50)), mtime=0)
    found = check(write(tmp_path / "x", data[:-cut]))
    assert kinds(found)[0] == "truncated"


def test_every_flipped_bit_of_a_gzip_tfrecord_is_found(tmp_path: Path) -> None:
    data = gzip.compress(framed(*some_examples(3)), mtime=0)
    for position in [0, 1, 2, *range(10, len(data))]:
        changed = flipped(data, position, 7 - position % 8)
        found = check(write(tmp_path / "x", changed))
        assert found.faults or gzip.decompress(changed) == gzip.decompress(data), position  # a bit of padding


def test_garbage_behind_a_gzip_stream_is_found(tmp_path: Path) -> None:
    found = check(write(tmp_path / "x", gzip.compress(framed(*some_examples(3))) + b"garbage" * 9))
    assert kinds(found) == ["gzip"]


@pytest.mark.parametrize(
    ("data", "kind"), [(b"", "empty"), (b"\x05\0\0", "truncated"), (b"text " * 9, "unknown-format")]
)
def test_a_file_that_is_nothing_is_a_fault_where_it_was_asked_for(
    tmp_path: Path, run: Callable[..., Ran], data: bytes, kind: str
) -> None:
    path = write(tmp_path / "train-1.record", data)
    for ran in (run(path, "--json"), run(tmp_path, "train-*", "--json")):
        assert (ran.code, ran.json["files"][0]["faults"][0]["kind"]) == (1, kind)


# --- Examples ---


def test_a_record_that_is_no_example_is_found_and_the_check_goes_on(tmp_path: Path, run: Callable[..., Ran]) -> None:
    good = some_examples(2)
    path = write(tmp_path / "x", framed(good[0], b"hello", good[1]))
    ran = run(path, "--json")
    (fault,) = ran.json["files"][0]["faults"]
    assert (ran.code, fault["kind"], fault["record"]) == (1, "not-an-example", 1)
    assert fault["offset"] == len(framed(good[0]))


def test_a_sequence_example_is_named_as_what_it_is(tmp_path: Path) -> None:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["b"].feature.add()
    found = check(write(tmp_path / "x", framed(sequence.SerializeToString())))
    assert kinds(found) == ["not-an-example"]
    assert "SequenceExample" in found.faults[0].message


def delimited(tag: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return bytes([tag]) + example.varint(len(data)) + data


def entry(name: bytes, *feature: bytes) -> bytes:
    return delimited(0x0A, delimited(0x0A, name), delimited(0x12, *feature))


ODD_BUT_GOOD = {
    "no features": b"",
    "an empty Features": delimited(0x0A),
    "an unset feature": delimited(0x0A, entry(b"x")),
    "an empty list": delimited(0x0A, entry(b"x", delimited(0x0A))),
    "an empty packed list": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A)))),
    "the feature before its name": delimited(0x0A, delimited(0x0A, delimited(0x12), delimited(0x0A, b"x"))),
    "an entry without a name": delimited(0x0A, delimited(0x0A, delimited(0x12))),
    "integers that are not packed": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05\x08\x96\x01"))),
    "one integer that is not packed": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05"))),
    "floats that are not packed": delimited(0x0A, entry(b"x", delimited(0x12, b"\x0dabcd\x0dabcd"))),
    "both forms in one list": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05", delimited(0x0A, b"\x07\x08")))),
    "a negative integer": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\xff" * 9 + b"\x01")))),
    "Features in two parts": delimited(0x0A, entry(b"x")) + delimited(0x0A, entry(b"y")),
    "a length in more bytes than it takes": b"\x0a\x80\x00",
}

NO_EXAMPLES = {
    "a name that is not UTF-8": delimited(0x0A, entry(b"\xff", delimited(0x0A))),
    "a name twice": delimited(0x0A, entry(b"x"), entry(b"x")),
    "two lists in a feature": delimited(0x0A, entry(b"x", delimited(0x0A), delimited(0x0A))),
    "a kind that is none": delimited(0x0A, entry(b"x", delimited(0x22))),
    "a field past the end": b"\x0a\x7f",
    "floats of three bytes": delimited(0x0A, entry(b"x", delimited(0x12, delimited(0x0A, b"abc")))),
    "half a float": delimited(0x0A, entry(b"x", delimited(0x12, b"\x0dab"))),
    "an integer without end": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\x05\x80")))),
    "an integer of eleven bytes": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\x80" * 10 + b"\0")))),
    "two values under one tag": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05\x06"))),
    "another field in an entry": delimited(0x0A, delimited(0x0A, delimited(0x1A, b"x"))),
    "a number where a message belongs": b"\x08\x05",
    "a tag and nothing behind it": b"\x0a",
}


@pytest.mark.parametrize("message", ODD_BUT_GOOD.values(), ids=ODD_BUT_GOOD)
def test_an_example_may_look_odd(message: bytes) -> None:
    assert tf.train.Example.FromString(message) is not None
    checker = Checker()
    assert [checker.check(message) for _ in range(3)] == [(), (), ()] or checker.check(message) == []
    assert checker.counts() == {name: checker.counts()[name] for name in {entry.name for entry in entries(message)}}


@pytest.mark.parametrize("message", NO_EXAMPLES.values(), ids=NO_EXAMPLES)
def test_what_is_no_example_is_refused(message: bytes) -> None:
    checker = Checker()
    for known in ODD_BUT_GOOD.values():
        checker.check(known)
    for _ in range(2):
        ((kind, _message),) = checker.check(message)
        assert kind == "not-an-example"


values = st.one_of(
    st.lists(st.binary(max_size=200), max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)
feature_sets = st.dictionaries(st.sampled_from(["a", "b", "name", "ä", "image/encoded"]), values, max_size=4)


def by_tensorflow(features: dict[str, list[Any]]) -> bytes:
    message = tf.train.Example()
    for name, items in features.items():
        feature = message.features.feature[name]
        if items and isinstance(items[0], bytes):
            feature.bytes_list.value.extend(items)
        elif items and isinstance(items[0], float):
            feature.float_list.value.extend(items)
        elif items:
            feature.int64_list.value.extend(items)
    return message.SerializeToString()


@given(st.lists(feature_sets, max_size=12))
def test_the_outline_of_an_example_is_what_tensorflow_put_in(many: list[dict[str, list[Any]]]) -> None:
    checker = Checker()
    for features in many:
        message = by_tensorflow(features)
        found = {entry.name: entry for entry in entries(message)}
        assert {name: entry.values for name, entry in found.items()} == {n: len(v) for n, v in features.items()}
        for name, items in features.items():
            if len(items) == 1 and isinstance(items[0], bytes):
                assert message[found[name].start : found[name].end] == items[0]
        assert not checker.check(message)
    assert checker.counts() == {
        name: sum(name in features for features in many) for name in {name for features in many for name in features}
    }


@settings(max_examples=400)
@given(st.lists(feature_sets, min_size=1, max_size=5), st.data())
def test_a_checker_that_remembers_and_one_that_does_not_agree_on_any_bytes(
    many: list[dict[str, list[Any]]], data: st.DataObject
) -> None:
    checker = Checker()
    messages = [by_tensorflow(features) for features in many]
    for message in messages:
        checker.check(message)
    changed = bytearray(data.draw(st.sampled_from(messages)))
    if changed:
        for position, byte in data.draw(
            st.lists(st.tuples(st.integers(0, len(changed) - 1), st.integers(0, 255)), min_size=1, max_size=3)
        ):
            changed[position] = byte
    message = bytes(changed)
    findings = checker.check(message)
    try:
        list(entries(message))
    except ValueError:
        assert findings
    else:
        assert not findings
        tf.train.Example.FromString(message)
    try:
        tf.train.Example.FromString(message)
    except DecodeError:
        assert findings


def test_a_checker_forgets_in_time_and_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "_MOST_REMEMBERED", 10)
    checker = Checker()
    for number in range(100):
        assert not checker.check(an_example(**{f"name-{number % 17}": b"x" * number, "label": number}))
    counts = checker.counts()
    assert counts["label"] == 100
    assert counts["name-0"] == 6


# --- Schema ---


@pytest.mark.parametrize(
    ("described", "expectation"),
    [
        ({"dtype": "bytes", "shape": [], "encoding": "bytes", "count": 4}, Expected("bytes", 1)),
        ({"dtype": "float32", "shape": [2, 3], "encoding": "float"}, Expected("float", 6)),
        ({"dtype": "int64", "shape": [None], "encoding": "int64"}, Expected("int64", None)),
        ({"dtype": "uint8", "shape": [4, 2, 3], "encoding": "raw"}, Expected("bytes", 1, 24)),
        ({"dtype": "uint8", "shape": [None, 2, 3], "encoding": "raw"}, Expected("bytes", 1)),
        ({"encoding": "something new"}, Expected()),
        ({}, Expected()),
    ],
)
def test_a_manifest_says_what_is_expected(described: dict[str, Any], expectation: Expected) -> None:
    assert expected(described) == expectation


SCHEMA = {"a": Expected("int64", 1), "b": Expected("float", 3), "c": Expected("bytes", 1, 4), "d": Expected("bytes")}
FITTING = {"a": 300, "b": [1.0, 2.0, 3.0], "c": b"1234", "d": [b"x", b""]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": b"300"}, "'a' is bytes, and int64"),
        ({"a": [1, 2]}, "'a' holds 2 values, and 1"),
        ({"a": [5]}, ""),
        ({"b": [1.0, 2.0]}, "'b' holds 2 values, and 3"),
        ({"c": b"12345"}, "'c' holds 5 bytes, and 4"),
        ({"d": [b""]}, ""),
        ({"e": b""}, "'e' is not in the manifest"),
        ({"b": None}, "lacks 'b'"),
        ({"d": None}, ""),
    ],
)
def test_an_example_that_does_not_fit_the_schema_is_found(change: dict[str, Any], words: str) -> None:
    features = {name: value for name, value in {**FITTING, **change}.items() if value is not None}
    checker = Checker(SCHEMA, frozenset("abc"))
    for _ in range(3):
        assert not checker.check(an_example(**FITTING))
        findings = checker.check(an_example(**features))
        assert [words in message for _, message in findings] == ([True] if words else [])


# --- Damaged tars ---


def test_a_tar_cut_anywhere_is_found(tmp_path: Path) -> None:
    data = a_tar(some_members(3))
    end = data.rstrip(b"\0")
    whole = -(-len(end) // 512) * 512 + 1024
    for length in [*range(1, whole, 97), *range(512, whole, 512)]:
        found = check(write(tmp_path / "train.tar", data[:length]))
        assert found.faults, length
        assert found.records <= 3
    assert not check(write(tmp_path / "train.tar", data[:whole])).faults


def test_every_flipped_bit_of_a_tar_header_is_found(tmp_path: Path) -> None:
    data = a_tar(some_members(3))
    member = 3 * 512
    for position in (*range(0, 512, 7), *range(member, member + 512, 7), *range(5 * member, 5 * member + 512, 7)):
        if position % member == 154:
            continue  # behind the digits of the checksum, where writers differ
        found = check(write(tmp_path / "train.tar", flipped(data, position)))
        assert kinds(found)[0] in ("bad-header", "unknown-format"), position
        assert found.faults[0].offset == position // member * member


def test_a_tar_gz_cut_anywhere_is_found(tmp_path: Path) -> None:
    data = gzip.compress(a_tar(some_members(3)), mtime=0)
    for length in range(1, len(data), 7):
        assert check(write(tmp_path / "train.tar.gz", data[:length])).faults, length


def test_a_tar_without_its_end_is_accepted_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", a_tar(some_members(3))[: 6 * 1536])
    assert kinds(check(path)) == ["truncated"]
    assert not check(path, rules=TarRules(ignore_missing_end=True)).faults


def test_a_zeroed_block_in_a_tar_is_found(tmp_path: Path) -> None:
    data = bytearray(a_tar(some_members(3)))
    data[3 * 1536 : 3 * 1536 + 512] = bytes(512)
    assert kinds(check(write(tmp_path / "x.tar", bytes(data)))) == ["zeroed"]


def test_a_half_sample_is_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    ran = run(write(tmp_path / "x.tar", a_tar(some_members(3)[:-1])), "--json")
    (fault,) = ran.json["files"][0]["faults"]
    assert (ran.code, fault["kind"]) == (1, "half-sample")
    assert "0002" in fault["message"]
    assert "jpg" in fault["message"]


def test_a_key_that_comes_back_is_found_unless_regrouped(tmp_path: Path, run: Callable[..., Ran]) -> None:
    members = sorted(some_members(3), key=lambda member: member[0][-3:])
    path = write(tmp_path / "x.tar", a_tar(members))
    faults = run(path, "--json").json["files"][0]["faults"]
    assert [fault["kind"] for fault in faults] == ["duplicate-key"] * 3
    assert faults[0]["offset"] == a_tar(members).index(b"0000.jpg")
    assert run(path, "--regroup").code == 0


def test_a_member_that_comes_twice_is_found(tmp_path: Path) -> None:
    found = check(write(tmp_path / "x.tar", a_tar([*some_members(2), some_members(2)[-1]])))
    assert kinds(found) == ["duplicate-key"]
    assert "0001.jpg" in found.faults[0].message


def test_the_key_rule_decides_what_a_sample_is(tmp_path: Path, run: Callable[..., Ran]) -> None:
    members = [(f"a.{number}.{extension}", b"x") for number in range(3) for extension in ("cls", "jpg")]
    path = write(tmp_path / "x.tar", a_tar(members))
    assert run(path, "--json").json["records"] == 1
    assert run(path, "--json", "--key-split", "last").json["records"] == 3


@pytest.mark.parametrize("members", [[], [("folder/no-extension", b"x")]])
def test_a_tar_without_samples_is_a_fault(tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    found = check(write(tmp_path / "x.tar", a_tar(members)))
    assert kinds(found) == ["empty"]
    assert found.format == "tar"


# --- Directories ---


def test_content_decides_not_the_name(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "a.tar", framed(*some_examples(2)))
    write(tmp_path / "b.record", a_tar(some_members(3)))
    write(tmp_path / "c.txt", gzip.compress(framed(*some_examples(4))))
    write(tmp_path / "d.json", gzip.compress(a_tar(some_members(5))))
    ran = run(tmp_path, "--json")
    assert (ran.code, [file["records"] for file in ran.json["files"]]) == (0, [2, 3, 4, 5])


@pytest.mark.parametrize("length", [0x8B1F, 0x088B1F])
def test_a_first_record_whose_length_looks_like_gzip_is_no_damage(
    tmp_path: Path, run: Callable[..., Ran], length: int
) -> None:
    long = tf.train.Example(features=tf.train.Features(feature={"a": tf.train.Feature()}))
    for filler in range(length - 60, length):
        long.features.feature["a"].bytes_list.value[:] = [bytes(filler)]
        if long.ByteSize() == length:
            break
    path = write(tmp_path / "t.record", framed(long.SerializeToString(), *some_examples(2)))
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    ran = run(path, "--json")
    assert (ran.code, ran.json["ok"], ran.json["records"]) == (0, True, 3)


def test_what_is_no_shard_is_left_out_of_a_directory_and_said(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "train.record", framed(*some_examples(2)))
    write(tmp_path / "train.record.idx", b"0 99\n")
    write(tmp_path / ".hidden", framed(*some_examples(2)))
    write(tmp_path / "README.md", b"# Read me\n")
    write(tmp_path / "folder" / "x.record", framed(*some_examples(2)))
    ran = run(tmp_path, "--json")
    assert [file["path"] for file in ran.json["files"]] == [str(tmp_path / "train.record")]
    assert "1 file left out, as neither tar nor TFRecord: README.md" in ran.err


@pytest.mark.parametrize("name", ["train-3.record", "other.tar", "other.tfrecord"])
@pytest.mark.parametrize("data", [b"", b"no shard any more " * 40, gzip.compress(bytes(99))[:12]])
def test_a_shard_whose_first_bytes_are_lost_is_not_left_out(
    tmp_path: Path, run: Callable[..., Ran], name: str, data: bytes
) -> None:
    write(tmp_path / "train-1.record", framed(*some_examples(2)))
    write(tmp_path / "train-2.record", framed(*some_examples(2)))
    write(tmp_path / name, data)
    ran = run(tmp_path, "--json")
    assert ran.code == 1
    assert [file["path"] for file in ran.json["files"] if file["faults"]] == [str(tmp_path / name)]


@pytest.mark.parametrize("others", [[], ["README.md", ".hidden.record"], ["folder/train.record"]])
def test_a_directory_without_shards_is_an_error(tmp_path: Path, run: Callable[..., Ran], others: list[str]) -> None:
    for name in others:
        write(tmp_path / name, framed(*some_examples(2)) if "record" in name else b"text")
    ran = run(tmp_path, "--json")
    assert (ran.code, ran.out) == (3, "")
    assert f"{tmp_path}: holds no tar or TFRecord" in ran.err


def test_files_are_reported_in_order_with_any_number_of_workers(tmp_path: Path) -> None:
    for number in range(7):
        records = [framed(record) for record in some_examples(20 * (number % 3) + 2)]
        if number % 2:
            records[1] = flipped(records[1], 20)
        write(tmp_path / f"train-{number}.record", b"".join(records))
    results = [in_a_process("verify", tmp_path, "--json", "-j", workers) for workers in ("1", "2", "5")]
    assert results[0] == results[1] == results[2]
    files = results[0].json["files"]
    assert [Path(file["path"]).name for file in files] == [f"train-{number}.record" for number in range(7)]
    assert [file["status"] for file in files] == ["ok", "damaged"] * 3 + ["ok"]


def test_the_first_error_in_order_is_the_one_reported(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "a.record", framed(*some_examples(2)))
    for number in range(3):
        (tmp_path / f"b-{number}.record").symlink_to(tmp_path / "nowhere")
    ran = run(tmp_path, "*", "--json", *SEVERAL)
    assert ran.code == 3
    assert "b-0.record" in ran.err


# --- Numbering ---


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["train-1", "train-3"], [("train-2", "train-2")]),
        (["train-0", "train-1", "train-2"], []),
        (["train-9.record", "train-10.record", "train-12.record"], [("train-11.record", "train-11.record")]),
        (["t-0001.gz", "t-0003.gz", "t-0009.gz"], [("t-0002.gz", "t-0002.gz"), ("t-0004.gz", "t-0008.gz")]),
        (["a-00000-of-00004", "a-00002-of-00004"], [("a-00001-of-00004",) * 2, ("a-00003-of-00004",) * 2]),
        (["a-1-of-3", "a-2-of-3", "a-3-of-3"], []),
        (["a-0-of-2"], [("a-1-of-2", "a-1-of-2")]),
        (["v2-train-1", "v2-train-2", "v2-val-1", "v2-val-3"], [("v2-val-2", "v2-val-2")]),
        (["2024-01-01-0", "2024-01-01-1", "2024-01-07-0", "2024-01-07-2"], [("2024-01-07-1", "2024-01-07-1")]),
        (["cifar10", "cifar100"], []),
        (["mnist"], []),
        ([], []),
    ],
)
def test_gaps_in_a_numbering_are_found(names: list[str], missing: list[tuple[str, str]]) -> None:
    assert [(gap.first, gap.last) for gap in find_gaps(names)] == missing


@given(st.sets(st.integers(0, 300), min_size=2), st.booleans())
def test_a_padded_numbering_has_as_many_gaps_as_numbers_are_missing(numbers: set[int], total: bool) -> None:
    suffix = f"-of-{max(numbers) + 1:05d}" if total else ".record"
    gaps = find_gaps(f"train-{number:05d}{suffix}" for number in numbers)
    first = 0 if total else min(numbers)
    assert sum(gap.count for gap in gaps) == max(numbers) - first + 1 - len(numbers)


def test_a_gap_is_a_fault_where_the_shard_should_be(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in (1, 2, 5):
        write(tmp_path / f"train-{number}.record", framed(*some_examples(2)))
    for arguments in ((tmp_path,), (tmp_path, "train-*")):
        ran = run(*arguments, "--json")
        assert ran.code == 1
        assert [(Path(file["path"]).name, file["status"]) for file in ran.json["files"]] == [
            ("train-1.record", "ok"),
            ("train-2.record", "ok"),
            ("train-3.record", "missing"),
            ("train-5.record", "ok"),
        ]
        assert ran.json["files"][2]["faults"] == [
            {
                "kind": "gap",
                "record": None,
                "offset": None,
                "message": f"the numbering leaves 2 shards out, up to {'train-4.record'}",
            }
        ]
    assert "not whole: 1 missing; 3 files, 6 records" in run(tmp_path).err


def test_shards_named_one_by_one_have_no_gaps(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in (1, 2, 5):
        write(tmp_path / f"train-{number}.record", framed(*some_examples(2)))
    assert run(tmp_path, "train-{1,2,5}.record").code == 0
    assert run(tmp_path / "train-5.record").code == 0


# --- Manifests ---


def convert(*arguments: str | Path) -> Ran:
    return in_a_process("convert", *arguments, "-q")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    ran = convert(PHOTOS, "-o", folder / "photos-<>.record", "--records-per-shard", "6", "--type", "cls=int64")
    assert ran.code == 0, ran.err
    return folder


@pytest.fixture
def out(converted: Path, tmp_path: Path) -> Path:
    """A conversion of the photographs, to be damaged."""
    return Path(shutil.copytree(converted, tmp_path / "out"))


def manifest_of(out: Path) -> Path:
    return out / "photos-manifest.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document, indent=1))
    return path


def faults_of(ran: Ran) -> list[tuple[str, str, str]]:
    """Name, status and kind of each fault."""
    return [
        (Path(file["path"]).name, file["status"], fault["kind"])
        for file in ran.json["files"]
        for fault in file["faults"]
    ]


def test_a_conversion_is_what_its_manifest_says(out: Path, run: Callable[..., Ran]) -> None:
    ran = run(manifest_of(out), "--json")
    assert (ran.code, ran.json["ok"], ran.json["records"]) == (0, True, 24)
    assert [Path(file["path"]).name for file in ran.json["files"]] == [f"photos-{n}.record" for n in range(1, 5)]


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "x-<00000>-of-<total>.record.gz", "--compression", "gzip", "--records-per-shard", "5"),
        ("-o", "<split>/x-<>.record", "--split", "train=0.7,val=0.3", "--index"),
        ("-o", "<input>.record"),
        ("-o", "one.record", "--shuffle"),
    ],
    ids=str,
)
def test_every_kind_of_conversion_is_what_its_manifest_says(
    tmp_path: Path, run: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    ran = convert(PHOTOS, "-o", tmp_path / options[1], *options[2:])
    assert ran.code == 0, ran.err
    (path,) = tmp_path.glob("*manifest*.json")
    ran = run(path, "--json", *SEVERAL)
    assert (ran.code, ran.json["records"]) == (0, 24), ran


def test_a_manifest_needs_no_folder_in_front_of_it(out: Path) -> None:
    command = [sys.executable, "-m", "tar2tf_cli", "verify", "photos-manifest.json"]
    assert subprocess.run(command, cwd=out, capture_output=True, timeout=60, check=False).returncode == 0


def test_a_shard_that_is_gone_is_missing(out: Path, run: Callable[..., Ran]) -> None:
    (out / "photos-2.record").unlink()
    ran = run(manifest_of(out), "--json")
    assert ran.code == 1
    assert faults_of(ran) == [("photos-2.record", "missing", "missing")]
    assert ran.json["records"] == 18


def test_a_shard_that_the_manifest_does_not_list_is_a_stray(out: Path, run: Callable[..., Ran]) -> None:
    shutil.copy(out / "photos-1.record", out / "photos-5.record")
    shutil.copy(out / "photos-1.record", out / "unrelated.record")
    ran = run(manifest_of(out), "--json")
    assert ran.code == 1
    assert faults_of(ran) == [("photos-5.record", "damaged", "stray")]


def test_a_gap_in_the_manifest_itself_is_found(out: Path, run: Callable[..., Ran]) -> None:
    (out / "photos-2.record").unlink()
    path = edit(manifest_of(out), lambda whole: whole["shards"].pop(1))
    assert ("photos-2.record", "missing", "gap") in faults_of(run(path, "--json"))


def test_a_shard_cut_between_records_has_another_size_and_count(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-4.record"
    data = path.read_bytes()
    first = struct.unpack("<Q", data[:8])[0] + 16
    path.write_bytes(data[:first])
    assert faults_of(run(manifest_of(out), "--json")) == [
        ("photos-4.record", "damaged", "size"),
        ("photos-4.record", "damaged", "count"),
    ]


def test_another_shard_of_equal_size_has_another_digest(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-1.record"
    records = []
    data = path.read_bytes()
    while data:
        length = struct.unpack("<Q", data[:8])[0] + 16
        records.append(data[:length])
        data = data[length:]
    path.write_bytes(b"".join(reversed(records)))
    assert faults_of(run(manifest_of(out), "--json")) == [("photos-1.record", "damaged", "digest")]


def test_a_damaged_shard_is_placed_as_without_a_manifest(out: Path, run: Callable[..., Ran]) -> None:
    path = out / "photos-3.record"
    path.write_bytes(flipped(path.read_bytes(), 100))
    faults = faults_of(run(manifest_of(out), "--json"))
    assert faults == [("photos-3.record", "damaged", "data-crc"), ("photos-3.record", "damaged", "digest")]


def change_feature(name: str, **described: Any) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole["features"].setdefault(name, {}).update(described)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (change_feature("cls", encoding="float"), "schema", "'cls' is int64, and float in the manifest"),
        (change_feature("cls", shape=[2]), "schema", "'cls' holds 1 values, and 2 in the manifest"),
        (lambda whole: whole["features"].pop("json"), "schema", "'json' is not in the manifest"),
        (change_feature("png", encoding="bytes", shape=[], dtype="bytes", count=24), "schema", "lacks 'png'"),
        (change_feature("jpg", count=23), "count", "24 examples have the feature 'jpg', and 23 in the manifest"),
        (lambda whole: whole["totals"].update(records=25), "count", "total of records is 25; its shards make 24"),
        (lambda whole: whole["shards"][0].update(digest="crc32c:00000000"), "digest", "crc32c:00000000"),
        (lambda whole: whole["shards"][0].update(records=5), "count", "6 records, and 5 in the manifest"),
    ],
)
def test_a_manifest_that_says_something_else_is_found(
    out: Path, run: Callable[..., Ran], change: Callable[[dict[str, Any]], object], kind: str, words: str
) -> None:
    ran = run(edit(manifest_of(out), change))
    assert ran.code == 1
    assert any(words in line and line.endswith(f"({kind})") for line in ran.lines), ran.out


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 99}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": [], "features": {}, "skipped": {}}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": [{"path": 1, "records": 1, "bytes": 1, "digest": ""}],'
        b' "features": {}, "skipped": {}}',
        b'{"version": 1, "spec": {}, "inputs": [], "shards": 3, "features": [], "skipped": {}}',
    ],
)
def test_what_is_no_manifest_is_an_error(tmp_path: Path, run: Callable[..., Ran], data: bytes) -> None:
    ran = run(write(tmp_path / "train-manifest.json", data), "--json")
    assert (ran.code, ran.out) == (3, "")
    assert "manifest" in ran.err


def test_a_manifest_that_was_not_made_use_of_is_mentioned(out: Path, run: Callable[..., Ran]) -> None:
    ran = run(out, "--json")
    assert (ran.code, len(ran.json["files"])) == (0, 4)
    assert f"{manifest_of(out)} was left aside" in ran.err


# --- Exit codes and errors ---


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 3, "no such directory or file"),
        ((PHOTOS, "photos-{7..9}.tar"), 3, "photos-7.tar"),
        ((PHOTOS, "photos-{1..2"), 2, "do not balance"),
        ((PHOTOS / "photos-0.tar", "*"), 3, "takes no template"),
        (("gopher://bucket",), 2, "gopher"),
        (("/proc/self/mem",), 3, "reading failed"),
        ((PHOTOS, "-j", "0"), 2, "-j"),
        ((), 2, "BUCKET"),
    ],
)
def test_exit_codes_and_messages(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str | Path], code: int, words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", *map(str, arguments)])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_a_manifest_takes_no_template(out: Path) -> None:
    with pytest.raises(UsageError, match="takes no template"):
        verify(str(manifest_of(out)), ["*"])


def test_what_may_not_be_read_is_an_error_not_a_fault(
    tmp_path: Path, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    write(tmp_path / "x.record", framed(*some_examples(2)))
    monkeypatch.setattr("tar2tf_cli.stores.directory.FileIO", refuse)  # root, as whom tests may run, reads anything
    ran = run(tmp_path, "--json")
    assert (ran.code, ran.out) == (3, "")
    assert "x.record: cannot be opened: Permission denied" in ran.err


def test_a_shard_on_standard_input_is_checked() -> None:
    data = framed(*some_examples(5))
    assert in_a_process("verify", "-", "--json", stdin=data).json["records"] == 5
    ran = in_a_process("verify", "-", "--json", stdin=gzip.compress(data)[:-1])
    assert (ran.code, ran.json["files"][0]["path"]) == (1, "<stdin>")


def test_a_shard_behind_a_url_is_checked() -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

    handler = partial(Quiet, directory=str(PHOTOS))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert in_a_process("verify", url + "photos-1.tar", "--json").json["records"] == 6
        assert in_a_process("verify", url, "photos-{0,3}.tar*", "--json").code == 2
        ran = in_a_process("verify", url, "photos-{0..2}.tar", "--json")
        assert (ran.code, ran.json["records"], ran.json["files"][2]["path"]) == (0, 18, url + "photos-2.tar")
        assert in_a_process("inspect", url + "photos-3.tar.gz", "--json").json["samples"] == 6
        server.shutdown()


def test_a_name_that_could_steer_a_terminal_is_written_as_escapes(tmp_path: Path) -> None:
    write(tmp_path / "a\x1b[31m\n-1.record", b"")
    ran = in_a_process("verify", tmp_path, "*")
    assert ran.code == 1
    assert ran.lines == [f"{tmp_path}/a\\x1b[31m\\n-1.record: the file is empty (empty)"]


def test_the_output_needs_no_unicode(tmp_path: Path) -> None:
    write(tmp_path / "tränen-1.record", b"")
    ran = in_a_process("verify", tmp_path, "*", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.code == 1
    assert "tr\\xe4nen-1.record" in ran.out


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_neither_tensorflow_nor_numpy_nor_requests_is_imported(command: str) -> None:
    code = (
        "import sys\nfrom tar2tf_cli.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'tensorflow', 'numpy', 'requests', 'cv2'} & sys.modules.keys()))"
    )
    arguments = [sys.executable, "-c", code, command, str(PHOTOS), "-j", "1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]")


# --- What a file is ---


@given(st.binary(max_size=600))
def test_any_bytes_have_a_verdict(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    found = check(write(tmp_path_factory.mktemp("any") / "x", data))
    assert found.faults or found.records


def damaged_headers() -> Iterator[bytes]:
    for data in (framed(*some_examples(1)), framed(an_example(x=bytes(99_999)))):
        for position in range(12):
            yield flipped(data, position, position % 8)


def test_a_damaged_first_header_does_not_hide_a_tfrecord() -> None:
    assert {sniff(data[:4096]) for data in damaged_headers()} == {"tfrecord"}


@pytest.mark.parametrize(
    "data",
    [b"", b"\n" * 99, b"hello world!\na\nb\nc\n" * 9, b'{"version": 1}', b"\x1f\x8b", b"\0" * 100, b"\xff" * 4096],
)
def test_other_files_are_neither(data: bytes) -> None:
    assert sniff(data) is None
