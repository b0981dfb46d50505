"""Boxes and classes of the Object Detection API that break training are found by verify --decode."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from commands import tar2tf
from images import jpeg
from shards import write_tar
from verify_runs import an_example, check, framed
from verify_runs import write as write_file


def write(path: Path, boxes: list[list[float]], labels: list[int]) -> Path:
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), zip(*boxes, strict=True), strict=True))
    features = {
        f"image/object/bbox/{side}": tf.train.Feature(float_list=tf.train.FloatList(value=values))
        for side, values in sides.items()
    }
    features["image/object/class/label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=labels))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


INSIDE = "is not inside the image: sides are fractions from 0 to 1"


@pytest.mark.parametrize(
    ("box", "fault"),
    [
        ([0.5, 0.1, 0.5, 0.2], "[0.5, 0.1, 0.5, 0.2], has no area"),
        ([0.6, 0.1, 0.5, 0.2], "[0.6, 0.1, 0.5, 0.2], has no area"),
        ([0.1, 0.2, 0.5, 0.2], "[0.1, 0.2, 0.5, 0.2], has no area"),
        ([0.1, 0.3, 0.5, 0.2], "[0.1, 0.3, 0.5, 0.2], has no area"),
        ([0.1, 0.1, float("nan"), 0.2], "[0.1, 0.1, nan, 0.2], has a number that is not finite"),
        ([float("-inf"), 0.1, 0.3, 0.2], "[-inf, 0.1, 0.3, 0.2], has a number that is not finite"),
        ([0.1, 0.1, 1.5, 0.2], f"[0.1, 0.1, 1.5, 0.2], {INSIDE}"),
        ([0.1, 0.1, 0.2, 1.001], f"[0.1, 0.1, 0.2, 1.001], {INSIDE}"),
        ([-0.1, 0.1, 0.5, 0.2], f"[-0.1, 0.1, 0.5, 0.2], {INSIDE}"),
        ([0.1, -0.001, 0.5, 0.2], f"[0.1, -0.001, 0.5, 0.2], {INSIDE}"),
        ([-0.00009, -0.00009, 1.00009, 1.00009], None),
    ],
)
def test_a_box_that_breaks_training_is_named(box: list[float], fault: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [[0, 0, 1, 1], box], [1, 1])
    said = [f"box 1 of 'image/object/bbox', {fault}"] if fault else []
    assert [(one.kind, one.message) for one in check(path, decode=True).faults] == [("box", text) for text in said]
    assert check(path).faults == []


def test_a_class_0_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [[0, 0, 1, 1]] * 2, [1, 0])
    words = "item 1 of 'image/object/class/label' is 0, but classes are numbered from 1, as 0 is the background"
    done = tar2tf("verify", path, "--decode", "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert [(fault["kind"], fault["message"]) for fault in file["faults"]] == [("box", words)]
    assert (done.returncode, tar2tf("verify", path).returncode) == (1, 0)


def test_sides_in_lists_of_different_lengths_are_named_and_other_messages_have_no_boxes(tmp_path: Path) -> None:
    sides = {"a/bbox/xmin": [0.0, 0.0], "a/bbox/ymin": [0.0], "a/bbox/xmax": [1.0], "b/bbox/xmin": 0.5}
    records = [an_example(**sides), b"\xff/bbox/xmin"]
    found = check(write_file(tmp_path / "x.record", framed(*records)), decode=True, messages="any")
    assert sorted((fault.record, fault.message) for fault in found.faults) == [
        (0, "the boxes 'a/bbox' have lists of different lengths: 2 xmin, 1 ymin, 1 xmax, 0 ymax"),
        (0, "the boxes 'b/bbox' have lists of different lengths: 1 xmin, 0 ymin, 0 xmax, 0 ymax"),
    ]


def test_boxes_and_classes_that_differ_in_number_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [[0, 0, 1, 1]], [1, 7])
    done = tar2tf("verify", path, "--decode")
    assert (done.returncode, "1 boxes, but 'image/object/class/label' has 2 classes" in done.stdout) == (1, True)
    assert tar2tf("verify", write(tmp_path / "y.tfrecord", [[0, 0, 1, 1]], []), "--decode").returncode == 0


def test_good_boxes_are_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [[0, 0, 1, 1], [0.2, 0.3, 0.4, 0.5]], [1, 7])
    assert tar2tf("verify", path, "--decode").returncode == 0


def test_a_class_that_the_label_map_of_the_manifest_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "classes.csv").write_text("cat,1\ndog,2\n")
    objects = [{"bbox": [0, 0, 4, 4], "kind": "cat"}, {"bbox": [2, 2, 4, 4], "kind": "dog"}]
    image = jpeg(np.zeros((8, 8, 3), np.uint8))
    write_tar(tmp_path / "in.tar", [("0", {"jpg": image, "json": json.dumps({"objects": objects}).encode()})])
    select = "image=jpg,boxes=json:objects.*.bbox,label=json:objects.*.kind"
    options = ("--preset", "detection", "--select", select, "--labels", f"label={tmp_path / 'classes.csv'}")
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 0, done.stderr
    manifest = tmp_path / "_x-manifest.json"
    assert tar2tf("verify", manifest, "--decode").returncode == 0
    about = json.loads(manifest.read_bytes())
    assert about["labels"] == {"label": {"cat": 1, "dog": 2}}
    manifest.write_text(json.dumps({**about, "labels": {"label": {"cat": 1, "cow": 3}}}))
    done = tar2tf("verify", manifest, "--decode")
    assert done.returncode == 1
    assert "item 1 of 'image/object/class/label' is 2, which the label map in the manifest does not have" in done.stdout


def test_a_label_map_of_another_feature_says_nothing_about_the_classes_of_boxes(tmp_path: Path) -> None:
    (tmp_path / "classes.csv").write_text("cat,1\ndog,2\n")
    objects = {"label": "cat", "class": [5], "sides": [[0.0], [1.0]]}
    write_tar(tmp_path / "in.tar", [("0", {"json": json.dumps(objects).encode()})])
    low, high = "json:sides.0", "json:sides.1"
    sides = {"xmin": low, "ymin": low, "xmax": high, "ymax": high}
    box = ",".join(f"image/object/bbox/{side}={where}" for side, where in sides.items())
    select = f"label=json:label,image/object/class/label=json:class,{box}"
    options = ("--select", select, "--labels", f"label={tmp_path / 'classes.csv'}")
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 0, done.stderr
    done = tar2tf("verify", tmp_path / "_x-manifest.json", "--decode")
    assert done.returncode == 0, done.stdout
