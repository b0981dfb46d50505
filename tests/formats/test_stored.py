"""Values that stay in files: whose bytes a temporary file holds, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.files import PIECE, LargeEntries


def pieces_of(size: int) -> list[bytes]:
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
    value = LargeEntries("x.tar", None, heads_only=heads_only).copied(pieces_of(3 * PIECE), 3 * PIECE, "a.jpg")
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
