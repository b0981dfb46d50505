"""Loads the output of a conversion as a `tf.data.Dataset`, from a folder or a bucket, and parses it with tf.io.

The manifest says what features there are; features/decoder.py reads them without TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from tar2tf_cli.datasets.shards import Paths, listed, paths_in, read_manifests, together
from tar2tf_cli.errors import SourceError, UsageError, check_tensorflow
from tar2tf_cli.features.described import check_features, is_optional, is_shape_of_array
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Unpack

    from tar2tf_cli.inputs.manifest import Document, ShardEntry
    from tar2tf_cli.spec.urls import ConnectionOptions

    class _Loading(ConnectionOptions, total=False):
        """Arguments of `load_dataset` that do not change the type of what it returns."""

        split: str | None
        shuffle: int | None
        seed: int | None
        shard: tuple[int, int] | None
        batch: int | None
        pad: bool


AnyDataset: TypeAlias = "tf.data.Dataset[Any]"

Reader: TypeAlias = "Callable[[tf.Tensor], AnyDataset]"
"""Makes a dataset of the serialised examples in the shards with these names, one after the other."""

_AT_ONCE: Final = 16
_PIECE: Final = 1 << 20  # bytes of records that are given to TensorFlow at once
_MOST_TOGETHER: Final = 256  # such records

_BATCHING: Final = "load them with ragged=True or pad=True"


@overload
def load_dataset(
    manifest: Paths, *more: str | os.PathLike[str], ragged: Literal[False] = ..., **options: Unpack[_Loading]
) -> tf.data.Dataset[dict[str, tf.Tensor]]: ...


@overload
def load_dataset(
    manifest: Paths, *more: str | os.PathLike[str], ragged: bool, **options: Unpack[_Loading]
) -> tf.data.Dataset[dict[str, tf.Tensor | tf.RaggedTensor]]: ...


def load_dataset(
    manifest: Paths,
    *more: str | os.PathLike[str],
    split: str | None = None,
    shuffle: int | None = None,
    seed: int | None = None,
    shard: tuple[int, int] | None = None,
    batch: int | None = None,
    ragged: bool = False,
    pad: bool = False,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> AnyDataset:
    """The parsed examples of a conversion, as dicts of tensors by feature name, in the order they were written.

    Dtypes and shapes are those in the manifest. Arrays of different sizes keep their shapes, and a feature that an
    example lacks is an empty tensor. Where values of one batch differ in shape, TensorFlow raises an error that names
    the feature, unless `ragged` or `pad`. From a bucket, examples are streamed again in each epoch, several shards at
    once, every CRC is checked, and no file is kept. The cardinality is known; if the shards hold a different number of
    records, TensorFlow raises an error. For local shards, `tf.train.Checkpoint(iterator=iter(dataset))` saves how far
    they are read.

    Args:
        manifest: the path or URL of a manifest, of the folder that holds it, or a template such as
            `"out/part*-manifest.json"`; or a list of these, which together form one dataset, for example if several
            machines converted a part each. For a shard, or a template of shards, the manifest in its folder is used.
        more: further manifests.
        split: load only the shards of this split.
        shuffle: number of examples in the buffer from which the next one is drawn; shards are then read in random
            order, 16 at once. By default, nothing is shuffled.
        seed: makes shuffling the same in each run; each epoch still has its own order.
        shard: `(hosts, host)`: load one of several equal parts, counted from 0, such as that of one host. If there are
            at least as many shards as parts, each part consists of whole shards; otherwise each host reads all shards
            and keeps every n-th example of n hosts.
        batch: number of examples in a batch; batches are fetched ahead, and the last one may be smaller.
        ragged: with `batch`, features whose values differ in shape become a `tf.RaggedTensor`.
        pad: with `batch`, such values are padded at the end of each dimension to the largest of the batch, with zeros,
            false or empty bytes.
        endpoint: URL of the store that holds the bucket.
        retry_for: how many seconds to retry failed requests without progress; by default TAR2TF_RETRY_FOR, else 60.
        no_sign_request: read a public cloud bucket without credentials.

    Raises:
        SourceError: when there is nothing at a path.
        UsageError: when shards have no manifest, there is no such split, a number is impossible, `ragged` or `pad` has
            no `batch`, manifests differ in the kind of a feature, or TensorFlow is not installed.

    >>> train = load_dataset("out/train-manifest.json", shuffle=100, seed=1, batch=8)
    >>> next(iter(train))["cls"].shape
    TensorShape([8])
    """
    check_tensorflow("load_dataset")
    hosts, host = _checked(shuffle, batch, shard)
    _check_batching(batch, ragged=ragged, pad=pad)
    reach: ConnectionOptions = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    read = read_manifests(paths_in(manifest, more), beside=True, **reach)
    for document in read:
        document.check_records()
    features, total = together(read)
    shards = listed(read, split)
    by_record = len(shards) < hosts
    if not by_record:
        shards = shards[host::hosts]
    count = sum(entry.records for _, entry in shards)
    names = [os.path.join(os.path.dirname(one.path), entry.path) for one, entry in shards]
    import tensorflow as tf

    methods: set[Any] = {"GZIP" if one.manifest.compressed else "" for one in read}
    if len(methods) > 1 or any(one.folder.capabilities().remote for one in read):
        reader = _any_reader(dict(zip(names, shards, strict=True)))
    else:
        reader = partial(tf.data.TFRecordDataset, compression_type=methods.pop())
    records = _ordered(names, reader, shuffle, seed)
    if by_record:
        records, count = records.shard(hosts, host), len(range(host, count, hosts))
    if shuffle:
        records = records.shuffle(shuffle, seed)
    records = records.apply(tf.data.experimental.assert_cardinality(count))
    try:
        check_features(features)
    except SourceError as error:
        raise error.at(shard=read[0].path) from None
    in_batches = batch_parser(features, total) if batch and not (ragged or pad) else None
    parse = in_batches or (record_parser(features, total) if features else None)
    if batch and in_batches:
        records = records.batch(batch)
    if parse:
        records = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if batch and not in_batches:
        records = _batched(records, batch, ragged=ragged, pad=pad)
    return records.prefetch(tf.data.AUTOTUNE) if batch else records


def _checked(shuffle: int | None, batch: int | None, shard: tuple[int, int] | None) -> tuple[int, int]:
    """Check the numbers that the user gave; return those of the parts and of the part."""
    for name, value in (("shuffle", shuffle), ("batch", batch)):
        if value is not None and (isinstance(value, bool) or value < 1):
            raise UsageError(f"{name} is a number of examples, 1 or more, not {value!r}")
    hosts, host = shard or (1, 0)
    if not 0 <= host < hosts:
        raise UsageError(f"shard is (hosts, host), such as (4, 0) to (4, 3), not {shard!r}")
    return hosts, host


def _check_batching(batch: int | None, *, ragged: bool, pad: bool) -> None:
    """Check what the user wants to happen to features of several shapes."""
    if ragged and pad:
        raise UsageError("ragged and pad are two ways to batch values of several shapes: use one of them")
    if (ragged or pad) and batch is None:
        raise UsageError(f"{'ragged' if ragged else 'pad'} says how batches are made", hint="add batch=N")


def _batched(records: AnyDataset, batch: int, *, ragged: bool, pad: bool) -> AnyDataset:
    """Batches of parsed examples; unless values of several shapes are wanted, an error names a feature with some."""
    if ragged:
        return records.ragged_batch(batch)
    if pad:
        return records.padded_batch(batch)
    specs = records.element_spec
    if not isinstance(specs, dict) or all(spec.shape.is_fully_defined() for spec in specs.values()):
        return records.batch(batch)
    import tensorflow as tf

    varying = [name for name, spec in specs.items() if not spec.shape.is_fully_defined()]

    def shaped(example: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        return example, {name: tf.shape(example[name]) for name in varying}

    def checked(examples: dict[str, tf.Tensor], shapes: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([_alike(name, shapes[name]) for name in varying]):
            return {name: tf.identity(value) for name, value in examples.items()}

    records = records.map(shaped)
    return records.padded_batch(batch).map(checked)  # which fills up nothing where shapes are equal


def _alike(name: str, shapes: tf.Tensor) -> Any:
    """Check that the shapes of a feature's values in a batch, a row each, are equal."""
    import tensorflow as tf

    odd = tf.argmax(tf.reduce_any(shapes != shapes[0], axis=1))
    two = tf.strings.format("{} and {}", (shapes[0], shapes[odd]))
    what = [f"the feature {name} has values of several shapes in one batch, such as ", two, f": {_BATCHING}"]
    return tf.debugging.Assert(tf.reduce_all(shapes == shapes[0]), [tf.strings.join(what)])


