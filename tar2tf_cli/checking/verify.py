"""Verifies shards: what manifests list, or every file whose content is a shard; and gaps in the numbering."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.checking.expectations import Expectations, Messages
from tar2tf_cli.checking.faults import Fault, FileReport, Report, unreadable
from tar2tf_cli.checking.files import ReadOptions, as_texts
from tar2tf_cli.checking.salvage import Salvage
from tar2tf_cli.checking.verify_file import CheckRun, Checks
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError, count
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.inputs.named import is_explicit, list_files, names_manifest, nothing_found, resolve
from tar2tf_cli.ops.rules import accepted, one_of, optional
from tar2tf_cli.spec.templates import format_named, is_glob, is_numbered

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.checking.against import Origin
    from tar2tf_cli.inputs.manifest import Document, Manifest, ShardEntry
    from tar2tf_cli.spec.conversion import PathText
    from tar2tf_cli.spec.templates import PathTemplate


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
    **options: Unpack[ReadOptions],
) -> Report:
    """Check shards, or everything that a manifest lists.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, a URL of any of these, or a manifest by its path or URL.
        templates: which shards of the bucket, by default every tar and TFRecord; or further manifests.
        paths: whether bucket and templates are files and folders if all of them exist.
        fast: check only the framing and the CRCs of lengths, not those of data, and no examples.
        decode: also decode images and arrays.
        salvage: path of a new file for the good records of all TFRecords.
        against: the bucket that was converted. Each of its samples is converted again, and must be in the output once,
            with the same bytes. `templates` that are not manifests name shards of this bucket, whose samples must be in
            the outputs of all manifests together; by default, each output must hold the samples of its own inputs.
        allow_func: whether `against` may run functions that a manifest names.
        messages: "example" if each record must be a tf.train.Example, "any" if it may be any message. By default, a
            manifest says so; without one, "any" for each file of which no record is an example.
        allow_empty: whether an empty file is a TFRecord without records, and not a fault.
        options: those of `inspect`: `rules`, `workers`, `endpoint`, `retry_for`, `no_sign_request` and `events`.

    Raises:
        SourceError: when there is nothing to check. Damage, and a file that cannot be read, are faults, not errors.
        UsageError: for options that contradict each other, and a path for `salvage` that is taken.

    >>> verify("out/train-manifest.json", against="shards", workers=1).ok
    True
    """
    if fast and (decode or salvage or against):
        raise UsageError("--fast reads no data: leave out --decode, --salvage and --against")
    bucket, templates = as_texts(bucket, templates)
    accepted(optional(one_of("example", "any")), messages, "messages")
    checks = Checks(fast, decode, messages, allow_empty, allow_func)
    with closing(Salvage(os.fspath(salvage))) if salvage else nullcontext() as good:
        run = CheckRun(checks, good, **options)
        if against:
            report = _verify_against(run, bucket, templates, os.fspath(against))
        else:
            report = _verify(run, bucket, templates, paths=paths)
        if good:
            report.salvaged = good.finish(report.files)
    return report


def _verify_against(run: CheckRun, bucket: str, templates: Sequence[str], against: str) -> Report:
    named = resolve(bucket, [name for name in templates if names_manifest(name)], **run.reach)
    manifests = named.manifests or [path for path in [named.manifest_among(named.files())] if path]
    if not manifests:
        hint = "name the manifest beside the shards, such as out/train-manifest.json"
        raise UsageError("--against needs a manifest, which says how the samples were converted", hint=hint)
    shards = [name for name in templates if not names_manifest(name)]
    return _verify_documents(run, manifests, (against, shards))


def _verify(run: CheckRun, bucket: str, templates: Sequence[str], *, paths: bool) -> Report:
    named = resolve(bucket, templates, paths=paths, **run.reach)
    if named.manifests:
        return _verify_documents(run, named.manifests)
    return verify_bucket(run, named.source, named.templates, by_folder=named.paths)


def _verify_documents(run: CheckRun, paths: Sequence[str], against: Origin | None = None) -> Report:
    """Check what manifests list; if one of several cannot be used, that is a fault, and the others are checked."""
    from tar2tf_cli.inputs.manifest import read_document  # slow to import, and only for manifests

    files: list[FileReport] = []
    documents: list[Document] = []
    for path in paths:
        try:
            document = read_document(path, **run.reach)
            files += verify_manifest(run, document).files
            documents.append(document)
        except SourceError as error:
            if len(paths) == 1:
                raise
            files.append(FileReport(path, "manifest", faults=[unreadable(error)], missing=error.kind == "missing"))
    if against:
        from tar2tf_cli.checking.against import verify_against

        verify_against(run, documents, against, files)
    if shared := _converted_twice([document.manifest for document in documents]):
        run.events.note(f"note: {len(shared):,} of the inputs are in more than one manifest, first: {shared[0]}")
    return Report(files)


def _converted_twice(manifests: Sequence[Manifest]) -> list[str]:
    """The inputs that several conversions of the same kind have in common, such as parts whose ranges overlap."""
    seen: Counter[tuple[str, str]] = Counter()
    for manifest in manifests:
        kind = str({**manifest.spec, "input": manifest.spec.get("input", {}).get("bucket"), "output": None})
        seen.update((kind, item.name) for item in manifest.inputs)
    return [name for (_, name), count in seen.items() if count > 1]


# --- A bucket, and gaps in its numbering ---


_DIGITS: Final = re.compile(r"\d+")
_OF_TOTAL: Final = re.compile(r"(\d+)(-of-(\d+))(?!.*-of-\d)")


class Gap(NamedTuple):
    """Consecutive shards that are missing in a series.

    Attributes:
        first: the name of the first missing shard.
        last: the name of the last missing shard; equal to `first` if only one is missing.
        missing: number of missing shards.
        before: the name of the shard that follows the gap; None if the gap is at the end of the series.
    """

    first: str
    last: str
    missing: int
    before: str | None = None


class _Numbered(NamedTuple):
    """A name split at its number."""

    head: str
    number: int
    digits: str
    tail: str

    @property
    def name(self) -> str:
        return f"{self.head}{self.digits}{self.tail}"


_Series: TypeAlias = list[_Numbered]


def find_gaps(names: Iterable[str]) -> list[Gap]:
    """Find the missing numbers in names that differ in one number.

    `train-00003-of-00010` belongs to a series of ten. Without a total, numbers form a series if they start at 0 or 1,
    are padded with zeros, or most of them exist: nothing is missing between `cifar10` and `cifar100`.
    """
    of_totals: dict[int, list[_Numbered]] = defaultdict(list)
    shapes: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if match := _OF_TOTAL.search(name):
            of_totals[int(match[3])].append(_numbered(name, match, 1))
        else:
            shapes[_shape(name)].append(name)
    gaps = []
    for total, numbered in of_totals.items():
        for series in _series(numbered):
            gaps += _gaps(series, total)
    for alike in shapes.values():
        for series in _series(_at_last_number(alike)):
            if _is_numbering(series):
                gaps += _gaps(series)
    return gaps


def _numbered(name: str, match: re.Match[str], group: int = 0) -> _Numbered:
    start, end = match.span(group)
    return _Numbered(name[:start], int(match[group]), match[group], name[end:])


def _series(names: Iterable[_Numbered]) -> Iterable[_Series]:
    """Names divided into series by everything except their number."""
    series: dict[tuple[str, str], _Series] = defaultdict(list)
    for name in names:
        series[name.head, name.tail].append(name)
    return series.values()


def _at_last_number(names: list[str]) -> list[_Numbered]:
    """Names of one shape, each split at the last number in which they differ; none if they do not."""
    numbers = [_DIGITS.findall(name) for name in names]
    differing = [index for index, column in enumerate(zip(*numbers, strict=True)) if len(set(column)) > 1]
    return [_numbered(name, list(_DIGITS.finditer(name))[differing[-1]]) for name in names if differing]


def _is_numbering(series: _Series) -> bool:
    numbers = {name.number for name in series}
    absent = max(numbers) - min(numbers) + 1 - len(numbers)
    padded = any(name.digits != str(name.number) for name in series)
    return min(numbers) <= 1 or padded or absent <= len(numbers)


def _gaps(series: _Series, total: int = 0) -> list[Gap]:
    """The gaps between the numbers of a series and, if the total is known, before and after them."""
    by_number = {name.number: name for name in series}
    numbers = sorted(by_number)
    if total:
        first = 1 if numbers[-1] == total and numbers[0] else 0
        numbers = [first - 1, *numbers, max(first + total, numbers[-1] + 1)]
    return [
        _gap(series, by_number.get(after), before + 1, after - 1)
        for before, after in pairwise(numbers)
        if after - before > 1
    ]


def _gap(series: _Series, behind: _Numbered | None, first: int, last: int) -> Gap:
    width = min(len(name.digits) for name in series) if any(name.digits[0] == "0" for name in series) else 0

    def name(number: int) -> str:
        return f"{series[0].head}{str(number).zfill(width)}{series[0].tail}"

    return Gap(name(first), name(last), last - first + 1, behind and behind.name)


def verify_bucket(run: CheckRun, source: Source, templates: Sequence[str], *, by_folder: bool = False) -> Report:
    """Check the shards that match the templates or, without any, every file whose content is a shard.

    With `by_folder`, the shards of each folder are a separate series, and are missing only if not on disk.
    """
    inputs = list_files(source, templates)
    report = Report(run.check(source, [(item, None) for item in inputs]))
    formats = [file.format for file in report.files]
    names = _skip_others(source, templates, [item.name for item in inputs], report)
    if not report.files:
        raise nothing_found(source.bucket)
    if not templates or any(is_glob(name) or is_numbered(name) for name in templates):
        add_gaps(source, names, report, by_folder=by_folder)
    for item, kind in zip(inputs, formats, strict=True):
        if kind == "manifest" and item.name not in names:
            report.files += _left_out(source, item)
    return report


def _left_out(source: Source, item: ObjectInfo) -> Iterator[FileReport]:
    """What a conversion skipped, if anything, whose manifest lies beside the shards and can be read."""
    from tar2tf_cli.inputs.manifest import Manifest

    path = source.locate(item.name)
    with suppress(SourceError):
        if faults := [*_not_converted(Manifest.from_bytes(read_to_end(source.open(item)), path))]:
            yield FileReport(path, "manifest", faults=faults)


def _skip_others(source: Source, templates: Sequence[str], names: list[str], report: Report) -> list[str]:
    """Skip files that are not shards and were not named by the user; returns the names of the others.

    A file with the name of a shard, or a name like those of the other shards, is kept even if its content is not that
    of a shard: it is reported as a fault.
    """
    shapes = {_shape(name) for name, file in zip(names, report.files, strict=True) if _is_shard(file)}
    kept = []
    for name, file in zip(names, report.files, strict=True):
        asked_for = is_explicit(source, templates) and (name in templates or not _is_marker(name))
        if file.format == "manifest" and not asked_for:
            report.manifest = report.manifest or file.path
        elif asked_for or _is_shard(file) or _shape(name) in shapes or _has_name_of_shard(name):
            kept.append((name, file))
        else:
            report.skipped.append(name)
    report.files = [file for _, file in kept]
    return [name for name, _ in kept]


def _is_shard(file: FileReport) -> bool:
    return file.format in ("tar", "tfrecord")


def _is_marker(name: str) -> bool:
    """Whether a file is one that Hadoop and Spark write beside shards, such as _SUCCESS."""
    return os.path.basename(name).startswith("_")


def _has_name_of_shard(name: str) -> bool:
    return format_named(name.lower()) is not None


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def add_gaps(
    source: Source, names: list[str], report: Report, *, by_folder: bool = False, kind: str = "tfrecord"
) -> None:
    """Insert a fault for every gap in the numbering of shards of a kind, where they would be; an empty one is there."""
    known = [(name, _shape(name), file.format) for name, file in zip(names, report.files, strict=False)]
    shapes = {shape for _, shape, format in known if format == kind}
    alike = [name for name, shape, format in known if shape in shapes and format in (kind, None)]
    for gap in _gaps_by_folder(alike) if by_folder else find_gaps(alike):
        position = names.index(gap.before) if gap.before else len(names)
        names.insert(position, gap.first)
        report.files.insert(position, _gap_fault(source, gap, kind))


def _gaps_by_folder(paths: list[str]) -> Iterator[Gap]:
    """The gaps in each folder whose first shard does not exist on disk."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    return (gap for alike in folders.values() for gap in find_gaps(alike) if not os.path.exists(gap.first))


