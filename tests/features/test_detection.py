"""The presets for boxes and masks: what the TF Object Detection API and DeepLab parse."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from commands import tar2tf
from shards import records, write_tar
from tar2tf_cli import Conversion, Input, Output, convert, load_dataset
from tar2tf_cli.api.op import OpContext
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.presets.detection import ANNOTATION_ENTRIES, detection
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list

# tensorflow/models, research/object_detection/data_decoders/tf_example_decoder.py
DECODER = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
    "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/key/sha256": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/source_id": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=1),
    "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=1),
    "image/object/bbox/xmin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/xmax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymax": tf.io.VarLenFeature(tf.float32),
    "image/object/class/label": tf.io.VarLenFeature(tf.int64),
    "image/object/class/text": tf.io.VarLenFeature(tf.string),
    "image/object/area": tf.io.VarLenFeature(tf.float32),
    "image/object/is_crowd": tf.io.VarLenFeature(tf.int64),
}
# tensorflow/models, research/deeplab/datasets/data_generator.py
DEEPLAB = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/filename": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
    "image/height": tf.io.FixedLenFeature((), tf.int64, default_value=0),
    "image/width": tf.io.FixedLenFeature((), tf.int64, default_value=0),
    "image/channels": tf.io.FixedLenFeature((), tf.int64, default_value=0),
    "image/segmentation/class/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/segmentation/class/format": tf.io.FixedLenFeature((), tf.string, default_value="png"),
}


def encoded(format: str = "JPEG", size: tuple[int, int] = (64, 32), mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    PIL.Image.new(mode, size, 3).save(file, format)
    return file.getvalue()


JPEG = encoded()
CAT = {"bbox": [8, 4, 16.5, 8], "category_id": 17, "iscrowd": 1, "area": 99.5, "image_id": 42, "id": 1}
DOG = {"bbox": [0, 0, 64, 32], "category_id": 18, "image_id": 42}
NAMES = [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}]


def made(folder: Path, about: Any, **options: Any) -> Path:
    """The one shard of a sample with this JSON."""
    write_tar(folder / "in" / "a.tar", [("n/0007", {"jpg": JPEG, "json": json.dumps(about).encode()})])
    output = Output(folder / "out" / "all.record")
    convert(Conversion(Input(folder / "in"), output, preset="detection", **options), workers=1, overwrite=True)
    return folder / "out" / "all.record"


def parsed(path: Path, description: dict[str, Any]) -> dict[str, Any]:
    (record,) = records(path)
    assert set(tf.train.Example.FromString(record).features.feature) == set(description)
    found = tf.io.parse_single_example(record, description)
    dense = {
        name: tf.sparse.to_dense(item) if isinstance(item, tf.SparseTensor) else item for name, item in found.items()
    }
    return {name: item.numpy().tolist() if item.shape.rank else item.numpy() for name, item in dense.items()}


@pytest.mark.parametrize("image", [{}, {"image_id": 42}])
def test_annotations_of_coco_are_what_the_object_detection_api_parses(image: Any, tmp_path: Path) -> None:
    about = {"annotations": [CAT, DOG], "categories": NAMES, **image}
    found = parsed(made(tmp_path, about), DECODER)
    assert found == {
        "image/encoded": JPEG,
        "image/format": b"jpeg",
        "image/filename": b"0007.jpg",
        "image/key/sha256": hashlib.sha256(JPEG).hexdigest().encode(),
        "image/source_id": b"42",
        "image/height": 32,
        "image/width": 64,
        "image/object/bbox/xmin": [0.125, 0.0],
        "image/object/bbox/xmax": [24.5 / 64, 1.0],
        "image/object/bbox/ymin": [0.125, 0.0],
        "image/object/bbox/ymax": [0.375, 1.0],
        "image/object/class/label": [17, 18],
        "image/object/class/text": [b"cat", b"dog"],
        "image/object/area": [99.5, 2048.0],
        "image/object/is_crowd": [1, 0],
    }


def test_a_list_of_annotations_needs_no_object_around_it(tmp_path: Path) -> None:
    found = parsed(made(tmp_path, [{**DOG, "category_name": "dog"}]), DECODER)
    assert (found["image/object/class/text"], found["image/source_id"]) == ([b"dog"], b"42")
    assert found["image/object/class/label"] == [18]


def number_of(text: str) -> int:
    """Return the first 53 bits of the SHA-256 of a text."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) >> 203


@pytest.mark.parametrize(
    ("image_id", "number"),
    [(42, 42), ("000000000139", 139), ("a.jpg", number_of("a.jpg")), ("1e3", number_of("1e3")), ("٣", number_of("٣"))],
)
def test_the_id_of_an_image_is_a_number_for_the_parsers_of_tf_models(
    image_id: object, number: int, tmp_path: Path
) -> None:
    found = parsed(made(tmp_path, {"annotations": [], "image_id": image_id}), DECODER)
    assert tf.strings.to_number(found["image/source_id"], tf.int64).numpy() == number


