"""Pipeline: stages from tar to TFRecord, selections, transformations, TFExample, the reader and the writer."""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tar2tf_cli.pipeline
from shards import PHOTOS, convert, examples, records, samples, tree, write_members, write_tar
from tar2tf_cli.errors import (
    DamagedShardError,
    ImageError,
    OutputExistsError,
    SampleError,
    SinkError,
    SourceError,
    StageError,
    Tar2tfError,
    UsageError,
)
from tar2tf_cli.ops import Decode, Keep, Resize
from tar2tf_cli.pipeline import (
    Pipeline,
    TFExample,
    TFRecordReader,
    TFRecordWriter,
    by_example_f,
    by_key,
    by_key_value,
    by_prefix,
    by_sample_f,
    by_substring,
    by_suffix,
    example_f,
    id,
    rename,
    sample_f,
    select,
)


class Pipe(io.RawIOBase):
    """A stream that cannot seek, and gives little at a time."""

    def __init__(self, data: bytes, most: int = 700) -> None:
        self._data = io.BytesIO(data)
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._data.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        return len(data)


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """Forty samples of a cls and a jpg."""
    return write_tar(tmp_path / "in" / "train.tar", samples(40))


def made_of(tar: Any, tmp_path: Path, build: Callable[[Pipeline], Pipeline] = lambda pipeline: pipeline) -> list[Any]:
    """Features of the examples that a pipeline writes, as TensorFlow's protobuf parses them."""
    out = tmp_path / "made.record"
    build(Pipeline().from_tar(tar)).sample_to_tf_example().to_tf_record(out, overwrite=True).do()
    return examples(out)


def names_of(tar: Path, tmp_path: Path, *transformations: Any) -> list[str]:
    """Feature names of the first example after transformations of its sample; the same for those of the example."""
    of_sample = made_of(tar, tmp_path, lambda pipeline: pipeline.transform_samples(*transformations))
    of_example = made_of(tar, tmp_path, lambda pipeline: pipeline.transform_tf_examples(*transformations))
    assert of_sample == of_example
    return sorted(of_sample[0])


# --- From tar to TFRecord ---


def test_a_pipeline_writes_the_bytes_that_convert_writes(tmp_path: Path) -> None:
    for name in ("photos-0.tar", "photos-3.tar.gz"):
        ours, theirs = tmp_path / f"ours-{name}.record", tmp_path / f"theirs-{name}.record"
        Pipeline().from_tar(PHOTOS / name).sample_to_tf_example({"cls": "int64"}).to_tf_record(ours).do()
        convert(PHOTOS / name, "-o", theirs, "--type", "cls=int64")
        assert ours.read_bytes() == theirs.read_bytes()


def test_several_tars_follow_each_other(tmp_path: Path) -> None:
    paths = sorted(PHOTOS.glob("photos-?.tar*"))
    convert(PHOTOS, "-o", tmp_path / "theirs.record")
    Pipeline().from_tar(*paths).sample_to_tf_example().to_tf_record(tmp_path / "each.record").do()
    Pipeline().from_tar(iter(paths)).sample_to_tf_example().to_tf_record(tmp_path / "list.record").do()
    Pipeline().from_tar(PHOTOS).sample_to_tf_example().to_tf_record(tmp_path / "folder.record").do()
    assert len({path.read_bytes() for path in tmp_path.glob("*.record")}) == 1


def test_ops_selections_and_presets_are_those_of_convert(tmp_path: Path) -> None:
    resize = (Decode("jpg"), Resize("jpg", (32, 24)))
    select_pipeline = (
        Pipeline().from_tar(PHOTOS).transform_samples(*resize).sample_to_tf_example({"y": "int64"}, select="jpg,y=cls")
    )
    select_pipeline.to_tf_record(tmp_path / "select.record", num_workers=2).do()
    convert(PHOTOS, "-o", tmp_path / "a.record", "--op", "decode:jpg", "--op", "resize:jpg,32x24",
            "--select", "jpg,y=cls", "--type", "y=int64")  # fmt: skip
    assert (tmp_path / "select.record").read_bytes() == (tmp_path / "a.record").read_bytes()

    preset = Pipeline().from_tar(PHOTOS).sample_to_tf_example(preset="imagenet")
    preset.to_tf_record(tmp_path / "preset.record").do()
    convert(PHOTOS, "-o", tmp_path / "b.record", "--preset", "imagenet")
    assert (tmp_path / "preset.record").read_bytes() == (tmp_path / "b.record").read_bytes()


