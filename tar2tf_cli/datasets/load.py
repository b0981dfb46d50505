"""Load the output of a conversion, in a folder or bucket, as a `tf.data.Dataset`.

The manifest defines the features. Batches are read by position in the order of an epoch if our own TensorFlow op can
read them (record_op.py), or if the requested order needs positions; otherwise tf.data streams the shards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from tar2tf_cli.datasets import record_op
from tar2tf_cli.datasets.examples import (
    AnyDataset,
    ByPosition,
    Examples,
    Order,
    RecordsByPosition,
    Streamed,
    any_reader,
    examples_at_once,
    local_reader,
    records_of_shards,
)
from tar2tf_cli.datasets.parsing import batch_parser, record_parser
from tar2tf_cli.datasets.process_resources import ProcessResources
from tar2tf_cli.datasets.record_op import RecordOp
from tar2tf_cli.datasets.records import open_documents
from tar2tf_cli.datasets.shards import Paths, listed, paths_in, read_manifests, together
from tar2tf_cli.errors import SourceError, UsageError, check_tensorflow
from tar2tf_cli.features.described import check_features

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Unpack

    from tar2tf_cli.features.described import Described
    from tar2tf_cli.inputs.manifest import Document, ShardEntry
    from tar2tf_cli.spec.urls import ConnectionOptions

    class _LoadOptions(ConnectionOptions, total=False):
        """Arguments of `load_dataset` that do not affect its return type."""

        split: str | None
        shuffle: int | bool | None
        seed: int | None
        shard: tuple[int, int] | None
        start: int
        batch: int | None
        pad: bool


_BATCHING: Final = "load them with ragged=True or pad=True"


@overload
def load_dataset(
    manifest: Paths, *more: str | os.PathLike[str], ragged: Literal[False] = ..., **options: Unpack[_LoadOptions]
) -> tf.data.Dataset[dict[str, tf.Tensor]]: ...


@overload
def load_dataset(
    manifest: Paths, *more: str | os.PathLike[str], ragged: bool, **options: Unpack[_LoadOptions]
) -> tf.data.Dataset[dict[str, tf.Tensor | tf.RaggedTensor]]: ...


def load_dataset(
    manifest: Paths,
    *more: str | os.PathLike[str],
    split: str | None = None,
    shuffle: int | bool | None = None,
    seed: int | None = None,
    shard: tuple[int, int] | None = None,
    start: int = 0,
    batch: int | None = None,
    ragged: bool = False,
    pad: bool = False,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> AnyDataset:
    """Return the parsed examples of a conversion, as dicts of tensors by feature name, in the order they were written.

    Dtypes and shapes are those in the manifest. Arrays of different sizes keep their shapes, and a feature that an
    example lacks is an empty tensor. If values of one batch differ in shape, TensorFlow raises an error that names the
    feature, unless `ragged` or `pad` is set. From a bucket, examples are streamed again in each epoch, several shards
    at once, every CRC is checked, and no file is kept. The cardinality is known; if the shards hold a different number
    of records, TensorFlow raises an error. For local shards, `tf.train.Checkpoint(iterator=iter(dataset))` saves the
    position; or pass the number of examples read as `start`.

    Examples are parsed many at a time. `batch=N`, or `.batch(N)` directly after this call, gives batches as they are
    parsed; after a `map` or `shuffle`, each example costs the time that tf.data takes for an element.

    Args:
        manifest: the path or URL of a manifest or of its folder, or a template such as `"out/_part*-manifest.json"`; or
            a list of these, which together form one dataset, for example if several machines converted a part each. For
            a shard, or a template of shards, the manifest in its folder is used.
        more: further manifests.
        split: load only the shards of this split.
        shuffle: True for a random order of all examples, without a buffer: each record is read from its position, which
            suits a local disk. Or the size of the buffer from which the next example is drawn; shards are then read in
            random order, 16 at once. By default, nothing is shuffled.
        seed: makes shuffling reproducible; each epoch still has its own order.
        shard: `(hosts, host)`: load one of several equal parts, counted from 0, such as the part of one host. If there
            are at least as many shards as parts, each part consists of complete shards; otherwise each host reads all
            shards and keeps every n-th example of n hosts. With `shuffle=True`, each host gets a part of every epoch's
            order, and needs the same `seed`.
        start: number of examples already read, counted from the first epoch, to continue from there.
        batch: number of examples in a batch; batches are fetched ahead, and the last one may be smaller.
        ragged: with `batch`, make features whose values differ in shape a `tf.RaggedTensor`.
        pad: with `batch`, pad such values at the end of each dimension to the largest of the batch, with zeros, false
            or empty bytes.
        endpoint: URL of the store that holds the bucket.
        retry_for: how many seconds to retry failed requests without progress; by default TAR2TF_RETRY_FOR, else 60.
        no_sign_request: read a public cloud bucket without credentials.

    Raises:
        SourceError: when a path does not exist.
        UsageError: when shards have no manifest, the split does not exist, a number is out of range, `ragged` or `pad`
            is used without `batch`, manifests differ in the kind of a feature, or TensorFlow is not installed.

    >>> train = load_dataset("out/_train-manifest.json", shuffle=True, seed=1, batch=8)
    >>> next(iter(train))["cls"].shape
    TensorShape([8])
    """
    check_tensorflow("load_dataset")
    _check_numbers(shuffle, batch, start)
    _check_order(shuffle, seed, shard, start)
    _check_batching(batch, ragged=ragged, pad=pad)
    connection: ConnectionOptions = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    paths = paths_in(manifest, more)
    process = ProcessResources()
    read = read_manifests(paths, beside=True, on_listing=process.on_listing if shuffle is True else None, **connection)
    for document in read:
        document.check_records()
    features, total = together(read)
    shards = listed(read, split)
    try:
        check_features(features)
    except SourceError as error:
        raise error.at(shard=read[0].path) from None
    hosts, host = shard or (1, 0)
    part = _HostShare(shards, hosts, host, by_record=shuffle is True or len(shards) < hosts)
    if shuffle is True and seed is None:
        seed = int.from_bytes(os.urandom(4), "big")
    order = Order(seed if shuffle is True else None, start)
    examples: Examples
    if (shuffle and shuffle is not True) or not (order != Order(None) or _op_reads(read)):
        examples = _streamed(part, read, shuffle, seed)
    elif _op_reads(read):
        counts = [entry.records for _, entry in part.shards]
        reader = RecordOp(part.names(), counts, part.numbers)
        examples = ByPosition(reader, part.count, order, part.mean())
    else:
        records = open_documents(read, split, process)
        every = [entry.records for _, entry in shards]
        by_records = RecordsByPosition(records, every, part.chosen, part.numbers)
        examples = ByPosition(by_records, part.count, order, part.mean())
    return _build_dataset(examples, features, total, batch, examples_at_once(part.mean()), ragged=ragged, pad=pad)


def _op_reads(read: Sequence[Document]) -> bool:
    """Whether the TensorFlow op can read the shards of these manifests."""
    stored = not any(one.manifest.compressed or one.folder.capabilities.remote for one in read)
    return stored and record_op.is_available()


class _HostShare:
    """The shards, or every n-th record of all shards, that one of several hosts reads.

    Args:
        shards: all shards, each with its manifest.
        hosts: number of hosts.
        host: number of this host.
        by_record: whether each host reads all shards.

    Attributes:
        shards: the shards that this host reads.
        chosen: the numbers of these shards among all shards.
        numbers: `(hosts, host)`, if every n-th record of the shards is read.
        count: number of examples of this host.
    """

    def __init__(
        self, shards: Sequence[tuple[Document, ShardEntry]], hosts: int, host: int, *, by_record: bool
    ) -> None:
        self.chosen = range(len(shards)) if by_record else range(len(shards))[host::hosts]
        self.shards = [shards[number] for number in self.chosen]
        self.numbers = (hosts, host) if by_record else (1, 0)
        first, every = self.numbers[1], self.numbers[0]
        self.count = len(range(first, sum(entry.records for _, entry in self.shards), every))

    def names(self) -> list[str]:
        """Return the paths of the shards."""
        return [os.path.join(os.path.dirname(one.path), entry.path) for one, entry in self.shards]

    def mean(self) -> int:
        """The mean size of a record in bytes, at least 1."""
        records = sum(entry.records for _, entry in self.shards)
        return max(sum(entry.bytes for _, entry in self.shards) // max(records, 1), 1)


def _streamed(part: _HostShare, read: Sequence[Document], shuffle: int | None, seed: int | None) -> Streamed:
    """Return examples streamed by tf.data, through our own readers in buckets, shuffled in a buffer."""
    names = part.names()
    methods: set[Literal["", "GZIP"]] = {"GZIP" if one.manifest.compressed else "" for one in read}
    if len(methods) > 1 or any(one.folder.capabilities.remote for one in read):
        reader = any_reader(dict(zip(names, part.shards, strict=True)))
    else:
        reader = local_reader(methods.pop())
    records = records_of_shards(names, reader, shuffle, seed)
    hosts, host = part.numbers
    if hosts > 1:
        records = records.shard(hosts, host)
    return Streamed(records.shuffle(shuffle, seed) if shuffle else records, part.count)


def _build_dataset(
    examples: Examples, features: Described, total: int, batch: int | None, together: int, *, ragged: bool, pad: bool
) -> AnyDataset:
    """Return the examples in the requested form: parsed, one by one or in batches."""
    import tensorflow as tf

    parse = batch_parser(features, total)

    def batches(size: int, drop_remainder: bool = False) -> AnyDataset:
        assert parse
        return examples.batches(size, drop_remainder, features, parse).prefetch(tf.data.AUTOTUNE)

    if batch and parse and not (ragged or pad):
        return batches(batch)
    empty = any(0 in feature["shape"] for feature in features.values())  # tf.data cannot unbatch empty tensors
    records = examples.one_by_one(batches(together)) if parse and not empty else _parsed(examples, features, total)
    if batch:
        return _batched(records, batch, ragged=ragged, pad=pad).prefetch(tf.data.AUTOTUNE)
    return _batch_while_parsing(records, batches) if parse else records


def _parsed(examples: Examples, features: Described, total: int) -> AnyDataset:
    """Return the examples parsed one by one; serialised if their features are unknown."""
    import tensorflow as tf

    records = examples.each()
    if not features:
        return records
    return records.map(record_parser(features, total), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _batch_while_parsing(records: AnyDataset, batches: Callable[[int, bool], AnyDataset]) -> AnyDataset:
    """Override `records.batch(n)` to return parsed batches, so that examples are not batched twice."""
    batch_any = records.batch

    def batch(batch_size: Any, drop_remainder: Any = False, *arguments: Any, **options: Any) -> AnyDataset:
        if not (isinstance(batch_size, int) and isinstance(drop_remainder, bool) and batch_size > 0):
            return batch_any(batch_size, drop_remainder, *arguments, **options)
        return batches(batch_size, drop_remainder)

    setattr(records, "batch", batch)  # noqa: B010  an attribute of this dataset alone
    return records


def _check_numbers(shuffle: int | bool | None, batch: int | None, start: int) -> None:
    """Check the arguments that are numbers of examples."""
    for name, value, least in (("shuffle", shuffle, 1), ("batch", batch, 1), ("start", start, 0)):
        if value is None or (name == "shuffle" and value in (True, False) and isinstance(value, bool)):
            continue
        if isinstance(value, bool) or value < least:
            raise UsageError(f"{name} must be a number of examples, {least} or more, not {value!r}")


def _check_order(shuffle: int | bool | None, seed: int | None, shard: tuple[int, int] | None, start: int) -> None:
    """Check the arguments for the order of an epoch and the host's share."""
    hosts, host = shard or (1, 0)
    if not 0 <= host < hosts:
        raise UsageError(f"shard must be (hosts, host), such as (4, 0) to (4, 3), not {shard!r}")
    if shuffle is True and seed is None and hosts > 1:
        raise UsageError("hosts divide the order of an epoch among them", hint="add seed=N, the same for each host")
    if shuffle is True and seed is None and start:
        raise UsageError("without a seed, no order can be continued", hint="add seed=N, that of the first run")
    if start and shuffle and shuffle is not True:
        hint = "use shuffle=True, or tf.train.Checkpoint"
        raise UsageError("the order of a shuffle buffer cannot be continued by a number", hint=hint)


