"""The shards of a dataset: those that manifests list, files, and what folders, templates and URLs stand for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.datasets.decode import Decoder
from tar2tf_cli.errors import DamagedShardError, SourceError, UsageError
from tar2tf_cli.inputs.open_shard import list_files
from tar2tf_cli.spec.templates import is_glob
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Folder, ObjectInfo, open_source, read_with_folder
from tar2tf_cli.stores.directory import DirectorySource

__all__ = ["Paths", "Shard", "find_shards", "read_manifest", "shards_of_split"]

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""Manifests and shards, each as a path or URL."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of records.

    Attributes:
        source: where it is.
        item: the shard there.
        decode: makes values of its records.
        records: how many records it has; None if no manifest says so.
    """

    source: Folder
    item: ObjectInfo
    decode: Decoder
    records: int | None = None

    @property
    def name(self) -> str:
        """Its path or URL."""
        return self.source.locate(self.item.name)

    @property
    def size(self) -> int:
        """Its size in bytes.

        Raises:
            SourceError: when its server does not say.
        """
        if self.item.size is None:
            raise SourceError("the server does not say how large it is", shard=self.name, hint="copy it to a disk")
        return self.item.size


def find_shards(paths: Sequence[str | os.PathLike[str]], split: str | None, **reach: Any) -> list[Shard]:
    """Return the shards of manifests, files, folders and templates, in the order given.

    Args:
        paths: paths or URLs. One that ends in .json is a manifest. A folder stands for its manifest, if
            it has one, otherwise for all its files.
        split: only the shards of this split of the manifests.
        reach: how servers are reached.

    Raises:
        SourceError: when there is nothing at a path, a shard of a manifest is missing or has another size.
        UsageError: when there is no such split, or there are no manifests that could have one.
    """
    if not paths:
        raise UsageError("there are no shards: name a manifest, files or a folder")
    folders = _Folders(reach)
    return [shard for path in paths for shard in _shards_at(os.fspath(path), split, folders)]


class _Folders:
    """The folders of shards, each opened once, whatever the number of shards in it."""

    def __init__(self, reach: dict[str, Any]) -> None:
        self.reach = reach
        self._known: dict[str, Any] = {}
        self.raw = Decoder()

    def open(self, bucket: str) -> Any:
        if bucket not in self._known:
            self._known[bucket] = open_source(bucket, **(self.reach if is_remote(bucket) else {}))
        return self._known[bucket]


def _shards_at(path: str, split: str | None, folders: _Folders) -> Iterator[Shard]:
    bucket, template = _bucket_and_template(path)
    if without_secrets(path).endswith(".json"):
        manifests = [path]
    elif os.path.isfile(path):
        bucket, template = os.path.split(path)
        source, manifests = folders.open(bucket or "."), []
        items: Sequence[ObjectInfo] = list(source.find([template]).values())
    else:
        source = folders.open(bucket)
        items = list_files(source, [template] if template else [])
        names = [item.name for item in items if item.name.endswith("manifest.json") and not template]
        manifests = [_below(path, name) for name in names]
    if len(manifests) > 1:
        shown = ", ".join(sorted(map(os.path.basename, manifests))[:3])
        hint = f"name the one to read, or a template of shards: {shown}"
        raise UsageError(f"has {len(manifests)} manifests", shard=without_secrets(path), hint=hint)
    if manifests:
        yield from _of_manifest(manifests[0], split, folders)
    elif split is not None:
        raise UsageError(f"there is no manifest, so there is no split {split!r}", shard=without_secrets(path))
    else:
        yield from (Shard(source, item, folders.raw) for item in items)


def _below(folder: str, name: str) -> str:
    """Return the path or URL of a name in a folder."""
    address, mark, query = folder.partition("?") if is_remote(folder) else (folder, "", "")
    return f"{address.rstrip('/')}/{name}{mark}{query}"


def _bucket_and_template(path: str) -> tuple[str, str]:
    """Split a path or URL before its first component with braces or wildcards."""
    if os.path.exists(path) or not (is_glob(path) or "{" in path):
        return path, ""
    match = re.match(r"(?:[\w+]+://)?(?:[^*?\[{/]*/)*", path)
    bucket = match[0] if match else ""
    return bucket or ".", path[len(bucket) :]


def _of_manifest(path: str, split: str | None, folders: _Folders) -> Iterator[Shard]:
    document, folder = read_manifest(path, **folders.reach)
    shards = shards_of_split(document, split)
    if document.compressed:
        message = "its shards are compressed with gzip, so that their records cannot be read in any order"
        hint = "convert again without --compression, or read them from front to back with load_dataset"
        raise UsageError(message, shard=without_secrets(path), hint=hint)
    source = folder or DirectorySource(os.path.dirname(path) or ".")
    try:
        decode = Decoder(document.features, document.records)
    except SourceError as error:
        raise error.at(shard=without_secrets(path)) from None
    items = source.find([shard.path for shard in shards])
    for shard in shards:
        yield Shard(source, _listed(source, shard, items.get(shard.path)), decode, shard.records)


def _listed(source: Folder, shard: ShardEntry, item: ObjectInfo | None) -> ObjectInfo:
    where = source.locate(shard.path)
    if item is None:
        raise SourceError("is missing", shard=where, hint="restore it from a copy, or convert again")
    if item.size not in (None, shard.bytes):
        message = f"the file has {item.size:,} bytes, but {shard.bytes:,} in the manifest"
        hint = "see tar2tf verify; restore it from a copy, or convert again"
        raise DamagedShardError(message, kind="size", shard=where, hint=hint)
    return item


def read_manifest(path: str, **reach: Any) -> tuple[Manifest, Folder | None]:
    """Read a manifest; if it is in a bucket, also return its folder there.

    Raises:
        SourceError: when there is none, or it cannot be read.
    """
    if is_remote(path):
        found = read_with_folder(path, **reach)
        if found:
            return Manifest.from_bytes(found[0], without_secrets(path)), found[1]
    elif document := Manifest.load(path):
        return document, None
    raise SourceError("no such manifest", shard=without_secrets(path))


def shards_of_split(document: Manifest, split: str | None) -> list[ShardEntry]:
    """Return a manifest's shards, or those of one split.

    Raises:
        UsageError: when there is no such split.
    """
    shards = [shard for shard in document.shards if split is None or shard.split == split]
    if split is not None and not shards:
        names = sorted({shard.split for shard in document.shards if shard.split})
        raise UsageError(f"there is no split {split!r}", hint=f"splits: {', '.join(names) or 'none'}")
    return shards
