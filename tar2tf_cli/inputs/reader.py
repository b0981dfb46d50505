"""Reader of one input from its first to its last sample: a tar or TFRecord, detected by content, or a source's list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final, TypeVar, overload

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import OnBytes, OnFault, Samples, SampleSource, Source
from tar2tf_cli.api.values import Batch, Sample
from tar2tf_cli.errors import DamagedShardError, Location, Lost, Tar2tfError
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.report import InputReport, fault_note
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.structs import NamedTuple, Protocol

if TYPE_CHECKING:
    from tar2tf_cli.features.described import Described
    from tar2tf_cli.inputs.record_samples import Forms, RecordSamples

LOOK_AHEAD: Final = 32 << 20
"""Bytes of a compressed or remote tar that are searched for a key that appears again."""

T = TypeVar("T")


class Attempt(Protocol):
    """An attempt to read an input, which may have to be repeated with regrouping."""

    @property
    def must_regroup(self) -> bool:
        """Whether reading stopped at a repeated key, so that the samples must be regrouped."""


A = TypeVar("A", bound=Attempt)


def attempts(open_input: Callable[[bool], AbstractContextManager[A]]) -> Iterator[A]:
    """Open an input, and open it again with regrouping if its samples stop at a key that appeared again.

    A caller's result of an attempt replaces that of the previous one.

    Args:
        open_input: opens the input; its argument is whether to regroup samples.
    """
    with open_input(False) as first:
        yield first
    if first.must_regroup:
        with open_input(True) as second:
            yield second


class ReadRules(NamedTuple):
    """Options for reading an input.

    Attributes:
        tar: the options for reading a tar.
        resumes: whether reading continues after damage.
        only_records: whether it is a TFRecord regardless of its first bytes, and may have no records.
        described: the features of TFRecords that a manifest describes, by the names of the inputs.
        forms: the forms of features of TFRecords that no manifest describes; None if each input decides for itself.
        key_feature: the feature that contains the key of each record; None for `__key__`.
        stems: the beginning of the keys of records without a key, by the names of inputs whose stem is not unique.
    """

    tar: TarRules = TarRules()
    resumes: bool = False
    only_records: bool = False
    described: Mapping[str, Described] = MappingProxyType({})
    stems: Mapping[str, str] = MappingProxyType({})
    key_feature: str | None = None
    forms: Forms | None = None


class InputContent(Protocol):
    """Interface of the samples of an input in a known format."""

    @property
    def seekable(self) -> bool:
        """Whether samples can be read by offset."""

    @property
    def regroups(self) -> bool:
        """Whether samples are regrouped whose members are not adjacent."""

    @property
    def may_regroup(self) -> bool:
        """Whether a key that appears again ends the samples."""

    @property
    def must_regroup(self) -> bool:
        """Whether reading stopped at a key that appeared again."""

    @property
    def count(self) -> int | None:
        """The number of samples, if it is known."""

    @property
    def offset(self) -> int:
        """The offset at which the current sample begins."""

    def where(self) -> Location:
        """Return the location of the current sample for errors."""

    def seek(self, offset: int) -> None:
        """Go to the sample at an offset; only valid if `seekable`."""

    def samples(self, native: ModuleType | None) -> Iterator[Sample | Batch]:
        """Iterate over the samples from the current position; if a kernel is given, also in batches."""

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Iterate over the samples of the most recent batch."""

    def resume(self, error: DamagedShardError) -> bool:
        """Continue after damage; return whether there is more to read."""

    def check_end(self) -> None:
        """Check the end of the input, once all samples are read."""

    def describe(self, report: InputReport) -> None:
        """Add statistics of the content to the report."""

    def close(self) -> None:
        """Close resources other than the shard itself."""


