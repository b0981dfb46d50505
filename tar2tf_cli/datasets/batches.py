"""Batches of records as columns of NumPy arrays, in order or shuffled, read in threads without TensorFlow.

The kernel reads and parses the records of local shards outside the GIL, if all examples have every feature in one
shape. Other records are read and decoded one by one, and stacked.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from tar2tf_cli.datasets.order import epoch_seed, number_of_examples, permuted, seed_of_orders, share_of_host
from tar2tf_cli.errors import UsageError, read_failed
from tar2tf_cli.features.described import MOST_KNOWN, Described, expected, for_kernel, is_optional, row_width
from tar2tf_cli.formats import kernel
from tar2tf_cli.ops.rules import accepted, optional, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AHEAD: Final = 2
"""Batches that are read ahead for each thread."""

_TOGETHER: Final = 1 << 13
"""Positions whose records are looked up at once, as that costs little more than for one batch."""

_STORED: Final = {"int64": "<i8", "float": "<f4"}


class BatchOptions(NamedTuple):
    """The examples to read, their order, and the size of batches.

    Attributes:
        size: number of examples in a batch.
        seed: the random seed of the order of each epoch; None for the order of the records.
        start: number of examples already read, counted from the first epoch.
        part: `(hosts, host)`: read every n-th example, for one of n hosts.
        drop_remainder: whether to drop an incomplete last batch of an epoch.
        epochs: number of epochs, including the one with `start`; None for no end.
    """

    size: int
    seed: int | None = None
    start: int = 0
    part: tuple[int, int] = (1, 0)
    drop_remainder: bool = False
    epochs: int | None = 1


def check_batch_options(reading: BatchOptions) -> BatchOptions:
    """Return the options with plain numbers.

    Raises:
        UsageError: names an argument that is impossible.
    """
    return reading._replace(
        size=number_of_examples(reading.size, "size", 1),
        seed=seed_of_orders(reading.seed),
        start=number_of_examples(reading.start, "start", 0),
        part=share_of_host(reading.part),
        epochs=accepted(optional(whole_number(0)), reading.epochs, "epochs"),
    )


class ColumnSource(Protocol):
    """A sequence of samples with random access by column."""

    def __len__(self) -> int: ...

    def columns(self, indices: NDArray[np.int64]) -> dict[str, object]:
        """Return the samples with these indices as a dict of arrays."""


class Batches(Iterator[dict[str, Any]]):
    """Iterator over batches of samples, each a dict of arrays whose first dimension is the example.

    Texts and images are an array of bytes objects; values that differ in shape are an array of objects.

    Args:
        records: all samples.
        reading: the examples to read, and the size of batches.
        threads: number of threads that read ahead.

    Attributes:
        read: number of examples read, including `start`: pass it as `start` to continue with the next one.

    Raises:
        UsageError: on a batch in a forked process, if batches were read before the fork.
    """

    def __init__(self, records: ColumnSource, reading: BatchOptions, threads: int) -> None:
        threads = accepted(whole_number(1), threads, "threads")
        reading = check_batch_options(reading)
        self.read = reading.start
        self._records = records
        self._begun_in: int | None = None
        self._pool = ThreadPoolExecutor(threads, "tar2tf-batches")
        self._asked = _numbers_of_batches(reading, len(records))
        self._ready: deque[tuple[int, Future[dict[str, Any]]]] = deque()
        self._ahead = threads * _AHEAD

    def __next__(self) -> dict[str, object]:
        if self._begun_in not in (None, os.getpid()):  # whose threads this process does not have
            hint = f"make them in this process, with start={self.read} to continue"
            raise UsageError("these batches were begun before this process was forked", hint=hint)
        self._begun_in = os.getpid()
        while len(self._ready) < self._ahead and (asked := next(self._asked, None)):
            end, numbers = asked
            self._ready.append((end, self._pool.submit(self._records.columns, numbers)))
        if not self._ready:
            self._pool.shutdown(wait=False)
            raise StopIteration
        end, batch = self._ready.popleft()
        found = batch.result()
        self.read = end
        return found

    def close(self) -> None:
        """Stop reading ahead."""
        for _, batch in self._ready:
            batch.cancel()
        self._ready.clear()
        self._asked = iter(())
        self._pool.shutdown()


def _numbers_of_batches(reading: BatchOptions, total: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the record numbers of each batch, with the number of records read after it.

    It refers to no `Batches`, whose threads end as soon as nobody refers to it.
    """
    hosts, host = reading.part
    count = len(range(host, total, hosts))
    together = reading.size * max(1, _TOGETHER // reading.size)
    epoch, first = divmod(reading.start, max(count, 1))
    end = None if reading.epochs is None else epoch + reading.epochs
    least = reading.size if reading.drop_remainder else 1
    while count >= least and (end is None or epoch < end):
        seed = None if reading.seed is None else epoch_seed(reading.seed, epoch)
        stop = count - (count - first) % reading.size if reading.drop_remainder else count
        for begin in range(first, stop, together):
            positions = np.arange(begin, min(begin + together, stop)) * hosts + host
            numbers = positions if seed is None else permuted(seed, positions, total)
            for at in range(0, len(numbers), reading.size):
                batch = numbers[at : at + reading.size]
                yield epoch * count + begin + at + len(batch), batch
        epoch, first = epoch + 1, 0


class ColumnReader:
    """Reads the records of local shards as columns, with the kernel.

    Args:
        features: the manifest's features.
        records: number of records; a feature with a smaller count is optional.
    """

    def __init__(self, features: Described, records: int) -> None:
        wanted = expected(features)
        widths = [row_width(name, features) for name in wanted]
        optional = any(is_optional(feature, records) for feature in features.values())
        self._features = features
        self._usable = bool(features) and not optional and None not in widths and len(widths) <= MOST_KNOWN
        self._names = list(wanted)
        self._known = b"".join(for_kernel(name, own) for name, own in wanted.items())
        self._widths = np.array([-1 if width is None else width for width in widths], np.int64)

    def read(self, spans: NDArray[np.int64]) -> dict[str, object] | None:
        """Return the columns of records; None if they must be read individually.

        Args:
            spans: the file descriptor of each record, and its start and end in the file.
        """
        native = kernel.native()
        if not native or not self._usable:
            return None
        made = native.rows(spans.tobytes(), self._known, self._widths.tobytes())
        if made is None:
            return None
        columns = zip(self._names, made, self._widths.tolist(), strict=True)
        return {name: self._values(name, column) for name, column, width in columns if width >= 0}

    def _values(self, name: str, column: bytearray | list[bytes]) -> NDArray[np.generic]:
        feature = self._features[name]
        if isinstance(column, list):
            return as_objects(column)
        dtype = _STORED.get(feature["encoding"], feature["dtype"])
        return np.frombuffer(column, dtype).reshape(-1, *feature["shape"]).astype(feature["dtype"], copy=False)


def as_objects(values: Sequence[object]) -> NDArray[np.object_]:
    """Return values as a one-dimensional array of objects."""
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def stacked(examples: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Stack examples to columns; a feature whose values differ in shape or are missing becomes an object array."""
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for example in examples for name in example):
        values: list[Any] = [example.get(name) for example in examples]
        alike = {(getattr(value, "shape", None), getattr(value, "dtype", None)) for value in values}
        is_array = len(alike) == 1 and (None, None) not in alike
        if is_array:
            columns[name] = np.stack(values)
        else:
            columns[name] = np.empty(len(values), object)
            for number, value in enumerate(values):
                columns[name][number] = value
    return columns


class OpenFiles:
    """Open files of local shards in one process, shared by several threads."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def descriptor(self, path: str) -> int:
        """Return the descriptor of a file, which stays open until `close`.

        Raises:
            SourceError: when the file cannot be opened.
        """
        with self._lock:
            if path not in self._open:
                try:
                    self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    raise read_failed(path, error) from None
            return self._open[path]

    def close(self) -> None:
        """Close all files, which no thread may be reading."""
        with self._lock:
            for descriptor in self._open.values():
                os.close(descriptor)
            self._open.clear()

    def __del__(self) -> None:
        self.close()
