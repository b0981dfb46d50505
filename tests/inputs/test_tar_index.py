"""Positions of the samples of a tar, the lines of its index, and what is read at these positions."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from make_bytes import END, header, member, tar_of
from tar2tf_cli.errors import DamagedShardError, Tar2tfError
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.tar import BLOCK
from tar2tf_cli.inputs.tar_index import (
    NotAdjacentTarError,
    TarEntry,
    TarSample,
    entry_names,
    find_in_batches,
    find_members,
    find_samples,
    from_index_lines,
    index_lines,
    is_next,
    sample_digest,
    sample_in,
)

ADJACENT = "tar2tf convert IN -o 'new-<>.tar' writes tars in which"

FILES = [("a/1.jpg", b"x" * 600), ("a/1.Seg.PNG", b""), ("b.cls", b"12"), ("b.jpg", b"y" * 512)]
TAR = tar_of(FILES)
SAMPLES = [
    TarSample("a/1", 0, [TarEntry(512, 600, "a/1.jpg"), TarEntry(2048, 0, "a/1.Seg.PNG")]),
    TarSample("b", 2048, [TarEntry(2560, 2, "b.cls"), TarEntry(3584, 512, "b.jpg")]),
]
LINES = [
    b"v1.2 2\n",
    b"jpg 512 600 a/1.jpg Seg.PNG 2048 0 a/1.Seg.PNG\n",
    b"cls 2560 2 b.cls jpg 3584 512 b.jpg\n",
]


def outcome(read: Callable[[], Any]) -> Any:
    """What is read; or the class of the error, its place and message, and the hint."""
    try:
        return read()
    except Tar2tfError as error:
        return type(error).__name__, error.member, error.offset, error.message, error.hint


def scattered(*names: str) -> bytes:
    return tar_of([(name, b"1") for name in names])


def test_samples_and_their_entries_have_offsets_and_sizes() -> None:
    assert [*find_samples(io.BytesIO(TAR), "t", "first")] == SAMPLES
    assert [sample.end for sample in SAMPLES] == [2048, 4096]
    assert b"".join(index_lines(find_in_batches(io.BytesIO(TAR), "t", "first"))) == b"".join(LINES)
    assert index_lines(SAMPLES) == LINES
    last = [*find_samples(io.BytesIO(TAR), "t", "last")]
    assert [(sample.key, sample.start, sample.end) for sample in last] == [
        ("a/1", 0, 1536),
        ("a/1.Seg", 1536, 2048),
        ("b", 2048, 4096),
    ]


def test_a_sample_read_at_its_offset_is_the_one_that_was_found() -> None:
    for sample in SAMPLES:
        read = sample_in(TAR[sample.start : sample.end], "t", "first")
        assert read["__key__"] == sample.key
        assert [len(read[name]) for name in read if name != "__key__"] == [entry.size for entry in sample.entries]
        assert sample_digest(read) == sample.digest("first")
    first, second = SAMPLES
    assert first.digest("first") != second.digest("first")
    assert first.digest("first") != first._replace(key="a/2").digest("first")
    assert first.digest("first") != first._replace(entries=first.entries[:1]).digest("first")


READ_AT: dict[str, tuple[bytes, Any]] = {
    "two samples": (
        TAR[:4096],
        ("DamagedShardError", None, None, "the bytes that the index gives for a sample are not one", None),
    ),
    "nothing": (
        b"",
        ("DamagedShardError", None, 0, "the file is empty, so it is not a tar", "download or recreate the shard"),
    ),
    "the end": (
        END,
        ("DamagedShardError", None, None, "the bytes that the index gives for a sample are not one", None),
    ),
    "scattered": (
        scattered("a.x", "b.x", "a.y")[:-1024],
        ("DamagedShardError", None, None, "the bytes that the index gives for a sample are not one", None),
    ),
    "a link": (
        member(b"a.x", kind=b"1", link=b"b.x"),
        (
            "EntryError",
            "a.x",
            0,
            "is a link, which random access cannot follow",
            f"{ADJACENT} it is a file",
        ),
    ),
}


def test_bytes_that_are_not_one_sample_are_damage() -> None:
    for name, (data, expected) in READ_AT.items():
        assert (name, outcome(lambda data=data: sample_in(data, "t", "first"))) == (name, expected)  # type: ignore[misc]


LINK = member(b"a.txt", kind=b"2", link=b"b.txt")
LINKED = ("EntryError", "a.txt", 512, "is a link, which random access cannot follow", f"{ADJACENT} it is a file")
NO_SAMPLES = (
    "DamagedShardError",
    None,
    None,
    "the tar holds no samples; members skipped: 2 x directory",
    "check that the shard is intact, and that its members are named KEY.EXTENSION",
)
CUT = (
    "DamagedShardError",
    None,
    4096,
    "the archive has no end-of-archive blocks: it may be cut short here",
    "download the shard again; if its writer ends archives in this way, pass --ignore-missing-end",
)
FILLED = tar_of([(f"{name}.x", b"1") for name in "abc"], end=bytes(10_240 - 3 * 1024))
ZEROS = "1,024 zero bytes up to offset 2048 in the middle of the archive: the data here is lost"
ZEROED = ("DamagedShardError", None, 1024, ZEROS, "download or recreate the shard")
OTHERS: dict[str, tuple[bytes, Any, Any, Any]] = {
    "a link": (header(b"b/", kind=b"5") + LINK + END, LINKED, LINKED, LINKED),
    "a link that is no entry": (
        member(b".a", kind=b"2", link=b"b") + member(b"a.x", b"1") + END,
        [TarSample("a", 512, [TarEntry(1024, 1, "a.x")])],
        {"a": [(512, 1536)]},
        [["x"]],
    ),
    "scattered": (
        scattered("a.x", "b.x", "b.y", "a.y", "a.z", "c.x"),
        (
            "NotAdjacentTarError",
            None,
            None,
            "the members of the sample 'a' are not adjacent",
            f"{ADJACENT} they are",
        ),
        {"a": [(0, 1024), (3072, 5120)], "b": [(1024, 3072)], "c": [(5120, 6144)]},
        [["x", "y", "z"], ["x", "y"], ["x"]],
    ),
    "no samples": (header(b"folder/", kind=b"5") + header(b"b/", kind=b"5") + END, NO_SAMPLES, NO_SAMPLES, []),
    "no end": (TAR[:-1024], CUT, CUT, CUT),
    "zeros": (FILLED[:1024] + bytes(1024) + FILLED[2048:], ZEROED, ZEROED, [["x"], ["x"]]),
}


def test_samples_members_and_names_are_found_from_headers_or_an_error_says_why_not() -> None:
    for name, (data, samples, members, names) in OTHERS.items():
        found = [
            outcome(lambda data=data: [*find_samples(io.BytesIO(data), "t", "first")]),  # type: ignore[misc]
            outcome(lambda data=data: find_members(io.BytesIO(data), "t", "first")),  # type: ignore[misc]
            outcome(lambda data=data: [*entry_names(io.BytesIO(data), "t", "first")]),  # type: ignore[misc]
        ]
        runs = {key_hash(key): own for key, own in members.items()} if isinstance(members, dict) else members
        assert (name, found) == (name, [samples, runs, names])


def test_members_from_an_offset_on_are_added_to_the_runs_before_it() -> None:
    data = OTHERS["scattered"][0]
    whole = find_members(io.BytesIO(data), "t", "first")
    known = {key_hash("a"): [(0, 1024)], key_hash("b"): [(1024, 2048)]}
    assert find_members(io.BytesIO(data), "t", "first", known, start=2048) == whole


def test_an_entry_is_next_only_at_its_own_offset_with_its_size_and_name() -> None:
    first, second = SAMPLES
    entry = first.entries[0]
    rest = TAR[second.start :]
    assert is_next(io.BytesIO(TAR), 0, entry, "t", "first")
    assert is_next(io.BytesIO(rest), second.start, second.entries[0], "t", "first")
    for other in (entry._replace(offset=1024), entry._replace(size=1), entry._replace(member="a/1.png")):
        assert not is_next(io.BytesIO(TAR), 0, other, "t", "first")
    assert not is_next(io.BytesIO(TAR), 512, entry, "t", "first")
    for data in (b"", END, b"\xff" * BLOCK, member(b"._a.x", b"1"), member(b".x", b"1")):
        assert not is_next(io.BytesIO(data), 0, entry, "t", "first")
    behind = member(b"._a.x", b"1") + member(b"noext.", b"1")[:0] + TAR
    assert is_next(io.BytesIO(behind), 0, entry._replace(offset=entry.offset + 1024), "t", "first")


def test_names_with_blanks_have_no_line() -> None:
    for name in ("a b.x", "a.x y", "a\u00a0b.x", "a\tb.x"):
        sample = TarSample(name.partition(".")[0], 0, [TarEntry(512, 1, "ab.x"), TarEntry(1536, 1, name)])
        message = f"the name {name!r} contains a space, which an index of DALI cannot store"
        found = outcome(lambda sample=sample: index_lines([sample]))  # type: ignore[misc]
        assert found == ("UsageError", None, None, message, "give the members other names")


def test_lines_of_an_index_are_samples_again() -> None:
    data = b"".join(LINES)
    assert from_index_lines(data) == SAMPLES
    assert from_index_lines(data, size=4096) == SAMPLES
    assert from_index_lines(b"v1.2 0\n") == []
    odd = [TarSample("\udcff", 0, [TarEntry(512, 0, "\udcff.x")])]
    assert from_index_lines(b"".join(index_lines(odd))) == odd
    later = [TarSample("a", 0, [TarEntry(1024, 9, "a.x")])]
    assert from_index_lines(b"v1.2 1\nx 1024 9 a.x\n") == later


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"v1.2 1\n",
        b"v1.1 1\nx 512 1 a.x\n",
        b"v1.2 2\nx 512 1 a.x\n",
        b"v1.2 1\nx 512 1 a.x",
        b"v1.2 1\nx 511 1 a.x\n",
        b"v1.2 1\nx 0 1 a.x\n",
        b"v1.2 1\nx 512 1\n",
        b"v1.2 1\nx 512 1 a.x y\n",
        b"v1.2 1\n\n",
        b"v1.2 1\nx -512 1 a.x\n",
        b"v1.2 1\nx 512 1_0 a.x\n",
        b"v1.2 1\nx 512 " + "²".encode() + b" a.x\n",
        b"v1.2 1\nx 512 \xd9\xa1 a.x\n",
        b"v1.2 1\nx 512 1 a.y\n",
        b"v1.2 1\nx 512 1 ax\n",
        b"v1.2 1\nx 512 1 .x\n",
        b"v1.2 1\ny 512 1 a.x.y\n",
        b"v1.2 1\nx 512 1 a.x y 1536 1 b.y\n",
        b"v1.2 1\nx 512 513 a.x y 1536 1 a.y\n",
        b"v1.2 2\nx 512 1 a.x\nx 1024 1 b.x\n",
        b"v1.2 2\nx 512 1 a.x\nx 1536 1 a.x\n",
        b"v1.2 1\nx 512 1000000000000000000 a.x\n",
    ],
)
def test_lines_that_no_tar_can_have_are_no_index(lines: bytes) -> None:
    assert from_index_lines(lines) is None


def test_an_index_fits_a_tar_of_its_size_by_the_key_rule_and_with_the_longest_number() -> None:
    assert from_index_lines(b"".join(LINES), size=4095) is None
    assert from_index_lines(b"".join(LINES), "last") is None
    assert from_index_lines(b"v1.2 1\ny 512 1 a.x.y\n", "last") == [TarSample("a.x", 0, [TarEntry(512, 1, "a.x.y")])]
    number = 10**18 - 1
    assert from_index_lines(b"v1.2 1\nx 512 %d a.x\n" % number) == [TarSample("a", 0, [TarEntry(512, number, "a.x")])]


def test_the_errors_of_scattered_and_of_damaged_tars_are_told_apart() -> None:
    assert not issubclass(NotAdjacentTarError, DamagedShardError)


def test_errors_about_positions_name_the_tar() -> None:
    for read in (
        lambda: sample_in(TAR[:4096], "t.tar", "first"),
        lambda: sample_in(LINK, "t.tar", "first"),
        lambda: [*find_samples(io.BytesIO(scattered("a.x", "b.x", "a.y")), "t.tar", "first")],
        lambda: [*find_samples(io.BytesIO(LINK + END), "t.tar", "first")],
        lambda: find_members(io.BytesIO(TAR[:-1024]), "t.tar", "first"),
        lambda: entry_names(io.BytesIO(b"\xff" * 600), "t.tar", "first"),
    ):
        with pytest.raises(Tar2tfError) as raised:
            read()
        assert raised.value.shard == "t.tar"
