"""Label maps in the files that people have: each form gives the numbers that its own tools give."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tar2tf_cli.errors import UsageError
from tar2tf_cli.features.labels import load_labels, parse_labels


def numbers(text: str, name: str = "") -> dict[str, int]:
    return {label: item.number for label, item in parse_labels(text, name).items()}


PBTXT = """# classes
item {
  name: "/m/01g317"
  id: 1
  display_name: "person"
}
item: { id: 2, name: 'it\\'s a "dog"' }
item { id: 3; name: "two "
  "parts" keypoints { id: 7 label: "nose" } }
"""


def test_a_pbtxt_is_read_by_name_and_display_name() -> None:
    found = {"/m/01g317": 1, "person": 1, 'it\'s a "dog"': 2, "two parts": 3}
    assert numbers(PBTXT) == found
    assert parse_labels(PBTXT)["/m/01g317"].text == "person"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item { id: 1 name: 'a'", "ends inside"),
        ("item { name: 'a' }", "line 1 of the label map needs an id and a name"),
        ("item { id: 1 }", "needs an id and a name"),
        ("item { id: 1 name: 'a' }\nitem { id: 2 name: 'a' }", "has 'a' twice"),
        ("item { id: 1 name: 'a' }\n}", "line 2 of the label map closes"),
        ("item { id: 1 name: 'a' }\n<b>", "line 2 of the label map is not"),
    ],
)
def test_a_broken_pbtxt_is_an_error_that_names_the_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_labels(text)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("coco.json", '[{"id": 1, "name": "person"}, {"id": 90, "name": "cup"}]', {"person": 1, "cup": 90}),
        ("instances.json", '{"images": [], "categories": [{"id": 18, "name": "dog"}]}', {"dog": 18}),
        ("map.json", '{"cat": 5, "dog": {"label": 2}}', {"cat": 5, "dog": 2}),
        ("list.json", '["cat", "dog"]', {"cat": 0, "dog": 1}),
        ("coco.yaml", "path: ../x\nnames:\n  0: person\n  1: bicycle\n", {"person": 0, "bicycle": 1}),
        ("data.yml", "nc: 2\nnames: [cat, dog]\n", {"cat": 0, "dog": 1}),
        ("a.csv", 'id,name\n3,cat\n4,"dog, small"\n', {"cat": 3, "dog, small": 4}),
        ("a.csv", "class,label\r\ncat,3\r\ndog,4\r\n", {"cat": 3, "dog": 4}),
        ("a.csv", "cat,3\ndog,4\n", {"cat": 3, "dog": 4}),
        ("a.csv", "3,cat\n", {"cat": 3}),
        ("a.txt", "cat,3\ndog,4\n", {"cat,3": 0, "dog,4": 1}),
        ("a.txt", "cat\t3\ndog\t4\n", {"cat": 3, "dog": 4}),
    ],
)
def test_each_form_gives_the_numbers_that_it_says(name: str, text: str, found: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, newline="")
    assert {label: item.number for label, item in load_labels(path).items()} == found


@pytest.mark.parametrize("text", ["cat\t3\ndog\nowl\t7\n", "cat\t3\ndog\n", "cat\t3\ndog\tx\n"])
def test_a_map_in_which_one_line_has_no_number_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="line 2 of the label map has no number after its class, but others have one"):
        load_labels(path)


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_lines_end_at_newlines_only(mark: str) -> None:
    assert numbers(f"a{mark}b\nc\n") == {f"a{mark}b": 0, "c": 1}


def test_lines_have_the_numbers_of_tf_lookup(tmp_path: Path) -> None:
    lines = ["cat", "x\u2028y", "a b", "z\x85w", "owl"]
    path = tmp_path / "map.txt"
    path.write_text("\n".join(lines) + "\n", newline="")
    table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(path), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        ),
        -1,
    )
    found = {name: label.number for name, label in load_labels(path).items()}
    assert found == {line: int(table[tf.constant(line)]) for line in lines}
    assert numbers("cat\n\ndog\n") == {"cat": 0, "dog": 2}  # a blank line, which tf.lookup refuses, counts
