"""The page of `inspect --html`: one self-contained file that shows a dataset."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, zip_longest
from typing import Final, NamedTuple, TypeVar

import numpy as np
from humanfriendly import format_size

from tar2tf_cli.checking.contents import Contents
from tar2tf_cli.checking.faults import Report
from tar2tf_cli.checking.html import chart, cut, drawing, facts, section, switch, table
from tar2tf_cli.checking.html import page as whole_page
from tar2tf_cli.checking.overlay import Overlay, colours
from tar2tf_cli.checking.page_samples import (
    MOST_CLIPS,
    MOST_PICTURES,
    STEPS_PER_DOUBLING,
    Caption,
    Clip,
    Picture,
    ShardPage,
)
from tar2tf_cli.errors import count, few
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.formats.image import codecs
from tar2tf_cli.inputs.numbering import split_of

T = TypeVar("T")

_NOT_SHOWN: Final = ("image/", "audio/", "video/", "npy")  # their first bytes add nothing to their kind
_MOST_ROWS: Final = 100
_MOST_CLASSES: Final = 20
_MOST_COLUMNS: Final = 92
_FOOTER: Final = "Made by tar2tf inspect --html from every sample that can be read."
_SCOPE: Final = (
    "The framing and checksums of all shards were verified. Of their images, sounds and videos, only those drawn for "
    "this page were decoded{}, so others may be damaged: tar2tf verify --decode decodes them all. Nothing here tells "
    "whether labels, captions, boxes and masks are right."
)
_LAYERS: Final = ("masks", "boxes", "points")
_HIGHEST: Final = 320  # of an annotated image, in pixels of the page


def write_page(path: str, contents: Contents, pages: Sequence[ShardPage], report: Report) -> None:
    """Write the page of a dataset.

    Raises:
        SinkError: when the file cannot be written.
    """
    write_whole(path, ["".join(_page(contents, pages, report)).encode("utf-8", "replace")])


class ShownFault(NamedTuple):
    """A fault of a value shown on the page, which `verify` finds only with `--decode`.

    Attributes:
        shard: the name of its shard.
        kind: its code.
        message: the fault.
    """

    shard: str
    kind: str
    message: str


def shown_faults(pages: Sequence[ShardPage]) -> list[ShownFault]:
    """Return the faults of all values shown on the page."""
    return [fault for page in pages for fault in _faults_of(page)]


def _faults_of(page: ShardPage) -> Iterator[ShownFault]:
    for name, picture in _named(page.pictures):
        key = picture.caption.key
        if picture.data is None:
            yield ShownFault(page.name, "undecodable", f"{key}: {name!r} cannot be decoded")
        for fault in picture.overlay.faults if picture.overlay else ():
            yield ShownFault(page.name, "box", f"{key}: {fault}")
    for _, clip in _named(page.clips):
        if clip.fault:
            yield ShownFault(page.name, "undecodable", f"{clip.caption.key}: {clip.fault}")


def _named(values: dict[str, list[T]]) -> Iterator[tuple[str, T]]:
    return ((name, value) for name, drawn in values.items() for value in drawn)


def faults_described(report: Report, shown: Sequence[ShownFault]) -> str:
    """Return the number of files with faults and of faulty values on the page, as text; empty if there are none."""
    files = sum(1 for file in report.files if file.faults)
    said = (
        [f"{files:,} of {count(len(report.files), 'file')} {'has' if files == 1 else 'have'} faults"] if files else []
    )
    said += [f"{count(len(shown), 'fault')} in values that were decoded for the page"] if shown else []
    return ", and ".join(said)


def _page(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    return whole_page(contents.bucket, _body(contents, pages, report), _FOOTER)


def _body(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    copies, shown = find_duplicates(pages), shown_faults(pages)
    sizes, labels = Counter[int](), Counter[str]()
    for one in pages:
        sizes.update(one.sizes)
        labels.update(one.labels)
    yield _facts(contents, labels, copies, sum(len(file.faults) for file in report.files) + len(shown))
    yield _faults(report, shown, pages)
    yield _pictures(pages)
    yield _clips(pages, "audio")
    yield _clips(pages, "video")
    yield '<div class="pair">'
    yield _sizes(sizes) if sizes else ""
    yield _classes(labels) if labels else ""
    yield "</div>"
    yield _entries(contents)
    yield _duplicates(copies)
    yield _shards(contents)


# --- Sections ---


def _facts(contents: Contents, labels: Counter[str], copies: Duplicates, faults: int) -> str:
    splits = Counter(split for shard in contents.shards if (split := split_of(shard.name)))
    named = ", ".join(f"{number:,} {split}" for split, number in splits.items())
    of_records = contents.of_examples
    counted = [
        count(contents.samples, "record" if of_records else "sample"),
        *([count(len(labels), "class", "classes")] if labels else []),
        count(len(contents.entries), "feature") if of_records else count(len(contents.entries), "entry", "entries"),
        count(copies.extra, "duplicate"),
        count(faults, "fault"),
    ]
    sizes = [(_size(contents.bytes), "on disk"), (_size(contents.bytes / max(contents.samples, 1)), "per sample")]
    tiles = facts([*((text.partition(" ")[0], text.partition(" ")[2]) for text in counted), *sizes])
    shards = f"{count(len(contents.shards), contents.shard_noun)}{f': {named}' if named else ''}"
    return f'<p class="soft">{shards}</p>{tiles}'


def _faults(report: Report, shown: Sequence[ShownFault], pages: Sequence[ShardPage]) -> str:
    scope = escape(_SCOPE.format(_decoded(pages)))
    some = [(file.path, fault.kind, str(fault)) for file in report.files for fault in file.faults[:3]]
    rows = [(cut(path), kind, cut(what)) for path, kind, what in [*some, *shown][:_MOST_ROWS]]
    if not rows:
        return section("Faults", '<p class="good">None found.</p>', note=scope)
    listed = "" if report.ok else " tar2tf verify lists everything."
    more = f"; the first {_MOST_ROWS} are shown" if len(some) + len(shown) > _MOST_ROWS else ""
    note = f'<span class="bad">{escape(faults_described(report, shown))}{more}.{listed}</span><br>{scope}'
    return section("Faults", table("Faults", ("file", "kind", "what"), rows), note=note)


def _decoded(pages: Sequence[ShardPage]) -> str:
    """Return the number of decoded values as text."""
    drawn = Counter[str]()
    for page in pages:
        drawn["image"] += sum(map(len, page.pictures.values()))
        for _, clip in _named(page.clips):
            drawn["sound" if clip.kind.startswith("audio/") else "video"] += clip.decoded
    counted = [count(number, what) for what, number in drawn.items() if number]
    return f" ({', '.join(counted)})" if counted else ""


def _pictures(pages: Sequence[ShardPage]) -> str:
    """Return the section with the images of one entry or feature, and with others of samples that lack it.

    The chosen one has boxes, points or masks; of several, the one whose images vary most.
    """
    names = dict.fromkeys(name for page in pages for name in page.pictures)
    drawn = {name: [(page.name, one) for page in pages for one in page.pictures.get(name, ())] for name in names}
    ranked = sorted(drawn, key=lambda name: _rank([one for _, one in drawn[name]]))
    if not ranked:
        return ""
    tiles: dict[tuple[str, str], tuple[str, Picture]] = {}
    for name in ranked:
        for shard, picture in drawn[name]:
            tiles.setdefault((shard, picture.caption.key), (name, picture))
    shown = [*tiles.values()][:MOST_PICTURES]
    figures = "".join(_figure(name, picture) for name, picture in shown)
    others = f" Images are also in {escape(few(ranked[1:]))}." if ranked[1:] else ""
    note = f"{escape(cut(ranked[0]))}, drawn at random from the shards.{others}"
    layers = _layers(picture.overlay for _, picture in shown if picture.overlay)
    switches = "".join(switch(layer) for layer in layers)
    kind = "sheet large" if any(picture.overlay for _, picture in shown) else "sheet"
    return section("Images", f'{switches}<div class="{kind}">{figures}</div>', note=note)


def _rank(drawn: Sequence[Picture]) -> tuple[bool, float]:
    return not any(one.overlay for one in drawn), -sum(one.variety for one in drawn) / max(len(drawn), 1)


def _layers(overlays: Iterable[Overlay]) -> list[str]:
    """Return the layers that any image has: masks, boxes or points."""
    found = {name for one in overlays for name, has in zip(_LAYERS, _has(one), strict=True) if has}
    return [name for name in _LAYERS if name in found]


def _has(overlay: Overlay) -> tuple[bool, bool, bool]:
    return overlay.levels is not None, bool(overlay.boxes), bool(overlay.points)


def _clips(pages: Sequence[ShardPage], medium: str) -> str:
    """Return players for sounds or videos, some from each shard."""
    of_page = [[(name, clip) for name, clip in _named(page.clips) if clip.kind.startswith(medium)] for page in pages]
    drawn = [clip for clip in chain.from_iterable(zip_longest(*of_page)) if clip]
    shown = drawn[: MOST_CLIPS if medium == "audio" else MOST_CLIPS // 2]
    if not shown:
        return ""
    figures = "".join(_player(name, clip, medium) for name, clip in shown)
    note = f"{escape(few([*dict.fromkeys(name for name, _ in shown)]))}, drawn at random from the shards."
    title = "Sounds" if medium == "audio" else "Videos"
    return section(title, f'<div class="clips">{figures}</div>', note=note)


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
    title = "Features" if contents.of_examples else "Entries"
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
    """Return an image of the contact sheet with label, caption, entry or feature, and key."""
    title, feature = escape(picture.caption.key), escape(cut(name, 40))
    overlay, shown, style = picture.overlay, '<small class="bad">not decodable</small>', ""
    if picture.data:
        label = picture.caption.label
        labelled = f", {escape(label)}" if label is not None else ""
        source = _data("image/jpeg", picture.data)
        shown = f'<img loading="lazy" alt="{feature} of {title}{labelled}" src="{source}">'
        if overlay:
            width = min(_HIGHEST * overlay.width / overlay.height, 10_000)
            style = f' class="view" style="aspect-ratio:{overlay.width}/{overlay.height};max-width:{width:.0f}px"'
            shown += _drawn_over(overlay, title)
    more = f"and {count(overlay.more, 'more mark')}" if overlay and overlay.more else ""
    return f"<figure><div{style}>{shown}</div>{_texts(picture.caption, name, more)}</figure>"


def _drawn_over(overlay: Overlay, title: str) -> str:
    """Return an image's mask as another image, and its boxes and points as SVG."""
    mask = ""
    if overlay.levels is not None:
        source = _data("image/png", codecs.encode(colours(overlay.levels), "png"))
        mask = f'<img class="masks" loading="lazy" alt="mask of {title}" src="{source}">'
    return mask + drawing(overlay.width, overlay.height, overlay.boxes, overlay.points)


