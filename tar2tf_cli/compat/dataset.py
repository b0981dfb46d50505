"""Datasets with the API of the AIS tar2tf client: streams of tensors in memory, or TFRecord on disk.

    ais = Dataset("shards", conversions=[Decode("jpg"), Resize("jpg", (32, 32))], selections=["jpg", "cls"])
    train = ais.load("train-{0..3}.tar", num_workers=4).shuffle(1024).batch(64)
    paths = ais.load("train-{0..3}.tar", path="out/train-{}.record", max_shard_size="100MB")

TensorFlow is imported only when a dataset is created.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

import numpy as np

from tar2tf_cli.api.op import Op
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KeySplit, Sample
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.conversion.targets import FilesTarget
from tar2tf_cli.engines import cpu_count
from tar2tf_cli.engines.base import keep_memory
from tar2tf_cli.errors import Location, SampleError, SourceError, UsageError, check_tensorflow, count, did_you_mean
from tar2tf_cli.events import Events
from tar2tf_cli.features.decoder import Decoder
from tar2tf_cli.features.feature_map import unnested
from tar2tf_cli.features.presets import label_of
from tar2tf_cli.features.presets.webdataset import INTEGER_ENTRIES
from tar2tf_cli.flow.faults import FaultPolicy
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan, context_of, flow
from tar2tf_cli.flow.transform import Transform
from tar2tf_cli.formats.files import MAX_ENTRY_SIZE, whole_sample
from tar2tf_cli.inputs.report import Notes
from tar2tf_cli.ops import Convert, Decode, Func, Rename, Resize, Select, SelectDict, Selection, SelectList
from tar2tf_cli.ops.base import IMAGE_ENTRIES
from tar2tf_cli.ops.select import flatten, to_selection
from tar2tf_cli.ops.user_code import called
from tar2tf_cli.remote import cluster_samples
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.templates import STDOUT

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import TypedDict, Unpack

    class _DatasetOptions(TypedDict, total=False):
        """Arguments of `Dataset.load` for both datasets in memory and files."""

        num_workers: int | None
        max_entry_size: str | int
        shuffle_tar: bool
        remote_exec: bool | None
        on_error: OnError
        seed: int


DEFAULT_CONVERSIONS: Final = (Decode("jpg"), Convert("jpg", "float32"), Resize("jpg", (224, 224)))
DEFAULT_SELECTIONS: Final = ("jpg", "cls")

_IN_MEMORY: Final = Output(STDOUT)
_NO_LIMIT: Final = 1 << 62  # bytes; otherwise a numbered path has a limit
_WORKERS: Final = 4
_OPTIONS: Final = ("num_workers", "max_entry_size", "shuffle_tar", "remote_exec", "on_error", "seed")

Names: TypeAlias = "str | os.PathLike[str] | Callable[[], Iterable[str]] | Iterable[str]"
"""Output path of TFRecords: a path or template, or a generator of paths; "" for a dataset in memory."""

ToExample: TypeAlias = "Callable[[Sample], Any] | None"

OnError: TypeAlias = Literal["fail", "skip"]
"""Whether a faulty sample is an error, or is skipped and counted."""


class Dataset:
    """The shards of a bucket as a dataset.

    Args:
        bucket_name: a directory, or any bucket that `tar2tf convert` reads; with a `proxy_url`, a name means an
            AIStore bucket, even if there is a folder of the same name.
        proxy_url: the AIStore endpoint; overrides `AIS_ENDPOINT`.
        conversions: ops applied to each sample; by default, jpg is decoded to float32 and resized to 224x224.
        selections: the parts of each element, usually a value and a label; defaults to jpg and cls. With a mapping,
            elements are dicts, and its keys are the names of the TFRecord features.
        remote_exec: whether the AIStore cluster that stores the shards applies the conversions and, for TFRecord files,
            makes the records. If it cannot, a warning says why, and this process does it. By default, the cluster does
            so if it runs a transformer for exactly this spec and the results are not larger than the stored shards. A
            note says what does the work, and why.
        key_split: whether the name of a member is split into key and extension at its first or last dot. At the first
            dot, extensions are lower-cased, also in conversions and selections such as `Decode("JPEG")`.

    >>> images = Dataset("shards", conversions=[Decode("jpg", channels=3)], selections=["jpg", "cls"])
    >>> [(image.shape[2], int(label)) for image, label in images.load("photos-0.tar").take(2)]
    [(3, 0), (3, 1)]
    """

    def __init__(
        self,
        bucket_name: str | os.PathLike[str],
        proxy_url: str | None = None,
        conversions: Sequence[Op] | Op | None = None,
        selections: Sequence[object] | Mapping[str, object] | Selection | str | None = None,
        remote_exec: bool | None = None,
        *,
        key_split: KeySplit = "first",
    ) -> None:
        self._bucket = _bucket(bucket_name, proxy_url)
        self._key_split = key_split
        self._open: list[contextlib.ExitStack] = []
        self._endpoint = proxy_url or None
        self._left_out = conversions is None and selections is None
        self._raw = conversions is None
        given = DEFAULT_CONVERSIONS if conversions is None else conversions
        self._ops = (given,) if isinstance(given, Op) else tuple(given)
        chosen = DEFAULT_SELECTIONS if selections is None else selections
        self._selections = [to_selection(item) for item in (chosen if isinstance(chosen, (list, tuple)) else [chosen])]
        if key_split == "first":
            self._ops = tuple(map(_op_in_lower_case, self._ops))
            self._selections = [_in_lower_case(item) for item in self._selections]
        self._remote_exec = remote_exec

    @overload
    def load(
        self,
        template: str | Sequence[str] = ...,
        path: None = ...,
        record_to_example: None = ...,
        *,
        output_types: object = ...,
        output_shapes: object = ...,
        **options: Unpack[_DatasetOptions],
    ) -> tf.data.Dataset[Any]: ...

    @overload
    def load(
        self,
        template: str | Sequence[str],
        path: Names,
        record_to_example: ToExample = ...,
        *,
        max_shard_size: str | int | None = ...,
        overwrite: bool = ...,
        update: bool = ...,
        **options: Unpack[_DatasetOptions],
    ) -> list[str]: ...

    def load(
        self,
        template: str | Sequence[str] = (),
        path: Names | None = None,
        record_to_example: ToExample = None,
        *,
        output_types: object = None,
        output_shapes: object = None,
        max_shard_size: str | int | None = None,
        overwrite: bool = False,
        update: bool = False,
        **options: Unpack[_DatasetOptions],
    ) -> tf.data.Dataset[Any] | list[str]:
        """Load the shards that match a template, as a `tf.data.Dataset` or, with `path`, as TFRecord files.

        Args:
            template: names of shards, with bash braces or a glob; defaults to every shard.
            path: the path of the TFRecord files: a path, a template with `{}` or `<>`, or a generator of paths; None or
                "" for a dataset in memory. A manifest is written next to the files; for a generator, it is named after
                the first of them: `_FIRST-manifest.json`.
            record_to_example: a function from a sample to a tf.train.Example; with `path` only. Without it, and
                without conversions and selections, records have the format that `default_record_parser` parses.
            output_types: dtypes of the elements; by default taken from the first sample. Without `path` only.
            output_shapes: shapes of the elements; by default the ranks and channels of the first sample, the height
                and width that a Resize fixes, and None for other dimensions. Without `path` only.
            max_shard_size: maximum size of a shard, such as "100MB"; with `path` only. By default, or with 0, there is
                no limit.
            overwrite: replace files that another conversion wrote; with `path` only.
            update: bring the output up to date if shards were added, removed or changed, as `convert` does; with a
                `path` that is text only.
            num_workers: number of samples converted at once, 4 by default; with `path`, number of worker processes.
                None for as many as there are CPUs.
            max_entry_size: size above which an entry is not held in memory as a whole, such as "1GiB"; a sample that
                needs it is faulty.
            shuffle_tar: shuffle the samples of each shard, 1,000 at a time; with `path`, across all shards.
            remote_exec: overrides the argument of the same name given to the class.
            on_error: "fail" raises the error of the first faulty sample, which is the default; "skip" skips such
                samples, and logs how many there were.
            seed: random seed of ops, such as a random Rotate, and of shuffling; 0 by default. A dataset in memory
                draws other numbers at each iteration.

        Returns:
            A dataset that reads the shards again at each iteration; with `path`, the list of the shards' paths.

        Raises:
            UsageError: for arguments that contradict each other, or that are not used.
            Tar2tfError: as raised by `convert`.
        """
        _check_names(options)
        for_files = {"max_shard_size": max_shard_size, "overwrite": overwrite, "update": update}
        if path is None or path == "":
            _refuse({**for_files, "record_to_example": record_to_example}, "TFRecord files: also give a path")
            make = self._selections[0] if len(self._selections) == 1 else SelectList(*self._selections)
            return self._stream(template, make, self._ops, **options).dataset(output_types, output_shapes)
        _refuse({"output_types": output_types, "output_shapes": output_shapes}, "datasets in memory, without a path")
        return self._save(
            template, path, record_to_example, options, max_shard_size, overwrite=overwrite, update=update
        )

    def _save(
        self,
        template: str | Sequence[str],
        path: Names,
        record_to_example: ToExample,
        options: _DatasetOptions,
        max_shard_size: str | int | None,
        *,
        overwrite: bool,
        update: bool,
    ) -> list[str]:
        """Write TFRecord files; return their paths."""
        target = None
        if isinstance(path, (str, os.PathLike)):
            output = Output(os.fspath(path), max_shard_size or None, to="tfrecord")
            if output.limit and not max_shard_size:
                output = replace(output, max_shard_size=_NO_LIMIT)
        else:
            names = path() if callable(path) else path
            target = FilesTarget(map(os.fspath, names), overwrite=overwrite, listed=True)
            placeholder = "<00000>" if max_shard_size else "0"  # for these names
            output = Output(placeholder, max_shard_size or None, to="tfrecord")
        conversion = self._conversion(template, output, **options)
        done = convert(
            self._to_records(replace(conversion, shuffle=options.get("shuffle_tar", False)), record_to_example),
            workers=options.get("num_workers", _WORKERS) or None,
            overwrite=overwrite,
            update=update,
            apart=True,
            endpoint=self._endpoint,
            target=target,
        )
        folder = "" if target else os.path.dirname(done.manifest or "")
        return [os.path.join(folder, shard.path) for shard in done.shards]

    def stop(self) -> None:
        """Delete the cluster's transformers of datasets in memory, which can then no longer be read."""
        while self._open:
            self._open.pop().close()

    def _stream(
        self,
        template: str | Sequence[str],
        make: Selection | Callable[[Sample], object],
        ops: tuple[Op, ...],
        **options: Unpack[_DatasetOptions],
    ) -> _ElementStream:
        """Return the elements of a dataset, for each of which `make` is called with a sample after the ops.

        A transformer made for the dataset is deleted by `stop`, or when Python ends: TensorFlow keeps all generators
        until then.
        """
        conversion = replace(self._conversion(template, _IN_MEMORY, **options), ops=ops)
        plan = make_plan(conversion, endpoint=self._endpoint)
        wanted = None
        if not callable(make):
            wanted = {plain.ext_name: plain.ext_name for plain in flatten({"": make}).values()}
        until_the_end = contextlib.ExitStack()
        atexit.register(until_the_end.close)
        self._open.append(until_the_end)
        work = replace(plan.work, select=wanted)
        read = cluster_samples(work, plan.source, plan.inputs, Events())
        source, shuffle = until_the_end.enter_context(read), options.get("shuffle_tar", False)
        return _ElementStream(
            plan, make, options.get("num_workers", _WORKERS) or cpu_count(), source=source, shuffle=shuffle
        )

    def _conversion(
        self, template: str | Sequence[str], output: Output, **options: Unpack[_DatasetOptions]
    ) -> Conversion:
        """Return the conversion that the options describe."""
        templates = (template,) if isinstance(template, str) else tuple(template)
        remotely = options.get("remote_exec")
        return Conversion(
            Input(self._bucket, templates, self._key_split),
            output,
            ops=self._ops,
            seed=options.get("seed", 0),
            on_error=options.get("on_error", "fail"),
            max_entry_size=options.get("max_entry_size", MAX_ENTRY_SIZE),
            remote_exec=self._remote_exec if remotely is None else remotely,
        )

    def _to_records(self, conversion: Conversion, record_to_example: ToExample) -> Conversion:
        """Return the conversion with a function, the selections or a preset that turns samples into examples."""
        ops = () if self._left_out else self._ops
        if record_to_example:
            return replace(conversion, ops=ops, record_to_example=record_to_example)
        if self._left_out:
            return replace(conversion, ops=ops, preset="image-label")
        return replace(conversion, select=_features(self._selections))


