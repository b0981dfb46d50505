"""Targets that receive the finished shards of a conversion: the protocol, and targets that write no manifest."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.errors import OutputExistsError, SinkError, UsageError, write_errors, write_failed
from tar2tf_cli.formats.example import begins_record
from tar2tf_cli.formats.files import RecordStream, crc32c_of_file, make_folders, sync, write_whole
from tar2tf_cli.inputs.manifest import Manifest, ShardEntry, digest

if TYPE_CHECKING:
    from typing_extensions import Self

    from tar2tf_cli.api.store import Store
    from tar2tf_cli.conversion.output_state import EarlierConversion
    from tar2tf_cli.conversion.spool import InputUnits
    from tar2tf_cli.inputs.report import InputReport


MakeDocuments: TypeAlias = "Callable[[Sequence[ShardEntry]], Mapping[str, bytes]]"
"""A function from the written shards to paths and contents of the files to write next to the manifest."""


class Target(Protocol):
    """Receives the shards of a conversion; a context manager. The defaults suit a target that writes no manifest.

    Attributes:
        up_to_date: the manifest, if an earlier run finished the conversion and there is nothing to do.
        earlier: the earlier conversion that is brought up to date; None to convert everything.
        done: bytes of the complete shards of an interrupted run.
    """

    earlier: EarlierConversion | None = None
    up_to_date: Manifest | None = None
    done: int = 0

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    @property
    def folder(self) -> str:
        """The working folder, created on entering."""

    @property
    def manifest(self) -> str | None:
        """Path or URL of the manifest, as shown to users; None if none is written."""
        return None

    @property
    def reads_shards(self) -> bool:
        """Whether finished shards are read again, for example to upload them."""
        return False

    @property
    def store(self) -> Store | None:
        """The bucket in which a cluster may store shards under their final names; None if only this process may."""
        return None

    def final_names(self, stems: Sequence[str]) -> tuple[list[str], frozenset[str]]:
        """Prepare for shards that a cluster stores, one for each stem; return their names, and those that may be
        replaced.
        """
        return [], frozenset()

    @property
    def journal(self) -> Sequence[str]:
        """Local files that must be flushed to disk before anything is published."""
        return ()

    def unsynced(self, shard: PlannedShard) -> list[str]:
        """Local files that must be flushed to disk before a shard may be sealed."""

    def add_input(self, report: InputReport, part: InputUnits) -> None:
        """Record the sizes of the next input's records, in input order."""
        return

    def completed(self, shard: PlannedShard) -> ShardReport | None:
        """Return the report of a shard that an interrupted run completed; otherwise None."""
        return None

    def seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Accept a complete shard."""

    def wait(self) -> bool:
        """Wait until accepted shards no longer need the local disk; return whether there were any."""
        return False

    def finish(self, manifest: Manifest, documents: MakeDocuments) -> list[ShardEntry]:
        """Publish the remaining shards; return all shards with their final paths, as in the manifest."""


class _WithoutManifest(Target):
    """A target that keeps shards in a temporary folder until they are published, and cannot be resumed."""

    folder = ""

    def __init__(self) -> None:
        self._reports: dict[int, ShardReport] = {}

    def __enter__(self) -> Self:
        folder = os.path.join(self._place(), f".tar2tf-{os.urandom(6).hex()}")
        with write_errors(folder):
            os.mkdir(folder, 0o700)
        self.folder = folder
        return self

    def __exit__(self, *exception: object) -> None:
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self) -> str:
        """Return the folder in which the working folder is created."""
        import tempfile

        try:
            return tempfile.gettempdir()
        except OSError as error:
            hint = "set TMPDIR to a folder with free space"
            raise SinkError(f"there is no temporary folder: {error.strerror}", hint=hint) from None

    def unsynced(self, shard: PlannedShard) -> list[str]:
        """Return the path of the shard."""
        return [shard.part(self.folder)]

    def seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Accept a complete shard."""
        self._reports[shard.number] = report


class StreamTarget(_WithoutManifest):
    """Writes all shards to one stream in order, each as soon as it is complete; the stream is flushed but not closed.

    Args:
        out: a file open for writing bytes; None for standard output.
        name: the name of the stream in errors.
        end: bytes to write after the last shard.
    """

    reads_shards = True

    def __init__(self, out: Any = None, name: str = "standard output", end: bytes = b"") -> None:
        super().__init__()
        self._out = out
        self._name = name
        self._end = end
        self._next = 0

    def __enter__(self) -> Self:
        if self._out is None:
            if sys.__stdout__ is None:
                raise SinkError("standard output is closed")
            if os.isatty(1):
                hint = "pipe or redirect them, or name files, such as -o 'train-<>.record'"
                raise UsageError("records are bytes, which a terminal cannot show", hint=hint)
            self._out = open(1, "wb", buffering=0, closefd=False)
        return super().__enter__()

    def unsynced(self, shard: PlannedShard) -> list[str]:
        """Return nothing, as no file needs to be flushed."""
        return []

    def seal(self, shard: PlannedShard, report: ShardReport) -> None:
        """Write a shard to the stream once all earlier shards have been written."""
        super().seal(shard, report)
        while self._next in self._reports:
            path = PlannedShard("", self._next).part(self.folder)
            with open(path, "rb", buffering=0) as file:
                self._write(iter(partial(file.read, RecordStream.BUFFER), b""))
            os.unlink(path)
            self._next += 1

    def finish(self, manifest: Manifest, documents: MakeDocuments) -> list[ShardEntry]:
        """Write the end after the shards, which have all been written."""
        if self._end:
            self._write(iter([self._end]))
        return []

    def _write(self, parts: Iterator[bytes]) -> None:
        stream = RecordStream(self._out, self._name)
        stream.write(parts, 0)
        stream.flush()


