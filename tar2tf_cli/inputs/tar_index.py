"""Indexes of tars: byte ranges of samples, found from headers, and DALI's `wds2idx` format to write and read.

An index file of version 1.2 has a line with the version and the number of samples, then a line for each sample: for
each of its entries the extension, the offset and the size of the data, and the name of the member, between blanks.
Source: NVIDIA DALI, tools/wds2idx.py, and the `index_paths` of `nvidia.dali.fn.readers.webdataset`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Final, TypeAlias

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.errors import DamagedShardError, EntryError, SampleError, UsageError
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.tar import BLOCK, Member, MemberPolicy, TarReader, padded, text
from tar2tf_cli.samples.grouping import Grouper, KernelBatcher, no_samples
from tar2tf_cli.samples.keys import split_name, unwanted
from tar2tf_cli.structs import NamedTuple

VERSION: Final = b"v1.2"
_NUMBERS: Final = re.compile(rb"\d{19,}(?= )")  # more digits than an offset has
_MOST_IN_BATCH: Final = 1 << 13  # the rest of a larger sample is skipped without reading
_PUT_TOGETHER: Final = "tar2tf convert IN -o 'new-<>.tar' writes tars in which"


class TarEntry(NamedTuple):
    """One entry of a tar's sample, with its position.

    Attributes:
        offset: offset in the tar of its data.
        size: size of the data in bytes.
        member: the name of the member.
    """

    offset: int
    size: int
    member: str

    @property
    def end(self) -> int:
        """The offset after the last block of the entry's data."""
        return self.offset + padded(self.size)


class TarSample(NamedTuple):
    """One sample of a tar, with its position and entries.

    Attributes:
        key: its key.
        start: offset of its first header; the next sample starts where this one ends.
        entries: its entries in the order of the tar.
    """

    key: str
    start: int
    entries: Sequence[TarEntry]

    @property
    def end(self) -> int:
        """The offset after the sample's last entry."""
        return self.entries[-1].end

    @property
    def size(self) -> int:
        """The size in bytes of all its members."""
        return self.end - self.start

    def digest(self, key_split: KeySplit) -> int:
        """Return the digest that `sample_digest` returns for the sample itself."""
        named = ((split_name(entry.member, key_split)[1], entry.size) for entry in self.entries)
        return _digest(self.key, named)


def sample_digest(sample: Sample) -> int:
    """Return a digest of a sample's key, and of the names and sizes of its entries."""
    return _digest(sample[KEY], ((name, len(data)) for name, data in sample.items() if name != KEY))


def _digest(key: str, entries: Iterable[tuple[str, int]]) -> int:
    return key_hash("\0".join((key, *(f"{name} {size}" for name, size in entries))))


class NotAdjacentTarError(UsageError):
    """Raised for a tar with scattered samples, whose members are not adjacent and cannot be indexed.

    Attributes:
        archives: the number of concatenated archives that ended before the first scattered sample was found.
    """

    archives = 0


def find_samples(stream: Readable, name: str, key_split: KeySplit) -> Iterator[TarSample]:
    """Yield the positions of the samples of an uncompressed tar, one by one."""
    for found in find_in_batches(stream, name, key_split):
        if isinstance(found, Batch):
            yield from _samples_in(found)
        else:
            yield found


def find_in_batches(stream: Readable, name: str, key_split: KeySplit) -> Iterator[TarSample | Batch]:
    """Yield the positions of an uncompressed tar's samples; if the stream can seek, only headers are read.

    Plain samples come in batches if the kernel is available.

    Args:
        stream: the tar.
        name: its name in errors.
        key_split: the dot at which a name is split into key and extension.

    Raises:
        DamagedShardError: when the tar is not intact, or has no samples.
        SampleError: when a sample is faulty, or has an entry that is a link.
        NotAdjacentTarError: when the members of a sample are not adjacent.
    """
    grouper = _grouper(name, key_split)
    reader = TarReader(stream, name, headers_only=True, entries=_NoLinks(grouper.names.wants, name))
    members: deque[tuple[int, TarEntry]] = deque()  # each with the offset of its header
    native = kernel.native()
    batcher = KernelBatcher(native, reader, grouper.names.rule, _MOST_IN_BATCH) if native else None
    for sample in grouper.samples(_noted(reader, grouper, members), batcher):
        if isinstance(sample, Batch):
            yield sample
            continue
        entries: list[TarEntry] = []
        while len(entries) < len(sample) - 1:
            start, entry = members.popleft()
            if start >= grouper.offset:
                entries.append(entry)
        yield TarSample(sample[KEY], grouper.offset, entries)
    if returned := grouper.returned:
        message = f"the members of the sample {returned.key or returned.member!r} are not adjacent"
        error = NotAdjacentTarError(message, shard=name, hint=f"{_PUT_TOGETHER} they are")
        error.archives = reader.archives
        raise error
    if grouper.empty:
        raise no_samples(grouper.names.skipped + reader.skipped)
    reader.check_ends()


