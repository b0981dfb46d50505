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
    """Find equal samples; takes about 20 bytes of memory for each sample, and more for those that repeat another."""
    import numpy as np

    digests = np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(page.digests, np.uint64) for page in pages)])
    found, counts = np.unique(digests, return_counts=True)
    groups: dict[int, list[tuple[str, int]]] = {digest: [] for digest in found[counts > 1].tolist()}
    for page in pages:
        for number, digest in enumerate(page.digests if groups else ()):
            if digest in groups:
                groups[digest].append((page.name, number))
    leaked = sum(map(_is_leaked, groups.values()))
    shown = sorted(groups.values(), key=_is_leaked, reverse=True)[:_MOST_GROUPS]
    return Duplicates(len(digests) - len(found), leaked, [group[:_MOST_MEMBERS] for group in shown])


def _is_leaked(group: list[tuple[str, int]]) -> bool:
    return len({split_of(name) for name in {name for name, _ in group}} - {None}) > 1
