"""Large records with cut values: the same faults, sizes and features as of the whole, and every byte in the CRC."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

from make_bytes import Dribble
from tar2tf_cli.checking.faults import Expectations
from tar2tf_cli.checking.verify_records import Checker
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.features.described import Expected
from tar2tf_cli.formats import tfrecord
from tar2tf_cli.formats.example import FRAMING, parse
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.formats.tfrecord import RecordReader, ShortenedExample, Want
from verify_runs import an_example, framed


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of 40 kB are large, of which a kilobyte of each value is kept."""
    monkeypatch.setattr(tfrecord, "HEADS_FROM", 40_000)
    monkeypatch.setattr(tfrecord, "HEAD", 1000)
    monkeypatch.setattr(Cursor, "CHUNK", 700)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


LARGE = an_example(jpg=noise(90_000), png=noise(60_000), small=b"few", label=7, weights=[0.5, 0.25], __key__=b"a")
RECORDS = [an_example(jpg=noise(500)), LARGE, an_example(jpg=b""), an_example(png=noise(50_000))]


def read(data: bytes, want: Want = "heads", stream: Any = io.BytesIO) -> list[tuple[int, bytes]]:
    return list(RecordReader(stream(data), "x.record", want=want))


@pytest.mark.parametrize("stream", [io.BytesIO, Dribble])
def test_features_and_sizes_are_those_of_the_whole(stream: Any) -> None:
    found, whole = read(framed(*RECORDS), stream=stream), read(framed(*RECORDS), "records")
    assert [offset for offset, _ in found] == [offset for offset, _ in whole]
    reader = RecordReader(io.BytesIO(), "x.record")
    assert [reader.size_of(data) for _, data in found] == [len(data) for _, data in whole]
    for (_, short), (_, data) in zip(found, whole, strict=True):
        ours, theirs = parse(short), parse(data)
        assert list(ours) == list(theirs)
        for name, feature in ours.items():
            assert (feature.kind, feature.count, feature.size) == (
                theirs[name].kind,
                theirs[name].count,
                theirs[name].size,
            )
            assert [part[:1000] for part in theirs[name].parts()] == feature.parts()
    assert [type(data) for _, data in found] == [bytes, ShortenedExample, bytes, ShortenedExample]
    assert len(found[1][1]) < 3000


def test_a_list_of_large_values() -> None:
    data = an_example(frames=[noise(30_000), b"small", noise(20_000)])
    ((_, short),) = read(framed(data))
    assert parse(short)["frames"].size == 50_005
    assert [len(part) for part in parse(short)["frames"].parts()] == [1000, 5, 1000]


@pytest.mark.parametrize("at", [100, 40_000, 150_000])
def test_a_changed_byte_is_found_and_the_next_record_too(at: int) -> None:
    data = bytearray(framed(*RECORDS))
    start = len(framed(RECORDS[0]))
    data[start + 12 + at] ^= 1
    reader = RecordReader(io.BytesIO(data), "x.record", want="heads")
    found = []
    with pytest.raises(DamagedShardError) as caught:
        found += [offset for offset, _ in reader]
    assert (caught.value.kind, caught.value.offset) == ("data_crc", start)
    assert reader.resume(caught.value)
    assert [offset for offset, _ in reader] == [
        start + len(LARGE) + FRAMING,
        start + len(LARGE) + 2 * FRAMING + len(RECORDS[2]),
    ]
    assert reader.count == 4


@pytest.mark.parametrize("missing", [1, 4, 17, 100_000])
def test_a_record_that_is_cut_short_is_found(missing: int) -> None:
    data = framed(RECORDS[0], LARGE)
    reader = RecordReader(io.BytesIO(data[:-missing]), "x.record", want="heads")
    with pytest.raises(DamagedShardError, match="bytes short") as caught:
        list(reader)
    assert caught.value.kind == "truncated"
    assert not reader.resume(caught.value)
    assert reader.offset == len(data) - missing


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\xff" + noise(50_000),
        b"\xff" * 50_000,
        b"\x0a\x80\x90\x03" + noise(50_000),
        LARGE + b"\x08",
        LARGE + b"\x0b" + bytes(50_000),
    ],
    ids=["length", "tag", "noise", "a tag at the end", "a group"],
)
def test_what_is_not_an_example_is_found(message: bytes) -> None:
    ((_, short),) = read(framed(message))
    ((kind, _),) = Checker().check(short)
    ((expected, _),) = Checker().check(message)
    assert kind == expected == "not_an_example"


@pytest.mark.parametrize("unknown", [b"\x12\x02ab", b"\x18\x07", b"\x25abcd", b"\x21abcdefgh"])
def test_unknown_fields_are_kept(unknown: bytes) -> None:
    ((_, short),) = read(framed(LARGE + unknown))
    assert Checker().check(short) == Checker().check(LARGE + unknown)


def test_the_schema_holds_for_whole_sizes() -> None:
    ((_, short),) = read(framed(LARGE))
    others = dict.fromkeys(("png", "small", "label", "weights", "__key__"), Expected())
    assert Checker(Expectations({**others, "jpg": Expected("bytes", 1, 90_000)})).check(short) == []
    ((kind, message),) = Checker(Expectations({**others, "jpg": Expected("bytes", 1, 90_001)})).check(short)
    assert (kind, "90,000 bytes" in message) == ("schema", True)
