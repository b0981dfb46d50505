"""Samples as a `tf.data.Dataset`: converted in several threads, yielded as tensors in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.errors import SampleError, SourceError, UsageError, check_tensorflow
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import unnested
from tar2tf_cli.features.presets.webdataset import INTEGER_ENTRIES
from tar2tf_cli.flow.sample_flow import Faults, Reading, Steps, context_of, flow
from tar2tf_cli.formats.files import whole_sample
from tar2tf_cli.inputs.report import Notes
from tar2tf_cli.ops import Func, Op, Rename, Resize, Select, SelectDict, Selection, SelectList
from tar2tf_cli.ops.base import called
from tar2tf_cli.samples.grouping import Sample
from tar2tf_cli.stores import Source

if TYPE_CHECKING:
    import tensorflow as tf


def entries_of_fixed_size(ops: Sequence[Op]) -> set[str]:
    """Entries whose height and width are the same in all samples: resized, and not changed by a later op."""
    sized: set[str] = set()
    for op in ops:
        if isinstance(op, Resize):
            sized.add(op.ext)
        elif isinstance(op, (Func, Rename)):
            sized.clear()
    return sized


def fixed_leaves(selection: Selection, value: Any, sized: set[str]) -> list[bool]:
    """For each leaf of a selected value, in tf.nest order, whether it is an image of fixed size."""
    import tensorflow as tf

    if isinstance(selection, Select):
        return [selection.ext_name in sized] * len(tf.nest.flatten(value))
    parts = sorted(selection.parts(), key=itemgetter(0))
    return [flag for key, part in parts for flag in fixed_leaves(part, value[key], sized)]


def as_number(name: str, value: Any) -> Any:
    """The number that an entry such as `cls` holds as text; text that is not a number stays as it is."""
    if name not in INTEGER_ENTRIES or not isinstance(value, bytes):
        return value
    try:
        return int(value)
    except ValueError:
        return value


class _Number(bytes):
    """The text of an entry that holds an integer, such as `cls`."""

    def fits_int32(self) -> bool:
        """Whether the text is an integer that fits into 32 bits."""
        try:
            return -(2**31) <= int(self) < 2**31
        except ValueError:
            return False


def picked(selection: Selection, sample: Sample) -> Any:
    """The values selected from a sample, as a tf.nest structure."""
    if isinstance(selection, SelectDict):
        return {name: picked(item, sample) for name, item in selection.selections.items()}
    if isinstance(selection, SelectList):
        return tuple(picked(item, sample) for item in selection.selections)
    value = selection.select(sample)
    if isinstance(value, bytes) and selection.ext_name in INTEGER_ENTRIES:
        return _Number(value)
    return as_structure(value)


def as_structure(value: Any) -> Any:
    """Nested values as a tf.nest structure: lists of selections become tuples, lists of numbers or texts arrays."""
    import numpy as np

    if isinstance(value, dict):
        return {name: as_structure(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(as_structure(item) for item in value)
    if isinstance(value, list):
        try:
            flat, shape = unnested(value)
        except ValueError:  # lists of different lengths are no array
            flat, shape = (), ()
        if flat and all(isinstance(item, (bool, int, float, str)) for item in flat):
            return np.asarray(flat).reshape(shape)
        if flat and all(isinstance(item, bytes) for item in flat):
            return np.array(flat, object).reshape(shape)  # as texts of NumPy, they would lose zeros at the end
        return tuple(as_structure(item) for item in value)
    return value


def given_spec(types: Any, shapes: Any) -> Any:
    """The element spec for dtypes and shapes.

    Raises:
        UsageError: when their structures differ.
    """
    import tensorflow as tf

    try:
        if isinstance(types, dict):
            return {name: given_spec(dtype, shapes[name]) for name, dtype in types.items()}
        if isinstance(types, (list, tuple)):
            return tuple(given_spec(dtype, shape) for dtype, shape in zip(types, shapes, strict=True))
        return tf.TensorSpec(shapes, types)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"output_shapes {shapes!r} do not fit output_types {types!r}") from None


def tensor_spec(value: Any, size_is_fixed: bool, key: str) -> tf.TensorSpec:
    """The spec inferred from a value: for images, the channels, and height and width if the size is fixed.

    Raises:
        SampleError: when it cannot be converted to a tensor.
    """
    import numpy as np
    import tensorflow as tf

    if isinstance(value, (bytes, str)):
        return tf.TensorSpec([], tf.int32 if isinstance(value, _Number) and value.fits_int32() else tf.string)
    shape: list[int | None] = list(np.shape(value))
    if len(shape) == 3 and not size_is_fixed:
        shape[:2] = [None, None]
    elif len(shape) != 3:
        shape = [None] * len(shape)
    if hasattr(value, "dtype"):
        return tf.TensorSpec(shape, tf.as_dtype(value.dtype))
    natural = {int: tf.int64, bool: tf.bool, float: tf.float32}
    if type(value) not in natural:
        raise SampleError(f"{value!r} cannot be converted to a tensor", key=key)
    return tf.TensorSpec(shape, natural[type(value)])


def as_leaf(value: Any, leaf: tf.TensorSpec, key: str) -> Any:
    """Convert a value to a spec.

    Raises:
        SampleError: when it has another shape, or cannot be converted to the dtype.
    """
    import numpy as np

    typed = _as_dtype(value, leaf.dtype, key)
    shape = np.shape(typed)
    if not leaf.shape.is_compatible_with(shape):
        gray = len(shape) == leaf.shape.rank == 3 and shape[2] != leaf.shape[2]
        hint = "decode all images to the same number of channels, such as Decode('jpg', channels=3)" if gray else None
        raise SampleError(f"has a value of shape {list(shape)} where {leaf.shape} is expected", key=key, hint=hint)
    return typed


def _as_dtype(value: Any, dtype: tf.DType, key: str) -> Any:
    """Convert a value to an array of a dtype; for a numeric dtype, bytes are parsed as text.

    Raises:
        SampleError: when it cannot be converted, or an integer would change.
    """
    import numpy as np

    if dtype.name == "string":
        if isinstance(value, _Number):
            return bytes(value)  # NumPy would read its text as a number
        return value if isinstance(value, (bytes, str)) or hasattr(value, "dtype") else str(value)
    try:
        if isinstance(value, (bytes, str)):
            value = int(value) if dtype.is_integer else float(value)
        elif value is None:
            raise TypeError
        array = np.asarray(value)
        typed = array.astype(dtype.as_numpy_dtype, copy=False)
        if not array.shape and dtype.is_integer and typed != array:
            raise OverflowError
    except (ValueError, TypeError, OverflowError):
        hint = "for text, give output_types with tf.string in its place" if isinstance(value, (bytes, str)) else None
        raise SampleError(f"{value!r} cannot be read as {dtype.name}", key=key, hint=hint) from None
    return typed


_CHUNK: Final = 4  # samples passed to a thread at once; few, as the results are large and wait in memory
_CHUNK_BYTES: Final = 8 << 20
_SHUFFLED: Final = 1000  # size of the shuffle buffer in samples


class Stream:
    """The elements of a dataset; the shards are read again at each iteration.

    Args:
        plan: gives the inputs and the ops.
        make: the selection that makes an element, or a function from a sample to an element.
        workers: how many samples are converted at once, and how many inputs of a remote bucket are fetched at once.
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
        self._begun: list[Iterator[tuple[str, Any]]] = []

    def dataset(self, types: Any, shapes: Any) -> tf.data.Dataset[Any]:
        """The `tf.data.Dataset`; its element spec is given, or inferred from the first element."""
        check_tensorflow("a dataset in memory")
        import tensorflow as tf

        spec = self._spec(types) if types is None or shapes is None else None
        if shapes is not None:
            spec = given_spec(types if spec is None else tf.nest.map_structure(lambda leaf: leaf.dtype, spec), shapes)
        leaves = tf.nest.flatten(spec)
        length = _chunk_length(leaves)

        def structures() -> Iterator[Any]:
            elements = self._leaves(leaves, spec)
            for values in elements if length == 1 else _chunks(elements, length):
                yield tf.nest.pack_sequence_as(spec, values)

        if length == 1:
            return tf.data.Dataset.from_generator(structures, output_signature=spec)
        chunk_spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec)
        return tf.data.Dataset.from_generator(structures, output_signature=chunk_spec).unbatch()

    def _leaves(self, leaves: Sequence[tf.TensorSpec], spec: Any) -> Iterator[list[Any]]:
        """The values of each element, converted to their specs."""
        import tensorflow as tf

        form = _form(spec)
        for key, element in self._begun.pop() if self._begun else self._elements(self._workers):
            if _form(element) != form:
                raise SampleError(f"is {_form(element)} where {form} is expected", key=key)
            values = tf.nest.flatten(element)
            yield [as_leaf(value, leaf, key) for value, leaf in zip(values, leaves, strict=True)]

    def _spec(self, types: Any) -> Any:
        """The element spec inferred from the first element, with the given dtypes if there are any.

        What is on its way from a remote bucket by then is not requested again: the first iteration goes on with it.
        """
        import tensorflow as tf

        remote = self._source.abilities().remote
        elements = self._elements(self._workers if remote else 1)
        first = next(elements, None)
        if first is None:
            raise SourceError("has no samples to infer dtypes and shapes from", shard=self._plan.source.bucket)
        if remote:
            self._begun.append(chain([first], elements))
        key, element = first
        leaves = tf.nest.flatten(element)
        fixed = [False] * len(leaves)
        if not callable(self._make):
            fixed = fixed_leaves(self._make, element, entries_of_fixed_size(self._plan.conversion.ops))
        specs = [tensor_spec(value, flag, key) for value, flag in zip(leaves, fixed, strict=True)]
        if types is not None:
            if _form(types) != _form(element):
                raise UsageError(f"output_types are {_form(types)}, but each element is {_form(element)}")
            given = tf.nest.flatten(types)
            specs = [tf.TensorSpec(item.shape, dtype) for item, dtype in zip(specs, given, strict=True)]
        return tf.nest.pack_sequence_as(element, specs)

    def _elements(self, threads: int) -> Iterator[tuple[str, Any]]:
        """Key and element of each sample, in order."""
        shard = {"shard": ""}

        def samples() -> Iterator[Sample]:
            source = copy(self._source)  # what is fetched ahead belongs to this iteration alone
            with source.expecting(self._plan.inputs, threads):
                for item in self._plan.inputs:
                    with Reading(self._plan.conversion, source, item, ahead=True) as reading:
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


def _form(structure: Any) -> str:
    """How a structure is built of its values: `one value`, which also a list of one is, `{a: one value, b: one value}`.

    Two that are not built alike may have as many values, in another order.
    """
    if isinstance(structure, dict):
        return f"{{{', '.join(f'{name}: {_form(structure[name])}' for name in sorted(structure))}}}"
    if isinstance(structure, (list, tuple)):
        return _form(structure[0]) if len(structure) == 1 else f"({', '.join(map(_form, structure))})"
    return "one value"


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