class DeviceTarget(StreamTarget):
    """Writes all shards to a device or pipe, which is opened by its path and never replaced.

    Args:
        path: the path; opening a pipe waits for a reader.
        end: bytes to write after the last shard.
    """

    def __init__(self, path: str, end: bytes = b"") -> None:
        super().__init__(None, path, end)

    def __enter__(self) -> Self:
        with write_errors(self._name):
            self._out = open(self._name, "ab", buffering=0)
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._out.close()


class FilesTarget(_WithoutManifest):
    """Writes shards to files with given paths, which appear once all shards are complete and flushed to disk.

    An existing file with exactly the bytes of its shard is kept, as when a run is repeated.

    Args:
        names: the files' paths in order, one for each shard.
        overwrite: whether existing files are replaced.
        listed: whether a manifest is written, named after the first file, in the common folder of all files.

    Raises:
        UsageError: when there are fewer paths than shards, or a path is a folder or device.
        OutputExistsError: when a file exists; on entering, if it is the first and cannot be an equal shard.
    """

    manifest: str | None = None

    def __init__(self, names: Iterator[str], *, overwrite: bool = False, listed: bool = False) -> None:
        super().__init__()
        self._names = names
        self._overwrite = overwrite
        self._listed = listed

    def _place(self) -> str:
        """Return the folder of the first file, so that shards are renamed and not copied."""
        first = next(self._names, None)
        if first is None:
            raise UsageError("no paths were given for the shards", hint="give one for each")
        self._names = chain([first], self._names)
        return os.path.dirname(prepared(first, overwrite=self._overwrite or _has_records(first)))

    def finish(self, manifest: Manifest, documents: MakeDocuments) -> list[ShardEntry]:
        """Give each shard its final path."""
        reports = [self._reports[number] for number in range(len(self._reports))]
        shards = dict(zip(islice(self._names, len(reports)), reports, strict=False))
        if len(shards) < len(reports):
            raise UsageError(f"{len(shards)} paths were given for {len(reports)} shards", hint="give one for each")
        same = {name for name, report in shards.items() if _has_bytes(name, report)}
        paths = {name: prepared(name, overwrite=self._overwrite or name in same) for name in shards}
        for number, (name, path) in enumerate(paths.items()):
            if name not in same:
                with write_errors(name):
                    os.replace(PlannedShard("", number).part(self.folder), path)
        for folder in {os.path.dirname(path) for path in paths.values()}:
            sync(folder)
        entries = [ShardEntry(name, report.records, report.size, digest(report.crc)) for name, report in shards.items()]
        if self._listed and entries:
            self.manifest = _list(manifest, entries)
        return entries


def _list(manifest: Manifest, entries: Sequence[ShardEntry]) -> str:
    """Write the manifest of files with arbitrary names; return its path."""
    base = os.path.basename(entries[0].path)
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(entry.path)) for entry in entries])
    manifest.spec["output"] = {"path": base}  # without a limit, as these names are not a numbered series
    manifest.shards = [entry._replace(path=os.path.relpath(entry.path, folder)) for entry in entries]
    where = os.path.join(folder, f"_{base}-manifest.json")
    write_whole(where, [manifest.to_bytes()])
    return where


def _has_records(name: str) -> bool:
    """Whether a file begins with a record."""
    if not os.path.isfile(name):  # opening a pipe would wait for its writer
        return False
    try:
        with open(name, "rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return begins_record(head)


def _has_bytes(name: str, report: ShardReport) -> bool:
    """Whether a file has exactly the bytes of a shard."""
    try:
        return os.path.getsize(name) == report.size and crc32c_of_file(name) == report.crc
    except OSError:
        return False


def prepared(name: str, *, overwrite: bool) -> str:
    """Return the real path of a file to write, creating its folder if necessary.

    Raises:
        UsageError: when the path is a folder or a device.
        OutputExistsError: when the file exists and may not be replaced.
        SinkError: when the folder cannot be created.
    """
    path = os.path.realpath(name)
    try:
        make_folders(os.path.dirname(path))
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return path
    except OSError as error:
        raise write_failed(name, error) from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"the output path {name!r} is a directory", hint="name a file, such as 'out/train.record'")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{name!r} is not a regular file", hint="open it, and pass the open file")
    if not overwrite:
        raise OutputExistsError("already exists", shard=name, hint="choose another path or overwrite=True")
    return path
