"""The form of a feature of a TFRecord: one value or a list, by the whole input, and never by one record."""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from make_bytes import npy
from shards import samples_of
from tar2tf_cli import Conversion, Input, convert, open_records, verify
from tar2tf_cli.api.values import Features
from tar2tf_cli.formats.example import Encoder, bytes_list, float_list, frame, int64_list
from tar2tf_cli.ops import Decode, Func, Rename


def record(number: int, values: list[int], texts: list[bytes]) -> bytes:
    features = {
        "__key__": f"k{number}".encode(),
        "label": int64_list([number], ()),
        "steps/reward": int64_list(values),
        "steps/text": bytes_list(texts),
    }
    return b"".join(frame(*Encoder().encode(features)))


EPISODES = [([5], [b"pick"]), ([1, 2, 3], [b"pick", b"move", b"put"]), ([7], [b"put"])]


def episodes(path: Path, some: list[tuple[list[int], list[bytes]]] = EPISODES) -> Path:
    data = b"".join(record(number, *episode) for number, episode in enumerate(some))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def seen_by_ops(path: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        found.append(dict(sample))
        return sample

    convert(Conversion(Input(str(path)), str(tmp_path / "out.record"), ops=[Func(look)]), workers=1)
    yield from found


@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_an_episode_of_one_step_is_a_list_where_others_have_several(suffix: str, tmp_path: Path) -> None:
    samples = [*seen_by_ops(episodes(tmp_path / f"a.{suffix}"), tmp_path)]
    assert [list(sample["steps/text"]) for sample in samples] == [texts for _, texts in EPISODES]
    assert [sample["steps/reward"].tolist() for sample in samples] == [values for values, _ in EPISODES]
    assert [sample["label"].shape for sample in samples] == [(), (), ()]


@pytest.mark.parametrize("options", [{}, {"select": "label,numbers"}, {"drop_duplicates": "label"}])
@pytest.mark.parametrize("output", ["o.record", "o.tar"])
def test_each_record_is_read_once_where_a_single_large_input_decides_by_itself(
    output: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The input is larger than what is read of a file to recognise it, and than what is read of it at once."""
    path, count = tmp_path / "a.tfrecord", 6_000
    examples = [
        {"label": int64_list([number], ()), "numbers": int64_list([number] * (1 + number % 2))}
        for number in range(count)
    ]
    path.write_bytes(b"".join(b"".join(frame(*Encoder().encode(example))) for example in examples))
    assert path.stat().st_size > 1 << 18
    made = convert(Conversion(Input(str(path)), str(tmp_path / output), **options), workers=1)
    assert made.records == count


@pytest.mark.parametrize("workers", [1, 2])
def test_a_feature_has_one_form_in_all_inputs(workers: int, tmp_path: Path) -> None:
    """The first shard has episodes of one step only."""
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "a.tfrecord").write_bytes(record(9, *EPISODES[0]))
    episodes(shards / "b.tfrecord")
    ops = [Rename({"reward": "steps/reward"})]
    made = Conversion(Input(str(shards)), str(tmp_path / "o.tar"), ops=ops, select="label,reward")
    convert(made, workers=workers)
    rewards = [entries["reward.npy"] for _, entries in samples_of(tmp_path / "o.tar")]
    assert rewards == [npy(np.array(values)) for values, _ in (*EPISODES[:1], *EPISODES)]
    assert verify(str(tmp_path / "_o-manifest.json"), against=str(shards), workers=1).ok


@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_records_on_standard_input_have_the_forms_of_the_same_file(suffix: str, tmp_path: Path) -> None:
    path = episodes(tmp_path / f"a.{suffix}")
    options = ("--op", "rename:reward=steps/reward", "--select", "label,reward")
    outputs = []
    for source, name in ((path, "file.tar"), ("-", "stdin.tar")):
        with path.open("rb") as stdin:
            done = tar2tf("convert", source, "-o", tmp_path / name, *options, stdin=stdin)
        assert done.returncode == 0, done.stderr
        outputs.append(dict(samples_of(tmp_path / name)))
    assert outputs[0] == outputs[1]
    rewards = [entries["reward.npy"] for entries in outputs[0].values()]
    assert rewards == [npy(np.array(values)) for values, _ in EPISODES]


def test_features_of_one_value_in_all_records_are_single_values(tmp_path: Path) -> None:
    samples = [*seen_by_ops(episodes(tmp_path / "a.tfrecord", [EPISODES[0], EPISODES[2]]), tmp_path)]
    assert [sample["steps/text"] for sample in samples] == [b"pick", b"put"]
    assert [sample["steps/reward"].shape for sample in samples] == [(), ()]


@pytest.mark.parametrize("types", [{}, {"reward": "int64_list"}])
def test_a_list_of_one_number_has_the_same_entry_in_a_tar_as_a_longer_one(
    types: dict[str, Any], tmp_path: Path
) -> None:
    path, out = episodes(tmp_path / "a.tfrecord"), tmp_path / "out.tar"
    select = {"reward": "steps/reward", "label": "label"}
    convert(Conversion(Input(str(path)), str(out), select=select, types=types), workers=1)
    samples = [entries for _, entries in samples_of(out)]
    assert [set(entries) for entries in samples] == [{"reward.npy", "label"}] * 3
    assert [np.load(io.BytesIO(entries["reward.npy"])).tolist() for entries in samples] == [v for v, _ in EPISODES]
    assert [entries["label"] for entries in samples] == [b"0", b"1", b"2"]


PIXELS = [
    {"a": bytes(range(60)), "a/shape": int64_list([4, 5, 3])},
    {"a": bytes(range(48)), "a/shape": int64_list([4, 4, 3])},
]
RANKS = [
    {"a": float_list([1, 2, 3, 4, 5, 6]), "a/shape": int64_list([4], ())},
    {"a": float_list([1, 2, 3, 4, 5, 6]), "a/shape": int64_list([2, 3])},
]
PRODUCT = [{"a": float_list([1, 2, 3, 4]), "a/shape": int64_list([3, 3])}] * 2


@pytest.mark.parametrize(
    ("examples", "entry"), [(PIXELS, "a"), (RANKS, "a.npy"), (PRODUCT, "a.npy")], ids=["pixels", "ranks", "product"]
)
def test_a_feature_that_is_only_named_like_a_shape_survives_a_tar(
    examples: list[Features], entry: str, tmp_path: Path
) -> None:
    path, tar, back = tmp_path / "a.tfrecord", tmp_path / "tar" / "b.tar", tmp_path / "back" / "c.record"
    path.write_bytes(b"".join(part for example in examples for part in frame(*Encoder().encode(example))))
    convert(Conversion(Input(str(path)), str(tar)), workers=1)
    assert [set(entries) for _, entries in samples_of(tar)] == [{entry, "a.shape.npy"}] * 2

    select = {"a": entry, "a/shape": "a.shape.npy"}
    convert(Conversion(Input(str(tar)), str(back), ops=[Decode("*.npy")], select=select), workers=1)
    assert back.read_bytes() == path.read_bytes()
    assert verify(tar.parent).ok
    assert verify(back.parent).ok
    assert [*map(comparable, open_records(back.parent))] == [*map(comparable, open_records(path))]


def comparable(example: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: np.atleast_1d(value).tolist() for name, value in example.items()}


def test_damage_leaves_the_form_of_the_records_that_can_be_read(tmp_path: Path) -> None:
    path = episodes(tmp_path / "a.tfrecord")
    data = bytearray(path.read_bytes())
    data[len(data) - 5] ^= 1
    path.write_bytes(data)
    out = tmp_path / "out.tar"
    convert(Conversion(Input(str(path)), str(out), select={"r": "steps/reward"}, on_error="skip"), workers=1)
    assert [list(entries) for _, entries in samples_of(out)] == [["r.npy"], ["r.npy"]]


def test_a_shard_that_is_opened_alone_has_the_values_that_the_manifest_next_to_it_describes(tmp_path: Path) -> None:
    episodes(tmp_path / "in.tfrecord")
    convert(Conversion(str(tmp_path / "in.tfrecord"), str(tmp_path / "out.record")), workers=1)
    (tmp_path / "alone").mkdir()
    alone = shutil.copy(tmp_path / "out.record", tmp_path / "alone")
    rewards = [
        [sample["steps/reward"].tolist() for sample in open_records(path)]
        for path in (tmp_path / "_out-manifest.json", tmp_path / "out.record", alone)
    ]
    assert rewards == [[[5], [1, 2, 3], [7]], [[5], [1, 2, 3], [7]], [5, [1, 2, 3], 7]]


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_text_among_records_in_which_a_feature_is_a_number_is_itself(
    order: int, pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    some = [{"__key__": b"a", "cls": b"\0text"}, {"__key__": b"b", "cls": int64_list([7])}][::order]
    (tmp_path / "in.record").write_bytes(b"".join(b"".join(frame(*Encoder().encode(one))) for one in some))
    convert(Conversion(Input(str(tmp_path / "in.record")), str(tmp_path / "out.record"), types={"cls": "bytes"}))
    found = {one["__key__"]: one["cls"] for one in open_records(tmp_path / "out.record")}
    assert found[b"a"] == b"\0text"


@pytest.mark.parametrize("pure", ["0", "1"])
def test_records_with_equal_lists_of_texts_are_duplicates(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    episodes(tmp_path / "in.record", [([1, 2], [b"pick", b"put"]), ([1, 2], [b"pick", b"put"]), ([1, 2], [b"put"])])
    arguments = ("convert", tmp_path / "in.record", "-o", tmp_path / "out.record", "--drop-duplicates=steps/text")
    done = tar2tf(*arguments, env={"TAR2TF_PURE": pure})
    assert done.returncode == 0, done.stderr
    assert [one["__key__"] for one in open_records(tmp_path / "out.record")] == [b"k0", b"k2"]


@pytest.mark.parametrize("option", ["--drop-duplicates=steps/txt", "--split-by=steps/txt"])
def test_a_mistyped_feature_of_records_that_are_copied_is_named(option: str, tmp_path: Path) -> None:
    name, more = ("out-<split>.record", ("--split", "a=0.5,b=0.5")) if "split" in option else ("out.record", ())
    episodes(tmp_path / "in.record")
    done = tar2tf("convert", tmp_path / "in.record", "-o", tmp_path / name, *more, option)
    assert done.returncode == 2
    assert "steps/txt" in done.stderr
    assert "steps/text" in done.stderr
    assert not [*tmp_path.glob("*manifest*")]


def test_a_record_without_the_feature_by_which_duplicates_are_found_is_a_faulty_sample(tmp_path: Path) -> None:
    some = [{"__key__": b"a", "b": b"1"}, {"__key__": b"b", "c": b"1"}]
    (tmp_path / "in.record").write_bytes(b"".join(b"".join(frame(*Encoder().encode(one))) for one in some))
    arguments = ("convert", tmp_path / "in.record", "-o", tmp_path / "out.record", "--drop-duplicates=b")
    assert tar2tf(*arguments).returncode == 3
    done = tar2tf(*arguments, "--on-error", "skip")
    assert (done.returncode, "1 sample skipped" in done.stderr) == (1, True)
