"""The README, and named blocks of it and of the pages in docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str, page: str = "README.md") -> str:
    """The fenced block of a page that follows `<!-- name -->`, or that has the name as its title."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf'(?:<!-- {name} -->\n```\w+|^```\w+ title="{name}")\n(.*?)```', text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no block {name}"
    return found[1]
