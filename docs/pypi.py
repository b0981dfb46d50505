"""What hatchling adds to the metadata of the package; pyproject.toml names this hook.

The description on PyPI is the README, with the text of the picture and without links to files of the repository, as
PyPI shows neither. With WITHOUT_TENSORFLOW=1 in the environment, the package that is built does not need TensorFlow.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["MetadataHook", "described", "needed"]

_TEXT = re.compile(r'<text x="([\d.]+)" y="(\d+)"[^>]*>(.*?)</text>')
_PICTURE = re.compile(r"!\[[^\]]*\]\((docs/\w+\.svg)\)")
_TWICE = re.compile(r"<details><summary>The same as text</summary>.*?</details>\n\n", re.DOTALL)
_FILE = re.compile(r"\[([^\]]+)\]\((?!\w+:)[^)]+\)")
_MARGIN, _COLUMN, _LINE = 18, 8.4, 20  # as in docs/terminal.py


def described(root: Path) -> str:
    """Return the README as PyPI can show it: with the text of the picture in its place."""
    text = (root / "README.md").read_text(encoding="utf-8")
    text = _TWICE.sub("", text)
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


def needed(dependencies: Iterable[str]) -> list[str]:
    """Return the dependencies, without TensorFlow if that is not wanted."""
    unwanted = "tensorflow" if os.environ.get("WITHOUT_TENSORFLOW") else " "
    return [dependency for dependency in dependencies if not dependency.startswith(unwanted)]


class MetadataHook(MetadataHookInterface):
    """Gives the package its description and its dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to the metadata of the project, and leave out TensorFlow if that is not wanted."""
        metadata["dependencies"] = needed(metadata["dependencies"])
        metadata["readme"] = {"content-type": "text/markdown", "text": described(Path(self.root))}
