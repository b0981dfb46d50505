"""Where records begin: by their lengths, by lines of text, by an index that was kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_build import built, needs_compiler
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.example import unframed
from tar2tf_cli.formats.tfrecord import (
    ShardIndex,
    StreamPositions,
    find_records,
    index_of_lines,
    packed_index,
    read_index,
)
from verify_runs import flipped, framed

RECORDS = [b"", b"a", b"\xff" * 300, b"bc" * 5000, b"d"]
DATA = framed(*RECORDS)
OFFSETS = [0, *np.cumsum([len(record) + 16 for record in RECORDS]).tolist()]
LINES = b"".join(b"%d %d\n" % (a, b - a) for a, b in pairwise(OFFSETS))


class Reads:
    """Bytes that are read in ranges, and how often that was."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls: list[tuple[int, int]] = []

    def __call__(self, start: int, size: int) -> bytes:
        self.calls.append((start, size))
        return self.data[start : start + size]


def scanned(data: bytes) -> list[int]:
    return find_records(Reads(data), len(data), "a.record").tolist()


@given(st.lists(st.binary(max_size=400), max_size=60))
def test_records_are_found_by_their_lengths(records: list[bytes]) -> None:
    data = framed(*records)
    offsets = scanned(data)
    assert [unframed(data[a:b]) for a, b in pairwise(offsets)] == records


def test_small_records_are_scanned_in_few_reads_and_large_ones_are_not_read() -> None:
    small, large = Reads(framed(*[b"x" * 84] * 20_000)), Reads(framed(*[b"y" * 500_000] * 40))
    assert len(find_records(small, len(small.data), "a")) == 20_001
    assert len(small.calls) < 80
    assert len(find_records(large, len(large.data), "a")) == 41
    assert sum(size for _, size in large.calls) < len(large.data) / 5


@pytest.mark.parametrize(
    ("data", "kind", "record", "offset"),
    [
        (flipped(DATA, OFFSETS[3] + 2), "length_crc", 3, OFFSETS[3]),
        (flipped(DATA, 8), "length_crc", 0, 0),
        (DATA[:-1], "truncated", 4, OFFSETS[4]),
        (DATA[: OFFSETS[3] + 5], "truncated", 3, OFFSETS[3]),
        (DATA[: OFFSETS[3] + 14], "truncated", 3, OFFSETS[3]),
        (DATA + b"\0", "truncated", 5, OFFSETS[5]),
    ],
)
def test_damage_is_named_with_its_place(data: bytes, kind: str, record: int, offset: int) -> None:
    with pytest.raises(DamagedShardError) as caught:
        scanned(data)
    error = caught.value
    assert (error.kind, error.shard, error.member, error.offset) == (kind, "a.record", f"record {record}", offset)


def test_a_file_that_shrank_is_not_scanned_forever() -> None:
    with pytest.raises(DamagedShardError, match="shorter than it was"):
        find_records(Reads(DATA[: OFFSETS[2]]), len(DATA), "a.record")


def test_lines_of_text_are_an_index_if_they_are_of_this_file() -> None:
    found = index_of_lines(LINES, len(DATA))
    assert found is not None
    assert found.tolist() == scanned(DATA)
    assert index_of_lines(b"", 0).tolist() == [0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        LINES[:-1],
        LINES[: LINES.rindex(b"\n", 0, -1) + 1],
        LINES.replace(b"16 17", b"16 18"),
        LINES.replace(b"0 16", b"1 16", 1),
        LINES.replace(b"16 17", b"16 1"),
        LINES.replace(b" ", b"\n"),
        LINES.replace(b"0 16\n", b"0 16\n\n"),
        b"\x93NUMPY" + LINES,
        b"0 -1\n",
        b"0 99999999999999999999\n",
        b"1" * 5000 + b" 2\n",
    ],
)
def test_other_lines_are_no_index(lines: bytes) -> None:
    assert index_of_lines(lines, len(DATA)) is None


