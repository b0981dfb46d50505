"""Verification of shards: those that manifests list, or all files that are shards; and gaps in the numbering."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.checking.faults import Expectations, Fault, FileReport, Messages, Report, unreadable
from tar2tf_cli.checking.files import CheckOptions, FileContext, FileTask, as_texts
from tar2tf_cli.checking.salvage import Salvage
from tar2tf_cli.checking.verify_file import CheckRun, Checks
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError, count
from tar2tf_cli.features.described import Expected, contradictions, expected
from tar2tf_cli.inputs.numbering import Gap, conflicting_totals, find_gaps
from tar2tf_cli.inputs.shard_set import ShardSet, lists_nothing, manifests_named, names_manifest, nothing_found
from tar2tf_cli.inputs.unfinished import Unfinished, unfinished_at
from tar2tf_cli.ops.rules import accepted, one_of, optional, text, whole_number
from tar2tf_cli.plugins import traits_of
from tar2tf_cli.spec.templates import PathTemplate, format_named
from tar2tf_cli.stores import read_with_folder

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.checking.against import Origin
    from tar2tf_cli.checking.checksum_list import Sums
    from tar2tf_cli.checking.subset import Subset
    from tar2tf_cli.inputs.manifest import Document, Manifest, ShardEntry
    from tar2tf_cli.spec.conversion import PathText


def verify(
    bucket: PathText,
    templates: PathText | Sequence[PathText] = (),
    *,
    paths: bool = False,
    fast: bool = False,
    decode: bool = False,
    salvage: PathText | None = None,
    against: PathText | None = None,
    allow_func: bool = False,
    messages: Messages | None = None,
    allow_empty: bool = False,
    keys: bool = False,
    subset: str | None = None,
    readers: str | None = None,
    hosts: int = 1,
    **options: Unpack[CheckOptions],
) -> Report:
    """Verify shards, or everything that a manifest lists.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, a URL of any of these, or a manifest by its path or URL.
        templates: names of shards in the bucket, by default every tar and TFRecord; or further manifests.
        paths: whether bucket and templates are files and folders if all of them exist.
        fast: check only the framing and the CRCs of lengths, not the CRCs of data and the examples.
        decode: also decode images and arrays.
        salvage: path of a new file for the good records of all TFRecords.
        against: a list of SHA-256 sums, such as `SHA256SUMS`, with which the bytes of the listed files are compared; or
            the bucket that was converted. Each of its samples is converted again, and must be in the output once, with
            the same bytes. `templates` that are not manifests name shards of this bucket, whose samples must be in the
            outputs of all manifests together; by default, each output must contain the samples of its own inputs.
        allow_func: whether `against` may run functions that a manifest names.
        messages: "example" if each record must be a tf.train.Example, "any" if it may be any message. By default, the
            manifest decides; without one, "any" for each file in which no record is an example.
        keys: collect the keys of samples with and without faults, which `Report.keys` returns.
        subset: read only a part of the shards: `"3/30"`, the third of thirty parts, or `"5%"` or `"10GB"`, another part
            each day. Only existence and size of the other shards are checked.
        readers: other readers, such as `"hf,dali"`: everything that makes them fail or misread shards is a fault, too.
            The readers are dali, energon, grain, hf (Hugging Face datasets), ray, tfds, webdataset and wids.
        hosts: number of hosts that will divide the shards among them, for `readers`.
        allow_empty: whether an empty file is a TFRecord without records, and not a fault.
        options: options as for `inspect`: `rules`, `workers`, `endpoint`, `retry_for`, `no_sign_request` and `events`.

    Raises:
        SourceError: when there is nothing to check. Damage and unreadable files are faults, not errors.
        UsageError: for options that contradict each other, and an existing file at `salvage`.

    >>> verify("out/_train-manifest.json", against="shards", workers=1).ok
    True
    """
    if fast and (decode or salvage or against or keys):
        raise UsageError("--fast reads no data: leave out --decode, --salvage, --against and lists of keys")
    bucket, templates = as_texts(bucket, templates)
    accepted(optional(one_of("example", "any")), messages, "messages")
    if subset and (salvage or against):
        raise UsageError("--subset reads a part of the shards: leave out --salvage and --against")
    names = _reader_names(accepted(text, readers, "readers")) if readers else []
    if accepted(whole_number(1), hosts, "hosts") > 1 and not names:
        raise UsageError("--hosts is for --for, which says how the shards are read", hint="add --for webdataset")
    part = _parse_subset(accepted(text, subset, "subset")) if subset else None
    checks = Checks(fast, decode, messages, allow_empty, allow_func, keys, part)
    with closing(Salvage(os.fspath(salvage))) if salvage else nullcontext() as good:
        run = CheckRun(checks, good, **options)
        if against and (sums := _sums_at(os.fspath(against), run)):
            report = _verify_sums(run, bucket, templates, sums, paths=paths)
        elif against:
            report = _verify_against(run, bucket, templates, os.fspath(against))
        else:
            report = _verify(run, bucket, templates, paths=paths)
        if names:
            _check_readers(run, run.shards(bucket, templates, paths=paths), names, report, hosts)
        if good:
            report.salvaged = good.finish(report.files)
    return report


def _parse_subset(subset: str) -> Subset:
    from tar2tf_cli.checking.subset import Subset

    return Subset.parse(subset)


def _sums_at(path: str, run: CheckRun) -> Sums | None:
    """Read a list of checksums; None if the path is a bucket."""
    from tar2tf_cli.checking.checksum_list import read_sums

    def fetch(url: str) -> bytes | None:
        found = read_with_folder(url, **run.connection)
        return found[0] if found else None

    return read_sums(path, fetch)


def _verify_sums(run: CheckRun, bucket: str, templates: Sequence[str], sums: Sums, *, paths: bool) -> Report:
    """Verify shards as usual, and also compare the bytes of every listed file with its checksum."""
    from tar2tf_cli.checking.checksum_list import check_sums
    from tar2tf_cli.inputs.manifest import read_document

    report = _verify(run, bucket, templates, paths=paths)
    manifests = manifests_named(bucket, templates, run.connection)
    source = read_document(manifests[0], **run.connection).folder if manifests else run.shards(bucket, templates).source
    check_sums(run, source, sums, report)
    return report


def _reader_names(readers: str) -> list[str]:
    from tar2tf_cli.checking.readers import parse_readers  # only for `readers`

    return parse_readers(readers)


def _check_readers(run: CheckRun, shards: ShardSet, readers: Sequence[str], report: Report, hosts: int) -> None:
    """Add a fault for each reason why one of the readers would fail or misread shards."""
    from tar2tf_cli.checking.readers import ShardsToRead, names_files, reader_faults, shard_traits

    tasks = [FileTask(item, shard_traits) for item in shards.items]
    traits = run.read(tasks, FileContext(shards.source, run.rules))
    paths = [shards.source.locate(item.name) for item in shards.items]
    left_out = shards.left_out
    beside = [*left_out.others, *left_out.manifests, *left_out.tfds] if shards.listed else []
    indexes = [f"{item.name}.idx" for item in shards.items] if shards.listed and "ray" in readers else []
    found = shards.source.find(["README.md", "dataset_info.json", "features.json", *indexes])
    others = [*beside, *(name for name in indexes if name in found)]
    described = {"dataset_info.json", "features.json"} <= found.keys()
    has_card = "README.md" in found and names_files(shards.source, found["README.md"])
    files, by_path = {file.path: file for file in report.files}, dict(zip(paths, traits, strict=True))
    splits = {shards.source.locate(name): split for name, split in shards.splits.items()}
    read = ShardsToRead(by_path, others, described, has_card, splits, hosts)
    for path, fault in reader_faults(readers, read):
        if path not in files:
            files[path] = FileReport(path)
            report.files.append(files[path])
        files[path].add(fault)


def _verify_against(run: CheckRun, bucket: str, templates: Sequence[str], against: str) -> Report:
    manifests = manifests_named(bucket, [name for name in templates if names_manifest(name)], run.connection)
    if not manifests and (beside := run.shards(bucket).folder_manifest()):
        manifests = [beside]
    if not manifests:
        hint = "name the manifest next to the shards, such as out/_train-manifest.json"
        raise UsageError("--against needs a manifest, which says how the samples were converted", hint=hint)
    shards = [name for name in templates if not names_manifest(name)]
    return _verify_documents(run, manifests, (against, shards))


def _verify(run: CheckRun, bucket: str, templates: Sequence[str], *, paths: bool) -> Report:
    if manifests := manifests_named(bucket, templates, run.connection):
        return _verify_documents(run, manifests)
    shards = run.shards(bucket, templates, paths=paths)
    for note in shards.notes(of_faults=False):
        run.events.note(note)
    return verify_shards(run, shards)


def _verify_documents(run: CheckRun, paths: Sequence[str], against: Origin | None = None) -> Report:
    """Verify what manifests list; if one of several is unusable, add a fault and verify the others."""
    from tar2tf_cli.inputs.manifest import read_document  # slow to import, and only for manifests

    files: list[FileReport] = []
    documents: list[Document] = []
    for path in paths:
        try:
            document = read_document(path, **run.connection)
            files += verify_manifest(run, document).files
            documents.append(document)
        except SourceError as error:
            if len(paths) == 1:
                raise
            files.append(FileReport(path, "manifest", faults=[unreadable(error)], missing=error.kind == "missing"))
    for document in documents:
        files += map(_unfinished, unfinished_at(document.path, document.folder))
    if against:
        from tar2tf_cli.checking.against import verify_against

        verify_against(run, documents, against, files)
    if shared := _converted_twice([document.manifest for document in documents]):
        run.events.note(f"note: {len(shared):,} of the inputs are in more than one manifest, first: {shared[0]}")
    return Report(files)


def _converted_twice(manifests: Sequence[Manifest]) -> list[str]:
    """Return inputs that several conversions of one kind have in common, such as overlapping parts."""
    seen: Counter[tuple[str, str]] = Counter()
    for manifest in manifests:
        kind = str({**manifest.spec, "input": manifest.spec.get("input", {}).get("bucket"), "output": None})
        seen.update((kind, item.name) for item in manifest.inputs)
    return [name for (_, name), count in seen.items() if count > 1]


# --- A bucket, and gaps in its numbering ---


def verify_shards(run: CheckRun, shards: ShardSet) -> Report:
    """Verify every shard of a set, and that none is missing from the numbering."""
    report = Report(run.check(shards.source, [(item, None) for item in shards.items]))
    report.skipped += shards.left_out.others
    report.manifest = next(map(shards.source.locate, shards.left_out.manifests), None)
    if not report.files:
        raise nothing_found(shards.bucket)
    _add_gaps(shards.source, [item.name for item in shards.items], report, shards.gaps)
    report.files += map(_unfinished, shards.unfinished)
    if names := conflicting_totals(item.name for item in shards.items):
        fault = Fault("totals", f"this name and {os.path.basename(names[0])} state different numbers of shards")
        report.files.append(FileReport(shards.source.locate(names[1]), faults=[fault]))
    for document in shards.documents:
        if faults := [*_not_converted(document.manifest)]:
            report.files.append(FileReport(document.path, "manifest", faults=faults))
    if shards.listed:
        report.files += _lacking(shards.documents, {file.path for file in report.files})
    return report


def _lacking(documents: Sequence[Document], known: Collection[str]) -> Iterator[FileReport]:
    """Yield a report for each shard that a manifest lists and its folder lacks, except known ones."""
    for document in documents:
        there = {item.name for item in document.there()}
        for shard in document.manifest.shards:
            if shard.path not in there and document.folder.locate(shard.path) not in known:
                yield _missing(document.folder, shard, document.manifest.format)


def _unfinished(one: Unfinished) -> FileReport:
    """Return a report on an unfinished conversion."""
    fault = Fault("unfinished", f"the conversion that writes {one.manifest} is not finished")
    return FileReport(one.path, faults=[fault])


def _add_gaps(source: Source, names: Sequence[str], report: Report, gaps: Sequence[Gap]) -> None:
    """Insert a fault for every gap in the numbering, at the position of the missing shards."""
    names = [*names]
    for gap in gaps:
        position = names.index(gap.before) if gap.before else len(names)
        names.insert(position, gap.first)
        report.files.insert(position, _gap_fault(source, gap))


def _gap_fault(source: Source, gap: Gap) -> FileReport:
    message = "this shard is missing from the numbering"
    if gap.missing > 1:
        message = f"{gap.missing:,} shards, up to {gap.last}, are missing from the numbering"
    named = format_named(gap.first.lower())
    return FileReport(
        source.locate(gap.first), named.name if named else None, faults=[Fault("gap", message)], missing=True
    )


# --- What a manifest lists ---


def verify_manifest(run: CheckRun, document: Document) -> Report:
    """Verify everything that a manifest lists, and that there are no other shards."""
    manifest = document.manifest
    if not manifest.is_complete:
        raise lists_nothing(document.path)
    source, template = document.folder, manifest.template
    nearby = _nearby(run, source, manifest, template)
    others = source.find([shard.path for shard in manifest.shards if shard.path not in nearby])
    objects = [nearby.get(shard.path) or others.get(shard.path) for shard in manifest.shards]
    files = [(item, shard) for item, shard in zip(objects, manifest.shards, strict=True) if item]
    schema = expected(manifest.features)
    required = frozenset(name for name in schema if manifest.features[name].get("count") == manifest.records)
    schema |= dict.fromkeys(manifest.undescribed.get("features", ()), Expected())
    rules = run.rules._replace(key_split=manifest.spec.get("input", {}).get("key_split", run.rules.key_split))
    messages: Messages | None = "any" if "records" in manifest.undescribed else None
    expectations = Expectations(schema, required, messages, manifest.format, _class_numbers(manifest))
    checked = iter(run.check(source, files, expectations, rules))
    there = zip(objects, manifest.shards, strict=True)
    report = Report([next(checked) if item else _missing(source, shard, manifest.format) for item, shard in there])
    if template:
        _find_unlisted(source, manifest, template, nearby, report)
    whole = _check_sums(document.path, manifest, report, fast=run.checks.fast)
    if whole.faults:
        report.files.append(whole)
    return report


def _class_numbers(manifest: Manifest) -> dict[str, Set[int]]:
    """Return the class numbers of label maps, by feature; for the preset detection, `label` means the boxes' class."""
    numbers: dict[str, Set[int]] = {name: frozenset(labels.values()) for name, labels in manifest.labels.items()}
    if manifest.spec.get("preset") == "detection" and "label" in numbers:
        numbers["image/object/class/label"] = numbers.pop("label")
    return numbers


