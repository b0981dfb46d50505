"""Label maps whose words have texts, and those that are none: each with the line, row or class at fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.features.labels import FORMS, Label, load_labels, number_classes, parse_labels, to_bytes

FAULTS: list[tuple[str, str, str]] = [
    ("", "", "the label map has no classes"),
    ("", "\n\n", "the label map has no classes"),
    ("", "a\n\tb\n", "line 2 of the label map has no class"),
    ("", "a\n\na\n", "line 3 of the label map repeats 'a'"),
    ("", "a\t1\nb\n", "line 2 of the label map has no number after its class, but others have one"),
    ("", "a\t1\n\nb\tx\nc\t2", "line 3 of the label map has no number after its class, but others have one"),
    ("", "{}", "the label map has no classes"),
    ("", "[]", "the label map has no classes"),
    ("", '{"a": 1,\n"b"}', "the label map is not JSON: line 2: Expecting ':' delimiter"),
    ("", "[" * 100_000, "the label map is nested too deeply"),
    ("", '{"a": 1, "a": 2}', "the label map has 'a' twice"),
    ("", '{"a": "x"}', "the label of the class 'a' is 'x', not a whole number"),
    ("", '{"a": true}', "the label of the class 'a' is True, not a whole number"),
    ("", '{"a": 9223372036854775808}', "the label of the class 'a' is 9223372036854775808, not a whole number"),
    ("", '{"a": {"id": 1}}', "the class 'a' has no label in the label map"),
    ("", '{"a": {"label": 1, "human_labels": ["x", 2]}}', "human_labels of the class 'a' is ['x', 2], not text"),
    ("", '["a", 1]', "the label map lists 1, which is not the name of a class"),
    ("", '["a", "a"]', "the label map has 'a' twice"),
    (
        "",
        '[{"id": 1}]',
        "the label map lists {'id': 1}, which has no 'id' and 'name' as COCO's categories do",
    ),
    ("", '[{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]', "the label map has 'a' twice"),
    ("", "# x\nitem {\n id: 1 name: 'a'", "the label map ends inside of an item"),
    (
        "",
        "item { id: 1 name: 'a' }\n\nitem { name: 'a' }",
        "the item at line 3 of the label map needs an id and a name",
    ),
    ("", "item { id: 1 name: 'a' }\n}", "line 2 of the label map closes a brace that is not open"),
    ("", "item { id: 1 }\n<b>", "the item at line 1 of the label map needs an id and a name"),
    ("", "item { id: 1 name: 'a' }\n<b>", "line 2 of the label map is not a text message: '<b>'"),
    ("a.yaml", "a: [1", "the label map is not YAML: while parsing a flow sequence"),
    ("a.yml", "5", "the label map has no 'names', a list or a mapping of numbers to names"),
    ("a.yml", "names: {0: a, 1: a}", "the label map has 'a' twice"),
    ("a.yml", "names: [a, 5]", "the label map lists 5, which is not the name of a class"),
    ("a.yml", "names: {a: b}", "the label of the class 'a' is 'b', not a whole number"),
    (
        "a.csv",
        "a,b\n1,2\n",
        "the label map has no header with a column for the name and one for the number of a class",
    ),
    (
        "a.csv",
        "1,2\n",
        "the label map has no header with a column for the name and one for the number of a class",
    ),
    ("a.csv", "name,id\na,1\nb,x\n", "row 2 of the label map has no number: 'b,x'"),
    ("a.csv", "name,x,id\na,1\n", "row 1 of the label map has no number: 'a,1'"),
    ("a.csv", "a,1\nb\n", "row 2 of the label map has no number: 'b'"),
    ("a.csv", "name,id\na,1\na,2\n", "the label map has 'a' twice"),
]


@pytest.mark.parametrize(("name", "text", "says"), FAULTS, ids=lambda text: repr(text)[:30])
def test_what_is_no_label_map_is_named_where_it_is_none(name: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".") as parsed:
        parse_labels(text, name)
    assert str(parsed.value) == says
    path = tmp_path / (name or "a.txt")
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_labels(path)
    assert caught.value.sentence == f"{path}: {says}; {FORMS}"


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("", "a\tone\r\n\nb\t \n c \tthree", {"a": Label(0, "one"), "b": Label(2), "c": Label(3, "three")}),
        ("", "a\t-1\nb\t 7 ", {"a": Label(-1), "b": Label(7)}),
        ("", "a\t1\nb\nc", {"a": Label(0, "1"), "b": Label(1), "c": Label(2)}),
        ("", '{"a": {"label": -9223372036854775808, "human_labels": ["x", "y"]}}', {"a": Label(-(2**63), "x, y")}),
        ("", '{"a": {"label": 3, "human_labels": "x"}, "b": 4}', {"a": Label(3, "x"), "b": Label(4)}),
        ("", "item { id: 2 display_name: 'x' }", {"x": Label(2, "x")}),
        ("a.yaml", "names: {a: 3, b: 1}", {"a": Label(3), "b": Label(1)}),
        ("a.yaml", "- a\n- b\n", {"a": Label(0), "b": Label(1)}),
        ("a.yaml", "5: a\n", {"a": Label(5)}),
        ("a.csv", "a\nb\n", {"a": Label(0), "b": Label(1)}),
        ("a.csv", "Label , Name\n3, a \n", {"a": Label(3)}),
        ("a.csv", "x,category,value\n1,a,2\n", {"a": Label(2)}),
        ("a.csv", "text,label\n7,3\n", {"7": Label(3)}),
        ("a.csv", "-3,a\n4,b\n", {"a": Label(-3), "b": Label(4)}),
    ],
)
def test_a_label_map_has_numbers_and_texts(name: str, text: str, labels: dict[str, Label], tmp_path: Path) -> None:
    assert parse_labels(text, name) == labels
    packed = tmp_path / f"{name or 'a.txt'}.GZ"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert load_labels(packed) == labels
    assert parse_labels(to_bytes(labels).decode()) == labels


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for data, kind, says in [
        (None, SourceError, "the label map cannot be read: No such file or directory"),
        (gzip.compress(b"a" * 99)[:-9], SourceError, "the label map cannot be read: its gzip stream is damaged"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\3\xff", SourceError, "the label map cannot be read: its gzip stream is damaged"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            SourceError,
            "is a Git LFS pointer, not a label map; fetch what it points to: git lfs pull",
        ),
        (b"a\xff", UsageError, "is not a label map: it is not UTF-8"),
    ]:
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(kind) as caught:
            load_labels(path)
        assert caught.value.sentence == f"{path}: {says}"


def test_classes_are_numbered_in_sorted_order_and_synsets_as_in_imagenet() -> None:
    assert number_classes(["b", "a", "B"]) == {"B": Label(0), "a": Label(1), "b": Label(2)}
    assert number_classes([]) == {}
    synsets = number_classes(["n01443537", "n01440764"])
    assert (len(synsets), synsets["n01443537"].number) == (1000, 1)
    assert "n01440764" in number_classes(["n01440764", "x"])
    assert len(number_classes(["n01440764", "x"])) == 2
    assert synsets == load_labels("imagenet")


def test_labels_are_written_by_number_and_then_by_class() -> None:
    labels = {"c": Label(1), "b": Label(2, "é"), "a": Label(2)}
    assert to_bytes(labels) == (
        b'{\n "c": {\n  "label": 1,\n  "human_labels": ""\n },\n "a": {\n  "label": 2,\n  "human_labels": ""\n },\n'
        b' "b": {\n  "label": 2,\n  "human_labels": "\\u00e9"\n }\n}\n'
    )