@pytest.mark.parametrize("keys", [None, np.array([5, 2**64 - 1, 0, 1, 2], np.uint64)])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_index_is_kept_for_one_version_of_one_shard(keys: Any, compressed: bool) -> None:
    index = find_records(Reads(DATA), len(DATA), "a")
    size = 60 if compressed else len(DATA)
    streams = StreamPositions("zstd", np.array([0, 17, size]), np.array([0, 40, len(DATA)])) if compressed else None
    kept = b"".join(packed_index(ShardIndex("tar", index, keys, streams), "a", "v1"))
    found = read_index(kept, "a", "v1", size)
    assert found is not None
    assert found.of == "tar"
    np.testing.assert_array_equal(found.offsets, index)
    np.testing.assert_array_equal(found.keys, keys)
    assert str(found.streams) == str(streams)
    assert read_index(kept, "b", "v1", size) is None
    assert read_index(kept, "a", "v2", size) is None
    assert read_index(kept, "a", "v1", size + 1) is None


@given(st.data())
def test_a_damaged_index_is_none(data: st.DataObject) -> None:
    keys = data.draw(st.sampled_from([None, np.arange(len(RECORDS), dtype=np.uint64)]))
    kept = b"".join(
        packed_index(ShardIndex("tfrecord", find_records(Reads(DATA), len(DATA), "a"), keys, None), "a", "v1")
    )
    place = data.draw(st.integers(0, len(kept) - 1))
    for damaged in (flipped(kept, place, data.draw(st.integers(0, 7))), kept[:place], kept + b"\0" * (place + 1)):
        found = read_index(damaged, "a", "v1", len(DATA))
        assert found is None or (found.of, found.offsets.tolist(), found.keys is None, found.streams) == (
            *("tfrecord", OFFSETS),
            *(keys is None, None),
        )


def test_records_beyond_four_gigabytes_have_an_index() -> None:
    index = np.array([0, 16, 16 + (1 << 33)])
    found = read_index(
        b"".join(packed_index(ShardIndex("tfrecord", index, None, None), "a", "v")), "a", "v", int(index[-1])
    )
    assert found is not None
    assert found.offsets.tolist() == index.tolist()


@pytest.mark.parametrize("position", range(17))
def test_a_record_is_checked_when_it_is_unframed(position: int) -> None:
    record = framed(b"x")
    assert unframed(record) == b"x"
    with pytest.raises(DamagedShardError):
        unframed(flipped(record, position))
    with pytest.raises(DamagedShardError):
        unframed(record[:position])


@needs_compiler
@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_the_kernel_unframes_as_many_records_as_are_whole(records: list[bytes], data: st.DataObject) -> None:
    """The same as one by one, up to the first that is damaged, or not where it should be."""
    kernel = built()
    assert kernel is not None
    whole = [framed(record) for record in records]
    changed = data.draw(st.integers(0, len(whole)))
    if changed < len(whole):
        whole[changed] = flipped(whole[changed], data.draw(st.integers(0, len(whole[changed]) - 1)))
    buffers = [b"x" + b"".join(whole[:2]), *whole[2:]]
    ends = [1, *(1 + int(end) for end in np.cumsum([len(record) for record in whole[:2]]))]
    places = [(0, start, end) for start, end in pairwise(ends)]
    places += [(number, 0, len(record)) for number, record in enumerate(whole[2:], 1)]
    packed = np.array(places, np.int64).tobytes()
    assert kernel.unframed(buffers, packed) == records[:changed]
    for place in [(0, -1, 30), (0, 0, 15), (0, 0, 2**62), (0, 2**62, -(2**62))]:
        assert kernel.unframed(buffers, np.array([place], np.int64).tobytes()) == []
    for number in (-1, len(buffers)):
        with pytest.raises(IndexError):
            kernel.unframed(buffers, np.array([(number, 0, 16)], np.int64).tobytes())
