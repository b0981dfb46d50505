"""A check: nothing may hold the word secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def check_record(data: bytes) -> Iterable[tuple[str, str]]:
    """Find the word in a record, whatever it holds."""
    if b"secret" in data:
        yield "secret", "the record holds the word secret"


def check_sample(sample: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Find the word in the entries of a sample."""
    for name, value in sample.items():
        if isinstance(value, bytes) and b"secret" in value:
            yield "secret", f"entry {name!r} holds the word secret"
