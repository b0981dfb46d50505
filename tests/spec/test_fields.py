"""What the fields of a spec take and refuse: the same, in the same words, in Python, in spec files and as flags."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from tar2tf_cli import Conversion, Input, Output
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import Decode, Resize, Select, SelectDict
from tar2tf_cli.spec import yaml_file

WHERE = {"input": {"bucket": "in"}, "output": {"path": "x-<split>"}, "split": {"a": 0.5, "b": 0.5}}


def made(section: str, name: str, value: Any) -> Conversion:
    """A conversion with one field given from Python."""
    given: dict[str, dict[str, Any]] = {"input": {"bucket": "in"}, "output": {"path": "x-<split>"}, "": {}}
    given[""]["split"] = WHERE["split"]
    given[section][name] = value
    return Conversion(Input(**given["input"]), Output(**given["output"]), **given[""])


KINDS = "'tar', 'tfrecord', 'table', 'imagefolder' or 'examples'"

REFUSED = [
    ("input", "key_split", "frist", "must be 'first' or 'last', not 'frist'; did you mean 'first'?"),
    ("output", "compression", "gz", "must be 'none', 'gzip' or 'zstd', not 'gz'; did you mean 'gzip'?"),
    ("input", "from", "tra", f"must be {KINDS}, not 'tra'; did you mean 'tar'?"),
    ("output", "max_shard_size", "100zz", ": '100zz' is not a size; write 100MB, 1GiB or a number of bytes above 0"),
    ("output", "num_shards", "many", "must be a whole number, not 'many'"),
    ("output", "num_shards", "0", "must be 1 or more, not 0"),
    ("output", "num_shards", "2000000", "must be 1,000,000 or less, not 2000000"),
    ("output", "records_per_shard", "1.5", "must be a whole number, not '1.5'"),
    ("", "on_error", "ignore", "must be 'fail' or 'skip', not 'ignore'"),
    ("", "max_pixels", "0", "must be 1 or more, not 0"),
    ("", "image_size", "big", "must be a whole number, not 'big'"),
    ("", "limit", "-2", "must be -1 or more, not -2"),
    ("", "seed", "now", "must be a whole number, not 'now'"),
    ("", "split", "a=0.5,b=x", "'a=0.5,b=x' is not NAME=FRACTION, such as train=0.9,val=0.1"),
    ("", "split", "a=0.5,b=0.6", "sum to 1.1, not to 1"),
    ("", "preset", "imagent", "there is no preset 'imagent'; did you mean 'imagenet'?"),
    ("", "types", "cls", "'cls' is not NAME=TYPE, where TYPE is one of int64, int64_list, float"),
    ("", "types", "cls=int", "'float_list', 'bytes' or 'bytes_list', not 'int'; did you mean 'int64'?"),
    ("", "select", "jpg,jpg", "select names the feature 'jpg' twice; write NAME=ENTRY for one of them"),
    ("", "select", "=jpg", "select '=jpg' has an empty feature name; write NAME=ENTRY"),
]
FLAGS = {"types": "--type"}


@pytest.mark.parametrize(("section", "name", "value", "words"), REFUSED)
def test_python_spec_files_and_flags_refuse_in_the_same_words(
    section: str, name: str, value: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as by_python:
        made(section, "kind" if name == "from" else name, value)
    assert words in by_python.value.message
    document = json.loads(json.dumps(WHERE))
    (document[section] if section else document)[name] = value
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as by_file:
        yaml_file.read(str(path))
    assert words in by_file.value.message
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    by_flag = tar2tf("convert", "in", "-o", "x", f"{flag}={value}", cwd=tmp_path)
    assert by_flag.returncode == 2
    assert words in by_flag.stderr
    assert by_flag.stderr.startswith("error: ")
    if words.startswith("must"):
        assert f"error: {flag} {words}" in by_flag.stderr
        assert by_python.value.message.endswith(words)


@pytest.mark.parametrize(
    ("section", "name", "value", "words"),
    [
        ("input", "bucket", 5, "bucket must be text or a path, not 5"),
        ("input", "bucket", "", "bucket must be text or a path, not ''"),
        ("input", "template", 5, "template must be text or a list of texts, not 5"),
        ("input", "template", ["a.tar", 5], "template must be"),
        ("input", "regroup", "yes", "regroup must be true or false, not 'yes'"),
        ("input", "rows", (3, 1), "rows must be a first row and an exclusive end"),
        ("input", "example_class", 5, "example_class must be text"),
        ("output", "index", None, "index must be true or false, not None"),
        ("output", "num_shards", True, "num_shards must be a whole number, not True"),
        ("output", "max_shard_size", -5, "-5 is not a size"),
        ("output", "max_shard_size", True, "True is not a size"),
        ("", "input", 5, "bucket must be text or a path, not 5"),
        ("", "ops", "decode:jpg", "ops must be a list of ops, such as"),
        ("", "ops", ["decod:jpg", "resize:jpg,big"], "did you mean 'decode'"),
        ("", "ops", ["decod:jpg", "resize:jpg,big"], "size must be HEIGHTxWIDTH"),
        ("", "ops", [5], "an op is a name, or one name with its fields, not 5"),
        ("", "select", 5, "select must name entries"),
        ("", "select", [], "select must name entries"),
        ("", "types", {"a": "int", "b": "flot"}, "'b' must be"),
        ("", "record_to_example", "f", "record_to_example must be a function, not 'f'"),
        ("", "limit", 1.5, "limit must be a whole number, not 1.5"),
    ],
)
def test_values_of_a_wrong_kind_are_refused_from_python(section: str, name: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(section, name, value) if name != "input" else Conversion(value, Output("x"))
    assert words in str(caught.value)


def test_what_flags_and_spec_files_take_works_from_python() -> None:
    conversion = Conversion(
        Input(Path("shards"), "train-{0..3}.tar"),
        Output(Path("out/train-<>.record"), "100MB", records_per_shard="5"),  # type: ignore[arg-type]
        ops=["decode:jpg", {"resize": {"ext": "jpg", "size": [4, 5]}}, {"decode": "png"}],
        select=["jpg", "label=json:a.0"],
        types="label=int64,jpg=bytes",
    )
    assert conversion == Conversion(
        Input("shards", ("train-{0..3}.tar",)),
        Output("out/train-<>.record", 100_000_000, records_per_shard=5),
        ops=(Decode("jpg"), Resize("jpg", (4, 5)), Decode("png")),
        select=conversion.select,
        types={"label": "int64", "jpg": "bytes"},
    )
    assert conversion.canonical()["select"] == {"jpg": "jpg", "label": "json:a.0"}
    assert Conversion("in", Path("x.record")) == Conversion(Input("in"), Output("x.record"))


@pytest.mark.parametrize(
    ("select", "canonical"),
    [
        ("jpg,cls", {"jpg": "jpg", "cls": "cls"}),
        (["jpg", "label=cls"], {"jpg": "jpg", "label": "cls"}),
        ([Select("jpg")], {"jpg": "jpg"}),
        ({"a": ["jpg", "cls"], "b": SelectDict(c="cls")}, {"a": ["jpg", "cls"], "b": {"c": "cls"}}),
        (None, None),
    ],
)
def test_select_is_text_a_list_or_a_mapping(select: Any, canonical: Any) -> None:
    assert Conversion("in", "x", select=select).canonical().get("select") == canonical


def test_a_spec_survives_pickling_and_replacing() -> None:
    conversion = made("", "types", {"a": "int64"})
    assert pickle.loads(pickle.dumps(conversion)) == conversion == replace(conversion)
    assert replace(conversion, limit=3).limit == 3
    with pytest.raises(UsageError, match="limit must be"):
        replace(conversion, limit=-3)
    with pytest.raises(AttributeError):
        conversion.limit = 4  # type: ignore[misc]


def test_every_problem_of_a_value_is_named_with_its_place() -> None:
    with pytest.raises(UsageError) as caught:
        Conversion("in", "x", types={"a": "int", "b": "int64", "c": 5})  # type: ignore[dict-item]
    assert [place for place, _ in caught.value.problems] == [("a",), ("c",)]


def test_a_list_of_fractions_is_answered_with_their_form() -> None:
    with pytest.raises(UsageError, match=r"\[0\.8, 0\.2\] is not NAME=FRACTION, such as train=0\.9,val=0\.1"):
        Conversion("in", "<split>-<>.record", split=[0.8, 0.2])  # type: ignore[arg-type]
