"""The one flow: `flow` applies steps to samples in one thread or several; `Reading` does that for one input.

A caller passes samples (or examples), the `Steps` to apply to each of them, and the policy for faulty ones:

| caller | samples | steps | results |
|---|---|---|---|
| `Reading`, for `convert` | of one input | ops, features, ops on examples | are encoded as records |
| `Dataset` in memory | of all shards | ops, then the selections or a function | become tensors |
| `Pipeline` | the output of a custom stage | those up to the next custom stage | go to that stage |
| `--dry-run` | the first one | one op at a time | are shown |
| `--labels auto` | of one input | ops, then the texts of features | are numbered |
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.op import Op, OpContext
from tar2tf_cli.api.source import OnBytes, OnFault, SampleFault, Source
from tar2tf_cli.api.values import KEY, Batch, Feature, Features, KeySplit, MessagePart, RecordBatch, Sample
from tar2tf_cli.errors import (
    DamagedShardError,
    LackingError,
    Lost,
    NotAdjacentError,
    SampleError,
    Tar2tfError,
    UsageError,
    count,
)
from tar2tf_cli.features.feature_map import FeatureMap, MissingFeatureError, no_such_feature
from tar2tf_cli.features.presets import find_preset, of_record_to_example
from tar2tf_cli.features.tf_example import TFExample, transform, unfit
from tar2tf_cli.flow.choosing import SampleFilter
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.files import IN_PLACE, whole_sample
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.samples.grouping import key_of
from tar2tf_cli.spec.conversion import Conversion

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tar2tf_cli.features.described import Described
    from tar2tf_cli.inputs.joined import Joined
    from tar2tf_cli.inputs.record_samples import RecordSamples


CHUNK: Final = 8  # items passed to a thread at once; passing one can cost more than processing it
_WEIGHT: Final = 1 << 16  # a chunk of this many bytes gets no further items; decoded, they may be ten times as large
_AHEAD: Final = 1  # chunks beyond one per thread

Located: TypeAlias = "tuple[Any, str, Mapping[str, Any]]"
"""An item, or one of its results or errors, with the item's key and location."""

Work: TypeAlias = Callable[[Any], Iterable[Any]]


def work_in_threads(items: Iterator[Located], steps: Work, threads: int, most: int = CHUNK) -> Iterator[Located]:
    """Results and errors of items, in order; a few chunks are in progress at any time."""
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[list[Any]]] = deque()
    with ThreadPoolExecutor(threads, "tar2tf-samples") as pool:
        try:
            for chunk in _chunks(items, most):
                waiting.append(pool.submit(_work_on, chunk, steps))
                if len(waiting) >= threads + _AHEAD:
                    yield from _raised(waiting.popleft().result())
            while waiting:
                yield from _raised(waiting.popleft().result())
        finally:
            for future in waiting:
                future.cancel()


def _chunks(items: Iterator[Located], most: int) -> Iterator[list[Any]]:
    """Lists of consecutive items; if reading raised, the exception comes last, so that the items before are kept."""
    chunk: list[Any] = []
    weight = 0
    try:
        for item in items:
            chunk.append(item)
            weight += sum(map(_bytes, item[0].values()))
            if len(chunk) == most or weight >= _WEIGHT:
                yield chunk
                chunk, weight = [], 0
    except Exception as error:
        chunk.append(error)
    if chunk:
        yield chunk


