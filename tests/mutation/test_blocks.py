"""Blocks of statements, which the map of tests is about."""

from __future__ import annotations

import ast
import textwrap

from tests.mutation.blocks import block_at, blocks_of

SOURCE = textwrap.dedent(
    """
    LIMIT = 3

    class Reader:
        size = 0

        def read(self, data):
            if data:
                return [each for each in data]
            else:
                self.size += 1
            return None
    """
)


def name_at(text: str, source: str = SOURCE) -> str | None:
    return block_at(source, source[: source.index(text)].count("\n") + 1)


def test_a_line_is_in_the_innermost_block_around_it() -> None:
    assert name_at("if data") == name_at("return None") == "Reader.read:0"
    assert {name_at("return ["), name_at("self.size")} == {"Reader.read:1", "Reader.read:2"}


def test_a_line_outside_of_functions_is_in_no_block() -> None:
    assert name_at("LIMIT") is name_at("size = 0") is None


def test_blocks_keep_their_names_when_lines_above_them_come() -> None:
    longer = "def other():\n    pass\n\n" + SOURCE
    assert [block.name for block in blocks_of(ast.parse(longer))][1:] == [
        block.name for block in blocks_of(ast.parse(SOURCE))
    ]
