"""Pipeline: stages from tar to TFRecord, selections, transformations, TFExample, the reader and the writer."""

from __future__ import annotations

import gzip
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import convert
from pipeline_runs import Pipe, made_of
from shards import PHOTOS, examples, records, samples, write_tar
from tar2tf_cli.errors import (
    DamagedShardError,
    UsageError,
)
from tar2tf_cli.ops import Decode, Keep, Resize
from tar2tf_cli.pipeline import (
    Pipeline,
    TFExample,
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


def test_samples_are_yielded_without_an_output(tar: Path) -> None:
    seen: list[str] = []

    def watched(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            seen.append(item["__key__"])
            yield item

    pipeline = Pipeline().from_tar(tar).transform_samples(rename("image", ["jpg"])).with_samples_stage(watched)
    found = pipeline.samples()
    assert not seen, "nothing is read before the first sample is asked for"
    wanted = [(key, {"__key__": key, "cls": fields["cls"], "image": fields["jpg"]}) for key, fields in samples(40)]
    assert next(found) == wanted[0][1]
    assert len(seen) == 1
    found.close()
    assert [(sample["__key__"], sample) for sample in pipeline.samples()] == wanted
    assert len([*Pipeline().from_tar(tar, tar).samples()]) == 80
    with pytest.raises(UsageError, match="no TarStage; begin with from_tar"):
        Pipeline().samples()


def test_samples_of_a_damaged_tar_end_in_its_error(tar: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(tar.read_bytes()[:20_000])
    found = Pipeline().from_tar(cut).samples()
    assert next(found)["__key__"] == "0000"
    with pytest.raises(DamagedShardError, match="cut short"):
        list(found)


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
            met.wait(timeout=100)
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
    assert holds("scores", (0.5, 0.1))
    assert not holds("scores", 0.5)
    assert not holds("box", 1)
    assert holds("label", [7])


def test_by_key_value_compares_texts_numbers_and_arrays_of_samples() -> None:
    sample = {"__key__": "k", "cls": b" 3\n", "txt": b"caf\xc3\xa9 \xff", "n": np.arange(2), "x": np.float32(0.5)}

    def holds(name: str, value: Any) -> bool:
        return bool(list(by_key_value(name, value).names(sample)))

    for name, value in (("cls", 3), ("cls", "3"), ("cls", b" 3\n"), ("txt", "café \ufffd"), ("n", [0, 1]), ("x", 0.5)):
        assert holds(name, value), name
    assert holds("n", np.arange(2))
    for name, value in (("cls", 3.0), ("cls", " 3"), ("cls", b"3"), ("n", [0]), ("n", (0, 1)), ("n", 0), ("x", 1)):
        assert not holds(name, value), name
    assert not holds("absent", None)


def test_a_pipeline_whose_stages_keep_nothing_writes_an_empty_file(tar: Path, tmp_path: Path) -> None:
    pipeline = Pipeline().from_tar(tar).with_samples_stage(lambda items: iter(())).sample_to_tf_example()
    done = pipeline.to_tf_record(tmp_path / "out.record").do()
    assert (done.records, done.shards) == (0, [])
    assert (tmp_path / "out.record").read_bytes() == b""


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
    with pytest.raises(UsageError, match="all for samples or all for examples"):
        select(by_example_f(list), by_sample_f(list))
    with pytest.raises(UsageError, match="'jpg' is not a rule for names; write by_key"):
        select("jpg")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="3 is not a transformation"):
        Pipeline().transform_samples(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rename takes a name and its sources"):
        rename("image", [])


def test_ops_go_where_transformations_go(fields: Path, tmp_path: Path) -> None:
    made = made_of(fields, tmp_path, lambda pipeline: pipeline.transform_samples(Keep("prefix:seg", "cls=3")))
    assert sorted(made[0]) == ["__key__", "cls", "seg_a", "seg_b"]
