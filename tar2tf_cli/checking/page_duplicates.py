"""Finds samples with equal bytes among all shards, and those that are in more than one split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tar2tf_cli.checking.page_data import ShardPage, split_of

__all__ = ["Duplicates", "find_duplicates"]

_MOST_GROUPS = 8
_MOST_MEMBERS = 6


class Duplicates(NamedTuple):
    """Samples with equal images or, without images, with equal values.

    Attributes:
        extra: how many samples repeat another.
        leaked: how many groups of equal samples are in more than one split.
        groups: shard and number of the samples of some groups, those in more than one split first.
    """

    extra: int
    leaked: int
    groups: list[list[tuple[str, int]]]


def find_duplicates(pages: Sequence[ShardPage]) -> Duplicates:
    """Find equal samples; takes about 50 bytes of memory for each sample."""
    import numpy as np

    digests = np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(page.digests, np.uint64) for page in pages)])
    if not len(digests):
        return Duplicates(0, 0, [])
    begins = np.cumsum([0, *(len(page.digests) for page in pages)])
    splits = [split_of(page.name) for page in pages]
    names = sorted({split for split in splits if split})
    bits = np.array([1 << names.index(split) if split else 0 for split in splits], np.int64)
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    sizes = np.diff(np.append(starts, len(digests)))
    shards = np.searchsorted(begins, order, "right") - 1
    found = np.bitwise_or.reduceat(bits[shards], starts)
    leaked = np.flatnonzero(found & (found - 1))  # more than one bit
    groups = [*leaked[:_MOST_GROUPS].tolist(), *np.flatnonzero(sizes > 1)[: 2 * _MOST_GROUPS].tolist()]
    members = [range(int(starts[group]), int(starts[group] + min(sizes[group], _MOST_MEMBERS))) for group in groups]
    shown = [
        [(pages[int(shards[place])].name, int(order[place] - begins[shards[place]])) for place in places]
        for places in members
    ]
    unique = list({str(group): group for group in shown}.values())
    return Duplicates(int((sizes - 1).sum()), len(leaked), unique[:_MOST_GROUPS])
