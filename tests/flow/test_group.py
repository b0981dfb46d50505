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
from tar2tf_cli.formats.listed import Listed
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


@pytest.mark.parametrize(
    ("suffix", "cut"),
    [
        ("record", {"max_shard_size": 2000}),
        ("record", {"records_per_shard": 2}),
        ("record", {"records_per_shard": 1}),
        ("tar", {"max_shard_size": 20_000}),
        ("tar.gz", {"records_per_shard": 7}),
    ],
    ids=str,
)
def test_a_group_that_is_cut_goes_on_in_the_next_inputs(
    tmp_path: Path, episodes: list[Path], suffix: str, cut: dict[str, Any]
) -> None:
    output = Output(tmp_path / f"steps/<>.{suffix}", **cut)
    convert(Conversion(Input(tmp_path, "ep-*"), output, ["explode:steps"]), workers=1)
    for workers in (1, 3):
        grouped(tmp_path / "steps", tmp_path / f"{workers}/<0>.record", workers=workers)
    files = [{path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in "13"]
    assert files[0] == files[1]
    records = [*open_records(tmp_path / "1/0.record")]
    assert [r["__key__"] for r in records] == [b"ep-%d-%06d" % (shard, n) for shard in range(3) for n in range(30)]
    if suffix == "record":
        assert values(tmp_path / "1/0.record") == values(*episodes)
    verified = tar2tf("verify", tmp_path / "1/_manifest.json", "--against", tmp_path / "steps")
    assert verified.returncode == 0, verified.stdout


def test_a_group_that_is_cut_is_one_whatever_else_is_asked_for(tmp_path: Path, episodes: list[Path]) -> None:
    output = Output(tmp_path / "steps/<>.record", records_per_shard=4)
    convert(Conversion(Input(tmp_path, "ep-*"), output, ["explode:steps"]), workers=1)
    all_of_them = sorted(values(*episodes), key=_number)
    grouped(tmp_path / "steps", tmp_path / "shuffled.record", workers=2, shuffle=True, seed=1)
    assert sorted(values(tmp_path / "shuffled.record"), key=_number) == all_of_them
    grouped(tmp_path / "steps", tmp_path / "s-<split>.record", workers=2, split={"a": 0.5, "b": 0.5})
    assert sorted(values(*tmp_path.glob("s-?.record")), key=_number) == all_of_them
    grouped(tmp_path / "steps", tmp_path / "limited.record", workers=2, limit=7)
    assert values(tmp_path / "limited.record") == values(*episodes)[:7]


def _number(features: dict[str, Any]) -> int:
    return int(features["episode_id"][1][0])


def test_inputs_whose_samples_are_all_skipped_are_between_two_parts_of_a_group(tmp_path: Path) -> None:
    for number, names in enumerate(("a/0 a/1", "b/0", "a/2 b/1", "c/0", "c/1 d/0")):
        keep = "b/" if number in (1, 3) else "-"
        members = [(f"{key}.txt", f"{keep}{key}".encode()) for key in names.split()]
        write(tmp_path / f"in/{number}.tar", a_tar(members))
    ops = ["filter:txt!=b/b/0,b/c/0"]
    for workers in (1, 3):
        out = Output(tmp_path / f"{workers}.record")
        convert(Conversion(tmp_path / "in", out, ops, group_by="s"), workers=workers)
        found = {record["__key__"]: _texts(record["s/txt"]) for record in open_records(tmp_path / f"{workers}.record")}
        assert found == {b"a": [b"-a/0", b"-a/1", b"-a/2"], b"b": [b"-b/1"], b"c": [b"-c/1"], b"d": [b"-d/0"]}


@pytest.mark.parametrize(
    ("inputs", "output", "says"),
    [
        (("a/0 b/0", "b/1 c/0"), "<input>.record", "are in the input before, too, and each input is an output"),
        (("s/0 s/1", "s/0 s/1"), "o.record", "the sample 's/0' is in two inputs"),
        (("a/0 b/0", "c/0", "b/1 d/0"), "o.record", "in an earlier input, too, which is not the one before"),
    ],
)
def test_a_group_that_would_be_two_or_would_be_two_groups_is_an_error(
    tmp_path: Path, inputs: tuple[str, ...], output: str, says: str
) -> None:
    for number, names in enumerate(inputs):
        write(tmp_path / f"in/{number}.tar", a_tar([(f"{key}.txt", b"x") for key in names.split()]))
    with pytest.raises(SampleError, match=says):
        convert(Conversion(tmp_path / "in", tmp_path / "out" / output, group_by="s"), workers=2)
    assert not [*(tmp_path / "out").glob("_*")]


def test_groups_are_those_of_one_split(tmp_path: Path) -> None:
    for split, keys in (("train", ("a/0", "a/1")), ("validation", ("a/0", "b/0"))):
        for number, key in enumerate(keys):
            write(tmp_path / f"in/{split}-{number}.tar", a_tar([(f"{key}.txt", split.encode())]))
    convert(Conversion(tmp_path / "in", tmp_path / "o-<split>.record", group_by="s"), workers=2)
    found = {split: [*open_records(tmp_path / f"o-{split}.record")] for split in ("train", "validation")}
    assert [_texts(record["s/txt"]) for record in found["train"]] == [[b"train"] * 2]
    assert [record["__key__"] for record in found["validation"]] == [b"a", b"b"]


def test_an_update_of_groups_that_go_on_converts_everything(tmp_path: Path) -> None:
    write(tmp_path / "in/0.tar", a_tar([("a/0.txt", b"0")]))
    convert(Conversion(tmp_path / "in", tmp_path / "o.record", group_by="s"))
    write(tmp_path / "in/1.tar", a_tar([("a/1.txt", b"1")]))
    command = ("convert", tmp_path / "in", "-o", tmp_path / "o.record", "--group-by", "s", "--update")
    assert "everything is converted again: with --group-by" in tar2tf(*command).stderr
    assert [_texts(record["s/txt"]) for record in open_records(tmp_path / "o.record")] == [[b"0", b"1"]]


def groups(samples: list[dict[str, Any]], *once: str, most: int = 1 << 20) -> tuple[list[dict[str, Any]], list[str]]:
    errors: list[str] = []
    made = SampleGroups("s", once, most).apply([samples], InputReport(), lambda error: errors.append(str(error)))
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


ALONE = "the key has no '/', so the sample belongs to no group"


@pytest.mark.parametrize(
    ("inputs", "continues", "made", "report", "fault"),
    [
        ("a/0 a/1 b/0", False, "a:a/0+a/1 b:b/0", "a b", None),
        ("a/0 b/0 | b/1 c/0", False, "a:a/0 b:b/0+b/1", "a b; after b 1", None),
        ("a/0 b/0 | b/1 | b/2 | c/0", False, "a:a/0 b:b/0+b/1+b/2", "a b; after b 2", None),
        ("a/0 | b/0 b/1 | c/0", False, "a:a/0 b:b/0+b/1", "a b; after b 2", None),
        ("a/0 a/1 b/0", True, "b:b/0", "b; before a 2", None),
        ("a/0 a/1 | b/0", True, "b:b/0", "b; before a 2; after b 1", None),
        ("a/0 a/1 | a/2", True, "", "; before a 3; after a 1", None),
        ("a/x/0 a/x/1 a/y/0", False, "a/x:a/x/0+a/x/1 a/y:a/y/0", "a/x a/y", None),
        ("a/0 b a/1", False, "a:a/0+a/1", "a", f"sample b: {ALONE}"),
        ("/b a/1", False, "a:a/1", "a", f"sample /b: {ALONE}"),
        ("a/0 | b a/1", False, "a:a/0+a/1", "a; after a 1", None),
        ("a/0 b/0 | b/0", False, "a:a/0", "a b; after b 1", "sample b: the sample 'b/0' is in two inputs"),
        ("a/0 b/0 b/0", False, "a:a/0 b:b/0+b/0", "a b", None),
        ("a/0 b/0 a/1", False, "a:a/0 b:b/0", "a b", "sample a: the samples of the group 'a' are not adjacent"),
    ],
)  # fmt: skip
def test_an_input_owns_the_groups_that_begin_in_it_and_that_of_the_next_sample(
    inputs: str, continues: bool, made: str, report: str, fault: str | None
) -> None:
    told, errors = InputReport(), list[str]()
    samples = [[{"__key__": key, "of": key} for key in keys.split()] for keys in inputs.split("|")]
    found = SampleGroups("s", (), 1 << 20).apply(
        samples, told, lambda error: errors.append(error.sentence.partition(";")[0]), continues=continues
    )
    assert " ".join(f"{group['__key__']}:{'+'.join(group['s/of'])}" for group in found) == made
    shared = {"before": told.group_before, "after": told.group_after}
    counts = [f"; {name} {group} {count}" for name, groups in shared.items() for group, count in groups.items()]
    assert " ".join(told.groups) + "".join(counts) == report
    assert [error.replace(": --group-by:", ":") for error in errors] == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ([1, 2], [1, 2]),
        ([0.5, 2], [0.5, 2]),
        ([np.float32(1), np.float32(2)], [1, 2]),
        ([np.array([1, 2]), np.array([3, 4])], [[1, 2], [3, 4]]),
        ([np.array([1, 2]).view(Listed), np.array([3, 4]).view(Listed)], [1, 2, 3, 4]),
        ([b"a", b"bc"], [b"a", b"bc"]),
        (["a", "bc"], ["a", "bc"]),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 2}]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([np.array(1), np.array([2])], "'v' has the shapes () and (1,) in one group"),
        ([np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((1, 3))], "'v' has the shapes (2, 3) and (1, 3) in one group"),
    ],
)
def test_values_of_a_group_are_stacked_or_follow_each_other(values: list[Any], made: Any) -> None:
    found, errors = groups([{"__key__": f"a/{number}", "v": value} for number, value in enumerate(values)])
    if isinstance(made, str):
        assert (found, len(errors)) == ([], 1)
        assert f"--group-by: {made}" in errors[0]
        return
    (group,) = found
    value = group["s/v"]
    assert (getattr(value, "tolist", lambda: value)(), [*group], errors) == (made, ["__key__", "s/v"], [])


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ([1, 1, 1], True),
        ([1, 1.0], False),
        ([1, True], False),
        ([b"a", b"a"], True),
        ([b"a", "a"], False),
        ([float("nan"), float("nan")], True),
        ([np.float32("nan"), np.float32("nan")], True),
        ([float("nan"), 1.0], False),
        ([1.0, float("nan")], False),
        ([np.arange(3), np.arange(3)], True),
        ([np.arange(3), np.arange(3)[::-1]], False),
        ([np.arange(3), np.arange(2)], False),
        ([[1, 2], [1, 2]], True),
        ([{"a": 1}, {"a": 1}], True),
        ([{"a": 1}, {"a": 2}], False),
    ],
)
def test_values_given_once_have_to_be_equal(values: list[Any], same: bool) -> None:
    for once in ("id*", "id0"):
        found, errors = groups([{"__key__": f"a/{number}", "id0": each} for number, each in enumerate(values)], once)
        if same:
            assert (found[0]["id0"] is values[0], len(found), errors) == (True, 1, [])
        else:
            assert found == []
            assert len(errors) == 1
            assert "--group-once: 'id0' differs among the samples of the group" in errors[0]


@pytest.mark.parametrize("value", [bytes(42), "a" * 42, np.zeros(42, np.uint8), np.zeros((3, 7), np.int16)])
def test_a_group_may_be_as_large_as_the_limit(value: Any) -> None:
    samples = [{"__key__": f"a/{number}", "n": 1, "v": value} for number in range(2)]  # a key of 3 bytes, a number of 8
    assert groups(samples, most=2 * (3 + 8 + 42))[1] == []
    (error,) = groups(samples, most=2 * (3 + 8 + 42) - 1)[1]
    assert "--group-by: a group holds more than 105 bytes" in error


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

    most = max(alive for _ in SampleGroups("s", (), 1 << 20).apply([samples()], InputReport(), print))
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
