"""Workflows run what was looked at: every action is pinned, and a release holds no more rights than it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.xdist_group("pages")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_whose_version_is_named(path: Path) -> None:
    used = re.findall(r"uses: *(.+)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_given_job_by_job(path: Path) -> None:
    workflow = YAML(typ="safe").load(path)
    assert workflow["permissions"] == {}
    rights = {name: dict(job["permissions"]) for name, job in workflow["jobs"].items()}
    publish = rights.pop("publish", {"id-token": "write"})
    assert publish == {"id-token": "write"}
    assert all(right == {"contents": "read"} for right in rights.values())


def test_the_checks_run_on_both_systems_and_every_python_that_is_promised() -> None:
    matrix = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["check"]["strategy"]["matrix"]
    promised = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == promised
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
