"""The rooms of the package: imports run downwards only, in rooms and files alike."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import tar2tf_cli
from benchmarks.house import attributes, interfaces

ROOT = Path(tar2tf_cli.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MOST_FLOORS = 14
MOST_METHODS = 8
GROUND = {"api", "errors", "events", "plugins", "structs"}
"""The rooms of the lowest floor, which import nothing but one another."""


parsed = cache(ast.parse)
"""The tree of a text, which is parsed once."""


def room_of(parts: tuple[str, ...]) -> str:
    """The folder of the package that a module lies in, or the module itself where it lies beside the folders."""
    return parts[0] if parts else "__init__"


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def imported_names(node: ast.AST) -> Iterator[str]:
    """The full names in an import statement, or in a call of `import_module`."""
    match node:
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.Call(ast.Name("import_module"), [ast.Constant(str(name))]):
            yield name


@cache
def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, at its top, inside functions and for annotations alike."""
    names = (name for node in ast.walk(parsed(path.read_text())) for name in imported_names(node))
    found = (next((module for module in (name, name.rpartition(".")[0]) if module in MODULES), "") for name in names)
    return {*found} - {"", module_of(path)}


@cache
def arrows() -> dict[str, set[str]]:
    """The rooms that each room imports from."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        room = room_of(path.relative_to(ROOT).with_suffix("").parts)
        found[room] |= {room_of(tuple(module.split(".")[1:])) for module in imported(path)} - {room}
    above = {room: found[room] - GROUND for room in GROUND}
    assert not any(above.values()), above
    return {**found, **above}


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """The floor of each room or file of a graph: one above the highest of what it imports."""
    above: list[str] = []

    @cache
    def floor(name: str) -> int:
        circle = [*above[above.index(name) :], name] if name in above else []
        assert not circle, f"these import each other in a circle: {' -> '.join(circle)}"
        above.append(name)
        height = 1 + max((floor(below) for below in sorted(graph.get(name, ()))), default=0)
        above.pop()
        return height

    return {name: floor(name) for name in graph}


def test_imports_run_downwards_through_few_floors() -> None:
    rooms = floors(arrows())
    assert len(rooms) > 10
    assert max(rooms.values()) <= MOST_FLOORS, sorted(rooms.items(), key=lambda item: item[1])


def test_no_files_import_each_other_in_a_circle() -> None:
    """An import inside a function or for annotations closes one, too: what both files need belongs below both."""
    files = floors({module: imported(path) for module, path in MODULES.items()})
    assert len(files) > 100


def test_a_circle_of_files_is_found_and_named() -> None:
    with pytest.raises(AssertionError, match="in a circle: a -> b -> a"):
        floors({"c": {"a"}, "a": {"b"}, "b": {"a"}})


def test_no_class_sets_more_than_twelve_attributes() -> None:
    nodes = [node for path in FILES for node in ast.walk(parsed(path.read_text()))]
    counts = {node.name: len(attributes(node)) for node in nodes if isinstance(node, ast.ClassDef)}
    assert max(counts.values()) > 6
    assert {name: count for name, count in counts.items() if count > 12} == {}


def test_no_interface_has_more_than_eight_methods_of_its_own() -> None:
    """Properties count; facts that never change are attributes, and what few parts have is an interface of its own."""
    found = interfaces({path: parsed(path.read_text()) for path in FILES})
    assert {"Source", "Store", "ShardFormat", "Op", "Backend", "Engine", "BulkStore", "SampleSource"} <= found.keys()
    assert {name: methods for name, methods in found.items() if len(methods) > MOST_METHODS} == {}


def test_every_folder_says_what_it_is_for() -> None:
    folders = [path for path in sorted(ROOT.rglob("*")) if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) > 10
    assert [path for path in folders if not ast.get_docstring(parsed((path / "__init__.py").read_text()))] == []


def test_the_architecture_draws_the_rooms_that_there_are() -> None:
    page = (ROOT.parent / "CONTRIBUTING.md").read_text()
    section = page.partition("## The map")[2].partition("\n## What")[0]
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
