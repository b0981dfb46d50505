"""Spec files: every fault at once and where it stands; flags over environment over file; canonical forms are specs."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import convert, tar2tf
from hypothesis_profile import example_count
from shards import PHOTOS, examples, records, samples, tree, write_tar
from tar2tf_cli.errors import SourceError, Tar2tfError, UsageError
from tar2tf_cli.spec import yaml_file
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.fields import size as parse_size
from tar2tf_cli.spec.urls import as_recorded


def written(folder: Path, text: str) -> str:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults(folder: Path, text: str) -> list[tuple[str, str]]:
    """Place (`line:column`) and message of every fault of a spec."""
    path = written(folder, text)
    with pytest.raises(yaml_file.SpecError) as caught:
        yaml_file.read(path)
    lines = caught.value.message.split("\n")
    assert all(line.startswith(f"{path}:") for line in lines)
    parts = [line[len(path) + 1 :].split(": ", 1) for line in lines]
    return [(place, message) for place, message in parts]


GOOD = """\
input: {bucket: shards, template: 'train-{0..3}.tar', key_split: last}
ops:
  - decode: jpg
  - resize: {ext: jpg, size: [224, 224]}
  - drop_empty
select: {image: jpg, label: json:annotations.0.label}
types: {label: int64}
output: {path: 'out/train-<>.record', max_shard_size: 100MB}
seed: 3
"""


def test_a_spec_is_the_conversion_it_describes(tmp_path: Path) -> None:
    conversion = yaml_file.read(written(tmp_path, GOOD))
    assert conversion.input == Input("shards", ("train-{0..3}.tar",), "last")
    assert conversion.output == Output("out/train-<>.record", 100_000_000)
    assert [op.canonical() for op in conversion.ops] == [
        {"decode": {"ext": "jpg"}},
        {"resize": {"ext": "jpg", "size": [224, 224]}},
        {"drop_empty": {}},
    ]
    assert (conversion.types, conversion.seed) == ({"label": "int64"}, 3)


def test_every_fault_is_found_at_once_where_it_stands(tmp_path: Path) -> None:
    text = """\
input:
  buckett: shards
  template: 5
  key_split: middle
ops:
  - decode: jpg
  - resise: {ext: jpg, size: 3}
  - resize: {ext: jpg, sise: 3}
  - convert:
      ext: jpg
      dtype: float31
  - [1]
select: {a: {b: 5}}
types:
  label: int46
output:
  path: 7
  max_shard_size: big
  num_shards: many
  compression: gzipped
