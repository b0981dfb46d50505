"""The benchmarks start; what they measure is no test."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]

ROOT = Path(__file__).parents[2]


def test_every_scenario_is_listed_with_a_line_about_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    described = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"small", "large", "gz", "resize", "store-s3", "store-ais", "ray-small", "remote"} <= described.keys()
