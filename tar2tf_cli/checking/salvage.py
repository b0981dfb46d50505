"""Salvages damaged TFRecords: the good records of every file, in order, in one new file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

from tar2tf_cli.checking.faults import FileReport, Salvaged
from tar2tf_cli.errors import OutputExistsError, UsageError, read_failed, write_errors
from tar2tf_cli.formats.files import RecordFile, WholeFile
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.spec.urls import is_remote

_BLOCK: Final = 1 << 20


class SalvagePart(RecordFile):
    """The good records of one file, in a hidden file beside the final one."""

    def keep(self, data: bytes) -> None:
        """Append a record."""
        self.write(frame([data], len(data)), len(data) + FRAMING)


class Salvage:
    """The good records of several files, which workers write to parts, and then to one file, which appears when whole.

    Args:
        path: the new file.

    Raises:
        UsageError: when the path is not that of a new file on this machine.
    """

    def __init__(self, path: str) -> None:
        if is_remote(path):
            raise UsageError("--salvage writes a local file", shard=path, hint="copy it to the bucket afterwards")
        if os.path.lexists(path):
            raise OutputExistsError("exists already; --salvage writes a new file", shard=path, hint="name another file")
        folder, base = os.path.split(path)
        if not base or (folder and not os.path.isdir(folder)):
            raise UsageError("is not a file in an existing folder", shard=path, hint="create the folder first")
        self.path = path
        with write_errors(path):
            self._folder = mkdtemp(prefix=f".{base}.", dir=folder or ".")
        self._parts: list[str] = []

    def next_part(self) -> Callable[[], SalvagePart]:
        """Return what opens the part for the next file, in the worker that checks it."""
        self._parts.append(os.path.join(self._folder, str(len(self._parts))))
        return partial(SalvagePart, self.path, self._parts[-1])

    def finish(self, reports: Sequence[FileReport]) -> Salvaged:
        """Join the parts in order, and delete them; there is no new file if there are only tars.

        Raises:
            SinkError: when the file cannot be written.
        """
        kept, tars = 0, sum(report.format == "tar" for report in reports)
        if tars < len(reports):
            with WholeFile(self.path) as whole:
                for part in filter(os.path.exists, self._parts):
                    kept += _append(whole, part)
        return Salvaged(
            self.path,
            sum(report.good.records for report in reports if report.format == "tfrecord"),
            kept,
            lost_records=sum(report.bad.records for report in reports),
            lost_bytes=sum(report.bad.bytes for report in reports),
            cut=sum(report.cut for report in reports if report.format != "tar"),
            tars=tars,
        )

    def close(self) -> None:
        """Delete parts that are left."""
        rmtree(self._folder, ignore_errors=True)


def _append(whole: WholeFile, part: str) -> int:
    """Append a part and delete it; returns its size."""
    size = 0
    try:
        with open(part, "rb", buffering=0) as file:
            while data := file.read(_BLOCK):
                whole.write([data], len(data))
                size += len(data)
    except OSError as error:
        raise read_failed(part, error) from None
    os.unlink(part)
    return size
