"""Samples to which the ops were applied elsewhere: what is sent for them, and inputs that are fetched ahead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import wait_until
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY, Record
from tar2tf_cli.errors import SourceError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadPlan
from tar2tf_cli.formats.example import Encoder, frame
from tar2tf_cli.remote.cluster import RemoteSamples
from tar2tf_cli.remote.server import Transform
from tar2tf_cli.remote.stream import Asked, Settings, StreamReader, from_example, to_features
from tar2tf_cli.remote.transformers import of_cluster
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import open_source
from verify_runs import a_tar, some_members

ARRAYS = [
    np.float64([1e300, np.nan]),
    np.float16([[0.5]]),
    np.arange(6, dtype=">i2").reshape(2, 3).T,
    np.zeros((0, 3), np.uint8),
    np.array(True),
    np.array(["text", "ü"]),
]


def encoded(sample: dict[str, Any]) -> bytes:
    return b"".join(part for part in Encoder().encode(to_features(sample))[0] if isinstance(part, bytes))


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_a_sample_arrives_as_it_was_sent(array: Any) -> None:
    sample = {KEY: "a/\udcff ü", "jpg": b"\0\xff", "empty": b"", "npy": array}
    found = from_example(encoded(dict(sample)))
    arrived = found.pop("npy")
    assert (arrived.dtype, arrived.shape) == (array.dtype.newbyteorder("="), array.shape)
    np.testing.assert_array_equal(arrived, array)
    assert found == {name: value for name, value in sample.items() if name != "npy"}


def test_a_transformer_sends_the_entries_that_were_selected_after_the_ops(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(a_tar(some_members(30)))
    conversion = Conversion(str(tmp_path / "a.tar"), "-", ops=["rename:label=cls"], select=["label"])
    made_for = Conversion(str(tmp_path / "a.tar"), "-", ops=["rename:label=cls"], types=["label=int64"], limit=None)
    settings = Settings.load(Settings.of(made_for).text)
    assert settings.of_samples == Settings.of(conversion).of_samples
    answer = tmp_path / "answer"
    asked = Asked.load(Asked(first=True, entries=["label"]).text)
    Transform(settings)(str(tmp_path / "a.tar"), "/b/a.tar", asked, str(answer), lambda: None)
    with answer.open("rb") as file:
        framed = [b"".join(parts) for _, parts, *_ in StreamReader(file, "x", settings.digest).records()]
    source = open_source(str(tmp_path))
    with InputFlow(ReadPlan.of(conversion, source), source.list(["a.tar"])[0]) as reading:
        expected = [{KEY: sample[KEY], "label": sample["cls"]} for sample in reading.samples()]
    assert [from_example(record[12:-4]) for record in framed] == expected


class Fetched(RemoteSamples):
    """Gives one sample for each input, and notes which were asked for."""

    asked: list[str]

    def read(self, item: ObjectInfo, on_bytes: object = None) -> Any:
        self.asked.append(item.name)
        if item.name == "bad":
            raise SourceError("cannot be read", shard="bad")
        return _OneRecord(encoded({KEY: item.name}))


class _OneRecord:
    def __init__(self, message: bytes) -> None:
        self._message = message

    def __enter__(self) -> _OneRecord:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self) -> Iterator[Record]:
        yield "", frame([self._message], len(self._message)), len(self._message) + 16, None


def test_inputs_are_fetched_ahead_but_not_all() -> None:
    inputs = [ObjectInfo(name, 1, "1") for name in ("a", "b", "c", "d", "bad", "e")]
    source = Fetched(of_cluster("http://127.0.0.1:9"), None, {}, None)
    source.asked = []

    def keys(item: ObjectInfo) -> list[str]:
        return [sample[KEY] for _, sample in source.samples(item, None, None)]

    with source.prefetch(inputs, 2):
        assert keys(inputs[0]) == ["a"]
        wait_until(lambda: sorted(source.asked) == ["a", "b", "c"], "two more inputs")
        assert [keys(item) for item in inputs[1:4]] == [["b"], ["c"], ["d"]]
        wait_until(lambda: sorted(source.asked) == ["a", "b", "bad", "c", "d", "e"], "the rest")
        with pytest.raises(SourceError, match="cannot be read"):
            keys(inputs[4])
    assert [keys(item) for item in inputs if item.name != "bad"] == [["a"], ["b"], ["c"], ["d"], ["e"]]