class AisDataset(Dataset):
    """A `Dataset` with the method names of the first AIS tar2tf client.

    >>> len(list(AisDataset("shards", conversions=[], selections=["cls"]).load("photos-0.tar")))
    6
    """

    def load_from_tar(
        self,
        template: str | Sequence[str],
        path: Names | None = None,
        record_to_example: ToExample = None,
        record_to_pair: Callable[[Sample], object] | None = None,
        *,
        output_types: object = None,
        output_shapes: object = None,
        max_shard_size: str | int | None = None,
        overwrite: bool = False,
        update: bool = False,
        **options: Unpack[_DatasetOptions],
    ) -> tf.data.Dataset[Any]:
        """Return a dataset of pairs in memory or, with `path`, of the records that are written there.

        Args:
            template: names of shards, with bash braces or a glob.
            path: the path of the TFRecord files, as for `load`; by default nothing is written, and the pairs are in
                memory.
            record_to_example: a function from a sample to a tf.train.Example; with `path` only.
            record_to_pair: a function from a sample to a value and a label; without `path` only. In the sample,
                `cls` and other entries that hold a number are one; text that is not a number stays bytes.
            output_types: dtypes of the pair; by default taken from the first pair. Without `path` only.
            output_shapes: shapes of the pair; without `path` only.
            max_shard_size: as for `load`; like `overwrite` and `update`, with `path` only.
            options: other arguments of `load`.

        Returns:
            A `tf.data.Dataset` of pairs or, with `path`, of serialised examples.

        Raises:
            UsageError: for arguments that contradict each other, or that are not used.
        """
        check_tensorflow("load_from_tar")
        _check_names(options, "load_from_tar")
        for_files = {"max_shard_size": max_shard_size, "overwrite": overwrite, "update": update}
        for_pairs = {"output_types": output_types, "output_shapes": output_shapes}
        if path is not None and path != "":
            import tensorflow as tf

            _refuse({"record_to_pair": record_to_pair, **for_pairs}, "datasets in memory, without a path")
            how = (options, max_shard_size)
            paths = self._save(template, path, record_to_example, *how, overwrite=overwrite, update=update)
            return tf.data.TFRecordDataset(paths)
        _refuse({**for_files, "record_to_example": record_to_example}, "TFRecord files: also give a path")
        if record_to_pair is None:
            return self.load(template, output_types=output_types, output_shapes=output_shapes, **options)
        ops = () if self._raw else self._ops  # without conversions, the function gets the sample unchanged from the tar
        stream = self._stream(template, partial(_pair, record_to_pair), ops, **options)
        return stream.dataset(output_types, output_shapes)


