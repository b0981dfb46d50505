"""Datasets in the manner of the AIS tar2tf client: streams of tensors in memory, or TFRecord on disk.

    ais = Dataset("shards", conversions=[Decode("jpg"), Resize("jpg", (32, 32))], selections=["jpg", "cls"])
    train = ais.load("train-{0..3}.tar", num_workers=4).shuffle(1024).batch(64)
    paths = ais.load("train-{0..3}.tar", path="out/train-{}.record", max_shard_size="100MB")

TensorFlow is imported when a dataset is asked for, not before.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.run import convert, make_plan
from tar2tf_cli.errors import OutputExistsError, SampleError, SourceError, UsageError
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.formats.image.buffers import buffer
from tar2tf_cli.ops import Convert, Decode, Func, Op, Rename, Resize, Select, SelectDict, Selection, SelectList
from tar2tf_cli.ops.base import OpContext, apply_ops
from tar2tf_cli.ops.func import label
from tar2tf_cli.ops.select import to_selection
from tar2tf_cli.samples.grouping import KEY, Sample
from tar2tf_cli.spec.conversion import Conversion, Input, Output

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["AisDataset", "Dataset", "default_record_parser"]

DEFAULT_CONVERSIONS: Final = (Decode("jpg"), Convert("jpg", "float32"), Resize("jpg", (224, 224)))
DEFAULT_SELECTIONS: Final = ("jpg", "cls")

_INTEGER_ENTRIES: Final = frozenset(["cls", "cls2", "class", "count", "index", "inx", "id"])
"""Entries that hold a whole number as text, as webdataset's default decoder has them."""

_AHEAD: Final = 4  # samples per thread that are converted ahead of the one asked for

_CHUNK_BYTES: Final = 8 << 20

_SHUFFLED: Final = 1000  # samples that wait in memory while a shard is shuffled


class Dataset:
    """Shards of a bucket as a dataset.

    Args:
        bucket_name: a directory, or any bucket that `tar2tf convert` reads; a plain name beside a `proxy_url` is an
            AIStore bucket.
        proxy_url: the AIStore endpoint.
        conversions: ops on each sample; decode jpg, float32, 224x224 when left out.
        selections: what each element is made of, a value and a label as a rule; a mapping makes dicts, and names the
            features of TFRecord; jpg and cls when left out.
        remote_exec: whether ops run in the AIStore cluster.
    """

    def __init__(
        self,
        bucket_name: str | os.PathLike[str],
        proxy_url: str | None = None,
        conversions: Sequence[Op] | Op | None = None,
        selections: Sequence[Any] | Mapping[str, Any] | Selection | str | None = None,
        remote_exec: bool | None = None,
    ) -> None:
        self._bucket = _bucket(os.fspath(bucket_name), proxy_url)
        self._endpoint = proxy_url
        self._left_out = conversions is None and selections is None
        self._raw = conversions is None
        given = DEFAULT_CONVERSIONS if conversions is None else conversions
        self._ops = (given,) if isinstance(given, Op) else tuple(given)
        chosen = DEFAULT_SELECTIONS if selections is None else selections
        self._selections = [to_selection(item) for item in (chosen if isinstance(chosen, (list, tuple)) else [chosen])]
        self._remote_exec = remote_exec

    def load(
        self,
        template: str | Sequence[str] = (),
        *,
        output_types: Any = None,
        output_shapes: Any = None,
        num_workers: int = 4,
        path: str | os.PathLike[str] | Callable[[], Iterable[str]] | Iterable[str] | None = None,
        max_shard_size: str | int | None = None,
        record_to_example: Callable[[Sample], Any] | None = None,
        shuffle_tar: bool = False,
        remote_exec: bool | None = None,
    ) -> Any:
        """The shards that a template stands for, as a `tf.data.Dataset`, or as TFRecord files with `path`.

        Args:
            template: names of shards, with bash braces or as a glob; every shard when left out.
            output_types: dtypes of the elements; taken from the first sample when not given.
            output_shapes: shapes of the elements; when not given, height and width as a Resize fixes them, other
                dimensions open, ranks and channels as in the first sample.
            num_workers: samples that are converted at once; with `path`, processes.
            path: where TFRecord goes: a path, a template with `{}` or `<>`, or a generator of paths.
            max_shard_size: most bytes of a shard, such as "100MB"; with `path` only.
            record_to_example: from a sample to a tf.train.Example; with `path` only. Without it, conversions and
                selections, records are as `default_record_parser` reads them.
            shuffle_tar: shuffle the samples of each shard, 1,000 at a time; with `path`, of all shards with each other.
            remote_exec: overrides what the dataset was made with.

        Returns:
            A dataset that streams the shards anew at each iteration; with `path`, the list of the shards' paths.

        Raises:
            UsageError: for arguments that do not go together.
            Tar2tfError: as `convert` does.
        """
        if self._remote_exec if remote_exec is None else remote_exec:
            raise UsageError("remote execution is not available", hint="leave remote_exec out, and ops run here")
        if path is not None:
            path = os.fspath(path) if isinstance(path, os.PathLike) else path
            conversion = self._conversion(template, path, max_shard_size, record_to_example, shuffle_tar)
            return _to_files(conversion, path, num_workers)
        if max_shard_size is not None or record_to_example is not None:
            raise UsageError("max_shard_size and record_to_example are for TFRecord files: give a path, too")
        stream = _Stream(self._conversion(template), self._selections, num_workers, shuffle=shuffle_tar)
        return stream.dataset(output_types, output_shapes)

    def _conversion(
        self,
        template: str | Sequence[str],
        path: Any = None,
        max_shard_size: str | int | None = None,
        record_to_example: Callable[[Sample], Any] | None = None,
        shuffle: bool = False,
    ) -> Conversion:
        templates = (template,) if isinstance(template, str) else tuple(template)
        output = Output(
            path if isinstance(path, str) else _GENERATED,
            max_shard_size,
        )
        source = Input(self._bucket, templates)
        if path is not None and self._left_out:
            preset = None if record_to_example else "image-label"
            return Conversion(source, output, preset=preset, record_to_example=record_to_example, shuffle=shuffle)
        select = None
        if path is not None and record_to_example is None:
            select = _features(self._selections)
        return Conversion(
            source, output, ops=self._ops, select=select, record_to_example=record_to_example, shuffle=shuffle
        )