def _texts(caption: Caption, name: str, *more: str) -> str:
    """Return the text below an image, sound or video."""
    label = f"<b>{escape(caption.label)}</b><br>" if caption.label is not None else ""
    text = f"<q>{escape(caption.text)}</q>" if caption.text else ""
    small = "<br>".join(escape(part) for part in (caption.key, cut(name, 40), *more) if part)
    return f'<figcaption title="{escape(caption.key)}">{label}{text}<small>{small}</small></figcaption>'


def _player(name: str, clip: Clip, medium: str) -> str:
    """Return a sound or video player, or the reason why there is none."""
    size, note = _size(clip.size), ""
    if clip.fault:
        shown = '<small class="bad">not decodable</small>'
    elif not clip.data:
        shown = f"<small>{size} are too many for the page: tar2tf inspect --extract writes them to a file.</small>"
    else:
        what = f"{escape(cut(name, 40))} of {escape(clip.caption.key)}"
        source = _data(clip.kind, clip.data)
        shown = f'<{medium} controls preload="metadata" aria-label="{what}" src="{source}"></{medium}>'
        note = f"the first {_size(len(clip.data))} of {size}" if len(clip.data) < clip.size else ""
    return f"<figure>{shown}{_texts(clip.caption, name, note)}</figure>"


def _data(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _size(value: float) -> str:
    return str(format_size(round(value)))


_MOST_GROUPS: Final = 8
_MOST_MEMBERS: Final = 6


class DuplicateGroup(NamedTuple):
    """Samples that are equal except for their keys.

    Attributes:
        samples: the shard and the key of some of the samples.
        more: number of further samples.
    """

    samples: list[tuple[str, str]]
    more: int = 0


class Duplicates(NamedTuple):
    """All groups of samples that are equal except for their keys.

    Attributes:
        extra: number of samples that repeat another one.
        leaked: number of groups of equal samples in more than one split.
        groups: some of the groups, those in more than one split first.
    """

    extra: int
    leaked: int
    groups: list[DuplicateGroup]


def find_duplicates(pages: Sequence[ShardPage]) -> Duplicates:
    """Find equal samples, in about 20 bytes of memory per sample, plus keys of repeated ones."""
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