def test_an_image_without_objects_has_empty_lists(tmp_path: Path) -> None:
    path = made(tmp_path, {"annotations": []})
    found = parsed(path, DECODER)
    assert all(value == [] for name, value in found.items() if "object" in name)
    assert tf.strings.to_number(found["image/source_id"], tf.int64).numpy() == number_of("n/0007")
    (item,) = load_dataset(tmp_path / "out" / "_all-manifest.json")
    assert item["image/object/bbox/xmin"].shape == (0,)

    select = "image=jpg,boxes=json:annotations.*.bbox,label=json:annotations.*.name"
    path = made(tmp_path, {"annotations": []}, select=select, labels={"label": {"cat": 0}})
    assert all(value == [] for name, value in parsed(path, DECODER).items() if "object" in name)


def test_parts_of_any_json_can_be_selected_and_numbered(tmp_path: Path) -> None:
    about = {"objects": [{"box": [0, 0, 32, 16], "kind": "dog"}, {"box": [0, 0, 1, 2], "kind": "cat"}]}
    select = "image=jpg,boxes=json:objects.*.box,label=json:objects.*.kind,text=json:objects.*.kind"
    found = parsed(made(tmp_path, about, select=select, labels="label=auto"), DECODER)
    assert found["image/object/class/label"] == [2, 1]
    assert found["image/object/class/text"] == [b"dog", b"cat"]
    assert found["image/object/bbox/xmax"] == [0.5, 1 / 64]
    assert (found["image/object/area"], found["image/object/is_crowd"]) == ([512.0, 2.0], [0, 0])
    assert found["image/filename"] == b"0007"


def test_boxes_may_touch_the_edge_as_tools_round(tmp_path: Path) -> None:
    found = parsed(made(tmp_path, [{**DOG, "bbox": [-0.4, 0, 64.9, 32.2]}]), DECODER)
    sides = {side: found[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")}
    assert sides == {"xmin": [0.0], "ymin": [0.0], "xmax": [1.0], "ymax": [1.0]}


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"shapes": []}, "'annotations'"),
        ([1], "'annotations'"),
        ([{"bbox": [0, 0, 1, 1]}], "annotation 0 has no 'category_id', only bbox"),
        ([CAT, {"category_id": 1}], "annotation 1 has no 'bbox'"),
        ([{**CAT, "bbox": [0, 0, 1]}], "box 0 is"),
        ([{**CAT, "bbox": {"x": 1}}], "box 0 is"),
        ([{**CAT, "bbox": [0, 0, "1", 1]}], "'1' is not a number"),
        ([CAT, {**CAT, "bbox": [60, 0, 10, 1]}], "box 1, .* is not inside the image, 64 pixels wide and 32 high"),
        ([{**CAT, "bbox": [5, 5, -1, 1]}], "has no area"),
        ([{**CAT, "bbox": [5, 5, 0, 1]}], "has no area"),
        ([{**CAT, "bbox": [5, 5, float("nan"), 1]}], "not finite"),
        ([{**CAT, "bbox": None}], "annotation 0 has null as 'bbox'"),
        ([{**CAT, "category_id": 0}], "has the class 0, but classes are numbered from 1"),
        (
            {"annotations": [{**CAT, "category_id": 9}], "categories": [{"id": 1, "name": "cat"}]},
            "has the class 9, which is not among the categories",
        ),
        (
            {"annotations": [CAT, {**DOG, "category_id": 99}], "categories": NAMES[:1]},
            "has the class 99, which is not among the categories",
        ),
        ([{**CAT, "category_id": "cat"}], "'cat' is not a whole number"),
        ([{**CAT, "name": "cat"}, DOG], "only some"),
        ([{**CAT, "category_id": float("inf")}], "inf is not a whole number"),
        ([{**CAT, "category_id": 2**70}], "more than 64 bits"),
        ([{**CAT, "category_id": 10**400}], "more than 64 bits"),
        ([{**CAT, "area": 10**400}], "too large for a float"),
        ([{**CAT, "bbox": [10**400, 0, 1, 1]}], "too large for a float"),
        ({"annotations": [{**CAT, "category_id": [17]}], "categories": NAMES}, r"\[17\] is not a whole number"),
        ([{**CAT, "name": "\ud800"}], "cannot be written as UTF-8"),
        ([{**CAT, "image_id": "\ud800"}], "cannot be written as UTF-8"),
    ],
)
def test_annotations_that_cannot_be_boxes_are_faulty(about: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=words) as caught:
        made(tmp_path, about)
    assert caught.value.key == "n/0007"


