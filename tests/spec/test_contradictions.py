"""Options that contradict each other: the whole message and hint of each, and the neighbours that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from tar2tf_cli import Conversion, Input, Output
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import Func

EXAMPLES = {"kind": "examples", "example_class": "m.py:Rows"}
FOR_TARS = "--key-split, --regroup and --ignore-missing-end are only for tars"
FOR_EXAMPLES = "--example-class and --example-arg need --from examples"
JOINS = "--join-key, --join-on, --join-many and --join-missing need --join"
COMPLETE = "but --from examples produces complete examples"
SIZED = "--num-shards already determines the size of shards: leave out --max-shard-size and --records-per-shard"
NO_SPLIT = "the output path has <split>, but no --split is given"
FRACTIONS = "such as --split train=0.9,val=0.1"
SEEKABLE = "--index and --compression cannot be combined, as a compressed shard is not seekable: use one of them"
ONE_STREAM = "is a single stream without shards: remove the options that divide it"
CLUSTER = "cannot run in the cluster: it reads the samples locally first"
OF_SINGLE = "is about single samples, which --group-by makes one of: leave it out"
OWN_SHARDS = "<input> gives each input its own shards, so --shuffle and --limit cannot be used with it"
ONE_KEY = "would give all samples of an input one key"
FORM = "write text with <input>, <key>, <key:BEFORE*AFTER>, <n>, <n:09> and {SELECTION}, such as {json:id}"


def made(given: dict[str, Any]) -> Conversion:
    """A conversion from its options: those of Input and Output by `input_NAME` and `output_NAME`."""
    parts: dict[str, dict[str, Any]] = {"input": {"bucket": "in"}, "output": {"path": "x.record"}, "": {}}
    for name, value in given.items():
        section, _, field = name.partition("_")
        inner = section in ("input", "output")
        parts[section if inner else ""][field if inner else name] = value
    return Conversion(Input(**parts["input"]), Output(**parts["output"]), **parts[""])


def of_input(**given: Any) -> dict[str, Any]:
    return {f"input_{name}": value for name, value in given.items()}


def of_output(**given: Any) -> dict[str, Any]:
    return {f"output_{name}": value for name, value in given.items()}


INPUTS = [
    ({"bucket": "-", "kind": "table"}, "--from table reads local files, not standard input", None),
    ({"bucket": "s3://b", "kind": "imagefolder"}, "--from imagefolder reads local files, not the URL s3://b", None),
    ({"bucket": "s3://b", **EXAMPLES}, "--from examples reads local files, not the URL s3://b", None),
    ({"kind": "table", "regroup": False}, FOR_TARS, None),
    ({"kind": "table", "ignore_missing_end": True}, FOR_TARS, None),
    ({"kind": "imagefolder", "key_split": "last"}, FOR_TARS, None),
    (
        {"labels": "imagenet"},
        "--labels FILE is for the classes of an image folder",
        "add --from imagefolder, or name the feature that has them: --labels NAME=FILE",
    ),
    ({"columns": "a=b"}, "--columns is only for tables", "add --from table"),
    ({"keys_missing": "skip"}, "--keys-missing needs --keys", "add --keys FILE"),
    (
        {"kind": "table", "key": "<input>/<key>"},
        "<input> and <n> in --key are of shards, but --from table reads no shards",
        None,
    ),
    (
        {"kind": "imagefolder", "key": "<n>"},
        "<input> and <n> in --key are of shards, but --from imagefolder reads no shards",
        None,
    ),
    ({**EXAMPLES, "key": "a<key>"}, f"--key names samples, {COMPLETE}", None),
    ({"example_class": "m.py:Rows"}, FOR_EXAMPLES, "add --from examples"),
    ({"example_args": {"a": 1}}, FOR_EXAMPLES, "add --from examples"),
    ({"rows": (0, 1)}, FOR_EXAMPLES, "add --from examples"),
    ({"kind": "examples"}, "--from examples needs --example-class", "add --example-class FILE.py:CLASS"),
    ({"join_key": "a"}, JOINS, "add --join BUCKET"),
    ({"join_on": "a=cls"}, JOINS, "add --join BUCKET"),
    ({"join_missing": "skip"}, JOINS, "add --join BUCKET"),
    ({"join_many": "list"}, JOINS, "add --join BUCKET"),
    (
        {"join": "y", "join_key": "a", "join_on": "b=cls"},
        "--join-on b=cls names the column with the keys: leave out --join-key",
        None,
    ),
    ({"join": "y", **EXAMPLES}, f"--join adds entries to samples, {COMPLETE}", None),
    (
        {"join": "y", "join_on": "=cls"},
        "--join-on '=cls' is not COLUMN=SELECTION, such as id=json:image_id",
        None,
    ),
    ({"join": "y", "join_on": "a="}, "--join-on 'a=' is not COLUMN=SELECTION, such as id=json:image_id", None),
    ({"join": "y", "join_on": "*"}, "--join-on '*' selects several values; it takes one, such as json:id", None),
    ({"key": "<input>/a"}, f"--key '<input>/a' {ONE_KEY}; {FORM}", None),
    ({"key": "<input:a>"}, f"--key: '<input:a>' is not a field; {FORM}", None),
    ({"key": "<n:x>"}, f"--key: '<n:x>' is not a field; {FORM}", None),
    ({"key": "<n:100>"}, f"--key: '<n:100>' is not a field; {FORM}", None),
    ({"key": "<key:a>"}, f"--key: '<key:a>' is not a field; {FORM}", None),
    ({"key": "<key:*a*>"}, f"--key: '<key:*a*>' is not a field; {FORM}", None),
    ({"key": "a<b"}, f"--key 'a<b' cannot be understood at '<b'; {FORM}", None),
    ({"key": "<key>{json:a.*}"}, "--key 'json:a.*' selects several values; it takes one, such as json:id", None),
]

OUTPUTS = [
    ({"path": "x@4", "num_shards": 5}, "the output path 'x@4' and --num-shards 5 differ", None),
    (
        {"compression": "zstd"},
        "--compression zstd is only for tars: readers of TFRecords do not know it",
        "use none or gzip",
    ),
    (
        {"path": "x.tar.gz", "compression": "zstd"},
        "the output path 'x.tar.gz' has the name of a tar that is not compressed with zstd",
        "use the suffix .tar.zst, or leave out --compression",
    ),
    (
        {"path": "x.tar.zst", "compression": "gzip"},
        "the output path 'x.tar.zst' has the name of a tar that is not compressed with gzip",
        "use the suffix .tar.gz, or leave out --compression",
    ),
    (
        {"path": "-", "to": "tar", "compression": "gzip"},
        "a tar that goes to - is not compressed",
        "leave out --compression, and pipe it to gzip",
    ),
    (
        {"path": "/dev/null", "to": "tar", "compression": "zstd"},
        "a tar that goes to /dev/null is not compressed",
        "leave out --compression, and pipe it to gzip",
    ),
    ({"path": "x.record.bz2"}, "cannot write .bz2", "use .record, or .record.gz for gzip"),
    ({"path": "x.tar.xz"}, "cannot write .tar.xz", "use .tar, .tar.gz or .tar.zst"),
    ({"path": "x.tbz2"}, "cannot write .tbz2", "use .tar, .tar.gz or .tar.zst"),
    (
        {"path": "out/"},
        "the output path 'out/' has no file name",
        "add one, such as 'out/train-<>.record'",
    ),
    ({"path": ".."}, "the output path '..' has no file name", "add one, such as '../train-<>.record'"),
    ({"path": "a\0b"}, "the output path 'a\\x00b' has no file name", "add one, such as 'a\\x00b/train-<>.record'"),
    ({"path": "<>-<00>"}, "the output path '<>-<00>' has 2 number fields, but may have only one", None),
    ({"num_shards": 3, "max_shard_size": 5}, SIZED, None),
    ({"num_shards": 3, "records_per_shard": 5}, SIZED, None),
    (
        {"path": "a-<total>"},
        "the output path has <total> without a number",
        "add one, such as 'train-<00000>-of-<total>'",
    ),
    ({"path": "a.record.gz", "index": True}, SEEKABLE, None),
    ({"index": True, "compression": "gzip"}, SEEKABLE, None),
    ({"path": "-", "index": True}, f"standard output {ONE_STREAM}", None),
    ({"path": "-", "num_shards": 1}, f"standard output {ONE_STREAM}", None),
    ({"path": "-", "records_per_shard": 1}, f"standard output {ONE_STREAM}", None),
    ({"path": "/dev/null", "max_shard_size": 2}, f"/dev/null {ONE_STREAM}", None),
    (
        {"num_shards": "train=2"},
        "--num-shards has a number for each split, but the output path has no <split>",
        None,
    ),
]

SPLIT = {"output_path": "<split>-<>", "split": "train=0.5,val=0.5"}

CONVERSIONS: list[tuple[dict[str, Any], str, str | None]] = [
    (
        {"split": "a=1"},
        "--split needs <split> in the output path 'x.record'",
        "add it, such as 'out/<split>-<>.record'",
    ),
    ({"input_bucket": "-", "output_path": "<split>"}, NO_SPLIT, f"add one, {FRACTIONS}"),
    ({"input_kind": "table", "output_path": "<split>"}, NO_SPLIT, f"add one, {FRACTIONS}"),
    (
        {"input_join": "y", "input_join_many": "repeat", "output_path": "a.tar"},
        "--join-many repeat makes several samples of one key, which tars cannot hold",
        "use --join-many list, or write TFRecords",
    ),
    (
        {"output_path": "a.tar", "remote_exec": True},
        "--remote-exec writes TFRecords, but the output is a tar: leave it out",
        None,
    ),
    ({"output_path": "a.tar", "etl": "mine"}, "--etl writes TFRecords, but the output is a tar: leave it out", None),
    (
        {"output_path": "a.tar", "example_ops": [Func(len)]},
        "examples cannot be written to tars: name the output X.record",
        None,
    ),
    (
        {**SPLIT, "output_num_shards": "train=2,test=1"},
        "--num-shards has train, test, but --split has train, val",
        "give a number for each split",
    ),
    (
        {**SPLIT, **of_input(**EXAMPLES), "split_by": "cls"},
        f"--split-by takes a value of samples, {COMPLETE}",
        None,
    ),
    (
        {**SPLIT, **of_input(**EXAMPLES), "stratify": "cls"},
        f"--stratify takes a value of samples, {COMPLETE}",
        None,
    ),
    ({"output_path": "<split>", "split_by": "cls"}, "--split-by needs --split", f"add it, {FRACTIONS}"),
    ({"output_path": "<split>", "stratify": "cls"}, "--stratify needs --split", f"add it, {FRACTIONS}"),
    (
        {**SPLIT, "split_by": "cls", "stratify": "cls"},
        "--split-by and --stratify cannot be combined, as samples of one group may have several values of --stratify: "
        "use one of them",
        None,
    ),
    (
        {"record_to_example": len, "preset": "imagenet"},
        "record_to_example and preset both make the features: use one of them",
        None,
    ),
    (
        {"preset": "imagenet-tensor", "select": "jpg,foo"},
        "the preset imagenet-tensor would leave out the selected feature 'foo'",
        "it uses image, jpg, jpeg, png, bmp, webp, img, label, cls, class, synset, text, filename; leave the others "
        "out, or select everything without a preset",
    ),
    (
        {"preset": "image-label", "image_size": 3},
        "--image-size is only for the preset imagenet-tensor",
        "add --preset imagenet-tensor, or scale with --op resize:jpg,224x224",
    ),
    (
        {"image_size": 3},
        "--image-size is only for the preset imagenet-tensor",
        "add --preset imagenet-tensor, or scale with --op resize:jpg,224x224",
    ),
    ({"invalid_boxes": "drop"}, "--invalid-boxes needs boxes", "add --boxes SEL or --preset detection"),
    (
        {"invalid_boxes": "keep", "points": "json:p", "ops": ["decode:jpg"]},
        "--invalid-boxes needs boxes",
        "add --boxes SEL or --preset detection",
    ),
    *[
        ({name: value}, "--boxes, --points and --mask need ops, but there are none", "leave them out")
        for name, value in (("boxes", "json:b"), ("points", "json:b"), ("mask", "png"))
    ],
    (
        {"preset": "image-label", "max_pixels": 5},
        "--max-pixels has no effect with the preset image-label, which decodes no images",
        "leave it out",
    ),
    (
        {"etl": "mine", "remote_exec": False},
        "--etl and --no-remote-exec cannot be combined: leave out one of them",
        None,
    ),
    ({"labels": "cls=auto", "remote_exec": True}, f"--labels auto {CLUSTER}", "give --labels a file"),
    ({"labels": "cls=auto", "etl": "mine"}, f"--labels auto {CLUSTER}", "give --labels a file"),
    ({**SPLIT, "stratify": "cls", "remote_exec": True}, f"--stratify {CLUSTER}", None),
    ({**SPLIT, "stratify": "cls", "labels": "cls=auto", "etl": "mine"}, f"--stratify {CLUSTER}", None),
    ({"group_once": "cls"}, "--group-once needs --group-by", "add it, such as --group-by steps"),
    *[
        (
            {**given, "group_by": "steps", name: value},
            f"{flag} {OF_SINGLE}",
            f"convert with {flag} first, and group the samples of its output",
        )
        for given, name, value, flag in (
            ({}, "drop_duplicates", True, "--drop-duplicates"),
            (SPLIT, "split_by", "cls", "--split-by"),
            (SPLIT, "stratify", "cls", "--stratify"),
        )
    ],
    ({**of_input(**EXAMPLES), "group_by": "steps"}, f"--group-by groups samples, {COMPLETE}", None),
    (
        {"input_kind": "table", "output_path": "<input>"},
        "<input> stands for the name of an input shard, but --from table reads no shards",
        None,
    ),
    (
        {"output_path": "<input>-<split>", "split": "a=1"},
        "<input> and --split cannot be combined: use one of them",
        None,
    ),
    ({"output_path": "<input>", "shuffle": True}, OWN_SHARDS, None),
    ({"output_path": "<input>", "limit": 0}, OWN_SHARDS, None),
]

CONTRADICTIONS = [
    *[(of_input(**given), message, hint) for given, message, hint in INPUTS],
    *[(of_output(**given), message, hint) for given, message, hint in OUTPUTS],
    *CONVERSIONS,
]


@pytest.mark.parametrize(("given", "message", "hint"), CONTRADICTIONS, ids=lambda value: str(value)[:60])
def test_options_that_contradict_each_other_are_named_with_the_next_step(
    given: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        made(given)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "given",
    [
        of_input(bucket="s3://b/rows.jsonl", kind="table"),
        of_input(bucket="-"),
        of_input(bucket="-", kind="tfrecord"),
        of_input(kind="imagefolder", labels="imagenet"),
        of_input(kind="imagefolder", key="{json:id}"),
        of_input(kind="imagefolder", key="<key>"),
        of_input(join="y", join_key="a", join_on="cls"),
        of_input(**EXAMPLES, example_args="a=1", rows=(1, 1)),
        of_output(path="x.tfrecord@4", num_shards=4),
        of_output(path="x.tar.gz", compression="gzip"),
        of_output(path="-", compression="gzip"),
        {"input_kind": "imagefolder", "output_path": "<split>"},
        {"output_path": "<split>"},
        {"output_path": "-", "input_kind": "table"},
        {**SPLIT, "output_num_shards": "val=2,train=1"},
        {"preset": "imagenet-tensor", "image_size": 3, "max_pixels": 5},
        {"preset": "image-label", "max_pixels": 5, "ops": ["decode:jpg"]},
        {"max_pixels": 5},
        {"boxes": "json:b", "ops": ["decode:jpg"], "invalid_boxes": "keep"},
        {"etl": "mine", "remote_exec": True},
        {"stratify": "cls", "remote_exec": False, **SPLIT},
        {"labels": "cls=auto", "remote_exec": False},
        {"output_path": "<input>", "shuffle": False},
        {"input_join": "y", "input_join_many": "list", "output_path": "a.tar"},
    ],
    ids=lambda value: str(value)[:60],
)
def test_options_that_only_resemble_a_contradiction_are_accepted(given: dict[str, Any]) -> None:
    assert isinstance(made(given), Conversion)


@pytest.mark.parametrize(
    ("path", "given", "taken"),
    [
        ("x.record", {}, ("x.record", None, "none", None)),
        ("x.record.gz", {}, ("x.record.gz", None, "gzip", None)),
        ("x.tar", {}, ("x.tar", "tar", "none", None)),
        ("x.tar", {"to": "tfrecord"}, ("x.tar", "tfrecord", "none", None)),
        ("x.record", {"to": "tfrecord"}, ("x.record", None, "none", None)),
        ("x.tar.gz", {}, ("x.tar.gz", "tar", "gzip", None)),
        ("x.tgz", {}, ("x.tgz", "tar", "gzip", None)),
        ("x.tar.zst", {}, ("x.tar.zst", "tar", "zstd", None)),
        ("x.tfrecord@4", {}, ("x.tfrecord-<00000>-of-<total>", None, "none", 4)),
        ("x.record", {"compression": "gzip"}, ("x.record", None, "gzip", None)),
    ],
)
def test_a_path_decides_the_format_the_compression_and_the_number_of_shards(
    path: str, given: dict[str, Any], taken: tuple[str, str | None, str, int | None]
) -> None:
    output = Output(path, **given)
    assert (output.path, output.to, output.compression, output.num_shards) == taken
