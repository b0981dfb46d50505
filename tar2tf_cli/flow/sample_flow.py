"""One input being read: stored bytes in, samples and features out, faulty samples raised or noted by policy."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias

from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.features.presets import find_preset, of_record_to_example
from tar2tf_cli.features.tf_example import TFExample, key_of, unfit
from tar2tf_cli.features.transformations import transform
from tar2tf_cli.flow.threads import in_threads, weight_of
from tar2tf_cli.formats.compression import PlainStream, open_stream
from tar2tf_cli.formats.example import Encoder, Features
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.ops.base import OpContext, apply_ops
from tar2tf_cli.samples.grouping import KEY, Grouper, Sample
from tar2tf_cli.spec.conversion import Conversion, Input
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["Reading"]

_Fault: TypeAlias = Callable[[SampleError], None]
_Placed: TypeAlias = tuple[int, Sample]


class Reading:
    """Reads one input of a conversion from front to back, or a part of it.

    Args:
        conversion: whose key rule, types and policy for faulty samples hold.
        source: where the input is.
        item: the input.
        on_bytes: called with the number of stored bytes after each read.
        sizes_only: entries are their sizes in bytes; the data is skipped, where the stream can seek without
            being read.
        trusted: the input was read before, so neighbouring samples are not compared again.
        threads: how many threads make examples of samples; what comes out does not depend on it.

    Attributes:
        context: what ops may depend on besides the sample.
        features_of: makes a sample that has been through the ops its features.
        report: filled in as the input is read; whole when the reading is closed.

    Raises:
        SourceError: when the input cannot be opened or read, or is damaged.
    """

    def __init__(
        self,
        conversion: Conversion,
        source: Source,
        item: ObjectInfo,
        *,
        on_bytes: Callable[[int], None] | None = None,
        sizes_only: bool = False,
        trusted: bool = False,
        threads: int = 1,
    ) -> None:
        self.name = source.locate(item.name)
        self.report = InputReport()
        self._skip = conversion.on_error == "skip"
        self._sizes_only = sizes_only
        self._threads = threads
        self._offset: int | None = None  # of the sample at hand, where others were read ahead
        self._ops = conversion.ops
        self._example_ops = conversion.example_ops
        self._gives_examples = source.gives_examples
        self.context = OpContext(conversion.seed, conversion.max_pixels, conversion.image_size)
        preset = find_preset(conversion.preset) if conversion.preset else None
        if conversion.record_to_example:
            preset = of_record_to_example(conversion.record_to_example)
        self._feature_map = FeatureMap(conversion.types, conversion.select, preset, self.context)
        self.features_of = self._feature_map.features
        self._encoder = Encoder()
        self._input: _Tar | _List
        samples = source.samples(item, self.report, self._fault, on_bytes)
        if samples is not None:
            self._input = _List(samples)
        else:
            self._input = _Tar(conversion.input, source, item, self._fault, on_bytes, sizes_only, trusted)
        self.seekable = self._input.seekable

    @property
    def offset(self) -> int:
        """Where in the tar the current sample begins."""
        return self._input.offset or 0

    def seek(self, offset: int) -> None:
        """Begin at a sample's offset instead of the front; only where `seekable`."""
        self._input.seek(offset)

    def samples(self) -> Iterator[Sample]:
        """The samples; where faults are passed over, up to the first damage of the shard itself."""
        try:
            yield from self._input.samples()
        except DamagedShardError as error:
            self._fault(error)

    def examples(self) -> Iterator[tuple[str, Features]]:
        """Each example's features with the key of its sample, after all ops."""
        if self._gives_examples:
            return ((key_of(example) or "", example) for example in self.samples())
        return self._made(self.samples(), self._fault) if self._threads == 1 else self._made_in_threads()

    def _made_in_threads(self) -> Iterator[tuple[str, Features]]:
        placed = ((self.offset, sample) for sample in self.samples())
        for offset, made in in_threads(placed, self._made_at, self._threads, lambda: None, self._fault, _weight):
            self._offset = offset
            yield made

    def _made_at(self, samples: Iterator[_Placed], fault: _Fault) -> Iterator[tuple[int, tuple[str, Features]]]:
        """Examples of samples, both with the sample's offset."""
        for offset, sample in samples:
            for made in self._made(iter((sample,)), partial(_at, fault, offset)):
                yield offset, made

    def _made(self, samples: Iterator[Sample], fault: _Fault) -> Iterator[tuple[str, Features]]:
        """Each example's features with the key of its sample; faulty samples go to `fault`."""
        features_of, example_ops = self.features_of, self._example_ops
        for sample in samples:
            key = sample[KEY]
            try:
                for result in apply_ops(sample, self._ops, self.context) if self._ops else (sample,):
                    features = features_of(result)
                    if not example_ops:
                        yield key, features
                        continue
                    for example in transform(TFExample(features), example_ops, self.context):
                        yield key, example
            except SampleError as error:
                fault(error.at(key=key))

    def records(self) -> Iterator[tuple[str, list[bytes], int]]:
        """Each record with the key of its sample: key, framed bytes as a list of parts, size in bytes."""
        for key, parts, size in self._encoded():
            yield key, frame(parts, size), size + FRAMING

    def sizes(self) -> Iterator[int]:
        """The size of each record in bytes; with `sizes_only` the headers of the tar give it."""
        if not self._sizes_only:
            for _, _, size in self._encoded():
                yield size + FRAMING
            return
        size_of, signatures, report = self._encoder.size, self.report.schema.signatures, self.report
        for sample in self.samples():
            sample[KEY] = len(sample[KEY].encode("utf-8", "surrogateescape"))
            try:
                size = size_of(sample) + FRAMING
            except SampleError as error:
                raise error.at(shard=self.name, offset=self.offset) from None
            signatures[tuple(sample)] += 1
            report.samples += 1
            yield size

    def _encoded(self) -> Iterator[tuple[str, list[bytes], int]]:
        """Each example with the key of its sample: key, encoded bytes as a list of parts, size in bytes."""
        encode, schema, report = self._encoder.encode, self.report.schema, self.report
        plain = self._feature_map.plain and not (self._ops or self._example_ops) and isinstance(self._input, _Tar)
        note: Callable[[Features], None] = schema.add_plain if plain else schema.add
        for key, features in self.examples():
            try:
                if type(features) is TFExample and (found := unfit(features)):
                    raise SampleError(f"the example has {found}")
                parts, size = encode(features)
                note(features)
            except SampleError as error:
                self._fault(error.at(key=key))
            else:
                report.samples += 1
                yield key, parts, size

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the input; the report is now whole."""
        self._input.close(self.report)
        self.report.errors.sort(key=lambda error: error["offset"] or 0)
        del self._input  # or it and this would hold each other, and its buffers, until garbage is collected

    def _fault(self, error: SampleError | DamagedShardError) -> None:
        offset = self._input.offset if self._offset is None else self._offset
        error.at(shard=self.name, member=self._input.member, offset=offset)
        if not self._skip:
            raise error
        places = {name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")}
        self.report.errors.append(places)


def _at(fault: _Fault, offset: int, error: SampleError) -> None:
    fault(error.at(offset=offset))


def _weight(placed: _Placed) -> int:
    return weight_of(placed[1])


class _Tar:
    """A tar as samples: entries are its members.

    Attributes:
        member: what a fault is to be named by besides its key; of tars, whoever finds it says so.
        seekable: whether samples can be read by their offset.
    """

    member = None

    def __init__(
        self,
        spec: Input,
        source: Source,
        item: ObjectInfo,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None,
        sizes_only: bool,
        trusted: bool,
    ) -> None:
        name = source.locate(item.name)
        self._stream = open_stream(source.open(item), name, on_bytes)
        self.seekable = source.seekable and isinstance(self._stream, PlainStream)
        self._tar = TarReader(
            self._stream, name, headers_only=sizes_only and self.seekable, need_end=not spec.ignore_missing_end
        )
        self._grouper = Grouper(
            name, fault, key_split=spec.key_split, regroup=spec.regroup, sizes_only=sizes_only, trusted=trusted
        )

    @property
    def offset(self) -> int:
        return self._grouper.offset

    def seek(self, offset: int) -> None:
        self._tar.start_at(offset)

    def samples(self) -> Iterator[Sample]:
        return self._grouper.samples(self._tar)

    def close(self, report: InputReport) -> None:
        self._stream.close()
        report.skipped = self._grouper.skipped + self._tar.skipped
        report.archives = self._tar.archives
        report.split_differs = self._grouper.split_differs


class _List:
    """A part of a list of files or rows as samples.

    Attributes:
        member: the file or row that the current sample is made of.
    """

    seekable = False
    offset = None

    def __init__(self, samples: Generator[tuple[str, Sample], None, None]) -> None:
        self.member: str | None = None
        self._samples = samples

    def seek(self, offset: int) -> None:
        raise NotImplementedError

    def samples(self) -> Iterator[Sample]:
        for member, sample in self._samples:
            self.member = member
            yield sample

    def close(self, report: InputReport) -> None:
        self._samples.close()
