"""The JSON Schema of spec files: it accepts those of the documentation, and what it accepts tar2tf accepts."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from commands import convert, tar2tf
from hypothesis_profile import example_count
from readme import ROOT
from shards import PHOTOS
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import OPS, parse_op
from tar2tf_cli.plugins import preset_names
from tar2tf_cli.spec import yaml_file
from tar2tf_cli.spec.yaml_file import spec_schema

SCHEMA = spec_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def plain(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(io.StringIO(text))


def documented() -> Iterator[tuple[str, Any]]:
    """The spec files that README and documentation show."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, part in enumerate(path.read_text(encoding="utf-8").split("\n```yaml")[1:]):
            document = plain(part.partition("\n")[2].partition("\n```")[0])
            if isinstance(document, dict) and document.keys() & {"input", "output"}:
                yield f"{path.relative_to(ROOT)}-{number}", document


DOCUMENTED = dict(documented())


def test_it_is_a_schema_of_draft_7() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_the_command_prints_it() -> None:
    assert json.loads(tar2tf("schema").stdout) == SCHEMA == json.loads((ROOT / "docs/spec.schema.json").read_text())


def test_every_key_and_op_says_what_it_means() -> None:
    sections = [
        SCHEMA,
        SCHEMA["properties"]["input"],
        SCHEMA["properties"]["output"],
        SCHEMA["definitions"]["op"]["anyOf"][0],
    ]
    assert sections[-1]["properties"].keys() == OPS.keys()
    for section in sections:
        for name, schema in section["properties"].items():
            assert schema["description"].endswith("."), name
    assert SCHEMA["properties"]["preset"]["enum"] == preset_names()


def test_the_documentation_shows_spec_files() -> None:
    assert len(DOCUMENTED) >= 5


@pytest.mark.parametrize("name", DOCUMENTED)
def test_it_accepts_the_spec_files_of_the_documentation(name: str) -> None:
    VALIDATOR.validate(DOCUMENTED[name])


def test_it_accepts_the_spec_in_a_manifest(tmp_path: Path) -> None:
    options = [
        "--op",
        "decode:jpg",
        "--op",
        "resize:jpg,8x9",
        "--op",
        "keep:jpg,cls",
        "--type",
        "cls=int64",
        "--limit",
        "3",
    ]
    convert(PHOTOS, "-o", tmp_path / "x-<>.record", "--num-shards", "2", "--select", "jpg,cls", *options)
    VALIDATOR.validate(json.loads((tmp_path / "_x-manifest.json").read_text())["spec"])


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_it_accepts_ops_as_text_and_as_the_manifest_writes_them(op: Any) -> None:
    for example in op.examples:
        VALIDATOR.validate({"ops": [example]})
        name, _, text = example.partition(":")
        VALIDATOR.validate({"ops": [{name: text or None}]})
        if name != "func":
            VALIDATOR.validate({"ops": [parse_op(example).canonical()]})
    VALIDATOR.validate({"ops": [{"func": "a.py:f", "digest": "0f"}]})


WRONG = """\
inptu: {bucket: x}
input: shards
input: {buckett: x}
input: {template: 5}
input: {template: [5]}
input: {key_split: middle}
input: {from: zip}
input: {rows: [1]}
output: {path: 7}
output: {max_shard_size: 100zz}
output: {max_shard_size: big}
output: {max_shard_size: 0}
output: {num_shards: many}
output: {num_shards: 0}
output: {compression: gzipped}
output: {index: perhaps}
ops: decode
ops: [decod]
ops: ['decod:jpg']
ops: [{resise: {ext: jpg, size: 3}}]
ops: [{resize: {ext: jpg, sise: 3}}]
ops: [{resize: {ext: jpg}}]
ops: [{resize: {ext: jpg, size: [64]}}]
ops: [{resize: {ext: jpg, size: 64x}}]
ops: [{convert: {ext: jpg, dtype: float31}}]
ops: [{decode: {ext: jpg, channels: 2}}]
ops: [{decode: jpg, cast: jpg}]
ops: [{encode: {ext: jpg, format: gif}}]
ops: [{rename: {image: []}}]
ops: [[1]]
select: {a: {b: 5}}
select: 3
types: {label: int46}
types: [a]
preset: imagenett
shuffle: maybe
limit: 1.5
limit: -2
split: {train: 2}
split: train
on_error: ignore
record_to_example: f
"""


@pytest.mark.parametrize("text", WRONG.splitlines())
def test_it_refuses_what_tar2tf_refuses(text: str, tmp_path: Path) -> None:
    assert not VALIDATOR.is_valid(plain(text))
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(yaml_file.SpecError):
        yaml_file.read(str(tmp_path / "x.yaml"))


NAMES = [
    "input",
    "output",
    "ops",
    "select",
    "types",
    "bucket",
    "path",
    "decode",
    "resize",
    "ext",
    "size",
    "split",
    "limit",
]
VALUES = ["jpg", "decode:jpg", "imagenet", "100MB", "a=int64", "train=1", "32x32", True, 0, 1, 2, 0.5, None, "0kB"]


@given(
    st.recursive(
        st.sampled_from(VALUES),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        max_leaves=8,
    )
)
@example_count(300)
def test_what_it_accepts_tar2tf_accepts(document: Any) -> None:
    if isinstance(document, dict) and VALIDATOR.is_valid(document):
        with contextlib.suppress(UsageError):  # of what is missing, or contradicts
            yaml_file.build(document)
        assert list(yaml_file.problems(document)) == []