def _samples_in(batch: Batch) -> Iterator[TarSample]:
    data, begin = batch.data, batch.start
    for start, _, key, spans in batch.layout():
        entries = [
            TarEntry(begin + position, size, text(data[position - BLOCK : data.index(0, position - BLOCK)]))
            for position, size in zip(spans[::2], spans[1::2], strict=True)
        ]
        yield TarSample(key, begin + start, entries)


Runs: TypeAlias = "dict[int, list[tuple[int, int]]]"
"""For the hash of each key, the runs of its members: the offsets of the first header and after the last block."""


def find_members(seekable: Readable, name: str, key_split: KeySplit, runs: Runs | None = None, start: int = 0) -> Runs:
    """Find the members of each sample of an uncompressed tar, even if scattered, in order of first appearance.

    Args:
        seekable: the tar, which has `seek`.
        name: its name in errors.
        key_split: the dot at which a name is split into key and extension.
        runs: the runs of members before `start`, if they are known; those that follow are added to them.
        start: the offset at which to begin, before which no archive has ended.

    Returns:
        All runs of members.

    Raises:
        DamagedShardError: when the tar is not intact, or has no samples.
        SampleError: when an entry is a link.
    """
    runs = {} if runs is None else runs
    grouper = _grouper(name, key_split)
    reader = TarReader(seekable, name, headers_only=True, entries=_NoLinks(grouper.names.wants, name))
    reader.cursor.seek(start)
    for member, _, _, begin in reader:
        if grouper.names.wants(member):
            own = runs.setdefault(key_hash(grouper.names.key_of(member)), [])
            first = own.pop()[0] if own and own[-1][1] == begin else begin
            own.append((first, reader.offset))
    if not runs:
        raise no_samples(reader.skipped)
    reader.check_ends()
    return runs


def entry_names(stream: Readable, name: str, key_split: KeySplit) -> Collection[Sequence[str]]:
    """Return the entry names of each sample of an uncompressed tar, whose members may be scattered.

    Raises:
        DamagedShardError: when a header is damaged.
        SampleError: when an entry is a link.
    """
    grouper = _grouper(name, key_split)
    reader = TarReader(stream, name, headers_only=True, entries=_NoLinks(grouper.names.wants, name))
    names: dict[str, list[str]] = {}
    for member, *_ in reader:
        if grouper.names.wants(member):
            key, extension = split_name(member, key_split)
            names.setdefault(key, []).append(extension)
    return names.values()


def is_next(stream: Readable, start: int, entry: TarEntry, name: str, key_split: KeySplit) -> bool:
    """Whether an entry is the first one in a tar from the stream's current offset on."""
    reader = TarReader(stream, name, headers_only=True, need_end=False)
    with suppress(DamagedShardError):
        for member, _, size, _ in reader:
            if split_name(member, key_split)[0] and not unwanted(member):
                return entry == (start + reader.offset - padded(size), size, member)
    return False


def sample_in(data: bytes, name: str, key_split: KeySplit) -> Sample:
    """Return the only sample in a byte range of a tar.

    Raises:
        DamagedShardError: when the range does not begin with a header, or does not contain exactly one sample.
        SampleError: when the sample is faulty.
    """
    grouper = _grouper(name, key_split)
    reader = TarReader(BytesIO(data), name, need_end=False, entries=_NoLinks(grouper.names.wants, name))
    reader.start_at(0)  # the part does not begin at an archive's start
    samples = list(grouper.samples(reader))
    if len(samples) != 1 or grouper.returned:
        raise DamagedShardError("the bytes that the index gives for a sample are not one", kind="index", shard=name)
    return samples[0]


def _grouper(name: str, key_split: KeySplit) -> Grouper:
    return Grouper(name, _raise, key_split=key_split, strict=False, may_lack=True)


def _noted(reader: TarReader, grouper: Grouper, members: deque[tuple[int, TarEntry]]) -> Iterator[Member]:
    """Yield the members of a tar, and append the position of each entry to `members`."""
    for member in reader:
        name, _, size, start = member
        if grouper.names.wants(name):
            members.append((start, TarEntry(reader.offset - padded(size), size, name)))
        yield member