def test_tensorflow_reads_what_a_pipeline_writes(tmp_path: Path, tar: Path) -> None:
    import tensorflow as tf

    out = tmp_path / "train.record"
    done = Pipeline().from_tar(tar).sample_to_tf_example({"cls": "int64"}).to_tf_record(out).do()
    description = {
        "__key__": tf.io.FixedLenFeature([], tf.string),
        "cls": tf.io.FixedLenFeature([], tf.int64),
        "jpg": tf.io.FixedLenFeature([], tf.string),
    }
    read = [tf.io.parse_single_example(record, description) for record in tf.data.TFRecordDataset(str(out))]
    found = [(item["__key__"].numpy().decode(), int(item["cls"]), item["jpg"].numpy()) for item in read]
    assert found == [(key, int(entries["cls"]), entries["jpg"]) for key, entries in samples(40)]
    assert (done.records, done.bytes) == (40, out.stat().st_size)
    assert done.features["cls"] == {"dtype": "int64", "shape": [], "encoding": "int64", "count": 40}


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_streams_that_cannot_seek_are_read(tar: Path, compress: Callable[[bytes], bytes]) -> None:
    out = io.BytesIO()
    stream = Pipe(compress(tar.read_bytes()))
    Pipeline().from_tar(stream).sample_to_tf_example().to_tf_record(out).do()
    expected = io.BytesIO()
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(expected).do()
    assert out.getvalue() == expected.getvalue() != b""
    assert not stream.closed
    assert not out.closed


def test_a_tar_comes_through_an_operating_system_pipe(tar: Path) -> None:
    reading, writing = os.pipe()

    def feed() -> None:
        with open(writing, "wb") as file:
            file.write(gzip.compress(tar.read_bytes()))

    feeder = threading.Thread(target=feed)
    feeder.start()
    out = io.BytesIO()
    with open(reading, "rb", buffering=0) as stream:
        assert Pipeline().from_tar_gz(stream).sample_to_tf_example().to_tf_record(out).do().records == 40
    feeder.join()


def test_from_tar_gz_takes_gzip_only(tar: Path, tmp_path: Path) -> None:
    packed = tmp_path / "train.tgz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    made = Pipeline().from_tar_gz(packed).sample_to_tf_example().to_tf_record(tmp_path / "a.record").do()
    assert made.records == 40
    with pytest.raises(DamagedShardError, match=r"train\.tar.*not gzip.*from_tar reads"):
        Pipeline().from_tar_gz(tar).sample_to_tf_example().to_tf_record(tmp_path / "b.record").do()


