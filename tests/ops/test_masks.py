"""Masks: a warning before their classes are mixed, and the number of their distinct values."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from commands import tar2tf
from images import by_pillow, jpeg, photo, png
from shards import write_tar
from tar2tf_cli.formats.image import distinct_values, is_named_like_mask

CLASSES = np.random.default_rng(0).choice(np.array([0, 1, 5, 20], np.uint8), (30, 40))
MASK = by_pillow(CLASSES, "PNG", "L")
ADVICE = "if {name!r} holds classes, write method=nearest, else method=bilinear"
WARNING = f"warning: {{op}} mixes neighbouring pixels; {ADVICE}"


def warnings(tmp_path: Path, name: str, data: bytes, op: str, *more: str) -> list[str]:
    """What a conversion of four shards says about a mask."""
    folder = tmp_path / "in"
    for number in range(4):
        write_tar(folder / f"{number}.tar", [(f"{number}{n}", {name: data}) for n in range(3)])
    ops = ("--op", f"decode:{name}", "--op", op, "--overwrite", *more)
    done = tar2tf("convert", folder, "-o", tmp_path / "x.record", *ops)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("op", ["resize", "pad"])
@pytest.mark.parametrize(("name", "data"), [("seg.png", MASK), ("png", png(3)), ("mask.png", png(3))])
def test_a_mask_that_would_be_mixed_gets_one_warning(
    name: str, data: bytes, op: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    assert warnings(tmp_path, name, data, f"{op}:{name},8x8", *more) == [WARNING.format(op=op, name=name)]


@pytest.mark.parametrize(
    ("op", "warned"),
    [
        ("rotate:seg.png", 1),
        ("rotate:seg.png,20", 1),
        ("rotate:seg.png,270", 0),
        ("rotate:seg.png,20,nearest", 0),
        ("rotate:seg.png,method=bilinear", 0),
    ],
)
def test_a_mask_that_is_turned_by_another_angle_than_quarters_gets_one_warning(
    op: str, warned: int, tmp_path: Path
) -> None:
    assert warnings(tmp_path, "seg.png", MASK, op) == [WARNING.format(op="rotate", name="seg.png")] * warned


@pytest.mark.parametrize("method", ["nearest", "bilinear", "area"])
def test_a_method_silences_the_warning(method: str, tmp_path: Path) -> None:
    assert not warnings(tmp_path, "seg.png", png(3), f"resize:seg.png,8x8,method={method}")


def test_a_mask_that_would_become_a_jpeg_gets_one_warning(tmp_path: Path) -> None:
    found = warnings(tmp_path, "seg.png", MASK, "encode:seg.png")
    assert found == ["warning: JPEG changes pixels; if 'seg.png' holds classes, write encode:seg.png,png"]
    assert not warnings(tmp_path, "seg.png", MASK, "encode:seg.png,png")
    assert not warnings(tmp_path, "png", MASK, "encode:png,jpeg")


def test_other_images_and_other_ops_get_no_warning(tmp_path: Path) -> None:
    assert not warnings(tmp_path, "png", MASK, "resize:png,8x8")
    assert not warnings(tmp_path, "png", png(3), "crop:png,8x8")


def test_a_glob_that_matches_a_palette_gets_the_warning(tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", [(str(number), {"x.png": png(3)})])
    ops = ("--op", "decode:*png", "--op", "resize:*png,8x8", "-o", tmp_path / "x.record")
    done = tar2tf("convert", tmp_path / "in", *ops)
    assert done.returncode == 0, done.stderr
    assert WARNING.format(op="resize", name="*png") in done.stderr


def test_a_palette_in_the_last_shard_alone_is_noticed(tmp_path: Path) -> None:
    for number in range(4):
        write_tar(tmp_path / "in" / f"{number}.tar", [(str(number), {"png": png(3 if number == 3 else 2)})])
    ops = ("--op", "decode:png,3", "--op", "resize:png,8", "-j", "2", "-o", tmp_path / "x.record")
    assert tar2tf("convert", tmp_path / "in", *ops).stderr.count(WARNING.format(op="resize", name="png")) == 1


@pytest.mark.parametrize(("op", "noted"), [("decode:png,1", 1), ("decode:*png,1", 1), ("decode:png,indices", 0)])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_luminance_of_a_palette_gets_one_note_that_names_the_indices(
    op: str, noted: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    file = io.BytesIO()
    PIL.Image.fromarray(photo(30, 40)).quantize(9).save(file, "PNG")
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", [(f"{number}{n}", {"png": file.getvalue()}) for n in range(3)])
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x.record", "--op", op, *more)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("'png' has a palette, of which decode:png,1 gives the luminance") == noted
    assert done.stderr.count("write decode:png,indices") == noted


@pytest.mark.parametrize("name", ["mask", "seg.png", "x.label.png", "Depth.npy", "left_masks.png", "panoptic.png"])
def test_names_of_masks(name: str) -> None:
    assert is_named_like_mask(name)


@pytest.mark.parametrize("name", ["jpg", "segue.png", "labeled", "png", "masking.jpg", "cls"])
def test_names_of_others(name: str) -> None:
    assert not is_named_like_mask(name)


def test_distinct_values_are_those_of_numpy() -> None:
    for dtype in ("uint8", "uint16", "float32", "int64"):
        for channels in (1, 2, 3, 4, 5):
            pixels = np.random.default_rng(channels).integers(0, 3, (20, 30, channels)).astype(dtype)
            rows = np.unique(pixels.reshape(-1, channels), axis=0).tolist()
            expected = {row[0] if channels == 1 else tuple(row) for row in rows}
            assert distinct_values(pixels) == expected
    assert distinct_values(CLASSES) == {0, 1, 5, 20}


def test_inspect_counts_the_distinct_values_of_masks(tmp_path: Path) -> None:
    other = by_pillow(np.full((5, 5), 7, np.uint8), "PNG", "L")
    file, palette = io.BytesIO(), PIL.Image.fromarray(photo(30, 40)).quantize(9)
    palette.save(file, "PNG")
    colors = len(np.unique(np.array(palette.convert("RGB")).reshape(-1, 3), axis=0))
    entries = {"jpg": jpeg(photo(30, 40)), "png": file.getvalue(), "label": b"3"}
    write_tar(tmp_path / "0.tar", [("0", {**entries, "seg.png": MASK}), ("1", {**entries, "seg.png": other})])
    write_tar(tmp_path / "1.tar", [("2", {**entries, "seg.png": MASK})])
    done = tar2tf("inspect", tmp_path)
    assert "'seg.png' looks like a mask; the 3 examined have 5 distinct values: 0, 1, 5, 7, 20" in done.stderr
    assert f"'png' looks like a mask; the 3 examined have {colors} distinct values: (" in done.stderr
    assert done.stderr.count("looks like a mask") == 2
    document = json.loads(tar2tf("inspect", tmp_path, "--json").stdout)["entries"]
    assert {name: entry.get("distinct") for name, entry in document.items()} == {
        "jpg": None, "label": None, "png": colors, "seg.png": 5,
    }  # fmt: skip


def test_inspect_counts_the_distinct_values_of_decoded_masks(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [("0", {"mask.png": MASK, "jpg": jpeg(photo(9, 9))})])
    func = tmp_path / "own.py"
    func.write_text("def wide(sample):\n    return {**sample, 'seg': sample['mask.png'].astype('int32')}\n")
    ops = ("--op", "decode:mask.png", "--op", "decode:jpg", "--op", f"func:{func}:wide")
    select = ("--select", "image=jpg,mask=mask.png,seg=seg")
    done = tar2tf("convert", tmp_path / "0.tar", "-o", tmp_path / "x.record", *ops, *select)
    assert done.returncode == 0, done.stderr
    said = tar2tf("inspect", tmp_path / "x.record").stderr
    for name in ("mask", "seg"):
        assert f"'{name}' looks like a mask; the 1 examined have 4 distinct values: 0, 1, 5, 20" in said
    assert "'image'" not in said


def test_a_dry_run_shows_what_resizing_does_to_a_mask(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [("0", {"seg.png": MASK})])
    common = ("convert", tmp_path / "0.tar", "-o", tmp_path / "x.record", "--dry-run", "--op", "decode:seg.png")
    lines = tar2tf(*common, "--op", "resize:seg.png,20x20,bilinear").stdout.splitlines()
    looks = [line.split("  ")[-1] for line in lines if line.startswith("  seg.png ") and "distinct" in line]
    assert looks[0] == "uint8 [30, 40, 1], 4 distinct values: 0, 1, 5, 20"
    assert int(looks[1].removeprefix("float32 [20, 20, 1], ").split()[0]) > 20
    kept = tar2tf(*common, "--op", "resize:seg.png,20x20,nearest").stdout
    assert "uint8 [20, 20, 1], 4 distinct values: 0, 1, 5, 20" in kept


# --- EXIF ---


def test_inspect_counts_images_that_exif_says_to_turn(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    images = [jpeg(photo(30, 40)), jpeg(photo(30, 40), exif=exif), by_pillow(photo(9, 9), "PNG", "RGB", exif=exif)]
    write_tar(tmp_path / "0.tar", [(str(number), {"jpg": data}) for number, data in enumerate(images)])
    done = tar2tf("inspect", tmp_path / "0.tar")
    said = "2 of 3 examined images in 'jpg' have an EXIF rotation; --op orient:jpg applies it, decode does not"
    assert said in done.stderr
    assert json.loads(tar2tf("inspect", tmp_path / "0.tar", "--json").stdout)["entries"]["jpg"]["turned"] == 2
    tar2tf("convert", tmp_path / "0.tar", "-o", tmp_path / "x.record")
    assert (
        said.removesuffix("; --op orient:jpg applies it, decode does not")
        in tar2tf("inspect", tmp_path / "x.record").stderr
    )
