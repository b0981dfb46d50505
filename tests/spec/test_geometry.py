"""Boxes, points and masks mean the same as flags, in a spec file, in Python and in the canonical spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import tar2tf
from tar2tf_cli import Conversion
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops.annotations import Boxes, Mask, Points
from tar2tf_cli.spec.yaml_file import build, read

GIVEN = Conversion(
    "shards",
    "x.record",
    ops=["decode:jpg", "flip:jpg"],
    boxes=Boxes("json:o.*.b", "xyxy", relative=True, of="jpg", min_visible=0.25, beside=("json:l", "json:m")),
    points=[Points("json:p", "xyv")],
    mask=(Mask("seg.png", fill=255),),
    invalid_boxes="drop",
)


def test_the_canonical_spec_gives_the_same_geometry() -> None:
    assert build(GIVEN.canonical()).geometry == GIVEN.geometry


def test_yaml_takes_text_and_mappings(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        """
input: {bucket: shards}
ops: ['decode:jpg', 'flip:jpg']
boxes: {at: 'json:o.*.b', format: xyxy, relative: true, of: jpg, min_visible: 0.25, beside: ['json:l', 'json:m']}
points: 'json:p,format=xyv'
mask: ['seg.png,fill=255']
invalid_boxes: drop
output: {path: x.record}
"""
    )
    assert read(str(path)).geometry == GIVEN.geometry


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--boxes", "json:b,format=abcd"),
            "error: --boxes format must be 'xywh', 'xyxy', 'cxcywh' or 'yxyx', not 'abcd'",
        ),
        (("--boxes", "json:b,min_visible=2"), "error: --boxes min_visible must be a number from 0 to 1, not '2'"),
        (("--boxes", "json:b,visible=1"), "error: --boxes has no field 'visible'; did you mean 'min_visible'?"),
        (("--mask", "seg.png,fill=red"), "error: --mask fill must be a number, not 'red'"),
        (("--invalid-boxes", "drop"), "needs boxes"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = tar2tf("convert", tmp_path, "-o", tmp_path / "x.record", "--op", "decode:jpg", *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_declarations_without_ops_are_refused() -> None:
    with pytest.raises(UsageError, match="need ops, but there are none"):
        Conversion("shards", "x.record", boxes="json:b")
