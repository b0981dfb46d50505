"""The README's blocks run in the order printed, in one folder, as its reader would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import fork_server
from readme import README, ROOT
from shards import PHOTOS, shards_in

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.on_disk]

BLOCK = re.compile(r"(?:<!-- (\w+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -e . && "
"""What is not run again: the tests run in what the reader installed."""
SESSION = """
import json, subprocess, sys, types
main = sys.modules["__main__"] = types.ModuleType("__main__")
for language, text in json.load(sys.stdin):
    print(f"--- {text}", file=sys.stderr, flush=True)
    if language == "python":
        exec(compile(text, "README.md", "exec"), vars(main))
        if "train = " in text:
            for _ in main.train:
                pass
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
"""
"""A terminal and a notebook beside it: each block finds what those before it made and imported."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A reader's folder: the sample shards of the repository, and nothing else."""
    shutil.copytree(PHOTOS, tmp_path / "tests" / "data")
    return tmp_path


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    """Variables under which `tar2tf` and `python` are those of these tests."""
    folder = place / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, text in (("tar2tf", fork_server.script()), ("python", fork_server.script(python=True))):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "activate").write_text("")
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    return {**os.environ, **paths}


def test_the_blocks_of_the_readme_work_in_the_order_printed(place: Path, environment: dict[str, str]) -> None:
    blocks: list[tuple[str, str]] = []
    for found in BLOCK.finditer(README):
        name, language, text = found.groups()
        if name == "test" or language == "text":
            continue
        if name == "demo":
            assert text.startswith(INSTALL)
            text = text.removeprefix(INSTALL)
        assert language in ("sh", "python"), f"who runs this? {text}"
        blocks.append((language, text))
    assert len(blocks) >= 3
    told = json.dumps(blocks).encode()
    beside = {"python": True, "tensorflow": True}
    done = fork_server.run(["-c", SESSION], **beside, input=told, cwd=place, env=environment, timeout=200)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert [len(shards_in(place / name)) for name in ("out", "train")] == [3, 1]


def test_the_readme_is_short_and_begins_with_two_commands() -> None:
    assert len(README.splitlines()) < 150
    assert [name for name, language, _ in BLOCK.findall(README) if language != "text"][:2] == ["demo", "test"]


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) > 15
    for link in links:
        path, _, anchor = link.partition("#")
        page = (ROOT / path).read_text(encoding="utf-8")
        headings = [re.sub(r"[^\w -]", "", title.lower()) for title in re.findall(r"^#+ (.+)", page, re.MULTILINE)]
        assert not anchor or anchor in [title.strip().replace(" ", "-") for title in headings], link
