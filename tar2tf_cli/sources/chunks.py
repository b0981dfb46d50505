"""Long lists as inputs: put in order, cut short, and divided into chunks of a fixed size, whoever works on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

__all__ = ["CHUNK", "chunks", "shuffled"]

CHUNK: Final = 128
"""Files or rows that make an input. More would leave workers idle at the end, fewer would make a long manifest."""

T = TypeVar("T")


def shuffled(items: list[T], seed: int | None, name_of: Callable[[T], str]) -> list[T]:
    """Items in an order drawn from the seed and their names, the same on every machine; as they are without a seed."""
    if seed is None:
        return items
    prefix = f"{seed}\0"

    def place(item: T) -> bytes:
        return blake2b((prefix + name_of(item)).encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return sorted(items, key=place)


def chunks(items: list[T]) -> Iterator[tuple[str, list[T]]]:
    """Neighbouring items, and which they are, counted from 1: `1-128`, `129-256`."""
    for first in range(0, len(items), CHUNK):
        chunk = items[first : first + CHUNK]
        yield f"{first + 1}-{first + len(chunk)}", chunk
