"""`Records.batches`: columns of NumPy values in order or shuffled, for several hosts, continued from a number."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import threading
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from read_back import assert_same
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.errors import DamagedShardError, UsageError
from verify_runs import flipped

COUNT = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 records in eight shards, with an entry of each kind, and the same in one compressed shard."""
    folder = tmp_path_factory.mktemp("batches")
    entries: Any = [
        {"cls": b"%d" % -n, "txt": b"text" * n, "score": b"%d.5" % n, "json": b'{"box": [%d, 2, 3]}' % n}
        for n in range(COUNT)
    ]
    write_tar(folder / "in.tar", [(f"{n:04d}", each) for n, each in enumerate(entries)])
    options = ["-j", "1", "--select", "__key__,cls,txt,score,box=json:box"]
    for value in ("cls=int64", "score=float", "box=int64_list"):
        options += ["--type", value]
    for output in (
        ("out/<00000>.record", "--records-per-shard", "7"),
        ("gzip/x.record", "--compression", "gzip"),
    ):
        assert tar2tf("convert", folder / "in.tar", "-o", folder / output[0], *output[1:], *options).returncode == 0
    return folder


@pytest.fixture(params=["kernel", "python"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setenv("TAR2TF_PURE", "1")


def numbers(batches: Any) -> list[int]:
    return [-int(number) for batch in batches for number in batch["cls"]]


@pytest.mark.parametrize("shards", ["out", "gzip"])
def test_values_are_those_of_the_records(folder: Path, ways: None, shards: str) -> None:
    records = open_records(folder / shards)
    batches = list(records.batches(8))
    assert [len(batch["cls"]) for batch in batches] == [8] * 6 + [2]
    for number, record in enumerate(records):
        batch = batches[number // 8]
        assert_same({name: values[number % 8] for name, values in batch.items()}, record)
    assert {name: (str(values.dtype), values.shape) for name, values in batches[0].items()} == {
        "__key__": ("object", (8,)),
        "cls": ("int64", (8,)),
        "txt": ("object", (8,)),
        "score": ("float32", (8,)),
        "box": ("int64", (8, 3)),
    }
    assert batches[0]["box"].flags.writeable


def test_orders_are_those_of_load_dataset(folder: Path, ways: None) -> None:
    pytest.importorskip("tensorflow")
    records = open_records(folder / "out")
    for shard in ((1, 0), (3, 2)):
        dataset = load_dataset(folder / "out", shuffle=True, seed=5, batch=8, shard=shard)
        for epoch in range(2):
            start = epoch * len(range(shard[1], COUNT, shard[0]))
            batches = records.batches(8, shuffle=True, seed=5, shard=shard, start=start)
            assert numbers(batches) == numbers(dataset.as_numpy_iterator())


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("shard", [(1, 0), (3, 1)])
def test_reading_continues_from_what_was_read(folder: Path, ways: None, shuffle: bool, shard: tuple[int, int]) -> None:
    records = open_records(folder / "out")
    whole = records.batches(8, shuffle=shuffle, seed=1, shard=shard, epochs=3)
    seen, starts = [], [0]
    for batch in whole:
        seen.append(batch["cls"].tolist())
        starts.append(whole.read)
    assert whole.read == 3 * len(range(shard[1], COUNT, shard[0]))
    for done, start in enumerate(starts[:-1]):
        rest = records.batches(8, shuffle=shuffle, seed=1, shard=shard, start=start, epochs=None)
        wanted = min(3, len(seen) - done)
        assert [batch["cls"].tolist() for batch in islice(rest, wanted)] == seen[done : done + wanted]
        rest.close()


def test_a_smaller_last_batch_may_be_left_out(folder: Path, ways: None) -> None:
    batches = open_records(folder / "out").batches(8, drop_remainder=True, epochs=2)
    assert [len(batch["cls"]) for batch in batches] == [8] * 12


def test_views_and_copies_have_their_own_records(folder: Path, ways: None) -> None:
    records = pickle.loads(pickle.dumps(open_records(folder / "out")))
    assert numbers(records[40:10:-3].batches(4)) == [*range(40, 10, -3)]
    assert sorted(numbers(records[::2].batches(4, shuffle=True))) == [*range(0, COUNT, 2)]
    records.close()
    assert numbers(records.batches(4)) == [*range(COUNT)]


def test_values_of_several_shapes_and_samples_of_tars_are_stacked(folder: Path, tmp_path: Path, ways: None) -> None:
    (batch,) = open_records(folder / "in.tar").batches(100)
    assert batch["txt"].dtype == object
    assert batch["txt"].tolist() == [b"text" * number for number in range(COUNT)]
    write_tar(tmp_path / "a.tar", [(str(n), {"json": b'{"x": [%s]}' % b",".join([b"1"] * n)}) for n in range(1, 4)])
    options = ("--select", "x=json:x", "--type", "x=int64_list")
    assert tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "o" / "x.record", *options).returncode == 0
    (batch,) = open_records(tmp_path / "o").batches(100)
    assert [values.tolist() for values in batch["x"]] == [[1], [1, 1], [1, 1, 1]]


def test_damage_is_the_error_of_the_record(folder: Path, tmp_path: Path, ways: None) -> None:
    for path in (folder / "out").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "00002.record"
    shard.write_bytes(flipped(shard.read_bytes(), 60))
    batches = open_records(tmp_path).batches(7)
    assert numbers(chain([next(batches)], [next(batches)])) == [*range(14)]
    with pytest.raises(DamagedShardError, match="00002"):
        next(batches)


def test_threads_end_with_batches_that_nobody_reads_to_their_end(folder: Path) -> None:
    records = open_records(folder / "out")
    gc.collect()
    gc.disable()
    try:
        before = {*threading.enumerate()}
        batches = records.batches(1)
        next(batches)
        began = {*threading.enumerate()} - before
        del batches
        for thread in began:
            thread.join(timeout=20)
    finally:
        gc.enable()
    assert began
    assert not any(thread.is_alive() for thread in began)


def test_batches_begun_before_a_fork_are_refused_after_it(folder: Path) -> None:
    records = open_records(folder / "out")
    begun, fresh = records.batches(1), records.batches(1)
    next(begun)
    context = multiprocessing.get_context("fork")
    found: Any = context.SimpleQueue()

    def read() -> None:
        found.put(len(next(fresh)["cls"]))
        try:
            next(begun)
        except UsageError as error:
            found.put(str(error))

    process = context.Process(target=read)
    process.start()
    process.join(timeout=60)
    process.kill()
    assert found.get() == 1
    words = (
        "these batches were begun before this process was forked; make them in this process, with start=1 to continue"
    )
    assert found.get() == words
    assert numbers(begun) == [*range(1, len(records))]


def test_epochs_without_end_of_fewer_samples_than_a_batch_are_empty(folder: Path) -> None:
    assert not [*open_records(folder / "out")[:3].batches(8, drop_remainder=True, epochs=None)]


def test_numbers_of_numpy_are_numbers(folder: Path) -> None:
    records = open_records(folder / "out")
    given: dict[str, Any] = {"seed": np.int64(3), "shard": np.array([2, 1]), "start": np.uint8(5)}
    found = numbers(records.batches(np.int32(8), shuffle=True, **given))
    assert found == numbers(records.batches(8, shuffle=True, seed=3, shard=(2, 1), start=5))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size must be a number of examples, 1 or more, not 0"),
        ({"size": True}, "size must be a number of examples, 1 or more, not True"),
        ({"size": "eight"}, "size must be a number of examples, 1 or more, not 'eight'"),
        ({"size": 8, "threads": 0}, "threads must be 1 or more, not 0"),
        ({"size": 8, "epochs": -1}, "epochs must be 0 or more, not -1"),
        ({"size": 8, "epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"size": 8, "shuffle": True, "seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"size": 8, "start": -1}, "start must be a number of examples, 0 or more, not -1"),
        ({"size": 8, "start": False}, "start must be a number of examples, 0 or more, not False"),
        ({"size": 8, "shard": (2, 2)}, "shard must be (hosts, host), such as (4, 0) to (4, 3), not (2, 2)"),
        ({"size": 8, "shard": (2, -1)}, "shard must be (hosts, host), such as (4, 0) to (4, 3), not (2, -1)"),
    ],
)
def test_impossible_numbers_are_refused(folder: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_records(folder / "out").batches(**options)
    assert str(caught.value) == words
    with pytest.raises(UsageError, match="no columns"):
        open_records(folder / "out", raw=True).batches(8)