def _gap_fault(source: Source, gap: Gap, kind: str) -> FileReport:
    message = "this shard is missing from the numbering"
    if gap.missing > 1:
        message = f"{gap.missing:,} shards, up to {gap.last}, are missing from the numbering"
    return FileReport(source.locate(gap.first), kind, faults=[Fault("gap", message)], missing=True)


# --- What a manifest lists ---


def verify_manifest(run: CheckRun, document: Document) -> Report:
    """Check everything that a manifest lists, and that there are no other shards."""
    from tar2tf_cli.features.described import Expected, expected

    manifest = document.manifest
    if not (manifest.shards or manifest.skipped.get("samples") or manifest.skipped.get("asked")):
        raise SourceError("the manifest lists no shards, so there is nothing to read", shard=document.path)
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
    expectations = Expectations(schema, required, messages, manifest.format)
    checked = iter(run.check(source, files, expectations, rules))
    there = zip(objects, manifest.shards, strict=True)
    report = Report([next(checked) if item else _missing(source, shard, manifest.format) for item, shard in there])
    if template:
        _look_around(source, manifest, template, nearby, report)
    whole = _check_sums(document.path, manifest, report, fast=run.checks.fast)
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


def _missing(source: Source, shard: ShardEntry, kind: str) -> FileReport:
    fault = Fault("missing", f"the file is missing; the manifest lists it with {count(shard.records, 'record')}")
    return FileReport(source.locate(shard.path), kind, faults=[fault], missing=True)


