"""What a listing says of one object."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["ObjectInfo"]

_SUFFIX: Final = re.compile(r"(?is)(?<=.)\.(?:tgz|tar(?:\.(?:gz|zst|bz2|xz))?)\Z")


class ObjectInfo(NamedTuple):
    """One input shard.

    Attributes:
        name: the object's name in its bucket.
        size: size in bytes as stored; None when it is known only after reading to the end.
        version: changes when the object's bytes do, such as an ETag or modification time; None when there is none.
        checksum: kind and value of a checksum of its bytes, if a listing has it.
    """

    name: str
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None

    @property
    def stem(self) -> str:
        """Return the name without folders and without `.tar`, `.tar.gz` and the like."""
        base = self.name.rpartition("/")[2]
        found = _SUFFIX.search(base)
        return base[: found.start()] if found else base
