"""A folder that TensorFlow Datasets describes is a shard set with splits and types; resharded, it remains one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from example_messages import encoded
from shards import records
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.errors import DamagedShardError, NothingFoundError, SourceError, UsageError
from tar2tf_cli.formats.example import frame
from tar2tf_cli.inputs.manifest import ShardEntry
from tar2tf_cli.inputs.shard_set import resolve
from tar2tf_cli.inputs.tfds_folder import TfdsFolder, shard_template, side_files, why_no_tfds
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.stores.directory import DirectorySource

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("readers")]


def tensor(dtype: str, *lengths: int, **more: Any) -> dict[str, Any]:
    shape = {"dimensions": [str(length) for length in lengths]} if lengths else {}
    return {"pythonClassName": "Tensor", "tensor": {"dtype": dtype, "encoding": "none", "shape": shape, **more}}


def sequence(feature: dict[str, Any], length: int = -1) -> dict[str, Any]:
    return {"pythonClassName": "Sequence", "sequence": {"feature": feature, "length": str(length)}}


def group(**features: Any) -> dict[str, Any]:
    return {"pythonClassName": "FeaturesDict", "featuresDict": {"features": features}}


FEATURES = group(
    flag=tensor("bool"),
    small=tensor("uint8"),
    maybe=tensor("int32", optional=True),
    pair=tensor("float64", 2),
    text={"text": {}},
    label={"classLabel": {"numClasses": "3"}},
    steps=sequence(group(action=tensor("float32", 2), first=tensor("bool"))),
    rows=sequence(sequence(tensor("int64"))),
)


def example(number: int) -> bytes:
    """An example as TensorFlow Datasets stores it."""
    return encoded(
        {
            "flag": ("int64", [number % 2]),
            "small": ("int64", [number]),
            **({"maybe": ("int64", [number])} if number % 2 else {}),
            "pair": ("float", [number, 0.5]),
            "text": ("bytes", [f"t{number}".encode()]),
            "label": ("int64", [number % 3]),
            "steps/action": ("float", [number] * 2 * number),
            "steps/first": ("int64", [1, *[0] * number][:number]),
            "rows/ragged_row_lengths_0": ("int64", [2, 0, 1]),
            "rows/ragged_flat_values": ("int64", [number, 5, 6]),
        }
    )


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A folder as TensorFlow Datasets writes it, with 12 records of train and 4 of test."""
    folder = tmp_path / "toy" / "2.0.0"
    folder.mkdir(parents=True)
    splits = []
    for split, first, shards in (("train", 0, 3), ("test", 12, 1)):
        splits.append({"name": split, "numBytes": "77", "shardLengths": ["4"] * shards})
        for number in range(shards):
            messages = [example(first + 4 * number + n) for n in range(4)]
            framed = b"".join(part for message in messages for part in frame([message], len(message)))
            (folder / f"toy-{split}.tfrecord-{number:05d}-of-{shards:05d}").write_bytes(framed)
    info = {"name": "toy", "version": "2.0.0", "fileFormat": "tfrecord", "citation": "Toy", "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(FEATURES))
    (folder / "label.labels.txt").write_text("a\nb\nc\n")
    return folder


def test_a_described_folder_has_splits_types_and_files_that_are_no_shards(described: Path) -> None:
    shards = resolve(str(described))
    assert (len(shards.items), {*shards.splits.values()}) == (4, {"train", "test"})
    assert not shards.left_out.others
    assert {*shards.left_out.tfds} == {"dataset_info.json", "features.json", "label.labels.txt"}
    (note,) = shards.notes()
    files = "dataset_info.json, features.json, label.labels.txt"
    held = "toy 2.0.0 with 2 splits (train, test)"
    assert note == f"note: described for TensorFlow Datasets, by {files}: {held}"


def test_values_have_the_types_that_features_json_gives(described: Path) -> None:
    samples = open_records(described, split="train")
    assert len(samples) == 12
    forms = samples.schema()
    assert forms["flag"] == ("bool", (), False)
    assert forms["small"] == ("uint8", (), False)
    assert forms["maybe"] == ("int32", (), True)
    assert forms["pair"] == ("float64", (2,), False)
    assert forms["steps/action"] == ("float32", (None, 2), False)
    assert samples[1]["steps/action"].shape == (1, 2)
    assert samples[0]["steps/action"].shape == (0, 2)
    assert samples[3]["steps/first"].tolist() == [True, False, False]
    assert (samples[2]["maybe"].tolist(), samples[3]["maybe"].tolist()) == ([], [3])
    assert samples[5]["rows/ragged_row_lengths_0"].tolist() == [2, 0, 1]
    for sample, tensors in zip(samples, load_dataset(described, split="train").as_numpy_iterator(), strict=True):
        for name, one in sample.items():
            np.testing.assert_array_equal(tensors[name], one)


@pytest.mark.parametrize("named", ["", "dataset_info.json", "toy-*"])
def test_resharding_keeps_splits_records_and_description(described: Path, tmp_path: Path, named: str) -> None:
    out = tmp_path / "out"
    path = out / "toy-<split>.tfrecord-<00000>-of-<total>"
    arguments = ("convert", described / named, "-o", path, "--num-shards", "2", "-j", "1")
    done = tar2tf(*arguments)
    assert done.returncode == 0, done.stderr
    for name in ("features.json", "label.labels.txt"):
        assert (out / name).read_bytes() == (described / name).read_bytes()
    info = json.loads((out / "dataset_info.json").read_bytes())
    assert (info["name"], info["version"], info["citation"]) == ("toy", "2.0.0", "Toy")
    lengths = {split["name"]: split["shardLengths"] for split in info["splits"]}
    assert lengths == {"train": ["6", "6"], "test": ["2", "2"]}
    assert {split["filepathTemplate"] for split in info["splits"]} == {"{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"}
    for split in ("train", "test"):
        before, after = (sorted(folder.glob(f"*{split}*")) for folder in (described, out))
        assert records(*after) == records(*before)
    assert tar2tf("verify", out).returncode == 0
    again = tar2tf(*arguments)
    assert "up to date" in again.stderr, again.stderr
    (out / "features.json").unlink()
    assert tar2tf(*arguments, "--overwrite").returncode == 0
    assert (out / "features.json").exists()


def test_a_resharded_data_set_can_get_another_name(described: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "new-<split>.tfrecord-<00000>-of-<total>"
    done = tar2tf("convert", described, "-o", path, "--tfds", "new:3.0.0", "-j", "1")
    assert done.returncode == 0, done.stderr
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_bytes())
    assert (info["name"], info["version"], info["citation"]) == ("new", "3.0.0", "Toy")
    assert (tmp_path / "out" / "features.json").read_bytes() == (described / "features.json").read_bytes()


def test_a_folder_with_one_split_keeps_it(described: Path, tmp_path: Path) -> None:
    info = json.loads((described / "dataset_info.json").read_bytes())
    info["splits"] = info["splits"][:1]
    (described / "dataset_info.json").write_text(json.dumps(info))
    for shard in described.glob("*test*"):
        shard.unlink()
    done = tar2tf("convert", described, "-o", tmp_path / "o" / "toy-<split>.tfrecord-<00000>-of-<total>", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "o").glob("toy*")] == ["toy-train.tfrecord-00000-of-00001"]


