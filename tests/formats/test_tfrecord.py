"""Framing and CRCs against TensorFlow's reader and writer, and every kind of damage found where it is."""

from __future__ import annotations

import io
import struct
import tempfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from make_bytes import Dribble, gzipped
from tar2tf_cli.errors import DamagedShardError, Lost
from tar2tf_cli.formats.checksums import crc32c, masked
from tar2tf_cli.formats.example import FRAMING, MAX_RECORD, crc_field, frame
from tar2tf_cli.formats.files import crc32c_of_file
from tar2tf_cli.formats.streams import Cursor, open_stream
from tar2tf_cli.formats.tfrecord import RecordReader, find_length

lengths = st.integers(0, 40_000) | st.integers(250_000, 600_000)
few_records = st.lists(st.binary(max_size=60) | lengths.map(bytes), max_size=6)

SMALL = [b"one", b"", b"three" * 5]


def framed(records: Iterable[bytes]) -> bytes:
    return b"".join(part for record in records for part in frame([record], len(record)))


def read(data: bytes, **options: bool) -> list[tuple[int, bytes]]:
    return list(RecordReader(io.BytesIO(data), "x.record", **options))


def by_tensorflow(records: Iterable[bytes], compression: str = "") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in records:
                writer.write(record)
        return path.read_bytes()


def read_by_tensorflow(data: bytes, compression: str = "") -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        return list(tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator())


def offsets_of(records: Iterable[bytes]) -> list[int]:
    offsets, position = [], 0
    for record in records:
        offsets.append(position)
        position += len(record) + FRAMING
    return offsets


# --- As TensorFlow does it ---


@example_count(50)
@given(few_records)
def test_framing_is_what_tensorflow_writes_byte_for_byte(records):
    assert framed(records) == by_tensorflow(records)


@example_count(25)
@given(few_records)
def test_tensorflow_reads_back_what_was_framed(records):
    assert read_by_tensorflow(framed(records)) == records


@example_count(50)
@given(few_records)
def test_the_reader_gives_what_tensorflow_wrote_and_where(records):
    assert read(by_tensorflow(records)) == list(zip(offsets_of(records), records, strict=True))


@given(st.lists(st.binary(max_size=9000), max_size=5))
def test_a_record_in_parts_is_framed_like_the_same_record_in_one(parts):
    whole = b"".join(parts)
    assert b"".join(frame(parts, len(whole))) == framed([whole])


def test_large_parts_are_passed_on_uncopied():
    parts = [b"head", bytes(100_000), b"tail"]
    assert [id(part) for part in parts] == [id(part) for part in frame(parts, 100_008)[1:-1]]


def test_lengths_are_framed_right_beyond_the_cache_of_headers():
    for size in range(20_000):
        length = struct.pack("<Q", size)
        assert frame([], size)[0] == length + struct.pack("<I", masked(crc32c(length)))


@pytest.mark.parametrize("cuts", [(), (19,), (1, 2, 50)])
def test_a_gzip_file_of_several_members_reads_here_as_in_tensorflow(cuts):
    data = gzipped(framed(SMALL), *cuts)
    assert read_by_tensorflow(data, "GZIP") == SMALL
    assert [record for _, record in RecordReader(open_stream(io.BytesIO(data), "x"), "x")] == SMALL


# --- Reading ---


@given(few_records, st.lists(st.integers(1, 700), min_size=1, max_size=5))
def test_records_do_not_depend_on_how_many_bytes_a_read_returns(records, most):
    stream = Dribble(framed(records), [*most, 50_000])
    assert list(RecordReader(stream, "x")) == list(zip(offsets_of(records), records, strict=True))


def test_records_larger_than_the_reader_s_chunk_are_whole():
    records = [bytes(3 * Cursor.CHUNK + 5), b"between", bytes(20 * Cursor.CHUNK)]
    assert [record for _, record in read(framed(records))] == records


