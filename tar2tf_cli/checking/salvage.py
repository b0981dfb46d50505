"""Copying of the good records of damaged TFRecords to a new file, for `verify --salvage`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tar2tf_cli.checking.faults import FileReport, Salvaged
from tar2tf_cli.errors import OutputExistsError, UsageError, read_failed, write_errors
from tar2tf_cli.formats.example import FRAMING, frame
from tar2tf_cli.formats.files import RecordFile, WholeFile
from tar2tf_cli.plugins import traits_of
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.structs import NamedTuple

_BLOCK: Final = 1 << 20


class SalvageFile(RecordFile):
    """The good records of one file, in a hidden file until all such files are joined."""

    def keep(self, data: bytes) -> None:
        """Append a record."""
        self.write(frame([data], len(data)), len(data) + FRAMING)

    def keep_framed(self, records: bytes) -> None:
        """Append framed records."""
        self.write([records], len(records))


class SalvagePart(NamedTuple):
    """The paths of a file for the good records of one file, which a worker opens.

    Attributes:
        path: path of the final file with the good records of all files, for errors.
        hidden: path of the file while records are written.
    """

    path: str
    hidden: str

    def open(self) -> SalvageFile:
        """Create the file."""
        return SalvageFile(self.path, self.hidden)


class Salvage:
    """Collector of the good records of several files: workers write one file each, which are joined at the end.

    Args:
        path: the new file, which appears once it is complete.

    Raises:
        UsageError: when the path exists, or is not on this machine.
    """

    def __init__(self, path: str) -> None:
        if is_remote(path):
            raise UsageError("--salvage writes a local file", shard=path, hint="copy it to the bucket afterwards")
        if os.path.lexists(path):
            raise OutputExistsError("already exists; --salvage writes a new file", shard=path, hint="name another file")
        folder, base = os.path.split(path)
        if not base or (folder and not os.path.isdir(folder)):
            raise UsageError("is not a file in an existing folder", shard=path, hint="create the folder first")
        self.path = path
        from tempfile import mkdtemp  # slow to import, and only for --salvage

        with write_errors(path):
            self._folder = mkdtemp(prefix=f".{base}.", dir=folder or ".")
        self._parts: list[SalvagePart] = []

    def next_part(self) -> SalvagePart:
        """Return the paths for the good records of the next file."""
        self._parts.append(SalvagePart(self.path, os.path.join(self._folder, str(len(self._parts)))))
        return self._parts[-1]

    def finish(self, reports: Sequence[FileReport]) -> Salvaged:
        """Join and delete the files; creates no new file if all inputs are tars.

        Raises:
            SinkError: when the file cannot be written.
        """
        size, tars = 0, sum(traits_of(report.format).holds == "sample" for report in reports)
        if tars < len(reports):
            with WholeFile(self.path) as joined:
                for part in self._parts:
                    size += _append(joined, part.hidden) if os.path.exists(part.hidden) else 0
        records = [report for report in reports if traits_of(report.format).carries_examples]
        return Salvaged(
            self.path,
            sum(report.good.records for report in records),
            size,
            lost_records=sum(report.bad.records for report in reports),
            lost_bytes=sum(report.bad.bytes for report in reports),
            cut=sum(report.cut for report in reports if traits_of(report.format).holds != "sample"),
            tars=tars,
            intact=sum(1 for report in records if not report.faults),
        )

    def close(self) -> None:
        """Delete the remaining files."""
        from shutil import rmtree

        rmtree(self._folder, ignore_errors=True)


def _append(joined: WholeFile, path: str) -> int:
    """Append a file and delete it; return its size."""
    size = 0
    try:
        with open(path, "rb", buffering=0) as file:
            while data := file.read(_BLOCK):
                joined.write([data], len(data))
                size += len(data)
    except OSError as error:
        raise read_failed(path, error) from None
    os.unlink(path)
    return size
