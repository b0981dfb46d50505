"""Opens the manifests that a command was given in the place of a bucket; several are one dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tar2tf_cli.errors import SourceError, few
from tar2tf_cli.inputs.open_shard import list_files
from tar2tf_cli.inputs.stages import PathsSource, Tar, TarsSource, are_paths, unreadable_input
from tar2tf_cli.ops.rules import accepted, text
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Source, open_source

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.conversion import PathText
    from tar2tf_cli.spec.urls import Reach


def as_texts(bucket: PathText, templates: PathText | Sequence[PathText]) -> tuple[str, Sequence[str]]:
    """Return a bucket, or a path, and one template or several as text.

    Raises:
        UsageError: when something else was given.
    """
    several = [templates] if isinstance(templates, (str, os.PathLike)) else templates
    return accepted(text, bucket, "bucket"), [accepted(text, name, "each template") for name in several]


def names_manifest(path: str) -> bool:
    """Whether a path, URL or template is that of manifests, by its suffix."""
    return without_secrets(path).endswith(".json")


def is_manifest(path: str) -> bool:
    """Whether a path or URL is that of a manifest, which exists if it is local."""
    return names_manifest(path) and (is_remote(path) or os.path.isfile(path))


def manifests_in(bucket: str, templates: Sequence[str], **reach: Unpack[Reach]) -> list[str]:
    """Return the paths or URLs of the manifests that bucket and templates name; none if they name anything else.

    They are the bucket and all templates, or objects in the bucket that match the templates.
    """
    if not templates:
        bucket, template = split_template(bucket)
        templates = (template,) if template else ()
    if not all(map(names_manifest, templates)):
        return []
    if names_manifest(bucket):
        return [bucket, *templates] if templates or is_manifest(bucket) else []
    if not templates:
        return []
    source = open_source(bucket, **reach)
    return [source.locate(item.name) for item in list_files(source, templates)]


def open_shards(
    bucket: str, templates: Sequence[str], *, paths: bool, **reach: Unpack[Reach]
) -> tuple[Source, Sequence[str]]:
    """Open a bucket, several paths, or the shards that manifests list; return the source and the templates for it.

    Args:
        bucket: as `open_source` takes it, or a manifest.
        templates: names of shards in it, or further manifests.
        paths: whether all of them are inputs if they are existing paths; there are no templates then.
        reach: how servers are reached.

    A shard that does not exist, and one of several manifests that cannot be read, are inputs that cannot be opened.

    Raises:
        SourceError: when the only manifest does not exist or cannot be read.
    """
    manifests = manifests_in(bucket, templates, **reach)
    if not manifests and paths and are_paths(bucket, templates):
        return PathsSource((bucket, *templates), every=True), ()
    if not manifests:
        return open_source(bucket, **reach), templates
    source = TarsSource([tar for path in manifests for tar in _shards_of(path, len(manifests) > 1, **reach)])
    source.bucket = few(manifests, 1)
    return source, ()


def _shards_of(path: str, anyway: bool, **reach: Unpack[Reach]) -> Iterator[Tar]:
    """The shards of a manifest; with `anyway`, one that stands for a manifest that cannot be read."""
    from tar2tf_cli.conversion.manifest import read_document

    try:
        document = read_document(path, **reach)
    except SourceError as error:
        if not anyway:
            raise
        yield unreadable_input(path, error)
        return
    found = {item.name: item for item in document.there()}
    for shard in document.manifest.shards:
        if shard.path in found:
            yield document.folder, found[shard.path]
        else:
            yield unreadable_input(document.folder.locate(shard.path), document.missing(shard))
