"""TFRecord shards as a sequence of examples that can be read in any order, without TensorFlow."""

from __future__ import annotations

import copy
import hashlib
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.datasets.shards import Paths, Shard, find_shards, paths_in
from tar2tf_cli.errors import DamagedShardError, SinkError, UsageError, count
from tar2tf_cli.formats.compression import compression_of
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.record_index import Index, from_lines, pack, scan, unpack
from tar2tf_cli.formats.tfrecord import record_length, unframed
from tar2tf_cli.inputs.open_shard import shard_format
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import Source
from tar2tf_cli.stores.base import Ranges

if TYPE_CHECKING:
    from tar2tf_cli.formats.record_index import Index


_HEAD: Final = 512
_SAMPLES: Final = 8
_READ: Final = 1 << 20
_FRONT_TO_BACK: Final = "convert again without --compression, or read it from front to back with load_dataset"


class Indexes:
    """Where the indexes of shards are found, and where new ones are kept.

    Args:
        folder: the folder for indexes; None for tar2tf in XDG_CACHE_HOME or ~/.cache, "" to keep none.
    """

    def __init__(self, folder: str | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self.folder = os.path.join(home, "tar2tf") if folder is None else folder

    def find(self, shard: Shard, ranges: Ranges, *, beside: bool = True) -> Index:
        """Return the index of a shard.

        Args:
            shard: the shard.
            ranges: reads the shard.
            beside: whether a file SHARD.idx may be used.

        Raises:
            DamagedShardError: when the shard is damaged, or its manifest gives another number of records.
            SourceError: when it cannot be read.
            UsageError: when it is compressed, or not a TFRecord.
        """
        for index in self._found(shard, ranges, beside=beside):
            if index is not None and shard.records in (None, len(index) - 1):
                return index
        index = self._scanned(shard, ranges)
        if shard.records not in (None, len(index) - 1):
            message = f"the file has {len(index) - 1:,} records, but {shard.records:,} in the manifest"
            raise DamagedShardError(message, kind="count", shard=shard.name, hint="convert again")
        self._keep(shard, index)
        return index

    def _found(self, shard: Shard, ranges: Ranges, *, beside: bool) -> Iterator[Index | None]:
        path = self._path(shard)
        if path:
            with suppress(OSError), open(path, "rb") as file:
                yield unpack(file.read(), shard.name, str(shard.item.version), shard.size)
        if beside and shard.records is not None:  # lines that are joined, or missing, show by the number of records
            yield _beside(shard, ranges)

    def _scanned(self, shard: Shard, ranges: Ranges) -> Index:
        try:
            return scan(lambda start, size: ranges.read(shard.item, start, size), shard.size, shard.name)
        except DamagedShardError as error:
            if not error.offset:
                _refuse(ranges.read(shard.item, 0, _HEAD), shard.name)
            error.hint = f"tar2tf verify --salvage writes its good records: {shard.name}"
            raise

    def _path(self, shard: Shard) -> str | None:
        """Return the path of a shard's index; its name depends on everything that says which bytes the shard has."""
        if not self.folder or shard.item.version is None:
            return None
        name = shard.name if is_remote(shard.name) else os.path.abspath(shard.name)
        whole = f"{name}\n{shard.size}\n{shard.item.version}".encode("utf-8", "surrogateescape")
        return os.path.join(self.folder, f"{hashlib.sha256(whole).hexdigest()[:32]}.index")

    def _keep(self, shard: Shard, index: Index) -> None:
        if path := self._path(shard):
            with suppress(OSError, SinkError):  # a home that cannot be written to is no fault of the shard's
                os.makedirs(self.folder, exist_ok=True)
                write_whole(path, pack(index, shard.name, str(shard.item.version)), lasting=False)


def _refuse(head: bytes, name: str) -> None:
    """Raise an error if the first bytes of a file say that it is not a TFRecord that can be read in any order."""
    if method := compression_of(head):
        message = f"is compressed with {method}, so that its records cannot be read in any order"
        raise UsageError(message, shard=name, hint=_FRONT_TO_BACK)
    if shard_format(head) == "tar":
        raise UsageError("is a tar, not a TFRecord", shard=name, hint="convert it first: tar2tf convert")
    if found := foreign(head):
        raise UsageError(f"is {found[0]}, not a TFRecord", shard=name, hint=found[1])
    if shard_format(head) is None:
        hint = "name only the shards, by a manifest or a template such as 'out/*.record'"
        raise UsageError("is not a TFRecord, or its first bytes are damaged", shard=name, hint=hint)


def _beside(shard: Shard, ranges: Ranges) -> Index | None:
    """Read SHARD.idx; None if there is none, or if it is not an index of these bytes."""
    name = f"{shard.item.name}.idx"
    item = shard.source.find([name]).get(name)
    if item is None:
        return None
    with closing(shard.source.open(item)) as stream:
        index = from_lines(b"".join(iter(lambda: stream.read(_READ), b"")), shard.size)
    if index is None or len(index) == 1:
        return index
    for record in range(0, len(index) - 1, -(-(len(index) - 1) // _SAMPLES)):
        start, end = index[record : record + 2].tolist()
        try:
            if record_length(ranges.read(shard.item, start, 12)) != end - start - 16:
                return None
        except DamagedShardError:
            return None
    return index


_TOGETHER: Final = 4 << 20
"""The most bytes that are read at once."""

_THREADS: Final = 16
_WRONG_INDEX: Final = ("length_crc", "too_large", "truncated")
"""What a record seems to suffer from when the index beside its shard is of another version of the shard."""


def open_records(
    shards: Paths,
    *more: str | os.PathLike[str],
    split: str | None = None,
    raw: bool = False,
    index_folder: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> Records:
    """Open TFRecord shards as a sequence of examples that can be read in any order.

    `records[i]` is a dict of NumPy values and bytes by feature name; with a manifest, the values are those of
    `load_dataset`. TensorFlow is not imported. The result suits `grain.MapDataset.source` and the DataLoader of torch:
    it can be pickled, and several threads and forked processes may read from it.

    The records of a shard are found by SHARD.idx, if there is such a file; otherwise the lengths in the shard are read
    once, and an index is kept in the user's cache for this version of the shard. The CRCs of each record that is read
    are checked.

    Args:
        shards: the path or URL of a manifest, a shard, a folder with or without a manifest, or a template such as
            `"out/train-*.record"`; or a list of these, whose records follow each other.
        more: further ones.
        split: only the shards of this split of the manifest.
        raw: whether to return the bytes of each record, which then need not be an example.
        index_folder: the folder where indexes are kept; by default tar2tf in XDG_CACHE_HOME or ~/.cache, "" to keep
            none.
        endpoint: URL of the store that holds the bucket.
        retry_for: for how many seconds failed requests to the store are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.

    Raises:
        SourceError: when there is nothing at a path, or a shard of the manifest is missing.
        DamagedShardError: when a shard has another size than in the manifest or, without a manifest, a damaged length.
        UsageError: when a shard is compressed or not a TFRecord, or there is no such split.
    """
    found = find_shards(
        paths_in(shards, more), split, endpoint=endpoint, retry_for=retry_for, no_sign_request=no_sign_request
    )
    indexes = Indexes(None if index_folder is None else os.fspath(index_folder))
    return Records(found, indexes, raw=raw)


class _Span(NamedTuple):
    """The bytes of one record, framing included.

    Attributes:
        shard: number of its shard among the shards.
        record: number of the record in its shard.
        start: offset of its first byte.
        end: offset after its last byte.
    """

    shard: int
    record: int
    start: int
    end: int


class Records(Sequence[Any]):
    """The examples of shards, in order; see `open_records`.

    A slice is a view of the same shards, such as `records[host::hosts]` for one of several hosts.

    Raises:
        DamagedShardError: from each access to a record that is damaged, or not an example as the manifest describes it.
        IndexError: when there is no such record.
        SourceError: when a shard cannot be read, or changed since it was opened.
    """

    def __init__(self, shards: Sequence[Shard], where: Indexes, *, raw: bool = False) -> None:
        self._shards = shards
        self._where = where
        self._raw = raw
        self._indexes: dict[int, Index] = {}  # found when a shard is read for the first time
        self._process = _Process()
        uncounted = [number for number, shard in enumerate(shards) if shard.records is None]
        if len(uncounted) > 1:
            list(self._here.pool.map(self._index, uncounted))
        counts = [len(self._index(p)) - 1 if s.records is None else s.records for p, s in enumerate(shards)]
        self._ends = list(accumulate(counts))
        self._numbers = range(sum(counts))

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        ends = dict.fromkeys(shard.name for shard in (*self._shards[:1], *self._shards[-1:]))
        return f"<{count(len(self), 'record')} of {count(len(self._shards), 'shard')}: {' … '.join(ends)}>"

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            view = copy.copy(self)
            view._numbers = self._numbers[index]
            return view
        return self._values([self._span(self._number(index))])[0]

    def __getitems__(self, indices: Iterable[int]) -> list[Any]:
        """Return the examples with these indices; those that are close to each other in a shard are read together."""
        numbers = [self._number(index) for index in indices]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        values = self._read(numbers[position] for position in order)
        found = dict(zip(order, values, strict=True))
        return [found[position] for position in range(len(numbers))]

    def __iter__(self) -> Iterator[Any]:
        return self._read(self._numbers)

    @property
    def _here(self) -> _Process:
        """What this process has; a forked one does not use what its parent had."""
        if self._process.number != os.getpid():
            self._process = _Process()
        return self._process

    def _number(self, index: int) -> int:
        """Return the number of a record among those of all shards."""
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError(f"there is no record {index}: there are {len(self):,}") from None

    def _read(self, numbers: Iterable[int]) -> Iterator[Any]:
        """Yield the values of records in the order given; from a bucket, the next are requested in the meantime."""
        waiting: deque[Future[list[Any]]] = deque()
        for group in self._groups(numbers):
            at_once = self._ranges(group[0].shard).parallel
            if at_once == 1 and not waiting:
                yield from self._values(group)
                continue
            waiting.append(self._here.pool.submit(self._values, group))
            if len(waiting) >= at_once:
                yield from waiting.popleft().result()
        for values in waiting:
            yield from values.result()

    def _groups(self, numbers: Iterable[int]) -> Iterator[list[_Span]]:
        """Group records that are read together: each begins where the one before ends, or a little later."""
        group: list[_Span] = []
        for number in numbers:
            span = self._span(number)
            if group and not self._fits(span, group):
                yield group
                group = []
            group.append(span)
        if group:
            yield group

    def _fits(self, span: _Span, group: list[_Span]) -> bool:
        last = group[-1]
        near = span.shard == last.shard and last.start <= span.start <= last.end + self._ranges(span.shard).gap
        return near and span.end - group[0].start <= _TOGETHER

    def _span(self, number: int) -> _Span:
        shard_number = bisect_right(self._ends, number)
        record = number - self._ends[shard_number - 1] if shard_number else number
        index = self._index(shard_number)
        return _Span(shard_number, record, int(index[record]), int(index[record + 1]))

    def _index(self, number: int) -> Index:
        found = self._indexes.get(number)
        if found is None:
            with self._here.indexing(number):
                if number not in self._indexes:
                    self._indexes[number] = self._where.find(self._shards[number], self._ranges(number))
                found = self._indexes[number]
        return found

    def _ranges(self, number: int) -> Ranges:
        return self._here.ranges(self._shards[number].source)

    def _values(self, group: list[_Span]) -> list[Any]:
        shard_number, start = group[0].shard, group[0].start
        data = self._ranges(shard_number).read(self._shards[shard_number].item, start, group[-1].end - start)
        return [self._value(span, data[span.start - start : span.end - start]) for span in group]

    def _value(self, span: _Span, framed: bytes) -> Any:
        shard = self._shards[span.shard]
        try:
            data = unframed(framed)
        except DamagedShardError as error:
            if error.kind in _WRONG_INDEX and (other := self._indexed_again(span)):
                return self._values([other])[0]
            raise self._at(error, span) from None
        if self._raw:
            return data
        try:
            return shard.decode(data)
        except ValueError as error:
            hint = "raw=True returns its bytes"
            raise self._at(DamagedShardError(str(error), kind="not_an_example", hint=hint), span) from None

    def _at(self, error: DamagedShardError, span: _Span) -> DamagedShardError:
        shard = self._shards[span.shard].name
        hint = f"tar2tf verify --salvage writes the good records of a shard: {shard}"
        return error.at(shard=shard, member=f"record {span.record}", offset=span.start, hint=hint)

    def _indexed_again(self, span: _Span) -> _Span | None:
        """Return where a record is by the lengths in its shard, if the index beside the shard says otherwise."""
        shard = self._shards[span.shard]
        try:
            found = self._where.find(shard, self._ranges(span.shard), beside=False)
        except DamagedShardError:
            return None
        self._indexes[span.shard] = found
        start, end = int(found[span.record]), int(found[span.record + 1])
        return None if (start, end) == (span.start, span.end) else span._replace(start=start, end=end)


class _Process:
    """What the readers of one process share: open files and connections, and threads.

    Attributes:
        number: the number of the process.
        pool: threads for requests, which start with the first one.
    """

    def __init__(self) -> None:
        self.number = os.getpid()
        self.pool = ThreadPoolExecutor(_THREADS, "tar2tf-read")
        self._ranges: dict[int, Ranges] = {}
        self._indexing: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def ranges(self, source: Source) -> Ranges:
        """Return the reader of a source."""
        found = self._ranges.get(id(source))
        if found is None:
            with self._lock:
                found = self._ranges.setdefault(id(source), source.ranges())
        return found

    def indexing(self, number: int) -> threading.Lock:
        """Return the lock for looking for a shard's index."""
        return self._indexing.setdefault(number, threading.Lock())

    def __reduce__(self) -> tuple[Any, ...]:
        return _Process, ()
