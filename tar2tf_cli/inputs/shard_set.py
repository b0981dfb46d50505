"""Resolution of the shards that a user names, by one rule for every command and function that reads shards.

| argument | shards |
|---|---|
| `x.json`, and a template with this suffix | the shards that these manifests list, as one dataset |
| a file, or the URL of an object | that shard |
| a folder, or the URL of a bucket or folder | every file in it whose content is a shard; as a dataset, its manifest |
| `folder/train-*.record`, `{0..9}`, or a bucket followed by these | the files that match |
| several of these, if all are paths that exist | all of them, in the order given |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, cached_property
from itertools import chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import DistantSource, ListingInfo, OnFile, Source
from tar2tf_cli.errors import NoShardsError, NothingFoundError, SourceError, Tar2tfError, UsageError, count, few
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.inputs.base import LocatedShard, MergedSource, unreadable_input
from tar2tf_cli.inputs.numbering import Gap, conflicting_totals, find_gaps, shape, splits_of
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.unfinished import Unfinished, search, unfinished_at, unfinished_of
from tar2tf_cli.plugins import find_format
from tar2tf_cli.spec.templates import (
    expand,
    format_named,
    glob_regex,
    is_glob,
    is_numbered,
    number_regex,
    split_template,
)
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote, is_web, split_query, without_secrets
from tar2tf_cli.stores import open_source
from tar2tf_cli.structs import NamedTuple, Protocol, dataclass, field, replace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.features.described import Described
    from tar2tf_cli.inputs.manifest import Document, ShardEntry
    from tar2tf_cli.inputs.tfds_folder import TfdsFolder

MANIFEST_SUFFIX: Final = "manifest.json"
_MANIFESTS: Final = f"*{MANIFEST_SUFFIX}"
_TFDS_INFO: Final = "dataset_info.json"
_PLAIN_NAME: Final = r"[\w.=+-]+"  # a name that is neither a template nor quoted in a URL
_MOST_FOLDERS: Final = 16  # folders in which to look for manifests


class SkippedFiles(NamedTuple):
    """Files that were found but not used as shards, because the user did not name them individually.

    Attributes:
        others: names of files that are neither tars nor TFRecords.
        manifests: names of manifests.
        outputs: names of shards that earlier conversions made of the set.
        tfds: names of files that describe the set for TensorFlow Datasets.
        contents: bytes of manifests in a bucket by name, if they were already read to detect their format.
    """

    others: Sequence[str] = ()
    manifests: Sequence[str] = ()
    outputs: Sequence[str] = ()
    tfds: Sequence[str] = ()
    contents: Mapping[str, bytes] = MappingProxyType({})

    def describing(self) -> list[str]:
        """Return the names of the files that list shards: manifests, or else `dataset_info.json`."""
        manifests = sorted(name for name in self.manifests if name.endswith(MANIFEST_SUFFIX))
        return manifests or [name for name in self.tfds if name == _TFDS_INFO]


_NOTHING: Final = SkippedFiles()


class OnListing(Protocol):
    """Called before a bucket may be listed; returns what is called with each of its files while the listing goes on."""

    def __call__(self, source: Source, *, whole: bool) -> OnFile | None:
        """Return the function; `whole` is whether all files are wanted, not only those that match a template."""


@dataclass(frozen=True, eq=False, repr=False)
class ShardSet:
    """Shards that belong together, and everything known about them before any of them is read.

    Attributes:
        bucket: the bucket or path as the user gave it.
        source: opens the shards.
        items: the shards, in order.
        manifests: paths or URLs of the manifests that the user named; empty if something else was named.
        documents: the manifests that list the shards, as far as they could be read.
        described: the features of TFRecords that a manifest describes, by the names of the shards.
        listed: whether the shards were found by listing a folder, rather than named individually or by a template.
        left_out: the other files that were found.
        gaps: the gaps in the numbering of the requested shards.
        splits: the splits of the shards, by name, if a manifest gives them or names state several.
        unfinished: unfinished conversions to which some of the shards belong.
    """

    bucket: str
    source: Source
    items: Sequence[ObjectInfo]
    manifests: Sequence[str] = ()
    documents: Sequence[Document] = ()
    described: Mapping[str, Described] = field(default_factory=dict)
    listed: bool = False
    left_out: SkippedFiles = _NOTHING
    gaps: Sequence[Gap] = ()
    splits: Mapping[str, str] = field(default_factory=dict)
    unfinished: Collection[Unfinished] = ()

    @classmethod
    def of(cls, source: Source, templates: Sequence[str] = ()) -> ShardSet:
        """Return the set of all inputs that a source lists."""
        return cls(source.bucket, source, source.list(templates))

    @cached_property
    def stems(self) -> dict[str, str]:
        """Distinct stems, by shard name, for shards whose stems are equal; keys of their records use them."""
        return stems_of(self.items)

    @cached_property
    def undescribed(self) -> Sequence[ObjectInfo]:
        """The shards that may be TFRecords, judging by their names, without a manifest that describes them."""
        return [item for item in self.items if item.name not in self.described and may_hold_examples(item.name)]

    @cached_property
    def tfds(self) -> TfdsFolder | None:
        """The TensorFlow Datasets files that describe the shards; None without any.

        Raises:
            SourceError: when the files are damaged.
        """
        described = [document.tfds for document in self.documents if document.tfds]
        if described or not self.left_out.tfds:
            return described[0] if len(described) == 1 else None
        from tar2tf_cli.inputs.tfds_folder import TfdsFolder

        return TfdsFolder.read(self.source)

    def only(self, keep: Callable[[ObjectInfo], bool]) -> ShardSet:
        """Return the set with only the shards for which `keep` is true."""
        items = [item for item in self.items if keep(item)]
        names = {item.name for item in items}
        described = {name: looks for name, looks in self.described.items() if name in names}
        splits = {name: split for name, split in self.splits.items() if name in names}
        gaps = self.gaps if len(items) == len(self.items) else _gaps(self.source, [item.name for item in items], ())
        return replace(self, items=items, described=described, splits=splits, gaps=gaps)

    def check_kinds(self) -> None:
        """Raise an error if a folder holds shards of several formats.

        Raises:
            UsageError: when it does; says how to select one format.
        """
        kinds: dict[str, list[str]] = {}
        if self.listed:
            for item in self.items:
                if kind := self._kind_of(item):
                    kinds.setdefault(kind, []).append(item.name)
        if len(kinds) > 1:
            held = " and ".join(count(len(names), find_format(kind).traits.singular) for kind, names in kinds.items())
            examples = " or ".join(repr(_template_of(names[0])) for names in kinds.values())
            hint = f"name one kind with a template, such as {examples}"
            raise UsageError(f"holds {held}", shard=without_secrets(self.bucket), hint=hint)

    def _kind_of(self, item: ObjectInfo) -> str | None:
        """Return the format of a shard, from its name if possible, otherwise from its first bytes."""
        named = format_named(item.name.lower())
        return named.name if named else _heads_of(self.source, [item])[item.name].format

    def check_totals(self) -> None:
        """Raise an error if names of one series state different totals.

        Raises:
            UsageError: when there are such names.
        """
        if self.listed and (names := conflicting_totals(item.name for item in self.items)):
            message = f"holds shards of two sets with one name: {names[0]} and {names[1]} state different totals"
            hint = f"name the shards of one with a template, such as {'*-of-' + names[1].rpartition('-of-')[2]!r}"
            raise UsageError(message, shard=without_secrets(self.bucket), hint=hint)

    def check_complete(self) -> None:
        """Raise an error if a shard is missing from the numbering, or a conversion is unfinished.

        Raises:
            SourceError: when the set is incomplete.
        """
        if lacking := [gap for gap in self.gaps if gap.stated]:
            missing = sum(gap.missing for gap in lacking)
            more = f" and {missing - 1:,} more" if missing > 1 else ""
            is_missing = "are missing" if more else "is missing"
            message = f"the shard {os.path.basename(lacking[0].first)}{more} {is_missing}"
            hint = "restore it, or add --ignore-gaps to convert the others"
            raise NothingFoundError(message, shard=without_secrets(self.bucket), hint=hint)
        for one in self.unfinished:
            message = f"the conversion that writes {one.manifest} is not finished"
            hint = "run the command that writes it again, or add --ignore-gaps to use the shards that exist"
            raise SourceError(message, shard=without_secrets(self.bucket), hint=hint)

    def lacking(self) -> list[str]:
        """Return names of missing shards and of unwritten manifests, the first of each."""
        ranges = (gap.first if gap.missing == 1 else f"{gap.first} to {gap.last}" for gap in self.gaps if gap.stated)
        return [*map(os.path.basename, (*ranges, *(one.manifest for one in self.unfinished)))]

    def check_one_split(self, keep: str = "") -> None:
        """Raise an error if a folder or manifests hold several splits.

        Args:
            keep: how to keep them, for the error.

        Raises:
            UsageError: when there are several; says how to select one.
        """
        names = [*dict.fromkeys(self.splits.values())]
        if len(names) > 1 and (self.listed or self.manifests):
            first = next(name for name, split in self.splits.items() if split == names[0])
            hint = f"{keep}name one with a template, such as {_split_template(first, names[0])!r}"
            raise UsageError(f"holds the splits {few(names)}", shard=without_secrets(self.bucket), hint=hint)

    def folder_manifest(self) -> str | None:
        """Return the path or URL of a folder's manifest; None without one, or if no folder was named.

        Raises:
            UsageError: when there are several.
        """
        if not self.listed:
            return None
        names = self.left_out.describing()
        if len(names) > 1:
            hint = f"name one: {', '.join(map(os.path.basename, names[:3]))}"
            raise UsageError(f"has {len(names)} manifests", shard=without_secrets(self.bucket), hint=hint)
        return _below(self.bucket, names[0]) if names else None

    def notes(self, *, of_faults: bool = True) -> Iterator[str]:
        """Yield notes for the user about the set, a sentence each.

        Args:
            of_faults: whether to also yield notes on gaps, totals and unfinished conversions, which are faults for
                `verify`.
        """
        if outputs := self.left_out.outputs:
            made = f"{count(len(outputs), 'shard')} left out, which earlier conversions made of the others"
            yield f"note: {made}: {few(outputs)}"
        splits = [*dict.fromkeys(self.splits.values())]
        if not self.listed and not self.manifests and len(splits) > 1:
            yield f"note: the shards belong to the splits {few(splits)}"
        held = [_describe_tfds(document) for document in self.documents if document.tfds]
        if held or self.left_out.tfds:
            files = few([*map(os.path.basename, self.left_out.tfds)] or [_TFDS_INFO])
            yield ": ".join([f"note: described for TensorFlow Datasets, by {files}", *held[:1]])
        if of_faults:
            yield from (f"note: {fault}" for fault in self.faults())

    def faults(self) -> Iterator[str]:
        """Yield reasons why the set may lack shards, or contain shards of another set."""
        for one in self.unfinished:
            yield f"the conversion that writes {one.manifest} is not finished"
        if self.gaps:
            missing, first = sum(gap.missing for gap in self.gaps), os.path.basename(self.gaps[0].first)
            yield f"{count(missing, 'shard')} missing from the numbering, first: {first}"
        if self.listed and (names := conflicting_totals(item.name for item in self.items)):
            yield f"{names[0]} and {names[1]} state different totals"

    def note_on_others(self) -> Iterator[str]:
        """Yield a note on the number of skipped files that are no shards."""
        if others := self.left_out.others:
            yield f"{count(len(others), 'file')} skipped (neither tar nor TFRecord): {few(others)}"


def _describe_tfds(document: Document) -> str:
    """Describe a TensorFlow Datasets data set by its name and splits."""
    names = [*dict.fromkeys(shard.split for shard in document.manifest.shards if shard.split)]
    return f"{document.tfds.name if document.tfds else ''} with {count(len(names), 'split')} ({few(names)})"


def resolve(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    tolerant: bool = False,
    described: bool = True,
    **connection: Unpack[ConnectionOptions],
) -> ShardSet:
    """Return the set of shards that a user names.

    Args:
        bucket: a file, folder, template, manifest, `-`, or a URL of any of these.
        templates: names in the bucket, or further manifests.
        paths: whether bucket and templates are separate files, folders and templates, if all of them exist.
        tolerant: whether a missing or unreadable shard becomes an input that fails to open, so that the others can
            still be read.
        described: whether to also read the manifests next to individually named shards, not only those in a listed
            folder.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        SourceError: when no shards are found, or a folder or manifest cannot be read.
        DamagedShardError: when the size of a shard differs from the named manifest.
        UsageError: when a manifest is followed by anything but manifests, or a file is given twice.
    """
    if manifests := manifests_named(bucket, templates, connection):
        return _of_manifests(bucket, manifests, connection, tolerant=tolerant)
    if paths and _are_paths(bucket, templates):
        shards = _of_paths((bucket, *templates), tolerant=tolerant)
        return _completed(shards, connection, described=described)
    if names_manifest(bucket) and templates:
        raise UsageError("a manifest takes no template, as it lists its shards; give only further manifests")
    shards = _found(open_source(bucket, **connection), templates, alone=True)
    return _completed(shards, connection, described=described or shards.listed)


def resolve_each(
    paths: Sequence[str], on_listing: OnListing | None = None, **connection: Unpack[ConnectionOptions]
) -> Iterator[ShardSet]:
    """Yield a set for each path or URL; a folder with a manifest means the shards that the manifest lists.

    Args:
        paths: paths or URLs.
        on_listing: called before a folder is listed.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        SourceError: when a path does not exist, or no shards are found or listed.
        UsageError: when a folder has several manifests.
    """
    opened = cache(lambda bucket: open_source(bucket, **(connection if is_remote(bucket) else {})))
    for folder, together in _grouped(paths):
        if folder is not None and (shards := _objects_at(together, opened, folder)):
            yield _completed(shards, connection, described=False)
        else:
            yield from (_dataset_at(path, opened, on_listing, connection) for path in together)


def _grouped(paths: Sequence[str]) -> Iterator[tuple[str | None, Sequence[str]]]:
    """Yield consecutive URLs of different shards in one folder of a bucket together, with the folder's URL."""
    for folder, several in groupby(paths, _folder_of_shard):
        together: dict[str, None] = {}
        for path in several:
            if path in together:
                yield folder, [*together]
                together.clear()
            together[path] = None
        yield folder, [*together]