def _raise(error: SampleError) -> None:
    raise error


def refused_links(wants: Callable[[str], bool], name: str) -> MemberPolicy:
    """Return a policy that refuses links that would be entries of a tar.

    Args:
        wants: whether a member with a name would be an entry.
        name: the tar's name in errors.
    """
    return _NoLinks(wants, name)


class _NoLinks(MemberPolicy):
    """Policy that refuses links that would be entries, as their targets are not part of the sample."""

    def __init__(self, wants: Callable[[str], bool], name: str) -> None:
        super().__init__(wants)
        self._name = name

    def follow(self, name: str, target: str | None, offset: int) -> None:
        message = "is a link, which random access cannot follow"
        raise EntryError(message, shard=self._name, member=name, offset=offset, hint=f"{_PUT_TOGETHER} it is a file")

    def refuse(self, error: EntryError) -> None:
        raise error.at(shard=self._name)


# --- Index files ---


def index_lines(samples: Iterable[TarSample | Batch]) -> list[bytes]:
    """Return the lines of an index file: the header line, then one or several samples at a time.

    Raises:
        UsageError: when the name of a member contains a blank, which would end it in the index.
    """
    lines, count = [b""], 0
    for found in samples:
        if isinstance(found, Batch):
            lines.append(_lines_in(found))
            count += len(found)
        else:
            lines.append(_line(found))
            count += 1
    lines[0] = b"%s %d\n" % (VERSION, count)
    return lines


def _lines_in(batch: Batch) -> bytes:
    lines: bytes | None = None
    if native := kernel.native():
        lines = native.index_lines(batch.data, batch.rows, batch.spans, batch.signatures, batch.start)
    return b"".join(map(_line, _samples_in(batch))) if lines is None else lines


def _line(sample: TarSample) -> bytes:
    if len(" ".join([member for _, _, member in sample.entries]).split()) != len(sample.entries):
        for entry in sample.entries:
            if entry.member.split() == [entry.member]:
                continue
            message = f"the name {entry.member!r} contains a space, which an index of DALI cannot store"
            raise UsageError(message, hint="give the members other names")
    begin = len(sample.key) + 1  # keep the case of extensions, as DALI distinguishes JPG from jpg
    text = " ".join([f"{member[begin:]} {offset} {size} {member}" for offset, size, member in sample.entries])
    return f"{text}\n".encode("utf-8", "surrogateescape")


def from_index_lines(data: bytes, key_split: KeySplit = "first", size: int | None = None) -> list[TarSample] | None:
    """Parse an index file; None unless its samples are possible for a tar by this key rule.

    Args:
        data: the content.
        key_split: the dot at which a name is split into key and extension.
        size: size of the tar in bytes, if it is known.
    """
    first, *lines = data.split(b"\n")
    if not lines or lines.pop() or first != b"%s %d" % (VERSION, len(lines)):
        return None
    end, samples, keys = 0, list[TarSample](), set[str]()
    for line in lines:
        try:
            sample = _sample_of_line(line, end, key_split)
        except ValueError:
            return None
        samples.append(sample)
        keys.add(sample.key)
        end = sample.end
    fits = size is None or end <= size
    return samples if fits and len(keys) == len(samples) and "" not in keys else None


def _sample_of_line(line: bytes, start: int, key_split: KeySplit) -> TarSample:
    """Parse an index line, given the offset of its sample in the tar.

    Raises:
        ValueError: when the line is not that of a sample whose members are contiguous from this offset on.
    """
    if _NUMBERS.sub(b"", line) != line:
        raise ValueError("a number is longer than any offset")
    words, entries, end = text(line).split(" "), list[TarEntry](), start
    for extension, offset, size, member in zip(*[iter(words)] * 4, strict=True):
        if not (offset.isascii() and offset.isdigit() and size.isascii() and size.isdigit()):
            raise ValueError("not a number")
        entry = TarEntry(int(offset), int(size), member)
        if entry.offset % BLOCK or entry.offset < end + BLOCK or not member.endswith(f".{extension}"):
            raise ValueError("not an entry after the one before")
        end = entry.end
        entries.append(entry)
    (key,) = {split_name(entry.member, key_split)[0] for entry in entries}
    if any(f"{key}.{extension}" != entry.member for extension, entry in zip(words[::4], entries, strict=True)):
        raise ValueError("not the extension of its member")
    return TarSample(key, start, entries)
