"""Several local paths as inputs: those that a shell made of a glob, `out-a out-b`, `'a/{0..9}.tar' 'b/{0..9}.tar'`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.inputs.open_shard import list_files, nothing_found
from tar2tf_cli.inputs.stages import Tar, TarsSource, unreadable_input
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import ObjectInfo, Source, open_source

__all__ = ["PathsSource", "are_paths"]


class PathsSource(TarsSource):
    """Files, and the shards of folders, in the order given; inputs are named by their paths.

    Args:
        paths: files, folders and templates of files.
        every: whether every file of a folder is an input, as `list_files` finds them, or those named like tars. With
            it, a path that cannot be read is an input that cannot be opened, unless it is the only one.

    Raises:
        SourceError: when there is no shard in a folder, or a path cannot be read.
        UsageError: when a file is given twice.
    """

    listed_by = (*Source.listed_by, "input.bucket")

    def __init__(self, paths: Sequence[str], *, every: bool) -> None:
        anyway = every and len(paths) > 1
        found = [(path, tar) for path in paths for tar in _files(path, every=every, anyway=anyway)]
        places = [(path, source.locate(item.name)) for path, (source, item) in found]
        self._named = {place for path, place in places if place == path or not os.path.isdir(path)}
        super().__init__([tar for _, tar in found])
        seen: set[str] = set()
        for item in self.list(()):
            where = os.path.abspath(item.name)
            if where in seen:
                raise UsageError("is given twice", shard=item.name)
            seen.add(where)

    def asked_for(self, name: str, templates: Sequence[str]) -> bool:
        """Whether the path itself or its template was given; a manifest or other JSON may be there by a glob."""
        return name in self._named and not name.endswith(".json")


def _files(path: str, *, every: bool, anyway: bool) -> list[Tar]:
    """The files of a path; with `anyway`, one that stands for a path that cannot be read."""
    source = open_source(path)
    try:
        found: Sequence[ObjectInfo] = list_files(source, ()) if every else source.list(())
        if not found:
            raise nothing_found(path)
    except SourceError as error:
        if anyway:
            return [unreadable_input(path, error)]
        raise error.at(shard=path) from None
    return [(source, item) for item in found]


def are_paths(bucket: str, templates: Sequence[str]) -> bool:
    """Whether bucket and templates are all paths: they exist, and are not also names inside the first.

    If the first is a template of files itself, so may the others be.

    Raises:
        SourceError: when the first is a file, and one of the others is not a path that exists.
    """
    if templates and not is_remote(bucket) and split_template(bucket)[1]:
        return True
    missing = [path for path in templates if not os.path.lexists(path)]
    if missing and os.path.isfile(bucket) and not bucket.endswith(".json"):
        message = f"there is no such file or directory, and {bucket} is a single file, so it takes no template"
        raise SourceError(message, shard=missing[0])
    within = all(os.path.exists(os.path.join(bucket, name)) and not os.path.isabs(name) for name in templates)
    return bool(templates) and not missing and os.path.lexists(bucket) and not within
