"""A cursor gives the bytes of its stream, however they are asked for, and however they come."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from make_bytes import Dribble
from tar2tf_cli.errors import DamagedShardError, Lost, SourceError
from tar2tf_cli.formats.streams import Cursor, iter_resuming

DATA = bytes(range(256)) * 40
ways = st.sampled_from(["fill", "read ahead", "take", "pieces", "skip", "put back", "read into"])
steps = st.lists(st.tuples(ways, st.integers(0, 3000)), max_size=12)


class Small(Cursor):
    CHUNK = 512


@given(steps, st.lists(st.integers(1, 900), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_every_step_is_one_through_the_same_bytes(
    steps: list[tuple[str, int]], most: list[int], seeks: bool, sized: bool
) -> None:
    stream = io.BytesIO(DATA) if seeks else Dribble(DATA, [*most, 50_000])
    cursor, at = Small(stream, seeks=seeks, size=len(DATA) if sized else None), 0
    for way, size in steps:
        left = len(DATA) - at
        if way == "fill":
            assert cursor.fill(size) >= min(size, left)
        elif way == "read ahead":
            before = len(cursor.buffer) - cursor.position
            assert cursor.read_ahead() == (before < left)
        elif way == "take":
            assert cursor.take(size) == DATA[at : at + size]
            at += min(size, left)
        elif way == "pieces":
            assert b"".join(cursor.pieces(size)) == DATA[at : at + size]
            at += min(size, left)
        elif way == "skip":
            missing = cursor.skip(size)
            assert (missing > 0) == (size > left)
            assert missing == max(size - left, 0)
            at += min(size, left)
        elif way == "put back":
            cursor.put_back(DATA[max(at - size, 0) : at])
            at = max(at - size, 0)
        else:
            at += len(cursor.take(len(cursor.buffer) - cursor.position))
            window = bytearray(size + 1)
            read = cursor.read_into(memoryview(window))
            assert window[:read] == DATA[at : at + read]
            assert read or at == len(DATA)
            at += read
        assert cursor.offset == at
        assert DATA.startswith(cursor.buffer[cursor.position :], at)


def test_a_long_way_is_a_seek_and_what_it_leaves_out_is_counted() -> None:
    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.read_bytes += len(data)
            return data

    stream, left_out = Counting(bytes(100_000)), []
    cursor = Cursor(stream, 100, seeks=True)
    cursor.on_leap = left_out.append
    assert cursor.take(10) == bytes(10)
    assert cursor.skip(90_000) == 0
    assert (cursor.offset, stream.read_bytes + sum(left_out)) == (90_010, 90_109)
    assert stream.read_bytes < 300
    assert cursor.skip(2**70) > 0


def test_an_error_of_the_stream_is_raised_once_the_bytes_before_it_were_used() -> None:
    class Breaking:
        def __init__(self) -> None:
            self.parts = iter([b"abc", None])

        def read(self, size: int, /) -> bytes:
            if (part := next(self.parts, b"")) is None:
                raise SourceError("broken off", shard="x")
            return part

    cursor = Cursor(Breaking())
    assert cursor.read_ahead()
    assert cursor.take(3) == b"abc"
    with pytest.raises(SourceError, match="broken off"):
        cursor.fill(1)
    cursor = Cursor(Breaking())
    with pytest.raises(SourceError, match="broken off"):
        cursor.fill(4)
    assert cursor.take(3) == b"abc"


def test_what_is_behind_damage_is_read_and_each_damage_reported() -> None:
    parts = iter([[1, 2], [3], []])
    damage, seen = [DamagedShardError("first"), DamagedShardError("second")], []
    errors = iter(damage)

    def read() -> Iterator[int]:
        yield from next(parts)
        if error := next(errors, None):
            raise error

    def resume(error: DamagedShardError) -> bool:
        error.lost = Lost(0, 5, 5)
        return error.message == "first"

    found = iter_resuming(read, resume, lambda error, more: seen.append((error, error.lost, more)))
    assert list(found) == [1, 2, 3]
    assert seen == [(damage[0], Lost(0, 5, 5), True), (damage[1], Lost(0, 5, 5), False)]
