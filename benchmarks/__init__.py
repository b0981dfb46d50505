"""Compares the speed of tar2tf with other ways of doing the same work: `python -m benchmarks --help`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))  # the servers come from the tests