def _check_batching(batch: int | None, *, ragged: bool, pad: bool) -> None:
    """Check the arguments for features of several shapes."""
    if ragged and pad:
        raise UsageError("ragged and pad are two ways to batch values of several shapes: use one of them")
    if (ragged or pad) and batch is None:
        raise UsageError(f"{'ragged' if ragged else 'pad'} says how batches are made", hint="add batch=N")


def _batched(records: AnyDataset, batch: int, *, ragged: bool, pad: bool) -> AnyDataset:
    """Batch parsed examples; unless padded or ragged, values of different shapes raise an error with the feature."""
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
        with tf.control_dependencies([_assert_equal_shapes(name, shapes[name]) for name in varying]):
            return {name: tf.identity(value) for name, value in examples.items()}

    records = records.map(shaped)
    return records.padded_batch(batch).map(checked)  # pads nothing, as the shapes are equal


def _assert_equal_shapes(name: str, shapes: tf.Tensor) -> object:
    """Assert that the shapes of a feature's values in a batch, a row each, are equal."""
    import tensorflow as tf

    odd = tf.argmax(tf.reduce_any(shapes != shapes[0], axis=1))
    two = tf.strings.format("{} and {}", (shapes[0], shapes[odd]))
    what = [f"the feature {name} has values of several shapes in one batch, such as ", two, f": {_BATCHING}"]
    return tf.debugging.Assert(tf.reduce_all(shapes == shapes[0]), [tf.strings.join(what)])