def _folder_of_shard(path: str) -> str | None:
    """Return the URL of the folder of a shard in a bucket; None for a path, and for the URL of anything else."""
    if not is_remote(path) or split_template(path)[1]:
        return None
    address, mark, query = split_query(path)
    folder, _, name = address.rpartition("/")
    return f"{folder}/{mark}{query}" if re.fullmatch(_PLAIN_NAME, name) and is_shard_name(name) else None


def _objects_at(urls: Sequence[str], opened: Callable[[str], Source], folder: str) -> ShardSet | None:
    """Look up shards with different URLs in a folder at once; return None unless all exist."""
    names = [split_query(url)[0].rpartition("/")[2] for url in urls]
    with suppress(Tar2tfError):  # raised again with the URL that is at fault
        found = opened(folder).find(names)
        if len(found) == len(names):
            return ShardSet(urls[0], opened(folder), [found[name] for name in names])
    return None


def _dataset_at(
    path: str, opened: Callable[[str], Source], on_listing: OnListing | None, connection: ConnectionOptions
) -> ShardSet:
    """Return the shards at a path or URL, or those of the manifests that it names or that are in its folder."""
    from tar2tf_cli.inputs.manifest import read_document

    shards = None
    manifests = manifests_named(path, (), connection)
    documents = [read_document(manifest, **connection) for manifest in manifests]
    if not manifests:
        shards = _found_at(path, opened, on_listing)
        if inside := shards.folder_manifest():
            manifests, documents = [inside], [_document_in(shards, shards.left_out.describing()[0], connection)]
    if shards is None or manifests:
        source = shards.source if shards else MergedSource([])
        if shards is None or not shards.items or any(document.manifest.is_complete for document in documents):
            local = (manifest for manifest in manifests if not is_remote(manifest))
            unfinished = [*chain.from_iterable(map(unfinished_at, local))]  # in a bucket, a manifest shows the end
            shards = ShardSet(path, source, (), manifests, documents, unfinished=unfinished)
        for document in documents if shards.manifests else ():
            if not document.manifest.is_complete:
                raise lists_nothing(document.path)
    return _with_splits(shards) if shards.manifests else _completed(shards, connection, described=False)


