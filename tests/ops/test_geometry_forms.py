"""Boxes and points in JSON, arrays and npy files keep their form, and what is none of them is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.image import codecs
from tar2tf_cli.formats.npy import to_npy
from tar2tf_cli.ops import Func, OpContext, parse_op
from tar2tf_cli.ops.annotations import Boxes, Geometry, Mask, Points
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import follow_image, locate_boxes

SIDES = ("xmin", "ymin", "xmax", "ymax")
KINDS: dict[str, Any] = {"boxes": Boxes, "points": Points, "masks": Mask}


def followed(entries: dict[str, Any], declared: str, *ops: str, **more: Any) -> dict[str, Any]:
    """What a flip of an image of 20 rows and 30 columns, or other ops, make of other entries."""
    kind, _, value = declared.partition(" ")
    geometry = Geometry(**{kind: (KINDS[kind].from_value(value),)}, **more)
    sample = {"__key__": "k", "jpg": np.zeros((20, 30, 3), np.uint8), **entries}
    (made,) = apply_ops(sample, follow_image([parse_op(op) for op in ops or ["flip:jpg"]], geometry), OpContext())
    del made["__key__"], made["jpg"]
    return made


def described(value: Any) -> Any:
    return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value


def array(values: Any, dtype: str = "<i4") -> np.ndarray:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("declared", "before", "after"),
    [
        ("boxes b", {"b": array([[0, 0, 4, 4], [8, 8, 2, 3]])}, {"b": array([[26, 0, 4, 4], [20, 8, 2, 3]])}),
        ("boxes b", {"b": array([0, 0, 4, 4])}, {"b": array([26, 0, 4, 4])}),
        ("boxes b", {"b": array([[[0, 0, 4, 4]], [[8, 8, 2, 3]]])}, {"b": array([[[26, 0, 4, 4]], [[20, 8, 2, 3]]])}),
        ("boxes b", {"b": to_npy(array([[0, 0, 4, 4]], "<f2"))}, {"b": to_npy(array([[26, 0, 4, 4]], "<f2"))}),
        ("boxes b", {"b": array([], "<f4")}, {"b": array([], "<f4")}),
        ("boxes b,xyxy", {"b": array([[0.5, 0, 4, 4]])}, {"b": array([[26, 0, 30, 4]])}),
        ("boxes b,yxyx", {"b": array([[0, 1, 4, 5]])}, {"b": array([[0, 25, 4, 29]])}),
        ("boxes b,cxcywh", {"b": array([[2, 3, 4, 6]])}, {"b": array([[28, 3, 4, 6]])}),
        ("boxes b,relative", {"b": array([[0.25, 0, 0.5, 1]], "<f8")}, {"b": array([[0.25, 0, 0.5, 1]], "<f8")}),
        ("boxes a+b", {"b": array([0, 0, 4, 4])}, {"b": array([26, 0, 4, 4])}),
        ("boxes a+b", {"a": array([1, 0, 4, 4]), "b": array([0, 0, 4, 4])}, None),
        ("boxes a+b", {"c": b""}, {"c": b""}),
        ("boxes json:x+json:0", {"json": b"[[0, 0, 4, 4]]"}, {"json": b"[[26.0, 0.0, 4.0, 4.0]]"}),
        ("boxes json", {"json": b"[[0, 0, 4, 4]]"}, {"json": b"[[26.0, 0.0, 4.0, 4.0]]"}),
        ("boxes json", {"json": [[0, 0, 4, 4]]}, {"json": [[26, 0, 4, 4]]}),
        ("boxes json:*", {"json": b'{"\xc3\xa9": [0, 0, 4, 4]}'}, {"json": b'{"\xc3\xa9": [26.0, 0.0, 4.0, 4.0]}'}),
        ("boxes json:b", {"json": b'{"b": []}'}, {"json": b'{"b": []}'}),
        ("points p", {"p": array([[0, 1], [5, 6]])}, {"p": array([[29, 1], [24, 6]])}),
        ("points p", {"p": array([0, 1, 5, 6], "<f4")}, {"p": array([29, 1, 24, 6], "<f4")}),
        ("points p", {"p": array([[[0, 1]], [[5, 6]]])}, {"p": array([[[29, 1]], [[24, 6]]])}),
        ("points p", {"p": to_npy(array([[0, 1]]))}, {"p": to_npy(array([[29, 1]]))}),
        ("points p,yx", {"p": array([[0, 1]])}, {"p": array([[0, 28]])}),
        ("points p,xyv", {"p": array([[3, 1, 2], [4, 4, 0]])}, {"p": array([[26, 1, 2], [4, 4, 0]])}),
        ("points p,relative", {"p": array([[0.1, 0.5]], "<f4")}, {"p": array([[0.9, 0.5]], "<f4")}),
        ("points p,of=jpg", {"p": array([[0, 1]])}, {"p": array([[29, 1]])}),
        ("points p,of=png", {"p": array([[0, 1]]), "png": b""}, {"p": array([[0, 1]]), "png": b""}),
        ("points q+p", {"p": array([[0, 1]])}, {"p": array([[29, 1]])}),
        ("points q+p", {"c": b""}, {"c": b""}),
        ("points json", {"json": b"[]"}, {"json": b"[]"}),
        ("points json:a+json:*", {"json": b"[[0, 1, 5, 6]]"}, {"json": b"[[29.0, 1.0, 24.0, 6.0]]"}),
        ("points json:*.p", {"json": b'[{"p": [0, 1]}]'}, {"json": b'[{"p": [29.0, 1.0]}]'}),
        ("masks m", {"m": array([[1] * 29 + [2]] * 20)}, {"m": array([[2] + [1] * 29] * 20)}),
        ("masks n+m", {"m": array([[1] * 29 + [2]] * 20)}, {"m": array([[2] + [1] * 29] * 20)}),
        ("masks n+m", {"c": b""}, {"c": b""}),
    ],
    ids=repr,
)
def test_annotations_that_move_keep_their_form(
    declared: str, before: dict[str, Any], after: dict[str, Any] | None
) -> None:
    made = followed(dict(before), declared)
    if after is None:  # only the first that is present moves
        after = {**before, "a": array([25, 0, 4, 4])}
    assert {name: described(value) for name, value in made.items()} == {
        name: described(value) for name, value in after.items()
    }


@pytest.mark.parametrize(
    ("declared", "entries", "says"),
    [
        ("boxes b", {"c": b""}, "has no entry 'b' for boxes, only jpg, c"),
        ("boxes json:b.*", {"c": b""}, "has no entry 'json' for boxes, only jpg, c"),
        ("boxes b", {"b": array([1, 2, 3])}, "entry 'b' is int32 of shape [3], not boxes of 4 numbers"),
        ("boxes b", {"b": array([True] * 4, "?")}, "entry 'b' is bool of shape [4], not boxes of 4 numbers"),
        ("boxes json:b", {"json": b"{"}, "entry 'json' is not JSON: Expecting property name enclosed in double quotes:"
         " line 1 column 2 (char 1)"),
        ("boxes json:b.*.c", {"json": b'{"b": [{}]}'}, "entry 'json' has nothing at 'b.*.c'"),
        ("boxes json:b.c", {"json": b'{"b": 5}'}, "entry 'json' has nothing at 'b.c'"),
        ("boxes json:3", {"json": b"[]"}, "entry 'json' has nothing at '3'"),
        ("boxes json:*", {"json": b"[[1, 2, 3, true]]"}, "box 0 is [1, 2, 3, True], which is not a list of 4 numbers"),
        ("boxes json:*", {"json": b"[[1, 2, 3, 4], 5]"}, "box 1 is 5, not a list of 4 numbers"),
        ("boxes json:*", {"json": b"[null]"}, "box 0 is null, not a list of 4 numbers"),
        ("points p", {"c": b""}, "has no entry 'p' for points, only jpg, c"),
        ("points json:p.*", {"c": b""}, "has no entry 'json' for points, only jpg, c"),
        ("points p", {"p": array([1, 2, 3])}, "entry 'p' is int32 of shape [3], not points of 2 numbers"),
        ("points p,xyv", {"p": array([[1, 2]])}, "entry 'p' is int32 of shape [1, 2], not points of 3 numbers"),
        ("points json:*", {"json": b"[[1, 2, 3]]"}, "[1, 2, 3] is not a point of 2 numbers, or a list of points"),
        ("points json:p", {"json": b'{"p": 5}'}, "5 is not a point of 2 numbers, or a list of points"),
        ("points json:*", {"json": b'[[1, "2"]]'}, "point 0 is [1, '2'], which is not a list of 2 numbers"),
        ("points p,of=png", {"p": array([[1, 2]])}, "has no entry 'png', the image of 'p', only jpg, p"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_annotation_is_named(declared: str, entries: dict[str, Any], says: str) -> None:
    with pytest.raises(SampleError) as caught:
        followed(entries, declared)
    assert caught.value.sentence == says


HINT = "correct it, or pass --invalid-boxes drop or keep"


@pytest.mark.parametrize(
    ("box", "fault"),
    [
        ([0, 0, 30, 20], None),
        ([-1, -1, 32, 22], None),
        ([-1, -1, 32.125, 22], "is not inside the image, 30 pixels wide and 20 high: [-1, -1, 31.125, 21]"),
        ([-1, -1, 32, 22.125], "is not inside the image, 30 pixels wide and 20 high: [-1, -1, 31, 21.125]"),
        ([-1.125, 0, 9, 9], "is not inside the image, 30 pixels wide and 20 high: [-1.125, 0, 7.875, 9]"),
        ([0, -1.125, 9, 9], "is not inside the image, 30 pixels wide and 20 high: [0, -1.125, 9, 7.875]"),
        ([30, 5, 1, 4], "is outside the image, 30 pixels wide and 20 high: [30, 5, 31, 9]"),
        ([5, 20, 4, 1], "is outside the image, 30 pixels wide and 20 high: [5, 20, 9, 21]"),
        ([-1, 5, 1, 4], "is outside the image, 30 pixels wide and 20 high: [-1, 5, 0, 9]"),
        ([5, -1, 4, 1], "is outside the image, 30 pixels wide and 20 high: [5, -1, 9, 0]"),
        ([29.5, 19.5, 0.5, 0.5], None),
        ([5, 5, 0, 4], "has no area: left, top, right, bottom are [5, 5, 5, 9]"),
        ([5, 5, 4, 0], "has no area: left, top, right, bottom are [5, 5, 9, 5]"),
        ([5, 5, float("inf"), 4], "has a number that is not finite: [5, 5, inf, 9]"),
    ],
    ids=repr,
)
def test_a_box_may_stand_out_by_a_pixel_and_has_to_have_a_part_in_its_image(
    box: list[float], fault: str | None
) -> None:
    boxes = array([[1, 2, 3, 4], box], "<f8")
    if fault is None:
        assert len(followed({"b": boxes}, "boxes b")["b"]) == 2
        return
    with pytest.raises(SampleError) as caught:
        followed({"b": boxes}, "boxes b")
    assert caught.value.sentence == f"box 1 of 'b' {fault}; {HINT}"
    for invalid, count in (("drop", 1), ("keep", 2)):
        assert len(followed({"b": boxes}, "boxes b,beside=none", invalid=invalid)["b"]) == count


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (b"no image", "only a PNG has indices: starts with no ima"),
        (b"", "only a PNG has indices: it is empty"),
        (codecs.encode(np.zeros((20, 30, 3), np.uint8), "jpeg"), "only a PNG has indices: it is JPEG"),
        (
            codecs.encode(np.zeros((20, 30, 3), np.uint8), "png"),
            "a PNG has indices if it has a palette, or gray levels of up to 8 bits; this one has neither",
        ),
        (
            codecs.encode(np.zeros((20, 29, 1), np.uint8), "png"),
            "entry 'm': the mask has 20x29 pixels, but its image 20x30 (height x width)",
        ),
        (np.zeros((21, 30)), "entry 'm': the mask has 21x30 pixels, but its image 20x30 (height x width)"),
    ],
)
def test_what_is_no_mask_of_its_image_is_named_with_its_member(mask: Any, says: str) -> None:
    with pytest.raises(SampleError) as caught:
        followed({"m": mask}, "masks m")
    assert (caught.value.message, caught.value.member) == (says, "k.m")


def test_boxes_follow_before_another_op_sees_or_renames_them() -> None:
    made = followed({"b": array([[0, 0, 4, 4]])}, "boxes b", "flip:jpg", "rename:c=b", "cast:jpg,float32")
    assert {name: described(value) for name, value in made.items()} == {"c": ("<i4", [[26, 0, 4, 4]])}
    with pytest.raises(SampleError, match="has no entry 'b' for boxes, only jpg, c"):
        followed({"b": array([[0, 0, 4, 4]])}, "boxes b", "rename:c=b", "flip:jpg")


def test_an_image_that_no_name_tells_needs_one() -> None:
    sample = {"__key__": "k", "scan": np.zeros((20, 30, 3), np.uint8), "p": array([[0, 1]])}
    geometry = Geometry(points=(Points("p"),))
    with pytest.raises(UsageError) as caught:
        [*apply_ops(sample, follow_image([parse_op("flip:scan")], geometry), OpContext())]
    assert caught.value.sentence == (
        "it is unclear which image 'p' is on, and 'scan' moved; name the image: --points p,of=scan"
    )


def changed(given: Any) -> dict[str, Any]:
    """What a function that crops an encoded image makes of boxes, given what it says of its move."""
    before, after = (codecs.encode(np.zeros((20, width, 3), np.uint8), "png") for width in (30, 15))

    def crop(sample: dict[str, Any]) -> dict[str, Any]:
        more = {} if given is ... else {"__geometry__": given}
        return {**sample, "jpg": after, **more}

    geometry = Geometry((Boxes("b"),))
    sample = {"__key__": "k", "jpg": before, "b": array([[20, 2, 8, 4]])}
    (made,) = apply_ops(sample, follow_image([Func(crop)], geometry), OpContext())
    assert made["jpg"] == after
    return {name: described(value) for name, value in made.items() if name not in ("__key__", "jpg")}


def test_a_function_that_changes_an_encoded_image_says_how_it_moved_pixels() -> None:
    assert changed({"jpg": (0.5, 0, 1, 0, 1, -1, 20, 15)}) == {"b": ("<i4", [[11, 1, 4, 4]])}
    assert changed({"jpg": None}) == {"b": ("<i4", [[20, 2, 8, 4]])}
    for given in (..., {}, {"png": None}):
        with pytest.raises(UsageError) as caught:
            changed(given)
        assert caught.value.message.endswith("changed the image 'jpg', but does not say how it moved pixels")
        assert caught.value.hint == (
            "return it in the sample: sample['__geometry__'] = {'jpg': (a, b, c, d, e, f, height, width)}, "
            "or None instead of the numbers if nothing moved"
        )


@pytest.mark.parametrize(
    ("declared", "entries", "edges", "classes"),
    [
        ("b", {"b": array([[1, 2, 3, 4]])}, [[1, 2, 4, 6]], []),
        ("b,beside=c", {"b": array([[1, 2, 3, 4]]), "c": array([7])}, [[1, 2, 4, 6]], ["7"]),
        ("b,beside=c+d", {"b": array([1, 2, 3, 4]), "d": np.array([b"x"], object)}, [[1, 2, 4, 6]], ["x"]),
        ("b,xyxy,relative", {"b": array([[0, 0.5, 1, 1]], "<f4")}, [[0, 10, 30, 20]], []),
        ("txt", {"txt": b"3 0.5 0.5 1 1\n"}, [[0, 0, 30, 20]], ["3"]),
        ("txt", {"txt": b"cat 0.5 0.5 0.5 0.5 0.9\n"}, [[7.5, 5, 22.5, 15]], ["cat"]),
        ("json:*.b", {"json": b'[{"b": [1, 2, 3, 4], "name": "cat", "class": 5}]'}, [[1, 2, 4, 6]], ["cat"]),
        ("json:*.b", {"json": b'[{"b": [1, 2, 3, 4], "class": 5}]'}, [[1, 2, 4, 6]], ["5"]),
        ("json:*.b", {"json": b'[{"b": [1, 2, 3, 4]}]'}, [[1, 2, 4, 6]], [""]),
        (
            "json:o.*.b",
            {"json": b'{"o": [{"b": [1, 2, 3, 4], "category_id": 5}, {"b": [0, 0, 1, 1], "category_id": 6}],'
             b' "categories": [7, {"id": 4, "name": "dog"}, {"id": 5, "name": "cat"}, {"id": 6}]}'},
            [[1, 2, 4, 6], [0, 0, 1, 1]],
            ["cat", "6"],
        ),
        ("json:b,beside=json:c", {"json": b'{"b": [[1, 2, 3, 4]], "c": [9]}'}, [[1, 2, 4, 6]], ["9"]),
        ("json:b,beside=json:c.*", {"json": b'{"b": [[1, 2, 3, 4]], "c": ["x"]}'}, [[1, 2, 4, 6]], ["x"]),
        ("json:b,beside=none", {"json": b'{"b": [[1, 2, 3, 4]], "c": [9]}'}, [[1, 2, 4, 6]], []),
        ("json:b,beside=other:c", {"json": b'{"b": [[1, 2, 3, 4]]}', "other": b"{}"}, [[1, 2, 4, 6]], []),
        (
            "x/bbox",
            {**{f"x/bbox/{side}": array([value], "<f4") for side, value in zip(SIDES, (0, 0, 0.5, 1), strict=True)},
             "x/class/text": np.array([b"cat"], object), "x/class/label": array([3])},
            [[0, 0, 15, 20]],
            ["cat"],
        ),
        (
            "x/bbox",
            {**{f"x/bbox/{side}": array([value], "<f4") for side, value in zip(SIDES, (0, 0, 0.5, 1), strict=True)},
             "x/class/label": array([3])},
            [[0, 0, 15, 20]],
            ["3"],
        ),
    ],
)  # fmt: skip
def test_boxes_are_located_in_pixels_with_their_classes(
    declared: str, entries: dict[str, Any], edges: list[Any], classes: list[str]
) -> None:
    found = locate_boxes({"__key__": "k", **entries}, Boxes.from_value(declared), (20, 30))
    assert found is not None
    assert (found.edges.tolist(), [*found.classes]) == (edges, classes)