def _bytes(value: Any) -> int:
    """The approximate size in bytes of an entry or feature."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.message) if isinstance(value, Feature) else getattr(value, "nbytes", 0)


def _work_on(chunk: list[Any], steps: Work) -> list[Any]:
    """Results and errors in order; if the work stopped at another exception, that comes last."""
    results: list[Any] = []
    try:
        chunk.reverse()
        while chunk:
            located = chunk.pop()  # not kept until the end of the chunk, as its arrays are large
            if isinstance(located, Exception):
                raise located
            item, key, location = located
            try:
                for result in steps(item):
                    results.append((result, key, location))
            except SampleError as error:
                results.append((error, key, location))
    except Exception as error:
        results.append(error)
    return results


def _raised(results: list[Any]) -> Iterator[Located]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result


Where: TypeAlias = Callable[[], Mapping[str, Any]]
"""Returns where the last sample read came from: shard, member and offset, as far as they are known."""


@dataclass(slots=True, eq=False, repr=False)
class Steps:
    """What is done to each sample, independently of the others and of the thread.

    Attributes:
        context: what ops may depend on besides the sample.
        ops: applied to the sample first.
        features: turns the sample into its features, or into something else; None leaves it unchanged.
        example_ops: applied to the example last.
        skipped: called, in any thread, with each op that skips a sample.
    """

    context: OpContext
    ops: tuple[Op, ...] = ()
    features: Callable[[Sample], Any] | None = None
    example_ops: tuple[Op, ...] = ()
    skipped: Callable[[Op], None] | None = None

    def __call__(self, item: Any) -> Iterator[Any]:
        """Apply the steps to a sample or example; yields no result, one or several.

        Raises:
            SampleError: when one of the steps fails on it.
        """
        for sample in apply_ops(item, self.ops, self.context, skipped=self.skipped) if self.ops else (item,):
            made = self.features(sample) if self.features else sample
            if self.example_ops:
                example = made if type(made) is TFExample else TFExample(whole_sample(made))
                yield from transform(example, self.example_ops, self.context)
            else:
                yield made

    def each(self) -> Iterator[tuple[Op | None, Steps]]:
        """The same steps one at a time: each op by itself, then None with everything that follows the ops."""
        for op in self.ops:
            yield op, Steps(self.context, (op,))
        yield None, replace(self, ops=())


class Faults:
    """The policy for faulty samples: raise the first error, or skip samples until there are too many.

    Args:
        skip: whether faulty samples are recorded and skipped.
        most: how many may be skipped; None for no limit.
        noted: the shard, key, member, offset and message of each skipped sample are appended to this list, and `lost`
            where a part of the shard could not be read.
        option: how the caller's users ask for faulty samples to be skipped; None if they cannot.
    """

    def __init__(
        self,
        *,
        skip: bool = False,
        most: int | None = None,
        noted: list[dict[str, Any]] | None = None,
        option: str | None = None,
    ) -> None:
        self._hint = f"correct the sample, or skip such samples with {option}" if option else None
        self._skip = skip
        self._most = most
        self._noted = [] if noted is None else noted

    def __call__(self, error: Tar2tfError) -> None:
        """Skip a faulty sample or raise its error, depending on the policy.

        Raises:
            Tar2tfError: the error itself, or an error saying that there are too many.
        """
        if not self._skip:
            raise error.at(hint=self._hint)
        noted = {name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")}
        if isinstance(error, DamagedShardError) and error.lost:
            noted["lost"] = error.lost.to_json()
        self._noted.append(noted)
        if self._most is not None:
            check_most(len(self._noted), self._most, self._noted)


def check_most(failed: int, most: int, noted: Sequence[Mapping[str, Any]]) -> None:
    """Check that no more than `most` samples were skipped.

    Args:
        failed: how many were skipped.
        most: how many may be.
        noted: those of them that are new.

    Raises:
        Tar2tfError: when there are more than `most`.
    """
    if failed > most:
        hint = f"the first: {noted[0]['message']}" if noted else None
        raise Tar2tfError(f"{count(failed, 'sample')} failed, more than --max-errors {most} allows", hint=hint)


def flow(
    items: Iterable[Any],
    steps: Callable[[Any], Iterable[Any]],
    on_fault: OnFault,
    *,
    where: Where = dict,
    finish: Callable[[str, Any], Any] = lambda key, result: result,
    threads: int = 1,
    chunk: int = CHUNK,
) -> Iterator[Any]:
    """Apply steps to samples and yield the results in input order, whatever the number of threads.

    Args:
        items: samples or examples; with several threads, a few are read ahead. With one, also batches of records, which
            skip the steps.
        steps: called with each item, in any thread; returns its results. Usually `Steps`.
        on_fault: called in input order with the error of each faulty item, which names its key and location. If it
            returns, the item is skipped.
        where: returns where the last item read came from.
        finish: called in input order with the key of the item and each of its results; its return value is yielded.
            If it raises SampleError, only that result is skipped.
        threads: number of threads that run `steps`.
        chunk: most consecutive items passed to a thread at once.

    Raises:
        SampleError: raised by `on_fault`.
    """
    if threads > 1:
        located = ((item, key_of(item) or "", where()) for item in items)
        for result, key, location in work_in_threads(located, steps, threads, chunk):
            try:
                if isinstance(result, SampleError):
                    raise result
                yield finish(key, result)
            except SampleError as error:
                on_fault(_of_input(error, key, location))
        return
    for item in items:
        if type(item) is RecordBatch:
            yield finish("", item)
            continue
        key = item[KEY] if type(item) is dict else key_of(item) or ""
        results: Iterator[Any] | None = None
        left = True
        while left:  # an error in one result does not stop the others
            try:
                results = results or iter(steps(item))
                for result in results:
                    yield finish(key, result)
                left = False
            except SampleError as error:
                on_fault(_of_input(error, key, where()))
                left = results is not None


def _of_input(error: SampleError, key: str, location: Mapping[str, Any]) -> SampleError:
    """The error with the key that the sample has in the input, whatever ops made of it, and its location there."""
    if error.shard is None:  # or else it was held back, and is that of an earlier sample
        error.key = key or error.key
    return error.at(**location)


def context_of(conversion: Conversion) -> OpContext:
    """What the ops of a conversion may depend on."""
    return OpContext(conversion.seed, conversion.max_pixels, conversion.image_size)


def feature_map_of(conversion: Conversion) -> FeatureMap:
    """The feature map of a conversion: it turns samples into features."""
    preset = find_preset(conversion.preset).make if conversion.preset else None
    if conversion.record_to_example:
        preset = of_record_to_example(conversion.record_to_example)
    return FeatureMap(conversion.types, conversion.select, preset, context_of(conversion), conversion.labels)


class MissingFeatures:
    """Holds back samples without a typed feature until one of the input has it, or the input ends.

    Args:
        policy: called with the error of each faulty sample, in order, once it is known that the features exist.
        shard: the input, for the error.
        skip: whether the policy skips faulty samples; if not, the first error is enough.

    Attributes:
        held: the errors held back; empty once the features are known to exist.
    """

    def __init__(self, policy: OnFault, shard: str, *, skip: bool) -> None:
        self._policy = policy
        self._skip = skip
        self._shard = shard
        self._seen: set[str] = set()
        self._decided = False
        self.held: list[MissingFeatureError] = []

    def __call__(self, error: SampleFault) -> None:
        """Hold the error back if its feature may be missing from all samples, or pass it to the policy."""
        if self._decided or not isinstance(error, MissingFeatureError):
            self._policy(error)
            return
        self._seen.update(error.names)
        if self._skip or not self.held:
            error.__traceback__ = None  # it would keep the sample in memory
            self.held.append(error)
        if all(held.name in self._seen for held in self.held):
            self.release()

    def release(self) -> None:
        """Pass what was held back to the policy, as the features exist."""
        self._decided = True
        held, self.held = self.held, []
        for error in held:
            self._policy(error)

    def watched(self, results: Iterator[Any]) -> Iterator[Any]:
        """Yield the results of an input.

        Raises:
            UsageError: at its end, when none of its samples has a feature that has a type.
        """
        yield from results
        for error in self.held:
            if error.name not in self._seen:
                raise no_such_feature(error.name, self._seen, self._shard, error.option)
        self.release()


T = TypeVar("T")


_LOOK_AHEAD: Final = 32 << 20
"""How much of a compressed or remote tar is looked at, before its samples are used at once."""

Record: TypeAlias = tuple[str, Iterable[bytes], int]
"""A record and the key of its sample: the key, the bytes in parts, used before the next record, and their size."""


class Making:
    """How inputs are read, and samples become records: the same for all inputs of a conversion in one process.

    Args:
        conversion: the conversion.
        source: where the inputs are.
        joined: datasets whose entries are added to the samples.
        described: the features of TFRecords that a manifest describes, by the names of the inputs.

    Attributes:
        conversion: the same.
        source: the same.
        described: the same.
        rules: how tars are read.
        skips: whether faulty samples are skipped.
        of_records: whether all inputs are TFRecords, even empty ones.
        steps: what is done to each sample.
        make: the same, or what remains of it: a source may give examples already, and there may be no ops.
        plain: whether the features are the entries, byte for byte.
        make_of_examples: the same for samples of TFRecords, whose entries are not all bytes; None for `make`.
        of_samples: whether shards hold samples under a key, such as tars.
        passes: whether the records of a TFRecord are written as they are.
        encoder: encodes examples, or the members of samples.
        native: the kernel, if it makes records of many plain samples at once, as features are their entries.
        choosing: decides before any op which samples are converted, and what is added to them.
    """

    def __init__(
        self,
        conversion: Conversion,
        source: Source,
        joined: Sequence[Joined] = (),
        described: Mapping[str, Described] = MappingProxyType({}),
    ) -> None:
        self.conversion, self.source, spec = conversion, source, conversion.input
        self.described = described
        self.skips = conversion.on_error == "skip"
        self.of_records = spec.kind == "tfrecord"
        missing_end, most = spec.ignore_missing_end, conversion.max_entry_size
        self.rules = TarRules(spec.key_split, spec.regroup, missing_end, most=most, least=IN_PLACE)
        features = feature_map_of(conversion).features
        gives = source.capabilities().gives
        self.plain = gives == "bytes" and conversion.keeps_entries
        traits = conversion.output.traits
        self.of_samples = traits.holds == "sample"
        self.passes = self.plain and traits.carries_examples
        self.make_of_examples: Callable[[Any], Iterable[Any]] | None = None
        self.encoder = conversion.output.format.encoder()
        check: Callable[[str, str], None] | None = None
        if self.of_samples:
            from tar2tf_cli.features.entries import check_name

            check = partial(check_name, rule=spec.key_split)
            entries = partial(_entries, features, spec.key_split)
            if self.plain:
                self.make_of_examples = lambda sample: (entries(sample),)
            else:
                features = entries
        self.steps = Steps(context_of(conversion), conversion.ops, features, conversion.example_ops)
        self.make: Callable[[Any], Iterable[Any]] = self.steps
        if gives == "examples":
            self.make = lambda example: (example,)
        elif not (conversion.ops or conversion.example_ops):
            self.make = lambda sample: (features(sample),)
        batches = gives == "bytes" and conversion.only_chooses and self.encoder.kernel_form
        self.native = native = kernel.native() if batches else None
        self.choosing = SampleFilter(conversion, joined, native, self.steps.context, check)


def _entries(features: Callable[[Sample], Features], rule: KeySplit, sample: Sample) -> Features:
    """What the members of a sample's features hold, under the key that ops left it."""
    from tar2tf_cli.features.entries import as_entries

    key = sample[KEY]
    return as_entries(features(sample), key, rule)