def _nearby(run: CheckRun, source: Source, manifest: Manifest, template: PathTemplate | None) -> dict[str, ObjectInfo]:
    """Return the files that may be a manifest's shards, by name; empty if they cannot be listed."""
    prefix = re.split("[<{]", template.text)[0] if template else ""
    if re.search(r"[*?\[\]{}%@\\]", prefix):  # the prefix would not match itself literally
        prefix = ""
    deep = any("/" in shard.path for shard in manifest.shards)
    glob = f"{prefix[: prefix.rfind('/') + 1]}**/*" if deep else f"{prefix}*"
    try:
        return {item.name: item for item in source.list((glob,))}
    except (NothingFoundError, UsageError):  # nothing but hidden files, or a store without listing
        return {}
    except SourceError as error:
        run.events.note(f"note: cannot check for shards that the manifest does not list: {error.sentence}")
        return {}


def _missing(source: Source, shard: ShardEntry, kind: str) -> FileReport:
    fault = Fault("missing", f"the file is missing; the manifest lists it with {count(shard.records, 'record')}")
    return FileReport(source.locate(shard.path), kind, faults=[fault], missing=True)


def _find_unlisted(
    source: Source, manifest: Manifest, template: PathTemplate, nearby: dict[str, ObjectInfo], report: Report
) -> None:
    """Add a fault for each gap in the manifest's list, and for each shard that exists but is not listed."""
    names = [shard.path for shard in manifest.shards]
    regex, listed = template.regex(), set(names)
    if "number" in template.fields and "input" not in template.fields:  # with <input>, the numbers depend on the inputs
        _add_gaps(source, names, report, find_gaps(names))
    for name, item in nearby.items():
        if name not in listed and regex.match(name):
            fault = Fault("stray", "the manifest does not list this shard")
            report.files.append(FileReport(source.locate(name), None, bytes=item.size or 0, faults=[fault]))


