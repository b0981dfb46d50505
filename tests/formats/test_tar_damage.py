"""Tars that claim too much, end too early or are damaged are never read in silence."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tracemalloc

import pytest
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from make_bytes import END, Dribble, files_of, member, pax, tar_of
from tar2tf_cli.errors import DamagedShardError, Lost
from tar2tf_cli.formats.tar import BLOCK, TarReader
from tar_reading import FILES, WHOLE, SmallChunks, damage, files, read

# --- What is claimed ---


@pytest.mark.parametrize("kind", [b"0", b"Q"])
@pytest.mark.parametrize("size", [2**31 - 1, 2**40, 2**62, 2**87], ids=lambda size: f"{size:,}")
def test_a_claimed_size_takes_no_memory_before_its_bytes_are_there(size, kind, tmp_path):
    data = member(b"a.jpg", kind=kind, size=b"\x80" + size.to_bytes(11, "big")) + bytes(5000)

    class Sparing(io.BytesIO):
        def read(self, length=-1, /):
            assert 0 < length <= 16 << 20
            return super().read(length)

    tracemalloc.start()
    try:
        with pytest.raises(DamagedShardError, match=r"a\.jpg"):
            list(TarReader(Sparing(data), "x.tar"))
        (tmp_path / "x.tar").write_bytes(data)
        with open(tmp_path / "x.tar", "rb", buffering=0) as file, pytest.raises(DamagedShardError, match="cut short"):
            list(TarReader(file, "x.tar", headers_only=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("field", [b"\xff" * 12, b"-0000000012\0", b"0000000001x\0", b"00000000018\0"], ids=repr)
def test_a_size_that_is_no_number_is_a_damaged_header(field):
    error = damage(member(b"a.jpg", b"x") + member(b"b.jpg", b"", size=field) + END)
    assert (error.kind, error.offset) == ("bad_header", 2 * BLOCK)


# --- Ends ---


def test_archives_end_to_end_are_one_shard():
    one, two = tar_of(FILES), tar_of(files_of(3), tarfile.PAX_FORMAT)
    two += bytes(-len(two) % 10240)
    for data in (one + two, two + one, one + one):
        reader = TarReader(io.BytesIO(data), "x")
        list(reader)
        assert reader.archives == 2
        assert reader.ended
    assert files(one + two) == FILES + files_of(3)


@pytest.mark.parametrize(
    "more", [b"", tar_of(FILES) + bytes(-len(tar_of(FILES)) % 10240)], ids=["alone", "and another"]
)
@pytest.mark.parametrize("places", [[3], [0], [23], [7, 20]], ids=str)
def test_zeros_in_place_of_a_small_member_are_not_the_end_of_an_archive(places, more):
    """As far as its writer fills archives up to records of 10,240 bytes; tarfile, GNU tar and bsdtar do."""
    files = [(f"{number}.json", b"{}") for number in range(25)]
    data = bytearray(tar_of(files))
    data += bytes(-len(data) % 10240)
    for place in places:
        data[place * 1024 : place * 1024 + 1024] = bytes(1024)
    reader = TarReader(io.BytesIO(bytes(data) + more), "x")
    names = [name for name, *_ in reader]
    assert len(names) == 25 - len(places) + len(FILES) * bool(more)
    with pytest.raises(DamagedShardError) as caught:
        reader.check_ends()
    start = places[0] * 1024
    assert (caught.value.kind, caught.value.offset) == ("zeroed", start)
    assert caught.value.lost == Lost(start, start + 1024, 1024 * len(places))
    assert reader.archives == 1 + bool(more)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_archives_that_are_not_filled_up_are_archives_end_to_end(count):
    """Those of Go, Rust and Node: they end with two blocks."""
    one = tar_of(FILES).rstrip(b"\0")
    one += bytes(-len(one) % BLOCK) + bytes(2 * BLOCK)
    filled = tar_of(FILES) + bytes(-len(tar_of(FILES)) % 10240)
    for last in (one, filled):
        reader = TarReader(io.BytesIO(one * count + last), "x")
        assert len(list(reader)) == len(FILES) * (count + 1)
        reader.check_ends()
        assert reader.archives == count + 1


@pytest.mark.parametrize(("start", "zeros"), [(40_960 + 1024, 3072), (10_240, 1024 * 64), (10_240, 10_240 + 1024)])
def test_zeros_within_an_archive_are_not_its_end(start, zeros):
    data = bytearray(tar_of(files_of(80, 400), tarfile.USTAR_FORMAT))
    data[start : start + zeros] = bytes(zeros)
    error = damage(bytes(data))
    assert (error.kind, error.offset) == ("zeroed", start)
    assert f"{zeros:,} zero bytes up to offset {start + zeros}" in str(error)


@pytest.mark.parametrize("bad", [b"9999999 path=long.jpg\n", bytes(2 << 20)], ids=["malformed", "too large"])
def test_a_member_is_skipped_if_its_extended_header_cannot_be_read(bad):
    inner = member(b"inner.jpg", b"x")
    data = member(b"a.jpg") + member(b"x", bad, b"x") + member(b"short.jpg", inner) + member(b"z.jpg") + END
    reader, names = TarReader(io.BytesIO(data), "x"), list[str]()
    with pytest.raises(DamagedShardError) as caught:
        names += [name for name, *_ in reader]
    assert reader.resume(caught.value)
    assert [name for name, *_ in reader] == ["z.jpg"]
    assert caught.value.lost == Lost(BLOCK, len(data) - 3 * BLOCK, len(data) - 4 * BLOCK)


def test_what_is_lost_begins_at_the_damaged_member_and_ends_at_the_next_header():
    data = member(b"a.jpg", b"x") + pax({"mtime": "1"}) + member(b"b.jpg", b"x") + member(b"c.jpg", b"x") + END
    for damaged, lost in (
        (data[:2048] + b"?" + data[2049:], Lost(1024, 3072, 2048)),
        (data[:2500], Lost(1024, None, 1476)),
        (data[:1024], Lost(1024, None, 0)),
        (data[:4096] + b"?" * 1024, Lost(4096, 5120, 1024)),
    ):
        reader = TarReader(io.BytesIO(damaged), "x")
        with pytest.raises(DamagedShardError) as caught:
            list(reader)
        assert reader.resume(caught.value) == (lost.end == 3072)
        assert caught.value.lost == lost


@pytest.mark.parametrize("claimed", [3 << 20, 1 << 40, 1 << 80])
def test_what_is_lost_of_a_large_member_is_what_is_there_of_it(claimed, tmp_path):
    size = b"\x80" + claimed.to_bytes(11, "big")
    path = tmp_path / "x.tar"
    path.write_bytes(member(b"a.jpg", b"x") + member(b"b.jpg", size=size) + bytes(700_000))
    for options in ({}, {"headers_only": True}):
        with path.open("rb", buffering=0) as file:
            reader = TarReader(file, "x", **options)
            with pytest.raises(DamagedShardError) as caught:
                list(reader)
            assert not reader.resume(caught.value)
        assert caught.value.lost == Lost(1024, None, 512 + 700_000)


def test_a_second_archive_without_an_end_is_damage():
    error = damage(tar_of(FILES) + tar_of(FILES, end=b""))
    assert "no end-of-archive blocks" in str(error)
    assert "--ignore-missing-end" in error.hint
    reader = TarReader(io.BytesIO(tar_of(FILES) + tar_of(FILES, end=b"")), "x", need_end=False)
    assert [name for name, *_ in reader] == [name for name, _ in FILES * 2]
    assert reader.archives == 2


def test_more_zeros_than_any_block_size_explains_are_damage_unless_no_end_is_needed():
    assert files(tar_of(FILES, end=bytes(1 << 20))) == FILES
    data = tar_of(FILES, end=bytes((1 << 20) + BLOCK))
    assert damage(data).kind == "truncated"
    assert files(data, need_end=False) == FILES


def test_an_archive_without_members_is_whole():
    assert read(END) == read(bytes(10240)) == []


@given(st.integers(1024, 40_000), st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_zeros_of_any_length_may_follow_the_end(zeros, most):
    data = tar_of(FILES[:2], end=bytes(zeros))
    assert files(data) == FILES[:2]
    assert [name for name, *_ in SmallChunks(Dribble(data, most), "x")] == ["a.jpg", "a.cls"]
    assert [name for name, *_ in read(data, headers_only=True)] == ["a.jpg", "a.cls"]


@given(st.integers(1024, 1535), st.binary(min_size=1, max_size=40).filter(all), st.integers(0, 1500))
@example_of(1024, b"\x80\xff\x81", 509)  # whose signed sum is that of an empty checksum
def test_garbage_behind_the_end_is_damage(zeros, garbage, more):
    whole = tar_of(FILES, end=bytes(zeros))
    error = damage(whole + garbage + bytes(more))
    assert error.offset == len(whole) // BLOCK * BLOCK
    short = error.offset + BLOCK > len(whole) + len(garbage) + more
    assert "bytes after the end of the archive" in str(error)
    assert ("cut short" in str(error)) == short


def test_a_tar_of_no_bytes_is_damage():
    assert "empty" in str(damage(b""))


@pytest.mark.parametrize("data", [b"x", b"x" * 511, b"x" * 5000, b"\x89PNG" * 500, b"\0" * 511 + b"x"], ids=len)
def test_what_is_no_tar_at_all_is_called_that(data):
    error = damage(data)
    assert (error.kind in ("bad_header", "unknown_format"), error.offset) == (True, 0)
    assert "not a tar" in str(error)


def test_a_tar_cut_at_any_block_s_edge_or_beside_it_is_damage():
    cuts = {cut for edge in range(0, len(WHOLE), BLOCK) for cut in (edge - 1, edge, edge + 1)}
    for cut in cuts & {*range(len(WHOLE))}:
        assert damage(WHOLE[:cut]).offset <= cut
    assert files(WHOLE) == FILES


def test_without_need_of_an_end_only_cuts_between_members_pass():
    ends = {offset for _, _, _, offset in read(WHOLE)} | {len(WHOLE) - 2 * BLOCK, len(WHOLE) - BLOCK}
    passing = {edge for edge in range(BLOCK, len(WHOLE), BLOCK) if _is_whole(WHOLE[:edge], need_end=False)}
    assert passing == ends - {0}
    assert not any(_is_whole(WHOLE[: edge + 1], need_end=False) for edge in range(0, len(WHOLE) - 2 * BLOCK, BLOCK))


def _is_whole(data: bytes, **options: bool) -> bool:
    try:
        read(data, **options)
    except DamagedShardError:
        return False
    return True


def test_a_header_overwritten_by_zeros_is_found_where_it_stood():
    data = tar_of(files_of(6, 700))
    for _, _, _, offset in read(data)[1:]:
        zeroed = data[:offset] + bytes(BLOCK) + data[offset + BLOCK :]
        for need_end in (True, False):
            error = damage(zeroed, need_end=need_end)
            assert (error.kind, error.offset) == ("zeroed", offset)
        assert "the data here is lost" in str(error)


@pytest.mark.parametrize("length", [1, 100, BLOCK, 2 * BLOCK, 4096])
def test_zeros_from_a_header_into_its_data_are_found(length):
    data = tar_of([(name, b"\xff" * 9000) for name in ("a.jpg", "b.jpg", "c.jpg")])
    offset = read(data)[1][3]
    error = damage(data[:offset] + bytes(length) + data[offset + length :])
    assert offset <= error.offset <= offset + 4096


# --- Damaged headers ---


def _header_places(data: bytes) -> list[int]:
    """The places of all bytes of headers, extended ones too, but not of what extended headers hold."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        starts = {start for entry in archive for start in (entry.offset, entry.offset_data - BLOCK)}
    return [start + place for start in sorted(starts) for place in range(BLOCK)]


