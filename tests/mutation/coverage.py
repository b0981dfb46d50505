"""A map of the blocks of the package that each test executes, recorded on an instrumented copy of the package."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.mutation.blocks import block_at, blocks_of
from tests.mutation.plugin import function_of

ROOT = Path(__file__).parents[2]
PACKAGE = "tar2tf_cli"
HOME = Path(tempfile.gettempdir(), "tar2tf-mutation")
"""Folder of the map and of the copies of the repository."""


def copy_repository(to: Path) -> Path:
    """Copy the sources and tests of the repository, and the kernel where it is built."""
    shutil.rmtree(to, ignore_errors=True)
    left = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "site")
    shutil.copytree(ROOT, to, ignore=left, symlinks=True)
    return to


def environment(copy: Path, **more: str) -> dict[str, str]:
    """Return the environment in which a copy's package is the one that is imported, in all processes."""
    return {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", **more}


class Test(NamedTuple):
    """A test function, the duration of one of its cases, and the numbers of the blocks that this case executed."""

    name: str
    seconds: float
    blocks: frozenset[int]


class CoverageMap:
    """The tests that cover each block of the package."""

    def __init__(self, blocks: list[str], tests: list[Test]) -> None:
        self.tests = tests
        self._blocks = blocks

    @classmethod
    def load(cls) -> CoverageMap:
        """Read the map that was made last.

        Raises:
            SystemExit: if none was made.
        """
        try:
            kept = json.loads(MAP.read_text())
        except FileNotFoundError:
            raise SystemExit(
                "no map of the blocks that tests cover: make it with `python -m tests.mutation --map`"
            ) from None
        tests = [Test(name, seconds, frozenset(of)) for name, seconds, of in kept["tests"]]
        return cls(kept["blocks"], [test for test in tests if (ROOT / test.name.partition("::")[0]).exists()])

    @cached_property
    def _of_block(self) -> dict[str, list[Test]]:
        found: dict[str, list[Test]] = defaultdict(list)
        for test in self.tests:
            for block in test.blocks:
                found[self._blocks[block]].append(test)
        return found

    def of(self, file: str, source: str, line: int) -> list[Test]:
        """List the tests that cover a line; outside of functions, and in new blocks, the tests that cover its file."""
        block = block_at(source, line)
        if block and f"{file}:{block}" in self._blocks:
            return self._of_block.get(f"{file}:{block}", [])
        within = {number for number, name in enumerate(self._blocks) if name.startswith(f"{file}:")}
        return [test for test in self.tests if test.blocks & within]


NOTES, PASSED, MAP = HOME / "notes", HOME / "passed", HOME / "coverage.json"


def make_map(processes: int, *arguments: str) -> None:
    """Run a case of each test without the kernel on a copy that records the blocks they execute, and keep the map."""
    shutil.rmtree(HOME, ignore_errors=True)
    NOTES.mkdir(parents=True)
    copy = copy_repository(HOME / "map")
    names = _instrument(copy / PACKAGE, NOTES)
    quiet = ["-q", "-p", "tests.mutation.plugin", "-p", "no:cacheprovider", "--tb=no", "-r", "N"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", str(processes), "--timeout", "120", *quiet, *arguments],
        cwd=copy,
        env=environment(copy, TAR2TF_PURE="1", MUTATION_PASSED=str(PASSED)),
        check=False,
    )
    keep_map(names)
    shutil.rmtree(copy)


def keep_map(names: list[str]) -> None:
    """Write the map from the notes of the tests."""
    tests = []
    for line in PASSED.read_text().splitlines():
        seconds, _, name = line.partition(" ")
        noted = NOTES / hashlib.md5(name.encode(errors="replace")).hexdigest()
        if noted.exists():
            tests.append((function_of(name), float(seconds), sorted({*map(int, noted.read_text().split())})))
    MAP.write_text(json.dumps({"blocks": names, "tests": tests}))
    print(f"{len(tests):,} tests that passed cover {len({block for _, _, of in tests for block in of}):,} blocks")


def _instrument(package: Path, notes: Path) -> list[str]:
    """Instrument each block of a package so that it records its execution; return the names of the blocks by number."""
    names: list[str] = []
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        if file == "formats/kernel/build.py":  # runs without the package
            continue
        tree = ast.parse(path.read_text())
        for block in blocks_of(tree):
            block.body.insert(_after_docstring(block.body), ast.parse(f"_executed({len(names)})").body[0])
            names.append(f"{file}:{block.name}")
        last = [place for place, node in enumerate(tree.body) if getattr(node, "module", "") == "__future__"]
        place = last[-1] + 1 if last else _after_docstring(tree.body)
        tree.body.insert(place, ast.parse(f"from {PACKAGE}._recorder import executed as _executed").body[0])
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    recorder = Path(__file__).with_name("recorder.py").read_text()
    (package / "_recorder.py").write_text(recorder.replace('"FOLDER"', repr(str(notes))))
    return names


def _after_docstring(body: list[ast.stmt]) -> int:
    match body[0]:
        case ast.Expr(ast.Constant(str())):
            return 1
    return 0