def _look_around(
    source: Source, manifest: Manifest, template: PathTemplate, nearby: dict[str, ObjectInfo], report: Report
) -> None:
    """Add a fault for each gap in the manifest's list, and for each existing shard that is not in it."""
    names = [shard.path for shard in manifest.shards]
    regex, listed = template.regex(), set(names)
    if "number" in template.fields and "input" not in template.fields:  # with <input>, the numbers come from the inputs
        add_gaps(source, names, report, kind=manifest.format)
    for name, item in nearby.items():
        if name not in listed and regex.match(name):
            fault = Fault("stray", "the manifest does not list this shard")
            report.files.append(FileReport(source.locate(name), None, bytes=item.size or 0, faults=[fault]))


def _not_converted(manifest: Manifest) -> Iterator[Fault]:
    """What of the inputs the conversion itself skipped."""
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
    """Check the manifest itself: its totals against those of its shards, and its counts of features."""
    from tar2tf_cli.features.described import contradictions

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
    if report.ok and not fast:
        called = "samples have the entry" if manifest.format == "tar" else "examples have the feature"
        counts = sum((file.features for file in report.files), Counter[str]())
        for name, described in manifest.features.items():
            claimed = described.get("count", counts[name])
            if claimed != counts[name]:
                message = f"{counts[name]} {called} {name!r}, but {claimed} in the manifest"
                whole.add(Fault("count", message))
        others = sum(file.others for file in report.files)
        listed = manifest.undescribed.get("records")
        if listed not in (None, others):
            message = f"{others} of the records are no tf.train.Examples, but {listed} in the manifest"
            whole.add(Fault("count", message))
    return whole