presett: imagenet
preset: imagenett
shuffle: maybe
limit: 1.5
"""
    assert faults(tmp_path, text) == [
        ("2:3", "there is no key 'buckett' in input; did you mean 'bucket'?"),
        ("3:3", "template must be text or a list of texts, not 5"),
        ("4:3", "key_split must be 'first' or 'last', not 'middle'"),
        ("7:5", "there is no op 'resise'; did you mean 'resize'?"),
        ("8:24", "resize has no field 'sise'; did you mean 'size'?"),
        (
            "9:5",
            "convert dtype must be 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'int64', 'float16', "
            "'float32' or 'float64', not 'float31'; did you mean 'float32'?",
        ),
        ("12:5", "an op is a name, or one name with its fields, not [1]"),
        ("13:1", "5 is not a selection; write ENTRY, ENTRY:nested.path, a list or a mapping"),
        (
            "15:3",
            "the type of 'label' must be 'int64', 'int64_list', 'float', 'float_list', 'bytes' or 'bytes_list', "
            "not 'int46'; did you mean 'int64'?",
        ),
        ("17:3", "path must be text or a path, not 7"),
        ("18:3", "max_shard_size: 'big' is not a size; write 100MB, 1GiB or a number of bytes above 0"),
        ("19:3", "num_shards must be a whole number, not 'many'"),
        ("20:3", "compression must be 'none', 'gzip' or 'zstd', not 'gzipped'; did you mean 'gzip'?"),
        ("21:1", "there is no key 'presett'; did you mean 'preset'?"),
        ("22:1", "there is no preset 'imagenett'; did you mean 'imagenet'?"),
        ("23:1", "shuffle must be true or false, not 'maybe'"),
        ("24:1", "limit must be a whole number, not 1.5"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("input: {bucket: a}\nseed: 1\nseed: 2\n", "3:1", "duplicate key"),
        ("input:\n  bucket: a\n  bucket: b\n", "3:3", "duplicate key"),
        ("ops:\n- resize: {ext: a, size: 3, ext: b}\n", "2:29", "duplicate key"),
        ("a: b: c\n", "1:5", "mapping values"),
        ("input: [a\n", "2:1", "expected"),
        ("\tinput: a\n", "1:1", "tab|cannot start"),
        ("- input\n", "1:1", "mapping"),
        ("", "1:1", "mapping"),
        ("just text\n", "1:1", "mapping"),
        ("input: &a {x: 1}\noutput: *b\n", "2:9", "alias"),
        ("ops: decode\n", "1:1", "ops must be a list"),
        ("ops:\n", "1:1", "ops must be a list"),
        ("input: shards\n", "1:1", "input must be a mapping"),
        ("types: [a]\n", "1:1", "types 'a' is not NAME=TYPE"),
        ("1: 2\n", "1:1", "no key 1"),
        ("preset: [a]\n", "1:1", "no preset"),
        ("record_to_example: f\n", "1:1", "no key 'record_to_example'"),
        ("ops:\n- resize: {1: 2}\n", "2:12", "no field 1"),
        ("ops:\n- cast:\n    ext: jpg\n    dtpye: uint8\n", "4:5", "'dtpye'; did you mean 'dtype'"),
        ("ops:\n- decode:jpg,3,uint8,9,png\n", "2:3", "decode takes at most 4 values"),
        ("ops: [decode: jpg, rotate: {ext: jpg, angle: .nan}]\n", "1:20", "rotate angle"),
        ("split: train=0.9\n", "1:1", "split"),
        ("select: [json:a, json:b]\n", "1:1", "'json' twice"),
    ],
)
def test_a_fault_is_where_it_is_said_to_be(text: str, place: str, words: str, tmp_path: Path) -> None:
    (found,) = faults(tmp_path, text)
    assert found[0] == place
    assert re.search(words, found[1])


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "input: \x00\n")
    with pytest.raises(Tar2tfError, match=r"spec\.yaml"):
        yaml_file.read(path)
    Path(path).write_bytes(b"input: \xff\xfe\n")
    with pytest.raises(SourceError, match=r"spec\.yaml.*cannot be read"):
        yaml_file.read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select: {image: jpg, [cls, {a: jpg}]}\n", "spec.yaml: not valid YAML: a list or mapping as a key"),
        ("seed: !!float 1e\n", "spec.yaml: not valid YAML"),
        ("!!set a: b\n", "spec.yaml: not valid YAML"),
        ("preset: !x image-label\n", "spec.yaml: there is no type '!x'; write 'image-label' without it"),
    ],
)
def test_what_the_parser_itself_stumbles_on_is_an_error_naming_the_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(yaml_file.SpecError, match=re.escape(words)):
        yaml_file.read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input: \x00\n", "SPEC: not a text file: special characters are not allowed (character 8)"),
        ("a: b: c\n", "SPEC:1:5: mapping values are not allowed here"),
        ("input: [a\n", "SPEC:2:1: expected ',' or ']', but got '<stream end>'"),
        ("input: &a {x: 1}\noutput: *b\n", "SPEC:2:9: found undefined alias 'b'"),
        ("a: {b: 1, b: 2}\n", 'SPEC:1:11: duplicate key "b"'),
        ("a: 'b\n", "SPEC:2:1: found unexpected end of stream"),
        ('a: "\\q"\n', "SPEC:1:6: found unknown escape character 'q'"),
        ("a: !!int x\n", "SPEC: not valid YAML: invalid literal for int() with base 10: 'x'"),
        ("? [a]\n: b\n", "SPEC:1:3: there is no key ('a',)"),
        ("ops: " + "[" * 65, "SPEC:1:71: nested more than 64 deep"),
        ("- " * 20_000 + "x", "SPEC: nested more than 64 deep"),
        (
            "".join(f"{' ' * depth}a:\n" for depth in range(65)),
            "SPEC: nested more than 64 deep, or an alias contains itself",
        ),
        ("".join(f"{' ' * depth}a:\n" for depth in range(64)), "SPEC:1:1: there is no key 'a'"),
        (
            "a: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 12)),
            "SPEC: more than 100,000 values, counting those that aliases repeat",
        ),
        (
            "input: {regroup: true}\noutput: {index: yes, path: 5}\nmax_errors: true\nlimit: 0x10\n",
            "SPEC:2:10: index must be true or false, not 'yes'\n"
            "SPEC:2:22: path must be text or a path, not 5\n"
            "SPEC:3:1: max_errors must be a whole number, not True",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_each_line_of_a_complaint_is_place_and_fault(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(yaml_file.SpecError) as caught:
        yaml_file.read(path)
    assert caught.value.message == message.replace("SPEC", path)


def test_plain_data_without_a_bucket_or_an_output_is_answered_with_where_to_name_it() -> None:
    with pytest.raises(UsageError) as caught:
        yaml_file.build({"output": {"path": "x"}})
    assert (caught.value.message, caught.value.hint) == (
        "no bucket is given",
        "name it as the first argument, or as input: {bucket: ...} in the spec",
    )
    with pytest.raises(UsageError) as caught:
        yaml_file.build({"input": {"bucket": "in"}, "output": None})
    assert (caught.value.message, caught.value.hint) == (
        "no output is given",
        "name it with -o, or as output: {path: ...} in the spec",
    )


def test_a_spec_that_is_not_there_is_an_error_naming_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere\.yaml.*No such file"):
        yaml_file.read(str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ops: " + "[" * 100_000, "spec.yaml:1:71: nested more than 64 deep"),
        ("ops: " + "{a: " * 100_000, "nested more than 64 deep"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(1000)), "nested more than 64 deep"),
        ("- " * 20_000 + "x", "nested more than 64 deep"),
        ("&a\ninput: *a\n", "an alias contains itself"),
        (
            "a: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 12)),
            "more than 100,000 values",
        ),
        (
            "a: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 12)),
            "there is no key 'a'",
        ),
    ],
    ids=lambda text: text[:12],
)
def test_depth_and_aliases_without_end_are_an_error_at_once(text: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    began = time.process_time()
    with pytest.raises(yaml_file.SpecError, match=re.escape(words)):
        yaml_file.read(path)
    assert time.process_time() - began < 1


def test_an_alias_repeats_what_it_stands_for(tmp_path: Path) -> None:
    text = "input: {bucket: &name x}\nops: [&op {resize: &fields {ext: jpg, size: 3}}, *op, {resize: {<<: *fields}}]\n"
    conversion = yaml_file.read(written(tmp_path, text + "output: {path: *name}\n"))
    assert conversion.output.path == "x"
    assert len(set(map(repr, conversion.ops))) == 1
    assert len(conversion.ops) == 3


@pytest.mark.parametrize("size", ["[64]", "[]", "[1, 2, 3]", "[64.5, 64]", "64.5", "[true, 64]", "true", "[0, 5]", "x"])
def test_a_size_that_is_not_a_height_and_a_width_is_refused(size: str, tmp_path: Path) -> None:
    ((place, message),) = faults(tmp_path, f"ops:\n- resize: {{ext: jpg, size: {size}}}\n")
    assert place == "2:3"
    assert message.startswith("resize size must be HEIGHTxWIDTH in pixels, not ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["jpg", "ops"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "input",
                        "output",
                        "ops",
                        "select",
                        "types",
                        "preset",
                        "bucket",
                        "path",
                        "decode",
                        "resize",
                        "split",
                    ]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@example_count(300)
def test_whatever_a_spec_holds_it_is_a_conversion_or_a_usage_error(document: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), json.dumps(document))
        with contextlib.suppress(UsageError):
            assert isinstance(yaml_file.read(path), Conversion)


# --- What lies over what ---


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    write_tar(tmp_path / "in" / "a.tar", samples(30))
    return tmp_path / "in"


def spec_of(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["spec"]


def test_flags_override_the_environment_and_that_the_spec(bucket: Path, tmp_path: Path) -> None:
    text = f"""\
