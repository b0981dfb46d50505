"""Runs a page of the documentation as its reader would: every block, in order, in one folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

import fork_server

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(<!-- not run -->\n)?```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = "<!-- not run -->"

_SESSION = """
import contextlib, io, json, os, sys, traceback

for line in sys.stdin:
    folder, text = json.loads(line)
    os.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(text, "<block>", "exec"), {"__name__": "__main__"})
            ok = True
        except BaseException:
            traceback.print_exc()
            ok = False
    print(json.dumps([ok, printed.getvalue()]), flush=True)
"""
"""A Python that runs each block by itself, so that TensorFlow is imported once for all pages."""


class Block(NamedTuple):
    language: str
    title: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The page's blocks that are run, or written to the file they are titled with."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    assert text.count("\n```") == 2 * len(found), f"{page}: a fence that this does not understand"
    assert text.count(_MARK) == sum(bool(match[1]) for match in found), f"{page}: a mark that stands above no block"
    for match in found:
        if not match[1]:
            yield Block(match[2], match[3] or "", match[4], text[: match.start()].count("\n") + 1)


class Session:
    """A Python that stays open."""

    def __init__(self, python: fork_server.Process) -> None:
        self._python = python

    def run(self, folder: Path, text: str) -> tuple[bool, str]:
        """Run a block in a folder; return whether that worked, and what was printed."""
        assert self._python.stdin
        assert self._python.stdout
        self._python.stdin.write(json.dumps([str(folder), text]).encode() + b"\n")
        self._python.stdin.flush()
        ok, printed = json.loads(self._python.stdout.readline())
        return ok, printed


class Reader:
    """Somebody with a shell and a Python open in one folder."""

    def __init__(self, folder: Path, environment: dict[str, str], session: Session) -> None:
        self._folder = folder
        self._environment = environment
        self._session = session

    def follow(self, page: str, most: int | None = None) -> Path:
        """Do what a page says, or its first few blocks."""
        for block in islice(blocks(page), most):
            self.run(page, block)
        return self._folder

    def run(self, page: str, block: Block) -> None:
        """Do what a block of a page says."""
        if block.title:
            (self._folder / block.title).write_text(block.text)
        elif block.language in ("sh", "python"):
            in_shell = block.language == "sh"
            ok, printed = self._shell(block.text) if in_shell else self._session.run(self._folder, block.text)
            assert ok, f"docs/{page}:{block.line}\n{printed}"

    def _shell(self, text: str) -> tuple[bool, str]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has tar2tf on the PATH."""
    tools = tmp_path_factory.mktemp("bin")
    for name, text in (("tar2tf", fork_server.script()), ("python", fork_server.script(python=True))):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TAR2TF_")}
    return {
        **variables,
        "PATH": f"{tools}{os.pathsep}{variables['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), variables.get("PYTHONPATH")))),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@pytest.fixture(scope="session")
def session(environment: dict[str, str]) -> Iterator[Session]:
    """An open Python."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    python = fork_server.Process(["-c", _SESSION], python=True, tensorflow=True, env=environment, **pipes)
    yield Session(python)
    python.communicate(timeout=60)


@pytest.fixture
def reader(tmp_path: Path, environment: dict[str, str], session: Session) -> Reader:
    """Somebody in a folder of their own, which is empty unless `data` fills it."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    cloud = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return Reader(work, {**environment, **cloud}, session)


@pytest.fixture
def run_page(reader: Reader) -> Callable[..., Path]:
    """Run the blocks of a page; returns the folder in which that was done."""
    return reader.follow


@pytest.fixture
def page_blocks() -> Callable[[str], Iterator[Block]]:
    """Iterate over the blocks of a page."""
    return blocks


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], session: Session) -> Path:
    """What the first two blocks of the recipes make, which many pages begin with."""
    return Reader(tmp_path_factory.mktemp("made"), environment, session).follow("recipes.md", most=2)


@pytest.fixture
def data(tmp_path: Path, made_data: Path) -> Path:
    """The folder in which pages are run, with the data of the recipes."""
    return shutil.copytree(made_data, tmp_path / "work", dirs_exist_ok=True)
