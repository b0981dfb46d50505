"""Open files, pipes and sockets of the caller: as inputs, and as single TFRecords to read and write."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import FileIO, TextIOBase
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import READ_ONCE, Source
from tar2tf_cli.api.values import Feature, MessagePart
from tar2tf_cli.conversion.targets import prepared
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.example import FRAMING, MAX_RECORD, Encoder, frame
from tar2tf_cli.formats.files import RecordStream, WholeFile
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.spec.templates import PathTemplate, named_compression
from tar2tf_cli.stores import open_source
from tar2tf_cli.stores.directory import version_of


class FileObject(Protocol):
    """An open binary file: `read(size)` returns at most that many bytes, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...


class ExampleMessage(Protocol):
    """A protobuf message, such as a tf.train.Example."""

    def SerializeToString(self) -> bytes: ...


Readable: TypeAlias = "str | os.PathLike[str] | FileObject"
"""A path or bucket, as `open_source` takes it, or an open binary file."""


class FileObjectSource(Source):
    """A source of one shard in an open file, read from its current position; the caller closes the file.

    A seekable file can be read again. A regular file at its beginning is identified by size and time, as a path is, so
    that a later run recognizes it.

    Args:
        file: the open file.
        number: used to name the file if it has no name of its own.
    """

    def __init__(self, file: FileObject, number: int = 1) -> None:
        self._file = file
        self.bucket = name_of(file, f"<stream {number}>")
        self._start = _position(cast("IO[bytes]", file))
        self._status = _status(cast("IO[bytes]", file)) if self._start == 0 else None
        again, known = self._start is not None, self._status is not None
        self.capabilities = READ_ONCE._replace(repeatable=again, resumable=known)

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List one input, with size and version for a regular file."""
        if self._status is None:
            return [ObjectInfo(self.bucket, None, None)]
        return [ObjectInfo(self.bucket, self._status.st_size, version_of(self._status))]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Return the file, at its original position."""
        return _Borrowed(self._file, self.bucket, self._start)

    def locate(self, name: str) -> str:
        """Return the file's name."""
        return name


def _position(file: IO[bytes]) -> int | None:
    """Return the position of an open file; None if it cannot seek."""
    try:
        return file.tell() if file.seekable() else None
    except (AttributeError, OSError, ValueError):
        return None


def _status(file: IO[bytes]) -> os.stat_result | None:
    """Return the status of a regular file that is read as is; None for any other."""
    if not isinstance(getattr(file, "raw", file), FileIO):
        return None
    status = os.fstat(file.fileno())
    return status if stat.S_ISREG(status.st_mode) else None


class _Borrowed:
    """A reader of an open file that the caller closes; several readers of a seekable file keep their own positions."""

    def __init__(self, file: FileObject, name: str, position: int | None) -> None:
        self._file: Any = file
        self._name = name
        self._position = position

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""
        try:
            if self._position is not None:
                self._file.seek(self._position)
            data = self._file.read(size)
        except OSError:
            raise
        except Exception as error:  # the file is closed, or its connection broke off
            raise SourceError(f"reading failed: {type(error).__name__}: {error}", shard=self._name) from error
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise SourceError(
                f"read() returned {type(data).__name__} instead of bytes",
                shard=self._name,
                hint="open it in binary mode, without O_NONBLOCK",
            )
        if self._position is not None:
            self._position += len(data)
        return bytes(data)

    def close(self) -> None:
        """Leave the file open."""


def sources_of(inputs: Iterable[Readable]) -> Iterable[Source]:
    """Yield a source for each input in order, opened when it is needed.

    Raises:
        SourceError: when a path does not exist.
    """
    for number, item in enumerate(inputs, 1):
        if isinstance(item, (str, os.PathLike)):
            yield open_source(os.fspath(item))
        else:
            yield FileObjectSource(item, number)


def check_inputs(inputs: Iterable[object]) -> list[Readable]:
    """Return the inputs as a flat list; lists and other iterables are expanded.

    Raises:
        UsageError: for anything that is not a path or an open binary file, or when there are no inputs.
    """
    flat: list[Readable] = []
    for item in inputs:
        if isinstance(item, TextIOBase):
            raise UsageError(f"{name_of(item, 'an input')} is open as text", hint="open it with mode 'rb'")
        if isinstance(item, (str, os.PathLike)) or callable(getattr(item, "read", None)):
            flat.append(cast("Readable", item))
        elif isinstance(item, Iterable) and not isinstance(item, (bytes, bytearray)):
            flat += check_inputs(item)
        else:
            raise UsageError(f"{type(item).__name__} is not an input; give a path, or a file open for reading bytes")
    if not flat:
        raise UsageError("there are no inputs", hint="give a path, or a file open for reading bytes")
    return flat


