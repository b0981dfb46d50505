"""The samples of one tar: reader, grouper and links, and members by offset if samples are regrouped."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from io import BytesIO
from types import ModuleType
from typing import IO, TYPE_CHECKING, Final, TypeAlias, overload

from tar2tf_cli.api.objects import ByteStream, Readable
from tar2tf_cli.api.source import OnFault
from tar2tf_cli.api.values import Batch, KeySplit, Sample
from tar2tf_cli.errors import DamagedShardError, EntryError, Location, SourceError, write_errors
from tar2tf_cli.formats.files import LARGE_VALUE, MAX_ENTRY_SIZE, LargeEntries, StoredBytes, write_all
from tar2tf_cli.formats.streams import Peekable, PlainStream, open_stream
from tar2tf_cli.formats.tar import MemberPolicy, TarReader, padded
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.samples.grouping import Grouper, KernelBatcher, no_samples
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport
    from tar2tf_cli.samples.regrouping import Regrouper

_PIECE: Final = 1 << 20


class FileView:
    """A stream over an open file with its own position, so that several views can be read in turn.

    Args:
        descriptor: the descriptor of the file, which the view does not close.
        name: its name in errors.
        on_read: called with the number of bytes after each read.
        damage: raised at the end of an incomplete copy.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        on_read: Callable[[int], None] | None = None,
        damage: DamagedShardError | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._name = name
        self._on_read = on_read
        self._damage = damage
        self._position = 0

    def seek(self, offset: int) -> None:
        """Go to an offset."""
        self._position = offset

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end.

        Raises:
            SourceError: when reading fails, or at the end of an incomplete copy.
        """
        try:
            data = os.pread(self._descriptor, size, self._position)
        except OSError as error:
            message = f"reading failed: {error.strerror or error}"
            raise SourceError(message, shard=self._name, offset=self._position) from None
        if not data and size and self._damage:
            raise self._damage
        self._position += len(data)
        if self._on_read:
            self._on_read(len(data))
        return data


class SeekableShard:
    """The decompressed bytes of a shard by offset, opened or copied only when the first view is created.

    Args:
        open_shard: opens the shard at its first byte.
        name: its name in errors.
        seekable: whether it can be read by offset if it is not compressed.
    """

    def __init__(self, open_shard: Callable[[], ByteStream], name: str, *, seekable: bool) -> None:
        self._open = open_shard
        self._name = name
        self._seekable = seekable
        self._file: PlainStream | IO[bytes] | None = None
        self._damage: DamagedShardError | None = None  # the reason why the copy is incomplete

    def view(self, on_read: Callable[[int], None] | None = None) -> FileView:
        """Return the shard as a seekable stream; each view has its own position.

        Raises:
            SourceError: when the shard cannot be read.
            SinkError: when the disk has no space for a copy.
        """
        if self._file is None:
            stream = self._open()
            if self._seekable and isinstance(stream, PlainStream) and stream.has_descriptor:
                self._file = stream
            else:
                with closing(stream):
                    self._file = self._copied(stream)
        return FileView(self._file.fileno(), self._name, on_read, self._damage)

    def fileno(self) -> int:
        """Return the file descriptor of the shard, or of its copy."""
        self.view()
        assert self._file
        return self._file.fileno()

    def close(self) -> None:
        """Close the shard, and remove the copy."""
        if self._file:
            self._file.close()
            self._file = None

    def _copied(self, stream: ByteStream) -> IO[bytes]:
        import tempfile

        with write_errors(tempfile.gettempdir()):
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed by `close`
            try:
                while data := stream.read(_PIECE):
                    write_all(file.write, data)
            except DamagedShardError as error:
                self._damage = error
            except BaseException:
                file.close()
                raise
        return file


_AGAIN: Final = "recreate the shard with tar --dereference --hard-dereference"

_Extent: TypeAlias = tuple[int, int]  # offset and size of a member's data


class EntryLinks(MemberPolicy):
    """Policy that resolves hard links to earlier members, if the links are entries of samples.

    A local tar is read by offset; any other shard is copied to a temporary file at the first link. Other links, and
    other unreadable members, make their samples faulty.

    Args:
        shard: the shard.
        rules: the options for reading it.
        grouper: decides which names are entries, and receives the errors of unreadable ones.
        tar: the shard, if it has been opened by offset already.
    """

    def __init__(self, shard: OpenShard, rules: TarRules, grouper: Grouper, tar: SeekableShard | None) -> None:
        super().__init__(grouper.names.wants)
        self._name = shard.name
        self._shard = shard
        self._by_offset = tar
        self._most = rules.most
        self._grouper = grouper
        self._sizes_only = rules.sizes_only
        self._members: dict[str, _Extent] = {}
        self._scanned = 0

    @property
    def _tar(self) -> SeekableShard:
        if not self._by_offset:  # few tars have links
            source, item, name = self._shard.source, self._shard.item, self._name
            seekable = source.capabilities.seekable
            self._by_offset = SeekableShard(lambda: open_stream(source.open(item), name), name, seekable=seekable)
        return self._by_offset

    @cached_property
    def _large(self) -> LargeEntries:
        return LargeEntries(self._name, self._tar.fileno, self._most)

    def follow(self, name: str, target: str | None, offset: int) -> tuple[bytes | StoredBytes, int] | None:
        """Return data and size of a link's target; None after reporting its sample as faulty."""
        try:
            start, size = self._extent(target, offset)
        except EntryError as error:
            self._grouper.lacks(error.at(member=name, offset=offset))
            return None
        return (b"" if self._sizes_only else self._data(start, size, name)), size

    def refuse(self, error: EntryError) -> None:
        """Report the sample of an unreadable entry as faulty."""
        self._grouper.lacks(error)

    def _extent(self, target: str | None, offset: int) -> _Extent:
        """Return the position of the data of a hard link, given the link's offset."""
        if target is None:
            raise EntryError("is a symbolic link, and entries must be files", hint=_AGAIN)
        if not (self._by_offset or self._shard.source.capabilities.repeatable):
            message = f"is a hard link to {target!r}, and this input can be read only once"
            raise EntryError(message, hint="save the input to a file and read that")
        self._scan(offset)
        if target not in self._members:
            raise EntryError(f"is a hard link to {target!r}, which does not come before it", hint=_AGAIN)
        return self._members[target]

    def _scan(self, end: int) -> None:
        """Find all members before an offset, continuing the last scan."""
        start, self._scanned = self._scanned, max(self._scanned, end)
        while start < end:
            start = self._scan_from(start, end)

    def _scan_from(self, start: int, end: int) -> int:
        """Find members up to an offset or the next damage; return the offset to continue at."""
        links = _EarlierLinks(self._members, end)
        reader = TarReader(self._tar.view(), self._name, headers_only=True, need_end=False, entries=links)
        reader.start_at(start)
        try:
            for name, _, size, first in reader:
                if first < end:
                    self._members[name] = (reader.offset - padded(size), size)
                if reader.offset >= end:
                    break
        except _ScanEnded:
            pass
        except DamagedShardError as error:
            if reader.resume(error):
                return reader.offset
        return end

    def _data(self, offset: int, size: int, name: str) -> bytes | StoredBytes:
        value = self._large.at(offset, size, name)
        return value if size >= self._large.least else value.whole()

    def close(self) -> None:
        """Close the second stream, or the seekable shard."""
        if self._by_offset:
            self._by_offset.close()