def _ordered(names: Sequence[str], read: Reader, shuffle: int | None, seed: int | None) -> AnyDataset:
    """The records of shards one after the other or, to shuffle them, of several at once in random order."""
    import tensorflow as tf

    paths = tf.constant(names, tf.string, [len(names)])
    if not shuffle or len(names) < 2:
        return read(paths)
    shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(names), seed)
    return shards.interleave(
        lambda name: read(name[tf.newaxis]), _AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _any_reader(places: Mapping[str, tuple[Document, ShardEntry]]) -> Reader:
    """Return what reads shards in buckets, too; TensorFlow supports fewer stores, and its errors say less.

    Args:
        places: each shard, with its manifest.
    """
    import tensorflow as tf

    def records(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
        wanted = [places[path.decode("utf-8", "surrogateescape")] for path in paths]
        for one, alike in groupby(wanted, lambda place: place[0]):
            items = one.find([entry for _, entry in alike])
            folder = copy(one.folder)  # what is fetched ahead belongs to this iteration alone
            with folder.prefetch(items, _AT_ONCE):
                for item in items:
                    with OpenShard(folder, item) as shard:
                        yield from _in_pieces(record for _, record in RecordReader(shard.content, shard.name))

    signature = tf.TensorSpec([None], tf.string)
    return lambda names: tf.data.Dataset.from_generator(records, output_signature=signature, args=(names,)).unbatch()


def _in_pieces(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Records as lists, as TensorFlow takes 30 us for each value that Python gives it."""
    piece, size = list[bytes](), 0
    for record in records:
        piece.append(record)
        size += len(record)
        if size >= _PIECE or len(piece) == _MOST_TOGETHER:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def feature_description(features: Mapping[str, Mapping[str, Any]], records: int) -> dict[str, Any]:
    """The feature descriptions for `tf.io.parse_single_example`.

    Args:
        features: the manifest's features.
        records: number of records; a feature with a smaller count is optional.
    """
    import tensorflow as tf

    dtypes = {"bytes": tf.string, "raw": tf.string, "int64": tf.int64, "float": tf.float32}
    description: dict[str, Any] = {}
    for name, feature in features.items():
        dtype, shape = dtypes[feature["encoding"]], feature["shape"]
        single = shape == [] or feature["encoding"] == "raw"
        if shape is None or is_optional(feature, records) or (None in shape and not single):
            description[name] = tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True)
        else:
            description[name] = tf.io.FixedLenFeature([] if single else shape, dtype)
    return description


def batch_parser(
    features: Mapping[str, Mapping[str, Any]], records: int
) -> Callable[[Any], dict[str, tf.Tensor]] | None:
    """A function from a batch of serialised examples to tensors, as `record_parser` makes them of each example.

    It takes a twentieth of the time. None if there are no features, examples may lack one, or the shape of one is not
    always the same.
    """
    if not features:
        return None
    shapes = {name for name in features if is_shape_of_array(name, features)}
    for name, feature in features.items():
        if is_optional(feature, records) or (name not in shapes and None in (feature["shape"] or ())):
            return None
    import tensorflow as tf

    own = {name: feature for name, feature in features.items() if name not in shapes}
    description = feature_description(own, records)

    def parse(examples: Any) -> dict[str, tf.Tensor]:
        parsed: Mapping[str, Any] = tf.io.parse_example(examples, description)
        return {name: _cast(_all_restored(feature, parsed[name]), feature["dtype"]) for name, feature in own.items()}

    return parse


def _all_restored(feature: Mapping[str, Any], values: tf.Tensor) -> tf.Tensor:
    """The values of a feature in a batch of examples, of the shape that all of them have."""
    import tensorflow as tf

    if feature["encoding"] != "raw":
        return values
    array = _from_bytes(values, feature["dtype"])
    shape = feature["shape"]
    restored: tf.Tensor = tf.ensure_shape(tf.reshape(array, [tf.size(values), *shape]), [None, *shape])
    return restored


def record_parser(features: Mapping[str, Mapping[str, Any]], records: int = 0) -> Callable[[Any], dict[str, tf.Tensor]]:
    """A function from a serialised example to its tensors: arrays with their shape and dtype, the rest as stored.

    A feature NAME/shape is used to restore the array NAME, and is not among the tensors.

    Args:
        features: those of a manifest that `check_features` accepts; or with None as the shape of an array of any number
            of dimensions.
        records: number of records; a feature with a smaller count is optional.
    """
    import tensorflow as tf

    description = feature_description(features, records)
    shapes = {name for name in features if is_shape_of_array(name, features)}
    optional = {name for name, feature in features.items() if is_optional(feature, records)}

    def parse(record: Any) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, description)
        return {
            name: _restored(name, features[name], parsed, name in optional) for name in features if name not in shapes
        }

    return parse


def _restored(name: str, feature: Mapping[str, Any], parsed: Mapping[str, Any], optional: bool) -> tf.Tensor:
    import tensorflow as tf

    value, shape, dtype = parsed[name], feature["shape"], feature["dtype"]
    if feature["encoding"] == "raw":
        value = _from_bytes(tf.strings.reduce_join(value) if optional else value, dtype)
    if optional and shape == []:
        pass  # a vector of one value or none, as of other optional values
    elif feature["encoding"] == "raw" or shape is None or len(shape) > 1 or f"{name}/shape" in parsed:
        own = _own_shape(name, shape, parsed)
        if optional:  # if the array is missing, so is its shape
            own, shape = tf.pad(own, [[0, len(shape) - tf.size(own)]]), [None] * len(shape)
        elif shape is not None and f"{name}/shape" in parsed and own.shape[0] is None:
            # single values and empty lists have no shape
            lengths = tf.stack([tf.minimum(tf.size(value), 1) if size is None else size for size in shape])
            own = tf.concat([own, tf.cast(lengths[tf.size(own) :], own.dtype)], 0)
        value = tf.ensure_shape(tf.reshape(value, own), shape)
    return _cast(value, dtype)


def _from_bytes(value: tf.Tensor, dtype: str) -> tf.Tensor:
    """The numbers in bytes, little-endian."""
    import tensorflow as tf

    stored = "int64" if dtype == "uint64" else dtype  # which decode_raw does not know
    numbers: tf.Tensor = tf.bitcast(tf.io.decode_raw(value, tf.as_dtype(stored)), dtype)
    return numbers


def _cast(value: tf.Tensor, dtype: str) -> tf.Tensor:
    """Values of the dtype that the manifest gives."""
    import tensorflow as tf

    return value if dtype in ("bytes", value.dtype.name) else tf.cast(value, dtype)


def _own_shape(name: str, shape: list[int | None], parsed: Mapping[str, Any]) -> Any:
    """The shape of one example's array: fixed, stored beside it, or given by the image's height, width and channels."""
    import tensorflow as tf

    if f"{name}/shape" in parsed:
        return parsed[f"{name}/shape"]
    if shape.count(None) <= 1:
        return [-1 if size is None else size for size in shape]
    folder = name.rpartition("/")[0]
    return tf.stack([parsed[f"{folder}/{axis}"] for axis in ("height", "width", "channels")])
