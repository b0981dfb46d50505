"""Samples as a `tf.data.Dataset`: converted in several threads, yielded as tensors in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.datasets.elements import (
    as_leaf,
    as_structure,
    entries_of_fixed_size,
    fixed_leaves,
    given_spec,
    picked,
    tensor_spec,
)
from tar2tf_cli.errors import SampleError, SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.flow.notes import Notes
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.flow.sample_flow import Faults, Steps, context_of, flow
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.ops import Selection
from tar2tf_cli.ops.identity import called
from tar2tf_cli.samples.names import Sample
from tar2tf_cli.stores import Source

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["Stream"]

_CHUNK: Final = 4  # samples passed to a thread at once; few, as the results are large and wait in memory
_CHUNK_BYTES: Final = 8 << 20
_SHUFFLED: Final = 1000  # size of the shuffle buffer in samples


class Stream:
    """The elements of a dataset; the shards are read again at each iteration.

    Args:
        plan: gives the inputs and the ops.
        make: the selection that makes an element, or a function from a sample to an element.
        workers: how many samples are converted at once.
        shuffle: whether the samples of each shard are shuffled, 1,000 at a time.
        source: where to read; if it is not the plan's, the ops were applied to its samples.
    """

    def __init__(
        self,
        plan: Plan,
        make: Selection | Callable[[Sample], Any],
        workers: int,
        *,
        source: Source,
        shuffle: bool = False,
    ) -> None:
        self._plan = plan
        self._source = source
        self._make = make
        self._workers = max(workers, 1)
        self._shuffle = shuffle
        self._notes = Notes(plan.conversion.input, Events().note)
        ops = plan.conversion.ops if source is plan.source else ()
        self._steps = Steps(context_of(plan.conversion), ops, self._element)

    def dataset(self, types: Any, shapes: Any) -> tf.data.Dataset:
        """The `tf.data.Dataset`; its element spec is given, or inferred from the first element."""
        import tensorflow as tf

        spec = self._spec(types) if types is None or shapes is None else None
        if shapes is not None:
            spec = given_spec(types if spec is None else tf.nest.map_structure(lambda leaf: leaf.dtype, spec), shapes)
        leaves = tf.nest.flatten(spec)
        length = _chunk_length(leaves)

        def structures() -> Iterator[Any]:
            elements = self._leaves(leaves)
            for values in elements if length == 1 else _chunks(elements, length):
                yield tf.nest.pack_sequence_as(spec, values)

        if length == 1:
            return tf.data.Dataset.from_generator(structures, output_signature=spec)
        chunk_spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec)
        return tf.data.Dataset.from_generator(structures, output_signature=chunk_spec).unbatch()

    def _leaves(self, leaves: Sequence[tf.TensorSpec]) -> Iterator[list[Any]]:
        """The values of each element, converted to their specs."""
        import tensorflow as tf

        for key, element in self._elements(self._workers):
            values = tf.nest.flatten(element)
            if len(values) != len(leaves):
                raise SampleError(f"has {len(values)} values where {len(leaves)} are expected", key=key)
            yield [as_leaf(value, leaf, key) for value, leaf in zip(values, leaves, strict=True)]

    def _spec(self, types: Any) -> Any:
        """The element spec inferred from the first element, with the given dtypes if there are any."""
        import tensorflow as tf

        first = next(self._elements(1), None)
        if first is None:
            raise SourceError("has no samples to infer dtypes and shapes from", shard=self._plan.source.bucket)
        key, element = first
        leaves = tf.nest.flatten(element)
        fixed = [False] * len(leaves)
        if not callable(self._make):
            fixed = fixed_leaves(self._make, element, entries_of_fixed_size(self._plan.conversion.ops))
        specs = [tensor_spec(value, flag, key) for value, flag in zip(leaves, fixed, strict=True)]
        if types is not None:
            given = tf.nest.flatten(types)
            specs = [tf.TensorSpec(item.shape, dtype) for item, dtype in zip(specs, given, strict=True)]
        return tf.nest.pack_sequence_as(element, specs)

    def _elements(self, threads: int) -> Iterator[tuple[str, Any]]:
        """Key and element of each sample, in order."""
        shard = {"shard": ""}

        def samples() -> Iterator[Sample]:
            for item in self._plan.inputs:
                with Reading(self._plan.conversion, self._source, item, ahead=True) as reading:
                    shard["shard"] = reading.name
                    yield from _shuffled(reading.samples()) if self._shuffle else reading.samples()
                self._notes.add(reading.name, reading.report)

        return flow(
            samples(),
            self._steps,
            Faults(),
            where=shard.copy,
            finish=lambda key, element: (key, element),
            threads=threads,
            chunk=_CHUNK,
        )

    def _element(self, sample: Sample) -> Any:
        sample = whole_sample(sample)
        return as_structure(called(self._make, sample)) if callable(self._make) else picked(self._make, sample)


def _chunk_length(leaves: Sequence[tf.TensorSpec]) -> int:
    """How many elements to pass to TensorFlow at once: a call into Python costs as much as copying a megabyte."""
    if not all(leaf.shape.is_fully_defined() for leaf in leaves):
        return 1
    size = sum((leaf.shape.num_elements() or 1) * (leaf.dtype.size or _CHUNK_BYTES // 64) for leaf in leaves)
    return max(1, min(64, _CHUNK_BYTES // max(size, 1)))


def _chunks(elements: Iterator[list[Any]], length: int) -> Iterator[list[Any]]:
    """Chunks of elements, stacked leaf by leaf; elements read before an error are yielded before it is raised."""
    import numpy as np

    more = True
    while more:
        waiting: list[list[Any]] = []
        try:
            waiting.extend(islice(elements, length))
        finally:
            if waiting:
                yield [
                    np.array(column, dtype=object) if isinstance(column[0], (bytes, str)) else np.stack(column)
                    for column in zip(*waiting, strict=True)
                ]
        more = len(waiting) == length


def _shuffled(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Samples in random order, shuffled with a buffer."""
    waiting: list[Sample] = []
    for sample in samples:
        waiting.append(sample)
        if len(waiting) == _SHUFFLED:
            yield waiting.pop(random.randrange(_SHUFFLED))
    random.shuffle(waiting)
    yield from waiting
