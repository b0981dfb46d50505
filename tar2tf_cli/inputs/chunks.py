"""Long lists as inputs: put in order and divided into chunks, the same ones for any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

from tar2tf_cli.stores.base import ObjectInfo

__all__ = ["CHUNK", "divided", "shuffled"]

CHUNK: Final = 128
"""Files or rows that make an input. More would leave workers idle at the end, fewer would make a long manifest."""

_SMALLEST: Final = 32
_LARGEST: Final = 2048

T = TypeVar("T")


def shuffled(items: list[T], seed: int | None, name_of: Callable[[T], str]) -> list[T]:
    """Items in a random order that seed and names decide, the same on every machine; as they are without a seed."""
    if seed is None:
        return items
    prefix = f"{seed}\0"

    def place(item: T) -> bytes:
        return blake2b((prefix + name_of(item)).encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return sorted(items, key=place)


def divided(
    noun: str, items: list[T], describe: Callable[[T], tuple[int, bytes]], shards: int | None = None
) -> Iterator[tuple[ObjectInfo, list[T]]]:
    """Chunks of neighbouring items, each with the input that it makes.

    Args:
        noun: what the items are; inputs are named after their places, counted from 1: `rows 1-128`, `rows 129-256`.
        items: the items, in order.
        describe: size in bytes of an item, and what changes when its bytes do, for the input's size and version.
        shards: how many shards of equal count are to be made of them. Each of these is a chunk then, the larger ones
            first, unless they are very small or very large.
    """
    least, larger = divmod(len(items), shards or 1)
    counts = [CHUNK] * -(-len(items) // CHUNK)
    if shards and _SMALLEST <= least < _LARGEST:
        counts = [least + (number < larger) for number in range(shards)]
    first = 0
    for count in counts:
        chunk = items[first : first + count]
        size, version = 0, blake2b(digest_size=16)
        for item in chunk:
            added, described = describe(item)
            size += added
            version.update(described)
        yield ObjectInfo(f"{noun} {first + 1}-{first + len(chunk)}", size, version.hexdigest()), chunk
        first += count
