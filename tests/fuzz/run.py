"""Fuzzes one reader with atheris: `python tests/fuzz/run.py tar 600` for ten minutes; README.md says more."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE.parent / "helpers")]

import atheris  # noqa: E402

with atheris.instrument_imports(include=["tar2tf_cli"]):
    from targets import TARGETS

import seeds  # noqa: E402


def main(name: str, seconds: str, *more: str) -> None:
    corpus = Path(tempfile.gettempdir(), f"tar2tf-fuzz-{name}")
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds.of(name)):
        Path(corpus, f"seed-{number}").write_bytes(seed)
    found = HERE / "found"
    found.mkdir(exist_ok=True)
    limits = ["-max_len=8192", "-timeout=10", "-rss_limit_mb=2048", f"-max_total_time={seconds}"]
    atheris.Setup([sys.argv[0], str(corpus), *limits, f"-artifact_prefix={found}/{name}-", *more], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
