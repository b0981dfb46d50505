"""The shards of a dataset, named by manifests, files, folders, templates or URLs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.datasets.process_resources import ProcessResources
from tar2tf_cli.errors import SampleError, SourceError, UsageError, few
from tar2tf_cli.events import Events
from tar2tf_cli.features.decoder import Decoder
from tar2tf_cli.features.feature_map import Look, Schema
from tar2tf_cli.inputs.manifest import Document, ShardEntry
from tar2tf_cli.inputs.shard_set import OnListing, ShardSet, documents_next_to, may_hold_examples, resolve_each
from tar2tf_cli.ops.rules import accepted, text
from tar2tf_cli.plugins import find_format
from tar2tf_cli.spec.urls import ConnectionOptions, without_secrets

if TYPE_CHECKING:
    from typing_extensions import Unpack


Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""Manifests and shards, each as a path or URL."""


@dataclass(frozen=True, slots=True)
class DatasetShard:
    """A shard of a dataset, and the decoder of its records.

    Attributes:
        source: the source that contains it.
        item: the shard in this source.
        decode: decodes its records to values.
        records: number of its records; None without a manifest.
    """

    source: Source
    item: ObjectInfo
    decode: Decoder
    records: int | None = None

    @property
    def name(self) -> str:
        """Path or URL of the shard."""
        return self.source.locate(self.item.name)

    @property
    def size(self) -> int:
        """Size of the shard in bytes.

        Raises:
            SourceError: when its server does not report it.
        """
        if self.item.size is None:
            raise SourceError("the server does not say how large it is", shard=self.name, hint="copy it to a disk")
        return self.item.size


def find_shards(
    paths: Sequence[str], split: str | None, process: ProcessResources, **connection: Unpack[ConnectionOptions]
) -> tuple[list[DatasetShard], Iterator[str]]:
    """Return the shards that manifests, files, folders and templates name, in the given order, and notes on them.

    The notes may have to wait for answers of a bucket, so that callers iterate over them last.

    Args:
        paths: paths or URLs. One that ends in .json is a manifest. A folder stands for its manifest, if
            it has one, otherwise for all its files.
        split: only the shards of this split of the manifests.
        process: prefetches data from distant buckets.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        SourceError: when a path does not exist, or a shard of a manifest is missing or differs in size.
        UsageError: when the split does not exist, or there are no manifests.
    """
    if not paths:
        raise UsageError("there are no shards: name a manifest, files or a folder")
    raw, read, shards = Decoder(), list[Document](), list[tuple[DatasetShard, bool]]()
    notes = list[Iterator[str]]()
    for named in resolve_each(paths, process.on_listing, **connection):
        read += named.documents
        if split is not None and not named.documents:
            hint = "name the manifest, or leave split out"
            message = f"shards were named without a manifest, which would list the split {split!r}"
            raise UsageError(message, shard=without_secrets(named.bucket), hint=hint)
        for document in named.documents:
            shards += ((shard, True) for shard in _of_manifest(document, split, raw, process))
        _check(named)
        notes.append(named.notes())
        process.begin(named.source, [item for item in named.items if not may_hold_examples(item.name)])
        shards += ((shard, False) for shard in _named_shards(named, raw, connection))
    notes.append(note_on_splits(read, split))
    if split is not None:
        listed(read, split)
    if len(read) > 1:  # examples of all manifests have the same features, dtypes and ranks
        decode = Decoder(*together(read))
        shards = [(replace(shard, decode=decode) if of_manifest else shard, False) for shard, of_manifest in shards]
    return [shard for shard, _ in shards], chain.from_iterable(notes)


def _named_shards(named: ShardSet, raw: Decoder, connection: ConnectionOptions) -> list[DatasetShard]:
    """Return the shards of a set without manifests, each as a manifest next to it describes it, if there is one."""
    shards = {item.name: DatasetShard(named.source, item, raw) for item in named.items}
    items = [] if named.listed else [item for item in named.items if may_hold_examples(item.name)]
    paths = {os.path.normpath(named.source.locate(item.name)): item for item in items}
    for document in documents_next_to(named.source, items, connection):
        manifest = document.manifest
        if find_format(manifest.format).traits.carries_examples:
            with suppress(SourceError):  # its features cannot be decoded
                decode = Decoder(manifest.features, manifest.records)
                for entry in manifest.shards:
                    item = paths.get(os.path.normpath(document.folder.locate(entry.path)))
                    if item and item.size in (None, entry.bytes):
                        records = None if item.size is None else entry.records
                        shards[item.name] = DatasetShard(named.source, item, decode, records)
    return list(shards.values())


def shards_of(read: Sequence[Document], split: str | None, process: ProcessResources) -> list[DatasetShard]:
    """Return the shards of parsed manifests, or only those of one split."""
    raw = Decoder()
    return [shard for document in read for shard in _of_manifest(document, split, raw, process)]


def _check(shards: ShardSet) -> None:
    """Raise an error if a set is no consistent dataset."""
    shards.check_kinds()
    shards.check_totals()
    if not shards.documents:
        shards.check_one_split()


