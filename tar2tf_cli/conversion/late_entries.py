"""The long lists of a large manifest, parsed as they are used: a million entries are there at once, not in memory."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

__all__ = ["Divided", "LateEntries", "divided"]

T = TypeVar("T")

_LARGE: Final = 16 << 20
_AT_ONCE: Final = 1000
_INPUTS: Final = b',\n "inputs": ['
_SHARDS: Final = b'\n ],\n "shards": ['
_FEATURES: Final = b'\n ],\n "features": {'
_LINEAGE: Final = b',\n "lineage": {\n'


class Divided(NamedTuple):
    """A large manifest: the document without its inputs, shards and lineage, and the two lists as they are written."""

    rest: bytes
    inputs: memoryview
    shards: memoryview


def divided(data: bytes) -> Divided | None:
    """Divide a large manifest; None if it is small, or laid out in another way than manifests are written."""
    if len(data) < _LARGE:
        return None
    inputs = data.find(_INPUTS)
    shards = data.find(_SHARDS, inputs)
    features = data.find(_FEATURES, shards)
    if min(inputs, shards, features) < 0:
        return None
    lineage = data.find(_LINEAGE, features)
    end = b"\n}" if lineage >= 0 else b""
    tail = data[features + 3 : lineage if lineage >= 0 else None]
    rest = data[:inputs] + b', "inputs": [], "shards": []' + tail + end
    view = memoryview(data)
    return Divided(rest, view[inputs + len(_INPUTS) : shards], view[shards + len(_SHARDS) : features])


class LateEntries(Sequence[T], Generic[T]):
    """A list of objects without lists or objects inside, as the manifest writes it.

    Args:
        text: the text between the brackets.
        make: makes an entry of an object and its number, and raises an error if that is damaged.
    """

    def __init__(self, text: memoryview, make: Callable[[Any, int], T]) -> None:
        self._text = text
        self._make = make
        self._starts = array("Q", (match.start() for match in re.finditer(rb"\n  \{\n", text)))
        self._starts.append(len(text))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: Any) -> Any:
        numbers = range(len(self))[number]
        if isinstance(numbers, int):
            return next(self._parsed(numbers, numbers + 1))
        return [next(self._parsed(each, each + 1)) for each in numbers]

    def __iter__(self) -> Iterator[T]:
        for first in range(0, len(self), _AT_ONCE):
            yield from self._parsed(first, min(first + _AT_ONCE, len(self)))

    def _parsed(self, first: int, stop: int) -> Iterator[T]:
        text = bytes(self._text[self._starts[first] : self._starts[stop]]).rstrip().rstrip(b",")
        try:
            items = json.loads(b"[" + text + b"]")
        except ValueError:
            items = [None] * (stop - first)
        for number, item in enumerate(items, first):
            yield self._make(item, number)
