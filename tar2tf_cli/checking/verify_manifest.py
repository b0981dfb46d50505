"""Verifies what a manifest lists: its shards, their counts, digests and features, and that there are no others."""

from __future__ import annotations

import re
from collections import Counter

from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.checking.verify_bucket import add_gaps
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.conversion.manifest import Document, Manifest, ShardEntry, contradictions, expected
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError, count
from tar2tf_cli.spec.output_path import PathTemplate
from tar2tf_cli.stores import ObjectInfo, Source


def verify_manifest(run: CheckRun, document: Document) -> Report:
    """Check everything that a manifest lists, and that there are no other shards."""
    manifest = document.manifest
    if not manifest.shards:
        raise SourceError("the manifest lists no shards, so there is nothing to verify", shard=document.path)
    source, template = document.folder, manifest.template
    nearby = _nearby(run, source, manifest, template)
    others = source.find([shard.path for shard in manifest.shards if shard.path not in nearby])
    found = [nearby.get(shard.path) or others.get(shard.path) for shard in manifest.shards]
    files = [(item, shard) for item, shard in zip(found, manifest.shards, strict=True) if item]
    schema = expected(manifest.features)
    required = frozenset(name for name in schema if manifest.features[name].get("count") == manifest.records)
    checked = iter(run.check(source, files, schema=schema, required=required))
    there = zip(found, manifest.shards, strict=True)
    report = Report([next(checked) if item else _missing(source, shard) for item, shard in there])
    if template:
        _look_around(source, manifest, template, nearby, report)
    whole = _check_sums(document.path, manifest, report, fast=run.fast)
    if whole.faults:
        report.files.append(whole)
    return report


def _nearby(run: CheckRun, source: Source, manifest: Manifest, template: PathTemplate | None) -> dict[str, ObjectInfo]:
    """The files that may be a manifest's shards, by name; empty if they cannot be listed."""
    prefix = re.split("[<{]", template.text)[0] if template else ""
    if re.search(r"[*?\[\]{}%@\\]", prefix):  # it would not match itself literally
        prefix = ""
    deep = any("/" in shard.path for shard in manifest.shards)
    glob = f"{prefix[: prefix.rfind('/') + 1]}**/*" if deep else f"{prefix}*"
    try:
        return {item.name: item for item in source.list((glob,))}
    except (NothingFoundError, UsageError):  # only hidden files, or a store that cannot list
        return {}
    except SourceError as error:
        run.events.note(f"note: cannot check for shards that the manifest does not list: {error}")
        return {}


def _missing(source: Source, shard: ShardEntry) -> FileReport:
    fault = Fault("missing", f"the file is missing; the manifest lists it with {count(shard.records, 'record')}")
    return FileReport(source.locate(shard.path), "tfrecord", faults=[fault], missing=True)


def _look_around(
    source: Source, manifest: Manifest, template: PathTemplate, nearby: dict[str, ObjectInfo], report: Report
) -> None:
    """Add a fault for each gap in the manifest's list, and for each existing shard that is not in it."""
    names = [shard.path for shard in manifest.shards]
    regex, listed = template.regex(), set(names)
    if "number" in template.fields and "input" not in template.fields:  # with <input>, the numbers come from the inputs
        add_gaps(source, names, report)
    for name, item in nearby.items():
        if name not in listed and regex.match(name):
            fault = Fault("stray", "the manifest does not list this shard")
            report.files.append(FileReport(source.locate(name), None, bytes=item.size or 0, faults=[fault]))


def _check_sums(path: str, manifest: Manifest, report: Report, *, fast: bool) -> FileReport:
    """Check the manifest itself: its totals against those of its shards, and its counts of features."""
    whole = FileReport(path, "manifest")
    for name, number in manifest.totals.items():
        claimed = manifest.claimed.get(name, number)
        if claimed != number:
            of = "it lists" if name == "inputs" else "its shards have"
            whole.add(Fault("count", f"the manifest's total of {name} is {claimed}, but {of} {number}"))
    for contradiction in contradictions(manifest.features):
        whole.add(Fault("schema", contradiction))
    if report.ok and not fast:
        counts = sum((found.features for found in report.files), Counter[str]())
        for name, described in manifest.features.items():
            claimed = described.get("count", counts[name])
            if claimed != counts[name]:
                message = f"{counts[name]} examples have the feature {name!r}, but {claimed} in the manifest"
                whole.add(Fault("count", message))
    return whole
