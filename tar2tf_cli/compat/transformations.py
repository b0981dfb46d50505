"""Selections and transformations of a `Pipeline`, and readers and writers of single TFRecord files."""

from __future__ import annotations

import contextlib
import os
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOBase
from typing import Any

from tar2tf_cli.conversion.targets import prepared
from tar2tf_cli.errors import DamagedShardError, SampleError, UsageError
from tar2tf_cli.features.feature_map import TypeName, give_types
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.compression import open_stream
from tar2tf_cli.formats.example import Encoder, Feature, Part
from tar2tf_cli.formats.example_parser import values_of
from tar2tf_cli.formats.files import RecordStream, WholeFile
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.formats.tfrecord import FRAMING, MAX_RECORD, frame
from tar2tf_cli.inputs.file_object import Readable, check_inputs, name_of, sources_of
from tar2tf_cli.ops.base import Kind, Op, OpContext, called, is_identified, label, source_digest
from tar2tf_cli.ops.fields import NameRule, keep, move_first, names_with
from tar2tf_cli.samples.names import Sample
from tar2tf_cli.spec.output_path import PathTemplate


def by_key(key: str) -> NameRule:
    """Select the entry of this name."""
    return NameRule(lambda entries: [key], f"by_key({key!r})")


def by_key_value(key: str, value: Any) -> NameRule:
    """Select the entry of this name if it has this value.

    Bytes equal bytes; text and numbers equal bytes with the same text, ignoring surrounding whitespace, so that 7
    equals b"7\\n". Numeric features equal a number or a list of numbers, floats as float32.
    """
    return NameRule(
        lambda entries: [key] if key in entries and _equal(entries[key], value) else [],
        f"by_key_value({key!r}, ...)",
        bound=value,
    )


def by_prefix(prefix: str) -> NameRule:
    """Select entries whose names begin with this text."""
    return NameRule(partial(names_with, "prefix", prefix), f"by_prefix({prefix!r})")


def by_suffix(suffix: str) -> NameRule:
    """Select entries whose names end with this text."""
    return NameRule(partial(names_with, "suffix", suffix), f"by_suffix({suffix!r})")


def by_substring(substring: str) -> NameRule:
    """Select entries whose names contain this text."""
    return NameRule(partial(names_with, "contains", substring), f"by_substring({substring!r})")


def by_sample_f(function: Callable[[Sample], Iterable[str]]) -> NameRule:
    """Select the entries whose names your function returns for the sample."""
    return NameRule(function, f"by_sample_f({label(function)})", "sample", function)


def by_example_f(function: Callable[[TFExample], Iterable[str]]) -> NameRule:
    """Select the features whose names your function returns for the example."""
    return NameRule(function, f"by_example_f({label(function)})", "example", function)


def _equal(entry: Any, value: Any) -> bool:
    if isinstance(entry, Feature):
        kind, values = values_of(entry)
        if kind == "float":
            wanted = value if isinstance(value, (list, tuple)) else [value]
            return values == [_as_float32(item) for item in wanted]
        entry = values[0] if len(values) == 1 and not isinstance(value, (list, tuple)) else values
        value = list(value) if isinstance(value, tuple) else value
    if isinstance(entry, bytes) and isinstance(value, (str, int, float)):
        return entry.decode("utf-8", "replace").strip() == str(value)
    if hasattr(entry, "tolist"):  # an array made by an op
        return bool(entry.tolist() == (value.tolist() if hasattr(value, "tolist") else value))
    return bool(entry == value)


def _as_float32(value: Any) -> Any:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except (struct.error, OverflowError):
        return None


@dataclass(frozen=True)
class _Transformation(Op):
    """What the functions below make.

    Attributes:
        written: its arguments, as in the manifest.
        function: turns a sample or example into another, none or several.
    """

    name: str  # type: ignore[misc]  # not one for the whole class
    written: Any
    function: Callable[[Any], Any]
    bound: Sequence[Any] = ()  # type: ignore[assignment]
    only: Kind | None = None  # type: ignore[misc]

    def canonical(self) -> dict[str, Any]:
        return {self.name: self.written}

    def apply(self, sample: Sample, context: OpContext) -> Any:
        return self.function(sample)