def lists_nothing(path: str) -> SourceError:
    """Return the error for a manifest that lists no shards and does not explain why."""
    return SourceError("the manifest lists no shards, so there is nothing to read", shard=path)


def _found_at(path: str, opened: Callable[[str], Source], on_listing: OnListing | None) -> ShardSet:
    """Return the shards at a path; all files of a folder share one source."""
    if os.path.isfile(path):
        folder, name = os.path.split(path)
        return _found(opened(folder or "."), (name,), alone=True)
    bucket, template = split_template(path)
    return _found(opened(bucket), (template,) if template else (), alone=True, on_listing=on_listing)


# --- Manifests ---


def names_manifest(path: str) -> bool:
    """Whether a path, URL or template names manifests, by its suffix."""
    return without_secrets(path).endswith(".json")


def manifests_named(bucket: str, templates: Sequence[str], connection: ConnectionOptions) -> Sequence[str]:
    """Return the manifests that bucket and templates name; nothing if they name other files.

    Raises:
        SourceError: when no manifest matches a template.
    """
    if not templates:
        bucket, template = split_template(bucket)
        templates = (template,) if template else ()
    if not all(map(names_manifest, templates)):
        return []
    if names_manifest(bucket) and not os.path.isdir(bucket):
        return [bucket, *templates]
    if not templates:
        return []
    return [_below(bucket, item.name) for item in open_source(bucket, **connection).list_with_unreadable(templates)]


