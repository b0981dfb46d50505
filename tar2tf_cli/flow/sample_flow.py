"""The stages of a sample in a conversion: read, select, transform, encode; the results are records.

`InputFlow` runs these stages for one input. `flow` is its inner loop, which other callers use, too:

| caller | samples | transform | results |
|---|---|---|---|
| `InputFlow`, for `convert` | of one input | ops, features, ops on examples | are encoded as records |
| `Dataset` in memory | of all shards | ops, then the selections or a function | become tensors |
| `Pipeline` | the output of a custom stage | those up to the next custom stage | go to that stage |
| `--dry-run` | the first one | one op at a time | are shown |
| `--labels auto` | of one input | ops, then the texts of features | are numbered |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.op import BoxCounts, Op, OpContext
from tar2tf_cli.api.shard_format import ShardEncoder
from tar2tf_cli.api.source import OnBytes, OnFault, SampleFault, Source
from tar2tf_cli.api.values import KEY, Batch, Features, KeySplit, MessagePart, Record, RecordBatch, Sample
from tar2tf_cli.errors import Location, SampleError
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.flow.faults import FaultPolicy
from tar2tf_cli.flow.select import SampleFilter
from tar2tf_cli.flow.transform import CHUNK, Transform, work_in_threads
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import values_of
from tar2tf_cli.formats.files import IN_PLACE
from tar2tf_cli.inputs.reader import LOOK_AHEAD, InputReader, ReadRules
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import NamedTuple, dataclass, replace

if TYPE_CHECKING:
    from tar2tf_cli.features.described import Described
    from tar2tf_cli.flow.group import Neighbours
    from tar2tf_cli.inputs.joined import Joined
    from tar2tf_cli.inputs.record_samples import Forms, RecordSamples

T = TypeVar("T")


def flow(
    items: Iterable[Any],
    transform: Callable[[Any], Iterable[Any]],
    on_fault: OnFault,
    *,
    where: Callable[[], Location] = Location,
    finish: Callable[[str, Any], Any] = lambda key, result: result,
    encode_batch: Callable[[Batch | RecordBatch], RecordBatch] | None = None,
    threads: int = 1,
    chunk: int = CHUNK,
) -> Iterator[Any]:
    """Transform samples, and iterate over the finished results in input order, whatever the number of threads.

    Args:
        items: samples or examples; with several threads, a few are read ahead. With `encode_batch`, also batches.
        transform: called with each item, in any thread; returns its results. It is usually a `Transform`.
        on_fault: called in input order with the error of each faulty item, which names its key and location. If it
            returns, the item is skipped.
        where: returns the location of the last item read.
        finish: called in input order with the key of the item and each of its results; its return value is yielded.
            If it raises SampleError, only that result is skipped.
        encode_batch: called with each batch; its return value is yielded. For one thread only.
        threads: number of threads that run `transform`.
        chunk: maximum number of consecutive items passed to a thread at once.

    Raises:
        SampleError: raised by `on_fault`.
    """
    if threads > 1:
        located = ((item, key_of(item) or "", where()) for item in items)
        for result, key, location in work_in_threads(located, transform, threads, chunk):
            try:
                if isinstance(result, SampleError):
                    raise result
                yield finish(key, result)
            except SampleError as error:
                on_fault(_of_input(error, key, location))
        return
    for item in items:
        if type(item) is dict:
            key = item[KEY]
        elif encode_batch and isinstance(item, (Batch, RecordBatch)):
            yield encode_batch(item)
            continue
        else:
            key = key_of(item) or ""
        results: Iterator[Any] | None = None
        more = True
        while more:  # an error in one result does not stop the others
            try:
                results = results or iter(transform(item))
                for result in results:
                    yield finish(key, result)
                more = False
            except SampleError as error:
                on_fault(_of_input(error, key, where()))
                more = results is not None


def _of_input(error: SampleError, key: str, location: Location) -> SampleError:
    """Return the error with the location of its sample and the key in the input, which ops may have changed."""
    if error.shard is None:  # otherwise the error was held, and belongs to an earlier sample
        error.key = key or error.key
    return error.at(**location)


def context_of(conversion: Conversion) -> OpContext:
    """Return the context for the ops of a conversion."""
    geometry = conversion.geometry
    boxes = BoxCounts() if geometry and geometry.boxes else None
    settings = conversion.seed, conversion.max_pixels, conversion.image_size, conversion.invalid_boxes
    return OpContext(*settings, boxes=boxes)


def feature_map_of(conversion: Conversion, context: OpContext | None = None) -> FeatureMap:
    """Return the feature map of a conversion, which turns samples into features."""
    preset = None
    if conversion.record_to_example or conversion.preset:
        from tar2tf_cli.features.presets import find_preset, of_record_to_example

        make = conversion.record_to_example
        preset = of_record_to_example(make) if make else find_preset(conversion.preset or "").make
    return FeatureMap(conversion.types, conversion.select, preset, context or context_of(conversion), conversion.labels)


@dataclass(frozen=True, eq=False, repr=False)
class ReadPlan:
    """The stages shared by all inputs of a conversion in one process, by which samples become records.

    Attributes:
        conversion: the conversion.
        source: lists and opens the inputs.
        rules: how inputs are read.
        select: selects samples by their keys, and joins entries to them.
        transform: makes features from the samples of tars and lists.
        transform_records: makes features from the samples of TFRecords.
        encoder: encodes features as units of a shard.
        native: the kernel, if it encodes plain samples in batches, because their entries are the features.
    """

    conversion: Conversion
    source: Source
    rules: ReadRules
    select: SampleFilter
    transform: Transform
    transform_records: Transform
    encoder: ShardEncoder
    native: ModuleType | None

    @classmethod
    def of(
        cls,
        conversion: Conversion,
        source: Source,
        joined: Sequence[Joined] = (),
        described: Mapping[str, Described] = MappingProxyType({}),
        stems: Mapping[str, str] = MappingProxyType({}),
        forms: Forms | None = None,
    ) -> ReadPlan:
        """Make the read plan of a conversion.

        Args:
            conversion: the conversion.
            source: lists and opens the inputs.
            joined: datasets whose entries are added to the samples.
            described: the features of TFRecords that a manifest describes, by the names of the inputs.
            stems: prefix of the keys given to records without a key, by the names of inputs; by default, the stem of
                the input's name.
            forms: the forms of features of TFRecords that no manifest describes; by default, each input decides.
        """
        spec, gives, context = conversion.input, source.capabilities.gives, context_of(conversion)
        tar = TarRules(
            spec.key_split, spec.regroup, spec.ignore_missing_end, most=conversion.max_entry_size, least=IN_PLACE
        )
        rules = ReadRules(
            tar,
            resumes=conversion.on_error == "skip",
            only_records=spec.kind == "tfrecord",
            described=described,
            stems=stems,
            key_feature=spec.key_feature,
            forms=forms,
        )
        encoder = conversion.output.format.encoder()
        batches = gives == "bytes" and encoder.kernel_form and _is_simple(conversion)
        native = kernel.native() if batches else None
        features: Callable[[Sample], Features] = feature_map_of(conversion, context).features
        entries = features
        check: Callable[[str, str], None] | None = None
        if conversion.output.traits.holds == "sample":
            from tar2tf_cli.features.entries import check_name

            check = partial(check_name, rule=spec.key_split)
            entries = partial(_entries, features, spec.key_split)
        if gives == "examples":
            transform = transform_records = Transform(context)
        else:
            transform_records = Transform(context, conversion.sample_ops, entries, conversion.example_ops)
            are_members = gives == "bytes" and conversion.keeps_entries  # also for a tar, whose entries are bytes
            transform = Transform(context, (), features) if are_members else transform_records
        select = SampleFilter(conversion, joined, native, context, check)
        return cls(conversion, source, rules, select, transform, transform_records, encoder, native)

    @cached_property
    def plain(self) -> bool:
        """Whether the features are the entries, unchanged byte for byte."""
        return self.source.capabilities.gives == "bytes" and self.conversion.keeps_entries

    @cached_property
    def keyed(self) -> bool:
        """Whether shards hold samples under keys that must be unique within a shard."""
        return self.conversion.output.traits.holds == "sample"

    @cached_property
    def copies_records(self) -> bool:
        """Whether the records of a TFRecord are copied unchanged."""
        return self.plain and self.conversion.output.traits.carries_examples


def _is_simple(conversion: Conversion) -> bool:
    """Whether the kernel can make the features of plain samples."""
    if conversion.group_by or conversion.only_filters_or_joins:
        return not conversion.group_by
    from tar2tf_cli.flow.columns import can_express

    return can_express(conversion)


def written_key(features: Features) -> bytes | None:
    """Return the key of an example, one text or whole number; None if it has none."""
    if KEY not in features:
        return None
    kind, values = values_of(features[KEY])  # type: ignore[arg-type]  # a key is never a large value
    if len(values) != 1 or kind == "float":
        return None
    (key,) = values
    return key if isinstance(key, bytes) else b"%d" % key


def _check_example(features: Features) -> None:
    """Raise an error for an example of a user's function with values that are no features."""
    from tar2tf_cli.features.tf_example import TFExample, invalid_value

    if type(features) is TFExample and (what := invalid_value(features)):
        raise SampleError(f"the example has {what}")