def _counting(asked: Counter[str]) -> Callable[[Op], None]:
    """Counts the samples that each op skips, in any thread."""
    lock = threading.Lock()

    def skipped(op: Op) -> None:
        with lock:
            asked[op.as_flag] += 1

    return skipped


class Reading:
    """Reads all or part of one input of a conversion, from front to back: a tar or a TFRecord, by its content.

    Args:
        making: how inputs are read, and what becomes of the samples.
        item: the input.
        on_bytes: called with the number of stored bytes after each read.
        sizes_only: the value of each entry is its size in bytes; the data is skipped if the stream is seekable.
        trusted: the input was read before, so keys of neighbouring samples are not checked again.
        ahead: samples are used at once, and reading cannot begin again: decide before the first one about `regroup`.
        regroup: put together samples whose members are not adjacent, whatever the conversion says.
        threads: how many threads turn samples into examples; the results do not depend on it.
        first: whether it is the conversion's first input: a typed feature that none of its samples has is wrong usage.
        small: the input is read at once, so that samples cannot be read by their offset.
        on_fault: called with the error of each faulty sample; by default the error is raised or added to the report,
            depending on the conversion's policy.

    Attributes:
        name: the input's path or URL.
        steps: what is done to each sample.
        key: that of the last sample that became members of a tar or was measured; None for a record.
        report: filled in as the input is read; complete once the reading is closed.
        seekable: whether samples can be read by their offset.
        passes: whether records are written as they are, as those of a TFRecord without ops and selections.
        regroups: whether samples are put together whose members are not adjacent.

    Raises:
        SourceError: when the input cannot be opened or read, or is damaged.
        NotAdjacentError: at a key that appears again; begin again with `regroup`.
    """

    def __init__(
        self,
        making: Making,
        item: ObjectInfo,
        *,
        on_bytes: OnBytes = None,
        sizes_only: bool = False,
        trusted: bool = False,
        ahead: bool = False,
        regroup: bool = False,
        threads: int = 1,
        first: bool = False,
        small: bool = False,
        on_fault: OnFault | None = None,
    ) -> None:
        self._making, source = making, making.source
        self.name = source.locate(item.name)
        self.report = InputReport()
        self._on_fault = on_fault or Faults(skip=making.skips, noted=self.report.errors, option="--on-error skip")
        self._sizes_only = sizes_only
        self._threads = threads
        self._missing = MissingFeatures(self._judge, self.name, skip=making.skips) if first else None
        self._halves = False  # whether a sample that lacks something may be half of one
        self._left: Iterator[Any] = iter(())  # the samples that are not used yet
        self._palettes: set[str] = set()
        self.steps, self._make = making.steps, making.make
        if making.make is making.steps:
            context = making.steps.context._replace(palettes=self._palettes)
            self.steps = self._make = replace(making.steps, context=context, skipped=_counting(self.report.asked))
        self._native = making.native if threads == 1 else None
        self._encoder = making.encoder
        self._note = self.report.schema.add_plain if making.plain else self.report.schema.add
        self.key: bytes | None = None
        self._location: Mapping[str, Any] = {}  # where the current sample of a list came from
        self._shard: TarSamples | RecordSamples | None = None
        self._records: RecordSamples | None = None  # those that pass as they are
        self._listed = source.samples(item, self.report, self._fault, on_bytes)
        if self._listed is None:
            rules = making.rules._replace(
                regroup=regroup or making.rules.regroup,
                sizes_only=sizes_only,
                trusted=trusted,
                ahead=_LOOK_AHEAD if ahead else 0,
            )
            self._open = OpenShard(source, item, on_bytes, small=small and not rules.regroup)
            if making.of_records or self._open.format == "tfrecord":
                self._begin_records(self._open)
            else:
                self._halves = not (ahead or making.skips) and rules.regroup is None
                self._shard = TarSamples(self._open, rules, self._fault)
        self.seekable = bool(self._shard and self._shard.seekable)
        self.regroups = bool(self._shard and self._shard.regroups)
        self.passes = self._records is not None

    def _begin_records(self, shard: OpenShard) -> None:
        from tar2tf_cli.inputs.record_samples import RecordSamples  # only here, as most inputs are tars

        making = self._making
        described = making.described.get(shard.item.name, {})
        self._shard = records = RecordSamples(shard, self._fault, may_be_empty=making.of_records, described=described)
        records.seekable = records.seekable and not making.conversion.chooses
        self._records = records if making.passes else None
        self._note = self.report.schema.add
        self._sizes_only = False  # the headers of a tar's members give them, but not those of records
        self._make = making.make_of_examples or self._make

    @property
    def count(self) -> int | None:
        """The number of samples, if they are put together; known once the first one is read."""
        return self._shard.count if self._shard else None

    @property
    def offset(self) -> int:
        """The offset in the shard at which the current sample begins."""
        return self._shard.offset if self._shard else 0

    def where(self) -> dict[str, Any]:
        """Where the last sample read came from: its shard and, in a tar or TFRecord, its offset."""
        return {"shard": self.name, **(self._shard.where() if self._shard else self._location)}

    def seek(self, offset: int) -> None:
        """Start at a sample's offset instead of the beginning; only if `seekable`."""
        assert self._shard
        self._shard.seek(offset)

    def samples(self, *, batches: bool = False) -> Iterator[Any]:
        """The samples to convert; if faults are skipped, also those that follow damage to the shard itself.

        Args:
            batches: give batches of records instead of plain samples, as far as the kernel makes them.
        """
        read = partial(self._shard.samples, self._native if batches else None) if self._shard else self._of_list
        samples = self._read(read)
        return self._chosen(samples) if batches or not self._making.choosing.is_idle else samples

    def _read(self, read: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What is read of the input, also behind damage if faults are skipped."""
        yield from iter_resuming(read, self._resume, lambda error, more: self._fault(error))
        try:
            if self._shard:
                self._shard.check_end()
        except DamagedShardError as error:
            self._fault(error)

    def _chosen(self, samples: Iterable[Any]) -> Iterator[Any]:
        """The samples that are not skipped by their keys, joined, and with digests if duplicates are skipped later."""
        takes, report = self._making.choosing.takes, self.report
        for sample in samples:
            if type(sample) is Batch:
                yield from self._records_of(sample)
                continue
            try:
                taken = takes(sample, report)
            except SampleError as error:
                self._fault(error.at(key=sample[KEY]))
            except UsageError as error:
                raise error.at(shard=self.name, key=sample[KEY]) from None
            else:
                if taken:
                    yield sample

    def _records_of(self, batch: Batch) -> Iterator[Any]:
        """The records of a batch, or its samples one by one if Python has to look at them."""
        made = self._making.choosing.records(batch, self.report)
        if made is None:
            assert isinstance(self._shard, TarSamples)
            yield from self._chosen(self._shard.grouper.one_by_one(batch))
        elif len(made):
            yield made

    def _resume(self, error: DamagedShardError) -> bool:
        return self._making.skips and self._shard is not None and self._shard.resume(error)

    def is_unusable(self) -> bool:
        """Whether nothing of an input that was read to its end may be used; the report then says so, and nothing else.

        What comes from a compressed stream whose checksum is wrong may have been changed anywhere.
        """
        wrong = self._open.content.wrong if self._shard else None
        if wrong is None:
            return False
        wrong.message += "; any of its samples may be changed, so none is used"
        wrong.lost = Lost(0, None, self._open.size)  # decompressed, it depends on the pieces read
        self.report = InputReport()
        if self._records:
            self._records.forget()
        Faults(skip=True, noted=self.report.errors)(wrong.at(shard=self.name, offset=0))
        return True

    def _of_list(self) -> Iterator[Sample]:
        for location, sample in self._listed or ():
            self._location = location
            yield sample

    def whole_samples(self) -> Iterator[Sample]:
        """The same samples with all entries in memory; one with an entry that is too large for that is faulty."""
        for sample in self.samples():
            try:
                whole_sample(sample)
            except SampleError as error:
                self._fault(error.at(key=sample[KEY]))
                continue
            yield sample

    def records(self) -> Iterator[Record]:
        """The record of each example: framed, or the members of a tar."""
        if self._records:
            return self._passing(self._records)
        return self._flow(self._framed)

    def records_and_batches(self) -> Iterator[Record | RecordBatch]:
        """The same, but many at a time where they pass as they are, or where the kernel finds samples plain."""
        making = self._making
        if self._records and making.choosing.is_idle and not making.conversion.split:
            return self.batches()
        return self.records() if self._records else self._flow(self._framed, batches=self._native is not None)

    def _framed(self, key: str, parts: list[MessagePart], size: int) -> Record:
        encoder = self._encoder
        return key, encoder.frame(parts, size), size + encoder.framing

    def sizes(self) -> Iterator[int]:
        """The size of each record in bytes, if they do not pass; with `sizes_only`, computed from the tar's headers."""
        framing = self._encoder.framing
        return self._sizes() if self._sizes_only else self._flow(lambda key, parts, size: size + framing)

    def stored(self, size: int) -> Iterator[tuple[list[bytes], int]]:
        """So many bytes of records that pass as they are, from the place that was sought, with the size of each part.

        They were checked before, and are not again.
        """
        assert self._records
        for data in self._records.stored(size):
            yield [data], len(data)

    def batches(self) -> Iterator[RecordBatch]:
        """Many records at a time, where they pass as they are."""
        assert self._records
        for batch in self._read(self._records.batches):
            self.report.samples += len(batch)
            yield batch

    def _passing(self, records: RecordSamples) -> Iterator[Record]:
        for key, parts, size in self._read(records.framed):
            if not self._making.choosing.is_idle:
                chosen = next(self._chosen([records.sample(key)]), None)
                if chosen is None:
                    continue
                key = chosen[KEY]
            records.note()
            self.report.samples += 1
            yield key, parts, size

    def _sizes(self) -> Iterator[int]:
        measure, keyed = self._encoder.measure, self._making.of_samples
        signatures, report = self.report.schema.signatures, self.report
        for sample in self.samples():
            key = sample[KEY].encode("utf-8", "surrogateescape")
            if keyed:
                self.key = key
            try:
                size = measure(sample, key)
            except SampleError as error:
                name = key.decode("utf-8", "surrogateescape")
                raise error.at(shard=self.name, key=name, offset=self.offset) from None
            signatures[tuple(sample)] += 1
            report.samples += 1
            yield size

    def _flow(self, give: Callable[[str, list[MessagePart], int], T], *, batches: bool = False) -> Iterator[Any]:
        """The result of `give` for each example; it is called with the key, the encoded parts and their total size."""
        encode, note, report = self._encoder.encode, self._note, self.report
        missing, keyed = self._missing, self._making.of_samples

        def encoded(key: str, features: Features | RecordBatch) -> T | RecordBatch:
            if isinstance(features, RecordBatch):
                return features
            if type(features) is TFExample and (what := unfit(features)):
                raise SampleError(f"the example has {what}")
            if missing and missing.held:
                missing.release()
            parts, size = encode(features)
            if keyed:
                self.key = features[KEY]  # type: ignore[assignment]  # it is bytes
            note(features)
            report.samples += 1
            return give(key, parts, size)

        return self._judged(self._make, encoded, batches=batches)

    def results(self, steps: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
        """What other steps make of each sample, in place of its example."""
        missing = self._missing

        def made(key: str, result: Any) -> Any:
            if missing and missing.held:
                missing.release()
            return result

        return self._judged(steps, made)

    def _judged(
        self, steps: Callable[[Any], Iterable[Any]], finish: Callable[[str, Any], Any], *, batches: bool = False
    ) -> Iterator[Any]:
        """What steps make of the samples that are not faulty."""
        missing, self._left = self._missing, self.samples(batches=batches)
        on_fault = missing or self._judge
        made = flow(self._left, steps, on_fault, where=self.where, finish=finish, threads=self._threads)
        return missing.watched(made) if missing else made

    def _judge(self, error: SampleFault) -> None:
        """Apply the policy to a faulty sample, unless it is half of one whose members are not adjacent.

        Raises:
            NotAdjacentError: when a key that was there appears again, so that samples are to be put together first.
        """
        if isinstance(error, LackingError) and self._halves:
            self._read_on()
        self._on_fault(error)

    def _read_on(self) -> None:
        """Read the samples that are left, or as many as can be looked at; a key may appear again among them."""
        end = None if self.seekable else self.offset + _LOOK_AHEAD
        try:
            for _ in self._left:
                if end and self.offset > end:
                    return
        except NotAdjacentError:
            raise
        except Tar2tfError:
            return

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the input; the report is now complete."""
        self.report.palettes = sorted(self._palettes)
        if self._listed:
            self._listed.close()
        elif shard := self._shard:
            shard.close()
            self._open.close()
            shard.describe(self.report)
            self.report.errors.sort(key=lambda error: error["offset"] or 0)  # threads report their errors later
            self._shard = self._records = None  # breaks a reference cycle that would keep the buffers

    def _fault(self, error: SampleFault) -> None:
        self._on_fault(error.at(**self.where()))