def _of_manifests(bucket: str, paths: Sequence[str], connection: ConnectionOptions, *, tolerant: bool) -> ShardSet:
    """Return the shards that manifests list."""
    from tar2tf_cli.inputs.manifest import read_document  # slow to import, and only for manifests

    documents: list[Document] = []
    tars: list[LocatedShard] = []
    unfinished: list[Unfinished] = []
    for path in paths:
        try:
            document = read_document(path, **connection)
        except SourceError as error:
            if not tolerant or len(paths) == 1:
                raise
            tars.append(unreadable_input(path, error))
            continue
        documents.append(document)
        searched = search(unfinished_at, document.path, document.folder)
        tars += _shards_of(document, tolerant=tolerant)
        unfinished += searched
    if len(documents) == len(paths) == 1 and not tolerant:
        source, items = documents[0].folder, [item for _, item in tars]
    else:
        source = MergedSource(tars)
        source.bucket, items = few(paths, 1), source.list(())
    whole = ShardSet(bucket, source, items, paths, documents, unfinished=unfinished)
    return _with_splits(replace(whole, described=_described(whole, documents)))


def _completed(shards: ShardSet, connection: ConnectionOptions, *, described: bool) -> ShardSet:
    """Add manifests (if `described`), splits and unfinished conversions to a set."""
    paths = [shards.source.locate(item.name) for item in shards.items]
    unfinished = search(unfinished_of, paths, shards.source)
    shards = _with_splits(_with_documents(shards, connection) if described else shards)
    return replace(shards, unfinished=unfinished)


