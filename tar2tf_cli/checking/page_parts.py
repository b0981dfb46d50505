"""Parts of the page of `inspect --html`: its style, charts as inline SVG, tables, thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from tar2tf_cli.checking.page_data import Excerpt, Picture

__all__ = ["STYLE", "bars", "columns", "excerpt", "number", "size", "table", "thumbnail"]

_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_SIDE: Final = 160

STYLE: Final = """
:root { color-scheme: light dark; --page: #f6f5f2; --card: #fff; --ink: #1d1f23; --soft: #6a6f78; --line: #e3e1dc;
  --accent: #3a6ea5; --fill: #b9cfe4; --bad: #b3402f; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --page: #15171a; --card: #1d2024; --ink: #e8e6e1; --soft: #9aa0a8;
  --line: #2e3238; --accent: #85b4e3; --fill: #35536f; --bad: #ee8a78; --good: #7fc79b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; font-weight: 650; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 16px; font-weight: 650; margin: 0 0 12px; }
p { margin: 0 0 10px; } .soft, small { color: var(--soft); } .bad { color: var(--bad); } .good { color: var(--good); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin-top: 16px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 12px; margin-top: 20px; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.facts b { display: block; font-size: 21px; font-weight: 650; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.facts span { color: var(--soft); font-size: 13px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 0 16px; align-items: start; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 10px; }
figure { margin: 0; min-width: 0; }
figure div { aspect-ratio: 1; border-radius: 6px; overflow: hidden; background: var(--line); display: grid;
  place-items: center; }
figure img { width: 100%; height: 100%; object-fit: cover; display: block; }
figcaption { font-size: 12px; line-height: 1.35; margin-top: 4px; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.excerpts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 12px; }
article { border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; font-size: 13.5px; min-width: 0;
  overflow-wrap: anywhere; } article p { margin: 0 0 6px; } audio { width: 100%; height: 36px; margin: 4px 0 6px; }
.wide { overflow-x: auto; margin: 0 -20px; padding: 0 20px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } .r { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td { overflow-wrap: anywhere; } td:not(.r) { min-width: 112px; } td:nth-child(n+6):not(.r) { min-width: 200px; }
svg { display: block; width: 100%; } svg rect { fill: var(--fill); } svg rect:hover { fill: var(--accent); }
.chart { margin-bottom: 14px; } .chart svg { height: 132px; }
.axis { display: flex; justify-content: space-between; gap: 16px; margin: 4px 0 0; font-size: 12px; color: var(--soft);
  overflow-wrap: anywhere; }
.bars { display: grid; grid-template-columns: fit-content(38%) 1fr auto; gap: 6px 12px; align-items: center;
  font-size: 13.5px; }
.bars span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars svg { height: 12px; border-radius: 3px; }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; } footer { margin-top: 24px; font-size: 13px;
  color: var(--soft); }
@media (max-width: 480px) { .facts { grid-template-columns: repeat(3, 1fr); gap: 8px; }
  td:nth-child(n+6):not(.r) { white-space: nowrap; } .facts div { padding: 10px 12px; } .facts b { font-size: 17px; }
  main { padding: 20px 14px 40px; } section { padding: 14px; } .wide { margin: 0 -14px; padding: 0 14px; } }
"""


def number(value: int) -> str:
    """A number with separators."""
    return f"{value:,}"


def size(value: float) -> str:
    """A number of bytes with its unit, in three digits."""
    power = 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_UNITS[power]}"


def columns(heights: Sequence[float], titles: Sequence[str], labels: tuple[str, str], what: str) -> str:
    """A chart of columns as inline SVG, with a label at either end of its axis."""
    high, most = 100, max(heights, default=0) or 1
    rects = []
    for place, (height, title) in enumerate(zip(heights, titles, strict=True)):
        tall = max(height / most * high, 1) if height else 0
        box = f'x="{place * 10}" y="{high - tall:.1f}" width="9" height="{tall:.1f}"'
        rects.append(f"<rect {box}><title>{escape(title)}</title></rect>")
    axis = "".join(f"<span>{escape(label)}</span>" for label in dict.fromkeys(labels))
    wide = len(heights) * 10 - 1
    return (
        f'<div class="chart" style="max-width:{max(len(heights) * 44, 220)}px">'
        f'<svg viewBox="0 0 {wide} {high}" preserveAspectRatio="none" role="img" aria-label="{escape(what)}">'
        f'{"".join(rects)}</svg><p class="axis">{axis}</p></div>'
    )


def bars(rows: Sequence[tuple[str, int]]) -> str:
    """Horizontal bars, each with its name and number."""
    most = max((count for _, count in rows), default=1) or 1
    lines = (
        f'<span title="{escape(name)}">{escape(name)}</span>{_bar(count / most)}<span class="r">{count:,}</span>'
        for name, count in rows
    )
    return f'<div class="bars">{"".join(lines)}</div>'


def _bar(share: float) -> str:
    box = f'<rect width="{max(share * 100, 0.6):.1f}" height="12"/>'
    return f'<svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">{box}</svg>'


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of texts; the columns with these indexes are numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="r"' if place in right else "" for place in range(len(cells))]
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{line(heading, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def thumbnail(picture: Picture) -> str:
    """An image as a figure of the contact sheet, with its label and key."""
    data = _small(picture.data)
    image = '<small class="bad">not decodable</small>'
    if data:
        source = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
        image = f'<img loading="lazy" alt="{escape(picture.key)}" src="{source}">'
    label = f"<b>{escape(picture.label)}</b><br>" if picture.label is not None else ""
    title = escape(picture.key)
    return f'<figure><div>{image}</div><figcaption title="{title}">{label}<small>{title}</small></figcaption></figure>'


def excerpt(sample: Excerpt) -> str:
    """A sample without an image: its key, its texts, and its sound to be played."""
    label = f"<b>{escape(sample.label)}</b> " if sample.label is not None else ""
    parts = [f"<p>{label}<small>{escape(sample.key)}</small></p>"]
    if sample.sound:
        kind, data = sample.sound
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        parts.append(f'<audio controls preload="none" src="{source}"></audio>')
    parts += [f"<p><small>{escape(name)}</small><br>{escape(text)}</p>" for name, text in sample.texts]
    return f"<article>{''.join(parts)}</article>"


def _small(data: bytes) -> bytes | None:
    """A small JPEG of an image; None if it cannot be decoded."""
    import cv2

    from tar2tf_cli.errors import ImageError
    from tar2tf_cli.formats.image import decode

    try:
        pixels: Any = decode(data, 3)
        scale = _SIDE / min(pixels.shape[:2])
        if scale < 1:
            wanted = (max(round(pixels.shape[1] * scale), 1), max(round(pixels.shape[0] * scale), 1))
            pixels = cv2.resize(pixels, wanted, interpolation=cv2.INTER_AREA)
        high, wide = pixels.shape[:2]
        top, left = max(high - _SIDE, 0) // 2, max(wide - _SIDE, 0) // 2
        ok, encoded = cv2.imencode(
            ".jpg", pixels[top : top + _SIDE, left : left + _SIDE, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 78]
        )
    except (ImageError, cv2.error):
        return None
    return encoded.tobytes() if ok else None
