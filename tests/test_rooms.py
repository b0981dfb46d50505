"""The rooms of the package: imports run downwards only, through few floors, and no room is too large to know."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import tar2tf_cli

ROOT = Path(tar2tf_cli.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MOST_FLOORS = 14
MOST_LINES = 350
MOST_LINES_OF_A_CLASS = 250


parsed = cache(ast.parse)
"""The tree of a text, which is parsed once."""


def room_of(parts: tuple[str, ...]) -> str:
    """The folder of the package that a module lies in, or the module itself where it lies beside the folders."""
    return parts[0] if parts else "__init__"


def imported(path: Path) -> set[str]:
    """Rooms that a file imports from, at its top, inside functions and for annotations alike."""
    rooms = set()
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tar2tf_cli":
            names = [
                f"tar2tf_cli.{alias.name}" if (ROOT / alias.name).exists() else "tar2tf_cli" for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        rooms |= {room_of(tuple(name.split(".")[1:])) for name in names if name.split(".")[0] == "tar2tf_cli"}
    return rooms


@cache
def arrows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        room = room_of(path.relative_to(ROOT).with_suffix("").parts)
        found[room] |= imported(path) - {room}
    return dict(found)


def test_imports_run_downwards_through_few_floors() -> None:
    graph = arrows()
    above: list[str] = []

    @cache
    def floor(room: str) -> int:
        assert room not in above, f"a circle: {' -> '.join([*above, room])}"
        above.append(room)
        height = 1 + max((floor(below) for below in graph.get(room, ())), default=0)
        above.pop()
        return height

    floors = {room: floor(room) for room in graph}
    assert len(floors) > 10
    assert max(floors.values()) <= MOST_FLOORS, sorted(floors.items(), key=lambda item: item[1])


def test_there_are_at_most_sixteen_folders_and_six_files_beside_them() -> None:
    inside = [path for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len([path for path in inside if path.is_dir()]) <= 16
    assert len([path for path in inside if path.is_file()]) <= 6


def test_no_file_and_no_class_is_too_long() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in FILES}
    assert [name for name, text in texts.items() if len(text.splitlines()) > MOST_LINES] == []
    assert [
        f"{name}: {node.name}"
        for name, text in texts.items()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_CLASS
    ] == []


def test_every_folder_says_what_it_is_for() -> None:
    folders = [path for path in sorted(ROOT.rglob("*")) if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) > 10
    assert [path for path in folders if not ast.get_docstring(parsed((path / "__init__.py").read_text()))] == []


def test_the_readme_draws_the_rooms_that_there_are() -> None:
    readme = (ROOT.parent / "README.md").read_text()
    section = readme.partition("## Architecture")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", section))
    missing = [name for name in named if not (ROOT / name).exists() and not (ROOT.parent / name).exists()]
    assert missing == []
    rooms = {f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= named
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", line) for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    height = {room: len(rows) - place for place, row in enumerate(rows) for room in row}
    graph = arrows()
    assert {
        (room, below) for room in height for below in graph[room] & height.keys() if height[below] >= height[room]
    } == set()