def _with_splits(shards: ShardSet) -> ShardSet:
    """Add the splits of the shards to a set, taken from manifests or else from names."""
    where = _by_path(shards) if shards.documents else {}
    splits = {
        item.name: entry.split
        for document in shards.documents
        for entry, item in _listed_files(document, where)
        if entry.split is not None
    }
    splits = splits or splits_of([item.name for item in shards.items])
    return replace(shards, splits=splits)


def _by_path(shards: ShardSet) -> dict[str, ObjectInfo]:
    """Return the shards of a set by path or URL."""
    return {os.path.normpath(shards.source.locate(item.name)): item for item in shards.items}


def _shards_of(document: Document, *, tolerant: bool) -> Iterator[LocatedShard]:
    """Yield the shards of a manifest, checking their sizes; if `tolerant`, missing ones fail when they are opened."""
    if not tolerant:
        yield from (LocatedShard(document.folder, item) for item in document.find_checked(document.manifest.shards))
        return
    there = {item.name: item for item in document.there()}
    for shard in document.manifest.shards:
        if shard.path in there:
            yield LocatedShard(document.folder, there[shard.path])
        else:
            yield unreadable_input(document.folder.locate(shard.path), document.missing(shard))


def documents_next_to(source: Source, items: Iterable[ObjectInfo], connection: ConnectionOptions) -> list[Document]:
    """Return the manifests in the folders of shards, ignoring unreadable ones."""
    folders: dict[str, None] = {}
    for item in items:
        if len(folders) < _MOST_FOLDERS:
            folders[os.path.dirname(source.locate(item.name))] = None
    documents: list[Document] = []
    for folder in folders:
        if not (is_remote(folder) or os.path.isdir(folder or ".")):
            continue
        with suppress(Tar2tfError):
            place = open_source(folder or ".", **(connection if is_remote(folder) else {}))
            if place.store is None or place.store.can_list:
                names = _describing_in(place)
                documents += _readable(map(place.locate, names), lambda path: _read_document(path, connection))
    return documents


def _describing_in(folder: Source) -> Iterable[str]:
    """Return the names of the manifests in a folder, or else of `dataset_info.json`."""
    try:
        return [item.name for item in folder.list((_MANIFESTS,))]
    except NothingFoundError:
        return folder.find([_TFDS_INFO])


def _readable(names: Iterable[str], read: Callable[[str], Document]) -> Iterator[Document]:
    """Yield the manifests that can be read."""
    for name in names:
        with suppress(Tar2tfError):
            yield read(name)


def _read_document(path: str, connection: ConnectionOptions) -> Document:
    from tar2tf_cli.inputs.manifest import read_document  # slow to import, and only for manifests

    return read_document(path, **connection)


def _document_in(shards: ShardSet, name: str, connection: ConnectionOptions) -> Document:
    """Read a manifest in a listed folder, using the listing where possible.

    Raises:
        SourceError: when it cannot be read.
    """
    path, content = _below(shards.bucket, name), shards.left_out.contents.get(name)
    if content is None or "/" in name:
        return _read_document(path, connection)
    from tar2tf_cli.inputs.manifest import Document, Manifest  # slow to import, and only for manifests

    path, listed = without_secrets(path), {item.name: item for item in shards.items}
    return Document(path, Manifest.from_bytes(content, path), shards.source, listed=listed)