class AisDataset(Dataset):
    """A bucket of an AIStore cluster, under the names of the first AIS tar2tf client; a directory does as well."""

    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        conversions: Sequence[Op] | Op | None = None,
        selections: Sequence[Any] | None = None,
        remote_exec: bool | None = None,
    ) -> None:
        super().__init__(bucket, proxy_url, conversions, selections, remote_exec)

    def load_from_tar(
        self,
        template: str,
        *,
        path: str | None = None,
        record_to_example: Callable[[Sample], Any] | None = None,
        record_to_pair: Callable[[Sample], Any] | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        **options: Any,
    ) -> Any:
        """A dataset of pairs in memory, or, with `path`, of the records that were written there.

        Args:
            template: names of shards, with bash braces or as a glob.
            path: where TFRecord goes; without it everything stays in memory.
            record_to_example: from a sample to a tf.train.Example; with `path` only.
            record_to_pair: from a sample to a value and a label; in memory only.
            output_types: dtypes of the pair; taken from the first when not given.
            output_shapes: shapes of the pair.
            options: as `load` takes them.

        Returns:
            A `tf.data.Dataset`: of pairs in memory, of serialised examples with `path`.
        """
        if path is not None:
            import tensorflow as tf

            files = self.load(template, path=path, record_to_example=record_to_example, **options)
            return tf.data.TFRecordDataset(files)
        if record_to_pair is None:
            return self.load(template, output_types=output_types, output_shapes=output_shapes, **options)
        conversion = self._conversion(template)
        if self._raw:  # the function is given what the tar holds
            conversion = replace(conversion, ops=())
        stream = _Stream(conversion, record_to_pair, options.get("num_workers", 4))
        return stream.dataset(output_types, output_shapes)


