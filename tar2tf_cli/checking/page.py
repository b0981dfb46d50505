"""Makes the page of `inspect --html`: one file that shows a dataset, with nothing loaded from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import zip_longest
from typing import Final, TypeVar

from tar2tf_cli.checking.contents import Contents
from tar2tf_cli.checking.faults import Report
from tar2tf_cli.checking.page_data import MOST_EXCERPTS, MOST_PICTURES, STEPS_PER_DOUBLING, ShardPage, split_of
from tar2tf_cli.checking.page_duplicates import Duplicates, find_duplicates
from tar2tf_cli.checking.page_parts import STYLE, bars, columns, excerpt, number, size, table, thumbnail
from tar2tf_cli.formats.record_file import write_whole

__all__ = ["write_page"]

T = TypeVar("T")

_NOT_SHOWN: Final = ("image/", "audio/", "video/", "npy")  # their first bytes say nothing that their kind does not
_MOST_ROWS: Final = 100
_MOST_CLASSES: Final = 20
_MOST_COLUMNS: Final = 92
_MOST_TEXT: Final = 160


def write_page(path: str, contents: Contents, pages: Sequence[ShardPage], report: Report) -> None:
    """Write the page.

    Raises:
        SinkError: when the file cannot be written.
    """
    write_whole(path, ["".join(_page(contents, pages, report)).encode("utf-8", "replace")])


def _page(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    title = escape(_cut(contents.bucket))
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
    copies = find_duplicates(pages)
    labels = _summed(page.labels for page in pages)
    yield from _head(contents, title, labels, copies, report)
    yield from _faults(report)
    yield from _pictures(pages)
    yield '<div class="pair">'
    yield from _sizes(pages)
    yield from _classes(labels)
    yield "</div>"
    yield from _entries(contents)
    yield from _duplicates(copies)
    yield from _shards(contents)
    yield "<footer>Made by tar2tf inspect --html from every sample that can be read.</footer></main></body></html>\n"


def _head(contents: Contents, title: str, labels: Counter[str], copies: Duplicates, report: Report) -> Iterator[str]:
    what = {"tar": "tar shards", "tfrecord": "TFRecord shards"}.get(contents.format, "tar and TFRecord shards")
    splits = Counter(split for shard in contents.shards if (split := split_of(shard.name)))
    named = ", ".join(f"{count:,} {split}" for split, count in splits.items())
    yield f'<h1>{title}</h1><p class="soft">{len(contents.shards):,} {what}{f": {named}" if named else ""}</p>'
    faults = sum(len(found.faults) for found in report.files)
    facts = [
        (number(contents.samples), "records" if contents.format == "tfrecord" else "samples"),
        (size(contents.bytes), "on disk"),
        (size(contents.bytes / max(contents.samples, 1)), "per sample"),
        (number(len(contents.entries)), "features" if contents.format == "tfrecord" else "entries"),
        *([(number(len(labels)), "classes")] if labels else []),
        (number(copies.extra), "duplicates"),
        (number(faults), "faults"),
    ]
    yield '<div class="facts">'
    yield from (f"<div><b>{escape(value)}</b><span>{name}</span></div>" for value, name in facts)
    yield "</div>"


def _section(title: str, *parts: str, note: str = "") -> str:
    small = f'<p class="soft">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{small}{''.join(parts)}</section>"


def _faults(report: Report) -> Iterator[str]:
    if report.ok:
        yield _section("Faults", '<p class="good">None: every shard is whole.</p>')
        return
    some = [(found, fault) for found in report.files for fault in found.faults[:3]]
    rows = [(_cut(found.path), fault.kind, _cut(str(fault))) for found, fault in some[:_MOST_ROWS]]
    files = sum(1 for found in report.files if found.faults)
    more = f"; the first {_MOST_ROWS} are shown" if len(some) > _MOST_ROWS else ""
    note = f"{files:,} of {len(report.files):,} files are not whole{more}. tar2tf verify lists everything."
    yield _section("Faults", table(("file", "kind", "what"), rows), note=f'<span class="bad">{note}</span>')


def _pictures(pages: Sequence[ShardPage]) -> Iterator[str]:
    pictures = [picture for page in pages for picture in page.pictures][:MOST_PICTURES]
    if pictures:
        figures = "".join(map(thumbnail, pictures))
        yield _section("Images", f'<div class="sheet">{figures}</div>', note="Drawn at random from the shards.")
        return
    rows = zip_longest(*(page.excerpts for page in pages))  # the first of each shard, and then the next
    excerpts = [sample for row in rows for sample in row if sample and (sample.texts or sample.sound)]
    if excerpts:
        shown = "".join(map(excerpt, excerpts[:MOST_EXCERPTS]))
        yield _section("Samples", f'<div class="excerpts">{shown}</div>', note="Drawn at random from the shards.")


def _sizes(pages: Sequence[ShardPage]) -> Iterator[str]:
    sizes = _summed(page.sizes for page in pages)
    if not sizes:
        return
    places = range(min(sizes), max(sizes) + 1)
    edges = [2 ** (place / STEPS_PER_DOUBLING) for place in (*places, places[-1] + 1)]
    titles = [
        f"{size(low)} to {size(high)}: {sizes[place]:,}"
        for place, low, high in zip(places, edges, edges[1:], strict=False)
    ]
    chart = columns([sizes[place] for place in places], titles, (size(edges[0]), size(edges[-1])), "Sizes of samples")
    yield _section("Sizes of samples", chart, note="Number of samples by their size, on a logarithmic scale.")


def _classes(labels: Counter[str]) -> Iterator[str]:
    if not labels:
        return
    most, least = max(labels.values()), min(labels.values())
    rows = [(name or "(others)", count) for name, count in labels.most_common(_MOST_CLASSES)]
    note = f"{len(labels):,} classes; the largest has {most / least:,.3g} times as many samples as the smallest."
    rest = sum(labels.values()) - sum(count for _, count in rows)
    more = f'<p class="soft">and {len(labels) - len(rows):,} more with {rest:,} samples</p>' if rest else ""
    yield _section("Class balance", bars(rows), more, note=note)


def _entries(contents: Contents) -> Iterator[str]:
    rows = []
    for name, stats in list(contents.entries.items())[:_MOST_ROWS]:
        show = size if stats.unit == "bytes" else lambda value: f"{value:,.4g}"
        missing = contents.lacking(stats)
        sizes = (show(value) for value in (stats.least, stats.mean, stats.most))
        example = "" if stats.kind.startswith(_NOT_SHOWN) else _cut(stats.example or "", 60)
        rows.append((_cut(name), number(stats.count), number(missing) if missing else "", stats.kind, *sizes, example))
    heading = ("name", "count", "missing", "kind", "min", "mean", "max", "example")
    title = "Features" if contents.format == "tfrecord" else "Entries"
    yield _section(title, table(heading, rows, (1, 2, 4, 5, 6)))


def _duplicates(copies: Duplicates) -> Iterator[str]:
    if not copies.extra:
        yield _section("Exact duplicates", '<p class="good">None: no two samples have the same bytes.</p>')
        return
    leaks = f' <b class="bad">Found in more than one split: {copies.leaked:,}.</b>' if copies.leaked else ""
    note = f"Samples that repeat another: {copies.extra:,}.{leaks} Each is given by its shard and number."
    places = (("  ·  ".join(f"{_cut(name, 80)} #{place}" for name, place in group),) for group in copies.groups)
    yield _section("Exact duplicates", table(("equal samples",), places), note=note)


def _shards(contents: Contents) -> Iterator[str]:
    shards = contents.shards
    step = -(-len(shards) // _MOST_COLUMNS)
    groups = [shards[place : place + step] for place in range(0, len(shards), step)]
    heights = [sum(shard.bytes for shard in group) / len(group) for group in groups]
    titles = [f"{_cut(group[0].name, 60)}: {size(height)}" for group, height in zip(groups, heights, strict=True)]
    largest = size(max(shard.bytes for shard in shards))
    chart = columns(heights, titles, (_cut(shards[0].name, 40), _cut(shards[-1].name, 40)), "Sizes of shards")
    rows = [(_cut(shard.name), number(shard.samples), size(shard.bytes)) for shard in shards[:_MOST_ROWS]]
    listing = table(("name", "samples", "size"), rows, (1, 2))
    more = f'<p class="soft">and {len(shards) - _MOST_ROWS:,} more</p>' if len(shards) > _MOST_ROWS else ""
    yield _section("Shards", chart if len(shards) > 1 else "", listing, more, note=f"Up to {largest} each.")


def _summed(counters: Iterable[Counter[T]]) -> Counter[T]:
    total: Counter[T] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _cut(text: str, most: int = _MOST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"
