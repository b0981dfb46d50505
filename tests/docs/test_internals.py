"""The pages on the inside and on promises name tests and files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "internals.md", ROOT / "docs" / "promises.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_are_there(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text())
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []
    assert len(named) > 10 or page.name == "CONTRIBUTING.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|c))`", page.read_text()))
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in (ROOT, ROOT / "tar2tf_cli"))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_that_are_linked_are_there(page: Path) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


def test_the_pages_are_linked_from_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    assert "internals.md" in site
    assert "promises.md" in site
