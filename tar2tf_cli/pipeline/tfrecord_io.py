"""Reads and writes single TFRecord files: examples in, examples out, with every CRC checked.

with TFRecordWriter("train.record") as writer:
    example = TFExample()
    example.add_int64("label", 7)
    writer.write(example)

for example in TFRecordReader("train.record"):
    print(example.get_int64("label"))
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from io import TextIOBase
from typing import Any

from tar2tf_cli.conversion.targets import prepared
from tar2tf_cli.errors import DamagedShardError, SampleError, UsageError
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.compression import open_stream
from tar2tf_cli.formats.example import Encoder, Feature, Part
from tar2tf_cli.formats.record_file import WholeFile
from tar2tf_cli.formats.record_stream import RecordStream
from tar2tf_cli.formats.tfrecord import FRAMING, MAX_RECORD, RecordReader, frame
from tar2tf_cli.inputs.file_object import Readable, check_inputs, name_of, sources_of
from tar2tf_cli.spec.output_path import PathTemplate

__all__ = ["TFRecordReader", "TFRecordWriter"]


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

    def write(self, example: TFExample | Mapping[str, bytes | Feature] | bytes) -> None:
        """Write an example, which may already be serialised.

        Raises:
            SampleError: when it exceeds protobuf's limit of 2 GiB.
        """
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
