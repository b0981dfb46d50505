"""Pipelines and streams for the tests of `Pipeline`, and readers of their output."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shards import examples, tree
from tar2tf_cli.pipeline import (
    Pipeline,
    TFExample,
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


def made_of(tar: Any, tmp_path: Path, build: Callable[[Pipeline], Pipeline] = lambda pipeline: pipeline) -> list[Any]:
    """Features of the examples that a pipeline writes, as TensorFlow's protobuf parses them."""
    out = tmp_path / "made.record"
    build(Pipeline().from_tar(tar)).sample_to_tf_example().to_tf_record(out, overwrite=True).do()
    return examples(out)


def straight(items: Iterator[Any]) -> Iterator[Any]:
    """A stage that changes nothing, so that the whole stream goes through one place."""
    yield from items


def tars_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def shards_of(folder: Path) -> dict[str, bytes]:
    """Everything but manifests, whose specs differ."""
    return {name: data for name, data in tree(folder).items() if not name.endswith(".json")}


def load(folder: Path, name: str = "_train-manifest.json") -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((folder / name).read_text())
    return whole


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
