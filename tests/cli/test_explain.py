"""`tar2tf explain`: each code that a fault or an error can have is explained, once, for the command and the pages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import tar2tf
from tar2tf_cli.checking.codes import EXPLANATIONS

PACKAGE = Path(__file__).parents[2] / "tar2tf_cli"


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Codes that a module gives to faults and errors, where it names them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
            lines = [line for line in node.body if ast.unparse(line).startswith("kind")]
            found = [line.value for line in lines if isinstance(line, (ast.Assign, ast.AnnAssign))]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            found = [*node.args[:2]] if name in ("Fault", "_damage") else []
            found += [word.value for word in node.keywords if word.arg == "kind" and name.endswith("Error")]
        else:
            found = []
        words = [value.value for value in found if isinstance(value, ast.Constant)]
        yield from (word for word in words if isinstance(word, str) and re.fullmatch(r"\w+", word))


def test_each_code_is_explained() -> None:
    found = {code for path in PACKAGE.rglob("*.py") for code in codes_in(ast.parse(path.read_text(encoding="utf-8")))}
    assert {"digest", "sparse", "trailing_garbage", "manifest", "lacking"} < found
    assert found - EXPLANATIONS.keys() == set()


def test_a_code_is_explained_by_meaning_cause_and_remedy() -> None:
    done = tar2tf("explain", "data_crc", "(gap)")
    about = EXPLANATIONS["data_crc"]
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert text.startswith(f"data_crc: {about.means} {about.causes} {about.remedy}".replace("`", ""))
    assert "gap: the numbering of shards has a gap" in text


def test_all_codes_are_one_json_document() -> None:
    done = tar2tf("explain", "--all", "--json")
    document = json.loads(done.stdout)
    assert [item["code"] for item in document] == sorted(EXPLANATIONS)
    assert {tuple(item) for item in document} == {("code", "means", "causes", "remedy")}
    assert all(isinstance(text, str) and text for item in document for text in item.values())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["data-crc"], "there is no code 'data-crc'; did you mean 'data_crc'?"),
        (["nothing"], "there is no code 'nothing'"),
        (["gap", "(gapp)"], "there is no code 'gapp'; did you mean 'gap'?"),
        ([], "name a code, such as data_crc, or pass --all"),
        (["gap", "--all"], "name a code, such as data_crc, or pass --all"),
    ],
)
def test_a_wrong_code_is_a_usage_error(words: list[str], error: str) -> None:
    done = tar2tf("explain", *words)
    hint = "--all explains every code" if error.startswith("there") else "see tar2tf explain -h"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {error}\n  {hint}\n")


def test_an_error_names_its_code_as_a_fault_does(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"<!DOCTYPE html>")
    for command in (["convert", path, "-o", tmp_path / "o.record"], ["verify", path], ["inspect", path]):
        done = tar2tf(*command)
        assert "(unknown_format)" in done.stdout + done.stderr, command
