"""`--dry-run`: the plan, the first sample on its way through the ops, the features; and nothing is written."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from declared_geometry import annotated_tars
from shards import PHOTOS, examples, members_of, samples, shards_in, tree, write_members, write_tar
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.events import Events
from tar2tf_cli.spec.conversion import Conversion

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
    assert selected.returncode == 2
    assert "names the entry 'png', which no sample of this input has; did you mean 'jpg'?" in selected.stderr
    assert not (tmp_path / "out").exists()


def test_a_first_sample_that_is_dropped_or_multiplied_is_shown_so(tmp_path: Path) -> None:
    dropped = tar2tf("convert", PHOTOS, "-o", tmp_path / "x", "--op", "keep:no", "--op", "drop_empty", "--dry-run")
    assert dropped.returncode == 0
    assert "after drop_empty: dropped" in dropped.stdout
    (tmp_path / "f.py").write_text("def twice(sample):\n    return [sample, sample]\n")
    twice = tar2tf("convert", PHOTOS, "-o", tmp_path / "x", "--op", "func:f.py:twice", "--dry-run", cwd=tmp_path)
    assert "after func f.py:twice: 2 samples" in twice.stdout


def test_a_function_among_ops_that_boxes_follow_is_a_step(tmp_path: Path) -> None:
    annotated_tars(tmp_path)
    (tmp_path / "f.py").write_text("def same(sample):\n    return sample\n")
    ops = ["--op", "decode:jpg", "--op", "func:f.py:same", "--boxes", "json:annotations.*.bbox"]
    done = tar2tf("convert", "0.tar", "-o", "x.record", *ops, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("after ")]
    follow = "after follow json:annotations.*.bbox:"
    assert steps == ["after decode ext=jpg:", follow, "after func f.py:same:", follow]


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


# --- What would happen to the output ---


def dry(*arguments: str | Path, **options: Any) -> tuple[list[str], Any]:
    """The lines and the document of a dry run, which has to leave the folder of the output as it is."""
    shown = tar2tf("convert", *arguments, "--dry-run", **options)
    assert shown.returncode == 0, shown.stderr
    as_json = tar2tf("convert", *arguments, "--dry-run", "--json", **options)
    return shown.stdout.splitlines() + shown.stderr.splitlines(), json.loads(as_json.stdout)


def test_it_says_what_would_happen_to_an_output_that_is_there(tmp_path: Path) -> None:
    shutil.copytree(PHOTOS, tmp_path / "in")
    command = [tmp_path / "in", "-o", tmp_path / "out" / "x-<>.record", "--records-per-shard", "6"]
    lines, document = dry(*command)
    assert document["outcome"] == {"status": "new", "message": ""}
    assert lines[0].startswith("4 inputs")
    assert tar2tf("convert", *command).returncode == 0
    before = tree(tmp_path)

    lines, document = dry(*command)
    assert lines[0] == "up to date: nothing to do"
    assert document["outcome"]["status"] == "up to date"
    lines, document = dry(*command, "--type", "cls=int64")
    refused = f"would refuse: {tmp_path}/out/_x-manifest.json: was made with other options: types was not given,"
    assert lines[0].startswith(refused)
    assert document["outcome"] == {"status": "refuse", "message": lines[0]}
    lines, document = dry(*command, "--type", "cls=int64", "--update")
    assert lines[0] == "would convert everything again: the options have changed (types)"
    lines, document = dry(*command, "--type", "cls=int64", "--overwrite")
    assert lines[0].startswith("would replace 4 existing files (")
    assert document["outcome"]["status"] == "overwrite"
    assert tree(tmp_path) == before

    (tmp_path / "in" / "photos-1.tar").rename(tmp_path / "in" / "photos-7.tar")
    lines, document = dry(*command)
    assert "was made from other inputs: 1 added (photos-7.tar), 1 removed (photos-1.tar)" in lines[0]
    lines, document = dry(*command, "--update")
    assert lines[0] == "would update: 1 added (photos-7.tar), 1 removed (photos-1.tar)"
    assert document["outcome"]["status"] == "update"
    (tmp_path / "out" / "_x-manifest.json").unlink()
    lines, document = dry(*command)
    assert lines[0].startswith(f"would refuse: {tmp_path}/out/x-1.record: already exists, and no manifest")
    assert "nothing would" not in lines[0]


# --- How much would be written ---


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--max-shard-size", "40kB"],
        ["--records-per-shard", "5"],
        ["--num-shards", "3"],
        ["--op", "decode:jpg"],
        ["--compression", "gzip"],
        ["--limit", "9"],
        ["--preset", "imagenet-tensor", "--image-size", "20"],
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["x-<>.record", "<input>.record", "<split>.record"])
def test_the_estimate_is_close_to_what_is_written(options: list[str], path: str, tmp_path: Path) -> None:
    if path == "<split>.record":
        options = [*options, "--split", "a=0.5,b=0.5"]
    if path == "<input>.record" and "--limit" in options:
        pytest.skip("<input> and --limit exclude each other")
    command = [PHOTOS, "photos-*.tar", "-o", tmp_path / path, *options, "-j", "1"]
    _, document = dry(*command)
    done = json.loads(tar2tf("convert", *command, "--json").stdout)
    found = document["estimate"]
    assert found["records"] == done["records"]
    assert found["bytes"] == pytest.approx(done["bytes"], rel=0.2 if {"gzip", "--limit"} & {*options} else 0.02)
    assert found["shards"] == pytest.approx(len(done["shards"]), abs=2)


def test_the_estimate_of_large_inputs_comes_from_some_of_their_samples(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(400, 3000, first=number * 1000))
    write_tar(tmp_path / "in" / "3.tar.gz", samples(400, 3000, first=3000))
    command = [tmp_path / "in", "-o", tmp_path / "x-<>.record", "--max-shard-size", "500kB"]
    lines, document = dry(*command)
    found = document["estimate"]
    done = json.loads(tar2tf("convert", *command, "--json").stdout)
    assert found["records"] == pytest.approx(done["records"], rel=0.2)
    assert found["bytes"] == pytest.approx(done["bytes"], rel=0.2)
    assert found["shards"] == pytest.approx(len(done["shards"]), rel=0.3)
    (line,) = (line for line in lines if line.startswith("about "))
    assert line.endswith(f" in {found['shards']} shards")


def test_a_dry_run_names_a_sample_that_cannot_be_converted_in_place_of_an_estimate(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", [("a", {"cls": b"1"})])
    write_tar(tmp_path / "in/b.tar", [("b", {"cls": b"cat"})])
    lines, document = dry(tmp_path / "in", "-o", tmp_path / "x.record", "--type", "cls=int64")
    assert document["estimate"] is None
    assert "sample b" in document["warnings"][0]
    assert not [line for line in lines if line.startswith(("about ", "local disk"))]
    lines, document = dry(tmp_path / "in", "-o", tmp_path / "x.record", "--type", "cls=int64", "--on-error", "skip")
    assert document["estimate"]["records"] == 1


def test_local_space_suffices_for_the_shards_and_the_records_that_wait(tmp_path: Path) -> None:
    command = (PHOTOS, "-o", tmp_path / "x-<>.record", "--max-shard-size", "100kB", "--shuffle")
    lines, document = dry(*command)
    assert sum(line.startswith("local disk: at most about ") for line in lines) == 1
    done = json.loads(tar2tf("convert", *command, "--json").stdout)
    assert 1.9 * done["bytes"] < document["estimate"]["local"] < 2.1 * done["bytes"]
    assert document["estimate"]["seconds"] >= 0


def test_progress_ends_at_all_of_the_input_also_with_a_limit(tmp_path: Path) -> None:
    class Progress(Events):
        last = 0

        def progress(self, size: int) -> None:
            self.last = size

    progress = Progress()
    conversion = Conversion(str(PHOTOS), str(tmp_path / "x.record"), limit=1)
    convert(conversion, workers=1, events=progress)
    assert progress.last == sum(path.stat().st_size for path in shards_in(PHOTOS, "*.tar*"))


@pytest.mark.parametrize("kind", ["ops", "a function", "stdin"])
def test_an_output_much_larger_than_the_input_gets_one_warning(kind: str, tmp_path: Path) -> None:
    ops = ["--op", "decode:jpg", "--op", "convert:jpg,float32"]
    if kind == "a function":
        (tmp_path / "f.py").write_text("def f(sample):\n    return {**sample, 'x': bytes(200_000)}\n")
        ops = ["--op", f"func:{tmp_path}/f.py:f"]
    command = [PHOTOS, "-o", tmp_path / "x-<>.record", *ops, "--max-shard-size", "1MB", "-j", "1"]
    if kind == "stdin":
        command[0] = "-"
    stdin = {"input": (PHOTOS / "photos-0.tar").read_bytes()} if kind == "stdin" else {}
    done = tar2tf("convert", *command, **stdin)
    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert len(warnings) == (kind != "stdin"), done.stderr
    if kind == "ops":
        assert " times the 270.01 KB of the input" in warnings[0]
        assert "encoded images take a fraction" in warnings[0]
        command[2] = tmp_path / "y-<>.record"
        lines, document = dry(*command)
        assert lines[-1].startswith("warning: about ")
        assert document["warnings"] == [lines[-1]]
        assert not tar2tf("convert", PHOTOS, "-o", tmp_path / "z.record", "--op", "decode:jpg", "-q").stderr


@pytest.mark.parametrize("options", [(), ("--limit", "9"), ("--num-shards", "2")])
def test_the_warning_of_a_large_output_is_about_right(options: tuple[str, ...], tmp_path: Path) -> None:
    ops = ("--op", "decode:jpg", "--op", "resize:jpg,300x300")
    done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x-<>.record", *ops, *options, "-j", "1", "--json")
    (foreseen,) = re.findall(r"about ([0-9.]+) MB will be written", done.stderr)
    assert float(foreseen) * 1e6 == pytest.approx(json.loads(done.stdout)["bytes"], rel=0.2)


def test_decompression_alone_gets_no_warning(tmp_path: Path) -> None:
    write_members(tmp_path / "x.tar", [("0.txt", bytes(1 << 20)), ("1.txt", bytes(1 << 20))])
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress((tmp_path / "x.tar").read_bytes()))
    done = tar2tf("convert", tmp_path / "x.tar.gz", "-o", tmp_path / "x.record")
    assert (done.returncode, "warning" in done.stderr) == (0, False)


def test_the_classes_of_an_image_folder_are_shown(tmp_path: Path) -> None:
    for name in ("cat", "dog", "emu", "fox"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(3):
            data = dict(members_of(PHOTOS / "photos-0.tar"))["0000.jpg"]
            (tmp_path / "in" / name / f"{number}.jpg").write_bytes(data)
    command = ["--from", "imagefolder", tmp_path / "in", "-o", tmp_path / "x-<>.record", "--preset", "imagenet"]
    lines, document = dry(*command)
    assert "4 classes: cat, dog, emu, …" in lines
    assert document["classes"] == ["cat", "dog", "emu", "fox"]
    assert document["estimate"]["records"] == 12