def paths_in(given: Paths, more: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return one or several paths, and further ones, as one list.

    Raises:
        UsageError: when one of them is neither text nor a path.
    """
    several = given if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]
    return [accepted(text, path, "the name of a shard or manifest") for path in (*several, *more)]


def _of_manifest(
    document: Document, split: str | None, raw: Decoder, process: ProcessResources
) -> Iterator[DatasetShard]:
    manifest = document.manifest
    try:
        examples = find_format(manifest.format).traits.carries_examples
        decode = Decoder(manifest.features, manifest.records) if examples else raw
    except SourceError as error:
        raise error.at(shard=document.path) from None
    shards = [shard for shard in document.shards if split in (None, shard.split)]
    for shard, item in zip(shards, process.find_checked(document, shards), strict=True):
        yield DatasetShard(document.folder, item, decode, shard.records)


def read_manifests(
    paths: Sequence[str],
    *,
    beside: bool = False,
    on_listing: OnListing | None = None,
    **connection: Unpack[ConnectionOptions],
) -> list[Document]:
    """Read manifests, each given by path, URL, folder or template.

    Args:
        paths: paths or URLs.
        beside: whether shards may be named, too: the manifest in their folder is read, and restricted to these shards.
        on_listing: called before a folder is listed.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        SourceError: when a manifest does not exist or cannot be read.
        UsageError: when no manifest is given, a folder has several, or none lists a shard.
    """
    if not paths:
        raise UsageError("there is no manifest: name one or several")
    read = list[Document]()
    for named in resolve_each(paths, on_listing, **connection):
        documents = documents_next_to(named.source, named.items, connection) if beside and not named.documents else ()
        _check(named)
        for note in named.notes():
            Events().note(note)
        read += named.documents or _beside(named, documents)
    return read


def _beside(shards: ShardSet, documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the manifests that list some of the given files, restricted to these files.

    Raises:
        UsageError: when none lists a file.
    """
    locate, files = shards.source.locate, shards.items
    left = {os.path.normpath(locate(item.name)): item for item in files}
    for document in documents:
        entries = {os.path.normpath(document.folder.locate(one.path)): one for one in document.manifest.shards}
        if both := [name for name in left if name in entries]:
            yield replace(document, named=[entries[name] for name in both])
        for name in both:
            del left[name]
    if left:
        name = shards.bucket if len(left) == len(files) else locate(next(iter(left.values())).name)
        what = "has no manifest, which says how to parse its records"
        hint = (
            "tar2tf convert writes it next to the shards; tar2tf inspect --code prints a parser for those without one"
        )
        if (store := shards.source.store) and not store.can_list:
            what = "is in a folder that cannot be listed, so that its manifest is not found"
            hint = f"name the manifest, which says how to parse its records; {hint}"
        raise UsageError(what, shard=without_secrets(name), hint=hint)


def listed(read: Sequence[Document], split: str | None) -> list[tuple[Document, ShardEntry]]:
    """Return the shards of manifests, or only those of one split, each with its manifest.

    Raises:
        UsageError: when none of them has the split.
    """
    shards = [(one, shard) for one in read for shard in one.shards if split in (None, shard.split)]
    if split is not None and not shards:
        names = sorted({shard.split for one in read for shard in one.shards if shard.split})
        raise UsageError(f"there is no split {split!r}", hint=f"splits: {', '.join(names) or 'none'}")
    return shards


def note_on_splits(read: Sequence[Document], split: str | None) -> Iterator[str]:
    """Yield a note if no split is chosen and manifests that were named hold several, which become one dataset."""
    shards = (shard for one in read if one.named is None for shard in one.shards)
    names = [*dict.fromkeys(shard.split for shard in shards if shard.split)]
    if split is None and len(names) > 1:
        yield f"note: the shards belong to the splits {few(names)}; split={names[0]!r} chooses one"


def together(read: Sequence[Document]) -> tuple[dict[str, FeatureDescription], int]:
    """Return the common features of several manifests' examples, and their total number of records.

    A length that differs becomes unknown, and a feature that some manifests lack becomes optional.

    Raises:
        UsageError: when manifests differ in the kind or rank of a feature, or only some describe their features.
    """
    if len(read) == 1:
        return read[0].manifest.features, read[0].manifest.records
    whole, schema = [one for one in read if one.manifest.records], Schema()
    for one in whole:
        if bool(one.manifest.features) != bool(whole[0].manifest.features):
            raise UsageError("describes no features, but others do", shard=one.path)
        described = one.manifest.features
        looks: dict[str, Look] = {
            name: (item["encoding"], item["dtype"], tuple(item["shape"])) for name, item in described.items()
        }
        try:
            schema.update(Schema(Counter({(name,): item.get("count", 0) for name, item in described.items()}), looks))
        except SampleError as error:
            hint = "convert them with the same ops and types, or read them one by one"
            raise UsageError(error.message, shard=one.path, hint=hint) from None
    return schema.describe(), sum(one.manifest.records for one in whole)
