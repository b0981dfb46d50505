"""What a user names, by one rule for every command and function that reads shards.

| named | is |
|---|---|
| `x.json`, and a template that ends so | manifests, whose shards are meant; several are one dataset |
| a file, or the URL of an object | that shard |
| a folder, or the URL of a bucket or folder | every file in it whose content is a shard; as a dataset, its manifest |
| `folder/train-*.record`, `{0..9}`, or these behind a bucket | the files that match |
| several of these, if all are paths that exist | all of them, in the order given |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import ListingInfo, Source
from tar2tf_cli.errors import NoShardsError, NothingFoundError, SourceError, UsageError
from tar2tf_cli.inputs.base import Tar, TarsSource, unreadable_input
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import open_source

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.urls import ConnectionOptions

Opener = Callable[[str], Source]


class Named(NamedTuple):
    """What was named: manifests or, if there are none, files.

    Attributes:
        bucket: the bucket or path as the user gave it.
        manifests: paths or URLs of manifests.
        source: where the files are.
        templates: which files of the source, as the user gave them.
        paths: whether each argument was a path of its own.
        read: the manifests themselves, where they were read.
    """

    bucket: str
    manifests: Sequence[str]
    source: Source
    templates: Sequence[str] = ()
    paths: bool = False
    read: Sequence[Any] = ()

    def files(self) -> Sequence[ObjectInfo]:
        """The files, shards or not; see `list_files`."""
        return list_files(self.source, self.templates)

    def manifest_among(self, files: Sequence[ObjectInfo]) -> str | None:
        """The path or URL of the manifest in a folder; None if it has none, or if something else was named.

        Raises:
            UsageError: when there are several.
        """
        if self.templates or self.source.templates or not is_folder(self.bucket):
            return None
        names = sorted(item.name for item in files if item.name.endswith("manifest.json"))
        if len(names) > 1:
            hint = f"name one: {', '.join(map(os.path.basename, names[:3]))}"
            raise UsageError(f"has {len(names)} manifests", shard=without_secrets(self.bucket), hint=hint)
        return _below(self.bucket, names[0]) if names else None


def resolve(
    bucket: str, templates: Sequence[str] = (), *, paths: bool = False, **reach: Unpack[ConnectionOptions]
) -> Named:
    """Return what a user named.

    Args:
        bucket: a file, folder, template, manifest, `-`, or a URL of any of these.
        templates: names in the bucket, or further manifests.
        paths: whether all of them are files, folders and templates of their own, if they exist.
        reach: how servers are reached.

    Raises:
        SourceError: when a path does not exist; what is on a server is not asked for yet.
        UsageError: when a manifest is followed by something else.
    """

    def opener(place: str) -> Source:
        return open_source(place, **reach)

    if manifests := manifests_named(bucket, templates, opener):
        return Named(bucket, manifests, TarsSource([]))
    if paths and (source := paths_source(bucket, templates, every=True)):
        return Named(bucket, (), source, paths=True)
    if names_manifest(bucket) and templates:
        raise UsageError("a manifest takes no template, as it lists its shards; give only further manifests")
    return Named(bucket, (), opener(bucket), templates)


def resolve_path(path: str, opener: Opener) -> Named:
    """Return what a user named by one path or URL.

    Args:
        path: as `resolve` takes it.
        opener: opens a folder or bucket; it may return the same source again.

    Raises:
        SourceError: when it does not exist; what is on a server is not asked for yet.
    """
    if manifests := manifests_named(path, (), opener):
        return Named(path, manifests, TarsSource([]))
    if os.path.isfile(path):  # the files of a folder share its source
        folder, name = os.path.split(path)
        return Named(path, (), opener(folder or "."), (name,))
    bucket, template = split_template(path)
    return Named(path, (), opener(bucket), (template,) if template else ())


def names_manifest(path: str) -> bool:
    """Whether a path, URL or template is that of manifests, by its suffix."""
    return without_secrets(path).endswith(".json")


def manifests_named(bucket: str, templates: Sequence[str], opener: Opener) -> Sequence[str]:
    """The manifests that bucket and templates name; none if they name anything else."""
    if not templates:
        bucket, template = split_template(bucket)
        templates = (template,) if template else ()
    if not all(map(names_manifest, templates)):
        return []
    if names_manifest(bucket) and not os.path.isdir(bucket):
        return [bucket, *templates]
    if not templates:
        return []
    return [_below(bucket, item.name) for item in list_files(opener(bucket), templates)]


def _below(folder: str, name: str) -> str:
    """Return the path or URL of a name in a folder."""
    address, mark, query = folder.partition("?") if is_remote(folder) else (folder, "", "")
    return f"{address.rstrip('/')}/{name}{mark}{query}"


# --- Files of a bucket ---


def is_explicit(source: Source, templates: Sequence[str]) -> bool:
    """Whether the objects of a source are named, by a path or template, rather than found by listing a folder."""
    return bool(templates or source.templates) or not (os.path.isdir(source.bucket) or is_remote(source.bucket))


def list_files(source: Source, templates: Sequence[str]) -> Sequence[ObjectInfo]:
    """Expand templates, without index files; if there are none, list every file of a directory that is not hidden.

    Raises:
        NothingFoundError: when nothing matches.
    """
    if templates or source.templates or not is_folder(source.bucket):
        listed = source.list_with_unreadable(templates)
        names = {item.name for item in listed}
        return [item for item in listed if not (item.name.endswith(".idx") and item.name[:-4] in names)]
    try:
        listed = source.list_with_unreadable(("*",))
    except NothingFoundError:
        if not is_remote(source.bucket):
            raise nothing_found(source.bucket) from None
        return _at_url(source)
    except (SourceError, UsageError):
        if is_remote(source.bucket):
            return _at_url(source)
        raise
    return [item for item in listed if not item.name.endswith(".idx")]


def _at_url(source: Source) -> Sequence[ObjectInfo]:
    """The object at a URL, or that of a store that cannot be listed."""
    try:
        return source.list(())
    except NoShardsError:
        raise nothing_found(source.bucket) from None


def is_folder(bucket: str) -> bool:
    """Whether a bucket can hold more than one shard."""
    return os.path.isdir(bucket) or is_remote(bucket)


def nothing_found(bucket: str) -> NoShardsError:
    """The error for a bucket without shards."""
    hint = "for shards in subfolders, give a template such as '**/*'"
    if bucket.startswith(("http://", "https://")):
        hint = "name its shards with braces, such as 'train-{0000..0146}.tar'"
    return NoShardsError("holds no tar or TFRecord", shard=without_secrets(bucket), hint=hint)


# --- Several paths ---


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

    def __init__(self, paths: Sequence[str], *, every: bool) -> None:
        anyway = every and len(paths) > 1
        files = [(path, tar) for path in paths for tar in _files(path, every=every, anyway=anyway)]
        located = [(path, source.locate(item.name)) for path, (source, item) in files]
        self._named = {where for path, where in located if where == path or not os.path.isdir(path)}
        super().__init__([tar for _, tar in files])
        seen: set[str] = set()
        for item in self.list(()):
            where = os.path.abspath(item.name)
            if where in seen:
                raise UsageError("is given twice", shard=item.name)
            seen.add(where)

    def listing_info(self) -> ListingInfo:
        """Return that the bucket, too, only says which inputs there are."""
        return ListingInfo(listed_by=(*ListingInfo().listed_by, "input.bucket"))

    def asked_for(self, name: str, templates: Sequence[str]) -> bool:
        """Whether the path itself or its template was given; a manifest or other JSON may be there by a glob."""
        return name in self._named and not name.endswith(".json")


def _files(path: str, *, every: bool, anyway: bool) -> list[Tar]:
    """The files of a path; with `anyway`, one that stands for a path that cannot be read."""
    source = open_source(path)
    try:
        listed: Sequence[ObjectInfo] = list_files(source, ()) if every else source.list(())
        if not listed:
            raise nothing_found(path)
    except SourceError as error:
        if anyway:
            return [unreadable_input(path, error)]
        raise error.at(shard=path) from None
    return [(source, item) for item in listed]


def paths_source(bucket: str, templates: Sequence[str], *, every: bool = False) -> PathsSource | None:
    """The source of bucket and templates if all are paths: they exist, and are not also names inside the first.

    If the first is a template of files itself, so may the others be. `every` is that of PathsSource.

    Raises:
        SourceError: when the first is a file, and one of the others is not a path that exists.
    """
    if not templates:
        return None
    if is_remote(bucket) or not split_template(bucket)[1]:
        missing = [path for path in templates if not os.path.lexists(path)]
        if missing and os.path.isfile(bucket) and not bucket.endswith(".json"):
            message = f"there is no such file or directory, and {bucket} is a single file, so it takes no template"
            raise SourceError(message, shard=missing[0])
        within = all(os.path.exists(os.path.join(bucket, name)) and not os.path.isabs(name) for name in templates)
        if missing or within or not os.path.lexists(bucket):
            return None
    return PathsSource((bucket, *templates), every=every)
