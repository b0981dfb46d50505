"""Digests of many files: kept in a file, compared in groups, as the multisets that they are."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import chain

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.checking import matching
from tar2tf_cli.checking.against import compare
from tar2tf_cli.checking.matching import Spill, digest_of, match


def spilled(files: list[list[int]]) -> Spill:
    found = Spill()
    for place, numbers in reversed([*enumerate(files)]):
        found.add(place, (digest_of([b"%d" % number]).to_bytes(8, "little") for number in numbers))
    return found


files = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=4)


@given(files, files, st.none() | st.integers(0, 20))
def test_two_sets_are_compared_as_multisets(first: list[list[int]], second: list[list[int]], limit: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "DIGESTS_AT_ONCE", 5)
        with closing(spilled(first)) as one, closing(spilled(second)) as other:
            differences = compare(one.by_file(np.uint64), other.by_file(np.uint64), limit)
    wanted = Counter([number for numbers in first for number in numbers][:limit])
    there = Counter(number for numbers in second for number in numbers)
    assert Counter(first[file][place] for file, place in differences.missing) == wanted - there
    extra = Counter(second[file][place] for file, place in differences.unexpected + differences.doubled)
    assert extra == there - wanted
    assert all(wanted[second[file][place]] for file, place in differences.doubled)


@given(files, files)
def test_equal_digests_are_matched_once_and_in_their_order(first: list[list[int]], second: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "DIGESTS_AT_ONCE", 5)
        with closing(spilled(first)) as one, closing(spilled(second)) as other:
            found = match(one.by_file(np.uint64), other.by_file(np.uint64)).tolist()
    ours, theirs = [*chain(*first)], [*chain(*second)]
    left = {number: [place for place, there in enumerate(theirs) if there == number] for number in ours}
    assert found == [left[number].pop(0) if left[number] else -1 for number in ours]


def test_a_digest_does_not_depend_on_the_parts() -> None:
    assert digest_of([b"ab", b"c"]) == digest_of([b"abc"]) == xxhash.xxh64_intdigest(b"abc")
