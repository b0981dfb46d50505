"""Stored bytes to bytes of a tar: gzip found by its magic number, every cut and every flipped byte found out."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from make_bytes import Dribble, gzipped
from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.formats.example import frame
from tar2tf_cli.formats.streams import CompressedStream, PlainStream, open_stream, read_into

BODY = bytes(range(256)) * 8
MEMBERS = {"one member": (), "several members": (100, 100, 1500)}

each_kind = pytest.mark.parametrize("cuts", MEMBERS.values(), ids=MEMBERS)


def drained(data: bytes, size: int = 1000, most: tuple[int, ...] = (1 << 20,)) -> bytes:
    stream = open_stream(Dribble(data, most), "x.tgz")
    chunks = []
    while chunk := stream.read(size):
        assert len(chunk) <= size
        chunks.append(chunk)
    assert stream.read(size) == b""
    stream.close()
    return b"".join(chunks)


sizes = st.integers(1, 10_000)
dribbles = st.lists(st.integers(1, 5000), min_size=1, max_size=3).map(tuple)


@given(st.binary(max_size=9000).filter(lambda data: data[:2] != b"\x1f\x8b"), sizes, dribbles)
def test_plain_bytes_pass_unchanged(data, size, most):
    assert drained(data, size, most) == data


@given(st.binary(max_size=9000), st.lists(st.integers(0, 9000), max_size=3), sizes, dribbles)
def test_gzip_members_end_to_end_are_one_stream(data, cuts, size, most):
    assert drained(gzipped(data, *sorted(min(cut, len(data)) for cut in cuts)), size, most) == data


@pytest.mark.parametrize("zeros", [1, 511, 512, 10_000])
def test_zeros_behind_gzip_are_padding(zeros):
    assert drained(gzipped(BODY) + bytes(zeros)) == BODY


def test_gzip_is_found_by_its_magic_number_and_nothing_else():
    assert isinstance(open_stream(io.BytesIO(gzip.compress(b"")), "x.tar"), CompressedStream)
    assert isinstance(open_stream(io.BytesIO(b"\x1f"), "x.tgz"), PlainStream)
    assert isinstance(open_stream(io.BytesIO(b""), "x.tgz"), PlainStream)


@pytest.mark.parametrize("length", [0x8B1F, 0x088B1F, 0x8B1F + (1 << 16)])
def test_a_record_whose_length_looks_like_gzip_is_a_record(length: int) -> None:
    """The length comes first in a TFRecord; 35,615 is stored as gzip's magic number."""
    parts = frame([bytes(length)], length)
    data = b"".join(parts)
    assert data[:2] == b"\x1f\x8b"
    assert isinstance(open_stream(io.BytesIO(data), "x"), PlainStream)
    assert drained(data) == data
    assert isinstance(open_stream(io.BytesIO(gzip.compress(data)), "x"), CompressedStream)
    assert drained(gzip.compress(data)) == data


def test_a_name_a_comment_and_more_in_a_gzip_header_are_passed_over():
    plain = gzip.compress(BODY, mtime=0)
    flags = bytes([0x04 | 0x08 | 0x10])
    data = plain[:3] + flags + plain[4:10] + b"\x05\x00extra" + b"name.tar\0" + b"comment\0" + plain[10:]
    assert drained(data) == drained(data, most=(1,)) == BODY


# --- Damage ---


@each_kind
@pytest.mark.parametrize("most", [(1 << 20,), (3,)], ids=["at once", "dribbling"])
def test_gzip_cut_at_any_byte_is_truncated(cuts, most):
    data = gzipped(BODY, *cuts)
    ends = {len(gzipped(BODY[:cut], *cuts[:number])) for number, cut in enumerate(cuts)}
    for cut in range(2, len(data)):
        if cut in ends:
            continue  # whole, as far as gzip can tell; the tar in it is not
        with pytest.raises(DamagedShardError, match="cut short") as caught:
            drained(data[:cut], most=most)
        assert (caught.value.kind, caught.value.shard, caught.value.offset) == ("truncated", "x.tgz", cut)


