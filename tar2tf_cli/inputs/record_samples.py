"""The samples of a TFRecord, or its unparsed records."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from math import prod
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, overload

from tar2tf_cli.api.objects import ObjectInfo, Readable
from tar2tf_cli.api.source import OnFault, Source
from tar2tf_cli.api.values import KEY, Batch, Kind, RecordBatch, Sample
from tar2tf_cli.errors import DamagedShardError, Location, SampleError, Tar2tfError
from tar2tf_cli.features.described import DTYPES, Census, Described, Expected, expected
from tar2tf_cli.features.feature_map import MIXED
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import FRAMING, ParsedFeature, frame, is_sequence, parse, strict_parse
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.record_batches import RecordBatcher
from tar2tf_cli.inputs.tar_samples import FileView, SeekableShard
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.structs import NamedTuple, replace

if TYPE_CHECKING:
    from tar2tf_cli.features.decoder import ExampleEntries
    from tar2tf_cli.features.feature_map import Look, Schema
    from tar2tf_cli.inputs.report import InputReport

_TOGETHER: Final = 1 << 18  # bytes of records that become one batch
_DIGITS: Final = 6


class Forms(NamedTuple):
    """The form of each feature in records without a manifest.

    Attributes:
        lists: features that have no or several values in some record.
        ranks: for each feature NAME with a feature NAME/shape, the length of the latter, if it always is the shape of
            NAME; otherwise None.
    """

    lists: frozenset[str] = frozenset()
    ranks: Mapping[str, int | None] = MappingProxyType({})

    @property
    def unshaped(self) -> Collection[str]:
        """The features whose NAME/shape is not the shape of NAME in some record."""
        return frozenset(name for name, rank in self.ranks.items() if rank is None)

    def joined(self, other: Forms) -> Forms:
        """Return the combined forms of these and other records."""
        both = self.ranks.keys() & other.ranks.keys()
        differing = {name: None for name in both if self.ranks[name] != other.ranks[name]}
        return Forms(self.lists | other.lists, {**self.ranks, **other.ranks, **differing})


def forms_in(source: Source, item: ObjectInfo) -> Forms:
    """Return the forms of the features in an input; empty if it is no TFRecord or cannot be read."""
    with suppress(Tar2tfError), OpenShard(source, item) as shard:
        if shard.kind and shard.kind.traits.carries_examples:
            return _forms_of(shard.content, shard.name)
    return Forms()


def _forms_of(stream: Readable, name: str) -> Forms:
    """Return the forms of the features in a stream's readable records."""
    inference, reader = FeatureInference(), RecordReader(stream, name)
    for block in iter_resuming(lambda: reader.blocks(inference), reader.resume, lambda error, more: None):
        if not isinstance(block, bytes):
            inference.look_at(features_of(block[1]))
    return inference.forms()


class RecordKeys(NamedTuple):
    """Names the feature that holds the key of each record, and the stem of the keys of records without one.

    Attributes:
        stem: the beginning of the keys of records without a key.
        feature: the feature that contains the key; None for `__key__`.
    """

    stem: str
    feature: str | None

    @property
    def name(self) -> str:
        """The name of the feature that holds the key."""
        return self.feature or KEY

    def key_in(self, features: Mapping[str, object]) -> str | None:
        """Return the key among the features of a record; None if it is missing, or not one text or whole number."""
        value: Any = features.get(self.name)
        if getattr(value, "listed", False) and len(value) == 1:  # `Listed`, as another record has several values
            value = value[0]
        return key_of({KEY: value})


class _FramedRecord(NamedTuple):
    """A record that is copied unchanged, and its features; None if it is not an example."""

    data: bytes
    features: dict[str, ParsedFeature] | None


