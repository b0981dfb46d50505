"""What fuzzing begins with and what it found: every input gives records or a named error, and soon."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def module(name: str) -> ModuleType:
    """A module beside this one."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


targets, seeds = module("targets"), module("seeds")


@pytest.mark.parametrize("target", targets.TARGETS)
def test_no_input_breaks_a_reader(target: str) -> None:
    for data in seeds.of(target):
        begin = time.process_time()
        targets.TARGETS[target](data)
        assert time.process_time() - begin < 5


def test_every_file_that_was_found_belongs_to_a_target() -> None:
    assert {path.name.split("-")[0] for path in seeds.FOUND.iterdir()} <= targets.TARGETS.keys()
