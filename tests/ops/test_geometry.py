"""Boxes, points and masks follow the image on which they lie."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from commands import convert
from shards import write_tar
from tar2tf_cli.api.op import BoxCounts
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image import codecs, geometry
from tar2tf_cli.ops import OPS, Func, OpContext, parse_op
from tar2tf_cli.ops.annotations import OUTLINES, Boxes, Geometry, Mask, Points
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import MAPS, follow_image

CHOSEN = (
    "flip:jpg",
    "rotate:jpg,90",
    "rotate:jpg,180",
    "rotate:jpg,270",
    "rotate:jpg,33",
    "resize:jpg,23x41",
    "pad:jpg,40x31",
    "crop:jpg,9x12",
    "crop:jpg,60x7,top-left",
    "crop:jpg,11,random",
    "center_crop:jpg",
)

MOVES = (
    *CHOSEN,
    *(
        example
        for name, op in OPS.items()
        if getattr(op, "moves", False) and not any(chosen.startswith(f"{name}:") for chosen in CHOSEN)
        for example in op.examples
    ),
)
"""Ops that move pixels: the chosen ones, and the examples of each op that is added."""

RESAMPLED = ("rotate:jpg,33", "resize:jpg,23x41", "pad:jpg,40x31")


def follow(sample: dict[str, Any], *ops: Any, counts: Counter[str] | None = None, **declared: Any) -> dict[str, Any]:
    """A sample after ops, with everything that is declared."""
    kinds = {"boxes": Boxes, "points": Points, "masks": Mask}
    given = {
        name: (kinds[name].from_value(value),) if name in kinds else value  # type: ignore[attr-defined]
        for name, value in declared.items()
    }
    context = OpContext(seed=3, boxes=BoxCounts())
    (made,) = apply_ops(sample, follow_image([parse_op(op) for op in ops], Geometry(**given)), context)
    if counts is not None and context.boxes:
        counts.update(context.boxes.take())
    return made


def pixels(height: int = 20, width: int = 30) -> np.ndarray:
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


def document(boxes: list[Any], **more: Any) -> bytes:
    objects = [{"bbox": box, "name": f"{number}"} for number, box in enumerate(boxes)]
    return json.dumps({"objects": objects, **more}).encode()


def boxes_of(sample: dict[str, Any]) -> list[list[float]]:
    return [item["bbox"] for item in json.loads(sample["json"])["objects"]]


def test_boxes_in_json_follow_a_resize_in_the_format_that_they_have() -> None:
    for form, box, expected in (
        ("xywh", [10, 5, 6, 4], [20, 15, 12, 12]),
        ("xyxy", [10, 5, 16, 9], [20, 15, 32, 27]),
        ("cxcywh", [13, 7, 6, 4], [26, 21, 12, 12]),
        ("yxyx", [5, 10, 9, 16], [15, 20, 27, 32]),
    ):
        sample = {"__key__": "a", "jpg": pixels(), "json": document([box])}
        made = follow(sample, "resize:jpg,60x60", boxes=f"json:objects.*.bbox,format={form}")
        assert boxes_of(made) == [expected]


def test_fractions_of_the_sides_stay_fractions() -> None:
    sample = {"__key__": "a", "jpg": pixels(), "json": document([[0.5, 0.5, 0.2, 0.2]])}
    made = follow(sample, "flip:jpg", "resize:jpg,7x9", boxes="json:objects.*.bbox,format=cxcywh,relative")
    np.testing.assert_allclose(boxes_of(made), [[0.5, 0.5, 0.2, 0.2]])


@pytest.mark.parametrize("op", MOVES)
def test_the_map_of_an_op_says_where_each_pixel_goes(op: str) -> None:
    """A white square moves as its box does; positions are those of the pixels."""
    height, width, counts = 20, 30, Counter[str]()
    for top, left, size in ((3, 4, 5), (8, 15, 6), (11, 20, 8)):
        canvas = np.zeros((height, width, 1), np.uint8)
        canvas[top : top + size, left : left + size] = 255
        sample = {"__key__": f"{top}", "jpg": canvas, "json": document([[left, top, size, size]])}
        made = follow(sample, op, boxes="json:objects.*.bbox,format=xywh", counts=counts)
        rows, columns, _ = np.nonzero(made["jpg"] > 127)
        found = boxes_of(made)
        if not len(rows):
            assert not found or min(found[0][2:]) < 1
            continue
        x, y, w, h = found[0]
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_allclose([x, y, x + w, y + h], seen, atol=1 if op in RESAMPLED else 0.001)


@pytest.mark.parametrize("op", MOVES)
def test_a_point_stays_on_its_pixel(op: str) -> None:
    for y, x in ((3, 4), (10, 15), (13, 20)):
        canvas = np.zeros((20, 30, 1), np.float32)
        canvas[y, x] = 255
        made = follow({"__key__": "k", "jpg": canvas, "json": b"[[%d, %d]]" % (x, y)}, op, points="json:*")
        ((px, py),) = json.loads(made["json"])
        lit = made["jpg"][..., 0] if made["jpg"].max() else None
        if lit is not None and 0 <= px <= lit.shape[1] - 1 and 0 <= py <= lit.shape[0] - 1 and lit.max() > 100:
            row, column = np.unravel_index(lit.argmax(), lit.shape)
            assert abs(column - px) <= 0.5 + 1e-6, (op, px, column)
            assert abs(row - py) <= 0.5 + 1e-6


@pytest.mark.parametrize("op", MOVES)
def test_points_whose_y_comes_first_move_as_the_others_do(op: str) -> None:
    made = [
        follow({"__key__": "k", "jpg": pixels(), "json": points}, op, points=f"json:*,format={form}")
        for form, points in (("xy", b"[[4, 3], [15, 10]]"), ("yx", b"[[3, 4], [10, 15]]"))
    ]
    xy, yx = (json.loads(sample["json"]) for sample in made)
    assert yx == [point[::-1] for point in xy]
    assert len(yx) == 2


@pytest.mark.parametrize("op", MOVES)
def test_a_mask_goes_through_its_images_moves_as_by_the_op_with_nearest(op: str) -> None:
    rng = np.random.default_rng(5)
    mask = rng.integers(1, 5, (20, 30, 1), np.uint8)
    nearest = f"{op},method=nearest" if hasattr(parse_op(op), "method") else op
    (expected,) = apply_ops({"__key__": "k", "jpg": mask.copy()}, [parse_op(nearest)], OpContext(seed=3))
    made = follow({"__key__": "k", "jpg": pixels(), "seg.png": mask}, op, masks="seg.png")
    np.testing.assert_array_equal(made["seg.png"], expected["jpg"])


@pytest.mark.parametrize("op", MOVES)
def test_a_mask_without_channels_moves_as_one_with_a_channel(op: str) -> None:
    mask = np.random.default_rng(4).integers(0, 9, (20, 30)).astype(np.int64)
    flat = follow({"__key__": "k", "jpg": pixels(), "m": mask}, op, masks="m")["m"]
    deep = follow({"__key__": "k", "jpg": pixels(), "m": mask[..., None]}, op, masks="m")["m"]
    assert (flat.dtype, flat.ndim) == (np.int64, 2)
    np.testing.assert_array_equal(flat, deep[..., 0])


def test_a_mask_that_is_stored_as_a_palette_becomes_a_png_of_its_indices() -> None:
    indices = np.random.default_rng(1).integers(0, 20, (20, 30), np.uint8)
    stored = PIL.Image.fromarray(indices, "P")
    stored.putpalette([7 * number % 256 for number in range(768)])
    file = io.BytesIO()
    stored.save(file, "PNG")
    made = follow({"__key__": "k", "jpg": pixels(), "seg.png": file.getvalue()}, "flip:jpg", masks="seg.png")
    np.testing.assert_array_equal(np.array(PIL.Image.open(io.BytesIO(made["seg.png"]))), indices[:, ::-1])


def test_pixels_that_a_mask_gains_have_the_value_of_fill() -> None:
    sample = {"__key__": "k", "jpg": pixels(10, 10), "seg.png": np.ones((10, 10, 1), np.uint8)}
    made = follow(sample, "pad:jpg,10x20", masks="seg.png,fill=255")
    assert made["seg.png"][:, 5:15].tolist() == np.ones((10, 10, 1)).tolist()
    assert {*made["seg.png"][:, :5].ravel().tolist()} == {255}


def test_an_op_that_moves_a_declared_mask_is_an_error() -> None:
    ops = [parse_op("resize:jpg,9x9"), parse_op("resize:seg.png,9x9,nearest")]
    with pytest.raises(UsageError, match=r"the mask 'seg[.]png' already moves with its image"):
        follow_image(ops, Geometry(masks=(Mask("seg.png"),)))


def test_a_glob_that_matches_a_declared_mask_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"'seg[.]png' already moves with its image") as error:
        follow_image([parse_op("resize:*png,2x2")], Geometry(masks=(Mask("seg.png"),)))
    assert error.value.hint == "write the image's own name in place of *png, or leave out --mask seg.png"


def test_boxes_on_an_image_that_nothing_names_are_an_error() -> None:
    sample = {"__key__": "a", "left.jpg": pixels(), "json": document([[10, 5, 6, 4]])}
    with pytest.raises(UsageError, match=r"it is unclear which image 'json:objects[.][*][.]bbox' is on") as error:
        follow(sample, "flip:left.jpg", boxes="json:objects.*.bbox")
    assert error.value.hint == "name the image: --boxes json:objects.*.bbox,of=left.jpg"


def test_boxes_on_an_image_that_a_sample_lacks_are_an_error() -> None:
    sample = {"__key__": "a", "left.jpg": pixels(), "json": document([[10, 5, 6, 4]])}
    with pytest.raises(SampleError, match=r"has no entry 'lfet[.]jpg', the image of 'json:objects"):
        follow(sample, "flip:left.jpg", boxes="json:objects.*.bbox,of=lfet.jpg")


def test_boxes_that_a_crop_cuts_are_clipped_and_those_outside_are_dropped_with_their_objects() -> None:
    counts = Counter[str]()
    sample = {"__key__": "a", "jpg": pixels(20, 20), "json": document([[0, 0, 4, 4], [3, 3, 10, 10], [8, 8, 4, 4]])}
    made = follow(sample, "crop:jpg,10x10", boxes="json:objects.*.bbox", counts=counts)
    assert json.loads(made["json"])["objects"] == [
        {"bbox": [0, 0, 8, 8], "name": "1"},
        {"bbox": [3, 3, 4, 4], "name": "2"},
    ]
    assert counts == {"clipped": 1, "dropped": 1}


def coco(*objects: dict[str, Any]) -> bytes:
    return json.dumps({"objects": [{"bbox": [1, 1, 4, 4], **one} for one in objects]}).encode()


def test_outlines_and_points_in_objects_with_boxes_are_counted_if_they_do_not_move() -> None:
    none, outline = {"segmentation": [], "keypoints": [0, 0, 0]}, {"segmentation": [[1, 1, 5, 1, 5, 5]]}
    objects = coco(none | outline, {**outline, "keypoints": [2, 2, 2]}, none, none | {"segmentation": {"counts": "a"}})
    counts, boxes = Counter[str](), "json:objects.*.bbox"

    def counted(op: str, unmoved: tuple[str, ...] = OUTLINES, **declared: Any) -> Counter[str]:
        counts.clear()
        sample = {"__key__": "a", "jpg": pixels(20, 20), "json": objects}
        follow(sample, op, boxes=boxes, counts=counts, unmoved=unmoved, **declared)
        return counts

    assert counted("flip:jpg") == {"unmoved segmentation": 3, "unmoved keypoints": 1}
    assert counted("flip:jpg", points="json:objects.*.keypoints,format=xyv") == {"unmoved segmentation": 3}
    assert counted("flip:jpg", ("keypoints",)) == {"unmoved keypoints": 1}
    assert counted("flip:jpg", ()) == {}
    assert counted("cast:jpg,float32") == {}


@pytest.mark.parametrize(
    ("written", "noted"),
    [
        ((), True),
        (("--select", "jpg,b=json:objects.0.bbox"), False),
        (("--select", "jpg,b=json:objects.0.segmentation.0", "--type", "b=float_list"), True),
        (("--preset", "detection", "--select", "image=jpg,boxes=json:objects.*.bbox,label=json:objects.*.id"), False),
    ],
)
def test_one_note_counts_what_is_written_and_did_not_move(
    tmp_path: Path, written: tuple[str, ...], noted: bool
) -> None:
    found = coco({"segmentation": [[1, 1, 5, 1, 5, 5]], "id": 1}, {"segmentation": [[1, 1, 5, 1, 5, 5]], "id": 2})
    for number in range(3):
        picture = codecs.encode(pixels(20, 20), "png", 95)
        write_tar(tmp_path / f"in/{number}.tar", [(f"{number}", {"jpg": picture, "json": found})])
    ops = ["--op", "decode:jpg", "--op", "flip:jpg", "--op", "encode:jpg,png"]
    boxes = [] if "--preset" in written else ["--boxes", "json:objects.*.bbox"]
    done = convert(tmp_path / "in", "-o", tmp_path / "o.record", *ops, *boxes, *written)
    note = (
        "note: images and boxes moved, but not the 'segmentation' of 6 objects, which are not declared; declare points"
    )
    assert done.stderr.count(note) == noted
    assert done.stderr.count("unmoved") == noted


@pytest.mark.parametrize(
    ("op", "area"),
    [
        ("resize:jpg,10x10", 3.125),
        ("resize:jpg,10x40", 12.5),
        ("crop:jpg,4x4,top-left", 7.03125),  # 9 of 16 pixels of the box are visible
        ("flip:jpg", 12.5),
        ("rotate:jpg,90", 12.5),
        ("pad:jpg,30x30", 28.125),
    ],
)
def test_the_area_of_an_object_grows_with_its_box(op: str, area: float) -> None:
    sample = {"__key__": "a", "jpg": pixels(20, 20), "json": coco({"area": 12.5}, {"area": "large"}, {})}
    objects = json.loads(follow(sample, op, boxes="json:objects.*.bbox")["json"])["objects"]
    assert [item.get("area") for item in objects] == [area, "large", None]


def test_boxes_below_min_visible_are_dropped() -> None:
    sample = {"__key__": "a", "jpg": pixels(20, 20), "json": document([[3, 3, 10, 10], [8, 8, 4, 4]])}
    made = follow(sample, "crop:jpg,10x10", boxes="json:objects.*.bbox,min_visible=0.7")
    assert boxes_of(made) == [[3, 3, 4, 4]]


def test_lists_beside_boxes_lose_the_items_of_dropped_ones() -> None:
    value = {"boxes": [[0, 0, 4, 4], [8, 8, 4, 4]], "labels": ["cat", "dog"], "other": [1, 2]}
    sample = {"__key__": "a", "jpg": pixels(20, 20), "json": json.dumps(value).encode()}
    with pytest.raises(UsageError, match="nothing says which values go with it"):
        follow({**sample, "jpg": pixels(20, 20)}, "crop:jpg,10x10", boxes="json:boxes")
    made = follow({**sample, "jpg": pixels(20, 20)}, "crop:jpg,10x10", boxes="json:boxes,beside=json:labels")
    assert json.loads(made["json"]) == {"boxes": [[3, 3, 4, 4]], "labels": ["dog"], "other": [1, 2]}


def three_boxes(entry: str = "json") -> dict[str, Any]:
    """A sample with three boxes, in JSON or an array, of which a crop of the middle keeps the second."""
    boxes, labels = [[0, 0, 4, 4], [8, 8, 4, 4], [1, 1, 2, 2]], ["cat", "dog", "fox"]
    sample = {"__key__": "a", "jpg": pixels(20, 20)}
    if entry != "json":
        return sample | {"boxes": np.array(boxes, np.int32), "labels": np.array([7, 8, 9]), "few": np.array([1])}
    text = json.dumps({"boxes": boxes, "labels": labels, "ids": [7, 8, 9], "few": [1]}).encode()
    return {**sample, "json": text, "other.json": text}


@pytest.mark.parametrize(
    ("boxes", "says"),
    [
        (
            "json:boxes",
            "a box of 'json' is no longer visible, and nothing says which values go with it; name the lists with"
            " an item for each box: beside=json:PATH+json:PATH, or beside=none",
        ),
        ("json:boxes,beside=json:few", "has 3 boxes, but 1 values of 'json:few'"),
        ("json:boxes,beside=json:labels+json:few", "has 3 boxes, but 1 values of 'json:few'"),
        (
            "json:boxes,beside=other.json:labels",
            "'other.json:labels' is in another entry than its boxes; put them into one entry, or make a function of it:"
            " --op func:FILE.py:NAME",
        ),
        ("json:boxes.0", "its only box is no longer visible"),
        ("json:nothing", "entry 'json' has nothing at 'nothing'"),
        ("json:boxes,beside=json:nothing", "entry 'json' has nothing at 'nothing'"),
        (
            "boxes",
            "a box of 'boxes' is no longer visible, and nothing says which values go with it; name the lists with"
            " an item for each box: beside=ENTRY+ENTRY, or beside=none",
        ),
        ("boxes,beside=few", "has 3 boxes, but 1 values of 'few'"),
        (
            "boxes,beside=labels+gone",
            "has no entry 'gone', which belongs to its boxes, only jpg, boxes, labels, few",
        ),
        ("gone", "has no entry 'gone' for boxes, only jpg, boxes, labels, few"),
        ("labels", "entry 'labels' is int64 of shape [3], not boxes of 4 numbers"),
    ],
)
def test_boxes_that_cannot_be_dropped_are_named_with_what_to_do(boxes: str, says: str) -> None:
    with pytest.raises((SampleError, UsageError)) as caught:
        follow(three_boxes(boxes.partition(":")[0]), "crop:jpg,10x10", boxes=boxes)
    assert caught.value.sentence == says


@pytest.mark.parametrize(
    ("beside", "labels", "ids"),
    [
        ("json:labels", ["dog"], [7, 8, 9]),
        ("json:labels+json:ids", ["dog"], [8]),
        ("json:labels.*+json:ids.*", ["dog"], [8]),
        ("none", ["cat", "dog", "fox"], [7, 8, 9]),
    ],
)
def test_several_boxes_are_dropped_with_their_own_items(beside: str, labels: list[str], ids: list[int]) -> None:
    made = follow(three_boxes(), "crop:jpg,10x10", boxes=f"json:boxes,beside={beside}")
    assert json.loads(made["json"]) == {"boxes": [[3, 3, 4, 4]], "labels": labels, "ids": ids, "few": [1]}
    kept = follow(three_boxes(), "resize:jpg,10x10", boxes="json:boxes")
    assert json.loads(kept["json"])["boxes"] == [[0, 0, 2, 2], [4, 4, 2, 2], [0.5, 0.5, 1, 1]]


def test_arrays_of_boxes_lose_rows_with_what_goes_with_them() -> None:
    for beside, labels in (("labels", [8]), ("none", [7, 8, 9])):
        made = follow(three_boxes("boxes"), "crop:jpg,10x10", boxes=f"boxes,beside={beside}")
        assert (made["boxes"].tolist(), made["labels"].tolist(), made["few"].tolist()) == ([[3, 3, 4, 4]], labels, [1])
    kept = follow(three_boxes("boxes"), "flip:jpg", boxes="boxes,beside=labels")
    assert (kept["boxes"].tolist(), kept["labels"].tolist()) == (
        [[16, 0, 4, 4], [8, 8, 4, 4], [17, 1, 2, 2]],
        [7, 8, 9],
    )


def test_lines_of_yolo_follow_with_their_classes() -> None:
    text = b"0 0.2 0.4 0.2 0.4\n\n2 0.9 0.8 0.2 0.4 0.75\r\n1 0.5 0.5 0.4 0.4\n"
    sample = {"__key__": "a", "jpg": pixels(50, 100), "txt": text}
    assert follow({**sample}, "flip:jpg", boxes="txt")["txt"] == (
        b"0 0.8 0.4 0.2 0.4\n2 0.1 0.8 0.2 0.4 0.75\n1 0.5 0.5 0.4 0.4\n"
    )
    cut = follow({**sample}, "crop:jpg,40x60,top-left", boxes="txt")
    assert cut["txt"] == b"0 0.333333 0.5 0.333333 0.5\n1 0.75 0.625 0.5 0.5\n"
    assert follow({**sample, "txt": b""}, "flip:jpg", boxes="txt")["txt"] == b""


@pytest.mark.parametrize("line", ["0 0.2 0.4 0.2", "cat", "0 0.1 0.2 0.3 0.4 0.5 0.6", "0 a b c d"])
def test_lines_that_are_not_those_of_yolo_are_an_error(line: str) -> None:
    sample = {"__key__": "a", "jpg": pixels(), "labels.txt": f"0 0.2 0.4 0.2 0.4\n{line}".encode()}
    with pytest.raises(SampleError, match=r"line 2 of 'labels[.]txt' is '.*', not class, x, y, width and height"):
        follow(sample, "flip:jpg", boxes="labels.txt")


def test_arrays_keep_their_dtype() -> None:
    boxes = np.array([[0, 0, 4, 4], [8, 8, 4, 4]], np.int32)
    sample = {"__key__": "a", "jpg": pixels(20, 20), "boxes": boxes, "labels": np.array([7, 9])}
    made = follow(sample, "crop:jpg,10x10", "resize:jpg,15x15", boxes="boxes,beside=labels")
    assert (made["boxes"].dtype, made["boxes"].tolist(), made["labels"].tolist()) == (np.int32, [[4, 4, 6, 6]], [9])


def test_the_lists_of_the_object_detection_api_follow_together() -> None:
    sides = {"xmin": 0.1, "ymin": 0.2, "xmax": 0.5, "ymax": 0.6}
    sample = {
        "__key__": "a",
        "image/encoded": pixels(20, 20),
        "image/height": np.int64(20),
        "image/width": np.int64(20),
    }
    sample |= {f"image/object/bbox/{side}": np.array([value, 0.9], np.float32) for side, value in sides.items()}
    sample["image/object/bbox/xmax"][1] = sample["image/object/bbox/ymax"][1] = 1
    sample["image/object/class/text"] = np.array([b"cat", b"dog"], object)
    with pytest.raises(UsageError, match=r"add (--)?boxes image/object/bbox"):
        follow({**sample}, "crop:image/encoded,10x10")
    made = follow({**sample}, "crop:image/encoded,10x10", boxes="image/object/bbox")
    assert made["image/object/class/text"].tolist() == [b"cat"]
    assert {side: made[f"image/object/bbox/{side}"].tolist() for side in sides} == {
        "xmin": [0], "ymin": [0], "xmax": [0.5], "ymax": [pytest.approx(0.7)],
    }  # fmt: skip
    assert (made["image/height"], made["image/width"]) == (10, 10)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ([1, 1, 0, 4], "has no area"),
        ([5, 5, -3, 4], "has no area"),
        ([float("nan"), 5, 3, 4], "not finite"),
        ([5, 5, 300, 4], "is not inside the image"),
        ([-9, -9, 4, 4], "is not inside the image"),
        (None, "is null"),
        ([1, 2, 3], "not a list of 4 numbers"),
        ([1, 2, "3", 4], "not a list of 4 numbers"),
    ],
)
def test_a_box_that_breaks_training_makes_its_sample_faulty_or_is_dropped(box: Any, words: str) -> None:
    sample = {"__key__": "a", "jpg": pixels(), "json": document([[1, 1, 4, 4], box])}
    with pytest.raises(SampleError, match=words):
        follow({**sample, "jpg": pixels()}, "flip:jpg", boxes="json:objects.*.bbox")
    if isinstance(box, list) and len(box) == 4 and not isinstance(box[2], str):
        made = follow({**sample, "jpg": pixels()}, "flip:jpg", boxes="json:objects.*.bbox", invalid="drop")
        assert boxes_of(made) == [[25, 1, 4, 4]]


def test_keypoints_of_coco_outside_become_unlabelled() -> None:
    sample = {"__key__": "a", "jpg": pixels(20, 20), "json": b'{"k": [0, 0, 2, 10, 10, 1, 0, 0, 0, 1, 2, 0]}'}
    made = follow(sample, "crop:jpg,10x10", points="json:k,format=xyv")
    assert json.loads(made["json"])["k"] == [0, 0, 0, 5, 5, 1, 0, 0, 0, 1, 2, 0]


def test_a_function_that_changes_an_image_has_to_say_how() -> None:
    def mirror(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "jpg": sample["jpg"][:, ::-1]}

    def mirror_in_place(sample: dict[str, Any]) -> dict[str, Any]:
        sample["jpg"][...] = sample["jpg"][:, ::-1].copy()
        return sample

    def told(sample: dict[str, Any]) -> dict[str, Any]:
        return {**mirror(sample), MAPS: {"jpg": (-1, 0, 30, 0, 1, 0, 20, 30)}}

    def brighter(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "jpg": sample["jpg"] // 2, MAPS: {"jpg": None}}

    sample = {"__key__": "a", "json": document([[1, 2, 3, 4]])}
    for function in (mirror, mirror_in_place):
        with pytest.raises(UsageError, match=f"the function .*{function.__name__} changed the image 'jpg'"):
            follow({**sample, "jpg": pixels()}, Func(function), boxes="json:objects.*.bbox")
    made = follow({**sample, "jpg": pixels()}, Func(told), boxes="json:objects.*.bbox")
    assert (boxes_of(made), MAPS in made) == ([[26, 2, 3, 4]], False)
    made = follow({**sample, "jpg": pixels()}, Func(brighter), "flip:jpg", boxes="json:objects.*.bbox")
    assert boxes_of(made) == [[26, 2, 3, 4]]
    made = follow({**sample, "jpg": pixels()}, Func(lambda sample: sample), boxes="json:objects.*.bbox")
    assert boxes_of(made) == [[1, 2, 3, 4]]


def test_a_function_sees_boxes_that_have_followed_the_ops_before_it() -> None:
    seen = []

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append(boxes_of(sample))
        return sample

    sample = {"__key__": "a", "jpg": pixels(), "json": document([[1, 2, 3, 4]])}
    follow(sample, "flip:jpg", Func(look), "flip:jpg", boxes="json:objects.*.bbox")
    assert seen == [[[26, 2, 3, 4]]]


def test_where_nothing_is_declared_nothing_is_added() -> None:
    ops = tuple(parse_op(op) for op in MOVES)
    assert follow_image(ops, Geometry()) == ops


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_the_map_of_a_resize_has_the_coordinates_of_tensorflow(
    rows: int, columns: int, height: int, width: int
) -> None:
    ramp = np.broadcast_to(np.arange(columns, dtype=np.float32)[None, :, None], (rows, columns, 1))
    resized = tf.image.resize(ramp, (height, width)).numpy()[0, :, 0]
    move = geometry.scaled((rows, columns), (height, width))
    points = geometry.follow_points(np.stack([np.arange(columns), np.zeros(columns)], 1).astype("f8"), [move])
    back = np.interp(np.arange(width), points[:, 0], np.arange(columns))
    np.testing.assert_allclose(resized, back, atol=1e-3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_map_of_an_orientation_says_where_each_pixel_goes(orientation: int) -> None:
    canvas = np.arange(20 * 30).reshape(20, 30, 1).astype(np.int32)
    turned = image.oriented(canvas, orientation)
    move = geometry.oriented((20, 30), orientation)
    assert turned.shape[:2] == move.after
    rows, columns = np.mgrid[:20, :30].reshape(2, -1)
    x, y = geometry.follow_points(np.stack([columns, rows], 1).astype("f8"), [move]).T.astype(int)
    np.testing.assert_array_equal(turned[y, x, 0], canvas[rows, columns, 0])


def test_a_jpeg_that_is_decoded_at_a_part_of_its_size_moves_its_boxes() -> None:
    data = codecs.encode(pixels(40, 64), "jpeg", 95)
    sample = {"__key__": "a", "jpg": data, "json": document([[8, 8, 16, 16]])}
    made = follow(sample, "decode:jpg,at_least=10x10", boxes="json:objects.*.bbox")
    assert (made["jpg"].shape, boxes_of(made)) == ((10, 16, 3), [[2, 2, 4, 4]])
