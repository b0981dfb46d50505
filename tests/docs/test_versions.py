"""Every file that states the version of the package states the same one."""

from __future__ import annotations

import re

import pytest

from readme import ROOT
from tar2tf_cli import __version__

STATED = {
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"\A# Changelog\n\n## ([\d.]+) ",
    "mkdocs.yml": r"^copyright: tar2tf (.+)$",
    "docs/deploy/recipe.yaml": r'^  version: "(.+)"$',
    "tar2tf_cli/remote/Dockerfile": r"(?:tar2tf:|tar2tf-cli==)([\d.]+)",
}


@pytest.mark.parametrize("path", STATED)
def test_a_file_states_the_version_of_the_package(path: str) -> None:
    found = re.findall(STATED[path], (ROOT / path).read_text(), re.MULTILINE)
    assert {*found} == {__version__}