class _Stream:
    """Elements of a dataset: samples read in order, converted by threads, given out in order.

    Args:
        make: the selections an element consists of, or a function from a sample to an element.
    """

    def __init__(
        self,
        conversion: Conversion,
        make: Sequence[Selection] | Callable[[Sample], Any],
        workers: int,
        *,
        shuffle: bool = False,
    ) -> None:
        self._plan = make_plan(conversion)
        self._make = make
        self._workers = max(workers, 1)
        self._shuffle = shuffle
        self._context = OpContext(conversion.seed, conversion.max_pixels)

    def dataset(self, types: Any, shapes: Any) -> tf.data.Dataset:
        """The `tf.data.Dataset`; its element spec is as given, or as the first element looks."""
        import tensorflow as tf

        spec = self._spec(types) if types is None or shapes is None else None
        if shapes is not None:
            spec = _given_spec(types if spec is None else tf.nest.map_structure(lambda leaf: leaf.dtype, spec), shapes)
        leaves = tf.nest.flatten(spec)

        def elements() -> Iterator[Any]:
            for key, element in self._elements():
                values = tf.nest.flatten(element)
                if len(values) != len(leaves):
                    raise SampleError(f"is made of {len(values)} values where {len(leaves)} are expected", key=key)
                yield [_as_leaf(value, leaf, key) for value, leaf in zip(values, leaves, strict=True)]

        def structures() -> Iterator[Any]:
            for values in elements():
                yield tf.nest.pack_sequence_as(spec, values)

        length = _chunk_length(leaves)
        if length == 1:
            return tf.data.Dataset.from_generator(structures, output_signature=spec)

        def chunks() -> Iterator[Any]:
            for chunk in _chunks(elements(), length):
                yield tf.nest.pack_sequence_as(spec, chunk)

        chunk_spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec)
        return tf.data.Dataset.from_generator(chunks, output_signature=chunk_spec).unbatch()

    def _spec(self, types: Any) -> Any:
        """The element spec that the first element suggests, as far as it is not given."""
        import tensorflow as tf

        first = next(self._elements(), None)
        if first is None:
            raise SourceError("holds no samples to take dtypes and shapes from", shard=self._plan.source.bucket)
        key, element = first
        leaves = tf.nest.flatten(element)
        fixed = [False] * len(leaves)
        if not callable(self._make):
            parts = [element] if len(self._make) == 1 else element
            sized = _entries_of_fixed_size(self._plan.conversion.ops)
            fixed = [
                flag for item, part in zip(self._make, parts, strict=True) for flag in _fixed_leaves(item, part, sized)
            ]
        specs = [_tensor_spec(value, flag, key) for value, flag in zip(leaves, fixed, strict=True)]
        if types is not None:
            given = tf.nest.flatten(types)
            specs = [tf.TensorSpec(item.shape, dtype) for item, dtype in zip(specs, given, strict=True)]
        return tf.nest.pack_sequence_as(element, specs)

    def _elements(self) -> Iterator[tuple[str, Any]]:
        """Key and element of each sample, in order; a few samples for each thread are on their way."""
        with ThreadPoolExecutor(self._workers) as threads:
            waiting: deque[Future[list[tuple[str, Any]]]] = deque()
            try:
                for name, sample in self._samples():
                    waiting.append(threads.submit(self._convert, name, sample))
                    if len(waiting) > _AHEAD * self._workers:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _samples(self) -> Iterator[tuple[str, Sample]]:
        plan = self._plan
        for item in plan.inputs:
            with Reading(plan.conversion, plan.source, item) as reading:
                samples = reading.samples()
                for sample in _shuffled(samples) if self._shuffle else samples:
                    yield reading.name, sample

    def _convert(self, name: str, sample: Sample) -> list[tuple[str, Any]]:
        key = sample[KEY]
        try:
            results = apply_ops(sample, self._plan.conversion.ops, self._context)
            return [(key, self._element(result)) for result in results]
        except SampleError as error:
            raise error.at(shard=name, key=key) from error.__cause__

    def _element(self, sample: Sample) -> Any:
        if callable(self._make):
            try:
                return _as_structure(self._make(sample))
            except Exception as error:
                what = f"the function {label(self._make)} raised {type(error).__name__}: {error}"
                raise SampleError(what) from error
        parts = tuple(_picked(item, sample) for item in self._make)
        return parts[0] if len(parts) == 1 else parts


