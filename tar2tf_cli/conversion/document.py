"""A manifest where it is: in a folder or bucket, with its shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.errors import NothingFoundError, SourceError
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Folder, ObjectInfo, read_with_folder
from tar2tf_cli.stores.directory import DirectorySource

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.reach import Reach

__all__ = ["Document", "read_document"]


@dataclass(eq=False, repr=False)
class Document:
    """A manifest, its path or URL, and the folder that holds it and its shards."""

    path: str
    manifest: Manifest
    folder: Folder

    def there(self) -> list[ObjectInfo]:
        """The shards that the manifest lists, without those that are missing."""
        names = [shard.path for shard in self.manifest.shards]
        found = self.folder.find(names)
        return [found[name] for name in names if name in found]

    def find(self, shards: Sequence[ShardEntry]) -> list[ObjectInfo]:
        """The shards in the folder.

        Raises:
            SourceError: when one of them does not exist.
        """
        found = self.folder.find([shard.path for shard in shards])
        for shard in shards:
            if shard.path not in found:
                raise self.missing(shard)
        return [found[shard.path] for shard in shards]

    def missing(self, shard: ShardEntry) -> SourceError:
        """The error for a shard that is not in the folder."""
        hint = "restore it from a copy, or convert again"
        return NothingFoundError("is missing", shard=self.folder.locate(shard.path), hint=hint)


def read_document(path: str, **reach: Unpack[Reach]) -> Document:
    """Read a manifest.

    Args:
        path: its path or URL.
        reach: how its server is reached.

    Raises:
        SourceError: when it does not exist, or cannot be read.
        DamagedShardError: when it is not a manifest, or a damaged one.
    """
    name = without_secrets(path)
    if not is_remote(path):
        if os.path.isdir(path):
            raise SourceError("is a folder, not a manifest", shard=path, hint="name the manifest in it")
        if manifest := Manifest.load(path):
            return Document(path, manifest, DirectorySource(os.path.dirname(path) or "."))
    elif found := read_with_folder(path, **reach):
        return Document(name, Manifest.from_bytes(found[0], name, late=True), found[1])
    raise NothingFoundError("the manifest does not exist", shard=name)
