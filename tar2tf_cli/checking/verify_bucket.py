"""Verifies a bucket: every file whose content is a shard, and gaps in the numbering."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.checking.gaps import Gap, find_gaps
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.inputs.open_shard import list_files, nothing_found
from tar2tf_cli.spec.templates import TAR_SUFFIXES, is_glob, is_numbered
from tar2tf_cli.stores import Source

__all__ = ["add_gaps", "verify_bucket"]

_TFRECORD_NAME: Final = re.compile(r"\.(tf)?records?(-\d+-of-\d+)?(\.(gz|zlib|zst|bz2|xz))?$")
_DIGITS: Final = re.compile(r"\d+")


def verify_bucket(run: CheckRun, source: Source, templates: Sequence[str], *, by_folder: bool = False) -> Report:
    """Check the shards that match the templates or, without any, every file whose content is a shard.

    With `by_folder`, the shards of each folder are a separate series, and are missing only if not on disk.
    """
    inputs = list_files(source, templates)
    report = Report(run.check(source, [(item, None) for item in inputs]))
    names = _skip_others(source, templates, [item.name for item in inputs], report)
    if not report.files:
        raise nothing_found(source.bucket)
    if not templates or any(is_glob(name) or is_numbered(name) for name in templates):
        add_gaps(source, names, report, by_folder=by_folder)
    return report


def _skip_others(source: Source, templates: Sequence[str], names: list[str], report: Report) -> list[str]:
    """Skip files that are not shards and were not named by the user; returns the names of the others.

    A file with the name of a shard, or a name like those of the other shards, is kept even if its content is not that
    of a shard: it is reported as a fault.
    """
    shapes = {_shape(name) for name, found in zip(names, report.files, strict=True) if _is_shard(found)}
    kept = []
    for name, found in zip(names, report.files, strict=True):
        asked_for = source.asked_for(name, templates) and (name in templates or not _is_marker(name))
        if found.format == "manifest" and not asked_for:
            report.manifest = report.manifest or found.path
        elif asked_for or _is_shard(found) or _shape(name) in shapes or _has_name_of_shard(name):
            kept.append((name, found))
        else:
            report.skipped.append(name)
    report.files = [found for _, found in kept]
    return [name for name, _ in kept]


def _is_shard(found: FileReport) -> bool:
    return found.format in ("tar", "tfrecord")


def _is_marker(name: str) -> bool:
    """Whether a file is one that Hadoop and Spark write beside shards, such as _SUCCESS."""
    return os.path.basename(name).startswith("_")


def _has_name_of_shard(name: str) -> bool:
    return name.lower().endswith(TAR_SUFFIXES) or bool(_TFRECORD_NAME.search(name.lower()))


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def add_gaps(source: Source, names: list[str], report: Report, *, by_folder: bool = False) -> None:
    """Insert a fault for every gap in the numbering, in the place of the missing shards; an empty one is there."""
    known = [(name, _shape(name), found.format) for name, found in zip(names, report.files, strict=False)]
    shapes = {shape for _, shape, format in known if format == "tfrecord"}
    records = [name for name, shape, format in known if shape in shapes and format in ("tfrecord", None)]
    for gap in _gaps_by_folder(records) if by_folder else find_gaps(records):
        place = names.index(gap.before) if gap.before else len(names)
        names.insert(place, gap.first)
        report.files.insert(place, _gap(source, gap))


def _gaps_by_folder(paths: list[str]) -> Iterator[Gap]:
    """The gaps in each folder whose first shard does not exist on disk."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    return (gap for alike in folders.values() for gap in find_gaps(alike) if not os.path.exists(gap.first))


def _gap(source: Source, gap: Gap) -> FileReport:
    message = "this shard is missing from the numbering"
    if gap.missing > 1:
        message = f"{gap.missing:,} shards, up to {gap.last}, are missing from the numbering"
    return FileReport(source.locate(gap.first), "tfrecord", faults=[Fault("gap", message)], missing=True)