@each_kind
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_of_gzip_is_found_or_changes_nothing(cuts, flip):
    data = gzipped(BODY, *cuts)
    found = 0
    for place in range(2, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= flip
        try:
            assert drained(bytes(damaged)) == BODY
        except DamagedShardError as error:
            found += error.kind in ("gzip", "truncated")
    assert found > 0.9 * len(data) - 10 * (len(cuts) + 1)  # the rest: time and system in headers


@given(st.binary(min_size=1, max_size=100).filter(lambda data: any(data) and data[:1] != b"\x1f"))
def test_garbage_behind_gzip_is_damage(garbage):
    with pytest.raises(DamagedShardError):
        drained(gzipped(BODY) + garbage)


@pytest.mark.parametrize("compress", [gzipped, bz2.compress, lzma.compress])
def test_garbage_behind_a_stream_does_not_cut_it_short(compress):
    with pytest.raises(
        DamagedShardError, match=r"the bytes after the end of the (.*) stream are not another \1 stream"
    ) as caught:
        drained(compress(BODY) + b"garbage\n")
    assert caught.value.kind == "trailing_garbage"


@example_count(300)
@given(st.binary(max_size=60))
def test_any_bytes_behind_the_magic_number_give_a_clean_error(data):
    with pytest.raises(DamagedShardError) as caught:
        drained(b"\x1f\x8b" + data)
    assert caught.value.shard == "x.tgz"


def test_a_failing_read_is_an_error_that_says_where():
    class Failing(io.BytesIO):
        def read(self, size=-1, /):
            if self.tell() >= 8192:
                raise OSError(5, "Input/output error")
            return super().read(min(size, 4096))

        def readinto(self, buffer, /):
            return read_into(self, buffer)

    for data in (bytes(20_000), gzip.compress(bytes(20_000_000))):
        stream = open_stream(Failing(data), "x.tar")
        with pytest.raises(SourceError, match=r"x\.tar, offset \d{4}: reading failed: Input/output error") as caught:
            list(iter(lambda: stream.read(1000), b""))  # noqa: B023
        assert caught.value.offset == stream.consumed >= 8192


def test_an_input_whose_first_bytes_cannot_be_read_is_closed():
    class Broken(io.BytesIO):
        def read(self, size=-1, /):
            raise OSError(5, "Input/output error")

    raw = Broken()
    with pytest.raises(SourceError, match=r"^x\.tar, offset 0: reading failed"):
        open_stream(raw, "x.tar")
    assert raw.closed


# --- Accounts ---


def test_stored_bytes_are_reported_as_they_are_read():
    data = gzipped(BODY * 50, 3000)
    seen: list[int] = []
    stream = open_stream(Dribble(data, (600,)), "x.tgz", seen.append)
    while stream.read(1 << 20):
        pass
    assert sum(seen) == stream.consumed == len(data)


def test_the_head_is_there_before_and_after_it_is_read():
    stream = PlainStream(Dribble(BODY, (7,)), "x.tar")
    assert len(stream.head) >= 512
    assert BODY.startswith(stream.head)
    assert stream.read(3) + stream.read(10_000)[:1] == BODY[:4]


def test_a_plain_stream_can_be_sought_in():
    stream = PlainStream(io.BytesIO(BODY), "x.tar")
    stream.seek(700)
    assert stream.read(10) == BODY[700:710]
    stream.seek(0)
    buffer = bytearray(5)
    assert stream.readinto(buffer) == 5
    assert bytes(buffer) == BODY[:5]


@given(st.integers(0, 5000), st.integers(0, 900), sizes, dribbles)
def test_bytes_that_were_looked_at_are_read_all_the_same(look, before, size, most):
    for stored in (BODY, gzipped(BODY, 500)):
        stream = open_stream(Dribble(stored, most), "x.tgz")
        first = stream.read(before) if before else b""
        head = stream.peek(look)
        assert head == BODY[len(first) : len(first) + look]
        assert first + b"".join(iter(lambda stream=stream: stream.read(size), b"")) == BODY


def test_damage_behind_bytes_that_are_looked_at_is_met_when_these_have_been_read():
    stream = open_stream(io.BytesIO(gzipped(BODY, 1000)[:-30]), "x.tgz")
    head = stream.peek(5000)
    assert BODY.startswith(head)
    assert stream.damage is not None
    assert stream.read(len(head)) == head
    with pytest.raises(DamagedShardError, match="cut short"):
        stream.read(1)