BOX, PARTS = (
    [8, 4, 16, 8],
    "name the parts: --select image=ENTRY,boxes=ENTRY:PATH.*.bbox,label=ENTRY:PATH.*.category_id",
)
CORRECT = "correct it, or pass --invalid-boxes drop or keep"


@pytest.mark.parametrize(
    ("selected", "says"),
    [
        ({"label": [1]}, f"has 2 boxes, but 1 values of 'label'; {PARTS}"),
        ({"is_crowd": [0, 0, 1]}, f"has 2 boxes, but 3 values of 'is_crowd'; {PARTS}"),
        ({"area": []}, f"has 2 boxes, but 0 values of 'area'; {PARTS}"),
        ({"boxes": 5}, f"boxes and their values must be lists; {PARTS}"),
        ({"text": "cat"}, f"boxes and their values must be lists; {PARTS}"),
        ({"boxes": [BOX, [1, 2, 3]]}, "box 1 is [1, 2, 3], not [x, y, width, height]"),
        ({"boxes": [BOX, "1234"]}, "box 1 is '1234', not [x, y, width, height]"),
        ({"boxes": [BOX, [True, 0, 1, 1]]}, "True is not a number"),
        (
            {"label": [1, "cat"]},
            "'cat' is not a whole number; number classes with --labels label=FILE, and also select the boxes",
        ),
        (
            {"boxes": [BOX, [60, 0, 5.5, 1]]},
            "box 1, [x, y, width, height] = [60.0, 0.0, 5.5, 1.0], is not inside the image, 64 pixels wide and 32 high:"
            f" [60, 0, 65.5, 1]; {CORRECT}",
        ),
        (
            {"boxes": [[4, 4, 0, 1], [4, 4, 1, 0]]},
            "box 0, [x, y, width, height] = [4.0, 4.0, 0.0, 1.0], has no area: left, top, right, bottom are"
            f" [4, 4, 4, 5]; {CORRECT}",
        ),
        (
            {"label": [1, 0]},
            "box 1, [x, y, width, height] = [8.0, 4.0, 16.0, 8.0], has the class 0, but classes are numbered from 1, as"
            f" 0 is the background; {CORRECT}; --labels label=auto, and a file of lines CLASS<TAB>N, number them from"
            " 1, but plain lines are numbered from 0",
        ),
    ],
)
def test_selected_parts_that_do_not_go_together_are_named_with_what_to_do(selected: dict[str, Any], says: str) -> None:
    sample = {"__key__": "a", "image": JPEG, "boxes": [BOX, BOX], "label": [1, 2], **selected}
    with pytest.raises(SampleError) as caught:
        detection(sample, OpContext())
    assert caught.value.sentence == says


def test_a_sample_without_annotations_says_how_to_name_them() -> None:
    with pytest.raises(SampleError) as caught:
        detection({"__key__": "a", "jpg": JPEG, "txt": b""}, OpContext())
    assert caught.value.sentence == f"has none of the entries {', '.join(ANNOTATION_ENTRIES)} for the objects; {PARTS}"


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"source_id": b"x 1"}, b"x 1"),
        ({"source_id": "7"}, b"7"),
        ({"source_id": b""}, b"12"),
        ({}, b"12"),
    ],
)
def test_the_id_of_an_image_may_be_selected(more: dict[str, Any], found: bytes) -> None:
    sample = {"__key__": "12", "image": JPEG, "boxes": [], "label": [], **more}
    assert detection(sample, OpContext())["image/source_id"] == found


def test_selected_parts_have_defaults_and_boxes_may_stand_out_by_a_pixel() -> None:
    sample = {"__key__": "a/12", "image": JPEG, "boxes": np.array([BOX, [-1, -1, 66, 34]]), "label": np.array([3, 1])}
    found = detection(sample, OpContext())
    values = {name.removeprefix("image/object/"): value for name, value in found.items() if "object" in name}
    assert values == {
        "bbox/xmin": float_list([0.125, 0]),
        "bbox/ymin": float_list([0.125, 0]),
        "bbox/xmax": float_list([0.375, 1]),
        "bbox/ymax": float_list([0.375, 1]),
        "class/label": int64_list([3, 1]),
        "class/text": bytes_list([]),
        "is_crowd": int64_list([0, 0]),
        "area": float_list([128, 2244]),
    }
    assert [found[f"image/{name}"] for name in ("format", "height", "width")] == [b"jpeg", 32, 64]


