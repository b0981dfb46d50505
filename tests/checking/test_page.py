"""`tar2tf inspect --html`: one self-contained page that shows the dataset, its duplicates and its faults."""

from __future__ import annotations

import base64
import io
import re
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import convert
from images import by_pillow, jpeg, photo
from inspect_runs import a_jpeg, a_png
from pages import Page, a_wav, computed, needs_browser, page_of
from shards import write_tar
from tar2tf_cli.checking.contents import Contents, ShardContents
from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.checking.page import find_duplicates, write_page
from tar2tf_cli.checking.page_samples import Caption, Picture, ShardPage
from tar2tf_cli.inputs.numbering import split_of
from verify_runs import Ran, a_tar, an_example, flipped, framed, write


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


def test_the_page_shows_the_dataset(folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = tmp_path / "report.html"
    page = page_of(run_inspect(folder, "--html", path), path)
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.loaded)
    assert len(page.loaded) == 16
    for words in ("16 samples", "2 classes", "1 train, 1 val", "png 16", "None found.", "<b>cat 12"):
        assert words in page.text, words
    assert "Found in more than one split: 1." in page.text
    assert re.search(r"train-0\.tar \w+ · val-0\.tar \w+", page.text)
    assert re.search(r"txt 8 8 text", page.text)
    assert path.read_text().count("<svg") > 3


def masks_and_photos(folder: Path) -> Path:
    """Thirty samples of a mask, which comes first, a photo and an empty depth map; two are equal in all but the key."""
    members = []
    for number in range(30):
        like = 3 if number == 9 else number
        mask = np.zeros((40, 60), np.uint8)
        mask[like % 20 :] = 5
        entries = {
            "a_mask.png": by_pillow(mask, "PNG", "L"),
            "jpg": jpeg(photo(40 + like % 9, 60)),
            "z_depth.png": by_pillow(np.zeros((40, 60), np.uint8), "PNG", "L"),
            "id": b"%d" % like,
        }
        members += [(f"{number:03d}.{name}", data) for name, data in entries.items()]
    return write(folder / "mixed.tar", a_tar(members))


