"""Values that stay in files: whose bytes a temporary file holds, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tar2tf_cli.errors import SampleError, SinkError, SourceError
from tar2tf_cli.formats.files import LARGE_VALUE, PIECE, LargeEntries, make_folders, pieces_of, sync, whole


def made(size: int) -> list[bytes]:
    return [bytes([number]) * min(PIECE, size - start) for number, start in enumerate(range(0, size, PIECE))]


def test_a_temporary_file_holds_the_members_of_one_sample_only() -> None:
    begin, entries = 0, LargeEntries("x.tar", None, begin=lambda: begin)
    first = [entries.copied([data], len(data), "a.jpg") for data in (b"one", b"second")]
    begin = 1024
    other = entries.copied([b"three"], 5, "b.jpg")
    assert [b"".join(value.pieces()) for value in (*first, other)] == [b"one", b"second", b"three"]
    assert first[0].file is first[1].file
    assert other.file is not first[0].file
    assert other.file
    assert os.fstat(other.file.descriptor).st_size == 5


@pytest.mark.parametrize(("heads_only", "kept"), [(False, 3 * PIECE), (True, PIECE)])
def test_only_heads_of_members_are_copied_where_no_more_is_used(heads_only: bool, kept: int) -> None:
    value = LargeEntries("x.tar", None, heads_only=heads_only).copied(made(3 * PIECE), 3 * PIECE, "a.jpg")
    assert len(value) == 3 * PIECE
    assert value.head() == bytes(PIECE)
    assert value.file
    assert os.fstat(value.file.descriptor).st_size == kept


def test_a_tar_that_became_shorter_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(bytes(3 * PIECE))
    with open(tmp_path / "x.tar", "rb") as file:
        value = LargeEntries("x.tar", file.fileno).at(PIECE, 2 * PIECE, "a.jpg")
    assert value.whole() == bytes(2 * PIECE)
    os.truncate(tmp_path / "x.tar", 2 * PIECE)
    with pytest.raises(SourceError, match=r"x\.tar, offset 2097152: changed"):
        value.whole()


def test_members_are_stored_from_the_least_of_their_limits_on() -> None:
    def least(tar: bool, **limits: int) -> int:
        return LargeEntries("x.tar", (lambda: 0) if tar else None, **limits).least

    found = [least(True), least(False), least(True, least=5), least(False, least=5), least(True, least=1 << 40)]
    assert found == [LARGE_VALUE, LARGE_VALUE, 5, LARGE_VALUE, LARGE_VALUE]
    assert [least(False, most=7), least(True, most=7, least=5), least(True, most=3, least=5)] == [8, 5, 4]
    begin = 1000
    entries = LargeEntries("x.tar", None, begin=lambda: begin)
    assert [entries.is_full(begin + (16 << 20) + more) for more in (0, 1)] == [False, True]


def test_a_value_that_is_too_large_for_memory_is_only_read_in_pieces() -> None:
    entries = LargeEntries("x.tar", None, 5)
    small, large = entries.copied([b"ab", b"cde"], 5, "a"), entries.copied([b"abc", b"def"], 6, "b.jpg")
    assert (whole(small), whole(b"x"), whole(7), [*pieces_of(b"x")]) == (b"abcde", b"x", 7, [b"x"])
    assert (b"".join(pieces_of(large)), large.head()) == (b"abcdef", b"abcdef")
    with pytest.raises(SampleError) as raised:
        whole(large)
    assert (raised.value.message, raised.value.member, raised.value.hint) == (
        "is 6 bytes long, but must fit in memory, where the limit is 5",
        "b.jpg",
        "raise --max-entry-size (max_entry_size in YAML and Python), or leave the entry out",
    )


def test_the_file_of_values_is_closed_with_the_last_of_them() -> None:
    entries = LargeEntries("x.tar", None)
    values = [entries.copied([b"abc"], 3, "a"), entries.copied([b"d"], 1, "b")]
    assert values[0].file
    descriptor = values[0].file.descriptor
    del entries
    assert [value.whole() for value in values] == [b"abc", b"d"]
    assert os.fstat(descriptor).st_nlink == 0
    values.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_folders_are_made_with_their_parents_or_an_error_says_which_is_in_the_way(tmp_path: Path) -> None:
    make_folders(str(tmp_path / "a/b/c/"))
    make_folders(str(tmp_path / "a/b"))
    assert (tmp_path / "a/b/c").is_dir()
    (tmp_path / "file").touch()
    for below in ("file", "file/x"):
        with pytest.raises(OSError, match="File exists") as raised:
            make_folders(str(tmp_path / below))
        assert str(raised.value.filename) == str(tmp_path / "file")
    with pytest.raises(SinkError) as failed:
        sync(str(tmp_path / "none"))
    assert (failed.value.message, failed.value.shard) == (
        "cannot be written: No such file or directory",
        str(tmp_path / "none"),
    )
