"""The documentation is true: generated pages are up to date, and what the README shows is what happens."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys

import click
import pytest

from readme import README, ROOT, block
from tar2tf_cli.cli import cli
from tar2tf_cli.features.presets import PRESETS
from tar2tf_cli.ops import OPS


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "man" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", cli.list_commands(None))
def test_the_man_page_of_a_command_tells_of_its_every_option(name):
    page = (ROOT / "man" / f"tar2tf-{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert page.startswith(".TH TAR2TF-")
    for param in cli.get_command(None, name).params:
        if isinstance(param, click.Option):
            assert param.opts[-1] in page, f"run python man/generate.py: {param.opts[-1]} is missing"


def test_the_man_page_of_convert_tells_of_every_op():
    page = (ROOT / "man" / "tar2tf-convert.1").read_text(encoding="utf-8").replace("\\-", "-")
    for op in OPS.values():
        assert op.usage in page


def test_pages_are_generated_for_every_command_and_shell():
    names = {path.name for path in generator().generated()}
    assert names == {path.name for folder in ("man", "completions") for path in (ROOT / folder).glob("tar2tf*")}


@pytest.mark.parametrize("name", ["-h", *(f"{name} -h" for name in cli.list_commands(None))])
def test_every_command_has_help_that_leads_with_examples(name):
    run = subprocess.run(
        [sys.executable, "-m", "tar2tf_cli", *name.split()], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0
    assert run.stdout.index("tar2tf ", 20) < run.stdout.index("Options:")


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
