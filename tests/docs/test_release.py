"""A release changes all that speaks of one: the version, the date, and how the package is installed."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from readme import ROOT
from tar2tf_cli import __version__


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "docs" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(script: ModuleType, tmp_path: Path) -> Path:
    for page, *_ in script.changes(__version__, "1.2.3", "2030-01-02"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


def pages(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_text()


def test_a_release_names_its_version_and_installs_from_pypi(script: ModuleType, copy: Path) -> None:
    script.release(copy, __version__, "1.2.3", "2030-01-02")
    after = dict(pages(copy))
    assert all("not on PyPI yet" not in text for text in after.values())
    for page in ("README.md", "docs/reference/install.md"):
        assert re.search(r"pip install tar2tf-cli\b", after[page]), page
    assert after["tar2tf_cli/spec/__init__.py"].endswith('__version__ = "1.2.3"\n')
    assert "version: 1.2.3\ndate-released: 2030-01-02\n" in after["CITATION.cff"]
    assert "(2030-01-02)" in after["CHANGELOG.md"]


def test_pages_that_say_something_else_are_not_changed(script: ModuleType, copy: Path) -> None:
    (copy / "README.md").write_text("# tar2tf\n")
    before = dict(pages(copy))
    with pytest.raises(ValueError, match=r"README\.md does not say once: tar2tf is not on PyPI yet"):
        script.release(copy, __version__, "1.2.3", "2030-01-02")
    assert dict(pages(copy)) == before


def test_before_a_release_no_page_claims_that_pypi_has_the_package() -> None:
    """What `pip install` cannot find yet is only said to come."""
    texts = {page: (ROOT / page).read_text() for page in ("README.md", "docs/reference/install.md")}
    assert [page for page, text in texts.items() if re.search(r"^pip install tar2tf-cli", text, re.MULTILINE)] == []
