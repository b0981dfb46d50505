"""explode: a sample of each step of an episode, as RLDS stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tar2tf_cli import Conversion, Input, Output, convert, open_records
from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops import OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops


def steps(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [*apply_ops(sample, [parse_op("explode:steps")], OpContext())]


def episode(length: int) -> bytes:
    """An episode as RLDS writes it: a value for each step in each feature, actions of three numbers."""
    train = tf.train
    features = {
        "episode_id": train.Feature(int64_list=train.Int64List(value=[7])),
        "steps/reward": train.Feature(float_list=train.FloatList(value=[step / 2 for step in range(length)])),
        "steps/action": train.Feature(float_list=train.FloatList(value=[float(n) for n in range(3 * length)])),
        "steps/text": train.Feature(bytes_list=train.BytesList(value=[b"step %d" % step for step in range(length)])),
        "steps/is_last": train.Feature(int64_list=train.Int64List(value=[0] * (length - 1) + [1])),
    }
    return train.Example(features=train.Features(feature=features)).SerializeToString()


def test_each_step_of_rlds_becomes_a_record_also_of_an_episode_of_one_step(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "ep.tfrecord")) as writer:
        for length in (3, 1, 2):
            writer.write(episode(length))
    output = Output(tmp_path / "steps.record")
    convert(Conversion(Input(tmp_path / "ep.tfrecord"), output, ops=["explode:steps"]), workers=1)
    found = [*open_records(tmp_path / "steps.record")]
    assert [one["__key__"] for one in found] == [
        b"ep-000000/000000", b"ep-000000/000001", b"ep-000000/000002",
        b"ep-000001/000000",
        b"ep-000002/000000", b"ep-000002/000001",
    ]  # fmt: skip
    assert [one["text"] for one in found] == [b"step 0", b"step 1", b"step 2", b"step 0", b"step 0", b"step 1"]
    assert [one["action"].tolist() for one in found][:4] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 2]]
    assert [float(one["reward"]) for one in found] == [0, 0.5, 1, 0, 0, 0.5]
    assert {int(one["episode_id"]) for one in found} == {7}
    assert [int(one["is_last"]) for one in found] == [0, 0, 1, 1, 0, 1]


def test_an_array_is_divided_along_its_first_dimension() -> None:
    frames = np.arange(24).reshape(2, 3, 4)
    first, second = steps({"__key__": "a", "steps/frame": frames, "steps/n": np.array([1, 2])})
    np.testing.assert_array_equal(first["frame"], frames[0])
    np.testing.assert_array_equal(second["frame"], frames[1])


@pytest.mark.parametrize("value", [b"abc", "abc"])
def test_text_is_one_step_however_long_it_is(value: bytes | str) -> None:
    (made,) = steps({"__key__": "a", "steps/text": value, "steps/n": np.array([4]), "of": b"all"})
    assert made == {"__key__": "a/000000", "text": value, "n": 4, "of": b"all"}


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"cls": 1}, "has no entry steps/..., only cls"),
        ({"steps/a": np.arange(3), "steps/b": np.arange(4)}, "steps/b has 4 values, but there are 3 steps"),
        ({"steps/a": np.arange(0)}, "0 values"),
        ({"steps/a": np.arange(2), "a": 1}, "steps/a would become 'a', which the episode has, too"),
    ],
)
def test_what_has_no_steps_is_faulty(sample: dict[str, Any], words: str) -> None:
    with pytest.raises(SampleError, match=words):
        steps({"__key__": "k", **sample})
