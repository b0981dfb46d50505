"""Reads batches of records of local shards with a TensorFlow op in C (formats/kernel/tensorflow_op.c).

The op reads, checks and parses outside the GIL, in as many threads as tf.data gives it. If it was not built, or if the
installed TensorFlow lacks a function that it needs, tf.data reads the shards. This module imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.features.described import MOST_KNOWN, Described, expected, for_kernel, row_width
from tar2tf_cli.formats import kernel

Tensors: TypeAlias = dict[str, tf.Tensor]


class RecordOp(NamedTuple):
    """The records of shards, addressed by position in the order that a seed determines.

    Attributes:
        paths: the shards.
        counts: number of records in each shard.
        part: `(hosts, host)`: read every n-th record for one of n hosts.
    """

    paths: Sequence[str]
    counts: Sequence[int]
    part: tuple[int, int] = (1, 0)

    def messages(self, first: object, last: object, seed: object) -> tf.Tensor:
        """Return the serialised examples at positions from `first` up to, not including, `last`.

        Args:
            first: scalar int64 tensor.
            last: scalar int64 tensor.
            seed: scalar int64 tensor; -1 for the order in which they were written.
        """
        messages: tf.Tensor = self._read(first, last, seed, b"", [], []).messages
        messages.set_shape([None])
        return messages

    def columns(
        self, features: Described, parse: Callable[[object], Tensors]
    ) -> Callable[[object, object, object], Tensors]:
        """Return a function with the arguments of `messages` that returns tensors by feature name.

        Args:
            features: the manifest's features; none of them may be missing or vary in shape.
            parse: parses serialised examples to these tensors; used for batches with an example of an unusual form.
        """
        wanted = expected(features)
        widths = [row_width(name, features) for name in wanted]
        if len(wanted) > MOST_KNOWN or None in widths:
            return lambda first, last, seed: parse(self.messages(first, last, seed))
        known = b"".join(for_kernel(name, own) for name, own in wanted.items())
        names = [name for name, width in zip(wanted, widths, strict=True) if width is not None and width >= 0]
        types = [_stored(features[name]) for name in names]

        def read(first: object, last: object, seed: object) -> Tensors:
            found = self._read(first, last, seed, known, widths, types)
            found.messages.set_shape([None])
            values = dict(zip(names, found.columns, strict=True))
            shaped = {name: _shaped(values[name], features[name]) for name in names}
            columns: Tensors = tf.cond(tf.size(found.messages) > 0, lambda: parse(found.messages), lambda: shaped)
            return columns

        return read

    def _read(
        self, first: object, last: object, seed: object, known: bytes, widths: Sequence[object], types: Sequence[object]
    ) -> Any:
        return _library().tar2tf_records(
            first=first, last=last, seed=seed, Tout=types, paths=self.paths, counts=self.counts, features=known,
            widths=widths, part=self.part,
        )  # fmt: skip


def is_available() -> bool:
    """Whether the op works with the installed TensorFlow."""
    return hasattr(_library(), "tar2tf_records")


def _library() -> Any:
    """Return the module with the op; None if it was not built or cannot be loaded."""
    path = kernel.tensorflow_op()
    return path and _loaded(path)


@cache
def _loaded(path: str) -> object:
    try:
        return tf.load_op_library(path)
    except (tf.errors.OpError, RuntimeError):
        return None


def _stored(feature: FeatureDescription) -> tf.DType:
    """Return the dtype in which a feature's values are stored."""
    stored = {"bytes": "string", "int64": "int64", "float": "float32"}
    return tf.as_dtype(stored.get(feature["encoding"], feature["dtype"]))


def _shaped(values: tf.Tensor, feature: FeatureDescription) -> tf.Tensor:
    """Reshape and cast the values of many examples as the manifest says."""
    value: tf.Tensor = tf.reshape(values, [-1, *feature["shape"]])
    return value if feature["dtype"] in ("bytes", value.dtype.name) else tf.cast(value, feature["dtype"])