def test_methods_may_be_called_in_any_order(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    pipeline = Pipeline().to_tf_record(out).transform_tf_examples(rename("image", "jpg")).sample_to_tf_example()
    pipeline.transform_samples(select(by_key("jpg"))).from_tar(tar).do()
    assert sorted(examples(out)[0]) == ["__key__", "image"]


def test_a_pipeline_can_be_run_again(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    pipeline = Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out, overwrite=True)
    pipeline.do()
    first = out.read_bytes()
    pipeline.do()
    assert out.read_bytes() == first


@pytest.mark.parametrize("workers", [2, 7])
def test_the_number_of_workers_does_not_show_in_the_output(tmp_path: Path, workers: int) -> None:
    shards = [write_tar(tmp_path / f"{number}.tar", samples(50, first=100 * number)) for number in range(3)]

    def halves(sample: dict[str, Any]) -> Iterator[dict[str, Any]] | None:
        if int(sample["__key__"]) % 3 == 0:
            return None
        return ({"__key__": f"{sample['__key__']}/{half}", "part": bytes([half])} for half in range(2))

    def build(pipeline: Pipeline) -> Pipeline:
        pipeline.transform_samples(halves).with_samples_stage(lambda items: list(items)).transform_samples(id)
        return pipeline.sample_to_tf_example().transform_tf_examples(lambda example: example)

    one, many = tmp_path / "one.record", tmp_path / "many.record"
    build(Pipeline().from_tar(shards)).to_tf_record(one).do()
    build(Pipeline().from_tar(shards)).to_tf_record(many, num_workers=workers).do()
    assert one.read_bytes() == many.read_bytes()
    assert len(records(one)) == 2 * sum(int(key) % 3 != 0 for n in range(3) for key, _ in samples(50, first=100 * n))


def test_workers_work_at_the_same_time(tar: Path) -> None:
    met = threading.Barrier(2)

    def wait(sample: Any) -> Any:
        if sample["__key__"] in ("0000", "0016"):  # of two chunks
            met.wait(timeout=20)
        return sample

    Pipeline().from_tar(tar).transform_samples(wait).sample_to_tf_example().to_tf_record(
        io.BytesIO(), num_workers=2
    ).do()


# --- Selections and transformations ---


@pytest.fixture
def fields(tmp_path: Path) -> Path:
    """One sample with entries of many names."""
    entries = {"seg_a": b"1", "seg_b": b"2", "mask.png": b"3", "map.png": b"4", "cls": b" 3\n"}
    return write_tar(tmp_path / "fields.tar", [("k", entries)])


@pytest.mark.parametrize(
    ("selections", "expected"),
    [
        ([by_key("seg_a")], ["seg_a"]),
        ([by_key("absent")], []),
        ([by_prefix("seg_")], ["seg_a", "seg_b"]),
        ([by_suffix(".png")], ["map.png", "mask.png"]),
        ([by_substring("as")], ["mask.png"]),
        ([by_key_value("cls", 3)], ["cls"]),
        ([by_key_value("cls", "3")], ["cls"]),
        ([by_key_value("cls", b" 3\n")], ["cls"]),
        ([by_key_value("cls", b"3")], []),
        ([by_key_value("seg_a", b"2")], []),
        ([by_key("cls"), by_prefix("seg_"), by_suffix("_a")], ["cls", "seg_a", "seg_b"]),
    ],
)
def test_select_keeps_the_union_and_the_key(
    fields: Path, tmp_path: Path, selections: list[Any], expected: list[str]
) -> None:
    assert names_of(fields, tmp_path, select(*selections)) == sorted(["__key__", *expected])


def test_selections_by_function_see_the_sample_or_the_example(fields: Path, tmp_path: Path) -> None:
    by_sample = select(by_sample_f(lambda sample: [name for name, value in sample.items() if value in (b"1", b"4")]))
    assert sorted(made_of(fields, tmp_path, lambda p: p.transform_samples(by_sample))[0]) == [
        "__key__", "map.png", "seg_a",
    ]  # fmt: skip
    by_example = select(by_example_f(lambda example: [name for name in example if example.get_bytes(name) == b"2"]))
    assert sorted(made_of(fields, tmp_path, lambda p: p.transform_tf_examples(by_example))[0]) == ["__key__", "seg_b"]


def test_by_key_value_compares_features_of_numbers() -> None:
    example = TFExample()
    example.add_int64("label", 7)
    example.add_float("score", 0.1)
    example.add_int64_list("box", [1, 2])
    example.add_float_list("scores", [0.5, 0.1])

    def holds(name: str, value: Any) -> bool:
        return bool(list(by_key_value(name, value).names(example)))

    assert holds("label", 7)
    assert not holds("label", 8)
    assert holds("score", 0.1)
    assert not holds("score", 0.2)
    assert not holds("score", "high")
    assert holds("box", [1, 2])
    assert holds("box", (1, 2))
    assert not holds("box", [1])
    assert holds("scores", [0.5, 0.1])


def test_rename_takes_the_first_source_that_is_there(fields: Path, tmp_path: Path) -> None:
    image = rename("image", ["jpg", "seg_b", "seg_a"])
    assert names_of(fields, tmp_path, image) == ["__key__", "cls", "image", "map.png", "mask.png", "seg_a"]
    (made,) = made_of(fields, tmp_path, lambda pipeline: pipeline.transform_samples(image))
    assert made["image"] == [b"2"]


def test_rename_without_a_source_changes_nothing(fields: Path, tmp_path: Path) -> None:
    assert "image" not in names_of(fields, tmp_path, rename("image", ["jpg", "jpeg"]), id())


def test_rename_of_the_key_leaves_the_key(fields: Path, tmp_path: Path) -> None:
    assert names_of(fields, tmp_path, rename("name", "__key__"), select(by_key("name"))) == ["__key__", "name"]


def test_functions_change_drop_and_multiply_samples_and_examples(tar: Path, tmp_path: Path) -> None:
    def only_even(sample: dict[str, Any]) -> Any:
        return {**sample, "cls": b"even"} if int(sample["cls"]) % 2 == 0 else None

    def twice(example: TFExample) -> list[TFExample]:
        other = TFExample(example)
        other.add_int64("copy", 1)
        return [example, other]

    made = made_of(
        tar, tmp_path, lambda p: p.transform_samples(sample_f(only_even)).transform_tf_examples(example_f(twice))
    )
    assert len(made) == 40
    assert {tuple(features["cls"]) for features in made} == {(b"even",)}
    assert [features.get("copy") for features in made[:4]] == [None, [1], None, [1]]


def test_empty_samples_and_examples_are_filtered_out(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "some.tar", [("a", {"jpg": b"1"}), ("b", {"png": b"2"}), ("c", {"jpg": b"3"})])
    only_png = select(by_key("png"))
    filtered = made_of(tar, tmp_path, lambda p: p.transform_samples(only_png).filter_empty_samples())
    assert [features["__key__"] for features in filtered] == [[b"b"]]
    filtered = made_of(tar, tmp_path, lambda p: p.transform_tf_examples(only_png).filter_empty_examples())
    assert [features["__key__"] for features in filtered] == [[b"b"]]
    assert len(made_of(tar, tmp_path, lambda p: p.transform_samples(only_png))) == 3


def test_stages_of_the_same_kind_follow_each_other_as_they_were_added(fields: Path, tmp_path: Path) -> None:
    made = made_of(
        fields, tmp_path, lambda p: p.transform_samples(rename("a", "cls")).transform_samples(rename("b", "a"))
    )
    assert "b" in made[0]
    assert "a" not in made[0]


def test_a_transformation_for_the_other_kind_is_refused() -> None:
    by_example, by_sample = select(by_example_f(list)), select(by_sample_f(list))
    with pytest.raises(UsageError, match=r"select is for examples; give it to transform_tf_examples"):
        Pipeline().transform_samples(by_example)
    with pytest.raises(UsageError, match=r"select is for samples; give it to transform_samples"):
        Pipeline().transform_tf_examples(by_sample)
    with pytest.raises(UsageError, match="example_f is for examples"):
        Pipeline().transform_samples(example_f(lambda example: example))
    with pytest.raises(UsageError, match="decode is for samples"):
        Pipeline().transform_tf_examples(Decode("jpg"))
    with pytest.raises(UsageError, match="not of both"):
        select(by_example_f(list), by_sample_f(list))
    with pytest.raises(UsageError, match="'jpg' is no selection; such as by_key"):
        select("jpg")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="3 is no transformation"):
        Pipeline().transform_samples(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rename takes a name and its sources"):
        rename("image", [])


def test_ops_go_where_transformations_go(fields: Path, tmp_path: Path) -> None:
    made = made_of(fields, tmp_path, lambda pipeline: pipeline.transform_samples(Keep("prefix:seg", "cls=3")))
    assert sorted(made[0]) == ["__key__", "cls", "seg_a", "seg_b"]


# --- Stages of one's own ---


def test_the_stages_of_the_documentation_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The documentation's examples as they stand: a logger that counts, and a service that samples are sent to."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", tar2tf_cli.pipeline.__doc__ or "", re.MULTILINE)
    logger, service_client = (textwrap.dedent(block) for block in blocks if "def " in block)
    logged, served = tmp_path / "logged.record", tmp_path / "served.record"
    many, some = write_tar(tmp_path / "many.tar", samples(2100, 20)), write_tar(tmp_path / "some.tar", samples(60))
    exec(logger, {"Pipeline": Pipeline, "tar": many, "out": logged})
    assert capsys.readouterr().out == "1,000 samples\n2,000 samples\n"
    assert len(records(logged)) == 2100
    with Service() as (url, service):
        exec(service_client, {"Pipeline": Pipeline, "tar": some, "out": served, "url": url})
    assert service.answered == 60
    assert service.most_at_once > 1
    expected = [(key.encode(), entries["jpg"][::-1]) for key, entries in samples(60)]
    assert [(features["__key__"][0], features["jpg"][0]) for features in examples(served)] == expected


class Service:
    """A service that answers with the bytes it was sent, backwards."""

    def __init__(self) -> None:
        self.answered = self.at_once = self.most_at_once = 0
        lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with lock:
                    service.at_once += 1
                    service.most_at_once = max(service.most_at_once, service.at_once)
                data = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(0.005)
                with lock:
                    service.answered += 1
                    service.at_once -= 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[::-1])

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> tuple[str, Service]:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}", self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def test_every_stage_can_be_ones_own(tmp_path: Path) -> None:
    kept: list[TFExample] = []

    def tar_stage() -> Iterator[dict[str, Any]]:
        for number in range(5):
            yield {"__key__": str(number), "n": number}

    def samples_stage(items: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(items, key=lambda sample: -sample["n"])

    def convert_stage(items: Iterator[dict[str, Any]]) -> Iterator[TFExample]:
        for sample in items:
            example = TFExample()
            example.add_int64("n", sample["n"])
            yield example

    def examples_stage(items: Iterator[TFExample]) -> Iterator[TFExample]:
        return (example for example in items if example.get_int64("n") != 2)

    def record_stage(items: Iterator[TFExample]) -> None:
        kept.extend(items)

    pipeline = Pipeline().with_tar_stage(tar_stage).with_samples_stage(samples_stage)
    pipeline.with_sample2tfexample_stage(convert_stage).with_tfexamples_stage(examples_stage)
    done = pipeline.with_tfrecord_stage(record_stage).do()
    assert [example.get_int64("n") for example in kept] == [4, 3, 1, 0]
    assert done.records == 4


def test_a_tfrecord_stage_may_be_a_generator(tar: Path) -> None:
    kept = []

    def record_stage(items: Iterator[TFExample]) -> Iterator[TFExample]:
        for item in items:
            kept.append(item)
            yield item

    Pipeline().from_tar(tar).sample_to_tf_example().with_tfrecord_stage(record_stage).do()
    assert len(kept) == 40


def test_stages_are_lazy(tar: Path) -> None:
    seen = []

    def watched(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            seen.append(item["__key__"])
            yield item

    def first_two(items: Iterator[TFExample]) -> None:
        next(items)
        next(items)

    pipeline = Pipeline().from_tar(tar).with_samples_stage(watched).sample_to_tf_example()
    assert not seen
    assert pipeline.with_tfrecord_stage(first_two).do().records == 2
    assert seen == ["0000", "0001"]


def test_a_stage_may_end_early(tar: Path, tmp_path: Path) -> None:
    made = made_of(tar, tmp_path, lambda p: p.with_samples_stage(lambda items: (next(items) for _ in range(3))))
    assert [features["__key__"][0] for features in made] == [b"0000", b"0001", b"0002"]


def test_a_stage_may_fetch_ahead_in_a_thread_of_its_own(tar: Path, tmp_path: Path) -> None:
    import queue

    def ahead(items: Iterator[Any]) -> Iterator[Any]:
        fetched: queue.Queue[Any] = queue.Queue(4)

        def fetch() -> None:
            for item in items:
                fetched.put(item)
            fetched.put(None)

        thread = threading.Thread(target=fetch)
        thread.start()
        yield from iter(fetched.get, None)
        thread.join()

    assert len(made_of(tar, tmp_path, lambda p: p.with_samples_stage(ahead))) == 40


def test_what_a_stage_keeps_of_a_sample_stays_a_sample(tar: Path, tmp_path: Path) -> None:
    kept: list[Any] = []

    def keeping(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            kept.append(item)
            yield item

    made_of(tar, tmp_path, lambda p: p.with_samples_stage(keeping))
    assert [(sample["__key__"], sample["cls"]) for sample in kept] == [(key, e["cls"]) for key, e in samples(40)]


# --- Errors ---


def test_a_missing_stage_is_named() -> None:
    with pytest.raises(UsageError, match="no TarStage; begin with from_tar"):
        Pipeline().sample_to_tf_example().to_tf_record("x").do()
    with pytest.raises(UsageError, match=r"no Sample2TFExampleStage; put sample_to_tf_example\(\)"):
        Pipeline().from_tar("x.tar").to_tf_record("x").do()
    with pytest.raises(UsageError, match="no TFRecordStage; end with to_tf_record"):
        Pipeline().from_tar("x.tar").sample_to_tf_example().do()


def test_a_stage_given_twice_is_named() -> None:
    with pytest.raises(UsageError, match="TarStage twice: both from_tar and from_tar_gz"):
        Pipeline().from_tar("x.tar").from_tar_gz("y.tar.gz")
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
        ("with_samples_stage", lambda items: None, r"SamplesStage .* gave NoneType where an iterator is needed"),
        ("with_samples_stage", lambda items: [7], r"SamplesStage .* gave int where a sample \(a dict\) is needed"),
        ("with_samples_stage", lambda items: [{"jpg": b""}], r"gave a sample without a text as its '__key__'"),
        ("with_tfexamples_stage", lambda items: [{"jpg": b""}], r"gave dict where a TFExample is needed"),
        ("with_tfexamples_stage", lambda items: [TFExample(x=5)], r"gave a TFExample with int as 'x', which add_int64"),
        (
            "with_tfexamples_stage",
            lambda items: (item for item in items if item.get_int64("none")),
            r"TFExamplesStage .*<lambda> raised SampleError: has no feature 'none', only __key__, cls, jpg",
        ),
        ("transform_tf_examples", lambda example: {"jpg": b""}, "sample 0000: dict was made where a TFExample"),
        ("transform_tf_examples", lambda example: TFExample(x=5), "the example has int as 'x', which add_int64"),
        ("transform_samples", lambda sample: sample["none"], r"sample 0000: the function .* raised KeyError"),
        ("transform_tf_examples", lambda example: example["none"], r"sample 0000: the function .* raised KeyError"),
        ("transform_tf_examples", lambda example: example.get_int64("cls"), r"'cls' holds bytes values, not int64"),
        ("transform_samples", select(by_sample_f(lambda sample: "jpg")), "gave the text 'jpg' where a list"),
    ],
)
def test_what_a_stage_should_not_give_is_said(tar: Path, tmp_path: Path, method: str, stage: Any, message: str) -> None:
    pipeline = getattr(Pipeline().from_tar(tar), method)(stage).sample_to_tf_example()
    with pytest.raises(Tar2tfError, match=message):
        pipeline.to_tf_record(tmp_path / "out.record").do()
    assert set(tree(tmp_path)) == {"in/train.tar"}


def test_what_is_no_stage_input_or_output_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with_samples_stage: int is no function"):
        Pipeline().with_samples_stage(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="int is no input"):
        Pipeline().from_tar(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there are no inputs"):
        Pipeline().from_tar()
    with pytest.raises(UsageError, match="open it with mode 'rb'"):
        Pipeline().from_tar(io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="open it with mode 'wb'"):
        Pipeline().to_tf_record(io.StringIO())
    with pytest.raises(UsageError, match="int is no output"):
        Pipeline().to_tf_record(1)
    with pytest.raises(UsageError, match="names no file"):
        Pipeline().to_tf_record(f"{tmp_path}/")
    with pytest.raises(UsageError, match="a template of many files"):
        TFRecordWriter("train-<>.record")
    with pytest.raises(UsageError, match="num_workers must be"):
        Pipeline().to_tf_record("x", num_workers=0)
    with pytest.raises(UsageError, match="on_error is 'fail' or 'skip'"):
        Pipeline(on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'cls' cannot be of type 'int'.*types: int64"):
        Pipeline().sample_to_tf_example({"cls": "int"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="no preset 'imagnet'"):
        Pipeline().sample_to_tf_example(preset="imagnet")


def broken(tar: Path) -> Iterator[tuple[str, bytes, str]]:
    whole = tar.read_bytes()
    yield "inside a payload", whole[: len(whole) // 2], "cut short|lacks|may be cut"
    yield "without an end", whole.rstrip(b"\0")[: 512 * 60], "cut short|end-of-archive|lacks"
    yield "no tar", b"this is no tar at all " * 100, "not a tar"
    yield "empty", b"", "is empty"
    yield "gzip cut short", gzip.compress(whole)[:-20], "gzip stream ends before its trailer"
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


def test_half_and_repeated_samples_are_errors(tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    repeated = write_members(tmp_path / "repeated.tar", [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")])
    with pytest.raises(SampleError, match=r"repeated\.tar.*'a' comes back after another key"):
        Pipeline().from_tar(repeated).sample_to_tf_example().to_tf_record(out).do()
    half = write_members(tmp_path / "half.tar", [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3")])
    with pytest.raises(SampleError, match=r"half\.tar.*last sample lacks y"):
        Pipeline().from_tar(half).sample_to_tf_example().to_tf_record(out).do()
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
    with pytest.raises(SampleError, match=r"bad\.tar, sample 0033: 'cls' is no int64"):
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
    with pytest.raises(Tar2tfError, match="2 samples failed, more than max_errors=1 allows"):
        run(max_errors=1)
    assert not (tmp_path / "out.record").exists()


def test_features_of_one_name_and_several_kinds_are_an_error(tar: Path, tmp_path: Path) -> None:
    def mixed(example: TFExample) -> TFExample:
        if example.get_bytes("__key__") > b"0005":
            example.add_int64("cls", 1)
        return example

    with pytest.raises(SampleError, match=r"sample 0006: the feature 'cls' is int64 of rank 0 here and bytes"):
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


# --- Outputs ---


def test_a_file_that_is_there_is_not_overwritten_unasked(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    out.write_bytes(b"precious")
    with pytest.raises(OutputExistsError, match=r"out\.record: is there already"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out).do()
    assert out.read_bytes() == b"precious"
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out, overwrite=True).do()
    assert len(records(out)) == 40


def test_a_file_appears_only_when_it_is_whole(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "out.record"
    seen = []

    def watched(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            seen.append(out.exists())
            yield item

    Pipeline().from_tar(tar).with_samples_stage(watched).sample_to_tf_example().to_tf_record(out).do()
    assert seen == [False] * 40
    assert [path.name for path in out.parent.iterdir()] == ["out.record"]


def test_an_older_file_stays_when_a_run_fails(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    out.write_bytes(b"older")
    pipeline = Pipeline().from_tar(tar).sample_to_tf_example({"jpg": "int64"})
    with pytest.raises(SampleError):
        pipeline.to_tf_record(out, overwrite=True).do()
    assert out.read_bytes() == b"older"


class Trickle:
    """An unbuffered output that takes three bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data[:3]
        return min(len(data), 3)


class Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


def test_file_objects_that_take_little_or_nothing(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "few.tar", samples(3, 20))
    whole, little = io.BytesIO(), Trickle()
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(whole).do()
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(little).do()
    assert little.data == whole.getvalue()
    with pytest.raises(SinkError, match="No space left on device"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(Full()).do()
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(SinkError, match="closed"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(closed).do()


def test_a_directory_or_device_as_output_is_refused(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names a directory"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(tmp_path).do()
    with pytest.raises(UsageError, match="no regular file"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record("/dev/null", overwrite=True).do()


def test_memory_does_not_grow_with_the_tar(tmp_path: Path) -> None:
    import tracemalloc

    tar = write_tar(tmp_path / "large.tar", ((f"{n:05}", {"bin": bytes(1_000_000)}) for n in range(100)))
    tracemalloc.start()
    try:
        for workers in (1, 2):
            pipeline = Pipeline().from_tar(tar).sample_to_tf_example()
            pipeline.to_tf_record(tmp_path / f"{workers}.record", num_workers=workers).do()
        assert tracemalloc.get_traced_memory()[1] < 45e6
    finally:
        tracemalloc.stop()


# --- TFExample ---


def test_tensorflow_parses_what_a_tfexample_holds() -> None:
    import tensorflow as tf

    example = TFExample()
    example.add_int64("label", -7)
    example.add_int64_list("box", [1, 2**63 - 1, -(2**63)])
    example.add_float("score", 0.1)
    example.add_float_list("scores", np.array([[0.5, 1.5]], np.float64))
    example.add_bytes("name", b"\xff")
    example.add_bytes_list("parts", [b"", b"two"])
    parsed = tf.train.Example.FromString(example.to_bytes())
    expected = tf.train.Example()
    features = expected.features.feature
    features["label"].int64_list.value[:] = [-7]
    features["box"].int64_list.value[:] = [1, 2**63 - 1, -(2**63)]
    features["score"].float_list.value[:] = [0.1]
    features["scores"].float_list.value[:] = [0.5, 1.5]
    features["name"].bytes_list.value[:] = [b"\xff"]
    features["parts"].bytes_list.value[:] = [b"", b"two"]
    assert parsed == expected
    ours = TFExample.from_bytes(expected.SerializeToString())
    assert ours == example
    assert (ours.get_int64("label"), ours.get_bytes("name")) == (-7, b"\xff")
    assert ours.get_float("score") == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert ours.get_int64_list("box") == [1, 2**63 - 1, -(2**63)]
    assert ours.get_float_list("scores") == [0.5, 1.5]
    assert ours.get_bytes_list("parts") == [b"", b"two"]


_VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda values: ("int64_list", values)),
    st.lists(st.floats(width=32, allow_nan=False)).map(lambda values: ("float_list", values)),
    st.lists(st.binary(max_size=300)).map(lambda values: ("bytes_list", values)),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5), _VALUES, max_size=5))
def test_any_features_come_back_from_bytes_and_from_tensorflow(features: dict[str, tuple[str, list[Any]]]) -> None:
    import tensorflow as tf

    example = TFExample()
    for name, (kind, values) in features.items():
        getattr(example, f"add_{kind}")(name, values)
    parsed = tf.train.Example.FromString(example.to_bytes())
    for again in (TFExample.from_bytes(example.to_bytes()), TFExample.from_bytes(parsed.SerializeToString())):
        assert again == example
        for name, (kind, values) in features.items():
            assert getattr(again, f"get_{kind}")(name) == values


def test_has_tells_the_kind_of_a_feature() -> None:
    example = TFExample(plain=b"text")
    example.add_int64("label", 1)
    example.add_float_list("scores", [])
    example.add_image("image", np.zeros((2, 3, 3), np.uint8))
    kinds = {
        name: [
            kind
            for kind in ("int64", "float", "bytes", "image", "")
            if getattr(example, f"has_{kind}".rstrip("_"))(name)
        ]
        for name in (*example, "absent")
    }
    assert kinds == {
        "plain": ["bytes", ""],
        "label": ["int64", ""],
        "scores": ["float", ""],
        "image": ["bytes", "image", ""],
        "absent": [],
    }


def test_images_go_in_and_come_out() -> None:
    import tensorflow as tf

    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    example = TFExample()
    example.add_image("png", pixels)
    example.add_image("jpeg", pixels, "jpeg", quality=90)
    assert np.array_equal(example.get_image("png"), pixels)
    assert np.array_equal(example.get_image("png"), tf.io.decode_png(example.get_bytes("png")))
    assert np.array_equal(example.get_image("jpeg"), tf.io.decode_jpeg(example.get_bytes("jpeg")))
    example.add_bytes("text", b"no image")
    with pytest.raises(ImageError):
        example.get_image("text")
    with pytest.raises(ImageError):
        example.add_image("float", pixels / 255)


def test_asking_for_what_a_tfexample_has_not_got_says_what_it_has() -> None:
    example = TFExample(name=b"x")
    example.add_int64_list("box", [1, 2])
    with pytest.raises(SampleError, match="has no feature 'label', only box, name"):
        example.get_int64("label")
    with pytest.raises(SampleError, match="'box' holds 2 values, not one"):
        example.get_int64("box")
    with pytest.raises(SampleError, match="'name' holds bytes values, not float"):
        example.get_float("name")
    with pytest.raises(TypeError, match="int is no feature; give 'y' with add_int64"):
        example["y"] = 3  # type: ignore[assignment]
    with pytest.raises(OverflowError):
        example.add_int64("big", 2**63)
    with pytest.raises(TypeError):
        example.add_bytes("text", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        example.add_int64("half", 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"."):
        TFExample.from_bytes(b"not an example")
    assert repr(example) == "TFExample(box: int64, shape [2], name: bytes, 1 long: b'x')"


# --- Reader and writer ---


def example_of(number: int) -> TFExample:
    example = TFExample()
    example.add_int64("n", number)
    return example


@pytest.mark.parametrize("opened", [False, True])
def test_tensorflow_and_the_reader_read_what_the_writer_writes(tmp_path: Path, opened: bool) -> None:
    import tensorflow as tf

    path = tmp_path / "out" / "n.record"
    path.parent.mkdir()
    file = path.open("wb") if opened else None
    with TFRecordWriter(file or path) as writer:
        for number in range(100):
            example = example_of(number)
            writer.write(example.to_bytes() if number % 2 else example)
    if file:
        file.close()
    assert (writer.records, writer.size) == (100, path.stat().st_size)
    read = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    assert [list(example.features.feature["n"].int64_list.value) for example in read] == [[n] for n in range(100)]
    assert [example.get_int64("n") for example in TFRecordReader(path)] == list(range(100))
    assert list(TFRecordReader(io.BytesIO(path.read_bytes())).records()) == records(path)
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(list(TFRecordReader(packed))) == 100
    assert [path.name for path in path.parent.iterdir() if path.name.startswith(".")] == []


def test_the_reader_reads_what_tensorflow_writes(tmp_path: Path) -> None:
    import tensorflow as tf

    path = str(tmp_path / "tf.record")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(10):
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"n": feature})).SerializeToString())
    reader = TFRecordReader(path)
    assert [example.get_int64("n") for example in reader] == list(range(10))
    assert len(list(reader)) == 10


def test_a_writer_whose_block_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), TFRecordWriter(tmp_path / "out.record") as writer:
        writer.write(7)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed"):
        writer.write(example_of(1))


def test_a_writer_does_not_replace_what_appeared_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "out.record"
    writer = TFRecordWriter(path)
    writer.write(example_of(1))
    path.write_bytes(b"another's")
    with pytest.raises(OutputExistsError):
        writer.close()
    assert tree(tmp_path) == {"out.record": b"another's"}


@pytest.mark.parametrize(
    ("place", "kind", "number"), [(0, "length-crc", 1), (9, "length-crc", 1), (20, "data-crc", 1), (-1, "data-crc", 1)]
)
def test_the_reader_compares_every_crc(tmp_path: Path, place: int, kind: str, number: int) -> None:
    out = io.BytesIO()
    with TFRecordWriter(out) as writer:
        for n in range(2):
            writer.write(example_of(n))
    data = bytearray(out.getvalue())
    half = len(data) // 2
    data[half + place if place >= 0 else place] ^= 1
    path = tmp_path / "damaged.record"
    path.write_bytes(data)
    read = []
    with pytest.raises(DamagedShardError, match=rf"damaged\.record, record {number}, offset {half}") as caught:
        read.extend(TFRecordReader(path))
    assert caught.value.kind == kind
    path.write_bytes(out.getvalue()[:-1])
    with pytest.raises(DamagedShardError, match="1 bytes short"):
        list(TFRecordReader(path))


def test_a_record_that_is_no_example_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.record"
    with TFRecordWriter(path) as writer:
        writer.write(example_of(1))
        writer.write(b"no example")
    with pytest.raises(DamagedShardError, match=r"text\.record, record 1, offset \d+: is no tf\.train\.Example"):
        list(TFRecordReader(path))
    assert list(TFRecordReader(path).records())[1] == b"no example"


def test_importing_the_pipeline_does_not_import_tensorflow() -> None:
    import subprocess
    import sys

    code = "import sys, tar2tf_cli.pipeline; print([m for m in ('tensorflow', 'numpy', 'cv2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