def _entries(features: Callable[[Sample], Features], rule: KeySplit, sample: Sample) -> Features:
    """Return the features of a sample as entries of a tar, under the sample's final key."""
    from tar2tf_cli.features.entries import as_entries, selected_key

    key = sample[KEY]
    made = features(sample)
    return as_entries(made, selected_key(made, key) or key, rule)


class ReadOptions(NamedTuple):
    """Options for reading one input.

    Attributes:
        sizes_only: whether the value of each entry is its size in bytes; the data is skipped if the stream is seekable.
        trusted: whether the input was read before, so that keys of neighbouring samples are not checked again.
        ahead: whether samples are used at once, so that reading cannot restart and `regroup` must be decided before the
            first sample.
        regroup: whether to regroup samples whose members are not adjacent, regardless of the conversion's setting.
        threads: number of threads that transform samples; results do not depend on it.
        first: whether the input is the conversion's first: a typed feature that none of its samples has is a usage
            error.
        small: whether the input is read in one piece, so that samples cannot be read by their offset.
        divided: whether records include their written key, which decides their split.
        neighbours: the neighbouring inputs, if a group of samples may continue in the next input.
    """

    sizes_only: bool = False
    trusted: bool = False
    ahead: bool = False
    regroup: bool = False
    threads: int = 1
    first: bool = False
    small: bool = False
    divided: bool = False
    neighbours: Neighbours | None = None

    def rules(self, rules: ReadRules) -> ReadRules:
        """Return the rules for reading the input, derived from those of the conversion."""
        if self.regroup or self.sizes_only or self.trusted or self.ahead:
            tar = rules.tar._replace(
                regroup=self.regroup or rules.tar.regroup,
                sizes_only=self.sizes_only,
                trusted=self.trusted,
                ahead=LOOK_AHEAD if self.ahead else 0,
            )
            rules = rules._replace(tar=tar)
        return rules


