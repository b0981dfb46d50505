"""How the library reports progress: it calls these methods and prints nothing; override them to see progress."""

from __future__ import annotations

from typing import Any

__all__ = ["Events"]


class Events:
    """Receives what a conversion or check is doing; every method here does nothing."""

    def planned(self, inputs: int, size: int | None) -> None:
        """Work begins on this many inputs with `size` stored bytes in all; None when that is not known."""

    def resumed(self, shards: int) -> None:
        """An interrupted run finished this many shards; they are kept."""

    def progress(self, size: int) -> None:
        """This many stored bytes have been read since the beginning."""

    def shard(self, path: str, records: int, size: int) -> None:
        """A shard was published under its final name."""

    def fault(self, fault: dict[str, Any]) -> None:
        """A faulty sample was skipped: its shard, key, member, offset and message; in input order."""

    def note(self, message: str) -> None:
        """Something that the user should know, once."""
