"""The description on PyPI: the README, with the text of the picture and without links to files of the repository.

PyPI shows neither. A hook of hatchling, which pyproject.toml names.
"""

from __future__ import annotations

import html
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["DescriptionHook", "described"]

_TEXT = re.compile(r'<text x="([\d.]+)" y="(\d+)"[^>]*>(.*?)</text>')
_PICTURE = re.compile(r"!\[[^\]]*\]\((docs/\w+\.svg)\)")
_FILE = re.compile(r"\[([^\]]+)\]\((?!\w+:)[^)]+\)")
_MARGIN, _COLUMN, _LINE = 18, 8.4, 20  # as in docs/terminal.py


def described(root: Path) -> str:
    """Return the README as PyPI can show it."""
    text = (root / "README.md").read_text(encoding="utf-8")
    text = _PICTURE.sub(lambda found: f"```text\n{_printed(root / found[1])}\n```", text)
    return _FILE.sub(r"\1", text)


def _printed(picture: Path) -> str:
    """The lines of a terminal that `docs/terminal.py` drew."""
    lines: list[str] = []
    last = 0
    for y, parts in groupby(_TEXT.findall(picture.read_text(encoding="utf-8")), key=lambda part: int(part[1])):
        line = ""
        for x, _, words in parts:
            line = line.ljust(round((float(x) - _MARGIN) / _COLUMN)) + html.unescape(words)
        if lines and y - last > _LINE:
            lines.append("")
        lines.append(line)
        last = y
    return "\n".join(lines)


class DescriptionHook(MetadataHookInterface):
    """Gives the package its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to the metadata of the project."""
        metadata["readme"] = {"content-type": "text/markdown", "text": described(Path(self.root))}
