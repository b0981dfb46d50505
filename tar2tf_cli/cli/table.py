"""Aligned columns of text, no wider than the terminal."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from tar2tf_cli.cli.output import echo, printable

__all__ = ["print_table", "table", "terminal_width"]

_GAP: Final = "  "
_LEAST: Final = 4


def print_table(rows: Sequence[Sequence[str]], **layout: Any) -> None:
    """Print a table that fits the terminal; `layout` is that of `table`."""
    for line in table(rows, width=terminal_width(), **layout):
        echo(line)


def table(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    shrink: Mapping[int, int] | None = None,
    drop: Sequence[int] = (),
    width: int | None = None,
    indent: str = "",
) -> Iterator[str]:
    """The lines of a table.

    Args:
        rows: cells; the first row may be a heading. Control characters become escapes.
        right: indexes of the columns that are right-aligned.
        shrink: widths down to which columns may be cut with an ellipsis, in the order in which they are cut; if nothing
            else helps, they are cut further.
        drop: indexes of the columns that are left out while the others do not fit, in this order.
        width: maximum width of a line in terminal columns; None for no limit.
        indent: text before each line.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    kept, shrink = list(range(len(widths))), shrink or {}
    if width is not None:
        for column in drop:
            if _surplus([min(widths[c], shrink.get(c, widths[c])) for c in kept], indent, width) > 0:
                kept.remove(column)
        _cut(widths, kept, shrink, indent, width)
    for row in cells:
        parts = [_fitted(row[column], widths[column], column in right) for column in kept]
        yield (indent + _GAP.join(parts)).rstrip()


def _surplus(widths: Sequence[int], indent: str, width: int) -> int:
    """How many columns a line is wider than a width."""
    return len(indent) + sum(widths) + len(_GAP) * (len(widths) - 1) - width


def _cut(widths: list[int], kept: Sequence[int], shrink: Mapping[int, int], indent: str, width: int) -> None:
    """Reduce the widths of the columns that may shrink until a line fits, if it can."""
    surplus = max(_surplus([widths[column] for column in kept], indent, width), 0)
    for limits in (shrink, dict.fromkeys(shrink, _LEAST)):
        for column, least in limits.items():
            if column in kept:
                cut = min(surplus, max(widths[column] - least, 0))
                widths[column] -= cut
                surplus -= cut


def terminal_width() -> int | None:
    """Width in columns of the terminal on standard output; None if it is not a terminal."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        import shutil

        return shutil.get_terminal_size().columns
    return None


def _fitted(text: str, width: int, right: bool) -> str:
    """A cell cut or padded to a width."""
    if _width(text) > width:
        while text and _width(text) >= width:
            text = text[:-1]
        text += "…" if width else ""
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _width(text: str) -> int:
    """The width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
