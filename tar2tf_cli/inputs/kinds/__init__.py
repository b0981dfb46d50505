"""Kinds of input, one file each, named as in `--from`: `open_input(conversion, endpoint)` returns its `Source`."""
