"""Stores examples described by a CSV file and your own class as TFRecord, in train, eval and test directories.

    generate_and_save_train_eval_test_tfrecords_files("out", ToyExample, "examples.csv", src_data_dirpath="data")
    dataset = generate_dataset(get_tfrecord_filepaths("out/train"))

Each directory is a separate conversion (`convert`) with its own manifest: repeating an interrupted call continues it,
repeating a finished one does nothing, and `tar2tf verify out/train/_manifest.json` checks the result. The names are the
same as in TFRecorder (github.com/gdoras/TFRecorder).
"""

from __future__ import annotations

from tar2tf_cli.compat.recorder import (
    CONFIG_FILENAME,
    Example,
    generate_and_save_train_eval_test_tfrecords_files,
    generate_dataset,
    get_tfrecord_filepaths,
)
from tar2tf_cli.inputs.kinds.examples import IgnoreExample, tfrecordable

IgnoreExampleException = IgnoreExample
"""The name that TFRecorder uses for `IgnoreExample`."""

__all__ = [
    "CONFIG_FILENAME",
    "Example",
    "IgnoreExample",
    "IgnoreExampleException",
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_dataset",
    "get_tfrecord_filepaths",
    "tfrecordable",
]
