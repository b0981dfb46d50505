"""How large the package is, and how much of it one sample passes: `python -m benchmarks house`."""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import tar2tf_cli
from tar2tf_cli import Conversion, Input, Output, convert

ROOT = Path(tar2tf_cli.__file__).parent
FEW, MANY = 100, 1000
MORE = 5  # calls, one for each block of the larger tar; fewer more are those of threads
LEANING = ("What", "Where", "Those", "The same")
OPS = ("decode:png", "resize:png,8x8", "cast:png,uint8")


def house() -> None:
    """Print the measures of the package: lines, files, imports, and the files that a sample passes."""
    files = sorted(ROOT.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in files}
    lines = {path: code_lines(path.read_text(), tree) for path, tree in trees.items()}
    total = sum(len(found) for found in lines.values())
    imports = sum(len(found & lines_of(trees[path], is_import)) for path, found in lines.items())
    print(f"code lines  {total:,} in {len(files)} files (without comments, docstrings and empty lines)")
    print(f"all lines   {sum(path.read_text().count(chr(10)) for path in files):,}")
    print(f"imports     {imports:,} lines with __all__, {imports / total:.1%}")
    rooms = Counter[str]()
    for path, found in lines.items():
        rooms[path.relative_to(ROOT).parts[0]] += len(found)
    for room, count in rooms.most_common():
        print(f"  {count:6,}  {room}")
    print_words(trees)
    for name, ops in (("a plain sample", ()), ("a sample with ops", OPS)):
        passed = sorted(files_passed(ops))
        print(f"{name} passes {len(passed)} files: {', '.join(passed)}")


def print_words(trees: Mapping[Path, ast.Module]) -> None:
    """Print the measures of types and words: signatures, docstrings, questions of the format, attributes."""
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    functions = [node for _, node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    untyped = sum(map(has_any, functions))
    print(f"Any         {untyped} of {len(functions):,} functions have it in their signature")
    leaning = Counter(path.relative_to(ROOT).parts[0] for path, node in nodes if leans(node))
    rooms = ", ".join(f"{room} {count}" for room, count in leaning.most_common(5))
    print(f"docstrings  {sum(leaning.values())} begin with {', '.join(LEANING)} or hold ': the same' ({rooms})")
    asked = Counter(path.relative_to(ROOT).parts[0] for path, node in nodes if asks_format(node))
    rooms = "".join(f", {room} {count}" for room, count in asked.most_common() if room != "formats")
    print(f"is_tar      {asked.total() - asked['formats']} uses outside formats/{rooms}")
    methods = Counter({name: len(found) for name, found in interfaces(trees).items()})
    print(f"interfaces  {', '.join(f'{name} {count}' for name, count in methods.most_common())}")
    classes = Counter({node.name: len(attributes(node)) for _, node in nodes if isinstance(node, ast.ClassDef)})
    print(f"attributes  {', '.join(f'{name} {count}' for name, count in classes.most_common(5))}")


def interfaces(trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    """The methods and properties that each interface of `api/` declares itself."""
    found: dict[str, list[str]] = {}
    for node in [node for path, tree in trees.items() if path.parent == ROOT / "api" for node in tree.body]:
        if isinstance(node, ast.ClassDef) and {"ABC", "Protocol", *found} & {*map(ast.unparse, node.bases)}:
            names = [method.name for method in node.body if isinstance(method, ast.FunctionDef)]
            found[node.name] = [name for name in names if not name.startswith("__")]
    return found


def has_any(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function takes or returns `Any`, also as a part of a type."""
    every = function.args
    arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    types = [argument.annotation for argument in arguments if argument] + [function.returns]
    return any("Any" in re.findall(r"\w+", ast.unparse(annotation)) for annotation in types if annotation)


def leans(node: ast.AST) -> bool:
    """Whether a statement is a docstring that is understood only after the one above it."""
    if not (isinstance(node, ast.Expr) and is_docstring(node)):
        return False
    text = str(ast.literal_eval(node.value)).lstrip()
    return text.startswith(tuple(f"{word} " for word in LEANING)) or ": the same" in text


def asks_format(node: ast.AST) -> bool:
    """Whether an expression asks if a shard is a tar."""
    return (isinstance(node, ast.Attribute) and node.attr == "is_tar") or (
        isinstance(node, ast.Name) and node.id == "is_tar"
    )


def attributes(definition: ast.ClassDef) -> set[str]:
    """Names that the methods of a class assign to `self`."""
    return {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name) and node.value.id == "self"
    }  # fmt: skip


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Numbers of the lines that hold code."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
    return lines - lines_of(tree, is_docstring)


def lines_of(tree: ast.AST, wanted: Callable[[ast.stmt], bool]) -> set[int]:
    """Numbers of the lines of certain statements."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and wanted(node))
    return {number for node in found for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is only a text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_import(node: ast.stmt) -> bool:
    """Whether a statement imports something, or lists what is public."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)
    return isinstance(node, (ast.Import, ast.ImportFrom))


def files_passed(ops: tuple[str, ...]) -> Iterator[str]:
    """The files whose functions are called more often the more samples there are, for each of them or for blocks."""
    few, many = calls(FEW, ops), calls(MANY, ops)
    yield from (name for name, count in many.items() if count >= few[name] + MORE)


def calls(samples: int, ops: tuple[str, ...]) -> Counter[str]:
    """How often functions of each file are called in a conversion in this process."""
    counts = Counter[str]()

    def count(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}{os.sep}"):
            counts[os.path.relpath(path, ROOT)] += 1

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "in.tar")
        write_tar(made, samples)
        conversion = Conversion(Input(made), Output(Path(folder, "out.record")), ops=ops)
        with patch("time.monotonic", return_value=0.0):  # progress is reported by the clock
            sys.setprofile(count)
            try:
                convert(conversion, workers=1)
            finally:
                sys.setprofile(None)
    return counts


def write_tar(path: Path, samples: int) -> None:
    """Write a tar of small PNGs with a class each."""
    import cv2
    import numpy as np

    png = cv2.imencode(".png", np.zeros((9, 9, 3), np.uint8))[1].tobytes()
    with tarfile.open(path, "w") as tar:
        for number in range(samples):
            for entry, data in (("png", png), ("cls", b"7")):
                info = tarfile.TarInfo(f"{number:06}.{entry}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    house()
