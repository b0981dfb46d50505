"""What a conversion, its dry run and `inspect` of its manifest say of features of several shapes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np

from commands import convert, tar2tf
from images import by_pillow, jpeg, photo
from make_bytes import npy
from shards import write_tar
from tar2tf_cli import load_dataset, open_records

RAGGED = "batch them with load_dataset(..., batch=N, ragged=True) or pad=True"


def gray_and_rgb(folder: Path, *, sizes: bool = True) -> Path:
    images = [photo(20 + 4 * sizes * (number % 3), 30) for number in range(6)]
    encoded = [jpeg(image[:, :, 0], "L") if number % 2 else jpeg(image) for number, image in enumerate(images)]
    write_tar(
        folder / "in" / "a.tar", [(str(number), {"jpg": data, "cls": b"1"}) for number, data in enumerate(encoded)]
    )
    return folder / "in"


def everywhere(source: Path, out: Path, *options: str) -> list[str]:
    """The notes of the dry run, the conversion, its next run, and `inspect` of the manifest, which are the same."""
    dry = json.loads(convert(source, "-o", out, *options, "--dry-run", "--json").stdout)["estimate"]["shapes"]
    assert all(
        f"among the first samples: {note}" in convert(source, "-o", out, *options, "--dry-run").stdout for note in dry
    )
    done = convert(source, "-o", out, *options)
    manifest = out.with_name(f"_{out.stem}-manifest.json")
    shown = tar2tf("inspect", manifest)
    assert all(
        note in text
        for note in dry
        for text in (done.stderr, shown.stderr, convert(source, "-o", out, *options).stderr)
    )
    assert json.loads(tar2tf("inspect", manifest, "--json").stdout).get("shapes", []) == dry
    return list(dry)


def test_gray_and_rgb_images_of_several_sizes_are_named_with_ops_that_make_them_equal(tmp_path: Path) -> None:
    source = gray_and_rgb(tmp_path)
    (note,) = everywhere(source, tmp_path / "a.record", "--op", "decode:jpg")
    assert note == (
        "images of several sizes and numbers of channels: jpg; make them equal with --op decode:jpg,3 and "
        f"--op resize:jpg,224x224 or pad:jpg,224x224, or {RAGGED}"
    )
    advised = shlex.split(" ".join(re.findall(r"--op \S+", note)))
    assert everywhere(source, tmp_path / "b.record", *advised) == []
    batch = next(iter(load_dataset(tmp_path / "_b-manifest.json", batch=6)))
    assert batch["jpg"].shape == (6, 224, 224, 3)


def test_images_of_one_size_that_differ_in_channels_need_only_channels(tmp_path: Path) -> None:
    source = gray_and_rgb(tmp_path, sizes=False)
    (note,) = everywhere(source, tmp_path / "a.record", "--op", "decode:jpg", "--select", "image=jpg")
    assert note == f"images of several numbers of channels: image; make them equal with --op decode:jpg,3, or {RAGGED}"


def test_masks_are_advised_to_be_resized_to_the_nearest_value(tmp_path: Path) -> None:
    masks = [by_pillow(np.full((20 + number, 30), 7 * number, np.uint8), "PNG", "L") for number in range(3)]
    write_tar(tmp_path / "in" / "a.tar", [(str(number), {"mask.png": mask}) for number, mask in enumerate(masks)])
    (note,) = everywhere(tmp_path / "in", tmp_path / "a.record", "--op", "decode:mask.png")
    assert "--op resize:mask.png,224x224,method=nearest or pad:mask.png,224x224,method=nearest, or" in note
    for op in ("resize:mask.png,224x224,method=nearest", "pad:mask.png,224x224,method=nearest"):
        name = op.partition(":")[0]
        assert everywhere(tmp_path / "in", tmp_path / f"{name}.record", "--op", "decode:mask.png", "--op", op) == []


def test_a_preset_has_an_option_for_it(tmp_path: Path) -> None:
    options = ("--preset", "imagenet-tensor")
    (note,) = everywhere(gray_and_rgb(tmp_path), tmp_path / "a.record", *options)
    assert note.startswith("images of several sizes: image/encoded; make them equal with --image-size 224")
    assert everywhere(tmp_path / "in", tmp_path / "b.record", *options, "--image-size", "224") == []


def test_arrays_and_lists_are_named_together(tmp_path: Path) -> None:
    entries = [
        {"a.npy": npy(np.ones((2 + number, 3))), "b.npy": npy(np.ones((1, number, 2))), "ids": b"1 2"[: 1 + 2 * number]}
        for number in range(2)
    ]
    write_tar(tmp_path / "in" / "a.tar", [(str(number), entry) for number, entry in enumerate(entries)])
    options = ("--op", "decode:a.npy", "--op", "decode:b.npy", "--type", "ids=int64_list")
    assert everywhere(tmp_path / "in", tmp_path / "a.record", *options) == [
        f"arrays of several shapes: a.npy, b.npy; {RAGGED}",
        f"lists of several lengths: ids; {RAGGED}",
    ]
    for how in ("ragged", "pad"):
        assert len(list(load_dataset(tmp_path / "_a-manifest.json", batch=2, **{how: True}))) == 1


def test_features_of_one_shape_give_no_note(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "in" / "a.tar",
        [(str(number), {"npy": npy(np.ones((2, 3))), "txt": b"a" * number}) for number in range(4)],
    )
    assert everywhere(tmp_path / "in", tmp_path / "a.record", "--op", "decode:npy") == []


def test_a_list_that_is_empty_is_said_to_have_no_shape(tmp_path: Path) -> None:
    """JSON does not tell the rank of an empty list, and one sample does not follow from another."""
    values = ["[]", "[[1,2,3,4],[5,6,7,8]]", "[[1,2,3,4]]"]
    write_tar(tmp_path / "a.tar", [(str(n), {"json": text.encode()}) for n, text in enumerate(values)])
    out, options = tmp_path / "o.record", ("--select", "b=json", "--type", "b=int64_list")
    said = convert(tmp_path / "a.tar", "-o", out, *options).stderr
    told = "load_dataset, open_records and the code of inspect --code give them one"
    assert f"b: 1 empty list without a shape; {told}\n" in said
    assert [sample["b"].shape for sample in open_records(tmp_path / "_o-manifest.json")] == [(0, 4), (2, 4), (1, 4)]
