"""Compares the speed of tar2tf with other ways of doing the same work: `python -m benchmarks --help`."""
