"""The benchmarks start; what they measure is no test."""

import os
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


def test_every_table_has_the_limit_of_its_scenario(tmp_path: Path) -> None:
    """With no rounds, inputs and peers are made, and nothing is run; a table without a limit is an error."""
    names = (
        "jpeg small large gz verify-small startup imagefolder examples resize sizes masks webp wav image-label dataset"
    )
    names += " pipeline tars-jpeg tars-small records-jpeg records-small join choose ones diff"
    options = ["--rounds", "0", "--scale", "0.001", "--data", str(tmp_path)]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}  # without Go, whose peer takes long to build
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options, *names.split()],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_table_without_a_limit_is_refused(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from benchmarks.bench import Bench, Peer, limit
from benchmarks.data import Store
bench = Bench(Store(Path({str(tmp_path)!r})), 1)
bench.race("with", [Peer("ours", [["true"]]), limit("sleep", ["true"])])
bench.race("without", [Peer("ours", [["true"]])])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "\n  limit: sleep " in done.stdout
    assert "ValueError: without: no peer is the limit of the scenario" in done.stderr
