"""The type of a feature that does not exist: wrong usage if no sample has it, a faulty sample if others have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from shards import records, write_tar
from tar2tf_cli import Conversion, Input, Output, Pipeline
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import Resize, parse_op
from tar2tf_cli.spec import yaml_file
from tar2tf_cli.spec.yaml_file import build

WITH, WITHOUT = {"jpg": b"x", "cls": b"1"}, {"jpg": b"x"}


def shard(path: Path, *entries: dict[str, bytes]) -> Path:
    return write_tar(path, [(f"{number:04d}", entry) for number, entry in enumerate(entries)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "image-label", "--type", "cls=int64"], "depth, height, image_raw, label, width"),
        (
            ["--select", "image=jpg,label=cls", "--type", "lable=int64"],
            "did you mean 'label'?\n  features: image, label",
        ),
        (["--select", "a=jpg", "--preset", "webdataset", "--type", "b=int64"], "features: __key__, a"),
    ],
)
def test_it_is_refused_before_anything_is_read_if_select_or_preset_fix_the_names(
    options: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "no.tar").write_bytes(b"never read")
    done = tar2tf("convert", tmp_path / "no.tar", "-o", tmp_path / "x", *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "which does not exist" in done.stderr


@pytest.mark.parametrize("policy", [[], ["--on-error", "skip"], ["--on-error", "skip", "--max-errors", "1"]])
@pytest.mark.parametrize("limit", [[], ["--op", "keep:jpg,cls", "--shuffle"], ["--limit", "1"]])
def test_it_is_wrong_usage_if_no_sample_of_the_first_input_has_it(
    policy: list[str], limit: list[str], tmp_path: Path
) -> None:
    shard(tmp_path / "in" / "a.tar", WITH, WITHOUT, WITH)
    shard(tmp_path / "in" / "b.tar", WITH)
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x", "--type", "clss=int64", *policy, *limit)
    assert done.returncode == 2
    assert f"{tmp_path}/in/a.tar: --type names the feature 'clss', which no sample of this input has" in done.stderr
    assert "did you mean 'cls'?\n  features: __key__, cls, jpg\n" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("name", "code"), [("clss", 2), ("cls", 3)])
def test_a_dry_run_knows_too(name: str, code: int, tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", WITHOUT, WITH)
    for policy in ("fail", "skip"):
        options = ["--dry-run", "--type", f"{name}=int64", "--on-error", policy]
        done = tar2tf("convert", path, "-o", tmp_path / "x", *options)
        assert done.returncode == code
        assert f"{'which no sample of this input has' if code == 2 else 'sample 0000'}" in done.stderr


def test_standard_input_is_read_to_its_end_to_know(tmp_path: Path) -> None:
    data = shard(tmp_path / "a.tar", WITHOUT, WITH).read_bytes()
    done = tar2tf("convert", "-", "-o", "-", "--type", "label=int64", input=data)
    assert done.returncode == 2
    assert "features: __key__, cls, jpg" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("order", [(WITH, WITHOUT, WITH), (WITHOUT, WITH), (WITHOUT, WITHOUT, WITH)])
def test_a_sample_that_lacks_what_others_have_is_faulty(order: tuple[dict[str, bytes], ...], tmp_path: Path) -> None:
    command = ["convert", shard(tmp_path / "a.tar", *order), "-o", tmp_path / "x", "--type", "cls=int64"]
    done = tar2tf(*command)
    assert done.returncode == 3
    first = order.index(WITHOUT)
    assert f"sample {first:04d}, offset {first * 2048}: has no feature 'cls'" in done.stderr
    assert tar2tf(*command, "--on-error", "skip", "--max-errors", "0").returncode == 3
    assert tar2tf(*command, "--on-error", "skip").returncode == 1
    assert len(records(tmp_path / "x")) == order.count(WITH)


def test_a_later_input_without_it_is_faulty_sample_by_sample(tmp_path: Path) -> None:
    shard(tmp_path / "in" / "a.tar", WITH)
    shard(tmp_path / "in" / "b.tar", WITHOUT)
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x", "--type", "cls=int64", "-j", "1")
    assert done.returncode == 3
    assert "b.tar, sample 0000, offset 0: has no feature 'cls', which --type requires, only __key__, jpg" in done.stderr


def test_two_types_of_which_each_is_in_one_sample_are_faulty_samples(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"a": b"1"}, {"b": b"1"}, {"a": b"1", "b": b"2"})
    done = tar2tf("convert", path, "-o", tmp_path / "x", "--type", "a=int64", "--type", "b=int64")
    assert done.returncode == 3
    assert "sample 0000" in done.stderr


@pytest.mark.parametrize("policy", [[], ["--on-error", "skip"]])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--op", "decode:jpeg"], "--op decode names the entry 'jpeg'"),
        (["--op", "resize:jepg,4x4"], "--op resize names the entry 'jepg'"),
        (["--select", "image=jpgg"], "--select names the entry 'jpgg'"),
        (["--drop-duplicates", "jgp"], "--drop-duplicates names the entry 'jgp'"),
    ],
)
def test_an_entry_that_no_sample_has_is_wrong_usage(
    options: list[str], words: str, policy: list[str], tmp_path: Path
) -> None:
    shard(tmp_path / "in" / "a.tar", WITH, WITHOUT)
    shard(tmp_path / "in" / "b.tar", WITH)
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x", *options, *policy)
    assert done.returncode == 2
    what = "which no sample of this input has; did you mean 'jpg'?\n  entries: cls, jpg\n"
    assert f"{tmp_path}/in/a.tar: {words}, {what}" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("order", [(WITH, WITHOUT), (WITHOUT, WITH)])
def test_a_sample_that_lacks_an_entry_that_others_have_is_faulty(
    order: tuple[dict[str, bytes], ...], tmp_path: Path
) -> None:
    command = ["convert", shard(tmp_path / "a.tar", *order), "-o", tmp_path / "x", "--select", "label=cls"]
    done = tar2tf(*command)
    assert done.returncode == 3
    assert f"sample {order.index(WITHOUT):04d}, offset {order.index(WITHOUT) * 2048}: has no entry 'cls'" in done.stderr
    assert tar2tf(*command, "--on-error", "skip").returncode == 1
    assert len(records(tmp_path / "x")) == 1


def test_a_dry_run_knows_an_entry_that_no_sample_has(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", WITH)
    done = tar2tf("convert", path, "-o", tmp_path / "x", "--dry-run", "--op", "decode:jpeg")
    assert done.returncode == 2
    assert "did you mean 'jpg'?" in done.stderr


def refusal(make: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        make(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"preset": "image-label", "types": {"cls": "int64"}},
        {"select": {"image": "jpg"}, "types": {"label": "int64"}},
        {"image_size": 4},
        {"image_size": 4, "preset": "imagenet"},
        {"image_size": 4, "preset": "webdataset"},
        {"max_pixels": 4, "preset": "image-label"},
        {"max_pixels": 4, "preset": "webdataset"},
        {"ops": [{"resize": {"ext": "jpg", "size": [64]}}]},
    ],
    ids=str,
)
def test_flags_yaml_and_python_refuse_it_with_the_same_words(fields: dict[str, Any], tmp_path: Path) -> None:
    import json

    words = refusal(Conversion, Input("in"), Output("x"), **fields)
    document = {"input": {"bucket": "in"}, "output": {"path": "x"}, **fields}
    assert refusal(build, document) == words
    (tmp_path / "x.yaml").write_text(json.dumps(document))
    assert words.partition(";")[0] in refusal(yaml_file.read, str(tmp_path / "x.yaml"))
    done = tar2tf("convert", "--spec", tmp_path / "x.yaml")
    assert done.returncode == 2
    assert words.partition(";")[0] in done.stderr


def test_a_pipeline_refuses_it_too() -> None:
    words = refusal(Conversion, Input("in"), Output("x"), preset="image-label", types={"cls": "int64"})
    with pytest.raises(UsageError) as caught:
        Pipeline().from_tar("in.tar").sample_to_tf_example({"cls": "int64"}, preset="image-label")
    assert str(caught.value) == words


def test_a_function_that_makes_examples_does_not_silently_replace_a_preset() -> None:
    with pytest.raises(UsageError, match="record_to_example and preset both make the features"):
        Conversion(Input("in"), Output("x"), preset="image-label", record_to_example=dict)


@pytest.mark.parametrize("size", [[64], (64,), [1, 2, 3], 64.5, True, "64x", [0, 5]])
def test_the_python_op_refuses_a_size_with_the_words_of_yaml(size: Any) -> None:
    words = refusal(parse_op, {"resize": {"ext": "jpg", "size": size}})
    with pytest.raises(ValueError, match="must be HEIGHTxWIDTH in pixels") as caught:
        Resize("jpg", size)
    assert f"resize {caught.value}" in words


def test_an_image_size_goes_with_the_preset_that_uses_it() -> None:
    assert Conversion(Input("in"), Output("x"), preset="imagenet-tensor", image_size=4).image_size == 4
    assert Conversion(Input("in"), Output("x"), preset="imagenet", max_pixels=4).max_pixels == 4
    assert Conversion(Input("in"), Output("x"), preset="webdataset", ops=["decode:jpg"], max_pixels=4).max_pixels == 4
