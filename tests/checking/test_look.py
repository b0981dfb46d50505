"""What a value is, by its bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_runs import a_jpeg, a_png, look_into
from make_bytes import npy
from tar2tf_cli.checking.contents import Stats, ValueKind, detect_kind, example_of
from verify_runs import a_tar, write

# --- Kinds ---

KINDS = {
    "empty": b"",
    "text": "Größe\n".encode(),
    "json": b' {"a": [1]}\n',
    "npy float64 3": npy(np.zeros(3)),
    "image/png 5x3x3": a_png(),
    "image/jpeg 16x8x3": a_jpeg(),
    "image/bmp 1x1x3": b"BM" + bytes(8) + b"\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0" + bytes(28),
    "audio/wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "video/mp4": b"\0\0\0\x20ftypisom",
    "zip": b"PK\3\4" + bytes(20),
    "gzip": gzip.compress(b"x", mtime=0),
    "bytes": b"\0\1\2",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_known_by_its_bytes(kind: str) -> None:
    stats = Stats()
    stats.look(detect_kind(KINDS[kind]), str)
    assert stats.kind == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"7", "text"),
        (b"[1, 2", "text"),
        (b"[" * 100_000, "text"),
        (b"\xff\xd8\xff", "bytes"),
        (b"BMW", "text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(9), "bytes"),
        (b"II*\0" + bytes(40), "bytes"),
        (b"a\x1b[31m", "bytes"),
        ("ä".encode() * 3000, "text"),
        (b"x" + "ä".encode() * 3000, "text"),
        ("ä".encode()[:1], "bytes"),
    ],
)
def test_a_value_that_only_begins_like_something_is_not_that(data: bytes, kind: str) -> None:
    assert detect_kind(data) == ValueKind(kind)


def test_several_kinds_are_all_named_the_most_frequent_first(tmp_path: Path) -> None:
    values = [a_png(), a_png(9, 9), b"text", a_jpeg()]
    contents = look_into(write(tmp_path / "x.tar", a_tar((f"{n}.image", v) for n, v in enumerate(values))))
    assert contents.entries["image"].kind == "image/png 5-9x3-9x3 (2), text (1), image/jpeg 16x8x3 (1)"


@given(st.binary(max_size=300))
@hypothesis.example(b"\n")
@hypothesis.example(b"a\r\n\tb")
def test_an_example_value_is_short_and_of_one_line(data: bytes) -> None:
    assert "\n" not in example_of(data)
    assert len(example_of(data)) <= 200
    detect_kind(data)


@given(st.lists(st.lists(st.integers(0, 1000), max_size=5), max_size=5))
def test_statistics_of_parts_add_up(parts: list[list[int]]) -> None:
    whole, merged = Stats(), Stats()
    for part in parts:
        stats = Stats()
        for number in part:
            stats.add(number)
            whole.add(number)
        merged.update(stats)
    assert merged == whole
