"""The form of a feature of a TFRecord: one value or a list, by the whole input, and never by one record."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shards import samples_of
from tar2tf_cli import Conversion, Input, convert
from tar2tf_cli.formats.example import Encoder, bytes_list, frame, int64_list
from tar2tf_cli.ops import Func


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


def test_damage_leaves_the_form_of_the_records_that_can_be_read(tmp_path: Path) -> None:
    path = episodes(tmp_path / "a.tfrecord")
    data = bytearray(path.read_bytes())
    data[len(data) - 5] ^= 1
    path.write_bytes(data)
    out = tmp_path / "out.tar"
    convert(Conversion(Input(str(path)), str(out), select={"r": "steps/reward"}, on_error="skip"), workers=1)
    assert [list(entries) for _, entries in samples_of(out)] == [["r.npy"], ["r.npy"]]
