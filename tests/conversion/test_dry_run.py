"""`--dry-run`: the plan, the first sample on its way through the ops, the features; and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shards import PHOTOS, examples, tar2tf, tree, write_tar

OPS = ["--op", "decode:jpg", "--op", "resize:jpg,20x30", "--op", "convert:jpg,float16", "--op", "rename:image=jpg"]
MORE = ["--op", "keep:image,cls", "--select", "image,label=cls", "--type", "label=int64"]


def test_each_step_shows_dtype_and_shape_of_every_entry(tmp_path: Path) -> None:
    done = tar2tf(
        "convert", PHOTOS, "-o", tmp_path / "x-<>.record", "--max-shard-size", "1MB", *OPS, *MORE, "--dry-run"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("4 inputs, ")
    assert lines[1].startswith("  photos-0.tar")
    assert "  and 1 more" in lines
    assert f"to {tmp_path}/x-<>.record, at most 1 MB each" in lines
    steps = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert steps == [
        "the first sample, 0000:",
        "after decode ext=jpg:",
        "after resize ext=jpg size=[20, 30]:",
        "after convert ext=jpg dtype=float16:",
        "after rename image=['jpg']:",
        "after keep ['image', 'cls']:",
        "features:",
    ]
    text = done.stdout
    assert "  jpg      uint8 [120, 160, 3]" in text
    assert "  jpg      float32 [20, 30, 3]" in text
    assert "  jpg      float16 [20, 30, 3]" in text
    features = lines[lines.index("features:") + 1 :]
    assert [line.split(None, 1) for line in features] == [
        ["image", "float16 [20, 30, 3]"],
        ["image/shape", "int64 [3]"],
        ["label", "int64 []"],
    ]
    assert tree(tmp_path) == {}


def test_as_json_the_plan_is_a_document(tmp_path: Path) -> None:
    command = ["convert", PHOTOS, "photos-{0,1}.tar", "-o", tmp_path / "x.record", *OPS, *MORE, "--dry-run", "--json"]
    done = tar2tf(*command)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [item["name"] for item in document["inputs"]] == ["photos-0.tar", "photos-1.tar"]
    assert document["spec"]["ops"][1] == {"resize": {"ext": "jpg", "size": [20, 30]}}
    steps = document["steps"]
    assert [step["step"].partition(" ")[0] for step in steps] == ["the", *["after"] * 5, "features:"]
    assert steps[1]["entries"]["jpg"] == "uint8 [120, 160, 3]"
    assert steps[2]["entries"]["jpg"] == "float32 [20, 30, 3]"
    assert steps[5]["entries"].keys() == {"__key__", "image", "cls"}
    assert steps[6]["entries"] == {"image": "float16 [20, 30, 3]", "image/shape": "int64 [3]", "label": "int64 []"}
    assert tree(tmp_path) == {}


def test_what_a_dry_run_shows_is_what_the_run_writes(tmp_path: Path) -> None:
    command = ["convert", PHOTOS, "-o", tmp_path / "x.record", "--preset", "imagenet-tensor", "--image-size", "8"]
    done = tar2tf(*command, "--dry-run", "--json")
    shown = json.loads(done.stdout)["steps"][-1]["entries"]
    assert tar2tf(*command).returncode == 0
    assert shown.keys() == examples(tmp_path / "x.record")[0].keys()
    (manifest,) = [json.loads(data) for name, data in tree(tmp_path).items() if name.endswith(".json")]
    for name, look in shown.items():
        feature = manifest["features"][name]
        if feature["shape"] or feature["dtype"] != "bytes":
            assert look.startswith(f"{feature['dtype']} {feature['shape']}")


def test_raw_bytes_are_told_from_lists(tmp_path: Path) -> None:
    done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x", "--op", "decode:jpg", "--select", "jpg", "--dry-run")
    assert "uint8 [120, 160, 3], raw bytes" in done.stdout


@pytest.mark.parametrize("args", [["--json"], []])
def test_an_op_that_fails_on_the_first_sample_is_an_error_naming_it(args: list[str], tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("a, b", {"jpg": b"no image"})])
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "x", "--op", "decode:jpg", "--dry-run", *args)
    assert done.returncode == 3
    assert f"{tmp_path}/in/a.tar, member a, b.jpg" in done.stderr
    selected = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "x", "--select", "png", "--dry-run", *args)
    assert selected.returncode == 3
    assert "sample a, b" in selected.stderr
    assert not (tmp_path / "out").exists()


def test_a_first_sample_that_is_dropped_or_multiplied_is_shown_so(tmp_path: Path) -> None:
    dropped = tar2tf("convert", PHOTOS, "-o", tmp_path / "x", "--op", "keep:no", "--op", "drop_empty", "--dry-run")
    assert dropped.returncode == 0
    assert "after drop_empty: dropped" in dropped.stdout
    (tmp_path / "f.py").write_text("def twice(sample):\n    return [sample, sample]\n")
    twice = tar2tf("convert", PHOTOS, "-o", tmp_path / "x", "--op", "func:f.py:twice", "--dry-run", cwd=tmp_path)
    assert "after func f.py:twice: 2 samples" in twice.stdout


def test_a_shard_without_samples_fails_as_the_conversion_would(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [])
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "x", "--dry-run", "--json")
    assert done.returncode == 3
    assert "holds no samples" in done.stderr


def test_standard_input_is_not_used_up(tmp_path: Path) -> None:
    with (PHOTOS / "photos-0.tar").open("rb") as stream:
        done = tar2tf("convert", "-", "-o", tmp_path / "x", "--op", "decode:jpg", "--dry-run", stdin=stream)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path) == {}
