"""Label maps of features: texts become the numbers that a file, or all inputs, give them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from images import jpeg
from shards import examples, write_members, write_tar
from tar2tf_cli import Conversion, Input, Output, convert, load_dataset
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.features.labels import LabelMap, load_labels, parse_labels
from tar2tf_cli.ops import Func
from tar2tf_cli.spec import yaml_file

JPEG = jpeg(np.zeros((8, 8, 3), np.uint8))
ANIMALS = ["cat", "zebra", "cat", "dog"]
FORMS = {
    "names.txt": "cat\ndog\nzebra\n",
    "texts.tsv": "cat\tFelis catus\ndog\tCanis familiaris\nzebra\tEquus quagga\n",
    "numbers.tsv": "zebra\t2\ncat\t0\ndog\t1\n",
    "list.json": '["cat", "dog", "zebra"]',
    "numbers.json": '{"zebra": 2, "cat": 0, "dog": 1}',
    "labels.json": '{"cat": {"label": 0}, "dog": {"label": 1, "human_labels": ["a", "b"]}, "zebra": {"label": 2}}',
}


def bucket_of(folder: Path, texts: list[str], shards: int = 1) -> Path:
    """Shards whose samples have these texts, as an entry and in JSON."""
    for shard in range(shards):
        some = list(enumerate(texts))[shard::shards]
        entries = [
            (f"{n:03d}", {"cls": f"{text}\n".encode(), "json": json.dumps({"a": [text]}).encode()}) for n, text in some
        ]
        write_tar(folder / f"{shard}.tar", entries)
    return folder


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return bucket_of(tmp_path / "in", ANIMALS)


def labelled(bucket: Path, labels: Any, **options: Any) -> list[Any]:
    """The values of the feature `label` of each sample."""
    out = bucket.parent / "out.record"
    options = {"select": "label=cls", **options}
    convert(Conversion(Input(bucket), Output(out), labels=labels, **options), workers=1, overwrite=True)
    return [found["label"] for found in examples(out)]


@pytest.mark.parametrize("form", FORMS)
def test_a_label_map_of_any_form_numbers_texts(form: str, bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / form
    path.write_text(FORMS[form])
    out = tmp_path / "x.record"
    done = tar2tf("convert", bucket, "-o", out, "--select", "label=cls", "--labels", f"label={path}")
    assert (done.returncode, [found["label"] for found in examples(out)]) == (0, [[0], [2], [0], [1]])
    manifest = json.loads((tmp_path / "_x-manifest.json").read_text())
    assert manifest["features"]["label"] == {"dtype": "int64", "shape": [], "encoding": "int64", "count": 4}
    assert [item["label"].numpy() for item in load_dataset(tmp_path / "_x-manifest.json")] == [0, 2, 0, 1]


def test_a_spec_file_and_python_say_the_same_as_the_flag(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text(FORMS["names.txt"])
    spec = {
        "input": {"bucket": str(bucket)},
        "select": {"label": "cls"},
        "output": {"path": str(tmp_path / "y.record")},
    }
    for labels in ({"label": str(tmp_path / "names.txt")}, {"label": {"cat": 0, "dog": 1, "zebra": 2}}):
        (tmp_path / "spec.yaml").write_text(json.dumps({**spec, "labels": labels}))
        done = tar2tf("convert", "--spec", tmp_path / "spec.yaml", "--overwrite")
        assert (done.returncode, [found["label"] for found in examples(tmp_path / "y.record")]) == (
            0,
            [[0], [2], [0], [1]],
        )
        assert labelled(bucket, labels) == [[0], [2], [0], [1]]
    manifest = json.loads((tmp_path / "_y-manifest.json").read_text())
    assert manifest["spec"]["labels"] == {"label": {"cat": 0, "dog": 1, "zebra": 2}}


def test_the_spec_in_a_manifest_has_the_map_itself() -> None:
    labels = {"a": {"10": 1, "2": 0}, "b": "auto", "c": "imagenet"}
    spec = Conversion(Input("in"), Output("x.record"), select="a,b,c", labels=labels).canonical()
    again = yaml_file.build(json.loads(json.dumps(spec)))
    assert again.canonical() == spec
    assert (spec["labels"]["a"], spec["labels"]["b"], len(spec["labels"]["c"])) == ({"2": 0, "10": 1}, "auto", 1000)


def test_a_changed_label_map_is_another_conversion(bucket: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    command = ("convert", bucket, "-o", tmp_path / "x.record", "--labels", f"cls={names}")
    names.write_text(FORMS["names.txt"])
    assert tar2tf(*command).returncode == 0
    assert "up to date" in tar2tf(*command).stderr
    names.write_text("zebra\ndog\ncat\n")
    again = tar2tf(*command)
    assert (again.returncode, "labels.cls" in again.stderr) == (2, True)


def test_lists_and_numbers_have_labels_too(bucket: Path) -> None:
    numbers = {"cat": 3, "dog": 1, "zebra": 2}
    assert labelled(bucket, {"label": numbers}, select="label=json:a") == [[3], [2], [3], [1]]
    one = write_tar(
        bucket.parent / "b" / "0.tar", [("0", {"json": b'{"ids": [[90, 1], [1, 90]], "no": [], "x": [{"id": 1}]}'})]
    )
    ids = {"label": {"1": 0, "90": 79}}
    assert labelled(one.parent, ids, select="label=json:ids") == [[79, 0, 0, 79]]
    assert labelled(one.parent, ids, select="label=json:no") == [[]]
    assert labelled(one.parent, ids, select="label=json:no", types="label=int64_list") == [[]]
    assert labelled(one.parent, {"x/id": {"1": 5}}, select="x=json:x,label=json:x.0.id") == [[1]]
    assert examples(one.parent.parent / "out.record")[0]["x/id"] == [5]


def test_records_and_arrays_have_labels_like_tars(bucket: Path, tmp_path: Path) -> None:
    convert(Conversion(Input(bucket), Output(tmp_path / "a.record"), select="label=cls,all=json:a,n=json:a.0"))
    auto = ["label=auto", "all=auto", "n=auto"]
    convert(Conversion(Input(tmp_path / "a.record"), Output(tmp_path / "b.record"), labels=auto))
    for name in ("label", "all", "n"):
        assert [found[name] for found in examples(tmp_path / "b.record")] == [[0], [2], [0], [1]]
    array = Conversion(
        Input(bucket), Output(tmp_path / "c.record"), ops=[Func(_with_array)], labels={"x": {"1": 5, "2": 6}}
    )
    convert(array, workers=1)  # others might have to import this file
    found = examples(tmp_path / "c.record")[0]
    assert (found["x"], found["x/shape"]) == ([5, 6, 6, 5], [2, 2])


def _with_array(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": np.array([[1, 2], [2, 1]])}


def test_a_preset_gets_numbers(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "0.tar", [("0", {"jpg": JPEG, "cls": b"dog"})])
    convert(
        Conversion(
            Input(tmp_path / "in"), Output(tmp_path / "x.record"), preset="image-label", labels={"cls": {"dog": 7}}
        )
    )
    assert examples(tmp_path / "x.record")[0]["label"] == [7]


def test_a_text_that_a_label_map_lacks_is_an_error_that_names_both(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    command = ("convert", bucket, "-o", tmp_path / "x.record", "--labels", f"cls={tmp_path / 'names.txt'}")
    failed = tar2tf(*command)
    assert failed.returncode == 3
    for word in ("'zebra'", "names.txt", "'cls'", "001", "0.tar"):
        assert word in failed.stderr
    skipped = tar2tf(*command, "--on-error", "skip")
    assert (skipped.returncode, len(examples(tmp_path / "x.record"))) == (1, 3)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["names.txt"], "'names.txt' is not NAME=FILE"),
        (["=names.txt"], "is not NAME=FILE"),
        (["other=imagenet"], "--labels names the feature 'other', which does not exist"),
        ({"label": {"cat": "x"}}, "'x', not a whole number"),
        ({"label": {"cat": True}}, "True, not a whole number"),
        ({"label": 5}, "label"),
        ({"label": {}}, "label"),
    ],
)
def test_what_is_no_label_map_of_a_feature_is_wrong_usage(labels: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Conversion(Input("in"), Output("x.record"), select="label=cls", labels=labels)


def test_a_feature_that_no_sample_has_cannot_have_labels(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", "--labels", "clss=imagenet")
    assert done.returncode == 2
    assert "--labels names the feature 'clss', which no sample of this input has" in done.stderr
    assert "'cls'" in done.stderr


def test_a_label_map_is_not_overwritten_by_the_list_of_errors(bucket: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text(FORMS["names.txt"])
    options = ("--labels", f"cls={names}", "--errors", names, "--on-error", "skip")
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", *options)
    assert (done.returncode, "the conversion itself reads or writes" in done.stderr) == (2, True)
    assert names.read_text() == FORMS["names.txt"]


KINDS = "a label map has no number for a value of type"
MISSING = "the label map has no number for"
ADD = "add it to the map, or skip such samples with --on-error skip"
LEAVE = "it is one of the numbers of the map, not one of its texts; leave out --labels if it is meant so"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\xff\xfe", "it is not UTF-8 text, so it is in no label map"),
        (None, f"{KINDS} NoneType"),
        ({"a": 1}, f"{KINDS} dict"),
        (["a", None], f"{KINDS} NoneType"),
        (np.array([1j]), f"{KINDS} complex"),
        (b"c", f"{MISSING} 'c'; {ADD}"),
        ("1", f"{MISSING} '1'; {ADD}"),
        (b"1", f"{MISSING} '1'; {ADD}"),
        (1, f"{MISSING} '1'; {LEAVE}"),
        (1.0, f"{MISSING} '1.0'; {LEAVE}"),
        (np.int64(1), f"{MISSING} '1'; {LEAVE}"),
        (np.array([7, 1]), f"{MISSING} '1'; {LEAVE}"),
        (2, f"{MISSING} '2'; {ADD}"),
    ],
    ids=repr,
)
def test_what_is_no_text_of_a_label_map_is_named(value: Any, says: str) -> None:
    with pytest.raises(SampleError) as caught:
        LabelMap({"a": 0, "b": 1, "7": 5}).numbers(value)
    assert caught.value.sentence == says
    if says.startswith(MISSING):
        with pytest.raises(SampleError, match=r"^the label map names[.]txt has no number for "):
            LabelMap({"a": 0, "b": 1, "7": 5}, "names.txt").numbers(value)


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("a", 0),
        (" b\n", 1),
        (b"\xef\xbb\xbfb ", 1),
        (7, 5),
        (np.int16(7), 5),
        (np.array(7), 5),
        (np.array("b"), 1),
        (["a", [b"b", 7]], [0, [1, 5]]),
        (("a",), [0]),
        (np.array([["a", "b"]]), [[0, 1]]),
        ([], []),
    ],
    ids=repr,
)
def test_texts_and_numbers_have_the_numbers_of_their_map(value: Any, numbers: Any) -> None:
    assert LabelMap({"a": 0, "b": 1, "7": 5}).numbers(value) == numbers


def test_texts_of_a_label_may_be_a_list() -> None:
    assert parse_labels(FORMS["labels.json"])["dog"].text == "a, b"


def test_a_column_of_numbers_is_the_number_only_if_every_line_has_one(tmp_path: Path) -> None:
    (tmp_path / "map.tsv").write_text("a\t5\nb\tsix\nc\tseven\n")
    assert {name: tuple(label) for name, label in load_labels(tmp_path / "map.tsv").items()} == {
        "a": (0, "5"),
        "b": (1, "six"),
        "c": (2, "seven"),
    }


def test_the_option_of_an_image_folder_is_the_same(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", "--labels", "names.txt")
    assert (done.returncode, "NAME=FILE" in done.stderr) == (2, True)
    twice = ("--from", "imagefolder", "--labels", "a.txt", "--labels", "b.txt")
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", *twice)
    assert (done.returncode, "a.txt and b.txt" in done.stderr) == (2, True)


# --- All texts of the inputs ---


def test_auto_numbers_all_texts_in_sorted_order(tmp_path: Path) -> None:
    bucket = bucket_of(tmp_path / "in", ["pear", "fig", "apple", "pear", "kiwi", "fig"], shards=3)
    out = tmp_path / "out.record"
    command = ("convert", bucket, "-o", out, "--select", "label=cls", "--labels", "label=auto")
    done = tar2tf(*command, "-j", "2")
    assert (done.returncode, "label: 4 classes: apple, fig, kiwi, …" in done.stderr) == (0, True)
    assert [found["label"][0] for found in examples(out)] == [3, 3, 1, 2, 0, 1]
    manifest = json.loads((tmp_path / "_out-manifest.json").read_text())
    assert manifest["labels"] == {"label": {"apple": 0, "fig": 1, "kiwi": 2, "pear": 3}}
    assert manifest["spec"]["labels"] == {"label": "auto"}
    assert "up to date" in tar2tf(*command).stderr
    assert tar2tf("verify", tmp_path / "_out-manifest.json").returncode == 0
    assert tar2tf("verify", tmp_path / "_out-manifest.json", "--against", bucket).returncode == 0
    same = tar2tf("convert", bucket, "-o", tmp_path / "one.record", *command[4:], "-j", "1")
    assert same.returncode == 0
    assert (tmp_path / "one.record").read_bytes() == out.read_bytes()
    data = load_dataset(tmp_path / "_out-manifest.json")
    assert [int(item["label"]) for item in data] == [3, 3, 1, 2, 0, 1]


def test_auto_numbers_whole_numbers_by_value_and_lists_item_by_item(tmp_path: Path) -> None:
    assert labelled(bucket_of(tmp_path / "in", ["10", "9", "-1"]), "label=auto") == [[2], [1], [0]]
    bucket = bucket_of(tmp_path / "b", ["x", "a b", "x"])
    assert labelled(bucket, {"label": "auto"}, select="label=json:a") == [[1], [0], [1]]


def test_auto_finds_the_texts_that_ops_make(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "0.tar", [(f"{n}", {"text": b"ab"[n : n + 1], "jpg": JPEG}) for n in range(2)])
    ops = ["rename:cls=text", "decode:jpg", "resize:jpg,4x4"]
    assert labelled(tmp_path / "in", "label=auto", ops=ops, select="label=cls,image=jpg") == [[0], [1]]


def test_auto_finds_texts_in_arrays_that_ops_decode(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, kind=np.array([7, 3]))
    write_tar(tmp_path / "in" / "0.tar", [("0", {"npz": file.getvalue(), "jpg": JPEG})])
    found = labelled(tmp_path / "in", "label=auto", ops=["decode:npz", "decode:jpg"], select="label=npz/kind,jpg")
    assert found == [[1, 0]]


def test_an_input_that_was_added_may_change_every_number(tmp_path: Path) -> None:
    bucket = bucket_of(tmp_path / "in", ["b", "c"])
    command = ("convert", bucket, "-o", tmp_path / "out" / "<>.record", "--labels", "cls=auto")
    assert tar2tf(*command).returncode == 0
    write_tar(bucket / "1.tar", [("9", {"cls": b"a", "json": b"{}"})])
    updated = tar2tf(*command, "--update")
    assert (updated.returncode, "--labels auto" in updated.stderr) == (0, True)
    fresh = tar2tf("convert", bucket, "-o", tmp_path / "fresh" / "<>.record", "--labels", "cls=auto")
    assert fresh.returncode == 0
    assert (tmp_path / "fresh" / "1.record").read_bytes() == (tmp_path / "out" / "1.record").read_bytes()


def test_members_that_are_not_adjacent_are_put_together_before_texts_are_found(tmp_path: Path) -> None:
    members = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"x"), ("b.cls", b"y")]
    write_members(tmp_path / "in" / "0.tar", members)
    out = tmp_path / "out.record"
    assert tar2tf("convert", tmp_path / "in", "-o", out, "--labels", "cls=auto").returncode == 0
    assert [found["cls"] for found in examples(out)] == [[0], [1]]


def test_faulty_samples_fail_in_the_first_pass_or_are_skipped_in_the_second(tmp_path: Path) -> None:
    samples = [("0", {"cls": b"x"}), ("1", {"txt": b"no class"}), ("2", {"cls": b"\xff"}), ("3", {"cls": b"y"})]
    write_tar(tmp_path / "in" / "0.tar", samples)
    command = (
        "convert",
        tmp_path / "in",
        "-o",
        tmp_path / "out.record",
        "--select",
        "label=cls",
        "--labels",
        "label=auto",
    )
    failed = tar2tf(*command)
    assert (failed.returncode, "sample 1" in failed.stderr, "has no entry 'cls'" in failed.stderr) == (3, True, True)
    skipped = tar2tf(*command, "--on-error", "skip")
    assert (skipped.returncode, "2 samples skipped" in skipped.stderr) == (1, True)
    assert [found["label"] for found in examples(tmp_path / "out.record")] == [[0], [1]]


def test_auto_needs_a_feature_that_is_there_and_inputs_that_can_be_read_twice(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", "--labels", "clss=auto")
    assert (done.returncode, "which no sample of this input has" in done.stderr) == (2, True)
    tar = (bucket / "0.tar").read_bytes()
    done = tar2tf("convert", "-", "-o", tmp_path / "x.record", "--labels", "cls=auto", input=tar)
    assert (done.returncode, "can be read only once" in done.stderr) == (2, True)
    assert not (tmp_path / "x.record").exists()


def test_a_dry_run_shows_the_feature_without_reading_everything(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", "--labels", "cls=auto", "--dry-run")
    assert (done.returncode, "cls" in done.stdout, "int64 []" in done.stdout) == (0, True, True)


def test_a_run_that_continues_does_not_look_for_the_texts_again(tmp_path: Path, monkeypatch: Any) -> None:
    bucket = bucket_of(tmp_path / "in", ["b", "a", "c", "a"], shards=2)
    spec = Conversion(Input(bucket), Output(tmp_path / "out" / "<>.record", records_per_shard=1), labels="cls=auto")

    class Stop(Events):
        def shard(self, path: str, records: int, size: int) -> None:
            raise KeyboardInterrupt

    class Passes(Events):
        def __init__(self) -> None:
            self.planned_sizes: list[int | None] = []

        def planned(self, inputs: int, size: int | None, done: int = 0) -> None:
            self.planned_sizes.append(size)

    with pytest.raises(KeyboardInterrupt):
        convert(spec, workers=1, events=Stop())
    passes = Passes()
    convert(spec, workers=1, events=passes)
    assert len(passes.planned_sizes) == 1
    assert [examples(tmp_path / "out" / f"{n}.record")[0]["cls"] for n in (1, 2, 3, 4)] == [[1], [2], [0], [0]]