class _ScanEnded(Exception):
    """Raised when a scan has reached its end offset."""


class _EarlierLinks(MemberPolicy):
    """Policy that adds the hard links found by a scan to the known members."""

    def __init__(self, members: dict[str, _Extent], end: int) -> None:
        super().__init__(lambda name: True)
        self._members = members
        self._end = end

    def follow(self, name: str, target: str | None, offset: int) -> None:
        if offset >= self._end:
            raise _ScanEnded
        if target in self._members:
            self._members[name] = self._members[target]


class TarRules(NamedTuple):
    """Options for reading a tar.

    Attributes:
        key_split: the dot at which names are split into key and extension, as in `convert`.
        regroup: whether samples are regrouped; None to do so only if their members are not adjacent.
        ignore_missing_end: whether an archive need not have a proper end.
        sizes_only: whether entries are sizes in bytes; the data of a plain local tar is then not even read.
        every_byte: whether to read all data, in case some of it is unreadable.
        trusted: whether the tar was read before, so that its samples are not compared again.
        ahead: the number of bytes by which to decide about `regroup` before the first sample, if the caller cannot
            start again; a plain local tar is decided by its headers. A key repeated later is a fault.
        most: the size above which an entry may not be held in memory as a whole.
        heads_only: whether only the first mebibyte of large entries will be used.
        least: the size from which an entry of a plain local tar remains in the file until it is used.
    """

    key_split: KeySplit = "first"
    regroup: bool | None = None
    ignore_missing_end: bool = False
    sizes_only: bool = False
    every_byte: bool = False
    trusted: bool = False
    ahead: int = 0
    most: int = MAX_ENTRY_SIZE
    heads_only: bool = False
    least: int = LARGE_VALUE