DAMAGED = {
    "ustar": tar_of([("é.jpg", b"1"), ("p" * 99 + "/n.jpg", b"2"), ("c.jpg", b"")], tarfile.USTAR_FORMAT),
    "gnu": tar_of([("a.jpg", b"1"), ("é" * 70 + ".jpg", b"2")]),
    "pax": tar_of([("a.jpg", b"1"), ("é" * 70 + ".jpg", b"2")], tarfile.PAX_FORMAT),
}


def _reads_the_same_or_fails(whole: bytes, damaged: bytes) -> bool:
    """Whether damage is found; if not, nothing of what is read may differ."""
    try:
        members = read(damaged)
    except DamagedShardError:
        return True
    assert members == read(whole)
    return False


@pytest.mark.parametrize("format", DAMAGED)
@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80])
def test_no_flipped_bit_of_a_header_changes_what_is_read_in_silence(format, flip):
    whole = DAMAGED[format]
    for place in _header_places(whole):
        damaged = bytearray(whole)
        damaged[place] ^= flip
        found = _reads_the_same_or_fails(whole, bytes(damaged))
        assert found or 148 <= place % BLOCK < 156  # a checksum's padding may differ and its number be the same


@pytest.mark.parametrize("format", DAMAGED)
@example_count(300)
@given(data=st.data())
def test_no_overwritten_byte_of_a_header_changes_what_is_read_in_silence(format, data):
    whole = DAMAGED[format]
    place, byte = data.draw(st.sampled_from(_header_places(whole))), data.draw(st.integers(0, 255))
    _reads_the_same_or_fails(whole, whole[:place] + bytes([byte]) + whole[place + 1 :])


@example_count(300)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 4000), st.binary(max_size=1200))
def test_any_damage_gives_members_or_a_clean_error_and_an_end(start, length, replacement):
    damaged = WHOLE[:start] + replacement + WHOLE[start + length :]
    for headers_only in (False, True):
        for need_end in (False, True):
            reader = SmallChunks(io.BytesIO(damaged), "x", headers_only=headers_only, need_end=need_end)
            with contextlib.suppress(DamagedShardError):
                assert len(list(reader)) <= len(damaged) // BLOCK
            assert 0 <= reader.offset <= len(damaged)
