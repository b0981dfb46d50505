"""Recipes do what they say, pasted one after the other into one folder."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shards import samples, write_tar
from tar2tf_cli import open_records, verify

pytestmark = pytest.mark.xdist_group("s3")

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


@pytest.mark.timeout(600)
def test_all_recipes_run_in_one_folder(bucket: Any, run_page: Callable[[str], Path]) -> None:
    work = run_page("recipes.md")

    out = manifest(work / "out/train-manifest.json")
    assert out["totals"]["records"] == 240
    assert out["totals"]["shards"] > 1
    assert max(shard["bytes"] for shard in out["shards"]) <= 200_000

    written = json.load(bucket.get_object(Bucket="bucket", Key="records/train-manifest.json")["Body"])
    assert written["totals"]["records"] == 40

    small = manifest(work / "small/train-manifest.json")
    assert small["features"]["image"]["shape"] == [32, 32, 3]
    assert small["features"]["label"]["dtype"] == "int64"

    assert len(list((work / "pets").glob("train-*-of-00004"))) == 4
    labels = manifest(work / "pets2/train-labels.json")
    assert {name: item["label"] for name, item in labels.items()} == {"dog": 0, "cat": 1}

    arrays = manifest(work / "arrays/train-manifest.json")["features"]
    assert arrays["vector"]["dtype"] == "float32"
    assert "vector/shape" in arrays

    typed = manifest(work / "typed/train-manifest.json")["features"]
    assert (typed["cls"]["dtype"], typed["npy"]["dtype"], typed["txt"]["dtype"]) == ("int64", "float32", "bytes")
    assert manifest(work / "counted/train-manifest.json")["features"]["words"]["dtype"] == "int64"

    split = manifest(work / "split/manifest.json")
    assert {shard["split"] for shard in split["shards"]} == {"train", "val", "test"}
    assert [shard["records"] for shard in manifest(work / "even/train-manifest.json")["shards"]] == [30] * 8

    resumed = manifest(work / "resumed/train-manifest.json")
    assert resumed["totals"] == {**resumed["totals"], "records": 240, "shards": 24}
    assert not (work / "resumed/.train-manifest.tar2tf").exists()

    parts = [manifest(work / f"parts/part{number}-manifest.json") for number in range(2)]
    assert [part["totals"]["records"] for part in parts] == [120, 120]


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
    manifests = sorted((data / "parts").glob("part*-manifest.json"))
    assert [manifest(path)["totals"]["records"] for path in manifests] == [60, 60, 120]
    report = verify(str(manifests[0]), [*map(str, manifests[1:])], workers=1)
    assert (report.ok, report.records) == (True, 240)
    assert [record["__key__"] for record in open_records(manifests)] == [b"%06d" % number for number in range(240)]