def rename(dest: str, sources: str | Iterable[str]) -> Op:
    """Rename the first source that is present to `dest`, if there is one; `__key__` is copied, not moved."""
    names = (sources,) if isinstance(sources, str) else tuple(sources)
    if not names or not all(isinstance(name, str) and name for name in (dest, *names)):
        raise UsageError("rename takes a name and its sources", hint='write rename("image", ["jpg", "jpeg"])')
    return _Transformation("rename", {"dest": dest, "sources": [*names]}, partial(_renamed, dest, names))


def _renamed(dest: str, sources: Sequence[str], sample: Sample) -> Sample:
    move_first(sample, dest, sources)
    return sample


def select(*rules: NameRule) -> Op:
    """Keep `__key__` and the names that match any of the rules."""
    for rule in rules:
        if not isinstance(rule, NameRule):
            raise UsageError(f"{rule!r} is not a rule for names", hint=f"write by_key({str(rule)!r})")
    kinds = [rule.only for rule in rules if rule.only]
    if len({*kinds}) > 1 or not rules:
        raise UsageError("select takes one or more rules, all for samples or all for examples")
    written = [_written(rule.label, rule.bound) for rule in rules]
    bound = [rule.bound for rule in rules]
    return _Transformation("select", written, partial(keep, rules=rules), bound, kinds[0] if kinds else None)


def sample_f(function: Callable[[Sample], Any]) -> Op:
    """Apply your function to each sample: it returns the sample, None to skip it, or an iterable of samples."""
    from tar2tf_cli.ops.func import Func

    return Func(function)


def example_f(function: Callable[[TFExample], Any]) -> Op:
    """Apply your function to each example: it returns the example, None to skip it, or an iterable of examples."""
    written = _written(label(function), function)
    return _Transformation("example_f", written, partial(called, function), [function], "example")


def typed(types: Mapping[str, TypeName]) -> Op:
    """Make features of those entries of a sample that have a type."""
    return _Typed("types", dict(types), partial(_with_types, types), only="sample")


def _with_types(types: Mapping[str, TypeName], sample: Sample) -> Sample:
    give_types(sample, types)
    return sample


class _Typed(_Transformation):
    by_name = True  # so that other entries, which may be large, are not read


def id() -> Op:
    """Change nothing."""
    return _Transformation("id", {}, lambda sample: sample)


def as_transformation(item: Any, kind: Kind) -> Op:
    """Return an item as a transformation of samples or examples; your own functions are accepted.

    Raises:
        UsageError: when it is not a transformation, or is for the other kind.
    """
    stage = {"sample": "transform_samples", "example": "transform_tf_examples"}
    other: Kind = "example" if kind == "sample" else "sample"
    if item is id or (isinstance(item, type) and issubclass(item, Op)):
        item = item()
    if not isinstance(item, Op):
        if not callable(item):
            raise UsageError(f"{stage[kind]}: {item!r} is not a transformation", hint="give an op or a function")
        return sample_f(item) if kind == "sample" else example_f(item)
    if item.only == other:
        raise UsageError(f"{stage[kind]}: {item.name} is for {other}s", hint=f"give it to {stage[other]}")
    return item


def unknown_in(ops: Iterable[Op]) -> Iterator[str]:
    """Yield the user's functions and ops that may differ from an earlier run."""
    yield from (label(value) for op in ops for value in op.bound if not is_identified(value))


def _written(name: str, bound: Any) -> Any:
    """Return a selection or function as in the manifest."""
    digest = source_digest(bound) if callable(bound) else None if bound is None else repr(bound)
    return [name, digest] if digest else name


class TFRecordReader:
    """Iterates over the examples of a TFRecord file; gzip is detected by content. A path is opened at each iteration.

    Args:
        source: a path, or a file open for reading bytes, which is read once and left open.
        check_data: whether the CRC of the data is checked; that of the length always is.

    Raises:
        SourceError: when the file cannot be opened or read.
        DamagedShardError: at the first damaged record; names file, record and offset.
    """

    def __init__(self, source: Readable, *, check_data: bool = True) -> None:
        self._inputs = check_inputs([source])
        self._check_data = check_data

    def __iter__(self) -> Iterator[TFExample]:
        for name, number, offset, data in self._records():
            try:
                yield TFExample.from_bytes(data)
            except ValueError as error:
                raise DamagedShardError(
                    f"is not a tf.train.Example: {error}",
                    kind="example",
                    shard=name,
                    member=f"record {number}",
                    offset=offset,
                ) from None

    def records(self) -> Iterator[bytes]:
        """The data of each record, whatever it holds."""
        for _, _, _, data in self._records():
            yield data

    def _records(self) -> Iterator[tuple[str, int, int, bytes]]:
        for source in sources_of(self._inputs):
            for item in source.list(()):
                name = source.locate(item.name)
                with contextlib.closing(source.open(item)) as raw:
                    reader = RecordReader(open_stream(raw, name), name, check_data=self._check_data)
                    for offset, data in reader:
                        yield name, reader.count, offset, data


