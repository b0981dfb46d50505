"""Blocks of statements in the functions of a module, under names that stay when lines above them come or go."""

from __future__ import annotations

import ast
from collections import Counter
from typing import NamedTuple


class Block(NamedTuple):
    """The body of a function, or of a statement in it: `if`, `else`, `for`, `except` and so on."""

    name: str
    body: list[ast.stmt]

    def holds(self, line: int) -> bool:
        return self.body[0].lineno <= line <= (self.body[-1].end_lineno or 0)


def blocks_of(tree: ast.Module) -> list[Block]:
    """List the blocks of a module's functions, each after the one around it."""
    found: list[Block] = []
    counts: Counter[str] = Counter()

    def visit(node: ast.AST, scope: str, in_function: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope, in_function = f"{scope}.{node.name}".lstrip("."), not isinstance(node, ast.ClassDef)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if in_function and isinstance(statements, list) and statements:
                found.append(Block(f"{scope}:{counts[scope]}", statements))
                counts[scope] += 1
        for child in ast.iter_child_nodes(node):
            visit(child, scope, in_function)

    visit(tree, "", in_function=False)
    return found


def block_at(source: str, line: int) -> str | None:
    """Name the innermost block that a line lies in; None outside of functions."""
    around = [block.name for block in blocks_of(ast.parse(source)) if block.holds(line)]
    return around[-1] if around else None
