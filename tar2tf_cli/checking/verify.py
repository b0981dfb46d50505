"""Verifies shards, or what a manifest lists."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from tar2tf_cli.checking.faults import FileReport, Report, unreadable
from tar2tf_cli.checking.files import as_texts
from tar2tf_cli.checking.verify_bucket import verify_bucket
from tar2tf_cli.checking.verify_file import CheckRun
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.named import names_manifest, resolve
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.ops.rules import workers as number_of
from tar2tf_cli.spec.urls import Reach

if TYPE_CHECKING:
    from tar2tf_cli.checking.against import Origin
    from tar2tf_cli.conversion.manifest import Document, Manifest
    from tar2tf_cli.spec.conversion import PathText


def verify(
    bucket: PathText,
    templates: PathText | Sequence[PathText] = (),
    *,
    paths: bool = False,
    rules: TarRules | None = None,
    workers: int | None = None,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
    events: Events | None = None,
    fast: bool = False,
    decode: bool = False,
    salvage: PathText | None = None,
    against: PathText | None = None,
) -> Report:
    """Check shards, or everything that a manifest lists.

    Args:
        bucket: a directory, a tar or TFRecord file, `-`, a URL of any of these, or a manifest by its path or URL.
        templates: which shards of the bucket, by default every tar and TFRecord; or further manifests.
        paths: whether bucket and templates are taken as files and folders if all of them exist.
        rules: how tars are read.
        workers: how many files are checked at once; defaults to the number of CPUs.
        endpoint: URL of the store that holds the bucket.
        retry_for: for how many seconds failed requests to the store are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.
        events: notified of progress.
        fast: check only the framing and the CRCs of lengths, not those of data, and no examples.
        decode: also decode images and arrays.
        salvage: path of a new file for the good records of all TFRecords.
        against: bucket of the samples that the shards of manifests were made from: each sample is converted again, and
            must be in the shards, once, with the same bytes. `templates` that are not manifests then name its shards,
            of which the manifests together must have all samples; by default, each must have those that its spec names.

    Raises:
        SourceError: when there is nothing to check. Damage, and a file that cannot be read, are faults, not errors.
        UsageError: for options that contradict each other, and a path for `salvage` that is taken.
    """
    if fast and (decode or salvage or against):
        raise UsageError("--fast reads no data: leave out --decode, --salvage and --against")
    bucket, templates = as_texts(bucket, templates)
    reach: Reach = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    if salvage:
        from tar2tf_cli.checking.salvage import Salvage
    with closing(Salvage(os.fspath(salvage))) if salvage else nullcontext() as good:
        run = CheckRun(rules or TarRules(), number_of(workers), events or Events(), fast, decode, good)
        if against:
            report = _verify_against(run, bucket, templates, reach, os.fspath(against))
        else:
            report = _verify(run, bucket, templates, reach, paths=paths)
        if good:
            report.salvaged = good.finish(report.files)
    return report


def _verify_against(run: CheckRun, bucket: str, templates: Sequence[str], reach: Reach, against: str) -> Report:
    named = resolve(bucket, [name for name in templates if names_manifest(name)], **reach)
    manifests = named.manifests or [path for path in [named.manifest_among(named.files())] if path]
    if not manifests:
        hint = "name the manifest beside the shards, such as out/train-manifest.json"
        raise UsageError("--against needs a manifest, whose spec says how samples become records", hint=hint)
    shards = [name for name in templates if not names_manifest(name)]
    return _verify_documents(run, manifests, reach, (against, shards, reach))


def _verify(run: CheckRun, bucket: str, templates: Sequence[str], reach: Reach, *, paths: bool) -> Report:
    named = resolve(bucket, templates, paths=paths, **reach)
    if named.manifests:
        return _verify_documents(run, named.manifests, reach)
    return verify_bucket(run, named.source, named.templates, by_folder=named.paths)


def _verify_documents(run: CheckRun, paths: Sequence[str], reach: Reach, against: Origin | None = None) -> Report:
    """Check what manifests list; if one of several cannot be used, that is a fault, and the others are checked."""
    from tar2tf_cli.checking.verify_manifest import verify_manifest  # slow to import, and only for manifests
    from tar2tf_cli.conversion.manifest import read_document

    files: list[FileReport] = []
    documents: list[Document] = []
    for path in paths:
        try:
            document = read_document(path, **reach)
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
