"""`tar2tf verify` on TFRecord files: what is damaged is found and placed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from tar2tf_cli.errors import count
from tar2tf_cli.formats.checksums import crc32c, masked
from tar2tf_cli.inputs.open_shard import shard_format
from verify_runs import Ran, an_example, check, flipped, framed, kinds, some_examples, write

# --- Damaged TFRecord ---

PLACES = {
    "length": (2, "length_crc"),
    "length CRC": (9, "length_crc"),
    "data": (20, "data_crc"),
    "data CRC": (-2, "data_crc"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_flipped_byte_is_placed(tmp_path: Path, run: Callable[..., Ran], place: str, number: int) -> None:
    position, kind = PLACES[place]
    records = [framed(record) for record in some_examples(5)]
    start = sum(map(len, records[:number]))
    records[number] = flipped(records[number], position)
    path = write(tmp_path / "train-1.record", b"".join(records))
    read = 4 if kind == "length_crc" else 5
    size, after = len(records[number]), sum(map(len, records[number + 1 :]))

    ran = run(path, "--json")
    document = ran.json
    (fault,) = document["files"][0].pop("faults")
    assert ran.code == 1
    assert (fault["kind"], fault["record"], fault["offset"]) == (kind, number, start)
    assert place.split()[0] in fault["message"]
    assert (fault["lost"], fault["before"]) == (size, {"records": number, "bytes": start})
    assert fault["after"] == {"records": 4 - number, "bytes": after}
    file = {"path": str(path), "status": "damaged", "records": read, "bytes": path.stat().st_size}
    assert document == {"ok": False, "files": [file], "records": read}

    ran = run(path)
    (line,) = ran.lines
    assert line.startswith(f"{path}: record {number}, offset {start}: the CRC of the record's {place.split()[0]} does")
    assert line.endswith(f" ({kind})")
    assert f"; {size} bytes lost, {count(number, 'good record')} before, {4 - number} after" in line
    assert "not OK: 1 of 1 file faulty" in ran.err


def test_every_flipped_bit_of_a_tfrecord_is_found(tmp_path: Path) -> None:
    data = framed(*some_examples(2))
    for position in range(len(data)):
        found = check(write(tmp_path / "x", flipped(data, position, position % 8)))
        assert kinds(found) in (["length_crc"], ["data_crc"]), position


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
    assert found.records == (5 if kind == "length_crc" else 6)
    assert found.good.records == 5


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
        f"{path}: record 0, offset 0: the CRC of the record's data does not match; "
        f"{len(records[0])} bytes lost, 0 good records before, 0 after (data_crc)",
        f"{path}: 1,499 more like it, up to record 999, offset {last} (data_crc)",
    ]
    faults = run(path, "--json").json["files"][0]["faults"]
    assert len(faults) == 1001
    assert faults[-1] == {"kind": "data_crc", "record": None, "offset": None, "message": "and 500 more of this kind"}


def test_a_length_beyond_protobuf_is_named(tmp_path: Path) -> None:
    length = (1 << 40).to_bytes(8, "little")
    data = framed(*some_examples(1)) + length + masked(crc32c(length)).to_bytes(4, "little") + b"x" * 99
    found = check(write(tmp_path / "x", data))
    assert (kinds(found), found.records) == (["too_large"], 1)
    found = check(write(tmp_path / "x", data + framed(*some_examples(3))))
    assert (kinds(found), found.records) == (["too_large"], 4)


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
    assert kinds(found) == ["trailing_garbage"]


_TEN: Final = framed(*some_examples(10))
_GZIP, _ZLIB, _EMPTY = gzip.compress(_TEN), zlib.compress(_TEN), gzip.compress(b"")


@pytest.mark.parametrize(
    ("data", "method", "records"),
    [
        (_GZIP, "GZIP", 10),
        (_GZIP + _GZIP, "GZIP", 20),
        (_GZIP + _EMPTY, "GZIP", 10),
        (_GZIP[:3] + b"\x20" + _GZIP[4:], "GZIP", None),
        (_EMPTY + _GZIP, "GZIP", None),
        (_GZIP + _EMPTY + _GZIP, "GZIP", None),
        (_GZIP + bytes(9), "GZIP", None),
        (_GZIP + bytes(9) + _GZIP, "GZIP", None),
        (_ZLIB, "ZLIB", 10),
        (_ZLIB + bytes(9), "ZLIB", 10),
        (_ZLIB + _ZLIB, "ZLIB", None),
    ],
)
def test_compressed_streams_are_whole_if_tensorflow_reads_all_of_them(
    data: bytes, method: str, records: int | None, tmp_path: Path
) -> None:
    import tensorflow as tf

    found = check(path := write(tmp_path / "x.tfrecord", data))
    assert found.records == records or kinds(found)[0] in ("trailing_garbage", "gzip")
    read: int | None = None
    with contextlib.suppress(tf.errors.DataLossError):
        read = sum(1 for _ in tf.data.TFRecordDataset(str(path), compression_type=method))
    assert (found.records == read and not found.faults) == (records is not None)


@pytest.mark.parametrize(
    "first",
    [bz2.compress(b""), ZstdCompressor().compress(b""), b"\x5a\x2a\x4d\x18\3\0\0\0abc"],
    ids=["bzip2", "zstd", "skip"],
)
def test_an_empty_stream_or_a_skippable_frame_is_no_fault_where_tensorflow_reads_no_such_file(
    tmp_path: Path, first: bytes
) -> None:
    compress = bz2.compress if first.startswith(b"BZ") else ZstdCompressor().compress
    found = check(write(tmp_path / "x.tfrecord", first + compress(_TEN)))
    assert (found.records, found.faults) == (10, [])


@pytest.mark.parametrize(
    ("data", "kind"), [(b"", "empty"), (b"\x05\0\0", "truncated"), (b"text " * 9, "unknown_format")]
)
def test_a_file_that_is_nothing_is_a_fault_where_it_was_asked_for(
    tmp_path: Path, run: Callable[..., Ran], data: bytes, kind: str
) -> None:
    path = write(tmp_path / "train-1.record", data)
    for ran in (run(path, "--json"), run(tmp_path, "train-*", "--json")):
        assert (ran.code, ran.json["files"][0]["faults"][0]["kind"]) == (1, kind)


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
    assert {shard_format(data[:4096]) for data in damaged_headers()} == {"tfrecord"}


@pytest.mark.parametrize(
    "data",
    [b"", b"\n" * 99, b"hello world!\na\nb\nc\n" * 9, b'{"version": 1}', b"\x1f\x8b", b"\0" * 100, b"\xff" * 4096],
)
def test_other_files_are_neither(data: bytes) -> None:
    assert shard_format(data) is None


# --- What follows damage ---


def test_records_after_a_damaged_length_are_found(tmp_path: Path) -> None:
    records = [framed(record) for record in (*some_examples(50), *LARGE)]
    for number in (0, 3, 4, 17, 51):
        records[number] = bytes(12) + records[number][12:]
    found = check(write(tmp_path / "x.record", b"".join(records)))
    assert kinds(found) == ["length_crc"] * 4  # two neighbours are one gap
    assert (found.records, found.good.records) == (51, 51)
    assert [fault.lost for fault in found.faults] == [
        len(r) for r in (records[0], b"".join(records[3:5]), *(records[17], records[51]))
    ]


@pytest.mark.parametrize("first", [2, 52, 53])
def test_a_hole_in_a_file_costs_no_other_record(tmp_path: Path, first: int) -> None:
    records = [framed(record) for record in (*some_examples(50), *LARGE)]
    data, start = b"".join(records), sum(map(len, records[:first]))
    found = check(write(tmp_path / "x", data[: start + 30] + data[start + len(records[first]) + 5 :]))
    assert found.faults
    assert found.good.records == len(records) - 2


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (bytes(5000), "trailing_garbage"),
        (b"garbage", "trailing_garbage"),
        (b"\0" * 3, "trailing_garbage"),
        (flipped(framed(b"x" * 50)[:10], 9), "trailing_garbage"),
        (b"some words and more of them " * 40_000, "trailing_garbage"),
        (framed(b"x" * 50)[:-5], "truncated"),
        (framed(b"x" * 50)[:9], "truncated"),
        (framed(b"x" * 50)[:3], "truncated"),
        (flipped(framed(b"x" * 50), 1), "length_crc"),
        (flipped(framed(b"x" * 50), 9), "length_crc"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress])
def test_bytes_after_the_last_record_are_garbage_unless_they_are_one(
    tmp_path: Path, tail: bytes, kind: str, compress: Callable[[bytes], bytes]
) -> None:
    whole = framed(*some_examples(5))
    found = check(write(tmp_path / "x", compress(whole + tail)))
    ((fault),) = found.faults
    assert (fault.kind, fault.record, fault.offset, fault.lost) == (kind, 5, len(whole), len(tail))
    assert (found.records, fault.before, fault.after) == (5, (5, len(whole)), (0, 0))


def test_a_file_whose_beginning_is_overwritten_is_a_tfrecord_by_its_name(tmp_path: Path) -> None:
    data = framed(*some_examples(99))
    found = check(write(tmp_path / "a.tfrecord-00000-of-00001", b"words " * 200 + data[1200:]))
    assert (kinds(found), found.format) == (["length_crc"], "tfrecord")
    assert found.records > 70


@given(st.data())
def test_no_damage_costs_more_records_than_it_touches(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    records = [framed(record) for record in some_examples(30)]
    ends = list(itertools.accumulate(map(len, records)))
    changed = bytearray(b"".join(records))
    start = data.draw(st.integers(0, len(changed) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=300))
    changed[start : start + len(noise)] = noise
    last = min(start + len(noise), ends[-1])
    touched = sum(end > start and end - len(record) < last for end, record in zip(ends, records, strict=True))
    found = check(write(tmp_path_factory.mktemp("any") / "x.record", bytes(changed)))
    assert found.good.records >= 30 - touched
