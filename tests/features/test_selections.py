"""Selections and types: which entries become features, under which names, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from images import jpeg
from shards import examples, write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.feature_map import TYPES
from tar2tf_cli.ops import Select, SelectDict, SelectJSON, SelectList
from tar2tf_cli.ops.select import flatten, parse_select, to_selection
from tar2tf_cli.spec.conversion import Conversion, Input, Output

ABOUT = {
    "annotations": [{"label": 7, "box": [1, 2.5, 3]}, {"label": 8, "name": "cat"}],
    "size": {"width": 20, "deep": {"er": True}},
    "a.b": "dotted",
    "0": "zero",
    "none": None,
    "words": ["one", "two"],
    "empty": [],
    "mixed": [1, "x"],
    "score": 0.5,
    "ragged": [[1], [2, 3]],
    "boxes": [[1, 2, 3, 4], [5, 6, 7, 8.5]],
    "objects": {"box": [[1, 2], [3, 4], [5, 6]], "name": ["a", "b", "c"], "deep": {"id": [7, 8, 9]}},
}

NESTED = {"s": [1, 2, 3, 4], "s/shape": [2, 2], "cls": [b" 3\n"]}


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    entries = {"jpg": b"\xff\xd8image", "cls": b" 3\n", "json": json.dumps(ABOUT).encode(), "txt": "grün".encode()}
    write_tar(tmp_path / "in" / "a.tar", [("0001", entries)])
    return tmp_path / "in"


def chosen(bucket: Path, select: Any = None, types: Sequence[str] = (), **options: Any) -> dict[str, list[Any]]:
    """The features of the one sample."""
    selections = parse_select(select) if select is not None else None
    path = bucket.parent / "out" / "all.record"
    conversion = Conversion(Input(str(bucket)), Output(str(path)), select=selections, types=types, **options)
    convert(conversion, workers=1, overwrite=True)
    (found,) = examples(path)
    return found


@pytest.mark.parametrize(
    ("flags", "yaml", "features"),
    [
        (["jpg,cls"], ["jpg", "cls"], {"jpg": [b"\xff\xd8image"], "cls": [b" 3\n"]}),
        (["jpg", "cls"], "jpg,cls", {"jpg": [b"\xff\xd8image"], "cls": [b" 3\n"]}),
        (["image=jpg,label=cls"], {"image": "jpg", "label": "cls"}, {"image": [b"\xff\xd8image"], "label": [b" 3\n"]}),
        (["one=cls,two=cls"], {"one": "cls", "two": "cls"}, {"one": [b" 3\n"], "two": [b" 3\n"]}),
        (["__key__"], ["__key__"], {"__key__": [b"0001"]}),
        (["label=json:annotations.0.label"], {"label": "json:annotations.0.label"}, {"label": [7]}),
        (["n=json:annotations.1.name"], {"n": "json:annotations.1.name"}, {"n": [b"cat"]}),
        (["last=json:annotations.-1.label"], {"last": "json:annotations.-1.label"}, {"last": [8]}),
        (["box=json:annotations.0.box"], {"box": "json:annotations.0.box"}, {"box": [1.0, 2.5, 3.0]}),
        (["b=json:size.deep.er"], {"b": "json:size.deep.er"}, {"b": [1]}),
        (["s=json:score"], {"s": "json:score"}, {"s": [0.5]}),
        (["w=json:words"], {"w": "json:words"}, {"w": [b"one", b"two"]}),
        (["z=json:0"], {"z": "json:0"}, {"z": [b"zero"]}),
        (["json:score"], ["json:score"], {"json": [0.5]}),
        (["l=json:annotations.*.label"], {"l": "json:annotations.*.label"}, {"l": [7, 8]}),
        (["n=json:annotations.*.name=none"], {"n": "json:annotations.*.name=none"}, {"n": [b"none", b"cat"]}),
        (["b=json:boxes"], {"b": "json:boxes"}, {"b": [1, 2, 3, 4, 5, 6, 7, 8.5], "b/shape": [2, 4]}),
        (["b=json:objects.box"], {"b": "json:objects.box"}, {"b": [1, 2, 3, 4, 5, 6], "b/shape": [3, 2]}),
        (["x=json:objects.box.*.1"], {"x": "json:objects.box.*.1"}, {"x": [2, 4, 6]}),
        (
            ["o=json:objects"],
            {"o": "json:objects"},
            {"o/box": [1, 2, 3, 4, 5, 6], "o/box/shape": [3, 2], "o/name": [b"a", b"b", b"c"], "o/deep/id": [7, 8, 9]},
        ),
        (["d=json:objects.deep.*"], {"d": "json:objects.deep.*"}, {"d": [7, 8, 9], "d/shape": [1, 3]}),
        (["s=json:nowhere=0"], {"s": "json:nowhere=0"}, {"s": [0]}),
        (["s=json:none=1.5"], {"s": "json:none=1.5"}, {"s": [1.5]}),
        (["s=json:score=1"], {"s": "json:score=1"}, {"s": [0.5]}),
        (["s=json:size.name=a b"], {"s": "json:size.name=a b"}, {"s": [b"a b"]}),
        (['s=json:x="0",cls'], {"s": 'json:x="0"', "cls": "cls"}, {"s": [b"0"], "cls": [b" 3\n"]}),
        (["s=json:x=[[1,2],[3,4]],cls"], {"s": "json:x=[[1, 2], [3, 4]]", "cls": "cls"}, NESTED),
        (["s=meta:x.y=7"], {"s": "meta:x.y=7"}, {"s": [7]}),
        (["json:x=7"], ["json:x=7"], {"json": [7]}),
        (["all=*"], {"all": "*"}, {"all": [b" 3\n", b"\xff\xd8image", json.dumps(ABOUT).encode(), "grün".encode()]}),
        (["t=*[xn]*"], {"t": "*[xn]*"}, {"t": [json.dumps(ABOUT).encode(), "grün".encode()]}),
    ],
)
def test_flags_and_yaml_select_the_same_features(
    flags: list[str], yaml: Any, features: dict[str, list[Any]], bucket: Path
) -> None:
    assert chosen(bucket, yaml) == features
    by_flag = {name: item.canonical() for name, item in parse_select(flags).items()}
    assert by_flag == {name: item.canonical() for name, item in parse_select(yaml).items()}
    assert chosen(bucket, by_flag) == features


def test_nothing_selected_means_every_entry_and_the_key(bucket: Path) -> None:
    assert set(chosen(bucket)) == {"__key__", "jpg", "cls", "json", "txt"}


def test_lists_and_dicts_flatten_to_names_with_a_slash(bucket: Path) -> None:
    select = {
        "pair": ["jpg", "cls"],
        "box": {"x": "json:annotations.0.box.0", "more": ["json:score", {"k": "__key__"}]},
        "plain": "cls",
    }
    assert chosen(bucket, select) == {
        "pair/0": [b"\xff\xd8image"],
        "pair/1": [b" 3\n"],
        "box/x": [1],
        "box/more/0": [0.5],
        "box/more/1/k": [b"0001"],
        "plain": [b" 3\n"],
    }


def test_classes_mean_what_yaml_means() -> None:
    classes = {
        "a": Select("jpg"),
        "b": Select(ext_name="jpg"),
        "c": SelectJSON("json", ["x", 0, "y"]),
        "d": SelectJSON(ext_name="json", nested_path="x"),
        "e": SelectList("jpg", Select("cls")),
        "f": SelectList(["jpg", "cls"]),
        "g": SelectDict({"u": "jpg", "v": ["cls"]}),
        "h": SelectDict(u=Select("jpg")),
    }
    yaml = {
        "a": "jpg",
        "b": "jpg",
        "c": "json:x.0.y",
        "d": "json:x",
        "e": ["jpg", "cls"],
        "f": ["jpg", "cls"],
        "g": {"u": "jpg", "v": ["cls"]},
        "h": {"u": "jpg"},
    }
    assert {name: item.canonical() for name, item in classes.items()} == yaml
    assert {name: item.canonical() for name, item in parse_select(yaml).items()} == yaml


@pytest.mark.parametrize("path", [["a.b"], ["annotations", 0, "label"], [0], ["0"], "score", 0])
def test_a_path_survives_being_written_down(path: Any, bucket: Path) -> None:
    selection = SelectJSON("json", path)
    again = to_selection(json.loads(json.dumps(selection.canonical())))
    sample = {"__key__": "k", "json": json.dumps(ABOUT).encode()}
    assert again.select(sample) == selection.select(sample)
    assert again.canonical() == selection.canonical()


def test_a_path_that_looks_like_a_list_survives_being_written_down() -> None:
    again = to_selection(json.loads(json.dumps(SelectJSON("json", ["[a"]).canonical())))
    assert again.select({"json": b'{"[a": 7}'}) == 7


def test_a_path_selects_from_what_an_op_has_parsed() -> None:
    assert SelectJSON("json", "a").select({"json": {"a": 7}}) == 7
    with pytest.raises(ValueError, match="needs a path"):
        SelectJSON("json", [])


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ({"x": "json:annotations.5.label"}, ["'json'", "annotations.5.label"]),
        ({"x": "json:annotations.zero"}, ["annotations.zero"]),
        ({"x": "json:nowhere"}, ["nowhere"]),
        ({"x": "json:score.deeper"}, ["score.deeper"]),
        ({"x": "cls:a"}, ["'cls'", "'a'"]),
        ({"x": "jpg:a"}, ["'jpg'", "JSON"]),
        ({"x": "txt:a"}, ["'txt'", "JSON"]),
        ({"x": "json:none"}, ["'x'", "null"]),
        ({"x": "json:size.*"}, ["'x'", "an object, int"]),
        ({"x": "json:annotations"}, ["'x'", "item 1 has label, name", "label, box", "DEFAULT"]),
        ({"x": "json:annotations.*.name"}, ["annotations.0.name"]),
        ({"x": "json:annotations.*.label.*"}, ["annotations.0.label.*"]),
        ({"x": "json:words.*.*"}, ["words.0.*"]),
        ({"x": "json:score.*"}, ["score.*"]),
        ({"x": "json:ragged"}, ["'x'", "1 and 2"]),
        ({"x": "json:empty"}, ["'x'", "empty list", "--type"]),
        ({"x": "json:mixed"}, ["'x'", "int, str"]),
    ],
)
def test_what_cannot_be_selected_is_an_error_naming_sample_and_entry(
    select: Any, words: list[str], bucket: Path
) -> None:
    with pytest.raises(SampleError) as caught:
        chosen(bucket, select)
    assert (caught.value.key, caught.value.shard) == ("0001", str(bucket / "a.tar"))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("select", [["png"], {"x": "*.png"}, {"x": "png:a.b"}])
def test_an_entry_that_no_sample_has_is_wrong_usage(select: Any, bucket: Path) -> None:
    with pytest.raises(
        UsageError, match=r"a\.tar: --select names the entry '(\*\.)?png'.*; entries: cls, jpg, json, txt"
    ):
        chosen(bucket, select)


@pytest.mark.parametrize("flags", [["jpg,jpg"], ["=jpg"], ["a="], ["a=jpg,a=cls"], ["json:a,json:b"]])
def test_a_name_that_is_empty_or_comes_twice_is_an_error(flags: list[str]) -> None:
    with pytest.raises(ValueError, match="select"):
        parse_select(flags)


@pytest.mark.parametrize("flags", [[""], [","], [",", ""]])
def test_a_flag_that_selects_nothing_is_an_error(flags: list[str]) -> None:
    with pytest.raises(ValueError, match="must name entries"):
        parse_select(flags)


def test_keys_with_dots_are_written_as_json() -> None:
    selections = parse_select(['jpg,label=json:["a.b","c"],json:["d"],first=json:[0]', 'more=json:["e,f"]'])
    assert {name: selection.canonical() for name, selection in selections.items()} == {
        "jpg": "jpg",
        "label": 'json:["a.b", "c"]',
        "json": "json:d",
        "first": "json:0",
        "more": "json:e,f",
    }


@pytest.mark.parametrize(
    ("selection", "canonical"),
    [
        (SelectJSON("json", ["a", "*", "b"], 0), "json:a.*.b=0"),
        (SelectJSON("json", "a=b"), 'json:["a=b"]'),
        (SelectJSON("json", "a.b", "x=y, z"), 'json:["a.b"]="x=y, z"'),
        (SelectJSON("json", "a", [1, [2]]), "json:a=[1, [2]]"),
        (to_selection("*.jpg"), "*.jpg"),
    ],
)
def test_wildcards_and_defaults_survive_being_written_down(selection: Any, canonical: str) -> None:
    assert selection.canonical() == canonical
    assert to_selection(canonical).canonical() == canonical
    (again,) = parse_select([f"x={canonical}"]).values()
    assert again.canonical() == canonical


@pytest.mark.parametrize(
    ("selection", "words"), [("json:a=null", "null"), ("x=*.json:a", "needs one entry"), ("*.jpg", r"NAME=\*\.jpg")]
)
def test_what_wildcards_and_defaults_cannot_say_is_an_error(selection: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_select([selection])


def test_a_default_stands_for_whatever_is_missing() -> None:
    def select(about: Any, path: str) -> Any:
        entry = {} if about is None else {"json": json.dumps(about).encode()}
        return to_selection(f"json:{path}").select({"__key__": "k", **entry})

    assert select({"a": [{"s": 1}, {}, {"s": None}]}, "a.*.s=0") == [1, 0, 0]
    assert select({"a": {"x": {"s": 1}, "y": {}}}, "a.*.s=0") == [1, 0]
    assert select({"a": []}, "a.*.s=0") == select({}, "a.*.s=0") == select(None, "a.*.s=0") == []
    assert select(None, "s=0") == select({}, "s=0") == select([], "s=0") == 0
    assert select({"a": [{"b": [{"s": 1}]}, {}]}, "a.*.b.*.s=0") == [[1], []]


@pytest.mark.parametrize("path", ['["a"].b', "[", "[a]", "[]", "[[1]]", '["a"', "[null]"])
def test_a_path_that_is_no_json_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        parse_select([f"label=json:{path}"])
    with pytest.raises(ValueError, match="is not a path"):
        parse_select({"label": f"json:{path}"})


@pytest.mark.parametrize("value", [5, {}, [], {"a": 5}, {"a": {"b": None}}, {"a": ""}, True])
def test_what_is_no_selection_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError, match="select"):
        parse_select(value)


def test_a_list_that_names_a_feature_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'json'.*twice"):
        parse_select(["json:a", "json:b"])


def test_decoded_entries_of_one_name_become_one_array(tmp_path: Path) -> None:
    frames = {f"frame{number}.jpg": jpeg(np.full((8, 10 + number, 3), 9 * number, np.uint8)) for number in (10, 2, 1)}
    write_tar(tmp_path / "a.tar", [("0", frames)])
    decode = ("convert", tmp_path / "a.tar", "--op", "decode:*.jpg", "--select", "frames=*.jpg", "-o")
    done = tar2tf(*decode, tmp_path / "x.record")
    assert done.returncode == 3
    assert "entries '*.jpg' have several shapes, [8, 11, 3], [8, 12, 3], [8, 20, 3]" in done.stderr
    done = tar2tf(*decode, tmp_path / "y.record", "--op", "resize:*.jpg,4x6,nearest")
    assert done.returncode == 0, done.stderr
    (one,) = open_records(tmp_path / "y.record")
    pixels = one["frames"]
    assert (pixels.shape, pixels.mean((1, 2, 3)).round().tolist()) == ((3, 4, 6, 3), [9, 18, 90])


def test_a_name_and_the_same_with_a_number_are_in_natural_order(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0001", {"jpg10": b"ten", "jpg": b"none", "jpg2": b"two"})])
    done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record", "--select", "frames=jp*")
    assert done.returncode == 0, done.stderr
    assert examples(tmp_path / "x.record")[0]["frames"] == [b"none", b"two", b"ten"]


def test_frames_of_a_sample_are_one_feature_in_natural_order(tmp_path: Path) -> None:
    frames = {f"{number}.jpg": b"frame %d" % number for number in (10, 2, 0, 1)}
    samples = [("0001", {**frames, "cls": b"3"}), ("0002", {"0.jpg": b"only", "1.png": b"no jpg", "cls": b"4"})]
    write_tar(tmp_path / "a.tar", samples)
    out = tmp_path / "out.record"
    assert tar2tf("convert", tmp_path / "a.tar", "-o", out, "--select", "frames=*.jpg,cls").returncode == 0
    ordered = [b"frame 0", b"frame 1", b"frame 2", b"frame 10"]
    assert [found["frames"] for found in examples(out)] == [ordered, [b"only"]]
    records = open_records(tmp_path / "_out-manifest.json")
    assert [found["frames"].tolist() for found in records] == [ordered, [b"only"]]
    loaded = load_dataset(tmp_path / "_out-manifest.json")
    assert [found["frames"].numpy().tolist() for found in loaded] == [ordered, [b"only"]]


def test_boxes_of_any_number_come_back_with_their_shape(tmp_path: Path) -> None:
    boxes = [[[1, 2, 3, 4.5], [5, 6, 7, 8]], [], [[9, 10, 11, 12]]]
    for name, order in {"a": boxes, "b": boxes[::-1], "c": [boxes[1], *boxes]}.items():
        about = [{"annotations": [{"bbox": box, "category": "x"} for box in found]} for found in order]
        samples = [(f"{number}", {"json": json.dumps(item).encode()}) for number, item in enumerate(about)]
        write_tar(tmp_path / f"{name}.tar", samples)
        select = ["--select", "boxes=json:annotations.*.bbox", "--type", "boxes=float_list"]
        made = tar2tf("convert", tmp_path / f"{name}.tar", "-o", tmp_path / f"{name}.record", *select)
        assert made.returncode == 0, made.stderr
        manifest = tmp_path / f"_{name}-manifest.json"
        wanted = [np.asarray(item, np.float32).reshape(-1, 4) for item in order]
        for found, item in zip(open_records(manifest), wanted, strict=True):
            np.testing.assert_array_equal(found["boxes"], item, strict=True)
        dataset = load_dataset(manifest)
        assert dataset.element_spec["boxes"].shape.as_list() == [None, 4]
        for found, item in zip(dataset, wanted, strict=True):
            np.testing.assert_array_equal(found["boxes"], item, strict=True)
        assert tar2tf("verify", manifest).returncode == 0


def test_a_list_of_objects_is_a_list_for_each_key(tmp_path: Path) -> None:
    annotations = [{"box": [1, 2], "id": 7, "name": {"de": "Katze"}}, {"box": [3, 4], "id": 8, "name": {"de": "Hund"}}]
    entries = [[("1", {"json": json.dumps(found).encode()})] for found in (annotations, [])]
    write_tar(tmp_path / "a.tar", entries[0])
    write_tar(tmp_path / "b.tar", entries[1])
    types = ["x/box=float_list", "x/id=int64_list"]
    assert chosen(tmp_path / "a.tar", {"x": "json:*"}, types) == {
        "x/box": [1, 2, 3, 4],
        "x/box/shape": [2, 2],
        "x/id": [7, 8],
        "x/name/de": [b"Katze", b"Hund"],
    }
    assert chosen(tmp_path / "b.tar", {"x": "json:*"}, types) == {"x/box": [], "x/id": []}


def test_a_type_may_name_a_value_in_an_object_only() -> None:
    Conversion(Input("in"), Output("a.record"), select="x=json:a", types=["x/b=int64"])
    with pytest.raises(UsageError, match=r"'y/b'.*does not exist"):
        Conversion(Input("in"), Output("a.record"), select="x=json:a,y=cls", types=["y/b=int64"])


# --- Types of selected features ---


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        (b"7", "int64", [7]),
        (b" -7\n", "int64", [-7]),
        (b"9223372036854775807", "int64", [2**63 - 1]),
        (b"7.5", "float", [7.5]),
        (b"1e3", "float", [1000.0]),
        (b"1 2 3", "int64_list", [1, 2, 3]),
        (b"1,2,3\n", "int64_list", [1, 2, 3]),
        (b"[1, 2, 3]", "int64_list", [1, 2, 3]),
        (b"[1, 2.0]", "int64_list", [1, 2]),
        (b"0.5 1", "float_list", [0.5, 1.0]),
        (b"7", "float_list", [7.0]),
        (b"", "int64_list", []),
        (b"[]", "float_list", []),
        (b"7", "bytes", [b"7"]),
        (b"7", "bytes_list", [b"7"]),
    ],
)
def test_text_is_read_as_its_type(text: bytes, kind: str, values: list[Any], tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("1", {"cls": text})])
    assert chosen(tmp_path / "in", {"x": "cls"}, [f"x={kind}"]) == {"x": values}


@pytest.mark.parametrize(
    ("source", "kind", "values"),
    [
        ("json:annotations.0.label", "int64", [7]),
        ("json:annotations.0.label", "float", [7.0]),
        ("json:annotations.0.box", "float_list", [1.0, 2.5, 3.0]),
        ("json:annotations.0.label", "bytes", [b"7"]),
        ("json:words", "bytes_list", [b"one", b"two"]),
        ("json:empty", "int64_list", []),
        ("json:empty", "bytes_list", []),
        ("txt", "bytes", ["grün".encode()]),
        ("__key__", "int64", [1]),
    ],
)
def test_selected_values_take_the_type_they_are_given(source: str, kind: str, values: list[Any], bucket: Path) -> None:
    assert chosen(bucket, {"x": source}, [f"x={kind}"]) == {"x": values}


@pytest.mark.parametrize(
    ("source", "kind", "word"),
    [
        ("json:annotations.0.box", "int64_list", "2.5"),
        ("json:annotations.0.box", "float", "3 values"),
        ("json:none", "int64", "null"),
        ("json:none", "bytes", "null"),
        ("json:none", "bytes_list", "null"),
        ("json:none", "float", "null"),
        ("json:words", "bytes", "list"),
        ("json:words", "int64_list", "'one' is not a whole number"),
        ("json:score", "int64", "0.5 is not a whole number"),
        ("jpg", "int64", "UTF-8"),
        ("txt", "float", "is not a number"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_an_error_naming_both(
    source: str, kind: str, word: str, bucket: Path
) -> None:
    with pytest.raises(SampleError, match=rf"sample 0001.*'x' is not of type {kind}.*{word}"):
        chosen(bucket, {"x": source}, [f"x={kind}"])


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (b"1e39", "float", "a value does not fit in a float32"),
        (b"9223372036854775808", "int64_list", "a value does not fit in 64 bits"),
        (b"1.5", "int64", "'1.5' is not a whole number"),
    ],
)
def test_text_that_its_type_cannot_hold_says_why(text: bytes, kind: str, words: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("1", {"cls": text})])
    with pytest.raises(SampleError, match=words):
        chosen(tmp_path / "in", {"x": "cls"}, [f"x={kind}"])


def test_a_type_for_a_feature_that_is_not_selected_is_an_error(bucket: Path) -> None:
    with pytest.raises(UsageError, match=r"--type names the feature 'jpg'"):
        chosen(bucket, ["cls"], ["jpg=bytes"])


@pytest.mark.parametrize("text", ["cls=int32", "cls", "=int64", "cls="])
def test_a_type_that_does_not_exist_is_an_error_naming_those_that_do(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Conversion("in", "x.record", types=text)
    assert all(kind in str(caught.value) for kind in TYPES)


def test_numbers_that_an_example_cannot_hold_are_errors(bucket: Path, tmp_path: Path) -> None:
    write_tar(tmp_path / "big" / "a.tar", [("1", {"json": b'{"i": 9223372036854775808, "f": 1e300}'})])
    for source in ("json:i", "json:f"):
        with pytest.raises(SampleError, match="'x' cannot become a feature"):
            chosen(tmp_path / "big", {"x": source})
    with pytest.raises(SampleError, match="'x' is not of type float"):
        chosen(tmp_path / "big", {"x": "json:f"}, ["x=float"])


def test_flatten_leaves_plain_selections_alone() -> None:
    assert list(flatten({"a": Select("b")})) == ["a"]
    assert list(flatten({"a": SelectList("x", SelectDict(k="y"))})) == ["a/0", "a/1/k"]


def test_select_and_type_work_from_the_command_line(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf(
        *["convert", bucket, "-o", tmp_path / "o" / "x.record", "--select", "image=jpg,label=json:annotations.0.label"],
        *["--select", "cls", "--type", "cls=int64", "--type", "label=float"],
    )
    assert done.returncode == 0, done.stderr
    assert examples(tmp_path / "o" / "x.record") == [{"image": [b"\xff\xd8image"], "label": [7.0], "cls": [3]}]
    wrong = tar2tf("convert", bucket, "-o", tmp_path / "p" / "x.record", "--select", "image=png")
    assert wrong.returncode == 2
    assert "--select names the entry 'png', which no sample of this input has; did you mean 'jpg'?" in wrong.stderr