def _refuse(given: Mapping[str, object], what_for: str) -> None:
    """Raise an error for arguments that would not be used.

    Raises:
        UsageError: when any of them has a value.
    """
    if names := [
        name for name, value in given.items() if value is not None and not (isinstance(value, int) and not value)
    ]:
        raise UsageError(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} only for {what_for}")


def _check_names(options: Mapping[str, object], method: str = "load") -> None:
    """Raise an error for unknown keyword arguments, as Python does."""
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{did_you_mean(name, _OPTIONS)}")


def _bucket(name: str | os.PathLike[str], proxy_url: str | None) -> str:
    """Return the bucket for a name: with a `proxy_url`, an AIStore bucket, unless the name is a URL or clearly a path.

    Without one, a name that is not a local path is a bucket of the cluster that AIS_ENDPOINT names.
    """
    path = os.fspath(name)
    is_path = path != name or path.startswith(("/", "./", "../", "-"))
    cluster = proxy_url or (os.environ.get("AIS_ENDPOINT") and "/" not in path and not os.path.lexists(path))
    return path if not cluster or is_path or "://" in path else f"ais://{path}"


def _op_in_lower_case(op: Op) -> Op:
    """Return an op with entry names in lower case, as samples have them under the rule `first`."""
    if isinstance(op, Rename):
        return Rename({name.lower(): [item.lower() for item in sources] for name, sources in op.renames.items()})
    return replace(op, ext=op.ext.lower()) if is_dataclass(op) and hasattr(op, "ext") else op


