"""What tar2tf costs next to other ways of doing the same: `python -m benchmarks --help`."""