def test_splits_are_not_merged_without_a_word(described: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", described, "-o", tmp_path / "all.record")
    assert done.returncode == 2
    assert "holds the splits train, test\n  keep them with <split> in the output path" in done.stderr


def test_ops_see_typed_entries_and_what_they_change_is_not_described(described: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--op", "filter:small,ge,14", "--select", "flag,small,pair", "-j", "1")
    done = tar2tf("convert", described, "-o", out / "toy-<split>.tfrecord-<00000>-of-<total>", *options)
    assert done.returncode == 0, done.stderr
    assert not (out / "dataset_info.json").exists()
    forms = open_records(out).schema()
    assert (forms["flag"].dtype, forms["small"].dtype, forms["pair"].dtype) == ("bool", "uint8", "float64")


def test_a_note_says_why_an_output_is_not_described(described: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", described, "-o", tmp_path / "<split>-<>.record.gz", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert (
        "features.json and dataset_info.json are not written for the output: it cannot read compressed" in done.stderr
    )


def test_verify_compares_shards_with_the_lengths_in_dataset_info(described: Path) -> None:
    assert tar2tf("verify", described / "dataset_info.json").returncode == 0
    text = (described / "dataset_info.json").read_text()
    (described / "dataset_info.json").write_text(text.replace('"4"', '"5"', 1))
    done = tar2tf("verify", described / "dataset_info.json")
    assert done.returncode == 1
    assert "the file has 4 records, but 5 in the manifest" in done.stdout + done.stderr


def test_damaged_descriptions_are_named(described: Path) -> None:
    info = described / "dataset_info.json"
    info.write_text(info.read_text().replace("tfrecord", "riegeli"))
    with pytest.raises(SourceError, match="describes shards of the format riegeli, not TFRecord"):
        open_records(info)
    info.write_text("{")
    with pytest.raises(DamagedShardError, match="is not a JSON object"):
        open_records(info)
    info.write_text('{"splits": [{"name": 3, "shardLengths": ["x"]}]}')
    with pytest.raises(DamagedShardError, match="does not describe shards as TensorFlow Datasets does"):
        open_records(info)
    info.write_text('{"splits": []}')
    assert "lists no shards" in tar2tf("inspect", info).stderr


@pytest.mark.parametrize("splits", [{"splits": []}, {}])
def test_a_description_without_splits_is_an_error_and_its_folder_is_read(described: Path, splits: Any) -> None:
    whole, info = [*open_records(described)], described / "dataset_info.json"
    info.write_text(json.dumps({"name": "x", **splits}))
    with pytest.raises(SourceError, match="the manifest lists no shards, so there is nothing to read"):
        open_records(info)
    for path in described.glob("*test.*"):
        path.unlink()
    assert len(open_records(described)) == len(records(*sorted(described.glob("*train.*")))) < len(whole)
    for path in described.glob("*train.*"):
        path.unlink()
    with pytest.raises(SourceError):
        open_records(described)


EVERY_TYPE: dict[str, tuple[dict[str, Any], dict[str, tuple[str, str, list[int | None]]], list[str]]] = {
    "image": ({"pythonClassName": "a.b.Image", "image": {}}, {"x": ("bytes", "bytes", [])}, ["Image"]),
    "text": ({"pythonClassName": "Text", "text": {}}, {"x": ("bytes", "bytes", [])}, ["Text"]),
    "label": ({"classLabel": {}}, {"x": ("int64", "int64", [])}, ["int64"]),
    "box": (
        {"boundingBox": {"dtype": "float64", "shape": {"dimensions": ["2", "2"]}}},
        {"x": ("float", "float64", [2, 2])},
        ["float64 [2, 2]"],
    ),
    "box by default": ({"boundingBox": {}}, {"x": ("float", "float32", [4])}, ["float32 [4]"]),
    "audio": (
        {"audio": {"dtype": "int64", "encoding": "NONE", "shape": {"dimensions": ["-1"]}}},
        {"x": ("int64", "int64", [None])},
        ["int64 [?]"],
    ),
    "lazy audio": (
        {"audio": {"dtype": "int64", "lazyDecode": True, "shape": {"dimensions": ["-1"]}}},
        {"x": ("bytes", "bytes", [])},
        [""],
    ),
    "video": (
        {"pythonClassName": "Video", "video": {"shape": {"dimensions": ["-1", "4", "4", "3"]}}},
        {"x": ("bytes", "bytes", [None])},
        ["Video [?]"],
    ),
    "short video": ({"video": {"shape": {"dimensions": ["7", "4"]}}}, {"x": ("bytes", "bytes", [7])}, ["[7]"]),
    "video by default": ({"video": {}}, {"x": ("bytes", "bytes", [None])}, ["[?]"]),
    "languages": (
        {"pythonClassName": "Translation", "translation": {"languages": ["de", "en"]}},
        {"x/de": ("bytes", "bytes", []), "x/en": ("bytes", "bytes", [])},
        ["Translation", "Translation"],
    ),
    "any languages": (
        {"translation": {"languages": ["de", "en"], "variableLanguagesPerExample": True}},
        {"x/language": ("bytes", "bytes", [None]), "x/translation": ("bytes", "bytes", [None])},
        ["[?]", "[?]"],
    ),
    "no languages": ({"translation": {}}, {}, []),
    "nothing": (group(), {}, []),
    "float": ({"tensor": {"shape": {}}}, {"x": ("float", "float32", [])}, ["float32"]),
    "bytes": (tensor("int16", 2, 2, encoding="bytes"), {"x": ("raw", "int16", [2, 2])}, ["Tensor int16 [2, 2]"]),
    "bytes of text": (tensor("string", 2, encoding="BYTES"), {"x": ("bytes", "bytes", [])}, ["Tensor"]),
    "bytes in a sequence": (
        sequence(tensor("int16", 2, encoding="bytes")),
        {"x": ("bytes", "bytes", [None])},
        ["Tensor [?]"],
    ),
    "zlib": (tensor("int16", 2, 2, encoding="zlib"), {"x": ("bytes", "bytes", [])}, ["Tensor"]),
    "shape": (
        tensor("float32", -1, 0, encoding="bytes"),
        {"x": ("raw", "float32", [None, 0])},
        ["Tensor float32 [?, 0]"],
    ),
    "shapes": (
        tensor("float32", -1, -1, encoding="bytes"),
        {"x/shape": ("int64", "int32", [2]), "x/value": ("bytes", "bytes", [])},
        ["Tensor int32 [2]", "Tensor"],
    ),
    "unknown lengths": (tensor("float32", -1, -1), {"x": ("float", "float32", [None])}, ["Tensor float32 [?]"]),
    "texts": (tensor("string", -1), {"x": ("bytes", "bytes", [None])}, ["Tensor [?]"]),
    "fixed": (sequence(tensor("int8"), 3), {"x": ("int64", "int8", [3])}, ["Tensor int8 [3]"]),
    "sequence by default": ({"sequence": {"feature": {"text": {}}}}, {"x": ("bytes", "bytes", [None])}, ["[?]"]),
    "sequences": (
        sequence(sequence(tensor("int8", 2)), 3),
        {"x/ragged_row_lengths_0": ("int64", "int64", [None]), "x/ragged_flat_values": ("int64", "int8", [None, 2])},
        ["row lengths int64 [?]", "Tensor int8 [?, 2]"],
    ),
    "nested": (
        group(y=tensor("bool"), z=group(text=sequence({"text": {}}))),
        {"x/y": ("int64", "bool", []), "x/z/text": ("bytes", "bytes", [None])},
        ["Tensor bool", "[?]"],
    ),
}


def test_features_are_stored_as_their_types_say() -> None:
    for name, (feature, stored, types) in EVERY_TYPE.items():
        folder = TfdsFolder({}, {"features.json": json.dumps(group(x=feature)).encode()})
        made = folder.described(5)
        found = {key: (about["encoding"], about["dtype"], about["shape"]) for key, about in made.items()}
        assert (name, found) == (name, stored)
        assert [about.get("count") for about in made.values()] == [5] * len(made)
        assert folder.types() == dict(zip(stored, types, strict=True))


def test_a_feature_of_an_unknown_type_is_named() -> None:
    feature = {"pythonClassName": "own.Graph", "graph": {}}
    folder = TfdsFolder({}, {"features.json": json.dumps(group(a=group(x=feature))).encode()})
    with pytest.raises(ValueError, match=r"^the feature 'a/x' is of the type own\.Graph$"):
        folder.types()


def test_shards_are_named_by_the_usual_template_or_by_that_of_their_split() -> None:
    names = {"name": "toy", "splits": [{"name": "train", "shardLengths": ["3", "4"]}, {"name": "empty"}]}
    other = {"name": "a", "filepathTemplate": "{DATASET}.{SPLIT}.{FILEFORMAT}.{SHARD_INDEX}.{NUM_SHARDS}"}
    shards = dict(TfdsFolder({**names, "version": "1.0.0"}, {}).splits())
    assert shards == {
        "train": [("toy-train.tfrecord-00000-of-00002", 3), ("toy-train.tfrecord-00001-of-00002", 4)],
        "empty": [],
    }
    assert dict(TfdsFolder({"splits": [{**other, "shardLengths": [5]}]}, {}).splits()) == {
        "a": [(".a.tfrecord.00000.00001", 5)]
    }
    assert [*TfdsFolder({}, {}).splits()] == []
    assert [TfdsFolder(info, {}).name for info in ({**names, "version": "1.0.0"}, names, {})] == [
        "toy 1.0.0",
        "toy",
        "",
    ]


@pytest.mark.parametrize(
    ("paths", "template"),
    [
        (["toy-train.tfrecord-00000-of-00001"], "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"),
        (["toy-train.tfrecord-00000-of-00001.a"], "toy-train.tfrecord-{SHARD_X_OF_Y}.a"),
        (["x{-00000-of-00002", "x{-00001-of-00002"], "x{{-{SHARD_X_OF_Y}"),
        (["00000}.a", "00001}.a"], "{SHARD_INDEX}}}.a"),
        (["toy-train.tfrecord-00000", "toy-train.tfrecord-00001"], "toy-train.tfrecord-{SHARD_INDEX}"),
        (["{one}"], "{{one}}"),
        (["00001.a", "00002.a"], None),
        (["a-00000-of-00003", "a-00001-of-00003"], "a-{SHARD_INDEX}-of-00003"),
        (["a-00000", "b-00001"], None),
    ],
)
def test_names_of_shards_have_a_template_if_their_numbers_begin_at_0(paths: list[str], template: str | None) -> None:
    if template:
        assert shard_template(paths, "toy-train.tfrecord-") == template
        return
    with pytest.raises(UsageError) as raised:
        shard_template(paths, "")
    assert raised.value.message == f"TensorFlow Datasets does not find shards that are named like {paths[0]}"
    assert raised.value.hint == (
        "convert to -o 'FOLDER/NAME-<split>.tfrecord-<00000>-of-<total>', or to another path with <00000>"
    )


def test_other_shards_are_described_by_split_with_statistics_if_nothing_was_lost() -> None:
    before = [{"name": "train", "shardLengths": ["3", "4"], "numBytes": "70", "statistics": 1}]
    before.append({"name": "test", "shardLengths": ["5"], "statistics": 2})
    folder = TfdsFolder({"name": "toy", "splits": before, "citation": "T"}, {"features.json": b"{}"})
    shards = [
        ShardEntry("toy-train.tfrecord-00000-of-00002", 2, 10, "", "train"),
        ShardEntry("toy-train.tfrecord-00001-of-00002", 5, 20, "", "train"),
        ShardEntry("toy-test.tfrecord-00000-of-00001", 4, 30, "", "test"),
    ]
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    files = folder.for_shards(shards)
    assert files["features.json"] == b"{}"
    assert json.loads(files["dataset_info.json"]) == {
        "name": "toy",
        "citation": "T",
        "splits": [
            {
                "name": "train",
                "filepathTemplate": template,
                "shardLengths": ["2", "5"],
                "numBytes": "70",
                "statistics": 1,
            },
            {"name": "test", "filepathTemplate": template, "shardLengths": ["4"], "numBytes": "30"},
        ],
    }
    alone = folder.for_shards([ShardEntry("a.record", 7, 8, "")])["dataset_info.json"]
    assert json.loads(alone)["splits"] == [
        {
            "name": "train",
            "filepathTemplate": "a.record",
            "shardLengths": ["7"],
            "numBytes": "70",
            "statistics": 1,
        }
    ]
    assert alone == json.dumps(json.loads(alone), indent=4, sort_keys=True).encode() + b"\n"


def test_files_that_describe_a_folder_are_its_only_ones_if_both_are_there() -> None:
    both = ["features.json", "dataset_info.json"]
    assert side_files(["a", *both, "x.labels.txt", ".labels.txt"]) == [*both, "x.labels.txt", ".labels.txt"]
    assert [side_files([name, "x.labels.txt"]) for name in both] == [[], []]


def test_reasons_why_tfds_cannot_read_an_output() -> None:
    reasons = {
        "-": "it reads shards in a folder",
        "a-<>.tar": "it reads TFRecord shards, and the output is tar",
        "a-<>.record.gz": "it cannot read compressed shards",
        "a-<>.record": "it does not find shards that are named a-<>.record",
        "a-<00000>.record": None,
        "a.record": None,
    }
    assert {path: why_no_tfds(Output(path)) for path in reasons} == reasons


@pytest.mark.parametrize(
    ("feature", "names"),
    [
        (tensor("int32", optional=True), ["x"]),
        (tensor("int16", 2, encoding="bytes", optional=True), ["x"]),
        (tensor("int16", 2, encoding="zlib", optional=True), ["x"]),
        (tensor("int16", -1, -1, encoding="bytes", optional=True), ["x/shape", "x/value"]),
        (
            sequence(sequence(sequence(tensor("string", optional=True)))),
            ["x/ragged_row_lengths_0", "x/ragged_row_lengths_1", "x/ragged_flat_values"],
        ),
    ],
)
def test_how_many_examples_have_an_optional_feature_is_not_said(feature: dict[str, Any], names: list[str]) -> None:
    made = TfdsFolder({}, {"features.json": json.dumps(group(x=feature, y=tensor("bool"))).encode()}).described(5)
    assert [*made] == [*names, "y"]
    assert [about.get("count") for about in made.values()] == [None] * len(names) + [5]


def test_a_missing_description_is_an_error_that_says_what_a_folder_needs(described: Path) -> None:
    (described / "features.json").unlink()
    with pytest.raises(NothingFoundError) as raised:
        TfdsFolder.read(DirectorySource(str(described)))
    assert raised.value.shard == str(described / "features.json")
    assert raised.value.message == "does not exist"
    hint = "TensorFlow Datasets describes a folder by dataset_info.json and features.json; restore it from a copy"
    assert raised.value.hint == hint