input: {{bucket: {bucket}, key_split: last}}
ops: [{{keep: [jpg, cls]}}]
select: [jpg, cls]
types: {{jpg: bytes}}
seed: 1
shuffle: true
output: {{path: '{tmp_path}/spec/x.record', records_per_shard: 3, index: true}}
"""
    path = written(tmp_path, text)
    base = ["convert", "--dry-run", "--json", "--spec", path]
    environment = {
        "TAR2TF_SEED": "2",
        "TAR2TF_RECORDS_PER_SHARD": "4",
        "TAR2TF_OUTPUT": f"{tmp_path}/env/y.record",
        "TAR2TF_TYPE": "cls=int64",
    }
    plain = spec_of(tar2tf(*base))
    assert plain["seed"] == 1
    assert plain["output"] == {"path": "x.record", "records_per_shard": 3, "index": True}
    by_env = spec_of(tar2tf(*base, env=environment))
    assert (by_env["seed"], by_env["output"]["records_per_shard"]) == (2, 4)
    assert (by_env["output"]["path"], by_env["output"]["index"]) == ("y.record", True)
    assert (by_env["types"], by_env["input"]["key_split"], by_env["shuffle"]) == ({"cls": "int64"}, "last", True)
    flags = ["--seed", "3", "-o", f"{tmp_path}/flag/z.record", "--op", "keep:cls", "--select", "cls"]
    by_flag = spec_of(tar2tf(*base, *flags, "--key-split", "first", env=environment))
    assert (by_flag["seed"], by_flag["output"]["path"]) == (3, "z.record")
    assert (by_flag["ops"], by_flag["select"]) == ([{"keep": ["cls"]}], {"cls": "cls"})
    assert "key_split" not in by_flag["input"]
    other = tmp_path / "other"
    write_tar(other / "b.tar", samples(2))
    by_argument = spec_of(tar2tf(*base, other, "b.tar"))
    assert by_argument["input"] == {"bucket": str(other), "template": ["b.tar"], "key_split": "last"}


def test_a_flag_equal_to_its_default_still_overrides_the_spec(bucket: Path, tmp_path: Path) -> None:
    text = f"input: {{bucket: {bucket}}}\nseed: 5\noutput: {{path: '{tmp_path}/x.record', compression: gzip}}\n"
    base = ["convert", "--dry-run", "--json", "--spec", written(tmp_path, text)]
    spec = spec_of(tar2tf(*base, "--seed", "0", "--compression", "none"))
    assert "seed" not in spec
    assert "compression" not in spec["output"]


def test_the_environment_names_the_spec_itself(bucket: Path, tmp_path: Path) -> None:
    path = written(tmp_path, f"input: {{bucket: {bucket}}}\noutput: {{path: '{tmp_path}/x.record'}}\nseed: 8\n")
    assert spec_of(tar2tf("convert", "--dry-run", "--json", env={"TAR2TF_SPEC": path}))["seed"] == 8


def test_a_spec_comes_on_standard_input(bucket: Path, tmp_path: Path) -> None:
    text = f"input: {{bucket: {bucket}}}\nlimit: 7\noutput: {{path: '{tmp_path}/out/x.record'}}\n"
    assert tar2tf("convert", "--spec", "-", input=text).returncode == 0
    assert len(records(tmp_path / "out" / "x.record")) == 7
    wrong = tar2tf("convert", "--spec", "-", input="input: {buckett: x}\n")
    assert wrong.returncode == 2
    assert "<stdin>:1:9: there is no key 'buckett' in input; did you mean 'bucket'?" in wrong.stderr


def test_faults_of_a_spec_end_the_command_with_2_and_name_file_line_and_column(tmp_path: Path) -> None:
    path = written(tmp_path, "inputt: {}\nops:\n  - decod: jpg\n")
    done = tar2tf("convert", "--spec", path)
    assert done.returncode == 2
    assert f"{path}:1:1: there is no key 'inputt'; did you mean 'input'?" in done.stderr
    assert f"{path}:3:5: there is no op 'decod'; did you mean 'decode'?" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output: {path: x}\n", "no bucket"),
        ("input: {bucket: x}\n", "no output"),
        ("input: {bucket: x}\noutput: {path: y}\nlimit: -2\n", "limit"),
        ("input: {bucket: x}\noutput: {path: y}\nmax_errors: -1\n", "max_errors"),
        ("input: {bucket: x}\noutput: {path: y, num_shards: 0}\n", "num_shards"),
        ("input: {bucket: x}\noutput: {path: y}\nimage_size: 0\n", "image_size"),
        ("input: {bucket: x}\noutput: {path: y}\nsplit: {a: 0.5, b: 0.5}\n", "<split>"),
        ("input: {bucket: x}\noutput: {path: '<split>'}\nsplit: {a: 0.5, b: 0.6}\n", "sum"),
        ("input: {bucket: x}\noutput: {path: '<>.r', num_shards: 3, max_shard_size: 5}\n", "--num-shards"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        yaml_file.read(written(tmp_path, text))


# --- YAML ---


def test_anchors_and_merges_mean_what_yaml_says(tmp_path: Path) -> None:
    text = """\
