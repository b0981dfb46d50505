"""The preset detection: features named as in the TF Object Detection API, from annotations such as COCO's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import LackingError, SampleError
from tar2tf_cli.features.presets import (
    IMAGE_FEATURES,
    LABEL_ENTRIES,
    Preset,
    encoded,
    first_of,
    image_for_reader,
    text_of,
)
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list
from tar2tf_cli.ops.annotations import NO_LISTS, Boxes, Geometry
from tar2tf_cli.ops.base import IMAGE_ENTRIES
from tar2tf_cli.ops.select import json_of

ANNOTATION_ENTRIES: Final = ("annotations", "json")
"""Names of entries for the annotations; the first that is present is used."""

_NAMES: Final = ("category_name", "category", "name")
"""Keys of an annotation for the name of its class."""

_SIDES: Final = ("xmin", "ymin", "xmax", "ymax")
_INT64: Final = re.compile(rb"-?[0-9]{1,18}")
_HINT: Final = "name the parts: --select image=ENTRY,boxes=ENTRY:PATH.*.bbox,label=ENTRY:PATH.*.category_id"


def detection(sample: Sample, context: OpContext) -> dict[str, object]:
    """Make the features of the encoded image, and lists with one value for each of its objects.

    Boxes are [x, y, width, height] in pixels, from the left and the top; the features have their sides as fractions of
    the image's width and height. Objects are COCO's annotations in a JSON entry, or `boxes`, `label`, and perhaps
    `text`, `is_crowd` and `area`, as selected.

    Sources: for names tensorflow/models, research/object_detection/data_decoders/tf_example_decoder.py; for annotations
    https://cocodataset.org/#format-data.
    """
    features, header = image_for_reader(sample, "detection")
    selected = "boxes" in sample
    about = {} if selected else _about(sample)
    objects = _selected(sample) if selected else _annotated(about)
    for name in ("label", "is_crowd", "area"):
        if len(objects[name]) != len(objects["boxes"]):
            count, other = len(objects["boxes"]), len(objects[name])
            raise SampleError(f"has {count} boxes, but {other} values of {name!r}", hint=_HINT)
    corners, objects = _valid(objects, (header.height, header.width), _known_classes(about), context)
    return {
        **features,
        "image/source_id": _source_id(sample, about),
        "image/key/sha256": hashlib.sha256(features["image/encoded"]).hexdigest().encode(),
        **{
            f"image/object/bbox/{side}": float_list(corner[place] for corner in corners)
            for place, side in enumerate(_SIDES)
        },
        "image/object/class/label": int64_list(map(_whole, objects["label"])),
        "image/object/class/text": bytes_list([encoded(str(text)) for text in objects["text"]]),
        "image/object/is_crowd": int64_list(map(_whole, objects["is_crowd"])),
        "image/object/area": float_list(map(_number, objects["area"])),
    }


def _source_id(sample: Sample, about: Mapping[str, object]) -> bytes:
    """Return the id of an image: the selected value, or a number in digits from `image_id` or else the key.

    The parsers of tf-models convert it with `tf.strings.to_number(source_id, tf.int64)`. Any other text becomes a
    number of 53 bits of its SHA-256, which JSON and float64 represent exactly.

    Source: tensorflow/models, official/vision/dataloaders/utils.py.
    """
    if selected := text_of(sample, "source_id"):
        return selected
    text = encoded(str(about.get("image_id", sample[KEY])))
    if _INT64.fullmatch(text):
        return text
    return b"%d" % (int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11)


def _selected(sample: Sample) -> Mapping[str, Sequence[object]]:
    """Return the lists that `select` took from a sample."""
    boxes, label = _listed(sample["boxes"]), _listed(first_of(sample, LABEL_ENTRIES, "label"))
    sizes = [_box(number, box)[2:] for number, box in enumerate(boxes)]
    return {
        "boxes": boxes,
        "label": label,
        "text": _listed(sample.get("text", [])),
        "is_crowd": _listed(sample.get("is_crowd", [0] * len(boxes))),
        "area": _listed(sample.get("area", [width * height for width, height in sizes])),
    }


def _listed(value: object) -> Sequence[object]:
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, (list, tuple)):
        raise SampleError("boxes and their values must be lists", hint=_HINT)
    return listed


def _about(sample: Sample) -> Mapping[str, object]:
    """Return the JSON annotations of an image as an object with `annotations`, even if the entry is a list."""
    name = next((name for name in ANNOTATION_ENTRIES if name in sample), "")
    if not name:
        raise LackingError(f"has none of the entries {', '.join(ANNOTATION_ENTRIES)} for the objects", hint=_HINT)
    value = json_of(name, sample[name])
    about = {"annotations": value} if isinstance(value, list) else value
    annotations = about.get("annotations") if isinstance(about, dict) else None
    if not isinstance(annotations, list) or not all(isinstance(item, dict) for item in annotations):
        raise SampleError(f"entry {name!r} has no list of objects as 'annotations'", hint=_HINT)
    image = {"image_id": annotations[0]["image_id"]} if annotations and "image_id" in annotations[0] else {}
    return {**image, **about}


def _annotated(about: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """Convert annotations to one list for each kind of value."""
    categories = [item for item in about.get("categories") or () if isinstance(item, dict)]
    names = {item["id"]: item.get("name") for item in categories if isinstance(item.get("id"), int)}
    objects: dict[str, list[Any]] = {name: [] for name in ("boxes", "label", "text", "is_crowd", "area")}
    for number, item in enumerate(about["annotations"]):
        for key in ("bbox", "category_id"):
            if item.get(key) is None:
                keys = ", ".join(item) or "nothing"
                what = f"null as {key!r}" if key in item else f"no {key!r}, only {keys}"
                raise SampleError(f"annotation {number} has {what}", hint=_HINT)
        _, _, width, height = _box(number, item["bbox"])
        text = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
        if text is None and names:
            text = names.get(_whole(item["category_id"]), "")  # a missing class is reported separately
        objects["boxes"].append(item["bbox"])
        objects["label"].append(item["category_id"])
        objects["is_crowd"].append(item.get("iscrowd", 0))
        objects["area"].append(item.get("area", width * height))
        objects["text"] += [] if text is None else [text]
    if objects["text"] and len(objects["text"]) < len(objects["boxes"]):
        raise SampleError("only some of the annotations have the name of their class")
    return objects


def _box(number: int, box: object) -> list[float]:
    """Return a box as four numbers."""
    if not isinstance(box, (list, tuple)) or len(box) != 4:
        raise SampleError(f"box {number} is {box!r}, not [x, y, width, height]")
    return [_number(value) for value in box]


def _valid(
    objects: Mapping[str, Sequence[object]], size: tuple[int, int], known: Collection[int], context: OpContext
) -> tuple[list[list[float]], Mapping[str, Sequence[object]]]:
    """Return left, top, right and bottom of each box as fractions, and the objects, without dropped ones.

    Args:
        objects: a list for each kind of value.
        size: height and width of the image.
        known: the existing classes; empty if unknown.
        context: has the treatment of invalid objects: error, drop or keep.

    Raises:
        SampleError: for the first invalid object.
    """
    import numpy as np

    from tar2tf_cli.ops.geometry import INVALID_HINT, invalid_boxes, to_edges

    boxes = [_box(number, box) for number, box in enumerate(objects["boxes"])]
    edges = to_edges(np.array(boxes, "f8").reshape(-1, 4), "xywh")
    faults = invalid_boxes(edges, size)
    for number, label in enumerate(objects["label"]):
        if (fault := _class_fault(_whole(label), known)) and number not in faults:
            faults[number] = fault
    if faults and context.invalid_boxes == "error":
        number, fault = min(faults.items())
        hint = f"{INVALID_HINT}{_FROM_ONE}" if fault.endswith(_BACKGROUND) else INVALID_HINT
        raise SampleError(f"box {number}, [x, y, width, height] = {boxes[number]}, {fault}", hint=hint)
    sides = np.array([size[1], size[0]] * 2, "f8")
    corners = edges / sides if context.invalid_boxes == "keep" else (edges / sides).clip(0, 1)
    if faults and context.invalid_boxes == "drop":
        kept = [number for number in range(len(boxes)) if number not in faults]
        if context.boxes:
            context.boxes.add("dropped", len(faults))
            context.boxes.add("invalid", len(faults))
        objects = {name: [values[number] for number in kept] if values else values for name, values in objects.items()}
        corners = corners[kept]
    return corners.tolist(), objects


_BACKGROUND: Final = "classes are numbered from 1, as 0 is the background"
_FROM_ONE: Final = (
    "; --labels label=auto, and a file of lines CLASS<TAB>N, number them from 1, but plain lines are numbered from 0"
)


def _class_fault(label: int, known: Collection[int]) -> str | None:
    """Return the fault of a class number: the Object Detection API counts from 1, as 0 is the background."""
    if label < 1:
        return f"has the class {label}, but {_BACKGROUND}"
    if known and label not in known:
        return f"has the class {label}, which is not among the categories"
    return None


def _known_classes(about: Mapping[str, Any]) -> Collection[int]:
    categories = about.get("categories") or ()
    return {item["id"] for item in categories if isinstance(item, dict) and isinstance(item.get("id"), int)}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SampleError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise SampleError("a whole number of more than 308 digits is too large for a float") from None


def _whole(value: object) -> int:
    if not isinstance(value, int) and not (isinstance(value, float) and value.is_integer()):
        raise SampleError(
            f"{value!r} is not a whole number",
            hint="number classes with --labels label=FILE, and also select the boxes",
        )
    if not -(2**63) <= value < 2**63:
        raise SampleError("a whole number has more than 64 bits")
    return int(value)


def detection_geometry(selected: Mapping[str, str]) -> Geometry:
    """Return the boxes of the annotations, or the selected ones, with the lists that belong to them."""
    of = selected.get("image")
    if "boxes" not in selected:
        paths = ("annotations.*.bbox", "*.bbox")
        found = tuple(f"{entry}:{path}" for entry in ANNOTATION_ENTRIES for path in paths)
        return Geometry((Boxes(found, of=of),))
    at, names = selected["boxes"], (*LABEL_ENTRIES, "text", "is_crowd", "area")
    beside = tuple(selected[name] for name in names if name in selected)
    return Geometry((Boxes(at, of=of, beside=None if BOX_IN_OBJECT.search(at) else beside or (NO_LISTS,)),))


BOX_IN_OBJECT: Final = re.compile(r"\*\.[^*]+$")
"""Pattern at the end of a path to boxes in a list of objects, which are removed as a whole."""


PRESET: Final = Preset(
    detection,
    (
        *IMAGE_FEATURES,
        *("image/source_id", "image/key/sha256"),
        *(f"image/object/bbox/{side}" for side in _SIDES),
        *("image/object/class/label", "image/object/class/text", "image/object/is_crowd", "image/object/area"),
    ),
    uses=("invalid_boxes",),
    geometry=detection_geometry,
    first_label=1,
    selects=(*IMAGE_ENTRIES, *LABEL_ENTRIES, "boxes", "text", "is_crowd", "area", "filename", "source_id"),
)
