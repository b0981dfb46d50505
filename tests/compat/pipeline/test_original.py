"""What go-tfdata accepts and does, `Pipeline` accepts and does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from pipeline_runs import Pipe, straight
from shards import examples, samples, write_members, write_tar
from tar2tf_cli.errors import OutputExistsError, SampleError
from tar2tf_cli.pipeline import Pipeline, TFRecordReader, TFRecordWriter, by_key, select

SCATTERED = [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3"), ("b.y", b"4")]


@pytest.mark.parametrize("stages", [(), (straight,)])
def test_an_open_file_with_scattered_samples_is_read_as_its_path_is(tmp_path: Path, stages: Any) -> None:
    tar = write_members(tmp_path / "in.tar", SCATTERED)
    with tar.open("rb") as file:
        for source, out in ((tar, tmp_path / "path.record"), (file, tmp_path / "file.record")):
            pipeline = Pipeline().from_tar(source)
            for stage in stages:
                pipeline.with_samples_stage(stage)
            assert pipeline.sample_to_tf_example().to_tf_record(out).do().records == 2
    assert (tmp_path / "file.record").read_bytes() == (tmp_path / "path.record").read_bytes()


def test_an_open_file_is_read_from_its_position(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "in.tar", SCATTERED)
    (tmp_path / "behind.tar").write_bytes(b"something else" + tar.read_bytes())
    with (tmp_path / "behind.tar").open("rb") as file:
        file.seek(len(b"something else"))
        found = [sample["__key__"] for sample in Pipeline().from_tar(file).samples()]
    assert found == ["a", "b"]


def test_scattered_samples_of_a_pipe_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    data = write_members(tmp_path / "in.tar", SCATTERED).read_bytes()
    with pytest.raises(SampleError, match="appears again"):
        list(Pipeline().from_tar(Pipe(data)).samples())
    assert len(list(Pipeline().from_tar(Pipe(data), regroup=True).samples())) == 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stages", [(), (straight,)])
def test_the_type_of_an_entry_that_a_sample_lacks_is_ignored(tmp_path: Path, workers: int, stages: Any) -> None:
    tar = write_members(tmp_path / "in.tar", [("a.cls", b"1"), ("a.x", b"7"), ("b.cls", b"2")])
    types = {"cls": "INT64", "x": "FLOAT32LIST", "absent": "int64"}
    pipeline = Pipeline().from_tar(tar).sample_to_tf_example(types)
    for stage in stages:
        pipeline.with_samples_stage(stage)
    pipeline.to_tf_record(tmp_path / "out-<>.record", workers).do()
    first, second = examples(tmp_path / "out-1.record")
    assert [sorted(first), sorted(second)] == [["__key__", "cls", "x"], ["__key__", "cls"]]
    assert (first["cls"], first["x"]) == ([1], [7.0])


def test_the_type_of_a_feature_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "in.tar", [("a.cls", b"cat")])
    with pytest.raises(SampleError, match="'cls' is not of type int64"):
        Pipeline().from_tar(tar).sample_to_tf_example({"cls": "int64"}).to_tf_record(tmp_path / "x.record").do()


def test_a_second_run_of_a_pipeline_leaves_its_file_as_it_is(tmp_path: Path) -> None:
    tar, out = write_tar(tmp_path / "in.tar", samples(9)), tmp_path / "out.record"
    pipeline = Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out)
    pipeline.do()
    before = out.stat()
    assert pipeline.do().records == 9
    assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("stages", [(), (straight,)])
def test_shards_from_an_open_file_are_up_to_date_until_it_changes(tmp_path: Path, stages: Any) -> None:
    tar, out = write_tar(tmp_path / "in.tar", samples(9)), tmp_path / "out-<>.record"

    def run() -> bool:
        with tar.open("rb") as file:
            pipeline = Pipeline().from_tar(file).sample_to_tf_example()
            for stage in stages:
                pipeline.with_samples_stage(stage)
            return pipeline.to_tf_record(out).do().up_to_date

    assert (run(), run()) == (False, True)
    write_tar(tar, samples(10))
    with pytest.raises(OutputExistsError, match="inputs"):
        run()


def test_the_number_of_workers_is_the_second_argument(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(9))
    with (tmp_path / "out.record").open("wb") as out:
        assert Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out, 4).do().records == 9


def test_by_key_selects_only_that_entry(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "in.tar", [("a.jpg", b"1"), ("a.cls", b"2"), ("a.jpgs", b"3")])
    assert list(Pipeline().from_tar(tar).transform_samples(select(by_key("jpg"))).samples()) == [
        {"__key__": "a", "jpg": b"1"}
    ]


def test_the_writer_takes_tensorflows_examples(tmp_path: Path) -> None:
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[5]))
    with TFRecordWriter(tmp_path / "x.record") as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature={"label": feature})))
    (found,) = TFRecordReader(tmp_path / "x.record")
    assert found.get_int64("label") == 5
