"""Sizes are read and written as the package humanfriendly reads and writes them."""

from __future__ import annotations

import humanfriendly
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.spec.sizes import format_size, parse_size

WORDS = [word for unit in humanfriendly.disk_size_units for size in unit for word in (size.symbol, size.name)]
LETTERS = [word[0] for word in WORDS]
UNITS = st.sampled_from(["", "b", "byte", *WORDS, *LETTERS]).flatmap(
    lambda unit: st.sampled_from([unit, unit.lower(), unit.upper(), unit and f"{unit}s"])
)


@given(st.integers(0, 10**15) | st.integers(0, 15).map(lambda power: 10**power - 1))
def test_sizes_are_written_as_humanfriendly_writes_them(number: int) -> None:
    assert format_size(number) == humanfriendly.format_size(number)


@given(st.integers(0, 10**6) | st.floats(0, 1e6).map(lambda number: f"{number:.3f}"), st.sampled_from(["", " "]), UNITS)
def test_sizes_are_read_as_humanfriendly_reads_them(number: object, space: str, unit: str) -> None:
    text = f"{number}{space}{unit}"
    assert parse_size(text) == humanfriendly.parse_size(text)


@given(st.text("0123456789. KMkmgtiBbyesx", max_size=8))
def test_what_humanfriendly_does_not_read_is_no_size(text: str) -> None:
    try:
        expected = humanfriendly.parse_size(text)
    except humanfriendly.InvalidSize:
        expected = 0
    assert parse_size(text) in (expected, 0)


@pytest.mark.parametrize(
    "text", ["", "MB", "100 s", "5 minutes", "1.5.5", "1 000", "-5MB", "1e400", "9" * 400 + ".5kB"]
)
def test_other_texts_are_no_sizes(text: str) -> None:
    assert parse_size(text) == 0
