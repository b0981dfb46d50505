"""Search for samples that differ only in their keys, by digests of each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tar2tf_cli.checking.page_samples import ShardPage
from tar2tf_cli.inputs.numbering import split_of

_MOST_GROUPS: Final = 8
_MOST_MEMBERS: Final = 6


class DuplicateGroup(NamedTuple):
    """Samples that are equal except for their keys.

    Attributes:
        samples: the shard and the key of some of the samples.
        more: number of further samples.
    """

    samples: list[tuple[str, str]]
    more: int = 0


class Duplicates(NamedTuple):
    """All groups of samples that are equal except for their keys.

    Attributes:
        extra: number of samples that repeat another one.
        leaked: number of groups of equal samples in more than one split.
        groups: some of the groups, those in more than one split first.
    """

    extra: int
    leaked: int
    groups: list[DuplicateGroup]


def find_duplicates(pages: Sequence[ShardPage]) -> Duplicates:
    """Find equal samples, in about 20 bytes of memory per sample, plus keys of repeated ones."""
    digests = np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(page.digests, np.uint64) for page in pages)])
    distinct, counts = np.unique(digests, return_counts=True)
    groups: dict[int, list[tuple[str, str]]] = {digest: [] for digest in distinct[counts > 1].tolist()}
    for page in pages:
        for digest, key in zip(page.digests, page.keys, strict=True) if groups else ():
            if digest in groups:
                groups[digest].append((page.name, key))
    leaked = sum(map(_is_leaked, groups.values()))
    shown = sorted(groups.values(), key=_is_leaked, reverse=True)[:_MOST_GROUPS]
    some = [DuplicateGroup(group[:_MOST_MEMBERS], max(len(group) - _MOST_MEMBERS, 0)) for group in shown]
    return Duplicates(len(digests) - len(distinct), leaked, some)


def _is_leaked(group: list[tuple[str, str]]) -> bool:
    return len({split_of(name) for name in {name for name, _ in group}} - {None}) > 1
