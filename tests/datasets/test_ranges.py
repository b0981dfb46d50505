"""Streams that were decompressed are kept, as many as memory is allowed for, and each is decompressed once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tar2tf_cli.datasets.process_resources import StreamCache

SIZE = 1000


class Decompressing:
    """Counts how often each stream is decompressed."""

    def __init__(self, streams: StreamCache) -> None:
        self.streams = streams
        self.times = Counter[int]()
        self._lock = threading.Lock()

    def get(self, number: int) -> bytes:
        return self.streams.get("a", number, partial(self._decompress, number))

    def _decompress(self, number: int) -> bytes:
        with self._lock:
            self.times[number] += 1
        return bytes([number]) * SIZE


@pytest.fixture
def decompressing(monkeypatch: pytest.MonkeyPatch) -> Decompressing:
    monkeypatch.setattr(StreamCache, "MOST", 3 * SIZE)
    return Decompressing(StreamCache())


def test_the_streams_that_were_used_last_are_kept_and_no_others(decompressing: Decompressing) -> None:
    for number in range(50):
        assert decompressing.get(number) == bytes([number]) * SIZE
    for number in reversed(range(50)):
        decompressing.get(number)
    again = [number for number, times in decompressing.times.items() if times > 1]
    assert again == list(range(47)) or again == list(range(46))


def test_a_stream_that_is_used_again_is_kept_longer(decompressing: Decompressing) -> None:
    for number in range(30):
        decompressing.get(0)
        decompressing.get(number)
    assert decompressing.times[0] == 1


def test_a_stream_larger_than_all_that_is_kept_replaces_the_others(decompressing: Decompressing) -> None:
    decompressing.get(1)
    assert len(decompressing.streams.get("b", 0, lambda: bytes(10 * SIZE))) == 10 * SIZE
    decompressing.get(2)
    decompressing.get(1)
    assert decompressing.times[1] == 2


def test_threads_that_want_one_stream_decompress_it_once(decompressing: Decompressing) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(decompressing.get, [7] * 100)) == {bytes([7]) * SIZE}
    assert decompressing.times[7] == 1