_DEFAULT = ReadOptions()


class InputFlow:
    """Runs the stages of a conversion on the samples of one input, from front to back.

    Args:
        plan: the stages of the conversion.
        item: the input.
        options: the options for reading the input.
        on_bytes: called with the number of stored bytes after each read.

    Attributes:
        plan: the plan.
        reader: reads the input.
        faults: decides about every fault of the input and of each stage.
        transform: makes features from samples.

    Raises:
        SourceError: when the input cannot be opened or read, or is damaged.
    """

    def __init__(
        self, plan: ReadPlan, item: ObjectInfo, options: ReadOptions = _DEFAULT, *, on_bytes: OnBytes = None
    ) -> None:
        self.plan = plan
        self._options = options
        report, rules = InputReport(), options.rules(plan.rules)
        self.faults = FaultPolicy(
            skip=rules.resumes,
            noted=report.errors,
            option="--on-error skip",
            shard=plan.source.locate(item.name),
            first=options.first,
        )
        self.reader = reader = InputReader(plan.source, item, rules, report, self.faults, on_bytes, small=options.small)
        transform = plan.transform_records if reader.of_records else plan.transform
        self._palettes: set[str] = set()
        self.transform = transform.for_input(self._palettes, report.filtered)

    # --- The input ---

    @property
    def name(self) -> str:
        """The input's path or URL."""
        return self.reader.name

    @property
    def report(self) -> InputReport:
        """The report on the input; complete once the flow is closed."""
        return self.reader.report

    @property
    def must_regroup(self) -> bool:
        """Whether the samples ended at a key that appeared again, so that the input must be read again."""
        return self.reader.content.must_regroup

    @property
    def offset(self) -> int:
        """The offset in the shard at which the current sample begins."""
        return self.reader.content.offset

    @property
    def seekable(self) -> bool:
        """Whether records can be made from a sample's offset on, without reading earlier samples."""
        return self.reader.content.seekable and not (self.reader.records and self.plan.conversion.filters_by_key)

    @property
    def regroups(self) -> bool:
        """Whether the flow regroups samples whose members are not adjacent."""
        return self.reader.content.regroups

    @property
    def copies(self) -> bool:
        """Whether records are copied unchanged, as from a TFRecord without ops and selections."""
        return self._copied_records is not None

    @property
    def _copied_records(self) -> RecordSamples | None:
        return self.reader.records if self.plan.copies_records else None

    def seek(self, offset: int) -> None:
        """Start reading at a sample's offset; only if `seekable`."""
        self.reader.content.seek(offset)

    def is_unusable(self) -> bool:
        """Whether an input that was read to its end must be discarded; the report then says so."""
        return self.reader.is_unusable()

    # --- The samples, and the results made from them ---

    def samples(self) -> Iterator[Any]:
        """Iterate over the selected samples, including those after damage if faults are skipped."""
        return self.plan.select.apply(self.reader.samples(), self.reader, self.faults)

    def records(self) -> Iterator[Record]:
        """Iterate over the record of each example."""
        if records := self._copied_records:
            return self._copied(records)
        return self._results(self.samples(), self.transform, self._encoder(self._framed))

    def records_and_batches(self) -> Iterator[Record | RecordBatch]:
        """Iterate over the records, in batches if they are copied or their samples are plain."""
        if self.copies:
            as_they_are = self.plan.select.is_idle and not self.plan.conversion.split
            return self.batches() if as_they_are else self.records()
        native = self.plan.native if self._options.threads == 1 else None
        samples = self.plan.select.apply(self.reader.samples(native), self.reader, self.faults)
        return self._results(samples, self.transform, self._encoder(self._framed), self._encode_batch)

    def sizes(self) -> Iterator[tuple[int, bytes | str]]:
        """Iterate over size in bytes and key of each record that is not copied; for a tar, the written key.

        With `sizes_only`, sizes are computed from the headers of the tar.
        """
        if self._options.sizes_only and not self.reader.of_records:  # a list has no headers
            return self._measured()
        framing = self.plan.encoder.framing
        encoder = self._encoder(lambda key, parts, size, written: (size + framing, key if written is None else written))
        return self._results(self.samples(), self.transform, encoder)

    def keys(self, transform: Transform) -> Iterator[str]:
        """Iterate over the keys of the samples for which another transform gives results."""
        return self._results(self.samples(), transform, lambda key, result: key)

    def results(self, transform: Transform) -> Iterator[Any]:
        """Iterate over the results of another transform instead of records."""
        faults = self.faults

        def made(key: str, result: T) -> T:
            if faults.undecided:
                faults.release()
            return result

        return self._results(self.samples(), transform, made)

    def batches(self) -> Iterator[RecordBatch]:
        """Iterate over batches of copied records."""
        assert self.reader.records
        for batch in self.reader.resuming(self.reader.records.batches):
            self.report.samples += len(batch)
            yield batch

    def _results(
        self,
        samples: Iterable[Any],
        transform: Transform,
        finish: Callable[[str, Any], T],
        encode_batch: Callable[[Batch | RecordBatch], RecordBatch] | None = None,
    ) -> Iterator[Any]:
        """Iterate over the finished results of all samples that are not faulty."""
        if self.plan.conversion.group_by:
            samples, transform = self.grouped(samples, transform), replace(transform, ops=())
        results = flow(
            samples,
            transform.function(),
            self._fault,
            where=self.reader.where,
            finish=finish,
            encode_batch=encode_batch,
            threads=self._options.threads,
        )
        return chain(results, self._end())

    def grouped(self, samples: Iterable[object], transform: Transform) -> Iterator[Sample]:
        """Apply the ops of a transform, and iterate over the samples merged by `--group-by`."""
        from tar2tf_cli.flow.group import SampleGroups  # imported here, as few conversions group samples

        spec, neighbours = self.plan.conversion, self._options.neighbours
        groups = SampleGroups(spec.group_by or "", spec.group_once, spec.max_entry_size)
        following = self._following(neighbours.following, transform.ops) if neighbours else ()
        inputs = chain([self._after_ops(samples, transform)], following)
        continues = neighbours is not None and not neighbours.is_first
        return groups.apply(inputs, self.report, self._fault_here, continues=continues)

    def _after_ops(self, samples: Iterable[object], transform: Transform) -> Iterator[Sample]:
        ops = Transform(transform.context, transform.ops, skipped=transform.skipped).function()
        return flow(samples, ops, self._fault, where=self.reader.where, threads=self._options.threads)

    def _following(self, items: Iterable[ObjectInfo], ops: tuple[Op, ...]) -> Iterator[Iterator[Sample]]:
        """Iterate over the following inputs' samples after the ops; their faults are handled by their own flows.

        Raises:
            SampleError: when members are not adjacent, so that more members of a sample may follow.
        """
        options = self._options._replace(ahead=True, regroup=False, first=False, neighbours=None)
        for item in items:
            if self.must_regroup:
                return
            self._count_boxes()
            with InputFlow(self.plan, item, options) as reading:
                yield reading._after_ops(reading.samples(), replace(reading.transform, ops=ops))
                if reading.must_regroup:
                    what = "--group-by: a group continues in this input, in which members are not adjacent"
                    raise SampleError(what, shard=reading.name, hint="add --regroup")

    def _fault_here(self, error: SampleError) -> None:
        self._fault(error.at(**self.reader.where()))

    def _end(self) -> Iterator[object]:
        """Decide about the faults still held at the end of the input; yields nothing."""
        if not self.must_regroup:
            self.faults.finish()
        yield from ()

    def _fault(self, error: SampleFault) -> None:
        """Pass a fault to the policy, which ignores it if its sample must be regrouped."""
        if not self.must_regroup:
            self.faults(error, self.reader.finds_key_again)

    def _encoder(self, give: Callable[[str, list[MessagePart], int, bytes | None], T]) -> Callable[[str, Features], T]:
        """Return a function that encodes and counts the features of a sample.

        Args:
            give: called with the key of the sample in the input, the encoded parts and their size in bytes, and the
                written key, if any.
        """
        report, faults, plan = self.report, self.faults, self.plan
        encode, keyed, divided = plan.encoder.encode, plan.keyed, self._options.divided or bool(plan.conversion.split)
        note = report.schema.add_plain if plan.plain and not self.reader.of_records else report.schema.add

        def encoded(key: str, features: Features) -> T:
            if type(features) is not dict:
                _check_example(features)
            if faults.undecided:
                faults.release()
            parts, size = encode(features)
            note(features)
            report.samples += 1
            if keyed:
                return give(key, parts, size, features[KEY])  # type: ignore[arg-type]  # it is bytes
            return give(key, parts, size, written_key(features) if divided else None)

        return encoded

    def _framed(self, key: str, parts: list[MessagePart], size: int, written: bytes | None) -> Record:
        encoder = self.plan.encoder
        return key, encoder.frame(parts, size), size + encoder.framing, written

    def _encode_batch(self, batch: Batch | RecordBatch) -> RecordBatch:
        """Encode and count the samples of a batch, unless the selection has done so already."""
        if self.faults.undecided:
            self.faults.release()
        if isinstance(batch, RecordBatch):
            return batch
        form = self.plan.encoder.kernel_form
        assert self.plan.native
        assert form
        report = self.report
        report.samples += len(batch)
        report.schema.add_batch(batch)
        return batch.records(self.plan.native, form)

    def _copied(self, records: RecordSamples) -> Iterator[Record]:
        select = self.plan.select
        for key, parts, size in self.reader.resuming(records.framed):
            if not select.is_idle:
                sample = records.sample(key)
                if not (selected := select.results(sample, self.reader, self.faults)):
                    continue
                key = selected[0][KEY]
                if self.faults.undecided:
                    self.faults.release()
            records.note()
            self.report.samples += 1
            yield key, parts, size, None
        self.faults.finish()

    def _measured(self) -> Iterator[tuple[int, bytes | str]]:
        encoder, report = self.plan.encoder, self.report
        signatures = report.schema.signatures
        for sample in self.samples():
            key = sample[KEY].encode("utf-8", "surrogateescape")
            try:
                size = encoder.measure(sample, key)
            except SampleError as error:
                name = key.decode("utf-8", "surrogateescape")
                raise error.at(shard=self.name, key=name, offset=self.offset) from None
            signatures[tuple(sample)] += 1
            report.samples += 1
            yield size, key

    def __enter__(self) -> InputFlow:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the input; the report is now complete."""
        self.report.palettes = sorted(self._palettes)
        self._count_boxes()
        self.reader.close()

    def _count_boxes(self) -> None:
        """Add the boxes counted since the last call to the report."""
        if boxes := self.transform.context.boxes:
            self.report.boxes += boxes.take()
