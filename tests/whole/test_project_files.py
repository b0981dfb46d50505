"""What a forge shows to whoever comes to the project: how to cite it, report a problem, and propose a change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from readme import ROOT
from tar2tf_cli import __version__

FORGE = ROOT / ".github"
FORMS = [form for form in sorted((FORGE / "ISSUE_TEMPLATE").glob("*.yml")) if form.stem != "config"]


def read(path: Path) -> dict[str, object]:
    data = YAML(typ="safe").load(path.read_text())
    assert isinstance(data, dict)
    return data


def test_the_citation_names_this_version() -> None:
    """The required keys are those of the Citation File Format, 1.2.0."""
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == __version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_has_what_a_forge_needs(form: Path) -> None:
    fields = read(form)
    body = fields["body"]
    assert fields["name"]
    assert fields["description"]
    assert isinstance(body, list)
    assert len({field["id"] for field in body}) == len(body) > 1
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in body)


def test_there_are_forms() -> None:
    assert len(FORMS) > 1


@pytest.mark.parametrize("page", sorted(FORGE.glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_to_pages_that_are_there(page: Path) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
