"""Check of shards against a list of SHA-256 checksums, such as `sha256sum * > SHA256SUMS` writes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.checking.faults import Fault, FileReport, Report, unreadable
from tar2tf_cli.checking.files import FileContext, FileTask
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.errors import SourceError, few
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.spec.urls import is_remote

Sums: TypeAlias = Mapping[str, str]
"""The SHA-256 of each file in hexadecimal, by its name."""

_LINE: Final = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)")
_BSD_LINE: Final = re.compile(r"SHA256 \((.+)\) = ([0-9a-fA-F]{64})")
_ESCAPES: Final = {r"\\": "\\", r"\n": "\n", r"\r": "\r"}
_AT_ONCE: Final = 1 << 20
_MOST: Final = 64 << 20
"""Bytes of the largest file that may be a list."""


def read_sums(path: str, fetch: Callable[[str], bytes | None]) -> Sums | None:
    """Read a list of checksums; None if the path is something else, such as a bucket.

    Args:
        path: path or URL of the list.
        fetch: returns the bytes at a URL.
    """
    if is_remote(path):
        named = re.search(r"(?i)sha256(sums?)?(\.txt)?$", path)
        data = fetch(path) if named else None
    elif os.path.isfile(path) and os.path.getsize(path) <= _MOST:
        with open(path, "rb") as file:
            data = file.read()
    else:
        data = None
    return parse_sums(data.decode("utf-8", "surrogateescape")) if data else None


def parse_sums(text: str) -> Sums | None:
    """Parse a list of checksums in the formats of GNU, BSD and OpenSSL; None if any line has another format."""
    sums = {}
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if match := _LINE.fullmatch(line):
            name = re.sub(r"\\[\\nr]", lambda escape: _ESCAPES[escape[0]], match[3]) if match[1] else match[3]
            sums[name.removeprefix("./")] = match[2].lower()
        elif match := _BSD_LINE.fullmatch(line):
            sums[match[1].removeprefix("./")] = match[2].lower()
        elif line.strip() and not line.startswith("#"):
            return None
    return sums or None


def check_sums(run: CheckRun, source: Source, sums: Sums, report: Report) -> None:
    """Compare each listed file's stored bytes with its checksum, and add faults to the report.

    A listed file that does not exist is a fault; existing shards that are not listed are named in a note.

    Args:
        run: the run of checks.
        source: the folder to which the names in the list are relative.
        sums: the list.
        report: the reports of the shards, to which reports of other listed files are added.
    """
    found = source.find([*sums])
    files = {file.path: file for file in report.files}
    tasks = [FileTask(found[name], _sum_of) for name in sums if name in found]
    results = run.read(tasks, FileContext(source, TarRules()))
    actual = {task.item.name: result for task, result in zip(tasks, results, strict=True)}
    for name, expected in sums.items():
        path = source.locate(name)
        file = files.get(path)
        if file is None:
            file = FileReport(path, bytes=found[name].size or 0 if name in found else 0, missing=name not in found)
            report.files.append(file)
        if name not in found:
            file.add(Fault("missing", "the file is in the list of checksums, but does not exist"))
        elif isinstance(actual[name], SourceError):
            file.add(unreadable(actual[name]))
        elif actual[name] != expected:
            file.add(Fault("digest", f"the file's SHA-256 is {actual[name]}, but {expected} in the list of checksums"))
    listed = {source.locate(name) for name in sums}
    if others := [os.path.basename(path) for path in files if path not in listed]:
        run.events.note(f"note: the list of checksums lacks {few(others)}")


def _sum_of(item: ObjectInfo, context: FileContext) -> str | SourceError:
    """Return the SHA-256 of a file's stored bytes, or the error if the file cannot be read."""
    made = hashlib.sha256()
    try:
        with closing(context.source.open(item)) as stream:
            while data := stream.read(_AT_ONCE):
                made.update(data)
                if context.on_bytes:
                    context.on_bytes(len(data))
    except SourceError as error:
        return error
    return made.hexdigest()
