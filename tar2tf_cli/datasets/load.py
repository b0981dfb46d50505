"""Load the output of a conversion, in a folder or bucket, as a `tf.data.Dataset`.

The manifest defines the features. Batches are read by position in the order of an epoch if our own TensorFlow op can
read them (record_op.py), or if the requested order needs positions; otherwise tf.data streams the shards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, overload

import numpy as np

from tar2tf_cli.datasets.order import epoch_seed, number_of_examples, permuted, seed_of_orders, share_of_host
from tar2tf_cli.datasets.process_resources import ProcessResources
from tar2tf_cli.datasets.records import Records, open_documents
from tar2tf_cli.datasets.shards import Paths, listed, note_on_splits, paths_in, read_manifests, together
from tar2tf_cli.errors import SourceError, UsageError, check_tensorflow
from tar2tf_cli.events import Events
from tar2tf_cli.features.described import Described, check_features
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray
    from typing_extensions import ParamSpec, Unpack

    from tar2tf_cli.datasets.record_op import RecordOp
    from tar2tf_cli.inputs.manifest import Document, ShardEntry
    from tar2tf_cli.spec.urls import ConnectionOptions

    _P = ParamSpec("_P")

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
    at once, every CRC is checked, and no file is kept. The cardinality is known, except with a `start` within an epoch;
    if the shards hold a different number of records, TensorFlow raises an error. For local shards,
    `tf.train.Checkpoint(iterator=iter(dataset))` saves the position and the epoch, also of `dataset.repeat()`; or pass
    the number of examples read as `start`.

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
        seed: makes shuffling reproducible, as `tf.random.set_seed` does; each epoch still has its own order.
        shard: `(hosts, host)`: load one of several parts, counted from 0, such as the part of one host. If there are
            at least as many shards as parts, each part consists of complete shards, so it may have more examples than
            another; otherwise each host reads all shards and keeps every n-th example of n hosts. With `shuffle=True`,
            each host gets a part of every epoch's order, and needs the same `seed`. These parts differ by at most one
            example.
        start: number of examples already read, counted from the first epoch, to continue from there. The first
            iteration is then shorter than the others, unless an epoch begins there.
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
    shuffle = shuffle if shuffle is None or isinstance(shuffle, bool) else number_of_examples(shuffle, "shuffle", 1)
    batch = None if batch is None else number_of_examples(batch, "batch", 1)
    start, seed = number_of_examples(start, "start", 0), seed_of_orders(seed)
    hosts, host = share_of_host((1, 0) if shard is None else shard)
    _check_order(shuffle, seed, hosts, start)
    _check_batching(batch, ragged=ragged, pad=pad)
    connection: ConnectionOptions = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    paths = paths_in(manifest, more)
    process = ProcessResources()
    read = read_manifests(paths, beside=True, on_listing=process.on_listing if shuffle is True else None, **connection)
    for document in read:
        document.check_records()
    features, total = together(read)
    shards = listed(read, split)
    for note in note_on_splits(read, split):
        Events().note(note)
    try:
        check_features(features)
    except SourceError as error:
        raise error.at(shard=read[0].path) from None
    part = _HostShare(shards, hosts, host, by_record=shuffle is True or len(shards) < hosts)
    if shuffle and seed is None:
        seed = _seed_of_run()
    order = Order(seed if shuffle else None, start)
    examples: Examples
    if (shuffle and shuffle is not True) or not (order != Order(None) or _op_reads(read)):
        examples = _streamed(part, read, shuffle or 0)
    elif _op_reads(read):
        counts = [entry.records for _, entry in part.shards]
        from tar2tf_cli.datasets.record_op import RecordOp

        examples = ByPosition(RecordOp(part.names(), counts, part.numbers), part.count, part.mean())
    else:
        records = open_documents(read, split, process)
        every = [entry.records for _, entry in shards]
        by_records = RecordsByPosition(records, every, part.chosen, part.numbers)
        examples = ByPosition(by_records, part.count, part.mean())
    at_once = examples_at_once(part.mean())
    build = _without_autograph(_build_dataset)
    return build(examples, Epochs(order, part.count), features, total, batch, at_once, ragged=ragged, pad=pad)


def _seed_of_run() -> int:
    """Return a seed that depends on `tf.random.set_seed` if that was called, and is random otherwise."""
    import tensorflow as tf

    _, seed = tf.compat.v1.get_seed(None)
    return int.from_bytes(os.urandom(4), "big") if seed is None else int(seed)


def _op_reads(read: Sequence[Document]) -> bool:
    """Whether the TensorFlow op can read the shards of these manifests."""
    from tar2tf_cli.datasets.record_op import is_available

    stored = not any(one.manifest.compressed or one.folder.capabilities.remote for one in read)
    return stored and is_available()


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


def _streamed(part: _HostShare, read: Sequence[Document], shuffle: int) -> Streamed:
    """Return examples streamed by tf.data, through our own readers in buckets, shuffled in a buffer of this size."""
    names = part.names()
    methods: set[Literal["", "GZIP"]] = {"GZIP" if one.manifest.compressed else "" for one in read}
    if len(methods) > 1 or any(one.folder.capabilities.remote for one in read):
        reader = any_reader(dict(zip(names, part.shards, strict=True)))
    else:
        reader = local_reader(methods.pop())
    return Streamed(names, reader, part.numbers, part.count, min(shuffle, part.count))


def _without_autograph(build: Callable[_P, AnyDataset]) -> Callable[_P, AnyDataset]:
    """Make a function whose datasets map our functions as they are, as converting them takes a quarter of a second."""
    import tensorflow as tf

    unconverted: Callable[_P, AnyDataset] = tf.autograph.experimental.do_not_convert(build)
    return unconverted


def _build_dataset(
    examples: Examples,
    epochs: Epochs,
    features: Described,
    total: int,
    batch: int | None,
    together: int,
    *,
    ragged: bool,
    pad: bool,
) -> AnyDataset:
    """Return the examples in the requested form: parsed, one by one or in batches."""
    import tensorflow as tf

    from tar2tf_cli.datasets.parsing import batch_parser

    parse = batch_parser(features, total)

    def batches_of_epoch(epoch: Epoch, size: int, drop_remainder: bool = False) -> AnyDataset:
        assert parse
        return examples.batches(epoch, size, drop_remainder, features, parse).prefetch(tf.data.AUTOTUNE)

    empty = any(0 in feature["shape"] for feature in features.values())  # tf.data cannot unbatch empty tensors

    def each(epoch: Epoch) -> AnyDataset:
        if parse and not empty:
            return batches_of_epoch(epoch, together).unbatch()
        return _parsed(examples.each(epoch), features, total)

    @_without_autograph
    def batches(size: int, drop_remainder: bool = False) -> AnyDataset:
        def of_epoch(epoch: Epoch) -> AnyDataset:
            if parse and not (ragged or pad):
                return batches_of_epoch(epoch, size, drop_remainder)
            batches = _batched(each(epoch), size, drop_remainder, ragged=ragged, pad=pad)
            return batches.prefetch(tf.data.AUTOTUNE)

        return epochs.dataset(of_epoch, size, drop_remainder)

    return batches(batch) if batch else _with_batches(epochs.dataset(each), batches)


def _parsed(records: AnyDataset, features: Described, total: int) -> AnyDataset:
    """Return serialised examples parsed one by one; unchanged if their features are unknown."""
    import tensorflow as tf

    from tar2tf_cli.datasets.parsing import record_parser

    if not features:
        return records
    return records.map(record_parser(features, total), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _with_batches(records: AnyDataset, batches: Callable[[int, bool], AnyDataset]) -> AnyDataset:
    """Override `records.batch(n)` to return what `batch=n` does, so that examples are not batched twice."""
    batch_any = records.batch

    def batch(batch_size: Any, drop_remainder: Any = False, *arguments: Any, **options: Any) -> AnyDataset:
        if not (isinstance(batch_size, int) and isinstance(drop_remainder, bool) and batch_size > 0):
            return batch_any(batch_size, drop_remainder, *arguments, **options)
        return batches(batch_size, drop_remainder)

    setattr(records, "batch", batch)  # noqa: B010  an attribute of this dataset alone
    return records


def _check_order(shuffle: int | bool | None, seed: int | None, hosts: int, start: int) -> None:
    """Check the arguments for the order of an epoch and the host's share."""
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


