"""The samples of one tar: its reader, grouper and links, and a second reading if members are not adjacent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import NamedTuple, TypeVar

from tar2tf_cli.errors import DamagedShardError, NotAdjacentError
from tar2tf_cli.formats.bytestream import ByteStream, Peeked, Readable
from tar2tf_cli.formats.compression import PlainStream
from tar2tf_cli.formats.stored import LARGE, MAX_ENTRY_SIZE, LargeEntries
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.inputs.links import EntryLinks
from tar2tf_cli.inputs.seekable_tar import SeekableTar
from tar2tf_cli.samples.grouping import Grouper, no_samples
from tar2tf_cli.samples.names import KeySplit, Sample
from tar2tf_cli.samples.plain import with_batches
from tar2tf_cli.samples.regrouping import Runs
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import OnBytes, OnFault, Source

__all__ = ["TarRules", "TarSamples", "put_together"]

T = TypeVar("T")


class TarRules(NamedTuple):
    """How tars are read; each field means the same as the option of `convert`."""

    key_split: KeySplit = "first"
    regroup: bool | None = None
    ignore_missing_end: bool = False


def put_together(read: Callable[[bool], T]) -> T:
    """The result of reading a tar; if members of a sample are not adjacent, that begins again with `regroup`.

    Args:
        read: reads the tar, and raises NotAdjacentError unless its argument, `regroup`, is true.
    """
    try:
        return read(False)
    except NotAdjacentError:
        return read(True)


class TarSamples:
    """Reads the samples of a tar.

    If members of a sample are not adjacent, the rules decide: `regroup` puts all samples together from the start, or
    makes a key that appears again a fault. If it is None, such a key raises NotAdjacentError, and the caller begins
    again with `regroup`, as `put_together` does; where that is not possible, as the input can be read only once, it is
    a fault.

    Args:
        source: the source of the tar.
        item: the tar.
        stream: the open tar, decompressed.
        rules: how it is read.
        fault: called with the error of each faulty sample; when it returns, the sample is skipped.
        sizes_only: entries are sizes in bytes; the data of a plain local tar is not even read.
        every_byte: read the data, too, as any of it may be unreadable.
        trusted: the tar was read before, so its samples are not compared again.
        ahead: decide about `regroup` before the first sample, as the caller cannot begin again: by the headers of a
            plain local tar, or by that many bytes of any other. A key that appears again after them is a fault.
        most: the size above which an entry may not be held in memory as a whole.
        heads_only: whether only the first mebibyte of large entries will be used.
        least: the size from which an entry of a plain local tar stays there until it is used.
        on_bytes: called with the number of bytes after each read of a tar that is regrouped.
        loaded: the stream is that of `Source.load`.

    Attributes:
        grouper: groups the members; knows the offset of the current sample.
        seekable: whether samples can be read by offset.
        regroups: whether samples are put together whose members are not adjacent.
    """

    def __init__(
        self,
        source: Source,
        item: ObjectInfo,
        stream: ByteStream,
        rules: TarRules,
        fault: OnFault,
        *,
        sizes_only: bool = False,
        every_byte: bool = False,
        trusted: bool = False,
        ahead: int = 0,
        most: int = MAX_ENTRY_SIZE,
        heads_only: bool = False,
        least: int = LARGE,
        on_bytes: OnBytes = None,
        loaded: bool = False,
    ) -> None:
        self._name = name = source.locate(item.name)
        self._sizes_only = sizes_only
        self.seekable = source.seekable and not loaded and isinstance(stream, PlainStream)
        self._on_bytes = on_bytes if self.seekable else None
        regroup = rules.regroup
        if regroup is None and not source.repeatable:
            regroup = False
        elif regroup is None and ahead:
            stream, regroup = self._looked_ahead(stream, rules, ahead)
        strict = regroup is not None
        self.grouper = grouper = Grouper(
            name, fault, key_split=rules.key_split, strict=strict, sizes_only=sizes_only, trusted=trusted
        )
        self.regroups = bool(regroup)
        self._whole = SeekableTar(lambda: stream, name, seekable=source.seekable) if regroup else None
        descriptor = stream.fileno if self.seekable and isinstance(stream, PlainStream) else None
        if self._whole:
            descriptor = self._whole.descriptor
        self._large = LargeEntries(name, descriptor, most, heads_only=heads_only, least=least, on_bytes=self._on_bytes)
        self._large.begin = lambda: grouper.begin
        self._tar = TarReader(
            self._whole.view() if self._whole else stream,
            name,
            headers_only=sizes_only or self.regroups,
            every_byte=every_byte,
            need_end=not rules.ignore_missing_end,
            large=None if sizes_only or regroup else self._large,
        )
        self._links = EntryLinks(source, item, grouper, sizes_only=sizes_only, tar=self._whole, most=most)
        self._tar.links = self._links
        self._regrouped = _Regrouped(grouper, self._tar, self._whole) if self._whole else None

    @property
    def not_adjacent(self) -> int:
        """The number of samples whose members are not adjacent, if they are put together."""
        return self._regrouped.runs.not_adjacent if self._regrouped else 0

    @property
    def count(self) -> int | None:
        """The number of samples, if they are put together; known once the first one is read."""
        return self._regrouped.runs.samples if self._regrouped else None

    @property
    def skipped(self) -> Counter[str]:
        """The number of skipped members, by reason."""
        return self.grouper.skipped + self._tar.skipped

    @property
    def archives(self) -> int:
        """The number of archives that the tar holds, end to end."""
        return self._tar.archives

    def seek(self, offset: int) -> None:
        """Start at a sample's offset instead of the beginning."""
        self._tar.start_at(offset)

    def samples(self) -> Iterator[Sample]:
        """The samples, in the order of their first members.

        Raises:
            NotAdjacentError: at a key that appears again, if the caller can begin again.
            DamagedShardError: when the tar is not whole; after `resume`, call this again.
        """
        if self._regrouped:
            return self._regrouped.samples(self._members)
        grouper = self.grouper
        return grouper.samples(with_batches(self._tar, grouper) if grouper.take else self._tar)

    def check_end(self) -> None:
        """At the end of the samples, refuse a tar that has none."""
        if self.grouper.empty:
            raise no_samples(self.skipped)

    def resume(self, error: DamagedShardError) -> bool:
        """Continue after damage at the next header, if there is one; the error then says what was not read."""
        damaged = self._tar.offset
        try:
            resumed = self._tar.resume()
        except DamagedShardError:
            resumed = False
        lost = self._tar.offset - damaged
        if resumed or lost:
            what = "the part up to the next member" if resumed else "the rest of the shard"
            error.message += f"; {what} was not read ({lost:,} bytes)"
        if self._regrouped:
            return self._regrouped.resume(error.member, resumed=resumed)
        self.grouper.resume(error.member)
        return resumed

    def close(self) -> None:
        """Close what was opened beside the stream."""
        self._links.close()
        if self._whole:
            self._whole.close()

    def _members(self, whole: SeekableTar) -> TarReader:
        """A reader of members by offset, after their headers were read."""
        large, view = None if self._sizes_only else self._large, whole.view(self._on_bytes)
        tar = TarReader(view, self._name, headers_only=self._sizes_only, need_end=False, large=large)
        tar.links = self._links
        return tar

    def _looked_ahead(self, stream: ByteStream, rules: TarRules, size: int) -> tuple[ByteStream, bool]:
        """A stream that is still at its first byte, and whether members of its samples are not adjacent."""
        if self.seekable and isinstance(stream, PlainStream):
            adjacent = _are_adjacent(stream, rules)
            stream.seek(0)
            return stream, not adjacent
        peeked = Peeked(stream, size)
        return peeked, not _are_adjacent(BytesIO(peeked.head), rules)