def _in_lower_case(selection: Selection) -> Selection:
    if isinstance(selection, SelectList):
        return SelectList(*map(_in_lower_case, selection.selections))
    if isinstance(selection, SelectDict):
        return SelectDict({name: _in_lower_case(item) for name, item in selection.selections.items()})
    selection = copy(selection)
    selection.ext_name = selection.ext_name.lower()
    return selection


def _pair(record_to_pair: Callable[[Sample], object], sample: Sample) -> object:
    """Call a function with a sample in which `cls` and other entries that hold an integer are integers."""
    texts = {name: value for name, value in sample.items() if name in INTEGER_ENTRIES and isinstance(value, bytes)}
    numbers = {name: number for name, text in texts.items() if (number := _IntegerText(text).value()) is not None}
    return called(record_to_pair, {**sample, **numbers})


def _features(selections: Sequence[Selection]) -> dict[str, Selection]:
    """Return selections by feature name: the entry's name, the key in a dict, or the position in the list."""
    features: dict[str, Selection] = {}
    for position, selection in enumerate(selections):
        named: Mapping[str, Selection] = {str(position): selection}
        if isinstance(selection, Select):
            named = {selection.ext_name: selection}
        elif isinstance(selection, SelectDict):
            named = selection.selections
        for name, item in named.items():
            if name in features:
                raise UsageError(f"two selections have the name {name!r}", hint="name them: {'NAME': SELECTION}")
            features[name] = item
    return features