def name_of(file: object, otherwise: str) -> str:
    """Return the name of an open file, or `otherwise`; a file descriptor is not a name."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and name else otherwise


class TFRecordReader:
    """Iterates over the examples of a TFRecord file; gzip is detected by content. A path is opened at each iteration.

    Args:
        source: a path, or a file open for reading bytes, which is read once and left open.
        check_data: whether the CRC of the data is checked; the CRC of the length always is.

    Raises:
        SourceError: when the file cannot be opened or read.
        DamagedShardError: at the first damaged record; names file, record and offset.

    >>> sum(1 for example in TFRecordReader("out/train-1.record"))
    24
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
                    kind="not_an_example",
                    shard=name,
                    member=f"record {number}",
                    offset=offset,
                ) from None

    if not TYPE_CHECKING:  # type checkers should know the names of this module only

        def __getattr__(self, name: str) -> object:
            """Raise an error for go-tfdata's Read, ReadExamples, ReadAllExamples and ReadNext that names their
            replacement.
            """
            instead = (
                "over records(), which are bytes" if name == "ReadNext" else "over it, as in `for example in reader`"
            )
            iterate = f"; iterate {instead}" if name.startswith("Read") else ""
            raise AttributeError(f"{type(self).__name__} has no method {name!r}{iterate}")

    def records(self) -> Iterator[bytes]:
        """Iterate over the data of each record, which need not be an example."""
        for _, _, _, data in self._records():
            yield data

    def _records(self) -> Iterator[tuple[str, int, int, bytes]]:
        for source in sources_of(self._inputs):
            for item in source.list(()):
                with OpenShard(source, item) as shard:
                    reader = RecordReader(shard.content, shard.name, check_data=self._check_data)
                    for offset, data in reader:
                        yield shard.name, reader.count, offset, data


class TFRecordWriter:
    """Writes a TFRecord file, which appears at its path complete and flushed to disk, or not at all.

    Use it in a `with` statement: if the block raises, no file appears at the path. A writer that is never closed
    creates no file either, and emits a RuntimeWarning. An open file receives records in blocks, and the last ones at
    `flush` or at the end; it is not closed.

    Args:
        out: a path, or a file open for writing bytes.
        overwrite: whether an existing file is replaced.

    Attributes:
        records: number of records written.
        size: number of bytes written, framing included.

    Raises:
        OutputExistsError: when the path exists.
        SinkError: when the file cannot be written.

    >>> with TFRecordWriter("one.record") as writer:
    ...     writer.write(TFExample({"text": b"hello"}))
    """

    def __init__(self, out: object, *, overwrite: bool = False) -> None:
        check_output(out)
        if isinstance(out, (str, os.PathLike)) and PathTemplate.parse(os.fspath(out)).fields:
            raise UsageError(
                f"{os.fspath(out)!r} is a template for several files, but TFRecordWriter writes one",
                hint="use Pipeline.to_tf_record or tar2tf convert to write shards",
            )
        if isinstance(out, (str, os.PathLike)) and named_compression(os.fspath(out)) not in (None, "none"):
            raise UsageError(
                f"{os.fspath(out)!r} is the name of a compressed file, but TFRecordWriter compresses nothing",
                hint="use Pipeline.to_tf_record or tar2tf convert, or another name",
            )
        self.records: int = 0
        self.size: int = 0
        self._overwrite = overwrite
        self._encoder = Encoder()
        self._file: WholeFile | None = None
        self._out: WholeFile | RecordStream | None = None
        if isinstance(out, (str, os.PathLike)):
            self._name = os.fspath(out)
            self._out = self._file = WholeFile(prepared(self._name, overwrite=overwrite))
        else:
            self._out = RecordStream(out, name_of(out, "<stream>"))

    def write(self, example: TFExample | Mapping[str, bytes | Feature] | bytes | ExampleMessage) -> None:
        """Write an example, which may be a tf.train.Example or already be serialised.

        Raises:
            SampleError: when it exceeds protobuf's limit of 2 GiB.
        """
        if hasattr(example, "SerializeToString"):
            example = example.SerializeToString()
        if isinstance(example, (bytes, bytearray)):
            parts: list[MessagePart] = [bytes(example)]
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

    def flush(self) -> None:
        """Write all records so far to the file, for readers of an open file that is still being written.

        Raises:
            SinkError: when the file cannot be written.
            ValueError: when the writer is closed.
        """
        if self._out is None:
            raise ValueError("the writer is closed")
        self._out.flush()

    def close(self) -> None:
        """Flush the file to disk and move it to its path."""
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
        """Discard the records written; no file remains at the path."""
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


def check_output(out: object) -> None:
    """Check that an object can be an output.

    Raises:
        UsageError: when the object is neither a path nor a file open for writing bytes.
    """
    if isinstance(out, TextIOBase):
        raise UsageError(f"{name_of(out, 'the output')} is open as text", hint="open it with mode 'wb'")
    if not isinstance(out, (str, os.PathLike)) and not callable(getattr(out, "write", None)):
        raise UsageError(f"{type(out).__name__} is not an output; give a path, or a file open for writing bytes")
