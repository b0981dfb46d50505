"""Shards that a Pipeline writes: the bytes of `convert`, and its manifest, resuming, checks and error policy."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from servers import moto_server
from shards import (
    PHOTOS,
    SECONDS,
    convert,
    end,
    examples,
    keys,
    large_shards,
    mixed_shards,
    records,
    samples,
    shards_in,
    sizes,
    small_shards,
    tar2tf,
    tree,
    wait_until,
    write_tar,
)
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, SampleError, StageError, Tar2tfError, UsageError
from tar2tf_cli.ops import Decode, Resize, Rotate
from tar2tf_cli.ops.func import told
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


def straight(items: Iterator[Any]) -> Iterator[Any]:
    """A stage that changes nothing, so that the whole stream goes through one place."""
    yield from items


def without_odd(sample: dict[str, Any]) -> dict[str, Any] | None:
    return sample if int(sample["cls"]) % 2 == 0 else None


def tars_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def shards_of(folder: Path) -> dict[str, bytes]:
    """Everything but manifests, whose specs differ."""
    return {name: data for name, data in tree(folder).items() if not name.endswith(".json")}


def load(folder: Path, name: str = "train-manifest.json") -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((folder / name).read_text())
    return whole


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))


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
    entries = load(tmp_path / "out", "t-manifest.json")["inputs"]
    assert [(entry["name"], entry["size"]) for entry in entries] == [(str(path), path.stat().st_size) for path in parts]
    plain = write_tar(tmp_path / "plain.tar", samples(3))
    with pytest.raises(DamagedShardError, match="not gzip"):
        Pipeline().from_tar_gz(parts[0], plain).sample_to_tf_example().to_tf_record(tmp_path / "x-<>.record").do()
    assert not list(tmp_path.glob("x-*"))


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
    done = tar2tf("verify", tmp_path / "train-manifest.json")
    assert done.returncode == 0, done.stderr
    second = shards_in(tmp_path)[1]
    data = bytearray(second.read_bytes())
    data[100] ^= 1
    second.write_bytes(data)
    assert tar2tf("verify", tmp_path / "train-manifest.json").returncode == 1


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
    assert [next(iter(stage)) for stage in stages] == ["ops", "SamplesStage", "types", "ops"]
    assert stages[1]["SamplesStage"][0] == "test_pipeline_shards:straight"


def test_the_pipelines_of_the_readme_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Pipelines in Python")[2].partition("\n## ")[0]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(PHOTOS)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    assert records(tmp_path / "photos-0.record")
    assert len(list(names["train"])) == names["done"].records == len(records(*shards_in(tmp_path / "out")))


# --- Again, and after a kill ---


def build(small: Path, out: Path, *, own: bool, least: int = 0, **arguments: Any) -> Pipeline:
    """A pipeline with functions of several kinds, none of which is bound to anything unknown."""
    pipeline = (
        Pipeline().from_tar(small).transform_samples(lambda sample: sample if int(sample["cls"]) >= least else None)
    )
    if own:
        pipeline.with_samples_stage(straight)
    pipeline.sample_to_tf_example().transform_tf_examples(partial(tagged, tag=b"x"))
    return pipeline.to_tf_record(out, **{"records_per_shard": 40, **arguments})


def tagged(example: TFExample, *, tag: bytes) -> TFExample:
    example.add_bytes("tag", tag)
    return example


@pytest.mark.parametrize("own", [False, True])
def test_a_finished_run_is_a_no_op_until_inputs_or_stages_change(tmp_path: Path, own: bool) -> None:
    small, out = small_shards(tmp_path / "in"), tmp_path / "out" / "train-<>.record"
    first = build(small, out, own=own).do()
    made = {path: path.stat().st_mtime_ns for path in out.parent.iterdir()}
    again = build(small, out, own=own, num_workers=2).do()
    assert again.up_to_date
    assert not first.up_to_date
    assert made == {path: path.stat().st_mtime_ns for path in out.parent.iterdir()}
    assert (again.records, again.bytes, again.shards) == (first.records, first.bytes, first.shards)
    assert again.features == first.features
    with pytest.raises(OutputExistsError, match=r"made with another spec: .*overwrite=True$"):
        build(small, out, own=own, least=3).do()
    with pytest.raises(OutputExistsError, match="made with another spec"):
        build(small, out, own=own, records_per_shard=50).do()
    with pytest.raises(OutputExistsError, match="made from other inputs"):
        build(small, out, own=not own).do()
    os.utime(small / "small-2.tar", (1, 1))
    with pytest.raises(OutputExistsError, match=r"made from other inputs: .*"):
        build(small, out, own=own).do()
    assert build(small, out, own=own, least=3, overwrite=True).do().records < first.records
    assert build(small, out, own=own, least=3).do().up_to_date


class Counter:
    """A function whose object may hold anything."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, sample: Any) -> Any:
        self.count += 1
        return sample

    def names(self, sample: Any) -> list[str]:
        return ["cls"]

    def stage(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.count += 1
            yield item


UNKNOWN: dict[str, Callable[[Pipeline], Any]] = {
    "object": lambda pipeline: pipeline.transform_samples(Counter()),
    "method": lambda pipeline: pipeline.with_samples_stage(Counter().stage),
    "closure": lambda pipeline: (lambda counter: pipeline.transform_samples(lambda sample: counter(sample)))(Counter()),
    "partial": lambda pipeline: pipeline.transform_tf_examples(partial(lambda counter, example: example, Counter())),
    "selection": lambda pipeline: pipeline.transform_samples(select(by_sample_f(Counter().names))),
    "value": lambda pipeline: pipeline.transform_samples(select(by_key_value("cls", Counter()))),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_cannot_be_told_from_an_earlier_run_is_no_no_op(kind: str, small: Path, tmp_path: Path) -> None:
    def run(**arguments: Any) -> PipelineSummary:
        pipeline = Pipeline().from_tar(small).sample_to_tf_example()
        UNKNOWN[kind](pipeline)
        return pipeline.to_tf_record(tmp_path / "train-<>.record", **arguments).do()

    run()
    before = tree(tmp_path)
    with pytest.raises(
        OutputExistsError,
        match=r"cannot be known; choose another path or overwrite=True \(nothing tells whether .* is what it was in an",
    ):
        run()
    assert tree(tmp_path) == before
    assert not run(overwrite=True).up_to_date
    assert tree(tmp_path) == before


def test_streams_and_a_first_stage_of_ones_own_are_no_no_op(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(30))

    def opened() -> Pipeline:
        return Pipeline().from_tar(io.BytesIO(tar.read_bytes())).sample_to_tf_example()

    def own() -> Pipeline:
        return (
            Pipeline()
            .with_tar_stage(lambda: ({"__key__": key, **entries} for key, entries in samples(30)))
            .sample_to_tf_example()
        )

    for make in (opened, own):
        out = tmp_path / make.__name__ / "t-<>.record"
        make().to_tf_record(out, records_per_shard=8, num_workers=2).do()
        assert keys(*shards_in(out.parent)) == [key for key, _ in samples(30)]
        assert load(out.parent, "t-manifest.json")["inputs"][0]["version"] is None
        with pytest.raises(OutputExistsError, match="cannot be known"):
            make().to_tf_record(out, records_per_shard=8).do()
        before = tree(out.parent)
        make().to_tf_record(out, records_per_shard=8, overwrite=True).do()
        assert tree(out.parent) == before


FACTOR = 2
NOTHING = Counter()


def test_what_tells_a_function() -> None:
    def bound(value: Any) -> Callable[[], Any]:
        return lambda: value

    def factor() -> int:
        return FACTOR

    def nothing() -> Any:
        return NOTHING

    def recursive(number: int) -> int:
        return recursive(number - 1) if number else 0

    known = [straight, bound(3), bound(b"x"), bound({"a": [1, (2.5, None)]}), bound({1, 2}), bound(Path("x"))]
    known += [bound(factor), factor, recursive, bound(os), bound(Counter), partial(tagged, tag=b""), list]
    assert [value for value in known if not told(value)] == []
    unknown = [bound(NOTHING), nothing, bound(nothing), bound([NOTHING]), partial(tagged, tag=NOTHING), NOTHING]
    unknown += [
        partial(Counter, NOTHING),
        partial(bound(NOTHING)),
        NOTHING.stage,
        eval("lambda: 3", {}),
    ]  # which stands in no file
    assert [value for value in unknown if told(value)] == []


PROGRAM = """
    import sys, time
    from pathlib import Path
    from tar2tf_cli.pipeline import Pipeline, by_sample_f, select

    where, out, own, workers, seconds = sys.argv[1:]

    def straight(items):
        yield from items

    class Stage:
        def names(self, sample):
            return ["cls", "jpg"]

    def slow(sample):
        if not Path(where, "fast").exists():
            time.sleep(float(seconds))
        return sample

    pipeline = Pipeline().from_tar(sorted(Path(where).glob("*.tar"))).transform_samples(slow)
    if own == "own":
        pipeline.with_samples_stage(straight)
    if own == "unknown":
        pipeline.transform_samples(select(by_sample_f(Stage().names)))
    done = pipeline.sample_to_tf_example({"cls": "int64"}).to_tf_record(
        out, records_per_shard=25, num_workers=int(workers)
    ).do()
    print(done.up_to_date)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("own", ["own", "ops", "unknown"])
def test_the_same_program_continues_after_a_kill(tmp_path: Path, own: str, workers: str) -> None:
    tars, out = small_shards(tmp_path / "in"), tmp_path / "out"
    convert(tars, "-o", tmp_path / "theirs" / "train-<>.record", "--records-per-shard", "25", "--type", "cls=int64")
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, tmp_path / "program.py", tars, out / "train-<>.record", own, workers, "0.01"]

    def killed(when: Callable[[], Any], what: str) -> None:
        process = subprocess.Popen(list(map(str, command)), start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: when() or process.poll() is not None, what)
            assert process.poll() is None
        finally:
            end(process)

    def again() -> str:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    if own == "own":
        killed(lambda: list(out.glob(".*/input-*.spool")), "a spool")
    else:
        killed(lambda: shards_in(out), "a shard")
        left = {path: path.stat().st_ino for path in shards_in(out)}
    assert not list(out.glob("*manifest.json"))
    assert again() == "False"
    assert shards_of(out) == shards_of(tmp_path / "theirs")
    if own == "ops":
        assert left == {path: path.stat().st_ino for path in left}
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    if own != "unknown":
        assert again() == "True"
    assert tar2tf("verify", out / "train-manifest.json").returncode == 0


def test_an_interruption_ends_the_run_and_the_next_one_continues(small: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, tmp_path / "program.py", small, tmp_path / "out" / "train-<>.record", "ops", "2", "0.01"]
    process = subprocess.Popen(list(map(str, command)), start_new_session=True, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: shards_in(tmp_path / "out"), "a shard")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) != 0
    finally:
        end(process)
    assert not list((tmp_path / "out").glob("*manifest.json"))
    assert subprocess.run(list(map(str, command)), timeout=SECONDS, check=False, stdout=subprocess.PIPE).returncode == 0
    assert (tmp_path / "out" / "train-manifest.json").exists()


# --- Faults ---


@pytest.fixture
def faulty(tmp_path: Path) -> list[Path]:
    """Three tars, the second of which has two samples that are of another type."""
    contents = samples(40, first=100)
    contents[3][1]["cls"] = contents[33][1]["cls"] = b"cat"
    write_tar(tmp_path / "in" / "b.tar", contents)
    for first, name in ((0, "a.tar"), (200, "c.tar")):
        write_tar(tmp_path / "in" / name, samples(40, first=first))
    return tars_in(tmp_path / "in")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_faulty_samples_are_passed_over_when_asked(faulty: list[Path], tmp_path: Path, workers: int, own: bool) -> None:
    def run(name: str, **options: Any) -> PipelineSummary:
        pipeline = Pipeline(**options).from_tar(faulty).sample_to_tf_example({"cls": "int64"})
        if own:
            pipeline.with_tfexamples_stage(straight)
        out = tmp_path / name / "train-<>.record"
        return pipeline.to_tf_record(out, records_per_shard=30, num_workers=workers).do()

    done = run("skip", on_error="skip")
    assert (done.records, load(tmp_path / "skip")["skipped"]["samples"]) == (118, 2)
    assert [(error["shard"], error["key"]) for error in done.errors] == [
        (str(faulty[1]), "0103"), (str(faulty[1]), "0133"),
    ]  # fmt: skip
    assert "'cls' is no int64" in done.errors[0]["message"]
    options = ["--records-per-shard", "30", "--type", "cls=int64", "--on-error", "skip"]
    assert tar2tf("convert", tmp_path / "in", "-o", tmp_path / "theirs" / "train-<>.record", *options).returncode == 1
    assert shards_of(tmp_path / "skip") == shards_of(tmp_path / "theirs")
    with pytest.raises(Tar2tfError, match=r"2 samples failed, more than .*max.errors.1 allows"):
        run("most", on_error="skip", max_errors=1)
    assert not list((tmp_path / "most").glob("*manifest.json"))
    with pytest.raises(SampleError, match=r"b\.tar.*sample 0103.*'cls' is no int64"):
        run("fail")
    assert not list((tmp_path / "fail").glob("*manifest.json"))
    assert len(shards_in(tmp_path / "fail")) <= 1  # what comes before the faulty tar may stand


@pytest.mark.parametrize("own", [False, True])
def test_examples_that_cannot_be_written_are_faults(tmp_path: Path, own: bool) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(20))

    def odd(example: TFExample) -> Any:
        number = int(example.get_bytes("__key__"))
        if number == 5:
            return TFExample(example, x=5)
        if number == 7:
            return {"no": "example"}
        if number == 9:
            example.add_int64("cls", 1)
        return example

    def run(name: str, on_error: Any) -> PipelineSummary:
        pipeline = Pipeline(on_error=on_error).from_tar(tar).sample_to_tf_example()
        if own:
            pipeline.with_samples_stage(straight)
        pipeline.transform_tf_examples(odd)
        return pipeline.to_tf_record(tmp_path / name / "t-<>.record", records_per_shard=8).do()

    done = run("skip", "skip")
    assert [(error["shard"], error["key"]) for error in done.errors] == [(str(tar), f"000{n}") for n in (5, 7, 9)]
    assert [error["message"].partition(",")[0] for error in done.errors] == [
        "the example has int as 'x'",
        "dict was made where a TFExample is needed",
        "the feature 'cls' is int64 of rank 0 here and bytes of rank 0 elsewhere",
    ]
    assert done.records == 17
    with pytest.raises(SampleError, match=r"sample 0005.*: the example has int as 'x'"):
        run("fail", "fail")


@pytest.mark.parametrize("own", [False, True])
def test_a_damaged_tar_is_an_error_or_passed_over_from_its_damage_on(small: Path, tmp_path: Path, own: bool) -> None:
    for name in ("small-0.tar", "small-1.tar"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    cut = tmp_path / "small-0.tar"
    cut.write_bytes(cut.read_bytes()[:30_000])

    def run(name: str, on_error: Any) -> PipelineSummary:
        pipeline = Pipeline(on_error=on_error).from_tar(tmp_path).sample_to_tf_example()
        if own:
            pipeline.with_samples_stage(straight)
        return pipeline.to_tf_record(tmp_path / name / "t-<>.record").do()

    with pytest.raises(DamagedShardError, match=r"small-0\.tar.*ends inside"):
        run("fail", "fail")
    done = run("skip", "skip")
    assert [error["shard"] for error in done.errors] == [str(cut)]
    assert keys(*shards_in(tmp_path / "skip"))[-61:] == [key for key, _ in samples(61, first=1000)]


def test_an_exception_of_a_stage_names_it_even_if_a_later_one_swallows_it(small: Path, tmp_path: Path) -> None:
    def broken(items: Iterator[Any]) -> Iterator[Any]:
        yield next(items)
        raise ZeroDivisionError("of all things")

    def careless(items: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from items
        except Exception:
            return

    for stages in ([broken], [broken, careless]):
        pipeline = Pipeline().from_tar(small).sample_to_tf_example()
        for stage in stages:
            pipeline.with_samples_stage(stage)
        with pytest.raises(StageError, match=r"SamplesStage .*broken raised ZeroDivisionError") as caught:
            pipeline.to_tf_record(tmp_path / "t-<>.record").do()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert not list(tmp_path.glob("t-*"))


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
    with pytest.raises(OutputExistsError, match=r"train-2\.record: is there already.*overwrite=True"):
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
        ({"out": "t-<>.record", "max_shard_size": 0}, "must be more than 0"),
        ({"out": "t-<>.record", "num_shards": 0}, "num_shards must be more than 0"),
        ({"out": "t-<>.record", "num_shards": 2, "records_per_shard": 3}, "decides the size of shards alone"),
        ({"out": "t-<>.record", "compression": "zip"}, "compression is 'none' or 'gzip'"),
        ({"out": "t-<>.record", "compression": "gzip", "index": True}, "a gzip shard cannot be sought in"),
        ({"out": "t-<split>.record"}, "the output path has <split>"),
        ({"out": "t-<totl>.record"}, "did you mean <total>"),
        ({"out": "t-<total>.record"}, "<total> without a number"),
        ({"out": io.BytesIO(), "max_shard_size": "1MB"}, "an open file takes no shards"),
        ({"out": io.BytesIO(), "compression": "gzip"}, "an open file takes no shards"),
    ],
)
def test_outputs_that_cannot_be_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pipeline().to_tf_record(**arguments)


def test_shards_go_from_bucket_to_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs", reason="no s3fs: pip install 'tar2tf-cli[s3]'")
    pytest.importorskip("moto.server", reason="no moto: pip install 'moto[server]'")
    import boto3

    tars = small_shards(tmp_path / "in")
    with moto_server() as url:
        for name, value in (("ENDPOINT_URL", url), ("ACCESS_KEY_ID", "testing"), ("SECRET_ACCESS_KEY", "testing"),
                            ("DEFAULT_REGION", "us-east-1")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        for path in tars_in(tars):
            client.upload_file(str(path), "bucket", f"in/{path.name}")

        def run() -> PipelineSummary:
            pipeline = Pipeline().from_tar("s3://bucket/in/").sample_to_tf_example()
            return pipeline.to_tf_record("s3://bucket/out/t-<>.record", max_shard_size="20kB", num_workers=2).do()

        done = run()
        assert done.shards == [f"s3://bucket/out/t-{number}.record" for number in range(1, len(done.shards) + 1)]
        assert done.manifest == "s3://bucket/out/t-manifest.json"
        assert run().up_to_date
        stored = [
            client.get_object(Bucket="bucket", Key=path.removeprefix("s3://bucket/"))["Body"].read()
            for path in done.shards
        ]
    convert(tars, "-o", tmp_path / "t-<>.record", "--max-shard-size", "20kB")
    assert stored == [path.read_bytes() for path in shards_in(tmp_path)]


def test_input_names_do_not_go_with_the_whole_stream(small: Path, tmp_path: Path) -> None:
    pipeline = Pipeline().from_tar(small).with_samples_stage(straight).sample_to_tf_example()
    with pytest.raises(UsageError, match="<input> is the name of a tar"):
        pipeline.to_tf_record(tmp_path / "<input>.record").do()
