"""What a Pipeline says of faults, and that it leaves nothing behind."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from pipeline_runs import Pipe, made_of
from shards import samples, tree, write_members, write_tar
from tar2tf_cli.errors import (
    DamagedShardError,
    SampleError,
    SourceError,
    StageError,
    Tar2tfError,
    UsageError,
)
from tar2tf_cli.pipeline import (
    Pipeline,
    TFExample,
    TFRecordWriter,
    by_sample_f,
    select,
)

# --- Errors ---


def test_a_missing_stage_is_named() -> None:
    with pytest.raises(UsageError, match="no TarStage; begin with from_tar"):
        Pipeline().sample_to_tf_example().to_tf_record("x").do()
    with pytest.raises(UsageError, match=r"no Sample2TFExampleStage; put sample_to_tf_example\(\)"):
        Pipeline().from_tar("x.tar").to_tf_record("x").do()
    with pytest.raises(UsageError, match="no TFRecordStage; end with to_tf_record"):
        Pipeline().from_tar("x.tar").sample_to_tf_example().do()


def test_a_stage_given_twice_is_named() -> None:
    with pytest.raises(UsageError, match="TarStage twice: both from_tar and with_tar_stage"):
        Pipeline().from_tar("x.tar").with_tar_stage(list)
    with pytest.raises(UsageError, match="Sample2TFExampleStage twice: sample_to_tf_example twice"):
        Pipeline().sample_to_tf_example().sample_to_tf_example()
    with pytest.raises(UsageError, match="TFRecordStage twice: both to_tf_record and with_tfrecord_stage"):
        Pipeline().to_tf_record("x").with_tfrecord_stage(list)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("with_samples_stage", "SamplesStage"),
        ("with_sample2tfexample_stage", "Sample2TFExampleStage"),
        ("with_tfexamples_stage", "TFExamplesStage"),
    ],
)
def test_an_exception_in_ones_own_stage_names_the_stage(
    tar: Path, tmp_path: Path, method: str, kind: str, workers: int
) -> None:
    def faulty(items: Iterator[Any]) -> Iterator[Any]:
        yield from (TFExample() for _ in ()) if kind == "Sample2TFExampleStage" else [next(items)]
        raise ZeroDivisionError("of all things")

    pipeline = getattr(Pipeline().from_tar(tar), method)(faulty)
    if kind != "Sample2TFExampleStage":
        pipeline.sample_to_tf_example()
    with pytest.raises(StageError, match=rf"the {kind} .*faulty raised ZeroDivisionError: of all things") as caught:
        pipeline.to_tf_record(tmp_path / "out.record", num_workers=workers).do()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert set(tree(tmp_path)) == {"in/train.tar"}


def test_exceptions_in_the_first_and_last_stage_name_the_stage(tar: Path) -> None:
    def faulty(*_: Any) -> Any:
        raise OSError("no line")

    with pytest.raises(StageError, match=r"the TarStage .*faulty raised OSError: no line"):
        Pipeline().with_tar_stage(faulty).sample_to_tf_example().to_tf_record(io.BytesIO()).do()
    with pytest.raises(StageError, match=r"the TFRecordStage .*faulty raised OSError: no line"):
        Pipeline().from_tar(tar).sample_to_tf_example().with_tfrecord_stage(faulty).do()


@pytest.mark.parametrize(
    ("method", "stage", "message"),
    [
        ("with_samples_stage", lambda items: None, r"SamplesStage .* returned NoneType instead of an iterator"),
        ("with_samples_stage", lambda items: [7], r"SamplesStage .* yielded int instead of a sample \(a dict\)"),
        ("with_samples_stage", lambda items: [{"jpg": b""}], r"yielded a sample whose '__key__' is not a string"),
        ("with_samples_stage", lambda items: [{"__key__": "\ud800"}], r"whose key, or the name .*, is not UTF-8"),
        ("with_tfexamples_stage", lambda items: [{"jpg": b""}], r"yielded dict instead of a TFExample"),
        (
            "with_tfexamples_stage",
            lambda items: [TFExample(x=5)],
            r"yielded a TFExample with int as 'x', which requires add_int64",
        ),
        (
            "with_tfexamples_stage",
            lambda items: (item for item in items if item.get_int64("none")),
            r"TFExamplesStage .*<lambda> raised SampleError: has no feature 'none', only __key__, cls, jpg",
        ),
        (
            "transform_tf_examples",
            lambda example: {"jpg": b""},
            r"sample 0000, offset 0: .* returned dict instead of a TFExample",
        ),
        (
            "transform_tf_examples",
            lambda example: TFExample(x=5),
            "the example has int as 'x', which requires add_int64",
        ),
        ("transform_samples", lambda sample: sample["none"], r"sample 0000, offset 0: the function .* raised KeyError"),
        (
            "transform_tf_examples",
            lambda example: example["none"],
            r"sample 0000, offset 0: the function .* raised KeyError",
        ),
        ("transform_tf_examples", lambda example: example.get_int64("cls"), r"'cls' holds bytes values, not int64"),
        ("transform_samples", select(by_sample_f(lambda sample: "jpg")), "returned the text 'jpg' instead of a list"),
    ],
)
def test_what_a_stage_should_not_give_is_said(tar: Path, tmp_path: Path, method: str, stage: Any, message: str) -> None:
    pipeline = getattr(Pipeline().from_tar(tar), method)(stage).sample_to_tf_example()
    with pytest.raises(Tar2tfError, match=message):
        pipeline.to_tf_record(tmp_path / "out.record").do()
    assert set(tree(tmp_path)) == {"in/train.tar"}


def test_what_is_no_stage_input_or_output_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with_samples_stage: int is not a function"):
        Pipeline().with_samples_stage(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="int is not an input"):
        Pipeline().from_tar(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there are no inputs"):
        Pipeline().from_tar()
    with pytest.raises(UsageError, match="open it with mode 'rb'"):
        Pipeline().from_tar(io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="open it with mode 'wb'"):
        Pipeline().to_tf_record(io.StringIO())
    with pytest.raises(UsageError, match="int is not an output"):
        Pipeline().to_tf_record(1)
    with pytest.raises(UsageError, match="has no file name"):
        Pipeline().to_tf_record(f"{tmp_path}/")
    with pytest.raises(UsageError, match="a template for several files"):
        TFRecordWriter("train-<>.record")
    with pytest.raises(UsageError, match="is the name of a compressed file, but TFRecordWriter compresses nothing"):
        TFRecordWriter(tmp_path / "train.record.gz")
    with pytest.raises(UsageError, match="num_workers must be"):
        Pipeline().to_tf_record("x", num_workers=0)
    with pytest.raises(UsageError, match="on_error must be 'fail' or 'skip', not"):
        Pipeline(on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the type of 'cls' must be 'int64'.*not 'int'; did you mean 'int64'"):
        Pipeline().sample_to_tf_example({"cls": "int"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="no preset 'imagnet'"):
        Pipeline().sample_to_tf_example(preset="imagnet")


def broken(tar: Path) -> Iterator[tuple[str, bytes, str]]:
    whole = tar.read_bytes()
    yield "inside a payload", whole[: len(whole) // 2], "cut short|lacks|may be cut"
    yield "without an end", whole.rstrip(b"\0")[: 512 * 60], "cut short|end-of-archive|lacks"
    yield "no tar", b"this is no tar at all " * 100, "not a tar"
    yield "empty", b"", "is empty"
    yield "gzip cut short", gzip.compress(whole)[:-20], "gzip stream ends too early: it is cut short"
    packed = bytearray(gzip.compress(whole))
    packed[-6] ^= 1
    yield "gzip with a wrong trailer", bytes(packed), "gzip stream is damaged"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", range(6))
def test_bad_tars_are_errors_and_leave_nothing(tmp_path: Path, tar: Path, number: int, workers: int) -> None:
    name, data, message = list(broken(tar))[number]
    bad = tmp_path / "bad.tar"
    bad.write_bytes(data)
    for tar_ in (bad, Pipe(data)):
        pipeline = Pipeline().from_tar(tar_).sample_to_tf_example()
        with pytest.raises(SourceError, match=message):
            pipeline.to_tf_record(tmp_path / "out" / "train.record", num_workers=workers).do()
    assert not list((tmp_path / "out").iterdir()), name


def test_a_stream_that_breaks_is_an_error(tar: Path, tmp_path: Path) -> None:
    class Broken(Pipe):
        error: Exception = OSError(104, "Connection reset by peer")

        def read(self, size: int = -1) -> bytes:
            if data := super().read(size):
                return data
            raise self.error

    class Protocol(Broken):
        error = HTTPException("IncompleteRead")

    half = tar.read_bytes()[:10_000]
    for stream, message in ((Broken(half), "Connection reset"), (Protocol(half), "HTTPException: IncompleteRead")):
        pipeline = Pipeline().from_tar(stream).sample_to_tf_example()
        with pytest.raises(SourceError, match=f"<stream 1>.*{message}"):
            pipeline.to_tf_record(tmp_path / "out.record").do()
    closed = tar.open("rb")
    closed.close()
    with pytest.raises(SourceError, match=r"train\.tar.*closed"):
        Pipeline().from_tar(closed).sample_to_tf_example().to_tf_record(tmp_path / "out.record").do()
    with pytest.raises(SourceError, match="no such directory or file"):
        Pipeline().from_tar(tmp_path / "absent.tar").sample_to_tf_example().to_tf_record(tmp_path / "out.record").do()
    assert set(tree(tmp_path)) == {"in/train.tar"}


def test_repeated_samples_are_errors_and_a_last_one_may_lack_an_entry(tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    repeated = write_members(tmp_path / "repeated.tar", [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")])
    with pytest.raises(SampleError, match=r"repeated\.tar.*'a' appears again; its members are not adjacent"):
        Pipeline().from_tar(repeated, regroup=False).sample_to_tf_example().to_tf_record(out).do()
    half = write_members(tmp_path / "half.tar", [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3")])
    assert Pipeline().from_tar(half).sample_to_tf_example().to_tf_record(tmp_path / "half.record").do().records == 2
    repeated = write_members(tmp_path / "apart.tar", [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3"), ("b.y", b"4")])
    assert Pipeline().from_tar(repeated, regroup=True).sample_to_tf_example().to_tf_record(out).do().records == 2


def test_key_split_is_that_of_convert(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "dots.tar", [("a.b.x", b"1"), ("a.c.x", b"2")])
    done = Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(tmp_path / "first.record").do()
    assert done.records == 1
    done = Pipeline().from_tar(tar, key_split="last").sample_to_tf_example().to_tf_record(tmp_path / "last.record").do()
    assert done.records == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_value_of_another_type_names_shard_and_sample(tmp_path: Path, workers: int) -> None:
    contents = samples(40)
    contents[33][1]["cls"] = b"cat"
    good, bad = write_tar(tmp_path / "good.tar", samples(40)), write_tar(tmp_path / "bad.tar", contents)
    out = tmp_path / "out.record"
    pipeline = Pipeline().from_tar(good, bad).sample_to_tf_example({"cls": "int64"})
    with pytest.raises(SampleError, match=r"bad\.tar, sample 0033, offset 67584: 'cls' is not of type int64"):
        pipeline.to_tf_record(out, num_workers=workers).do()
    assert not out.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_faulty_samples_are_passed_over_when_asked(tmp_path: Path, workers: int) -> None:
    contents = samples(40)
    contents[3][1]["cls"] = contents[33][1]["cls"] = b"cat"
    tar = write_tar(tmp_path / "bad.tar", contents)

    def run(**options: Any) -> Any:
        pipeline = Pipeline(on_error="skip", **options).from_tar(tar).sample_to_tf_example({"cls": "int64"})
        return pipeline.to_tf_record(tmp_path / "out.record", num_workers=workers).do()

    done = run()
    assert done.records == 38
    assert [(error["shard"], error["key"]) for error in done.errors] == [(str(tar), "0003"), (str(tar), "0033")]
    (tmp_path / "out.record").unlink()
    with pytest.raises(Tar2tfError, match="2 samples failed, more than --max-errors 1 allows"):
        run(max_errors=1)
    assert not (tmp_path / "out.record").exists()


def test_features_of_one_name_and_several_kinds_are_an_error(tar: Path, tmp_path: Path) -> None:
    def mixed(example: TFExample) -> TFExample:
        if example.get_bytes("__key__") > b"0005":
            example.add_int64("cls", 1)
        return example

    with pytest.raises(
        SampleError, match=r"sample 0006, offset 12288: the feature 'cls' is int64 of rank 0 here and bytes"
    ):
        made_of(tar, tmp_path, lambda p: p.transform_tf_examples(mixed))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_that_a_later_stage_swallows_is_raised_all_the_same(tmp_path: Path, tar: Path, workers: int) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(tar.read_bytes()[:20_000])

    def careless(items: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from items
        except Exception:
            return

    out = tmp_path / "out.record"
    pipeline = Pipeline().from_tar(cut).with_samples_stage(careless).sample_to_tf_example()
    with pytest.raises(DamagedShardError, match="cut short"):
        pipeline.to_tf_record(out, num_workers=workers).do()
    assert not out.exists()
    taken: list[Any] = []
    pipeline = Pipeline().from_tar(cut).with_samples_stage(careless).sample_to_tf_example()
    with pytest.raises(DamagedShardError, match="cut short"):
        pipeline.with_tfrecord_stage(taken.extend).do()


def test_interruption_leaves_nothing(tar: Path, tmp_path: Path) -> None:
    def interrupted(sample: Any) -> Any:
        raise KeyboardInterrupt

    pipeline = Pipeline().from_tar(tar).transform_samples(interrupted).sample_to_tf_example()
    with pytest.raises(KeyboardInterrupt):
        pipeline.to_tf_record(tmp_path / "out.record").do()
    assert set(tree(tmp_path)) == {"in/train.tar"}
