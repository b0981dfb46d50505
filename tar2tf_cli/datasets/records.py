"""TFRecord shards as a sequence of examples that can be read in any order, without TensorFlow."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tar2tf_cli.datasets.indexes import Indexes
from tar2tf_cli.datasets.random_reader import RandomReader
from tar2tf_cli.datasets.shards import Paths, find_shards, paths_in

__all__ = ["Records", "open_records"]


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
    return Records(RandomReader(found, indexes, raw=raw))


class Records(Sequence[Any]):
    """The examples of shards, in order; see `open_records`.

    A slice is a view of the same shards, such as `records[host::hosts]` for one of several hosts.

    Raises:
        DamagedShardError: from each access to a record that is damaged, or not an example as the manifest describes it.
        IndexError: when there is no such record.
        SourceError: when a shard cannot be read, or changed since it was opened.
    """

    def __init__(self, reader: RandomReader) -> None:
        self._reader = reader
        self._numbers = range(reader.records)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<{len(self):,} records of {self._reader}>"

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            view = copy.copy(self)
            view._numbers = self._numbers[index]
            return view
        return self._reader.read(self._number(index))

    def __getitems__(self, indices: Iterable[int]) -> list[Any]:
        """Return the examples with these indices; those that are close to each other in a shard are read together."""
        numbers = [self._number(index) for index in indices]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        values = self._reader.read_many(numbers[place] for place in order)
        found = dict(zip(order, values, strict=True))
        return [found[place] for place in range(len(numbers))]

    def __iter__(self) -> Iterator[Any]:
        return self._reader.read_many(self._numbers)

    def _number(self, index: int) -> int:
        """Return the number of a record among those of all shards."""
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError(f"there is no record {index}: there are {len(self):,}") from None
