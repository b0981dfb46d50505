"""Read conversions with TensorFlow and without it, and compare the values."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tar2tf_cli import load_dataset, open_records


def load_both(manifest: str | os.PathLike[str] | None, **options: Any) -> list[dict[str, tf.Tensor]]:
    """Return the examples of `load_dataset`, after comparing them with those of `open_records`."""
    assert manifest
    dataset = load_dataset(manifest, **options)
    by_tensorflow = list(dataset.as_numpy_iterator())
    records = open_records(manifest, index_folder="", **options)
    assert len(records) == len(by_tensorflow)
    for place, item in enumerate(by_tensorflow):
        assert_same(records[place], item)
    for one, item in zip(records, by_tensorflow, strict=True):
        assert_same(one, item)
    return list(dataset)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Check that two examples have the same features, types, shapes and values."""
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert type(one[name]) is type(value), name
        if isinstance(value, bytes):
            assert one[name] == value, name
        else:
            assert (one[name].dtype, one[name].shape) == (value.dtype, value.shape), name
            np.testing.assert_array_equal(one[name], value)


def in_a_fork(action: Callable[[], bool]) -> bool:
    """Return the result of an action in a forked process, which is killed if it hangs."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if action() else 1
        finally:
            os._exit(code)
    timer = threading.Timer(200, os.kill, (child, 9))
    timer.start()
    status = os.waitpid(child, 0)[1]
    timer.cancel()
    return status == 0
