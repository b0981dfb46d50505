"""Faulty boxes in records of the Object Detection API, which break training; `verify --decode` finds them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from tar2tf_cli.formats.example import ParsedFeature, parse

_MARK: Final = b"/bbox/xmin"
_SIDES: Final = ("xmin", "ymin", "xmax", "ymax")
_ROUNDED: Final = 1e-4  # fraction of its length by which a side may exceed the image, as float32 rounds


def box_faults(message: bytes, numbers: Mapping[str, Set[int]]) -> list[tuple[str, str]]:
    """Return the faults of an example's boxes and classes, each as kind and message.

    Args:
        message: the example.
        numbers: the permitted class numbers, by feature.
    """
    if _MARK not in message:
        return []
    try:
        features = parse(message)
    except ValueError:
        return []
    prefixes = [name.removesuffix("/xmin") for name in features if name.endswith("/bbox/xmin")]
    return [("box", fault) for prefix in prefixes for fault in _faults(prefix, features, numbers)]


def _faults(prefix: str, features: Mapping[str, ParsedFeature], numbers: Mapping[str, Set[int]]) -> Iterator[str]:
    columns = [_values(features, f"{prefix}/{side}", "float") for side in _SIDES]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{len(column)} {side}" for side, column in zip(_SIDES, columns, strict=True))
        yield f"the boxes {prefix!r} have lists of different lengths: {sizes}"
        return
    for number, box in enumerate(zip(*columns, strict=True)):
        left, top, right, bottom = box
        shown = f"box {number} of {prefix!r}, [{left:g}, {top:g}, {right:g}, {bottom:g}],"
        if not all(map(math.isfinite, box)):
            yield f"{shown} has a number that is not finite"
        elif right <= left or bottom <= top:
            yield f"{shown} has no area"
        elif min(left, top) < -_ROUNDED or max(right, bottom) > 1 + _ROUNDED:
            yield f"{shown} is not inside the image: sides are fractions from 0 to 1"
    labels = f"{prefix.rpartition('/')[0]}/class/label"
    classes = _values(features, labels, "int64")
    if classes and len(classes) != len(columns[0]):  # class names in texts may replace the numbers
        yield f"{prefix!r} has {len(columns[0])} boxes, but {labels!r} has {len(classes)} classes"
    for number, label in enumerate(classes):
        if label < 1:
            yield f"item {number} of {labels!r} is {label:g}, but classes are numbered from 1, as 0 is the background"
        elif label not in numbers.get(labels, (label,)):
            yield f"item {number} of {labels!r} is {label:g}, which the label map in the manifest does not have"


def _values(features: Mapping[str, ParsedFeature], name: str, kind: str) -> Sequence[float]:
    feature = features.get(name)
    return feature.values() if feature and feature.kind == kind else ()