input: {bucket: b}
ops:
  - resize: &a {ext: jpg, size: &size [3, 4]}
  - resize: {<<: *a, ext: png}
  - resize: {ext: seg, size: *size}
output: {path: x}
"""
    ops = [op.canonical() for op in yaml_file.read(written(tmp_path, text)).ops]
    assert ops == [{"resize": {"ext": ext, "size": [3, 4]}} for ext in ("jpg", "png", "seg")]


def test_an_anchor_within_itself_is_an_error_and_no_hang(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        yaml_file.read(written(tmp_path, "input: &a {bucket: b, template: [*a]}\noutput: {path: x}\n"))


def test_a_spec_may_be_json(tmp_path: Path) -> None:
    document = {"input": {"bucket": "b"}, "ops": [{"decode": "jpg"}, "drop_empty"], "output": {"path": "x"}}
    assert len(yaml_file.read(written(tmp_path, json.dumps(document))).ops) == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("100MB", 10**8), ("100MiB", 100 * 2**20), ("1GB", 10**9), ("1.5kB", 1500), ("4096", 4096), ("1 GiB", 2**30)],
)
def test_sizes_are_decimal_or_binary_as_written(text: str, size: int, tmp_path: Path) -> None:
    spec = f"input: {{bucket: b}}\noutput: {{path: x, max_shard_size: {text}}}\n"
    assert yaml_file.read(written(tmp_path, spec)).output.max_shard_size == size == parse_size(text, "max_shard_size")


@pytest.mark.parametrize("text", ["0", "-5", "big", "10XB", "100zz", "1GG", "5 kilo", "MB", "", "1e3", "inf"])
def test_what_is_no_size_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text, "max_shard_size")


@pytest.mark.parametrize("text", ["train", "train=x", "=1", "a=0.5,a=0.5", ""])
def test_what_is_no_split_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="split"):
        Conversion("in", "<split>-<>.record", split=text)


# --- The canonical form is a spec ---

CONVERSIONS = {
    "plain": ["-o", "OUT/x.record"],
    "ops": [
        *["-o", "OUT/x-<>.record", "--max-shard-size", "50kB", "--op", "decode:jpg", "--op", "rotate:jpg"],
        *["--op", "resize:jpg,16x24", "--op", "cast:jpg,uint8", "--op", "rename:image=png,jpg", "--op", "keep:image"],
        *["--op", "drop_empty", "--seed", "4"],
    ],
    "select": ["-o", "OUT/x.record", "--select", "jpg,id=json:label.id,k=__key__", "--type", "id=float"],
    "preset": ["-o", "OUT/x.record", "--preset", "imagenet-tensor", "--image-size", "20", "--limit", "5"],
    "rest": [
        *["-o", "OUT/<split>-<00>.gz", "--split", "a=0.5,b=0.5", "--compression", "gzip", "--records-per-shard", "4"],
        *["--shuffle", "--on-error", "skip", "--max-errors", "3", "--key-split", "last", "--max-pixels", "1000000"],
    ],
}


@pytest.mark.parametrize("case", CONVERSIONS)
def test_the_spec_of_a_manifest_is_a_spec_that_gives_the_same_bytes(case: str, tmp_path: Path) -> None:
    out = tmp_path / "first"
    convert(PHOTOS, *[word.replace("OUT", str(out)) for word in CONVERSIONS[case]])
    (manifest,) = [json.loads(data) for name, data in tree(out).items() if name.endswith("manifest.json")]
    again = tmp_path / "again"
    again.mkdir()
    path = written(tmp_path, json.dumps(manifest["spec"]))
    convert("--spec", path, cwd=again)
    assert tree(again) == tree(out)


def test_a_one_liner_and_its_spec_file_are_the_same_conversion(tmp_path: Path) -> None:
    convert(PHOTOS, "-o", tmp_path / "a" / "x.record", "--op", "decode:jpg", "--op", "center_crop:jpg", "--seed", "2")
    text = f"input: {{bucket: {PHOTOS}}}\nops: [decode: jpg, center_crop: jpg]\nseed: 2\noutput: {{path: b/x.record}}\n"
    convert("--spec", written(tmp_path, text), cwd=tmp_path)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert len(examples(tmp_path / "a" / "x.record")) == 24


def test_a_tilde_is_the_home_folder_in_a_file_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "spec.yaml").write_text("input: {bucket: ~/in}\noutput: {path: ~/out/<>.record}\n")
    conversion = yaml_file.read(str(tmp_path / "spec.yaml"))
    assert (conversion.input.bucket, conversion.output.path) == ("/home/me/in", "/home/me/out/<>.record")


@pytest.mark.parametrize(
    ("bucket", "recorded"),
    [
        ("./a//b/.", "a/b"),
        ("/a/", "/a"),
        ("../a", "../a"),
        ("./", "."),
        ("./-", "./-"),
        ("./~a", "./~a"),
        ("-", "-"),
        ("s3://a/b/", "s3://a/b"),
    ],
)
def test_a_bucket_is_recorded_in_its_shortest_spelling(bucket: str, recorded: str) -> None:
    assert as_recorded(bucket) == recorded


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"split: {{a: 1{'0' * 400}, b: 1}}", "split is too large"),
        (f"ops: [{{rotate: {{ext: jpg, angle: 1{'0' * 400}}}}}]", "rotate angle is too large"),
        (f"retry_for: 1{'0' * 400}", "retry_for must be a number of seconds"),
        ('input: {bucket: "b\\ud800"}', "bucket has the character '\\ud800'"),
    ],
)
def test_a_value_beyond_numbers_and_text_is_refused_where_it_stands(line: str, what: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    rest = "" if line.startswith("input") else "input: {bucket: in}\n"
    spec.write_text(f"{line}\n{rest}output: {{path: '<split>-<>.record'}}\n")
    done = tar2tf("convert", "--spec", spec)
    assert done.returncode == 2
    assert f"error: {spec}:1:" in done.stderr
    assert what in done.stderr


@pytest.mark.parametrize(
    ("path", "recorded"),
    [
        ("x.record", "x.record"),
        ("a/b/x-<>.record", "x-<>.record"),
        ("/a/b/<split>/x-<>.record", "<split>/x-<>.record"),
        ("s3://b/c/d/x.record", "x.record"),
        ("a/b/<split>-<>.record", "<split>-<>.record"),
    ],
)
def test_an_output_is_recorded_as_the_folder_of_its_manifest_sees_it(path: str, recorded: str) -> None:
    split = {"a": 0.5, "b": 0.5} if "<split>" in path else {}
    assert Conversion("in", path, split=split).canonical()["output"] == {"path": recorded}


def test_options_that_cannot_change_the_output_are_not_recorded() -> None:
    plain = Conversion(Input("in", keys="k"), "out/x.record").canonical()
    given = Input("in", keys="k", keys_missing="skip", no_sign_request=True)
    assert Conversion(given, "out/x.record", retry_for=3, remote_exec=True, etl="mine").canonical() == plain
    assert plain == {"input": {"bucket": "in", "keys": "k"}, "output": {"path": "x.record"}}


@pytest.mark.parametrize(
    ("options", "least"),
    [({"image_size": 1, "preset": "imagenet-tensor"}, "image_size"), ({"max_pixels": 1}, "max_pixels")],
)
def test_the_least_value_of_a_number_is_one(options: dict[str, Any], least: str) -> None:
    assert getattr(Conversion("in", "x.record", **options), least) == 1
    with pytest.raises(UsageError, match=f"^{least} must be 1 or more, not 0$"):
        Conversion("in", "x.record", **{**options, least: 0})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("join_missing", ("error", "skip", "keep")),
        ("join_many", ("error", "list", "repeat")),
        ("keys_missing", ("error", "skip")),
        ("key_split", ("first", "last")),
    ],
)
def test_each_choice_of_an_input_is_accepted(name: str, values: tuple[str, ...]) -> None:
    for value in values:
        given: dict[str, Any] = {"join": "more", "keys": "keys", name: value}
        assert getattr(Input("in", **given), name) == value
