"""Gathers what the page of `inspect --html` shows from all samples of a shard: sizes, labels, duplicates, images."""

from __future__ import annotations

import os
import random
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import log2
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tar2tf_cli.checking.files import FileContext, FileTask, read_files
from tar2tf_cli.checking.look import shortened
from tar2tf_cli.checking.manifests import open_shards
from tar2tf_cli.checking.raw_samples import contents_of, values_of
from tar2tf_cli.checking.record_digests import digest_of
from tar2tf_cli.errors import SourceError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.example_parser import ParsedFeature
from tar2tf_cli.formats.magic import sniff
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard, list_files
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.samples.names import KEY, Sample, key_of
from tar2tf_cli.spec.reach import Reach
from tar2tf_cli.stores import ObjectInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MOST_PICTURES", "STEPS_PER_DOUBLING", "Picture", "ShardPage", "find_duplicates", "read_pages", "split_of"]

MOST_PICTURES: Final = 48
"""Images on the page; as many shards as that give some."""

STEPS_PER_DOUBLING: Final = 2
"""Bars of the histogram of sizes in each doubling of the size."""

_LABELS: Final = ("image/class/text", "label", "labels", "cls", "class", "image/class/label", "target", "y")
_MOST_CLASSES: Final = 10_000
_MOST_LABEL: Final = 48
_MOST_GROUPS: Final = 8
_MOST_MEMBERS: Final = 6
_SPLIT: Final = re.compile(r"(?<![a-z])(train|val|test|dev|eval)(?:ing|idation|id)?(?![a-z])", re.IGNORECASE)


class Picture(NamedTuple):
    """An image of the contact sheet: its sample's key, its label if there is one, and its bytes."""

    key: str
    label: str | None
    data: bytes


@dataclass(slots=True)
class ShardPage:
    """What the page shows of one shard.

    Attributes:
        name: the shard's name.
        sizes: number of samples in each bar of the histogram of their sizes.
        labels: number of samples with each label; the rest is under an empty label if there are too many.
        digests: 64 bits of a digest of each sample's image or, without one, of all its values.
        pictures: some images, drawn at random.
    """

    name: str
    sizes: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    digests: array[int] = field(default_factory=lambda: array("Q"))
    pictures: list[Picture] = field(default_factory=list)


def split_of(name: str) -> str | None:
    """The split that a shard's name says, such as `train`."""
    found = _SPLIT.search(name)
    return found[1].lower() if found else None


def read_pages(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    paths: bool = False,
    rules: TarRules | None = None,
    workers: int | None = None,
    events: Events | None = None,
    **reach: Unpack[Reach],
) -> list[ShardPage]:
    """Read every sample of a bucket's shards for the page.

    Raises:
        SourceError: when there is nothing to read.
    """
    source, templates = open_shards(bucket, templates, paths=paths, **reach)
    items = list_files(source, templates)
    every = max(len(items) // MOST_PICTURES, 1)
    each = -(-MOST_PICTURES // max(len(items), 1))
    tasks = [FileTask(item, partial(_read_page, 0 if place % every else each)) for place, item in enumerate(items)]
    pages: list[ShardPage] = read_files(tasks, FileContext(source, rules or TarRules()), workers, events or Events())
    return pages


def _read_page(pictures: int, item: ObjectInfo, context: FileContext) -> ShardPage:
    """Read all samples of a shard that can be read, and draw so many images; damage is listed among the faults."""
    page, chance = ShardPage(item.name), random.Random(os.fsencode(item.name))
    with suppress(SourceError), OpenShard(context.source, item, context.on_bytes) as shard:
        read: Iterable[Sample | bytes] = contents_of(shard, context.rules)
        if shard.format == "tfrecord" and not shard.damage:
            read = (record for _, record in RecordReader(shard, shard.name).undamaged())
        for number, content in enumerate(read):
            _add(page, number, values_of(content), chance, pictures)
    return page


def _add(page: ShardPage, number: int, values: dict[str, Any], chance: random.Random, most: int) -> None:
    size = sum(_size(value) for name, value in values.items() if name != KEY)
    page.sizes[int(log2(max(size, 1)) * STEPS_PER_DOUBLING)] += 1
    label = _label(values)
    if label is not None:
        page.labels[label if label in page.labels or len(page.labels) < _MOST_CLASSES else ""] += 1
    image = next((value for value in values.values() if type(value) is bytes and _is_image(value)), None)
    digest = digest_of([image] if image is not None else _parts(values))
    page.digests.append(int.from_bytes(digest, "little"))
    if most and image is not None:  # each is as likely to be kept as any other
        place = len(page.pictures) if len(page.pictures) < most else chance.randrange(number + 1)
        if place < most:
            page.pictures[place : place + 1] = [Picture(_key(values, number), label, image)]


def _size(value: Any) -> int:
    return value.size if isinstance(value, ParsedFeature) else len(value)


def _is_image(data: bytes) -> bool:
    kind = sniff(data[:16]) or ""
    return kind.startswith("image/") and len(data) > 26


def _key(values: dict[str, Any], number: int) -> str:
    key = key_of(values)
    return str(number) if key is None else key


def _label(values: dict[str, Any]) -> str | None:
    """The value of the entry or feature that is named like a label, if it is short."""
    for name in _LABELS:
        value = values.get(name)
        if isinstance(value, ParsedFeature) and value.count == 1 and value.kind == "int64":
            return str(value.values()[0])
        if isinstance(value, bytes) and 0 < len(value) <= _MOST_LABEL:
            text = value.decode("utf-8", "replace").strip()
            if text.isprintable():
                return shortened(text, _MOST_LABEL)
    return None


def _parts(values: dict[str, Any]) -> Iterator[bytes]:
    for name in sorted(values):
        if name != KEY:
            value = values[name]
            yield name.encode("utf-8", "replace")
            if isinstance(value, StoredBytes):
                yield from value.pieces()
            else:
                yield from value.parts() if isinstance(value, ParsedFeature) else (value,)


class Duplicates(NamedTuple):
    """Samples with equal images or, without images, with equal values.

    Attributes:
        extra: how many samples repeat another.
        leaked: how many groups of equal samples are in more than one split.
        groups: shard and number of the samples of some groups, those in more than one split first.
    """

    extra: int
    leaked: int
    groups: list[list[tuple[str, int]]]


def find_duplicates(pages: Sequence[ShardPage]) -> Duplicates:
    """Find equal samples; takes about 20 bytes of memory for each sample, and more for those that repeat another."""
    digests = np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(page.digests, np.uint64) for page in pages)])
    found, counts = np.unique(digests, return_counts=True)
    groups: dict[int, list[tuple[str, int]]] = {digest: [] for digest in found[counts > 1].tolist()}
    for page in pages:
        for number, digest in enumerate(page.digests if groups else ()):
            if digest in groups:
                groups[digest].append((page.name, number))
    leaked = sum(map(_is_leaked, groups.values()))
    shown = sorted(groups.values(), key=_is_leaked, reverse=True)[:_MOST_GROUPS]
    return Duplicates(len(digests) - len(found), leaked, [group[:_MOST_MEMBERS] for group in shown])


def _is_leaked(group: list[tuple[str, int]]) -> bool:
    return len({split_of(name) for name in {name for name, _ in group}} - {None}) > 1