class RecordSamples:
    """Reads a TFRecord and checks its CRCs: each example as a sample, or each record of any message unparsed.

    The entries of a sample are the features of the example by name: bytes unchanged, numbers as NumPy scalars and
    arrays, with the dtype and shape in the manifest (`ExampleEntries`). Without a manifest, a feature is a single value
    if it has one value in all examples of the input, and otherwise a list in all of them; to find out, the input is
    read twice, from a temporary file if it can be read only once. The key is the feature `__key__`, a text or whole
    number; without it, the key consists of the shard's name and the record's number.

    Args:
        shard: the open TFRecord.
        on_fault: called with the error of each faulty sample; when it returns, the sample is skipped.
        may_be_empty: whether it may contain no records.
        described: its features, if a manifest describes them.
        forms: the forms of its features, if they also depend on other inputs.
        stem: the beginning of the keys of records without a key.
        key_feature: the feature that contains the key, which remains an entry; None for `__key__`.

    Attributes:
        regroups: always false, as a sample is one record; so are `may_regroup` and `must_regroup`.
    """

    regroups = may_regroup = must_regroup = False
    count = None

    def __init__(
        self,
        shard: OpenShard,
        on_fault: OnFault,
        *,
        may_be_empty: bool,
        described: Described = MappingProxyType({}),
        forms: Forms | None = None,
        stem: str = "",
        key_feature: str | None = None,
    ) -> None:
        self._shard = shard
        self._on_fault = on_fault
        self._described = described
        self._forms = forms
        self._may_be_empty = may_be_empty
        self._keys = RecordKeys(stem or shard.item.stem, key_feature)
        self._looks = FeatureInference(described)
        self._framed = _FramedRecord(b"", None)
        self._reader = RecordReader(shard.content, shard.name)
        self._copy: SeekableShard | None = None
        self._first = 0  # the number of the first record of the last batch
        self._current: tuple[int, int] | None = None  # number and offset of a record that the kernel has checked

    @property
    def seekable(self) -> bool:
        """Whether records can be read by their offset."""
        return self._shard.seekable is not None

    @property
    def _name(self) -> str:
        return self._shard.name

    @property
    def offset(self) -> int:
        """The offset of the current record."""
        return self._current[1] if self._current else self._reader.offset

    @property
    def _number(self) -> int:
        """The number of the current record."""
        return self._current[0] if self._current else self._reader.count

    @cached_property
    def _entries(self) -> ExampleEntries:
        from tar2tf_cli.features.decoder import ExampleEntries

        forms = self._forms_in_use
        return ExampleEntries(self._described, forms.lists, forms.unshaped)

    @cached_property
    def _forms_in_use(self) -> Forms:
        """The forms of the features; empty if a manifest describes them."""
        return Forms() if self._described else self._forms or self._forms_of_input()

    def _forms_of_input(self) -> Forms:
        """Read the input to its end to infer the form of each feature."""
        if self.seekable and (plain := self._shard.plain):  # by its offsets, as some of the stream may have been read
            return _forms_of(FileView(plain.fileno(), self._name), self._name)
        if self._copy:
            return _forms_of(self._copy.view(), self._name)
        with OpenShard(self._shard.source, self._shard.item) as again:
            return _forms_of(again.content, self._name)

    def _copy_if_read_once(self) -> None:
        """Copy a non-repeatable input to a temporary file, and read from this copy afterwards."""
        if not (self._described or self._copy or self._shard.source.capabilities.repeatable):
            self._copy = SeekableShard(lambda: self._shard.content, self._name, seekable=False)
            self._reader = RecordReader(self._copy.view(), self._name)

    def where(self) -> Location:
        """Return number and offset of the current record."""
        return {"member": f"record {self._number}", "offset": self.offset}

    def seek(self, offset: int) -> None:
        """Go to a record's offset; only valid if `seekable`."""
        assert self._shard.plain
        self._shard.plain.seek(offset)

    @overload
    def samples(self) -> Iterator[Sample]: ...

    @overload
    def samples(self, native: ModuleType | None) -> Iterator[Sample | Batch]: ...

    def samples(self, native: ModuleType | None = None) -> Iterator[Sample] | Iterator[Sample | Batch]:
        """Iterate over the samples, in order.

        Args:
            native: the kernel, to give plain samples as batches.

        Raises:
            DamagedShardError: at damage; after `resume`, call this again.
        """
        self._copy_if_read_once()
        if native:
            return self._samples_and_batches(native)
        return chain.from_iterable(self._sample_of(data) for _, data in self._reader)

    def _samples_and_batches(self, native: ModuleType) -> Iterator[Sample | Batch]:
        """Iterate over the samples; plain ones come in batches."""
        seen, lists = FeatureInference(self._described), self._forms_in_use.lists
        stem, key_feature = self._keys
        batcher = RecordBatcher(native, seen, self._described, lists, key_feature, numbered(stem))
        number = offset = 0  # number and offset of the next record
        for block in self._reader.blocks(seen):
            if isinstance(block, bytes):
                number = yield from self._samples_in(block, batcher, number, offset)
                offset += len(block)
            else:
                offset, data = block
                number, offset = self._reader.count + 1, offset + len(data) + FRAMING
                seen.look_at(features_of(data))
                yield from self._sample_of(data)

    def _samples_in(
        self, block: bytes, batcher: RecordBatcher, number: int, offset: int
    ) -> Generator[Sample | Batch, None, int]:
        """Iterate over the samples in records that the kernel checked; return the number of the next record.

        Args:
            block: the records.
            batcher: makes batches of those that are plain.
            number: the number of the first record.
            offset: the offset of the first record.
        """
        position = 0
        while position < len(block):
            if batch := batcher.batch(block, position, number):
                self._first = number
                number, size = number + len(batch), batch.end
                batch.start += offset + position
                batch.end += offset + position
                yield batch
            else:
                size = int.from_bytes(block[position : position + 8], "little") + FRAMING
                yield from self._one_by_one(block[position : position + size], number, offset + position)
                number += 1
            position += size
        return number

    def _one_by_one(self, records: bytes, number: int, offset: int) -> Iterator[Sample]:
        """Iterate over the samples in framed records, given number and offset of the first."""
        position = 0
        while position < len(records):
            size = int.from_bytes(records[position : position + 8], "little") + FRAMING
            self._current = number, offset + position
            yield from self._sample_of(records[position + 12 : position + size - 4])
            number, position = number + 1, position + size
        self._current = None

    def _sample_of(self, data: bytes) -> Iterator[Sample]:
        """Yield the sample of the current record, unless it is faulty."""
        try:
            sample = self._entries(data)
        except ValueError as error:
            self._fault(f"the record cannot be read as a sample: {error}", _hint(data))
            return
        keys = self._keys
        key = keys.key_in(sample)
        if key is None and (keys.name in sample or keys.feature):
            what = "is not one text or whole number" if keys.name in sample else "is missing, which --key-feature names"
            self._fault(f"the feature {keys.name!r} {what}", _ONE_KEY)
            return
        sample.pop(KEY, None)
        yield {KEY: numbered(keys.stem, self._number) if key is None else key, **sample}

    def _fault(self, message: str, hint: str) -> None:
        self._on_fault(SampleError(message, shard=self._name, hint=hint).at(**self.where()))

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Iterate over the samples of the most recent batch."""
        return self._one_by_one(batch.data[: batch.end - batch.start], self._first, batch.start)

    def framed(self) -> Iterator[tuple[str, list[bytes], int]]:
        """Iterate over unparsed records: key of the sample, bytes in parts, and size.

        Callers count each record that they write with `note`.
        """
        self._copy_if_read_once()
        keys = self._keys
        for _, data in self._reader:
            features = features_of(data)
            self._framed = _FramedRecord(data, features)
            key = keys.key_in(parsed(data) if features is None else features)
            named = numbered(keys.stem, self._number) if key is None else key
            yield named, [*frame([data], len(data))], len(data) + FRAMING

    def note(self) -> None:
        """Count the features of the most recent record of `framed`."""
        self._looks.look_at(self._framed.features)

    def sample(self, key: str) -> Sample:
        """Return the most recent record of `framed` as a sample; any other message is one unnamed entry."""
        try:
            return {**self._entries(self._framed.data), KEY: key}
        except ValueError:
            return {KEY: key, "": self._framed.data}

    def batches(self) -> Iterator[RecordBatch]:
        """Iterate over unparsed records, many at a time; raises the errors of `samples`."""
        parts: list[bytes] = []
        sizes, waiting, native = array("Q"), 0, kernel.native()

        def together() -> Iterator[RecordBatch]:
            if sizes:
                yield RecordBatch(b"".join(parts), sizes.tobytes())
                parts.clear()
                del sizes[:]

        try:
            for block in self._reader.blocks(self._looks):
                if isinstance(block, bytes):
                    yield from together()
                    assert native  # the kernel made the block
                    yield RecordBatch(block, native.sizes(block))
                    waiting = 0
                    continue
                _, data = block
                self._looks.look_at(features_of(data))
                parts += frame([data], len(data))
                sizes.append(len(data) + FRAMING)
                waiting += sizes[-1]
                if waiting >= _TOGETHER:
                    yield from together()
                    waiting = 0
        except DamagedShardError:
            yield from together()
            raise
        yield from together()

    def check_end(self) -> None:
        """After the last record, refuse a TFRecord without records, as it may have been truncated."""
        if not (self._reader.count or self._may_be_empty):
            hint = "leave it out, or accept empty files with --from tfrecord"
            raise DamagedShardError("the TFRecord holds no records", kind="empty", hint=hint)

    def resume(self, error: DamagedShardError) -> bool:
        """Continue after damage at the next record, if there is one; add the lost range to the error."""
        resumed = self._reader.resume(error)
        error.add_lost("record", resumed=resumed)
        return resumed

    def describe(self, report: InputReport) -> None:
        """Add the features of copied records to the report."""
        self._looks.describe(report.schema)
        report.other_records = self._looks.others

    def forget(self) -> None:
        """Discard statistics of the records."""
        self._looks = FeatureInference(self._described)

    def close(self) -> None:
        """Remove the copy; the owner of the stream closes the stream."""
        if self._copy:
            self._copy.close()


_ONE_KEY: Final = "give each record one key, or leave out ops and selections, which need it"


def _hint(data: bytes) -> str:
    if is_sequence(data):
        return "a tf.train.SequenceExample can only be copied unchanged: leave out ops, selections and types"
    return "records of other kinds can only be copied unchanged: leave out ops, selections and types"


def stem_of(path: str) -> str:
    """Return the prefix of the keys of a shard's records, unless another shard has the same stem."""
    return ObjectInfo(path, None, None).stem


