"""Indexes of tars for Megatron Energon, and detection of the tool that wrote an index.

`TAR.idx` has the offset of each sample, and the end of the last one, as 64-bit little-endian numbers. A sample is
defined as in Energon: adjacent members with equal names up to the first dot of the base name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.errors import DamagedShardError, UsageError
from tar2tf_cli.formats.tar import BLOCK, TarReader, padded
from tar2tf_cli.inputs.tar_index import VERSION, refused_links
from tar2tf_cli.structs import NamedTuple

_NAME: Final = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


class EnergonSample(NamedTuple):
    """A sample of a tar, with the positions that Energon needs.

    Attributes:
        key: its key.
        start: offset of its first header.
        end: offset at which the next sample starts, or the last file of the tar ends.
        parts: extension, offset and size in bytes of each entry.
    """

    key: str
    start: int
    end: int
    parts: Sequence[tuple[str, int, int]]


def energon_samples(stream: Readable, name: str) -> Iterator[EnergonSample]:
    """Yield the samples of an uncompressed tar by Energon's rules, reading only headers if the stream can seek.

    Raises:
        DamagedShardError: when the tar is not intact, or has no samples.
        SampleError: when an entry is a link.
        UsageError: when Energon does not read all samples of the tar.
    """
    reader = TarReader(stream, name, headers_only=True, entries=refused_links(_is_entry, name))
    key, begin, end, parts = "", 0, 0, list[tuple[str, int, int]]()
    for member, _, size, start in reader:
        end = reader.offset
        if (match := _NAME.fullmatch(member)) is None:
            continue
        if match[1] != key or not parts:
            if parts:
                yield EnergonSample(key, begin, start, parts)
            key, begin, parts = match[1], start, []
        parts.append((match[2], end - padded(size), size))
    reader.check_ends()
    if not parts:
        raise DamagedShardError("has no samples, and Energon reads no such tar", kind="empty", shard=name)
    if reader.archives > 1:
        message = "is several tars end to end, of which Energon reads the first"
        raise UsageError(message, shard=name, hint="tar2tf convert IN -o 'new-<>.tar' writes single ones")
    yield EnergonSample(key, begin, end, parts)


def _is_entry(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def packed_offsets(samples: Sequence[EnergonSample]) -> bytes:
    """Return the content of an Energon index, `TAR.idx`."""
    return struct.pack(f"<{len(samples) + 1}Q", *(sample.start for sample in samples), samples[-1].end)


def energon_offsets(data: bytes) -> list[int] | None:
    """Parse an Energon index: the 64-bit offset of each sample, and of the end of the last one; None otherwise.

    An Energon index begins with 0 or a multiple of the block size, and its numbers increase by whole blocks.
    """
    if not data or len(data) % 8:
        return None
    offsets = [number for (number,) in struct.iter_unpack("<Q", data)]
    grows = all(after > before and not after % BLOCK for before, after in pairwise(offsets))
    return offsets if grows and not offsets[0] % BLOCK else None


ENERGON: Final = "Megatron Energon"
DALI: Final = "DALI"


def dali_path_for_energon(tar: str) -> str:
    """Return the path of a tar's DALI index for when TAR.idx is Energon's index.

    `wds2idx` gives its index this name, too, and DALI reads an index of any name.

    >>> dali_path_for_energon("shards/a.tar")
    'shards/a.idx'
    """
    return f"{tar.removesuffix('.tar')}{'.dali' if not tar.endswith('.tar') else ''}.idx"


def index_writer(data: bytes) -> str | None:
    """Return the tool that wrote an index file, judging by its content; None if it is unknown."""
    if energon_offsets(data):
        return ENERGON
    if re.match(rb"v1\.[01] \d+\n", data):
        return "an older wds2idx of DALI"
    return DALI if re.match(rb"%b \d+\n" % re.escape(VERSION), data) else None
