"""One module per group of scenarios; `python -m benchmarks` finds every one in this folder."""
