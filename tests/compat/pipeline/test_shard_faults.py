"""The error policy of a Pipeline that writes shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from pipeline_runs import load, shards_of, straight, tars_in
from shards import keys, samples, shards_in, write_tar
from tar2tf_cli.errors import DamagedShardError, SampleError, StageError, Tar2tfError
from tar2tf_cli.pipeline import (
    Pipeline,
    PipelineSummary,
    TFExample,
)

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
    assert "'cls' is not of type int64" in done.errors[0]["message"]
    options = ["--records-per-shard", "30", "--type", "cls=int64", "--on-error", "skip"]
    assert tar2tf("convert", tmp_path / "in", "-o", tmp_path / "theirs" / "train-<>.record", *options).returncode == 1
    assert shards_of(tmp_path / "skip") == shards_of(tmp_path / "theirs")
    with pytest.raises(Tar2tfError, match=r"2 samples failed, more than .*max.errors.1 allows"):
        run("most", on_error="skip", max_errors=1)
    assert not list((tmp_path / "most").glob("*manifest.json"))
    with pytest.raises(SampleError, match=r"b\.tar.*sample 0103.*'cls' is not of type int64"):
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
        "a transformation returned dict instead of a TFExample",
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