class TarSamples:
    """Reads the samples of a tar.

    If members of a sample are not adjacent, the rules decide: `regroup` either regroups all samples from the start, or
    makes a repeated key a fault. If it is None, a repeated key ends the samples, `must_regroup` becomes true, and the
    caller reads the tar again with `regroup`; if the input can be read only once, a repeated key is a fault.

    Args:
        shard: the open tar.
        rules: the options for reading it.
        on_fault: called with the error of each faulty sample; when it returns, the sample is skipped.

    Attributes:
        may_regroup: whether a repeated key ends the samples.
    """

    def __init__(self, shard: OpenShard, rules: TarRules, on_fault: OnFault) -> None:
        self._shard = shard
        self._rules = rules
        name, able, stream, in_place = shard.name, shard.source.capabilities, shard.content, shard.seekable
        regroup = self._whether_to_regroup(stream, rules, repeatable=able.repeatable)
        self.may_regroup = regroup is None
        self._grouper = grouper = Grouper(
            name,
            on_fault,
            key_split=rules.key_split,
            strict=not self.may_regroup,
            sizes_only=rules.sizes_only,
            trusted=rules.trusted,
            may_lack=not rules.ignore_missing_end,
        )
        self._by_offset = tar = SeekableShard(lambda: stream, name, seekable=able.seekable) if regroup else None
        self._regrouper: Regrouper | None = None
        if regroup:
            from tar2tf_cli.samples.regrouping import Regrouper

            self._regrouper = Regrouper(grouper)
        self._links = EntryLinks(shard, rules, grouper, tar)
        self._large = LargeEntries(
            name,
            tar.fileno if tar else in_place.fileno if in_place else None,
            rules.most,
            heads_only=rules.heads_only,
            least=rules.least,
            on_bytes=shard.on_bytes if in_place else None,
            begin=lambda: grouper.begin,
        )
        self._tar = TarReader(
            tar.view() if tar else stream,
            name,
            size=shard.length,
            headers_only=rules.sizes_only or bool(regroup),
            every_byte=rules.every_byte,
            need_end=not rules.ignore_missing_end,
            large=None if rules.sizes_only or regroup else self._large,
            entries=self._links,
            on_zeros=(self._regrouper or grouper).zeros,
            skipped=grouper.names.skipped,
        )

    @property
    def seekable(self) -> bool:
        """Whether samples can be read by offset."""
        return self._shard.seekable is not None

    @property
    def regroups(self) -> bool:
        """Whether samples are regrouped whose members are not adjacent."""
        return self._regrouper is not None

    @property
    def must_regroup(self) -> bool:
        """Whether reading stopped at a repeated key, so that it must be repeated with `regroup`."""
        return self._grouper.returned is not None

    @property
    def not_adjacent(self) -> int:
        """The number of scattered samples, whose members are not adjacent, if samples are regrouped."""
        return self._regrouper.not_adjacent if self._regrouper else 0

    @property
    def count(self) -> int | None:
        """The number of samples, if they are regrouped; known after the first one is read."""
        return self._regrouper.count if self._regrouper else None

    @property
    def skipped(self) -> Counter[str]:
        """The number of skipped members, by reason."""
        return self._grouper.names.skipped

    @property
    def archives(self) -> int:
        """The number of concatenated archives in the tar."""
        return self._tar.archives

    @property
    def offset(self) -> int:
        """The offset of the current sample in the tar."""
        return self._grouper.offset

    @property
    def lacking(self) -> str | None:
        """A note if the last sample lacks entries that all others have; otherwise None."""
        return self._grouper.entries.lacking

    def where(self) -> Location:
        """Return the offset of the current sample."""
        return {"offset": self.offset}

    def describe(self, report: InputReport) -> None:
        """Add statistics of the tar to the report."""
        names = self._grouper.names
        report.skipped, report.archives, report.not_adjacent = names.skipped, self._tar.archives, self.not_adjacent
        report.split_differs, report.lacking = names.matters, self._grouper.entries.lacking

    def seek(self, offset: int) -> None:
        """Begin at a sample's offset instead of the beginning."""
        self._tar.start_at(offset)

    @overload
    def samples(self) -> Iterator[Sample]: ...

    @overload
    def samples(self, native: ModuleType | None) -> Iterator[Sample | Batch]: ...

    def samples(self, native: ModuleType | None = None) -> Iterator[Sample] | Iterator[Sample | Batch]:
        """Iterate over the samples, in the order of their first members.

        Args:
            native: the kernel, to give plain samples as batches.

        Raises:
            DamagedShardError: when the tar is not intact; after `resume`, call this again.
        """
        if self._regrouper:
            return self._regrouper.samples(self._tar, self._members)
        if native is None:
            return self._grouper.samples(self._tar)
        most = min(2 * self._rules.least, self._rules.most)
        return self._grouper.samples(self._tar, KernelBatcher(native, self._tar, self._grouper.names.rule, most))

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Iterate over the samples of the most recent batch."""
        return self._grouper.one_by_one(batch)

    def check_end(self) -> None:
        """After the last sample, refuse a tar without samples, or with members overwritten by zeros."""
        if self.must_regroup:
            return
        if self._grouper.empty:
            raise no_samples(self.skipped)
        self._tar.check_ends()

    def resume(self, error: DamagedShardError) -> bool:
        """Continue after damage at the next header, if there is one; add the lost range to the error."""
        resumed = self._tar.resume(error)
        error.add_lost("member", resumed=resumed)
        if self._regrouper:
            return self._regrouper.resume(error, resumed=resumed)
        self._grouper.resume(error.member, extends=self._tar.extends)
        return resumed

    def close(self) -> None:
        """Close resources other than the stream."""
        self._links.close()

    def _members(self) -> TarReader:
        """Read all headers, and return a reader of members by offset."""
        assert self._by_offset
        sizes_only = self._rules.sizes_only
        return TarReader(
            self._by_offset.view(self._shard.on_bytes if self.seekable else None),
            self._shard.name,
            headers_only=sizes_only,
            need_end=False,
            large=None if sizes_only else self._large,
            entries=self._links,
        )

    def _whether_to_regroup(self, stream: Peekable, rules: TarRules, *, repeatable: bool) -> bool | None:
        """Decide whether to regroup samples; None if only a repeated key can show that.

        The stream is then at its first byte.
        """
        if rules.regroup is not None:
            return rules.regroup
        if not repeatable:
            return False
        if not rules.ahead:
            return None
        if self.seekable and isinstance(stream, PlainStream):
            adjacent = _are_adjacent(stream, rules)
            stream.seek(0)
            return not adjacent
        return not _are_adjacent(BytesIO(stream.peek(rules.ahead)), rules)


class _HardLinks(MemberPolicy):
    """Policy that treats each hard link as a member, regardless of its target."""

    def follow(self, name: str, target: str | None, offset: int) -> tuple[bytes, int] | None:
        return None if target is None else (b"", 0)


def _are_adjacent(stream: Readable, rules: TarRules) -> bool:
    """Whether no key is repeated in the readable part of a tar."""
    grouper = Grouper("", lambda error: None, key_split=rules.key_split, strict=False, sizes_only=True)
    reader = TarReader(stream, "", headers_only=True, need_end=False, entries=_HardLinks(grouper.names.wants))
    with suppress(DamagedShardError):
        deque(grouper.samples(reader), maxlen=0)
    return grouper.returned is None