def described_by(shards: ShardSet, documents: Sequence[Document]) -> ShardSet:
    """Add manifests to a set, which takes the order of a manifest that lists all of its shards."""
    if not documents:
        return replace(shards, documents=(), described={})
    where, items = _by_path(shards), shards.items
    for document in documents:
        ordered = [item for _, item in _listed_files(document, where)]
        if shards.listed and len(ordered) == len(items):
            items = ordered
    return replace(shards, items=items, documents=documents, described=_described(shards, documents))


def _described(shards: ShardSet, documents: Sequence[Document]) -> dict[str, Described]:
    where = _by_path(shards)
    return {
        item.name: document.manifest.features
        for document in documents
        if find_format(document.manifest.format).traits.carries_examples
        for _, item in _listed_files(document, where)
    }


def _listed_files(document: Document, where: Mapping[str, ObjectInfo]) -> Iterator[tuple[ShardEntry, ObjectInfo]]:
    """Yield the manifest's entries that are among given files, with the same path and size."""
    for entry in document.manifest.shards:
        item = where.get(os.path.normpath(document.folder.locate(entry.path)))
        if item and item.size in (None, entry.bytes):
            yield entry, item


def _below(folder: str, name: str) -> str:
    """Return the path or URL of a name in a folder."""
    address, mark, query = split_query(folder)
    return f"{address.rstrip('/')}/{name}{mark}{query}"


# --- Folders, files and templates ---


def _found(source: Source, templates: Sequence[str], *, alone: bool, on_listing: OnListing | None = None) -> ShardSet:
    """Return the shards of a bucket that match templates or, without templates, all of its shards.

    With `alone`, nothing else is named, so that a file is used regardless of its format.
    """
    whole_folder = not (templates or source.templates)
    on_file = on_listing(source, whole=whole_folder) if on_listing else None
    with source.while_listing(on_file) if on_file and isinstance(source, DistantSource) else nullcontext():
        files, listed = _files_of(source, templates)
        literal = {item.name for item in files} if alone and not (listed or source.templates) else {*()}
        items, left_out = _shards_among(source, files, literal if not templates else {*templates}, listed=listed)
    gaps = _gaps(source, [item.name for item in items], templates or source.templates) if listed or alone else []
    return ShardSet(source.bucket, source, items, listed=listed, left_out=left_out, gaps=gaps)


def _gaps(source: Source, names: Sequence[str], templates: Sequence[str]) -> list[Gap]:
    """Return the gaps in the numbering of a folder's files, or of the files that match globs."""
    if not (templates or _is_folder(source.bucket)):
        return []
    globs = [name for template in templates if is_glob(template) or is_numbered(template) for name in expand(template)]
    if templates and not globs:
        return []
    matches = [number_regex(glob) if is_numbered(glob) else glob_regex(glob) for glob in globs]
    return [gap for gap in find_gaps(names) if not matches or any(match.match(gap.first) for match in matches)]


def _with_documents(shards: ShardSet, connection: ConnectionOptions) -> ShardSet:
    """Add the manifests in the folders of its shards to a set."""
    if shards.source.capabilities.gives != "bytes" or not shards.source.capabilities.repeatable:
        return shards
    if shards.listed:
        names = shards.left_out.describing()
        documents = [*_readable(names, lambda name: _document_in(shards, name, connection))]
        return described_by(_without_outputs(shards, documents), documents) if documents else shards
    described = (item for item in shards.items if may_hold_examples(item.name))
    return described_by(shards, documents_next_to(shards.source, described, connection))


def _without_outputs(shards: ShardSet, documents: Sequence[Document]) -> ShardSet:
    """Remove shards that earlier conversions wrote from this set's own shards, according to their manifests."""
    where = _by_path(shards)
    there = {(os.path.basename(item.name), item.size) for item in shards.items}
    made: dict[str, None] = {}
    for document in documents:
        own = {item.name: (os.path.basename(item.name), item.size) for _, item in _listed_files(document, where)}
        others = there.difference(own.values())
        if any((os.path.basename(item.name), item.size) in others for item in document.manifest.inputs):
            made.update(dict.fromkeys(own))
    if not made:
        return shards
    left_out = shards.left_out._replace(outputs=[*made])
    return replace(shards.only(lambda item: item.name not in made), left_out=left_out)


