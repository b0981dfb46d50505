"""A program of a user's that goes through every public name; `mypy --strict` checks it, and a test runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tar2tf_cli import (
    AisDataset,
    Contents,
    Conversion,
    Dataset,
    Differences,
    Events,
    Fault,
    FileReport,
    Input,
    Output,
    Pipeline,
    PipelineSummary,
    Records,
    Report,
    Summary,
    Tar2tfError,
    TFRecordReader,
    TFRecordWriter,
    convert,
    default_record_parser,
    diff,
    inspect,
    load_dataset,
    open_records,
    verify,
)
from tar2tf_cli.ops import Cast, Decode, Resize, Select, SelectJSON

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import assert_type

    Tensors = dict[str, tf.Tensor]

    def types_of_what_is_returned(ais: AisDataset, parse: Callable[[Any], tuple[tf.Tensor, tf.Tensor]]) -> None:
        assert_type(load_dataset("m.json", shuffle=100, batch=8), tf.data.Dataset[Tensors])
        assert_type(
            load_dataset("m.json", batch=8, ragged=True), tf.data.Dataset[dict[str, tf.Tensor | tf.RaggedTensor]]
        )
        assert_type(ais.load("a.tar"), tf.data.Dataset[Any])
        assert_type(ais.load("a.tar", "a.record"), list[str])
        assert_type(ais.load_from_tar("a.tar", path="a.record"), tf.data.Dataset[Any])
        assert_type(load_dataset("m.json").map(parse), tf.data.Dataset[tuple[tf.Tensor, tf.Tensor]])
        assert_type(open_records("m.json"), Records[dict[str, Any]])
        assert_type(open_records("m.json")[0], dict[str, Any])
        assert_type(open_records("m.json")[::2].key("0001"), dict[str, Any])
        assert_type(open_records("m.json", raw=True).__getitems__([3, 1]), list[bytes])
        assert_type(diff("a", "b"), Differences)
        assert_type(Decode("jpg", channels=3).channels, int | str)


class Notes(Events):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


def by_objects(shards: Path, out: Path) -> Summary:
    conversion = Conversion(
        Input(str(shards), ("photos-{0..2}.tar",), key_split="first"),
        Output(str(out / "objects-<>.record"), max_shard_size=50_000),
        ops=(Decode("jpg"), Resize("jpg", (16, 16)), Cast("jpg", "uint8")),
        select={"image": Select("jpg"), "label": SelectJSON("json", ["label", "id"])},
        types={"label": "int64"},
    )
    return convert(conversion, workers=1, events=Notes())


def by_text(shards: Path, out: Path) -> Summary:
    conversion = Conversion(
        Input(shards, "photos-0.tar"),
        Output(out / "text-<>.record", "50kB"),
        ops=["decode:jpg", {"resize": {"ext": "jpg", "size": [16, 16]}}],
        select=["jpg", "label=cls"],
        types="label=int64",
        shuffle=True,
    )
    return convert(conversion, workers=1)


def checked(out: Path) -> list[str]:
    report: Report = verify(str(out / "_objects-manifest.json"), workers=1)
    files: list[FileReport] = report.files
    faults: list[Fault] = [fault for file in files for fault in file.faults]
    contents: Contents = inspect(str(out), ["objects-*.record"], workers=1)
    assert contents.samples == report.records
    return [f"{fault.kind}: {fault.message}" for fault in faults]


def piped(shards: Path, out: Path) -> PipelineSummary:
    stages = Pipeline().from_tar(str(shards / "photos-1.tar")).sample_to_tf_example({"cls": "int64"})
    summary = stages.to_tf_record(str(out / "piped.record")).do()
    with TFRecordWriter(str(out / "copy.record")) as writer:
        for example in TFRecordReader(str(out / "piped.record")):
            writer.write(example)
    return summary


def trained_from(shards: Path, out: Path) -> int:
    count = sum(1 for items in load_dataset(str(out / "_objects-manifest.json")) if items["label"] is not None)
    dataset: Dataset = AisDataset(str(shards))
    paths = dataset.load("photos-0.tar", path=str(out / "dataset-{}.record"))
    assert callable(default_record_parser)
    return count + len(paths)


def refused(out: Path) -> str:
    try:
        Output(out / "x", "100zz")
    except Tar2tfError as error:
        return error.message
    return ""


def main(shards: Path, out: Path) -> None:
    assert by_objects(shards, out).records == 18
    assert by_text(shards, out).records > 0
    assert checked(out) == []
    assert piped(shards, out).records > 0
    assert trained_from(shards, out) > 18
    assert "not a size" in refused(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
