"""Building blocks of self-contained HTML pages: page frame, sections, tables and charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

_MOST_TEXT: Final = 160
_COLOURS: Final = 6  # of boxes, as in the style
_LINES_OF_TEXT: Final = 18
"""The number of lines of text that would fit on the longer side of an image."""


class Box(NamedTuple):
    """A bounding box on an image in pixels, with the name or number of its class."""

    left: float
    top: float
    right: float
    bottom: float
    label: str = ""


def page(title: str, body: Iterable[str], footer: str) -> Iterator[str]:
    """Yield the parts of a page, given its title, the HTML of its body, and a footer."""
    title, style = escape(cut(title)), Path(__file__).with_name("page.css").read_text()
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{style}</style></head><body><main><h1>{title}</h1>"
    yield from body
    yield f"<footer>{escape(footer)}</footer></main></body></html>\n"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return tiles, each with a value and its label."""
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in pairs)
    return f'<div class="facts">{boxes}</div>'


def section(title: str, *parts: str, note: str = "") -> str:
    """Return a section with HTML content and an HTML note."""
    small = f'<p class="soft">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{small}{''.join(parts)}</section>"


def chart(what: str, columns: Sequence[tuple[float, str]], first: str, last: str) -> str:
    """Return a bar chart as inline SVG, given height and title of each bar, and texts at both ends of the axis."""
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


def switch(layer: str) -> str:
    """Return a check box that toggles the elements of a class on the following sheets with CSS alone."""
    return f'<input type="checkbox" class="switch" id="show-{layer}" checked><label for="show-{layer}">{layer}</label>'


def drawing(width: int, height: int, boxes: Iterable[Box], points: Iterable[tuple[float, float]]) -> str:
    """Draw boxes and points as inline SVG over an image; its coordinates are the image's pixels.

    Args:
        width: width of the image.
        height: height of the image.
        boxes: edges and text of each box.
        points: x and y of each point.
    """
    text = max(width, height) / _LINES_OF_TEXT
    drawn = "".join(_box(box, text) for box in boxes)
    dots = "".join(f'<circle cx="{_plain(x)}" cy="{_plain(y)}" r="{text / 5:.3g}"/>' for x, y in points)
    layers = [f'<g class="{name}">{part}</g>' for name, part in (("boxes", drawn), ("points", dots)) if part]
    if not layers:
        return ""
    size = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none"'
    return f'<svg class="over" {size} aria-hidden="true">{"".join(layers)}</svg>'


def _box(box: Box, text: float) -> str:
    """Return a rectangle, with its text in the upper left corner."""
    left, top, right, bottom, label = box
    place = f'x="{_plain(left)}" y="{_plain(top)}" width="{_plain(right - left)}" height="{_plain(bottom - top)}"'
    if right < left or bottom < top:  # SVG cannot draw negative sizes
        return ""
    colour = crc32(label.encode("utf-8", "replace")) % _COLOURS
    said = ""
    if label:
        at = f'x="{_plain(max(left, 0) + text / 4)}" y="{_plain(max(top, 0) + text)}"'
        said = f'<text {at} font-size="{text:.3g}">{escape(label)}</text>'
    return f'<g class="c{colour}"><rect {place}><title>{escape(label)}</title></rect>{said}</g>'


def _plain(number: float) -> str:
    return f"{number:.6g}"


def table(what: str, heading: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a table of text that can be scrolled with the keyboard; columns with indexes in `right` are numbers."""

    def line(cells: Sequence[str], tag: str, more: str = "") -> str:
        marks = [' class="r"' if place in right else "" for place in range(len(cells))]
        return "".join(f"<{tag}{more}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))

    head, body = line(heading, "th", ' scope="col"'), "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    box = f'<div class="wide" tabindex="0" role="region" aria-label="{what}">'
    return f"{box}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def cut(text: str, most: int = _MOST_TEXT) -> str:
    """Return a text with its middle cut out if it is too long."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"