def default_record_parser(record: object) -> tuple[tf.Tensor, tf.Tensor]:
    """Parse a record that `load` wrote with a path into an image (float32, shape (224, 224, 3)) and a label (int32).

    Without conversions and selections, it is a record of the preset image-label. With them, the image is the first of
    `image`, `jpg`, `jpeg`, `png` and `bmp`, encoded or as the conversions made it, and the label the first of `label`,
    `cls` and `class`, a number or its text.

    Args:
        record: a serialised example, a scalar string tensor.

    >>> paths = Dataset("shards").load("photos-0.tar", path="seed.record")
    >>> image, label = default_record_parser(next(iter(tf.data.TFRecordDataset(paths))))
    >>> image.shape, label.dtype
    (TensorShape([224, 224, 3]), tf.int32)
    """
    check_tensorflow("default_record_parser")
    import tensorflow as tf

    description = {"image_raw": tf.io.FixedLenFeature([], tf.string, "")}
    raw = tf.io.parse_single_example(record, description)["image_raw"]

    def encoded() -> tuple[tf.Tensor, tf.Tensor]:
        label = tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
        image = tf.io.decode_image(raw, channels=3, expand_animations=False)
        return tf.cast(image, tf.float32), tf.cast(label, tf.int32)

    def converted() -> tuple[tf.Tensor, tf.Tensor]:
        image, label = tf.py_function(_converted, [record], [tf.float32, tf.int32])
        return tf.ensure_shape(image, (None, None, 3)), tf.ensure_shape(label, ())

    image, label = tf.cond(tf.strings.length(raw) > 0, encoded, converted)
    return tf.ensure_shape(tf.image.resize(image, (224, 224)), (224, 224, 3)), label


def _converted(record: Any) -> tuple[Any, Any]:
    """Parse image and label of a record made with conversions."""
    from tar2tf_cli.formats.image import codecs

    values = Decoder()(record.numpy())
    name = next((name for name in IMAGE_ENTRIES if name in values), None)
    if name is None:
        raise SampleError(f"has none of the features image_raw, {', '.join(IMAGE_ENTRIES)}")
    value, shape = values[name], values.get(f"{name}/shape")
    if isinstance(value, bytes):
        value = codecs.decode(value, 3) if shape is None else np.frombuffer(value, np.uint8)
    pixels = np.asarray(value if shape is None else value.reshape(shape), np.float32)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3)), np.int32(label_of(values))


