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
from tar2tf_cli.features.feature_map import TYPES
from tar2tf_cli.features.labels import LabelMap
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


NO_PAIR = "is not ENTRY=COLUMN, ENTRY=COLUMN:TYPE or ENTRY=COLUMN:SUFFIX, such as image=path:jpg"
NO_TYPE = f"is not NAME=TYPE, where TYPE is one of {', '.join(TYPES)}"
NO_LABELS = "is not NAME=FILE, NAME=auto or NAME=imagenet"
NO_FRACTIONS = "is not NAME=FRACTION, such as train=0.9,val=0.1"
ODD_FRACTIONS = "needs plain names, and fractions greater than 0 and at most 1"
NO_ROWS = "rows must be a first row and an exclusive end, not"
NO_FRACTION = "sample must be a fraction greater than 0 and at most 1, such as 0.1, not"
NO_SIZE = "is not a size; write 100MB, 1GiB or a number of bytes above 0"
KINDS_OF_CELLS = (
    "'int64', 'int64_list', 'float', 'float_list', 'bytes', 'bytes_list', 'file', 'bmp', 'gif', 'jfif', 'jpe', 'jpeg', "
    "'jpg', 'pgm', 'png', 'ppm', 'tif', 'tiff', 'webp', 'flac', 'm4a', 'mp3', 'ogg', 'opus', 'wav', 'avi', 'mkv', "
    "'mov', 'mp4', 'webm', 'bin', 'csv', 'html', 'json', 'npy', 'npz', 'pdf', 'pt', 'txt' or 'xml'"
)


