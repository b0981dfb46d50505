"""Reads records of many shards by their numbers: one, or several at once, those close to each other together."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.datasets.indexes import Indexes
from tar2tf_cli.datasets.shards import Shard
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.tfrecord import unframed
from tar2tf_cli.stores import Source

if TYPE_CHECKING:
    from tar2tf_cli.formats.record_index import Index
    from tar2tf_cli.stores.ranges import Ranges

__all__ = ["RandomReader"]

_TOGETHER: Final = 4 << 20
"""The most bytes that are read at once."""

_THREADS: Final = 16
_WRONG_INDEX: Final = ("length_crc", "too_large", "truncated")
"""What a record seems to suffer from when the index beside its shard is of another version of the shard."""


class Span(NamedTuple):
    """The bytes of one record, framing included.

    Attributes:
        place: place of its shard among the shards.
        record: number of the record in its shard.
        start: offset of its first byte.
        end: offset after its last byte.
    """

    place: int
    record: int
    start: int
    end: int


class RandomReader:
    """Reads records by number, counted through all shards.

    Indexes are found when a shard is read for the first time; those of shards whose number of records no manifest
    says, at once.

    Attributes:
        records: number of records in all shards.
    """

    def __init__(self, shards: Sequence[Shard], indexes: Indexes, *, raw: bool = False) -> None:
        self._shards = shards
        self._where = indexes
        self._raw = raw
        self._indexes: dict[int, Index] = {}
        self._process = _Process()
        uncounted = [place for place, shard in enumerate(shards) if shard.records is None]
        if len(uncounted) > 1:
            list(self._process.pool.map(self._index, uncounted))
        counts = [len(self._index(p)) - 1 if s.records is None else s.records for p, s in enumerate(shards)]
        self._ends = list(accumulate(counts))
        self.records = sum(counts)

    def __str__(self) -> str:
        names = [self._shards[place].name for place in sorted({0, len(self._shards) - 1})] if self._shards else []
        return f"{len(self._shards):,} shards: {' … '.join(names)}"

    def read(self, number: int) -> Any:
        """Return the value of one record.

        Raises:
            DamagedShardError: when it is damaged, or is not an example as the manifest describes it.
            SourceError: when its shard cannot be read, or changed.
        """
        return self._value(self._span(number))

    def read_many(self, numbers: Iterable[int]) -> Iterator[Any]:
        """Yield the values of records in the order given; from a bucket, the next are requested in the meantime."""
        waiting: deque[Future[list[Any]]] = deque()
        for group in self._groups(numbers):
            at_once = self._ranges(group[0].place).parallel
            if at_once == 1 and not waiting:
                yield from self._values(group)
                continue
            waiting.append(self._process.pool.submit(self._values, group))
            if len(waiting) >= at_once:
                yield from waiting.popleft().result()
        for values in waiting:
            yield from values.result()

    def _groups(self, numbers: Iterable[int]) -> Iterator[list[Span]]:
        """Group records that are read together: each begins where the one before ends, or a little later."""
        group: list[Span] = []
        for number in numbers:
            span = self._span(number)
            if group and not self._together(group[0], group[-1], span):
                yield group
                group = []
            group.append(span)
        if group:
            yield group

    def _together(self, first: Span, last: Span, span: Span) -> bool:
        return (
            span.place == last.place
            and last.start <= span.start <= last.end + self._ranges(span.place).gap
            and span.end - first.start <= _TOGETHER
        )

    def _span(self, number: int) -> Span:
        place = bisect_right(self._ends, number)
        record = number - self._ends[place - 1] if place else number
        index = self._index(place)
        return Span(place, record, int(index[record]), int(index[record + 1]))

    def _index(self, place: int) -> Index:
        found = self._indexes.get(place)
        if found is None:
            with self._process.indexing(place):
                if place not in self._indexes:
                    self._indexes[place] = self._where.find(self._shards[place], self._ranges(place))
                found = self._indexes[place]
        return found

    def _ranges(self, place: int) -> Ranges:
        return self._process.ranges(self._shards[place].source)

    def _read(self, place: int, start: int, end: int) -> bytes:
        return self._ranges(place).read(self._shards[place].item, start, end - start)

    def _values(self, group: list[Span]) -> list[Any]:
        start = group[0].start
        data = self._read(group[0].place, start, group[-1].end)
        return [self._value(span, data[span.start - start : span.end - start]) for span in group]

    def _value(self, span: Span, framed: bytes | None = None) -> Any:
        shard = self._shards[span.place]
        try:
            data = unframed(self._read(span.place, span.start, span.end) if framed is None else framed)
        except DamagedShardError as error:
            if error.kind in _WRONG_INDEX and (other := self._indexed_again(span)):
                return self._value(other)
            raise self._at(error, span) from None
        if self._raw:
            return data
        try:
            return shard.decode(data)
        except ValueError as error:
            hint = "raw=True returns its bytes"
            raise self._at(DamagedShardError(str(error), kind="not_an_example", hint=hint), span) from None

    def _at(self, error: DamagedShardError, span: Span) -> DamagedShardError:
        shard = self._shards[span.place].name
        hint = error.hint or f"tar2tf verify --salvage writes the good records of a shard: {shard}"
        error.hint = hint
        return error.at(shard=shard, member=f"record {span.record}", offset=span.start)

    def _indexed_again(self, span: Span) -> Span | None:
        """Return where a record is by the lengths in its shard, if the index beside the shard says otherwise.

        Raises:
            DamagedShardError: when the shard has another number of records than the index.
        """
        shard, index = self._shards[span.place], self._index(span.place)
        try:
            found = self._where.find(shard, self._ranges(span.place), beside=False)
        except DamagedShardError:
            return None
        if len(found) != len(index):
            message = f"has {len(found) - 1:,} records, but {len(index) - 1:,} in the index beside it"
            raise DamagedShardError(message, kind="count", shard=shard.name, hint="delete the index")
        self._indexes[span.place] = found
        start, end = int(found[span.record]), int(found[span.record + 1])
        return None if (start, end) == (span.start, span.end) else span._replace(start=start, end=end)


class _Process:
    """What the readers of one process share: open files and connections, and threads; a forked process has its own."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._ranges: dict[int, Ranges] = {}
        self._indexing: dict[int, threading.Lock] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def _inherited(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def ranges(self, source: Source) -> Ranges:
        """Return the reader of a source."""
        self._inherited()
        found = self._ranges.get(id(source))
        if found is None:
            with self._lock:
                found = self._ranges.setdefault(id(source), source.ranges())
        return found

    def indexing(self, place: int) -> threading.Lock:
        """Return the lock for looking for a shard's index."""
        self._inherited()
        return self._indexing.setdefault(place, threading.Lock())

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for requests."""
        self._inherited()
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(_THREADS, "tar2tf-read")
            return self._pool

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        self._begin()