def _files_of(source: Source, templates: Sequence[str]) -> tuple[Sequence[ObjectInfo], bool]:
    """Return the files that match templates, or all visible files of a folder; and whether it was a whole folder."""
    if templates or source.templates or not _is_folder(source.bucket):
        return source.list_with_unreadable(templates), False
    try:
        return source.list_with_unreadable(("*",)), True
    except NothingFoundError:
        pass
    except (SourceError, UsageError):
        if not is_remote(source.bucket):
            raise
    try:
        return source.list(()), False  # the object at a URL, or that of a store that cannot be listed
    except NoShardsError as error:
        raise nothing_found(source.bucket, error.hint) from None


def _shards_among(
    source: Source, items: Sequence[ObjectInfo], literal: set[str], *, listed: bool
) -> tuple[Sequence[ObjectInfo], SkippedFiles]:
    """Divide files into shards, by content if the name does not tell, and all others.

    A file with the name of a shard, or a name like the other shards, counts as a damaged shard if its content is not a
    shard. So does a file that the user named, except files that accompany shards: manifests, indexes and markers.
    """
    names = {item.name for item in items}
    named = {item.name for item in items if is_shard_name(item.name)}
    unclear = [item for item in items if item.name not in named and item.name not in literal]
    unclear = [item for item in unclear if not (item.name.endswith(".idx") and (listed or item.name[:-4] in names))]
    if not listed:
        unclear = [item for item in unclear if item.name.endswith(".json") or _is_marker(item.name)]
    heads = _heads_of(source, unclear)
    plain = {name for name, head in heads.items() if head.format not in (None, "manifest")} | named
    shapes = {*map(shape, plain)} if len(plain) < len(items) else set[str]()
    kept, others, manifests = list[ObjectInfo](), list[ObjectInfo](), list[str]()
    for item in items:
        name = item.name
        if name in plain or name in literal:
            kept.append(item)
        elif name in heads and heads[name].format == "manifest":
            manifests.append(name)
        elif name in heads or listed:
            (kept if shape(name) in shapes else others).append(item)
        elif not name.endswith(".idx"):
            kept.append(item)
    names_of_others = [item.name for item in others if not item.name.endswith(".idx")]
    tfds = _tfds_files(names_of_others)
    contents = {name: data for name in manifests if (data := heads[name].manifest) is not None}
    return kept, SkippedFiles([name for name in names_of_others if name not in tfds], manifests, (), tfds, contents)


def _tfds_files(names: Sequence[str]) -> list[str]:
    """Return the names of the files that describe a folder for TensorFlow Datasets."""
    if _TFDS_INFO not in names:
        return []
    from tar2tf_cli.inputs.tfds_folder import side_files  # slow to import, and only for such folders

    return side_files(names)


class _Head(NamedTuple):
    """The kind of a file, detected from its first bytes.

    Attributes:
        format: format of the shard, or "manifest"; None for a file that is neither, or cannot be read.
        manifest: the bytes of a manifest in a bucket, if they were requested already; None for other files.
    """

    format: str | None = None
    manifest: bytes | None = None


def _heads_of(source: Source, items: Sequence[ObjectInfo]) -> dict[str, _Head]:
    """Read the first bytes of files, and return the kind of each file."""
    heads: dict[str, _Head] = {}
    remote = source.capabilities.remote
    with source.prefetch(items):
        for item in items:
            heads[item.name] = _Head()
            if item.size != 0:
                with suppress(SourceError), OpenShard(source, item) as shard:
                    is_near = remote and shard.format == "manifest" and not shard.compression
                    heads[item.name] = _Head(shard.format, read_to_end(shard.content) if is_near else None)
    return heads


def is_shard_name(name: str) -> bool:
    """Whether a name looks like a shard's; only content decides what a file is."""
    return format_named(name.lower()) is not None


def may_hold_examples(name: str) -> bool:
    """Whether a name may be that of a TFRecord, whose features a manifest can describe."""
    named = format_named(name.lower())
    return named is None or named.traits.carries_examples


def _is_marker(name: str) -> bool:
    """Whether a name is that of a marker file of Hadoop or Spark, such as _SUCCESS."""
    return os.path.basename(name).startswith("_")


def _is_folder(bucket: str) -> bool:
    """Whether a bucket can contain more than one shard."""
    return os.path.isdir(bucket) or is_remote(bucket)


def stems_of(items: Iterable[ObjectInfo]) -> dict[str, str]:
    """Return, by shard name, distinct stems for the shards whose stems are equal."""
    alike: dict[str, list[ObjectInfo]] = {}
    for item in items:
        alike.setdefault(item.stem, []).append(item)
    return {
        item.name: stem
        for together in alike.values()
        if len(together) > 1
        for item, stem in zip(together, _distinct_stems([item.name for item in together]), strict=True)
    }