class _Regrouped:
    """The samples of a tar whose members are not adjacent: all headers are read first, then members by offset.

    Args:
        grouper: puts the members of a sample together.
        headers: reads the headers.
        whole: the tar by offset.

    Attributes:
        runs: where the members of each sample are.
    """

    def __init__(self, grouper: Grouper, headers: TarReader, whole: SeekableTar) -> None:
        self._grouper = grouper
        self._headers = headers
        self._whole = whole
        self._scanned = False
        self._lost = False  # whether damage may have hidden members of any sample
        self.runs = Runs(grouper)

    def samples(self, reader: Callable[[SeekableTar], TarReader]) -> Iterator[Sample]:
        """The samples; `reader` makes a reader of the members."""
        runs, grouper = self.runs, self._grouper
        if not self._scanned:
            self._scan()
        if self._lost:
            grouper.required = frozenset(name for name, count in runs.entries.items() if 4 * count > runs.samples)
        grouper.ends_last = runs.ends_last
        yield from grouper.samples(runs.members(reader(self._whole)))

    def _scan(self) -> None:
        damage = None
        try:
            self.runs.scan(self._headers)
        except DamagedShardError as error:
            damage = error
        if self._whole.damage and (damage is None or damage.kind == "truncated"):
            damage = self._whole.damage  # which cut the copy short
        if damage:
            raise damage
        self._scanned = True

    def resume(self, member: str | None, *, resumed: bool) -> bool:
        """Continue after damage to a header; after damage to a member by offset, nothing is left to continue with.

        Args:
            member: the damaged member, whose sample is skipped, if it is known.
            resumed: whether more headers can be read; otherwise those read so far are all.
        """
        if member:
            self._grouper.skip(self._grouper.split(member)[0])
        self._lost = self._lost or not (member and resumed)
        first, self._scanned = not self._scanned, self._scanned or not resumed
        return first


def _are_adjacent(stream: Readable, rules: TarRules) -> bool:
    """Whether no key appears again in a tar, as far as it is whole."""
    grouper = Grouper("", lambda error: None, key_split=rules.key_split, strict=False, sizes_only=True)
    try:
        for _ in grouper.samples(TarReader(stream, "", headers_only=True, need_end=False)):
            pass
    except NotAdjacentError:
        return False
    except DamagedShardError:
        pass
    return True
