"""Recipes do what they say, pasted one after the other into one folder."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shards import samples, samples_of, write_tar
from tar2tf_cli import open_records, verify

pytestmark = pytest.mark.xdist_group("pages")

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"


def manifest(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture
def bucket(s3: str, tmp_path: Path) -> Any:
    """A client of S3, which has the shards of the recipe."""
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for number in range(4):
        path = write_tar(tmp_path / f"train-{number:04d}.tar", samples(10, first=10 * number))
        client.upload_file(str(path), "bucket", f"shards/{path.name}")
    return client


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
@pytest.mark.timeout(600)
def test_all_recipes_run_in_one_folder(bucket: Any, run_page: Callable[[str], Path]) -> None:
    work = run_page("recipes.md")

    out = manifest(work / "out/_train-manifest.json")
    assert out["totals"]["records"] == 240
    assert out["totals"]["shards"] > 1
    assert max(shard["bytes"] for shard in out["shards"]) <= 200_000

    written = json.load(bucket.get_object(Bucket="bucket", Key="records/_train-manifest.json")["Body"])
    assert written["totals"]["records"] == 40

    small = manifest(work / "small/_train-manifest.json")
    assert small["features"]["image"]["shape"] == [32, 32, 3]
    assert small["features"]["label"]["dtype"] == "int64"

    assert len(list((work / "pets").glob("train-*-of-00004"))) == 4
    labels = manifest(work / "pets2/_train-labels.json")
    assert {name: item["label"] for name, item in labels.items()} == {"dog": 0, "cat": 1}

    arrays = manifest(work / "arrays/_train-manifest.json")["features"]
    assert arrays["vector"]["dtype"] == "float32"
    assert "vector/shape" in arrays

    typed = manifest(work / "typed/_train-manifest.json")["features"]
    assert (typed["cls"]["dtype"], typed["npy"]["dtype"], typed["txt"]["dtype"]) == ("int64", "float32", "bytes")
    assert manifest(work / "counted/_train-manifest.json")["features"]["words"]["dtype"] == "int64"

    boxes = manifest(work / "boxes/_train-manifest.json")
    assert (boxes["features"]["boxes"]["shape"], boxes["labels"]) == ([None, 4], {"classes": {"cat": 0, "dog": 1}})
    assert manifest(work / "detection/_train-manifest.json")["features"]["image/object/bbox/xmin"]["count"] == 240

    split = manifest(work / "split/_manifest.json")
    assert {shard["split"] for shard in split["shards"]} == {"train", "val", "test"}
    assert [shard["records"] for shard in manifest(work / "even/_train-manifest.json")["shards"]] == [30] * 8

    _check_resharded(work)

    resumed = manifest(work / "resumed/_train-manifest.json")
    assert resumed["totals"] == {**resumed["totals"], "records": 240, "shards": 24}
    assert not (work / "resumed/.train-manifest.tar2tf").exists()

    _check_chosen(work)
    _check_joined(work)

    parts = [manifest(work / f"parts/_part{number}-manifest.json") for number in range(2)]
    assert [part["totals"]["records"] for part in parts] == [120, 120]


def shards_in(path: Path) -> list[str]:
    return [str(path.parent / shard["path"]) for shard in manifest(path)["shards"]]


def _check_resharded(work: Path) -> None:
    import tensorflow as tf
    import webdataset as wds

    assert [shard["records"] for shard in manifest(work / "reshard/_train-manifest.json")["shards"]] == [40] * 6
    assert {shard["split"] for shard in manifest(work / "parted/_manifest.json")["shards"]} == {"train", "val"}
    made = {key: dict(entries) for key, entries in samples_of(*sorted((work / "shards").iterdir()))}
    for path in ("reshard/_train-manifest.json", "sized/_train-manifest.json", "parted/_manifest.json"):
        read = [*wds.WebDataset(shards_in(work / path), shardshuffle=False)]
        found = {one["__key__"]: {name: one[name] for name in one if name[:2] != "__"} for one in read}
        assert (found, len(read)) == (made, 240)
    found = {
        one["__key__"]: one for one in wds.WebDataset(shards_in(work / "back/_train-manifest.json"), shardshuffle=False)
    }
    assert {key: one["jpg"] for key, one in found.items()} == {key: one["jpg"] for key, one in made.items()}

    before = [*tf.data.TFRecordDataset(shards_in(work / "out/_train-manifest.json")).as_numpy_iterator()]
    more, split = shards_in(work / "more/_train-manifest.json"), shards_in(work / "split/_manifest.json")
    assert len(more) == 12
    assert [*tf.data.TFRecordDataset(more).as_numpy_iterator()] == before
    assert sorted(tf.data.TFRecordDataset(split).as_numpy_iterator()) == sorted(before)


def _check_chosen(work: Path) -> None:
    import tensorflow as tf
    import webdataset as wds

    cats = manifest(work / "cats/_train-manifest.json")
    parse = {"cls": tf.io.FixedLenFeature([], tf.int64), "json": tf.io.FixedLenFeature([], tf.string)}
    read = tf.data.TFRecordDataset([str(work / "cats" / shard["path"]) for shard in cats["shards"]])
    examples = [tf.io.parse_single_example(record, parse) for record in read]
    assert 30 < len(examples) == cats["totals"]["records"] < 90
    assert {json.loads(example["json"].numpy())["label"]["name"] for example in examples} == {"cat"}
    assert (
        cats["skipped"]["asked"]["filter:json:label.name=cat"] + len(examples) + cats["skipped"]["asked"]["--sample"]
        == 240
    )

    tars = sorted(map(str, (work / "picked").glob("*.tar")))
    listed = [sample["__key__"] for sample in wds.WebDataset(tars, shardshuffle=False)]
    assert listed == (work / "keys.txt").read_text().split() == [f"{number:06d}" for number in range(100)]

    distinct = manifest(work / "distinct/_train-manifest.json")
    assert (distinct["totals"]["records"], distinct["skipped"]["asked"]) == (2, {"--drop-duplicates": 238})


def _check_joined(work: Path) -> None:
    import webdataset as wds

    tars = sorted((work / "joined").glob("*.tar"), key=lambda path: int(path.stem.partition("-")[2]))
    assert len(tars) > 1
    found = list(wds.WebDataset([str(path) for path in tars], shardshuffle=False).decode())
    assert [sample["__key__"] for sample in found] == [f"{number:06d}" for number in range(240)]
    for number, sample in enumerate(found):
        assert sample["caption"].decode() == f"a better caption of {number:06d}"
        assert sample["embedding.npy"].tolist() == [number] * 8
        assert {"jpg", "cls", "txt", "json", "npy"} < sample.keys()


@pytest.mark.parametrize(
    ("task", "tasks"), [("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"), ("JOB_COMPLETION_INDEX", "HOSTS")]
)
def test_the_tasks_of_an_array_convert_a_part_each(
    task: str, tasks: str, data: Path, environment: dict[str, str]
) -> None:
    found = re.search(r'^```sh title="part\.sh"\n(.*?)^```', RECIPES.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    script = found[1]
    processes = []
    for number in range(3):
        variables = {**environment, task: str(number), tasks: "3"}
        processes.append(subprocess.Popen(["bash", "-c", script], cwd=data, env=variables, stderr=subprocess.DEVNULL))
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    manifests = sorted((data / "parts").glob("_part*-manifest.json"))
    assert [manifest(path)["totals"]["records"] for path in manifests] == [60, 60, 120]
    report = verify(str(manifests[0]), [*map(str, manifests[1:])], workers=1)
    assert (report.ok, report.records) == (True, 240)
    assert [record["__key__"] for record in open_records(manifests)] == [b"%06d" % number for number in range(240)]
