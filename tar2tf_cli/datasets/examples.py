"""Serialised examples of shards as tf.data datasets, in batches: by position in an order, or streamed.

`ByPosition` reads each batch independently, so that orders are global and a reader can continue anywhere; `Streamed`
delegates the order to tf.data, and reads shards without positions: compressed shards, and shards in buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from tar2tf_cli.datasets.order import epoch_seed, permuted
from tar2tf_cli.datasets.record_op import RecordOp
from tar2tf_cli.features.described import Described
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray

    from tar2tf_cli.datasets.records import Records
    from tar2tf_cli.inputs.manifest import Document, ShardEntry

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


class Examples(Protocol):
    """Interface of the serialised examples of a dataset, or of one host's share."""

    def one_by_one(self, batches: AnyDataset) -> AnyDataset:
        """Unbatch batches that contain all examples; the cardinality is set if all epochs have equal length."""

    def each(self) -> AnyDataset:
        """Return a dataset of the serialised examples, one by one."""

    def batches(self, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of parsed batches.

        Args:
            size: number of examples in a batch.
            drop_remainder: whether to drop an incomplete last batch.
            features: the manifest's features, each a tensor of one shape.
            parse: parses serialised examples to these tensors.
        """


@dataclass(frozen=True)
class Order:
    """The order of the examples in each epoch, and the number of examples to skip first.

    Attributes:
        seed: the random seed of all epochs; None for the order in which the records were written.
        start: number of examples already read, counted from the first epoch.
    """

    seed: int | None
    start: int = 0


class ByPosition:
    """Examples that are read by position.

    Args:
        reader: reads the examples.
        count: number of examples in an epoch.
        order: the order of the examples.
        mean: the mean size of a record in bytes.
    """

    def __init__(self, reader: RecordOp | RecordsByPosition, count: int, order: Order, mean: int) -> None:
        self._reader = reader
        self._count = count
        self._order = order
        self._mean = mean
        first, self._skipped = divmod(order.start, max(count, 1))
        self._first = first
        self._epochs = count_from(first)

    def each(self) -> AnyDataset:
        """Return a dataset of the serialised examples, one by one."""
        return self.one_by_one(self._batches(self._reader.messages, examples_at_once(self._mean), drop_remainder=False))

    def one_by_one(self, batches: AnyDataset) -> AnyDataset:
        """Unbatch the examples; the cardinality is unknown if the first epoch is shorter."""
        return batches.unbatch() if self._skipped else _counted(batches.unbatch(), self._count)

    def batches(self, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of parsed batches."""
        return self._batches(self._reader.columns(features, parse), size, drop_remainder, self._several(size))

    def _several(self, size: int) -> int:
        """Return the number of small batches per read, as a tf.data call takes as long as reading one batch."""
        return max(1, min(_READ // (size * self._mean), self._count // size // _LEAST_READS))

    def _batches(self, read: Read, size: int, drop_remainder: bool, several: int = 1) -> AnyDataset:
        """Return the batches of each epoch, reading `several` at once while there are enough."""
        import tensorflow as tf

        def reading(first: Any, end: Any, step: int, seed: Any, read: Read) -> AnyDataset:
            def read_from(at: tf.Tensor) -> object:
                return read(at, tf.minimum(at + step, self._count), seed)

            positions = tf.data.Dataset.range(first, end, step)
            return positions.map(read_from, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

        def read_several(first: tf.Tensor, last: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            found = read(first, last, seed)
            return {name: tf.reshape(value, [several, size, *value.shape[1:]]) for name, value in found.items()}

        def read_whole(first: tf.Tensor, last: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            found = read(first, last, seed)
            return {name: tf.ensure_shape(value, [size, *value.shape[1:]]) for name, value in found.items()}

        def of_epoch(first: Any, seed: Any = _AS_WRITTEN) -> AnyDataset:
            end = self._count - (self._count - first) % size if drop_remainder else self._count
            last = first if several == 1 else end - (end - first) % (several * size)
            rest = reading(last, end, size, seed, read_whole if drop_remainder else read)
            if several == 1:
                return rest
            return reading(first, last, several * size, seed, read_several).unbatch().concatenate(rest)

        def next_epoch(_: object) -> object:
            # not deterministic between calls, but checkpoints store its result
            return tf.numpy_function(self._next_epoch, [_], [tf.int64, tf.int64], stateful=False)

        if self._order == Order(None):
            return of_epoch(0)
        number = self._count // size if drop_remainder else -(-self._count // size)
        batches = tf.data.Dataset.range(1).map(next_epoch).flat_map(of_epoch)
        return batches if self._skipped else _counted(batches, number)

    def _next_epoch(self, _: object) -> tuple[np.int64, np.int64]:
        """Return the first position of the next epoch, and the seed of its order."""
        epoch, seed = next(self._epochs), self._order.seed
        first = self._skipped if epoch == self._first else 0
        return np.int64(first), np.int64(_AS_WRITTEN if seed is None else epoch_seed(seed, epoch))


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
    """Examples that tf.data reads from shards one after another, or interleaved.

    Args:
        records: the serialised examples.
        count: number of examples.
    """

    def __init__(self, records: AnyDataset, count: int) -> None:
        self._records = _counted(records, count)
        self._count = count

    def each(self) -> AnyDataset:
        """Return a dataset of the serialised examples, one by one."""
        return self._records

    def one_by_one(self, batches: AnyDataset) -> AnyDataset:
        """Unbatch the examples, and set the cardinality."""
        return _counted(batches.unbatch(), self._count)

    def batches(self, size: int, drop_remainder: bool, features: Described, parse: Parse) -> AnyDataset:
        """Return a dataset of parsed batches."""
        import tensorflow as tf

        batches = self._records.batch(size, drop_remainder)
        return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _counted(dataset: AnyDataset, count: int) -> AnyDataset:
    """Set the cardinality of a dataset."""
    import tensorflow as tf

    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def examples_at_once(mean: int) -> int:
    """Return the number of examples of a mean size to read at once for a dataset of single examples."""
    return min(max(_BYTES_TOGETHER // mean, 1), _MOST_TOGETHER)


def records_of_shards(names: Sequence[str], read: Reader, shuffle: int | None, seed: int | None) -> AnyDataset:
    """Return the records of shards one after another; to shuffle them, interleave shards in random order."""
    import tensorflow as tf

    paths = tf.constant(names, tf.string, [len(names)])
    if not shuffle or len(names) < 2:
        return read(paths)
    shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(names), seed)
    return shards.interleave(
        lambda name: read(name[tf.newaxis]), _AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


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
