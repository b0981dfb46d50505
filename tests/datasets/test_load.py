"""`load_dataset`: order, shuffling, parts for hosts, batches, cardinality, and iterators that continue."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from commands import convert, tar2tf
from read_back import assert_same
from servers import FaultyServer
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.errors import UsageError
from verify_runs import framed, write

COUNT = 50


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 records in eight shards."""
    folder = tmp_path_factory.mktemp("load")
    write_tar(folder / "in" / "a.tar", [(f"{n:04d}", {"cls": b"%d" % n}) for n in range(COUNT)])
    options = ("--records-per-shard", "7", "--type", "cls=int64", "-j", "1")
    assert tar2tf("convert", folder / "in", "-o", folder / "out" / "<00000>.record", *options).returncode == 0
    return folder / "out" / "_manifest.json"


def numbers(dataset: Any) -> list[int]:
    return [int(item["cls"]) for item in dataset.as_numpy_iterator()]


def test_without_arguments_the_order_is_that_of_the_records(manifest: Path) -> None:
    dataset = load_dataset(manifest)
    assert numbers(dataset) == numbers(dataset) == [*range(COUNT)]


@pytest.mark.parametrize("buffer", [1, 20])
def test_shuffling_with_a_seed_is_the_same_in_each_run_and_differs_between_epochs(manifest: Path, buffer: int) -> None:
    dataset = load_dataset(manifest, shuffle=buffer, seed=3)
    epochs = [numbers(dataset) for _ in range(3)]
    again = load_dataset(manifest, shuffle=buffer, seed=3)
    assert [numbers(again) for _ in range(3)] == epochs
    assert numbers(load_dataset(manifest, shuffle=buffer, seed=4)) not in epochs
    assert len({tuple(epoch) for epoch in [*epochs, [*range(COUNT)]]}) == 4
    assert all(sorted(epoch) == [*range(COUNT)] for epoch in epochs)


