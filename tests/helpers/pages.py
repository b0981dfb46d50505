"""Pages of `inspect --html`: parsed, and laid out by a browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import wave
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from verify_runs import Ran

needs_browser = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium to lay out the page with")

OPEN = {"meta", "img", "br", "rect", "circle", "input"}


class Page(HTMLParser):
    """A page whose tags are balanced: its elements, its texts and all that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in OPEN:
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]

    def all(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a name."""
        return [attrs for tag, attrs in self.tags if tag == name]

    def handle_endtag(self, tag: str) -> None:
        if tag not in OPEN:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open:
            self.texts.append((self.open[-1], data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(ran: Ran, path: Path, code: int = 0) -> Page:
    assert ran.code == code, ran.err
    return Page(path.read_text(encoding="utf-8"))


def browse(path: Path, *options: str, width: int = 1000, height: int = 900) -> str:
    """Open a page in a headless browser; return its elements after its scripts have run."""
    window = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}")
    command = ["chromium", *window, *(options or ["--dump-dom"]), f"file://{path}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def computed(path: Path, expression: str, *, width: int = 1000) -> str:
    """Return the value of an expression of JavaScript in a page."""
    script = f"<script>onload = () => {{ document.title = {expression} }}</script>"
    path.write_text(path.read_text("utf-8").replace("</body>", f"{script}</body>"), "utf-8")
    title = re.search(r"<title>(.*?)</title>", browse(path, width=width))
    assert title
    return title[1]


def a_wav(rate: int = 8000, seconds: float = 0.1, channels: int = 1) -> bytes:
    """A tone."""
    tone = np.sin(np.arange(int(rate * seconds)) / 9) * 9000
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((channels, 2, rate, 0, "NONE", ""))
        sound.writeframes(np.repeat(tone, channels).astype("<i2").tobytes())
    return file.getvalue()
