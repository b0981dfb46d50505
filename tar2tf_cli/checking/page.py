"""Makes the page of `inspect --html`: one file that shows a dataset, with nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import os
import random
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from html import escape
from math import log2, prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cv2
import numpy as np
from humanfriendly import format_size

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY
from tar2tf_cli.checking.contents import Contents, shortened
from tar2tf_cli.checking.faults import Report
from tar2tf_cli.checking.files import AHEAD, FileContext, FileTask, ReadOptions, Run, contents_of, values_of
from tar2tf_cli.checking.html import chart, cut, facts, section, table
from tar2tf_cli.checking.html import page as whole_page
from tar2tf_cli.checking.rows import Digester, content_of
from tar2tf_cli.errors import ImageError, SourceError, count, few
from tar2tf_cli.formats import image
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.formats.image import codecs
from tar2tf_cli.formats.streams import sniff
from tar2tf_cli.inputs.numbering import split_of
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.samples.grouping import key_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


MOST_PICTURES: Final = 48
"""Images on the page; as many shards as that give some."""

STEPS_PER_DOUBLING: Final = 2
"""Bars of the histogram of sizes in each doubling of the size."""

_LABELS: Final = ("image/class/text", "label", "labels", "cls", "class", "image/class/label", "target", "y")
_MOST_LABELS: Final = 10_000
_MOST_LABEL: Final = 48
_MOST_GROUPS: Final = 8
_MOST_MEMBERS: Final = 6


class Picture(NamedTuple):
    """An image of the contact sheet.

    Attributes:
        key: its sample's key.
        label: its sample's label, if there is one.
        data: a small JPEG, None if it cannot be decoded; before it is made small, the image, encoded or as pixels.
        variety: how many of the pixels that were looked at differ.
    """

    key: str
    label: str | None
    data: Any
    variety: int = 0


@dataclass(slots=True)
class ShardPage:
    """The part of the page that is about one shard.

    Attributes:
        name: the shard's name.
        sizes: number of samples in each bar of the histogram of their sizes.
        labels: number of samples with each label; the rest is under an empty label if there are too many.
        keys: the key of each sample, or its number in the shard.
        digests: 64 bits of a digest of each sample, of all but its key.
        pictures: some images of each entry or feature, drawn at random.
    """

    name: str
    sizes: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    digests: array[int] = field(default_factory=lambda: array("Q"))
    pictures: dict[str, list[Picture]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


def read_pages(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    shards: Collection[str],
    paths: bool = False,
    **options: Unpack[ReadOptions],
) -> list[ShardPage]:
    """Read every sample of a bucket's shards, which have these names, for the page.

    Raises:
        SourceError: when there is nothing to read.
    """
    run = Run(**options)
    named = run.shards(bucket, templates, paths=paths)
    items = [item for item in named.items if item.name in shards]
    every = max(len(items) // MOST_PICTURES, 1)
    each = -(-MOST_PICTURES // max(len(items), 1))
    tasks = [FileTask(item, partial(_read_page, 0 if place % every else each)) for place, item in enumerate(items)]
    pages: list[ShardPage] = run.read(tasks, FileContext(named.source, run.rules))
    return pages


def _read_page(pictures: int, item: ObjectInfo, context: FileContext) -> ShardPage:
    """Read all samples of a shard that can be read, and draw so many images; damage is listed among the faults."""
    page, sheet = ShardPage(item.name), _Sheet(pictures, random.Random(os.fsencode(item.name)))
    digester = Digester({})
    with suppress(SourceError), OpenShard(context.source, item, context.on_bytes) as shard:
        for number, content in contents_of(shard, context.rules._replace(ahead=AHEAD), lambda error, more: None):
            values = values_of(content)
            page.digests.append(content_of(digester.digests("", values)[1]))
            key = key_of(values)
            page.keys.append(f"#{number}" if key is None else key)
            _add(page, number, values, sheet)
    page.pictures = {name: [_picture(image) for image in images] for name, images in sheet.drawn.items()}
    return page


class _Sheet:
    """Draws images of each entry or feature, every one as likely as any other.

    Args:
        most: how many of each.
        chance: draws them.
    """

    def __init__(self, most: int, chance: random.Random) -> None:
        self.drawn: dict[str, list[Picture]] = {}
        self._seen: Counter[str] = Counter()
        self._most = most
        self._chance = chance

    def add(self, name: str, values: dict[str, object], key: str, label: str | None) -> None:
        """Draw an image, or do not."""
        drawn, seen = self.drawn.setdefault(name, []), self._seen[name]
        self._seen[name] += 1
        place = seen if seen < self._most else self._chance.randrange(seen + 1)
        if place < self._most:
            value = values[name]
            data = value if type(value) is bytes and _is_image(value) else _small(_pixels(name, values))
            drawn[place : place + 1] = [Picture(key, label, data)]


def _add(page: ShardPage, number: int, values: dict[str, object], sheet: _Sheet) -> None:
    size = sum(_value_size(value) for name, value in values.items() if name != KEY)
    page.sizes[int(log2(max(size, 1)) * STEPS_PER_DOUBLING)] += 1
    key, label = key_of(values), _label(values)
    if label is not None:
        page.labels[label if label in page.labels or len(page.labels) < _MOST_LABELS else ""] += 1
    for name, value in values.items():
        if (type(value) is bytes and _is_image(value)) or _shape_of(name, values):
            sheet.add(name, values, str(number) if key is None else key, label)


def _shape_of(name: str, values: dict[str, object]) -> list[int] | None:
    """Height, width and channels of an image that was decoded to an array; None for another value."""
    value, folder = values[name], name.rpartition("/")[0]
    parts = [f"{name}/shape"]
    if values.get(f"{folder}/format") == b"tensor":  # as the preset imagenet-tensor stores them
        parts = [f"{folder}/{axis}" for axis in ("height", "width", "channels")]
    shape = [length for part in parts for length in _integers(values.get(part))]
    if len(shape) != 3 or shape[2] not in (1, 3, 4):
        return None
    numbers = value.count if isinstance(value, ParsedFeature) and value.kind == "float" else 0
    return shape if 0 < prod(shape) == (len(value) if isinstance(value, bytes) else numbers) else None


def _integers(value: object) -> list[int]:
    return value.values() if isinstance(value, ParsedFeature) and value.kind == "int64" else []


def _pixels(name: str, values: dict[str, Any]) -> Any:
    """The pixels of an image that was decoded to an array, as uint8 RGB; floats up to 1 are scaled."""
    value, shape = values[name], _shape_of(name, values)
    if isinstance(value, ParsedFeature):
        floats = np.frombuffer(b"".join(value.parts()), "<f4")
        pixels = np.clip(floats * (255 if floats.max() <= 1 else 1), 0, 255).astype(np.uint8)
    else:
        pixels = np.frombuffer(value, np.uint8)
    pixels = pixels.reshape(shape)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]


def _value_size(value: Any) -> int:
    return value.size if isinstance(value, ParsedFeature) else len(value)


def _is_image(data: bytes) -> bool:
    kind = sniff(data[:16]) or ""
    return kind.startswith("image/") and len(data) > 26


def _label(values: dict[str, object]) -> str | None:
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


class DuplicateGroup(NamedTuple):
    """Samples that are equal to each other.

    Attributes:
        samples: the shard and the key of some of them.
        more: number of the others.
    """

    samples: list[tuple[str, str]]
    more: int = 0


class Duplicates(NamedTuple):
    """Samples that are equal in all but their keys.

    Attributes:
        extra: how many samples repeat another.
        leaked: how many groups of equal samples are in more than one split.
        groups: the samples of some groups, those in more than one split first.
    """

    extra: int
    leaked: int
    groups: list[DuplicateGroup]


def find_duplicates(pages: Sequence[ShardPage]) -> Duplicates:
    """Find equal samples, in about 20 bytes of memory for each besides its key, and more if it repeats another."""
    digests = np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(page.digests, np.uint64) for page in pages)])
    distinct, counts = np.unique(digests, return_counts=True)
    groups: dict[int, list[tuple[str, str]]] = {digest: [] for digest in distinct[counts > 1].tolist()}
    for page in pages:
        for digest, key in zip(page.digests, page.keys, strict=True) if groups else ():
            if digest in groups:
                groups[digest].append((page.name, key))
    leaked = sum(map(_is_leaked, groups.values()))
    shown = sorted(groups.values(), key=_is_leaked, reverse=True)[:_MOST_GROUPS]
    some = [DuplicateGroup(group[:_MOST_MEMBERS], max(len(group) - _MOST_MEMBERS, 0)) for group in shown]
    return Duplicates(len(digests) - len(distinct), leaked, some)


def _is_leaked(group: list[tuple[str, str]]) -> bool:
    return len({split_of(name) for name in {name for name, _ in group}} - {None}) > 1


_NOT_SHOWN: Final = ("image/", "audio/", "video/", "npy")  # their first bytes say nothing that their kind does not
_MOST_ROWS: Final = 100
_MOST_CLASSES: Final = 20
_MOST_COLUMNS: Final = 92
_FOOTER: Final = "Made by tar2tf inspect --html from every sample that can be read."
_SCOPE: Final = "Not every image, sound and array was decoded: tar2tf verify --decode does that."
_SIDE: Final = 160
_MOST_PIXELS: Final = 1 << 26
"""The largest image, in pixels, that gets a small picture: decoding one takes up to six bytes a pixel."""


def write_page(path: str, contents: Contents, pages: Sequence[ShardPage], report: Report) -> None:
    """Write the page.

    Raises:
        SinkError: when the file cannot be written.
    """
    write_whole(path, ["".join(_page(contents, pages, report)).encode("utf-8", "replace")])


def faulty_files(report: Report) -> str:
    """Return how many files have faults, in words; empty if none has."""
    files = sum(1 for file in report.files if file.faults)
    return f"{files:,} of {count(len(report.files), 'file')} {'has' if files == 1 else 'have'} faults" if files else ""


def _page(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    return whole_page(contents.bucket, _body(contents, pages, report), _FOOTER)


def _body(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    copies = find_duplicates(pages)
    sizes, labels = Counter[int](), Counter[str]()
    for one in pages:
        sizes.update(one.sizes)
        labels.update(one.labels)
    undecodable = sum(1 for page in pages for drawn in page.pictures.values() for one in drawn if one.data is None)
    yield _facts(contents, labels, copies, report, undecodable)
    yield _faults(report, undecodable)
    yield _pictures(pages)
    yield '<div class="pair">'
    yield _sizes(sizes) if sizes else ""
    yield _classes(labels) if labels else ""
    yield "</div>"
    yield _entries(contents)
    yield _duplicates(copies)
    yield _shards(contents)


# --- Sections ---


def _facts(contents: Contents, labels: Counter[str], copies: Duplicates, report: Report, undecodable: int) -> str:
    what = {"tar": "tar shard", "tfrecord": "TFRecord shard"}.get(contents.format, "tar and TFRecord shard")
    splits = Counter(split for shard in contents.shards if (split := split_of(shard.name)))
    named = ", ".join(f"{number:,} {split}" for split, number in splits.items())
    of_records = contents.format == "tfrecord"
    counted = [
        count(contents.samples, "record" if of_records else "sample"),
        *([count(len(labels), "class", "classes")] if labels else []),
        count(len(contents.entries), "feature") if of_records else count(len(contents.entries), "entry", "entries"),
        count(copies.extra, "duplicate"),
        count(sum(len(file.faults) for file in report.files) + undecodable, "fault"),
    ]
    sizes = [(_size(contents.bytes), "on disk"), (_size(contents.bytes / max(contents.samples, 1)), "per sample")]
    tiles = facts([*((text.partition(" ")[0], text.partition(" ")[2]) for text in counted), *sizes])
    shards = f"{count(len(contents.shards), what)}{f': {named}' if named else ''}"
    return f'<p class="soft">{shards}</p>{tiles}'


def _faults(report: Report, undecodable: int) -> str:
    if report.ok:
        said = '<p class="good">None: every shard is intact, and the images that are shown can be decoded.</p>'
        if undecodable:
            said = f'<p class="bad">{count(undecodable, "image")} of those that are shown cannot be decoded.</p>'
        return section("Faults", said, note=_SCOPE)
    some = [(file, fault) for file in report.files for fault in file.faults[:3]]
    rows = [(cut(file.path), fault.kind, cut(str(fault))) for file, fault in some[:_MOST_ROWS]]
    more = f"; the first {_MOST_ROWS} are shown" if len(some) > _MOST_ROWS else ""
    note = f"{faulty_files(report)}{more}. tar2tf verify lists everything."
    return section("Faults", table("Faults", ("file", "kind", "what"), rows), note=f'<span class="bad">{note}</span>')


def _pictures(pages: Sequence[ShardPage]) -> str:
    """The images of the entry or feature whose images have the most variety, and others of samples that lack it."""
    names = dict.fromkeys(name for page in pages for name in page.pictures)
    drawn = {name: [(page.name, one) for page in pages for one in page.pictures.get(name, ())] for name in names}
    ranked = sorted(drawn, key=lambda name: -sum(one.variety for _, one in drawn[name]) / max(len(drawn[name]), 1))
    if not ranked:
        return ""
    tiles: dict[tuple[str, str], tuple[str, Picture]] = {}
    for name in ranked:
        for shard, picture in drawn[name]:
            tiles.setdefault((shard, picture.key), (name, picture))
    figures = "".join(_figure(name, picture) for name, picture in [*tiles.values()][:MOST_PICTURES])
    others = f" Images are also in {escape(few(ranked[1:]))}." if ranked[1:] else ""
    note = f"{escape(cut(ranked[0]))}, drawn at random from the shards.{others}"
    return section("Images", f'<div class="sheet">{figures}</div>', note=note)


def _sizes(sizes: Counter[int]) -> str:
    places = range(min(sizes), max(sizes) + 1)
    edges = [_size(2 ** (place / STEPS_PER_DOUBLING)) for place in (*places, places[-1] + 1)]
    columns = [
        (sizes[place], f"{low} to {high}: {sizes[place]:,}")
        for place, low, high in zip(places, edges, edges[1:], strict=False)
    ]
    drawn = chart("Sizes of samples", columns, edges[0], edges[-1])
    return section("Sizes of samples", drawn, note="Number of samples by their size, on a logarithmic scale.")


def _classes(labels: Counter[str]) -> str:
    most, least = max(labels.values()), min(labels.values())
    rows = [(escape(name or "(others)"), number) for name, number in labels.most_common(_MOST_CLASSES)]
    bars = "".join(
        f'<span title="{name}">{name}</span><svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{max(100 * number / most, 0.6):.1f}" height="12"/></svg><span class="r">{number:,}</span>'
        for name, number in rows
    )
    classes = count(len(labels), "class", "classes")
    note = f"The largest of {classes} has {most / least:,.3g} times as many samples as the smallest."
    if most == least:
        note = f"{classes} have the same number of samples." if len(labels) > 1 else "There is a single class."
    rest = sum(labels.values()) - sum(number for _, number in rows)
    others = f"and {len(labels) - len(rows):,} more with {count(rest, 'sample')}"
    more = f'<p class="soft">{others}</p>' if rest else ""
    return section("Class balance", f'<div class="bars">{bars}</div>', more, note=note)


def _entries(contents: Contents) -> str:
    rows = []
    for name, stats in list(contents.entries.items())[:_MOST_ROWS]:
        missing = contents.lacking(stats)
        kind, *sizes = stats.summary(_size)
        binary = any(kind.startswith(_NOT_SHOWN) for kind in stats.kinds)
        example = "" if binary else cut(stats.example or "", 60)
        rows.append((cut(name), f"{stats.count:,}", f"{missing:,}" if missing else "", kind, *sizes, example))
    heading = ("name", "count", "missing", "kind", "min", "mean", "max", "example")
    title = "Features" if contents.format == "tfrecord" else "Entries"
    return section(title, table(title, heading, rows, (1, 2, 4, 5, 6)), note="Numbers by value, others by size.")


def _duplicates(copies: Duplicates) -> str:
    if not copies.extra:
        return section("Exact duplicates", '<p class="good">None: no two samples are equal in all but their keys.</p>')
    leaks = f' <b class="bad">Found in more than one split: {copies.leaked:,}.</b>' if copies.leaked else ""
    note = (
        f"Samples that repeat another in everything but the key: {copies.extra:,}.{leaks} "
        "Each is given by its shard and key; convert --drop-duplicates keeps the first."
    )
    rows = ([_listed(group)] for group in copies.groups)
    return section("Exact duplicates", table("Exact duplicates", ("equal samples",), rows), note=note)


def _listed(group: DuplicateGroup) -> str:
    named = [f"{cut(name, 80)} {cut(key, 80)}" for name, key in group.samples]
    return "  ·  ".join([*named, *([f"and {group.more:,} more"] if group.more else [])])


def _shards(contents: Contents) -> str:
    shards = contents.shards
    step = -(-len(shards) // _MOST_COLUMNS)
    groups = [shards[place : place + step] for place in range(0, len(shards), step)]
    means = [(group[0].name, sum(shard.bytes for shard in group) / len(group)) for group in groups]
    columns = [(mean, f"{cut(name, 60)}: {_size(mean)}") for name, mean in means]
    drawn = chart("Sizes of shards", columns, cut(shards[0].name, 40), cut(shards[-1].name, 40))
    rows = [(cut(shard.name), f"{shard.samples:,}", _size(shard.bytes)) for shard in shards[:_MOST_ROWS]]
    listing = table("Shards", ("name", "samples", "size"), rows, (1, 2))
    more = f'<p class="soft">and {len(shards) - _MOST_ROWS:,} more</p>' if len(shards) > _MOST_ROWS else ""
    largest = _size(max(shard.bytes for shard in shards))
    return section("Shards", drawn if len(shards) > 1 else "", listing, more, note=f"Up to {largest} each.")


# --- Parts of sections ---


def _figure(name: str, picture: Picture) -> str:
    """An image of the contact sheet, with its label, its entry or feature, and its key."""
    title, feature = escape(picture.key), escape(cut(name, 40))
    shown = '<small class="bad">not decodable</small>'
    if picture.data:
        source = f"data:image/jpeg;base64,{base64.b64encode(picture.data).decode()}"
        labelled = f", {escape(picture.label)}" if picture.label is not None else ""
        shown = f'<img loading="lazy" alt="{feature} of {title}{labelled}" src="{source}">'
    label = f"<b>{escape(picture.label)}</b><br>" if picture.label is not None else ""
    caption = f"{label}<small>{title}<br>{feature}</small>"
    return f'<figure><div>{shown}</div><figcaption title="{title}">{caption}</figcaption></figure>'


def _picture(drawn: Picture) -> Picture:
    """Return a drawn image with a small JPEG of it, and how many of its pixels differ."""
    try:
        small = drawn.data
        if isinstance(small, bytes):
            small = _small(codecs.decode(small, 3, max_pixels=_MOST_PIXELS))
        packed = small.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
        return Picture(drawn.key, drawn.label, codecs.encode(small, "jpeg", 78), len(np.unique(packed)))
    except (ImageError, cv2.error):
        return Picture(drawn.key, drawn.label, None)


def _small(pixels: Any) -> Any:
    """The centre of an image, scaled down."""
    pixels = image.center_crop(pixels)
    side = min(len(pixels), _SIDE)
    return cv2.resize(np.ascontiguousarray(pixels), (side, side), interpolation=cv2.INTER_AREA)


def _size(value: float) -> str:
    return str(format_size(round(value)))