# --- Samples in memory as tensors ---


def _entries_of_fixed_size(ops: Sequence[Op]) -> set[str]:
    """Return the entries whose height and width are equal in all samples: resized, and not changed by a later op."""
    sized: set[str] = set()
    for op in ops:
        if isinstance(op, Resize):
            sized.add(op.ext)
        elif isinstance(op, (Func, Rename)):
            sized.clear()
    return sized


def _fixed_leaves(selection: Selection, value: Any, sized: set[str]) -> list[bool]:
    """Return for each leaf of a selected value, in tf.nest order, whether it is an image of fixed size."""
    import tensorflow as tf

    if isinstance(selection, Select):
        return [selection.ext_name in sized] * len(tf.nest.flatten(value))
    parts = sorted(selection.parts(), key=itemgetter(0))
    return [flag for key, part in parts for flag in _fixed_leaves(part, value[key], sized)]


class _IntegerText(bytes):
    """The text of an entry with an integer, such as `cls`."""

    def value(self) -> int | None:
        """The integer in the text; None for other text."""
        try:
            return int(self)
        except ValueError:
            return None


def _picked(selection: Selection, sample: Sample) -> object:
    """Return the values selected from a sample as a tf.nest structure."""
    if isinstance(selection, SelectDict):
        return {name: _picked(item, sample) for name, item in selection.selections.items()}
    if isinstance(selection, SelectList):
        return tuple(_picked(item, sample) for item in selection.selections)
    value = selection.select(sample)
    if isinstance(value, bytes) and selection.ext_name in INTEGER_ENTRIES:
        return _IntegerText(value)
    return _as_structure(value)


