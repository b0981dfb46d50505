"""Finds the records of a shard: by an index beside it, by one that was kept, or by reading the lengths once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from tar2tf_cli.datasets.shards import Shard
from tar2tf_cli.errors import DamagedShardError, SinkError, UsageError
from tar2tf_cli.formats.compression import compression_of
from tar2tf_cli.formats.magic import foreign
from tar2tf_cli.formats.record_file import write_whole
from tar2tf_cli.formats.record_index import Index, from_lines, pack, scan, unpack
from tar2tf_cli.formats.tfrecord import record_length
from tar2tf_cli.inputs.open_shard import sniff
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores.ranges import Ranges

__all__ = ["Indexes"]

_HEAD: Final = 512
_SAMPLES: Final = 8
_READ: Final = 1 << 20
_FRONT_TO_BACK: Final = "convert again without --compression, or read it from front to back with load_dataset"


class Indexes:
    """Where the indexes of shards are found, and where new ones are kept.

    Args:
        folder: the folder for indexes; None for tar2tf in XDG_CACHE_HOME or ~/.cache, "" to keep none.
    """

    def __init__(self, folder: str | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self.folder = os.path.join(home, "tar2tf") if folder is None else folder

    def find(self, shard: Shard, ranges: Ranges, *, beside: bool = True) -> Index:
        """Return the index of a shard.

        Args:
            shard: the shard.
            ranges: reads the shard.
            beside: whether a file SHARD.idx may be used.

        Raises:
            DamagedShardError: when the shard is damaged, or its manifest gives another number of records.
            SourceError: when it cannot be read.
            UsageError: when it is compressed, or not a TFRecord.
        """
        for index in self._found(shard, ranges, beside=beside):
            if index is not None and shard.records in (None, len(index) - 1):
                return index
        index = self._scanned(shard, ranges)
        if shard.records not in (None, len(index) - 1):
            message = f"the file has {len(index) - 1:,} records, but {shard.records:,} in the manifest"
            raise DamagedShardError(message, kind="count", shard=shard.name, hint="convert again")
        self._keep(shard, index)
        return index

    def _found(self, shard: Shard, ranges: Ranges, *, beside: bool) -> Iterator[Index | None]:
        path = self._path(shard)
        if path:
            with suppress(OSError), open(path, "rb") as file:
                yield unpack(file.read(), shard.name, str(shard.item.version), shard.size)
        if beside:
            yield _beside(shard, ranges)

    def _scanned(self, shard: Shard, ranges: Ranges) -> Index:
        try:
            return scan(lambda start, size: ranges.read(shard.item, start, size), shard.size, shard.name)
        except DamagedShardError as error:
            if not error.offset:
                _refuse(ranges.read(shard.item, 0, _HEAD), shard.name)
            error.hint = f"tar2tf verify --salvage writes its good records: {shard.name}"
            raise

    def _path(self, shard: Shard) -> str | None:
        """Return the path of a shard's index; its name depends on everything that says which bytes the shard has."""
        if not self.folder or shard.item.version is None:
            return None
        name = shard.name if is_remote(shard.name) else os.path.abspath(shard.name)
        whole = f"{name}\n{shard.size}\n{shard.item.version}".encode("utf-8", "surrogateescape")
        return os.path.join(self.folder, f"{hashlib.sha256(whole).hexdigest()[:32]}.index")

    def _keep(self, shard: Shard, index: Index) -> None:
        if path := self._path(shard):
            with suppress(OSError, SinkError):  # a home that cannot be written to is no fault of the shard's
                os.makedirs(self.folder, exist_ok=True)
                write_whole(path, pack(index, shard.name, str(shard.item.version)), lasting=False)


def _refuse(head: bytes, name: str) -> None:
    """Raise an error if the first bytes of a file say that it is not a TFRecord that can be read in any order."""
    if method := compression_of(head):
        message = f"is compressed with {method}, so that its records cannot be read in any order"
        raise UsageError(message, shard=name, hint=_FRONT_TO_BACK)
    if sniff(head) == "tar":
        raise UsageError("is a tar, not a TFRecord", shard=name, hint="convert it first: tar2tf convert")
    if found := foreign(head):
        raise UsageError(f"is {found[0]}, not a TFRecord", shard=name, hint=found[1])
    if sniff(head) is None:
        hint = "name only the shards, by a manifest or a template such as 'out/*.record'"
        raise UsageError("is not a TFRecord, or its first bytes are damaged", shard=name, hint=hint)


def _beside(shard: Shard, ranges: Ranges) -> Index | None:
    """Read SHARD.idx; None if there is none, or if it is not an index of these bytes."""
    name = f"{shard.item.name}.idx"
    item = shard.source.find([name]).get(name)
    if item is None:
        return None
    with closing(shard.source.open(item)) as stream:
        index = from_lines(b"".join(iter(lambda: stream.read(_READ), b"")), shard.size)
    if index is None or len(index) == 1:
        return index
    for place in range(0, len(index) - 1, -(-(len(index) - 1) // _SAMPLES)):
        start, end = index[place : place + 2].tolist()
        try:
            if record_length(ranges.read(shard.item, start, 12)) != end - start - 16:
                return None
        except DamagedShardError:
            return None
    return index
