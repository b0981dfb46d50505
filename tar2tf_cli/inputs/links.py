"""Hard links that are entries of samples: their targets' bytes, from the shard opened a second time."""

from __future__ import annotations

from typing import Final, TypeAlias

from tar2tf_cli.errors import DamagedShardError, LinkError
from tar2tf_cli.formats.compression import open_stream
from tar2tf_cli.formats.stored import MAX_ENTRY_SIZE, LargeEntries, StoredBytes
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import MAX_RECORD
from tar2tf_cli.inputs.seekable_tar import SeekableTar
from tar2tf_cli.samples.grouping import Grouper
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import Source

__all__ = ["EntryLinks"]

_AGAIN: Final = "make the shard again with tar --dereference --hard-dereference"

_Place: TypeAlias = tuple[int, int]  # offset and size of a member's data


class EntryLinks:
    """Resolves links that are entries of a shard: hard links to earlier members.

    A local tar is read by offset; any other shard is copied to a temporary file at the first link. Other links make
    their samples faulty.

    Args:
        source: the source of the shard.
        item: the shard.
        grouper: decides which names are entries, and receives the errors of other links.
        sizes_only: whether to return sizes without data.
        tar: the shard, if it has been opened by offset already.
        most: the size above which an entry may not be held in memory as a whole.
    """

    def __init__(
        self,
        source: Source,
        item: ObjectInfo,
        grouper: Grouper,
        *,
        sizes_only: bool = False,
        tar: SeekableTar | None = None,
        most: int = MAX_ENTRY_SIZE,
    ) -> None:
        self._name = name = source.locate(item.name)
        self._can_open = tar is not None or source.repeatable
        self._tar = tar or SeekableTar(lambda: open_stream(source.open(item), name), name, seekable=source.seekable)
        self._large = LargeEntries(name, self._tar.descriptor, most)
        self._grouper = grouper
        self._sizes_only = sizes_only
        self._members: dict[str, _Place] = {}
        self._scanned = 0
        self.wants = grouper.wants

    def follow(self, name: str, target: str | None, offset: int) -> tuple[bytes | StoredBytes, int] | None:
        """Return data and size of a link's target; None after reporting its sample as faulty."""
        try:
            start, size = self._place(target, offset)
        except LinkError as error:
            self._grouper.lacks(error.at(member=name, offset=offset))
            return None
        return (b"" if self._sizes_only else self._data(start, size, name)), size

    def _place(self, target: str | None, offset: int) -> _Place:
        """Return the position of the data of the hard link at an offset."""
        if target is None:
            raise LinkError("is a symbolic link, and entries must be files", hint=_AGAIN)
        if not self._can_open:
            message = f"is a hard link to {target!r}, and this input can be read only once"
            raise LinkError(message, hint="save the input to a file and read that")
        self._scan(offset)
        if target not in self._members:
            raise LinkError(f"is a hard link to {target!r}, which does not come before it", hint=_AGAIN)
        place = self._members[target]
        if place[1] > MAX_RECORD:
            raise LinkError(f"is a hard link to {target!r}, which is larger than 2 GiB", hint="remove the sample")
        return place

    def _scan(self, end: int) -> None:
        """Find the members before an offset, continuing the last scan."""
        start, self._scanned = self._scanned, max(self._scanned, end)
        while start < end:
            start = self._scan_from(start, end)

    def _scan_from(self, start: int, end: int) -> int:
        """Find the members up to an offset or the next damage; returns where to continue."""
        reader = TarReader(self._tar.view(), self._name, headers_only=True, need_end=False)
        reader.start_at(start)
        reader.links = _EarlierLinks(self._members, end)
        try:
            for name, _, size, first in reader:
                if first < end:
                    self._members[name] = (reader.offset - size - (-size & 511), size)
                if reader.offset >= end:
                    break
        except _Reached:
            pass
        except DamagedShardError:
            if reader.resume():
                return reader.offset
        return end

    def _data(self, offset: int, size: int, name: str) -> bytes | StoredBytes:
        value = self._large.at(offset, size, name)
        return value if size >= self._large.least else value.whole()

    def close(self) -> None:
        """Close the second stream."""
        self._tar.close()


class _Reached(Exception):
    """The end of a scan was reached."""


class _EarlierLinks:
    """Adds the hard links found by a scan to its members."""

    def __init__(self, members: dict[str, _Place], end: int) -> None:
        self._members = members
        self._end = end

    def wants(self, name: str) -> bool:
        return True

    def follow(self, name: str, target: str | None, offset: int) -> None:
        if offset >= self._end:
            raise _Reached
        if target in self._members:
            self._members[name] = self._members[target]
