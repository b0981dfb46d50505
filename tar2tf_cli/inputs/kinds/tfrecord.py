"""TFRecords in a bucket of any kind: with `--from tfrecord`, whatever the first bytes of an input look like."""

from __future__ import annotations

from tar2tf_cli.inputs.kinds.tar import open_input

__all__ = ["open_input"]