@pytest.mark.parametrize("size", [100, 40_000, 300_000])
@pytest.mark.parametrize("beyond", range(-2, 18))
def test_a_read_may_end_anywhere_around_a_record_s_end(size, beyond):
    records = [b"one", bytes(size), b"three"]
    stream = Dribble(framed(records), [3 + FRAMING + 12 + size + beyond, 1 << 20])
    assert [record for _, record in RecordReader(stream, "x")] == records


def test_the_reader_counts_records_and_bytes():
    reader = RecordReader(io.BytesIO(framed(SMALL)), "x")
    assert len(list(reader)) == reader.count == 3
    assert reader.offset == len(framed(SMALL))


def test_an_empty_file_has_no_records():
    assert read(b"") == []


# --- Damage ---


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
@pytest.mark.parametrize("most", [[1], [1 << 20]], ids=["byte by byte", "at once"])
def test_every_corrupted_byte_is_found_in_its_record(flip, most):
    data = framed(SMALL)
    starts = offsets_of(SMALL)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= flip
        number = max(number for number, start in enumerate(starts) if start <= place)
        with pytest.raises(DamagedShardError) as caught:
            list(RecordReader(Dribble(bytes(damaged), most), "x.record"))
        error = caught.value
        assert (error.shard, error.member, error.offset) == ("x.record", f"record {number}", starts[number])
        assert error.kind == ("length_crc" if place - starts[number] < 12 else "data_crc")


def test_without_checking_data_only_damage_to_lengths_is_found():
    data = framed(SMALL)
    of_lengths = {start + place for start in offsets_of(SMALL) for place in range(12)}
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        if place in of_lengths:
            with pytest.raises(DamagedShardError, match="length"):
                read(bytes(damaged), check_data=False)
        else:
            assert len(read(bytes(damaged), check_data=False)) == len(SMALL)


def test_a_file_cut_at_any_byte_but_between_records_is_truncated():
    data = framed(SMALL)
    boundaries = [*offsets_of(SMALL), len(data)]
    for cut in range(len(data) + 1):
        if cut in boundaries:
            assert len(read(data[:cut])) == boundaries.index(cut)
            continue
        with pytest.raises(DamagedShardError) as caught:
            read(data[:cut])
        assert caught.value.kind == "truncated"
        assert caught.value.offset == max(start for start in boundaries if start < cut)


WITH_LARGE = [b"one", bytes(range(256)) * 3000, b"three"]
EDGES = [0, 1, 7, 8, 11, 12, 13, 300_000, 767_999, 768_011, 768_012, 768_015]
"""Places in the large record: in and beside its length, that one's CRC, its data and their CRC."""


@pytest.mark.parametrize("most", [[1 << 20], [100_000, 3]], ids=["at once", "dribbling"])
@pytest.mark.parametrize("place", EDGES)
def test_damage_to_a_large_record_is_found_and_those_behind_it_are_read(place, most):
    start = len(framed(WITH_LARGE[:1]))
    damaged = bytearray(framed(WITH_LARGE))
    damaged[start + place] ^= 4
    reader = RecordReader(Dribble(bytes(damaged), most), "x")
    with pytest.raises(DamagedShardError) as caught:
        list(reader)
    assert (caught.value.kind, caught.value.offset) == ("length_crc" if place < 12 else "data_crc", start)
    if place >= 12:
        assert reader.resume(caught.value)
        assert list(reader) == [(offsets_of(WITH_LARGE)[2], b"three")]


@pytest.mark.parametrize("place", [*EDGES[1:], 768_014])
def test_a_large_record_cut_anywhere_is_truncated(place):
    start = len(framed(WITH_LARGE[:1]))
    with pytest.raises(DamagedShardError, match="bytes short of a record's end") as caught:
        read(framed(WITH_LARGE)[: start + place])
    assert (caught.value.kind, caught.value.offset) == ("truncated", start)


def claim(length: int) -> bytes:
    """A record's header that claims a length, with the right CRC."""
    number = struct.pack("<Q", length)
    return number + struct.pack("<I", masked(crc32c(number)))


@pytest.mark.parametrize("length", [MAX_RECORD + 1, 2**40, 2**64 - 1])
def test_a_record_longer_than_any_example_is_refused(length):
    with pytest.raises(DamagedShardError, match="at most 2 GiB") as caught:
        read(claim(length) + bytes(100))
    assert caught.value.kind == "too_large"


