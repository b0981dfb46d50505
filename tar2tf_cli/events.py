"""How the library reports progress: it calls these methods and stays silent; whoever wants to know overrides them."""

from __future__ import annotations

from typing import Any

__all__ = ["Events"]


class Events:
    """Hears what a conversion or check is doing; every method here does nothing."""

    def planned(self, inputs: int, size: int | None) -> None:
        """Work begins on this many inputs of together `size` stored bytes; None when that is not known."""

    def resumed(self, shards: int) -> None:
        """An interrupted run left this many shards whole; they are kept."""

    def progress(self, size: int) -> None:
        """So many stored bytes have been read since the beginning."""

    def shard(self, path: str, records: int, size: int) -> None:
        """A shard stands under its final name."""

    def fault(self, fault: dict[str, Any]) -> None:
        """A faulty sample was passed over: its shard, key, member, offset and message; in input order."""

    def note(self, message: str) -> None:
        """Something that the user should know, once."""
