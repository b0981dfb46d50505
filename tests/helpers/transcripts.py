"""Play transcripts: files of commands with all that they print, as a terminal would show it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

from commands import tar2tf
from tar2tf_cli import __version__

SHOWN: dict[str, Callable[[str], str]] = {
    ".html": lambda text: " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)).split()),
    ".json": lambda text: _in_lines(json.loads(text)),
    ".sarif": lambda text: _in_lines(json.loads(text)),
    ".xml": lambda text: re.sub(r'(timestamp|hostname)="[^"]*"', r'\1=""', text),
}
"""How `cat` shows files: words of pages, JSON with an item a line, and no times."""


def sections(path: Path) -> dict[str, str]:
    """The sections of a transcript by their titles, each of which begins with `== `."""
    parts = re.split(r"^== (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: text.strip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def renew(path: Path, folder_of: Callable[[str], Path]) -> None:
    """Write a transcript again, whose commands are those that it has, given the folder of a section by its title."""
    parts = [f"== {title}\n{played(text, folder_of(title))}\n" for title, text in sections(path).items()]
    path.write_bytes("\n".join(parts).encode())


def played(section: str, folder: Path) -> str:
    """What the commands of a section print in a folder, in the form of the section."""
    commands = re.findall(r"^\$ (.*)$", section, flags=re.MULTILINE)
    return "\n\n".join("\n".join([f"$ {command}", *_printed(shlex.split(command), folder)]) for command in commands)


def _printed(words: list[str], folder: Path) -> Iterator[str]:
    """Lines on standard output, lines on standard error after `! `, and an exit code other than 0.

    Left out is what depends on the machine: how long a conversion will take, and whether the kernel is in use.
    """
    if words[0] == "cat":
        path = folder / words[1]
        text = path.read_text(encoding="utf-8").replace(__version__, "VERSION")
        yield from SHOWN.get(path.suffix, str)(text).splitlines()
        return
    done = tar2tf(*words[1:], cwd=folder, env={"TAR2TF_NUM_WORKERS": "1"})
    out = _in_lines(json.loads(done.stdout)) if "--json" in words and done.stdout else done.stdout
    yield from (line for line in out.splitlines() if not line.startswith("time: "))
    yield from (f"! {line}" for line in done.stderr.splitlines() if not line.startswith("note: kernel in C"))
    if done.returncode:
        yield f"exit {done.returncode}"


def _in_lines(document: Any) -> str:
    """JSON with one line for each item of the document, and of its lists of objects."""
    if isinstance(document, list):
        return "\n".join(map(_compact, document))
    lines = []
    for name, value in document.items():
        several = value if isinstance(value, list) and value and isinstance(value[0], dict) else None
        parts = [f"  {_compact(item)}" for item in several] if several else []
        lines += [f"{name}:", *parts] if parts else [f"{name}: {_compact(value)}"]
    return "\n".join(lines)


def _compact(value: object) -> str:
    return re.sub(r'"seconds": [0-9.]+', '"seconds": ...', json.dumps(value, ensure_ascii=False))
