"""Members to samples: those whose names share a key become one dict; half and repeated samples are detected."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import Any, Final, overload

from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.errors import AGAIN, DamagedShardError, EntryError, NotAdjacentError, SampleError
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.formats.tar import Member, TarReader


def key_of(item: Mapping[str, object]) -> str | None:
    """Return the key of a sample, or of the sample that an example was made from, if it still has it.

    A whole number is a key, too; a list and a fraction are none.
    """
    key: Any = item.get(KEY)
    if isinstance(key, ParsedFeature):
        key = key.value() if key.count == 1 else None
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    if hasattr(key, "__index__") and not getattr(key, "shape", ()):
        return str(int(key))
    return key if isinstance(key, str) else None


def is_utf8(sample: Mapping[str, Any]) -> bool:
    """Whether the key of a sample and the names of its entries can be written as UTF-8, or are bytes of a member."""
    try:
        "".join((sample[KEY], *map(str, sample))).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def split_name(name: str, rule: KeySplit) -> tuple[str, str]:
    """Split a name into key and extension; both are empty if there is no dot, or nothing before or after it.

    `first` splits at the first dot of the base name, as WebDataset does, and lower-cases the extension as it does;
    `last` splits at the last dot, as the AIS tar2tf client and go-tfdata do, and keeps the case.
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base) if rule == "first" else name.rfind(".", base)
    if dot <= base or dot == len(name) - 1:
        return "", ""
    extension = name[dot + 1 :]
    return name[:dot], extension.lower() if rule == "first" else extension


def unwanted(name: str) -> str | None:
    """Return why a member is not part of a sample: it is an AppleDouble file, or metadata of WebDataset."""
    base = name[name.rfind("/") + 1 :]
    if base.startswith("._"):
        return "AppleDouble (._*)"
    if "__meta__" in name.split("/") or base.startswith("__meta__"):
        return "__meta__"
    return None


def _common(names: Iterable[tuple[str, ...]], before: set[str] | None) -> set[str] | None:
    """Return the names that all samples have, among those before; None stands for any name."""
    for of_some in names:
        before = set(of_some) if before is None else before & set(of_some)
    return before


_MOST_PAUSE: Final = 256


class KernelBatcher:
    """Makes batches of the plain samples of a tar with the kernel.

    The kernel stops at the first member that is not plain, so that every rule has its full form in Python only: headers
    in formats/tar.py, keys in `Grouper`. While members are not plain, it is tried again, but less and less often.

    Args:
        native: the kernel.
        tar: reads the members; a batch begins at its next header.
        key_split: where a name is split into key and extension.

    Attributes:
        pause: how many members to read one by one where there was no batch.
    """

    def __init__(self, native: ModuleType, tar: TarReader, key_split: KeySplit) -> None:
        self._samples = native.samples
        self._cursor = tar.cursor
        self._last_dot = key_split == "last"
        self._next_pause = self.pause = 1

    def batch(self, previous: str, differs: bool) -> Batch | None:
        """Return the plain samples that come next; None if `pause` members are to be read one by one.

        Args:
            previous: the name of the last member that was read by itself, to whose sample the next ones may belong.
            differs: whether names may be split that the other key rule would split differently.
        """
        before = previous.encode("utf-8", "surrogateescape")
        cursor, more = self._cursor, True
        while more:
            answer = self._samples(cursor.buffer, cursor.position, self._last_dot, differs, before)
            more = answer is True and cursor.read_ahead()
        if type(answer) is tuple:
            found = Batch(*answer)
            return replace(found, end=cursor.start + found.end, start=cursor.start)
        if answer is None:  # it is of the same sample as `previous`, and the next one may be plain
            self.pause = 1
        else:
            self.wait()
        return None

    def take(self, batch: Batch) -> None:
        """Continue after a batch."""
        self._cursor.position = batch.end - batch.start
        self._next_pause = 1

    def wait(self) -> None:
        """Have members read one by one, more of them each time."""
        self.pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _MOST_PAUSE)


_LONG: Final = 99  # bytes; longer names do not fit into a header
_UNREAD: Final = "may lack members: part of the shard could not be read"
_SORT: Final = "recreate the shard with its members sorted, or pass --regroup, which reads the shard twice"