class TFRecordWriter:
    """Writes a TFRecord file, which appears at its path whole and flushed to disk, or not at all.

    Use it in a `with` statement: if the block raises, no file is left at the path. If it is never closed, there is none
    either, and a RuntimeWarning says so. An open file receives records as they are written; it is flushed at the end
    and left open.

    Args:
        out: a path, or a file open for writing bytes.
        overwrite: whether an existing file is replaced.

    Attributes:
        records: number of records written.
        size: number of bytes written, framing included.

    Raises:
        OutputExistsError: when the path exists.
        SinkError: when the file cannot be written.
    """

    def __init__(self, out: Any, *, overwrite: bool = False) -> None:
        check_output(out)
        if isinstance(out, (str, os.PathLike)) and PathTemplate.parse(os.fspath(out)).fields:
            raise UsageError(
                f"{os.fspath(out)!r} is a template for several files, but TFRecordWriter writes one",
                hint="use Pipeline.to_tf_record or tar2tf convert to write shards",
            )
        self.records = 0
        self.size = 0
        self._overwrite = overwrite
        self._encoder = Encoder()
        self._file: WholeFile | None = None
        self._out: WholeFile | RecordStream | None = None
        if isinstance(out, (str, os.PathLike)):
            self._name = os.fspath(out)
            self._out = self._file = WholeFile(prepared(self._name, overwrite=overwrite))
        else:
            self._out = RecordStream(out, name_of(out, "<stream>"))

    def write(self, example: TFExample | Mapping[str, bytes | Feature] | bytes | Any) -> None:
        """Write an example, which may be a tf.train.Example or already be serialised.

        Raises:
            SampleError: when it exceeds protobuf's limit of 2 GiB.
        """
        if hasattr(example, "SerializeToString"):
            example = example.SerializeToString()
        if isinstance(example, (bytes, bytearray)):
            parts: list[Part] = [bytes(example)]
            size = len(example)
            if size > MAX_RECORD:
                raise SampleError(f"the record has {size:,} bytes, more than protobuf's limit of {MAX_RECORD:,}")
        else:
            parts, size = self._encoder.encode(example)
        if self._out is None:
            raise ValueError("the writer is closed")
        self._out.write(frame(parts, size), size + FRAMING)
        self.records += 1
        self.size += size + FRAMING

    def close(self) -> None:
        """Flush the file to disk and give it its name."""
        if self._out is None:
            raise ValueError("the writer is closed")
        self._out.flush()
        if self._file is not None:
            try:
                self._file.sync()
                prepared(self._name, overwrite=self._overwrite)
            except BaseException:
                self.discard()
                raise
            self._file.close()
        self._out = self._file = None

    def discard(self) -> None:
        """Discard what was written; no file is left at the path."""
        if self._file is not None:
            self._file.abandon()
        self._out = self._file = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.discard()
            message = f"{self._name} was not written, as its TFRecordWriter was not closed"
            warnings.warn(f"{message}: use it in a with statement", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            self.discard()
        elif self._out is not None:
            self.close()


def check_output(out: Any) -> None:
    """Check that an object can be an output.

    Raises:
        UsageError: when it is neither a path nor a file open for writing bytes.
    """
    if isinstance(out, TextIOBase):
        raise UsageError(f"{name_of(out, 'the output')} is open as text", hint="open it with mode 'wb'")
    if not isinstance(out, (str, os.PathLike)) and not callable(getattr(out, "write", None)):
        raise UsageError(f"{type(out).__name__} is not an output; give a path, or a file open for writing bytes")
