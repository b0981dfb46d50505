"""The documentation is true: generated pages are up to date, and what the README shows is what happens."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tar2tf_cli.ops import OPS
from tar2tf_cli.presets import PRESETS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "man" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block(name: str) -> str:
    """The fenced block behind `<!-- name -->` in the README."""
    return re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", README, re.DOTALL).group(1)


def test_man_pages_and_completions_are_as_the_generator_writes_them():
    for path, text in generator().generated().items():
        assert path.read_text(encoding="utf-8") == text, f"run python man/generate.py: {path.name} is out of date"


def test_man_pages_are_read_without_complaint():
    for path in sorted((ROOT / "man").glob("*.1")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(".TH ")
        assert not [line for line in text.splitlines() if line.startswith("'")]


@pytest.mark.parametrize("name", [*OPS, *PRESETS])
def test_the_readme_tells_of_every_op_and_preset(name):
    assert f"`{name}" in README


def test_the_readmes_demo_converts_the_sample_shards_and_shows_them(tmp_path):
    _, convert, inspect = block("demo").strip().split(" && ")[-3:]
    for command in (convert, inspect):
        words = shlex.split(command)
        assert words[0] == ".venv/bin/tar2tf"
        words[1:] = [word.replace("tests/data", str(ROOT / "tests" / "data")) for word in words[1:]]
        run = subprocess.run(
            [sys.executable, "-m", "tar2tf_cli", *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
    assert "24" in run.stdout
    assert len(list((tmp_path / "out").glob("photos-*.record"))) == 3
