"""Makes the page of `inspect --html`: one file that shows a dataset, with nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, TypeVar

import cv2
from humanfriendly import format_size

from tar2tf_cli.checking.contents import Contents
from tar2tf_cli.checking.faults import Report
from tar2tf_cli.checking.page_data import (
    MOST_PICTURES,
    STEPS_PER_DOUBLING,
    Duplicates,
    Picture,
    ShardPage,
    find_duplicates,
    split_of,
)
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.record_file import write_whole

__all__ = ["write_page"]

T = TypeVar("T")

_NOT_SHOWN: Final = ("image/", "audio/", "video/", "npy")  # their first bytes say nothing that their kind does not
_MOST_ROWS: Final = 100
_MOST_CLASSES: Final = 20
_MOST_COLUMNS: Final = 92
_MOST_TEXT: Final = 160
_SIDE: Final = 160


def write_page(path: str, contents: Contents, pages: Sequence[ShardPage], report: Report) -> None:
    """Write the page.

    Raises:
        SinkError: when the file cannot be written.
    """
    write_whole(path, ["".join(_page(contents, pages, report)).encode("utf-8", "replace")])


def _page(contents: Contents, pages: Sequence[ShardPage], report: Report) -> Iterator[str]:
    title, style = escape(_cut(contents.bucket)), Path(__file__).with_name("page.css").read_text()
    copies = find_duplicates(pages)
    sizes, labels = _summed(page.sizes for page in pages), _summed(page.labels for page in pages)
    pictures = [picture for page in pages for picture in page.pictures][:MOST_PICTURES]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{style}</style></head><body><main><h1>{title}</h1>"
    yield _facts(contents, labels, copies, report)
    yield _faults(report)
    yield _pictures(pictures) if pictures else ""
    yield '<div class="pair">'
    yield _sizes(sizes) if sizes else ""
    yield _classes(labels) if labels else ""
    yield "</div>"
    yield _entries(contents)
    yield _duplicates(copies)
    yield _shards(contents)
    yield "<footer>Made by tar2tf inspect --html from every sample that can be read.</footer></main></body></html>\n"


# --- Sections ---


def _facts(contents: Contents, labels: Counter[str], copies: Duplicates, report: Report) -> str:
    what = {"tar": "tar shards", "tfrecord": "TFRecord shards"}.get(contents.format, "tar and TFRecord shards")
    splits = Counter(split for shard in contents.shards if (split := split_of(shard.name)))
    named = ", ".join(f"{count:,} {split}" for split, count in splits.items())
    of_records = contents.format == "tfrecord"
    facts = [
        (f"{contents.samples:,}", "records" if of_records else "samples"),
        (_size(contents.bytes), "on disk"),
        (_size(contents.bytes / max(contents.samples, 1)), "per sample"),
        (f"{len(contents.entries):,}", "features" if of_records else "entries"),
        *([(f"{len(labels):,}", "classes")] if labels else []),
        (f"{copies.extra:,}", "duplicates"),
        (f"{sum(len(found.faults) for found in report.files):,}", "faults"),
    ]
    boxes = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in facts)
    shards = f"{len(contents.shards):,} {what}{f': {named}' if named else ''}"
    return f'<p class="soft">{shards}</p><div class="facts">{boxes}</div>'


def _section(title: str, *parts: str, note: str = "") -> str:
    small = f'<p class="soft">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{small}{''.join(parts)}</section>"


def _faults(report: Report) -> str:
    if report.ok:
        return _section("Faults", '<p class="good">None: every shard is whole.</p>')
    some = [(found, fault) for found in report.files for fault in found.faults[:3]]
    rows = [(_cut(found.path), fault.kind, _cut(str(fault))) for found, fault in some[:_MOST_ROWS]]
    files = sum(1 for found in report.files if found.faults)
    more = f"; the first {_MOST_ROWS} are shown" if len(some) > _MOST_ROWS else ""
    note = f"{files:,} of {len(report.files):,} files are not whole{more}. tar2tf verify lists everything."
    return _section("Faults", _table(("file", "kind", "what"), rows), note=f'<span class="bad">{note}</span>')


def _pictures(pictures: Sequence[Picture]) -> str:
    figures = "".join(map(_figure, pictures))
    return _section("Images", f'<div class="sheet">{figures}</div>', note="Drawn at random from the shards.")


def _sizes(sizes: Counter[int]) -> str:
    places = range(min(sizes), max(sizes) + 1)
    edges = [_size(2 ** (place / STEPS_PER_DOUBLING)) for place in (*places, places[-1] + 1)]
    columns = [
        (sizes[place], f"{low} to {high}: {sizes[place]:,}")
        for place, low, high in zip(places, edges, edges[1:], strict=False)
    ]
    chart = _chart("Sizes of samples", columns, edges[0], edges[-1])
    return _section("Sizes of samples", chart, note="Number of samples by their size, on a logarithmic scale.")


def _classes(labels: Counter[str]) -> str:
    most, least = max(labels.values()), min(labels.values())
    rows = [(escape(name or "(others)"), count) for name, count in labels.most_common(_MOST_CLASSES)]
    bars = "".join(
        f'<span title="{name}">{name}</span><svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{max(100 * count / most, 0.6):.1f}" height="12"/></svg><span class="r">{count:,}</span>'
        for name, count in rows
    )
    note = f"{len(labels):,} classes; the largest has {most / least:,.3g} times as many samples as the smallest."
    rest = sum(labels.values()) - sum(count for _, count in rows)
    more = f'<p class="soft">and {len(labels) - len(rows):,} more with {rest:,} samples</p>' if rest else ""
    return _section("Class balance", f'<div class="bars">{bars}</div>', more, note=note)


def _entries(contents: Contents) -> str:
    rows = []
    for name, stats in list(contents.entries.items())[:_MOST_ROWS]:
        show = _size if stats.unit == "bytes" else lambda value: f"{value:,.4g}"
        missing = contents.lacking(stats)
        sizes = (show(value) for value in (stats.least, stats.mean, stats.most))
        example = "" if stats.kind.startswith(_NOT_SHOWN) else _cut(stats.example or "", 60)
        rows.append((_cut(name), f"{stats.count:,}", f"{missing:,}" if missing else "", stats.kind, *sizes, example))
    heading = ("name", "count", "missing", "kind", "min", "mean", "max", "example")
    title = "Features" if contents.format == "tfrecord" else "Entries"
    return _section(title, _table(heading, rows, (1, 2, 4, 5, 6)))


def _duplicates(copies: Duplicates) -> str:
    if not copies.extra:
        return _section("Exact duplicates", '<p class="good">None: no two samples have the same bytes.</p>')
    leaks = f' <b class="bad">Found in more than one split: {copies.leaked:,}.</b>' if copies.leaked else ""
    note = f"Samples that repeat another: {copies.extra:,}.{leaks} Each is given by its shard and number."
    places = (("  ·  ".join(f"{_cut(name, 80)} #{place}" for name, place in group),) for group in copies.groups)
    return _section("Exact duplicates", _table(("equal samples",), places), note=note)


def _shards(contents: Contents) -> str:
    shards = contents.shards
    step = -(-len(shards) // _MOST_COLUMNS)
    groups = [shards[place : place + step] for place in range(0, len(shards), step)]
    means = [(group[0].name, sum(shard.bytes for shard in group) / len(group)) for group in groups]
    columns = [(mean, f"{_cut(name, 60)}: {_size(mean)}") for name, mean in means]
    chart = _chart("Sizes of shards", columns, _cut(shards[0].name, 40), _cut(shards[-1].name, 40))
    rows = [(_cut(shard.name), f"{shard.samples:,}", _size(shard.bytes)) for shard in shards[:_MOST_ROWS]]
    listing = _table(("name", "samples", "size"), rows, (1, 2))
    more = f'<p class="soft">and {len(shards) - _MOST_ROWS:,} more</p>' if len(shards) > _MOST_ROWS else ""
    largest = _size(max(shard.bytes for shard in shards))
    return _section("Shards", chart if len(shards) > 1 else "", listing, more, note=f"Up to {largest} each.")


# --- Parts of sections ---


def _chart(what: str, columns: Sequence[tuple[float, str]], first: str, last: str) -> str:
    """Columns as inline SVG, each with a height and a title, and a text at either end of the axis."""
    most = max(height for height, _ in columns) or 1
    rects = []
    for place, (height, title) in enumerate(columns):
        tall = max(100 * height / most, 1) if height else 0
        box = f'x="{place * 10}" y="{100 - tall:.1f}" width="9" height="{tall:.1f}"'
        rects.append(f"<rect {box}><title>{escape(title)}</title></rect>")
    axis = "".join(f"<span>{escape(text)}</span>" for text in dict.fromkeys((first, last)))
    return (
        f'<div class="chart" style="max-width:{max(len(columns) * 44, 220)}px">'
        f'<svg viewBox="0 0 {len(columns) * 10 - 1} 100" preserveAspectRatio="none" role="img" aria-label="{what}">'
        f'{"".join(rects)}</svg><p class="axis">{axis}</p></div>'
    )


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of texts; the columns with these indexes are numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="r"' if place in right else "" for place in range(len(cells))]
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{line(heading, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(picture: Picture) -> str:
    """An image of the contact sheet, with its label and key."""
    data, title = _thumbnail(picture.data), escape(picture.key)
    shown = '<small class="bad">not decodable</small>'
    if data:
        source = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
        shown = f'<img loading="lazy" alt="{title}" src="{source}">'
    label = f"<b>{escape(picture.label)}</b><br>" if picture.label is not None else ""
    return f'<figure><div>{shown}</div><figcaption title="{title}">{label}<small>{title}</small></figcaption></figure>'


def _thumbnail(data: bytes) -> bytes | None:
    """A small JPEG of the centre of an image; None if it cannot be decoded."""
    try:
        pixels = image.center_crop(image.decode(data, 3))
        side = min(len(pixels), _SIDE)
        return image.encode(cv2.resize(pixels, (side, side), interpolation=cv2.INTER_AREA), "jpeg", 78)
    except (ImageError, cv2.error):
        return None


def _size(value: float) -> str:
    return str(format_size(round(value)))


def _cut(text: str, most: int = _MOST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def _summed(counters: Iterable[Counter[T]]) -> Counter[T]:
    total: Counter[T] = Counter()
    for counter in counters:
        total.update(counter)
    return total
