"""Groups tar members whose names share a key into samples, and detects incomplete and repeated samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import ModuleType
from typing import Final, overload

from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.errors import RECREATE_HINT, DamagedShardError, EntryError, NotAdjacentError, SampleError
from tar2tf_cli.formats.tar import Member, TarReader
from tar2tf_cli.samples.keys import NameSplitter, SeenKeys

_MOST_PAUSE: Final = 256


class KernelBatcher:
    """Reads plain samples of a tar in batches with the kernel.

    The kernel stops at the first member that is not plain; the full rules are implemented in Python only: headers in
    formats/tar.py, keys in `Grouper`. While members are not plain, the kernel is retried less and less often.

    Args:
        native: the kernel.
        tar: reads the members; a batch begins at its next header.
        key_split: the dot at which a name is split into key and extension.
        most: the size above which a sample is not read into a batch, so that its large entries can stay in the tar.

    Attributes:
        pause: how many members to read one by one before the kernel is tried again.
        ended: whether the tar ends after the last batch.
    """

    def __init__(self, native: ModuleType, tar: TarReader, key_split: KeySplit, most: int) -> None:
        self._samples = native.samples
        self._tar = tar
        self._cursor = tar.cursor
        self.ended = False
        self._last_dot = key_split == "last"
        self._most = most
        self._first_chunk = tar.cursor.chunk
        self._next_pause = self.pause = 1

    def batch(self, previous: str, differs: bool) -> Batch | None:
        """Return a batch of the next plain samples; None if the caller has to read `pause` members one by one.

        Args:
            previous: the name of the last member that was read singly, to whose sample the next members may belong.
            differs: whether a batch may contain names that the other key rule would split differently.
        """
        before = previous.encode("utf-8", "surrogateescape")
        cursor, more = self._cursor, True
        if not cursor.buffer:
            cursor.read_ahead()
        while more:
            answer = self._samples(cursor.buffer, cursor.position, self._last_dot, differs, before, cursor.ended)
            more = answer is True and len(cursor.buffer) - cursor.position < self._most and cursor.read_ahead()
        if type(answer) is tuple:
            found = Batch(*answer)
            found.start, found.end = cursor.start, cursor.start + found.end
            return found
        if answer is None:  # the member is of the same sample as `previous`, and the next sample may be plain
            self.pause = 1
        else:
            self.wait()
        return None

    def take(self, batch: Batch) -> None:
        """Continue after a batch, with a larger block, as small samples may follow."""
        self._cursor.position = batch.end - batch.start
        self._cursor.chunk = min(2 * self._cursor.chunk, self._cursor.CHUNK)
        self._next_pause = 1
        self.ended = self._tar.take_end()

    def wait(self) -> None:
        """Double the number of members to read one by one before the next attempt."""
        self._cursor.chunk = self._first_chunk
        self.pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _MOST_PAUSE)


_LONG: Final = 99  # bytes; longer names do not fit into a header
_UNREAD: Final = "may lack members: part of the shard could not be read"
_SORT: Final = "recreate the shard with its members sorted, or pass --regroup, which reads the shard twice"


class FaultySamples:
    """Reports the faulty samples of a shard, each once.

    Args:
        shard: the name of the shard in errors.
        report: called with each error; when it returns, the sample is skipped.
        strict: whether a repeated key makes its sample faulty; otherwise it ends the iteration.

    Attributes:
        any: whether any sample was faulty.
        keys: keys of samples known to be faulty although their members seem intact.
    """

    def __init__(self, shard: str, report: Callable[[SampleError], None], *, strict: bool) -> None:
        self._shard = shard
        self._report = report
        self._strict = strict
        self.any = False
        self.keys: set[str] = set()

    def skip(self, key: str) -> None:
        """Skip the sample with a key, which was reported already."""
        self.any = True
        self.keys.add(key)

    def report(self, message: str, key: str, member: str | None, offset: int, hint: str) -> None:
        """Report a faulty sample, named by its key or by a member."""
        self.any = True
        self._report(SampleError(message, shard=self._shard, key=key, member=member, offset=offset, hint=hint))

    def report_entry(self, error: EntryError, key: str) -> None:
        """Report a sample with an unreadable entry, and skip all its members."""
        self.skip(key)
        self._report(error.at(shard=self._shard, key=key))

    def report_again(self, key: str, member: str, offset: int) -> None:
        """Report a sample whose key appears again.

        Raises:
            NotAdjacentError: when such a key ends the iteration.
        """
        message = f"the key {key!r} appears again; its members are not adjacent"
        if not self._strict:
            raise NotAdjacentError(message, shard=self._shard, key=key, member=member, offset=offset)
        self.report(message, key, member, offset, _SORT)


class LostMembers:
    """Decides which samples may lack members, lost to damage or overwritten with zeros.

    Attributes:
        lost: the key of the sample lost to the damage.
        near_zeros: keys before and after zeros, perhaps of overwritten members.
        after_zeros: whether the next member is the first one after zeros.
        misnamed: whether the current sample begins with a member that may have lost its name.
        cut: the key whose remaining members are skipped after damage; empty for the next sample's key; None for none.
    """

    def __init__(self) -> None:
        self.cut: str | None = None
        self._extends = False  # whether the first member after damage may have lost its name
        self.misnamed = False
        self.lost = ""
        self.near_zeros: set[str] = set()
        self.after_zeros = False

    def begin_again(self, key: str, *, extends: bool) -> None:
        """Continue after damage: skip the remaining members of the damaged sample, or of the next one if the key is
        empty.

        Args:
            key: the key of the damaged member; empty if none is known.
            extends: whether the next member may have lost an extended header, and with it its name.
        """
        self.cut = key
        self._extends, self.misnamed = extends, False

    @property
    def pending(self) -> bool:
        """Whether the next sample must be examined singly, not in a batch."""
        return self.misnamed or self.after_zeros or self.cut is not None

    def cuts(self, key: str, name: str, size: int) -> bool:
        """Whether a sample may lack members that were lost to the damage before its first member.

        Args:
            key: its key.
            name: its first member.
            size: number of entries of the previous sample, including the key.
        """
        if self.misnamed:  # if that was its only member, it may belong to this sample
            self.misnamed = False
            return size == 2
        cut, first, self.cut = self.cut in ("", key), self.cut == "", None
        self.misnamed = first and key != self.lost and may_be_misnamed(name, self._extends)
        return cut


def may_be_misnamed(name: str, extends: bool) -> bool:
    """Whether a name in a header may be the abbreviation of one that is too long or not ASCII."""
    return extends or "?" in name or len(name.encode("utf-8", "surrogateescape")) >= _LONG


class CommonEntries:
    """Finds samples that lack entries common to all others, a sign that a shard was truncated or partly overwritten.

    Args:
        faults: receives the faulty samples.
        may_lack: whether the last sample may lack entries that all others have, as the tar has a proper end.

    Attributes:
        required: entries that a sample must have, since damage may have hidden members of any sample.
        ends_last: whether the last member belongs to the last sample; otherwise truncation did not shorten it.
        lacking: a note on a last sample that is not faulty although it lacks entries.
    """

    def __init__(self, faults: FaultySamples, *, may_lack: bool) -> None:
        self._faults = faults
        self._may_lack = may_lack
        self.required: frozenset[str] = frozenset()
        self.ends_last = True
        self.lacking: str | None = None
        self._common: set[str] | None = None  # None before the first sample
        self._known: set[str] = set()
        self._last: tuple[str, ...] | list[bytes] = ()  # names or signatures of the last sample or batch

    def add(self, sample: Sample | Batch) -> None:
        """Add the names of a sample's entries."""
        names: tuple[str, ...] | list[bytes] = sample.signatures if isinstance(sample, Batch) else tuple(sample)
        if names != self._last:
            self._last = names
            of_each = _names_of(sample)
            self._common, self._known = _common(of_each, self._common), self._known.union(*of_each)

    def lacks_required(self, sample: Sample, offset: int) -> bool:
        """Whether a sample is faulty, as it lacks a required entry."""
        missing = sorted(self.required - sample.keys())
        if missing:
            message = f"lacks {', '.join(missing)}; part of the shard could not be read"
            self._faults.report(message, sample[KEY], None, offset, RECREATE_HINT)
        return bool(missing)

    def is_half(self, sample: Sample, next_one: Sample | Batch | None, offset: int) -> bool:
        """Whether a sample next to zeros lacks an entry of all earlier samples or, if first, of the next one."""
        common, known = self._common, self._known
        if common is None and next_one is not None:
            common = known = _common(_names_of(next_one), None) or set()
        missing = _missing(set(sample), common, known)
        if missing:
            message = f"lacks {', '.join(missing)}, which all others have, and is next to zeros"
            self._faults.report(message, sample[KEY], None, offset, RECREATE_HINT)
        return bool(missing)

    def without_short(self, last: Sample | Batch, offset: int) -> Sample | Batch | None:
        """Return the last sample or batch, without its last sample if that lacks entries that all others have."""
        if isinstance(last, Batch):
            if len(last.signatures) == 1 and self._last in ((), last.signatures):
                return last  # all samples have the same entries
            others = last.without_last()
            names = others.count_names()
            missing = _missing(last.last_names(), _common(names, self._common), self._known.union(*names))
            return others if self._is_short(last.last, missing, last.offset) else last
        missing = _missing(set(last), self._common if self.ends_last else None, self._known)
        return None if self._is_short(last[KEY], missing, offset) else last

    def _is_short(self, key: str, missing: list[str], offset: int) -> bool:
        message = f"lacks {', '.join(missing)}, which all others have"
        if missing and self._may_lack:
            self.lacking = f"the last sample, {key}, {message}"
        elif missing:
            hint = "download or recreate the shard, or skip such samples with --on-error skip"
            self._faults.report(f"the last sample {message}: the shard was cut short", key, None, offset, hint)
        return bool(missing) and not self._may_lack


