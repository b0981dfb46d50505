"""The README and its blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The fenced block behind `<!-- name -->` in the README."""
    return re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", README, re.DOTALL).group(1)
