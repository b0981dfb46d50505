"""`tar2tf inspect --html`: one self-contained page that shows the dataset, its duplicates and its faults."""

from __future__ import annotations

import re
import shutil
import subprocess
from array import array
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from checked import Ran, a_tar, an_example, flipped, framed, write
from inspected import a_jpeg, a_png
from tar2tf_cli.checking.contents import Contents, ShardContents
from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.checking.page import Picture, ShardPage, find_duplicates, split_of, write_page

OPEN = {"meta", "img", "br", "rect"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects texts and what is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in OPEN:
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in OPEN:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two splits that share an image, some labels, an optional entry, and a name that is HTML."""
    folder = tmp_path / "set"
    for split, first in (("train", 0), ("val", 8)):
        members = []
        for number in range(first, first + 8):
            image = a_png(3, 20 if number in (3, 9) else 21 + number)
            members += [(f"{number:03d}.png", image), (f"{number:03d}.cls", b"<b>cat" if number % 4 else b"dog")]
            members += [(f"{number:03d}.txt", b"words")] * (number % 2)
        write(folder / f"{split}-0.tar", a_tar(members))
    return folder


def page_of(ran: Ran, path: Path, code: int = 0) -> Page:
    assert ran.code == code, ran.err
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_shows_the_dataset(folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = tmp_path / "report.html"
    page = page_of(run_inspect(folder, "--html", path), path)
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.loaded)
    assert len(page.loaded) == 16
    for words in ("16 samples", "2 classes", "1 train, 1 val", "png 16", "None: every shard is whole", "<b>cat 12"):
        assert words in page.text, words
    assert "Found in more than one split: 1." in page.text
    assert "train-0.tar #3 · val-0.tar #1" in page.text
    assert re.search(r"txt 8 8 text", page.text)
    assert path.read_text().count("<svg") > 3


def test_a_name_that_is_not_unicode_is_no_obstacle(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    shard = write(tmp_path / "caf\udce9.tar", a_tar([("a.txt", b"words")]))
    assert "1 sample" in page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html").text


def test_faults_are_on_the_page_and_do_not_prevent_it(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    records = [framed(an_example(**{"image/encoded": a_jpeg(), "label": n})) for n in range(6)]
    write(tmp_path / "set" / "x-1.record", b"".join(records))
    write(tmp_path / "set" / "x-2.record", flipped(b"".join(records), len(records[0]) + 2))
    path = tmp_path / "report.html"
    page = page_of(run_inspect(tmp_path / "set", "--html", path), path, code=3)
    assert "1 of 2 files are not whole" in page.text
    assert "length_crc" in page.text
    assert "6 classes" in page.text
    assert all(f" {label} 2 " in page.text for label in (0, 2, 3, 4, 5))  # and 1 is damaged in one of the shards


@pytest.mark.parametrize("count", [100, 40_000])
def test_the_page_stays_small_for_many_shards(tmp_path: Path, count: int) -> None:
    names = [f"{'train' if number % 9 else 'val'}/{'long-' * 3}{number:06d}.tar" for number in range(count)]
    contents = Contents([ShardContents(name, name, "tar", 5, 1000 + number) for number, name in enumerate(names)])
    pages = [ShardPage(name, Counter({9: 5}), Counter({f"class {name}": 5}), array("Q", [1, 2])) for name in names]
    pages[0].pictures = [Picture("k" * 300, "l", a_jpeg(600, 800))] * 60
    faults = [Fault("data_crc", "the CRC does not match " * 9, 3, 99)] * 5
    report = Report([FileReport(name, "tar", faults=faults) for name in names])
    write_page(str(tmp_path / "x.html"), contents, pages, report)
    assert (tmp_path / "x.html").stat().st_size < 2_000_000
    Page((tmp_path / "x.html").read_text())


@pytest.mark.parametrize(
    ("name", "split"),
    [("train-000.tar", "train"), ("a/validation/x", "val"), ("TEST_01", "test"), ("constraint-1", None), ("x-1", None)],
)
def test_the_split_is_in_the_name(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_duplicates_are_counted_across_shards() -> None:
    pages = [
        ShardPage("train-0", digests=array("Q", [5, 1, 5])),
        ShardPage("x", digests=array("Q", [])),
        ShardPage("val-0", digests=array("Q", [2, 1])),
    ]
    found = find_duplicates(pages)
    assert (found.extra, found.leaked) == (2, 1)
    assert found.groups == [[("train-0", 1), ("val-0", 1)], [("train-0", 0), ("train-0", 2)]]
    assert find_duplicates([]) == (0, 0, [])


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium to lay out the page with")
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(
    folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran], width: int
) -> None:
    path = tmp_path / "report.html"
    assert run_inspect(folder, "--html", path).code == 0
    script = "<script>document.title = document.documentElement.scrollWidth - innerWidth</script>"
    path.write_text(path.read_text().replace("</body>", f"{script}</body>"))
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom")
    done = subprocess.run(
        ["chromium", *options, f"file://{path}"], capture_output=True, text=True, timeout=60, check=True
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title
    assert int(title[1]) <= 0
