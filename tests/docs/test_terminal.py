"""The picture of the terminal shows what the commands print today."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("pages")

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("terminal", ROOT / "docs" / "terminal.py")
assert _spec
assert _spec.loader
terminal = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(terminal)


def test_the_picture_is_what_the_commands_print() -> None:
    assert terminal.PICTURE.read_text(encoding="utf-8") == terminal.draw(terminal.session()), "python docs/terminal.py"


@pytest.mark.parametrize("page", terminal.PAGES, ids=lambda page: page.stem)
def test_what_it_shows_stands_below_it_as_text(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "$ tar2tf inspect shards\n" in text
    assert text == terminal.with_text(text, terminal.session()), "python docs/terminal.py"


def test_the_picture_is_in_the_readme_and_is_well_formed() -> None:
    assert "](docs/terminal.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    texts = [item.text for item in ElementTree.parse(terminal.PICTURE).iter("{http://www.w3.org/2000/svg}text")]
    assert "$" in texts
    assert any(re.match("OK: ", text or "") for text in texts)


def test_a_screen_shows_what_a_terminal_would() -> None:
    shown = terminal.screen("10 %\r100 %\r\n\x1b[31mred\x1b[0m\nthird\x1b[A\r\x1b[Kgone\n")
    assert ["".join(character for character, _ in line) for line in shown] == ["100 %", "gone", "third"]
    assert list(terminal.runs(terminal.screen("\x1b[31mred\x1b[0m and  wide")[0])) == [
        (0, "red", terminal.COLOURS["31"]),
        (4, "and", ""),
        (9, "wide", ""),
    ]
