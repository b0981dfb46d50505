"""Shards that a Pipeline writes: the bytes of `convert`, and its manifest, resuming, checks and error policy."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import convert, tar2tf
from pipeline_runs import load, shards_of, straight, tars_in
from readme import ROOT
from shards import (
    PHOTOS,
    examples,
    keys,
    large_shards,
    mixed_shards,
    records,
    samples,
    shards_in,
    sizes,
    small_shards,
    tree,
    write_tar,
)
from tar2tf_cli.errors import OutputExistsError, UsageError
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.ops import Decode, Resize, Rotate
from tar2tf_cli.pipeline import (
    Pipeline,
    PipelineSummary,
    TFExample,
    by_key,
    by_key_value,
    by_prefix,
    by_sample_f,
    rename,
    select,
)

pytestmark = pytest.mark.spread


def without_odd(sample: dict[str, Any]) -> dict[str, Any] | None:
    return sample if int(sample["cls"]) % 2 == 0 else None


# --- The same bytes ---

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: template, arguments; the options of the command have the same names
    "size": ("train-<>.record", {"max_shard_size": "8kB"}),
    "records": ("train-<00000>.record", {"records_per_shard": 50}),
    "shards": ("train-<00000>-of-<total>.record", {"num_shards": 3}),
    "plain": ("train.record", {"max_shard_size": "20kB"}),
    "default": ("train-<>.record", {}),
    "index": ("train-{}.record", {"max_shard_size": 10_000, "index": True}),
    "gzip": ("train-<>.record.gz", {"max_shard_size": "10kB", "compression": "gzip"}),
    "gzip of one": ("train.record.gz", {"compression": "gzip"}),
    "input": ("<input>-<>.record", {"records_per_shard": 30}),
}


def flags(arguments: dict[str, Any]) -> list[str]:
    given = [(f"--{name.replace('_', '-')}", value) for name, value in arguments.items()]
    return [text for name, value in given for text in ([name] if value is True else [name, str(value)])]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_shards_are_those_of_convert(way: str, workers: int, tmp_path: Path) -> None:
    template, arguments = WAYS[way]
    tars = mixed_shards(tmp_path / "in")
    convert(tars, "-o", tmp_path / "theirs" / template, *flags(arguments))
    pipeline = Pipeline().from_tar(tars_in(tars)).sample_to_tf_example()
    done = pipeline.to_tf_record(tmp_path / "ours" / template, num_workers=workers, **arguments).do()
    assert shards_of(tmp_path / "ours") == shards_of(tmp_path / "theirs")
    (ours,), (theirs,) = ((tmp_path / side).glob("*manifest.json") for side in ("ours", "theirs"))
    for part in ("shards", "features", "totals", "skipped"):
        assert load(ours.parent, ours.name)[part] == load(theirs.parent, theirs.name)[part]
    manifest = Manifest.load(str(theirs))
    assert manifest is not None
    assert done.manifest == str(ours)
    assert done.shards == [str(ours.parent / shard.path) for shard in manifest.shards]
    assert (done.records, done.bytes) == (manifest.records, sum(sizes([Path(path) for path in done.shards])))
    assert done.features == manifest.features


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", ["size", "records", "shards", "plain", "default", "index", "gzip of one"])
def test_a_stage_of_ones_own_changes_no_shard(way: str, workers: int, tmp_path: Path) -> None:
    template, arguments = WAYS[way]
    tars = mixed_shards(tmp_path / "in")
    convert(tars, "-o", tmp_path / "theirs" / template, "--type", "cls=int64", *flags(arguments))
    pipeline = Pipeline().from_tar(tars).with_samples_stage(straight).sample_to_tf_example({"cls": "int64"})
    done = pipeline.to_tf_record(tmp_path / "ours" / template, num_workers=workers, **arguments).do()
    assert shards_of(tmp_path / "ours") == shards_of(tmp_path / "theirs")
    assert done.features["cls"] == {"dtype": "int64", "shape": [], "encoding": "int64", "count": done.records}


def test_large_samples_are_written_straight_from_the_tars(tmp_path: Path) -> None:
    tars = large_shards(tmp_path / "in")
    convert(tars, "-o", tmp_path / "theirs" / "train-<>.record", "--max-shard-size", "60kB")
    pipeline = Pipeline().from_tar(tars).sample_to_tf_example()
    pipeline.to_tf_record(tmp_path / "ours" / "train-<>.record", max_shard_size="60kB").do()
    assert shards_of(tmp_path / "ours") == shards_of(tmp_path / "theirs")


@pytest.mark.parametrize("workers", [1, 2])
def test_ops_selections_and_presets_are_those_of_convert(tmp_path: Path, workers: int) -> None:
    images = (Decode("jpg"), Rotate("jpg"), Resize("jpg", (32, 24)))
    pipeline = Pipeline(seed=7).from_tar(PHOTOS).transform_samples(*images)
    pipeline.sample_to_tf_example({"y": "int64"}, select="jpg,y=cls")
    pipeline.to_tf_record(tmp_path / "a" / "t-<>.record", max_shard_size="50kB", num_workers=workers).do()
    ops = [text for op in ("decode:jpg", "rotate:jpg", "resize:jpg,32x24") for text in ("--op", op)]
    convert(PHOTOS, "-o", tmp_path / "b" / "t-<>.record", "--max-shard-size", "50kB", *ops, "--select", "jpg,y=cls",
            "--type", "y=int64", "--seed", "7")  # fmt: skip
    assert shards_of(tmp_path / "a") == shards_of(tmp_path / "b")
    preset = Pipeline().from_tar(PHOTOS).sample_to_tf_example(preset="imagenet")
    preset.to_tf_record(tmp_path / "c" / "t-<>.record", num_workers=workers).do()
    convert(PHOTOS, "-o", tmp_path / "d" / "t-<>.record", "--preset", "imagenet")
    assert shards_of(tmp_path / "c") == shards_of(tmp_path / "d")


@pytest.mark.parametrize("workers", [1, 2])
def test_transformations_do_to_shards_what_they_do_to_a_file(small: Path, tmp_path: Path, workers: int) -> None:
    def build(*stages: Callable[[Iterator[Any]], Any]) -> Pipeline:
        pipeline = Pipeline().from_tar(small).transform_samples(without_odd, rename("image", "jpg"))
        for stage in stages:
            pipeline.with_samples_stage(stage)
        pipeline.filter_empty_samples().sample_to_tf_example({"cls": "int64"})
        pipeline.transform_tf_examples(lambda example: [example, TFExample(example, twice=b"")])
        return pipeline.transform_tf_examples(rename("label", "cls"), select(by_prefix("l"), by_key("twice")))

    build().to_tf_record(tmp_path / "one.record").do()
    for number, pipeline in enumerate((build(), build(straight), build(list))):
        out = tmp_path / str(number) / "train-<>.record"
        done = pipeline.to_tf_record(out, records_per_shard=25, num_workers=workers).do()
        assert records(*shards_in(out.parent)) == records(tmp_path / "one.record") != []
        assert done.features["twice"]["count"] * 2 == done.features["label"]["count"] == done.records


def test_shards_of_tars_by_several_paths_and_of_gzip(tmp_path: Path) -> None:
    parts = [write_tar(tmp_path / name, samples(20, first=first)) for first, name in ((0, "b.tar.gz"), (50, "c.tgz"))]
    pipeline = Pipeline().from_tar_gz(*parts).sample_to_tf_example()
    pipeline.to_tf_record(tmp_path / "out" / "t-<>.record", records_per_shard=15).do()
    assert keys(*shards_in(tmp_path / "out")) == [key for first in (0, 50) for key, _ in samples(20, first=first)]
    entries = load(tmp_path / "out", "_t-manifest.json")["inputs"]
    assert [(entry["name"], entry["size"]) for entry in entries] == [(str(path), path.stat().st_size) for path in parts]


def test_functions_run_in_worker_processes_for_tars_and_here_for_one_worker(small: Path, tmp_path: Path) -> None:
    def where(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "pid": os.getpid()}

    for workers in (1, 2):
        out = tmp_path / str(workers) / "t-<>.record"
        pipeline = Pipeline().from_tar(small).transform_samples(where).sample_to_tf_example()
        pipeline.to_tf_record(out, num_workers=workers).do()
        found = {features["pid"][0] for features in examples(*shards_in(out.parent))}
        assert (os.getpid() in found) == (workers == 1)


# --- The manifest ---


@pytest.mark.parametrize("stages", [[], [straight]])
def test_verify_finds_nothing_and_finds_damage(small: Path, tmp_path: Path, stages: list[Any]) -> None:
    pipeline = Pipeline().from_tar(small).sample_to_tf_example({"cls": "int64"})
    for stage in stages:
        pipeline.with_samples_stage(stage)
    pipeline.to_tf_record(tmp_path / "train-<>.record", max_shard_size="10kB").do()
    done = tar2tf("verify", tmp_path / "_train-manifest.json")
    assert done.returncode == 0, done.stderr
    second = shards_in(tmp_path)[1]
    data = bytearray(second.read_bytes())
    data[100] ^= 1
    second.write_bytes(data)
    assert tar2tf("verify", tmp_path / "_train-manifest.json").returncode == 1


def test_load_dataset_reads_what_the_manifest_describes(tmp_path: Path) -> None:
    from tar2tf_cli import load_dataset

    def doubled(example: TFExample) -> TFExample:
        example.add_float_list("pair", [example.get_int64("cls"), 0.5])
        return example

    for name, stages in (("a", []), ("b", [straight])):
        pipeline = Pipeline().from_tar(PHOTOS).transform_samples(Decode("jpg"), Resize("jpg", (8, 6)))
        pipeline.sample_to_tf_example({"cls": "int64"}).transform_tf_examples(doubled)
        for stage in stages:
            pipeline.with_tfexamples_stage(stage)
        done = pipeline.to_tf_record(tmp_path / name / "train-<>.record", max_shard_size="10kB").do()
        assert done.manifest is not None
        read = list(load_dataset(done.manifest).as_numpy_iterator())
        assert len(read) == done.records > 10
        assert {item["jpg"].shape for item in read} == {(8, 6, 3), (8, 6, 1)}
        assert all(list(item["pair"]) == [item["cls"], 0.5] for item in read)
    assert shards_of(tmp_path / "a") == shards_of(tmp_path / "b")


def test_the_manifest_holds_stages_and_no_objects(small: Path, tmp_path: Path) -> None:
    pipeline = Pipeline().from_tar(small).transform_samples(select(by_sample_f(list), by_key_value("cls", 3)))
    pipeline.with_samples_stage(straight).sample_to_tf_example().transform_tf_examples(lambda example: example)
    pipeline.to_tf_record(tmp_path / "train-<>.record").do()
    stages = load(tmp_path)["spec"]["input"]["stages"]
    assert [next(iter(stage)) for stage in stages] == ["ops", "SamplesStage", "example_ops"]
    assert stages[1]["SamplesStage"][0] == "pipeline_runs:straight"


def test_the_pipelines_of_the_reference_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    section = page.partition("## Pipelines")[2].partition("\n## ")[0]
    (tmp_path / "shards").mkdir()
    for path in PHOTOS.glob("photos-*"):
        (tmp_path / "shards" / path.name.replace("photos-", "train-000")).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    assert records(tmp_path / "train-0000.record")
    assert len(list(names["train"])) == names["done"].records == len(records(*shards_in(tmp_path / "pipeline")))


# --- What goes where ---


def test_a_plain_path_stays_a_single_file_without_a_manifest(small: Path, tmp_path: Path) -> None:
    done = Pipeline().from_tar(small).sample_to_tf_example().to_tf_record(tmp_path / "train.record").do()
    assert [path.name for path in tmp_path.iterdir()] == ["train.record"]
    assert (done.shards, done.manifest, done.up_to_date) == ([], None, False)


def test_gzip_shards_are_gzip(small: Path, tmp_path: Path) -> None:
    pipeline = Pipeline().from_tar(small).with_samples_stage(straight).sample_to_tf_example()
    pipeline.to_tf_record(tmp_path / "train-<>.record.gz", max_shard_size="10kB", compression="gzip").do()
    paths = shards_in(tmp_path, "*.gz")
    assert len(paths) > 3
    assert max(sizes(paths)) <= 10_000
    assert all(gzip.decompress(path.read_bytes()) for path in paths)
    Pipeline().from_tar(small).sample_to_tf_example().to_tf_record(tmp_path / "one.record").do()
    assert records(*paths) == records(tmp_path / "one.record")


def test_a_shard_passes_its_limit_for_a_single_large_record_only(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", [*samples(20), ("large", {"bin": bytes(50_000)}), *samples(20, first=50)])
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(tmp_path / "t-<>.record", max_shard_size="4kB").do()
    large = [path for path in shards_in(tmp_path) if path.stat().st_size > 4000]
    assert [keys(path) for path in large] == [["large"]]


def test_foreign_files_are_left_alone(small: Path, tmp_path: Path) -> None:
    (tmp_path / "train-2.record").write_bytes(b"precious")
    pipeline = Pipeline().from_tar(small).sample_to_tf_example()
    with pytest.raises(OutputExistsError, match=r"train-2\.record: already exists.*overwrite=True"):
        pipeline.to_tf_record(tmp_path / "train-<>.record", max_shard_size="10kB").do()
    assert tree(tmp_path) == {"train-2.record": b"precious"}


@pytest.mark.parametrize("stages", [[], [straight]])
def test_no_input_is_overwritten(tmp_path: Path, stages: list[Any]) -> None:
    tars = [write_tar(tmp_path / f"{number}.tar", samples(5, first=10 * number)) for number in range(3)]
    before = tree(tmp_path)
    pipeline = Pipeline().from_tar(tars).sample_to_tf_example()
    for stage in stages:
        pipeline.with_samples_stage(stage)
    with pytest.raises(OutputExistsError, match="is an input of this conversion"):
        pipeline.to_tf_record(tmp_path / "<>.tar", overwrite=True).do()
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": "t-<>.record", "max_shard_size": "many"}, "'many' is not a size"),
        ({"out": "t-<>.record", "max_shard_size": 0}, "0 is not a size"),
        ({"out": "t-<>.record", "num_shards": 0}, "num_shards must be 1 or more"),
        ({"out": "t-<>.record", "num_shards": 2, "records_per_shard": 3}, "already determines the size of shards"),
        ({"out": "t-<>.record", "compression": "zip"}, "compression must be 'none', 'gzip' or 'zstd'"),
        ({"out": "t-<>.record", "compression": "gzip", "index": True}, "a compressed shard is not seekable"),
        ({"out": "t-<split>.record"}, "the output path has <split>"),
        ({"out": "t-<totl>.record"}, "did you mean '<total>'"),
        ({"out": "t-<total>.record"}, "<total> without a number"),
        ({"out": io.BytesIO(), "max_shard_size": "1MB"}, "an open file cannot have shards"),
        ({"out": io.BytesIO(), "compression": "gzip"}, "an open file cannot have shards"),
    ],
)
def test_outputs_that_cannot_be_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pipeline().to_tf_record(**arguments)


def test_shards_go_from_bucket_to_bucket(s3_client: Any, tmp_path: Path) -> None:
    tars = small_shards(tmp_path / "in")
    s3_client.create_bucket(Bucket="bucket")
    for path in tars_in(tars):
        s3_client.upload_file(str(path), "bucket", f"in/{path.name}")

    def run() -> PipelineSummary:
        pipeline = Pipeline().from_tar("s3://bucket/in/").sample_to_tf_example()
        return pipeline.to_tf_record("s3://bucket/out/t-<>.record", max_shard_size="20kB", num_workers=2).do()

    done = run()
    assert done.shards == [f"s3://bucket/out/t-{number}.record" for number in range(1, len(done.shards) + 1)]
    assert done.manifest == "s3://bucket/out/_t-manifest.json"
    assert run().up_to_date
    stored = [
        s3_client.get_object(Bucket="bucket", Key=path.removeprefix("s3://bucket/"))["Body"].read()
        for path in done.shards
    ]
    convert(tars, "-o", tmp_path / "t-<>.record", "--max-shard-size", "20kB")
    assert stored == [path.read_bytes() for path in shards_in(tmp_path)]


def test_input_names_do_not_go_with_the_whole_stream(small: Path, tmp_path: Path) -> None:
    pipeline = Pipeline().from_tar(small).with_samples_stage(straight).sample_to_tf_example()
    with pytest.raises(UsageError, match="<input> is the name of a tar"):
        pipeline.to_tf_record(tmp_path / "<input>.record").do()
