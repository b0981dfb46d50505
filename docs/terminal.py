"""Draws docs/terminal.svg: runs commands on the sample shards in a pseudo-terminal and draws what they print.

The same stands as text below the picture in README.md and docs/index.md, for screen readers and small screens.

python docs/terminal.py
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "terminal.svg"
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
COMMANDS = (
    "tar2tf inspect shards",
    "tar2tf convert shards -o 'out/train-<>.record' --max-shard-size 100kB --type cls=int64",
    "tar2tf verify out/_train-manifest.json",
    "head -c 50000 shards/train-1.tar > cut.tar  # as after a download that stopped",
    "tar2tf convert cut.tar -o cut.record",
)
COLUMNS, LINES = 104, 40
COLUMN, LINE, MARGIN, BAR = 8.4, 20, 18, 34
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}
_TEXT = re.compile(r"<details><summary>The terminal as text</summary>.*?</details>", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])")


def printed(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a terminal receives while the command runs."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        received = bytearray()
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # Linux reports the end of a pseudo-terminal as an error
                break
            if not data:
                break
            received += data
    os.close(ours)
    return received.decode()


def screen(text: str) -> list[list[tuple[str, str]]]:
    """The lines that stay on the screen, each a list of characters with their colours."""
    lines: list[list[tuple[str, str]]] = [[]]
    row = column = 0
    colour = ""
    for part in re.split(r"(\x1b\[[\d;?]*[A-Za-z]|[\r\n])", text):
        escape = _ESCAPE.fullmatch(part)
        if escape:
            if escape[2] == "m":
                colour = next((COLOURS[code] for code in escape[1].split(";") if code in COLOURS), "")
            elif escape[2] == "K":
                del lines[row][column:]
            elif escape[2] == "A":
                row = max(0, row - int(escape[1] or 1))
        elif part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
        else:
            lines[row] += [(" ", "")] * (column - len(lines[row]))
            lines[row][column : column + len(part)] = [(character, colour) for character in part]
            column += len(part)
    while lines and not "".join(character for character, _ in lines[-1]).strip():
        lines.pop()
    return [line[at : at + COLUMNS] for line in lines for at in range(0, max(1, len(line)), COLUMNS)]


def session() -> list[list[tuple[str, str]]]:
    """The screen after all commands, run one after the other in one folder."""
    lines: list[list[tuple[str, str]]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "shards").mkdir()
        for path in (ROOT / "tests" / "data").glob("photos-*"):
            shutil.copy(path, folder / "shards" / path.name.replace("photos", "train"))
        command = folder / "bin" / "tar2tf"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tar2tf_cli "$@"\n')
        command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAR2TF_", "NO_COLOR"))}
        environment = {
            **kept,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "TERM": "xterm-256color",
            "LINES": str(LINES),
            "COLUMNS": str(COLUMNS),
        }
        for text in COMMANDS:
            shown = screen(f"\x1b[32m$\x1b[0m {text}") + screen(printed(text, folder, environment))
            lines += [*([[]] if lines else []), *shown]
    return lines


def runs(line: list[tuple[str, str]]) -> Iterator[tuple[int, str, str]]:
    """The words between wide gaps, each with its column and colour; columns stay in place in any font."""
    text = "".join(character for character, _ in line)
    for word in re.finditer(r"\S+(?: \S+)*", text):
        start = word.start()
        while start < word.end():
            colour = line[start][1]
            end = next((at for at in range(start, word.end()) if line[at][1] != colour), word.end())
            yield start + (text[start] == " "), text[start:end].lstrip(), colour
            start = end


def draw(lines: list[list[tuple[str, str]]]) -> str:
    """The lines as a terminal's window in SVG; it has its own background, so that it is readable on any page."""
    width = 2 * MARGIN + COLUMNS * COLUMN
    height = BAR + MARGIN + len(lines) * LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="14" fill="#e6edf3">',
        "<title>tar2tf in a terminal</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="9" fill="#0d1117" stroke="#6e7681"/>',
        *(f'<circle cx="{20 + 20 * place}" cy="18" r="6" fill="#484f58"/>' for place in range(3)),
    ]
    for row, line in enumerate(lines):
        y = BAR + LINE * (row + 0.75)
        for start, text, colour in runs(line):
            fill = f' fill="{colour}"' if colour else ""
            parts.append(
                f'<text x="{MARGIN + start * COLUMN:.4g}" y="{y:g}" textLength="{len(text) * COLUMN:.4g}"{fill}>'
                f"{html.escape(text, quote=False)}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def with_text(page: str, lines: list[list[tuple[str, str]]]) -> str:
    """A page with the lines as text, in place of those that it has."""
    text = "\n".join("".join(character for character, _ in line).rstrip() for line in lines)
    told = f"<details><summary>The terminal as text</summary>\n\n```text\n{text.strip()}\n```\n\n</details>"
    return _TEXT.sub(lambda before: told, page)


if __name__ == "__main__":
    shown = session()
    PICTURE.write_text(draw(shown), encoding="utf-8")
    for path in PAGES:
        path.write_text(with_text(path.read_text(encoding="utf-8"), shown), encoding="utf-8")
