"""TFRecords in a bucket of any kind: `--from tfrecord` reads every input as one, without detecting its format."""

from __future__ import annotations

from tar2tf_cli.inputs.kinds.tar import open_input

__all__ = ["open_input"]