class Grouper:
    """Groups the members of one shard into samples.

    Args:
        shard: what to call the shard in errors.
        key_split: where a name is split into key and extension.
        strict: whether a key that appears again makes a faulty sample, or else ends the samples of the shard.
        sizes_only: entries are sizes in bytes (int) instead of data.
        trusted: do not compare samples with each other, as that was done before.
        may_lack: whether a last sample that lacks what all others have is not faulty, as the tar has a proper end.
        report: called with each faulty sample; when it returns, the sample is skipped.

    Attributes:
        returned: the error for the key that appeared again and so ended the samples, if one did.
        skipped: how many members were skipped, by reason.
        split_differs: the first member that the other key rule would name differently.
        split_matters: this member, unless an entry of its sample has a name on which both rules agree: `1.mask.png` is
            one of the sample of `1.jpg`, but `1.a.jpg` and `1.b.jpg` may be two samples.
        offset: offset of the header of the current sample's first member.
        begin: offset of the header of the first member of the sample that is being grouped.
        empty: whether all members were read, and none of them made a sample, not even a faulty one.
        lacking: the note, which says what it lacks.
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
        self._shard = shard
        self._report = report
        self.key_split: KeySplit = key_split
        self.strict = strict
        self._sizes_only = sizes_only
        self._trusted = trusted
        self._extensions: dict[str, str] = {}  # without dots, so that both key rules agree on them
        self.skipped: Counter[str] = Counter()
        self.split_differs: str | None = None
        self.split_matters: str | None = None
        self._unsettled: str | None = None  # the key of the sample that shows whether it matters
        self.offset = self.begin = 0
        self._seen = SeenKeys()
        self._cut: str | None = None  # the key whose rest is skipped after damage; "" for the next one
        self._extends = False  # whether the first member after damage may have lost its name
        self._misnamed = False  # whether the current sample begins with such a member
        self._lost = ""  # the key of the sample that the damage itself cost
        self._faulty = self.empty = False
        self._may_lack = may_lack
        self.returned: NotAdjacentError | None = None
        self._broken: set[str] = set()  # keys of samples that are known to be faulty
        self._next_to_zeros: set[str] = set()  # keys before and after zeros, perhaps of overwritten members
        self._after_zeros = False
        self._required: frozenset[str] = frozenset()
        self._ends_last = True
        self.lacking: str | None = None
        self._current = ""

    def resume(self, member: str | None, *, extends: bool = False) -> None:
        """Discard the rest of the damaged member's sample, or of the next sample if no member is known.

        Args:
            member: the damaged member.
            extends: whether the next member may have lost an extended header, and with it its name.
        """
        self._cut = self.key_of(member)
        self._extends, self._misnamed = extends, False
        self._faulty = True

    def key_of(self, member: str | None) -> str:
        """The key of the sample that a member belongs to, or ""."""
        return split_name(member, self.key_split)[0] if member and not unwanted(member) else ""

    def wants(self, name: str) -> bool:
        """Whether a member of this name is an entry of a sample."""
        return bool(self.key_of(name))

    def lacks(self, error: EntryError) -> None:
        """Record that an entry cannot be read, so that its sample is faulty.

        Raises:
            NotAdjacentError: when that sample was given already, unless it is reported; it ends the samples.
        """
        key = self.key_of(error.member)
        if key not in self._broken:
            if key != self._current and key in self._seen:
                self._again(key, error.member or "", error.offset or 0)
            self.skip(key)
            self._report(error.at(shard=self._shard, key=key))

    def expect(self, required: frozenset[str], *, ends_last: bool) -> None:
        """Tell what was seen in the headers of a shard whose samples are regrouped.

        Args:
            required: entries without which a sample is faulty, as damage may have hidden members of any sample.
            ends_last: whether the last member belongs to the last sample; otherwise a cut did not shorten it.
        """
        self._required = required
        self._ends_last = ends_last

    def doubt(self, key: str, offset: int) -> None:
        """Record that a sample may lack members that stood before its member at an offset, so that it is faulty."""
        if key not in self._broken:
            self._broken.add(key)
            self._fault(_UNREAD, None, offset, AGAIN, key=key)

    def zeros(self) -> None:
        """Record that zeros follow the last member, as at the end of an archive; members may have been there."""
        self.compare(self._current)
        self._after_zeros = True

    def compare(self, key: str) -> None:
        """Compare a sample with all others, so that it is faulty if it lacks what they have."""
        self._next_to_zeros.add(key)

    def skip(self, key: str) -> None:
        """Skip the sample with a key, which is known to be faulty."""
        self._faulty = True
        self._broken.add(key)

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
            plain: makes batches of those samples of the same tar that are plain, which are given among the others.

        Raises:
            SampleError: through `report`, for a key that appears again, a member that appears twice and a last sample
                that lacks what all others have.
            DamagedShardError: when the tar is damaged; names the sample that lost members to the damage, if any did.
        """
        groups = self._grouped(iter(members), plain)
        if self._required:
            groups = self._complete(groups)
        return groups if self._trusted else self._compared(groups)

    def _grouped(self, members: Iterator[Member], plain: KernelBatcher | None) -> Iterator[Sample | Batch]:
        seen, sizes_only, trusted, extensions = self._seen, self._sizes_only, self._trusted, self._extensions
        broken = self._broken
        sample: Sample = {}
        current, prefix, first, good = "", "\0", 0, True
        name: str | None = ""
        try:
            while name is not None:
                while plain and (batch := self._batch(plain, current, name)):
                    if current == self._unsettled:
                        self._settle(sample)
                    if sample and good:
                        self.offset = first
                        yield sample
                    sample, current, prefix, name = {}, "", "\0", ""
                    self._current = ""
                    self.begin, self.offset = batch.end, batch.offset
                    yield batch
                name = None
                for name, data, size, offset in islice(members, plain.pause) if plain else members:
                    if name.startswith(prefix) and (known := extensions.get(name[len(prefix) :])):
                        key, extension = current, known
                    else:
                        key, extension = self.split(name)
                        if not key:
                            continue
                    if key != current:
                        if current == self._unsettled:
                            self._settle(sample)
                        if sample and good and not (broken and current in broken):
                            self.offset = first
                            yield sample
                        cut = (self._misnamed or self._cut is not None) and self._is_cut(key, name, len(sample))
                        good = (trusted or seen.add(key)) and not cut
                        current, prefix, sample, first = key, key + ".", {KEY: key}, offset
                        self._current = key
                        self.begin = offset
                        if self._after_zeros:
                            self.compare(key)
                            self._after_zeros = False
                        if cut and key != self._lost:
                            self._fault(_UNREAD, None, offset, AGAIN, key=key)
                        elif not (cut or good):
                            self._again(key, name, offset)
                        if extension == KEY:
                            good = False
                            self._taken(name, extension, offset)
                    elif extension in sample:
                        good = False
                        self._taken(name, extension, offset)
                    sample[extension] = size if sizes_only else data
        except DamagedShardError as error:
            key = self.key_of(error.member)
            if key not in ("", current) and sample and good and not (broken and current in broken):
                self.offset = first
                yield sample  # it is whole, as a member of another one began
            self._lost = key or current
            error.at(key=self._lost or None)
            raise
        if current == self._unsettled:
            self._settle(sample)
        if sample and good and current not in broken:
            self.offset = first
            yield sample

    def _is_cut(self, key: str, name: str, size: int) -> bool:
        """Whether a sample that begins may lack members that were lost to damage before it.

        Args:
            key: its key.
            name: its first member.
            size: how many entries, with the key, the sample before it has.
        """
        if self._misnamed:  # and if that was its only member, it may be one of this sample
            self._misnamed = False
            return size == 2
        cut, first, self._cut = self._cut in ("", key), self._cut == "", None
        self._misnamed = first and key != self._lost and may_be_misnamed(name, self._extends)
        return cut

    def _batch(self, plain: KernelBatcher, current: str, previous: str) -> Batch | None:
        """The batch of samples that comes next; None where members must come one by one."""
        depends_on_single_ones = (
            self._misnamed or self._after_zeros or self._cut is not None or self._broken or self._required
        )
        batch = None if depends_on_single_ones else plain.batch(previous, self.split_differs is not None)
        if batch and batch.first != current and self._seen.add_all(batch):
            plain.take(batch)
            return batch
        if batch or depends_on_single_ones:
            plain.wait()
        return None

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Iterate over the samples of the batch that was given last."""
        end = self.offset
        for self.offset, sample in batch.samples():
            yield sample
        self.offset = end

    def _complete(self, samples: Iterator[Sample | Batch]) -> Iterator[Sample | Batch]:
        """Iterate over the samples that have all required entries; there are no batches after damage."""
        for sample in samples:
            assert not isinstance(sample, Batch)
            missing = sorted(self._required - sample.keys())
            if not missing:
                yield sample
                continue
            message = f"lacks {', '.join(missing)}; part of the shard could not be read"
            self._fault(message, None, self.offset, AGAIN, key=sample[KEY])

    def _compared(self, samples: Iterator[Sample | Batch]) -> Iterator[Sample | Batch]:
        """Hold each sample or batch back by one, to compare the last sample with what all others have in common."""
        common: set[str] | None = None
        known: set[str] = set()
        names: tuple[str, ...] = ()
        signatures: list[bytes] = []
        held: Sample | Batch | None = None
        held_offset = 0
        suspects = self._next_to_zeros
        try:
            for sample in samples:
                if held is not None and not (suspects and self._is_half(held, sample, common, known, held_offset)):
                    if isinstance(held, Batch):
                        if held.signatures != signatures:
                            signatures, of_each = held.signatures, held.count_names()
                            common, known = _common(of_each, common), known.union(*of_each)
                    elif tuple(held) != names:
                        names = tuple(held)
                        common = set(names) if common is None else common & set(names)
                        known.update(names)
                    self.offset, offset = held_offset, self.offset
                    yield held
                    self.offset = offset
                held, held_offset = sample, self.offset
        except NotAdjacentError as error:
            self.returned = error
            return
        except DamagedShardError:  # another sample began after the one held, so it is complete
            if held is not None:
                self.offset = held_offset
                yield held
            raise
        if held is None:
            self.empty = not self._faulty
        elif suspects and self._is_half(held, None, common, known, held_offset):
            pass
        elif isinstance(held, Batch):
            others = held.without_last()
            missing = _missing(
                held.last_names(), _common(others.count_names(), common), known.union(*others.count_names())
            )
            yield others if self._is_short(held.last, missing, held.offset) else held
        else:
            self.offset = held_offset
            common = common if self._ends_last else None
            if not self._is_short(held[KEY], _missing(set(held), common, known), held_offset):
                yield held

    def _is_half(
        self,
        held: Sample | Batch,
        next_one: Sample | Batch | None,
        common: set[str] | None,
        known: set[str],
        offset: int,
    ) -> bool:
        """Whether a sample next to zeros is faulty: it lacks an entry of all before it, or, if first, the next one."""
        if isinstance(held, Batch) or held[KEY] not in self._next_to_zeros:
            return False
        if common is None and next_one is not None:
            names = next_one.count_names() if isinstance(next_one, Batch) else [tuple(next_one)]
            common = known = _common(names, None) or set()
        missing = _missing(set(held), common, known)
        if missing:
            message = f"lacks {', '.join(missing)}, which all others have, and is next to zeros"
            self._fault(message, None, offset, AGAIN, key=held[KEY])
        return bool(missing)

    def _is_short(self, key: str, missing: list[str], offset: int) -> bool:
        """Whether the last sample is faulty, as it lacks what all others have."""
        message = f"lacks {', '.join(missing)}, which all others have"
        if missing and self._may_lack:
            self.lacking = f"the last sample, {key}, {message}"
        elif missing:
            hint = "download or recreate the shard, or skip such samples with --on-error skip"
            self._fault(f"the last sample {message}: the shard was cut short", None, offset, hint, key=key)
        return bool(missing) and not self._may_lack

    def split(self, name: str) -> tuple[str, str]:
        """Key and extension of a member; both empty when it is not an entry of a sample, which is counted."""
        if ("._" in name or "__meta__" in name) and (reason := unwanted(name)):
            self.skipped[reason] += 1
            return "", ""
        key, extension = split_name(name, self.key_split)
        if not key:
            self.skipped["no extension"] += 1
        elif "." in extension or "." in key[key.rfind("/") + 1 :]:
            if self.split_differs is None:
                self.split_differs = self.split_matters = name
                self._unsettled = key
        elif name.endswith(extension):
            self._extensions[extension] = extension
        return key, extension

    def _settle(self, sample: Sample) -> None:
        """Decide by the sample of the first member whose split differs whether that matters."""
        self._unsettled = None
        if any("." not in name for name in sample if name != KEY):
            self.split_matters = None

    def _again(self, key: str, member: str, offset: int) -> None:
        message = f"the key {key!r} appears again; its members are not adjacent"
        if not self.strict:
            raise NotAdjacentError(message, shard=self._shard, key=key, member=member, offset=offset)
        self._fault(message, member, offset, _SORT)

    def _taken(self, name: str, extension: str, offset: int) -> None:
        message, hint = "the same member appears twice in one sample", "recreate the shard with only one of them"
        if extension == KEY:
            message, hint = f"an entry cannot be named {KEY!r}: the key has this name", "give the member another name"
        self._fault(message, name, offset, hint)

    def _fault(self, message: str, member: str | None, offset: int, hint: str, *, key: str | None = None) -> None:
        self._faulty = True
        key = key or self.key_of(member)
        self._report(SampleError(message, shard=self._shard, key=key, member=member, offset=offset, hint=hint))


def may_be_misnamed(name: str, extends: bool) -> bool:
    """Whether a name may stand in a header for one that is too long for it, or not ASCII."""
    return extends or "?" in name or len(name.encode("utf-8", "surrogateescape")) >= _LONG


def _missing(names: set[str], common: set[str] | None, known: set[str]) -> list[str]:
    """Return the entries that all samples but the last have; none if the last has an entry that no other has."""
    return sorted((common or set()) - names - {KEY}) if names <= known | {KEY} else []


def no_samples(skipped: Counter[str]) -> DamagedShardError:
    """Make the error for a tar without any sample; it says which members were skipped."""
    reasons = ", ".join(f"{count:,} x {reason}" for reason, count in skipped.items())
    return DamagedShardError(
        "the tar holds no samples" + (f"; members skipped: {reasons}" if reasons else ""),
        kind="empty",
        hint="check that the shard is intact, and that its members are named KEY.EXTENSION",
    )


class SeenKeys:
    """Set of the keys seen in a shard, as 64-bit hashes: eight bytes per key while they come in sorted order."""

    def __init__(self) -> None:
        self._last = ""
        self._hashes = array("q")
        self._set: set[int] | None = None

    def add(self, key: str) -> bool:
        """Add a key; return False if it was there before."""
        number = hash(key)
        if self._set is not None:
            if number in self._set:
                return False
            self._set.add(number)
        elif key > self._last:
            self._last = key
            self._hashes.append(number)
        else:
            self._all()
            return self.add(key)
        return True

    def __contains__(self, key: str) -> bool:
        if self._set is None and key > self._last:
            return False
        return hash(key) in self._all()

    def _all(self) -> set[int]:
        if self._set is None:
            self._set = set(self._hashes)
            del self._hashes[:]
        return self._set

    def add_all(self, batch: Batch) -> bool:
        """Add the keys of a batch; return False, and add none, if one of them was there before."""
        hashes = array("q", batch.py_hashes)
        if self._set is None and batch.ascending and batch.first > self._last:
            self._last = batch.last
            self._hashes += hashes
            return True
        new, known = set(hashes), self._all()
        if len(new) < len(hashes) or not new.isdisjoint(known):
            return False
        known |= new
        return True


class Regrouper:
    """Regroups samples whose members are not adjacent: all headers are read first, then members by offset.

    In between it has the offsets of each sample's members, as runs of adjacent members, by the first appearance of
    their keys. It takes about 150 bytes per sample while the headers are read, and 60 afterwards.

    Args:
        grouper: splits names into keys and extensions, counts the members that belong to no sample, and makes samples.
    """

    def __init__(self, grouper: Grouper) -> None:
        self._grouper = grouper
        self._scanned = False
        self._lost = False  # whether damage may have hidden members of any sample
        self._key = ""  # of the last member that is one of a sample
        self._in_order = True  # whether members were adjacent up to the damage, which may make them look scattered
        self._damaged = False
        self._misnamed = 0  # the number of members up to the last one after damage, if that may have lost its name
        self._around_damage: list[tuple[str, str, int]] = []  # keys before and after, and offset after it
        self._after_zeros = False
        self._numbers: dict[int, int] = {}  # of samples, by the hash of the key
        self._owners = array("I")
        self._starts = array("Q")
        self._ends = array("Q")
        self._scattered = bytearray()  # one byte a sample
        self._entries: Counter[str] = Counter()  # how many members have each extension

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self._scattered)

    @property
    def not_adjacent(self) -> int:
        """The number of samples whose members are not adjacent."""
        return sum(self._scattered)

    def samples(self, headers: TarReader, by_offset: Callable[[], TarReader]) -> Iterator[Sample]:
        """Iterate over the samples; after damage, call it again with the same reader of headers if `resume` says so.

        Args:
            headers: reads the headers.
            by_offset: makes a reader of the members, whose stream can seek.
        """
        grouper = self._grouper
        if not self._scanned:
            self.scan(headers)
            self._scanned = True
        required = frozenset[str]()
        if self._lost:
            self._doubt()
            required = frozenset(name for name, count in self._entries.items() if 4 * count > self.count)
        grouper.expect(required, ends_last=not self._owners or self._owners[-1] == self.count - 1)
        yield from grouper.samples(self.members(by_offset()))

    def resume(self, error: DamagedShardError, *, resumed: bool) -> bool:
        """Continue after damage to a header; after damage to a member by offset, nothing is left to continue with.

        Args:
            error: the damage; it names the damaged member, whose sample is skipped, if that is known.
            resumed: whether more headers can be read; otherwise those read so far are all.
        """
        key = self._grouper.key_of(error.member)
        if key:
            self._grouper.skip(key)
        else:  # it may have hidden members after the last one
            self._in_order = self._in_order and not self.not_adjacent
            self._damaged = True
        self._lost = self._lost or not (key and resumed)
        first, self._scanned = not self._scanned, self._scanned or not resumed
        return first

    def scan(self, tar: TarReader) -> None:
        """Add the members of a tar; after damage, call it again with the same reader."""
        numbers, scattered, current = self._numbers, self._scattered, -1
        last = self._owners[-1] if self._owners else -1
        for name, _, _, start in tar:
            key, extension = self._grouper.split(name)
            if not key:
                current = -1  # ends the run, as it is not a member of a sample
                continue
            self._entries[extension] += 1
            number = numbers.setdefault(hash(key), len(numbers))
            if number == len(scattered):
                scattered.append(False)
            elif number != last:
                scattered[number] = True
            if number != current:
                self._owners.append(number)
                self._starts.append(start)
                self._ends.append(0)
                if self._damaged or self._misnamed:
                    self._after_damage(key, name, start, tar)
                if self._after_zeros:
                    self._grouper.compare(key)
                    self._after_zeros = False
                self._key = key
            current = last = number
            self._ends[-1] = tar.offset

    def _after_damage(self, key: str, name: str, offset: int, tar: TarReader) -> None:
        """Note the sample of a member after damage, and of the next one, if that one may have lost its name."""
        members = sum(self._entries.values())
        if self._damaged or self._misnamed == members - 1:
            self._around_damage.append((self._key, key, offset))
        first = self._damaged and key != self._key and may_be_misnamed(name, tar.extends)
        self._misnamed = members if first else 0
        self._damaged = False

    def zeros(self) -> None:
        """Record that zeros follow the last member, as at the end of an archive; members may have been there."""
        self._grouper.compare(self._key)
        self._after_zeros = True

    def _doubt(self) -> None:
        """At the end, mark the samples next to damage as faulty; where members are scattered, any sample may be."""
        if not self._in_order:
            return
        for before, after, offset in self._around_damage:
            self._grouper.skip(before)
            self._grouper.doubt(after, offset)
        if self._damaged:
            self._grouper.skip(self._key)

    def members(self, tar: TarReader) -> Iterator[Member]:
        """Iterate over the members of all samples, sample by sample, from a reader whose stream can seek."""
        self._numbers.clear()
        for run in sorted(range(len(self._owners)), key=self._owners.__getitem__):
            end = self._ends[run]
            tar.start_at(self._starts[run], end)
            for member in tar:
                yield member
                if tar.offset >= end:
                    break
