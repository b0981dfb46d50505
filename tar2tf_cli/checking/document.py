"""Opens the manifest that a command was given in the place of a bucket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tar2tf_cli.errors import SourceError, read_failed
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import Folder, read_with_folder
from tar2tf_cli.stores.directory import DirectorySource

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.reach import Reach

__all__ = ["Document", "open_document"]


class Document(NamedTuple):
    """A manifest's path or URL, its bytes, and the folder that holds it."""

    path: str
    data: bytes
    folder: Folder


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
            raise SourceError("the manifest does not exist", shard=path)
        return Document(path, *found)
    if not (bucket.endswith(".json") and os.path.isfile(bucket)):
        return None
    try:
        with open(bucket, "rb") as file:
            return Document(bucket, file.read(), DirectorySource(os.path.dirname(bucket) or "."))
    except OSError as error:
        raise read_failed(bucket, error) from None