def _names_of(sample: Sample | Batch) -> Iterable[tuple[str, ...]]:
    """Return the entry names of each signature in a batch, or of a single sample."""
    return sample.count_names() if isinstance(sample, Batch) else [tuple(sample)]


def _common(names: Iterable[tuple[str, ...]], before: set[str] | None) -> set[str] | None:
    """Return the entry names in both all samples and `before`; None means that any name is in `before`."""
    for of_some in names:
        before = set(of_some) if before is None else before & set(of_some)
    return before


def _missing(names: set[str], common: set[str] | None, known: set[str]) -> list[str]:
    """Return the entries that only the last sample lacks; none if it has an entry that no other has."""
    return sorted((common or set()) - names - {KEY}) if names <= known | {KEY} else []


class Grouper:
    """Groups the members of one shard into samples.

    Args:
        shard: the name of the shard in errors.
        key_split: the dot at which a name is split into key and extension.
        strict: whether a repeated key makes its sample faulty; otherwise it ends the iteration.
        sizes_only: entries are sizes in bytes (int) instead of data.
        trusted: do not compare samples with each other, because an earlier pass did.
        may_lack: whether the last sample may lack entries that all others have, as the tar has a proper end.
        report: called with each faulty sample; when it returns, the sample is skipped.

    Attributes:
        names: splits the names of members, and counts those that belong to no sample.
        entries: finds entries that the last sample lacks.
        returned: the error for the repeated key that ended the iteration, or None.
        offset: offset of the header of the current sample's first member.
        begin: offset of the header of the first member of the sample that is being grouped.
        empty: whether all members were read, and none of them made a sample, not even a faulty one.
    """

    def __init__(
        self,
        shard: str,
        report: Callable[[SampleError], None],
        *,
        key_split: KeySplit = "first",
        strict: bool = True,
        sizes_only: bool = False,
        trusted: bool = False,
        may_lack: bool = False,
    ) -> None:
        self.names = NameSplitter(key_split)
        self._faults = FaultySamples(shard, report, strict=strict)
        self.entries = CommonEntries(self._faults, may_lack=may_lack)
        self._lost = LostMembers()
        self._seen = SeenKeys()
        self._sizes_only = sizes_only
        self._trusted = trusted
        self.offset = self.begin = 0
        self._current = ""  # key of the sample that is being grouped
        self.returned: NotAdjacentError | None = None
        self.empty = False

    def resume(self, member: str | None, *, extends: bool = False) -> None:
        """Discard the rest of the damaged member's sample, or of the next sample if no member is known.

        Args:
            member: the damaged member.
            extends: whether the next member may have lost an extended header, and with it its name.
        """
        self._lost.begin_again(self.names.key_of(member), extends=extends)
        self._faults.any = True

    def lacks(self, error: EntryError) -> None:
        """Mark a sample as faulty because one of its entries cannot be read.

        Raises:
            NotAdjacentError: when the sample was yielded already, unless that is reported; it ends the iteration.
        """
        key = self.names.key_of(error.member)
        if key not in self._faults.keys:
            if key != self._current and key in self._seen:
                self._faults.report_again(key, error.member or "", error.offset or 0)
            self._faults.report_entry(error, key)

    def expect(self, required: frozenset[str], *, ends_last: bool) -> None:
        """Set the facts that an earlier pass found in the headers of a shard that is regrouped.

        Args:
            required: entries that a sample must have, since damage may have hidden members of any sample.
            ends_last: whether the last member belongs to the last sample; otherwise truncation did not shorten it.
        """
        self.entries.required = required
        self.entries.ends_last = ends_last

    def skip_incomplete(self, key: str, offset: int) -> None:
        """Skip a sample as faulty, because members before its member at an offset may be missing."""
        if key not in self._faults.keys:
            self._faults.skip(key)
            self._faults.report(_UNREAD, key, None, offset, RECREATE_HINT)

    def zeros(self) -> None:
        """Record that zeros follow the last member; they may be the end of an archive, or overwritten members."""
        self.compare(self._current)
        self._lost.after_zeros = True

    def compare(self, key: str) -> None:
        """Mark a sample for comparison: it is faulty if it lacks entries that all others have."""
        self._lost.near_zeros.add(key)

    def skip(self, key: str) -> None:
        """Skip the sample with a key, which is known to be faulty."""
        self._faults.skip(key)

    @overload
    def samples(self, members: Iterable[Member]) -> Iterator[Sample]: ...

    @overload
    def samples(self, members: Iterable[Member], plain: KernelBatcher | None) -> Iterator[Sample | Batch]: ...

    def samples(
        self, members: Iterable[Member], plain: KernelBatcher | None = None
    ) -> Iterator[Sample] | Iterator[Sample | Batch]:
        """Iterate over the samples of a shard's members, in the order of their first members.

        Args:
            members: the members.
            plain: makes batches of the plain samples of the same tar, which are yielded in their order.

        Raises:
            SampleError: through `report`, for a repeated key, a repeated member, and a last sample that lacks entries
                of all others.
            DamagedShardError: when the tar is damaged; names the sample that lost members to the damage, if any did.
        """
        groups = self._grouped(iter(members), plain)
        if self.entries.required:
            groups = self._complete(groups)
        return groups if self._trusted else self._compared(groups)

    def _grouped(self, members: Iterator[Member], plain: KernelBatcher | None) -> Iterator[Sample | Batch]:
        seen, sizes_only, trusted, extensions = self._seen, self._sizes_only, self._trusted, self.names.extensions
        names, lost, broken = self.names, self._lost, self._faults.keys
        sample: Sample = {}
        current, prefix, first, good = "", "\0", 0, True
        name: str | None = ""
        try:
            while name is not None:
                while plain and (batch := self._batch(plain, current, name)) is not None:
                    if current == names.unsettled:
                        names.settle(sample)
                    if sample and good:
                        self.offset = first
                        yield sample
                    sample, current, prefix, name = {}, "", "\0", ""
                    self._current = ""
                    self.begin, self.offset = batch.end, batch.offset
                    yield batch
                    if plain.ended:
                        return
                name = None
                for name, data, size, offset in islice(members, plain.pause) if plain else members:
                    if name.startswith(prefix) and (known := extensions.get(name[len(prefix) :])):
                        key, extension = current, known
                    else:
                        key, extension = names.split(name)
                        if not key:
                            continue
                    if key != current:
                        if current == names.unsettled:
                            names.settle(sample)
                        if sample and good and not (broken and current in broken):
                            self.offset = first
                            yield sample
                        cut = (lost.misnamed or lost.cut is not None) and lost.cuts(key, name, len(sample))
                        good = (trusted or seen.add(key)) and not cut
                        current, prefix, sample, first = key, key + ".", {KEY: key}, offset
                        self._current = key
                        self.begin = offset
                        if lost.after_zeros:
                            self.compare(key)
                            lost.after_zeros = False
                        if cut and key != lost.lost:
                            self._faults.report(_UNREAD, key, None, offset, RECREATE_HINT)
                        elif not (cut or good):
                            self._faults.report_again(key, name, offset)
                        if extension == KEY:
                            good = False
                            self._taken(name, extension, offset)
                    elif extension in sample:
                        good = False
                        self._taken(name, extension, offset)
                    sample[extension] = size if sizes_only else data
        except DamagedShardError as error:
            key = self.names.key_of(error.member)
            if key not in ("", current) and sample and good and not (broken and current in broken):
                self.offset = first
                yield sample  # the sample is complete, since a member of another one began
            lost.lost = key or current
            error.at(key=lost.lost or None)
            raise
        if current == names.unsettled:
            names.settle(sample)
        if sample and good and current not in broken:
            self.offset = first
            yield sample

    def _batch(self, plain: KernelBatcher, current: str, previous: str) -> Batch | None:
        """Return the next batch of samples; None if members must be read one by one."""
        one_by_one = self._lost.pending or self._faults.keys or self.entries.required
        batch = None if one_by_one else plain.batch(previous, self.names.differs is not None)
        if batch is not None and batch.first != current and self._seen.add_all(batch):
            plain.take(batch)
            return batch
        if batch is not None or one_by_one:
            plain.wait()
        return None

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Iterate over the samples of the batch that was yielded last."""
        end = self.offset
        for self.offset, sample in batch.samples():
            yield sample
        self.offset = end

    def _complete(self, samples: Iterator[Sample | Batch]) -> Iterator[Sample | Batch]:
        """Iterate over the samples that have all required entries; there are no batches after damage."""
        for sample in samples:
            assert not isinstance(sample, Batch)
            if not self.entries.lacks_required(sample, self.offset):
                yield sample

    def _compared(self, samples: Iterator[Sample | Batch]) -> Iterator[Sample | Batch]:
        """Yield each sample or batch one step late, to compare the last sample with entries that all others share."""
        held: Sample | Batch | None = None
        held_offset = 0
        suspects, entries = self._lost.near_zeros, self.entries
        try:
            for sample in samples:
                if held is not None and not (suspects and self._is_half(held, sample, held_offset)):
                    entries.add(held)
                    self.offset, offset = held_offset, self.offset
                    yield held
                    self.offset = offset
                held, held_offset = sample, self.offset
        except NotAdjacentError as error:
            self.returned = error
            return
        except DamagedShardError:  # another sample began after the held one, so the latter is complete
            if held is not None:
                self.offset = held_offset
                yield held
            raise
        if held is None:
            self.empty = not self._faults.any
        elif not (suspects and self._is_half(held, None, held_offset)):
            if not isinstance(held, Batch):
                self.offset = held_offset
            if (last := entries.without_short(held, held_offset)) is not None:
                yield last

    def _is_half(self, held: Sample | Batch, next_one: Sample | Batch | None, offset: int) -> bool:
        """Whether a sample next to zeros is faulty."""
        if isinstance(held, Batch) or held[KEY] not in self._lost.near_zeros:
            return False
        return self.entries.is_half(held, next_one, offset)

    def _taken(self, name: str, extension: str, offset: int) -> None:
        message, hint = "the same member appears twice in one sample", "recreate the shard with only one of them"
        if extension == KEY:
            message, hint = f"an entry cannot be named {KEY!r}: the key has this name", "give the member another name"
        self._faults.report(message, self.names.key_of(name), name, offset, hint)


def no_samples(skipped: Counter[str]) -> DamagedShardError:
    """Make the error for a tar without any sample, which names the skipped members."""
    reasons = ", ".join(f"{count:,} x {reason}" for reason, count in skipped.items())
    return DamagedShardError(
        "the tar holds no samples" + (f"; members skipped: {reasons}" if reasons else ""),
        kind="empty",
        hint="check that the shard is intact, and that its members are named KEY.EXTENSION",
    )
