"""Puts files of one's own beside those of the package: what lies in a folder under the name of one of its folders."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

ADDED = Path(__file__).parent / "added"
"""An op, a preset, a kind of input, a store and a check, each in one file."""

COMMAND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import added_files
added_files.add()
from tar2tf_cli.cli import main
main(sys.argv[1:])
"""
"""The command, with these files."""


def add(folder: Path = ADDED) -> None:
    """Put the files beside those of the package, for this process and those that it forks."""
    for path in {file.parent for file in folder.rglob("*.py")}:
        package = import_module(".".join(["tar2tf_cli", *path.relative_to(folder).parts]))
        package.__path__.append(str(path))