def _as_structure(value: object) -> object:
    """Convert nested values to a tf.nest structure: lists of selections to tuples, other lists to arrays."""
    if isinstance(value, dict):
        return {name: _as_structure(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_structure(item) for item in value)
    if isinstance(value, list):
        try:
            flat, shape = unnested(value)
        except ValueError:  # lists of different lengths are not an array
            flat, shape = (), ()
        if flat and all(isinstance(item, (bool, int, float, str)) for item in flat):
            return np.asarray(flat).reshape(shape)
        if flat and all(isinstance(item, bytes) for item in flat):
            return np.array(flat, object).reshape(shape)  # as NumPy texts, they would lose trailing zeros
        return tuple(_as_structure(item) for item in value)
    return value


def _given_spec(types: Any, shapes: Any) -> Any:
    """Return the element spec for dtypes and shapes.

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
    """Infer a spec from a value: for images, the channels, and height and width if the size is fixed.

    Raises:
        SampleError: when the value cannot be converted to a tensor.
    """
    import tensorflow as tf

    if isinstance(value, (bytes, str)):
        number = value.value() if isinstance(value, _IntegerText) else None
        return tf.TensorSpec([], tf.int32 if number is not None and -(2**31) <= number < 2**31 else tf.string)
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


def _as_leaf(value: object, leaf: tf.TensorSpec, key: str) -> object:
    """Convert a value to a spec.

    Raises:
        SampleError: when the value has another shape, or cannot be converted to the dtype.
    """
    typed = _as_dtype(value, leaf.dtype, key)
    shape = np.shape(typed)
    if not leaf.shape.is_compatible_with(shape):
        gray = len(shape) == leaf.shape.rank == 3 and shape[2] != leaf.shape[2]
        hint = "decode all images to the same number of channels, such as Decode('jpg', channels=3)" if gray else None
        raise SampleError(f"has a value of shape {list(shape)} where {leaf.shape} is expected", key=key, hint=hint)
    return typed


def _as_dtype(value: object, dtype: tf.DType, key: str) -> Any:
    """Convert a value to an array of a dtype; for a numeric dtype, bytes are parsed as text.

    Raises:
        SampleError: when the value cannot be converted, or an integer would change.
    """
    if dtype.name == "string":
        if isinstance(value, _IntegerText):
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


def _as_leaves(element: object, leaves: Sequence[tf.TensorSpec], form: str, key: str) -> list[object]:
    """Return the values of an element, converted to their specs.

    Raises:
        SampleError: when its structure differs from the first element's, or a value cannot be converted.
    """
    import tensorflow as tf

    if _form(element) != form:
        raise SampleError(f"is {_form(element)} where {form} is expected", key=key)
    values = tf.nest.flatten(element)
    return [_as_leaf(value, leaf, key) for value, leaf in zip(values, leaves, strict=True)]


_Noted: TypeAlias = list[dict[str, Any]]
"""Errors of skipped samples, as in reports."""

_CHUNK: Final = 4  # samples passed to a thread at once; few, as the results are large and wait in memory
_CHUNK_BYTES: Final = 8 << 20
_SHUFFLED: Final = 1000  # size of the shuffle buffer in samples


class _ElementStream:
    """The elements of a dataset in memory; each iteration reads the shards again.

    Args:
        plan: contains the inputs and the ops.
        make: the selection that makes an element, or a function from a sample to an element.
        workers: number of samples converted at once, and of inputs of a remote bucket fetched at once.
        shuffle: whether the samples of each shard are shuffled, 1,000 at a time.
        source: lists and opens the inputs; if it differs from the plan's source, the ops were already applied to its
            samples.
    """

    def __init__(
        self,
        plan: Plan,
        make: Selection | Callable[[Sample], object],
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
        ops = plan.conversion.sample_ops if source is plan.source else ()
        self._transform = Transform(context_of(plan.conversion), ops, self._element)
        self._begun: list[tuple[Iterator[tuple[str, Any]], _Noted]] = []
        self._iterations = 0

    def dataset(self, types: object, shapes: object) -> tf.data.Dataset[Any]:
        """Return the `tf.data.Dataset`; its element spec is given, or inferred from the first element."""
        check_tensorflow("Dataset in memory")
        import tensorflow as tf

        keep_memory(of_threads=True)
        spec = self._spec(types) if types is None or shapes is None else None
        if shapes is not None:
            spec = _given_spec(types if spec is None else tf.nest.map_structure(lambda leaf: leaf.dtype, spec), shapes)
        leaves = tf.nest.flatten(spec)
        length = _chunk_length(leaves)

        def structures() -> Iterator[object]:
            elements = self._leaves(leaves, spec)
            for values in elements if length == 1 else _chunks(elements, length):
                yield tf.nest.pack_sequence_as(spec, values)

        if length == 1:
            return tf.data.Dataset.from_generator(structures, output_signature=spec)
        chunk_spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec)
        return tf.data.Dataset.from_generator(structures, output_signature=chunk_spec).unbatch()

    def _leaves(self, leaves: Sequence[tf.TensorSpec], spec: object) -> Iterator[list[object]]:
        """Iterate once over the values of each element, converted to their specs."""
        iteration, self._iterations = self._iterations, self._iterations + 1
        noted: _Noted = []
        if self._begun:
            elements, noted = self._begun.pop()
        else:
            elements = self._elements(self._workers, noted, iteration)
        faults, form = self._faults(noted), _form(spec)
        for key, element in elements:
            try:
                values = _as_leaves(element, leaves, form, key)
            except SampleError as error:
                faults(error)
            else:
                yield values
        if noted:
            first = ": ".join(str(noted[0][name]) for name in ("shard", "key", "message") if noted[0][name])
            self._notes.once("faulty", f"note: {count(len(noted), 'sample')} skipped, first: {first}")

    def _faults(self, noted: _Noted) -> FaultPolicy:
        """Return the policy for faulty samples: raise an error, or record and skip them."""
        return FaultPolicy(skip=self._plan.conversion.on_error == "skip", noted=noted, option="--on-error skip")

    def _spec(self, types: object) -> Any:
        """Infer the element spec from the first element, with the given dtypes, if any.

        Running requests to a remote bucket are not repeated: the first iteration continues them.
        """
        import tensorflow as tf

        remote = self._source.capabilities.remote
        noted: _Noted = []
        elements = self._elements(self._workers if remote else 1, noted)
        first = next(elements, None)
        if first is None:
            raise SourceError("has no samples to infer dtypes and shapes from", shard=self._plan.source.bucket)
        if remote:
            self._begun.append((chain([first], elements), noted))
        key, element = first
        leaves = tf.nest.flatten(element)
        fixed = [False] * len(leaves)
        if not callable(self._make):
            fixed = _fixed_leaves(self._make, element, _entries_of_fixed_size(self._plan.conversion.ops))
        specs = [_tensor_spec(value, flag, key) for value, flag in zip(leaves, fixed, strict=True)]
        if types is not None:
            if _form(types) != _form(element):
                raise UsageError(f"output_types are {_form(types)}, but each element is {_form(element)}")
            given = tf.nest.flatten(types)
            specs = [tf.TensorSpec(item.shape, dtype) for item, dtype in zip(specs, given, strict=True)]
        return tf.nest.pack_sequence_as(element, specs)

    def _elements(self, threads: int, noted: _Noted, iteration: int = 0) -> Iterator[tuple[str, object]]:
        """Iterate over key and element of each sample, in order; skipped samples are recorded in `noted`."""
        shard: Location = {"shard": ""}
        context = self._transform.context
        seed = zlib.crc32(f"{context.seed} {iteration}".encode()) if iteration else context.seed

        def samples() -> Iterator[Sample]:
            source = copy(self._source)  # inputs fetched ahead belong to this iteration alone
            shards = self._plan.shards
            plan = ReadPlan.of(self._plan.conversion, source, self._plan.joins, shards.described, shards.stems)
            with source.prefetch(self._plan.inputs, threads):
                for item in self._plan.inputs:
                    with InputFlow(plan, item, ReadOptions(ahead=True)) as reading:
                        shard["shard"] = reading.name
                        found = reading.samples()
                        yield from _shuffled(found, random.Random(f"{seed} {reading.name}")) if self._shuffle else found
                    self._notes.add(reading.name, reading.report)
                    noted.extend(reading.report.errors)

        return flow(
            samples(),
            replace(self._transform, context=context._replace(seed=seed)),
            self._faults(noted),
            where=shard.copy,
            finish=lambda key, element: (key, element),
            threads=threads,
            chunk=_CHUNK,
        )

    def _element(self, sample: Sample) -> object:
        sample = whole_sample(sample)
        return _as_structure(called(self._make, sample)) if callable(self._make) else _picked(self._make, sample)


def _form(structure: object) -> str:
    """Describe the form of a structure: `one value` (also for a list of one), `{a: one value, b: one value}`.

    Structures of different forms may have equally many values, in another order.
    """
    if isinstance(structure, dict):
        return f"{{{', '.join(f'{name}: {_form(structure[name])}' for name in sorted(structure))}}}"
    if isinstance(structure, (list, tuple)):
        return _form(structure[0]) if len(structure) == 1 else f"({', '.join(map(_form, structure))})"
    return "one value"


def _chunk_length(leaves: Sequence[tf.TensorSpec]) -> int:
    """Return how many elements to pass to TensorFlow at once: a call into Python costs as much as copying 1 MB."""
    if not all(leaf.shape.is_fully_defined() for leaf in leaves):
        return 1
    size = sum((leaf.shape.num_elements() or 1) * (leaf.dtype.size or _CHUNK_BYTES // 64) for leaf in leaves)
    return max(1, min(64, _CHUNK_BYTES // max(size, 1)))


def _chunks(elements: Iterator[list[object]], length: int) -> Iterator[list[object]]:
    """Yield chunks of elements, stacked leaf by leaf; elements read before an error are yielded before it is raised."""
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


def _shuffled(samples: Iterator[Sample], rng: random.Random) -> Iterator[Sample]:
    """Iterate over samples in random order, shuffled with a buffer."""
    waiting: list[Sample] = []
    for sample in samples:
        waiting.append(sample)
        if len(waiting) == _SHUFFLED:
            yield waiting.pop(rng.randrange(_SHUFFLED))
    rng.shuffle(waiting)
    yield from waiting