@pytest.mark.parametrize("shuffle", [None, 10])
@pytest.mark.parametrize("hosts", [3, 8, 9])
def test_the_parts_of_hosts_are_all_examples_once(manifest: Path, hosts: int, shuffle: int | None) -> None:
    parts = [load_dataset(manifest, shard=(hosts, host), shuffle=shuffle, seed=1) for host in range(hosts)]
    found = [numbers(part) for part in parts]
    assert Counter(number for part in found for number in part) == Counter(range(COUNT))
    assert [int(part.cardinality()) for part in parts] == [len(part) for part in found]
    if hosts <= 8:  # whole shards
        assert all({number // 7 % hosts for number in part} == {host} for host, part in enumerate(found))


@pytest.mark.parametrize(("options", "expected"), [({}, 50), ({"batch": 8}, 7), ({"batch": 8, "shard": (2, 0)}, 4)])
def test_the_cardinality_is_known(manifest: Path, options: dict[str, Any], expected: int) -> None:
    for shuffle in (None, 10):
        dataset = load_dataset(manifest, shuffle=shuffle, **options)
        assert int(dataset.cardinality()) == len(list(dataset)) == expected


def test_a_batch_has_the_examples_stacked(manifest: Path) -> None:
    batches = list(load_dataset(manifest, batch=20).as_numpy_iterator())
    assert [batch["cls"].tolist() for batch in batches] == [[*range(20)], [*range(20, 40)], [*range(40, 50)]]
    assert batches[0]["__key__"].tolist() == [b"%04d" % number for number in range(20)]


@pytest.mark.parametrize("shuffle", [None, 9])
@pytest.mark.parametrize("batch", [None, 4])
def test_a_checkpoint_continues_where_it_was_saved(
    manifest: Path, tmp_path: Path, shuffle: int | None, batch: int | None
) -> None:
    dataset = load_dataset(manifest, shuffle=shuffle, seed=5, batch=batch)
    iterator = iter(dataset)
    for _ in range(3):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    rest = [item["cls"].numpy().tolist() for item in iterator]
    restored = iter(load_dataset(manifest, shuffle=shuffle, seed=5, batch=batch))
    tf.train.Checkpoint(iterator=restored).restore(path)
    assert [item["cls"].numpy().tolist() for item in restored] == rest
    assert len(rest) == (47 if batch is None else 10)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    *(
        ({"batch": number}, f"batch must be a number of examples, 1 or more, not {number}")
        for number in (-1, 0, True, 8.0)
    ),
    *(({"shuffle": number}, f"shuffle must be a number of examples, 1 or more, not {number}") for number in (-1, 0)),
    *(({"start": number}, f"start must be a number of examples, 0 or more, not {number}") for number in (-1, False)),
    *(
        ({"shard": shard}, f"shard must be (hosts, host), such as (4, 0) to (4, 3), not {shard}")
        for shard in ((2, 2), (0, 0), (2, -1), 4, (4.0, 0))
    ),
    ({"shuffle": "yes"}, "shuffle must be a number of examples, 1 or more, not 'yes'"),
    *(({"shuffle": True, "seed": seed}, f"seed must be a whole number, not {seed!r}") for seed in (1.5, "a")),
    (
        {"shuffle": True, "shard": (2, 0)},
        "hosts divide the order of an epoch among them; add seed=N, the same for each host",
    ),
    ({"shuffle": True, "start": 7}, "without a seed, no order can be continued; add seed=N, that of the first run"),
    (
        {"shuffle": 8, "seed": 1, "start": 7},
        "the order of a shuffle buffer cannot be continued by a number; use shuffle=True, or tf.train.Checkpoint",
    ),
    (
        {"ragged": True, "pad": True, "batch": 2},
        "ragged and pad are two ways to batch values of several shapes: use one of them",
    ),
    ({"ragged": True}, "ragged says how batches are made; add batch=N"),
    ({"pad": True}, "pad says how batches are made; add batch=N"),
]


@pytest.mark.parametrize(("options", "words"), IMPOSSIBLE, ids=str)
def test_impossible_arguments_are_refused(manifest: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_dataset(manifest, **options)
    assert str(caught.value) == words


@pytest.mark.parametrize("shards", [None, 3, ["out", None], b"out"], ids=str)
def test_shards_that_are_not_paths_are_refused(shards: Any) -> None:
    for function in (load_dataset, open_records):
        with pytest.raises(UsageError, match="the name of a shard or manifest must be text or a path, not"):
            function(shards)


def test_numbers_of_numpy_are_numbers(manifest: Path) -> None:
    plain = load_dataset(manifest, shuffle=True, seed=3, batch=8, shard=(2, 1), start=5)
    options = {"seed": np.int64(3), "batch": np.int32(8), "shard": np.array([2, 1]), "start": np.uint8(5)}
    given = load_dataset(manifest, shuffle=True, **options)
    assert [batch["cls"].numpy().tolist() for batch in given] == [batch["cls"].numpy().tolist() for batch in plain]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_messages_that_are_no_examples_are_given_as_they_are(compression: str, tmp_path: Path) -> None:
    messages = [b"\x08\x96\x01\x12\x05hello%d" % number for number in range(5)]
    write(tmp_path / "in.record", framed(*messages))
    convert(tmp_path / "in.record", "-o", tmp_path / "out" / "x.record", "--compression", compression)
    whole = load_dataset(tmp_path / "out")
    assert (list(whole.as_numpy_iterator()), int(whole.cardinality())) == (messages, 5)
    batches = load_dataset(tmp_path / "out", batch=2)
    assert [batch.tolist() for batch in batches.as_numpy_iterator()] == [messages[:2], messages[2:4], messages[4:]]
    ways: list[dict[str, Any]] = [{"shuffle": True, "seed": 1}, {"shuffle": 3, "seed": 1}]
    for options in ways:
        shuffled = list(load_dataset(tmp_path / "out", **options).as_numpy_iterator())
        assert (sorted(shuffled), shuffled == messages) == (messages, False)
    parts = [list(load_dataset(tmp_path / "out", shard=(2, host)).as_numpy_iterator()) for host in (0, 1)]
    assert parts == [messages[::2], messages[1::2]]


@pytest.mark.parametrize("suffix", ["record", "record.gz"])
def test_records_of_a_server_are_all_read_in_order_however_many_and_large_they_are(
    suffix: str, tmp_path: Path, web: FaultyServer
) -> None:
    sizes = [1] * 255 + [1] * 258 + [1 << 19, 1 << 19, 1, 1 << 20, 1, (1 << 20) - 1, 1]
    records = [b"\xff%d " % number + bytes(size) for number, size in enumerate(sizes)]
    write(tmp_path / "in.record", framed(*records))
    assert tar2tf("convert", tmp_path / "in.record", "-o", tmp_path / "out" / f"x.{suffix}").returncode == 0
    for path in (tmp_path / "out").iterdir():
        web.objects[f"out/{path.name}"] = path.read_bytes()
    manifest = f"{web.url}/out/_x-manifest.json"
    assert list(load_dataset(manifest).as_numpy_iterator()) == records
    batches = load_dataset(manifest, batch=100).as_numpy_iterator()
    assert [record for batch in batches for record in batch] == records


def test_a_folder_stands_for_its_manifest_as_it_does_for_open_records(manifest: Path, web: FaultyServer) -> None:
    for path in manifest.parent.iterdir():
        web.objects[f"out/{path.name}"] = path.read_bytes()
    whole = list(load_dataset(manifest).as_numpy_iterator())
    for place in (manifest.parent, f"{manifest.parent}/", f"{web.url}/out/_manifest.json"):
        for one, other, record in zip(load_dataset(place).as_numpy_iterator(), whole, open_records(place), strict=True):
            assert_same(one, other)
            assert_same(record, other)


def test_a_folder_of_a_bucket_stands_for_its_manifest(manifest: Path, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="loaded")
    for path in manifest.parent.iterdir():
        s3_client.put_object(Bucket="loaded", Key=f"deep/out/{path.name}", Body=path.read_bytes())
    assert numbers(load_dataset("s3://loaded/deep/out")) == numbers(load_dataset(manifest))
    assert len(open_records("s3://loaded/deep/out/")) == COUNT


def test_a_shard_is_read_as_the_manifest_beside_it_says(
    manifest: Path, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_client.create_bucket(Bucket="shards")
    for path in manifest.parent.iterdir():
        s3_client.put_object(Bucket="shards", Key=f"out/{path.name}", Body=path.read_bytes())
    whole = list(load_dataset(manifest).as_numpy_iterator())
    monkeypatch.chdir(manifest.parent)
    for folder in ("", "./", f"{manifest.parent}/", "s3://shards/out/"):
        dataset = load_dataset(f"{folder}00001.record")
        assert int(dataset.cardinality()) == 7
        for one, other in zip(dataset.as_numpy_iterator(), whole[7:14], strict=True):
            assert_same(one, other)
        assert numbers(load_dataset(f"{folder}0000{{2,0}}.record")) == [*range(14, 21), *range(7)]
        assert numbers(load_dataset(f"{folder}*.record")) == [*range(COUNT)]


def test_shards_without_a_manifest_are_an_error_that_says_what_there_is_for_them(
    manifest: Path, tmp_path: Path
) -> None:
    for number in (0, 1):
        shutil.copy(manifest.parent / f"0000{number}.record", tmp_path)
    for path in (tmp_path, tmp_path / "00000.record", tmp_path / "*.record"):
        with pytest.raises(UsageError, match=r"has no manifest, .*; tar2tf convert writes .*--code"):
            load_dataset(path)
    shutil.copy(manifest, tmp_path)
    shutil.copy(manifest.parent / "00000.record", tmp_path / "other.record")
    with pytest.raises(UsageError, match=r"other\.record: has no manifest"):
        load_dataset(tmp_path / "*.record")


def test_shards_in_a_bucket_are_shuffled_and_parted_alike(manifest: Path, web: FaultyServer) -> None:
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in manifest.parent.iterdir()})
    url = f"{web.url}/in/{manifest.name}"
    for options in ({"shuffle": 9, "seed": 2}, {"shard": (3, 1)}, {"shard": (9, 1), "shuffle": 3, "seed": 1}):
        assert numbers(load_dataset(url, **options)) == numbers(load_dataset(manifest, **options))  # type: ignore[arg-type]


def test_a_bucket_is_asked_once_for_the_manifest_and_for_each_index(manifest: Path, web: FaultyServer) -> None:
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in manifest.parent.iterdir()})
    assert len(numbers(load_dataset(f"{web.url}/in/{manifest.name}", shuffle=True, seed=1))) == COUNT
    asked = [(method, path.rpartition("/")[2]) for method, path, _ in web.log if path.endswith((".json", ".idx"))]
    indexes = [("GET", f"{path.name}.idx") for path in manifest.parent.glob("*.record")]
    assert sorted(asked) == sorted([("GET", manifest.name), *indexes])


def test_a_missing_shard_is_an_error_when_shuffled_too(manifest: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(manifest.parent, tmp_path / "copy"))
    (copied / "00003.record").unlink()
    with pytest.raises(tf.errors.NotFoundError, match="00003"):
        numbers(load_dataset(copied / manifest.name, shuffle=5))
