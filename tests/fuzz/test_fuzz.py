"""What fuzzing begins with and what it found: every input gives records or a named error, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import seeds
import targets

HERE = Path(__file__).parent


@pytest.mark.parametrize("target", targets.TARGETS)
def test_no_input_breaks_a_reader(target: str) -> None:
    for data in seeds.of(target):
        begin = time.process_time()
        targets.TARGETS[target](data)
        assert time.process_time() - begin < 5


def test_every_file_that_was_found_belongs_to_a_target() -> None:
    assert {path.name.split("-")[0] for path in seeds.FOUND.iterdir()} <= targets.TARGETS.keys()
