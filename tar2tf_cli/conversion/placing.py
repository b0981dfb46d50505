"""Shards that a cluster stores at their final place by itself: one for each input, in a bucket of the same cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tar2tf_cli.conversion.group import Group
from tar2tf_cli.conversion.sharding import Shard
from tar2tf_cli.errors import OutputExistsError
from tar2tf_cli.stores import ObjectInfo, Source

if TYPE_CHECKING:
    from tar2tf_cli.stores.store import Store

__all__ = ["Placing"]


class Placing(NamedTuple):
    """Where a cluster stores the shards of a conversion.

    Attributes:
        store: the bucket.
        paths: the name of each input's shard, by the number of the input.
        replaceable: names of objects that may be replaced.
    """

    store: Store
    paths: list[str]
    replaceable: frozenset[str]

    def place(self, source: Source, numbers: tuple[int, ...], inputs: Sequence[ObjectInfo]) -> Group:
        """Have the shard of an input stored.

        Raises:
            OutputExistsError: when another program wrote an object of that name.
        """
        (number,) = numbers
        path = self.paths[number]
        where = self.store.locate(path)
        there = self.store.persist(lambda: self.store.head(path), shard=where)
        if there and os.path.normpath(path) not in self.replaceable:
            raise OutputExistsError("another program wrote it during the conversion", shard=where, replaceable=True)
        group = Group(numbers)
        report, sizes, group.spool_crc = source.place(inputs[number], self.store, path)
        group.index.sizes.extend(sizes)
        group.index.records.extend([1, report.samples - 1][: len(sizes)])
        group.add(report)
        return group

    def is_there(self, shard: Shard) -> bool:
        """Whether the shard of an input is there."""
        path = self.paths[shard.pieces[0].group]
        found = self.store.persist(lambda: self.store.head(path), shard=self.store.locate(path))
        return found is not None and found.size == shard.size
