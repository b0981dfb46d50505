"""Boxes, points and masks on the page of `inspect --html` lie where an independent computation says."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import convert
from images import by_pillow, jpeg, photo
from pages import Page, browse, computed, needs_browser, page_of
from shards import write_tar
from verify_runs import Ran, an_example, framed, write

Edges = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""

WIDTH, HEIGHT = 90, 60
TRUTH: list[Edges] = [(10, 5, 40, 25), (0, 0, 90, 60), (30.5, 20.25, 62, 59)]


def as_written(form: str, edges: Edges, relative: bool) -> list[float]:
    left, top, right, bottom = edges
    wide, high = (WIDTH, HEIGHT) if relative else (1, 1)
    x, y = left / wide, top / high
    width, height = (right - left) / wide, (bottom - top) / high
    return {
        "xywh": [x, y, width, height],
        "xyxy": [x, y, right / wide, bottom / high],
        "yxyx": [y, x, bottom / high, right / wide],
        "cxcywh": [x + width / 2, y + height / 2, width, height],
    }[form]


def boxes_on(page: Page) -> list[Edges]:
    """The edges of the boxes in pixels of the image."""
    drawn = [attrs for attrs in page.all("rect") if "x" in attrs and "height" in attrs and is_box(attrs)]
    numbers = [[float(attrs[name] or "") for name in ("x", "y", "width", "height")] for attrs in drawn]
    return [(x, y, x + width, y + height) for x, y, width, height in numbers]


def is_box(attrs: dict[str, str | None]) -> bool:
    return attrs["width"] != "9"  # of a column of a chart


def view_boxes(page: Page) -> list[str | None]:
    return [attrs.get("viewbox") for attrs in page.all("svg") if attrs.get("class") == "over"]


def close(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> bool:
    return len(found) == len(wanted) and bool(np.allclose(found, wanted, atol=1e-3))


@pytest.mark.parametrize("key", ["category_name", "category", "class_name", "class", "label", "name", "text"])
def test_the_class_of_a_box_is_found_under_any_usual_name(
    tmp_path: Path, run_inspect: Callable[..., Ran], key: str
) -> None:
    about = {"objects": [{"bbox": as_written("xywh", TRUTH[0], False), "other": "no", key: "cat"}]}
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "json": json.dumps(about).encode()}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path, "--boxes", "json:objects.*.bbox"), path)
    assert [text for tag, text in page.texts if tag == "text"] == ["cat"]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xywh", "xyxy", "cxcywh", "yxyx"])
def test_declared_boxes_are_drawn_where_they_lie(
    tmp_path: Path, run_inspect: Callable[..., Ran], form: str, relative: bool
) -> None:
    about = {"objects": [{"bbox": as_written(form, edges, relative), "name": "<i>cat"} for edges in TRUTH]}
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "json": json.dumps(about).encode()}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    declared = f"json:objects.*.bbox,format={form}{',relative' if relative else ''}"
    page = page_of(run_inspect(tar, "--html", path, "--boxes", declared), path)
    assert close(boxes_on(page), TRUTH)
    assert view_boxes(page) == [f"0 0 {WIDTH} {HEIGHT}"]
    assert [text for tag, text in page.texts if tag == "text"] == ["<i>cat"] * 3


def test_boxes_in_arrays_and_lists_are_drawn_with_the_classes_next_to_them(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    file = io.BytesIO()
    np.save(file, np.array(TRUTH[:2]))
    about = {"b": [as_written("xywh", edges, False) for edges in TRUTH[:2]], "names": ["one", "two"]}
    sample = {"png": by_pillow(photo(HEIGHT, WIDTH), "PNG", "RGB"), "npy": file.getvalue()}
    tar = write_tar(tmp_path / "x.tar", [("a", {**sample, "json": json.dumps(about).encode()})])
    options = ("--boxes", "npy,format=xyxy", "--boxes", "json:b,beside=json:names")
    path = tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path, *options), path)
    assert close(boxes_on(page), [*TRUTH[:2], *TRUTH[:2]])
    assert [text for tag, text in page.texts if tag == "text"] == ["one", "two"]


def od_example(image: bytes, boxes: Sequence[Edges], **features: object) -> bytes:
    columns = zip(("xmin", "ymin", "xmax", "ymax"), zip(*boxes, strict=True), (WIDTH, HEIGHT) * 2, strict=True)
    sides = {f"image/object/bbox/{side}": [value / of for value in values] for side, values, of in columns}
    return an_example(**{"image/encoded": image, **sides, **features})


def test_boxes_of_the_object_detection_api_are_found_by_their_names(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    image = jpeg(photo(HEIGHT, WIDTH))
    named = od_example(image, TRUTH, **{"image/object/class/text": [b"cat", b"dog", b"caf\xc3\xa9"]})
    numbered = od_example(image, TRUTH[:1], **{"image/object/class/label": [7]})
    path = tmp_path / "x.html"
    shard = write(tmp_path / "x.tfrecord", framed(named, numbered))
    page = page_of(run_inspect(shard, "--html", path), path)
    assert close(boxes_on(page), [*TRUTH, TRUTH[0]])
    assert [text for tag, text in page.texts if tag == "text"] == ["cat", "dog", "café", "7"]


def test_boxes_of_a_conversion_are_drawn_on_the_image_that_it_made(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    about = {"annotations": [{"bbox": as_written("xywh", TRUTH[0], False), "category_id": 1}]}
    sample = {"png": by_pillow(photo(HEIGHT, WIDTH), "PNG", "RGB"), "json": json.dumps(about).encode()}
    tar = write_tar(tmp_path / "x.tar", [("a", sample)])
    ops = ("--op", "decode:png", "--op", "flip:png", "--op", "encode:png,png")
    convert(tar, "-o", tmp_path / "out" / "x.record", "--preset", "detection", *ops)
    path = tmp_path / "x.html"
    page = page_of(run_inspect(tmp_path / "out", "--html", path), path)
    left, top, right, bottom = TRUTH[0]
    assert close(boxes_on(page), [(WIDTH - right, top, WIDTH - left, bottom)])


def test_the_manifest_and_the_preset_declare_boxes(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    about = {"annotations": [{"bbox": as_written("xywh", TRUTH[0], False), "category_id": 1, "category_name": "cat"}]}
    sample = {"png": by_pillow(photo(HEIGHT, WIDTH), "PNG", "RGB"), "json": json.dumps(about).encode()}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    assert boxes_on(page_of(run_inspect(tar, "--html", path), path)) == []
    assert close(boxes_on(page_of(run_inspect(tar, "--html", path, "--preset", "detection"), path)), TRUTH[:1])
    ops = ("--op", "decode:png", "--op", "encode:png,png", "--boxes", "json:annotations.*.bbox")
    convert(tar, "-o", tmp_path / "out" / "x.tar", *ops)
    manifest = tmp_path / "out" / "_x-manifest.json"
    assert close(boxes_on(page_of(run_inspect(manifest, "--html", path), path)), TRUTH[:1])


@pytest.mark.parametrize(
    ("form", "values", "wanted"),
    [
        ("xy", [[10, 20], [0, 0]], [(10.5, 20.5), (0.5, 0.5)]),  # the number of a pixel, whose centre is drawn
        ("yx", [[20, 10]], [(10.5, 20.5)]),
        ("xyv", [[10, 20, 2, 0, 0, 0, 30, 40, 1]], [(10.5, 20.5), (30.5, 40.5)]),  # v = 0: not in the image
        ("xy,relative", [[0.5, 0.25]], [(45, 15)]),
    ],
)
def test_points_are_drawn_in_the_centre_of_their_pixel(
    tmp_path: Path, run_inspect: Callable[..., Ran], form: str, values: list[object], wanted: list[tuple[float, float]]
) -> None:
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "json": json.dumps({"points": values}).encode()}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path, "--points", f"json:points.*,format={form}"), path)
    drawn = [(float(attrs["cx"] or ""), float(attrs["cy"] or "")) for attrs in page.all("circle")]
    assert close(drawn, wanted)


@pytest.mark.parametrize(("size", "drawn"), [((1, 900), (1, 320)), ((900, 1), (320, 1)), ((320, 1), (320, 1))])
def test_an_image_that_is_a_line_stays_one_pixel_wide(
    size: tuple[int, int], drawn: tuple[int, int], tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    sample = {"jpg": jpeg(photo(*size)), "json": b'{"b": [[0, 0, 1, 1]]}'}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    (source,) = page_of(run_inspect(tar, "--html", path, "--boxes", "json:b"), path).loaded
    assert Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).size == drawn[::-1]


def palette_mask() -> tuple[np.ndarray, bytes]:
    """The indices of a mask, and a PNG of them with a palette of other colours."""
    indices = np.zeros((HEIGHT, WIDTH), np.uint8)
    indices[10:40, 20:50], indices[30:55, 40:80], indices[0, :] = 1, 15, 255
    picture = Image.fromarray(indices, "P")
    picture.putpalette(np.random.default_rng(1).integers(0, 256, 768).astype(np.uint8).tobytes())
    file = io.BytesIO()
    picture.save(file, "PNG")
    return indices, file.getvalue()


def mask_on(page: Page) -> np.ndarray:
    (source,) = [attrs["src"] or "" for attrs in page.all("img") if attrs.get("class") == "masks"]
    assert source.startswith("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def colour_of(number: int) -> tuple[int, ...]:
    """The colour of a class as the development kit of PASCAL VOC computes it: three bits of the number at a time."""
    red = green = blue = 0
    for shift in range(7, -1, -1):
        red, green, blue = (
            red | (number & 1) << shift,
            green | (number >> 1 & 1) << shift,
            blue | (number >> 2 & 1) << shift,
        )
        number >>= 3
    return red, green, blue, 255


@pytest.mark.parametrize("options", [(), ("--mask", "seg.png")])
def test_a_palette_mask_lies_over_its_image(
    tmp_path: Path, run_inspect: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    indices, mask = palette_mask()
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "seg.png": mask}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    pixels = mask_on(page_of(run_inspect(tar, "--html", path, *options), path))
    assert pixels.shape == (HEIGHT, WIDTH, 4)
    assert (pixels[indices == 0, 3] == 0).all()
    assert (pixels[indices == 1] == colour_of(1)).all()
    assert (pixels[indices == 15] == colour_of(15)).all()
    assert (pixels[indices == 255] == 255).all()


def test_a_large_mask_is_scaled_down_with_its_image_and_keeps_its_classes(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    levels = np.zeros((600, 900), np.uint8)
    levels[150:310, 450:] = 7
    sample = {"jpg": jpeg(photo(600, 900)), "seg.png": by_pillow(levels, "PNG", "L")}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path), path)
    pixels = mask_on(page)
    assert pixels.shape == (213, 320, 4)
    assert {tuple(colour) for colour in pixels.reshape(-1, 4).tolist()} == {(0, 0, 0, 0), colour_of(7)}
    rows, columns = np.nonzero(pixels[..., 3])
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (53, 109, 160, 319)  # of 150, 309, 450 and 899
    assert path.stat().st_size < 60_000


def test_masks_of_the_preset_and_of_decoded_arrays_are_found(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    indices, mask = palette_mask()
    tar = write_tar(tmp_path / "x.tar", [("a", {"jpg": jpeg(photo(HEIGHT, WIDTH)), "seg.png": mask})])
    for options in (("--preset", "segmentation"), ("--op", "decode:jpg", "--op", "decode:seg.png,indices")):
        convert(tar, "-o", tmp_path / "out" / "x.record", "--overwrite", *options)
        path = tmp_path / "x.html"
        pixels = mask_on(page_of(run_inspect(tmp_path / "out", "--html", path), path))
        assert ((pixels[..., 3] > 0) == (indices > 0)).all(), options


def test_an_image_of_another_size_or_of_many_levels_is_no_mask(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    gray = photo(HEIGHT, WIDTH, 1)[..., 0]
    small = np.ones((HEIGHT // 2, WIDTH // 2), np.uint8)
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "depth.png": by_pillow(gray, "PNG", "L")}
    tar = write_tar(tmp_path / "x.tar", [("a", {**sample, "seg.png": by_pillow(small, "PNG", "L")})])
    path = tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path), path)
    assert [attrs for attrs in page.all("img") if attrs.get("class") == "masks"] == []


def test_only_some_boxes_are_drawn_and_the_others_counted(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    image = jpeg(photo(HEIGHT, WIDTH))
    shard = write(tmp_path / "x.tfrecord", framed(od_example(image, [TRUTH[0]] * 250)))
    page = page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert len(boxes_on(page)) == 100
    assert "and 150 more marks" in page.text


def test_declarations_that_do_not_fit_are_faults_of_the_page(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    sample = {"jpg": jpeg(photo(HEIGHT, WIDTH)), "json": b'{"b": [[1, 2, 3]]}'}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path, "--boxes", "json:b"), path, code=3)
    assert "a: box 0 is [1, 2, 3], not a list of 4 numbers" in page.text


@pytest.mark.parametrize(
    ("option", "values", "faults"),
    [
        (
            "--points",
            [b"[[1]]", b"[[3, 4]]", None, b"[]", b"1", b""],
            "x.tar box a: [1] is not a point of 2 numbers, or a list of points "
            "x.tar box c: entry 'json' has nothing at 'p' "
            "x.tar box e: 1 is not a point of 2 numbers, or a list of points Images",
        ),
        (
            "--boxes",
            [b"[[1, 2, 3]]", b"[[3, 4, 5, 6]]", None, b"[]", b"1", b""],
            "x.tar box a: box 0 is [1, 2, 3], not a list of 4 numbers "
            "x.tar box c: entry 'json' has nothing at 'p' "
            "x.tar box e: box 0 is 1, not a list of 4 numbers Images",
        ),
    ],
)
def test_marks_that_do_not_fit_are_faults_of_their_samples_and_a_missing_entry_is_none(
    tmp_path: Path, run_inspect: Callable[..., Ran], option: str, values: list[bytes | None], faults: str
) -> None:
    image = jpeg(photo(HEIGHT, WIDTH))
    samples: list[tuple[str, dict[str, bytes]]] = []
    for key, value in zip("abcdef", values, strict=True):
        about = {} if value == b"" else {"json": b"{}" if value is None else b'{"p": %s}' % value}
        samples.append((key, {"jpg": image, **about}))
    path = tmp_path / "x.html"
    ran = run_inspect(write_tar(tmp_path / "x.tar", samples), "--html", path, option, "json:p")
    page = page_of(ran, path, code=3)
    assert page.text.partition("file kind what ")[2].startswith(faults)
    assert [(attrs["cx"], attrs["cy"]) for attrs in page.all("circle")] == [("3.5", "4.5")] * (option == "--points")
    assert boxes_on(page) == [(3, 4, 8, 10)] * (option == "--boxes")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "--boxes",
            "jsn:a.*.b",
            "--boxes names the entry 'jsn', which no sample of this input has; did you mean 'json'?",
        ),
        ("--points", "npy", "--points names the entry 'npy', which no sample of this input has"),
        ("--mask", "seg.png", "--mask names the entry 'seg.png', which no sample of this input has"),
        ("--preset", "detction", "there is no preset 'detction'; did you mean 'detection'?"),
        ("--boxes", "json:a,format=xx", "format must be 'xywh', 'xyxy', 'cxcywh' or 'yxyx', not 'xx'"),
    ],
)
def test_a_mistyped_declaration_is_wrong_usage(
    tmp_path: Path, run_inspect: Callable[..., Ran], option: str, value: str, words: str
) -> None:
    tar = write_tar(tmp_path / "x.tar", [("a", {"jpg": jpeg(photo(HEIGHT, WIDTH)), "json": b"{}"})])
    ran = run_inspect(tar, "--html", tmp_path / "x.html", option, value)
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert not (tmp_path / "x.html").exists()


def test_what_is_drawn_needs_a_page(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(write_tar(tmp_path / "x.tar", [("a", {"txt": b"1"})]), "--boxes", "json:b")
    assert (ran.code, "--boxes is for the page of --html: add --html FILE" in ran.err) == (2, True)


# --- As a browser shows it ---


@pytest.fixture
def white_on_black(tmp_path: Path, run_inspect: Callable[..., Ran]) -> Path:
    """A page of a white rectangle on black, with a box around it and a mask on it; and the edges of the rectangle."""
    pixels = np.zeros((200, 300, 3), np.uint8)
    pixels[50:150, 100:220] = 255
    mask = by_pillow((pixels[..., 0] > 0).astype(np.uint8), "PNG", "L")
    about = json.dumps({"b": [[100, 50, 120, 100]]}).encode()
    sample = {"png": by_pillow(pixels, "PNG", "RGB"), "seg.png": mask, "json": about}
    tar, path = write_tar(tmp_path / "x.tar", [("a", sample)]), tmp_path / "x.html"
    assert run_inspect(tar, "--html", path, "--boxes", "json:b").code == 0
    return path


@needs_browser
def test_a_browser_draws_a_box_on_the_edges_of_what_it_encloses(white_on_black: Path) -> None:
    rules = "main, .view { max-width: none !important } .sheet.large { grid-template-columns: 600px }"
    text = (
        white_on_black.read_text("utf-8")
        .replace("</head>", f"<style>{rules}</style></head>")
        .replace('id="show-masks" checked', 'id="show-masks"')
    )
    white_on_black.write_text(text, "utf-8")
    shot = white_on_black.with_suffix(".png")
    browse(white_on_black, f"--screenshot={shot}", height=1200)
    picture = np.asarray(Image.open(shot).convert("RGB")).astype(int)
    stroke = np.abs(picture - (0x39, 0xE7, 0x5F)).sum(axis=2) < 30
    rows, columns = np.nonzero(stroke)
    top, bottom, left, right = rows.min() + 1, rows.max(), columns.min() + 1, columns.max()  # of a stroke of two pixels
    assert (right - left, bottom - top) == (pytest.approx(240, abs=1), pytest.approx(200, abs=1))
    assert (picture[top + 3 : bottom - 3, left + 3 : right - 3] > 240).mean() > 0.99
    outside = picture[top - 20 : bottom + 20, left - 20 : right + 20]
    assert (outside < 16).all(axis=2).sum() > 0.9 * (280 * 240 - 244 * 204)


@needs_browser
@pytest.mark.parametrize("layer", ["masks", "boxes"])
def test_a_check_box_hides_a_layer(white_on_black: Path, layer: str) -> None:
    shown = f"getComputedStyle(document.querySelector('.sheet .{layer}')).display"
    click = f"document.getElementById('show-{layer}').click()"
    assert computed(white_on_black, f"{shown} + ' ' + ({click}, {shown})").split()[-1] == "none"
    assert f'id="show-{layer}" checked' in white_on_black.read_text("utf-8")
