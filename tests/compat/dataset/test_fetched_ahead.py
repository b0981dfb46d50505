"""Datasets in memory whose tars are behind a network: several downloads go on at once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from make_bytes import tar_of
from servers import FaultyServer
from tar2tf_cli import Dataset, load_dataset
from tar2tf_cli.ops import Select
from verify_runs import write

LARGE = 300_000
"""Bytes of an entry, so that no tar is small enough to be fetched together with others."""


def put_tars(web: FaultyServer, count: int, size: int) -> None:
    for number in range(count):
        entries = [(f"{number}.txt", b"%d" % number), (f"{number}.bin", bytes(size))]
        web.objects[f"b/t-{number}.tar"] = tar_of(entries)


def texts(dataset: Any) -> list[str]:
    return [value.numpy().decode() for value in dataset]


def meet(web: FaultyServer, monkeypatch: pytest.MonkeyPatch, *methods: str) -> dict[str, threading.Barrier]:
    """Requests of these methods wait until there are eight of one; otherwise its barrier is broken, and raises."""
    take, gates = web.take, {method: threading.Barrier(8) for method in methods}

    def all_there(request: str) -> Any:
        if gate := gates.get(request.partition(" ")[0]):
            gate.wait(timeout=20)
        return take(request)

    monkeypatch.setattr(web, "take", all_there)
    return gates


@pytest.mark.parametrize("size", [10, LARGE])
def test_as_many_tars_are_fetched_at_once_as_there_are_workers(
    web: FaultyServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    put_tars(web, 8, size)
    data = Dataset(f"{web.url}/b", conversions=[], selections=[Select("txt")]).load("t-{0..7}.tar", num_workers=8)
    together = meet(web, monkeypatch, "GET")
    assert texts(data) == [f"{number}" for number in range(8)]
    assert not together["GET"].broken


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_first_iteration_takes_two_round_trips_and_requests_nothing_twice(
    web: FaultyServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    put_tars(web, 8, size)
    take = web.take
    meet(web, monkeypatch, "HEAD", "GET")
    data = Dataset(f"{web.url}/b", conversions=[], selections=[Select("txt")]).load("t-{0..7}.tar", num_workers=8)
    assert texts(data) == [f"{number}" for number in range(8)]
    assert Counter(method for method, _, _ in web.log) == {"HEAD": 8, "GET": 8}
    monkeypatch.setattr(web, "take", take)
    web.objects["b/t-3.tar"] = tar_of([("3.txt", b"new"), ("3.bin", bytes(size))])
    with pytest.raises(Exception, match="changed"):
        texts(data)
    assert Counter(method for method, _, _ in web.log)["GET"] > 8, "the second iteration reads again"


@pytest.mark.parametrize("size", [10, LARGE])
def test_shards_of_records_are_fetched_at_once_too(
    web: FaultyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    entries = [
        (f"{number}.{name}", data) for number in range(8) for name, data in (("txt", b"t"), ("bin", bytes(size)))
    ]
    tar = write(tmp_path / "x.tar", tar_of(entries))
    assert tar2tf("convert", tar, "-o", tmp_path / "out" / "x-<>.record", "--num-shards", "8").returncode == 0
    web.objects.update({f"b/{path.name}": path.read_bytes() for path in (tmp_path / "out").iterdir()})
    data = load_dataset(f"{web.url}/b/_x-manifest.json")
    together = meet(web, monkeypatch, "GET")
    assert [item["__key__"].numpy() for item in data] == [b"%d" % number for number in range(8)]
    assert not together["GET"].broken


@pytest.mark.parametrize("size", [10, LARGE])
def test_iterations_at_the_same_time_do_not_take_what_others_fetch(web: FaultyServer, size: int) -> None:
    import tensorflow as tf

    put_tars(web, 12, size)
    data = Dataset(f"{web.url}/b", conversions=[], selections=[Select("txt")]).load("t-{0..11}.tar", num_workers=4)
    pairs = [(a.numpy(), b.numpy()) for a, b in tf.data.Dataset.zip((data, data.skip(1)))]
    assert pairs == [(b"%d" % number, b"%d" % (number + 1)) for number in range(11)]