def given(name: str, value: Any) -> Any:
    """What a conversion stores for one option."""
    if name in ("max_shard_size", "num_shards"):
        return getattr(Output("x", **{name: value}), name)
    if name in ("example_args", "rows", "example_class"):
        return getattr(Input("in", **{"kind": "examples", "example_class": "m.py:C", name: value}), name)
    if name in ("columns", "join", "template"):
        return getattr(Input("in", **{"kind": "table" if name == "columns" else "tar", name: value}), name)
    needs: dict[str, Any] = {"boxes": {"ops": ["decode:jpg"]}, "split_by": {"split": "a=1"}}.get(name, {})
    return getattr(Conversion("in", "<split>" if name.startswith("split") else "x", **{**needs, name: value}), name)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("split", 5, f"split 5 {NO_FRACTIONS}"),
        ("split", [5], f"split [5] {NO_FRACTIONS}"),
        ("split", "", f"split '' {NO_FRACTIONS}"),
        ("split", "=1", f"split '=1' {NO_FRACTIONS}"),
        ("split", "a=0.5,b=nan", f"split 'a=0.5,b=nan' {NO_FRACTIONS}"),
        ("split", {"": 1}, f"split '=1' {ODD_FRACTIONS}"),
        ("split", "a/b=1", f"split 'a/b=1' {ODD_FRACTIONS}"),
        ("split", "a=0,b=1", f"split 'a=0,b=1' {ODD_FRACTIONS}"),
        ("split", "a=1.5", f"split 'a=1.5' {ODD_FRACTIONS}"),
        ("split", "a=0.999", "the fractions of split 'a=0.999' sum to 0.999, not to 1"),
        ("split", "a=0.7,b=0.301", "the fractions of split 'a=0.7,b=0.301' sum to 1.001, not to 1"),
        ("num_shards", "a=0", "num_shards a must be 1 or more, not 0"),
        ("num_shards", "a=1000001", "num_shards a must be 1,000,000 or less, not 1000001"),
        ("num_shards", "a=x", "num_shards a must be a whole number, not 'x'"),
        ("num_shards", "=3", "num_shards '=3' is not NAME=N, such as train=100,val=4"),
        ("num_shards", ["a=1"], "num_shards must be a whole number, not ['a=1']"),
        ("max_shard_size", 0, f"max_shard_size: 0 {NO_SIZE}"),
        ("max_shard_size", "0.5", f"max_shard_size: '0.5' {NO_SIZE}"),
        ("max_shard_size", b"5", f"max_shard_size: b'5' {NO_SIZE}"),
        ("columns", 5, f"columns 5 {NO_PAIR}"),
        ("columns", "a", f"columns 'a' {NO_PAIR}"),
        ("columns", "a=:jpg", "columns a=:jpg names no column"),
        ("columns", "a=", "the column of 'a' must be text or a path, not ''"),
        ("columns", {"a": 5}, "the column of 'a' must be text or a path, not 5"),
        ("columns", "a=b:zz", f"the kind of the column 'b' must be {KINDS_OF_CELLS}, not 'zz'"),
        (
            "columns",
            "a=b:c:jgp",
            f"the kind of the column 'b:c' must be {KINDS_OF_CELLS}, not 'jgp'; did you mean 'jpg'?",
        ),
        ("example_args", 5, "example_args must be text or a list of texts, not 5"),
        ("example_args", "a", "example_args 'a' is not NAME=VALUE, such as normalize=true"),
        ("example_args", "1a=1", "example_args '1a=1' is not NAME=VALUE, such as normalize=true"),
        ("example_args", ["a=1", "=1"], "example_args '=1' is not NAME=VALUE, such as normalize=true"),
        ("example_class", 5, "example_class must be text or a path, not 5"),
        ("rows", (1,), f"{NO_ROWS} (1,)"),
        ("rows", (1, 2, 3), f"{NO_ROWS} (1, 2, 3)"),
        ("rows", (3, 2), f"{NO_ROWS} (3, 2)"),
        ("rows", "ab", f"{NO_ROWS} 'ab'"),
        ("rows", ("a", 1), "rows must be a whole number, not 'a'"),
        ("rows", (-1, 2), "rows must be 0 or more, not -1"),
        ("labels", 5, "labels must be text or a list of texts, not 5"),
        ("labels", "x", f"labels 'x' {NO_LABELS}"),
        ("labels", ["a=auto", "x="], f"labels 'x=' {NO_LABELS}"),
        ("labels", "=x", f"labels '=x' {NO_LABELS}"),
        ("labels", {"a": {}}, "labels of 'a' must be text or a path, not {}"),
        ("labels", {"a": 5}, "labels of 'a' must be text or a path, not 5"),
        ("labels", {"a": {"cat": "x"}}, "the label of the class 'cat' is 'x', not a whole number"),
        ("limit", 2**63, "limit must be 9,223,372,036,854,775,807 or less, not 9223372036854775808"),
        ("drop_duplicates", "", "drop_duplicates must be text or a path, not ''"),
        ("sample", 0, f"{NO_FRACTION} 0"),
        ("sample", 1.1, f"{NO_FRACTION} 1.1"),
        ("sample", True, f"{NO_FRACTION} True"),
        ("sample", float("nan"), f"{NO_FRACTION} nan"),
        ("sample", "x", f"{NO_FRACTION} 'x'"),
        ("join", ["a", 5], "join must be text or a path, not 5"),
        ("types", 5, f"types 5 {NO_TYPE}"),
        ("types", "=int64", f"types '=int64' {NO_TYPE}"),
        ("split_by", "*", "split_by '*' selects several values; it takes one, such as json:id"),
        ("split_by", "json:a.*", "split_by 'json:a.*' selects several values; it takes one, such as json:id"),
        ("record_to_example", 5, "record_to_example must be a function, not 5"),
    ],
)
def test_a_value_that_is_refused_is_named_with_what_is_accepted(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(name, value)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("split", ["a=0.5", "b=0.5"], {"a": 0.5, "b": 0.5}),
        ("split", "a=1,", {"a": 1.0}),
        ("split", "a=0.9999995", {"a": 0.9999995}),
        ("split", {}, {}),
        ("num_shards", 1, 1),
        ("num_shards", "1000000", 1_000_000),
        ("max_shard_size", 1, 1),
        ("max_shard_size", 5.5, 5),
        ("max_shard_size", "10b", 10),
        ("max_shard_size", "100 bytes", 100),
        ("max_shard_size", "100 kilobytes", 100_000),
        ("max_shard_size", "3 TiB", 3 * 2**40),
        ("max_shard_size", "1gib", 2**30),
        ("columns", "a=b:int64,c=d:flac", {"a": "b:int64", "c": "d:flac"}),
        ("columns", ["a=b:", "c=d"], {"a": "b:", "c": "d"}),
        ("columns", "a=b=c", {"a": "b=c"}),
        ("example_args", ["a=1", "b=true", "c=x", "d="], {"a": 1, "b": True, "c": "x", "d": ""}),
        ("example_args", "a=b=c", {"a": "b=c"}),
        ("example_args", 'a=[1, {"b": null}]', {"a": [1, {"b": None}]}),
        ("example_args", f"a={'[' * 20_000}", {"a": "[" * 20_000}),
        ("example_args", {1: 2}, {"1": 2}),
        ("example_class", int, int),
        ("rows", [0, 5], (0, 5)),
        ("rows", (3, 3), (3, 3)),
        ("labels", ["a=auto", "b=auto"], {"a": "auto", "b": "auto"}),
        ("labels", {"a": {"cat": 1}}, {"a": {"cat": 1}}),
        ("labels", {"a": LabelMap({"cat": 1})}, {"a": {"cat": 1}}),
        ("limit", -1, None),
        ("limit", 0, 0),
        ("limit", 2**63 - 1, 2**63 - 1),
        ("drop_duplicates", True, "*"),
        ("drop_duplicates", False, None),
        ("drop_duplicates", "jpg", "jpg"),
        ("sample", 1, 1.0),
        ("sample", "0.5", 0.5),
        ("types", ["a=int64", "b=float"], {"a": "int64", "b": "float"}),
        ("join", "a", ("a",)),
        ("join", ["a", Path("b")], ("a", "b")),
        ("template", ["a", "b"], ("a", "b")),
        ("split_by", "json:a", "json:a"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_value_is_stored_in_one_form(name: str, value: Any, stored: Any) -> None:
    found = given(name, value)
    assert (found, type(found)) == (stored, type(stored))


def test_declarations_are_text_a_mapping_or_a_list_and_each_of_their_faults_is_named() -> None:
    one = given("boxes", "json:b,format=xyxy")
    assert one == given("boxes", {"at": "json:b", "format": "xyxy"}) == given("boxes", [*one])
    assert given("boxes", []) == ()
    with pytest.raises(UsageError) as caught:
        given("boxes", ["json:b,frmat=x", "json:c", {"at": "json:d", "format": "q"}])
    assert list(caught.value.problems) == [
        ((0, "frmat"), "boxes has no field 'frmat'; did you mean 'format'?"),
        ((2,), "boxes format must be 'xywh', 'xyxy', 'cxcywh' or 'yxyx', not 'q'"),
    ]


def test_a_field_without_a_default_has_no_value_on_the_class() -> None:
    with pytest.raises(AttributeError, match=r"^bucket$"):
        _ = Input.bucket
    assert Input.key_split == "first"
