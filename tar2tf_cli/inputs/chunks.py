"""Long lists as inputs: put in order, cut short, and divided into chunks of a fixed size, whoever works on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

__all__ = ["CHUNK", "chunks", "shuffled"]

CHUNK: Final = 128
"""Files or rows that make an input. More would leave workers idle at the end, fewer would make a long manifest."""

_SMALLEST: Final = 32
_LARGEST: Final = 2048

T = TypeVar("T")


def shuffled(items: list[T], seed: int | None, name_of: Callable[[T], str]) -> list[T]:
    """Items in an order drawn from the seed and their names, the same on every machine; as they are without a seed."""
    if seed is None:
        return items
    prefix = f"{seed}\0"

    def place(item: T) -> bytes:
        return blake2b((prefix + name_of(item)).encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return sorted(items, key=place)


def chunks(items: list[T], shards: int | None = None) -> Iterator[tuple[str, list[T]]]:
    """Neighbouring items, and which they are, counted from 1: `1-128`, `129-256`.

    With a number of shards of equal count, the larger ones first, each of these is a chunk, unless it is very small
    or very large.
    """
    least, larger = divmod(len(items), shards or 1)
    sizes = [CHUNK] * -(-len(items) // CHUNK)
    if shards and _SMALLEST <= least < _LARGEST:
        sizes = [least + (number < larger) for number in range(shards)]
    first = 0
    for size in sizes:
        chunk = items[first : first + size]
        yield f"{first + 1}-{first + len(chunk)}", chunk
        first += size
