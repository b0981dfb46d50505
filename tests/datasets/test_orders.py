"""Batches by position: global shuffling, parts for hosts, continuing from a number, with the op in C and without."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from commands import tar2tf
from read_back import assert_same
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.datasets import record_op
from tar2tf_cli.datasets.order import epoch_seed, permuted
from tar2tf_cli.datasets.record_op import RecordOp
from verify_runs import flipped

COUNT = 50

needs_op = pytest.mark.skipif(not record_op.is_available(), reason="the op for TensorFlow is not built")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 records in eight shards, with an entry of each kind."""
    folder = tmp_path_factory.mktemp("orders")
    samples: Any = [
        (f"{n:04d}", {"cls": b"%d" % -n, "txt": b"text" * n, "score": b"%d.5" % n, "json": b'{"box": [%d, 2, 3]}' % n})
        for n in range(COUNT)
    ]
    write_tar(folder / "in" / "a.tar", samples)
    options = ["--records-per-shard", "7", "-j", "1", "--select", "cls,txt,score,box=json:box"]
    for value in ("cls=int64", "score=float", "box=int64_list"):
        options += ["--type", value]
    assert tar2tf("convert", folder / "in", "-o", folder / "out" / "<00000>.record", *options).returncode == 0
    return folder / "out"


@pytest.fixture(params=["op", "python"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the op in C, and without it."""
    if request.param == "python":
        monkeypatch.setenv("TAR2TF_PURE", "1")
    elif not record_op.is_available():
        pytest.skip("the op for TensorFlow is not built")
    return str(request.param)


def numbers(dataset: Any) -> list[int]:
    return [-int(number) for item in dataset.as_numpy_iterator() for number in np.ravel(item["cls"])]


@given(seed=st.integers(0, 2**63 - 1), total=st.integers(1, 3000))
def test_an_order_has_each_record_once(seed: int, total: int) -> None:
    assert sorted(permuted(seed, np.arange(total), total)) == [*range(total)]


def test_an_order_is_a_random_one() -> None:
    """Neighbours are far apart, and every record comes first as often as any other."""
    orders = [permuted(epoch_seed(1, epoch), np.arange(100), 100) for epoch in range(2000)]
    assert abs(np.mean([np.abs(np.diff(order)).mean() for order in orders]) - 33.3) < 1
    first = Counter(int(order[0]) for order in orders)
    assert len(first) == 100
    assert max(first.values()) < 50


@needs_op
@given(seed=st.integers(0, 2**62), counts=st.lists(st.integers(0, 9), min_size=1, max_size=6), hosts=st.integers(1, 3))
def test_the_op_has_the_order_of_python(
    tmp_path_factory: pytest.TempPathFactory, seed: int, counts: list[int], hosts: int
) -> None:
    total = sum(counts)
    folder = tmp_path_factory.mktemp("op")
    messages = [b"%d" % number * number for number in range(total)]
    paths, written = [], iter(messages)
    for number, count in enumerate(counts):
        paths.append(str(folder / f"{number}.record"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for message in islice(written, count):
                writer.write(message)
    for host in range(hosts):
        own = range(host, total, hosts)
        bounds = tf.constant(0, tf.int64), tf.constant(len(own), tf.int64)
        found = RecordOp(paths, counts, (hosts, host)).messages(*bounds, tf.constant(seed, tf.int64))
        expected = permuted(seed, np.array(own, np.int64), total) if own else []
        assert found.numpy().tolist() == [messages[number] for number in expected]
        found = RecordOp(paths, counts, (hosts, host)).messages(*bounds, tf.constant(-1, tf.int64))
        assert found.numpy().tolist() == [messages[number] for number in own]
    shutil.rmtree(folder)


def test_values_are_those_of_open_records(folder: Path, ways: str) -> None:
    records = list(open_records(folder))
    for one, other in zip(load_dataset(folder).as_numpy_iterator(), records, strict=True):
        assert_same(one, other)
    for batch, first in zip(load_dataset(folder, batch=8).as_numpy_iterator(), range(0, COUNT, 8), strict=True):
        for name, values in batch.items():
            for value, record in zip(values, records[first : first + 8], strict=True):
                assert_same({name: value}, {name: record[name]})


@pytest.mark.parametrize("batch", [None, 8])
def test_shuffling_all_gives_each_epoch_another_order_and_each_run_the_same(
    folder: Path, ways: str, batch: int | None
) -> None:
    dataset = load_dataset(folder, shuffle=True, seed=3, batch=batch)
    epochs = [numbers(dataset) for _ in range(3)]
    assert [numbers(dataset) for dataset in [load_dataset(folder, shuffle=True, seed=3, batch=batch)] * 3] == epochs
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == [*range(COUNT)] for epoch in epochs)
    expected = permuted(epoch_seed(3, 1), np.arange(COUNT), COUNT)
    assert epochs[1] == expected.tolist()
    assert numbers(load_dataset(folder, shuffle=True, seed=4, batch=batch)) not in epochs
    assert int(dataset.cardinality()) == len(list(dataset)) == (50 if batch is None else 7)


def test_hosts_divide_each_epoch(folder: Path, ways: str) -> None:
    parts = [load_dataset(folder, shuffle=True, seed=1, shard=(3, host)) for host in range(3)]
    for _ in range(2):
        found = [numbers(part) for part in parts]
        assert sorted(number for part in found for number in part) == [*range(COUNT)]
        assert [len(part) for part in found] == [int(part.cardinality()) for part in parts] == [17, 17, 16]


@pytest.mark.parametrize("shuffle", [None, True])
@pytest.mark.parametrize("options", [{}, {"shard": (2, 1)}, {"shard": (9, 4)}, {"batch": 4}])
def test_reading_continues_from_the_number_of_examples_read(
    folder: Path, ways: str, shuffle: bool | None, options: dict[str, Any]
) -> None:
    whole = load_dataset(folder, shuffle=shuffle, seed=5, **options)
    read = [number for _ in range(4) for number in numbers(whole)]
    for start in (0, 3, 4, len(read) // 4 + 2, len(read) // 2):
        rest = load_dataset(folder, shuffle=shuffle, seed=5, start=start, **options)
        again = numbers(rest) + numbers(rest)
        assert again == read[start : start + len(again)]
        assert len(again) > len(read) // 4


def test_the_batch_that_follows_is_read_as_one(folder: Path, ways: str) -> None:
    for options in ({}, {"shuffle": True, "seed": 2}, {"shuffle": 9, "seed": 2}, {"shard": (9, 1)}):
        one = list(load_dataset(folder, **options).batch(8).as_numpy_iterator())  # type: ignore[arg-type]
        other = list(load_dataset(folder, batch=8, **options).as_numpy_iterator())  # type: ignore[arg-type]
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)
    dropped = load_dataset(folder).batch(8, drop_remainder=True)
    assert dropped.element_spec["box"].shape == (8, 3)
    assert [len(batch["cls"]) for batch in dropped] == [8] * 6
    assert int(dropped.cardinality()) == 6
    assert [len(batch["cls"]) for batch in load_dataset(folder).batch(tf.constant(20, tf.int64))] == [20, 20, 10]
    assert numbers(load_dataset(folder).batch(4, num_parallel_calls=2).unbatch()) == [*range(COUNT)]


@pytest.mark.parametrize("shuffle", [None, True])
@pytest.mark.parametrize(("drop_remainder", "start"), [(False, 0), (True, 0), (False, 7), (True, COUNT + 8)])
def test_small_batches_are_the_same_where_several_are_read_at_once(
    folder: Path, ways: str, shuffle: bool | None, drop_remainder: bool, start: int
) -> None:
    """48 batches of one are read three at a time; what remains of an epoch, one at a time."""
    order: Any = {"shuffle": shuffle, "seed": 3} if shuffle else {}
    dataset = load_dataset(folder, **order, start=start).batch(1, drop_remainder)
    records = open_records(folder)
    for epoch in range(2):
        begin = start if epoch == 0 else (start // COUNT + 1) * COUNT
        wanted = list(records.batches(1, **order, start=begin, drop_remainder=drop_remainder))
        found = list(dataset.as_numpy_iterator())
        assert len(found) == len(wanted) == COUNT - begin % COUNT
        for batch, other in zip(found, wanted, strict=True):
            assert_same(batch, other)
    assert dataset.element_spec["box"].shape.as_list() == [1 if drop_remainder else None, 3]


def test_a_checkpoint_continues_in_the_order_of_its_epoch(folder: Path, ways: str, tmp_path: Path) -> None:
    dataset = load_dataset(folder, shuffle=True, seed=5, batch=4)
    list(dataset)
    iterator = iter(dataset)
    for _ in range(3):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    rest = [item["cls"].numpy().tolist() for item in iterator]
    restored = iter(load_dataset(folder, shuffle=True, seed=5, batch=4))
    tf.train.Checkpoint(iterator=restored).restore(path)
    assert [item["cls"].numpy().tolist() for item in restored] == rest
    assert len(rest) == 10


@pytest.mark.parametrize("shuffle", [True, 9])
@pytest.mark.parametrize("options", [{}, {"batch": 4}, {"batch": 4, "pad": True}], ids=str)
@pytest.mark.parametrize("read", [47, 55])
def test_the_epochs_after_a_restored_one_are_those_that_would_have_followed(
    folder: Path, shuffle: int, options: dict[str, Any], read: int, tmp_path: Path
) -> None:
    def repeated() -> Any:
        return iter(load_dataset(folder, shuffle=shuffle, seed=5, **options).repeat())

    def taken(iterator: Any, number: int) -> list[Any]:
        return [next(iterator)["cls"].numpy().tolist() for _ in range(number)]

    read, more = (read // 4, 30) if options else (read, 120)
    iterator = repeated()
    taken(iterator, read)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "state"))
    follow = taken(iterator, more)
    restored = repeated()
    tf.train.Checkpoint(iterator=restored).restore(path)
    assert taken(restored, more) == follow
    other = load_dataset(folder, shuffle=shuffle, seed=5, **options).repeat().skip(read)
    assert taken(iter(other), more) == follow


@pytest.mark.parametrize("shuffle", [True, 9])
def test_an_earlier_checkpoint_restored_in_the_same_process_is_followed_by_the_same_epochs(
    folder: Path, ways: str, shuffle: int, tmp_path: Path
) -> None:
    iterator = iter(load_dataset(folder, shuffle=shuffle, seed=5).repeat())
    read = [next(iterator)["cls"].numpy() for _ in range(60)]
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.save(str(tmp_path / "state"))
    later = [next(iterator)["cls"].numpy() for _ in range(170)]
    checkpoint.restore(path)
    assert [next(iterator)["cls"].numpy() for _ in range(170)] == later
    assert len(set(read[:COUNT])) == COUNT


@pytest.mark.parametrize("shuffle", [True, 9])
def test_the_seed_of_a_program_determines_the_order(folder: Path, shuffle: int) -> None:
    def order(seed: int) -> list[int]:
        tf.random.set_seed(seed)
        return numbers(load_dataset(folder, shuffle=shuffle))

    assert order(3) == order(3) != order(4)


def test_a_buffer_larger_than_any_memory_holds_all_examples(folder: Path) -> None:
    every = numbers(load_dataset(folder, shuffle=COUNT, seed=1))
    assert numbers(load_dataset(folder, shuffle=10**15, seed=1)) == every
    assert sorted(every) == [*range(COUNT)] != every


def test_keras_reads_a_new_order_in_each_epoch(folder: Path, ways: str) -> None:
    seen: list[int] = []

    class Model(tf.keras.Model):  # type: ignore[misc,name-defined]
        def train_step(self, batch: Any) -> dict[str, Any]:
            tf.py_function(lambda cls: seen.extend((-cls.numpy()).tolist()), [batch["cls"]], [])
            return {"loss": tf.constant(0.0)}

    model = Model()
    model.compile()
    model.fit(load_dataset(folder, shuffle=True, seed=3, batch=8), epochs=2, verbose=0, shuffle=False)
    assert seen == [number for epoch in (0, 1) for number in permuted(epoch_seed(3, epoch), np.arange(COUNT), COUNT)]


@needs_op
@pytest.mark.parametrize("shuffle", [None, True])
def test_lengths_of_records_are_read_once_by_all_epochs(tmp_path: Path, shuffle: bool | None) -> None:
    write_tar(tmp_path / "in" / "a.tar", [(f"{n:04d}", {"txt": b"t" * 400, "cls": b"1"}) for n in range(2000)])
    assert tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "<0>.record").returncode == 0
    size = sum(shard.stat().st_size for shard in tmp_path.glob("out/*.record"))
    dataset = load_dataset(tmp_path / "out", shuffle=shuffle, seed=1, batch=32)
    read = []
    for _ in range(2):
        before = bytes_read()
        assert len(list(dataset)) == 63
        read.append(bytes_read() - before)
    assert 1.9 < read[0] / size < 2.5
    assert 0.9 < read[1] / size < 1.2


def bytes_read() -> int:
    """Bytes that this process has read so far."""
    found = re.search(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@needs_op
def test_shards_that_were_written_again_are_read_again(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    dataset = load_dataset(copied, batch=7)
    assert numbers(dataset) == [*range(COUNT)]
    for shard in copied.glob("*.record"):
        messages = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
        with tf.io.TFRecordWriter(str(shard)) as writer:
            for message in reversed(messages):
                writer.write(message)
    again = numbers(dataset)
    assert sorted(again) == [*range(COUNT)]
    assert again[:7] == [*reversed(range(7))]


# --- Shards that are not as the manifest says ---


@needs_op
def test_damage_is_named_with_its_shard_and_record(folder: Path, tmp_path: Path) -> None:
    for at, words in ((60, "record 0: the CRC of its data is wrong"), (3, "record 0: the CRC of its length")):
        copied = Path(shutil.copytree(folder, tmp_path / str(at)))
        shard = copied / "00002.record"
        shard.write_bytes(flipped(shard.read_bytes(), at))
        with pytest.raises(tf.errors.DataLossError, match=rf"00002\.record: {words}"):
            numbers(load_dataset(copied))
        assert numbers(load_dataset(copied, batch=14).take(1)) == [*range(14)]


@needs_op
@pytest.mark.parametrize("shuffle", [None, True])
def test_another_number_of_records_is_an_error(folder: Path, tmp_path: Path, shuffle: bool | None) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    first, second = (copied / f"0000{number}.record" for number in (0, 1))
    whole = first.read_bytes()
    for content, words in (
        (whole + second.read_bytes(), "more records than"),
        (whole[: len(whole) // 2], "00000.record"),
    ):
        first.write_bytes(content)
        with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.DataLossError), match=words):
            numbers(load_dataset(copied, shuffle=shuffle, seed=1))


@needs_op
def test_messages_of_an_unusual_form_are_parsed_by_tensorflow(folder: Path, tmp_path: Path) -> None:
    """Such as those of protobuf's C++ library, with features in another order, or one that the manifest lacks."""
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    expected = list(load_dataset(copied, batch=16).as_numpy_iterator())
    for shard in copied.glob("*.record"):
        messages = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
        with tf.io.TFRecordWriter(str(shard)) as writer:
            for number, message in enumerate(messages):
                example = tf.train.Example.FromString(message)
                if number % 3 == 0:
                    example.features.feature["more"].int64_list.value.append(1)
                writer.write(example.SerializeToString())
    for one, other in zip(load_dataset(copied, batch=16).as_numpy_iterator(), expected, strict=True):
        assert_same(one, other)


@needs_op
def test_an_example_that_lacks_a_feature_is_tensorflows_error(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    shard = copied / "00001.record"
    messages = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for message in messages:
            example = tf.train.Example.FromString(message)
            del example.features.feature["cls"]
            writer.write(example.SerializeToString())
    with pytest.raises(tf.errors.InvalidArgumentError, match="cls"):
        numbers(load_dataset(copied, batch=4))