def test_a_claimed_length_takes_no_memory_before_its_bytes_are_there():
    class Sparing(io.BytesIO):
        def read(self, size=-1, /):
            assert 0 < size <= 16 << 20
            return super().read(size)

    tracemalloc.start()
    try:
        with pytest.raises(DamagedShardError) as caught:
            list(RecordReader(Sparing(claim(MAX_RECORD) + bytes(1000)), "x"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.kind == "truncated"
    assert peak < 1 << 20


def test_reading_goes_on_behind_a_record_whose_data_is_damaged():
    data = bytearray(framed([b"one", b"two", b"three"]))
    data[3 + FRAMING + 13] ^= 1
    reader = RecordReader(io.BytesIO(bytes(data)), "x")
    with pytest.raises(DamagedShardError, match="record 1") as caught:
        list(reader)
    assert reader.resume(caught.value)
    assert list(reader) == [(2 * (3 + FRAMING), b"three")]
    assert (reader.count, reader.offset) == (3, len(data))


def test_what_damage_costs_is_told() -> None:
    data = bytearray(framed([b"one", b"two", b"three", b"four"]))
    data[19 + 13] ^= 1
    data[38] ^= 1
    lost = []
    records = RecordReader(io.BytesIO(data[:-1]), "x").undamaged(
        lambda error, more: lost.append((error.kind, error.lost))
    )
    assert [record for _, record in records] == [b"one"]
    assert lost == [
        ("data_crc", Lost(19, 38, 19)),
        ("length_crc", Lost(38, 59, 21)),
        ("truncated", Lost(59, None, 19)),
    ]


def test_a_record_within_a_damaged_one_is_not_taken_for_the_next():
    records = [b"one", framed([b"inner"]) + b"!", b"three"]
    data, third = bytearray(framed(records)), offsets_of(records)[2]
    data[third - 5] ^= 1
    assert list(RecordReader(io.BytesIO(data), "x").undamaged()) == [(0, b"one"), (third, b"three")]


@pytest.mark.parametrize("length", [30, 100_000])
@pytest.mark.parametrize("most", [[1 << 20], [3, 5000]], ids=["at once", "dribbling"])
def test_records_that_a_wrong_length_takes_in_are_found(most, length):
    before, behind = framed([b"one"]) + claim(length) + b"xy", [b"two" * 20_000, b"three"]
    reader = RecordReader(Dribble(before + framed(behind), most), "x")
    found = [(len(before) + offset, data) for offset, data in zip(offsets_of(behind), behind, strict=True)]
    assert list(reader.undamaged()) == [(0, b"one"), *found]
    assert (reader.count, reader.offset) == (4, len(before) + len(framed(behind)))


# --- CRCs ---


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
    ids=["zeros", "ones", "up", "down", "check"],
)
def test_crc32c_is_that_of_rfc_3720(data, crc):
    assert crc32c(data) == crc


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_crc_goes_on_where_another_ended(first, second):
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@pytest.mark.parametrize("size", [0, 9, 1 << 20, (1 << 20) + 1])
def test_the_crc_of_a_file_is_that_of_its_bytes(tmp_path, size):
    path = tmp_path / "x"
    path.write_bytes(bytes(size))
    assert crc32c_of_file(str(path)) == crc32c(bytes(size))


pieces_of_damage = st.sampled_from(
    [b"\0", b"\1", b"\xff", bytes(13), framed([b""]), framed([b"x"]), framed([bytes(300)])]
)


@given(st.lists(pieces_of_damage, max_size=30))
def test_lengths_are_found_wherever_they_begin(pieces: list[bytes]) -> None:
    data = b"".join(pieces)

    def is_length(at: int) -> bool:
        length, crc = data[at : at + 8], data[at + 8 : at + 12]
        return length[4:] == bytes(4) and length[3] < 0x80 and crc == crc_field(length)

    assert find_length(data) == next(filter(is_length, range(len(data) - 11)), None)
