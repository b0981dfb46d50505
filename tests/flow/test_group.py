"""`--group-by`: samples GROUP/NAME become one, as the inverse of `explode`, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from commands import tar2tf
from tar2tf_cli import Conversion, Input, Output, convert, open_records
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.flow.group import SampleGroups
from tar2tf_cli.inputs.report import InputReport
from verify_runs import a_tar, write

ONCE = ("episode_id", "path")


def episode(number: int, length: int) -> bytes:
    """An episode as RLDS writes it: a value for each step in each feature, actions of three numbers."""
    train = tf.train
    floats = lambda values: train.Feature(float_list=train.FloatList(value=values))  # noqa: E731
    integers = lambda values: train.Feature(int64_list=train.Int64List(value=values))  # noqa: E731
    texts = lambda values: train.Feature(bytes_list=train.BytesList(value=values))  # noqa: E731
    features = {
        "episode_id": integers([number]),
        "path": texts([b"path %d" % number]),
        "steps/reward": floats([step / 2 for step in range(length)]),
        "steps/action": floats([float(n) for n in range(3 * length)]),
        "steps/text": texts([b"step %d" % step for step in range(length)]),
        "steps/is_last": integers([0] * (length - 1) + [1]),
    }
    return train.Example(features=train.Features(feature=features)).SerializeToString()


def values(*paths: Path) -> list[dict[str, Any]]:
    """What TensorFlow reads, without keys."""
    found = []
    for record in tf.data.TFRecordDataset(list(map(str, paths))):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        kinds = {name: (feature, feature.WhichOneof("kind")) for name, feature in features.items()}
        kinds.pop("__key__", None)
        found.append({name: (kind, list(getattr(feature, kind).value)) for name, (feature, kind) in kinds.items()})
    return found


@pytest.fixture
def episodes(tmp_path: Path) -> list[Path]:
    """Three files of episodes of one to five steps."""
    paths = [tmp_path / f"ep-{shard}.tfrecord" for shard in range(3)]
    for shard, path in enumerate(paths):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for number in range(30):
                writer.write(episode(100 * shard + number, 1 + (number * 7 + shard) % 5))
    return paths


def exploded(tmp_path: Path, template: str = "steps/<input>.record") -> Path:
    convert(Conversion(Input(tmp_path, "ep-*"), Output(tmp_path / template), ops=["explode:steps"]), workers=1)
    return tmp_path / "steps"


def grouped(steps: Path, out: Path, *, workers: int = 1, **more: Any) -> None:
    conversion = Conversion(steps, Output(out), group_by="steps", group_once=ONCE, **more)
    convert(conversion, workers=workers)


def test_steps_become_the_episodes_that_they_were(tmp_path: Path, episodes: list[Path]) -> None:
    grouped(exploded(tmp_path), tmp_path / "back.record")
    assert values(tmp_path / "back.record") == values(*episodes)
    keys = [record["__key__"] for record in open_records(tmp_path / "back.record")]
    assert (keys[0], keys[-1], len({*keys})) == (b"ep-0-000000", b"ep-2-000029", 90)


@pytest.mark.parametrize("more", [{}, {"shuffle": True, "seed": 3}, {"split": {"a": 0.5, "b": 0.5}}, {"limit": 7}])
def test_bytes_do_not_depend_on_the_number_of_workers(
    tmp_path: Path, episodes: list[Path], more: dict[str, Any]
) -> None:
    steps = exploded(tmp_path)
    for workers in (1, 3):
        name = "<split>-<>.record" if "split" in more else "o-<>.record"
        output = Output(tmp_path / str(workers) / name, max_shard_size=4000)
        convert(Conversion(steps, output, group_by="steps", group_once=ONCE, **more), workers=workers)
    shards = [{path.name: path.read_bytes() for path in (tmp_path / f).glob("*.record")} for f in ("1", "3")]
    assert shards[0] == shards[1]
    assert sum(len(values(path)) for path in (tmp_path / "1").glob("*.record")) == more.get("limit", 90)


def test_the_command_and_a_spec_file_do_the_same(tmp_path: Path, episodes: list[Path]) -> None:
    steps = exploded(tmp_path)
    command = ("convert", steps, "-o", tmp_path / "a.record", "--group-by", "steps", "--group-once", "episode_id")
    assert tar2tf(*command, "--group-once", "pa*", "-q").returncode == 0
    files = f"input: {{bucket: {steps}}}\noutput: {{path: {tmp_path / 'b.record'}}}\n"
    write(tmp_path / "spec.yaml", f"{files}group_by: steps\ngroup_once: [episode_id, path]\n".encode())
    assert tar2tf("convert", "--spec", tmp_path / "spec.yaml", "-q").returncode == 0
    assert (tmp_path / "a.record").read_bytes() == (tmp_path / "b.record").read_bytes()
    shown = tar2tf(*command, "--dry-run").stdout
    assert "the first group, ep-0-000000" in shown
    assert "steps/path" in shown


def test_any_samples_with_a_common_prefix_are_grouped_after_their_ops(tmp_path: Path) -> None:
    members = [
        (f"{page}/{line}.{name}", data)
        for page in ("a/x", "b", "c")
        for line in range(1 + (page == "b"))
        for name, data in (("txt", page.encode() + b"%d" % line), ("cls", b"%d" % line))
    ]
    write(tmp_path / "in.tar", a_tar(members))
    spec = Conversion(tmp_path / "in.tar", tmp_path / "o.record", ops=["rename:line=txt"], group_by="page")
    convert(spec)
    records = [*open_records(tmp_path / "o.record")]
    assert [record["__key__"] for record in records] == [b"a/x", b"b", b"c"]
    assert [_texts(record["page/line"]) for record in records] == [[b"a/x0"], [b"b0", b"b1"], [b"c0"]]
    assert [_texts(record["page/cls"]) for record in records] == [[b"0"], [b"0", b"1"], [b"0"]]


def _texts(value: Any) -> list[bytes]:
    return [value] if isinstance(value, bytes) else list(value)


def test_a_group_in_two_inputs_is_an_error_that_names_both_ways_out(tmp_path: Path, episodes: list[Path]) -> None:
    output = Output(tmp_path / "steps/<>.record", records_per_shard=50)
    convert(Conversion(Input(tmp_path, "ep-*"), output, ["explode:steps"]))
    with pytest.raises(SampleError, match="are in two inputs"):
        grouped(tmp_path / "steps", tmp_path / "back.record")
    assert not (tmp_path / "back.record").exists()
    convert(Conversion(tmp_path / "steps", tmp_path / "all.record"))
    grouped(tmp_path / "all.record", tmp_path / "back.record")
    assert values(tmp_path / "back.record") == values(*episodes)


def groups(samples: list[dict[str, Any]], *once: str, most: int = 1 << 20) -> tuple[list[dict[str, Any]], list[str]]:
    errors: list[str] = []
    made = SampleGroups("s", once, most).apply(iter(samples), InputReport(), lambda error: errors.append(str(error)))
    return [*made], errors


def test_arrays_get_a_first_dimension_and_lists_follow_each_other() -> None:
    samples = [{"__key__": f"a/{n}", "pixels": np.full((2, 3), n, np.uint8), "n": n, "t": b"x"} for n in range(2)]
    (made,), errors = groups(samples)
    assert (made["s/pixels"].shape, made["s/pixels"].dtype, made["s/n"].tolist()) == ((2, 2, 3), np.uint8, [0, 1])
    assert (made["s/t"], made["__key__"], errors) == ([b"x", b"x"], "a", [])


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([{"__key__": "a/0", "n": 1}, {"__key__": "a/1", "m": 1}], "differ in m, n"),
        ([{"__key__": "a/0", "id": 1}, {"__key__": "a/1", "id": 2}], "'id' differs among the samples of the group"),
        ([{"__key__": "a/0", "n": np.ones(2)}, {"__key__": "a/1", "n": np.ones(3)}], r"has the shapes (2,) and (3,)"),
        ([{"__key__": "a/0", "n": bytes(60)}, {"__key__": "a/1", "n": bytes(60)}], "holds more than 100 bytes"),
        ([{"__key__": "alone", "n": 1}], "the key has no '/'"),
    ],
)
def test_what_is_no_group_is_a_fault_and_the_others_are_made(samples: list[dict[str, Any]], says: str) -> None:
    others = [{"__key__": f"{name}/0", **{key: 1 for key in samples[0] if key != "__key__"}} for name in "xz"]
    made, errors = groups([others[0], *samples, others[1]], "id", most=100)
    assert [each["__key__"] for each in made] == ["x", "z"]
    assert len(errors) == 1
    assert says in errors[0]


def test_a_group_that_comes_again_is_a_fault() -> None:
    made, errors = groups([{"__key__": key, "n": 1} for key in ("a/0", "b/0", "a/1", "c/0")])
    assert [each["__key__"] for each in made] == ["a", "b", "c"]
    assert "'a' are not adjacent" in errors[0]


def test_only_one_group_is_in_memory() -> None:
    alive = 0

    class Counted(bytes):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def samples() -> Iterator[dict[str, Any]]:
        nonlocal alive
        for group in range(20):
            for step in range(5):
                alive += 1
                yield {"__key__": f"{group}/{step}", "data": Counted(b"x")}

    most = max(alive for _ in SampleGroups("s", (), 1 << 20).apply(samples(), InputReport(), print))
    assert most <= 12


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"group_once": "x"}, "--group-once needs --group-by"),
        ({"group_by": "s", "drop_duplicates": True}, "--drop-duplicates is about single samples"),
        ({"group_by": "s", "split_by": "cls", "split": {"<a>": 1}}, "--split"),
    ],
)
def test_options_that_contradict_each_other_are_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Conversion("in", "<split>.record" if "split" in more else "o.record", **more)
