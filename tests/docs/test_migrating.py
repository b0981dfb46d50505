"""What the pages for newcomers from other tools print can be run as it is, on the data of the recipes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PAGES = sorted(path.name for path in (Path(__file__).parents[2] / "docs" / "migrating").glob("*.md"))


@pytest.fixture
def data(run_page: Callable[..., Path]) -> Path:
    """The folder with what the recipes begin with."""
    return run_page("recipes.md", most=2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["../index.md", *(page for page in PAGES if page != "index.md")])
def test_what_the_page_shows_runs(page: str, data: Path, run_page: Callable[..., Path]) -> None:
    run_page(f"migrating/{page}")


def test_there_is_a_page_for_each_system() -> None:
    text = (Path(__file__).parents[2] / "docs" / "migrating" / "index.md").read_text(encoding="utf-8")
    assert all(f"({page})" in text for page in PAGES if page != "index.md")
