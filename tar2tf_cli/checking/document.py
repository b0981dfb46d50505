"""Opens the manifests that a command was given in the place of a bucket; several are one dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tar2tf_cli.errors import NothingFoundError, SourceError, read_failed
from tar2tf_cli.inputs.open_shard import list_files
from tar2tf_cli.inputs.paths import open_inputs
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Folder, ObjectInfo, Source, open_source, read_with_folder
from tar2tf_cli.stores.directory import DirectorySource

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.conversion.manifest import Manifest
    from tar2tf_cli.spec.reach import Reach

__all__ = ["Document", "manifests_in", "open_document", "open_shards"]


@dataclass(frozen=True)
class Document:
    """A manifest's path or URL, its bytes, and the folder that holds it."""

    path: str
    data: bytes
    folder: Folder

    @cached_property
    def manifest(self) -> Manifest:
        """Its content.

        Raises:
            DamagedShardError: when it is not a manifest, or a damaged one.
        """
        from tar2tf_cli.conversion.manifest import Manifest

        return Manifest.from_bytes(self.data, self.path, late=True)


def manifests_in(bucket: str, templates: Sequence[str], **reach: Unpack[Reach]) -> list[str]:
    """Return the paths or URLs of the manifests that bucket and templates name; none if they name anything else.

    They are the bucket and all templates, or objects in the bucket that match the templates.
    """
    if not templates:
        bucket, template = split_template(bucket)
        templates = (template,) if template else ()
    if not all(without_secrets(name).endswith(".json") for name in templates):
        return []
    if without_secrets(bucket).endswith(".json"):
        return [bucket, *templates] if templates or is_remote(bucket) or os.path.isfile(bucket) else []
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

    Raises:
        SourceError: when a manifest, or a shard that it lists, does not exist or cannot be read.
    """
    manifests = manifests_in(bucket, templates, **reach)
    if not manifests:
        return open_inputs(bucket, templates, paths=paths, **reach)
    from tar2tf_cli.inputs.stages import TarsSource

    source = TarsSource([tar for path in manifests for tar in _listed(path, reach)])
    source.bucket = manifests[0] if len(manifests) == 1 else f"{manifests[0]} and {len(manifests) - 1} more"
    return source, ()


def _listed(path: str, reach: Reach) -> list[tuple[Source, ObjectInfo]]:
    """The shards that a manifest lists, and where they are."""
    document = open_document(path, **reach)
    if document is None:
        raise NothingFoundError("no such manifest", shard=path)
    names = [shard.path for shard in document.manifest.shards]
    found = document.folder.find(names)
    for name in names:
        if name not in found:
            where = document.folder.locate(name)
            raise SourceError("is missing", shard=where, hint="restore it from a copy, or convert again")
    return [(document.folder, found[name]) for name in names]


def open_document(bucket: str, **reach: Unpack[Reach]) -> Document | None:
    """Open a manifest if the suffix of a path or URL is that of one; otherwise None.

    Raises:
        SourceError: when it cannot be read.
    """
    if is_remote(bucket):
        path = without_secrets(bucket)
        if not path.endswith(".json"):
            return None
        found = read_with_folder(bucket, **reach)
        if found is None:
            raise NothingFoundError("the manifest does not exist", shard=path)
        return Document(path, *found)
    if not (bucket.endswith(".json") and os.path.isfile(bucket)):
        return None
    try:
        with open(bucket, "rb") as file:
            return Document(bucket, file.read(), DirectorySource(os.path.dirname(bucket) or "."))
    except OSError as error:
        raise read_failed(bucket, error) from None
