"""What `export` and `convert --for` write next to shards, as the readers for which it is read it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import convert, tar2tf
from shards import PHOTOS, write_tar
from tar2tf_cli.datasets.side_files import export_card, export_schema, export_wids
from tar2tf_cli.errors import OutputExistsError, SourceError
from verify_runs import framed

SAMPLES = [(f"{number:04d}", {"txt": b"text %d" % number, "cls": b"%d" % (number % 3)}) for number in range(40)]


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    write_tar(tmp_path / "in/a.tar", SAMPLES)
    return tmp_path / "in"


def export(*arguments: str | Path) -> list[Path]:
    done = tar2tf("export", *arguments)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def front_matter(card: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML

    loaded: dict[str, Any] = YAML(typ="safe").load(card.read_text().split("---\n")[1])
    return loaded


def hf_rows(folder: Path) -> dict[str, list[str]]:
    """The keys of each split, as Hugging Face datasets reads a folder."""
    datasets = pytest.importorskip("datasets")
    read = datasets.load_dataset(str(folder), cache_dir=str(folder.with_suffix(".cache")))
    return {split: [row["__key__"] for row in rows] for split, rows in read.items()}


# --- The card ---


@pytest.mark.parametrize("path", ["<split>-<>.tar", "<split>/<00000>-of-<total>.tar", "x.<split>.tar"])
def test_a_card_lists_the_shards_of_each_split(path: str, bucket: Path, tmp_path: Path) -> None:
    limit = () if path == "x.<split>.tar" else ("--records-per-shard", 7)
    split = ("--split", "train=0.5,later=0.5")
    convert(bucket, "-o", tmp_path / "out" / path, *split, *limit, "--for", "hf")
    (config,) = front_matter(tmp_path / "out/README.md")["configs"]
    out = tmp_path / "out"
    files = {one["split"]: one["path"] for one in config["data_files"]}
    found = {name: {one.relative_to(out).as_posix() for one in out.glob(files[name])} for name in files}
    (manifest,) = out.glob("_*manifest.json")
    shards = json.loads(manifest.read_text())["shards"]
    assert found == {name: {one["path"] for one in shards if one["split"] == name} for name in ("train", "later")}


def test_where_a_glob_would_match_other_files_a_card_lists_the_shards(bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "out/x-<>.tar", "--num-shards", 2)
    (tmp_path / "out/x-3.tar").write_bytes(b"of another conversion")
    export("hf", tmp_path / "out/_x-manifest.json")
    (config,) = front_matter(tmp_path / "out/README.md")["configs"]
    assert config["data_files"] == [{"split": "train", "path": ["x-1.tar", "x-2.tar"]}]


def test_what_a_card_says_already_stays(bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "out/x-<>.tar", "--num-shards", 2)
    other = {"config_name": "other", "data_files": "other/*"}
    head = "---\nlicense: mit  # as agreed\nconfigs:\n- config_name: other\n  data_files: other/*\n---\n"
    (tmp_path / "out/README.md").write_text(head + "# Photos\n---\nwords\n")
    for _ in range(2):
        export("hf", tmp_path / "out")
    text = (tmp_path / "out/README.md").read_text()
    assert "license: mit  # as agreed\n" in text
    assert text.endswith("---\n# Photos\n---\nwords\n")
    about = front_matter(tmp_path / "out/README.md")
    assert about["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "x-*.tar"}]},
        other,
    ]


@pytest.mark.parametrize(
    ("card", "fault"),
    [
        (b"---\n[1\n---\n", "has a front matter that is not YAML of a dataset card"),
        (b"---\n- 1\n---\n", "has a front matter that is not YAML of a dataset card"),
        (b"---\nconfigs: 1\n---\n", "has a front matter that is not YAML of a dataset card"),
        (b"# \xff", "is not UTF-8"),
        (None, "cannot be read: Is a directory"),
    ],
)
def test_a_card_that_cannot_be_read_stays(card: bytes | None, fault: str, bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "out/x-<>.tar")
    path = tmp_path / "out/README.md"
    if card is None:
        path.mkdir()
    else:
        path.write_bytes(card)
    with pytest.raises(SourceError) as caught:
        export_card(tmp_path / "out")
    assert (caught.value.message, caught.value.shard) == (fault, str(path))
    assert path.is_dir() if card is None else path.read_bytes() == card


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_reads_the_folder_by_its_card(bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "one/train.tar")
    plain = hf_rows_or_fault(tmp_path / "one")
    export("hf", tmp_path / "one")
    assert plain != (right := {"train": [key for key, _ in SAMPLES]}), "else the card is not needed"
    assert hf_rows(tmp_path / "one") == right
    convert(
        bucket,
        "-o",
        tmp_path / "two/<split>-<>.tar.gz",
        "--split",
        "train=0.5,later=0.5",
        "--num-shards",
        2,
        "--for",
        "hf",
    )
    read = hf_rows(tmp_path / "two")
    assert list(read) == ["train", "later"]
    assert sorted(read["train"] + read["later"]) == [key for key, _ in SAMPLES]


def hf_rows_or_fault(folder: Path) -> dict[str, list[str]] | str:
    """What Hugging Face datasets makes of a folder without a card."""
    datasets = pytest.importorskip("datasets")
    try:
        read = datasets.load_dataset(str(folder), cache_dir=str(folder.with_suffix(".before")))
        return {split: [str(row.get("__key__")) for row in rows] for split, rows in read.items()}
    except Exception as error:
        return str(error)


# --- The schema ---


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Examples of features of every kind: single ones, arrays, lists that are of one value here and two there."""
    rows = [
        {"n": number, "score": number / 2, "list": [1] * (1 + number % 2), "box": [1.0, 2.0, 3.0, 4.0], "text": "ü"}
        | ({"maybe": 7} if number % 2 else {})
        for number in range(4)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    types = ("--type", "n=int64,score=float,list=int64_list,box=float_list")
    convert("--from", "table", tmp_path / "t.jsonl", "-o", tmp_path / "out/x-<>.record", *types, "--num-shards", 1)
    return tmp_path / "out"


def test_a_schema_is_one_by_which_tensorflow_parses_the_examples(mixed: Path) -> None:
    schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")
    import tensorflow as tf
    from google.protobuf import text_format

    (path,) = export("schema", mixed)
    assert path.name == "_x-schema.pbtxt"
    schema = text_format.Parse(path.read_text(), schema_pb2.Schema())
    dtypes = {schema_pb2.INT: tf.int64, schema_pb2.FLOAT: tf.float32, schema_pb2.BYTES: tf.string}
    spec: dict[str, Any] = {}
    for feature in schema.feature:  # as tensorflow_transform's schema_as_feature_spec does
        dtype = dtypes[feature.type]
        if feature.HasField("shape"):
            assert feature.presence.min_fraction == 1
            spec[feature.name] = tf.io.FixedLenFeature([dim.size for dim in feature.shape.dim], dtype)
        else:
            spec[feature.name] = tf.io.VarLenFeature(dtype)
    records = [*tf.data.TFRecordDataset([str(mixed / "x-1.record")])]
    parsed = tf.io.parse_example(tf.stack(records), spec)
    assert parsed["n"].numpy().tolist() == [0, 1, 2, 3]
    assert parsed["box"].shape == (4, 4)
    assert parsed["list"].dense_shape.numpy().tolist() == [4, 2]
    assert parsed["maybe"].values.numpy().tolist() == [7, 7]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.xdist_group("ray data")  # whose tests share the Ray that starts with the first of them
def test_ray_reads_lists_of_different_lengths_with_the_schema(mixed: Path) -> None:
    ray = pytest.importorskip("ray.data")
    schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")
    from google.protobuf import text_format

    (path,) = export("schema", mixed)
    schema = text_format.Parse(path.read_text(), schema_pb2.Schema())
    rows = ray.read_tfrecords(str(mixed), tf_schema=schema).take_all()
    assert [[*row["list"]] for row in rows] == [[1], [1, 1], [1], [1, 1]]
    assert [[*row["n"]] for row in rows] == [[0], [1], [2], [3]]


SCHEMA = """\
feature {
  name: "__key__"
  type: BYTES
  presence { min_fraction: 1 min_count: 1 }
  shape { }
}
feature {
  name: "counts"
  type: INT
  presence { min_fraction: 1 min_count: 1 }
  value_count { min: 0 }
}
feature {
  name: "maybe"
  type: BYTES
  presence { min_count: 0 }
  value_count { min: 0 }
}
feature {
  name: "raw.npy"
  type: BYTES
  presence { min_fraction: 1 min_count: 1 }
  shape { }
}
feature {
  name: "raw.npy/shape"
  type: INT
  presence { min_fraction: 1 min_count: 1 }
  shape { dim { size: 2 } }
}
feature {
  name: "v.npy"
  type: FLOAT
  presence { min_fraction: 1 min_count: 1 }
  shape { dim { size: 2 } dim { size: 3 } }
}
feature {
  name: "v.npy/shape"
  type: INT
  presence { min_fraction: 1 min_count: 1 }
  shape { dim { size: 2 } }
}
feature {
  name: "\u00fc"
  type: BYTES
  presence { min_fraction: 1 min_count: 1 }
  shape { }
}
"""


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_schema_has_kind_shape_and_presence_of_each_feature(tmp_path: Path) -> None:
    samples = []
    for number in range(2):
        arrays = {"raw.npy": npy(np.zeros((number + 1, 2), np.uint8)), "v.npy": npy(np.zeros((2, 3), np.float32))}
        others = {"\u00fc": b"x", "counts": b"[1]" if number else b"[1, 2]", **({"maybe": b"1"} if number else {})}
        samples.append((f"{number:04d}", {**arrays, **others}))
    write_tar(tmp_path / "a.tar", samples)
    types = ("--op", "decode:*.npy", "--type", "counts=int64_list")
    convert(tmp_path / "a.tar", "-o", tmp_path / "out/x.record", *types)
    path = tmp_path / "out/_x-schema.pbtxt"
    assert export_schema(tmp_path / "out") == [str(path)]
    assert path.read_text() == SCHEMA
    path.write_text("other")
    with pytest.raises(OutputExistsError) as caught:
        export_schema(str(tmp_path / "out/_x-manifest.json"))
    assert (caught.value.message, caught.value.shard) == ("exists, and describes something else", str(path))
    assert path.read_text() == "other"
    assert export_schema(tmp_path / "out", overwrite=True) == [str(path)]
    assert path.read_text() == SCHEMA


# --- The index of wids ---


@pytest.mark.filterwarnings("ignore")
def test_wids_finds_any_sample_by_its_index(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wids = pytest.importorskip("wids")
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    convert(
        bucket,
        "-o",
        tmp_path / "out/<split>-<>.tar",
        "--split",
        "train=0.5,val=0.5",
        "--num-shards",
        2,
        "--for",
        "wids",
    )
    found = {}
    for split in ("train", "val"):
        dataset = wids.ShardListDataset(str(tmp_path / f"out/_wids-{split}.json"), keep=True)
        found |= {sample["__key__"]: sample[".txt"] for sample in (dataset[number] for number in range(len(dataset)))}
    assert sorted(found) == [key for key, _ in SAMPLES]


@pytest.mark.parametrize(("manifest", "index"), [("_manifest.json", "_wids.json"), ("m.json", "_mwids.json")])
def test_the_index_of_wids_lists_each_shard_and_is_replaced_only_when_asked(
    manifest: str, index: str, bucket: Path, tmp_path: Path
) -> None:
    convert(bucket, "-o", tmp_path / "out/x-<>.tar", "--num-shards", 2)
    named = (tmp_path / "out/_x-manifest.json").rename(tmp_path / "out" / manifest)
    path = tmp_path / "out" / index
    assert export("wids", named) == [path]
    shards = [
        {"url": f"x-{number}.tar", "nsamples": 20, "filesize": (tmp_path / f"out/x-{number}.tar").stat().st_size}
        for number in (1, 2)
    ]
    whole = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    assert path.read_text() == json.dumps(whole, indent=2) + "\n"
    path.write_text("other")
    with pytest.raises(OutputExistsError, match="exists, and describes something else"):
        export_wids(named)
    assert path.read_text() == "other"
    export_wids(named, overwrite=True)
    assert json.loads(path.read_text()) == whole


# --- export ---


EXPORT_REFUSED = [
    (
        "hf",
        "x.record",
        (),
        "out: Hugging Face datasets reads files that end in .tar, not x.record\n  convert to 'X-<>.tar'",
    ),
    ("wids", "x.tar.gz", (), "out: wids reads uncompressed tars, not x.tar.gz\n  convert to 'X-<>.tar'"),
    (
        "hf",
        "x-<split>.tar",
        ("--split", "a-b=1"),
        "Hugging Face datasets refuses the name of the split 'a-b': use letters, digits and _",
    ),
    (
        "schema",
        "x.tar",
        (),
        "out/_x-manifest.json: its shards are tars, not TFRecord\n"
        "  read them with open_records or webdataset, or convert them to TFRecord: tar2tf convert",
    ),
]


@pytest.mark.parametrize(("format", "path", "options", "error"), EXPORT_REFUSED)
def test_shards_that_a_reader_cannot_read_are_not_described(
    format: str, path: str, options: tuple[str, ...], error: str, bucket: Path, tmp_path: Path
) -> None:
    convert(bucket, "-o", tmp_path / "out" / path, *options)
    before = sorted((tmp_path / "out").iterdir())
    done = tar2tf("export", format, "out", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {error}\n")
    assert sorted((tmp_path / "out").iterdir()) == before


def test_records_that_are_no_examples_have_no_schema(tmp_path: Path) -> None:
    (tmp_path / "a.record").write_bytes(framed(b"\xff", b"abc"))
    convert("a.record", "-o", "out/x.record", cwd=tmp_path)
    done = tar2tf("export", "schema", "out", cwd=tmp_path)
    error = "out/_x-manifest.json: describes no features, as its shards hold no examples"
    assert (done.returncode, done.stderr) == (2, f"error: {error}\n")


@pytest.mark.parametrize("format", ["hf", "schema", "tfds", "wids"])
def test_one_manifest_on_this_machine_is_described(format: str, bucket: Path, tmp_path: Path) -> None:
    far = tar2tf("export", format, "s3://b/out")
    error = "s3://b/out: is in a bucket, but the files can only be written to a folder on this machine"
    assert (far.returncode, far.stderr) == (2, f"error: {error}\n")
    for name in "xy":
        convert(bucket, "-o", tmp_path / f"out/{name}.record")
    two = tar2tf("export", format, "out/_*.json", cwd=tmp_path)
    assert (two.returncode, two.stderr) == (2, "error: out/_*.json: has several manifests\n  name one of them\n")


# --- convert --for ---


@pytest.mark.parametrize(
    ("reader", "path", "written"),
    [
        ("dali", "x-<>.tar", {"x-1.tar.idx"}),
        ("dali", "x-<>.record", {"x-1.record.idx"}),
        ("energon", "x-<>.tar", set()),
        ("grain", "x-<>.record", set()),
        ("hf", "x-<>.tar", {"README.md"}),
        ("ray", "x-<>.record", {"_x-schema.pbtxt"}),
        ("ray", "x-<>.tar", set()),
        ("tfds", "x-<00000>.record", {"dataset_info.json", "features.json"}),
        ("webdataset", "x-<>.tar.gz", set()),
        ("wids", "x-<>.tar", {"_x-wids.json"}),
    ],
)
def test_convert_writes_what_a_reader_needs_and_verify_finds_nothing(
    reader: str, path: str, written: set[str], tmp_path: Path
) -> None:
    convert(PHOTOS, "photos-*.tar", "-o", tmp_path / "out" / path, "--for", reader)
    names = {one.name for one in (tmp_path / "out").iterdir() if not one.name.startswith((".", "x-"))}
    index = {one.name for one in (tmp_path / "out").glob("*.idx")}
    assert names | index == written | {"_x-manifest.json"}
    done = tar2tf("verify", tmp_path / "out", "--for", reader)
    assert done.returncode == 0, done.stdout
    again = convert(PHOTOS, "photos-*.tar", "-o", tmp_path / "out" / path, "--for", reader)
    assert "up to date" in again.stderr


@pytest.mark.parametrize(
    ("readers", "path", "what"),
    [
        ("hf", "x-<>.record", "--for hf: it reads tars only"),
        ("hf", "x-<>.tar.zst", "--for hf: it does not read zstd"),
        ("hf", "s3://b/x-<>.tar", "--for hf describes shards in a folder\n  name one, such as -o 'out/train-<>.tar'"),
        ("ray", "-", "--for ray describes shards in a folder\n  name one, such as -o 'out/train-<>.tar'"),
        ("hf", "x.wds", "/x.wds: --for hf: it reads files that end in .tar, .tar.gz or .tgz\n"),
        ("wids", "X.WDS", "/X.WDS: --for wids: it reads files that end in .tar\n"),
        ("wids,dali", "x-<>.tar.gz", "--for wids: it does not read gzip"),
        ("tfds", "x-<>.tar", "--for tfds: it reads TFRecords only"),
        ("tfds", "x-<>.record", "does not find shards that are named"),
        ("ray,grian", "x-<>.record", "--for knows no reader 'grian'; did you mean 'grain'?"),
    ],
)
def test_an_output_that_a_reader_cannot_read_is_refused_at_once(
    readers: str, path: str, what: str, bucket: Path, tmp_path: Path
) -> None:
    path = path if "://" in path or path == "-" else str(tmp_path / path)
    kind = ("--to", "tar") if path.lower().endswith(".wds") else ()
    done = tar2tf("convert", bucket, "-o", path, "--for", readers, *kind)
    assert done.returncode == 2
    assert what in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["in"]


def test_options_of_tfds_are_refused_for_others(bucket: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "x.tar")
    done = tar2tf("export", "wids", tmp_path, "--name", "x")
    assert done.returncode == 2
    assert "--name is only for export tfds" in done.stderr
