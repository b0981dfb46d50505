"""Mutants of the package, drawn by a seed: the operators are mutmut's, and one that drops a call."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m
from mutmut.mutation.mutators import mutation_operators

from tests.mutation.coverage import PACKAGE, ROOT

Operator = Callable[[cst.CSTNode], Iterable[cst.CSTNode]]


def drop_call(node: cst.Expr) -> Iterator[cst.Expr]:
    """Replace a statement that is a call by one that does nothing."""
    if m.matches(node.value, m.Call()):
        yield cst.Expr(cst.Ellipsis())


OPERATORS: list[tuple[type, Operator]] = [*mutation_operators, (cst.Expr, drop_call)]

_UNTESTED_CALLS = ("cast", "TypeVar", "NewType", "ParamSpec", "NamedTuple", "len", "isinstance")

LEFT_OUT: dict[type[cst.CSTNode], m.BaseMatcherNode] = {
    cst.AnnAssign: m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias"))),
    cst.Annotation: m.Annotation(),
    cst.Decorator: m.Decorator(),
    cst.FunctionDef: m.FunctionDef(name=m.Name("__repr__")),
    cst.ImportFrom: m.ImportFrom(),
    cst.Call: m.Call(func=m.OneOf(*map(m.Name, _UNTESTED_CALLS))),
    cst.If: m.If(test=m.Name("TYPE_CHECKING") | m.Attribute(attr=m.Name("TYPE_CHECKING"))),
    cst.Assign: m.Assign(targets=[m.AssignTarget(target=m.Name("__all__") | m.Name("TYPE_CHECKING"))]),
    cst.SimpleString: m.SimpleString(value=m.MatchIfTrue(lambda text: " " in text)),
}
"""What has no behaviour, what mypy holds, and text with spaces."""


class Mutant(NamedTuple):
    """A changed module: its path in the package, the operator, the line, that line before and after, the new source."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    source: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0].removesuffix(".py")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"


class Module:
    """The mutants of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._source = (ROOT / PACKAGE / file).read_text()

    @cached_property
    def _found(self) -> tuple[cst.Module, dict[str, list[tuple[cst.CSTNode, cst.CSTNode]]]]:
        module, finder = cst.parse_module(self._source), _Finder()
        module.visit(finder)
        return module, finder.found

    def draw(self, chance: random.Random) -> Mutant | None:
        """Draw a kind of change, and one change of that kind; None where it is none, or no Python."""
        module, found = self._found
        if not found:
            return None
        operator = chance.choice(sorted(found))
        old, new = chance.choice(found[operator])
        source = module.deep_replace(old, new).code
        try:
            if ast.dump(ast.parse(source)) == ast.dump(ast.parse(self._source)):
                return None
        except SyntaxError:
            return None
        lines, changed = self._source.splitlines(), source.splitlines()
        at = next(number for number, pair in enumerate(zip(lines, changed, strict=False)) if pair[0] != pair[1])
        return Mutant(self._file, operator, at + 1, lines[at].strip(), changed[at].strip(), source)


class _Finder(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[tuple[cst.CSTNode, cst.CSTNode]]] = defaultdict(list)

    def on_visit(self, node: cst.CSTNode) -> bool:
        matcher = LEFT_OUT.get(type(node))
        if matcher and m.matches(node, matcher):
            return False
        for kind, operator in OPERATORS:
            for new in operator(node) if isinstance(node, kind) else ():
                self.found[operator.__name__].append((node, new))
        return True


def draw(seed: int, count: int, rooms: list[str]) -> list[Mutant]:
    """Draw mutants, at least one of each room where there are as many, and more of rooms that have more lines."""
    chance = random.Random(seed)
    files: dict[str, dict[str, int]] = defaultdict(dict)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        file = str(path.relative_to(ROOT / PACKAGE))
        room = file.partition("/")[0].removesuffix(".py")
        if room in rooms if rooms else room != "testing":  # whose changes make a suite of tests weaker
            files[room][file] = _statements(path)
    lines = {room: sum(sizes.values()) for room, sizes in files.items()}
    turns = [room for room in sorted(lines) if lines[room]][:count]
    turns += chance.choices([*lines], [*lines.values()], k=count - len(turns))
    module = cache(Module)
    drawn: dict[tuple[str, str], Mutant] = {}
    for room in turns:
        before = len(drawn)
        while len(drawn) == before:
            (file,) = chance.choices([*files[room]], [*files[room].values()])
            if mutant := module(file).draw(chance):
                drawn.setdefault((file, mutant.source), mutant)
    return [*drawn.values()]


def _statements(path: Path) -> int:
    """Count the statements in functions, which decide how likely a file is to be drawn."""
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return sum(isinstance(node, ast.stmt) for function in functions for node in ast.walk(function))