def _batched(records: AnyDataset, batch: int, drop_remainder: bool, *, ragged: bool, pad: bool) -> AnyDataset:
    """Batch parsed examples; unless padded or ragged, values of different shapes raise an error with the feature."""
    if ragged:
        return records.ragged_batch(batch, drop_remainder)
    if pad:
        return records.padded_batch(batch, drop_remainder=drop_remainder)
    specs = records.element_spec
    if not isinstance(specs, dict) or all(spec.shape.is_fully_defined() for spec in specs.values()):
        return records.batch(batch, drop_remainder)
    import tensorflow as tf

    varying = [name for name, spec in specs.items() if not spec.shape.is_fully_defined()]

    def shaped(example: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        return example, {name: tf.shape(example[name]) for name in varying}

    def checked(examples: dict[str, tf.Tensor], shapes: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([_assert_equal_shapes(name, shapes[name]) for name in varying]):
            return {name: tf.identity(value) for name, value in examples.items()}

    together = records.map(shaped).padded_batch(batch, drop_remainder=drop_remainder)
    return together.map(checked)  # padded nothing, as the shapes are equal


def _assert_equal_shapes(name: str, shapes: tf.Tensor) -> object:
    """Assert that the shapes of a feature's values in a batch, a row each, are equal."""
    import tensorflow as tf

    odd = tf.argmax(tf.reduce_any(shapes != shapes[0], axis=1))
    two = tf.strings.format("{} and {}", (shapes[0], shapes[odd]))
    what = [f"the feature {name} has values of several shapes in one batch, such as ", two, f": {_BATCHING}"]
    return tf.debugging.Assert(tf.reduce_all(shapes == shapes[0]), [tf.strings.join(what)])


# --- Serialised examples: `ByPosition` reads any batch by itself, `Streamed` leaves the order to tf.data ---

AnyDataset: TypeAlias = "tf.data.Dataset[Any]"


Parse: TypeAlias = "Callable[[Any], dict[str, tf.Tensor]]"
"""Makes tensors of a batch of serialised examples."""

Read: TypeAlias = "Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Any]"
"""Reads the examples at positions from the first to before the last, in the order of a seed; -1 for that of writing."""

Reader: TypeAlias = "Callable[[tf.Tensor], AnyDataset]"
"""Makes a dataset of the serialised examples in the shards with these names, one after the other."""

_AT_ONCE: Final = 16
_PIECE: Final = 1 << 20  # bytes of records passed to TensorFlow at once
_MOST_TOGETHER: Final = 256  # examples read and parsed at once for a dataset of single examples
_BYTES_TOGETHER: Final = 4 << 20  # total bytes of these examples
_READ: Final = 1 << 20  # bytes of small batches that are read at once
_LEAST_READS: Final = 16  # minimum number of reads per epoch, which threads share
_AS_WRITTEN: Final = -1


@dataclass(frozen=True)
class Order:
    """The order of the examples in each epoch, and the number of examples to skip first.

    Attributes:
        seed: the random seed of all epochs; None for the order in which the records were written.
        start: number of examples already read, counted from the first epoch.
    """

    seed: int | None
    start: int = 0


class Epoch(NamedTuple):
    """One epoch, as scalar int64 tensors or numbers.

    Attributes:
        first: the position of its first example; above 0 if the examples before it were read earlier.
        seed: the random seed of its order; -1 for the order in which the records were written.
    """

    first: Any
    seed: Any


class Epochs:
    """Makes datasets whose iterations are consecutive epochs, also after a checkpoint was restored.

    An iterator's checkpoint contains the number of its epoch: nothing is read ahead of `flat_map`, which therefore
    passes the number on until the last example of the epoch has been taken.

    Args:
        order: the order of the examples.
        count: number of examples in an epoch.
    """

    def __init__(self, order: Order, count: int) -> None:
        self._order = order
        self._count = count
        self._first, self._skipped = divmod(order.start, max(count, 1))
        self._next = self._first
        self._begun = set[int]()  # numbers returned by `_begin_next` that `_begin` has not received yet

    def dataset(self, build: Callable[[Epoch], AnyDataset], size: int = 1, drop_remainder: bool = False) -> AnyDataset:
        """Return the dataset of one epoch, or of the next one in each iteration; its cardinality is set if it is known.

        Args:
            build: returns the dataset of an epoch.
            size: number of examples in an element.
            drop_remainder: whether an incomplete last element is dropped.
        """
        import tensorflow as tf

        number = self._count // size if drop_remainder else -(-self._count // size)
        if self._order == Order(None):
            return _counted(build(Epoch(0, _AS_WRITTEN)), number)

        # neither function gives equal results in all calls, but checkpoints store that of the first
        def next_epoch(_: object) -> Any:
            return tf.numpy_function(self._begin_next, [_], tf.int64, stateful=False)

        def of_epoch(epoch: object) -> AnyDataset:
            return build(Epoch(*tf.numpy_function(self._begin, [epoch], [tf.int64, tf.int64], stateful=False)))

        epochs = tf.data.Dataset.range(1).map(next_epoch).flat_map(of_epoch)
        return epochs if self._skipped else _counted(epochs, number)

    def _begin_next(self, _: object) -> NDArray[np.int64]:
        """Return the number of the next epoch."""
        epoch = np.array(self._next, np.int64)
        self._begun.add(self._next)
        self._next += 1
        return epoch

    def _begin(self, number: np.int64) -> tuple[np.int64, np.int64]:
        """Return the first position of an epoch and its seed; the next one follows it if it was restored."""
        epoch, seed = int(number), self._order.seed
        if epoch in self._begun:
            self._begun.discard(epoch)
        else:
            self._next = epoch + 1
        first = self._skipped if epoch == self._first else 0
        return np.int64(first), np.int64(_AS_WRITTEN if seed is None else epoch_seed(seed, epoch))


class Examples(Protocol):
    """Interface of the serialised examples of a dataset, or of one host's share."""

    def each(self, epoch: Epoch) -> AnyDataset:
        """Return a dataset of the serialised examples of an epoch, one by one."""

    def batches(self, epoch: Epoch, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of the parsed batches of an epoch.

        Args:
            epoch: the epoch.
            size: number of examples in a batch.
            drop_remainder: whether to drop an incomplete last batch.
            features: the manifest's features, each a tensor of one shape.
            parse: parses serialised examples to these tensors.
        """


class ByPosition:
    """Examples that are read by position.

    Args:
        reader: reads the examples.
        count: number of examples in an epoch.
        mean: the mean size of a record in bytes.
    """

    def __init__(self, reader: RecordOp | RecordsByPosition, count: int, mean: int) -> None:
        self._reader = reader
        self._count = count
        self._mean = mean

    def each(self, epoch: Epoch) -> AnyDataset:
        """Return a dataset of the serialised examples of an epoch, one by one."""
        return self._batches(epoch, self._reader.messages, examples_at_once(self._mean), drop_remainder=False).unbatch()

    def batches(self, epoch: Epoch, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of the parsed batches of an epoch."""
        return self._batches(epoch, self._reader.columns(features, parse), size, drop_remainder, self._several(size))

    def _several(self, size: int) -> int:
        """Return the number of small batches per read, as a tf.data call takes as long as reading one batch."""
        return max(1, min(_READ // (size * self._mean), self._count // size // _LEAST_READS))

    def _batches(self, epoch: Epoch, read: Read, size: int, drop_remainder: bool, several: int = 1) -> AnyDataset:
        """Return the batches of an epoch, reading `several` at once while there are enough."""
        import tensorflow as tf

        step = several * size

        def read_from(at: tf.Tensor) -> object:
            return read(at, tf.minimum(at + step, self._count), epoch.seed)

        positions = tf.data.Dataset.range(epoch.first, self._count, step)
        found = positions.map(read_from, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return found.rebatch(size, drop_remainder)


@dataclass(frozen=True)
class RecordsByPosition:
    """Reads batches through `Records`, for shards that the TensorFlow op cannot read.

    Attributes:
        records: all records, as bytes.
        counts: number of records in each of the shards.
        shards: the numbers of the shards to read.
        part: `(hosts, host)`: read every n-th record for one of n hosts.
    """

    records: Records[bytes]
    counts: Sequence[int]
    shards: range
    part: tuple[int, int]

    def messages(self, first: object, last: object, seed: object) -> tf.Tensor:
        """Return the serialised examples at a range of positions."""
        import tensorflow as tf

        messages: tf.Tensor = tf.numpy_function(self._read, [first, last, seed], tf.string, stateful=False)
        messages.set_shape([None])
        return messages

    def columns(self, features: Described, parse: Parse) -> Read:
        """Return a function that reads and parses the examples at a range of positions."""
        return lambda first, last, seed: parse(self.messages(first, last, seed))

    def _read(self, first: int, last: int, seed: int) -> NDArray[np.object_]:
        hosts, host = self.part
        ends = np.cumsum([self.counts[shard] for shard in self.shards])
        positions = np.arange(first, last) * hosts + host
        numbers = positions if seed < 0 else permuted(int(seed), positions, int(ends[-1]))
        begins = np.array([*accumulate(self.counts, initial=0)])[list(self.shards)]
        shards = np.searchsorted(ends, numbers, "right")
        starts = np.concatenate([[0], ends])[shards]
        read = self.records.__getitems__((numbers - starts + begins[shards]).tolist())
        messages = np.empty(len(read), object)
        messages[:] = read
        return messages


class Streamed:
    """Examples that tf.data reads from shards one after another, or interleaved and shuffled in a buffer.

    Args:
        names: the paths or URLs of the shards.
        read: reads the serialised examples of shards.
        part: `(hosts, host)`: read every n-th example for one of n hosts.
        count: number of examples in an epoch.
        buffer: number of examples in the buffer that shuffles; 0 to shuffle nothing.
    """

    def __init__(self, names: Sequence[str], read: Reader, part: tuple[int, int], count: int, buffer: int) -> None:
        self._names = names
        self._read = read
        self._part = part
        self._count = count
        self._buffer = buffer

    def each(self, epoch: Epoch) -> AnyDataset:
        """Return a dataset of the serialised examples of an epoch, one by one."""
        records = records_of_shards(self._names, self._read, epoch.seed if self._buffer else None)
        hosts, host = self._part
        if hosts > 1:
            records = records.shard(hosts, host)
        if self._buffer:
            records = _shuffled(records, self._buffer, epoch.seed)
        return _counted(records, self._count)

    def batches(self, epoch: Epoch, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of the parsed batches of an epoch."""
        import tensorflow as tf

        batches = self.each(epoch).batch(size, drop_remainder)
        return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _counted(dataset: AnyDataset, count: int) -> AnyDataset:
    """Set the cardinality of a dataset."""
    import tensorflow as tf

    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def examples_at_once(mean: int) -> int:
    """Return the number of examples of a mean size to read at once for a dataset of single examples."""
    return min(max(_BYTES_TOGETHER // mean, 1), _MOST_TOGETHER)


def records_of_shards(names: Sequence[str], read: Reader, seed: Any) -> AnyDataset:
    """Return the records of shards one after another; with a seed, interleave shards in a random order."""
    import tensorflow as tf

    paths = tf.constant(names, tf.string, [len(names)])
    if seed is None or len(names) < 2:
        return read(paths)
    shards = _shuffled(tf.data.Dataset.from_tensor_slices(paths), len(names), seed)
    return shards.interleave(
        lambda name: read(name[tf.newaxis]), _AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _shuffled(texts: AnyDataset, buffer: int, seed: tf.Tensor) -> AnyDataset:
    """Shuffle a dataset of bytes once, without the stateful op of `Dataset.shuffle`, which checkpoints refuse."""
    import tensorflow as tf

    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(texts),
        buffer_size=max(buffer, 1),
        seed=seed,
        seed2=1,
        output_types=[tf.string],
        output_shapes=[[]],
        reshuffle_each_iteration=False,
    )
    shuffled: AnyDataset = tf.data.experimental.from_variant(variant, texts.element_spec)
    return shuffled


def any_reader(places: Mapping[str, tuple[Document, ShardEntry]]) -> Reader:
    """Return a reader of shards in any store, as TensorFlow supports fewer stores with less helpful errors.

    Args:
        places: each shard, with its manifest.
    """
    import tensorflow as tf

    def records(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
        wanted = [places[path.decode("utf-8", "surrogateescape")] for path in paths]
        for one, alike in groupby(wanted, lambda place: place[0]):
            items = one.find([entry for _, entry in alike])
            folder = copy(one.folder)  # prefetched data belongs to this iteration alone
            with folder.prefetch(items, _AT_ONCE):
                for item in items:
                    with OpenShard(folder, item) as shard:
                        yield from _in_pieces(record for _, record in RecordReader(shard.content, shard.name))

    signature = tf.TensorSpec([None], tf.string)
    return lambda names: tf.data.Dataset.from_generator(records, output_signature=signature, args=(names,)).unbatch()


def local_reader(compression: Literal["", "GZIP"]) -> Reader:
    """Return TensorFlow's own reader for local shards."""
    import tensorflow as tf

    return partial(tf.data.TFRecordDataset, compression_type=compression)


def _in_pieces(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group records into lists, as TensorFlow needs 30 us for each value that a Python generator yields."""
    piece, size = list[bytes](), 0
    for record in records:
        piece.append(record)
        size += len(record)
        if size >= _PIECE or len(piece) == _MOST_TOGETHER:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