def test_lines_of_a_label_map_which_begin_at_0_are_answered_with_ways_to_number_from_1(tmp_path: Path) -> None:
    about = [{"box": [8, 4, 16, 8], "of": "cat"}]
    select = {"image": "jpg", "boxes": "json:*.box", "label": "json:*.of"}
    (tmp_path / "lines.txt").write_text("cat\ndog\n")
    with pytest.raises(SampleError, match="has the class 0, but classes are numbered from 1") as caught:
        made(tmp_path, about, select=select, labels=f"label={tmp_path / 'lines.txt'}")
    assert "--labels label=auto, and a file of lines CLASS<TAB>N, number them from 1" in str(caught.value.hint)
    (tmp_path / "numbers.txt").write_text("cat\t1\ndog\t2\n")
    for number, labels in enumerate(("label=auto", f"label={tmp_path / 'numbers.txt'}")):
        found = parsed(made(tmp_path / str(number), about, select=select, labels=labels), DECODER)
        assert found["image/object/class/label"] == [1]


@pytest.mark.parametrize(("how", "labels"), [("drop", [2]), ("keep", [0, 2])])
def test_bad_boxes_are_dropped_and_counted_or_kept_if_asked_for(how: str, labels: list[int], tmp_path: Path) -> None:
    about = [{**CAT, "category_id": 0}, {**CAT, "category_id": 2}]
    found = parsed(made(tmp_path, about, invalid_boxes=how), DECODER)
    assert found["image/object/class/label"] == labels
    manifest = json.loads((tmp_path / "out" / "_all-manifest.json").read_text())
    assert manifest["skipped"].get("boxes") == ({"dropped": 1, "invalid": 1} if how == "drop" else None)


def test_boxes_of_the_preset_follow_its_image(tmp_path: Path) -> None:
    ops = ["decode:jpg", "crop:jpg,16x32", "flip:jpg", "encode:jpg,jpeg"]
    about = [{**CAT, "bbox": [16, 8, 8, 8]}, {**DOG, "bbox": [0, 0, 4, 4]}]
    found = parsed(made(tmp_path, about, ops=ops), DECODER)
    sides = {side: found[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")}
    assert sides == {"xmin": [0.75], "ymin": [0.0], "xmax": [1.0], "ymax": [0.5]}
    assert found["image/object/class/label"] == [CAT["category_id"]]


def test_images_that_the_readers_do_not_know_are_faulty(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("1", {"jpg": encoded("BMP"), "json": b"[]", "png": encoded("PNG")})])
    for preset in ("detection", "segmentation"):
        done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x.record", "--preset", preset)
        assert (done.returncode, "the image is BMP" in done.stderr) == (3, True)


# --- Masks ---


def masked(folder: Path, entries: dict[str, bytes], **options: Any) -> Path:
    write_tar(folder / "in" / "a.tar", [("0007", entries)])
    output = Output(folder / "out" / "all.record")
    convert(Conversion(Input(folder / "in"), output, preset="segmentation", **options), workers=1)
    return folder / "out" / "all.record"


@pytest.mark.parametrize("name", ["mask", "seg", "mask.png", "seg.png", "png"])
def test_an_image_and_its_mask_are_what_deeplab_parses(name: str, tmp_path: Path) -> None:
    mask = encoded("PNG", mode="L")
    found = parsed(masked(tmp_path, {"jpg": JPEG, name: mask}), DEEPLAB)
    assert found == {
        "image/encoded": JPEG,
        "image/filename": b"0007.jpg",
        "image/format": b"jpeg",
        "image/height": 32,
        "image/width": 64,
        "image/channels": 3,
        "image/segmentation/class/encoded": mask,
        "image/segmentation/class/format": b"png",
    }
    classes = tf.io.decode_png(found["image/segmentation/class/encoded"], 1)
    np.testing.assert_array_equal(np.unique(classes), [3])


def test_an_image_may_be_a_png_too(tmp_path: Path) -> None:
    png = encoded("PNG")
    found = parsed(masked(tmp_path, {"png": png, "seg.png": encoded("PNG", mode="L")}), DEEPLAB)
    assert (found["image/encoded"], found["image/format"]) == (png, b"png")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"jpg": JPEG}, "none of the entries mask"),
        ({"png": encoded("PNG")}, "none of the entries mask"),
        ({"jpg": JPEG, "seg": JPEG}, "the mask is JPEG"),
        ({"jpg": JPEG, "seg": encoded("PNG", (32, 64))}, "64x32, but the image 32x64"),
        ({"jpg": JPEG, "seg": b"nothing"}, "cannot be decoded"),
    ],
)
def test_what_is_no_mask_of_the_image_is_faulty(entries: dict[str, bytes], words: str, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=words):
        masked(tmp_path, entries)


def test_a_decoded_mask_is_encoded_first(tmp_path: Path) -> None:
    entries = {"jpg": JPEG, "seg": encoded("PNG", mode="L")}
    with pytest.raises(SampleError, match="the mask is decoded"):
        masked(tmp_path, entries, ops=["decode:seg"])
    found = parsed(masked(tmp_path, entries, ops=["decode:seg", "encode:seg,png"]), DEEPLAB)
    np.testing.assert_array_equal(np.unique(tf.io.decode_png(found["image/segmentation/class/encoded"], 1)), [3])