def _distinct_stems(names: Sequence[str]) -> list[str]:
    """Return distinct names for shards of the same stem: with folders that differ and, if needed, suffixes."""
    start = os.path.commonprefix(names).rfind("/") + 1  # noqa: RUF071 - of names, which may be URLs
    rest = [name[start:] for name in names]
    heads = [name[: len(name) - len(os.path.basename(name))] for name in rest]
    stems = [head + ObjectInfo(name, None, None).stem for head, name in zip(heads, rest, strict=True)]
    return stems if len({*stems}) == len(stems) else rest


def _template_of(name: str) -> str:
    """Return a template that matches shards named like a given one."""
    base = re.sub(r"\d+", "*", name)
    return base if base != name else f"*{os.path.splitext(name)[1]}" if "." in name else name


def _split_template(name: str, split: str) -> str:
    """Return a template for the shards of a split, given the name of one of them."""
    base = os.path.basename(name)
    return f"{base[: base.index(split)]}{split}*" if split in base else f"{split}/*"


def nothing_found(bucket: str, hint: str | None = None) -> NoShardsError:
    """Return the error for a bucket without shards; the default hint says how to name shards in its folders."""
    hint = hint or "for shards in subfolders, give a template such as '**/*'"
    if is_web(bucket):
        hint = "name its shards with braces, such as 'train-{0000..0146}.tar'"
    return NoShardsError("holds no tar or TFRecord", shard=without_secrets(bucket), hint=hint)


# --- Several paths ---


class PathsSource(MergedSource):
    """Files and the shards of folders, with their paths as names."""

    def listing_info(self) -> ListingInfo:
        """Return that the bucket, like the templates, only determines which inputs there are."""
        return ListingInfo(listed_by=(*ListingInfo().listed_by, "input.bucket"))


def _are_paths(bucket: str, templates: Sequence[str]) -> bool:
    """Whether bucket and templates are all existing paths, and not also names inside the first.

    If the first is a template of files, the others may be templates, too.

    Raises:
        SourceError: when the first is a file, and one of the others is not a path that exists.
    """
    if not templates:
        return False
    if is_remote(bucket) or not split_template(bucket)[1]:
        missing = [path for path in templates if not os.path.lexists(path)]
        if missing and os.path.isfile(bucket) and not bucket.endswith(".json"):
            message = f"there is no such file or directory, and {bucket} is a single file, so it takes no template"
            raise SourceError(message, shard=missing[0])
        within = all(os.path.exists(os.path.join(bucket, name)) and not os.path.isabs(name) for name in templates)
        if missing or within or not os.path.lexists(bucket):
            return False
    return True


def _of_paths(paths: Sequence[str], *, tolerant: bool) -> ShardSet:
    """Return the shards of files, folders and templates, in the order given."""
    parts: list[ShardSet] = []
    for path in paths:
        try:
            part = _found(open_source(path), (), alone=False)
            if part.listed and not (part.items or part.left_out.manifests):
                raise nothing_found(path)
        except SourceError as error:
            if not tolerant:
                raise error.at(shard=path) from None
            source, item = unreadable_input(path, error)
            part = ShardSet(path, source, [item])
        parts.append(part)
    return _joined(parts)


def _joined(parts: Sequence[ShardSet]) -> ShardSet:
    """Merge several sets into one, whose shards are named by their paths."""
    seen: set[str] = set()
    shards: list[LocatedShard] = []
    for part in parts:
        for item in part.items:
            path = part.source.locate(item.name)
            if (where := os.path.abspath(path)) in seen:
                raise UsageError("is given twice", shard=path)
            seen.add(where)
            shards.append(LocatedShard(part.source, item))
    shards = [each for each in shards if not _is_index(each.source.locate(each.item.name), seen)]
    source = PathsSource(shards)
    others = [part.source.locate(name) for part in parts for name in part.left_out.others]
    manifests = [part.source.locate(name) for part in parts for name in part.left_out.manifests]
    gaps = [gap.located(part.source.locate) for part in parts for gap in part.gaps]
    files = [part.source.locate(item.name) for part in parts if not part.listed for item in part.items]
    gaps += [gap for gap in find_gaps(files, ends=False) if not os.path.exists(gap.first)]
    items = source.list(())
    return ShardSet(source.bucket, source, items, left_out=SkippedFiles(others, manifests), gaps=gaps)


def _is_index(path: str, others: set[str]) -> bool:
    """Whether a file is the index of one of several other files."""
    return path.endswith(".idx") and os.path.abspath(path[:-4]) in others
