"""Ranges of objects: few requests, none twice, and never bytes of another version."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servers import FaultyServer
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Ranges
from tar2tf_cli.api.store import Body, Store
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import open_source
from tar2tf_cli.stores.objects import look_up_each
from tar2tf_cli.stores.ranges import ObjectRanges, ObjectStream

DATA = os.urandom((3 << 20) + 12_345)


@pytest.fixture
def item(web: FaultyServer) -> ObjectInfo:
    web.objects["in/a.record"] = DATA
    (found,) = open_source(f"{web.url}/in").list(["a.record"])
    web.log.clear()
    return found


@pytest.fixture
def ranges(web: FaultyServer) -> Ranges:
    source = open_source(f"{web.url}/in")
    store = source.store
    assert store is not None
    store.round_trip = 0.0  # however busy this machine is
    return source.ranges()


def asked(web: FaultyServer) -> list[int]:
    """The sizes of the ranges that were requested."""
    pairs = [wanted.removeprefix("bytes=").split("-") for _, _, wanted in web.log if wanted]
    return [int(last) - int(first) + 1 for first, last in pairs]


@pytest.mark.parametrize("threads", [1, 8])
def test_any_range_is_the_bytes_there(web: FaultyServer, item: ObjectInfo, ranges: Ranges, threads: int) -> None:
    chance = random.Random(threads)
    places = [(chance.randrange(len(DATA) + 9), chance.choice([0, 1, 7, 70_000, 1 << 20])) for _ in range(60)]
    places += [(0, len(DATA)), (len(DATA), 1), (len(DATA) - 1, 5)]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda place: ranges.read(item, *place), places))
    assert found == [DATA[start : start + size] for start, size in places]
    assert sum(asked(web)) <= 2 * len(DATA)


def test_reading_in_order_takes_few_requests_and_no_byte_twice(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    parts = [ranges.read(item, start, 5000) for start in range(0, len(DATA), 5000)]
    assert b"".join(parts) == DATA
    assert len(web.log) < 10
    assert sum(asked(web)) == len(DATA)


def test_a_record_somewhere_takes_little_more_than_its_bytes(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    ranges.read(item, 1 << 20, 300)
    ranges.read(item, (2 << 20) + 50_000, 300)
    assert asked(web) == [ObjectRanges.BLOCK] * 2


def test_threads_that_want_the_same_bytes_share_one_request(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: ranges.read(item, 1 << 20, 9), range(8))) == {DATA[1 << 20 :][:9]}
    assert len(web.log) == 1


def test_what_is_kept_is_bounded(web: FaultyServer, item: ObjectInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectRanges, "MOST_KEPT", 4)
    ranges = open_source(f"{web.url}/in").ranges()
    assert ranges.read(item, 0, len(DATA)) == DATA
    before, kept = len(web.log), 3 * ObjectRanges.BLOCK + len(DATA) % ObjectRanges.BLOCK
    assert ranges.read(item, len(DATA) - kept, kept) == DATA[-kept:]
    assert len(web.log) == before
    assert ranges.read(item, len(DATA) - kept - 1, 1) == DATA[-kept - 1 : -kept]
    assert len(web.log) == before + 1


@pytest.mark.parametrize("kind", ["status", "truncate", "short"])
def test_a_failure_is_retried(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges, kind: str, quick_retries: None
) -> None:
    web.fail("GET in/a.record", kind, times=2, after=100, status=503)
    assert ranges.read(item, 70_000, 300) == DATA[70_000:70_300]
    assert len(web.log) == 3


def test_after_an_error_the_bytes_are_requested_again(web: FaultyServer, item: ObjectInfo, ranges: Ranges) -> None:
    web.fail("GET in/a.record", "status", status=403)
    with pytest.raises(SourceError, match="permission denied"):
        ranges.read(item, 0, 10)
    assert ranges.read(item, 0, 10) == DATA[:10]


def test_a_server_that_ignores_ranges_is_an_error_that_says_what_to_do(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    web.fail("GET in/a.record", "no-range", times=-1)
    with pytest.raises(SourceError, match=r"does not support requests for parts of a file; copy the shards to a disk"):
        ranges.read(item, 100_000, 10)
    assert ranges.read(item, 0, 10) == DATA[:10]


@pytest.mark.parametrize("data", [DATA[:-1], DATA[::-1]])
def test_an_object_that_was_replaced_is_an_error(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges, data: bytes
) -> None:
    web.objects["in/a.record"] = data
    with pytest.raises(SourceError, match="changed"):
        ranges.read(item, 5, 10)


def test_standard_input_has_no_ranges() -> None:
    with pytest.raises(UsageError, match="only be read from front to back") as caught:
        open_source("-").ranges()
    assert caught.value.hint == "write it to a file first"


def test_a_file_that_gives_less_than_was_asked_for_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.record").write_bytes(DATA[:100])
    source, pread = open_source(str(tmp_path)), os.pread
    (item,) = source.list(["a.record"])
    monkeypatch.setattr(os, "pread", lambda descriptor, size, start: pread(descriptor, min(size, 7), start))
    ranges = source.ranges()
    assert ranges.read(item, 10, 60) == DATA[10:70]
    assert ranges.read(item, 90, 60) == DATA[90:100]


def test_far_away_a_record_comes_with_the_mebibyte_around_it(web: FaultyServer, item: ObjectInfo) -> None:
    source = open_source(f"{web.url}/in")
    store, ranges = source.store, source.ranges()
    assert store is not None
    assert ranges.gap == ObjectRanges.BLOCK
    store.round_trip = 0.5
    assert ranges.gap == 1 << 20
    places = [(1 << 20) + 50_000, (2 << 20) - 300, 1 << 20]
    assert [ranges.read(item, start, 300) for start in places] == [DATA[start : start + 300] for start in places]
    assert asked(web) == [1 << 20]
    assert store.round_trip < 0.5
    store.round_trip = 0.5
    assert ranges.read(item, len(DATA) - 9, 9) == DATA[-9:]
    assert asked(web)[1:] == [len(DATA) - (3 << 20)], "no more than there is"


def test_far_away_an_object_is_looked_up_together_with_its_first_mebibyte(web: FaultyServer) -> None:
    web.objects["in/a.record"], web.objects["in/b.record"] = DATA, DATA[:100_000]
    source = open_source(f"{web.url}/in")
    store, ranges = source.store, source.ranges()
    assert store is not None
    store.round_trip = 0.5
    found = ranges.look_up(["a.record"])
    store.round_trip = 0.5
    found |= ranges.look_up(["b.record", "none"]) or {}
    assert [(item.name, item.size) for item in found.values()] == [("a.record", len(DATA)), ("b.record", 100_000)]
    web.log.clear()
    assert ranges.read(found["a.record"], 10, (1 << 20) - 10) == DATA[10 : 1 << 20]
    assert ranges.read(found["b.record"], 0, 200_000) == DATA[:100_000]
    assert not web.log
    assert ranges.read(found["a.record"], (1 << 20) - 1, 2) == DATA[(1 << 20) - 1 : (1 << 20) + 1]


def test_a_stream_reads_each_byte_once_and_ranges_of_it_are_cached(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    assert ranges.read(item, 0, 300) == DATA[:300]
    stream = ranges.open(item)
    assert b"".join(iter(lambda: stream.read(100_000), b"")) == DATA
    stream.close()
    chance = random.Random(5)
    for start in [chance.randrange(len(DATA)) for _ in range(50)]:
        assert ranges.read(item, start, 70_000) == DATA[start : start + 70_000]
    assert [span for *_, span in web.log] == ["bytes=0-131071", "bytes=131072-"], "reading began in order"


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_can_be_read_from_any_offset_on(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectRanges, "MOST_KEPT", 4)
    monkeypatch.setattr(ObjectRanges, "MOST_AROUND", 1)
    monkeypatch.setattr(ObjectStream, "LONG", 200_000)
    chance, stream = random.Random(seed), ranges.open(item)
    for _ in range(60):
        position = chance.choice([0, chance.randrange(len(DATA)), chance.randrange(300_000), len(DATA) - 5, len(DATA)])
        stream.seek(position)
        for size in [chance.choice([1, 5000, 100_000, 1 << 20]) for _ in range(5)]:
            data = stream.read(size)
            assert data == DATA[position : position + len(data)]
            assert bool(data) == (position < len(DATA))
            position += len(data)
    stream.close()


def test_after_a_long_seek_a_stream_requests_blocks_until_it_is_read_in_order_again(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStream, "LONG", 1 << 20)
    stream = ranges.open(item)
    for place in (0, 3 << 19, 3 << 20):
        stream.seek(place)
        assert stream.read(512) == DATA[place : place + 512]
    assert [span for *_, span in web.log] == [None, "bytes=1572864-1638399", "bytes=3145728-3158072"]
    stream.seek(3 << 19)
    rest = b"".join(iter(lambda: stream.read(1 << 20), b""))
    assert rest == DATA[3 << 19 :]
    assert web.log[-1][2] in {f"bytes={start}-" for start in range(3 << 19, len(DATA), ObjectRanges.BLOCK)}
    stream.close()


def test_a_stream_of_an_object_without_a_version_begins_at_its_first_byte(web: FaultyServer, ranges: Ranges) -> None:
    web.objects["in/b.record"] = DATA
    item = ObjectInfo("b.record", len(DATA), None)
    ranges.read(item, 0, 10)
    stream = ranges.open(item)
    assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == DATA
    assert [span for *_, span in web.log][1:] in ([None], ["bytes=0-"])


def test_a_stream_of_an_object_that_was_replaced_is_an_error(
    web: FaultyServer, item: ObjectInfo, ranges: Ranges
) -> None:
    stream = ranges.open(item)
    web.objects["in/a.record"] = DATA[::-1]
    with pytest.raises(SourceError, match="changed"):
        stream.read(10)


def test_the_more_streams_are_open_the_shorter_a_seek_is_long(ranges: Ranges, item: ObjectInfo) -> None:
    assert isinstance(ranges, ObjectRanges)
    source = open_source("http://127.0.0.1/in")
    assert source.store
    source.store.round_trip, several = 0.5, source.ranges()
    streams = [several.open(item) for _ in range(5)]
    assert isinstance(several, ObjectRanges)
    assert several.leap == 10_000_000
    for stream in streams:
        stream.close()
    assert several.leap == 50_000_000
    assert ranges.leap == 1 << 20


class FarStore(Store):
    """A store whose answers take 50 ms, and that asks for one object at a time."""

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        return ()

    def head(self, name: str) -> ObjectInfo | None:
        time.sleep(0.05)
        return ObjectInfo(name, 1, "1")

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        raise NotImplementedError

    def locate(self, name: str) -> str:
        return name


def test_a_round_trip_is_that_of_a_request() -> None:
    store = FarStore("far", "")
    assert [*look_up_each(store, ["a", "b"])] == ["a", "b"]
    assert store.round_trip >= 0.05