def _not_converted(manifest: Manifest) -> Iterator[Fault]:
    """Yield faults for the samples and bytes that the conversion itself skipped."""
    if skipped := manifest.skipped.get("samples"):
        yield Fault(
            "skipped", f"{count(skipped, 'sample')} of the inputs skipped; to list them, convert with --errors FILE"
        )
    for lost in manifest.skipped.get("lost", ()):
        start, end, size = lost["from"], lost["to"], lost["bytes"]
        where = f"from byte {start:,} on" if end is None else f"from byte {start:,} to {end:,}"
        message = f"{lost['input']} was not read {where}, {size:,} bytes, which held at least 1 sample"
        yield Fault("lost", message, lost=size)


def _check_sums(path: str, manifest: Manifest, report: Report, *, fast: bool) -> FileReport:
    """Check the manifest itself: the totals, and the counts of features."""
    whole = FileReport(path, "manifest")
    for name, number in manifest.totals.items():
        claimed = manifest.claimed.get(name, number)
        if claimed != number:
            of = "it lists" if name == "inputs" else "its shards have"
            whole.add(Fault("count", f"the manifest's total of {name} is {claimed}, but {of} {number}"))
    if manifest.checksum and not manifest.is_as_written:
        whole.add(Fault("digest", "the manifest was changed after it was written: its checksum does not match"))
    for contradiction in contradictions(manifest.features):
        whole.add(Fault("schema", contradiction))
    for fault in _not_converted(manifest):
        whole.add(fault)
    if report.ok and not fast and not any(file.unread for file in report.files):
        of_samples = traits_of(manifest.format).holds == "sample"
        called = "samples have the entry" if of_samples else "examples have the feature"
        counts = sum((file.features for file in report.files), Counter[str]())
        for name, described in manifest.features.items():
            claimed = described.get("count", counts[name])
            if claimed != counts[name]:
                message = f"{counts[name]} {called} {name!r}, but {claimed} in the manifest"
                whole.add(Fault("count", message))
        others = sum(file.others for file in report.files)
        listed = manifest.undescribed.get("records")
        if listed not in (None, others):
            message = f"{others} of the records are not tf.train.Examples, but {listed} in the manifest"
            whole.add(Fault("count", message))
    return whole