def test_tiles_show_the_images_of_most_variety_and_name_their_entry(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = tmp_path / "x.html"
    page = page_of(run_inspect(masks_and_photos(tmp_path), "--html", path), path)
    alts = [attrs["alt"] or "" for attrs in page.all("img") if attrs.get("class") != "masks"]
    assert len(alts) == 30
    assert all(alt.startswith("jpg of 0") for alt in alts)
    assert "jpg, drawn at random from the shards. Images are also in a_mask.png, z_depth.png." in page.text


def test_files_that_are_not_shards_take_no_images_from_the_page(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    members = [(f"{number:03d}.jpg", jpeg(photo(40 + number, 60))) for number in range(40)]
    write(tmp_path / "set" / "a.tar", a_tar(members))
    for name in ("README", "LICENSE", "_train-manifest.json"):
        write(tmp_path / "set" / name, b"words")
    page = page_of(run_inspect(tmp_path / "set", "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert len(page.loaded) == 40


def test_duplicates_are_samples_that_are_equal_in_all_but_the_key(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = tmp_path / "x.html"
    page = page_of(run_inspect(masks_and_photos(tmp_path), "--html", path), path)
    assert "1 duplicate " in page.text
    assert "Samples that repeat another in everything but the key: 1." in page.text
    assert re.search(r"mixed\.tar \w+ · mixed\.tar \w+", page.text)


@pytest.mark.parametrize(
    "options",
    [("--op", "decode:jpg"), ("--op", "decode:jpg", "--op", "convert:jpg,float32"), ("--preset", "imagenet-tensor")],
)
def test_images_that_were_decoded_to_arrays_are_shown(
    tmp_path: Path, run_inspect: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    image = photo(50, 50)
    tar = write(tmp_path / "a.tar", a_tar([("a.jpg", by_pillow(image, "PNG", "RGB")), ("a.cls", b"1")]))
    convert(tar, "-o", tmp_path / "out" / "x.record", *options)
    path = tmp_path / "x.html"
    page = page_of(run_inspect(tmp_path / "out" / "x.record", "--html", path), path)
    (source,) = page.loaded
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
    assert shown.shape == (50, 50, 3)
    assert np.abs(shown.astype(int) - image).mean() < 8


def test_the_page_can_be_read_without_a_mouse_or_eyes(
    folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = tmp_path / "x.html"
    page = page_of(run_inspect(folder, "--html", path), path)
    heads = [attrs.get("scope") for tag, attrs in page.tags if tag == "th"]
    assert set(heads) == {"col"}
    boxes = [attrs for _, attrs in page.tags if attrs.get("class") == "wide"]
    assert boxes
    assert all(attrs.get("tabindex") == "0" and attrs.get("aria-label") for attrs in boxes)
    assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")
    css = path.read_text(encoding="utf-8")
    cards, bars = re.findall(r"--card: (#\w+);", css), re.findall(r"--fill: (#\w+);", css)
    assert len(cards) == len(bars) == 2
    assert all(contrast(card, bar) >= 3 for card, bar in zip(cards, bars, strict=True))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2 defines it (w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_sizes_of_samples_have_an_axis_from_the_smallest_to_the_largest(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    folder, path = tmp_path / "set", tmp_path / "report.html"
    write(folder / "x.tar", a_tar([("0.bin", bytes(100)), ("1.bin", bytes(1000)), ("2.bin", bytes(1000))]))
    page = page_of(run_inspect(folder, "--html", path), path)
    assert "91 bytes 1.02 KB" in page.text
    assert "<title>724 bytes to 1.02 KB: 2</title>" in path.read_text()


def test_one_of_a_kind_is_no_plural(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    shard = write(tmp_path / "a.tar", a_tar([("a.cls", b"1")]))
    page = page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    for words in ("1 tar shard ", "1 sample ", "1 class ", "1 entry ", "0 duplicates", "0 faults"):
        assert words in page.text, words


def test_the_first_bytes_of_an_image_are_not_shown_as_an_example(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    entries = [{"depth.png": b"", "txt": b"shown"}, {"depth.png": a_png(), "txt": b"shown"}]
    tar = write_tar(tmp_path / "x.tar", [(f"{number}", entry) for number, entry in enumerate(entries)])
    assert run_inspect(tar, "--html", tmp_path / "x.html").code == 0
    text = (tmp_path / "x.html").read_text()
    assert ("shown" in text, "89 50 4e" in text) == (True, False)


def test_numbers_are_shown_by_value(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    records = framed(*[an_example(label=number, x=[0.5 * number] * 3) for number in range(5)])
    path = tmp_path / "x.html"
    page = page_of(run_inspect(write(tmp_path / "x.record", records), "--html", path), path)
    assert "label 5 int64 0 2 4 0" in page.text
    assert "x 5 float, 3 values 0 1 2" in page.text


def test_a_name_that_is_not_unicode_is_no_obstacle(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    shard = write(tmp_path / "caf\udce9.tar", a_tar([("a.txt", b"words")]))
    assert "1 sample" in page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html").text


def test_faults_are_on_the_page_and_do_not_prevent_it(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    records = [framed(an_example(**{"image/encoded": a_jpeg(), "label": n})) for n in range(6)]
    write(tmp_path / "set" / "x-1.record", b"".join(records))
    write(tmp_path / "set" / "x-2.record", flipped(b"".join(records), len(records[0]) + 2))
    path = tmp_path / "report.html"
    page = page_of(run_inspect(tmp_path / "set", "--html", path), path, code=3)
    assert "1 of 2 files has faults" in page.text
    assert "length_crc" in page.text
    assert "6 classes" in page.text
    assert all(f" {label} 2 " in page.text for label in (0, 2, 3, 4, 5))  # and 1 is damaged in one of the shards


def test_a_page_with_faults_that_only_verify_finds_is_no_success(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    records = framed(*[an_example(label=number) for number in range(6)])
    shard = write(tmp_path / "x.record", records + framed(b"no example"))
    assert run_inspect(shard).code == 0
    ran = run_inspect(shard, "--html", tmp_path / "x.html")
    assert "not_an_example" in page_of(ran, tmp_path / "x.html", code=3).text
    assert f"1 of 1 file has faults; {tmp_path / 'x.html'} shows the faults" in ran.err


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 0, 1, 1], "2 classes have the same number of samples."),
        ([0, 0, 0, 1], "The largest of 2 classes has 3 times as many samples as the smallest."),
        ([7, 7], "There is a single class."),
    ],
)
def test_the_balance_of_classes_is_given_in_words(
    tmp_path: Path, run_inspect: Callable[..., Ran], labels: list[int], words: str
) -> None:
    shard = write(tmp_path / "x.record", framed(*[an_example(label=label) for label in labels]))
    assert words in page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html").text


@pytest.mark.parametrize("count", [100, 40_000])
def test_the_page_stays_small_for_many_shards(tmp_path: Path, count: int) -> None:
    names = [f"{'train' if number % 9 else 'val'}/{'long-' * 3}{number:06d}.tar" for number in range(count)]
    contents = Contents([ShardContents(name, name, "tar", 5, 1000 + number) for number, name in enumerate(names)])
    pages = [ShardPage(name, Counter({9: 5}), Counter({f"class {name}": 5}), array("Q", [1, 2])) for name in names]
    for page in pages:
        page.keys = ["a" * 300, "b" * 300]
    pages[0].pictures = {
        "jpg": [Picture(Caption("k" * 299 + str(number), "l"), a_jpeg(600, 800)) for number in range(60)]
    }
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
        ShardPage("train-0", digests=array("Q", [5, 1, 5]), keys=["a", "b", "c"]),
        ShardPage("x", digests=array("Q", [])),
        ShardPage("val-0", digests=array("Q", [2, 1]), keys=["d", "e"]),
    ]
    found = find_duplicates(pages)
    assert (found.extra, found.leaked) == (2, 1)
    assert [group.samples for group in found.groups] == [
        [("train-0", "b"), ("val-0", "e")],
        [("train-0", "a"), ("train-0", "c")],
    ]
    many = ShardPage("x", digests=array("Q", [7] * 9), keys=[str(number) for number in range(9)])
    assert [(len(group.samples), group.more) for group in find_duplicates([many]).groups] == [(6, 3)]
    assert find_duplicates([]) == (0, 0, [])


@needs_browser
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(
    folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran], width: int
) -> None:
    path = tmp_path / "report.html"
    assert run_inspect(folder, "--html", path).code == 0
    assert int(computed(path, "document.documentElement.scrollWidth - innerWidth", width=width)) <= 0


def test_an_image_that_is_shown_and_cannot_be_decoded_is_a_fault_of_the_page(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    tar = write(tmp_path / "x.tar", a_tar([("0.jpg", b"\xff\xd8\xff\xe0" + bytes(100)), ("1.jpg", a_jpeg())]))
    ran = run_inspect(tar, "--html", tmp_path / "x.html")
    page = page_of(ran, tmp_path / "x.html", code=3)
    assert "1 fault in values that were decoded for the page" in ran.err
    assert "1 fault " in page.text
    assert "x.tar undecodable 0: 'jpg' cannot be decoded" in page.text
    assert "None found." not in page.text


def test_the_page_says_what_it_does_not_prove(folder: Path, tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    text = page_of(run_inspect(folder, "--html", tmp_path / "x.html"), tmp_path / "x.html").text
    assert "only those drawn for this page were decoded (16 images), so others may be damaged" in text
    assert "tar2tf verify --decode decodes them all" in text
    assert "Nothing here tells whether labels, captions, boxes and masks are right." in text


def test_the_tile_counts_the_faults_that_are_listed(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    image = a_jpeg(20, 30)
    boxes = {f"image/object/bbox/{side}": [0.5, 0.2] for side in ("xmin", "ymin")}
    records = [
        an_example(
            **{"image/encoded": image, **boxes, "image/object/bbox/xmax": [0.1, 0.9], "image/object/bbox/ymax": x}
        )
        for x in ([0.9, 0.9], [0.4, 0.9])
    ]
    broken = an_example(**{"image/encoded": image[:20] + bytes(20)})
    whole = b"".join(map(framed, [*records, broken]))
    shard = write(tmp_path / "x.record", whole + flipped(framed(records[0]), 30))
    page = page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html", code=3)
    rows = [text for tag, text in page.texts if tag == "td" and text in ("box", "undecodable", "data_crc")]
    assert sorted(rows) == ["box", "box", "data_crc", "undecodable"]
    assert "4 faults" in page.text
    assert "1 of 1 file has faults, and 3 faults in values that were decoded for the page" in page.text


@pytest.mark.parametrize(
    ("kinds", "words"), [((8000, 16000, 44100), "audio/wav 3 rates"), ((8000,), "audio/wav 8000 Hz mono")]
)
def test_kinds_that_vary_are_grouped(
    tmp_path: Path, run_inspect: Callable[..., Ran], kinds: tuple[int, ...], words: str
) -> None:
    tar = write_tar(tmp_path / "x.tar", [(str(rate), {"wav": a_wav(rate)}) for rate in kinds])
    page = page_of(run_inspect(tar, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert words in page.text