def numbered(stem: str, number: int | None = None) -> str:
    """Return the key of a record without one, made of its shard's stem and its number.

    Without a number, return the part before it.
    """
    return f"{stem.replace('.', '_')}-" + ("" if number is None else f"{number:0{_DIGITS}d}")


def parsed(message: bytes) -> dict[str, ParsedFeature]:
    """Return the features of an example, or of the context of a tf.train.SequenceExample; empty for other messages."""
    try:
        return parse(message, sequence=True)
    except ValueError:
        return {}


def features_of(message: bytes) -> dict[str, ParsedFeature] | None:
    """Return the features of a record; None if TensorFlow rejects it as an example, or it has feature lists."""
    try:
        features = strict_parse(message)
    except ValueError:
        return None
    return None if is_sequence(message) else features


class FeatureInference:
    """Infers kinds and shapes of the features of records; the kernel counts records similar to earlier ones.

    Args:
        described: the manifest's description of the features; used as far as the records agree.

    Attributes:
        others: number of records that are not a tf.train.Example.
    """

    def __init__(self, described: Described = MappingProxyType({})) -> None:
        self._described = described
        self._wanted = expected(described)
        self._expected: dict[str, Expected] = {}
        self._shapes: dict[str, Expected] = {}  # features NAME/shape without a description
        self._with_shapes: Counter[tuple[str, ...]] = Counter()  # combinations of feature names with such shapes
        self._ranks: dict[str, int | None] = {}  # ranks of arrays by their NAME/shape; None if a shape does not match
        self._census = Census(self._expected)
        self.others = 0

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Let the kernel count records similar to earlier ones; return their end and number."""
        return self._census.take(native, data, start, end)

    def known(self) -> tuple[bytes, bytes]:
        """Return the names and kinds of examples that the kernel may count."""
        return self._census.known()

    def kinds(self) -> dict[str, Kind]:
        """Return the kind of each feature that always had the same kind, except shapes."""
        return {name: seen.kind for name, seen in self._expected.items() if seen.kind}

    def look_at(self, features: Mapping[str, ParsedFeature] | None) -> None:
        """Count a record by its features; None means that it is no example."""
        if features is None:
            self.others += 1
            return
        present = [name for name, feature in features.items() if feature.kind]
        for name in present:
            is_shape = name.endswith("/shape") and name not in self._described
            if is_shape:
                self._compare(name.removesuffix("/shape"), features)
            self._learn(features[name], self._shapes if is_shape else self._expected)
        if self._shapes.keys().isdisjoint(present):
            self._census.count(present)
        else:  # not counted by the kernel, which does not compare values
            self._with_shapes[tuple(present)] += 1

    def _compare(self, name: str, features: Mapping[str, ParsedFeature]) -> None:
        """Update whether a feature NAME/shape always states the shape of NAME."""
        array, shape = features.get(name), features[f"{name}/shape"]
        if array is None or array.kind is None:
            return
        is_size = shape.kind == "int64" and prod(shape.values()) == array.count
        rank = shape.count if is_size else None
        self._ranks[name] = rank if self._ranks.get(name, rank) == rank else None

    def _learn(self, feature: ParsedFeature, known: dict[str, Expected]) -> None:
        before = known.get(feature.name)
        if before is None:
            known[feature.name] = Expected(feature.kind, feature.count)
        elif before.misfit(feature):
            alike = before.kind == feature.kind
            known[feature.name] = replace(before, count=None) if alike else Expected()
        else:
            return
        self._census.expects_more()

    def forms(self) -> Forms:
        """Return the forms of the features."""
        known = (*self._expected.items(), *self._shapes.items())
        return Forms(frozenset(name for name, seen in known if seen.count != 1), self._ranks)

    def describe(self, schema: Schema) -> None:
        """Add the inferred features to a schema."""
        for name, seen in (*self._expected.items(), *self._shapes.items()):
            schema.looks[name] = self._look(name, seen.kind, seen) if seen.kind else MIXED
        for names, records in (*self._census.signatures(), *self._with_shapes.items()):
            schema.signatures[names] += records

    def _look(self, name: str, kind: Kind, seen: Expected) -> Look:
        if self._agrees(name, seen):
            described = self._described[name]
            return described["encoding"], described["dtype"], tuple(described["shape"])
        count, dtype = seen.count, DTYPES[kind][0]
        if rank := self._ranks.get(name):
            return kind, dtype, (count if rank == 1 else None,) * rank
        is_shape = self._ranks.get(name.removesuffix("/shape")) == 1
        return kind, dtype, () if count == 1 and not is_shape else (count,)

    def _agrees(self, name: str, seen: Expected) -> bool:
        """Whether the records agree with the manifest about a feature."""
        wanted = self._wanted.get(name)
        return wanted is not None and wanted.kind == seen.kind and wanted.count in (None, seen.count)