class ListedSamples:
    """The samples that a source lists itself, such as the rows of a table.

    Args:
        listed: the samples, each with its origin.
    """

    seekable = regroups = may_regroup = must_regroup = False
    count = None
    offset = 0

    def __init__(self, listed: Samples) -> None:
        self._listed = listed
        self._origin: Location = {}

    def where(self) -> Location:
        """Return the origin of the current sample."""
        return self._origin

    def seek(self, offset: int) -> None:
        """Raise an error: a list has no offsets."""
        raise NotImplementedError

    def samples(self, native: ModuleType | None) -> Iterator[Sample | Batch]:
        """Iterate over the samples."""
        for origin, sample in self._listed:
            self._origin = origin
            yield sample

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Raise an error: a list gives no batches."""
        raise NotImplementedError

    def resume(self, error: DamagedShardError) -> bool:
        """Return False: there is never more to read."""
        return False

    def check_end(self) -> None:
        """Do nothing: a list may end anywhere."""

    def describe(self, report: InputReport) -> None:
        """Do nothing: the source adds to the report itself."""

    def close(self) -> None:
        """Close the list."""
        self._listed.close()


class InputReader:
    """Reader of one input's samples, which resumes after damage if the rules allow it.

    Args:
        source: opens the input.
        item: the input.
        rules: the options for reading it.
        report: filled in as the input is read; complete once the reader is closed.
        on_fault: called with each fault; when it returns, the sample or the damaged part is skipped.
        on_bytes: called with the number of stored bytes after each read.
        small: whether it is read at once, so that samples cannot be read by their offset.

    Attributes:
        name: path or URL of the input.
        content: the samples of the input, by its format.
        records: `content`, if the input is a TFRecord.
        of_records: whether entries may be other values than bytes, as in records.
        report: the report on the input.

    Raises:
        SourceError: when the input cannot be opened or read, or is damaged.
    """

    def __init__(
        self,
        source: Source,
        item: ObjectInfo,
        rules: ReadRules,
        report: InputReport,
        on_fault: OnFault,
        on_bytes: OnBytes = None,
        *,
        small: bool = False,
    ) -> None:
        self._item, self._stems = item, rules.stems
        self.report = report
        self._on_fault = on_fault
        self._resumes = rules.resumes
        self._rest: Iterator[Sample | Batch] = iter(())
        self._shard: OpenShard | None = None
        self.records: RecordSamples | None = None
        self.content: InputContent
        self.of_records = False
        if isinstance(source, SampleSource):
            self.name = source.locate(item.name)
            self.content = ListedSamples(source.samples(item, report, on_fault, on_bytes))
            return
        self._shard = shard = OpenShard(source, item, on_bytes, small=small and not rules.tar.regroup)
        self.name = shard.name
        self.of_records, kind = True, shard.kind
        if rules.only_records or (kind and kind.traits.carries_examples):
            from tar2tf_cli.inputs.record_samples import RecordSamples  # only here, as most inputs are tars

            self.content = self.records = RecordSamples(
                shard,
                on_fault,
                may_be_empty=rules.only_records,
                described=rules.described.get(item.name, {}),
                forms=rules.forms,
                stem=self.stem,
                key_feature=rules.key_feature,
            )
        elif kind and kind.traits.holds == "record":
            from tar2tf_cli.inputs.unit_samples import UnitSamples  # only here, as few inputs are of other formats

            self.content = UnitSamples(shard, kind, rules.tar.key_split, on_fault)
        else:
            self.content = TarSamples(shard, rules.tar, on_fault)
            self.of_records = False

    @cached_property
    def stem(self) -> str:
        """The beginning of the keys of records without a key."""
        return self._stems.get(self._item.name) or self._item.stem

    def where(self) -> Location:
        """Return the location of the current sample for errors: shard and, in a tar or TFRecord, offset."""
        return {"shard": self.name, **self.content.where()}

    @overload
    def samples(self) -> Iterator[Sample]: ...

    @overload
    def samples(self, native: ModuleType | None) -> Iterator[Sample | Batch]: ...

    def samples(self, native: ModuleType | None = None) -> Iterator[object]:
        """Iterate over the samples; with the kernel, plain samples come in batches.

        If a repeated key ends the reading, `content.must_regroup` is true afterwards.
        """
        content = self.content
        self._rest = self.resuming(lambda: content.samples(native))
        return self._rest

    def resuming(self, read: Callable[[], Iterable[T]]) -> Iterator[T]:
        """Iterate over items of the content, after damage too if the rules allow it; then check its end."""
        items = iter_resuming(read, self._resume, lambda error, more: self._damaged(error))
        return chain(items, self._checked_end())

    def _checked_end(self) -> Iterator[T]:
        """Check the end of the content; yields nothing."""
        try:
            self.content.check_end()
        except DamagedShardError as error:
            self._damaged(error)
        yield from ()

    def _resume(self, error: DamagedShardError) -> bool:
        return self._resumes and self.content.resume(error)

    def _damaged(self, error: DamagedShardError) -> None:
        self._on_fault(error.at(**self.where()))

    def finds_key_again(self) -> bool:
        """Read ahead until a key appears again, at most 32 MiB of a tar that cannot be sought in.

        A sample that lacks an entry may be half of one whose members are not adjacent.
        """
        content = self.content
        if content.may_regroup and not self._resumes:
            end = None if content.seekable else content.offset + LOOK_AHEAD
            try:
                deque(self._until(end), maxlen=0)
            except Tar2tfError:
                return False
        return content.must_regroup

    def _until(self, end: int | None) -> Iterator[None]:
        for _ in self._rest:
            if end and self.content.offset > end:
                return
            yield

    def is_unusable(self) -> bool:
        """Whether an input, read to its end, must be discarded; its report then has only this error.

        Data from a compressed stream whose checksum is wrong may have been changed anywhere.
        """
        wrong = self._shard.content.wrong if self._shard else None
        if wrong is None or self._shard is None:
            return False
        wrong.message += "; any of its samples may be changed, so none is used"
        wrong.lost = Lost(0, None, self._shard.size)  # stored size, as the decompressed one depends on the reads
        self.report = InputReport()
        if self.records:
            self.records.forget()
        self.report.errors.append(fault_note(wrong.at(shard=self.name, offset=0)))
        return True

    def __enter__(self) -> InputReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the input, which completes the report."""
        self._rest = iter(())
        self.content.close()
        if self._shard:
            self._shard.close()
        self.content.describe(self.report)
        self.report.errors.sort(key=lambda error: error["offset"] or 0)  # threads report their errors later
