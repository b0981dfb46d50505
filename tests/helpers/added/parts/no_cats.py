"""A check of one's own: no sample is about cats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def check_record(data: bytes) -> Iterator[tuple[str, str]]:
    if b"cat" in data:
        yield "cat", "the record is about a cat"


def check_sample(sample: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if sample["txt"] == b"cat":
        yield "cat", "it is about a cat"
