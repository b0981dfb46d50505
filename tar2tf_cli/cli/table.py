"""Aligned columns of text, no wider than the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from tar2tf_cli.cli.output import printable

__all__ = ["table", "terminal_width"]

_GAP: Final = "  "


def table(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    shrink: Mapping[int, int] | None = None,
    width: int | None = None,
    indent: str = "",
) -> Iterator[str]:
    """The lines of a table.

    Args:
        rows: cells; the first row may be a heading. Control characters become escapes.
        right: indexes of the columns that are right-aligned.
        shrink: minimum widths of the columns that may be cut with an ellipsis, in the order in which they are cut.
        width: maximum width of a line in terminal columns; None for no limit.
        indent: text before each line.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    surplus = 0 if width is None else len(indent) + sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for column, least in (shrink or {}).items():
        cut = min(max(surplus, 0), max(widths[column] - least, 0))
        widths[column] -= cut
        surplus -= cut
    for row in cells:
        parts = [_fitted(cell, widths[column], column in right) for column, cell in enumerate(row)]
        yield (indent + _GAP.join(parts)).rstrip()


def terminal_width() -> int | None:
    """Width in columns of the terminal on standard output; None if it is not a terminal."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
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