def _chunk_length(leaves: Sequence[tf.TensorSpec]) -> int:
    """How many elements are handed to TensorFlow at once: a call into Python costs as much as copying a megabyte."""
    if not all(leaf.shape.is_fully_defined() for leaf in leaves):
        return 1
    size = sum((leaf.shape.num_elements() or 1) * (leaf.dtype.size or _CHUNK_BYTES // 64) for leaf in leaves)
    return max(1, min(64, _CHUNK_BYTES // max(size, 1)))


def _chunks(elements: Iterator[list[Any]], length: int) -> Iterator[list[Any]]:
    """Elements stacked leaf by leaf; what came before an error is given out before it is raised."""
    import numpy as np

    waiting: list[list[Any]] = []
    error: Exception | None = None
    while error is None:
        try:
            waiting.extend(islice(elements, length))
        except Exception as fault:
            error = fault
        if waiting:
            yield [
                np.array(column, dtype=object) if isinstance(column[0], (bytes, str)) else _stacked(column)
                for column in zip(*waiting, strict=True)
            ]
        if len(waiting) < length and error is None:
            return
        waiting = []
    raise error


def _stacked(arrays: Sequence[Any]) -> Any:
    """Arrays of one shape and dtype as one with a dimension more."""
    import numpy as np

    first = np.asarray(arrays[0])
    return np.stack(arrays, out=buffer((len(arrays), *first.shape), first.dtype.name))


def _shuffled(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Samples in another order, some of which wait in memory."""
    waiting: list[Sample] = []
    for sample in samples:
        waiting.append(sample)
        if len(waiting) == _SHUFFLED:
            yield waiting.pop(random.randrange(_SHUFFLED))
    random.shuffle(waiting)
    yield from waiting


def _entries_of_fixed_size(ops: Sequence[Op]) -> set[str]:
    """Entries whose height and width are the same in all samples: those that a Resize made, and nothing undid."""
    sized: set[str] = set()
    for op in ops:
        if isinstance(op, Resize):
            sized.add(op.ext)
        elif isinstance(op, (Func, Rename)):
            sized.clear()
    return sized


def _fixed_leaves(selection: Selection, value: Any, sized: set[str]) -> list[bool]:
    """For each leaf of a selected value, in the order of tf.nest, whether it is an image of fixed size."""
    import tensorflow as tf

    if isinstance(selection, SelectDict):
        inner = [(selection.selections[name], value[name]) for name in sorted(selection.selections)]
        return [flag for item, part in inner for flag in _fixed_leaves(item, part, sized)]
    if isinstance(selection, SelectList):
        flags = zip(selection.selections, value, strict=True)
        return [flag for item, part in flags for flag in _fixed_leaves(item, part, sized)]
    return [selection.ext_name in sized] * len(tf.nest.flatten(value))


class _Number(bytes):
    """Text of an entry that holds whole numbers, such as `cls`."""

    def fits_int32(self) -> bool:
        """Whether it is a number of 32 bits."""
        try:
            return -(2**31) <= int(self) < 2**31
        except ValueError:
            return False


def _picked(selection: Selection, sample: Sample) -> Any:
    """What is selected of a sample, as tf.nest has it."""
    if isinstance(selection, SelectDict):
        return {name: _picked(item, sample) for name, item in selection.selections.items()}
    if isinstance(selection, SelectList):
        return tuple(_picked(item, sample) for item in selection.selections)
    value = selection.select(sample)
    if isinstance(value, bytes) and selection.ext_name in _INTEGER_ENTRIES:
        return _Number(value)
    return _as_structure(value)


def _as_structure(value: Any) -> Any:
    """Nested selections as tf.nest has them: lists of selections become tuples, lists of numbers arrays."""
    import numpy as np

    if isinstance(value, dict):
        return {name: _as_structure(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_structure(item) for item in value)
    if isinstance(value, list):
        plain = all(isinstance(item, (bool, int, float, str)) for item in value)
        return np.asarray(value) if plain and value else tuple(_as_structure(item) for item in value)
    return value


def _given_spec(types: Any, shapes: Any) -> Any:
    """The element spec that dtypes and shapes of the same structure mean.

    Raises:
        UsageError: when their structures differ.
    """
    import tensorflow as tf

    try:
        if isinstance(types, dict):
            return {name: _given_spec(dtype, shapes[name]) for name, dtype in types.items()}
        if isinstance(types, (list, tuple)):
            return tuple(_given_spec(dtype, shape) for dtype, shape in zip(types, shapes, strict=True))
        return tf.TensorSpec(shapes, types)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"output_shapes {shapes!r} do not fit output_types {types!r}") from None


def _tensor_spec(value: Any, size_is_fixed: bool, key: str) -> tf.TensorSpec:
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
        raise SampleError(f"{value!r} cannot become a tensor", key=key)
    return tf.TensorSpec(shape, natural[type(value)])


def _as_leaf(value: Any, leaf: tf.TensorSpec, key: str) -> Any:
    """A value as the spec of its place demands.

    Raises:
        SampleError: when it is of another shape, or cannot be of the dtype.
    """
    import numpy as np

    typed = _as_dtype(value, leaf.dtype, key)
    shape = np.shape(typed)
    if not leaf.shape.is_compatible_with(shape):
        raise SampleError(f"has a value of shape {list(shape)} where {leaf.shape} is expected", key=key)
    return typed


def _as_dtype(value: Any, dtype: tf.DType, key: str) -> Any:
    """A value as an array of a dtype; bytes where a number is asked for are read as text.

    Raises:
        SampleError: when it cannot be, or its number would change.
    """
    import numpy as np

    if dtype.name == "string":
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
        raise SampleError(f"{value!r} cannot be read as {dtype.name}", key=key) from None
    return typed


_GENERATED: Final = "<00000>"  # the names under which shards wait for those that a generator gives


def _to_files(conversion: Conversion, path: Any, workers: int) -> list[str]:
    """Convert to files; returns their paths in order."""
    if isinstance(path, str):
        summary = convert(conversion, workers=workers)
        folder = os.path.dirname(summary.manifest or "")
        return [os.path.join(folder, shard.path) for shard in summary.shards]
    names = map(os.fspath, path() if callable(path) else path)
    first = next(names, None)
    if first is None:
        raise UsageError("the generator of paths gave none")
    _refuse_existing(first)
    os.makedirs(os.path.dirname(first) or ".", exist_ok=True)
    limit = conversion.output.max_shard_size
    with tempfile.TemporaryDirectory(dir=os.path.dirname(first) or ".", prefix=".tar2tf-") as folder:
        output = Output(os.path.join(folder, _GENERATED if limit else "0"), limit)
        summary = convert(replace(conversion, output=output), workers=workers)
        paths = [first, *islice(names, len(summary.shards) - 1)] if summary.shards else []
        if len(set(paths)) < len(summary.shards):
            raise UsageError(f"the generator gave {len(set(paths))} paths for {len(summary.shards)} shards")
        for name in paths:
            _refuse_existing(name)
        for name, shard in zip(paths, summary.shards, strict=True):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            os.replace(os.path.join(folder, shard.path), name)
    return paths


def _refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise OutputExistsError("is there already", shard=path, hint="remove it, or give another path")


def _bucket(name: str, proxy_url: str | None) -> str:
    """A plain name is a directory where there is one, and otherwise a bucket of the cluster that is named with it."""
    if "://" in name or name == "-" or proxy_url is None or os.path.exists(name):
        return name
    return f"ais://{name}"


def _features(selections: Sequence[Selection]) -> dict[str, Selection]:
    """Features by name: an entry, the key of a dict, or the place in the list."""
    features: dict[str, Selection] = {}
    for position, selection in enumerate(selections):
        named: Mapping[str, Selection] = {str(position): selection}
        if isinstance(selection, Select):
            named = {selection.ext_name: selection}
        elif isinstance(selection, SelectDict):
            named = selection.selections
        for name, item in named.items():
            if name in features:
                raise UsageError(f"two selections would be the feature {name!r}", hint="name them: {'NAME': SELECTION}")
            features[name] = item
    return features


def default_record_parser(record: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Parse a record of the preset image-label: an image, float32 of shape (224, 224, 3), and a label, int32.

    Args:
        record: a serialised example, a scalar string tensor.
    """
    import tensorflow as tf

    parsed = tf.io.parse_single_example(
        record,
        {"image_raw": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)},
    )
    image = tf.io.decode_image(parsed["image_raw"], channels=3, expand_animations=False)
    resized = tf.image.resize(tf.cast(image, tf.float32), (224, 224))
    return tf.ensure_shape(resized, (224, 224, 3)), tf.cast(parsed["label"], tf.int32)
