"""The documentation is true: generated pages are up to date, and what the README shows is what happens."""

from __future__ import annotations

import importlib.util
import re
import shlex

import pytest

from commands import tar2tf
from readme import ROOT, block
from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS
from tar2tf_cli.cli import all_commands, cli
from tar2tf_cli.cli.options import GROUPS
from tar2tf_cli.ops import OPS
from tar2tf_cli.ops.base import summary

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "man" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = generator().generated()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_what_the_code_generates(path):
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run python man/generate.py"


def test_calls_and_assignments_of_docstrings_are_code_in_the_reference_of_ops():
    marked = generator()._code_words(
        'Rename({"a": ["b"]}), Rename(a=["b", "c"]) or short=8, as `long=9`, not NAME=VALUE.'
    )
    assert marked == '`Rename({"a": ["b"]})`, `Rename(a=["b", "c"])` or `short=8`, as `long=9`, not NAME=VALUE.'


def test_nothing_else_is_among_them():
    present = {path for folder in ("man/man1", "completions") for path in (ROOT / folder).glob("tar2tf*")}
    pages = {path for path in (ROOT / "docs").rglob("*.md") if "<!-- end -->" in path.read_text(encoding="utf-8")}
    pages.add(ROOT / "docs" / "reference" / "ops.md")
    assert set(GENERATED) == {*present, *pages, *(ROOT / "docs").glob("*.json")}


def test_the_help_names_the_default_of_max_pixels():
    (option,) = [param for param in cli.get_command(None, "convert").params if param.name == "max_pixels"]
    assert f"[default: {DEFAULT_MAX_PIXELS}]" in option.help


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_op_has_help_of_one_sentence_and_usage_that_begins_with_its_name(op):
    assert re.fullmatch(r"[A-Z][^\n]*\.", summary(op))
    assert op.usage.startswith(op.name)
    assert op.usage.replace("-", "\\-") in GENERATED[ROOT / "man" / "man1" / "tar2tf-convert.1"]


@pytest.mark.parametrize("name", ["-h", "etl -h", *(f"{name} -h" for name in all_commands())])
def test_every_command_has_help_that_leads_with_examples_and_fits_a_terminal(name):
    run = tar2tf(*name.split())
    assert run.returncode == 0
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert run.stdout.index("tar2tf ", 20) < min(
        run.stdout.index(f"{name}:\n") for name in (*GROUPS, "Options") if f"{name}:\n" in run.stdout
    )


def test_examples_in_man_pages_fit_a_terminal():
    """Where man does not break lines, and indents them by seven characters."""
    for path, text in GENERATED.items():
        for example in re.findall(
            r"^\.nf\n(.*?)\n\.fi$", text if path.suffix == ".1" else "", re.MULTILINE | re.DOTALL
        ):
            lines = example.replace("\\e", "\\").replace("\\-", "-").splitlines()
            assert max(map(len, lines)) <= 80 - 7, path


def test_the_readmes_demo_converts_the_sample_shards_and_shows_them(tmp_path):
    _, convert, inspect = block("demo").strip().split(" && ")[-3:]
    for command in (convert, inspect):
        words = shlex.split(command)
        assert words[0] == ".venv/bin/tar2tf"
        words[1:] = [word.replace("tests/data", str(ROOT / "tests" / "data")) for word in words[1:]]
        run = tar2tf(*words[1:], cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].startswith("out: 3 TFRecord shards, 24 records, ")
    assert len(list((tmp_path / "out").glob("photos-*.record"))) == 3
